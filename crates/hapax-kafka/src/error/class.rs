//! The one table: what an error code means for a request.
//!
//! Everything that decides on a code asks [`classify`]; nobody else interprets numbers. A code has no meaning by
//! itself: `INVALID_PRODUCER_EPOCH` on Produce ends an epoch, `CONCURRENT_TRANSACTIONS` on EndTxn says nothing but
//! "ask again".
//!
//! Sources: `Errors`, `TransactionManager`, `TransactionCoordinator`, `ReplicaManager`, `CompletedFetch`; KIP-360,
//! KIP-588, KIP-890, KIP-1050.

use super::KafkaCode as C;
use hapax_commit::TransactionVersion;
use std::fmt;

/// Which request a code answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestKind {
    /// ApiVersions.
    ApiVersions,
    /// Metadata: the code of a topic or partition.
    Metadata,
    /// FindCoordinator.
    FindCoordinator,
    /// InitProducerId.
    InitProducerId,
    /// AddPartitionsToTxn.
    AddPartitionsToTxn,
    /// AddOffsetsToTxn.
    AddOffsetsToTxn,
    /// TxnOffsetCommit: the code of a partition.
    TxnOffsetCommit,
    /// OffsetFetch: the code of a partition or of the group.
    OffsetFetch,
    /// EndTxn under a transaction version.
    EndTxn(TransactionVersion),
    /// Produce: the code of a partition.
    Produce,
    /// Fetch: the code of a partition or of the whole answer.
    Fetch,
    /// ListOffsets: the code of a partition.
    ListOffsets,
    /// OffsetForLeaderEpoch: the code of a partition.
    OffsetForLeaderEpoch,
    /// DescribeTransactions.
    DescribeTransactions,
    /// ListTransactions.
    ListTransactions,
    /// DescribeProducers: the code of a partition.
    DescribeProducers,
    /// WriteTxnMarkers: the code of a partition.
    WriteTxnMarkers,
    /// DescribeConfigs.
    DescribeConfigs,
    /// CreateTopics: the code of a topic.
    CreateTopics,
    /// CreatePartitions: the code of a topic.
    CreatePartitions,
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndTxn(version) => write!(f, "EndTxn {version}"),
            other => fmt::Debug::fmt(other, f),
        }
    }
}

/// What is to be done about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Done.
    Success,
    /// Done before: the records are in the log, this answer does not know their offsets.
    Duplicate,
    /// Not done; the same request may be sent again after a short wait.
    Retry,
    /// Not done; fetch metadata first, then send again, perhaps to another broker.
    RefreshMetadata,
    /// Not done, or (EndTxn) perhaps done; find the coordinator first, then send again.
    RefreshCoordinator,
    /// The batch is too large for the topic: split it.
    Split,
    /// The sequence is not the next one: retriable behind an unacknowledged batch, else fatal to the epoch.
    OutOfSequence,
    /// The offset is outside the log.
    OutOfRange,
    /// The topic or partition is not there. Brokers say so for a moment after a creation too: fetch metadata and try
    /// again for a bounded time, then it is an error.
    UnknownTopic,
    /// This transaction cannot be committed; the lane can go on after ending it.
    Abortable,
    /// The lane cannot go on under this identity.
    FatalForLane,
    /// Somebody or something (a newer run, a time-out, an expiry) ended or replaced the transaction. No proof of
    /// fencing: the chain and the broker's own state say what happened.
    Disturbed(Disturbance),
    /// Done or not, the answer does not tell; only what is safe to repeat may be sent again.
    UnknownOutcome,
    /// The id or resource is not known.
    NotFound,
    /// The resource is there already.
    AlreadyThere,
    /// It will not be done, however often it is asked.
    Refused(Refusal),
}

/// In which way a transaction is not what the request took it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disturbance {
    /// `INVALID_TXN_STATE`: the transaction is not in a state that allows the request.
    NotThisState,
    /// `INVALID_PRODUCER_EPOCH`, `PRODUCER_FENCED`: the coordinator or partition knows another producer epoch.
    Superseded,
    /// `INVALID_PRODUCER_ID_MAPPING`, `UNKNOWN_PRODUCER_ID`: the id expired, never existed or has another producer id.
    Forgotten,
}

/// Why a request is refused for good, that is: who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The principal lacks a right.
    Rights,
    /// A setting, of ours or of the cluster, does not allow it.
    Config,
    /// The broker cannot do this: its version or a feature.
    Version,
    /// The data is not acceptable.
    Data,
    /// The request is wrong: a bug of ours.
    Request,
    /// A code that this request should not get, or one of a later broker.
    Unexpected,
}

/// What `code` means as an answer to `request`.
pub fn classify(request: RequestKind, code: C) -> Class {
    if code == C::NONE {
        return Class::Success;
    }
    match request {
        RequestKind::Produce => produce(code),
        RequestKind::EndTxn(version) => end_txn(version, code),
        RequestKind::InitProducerId | RequestKind::AddPartitionsToTxn | RequestKind::AddOffsetsToTxn => {
            begin_txn(code)
        }
        RequestKind::TxnOffsetCommit => commit_offsets(code),
        RequestKind::Fetch
        | RequestKind::ListOffsets
        | RequestKind::OffsetForLeaderEpoch
        | RequestKind::DescribeProducers => partition_read(code),
        RequestKind::WriteTxnMarkers => write_marker(code),
        RequestKind::Metadata => metadata(code),
        RequestKind::FindCoordinator
        | RequestKind::DescribeTransactions
        | RequestKind::ListTransactions
        | RequestKind::DescribeConfigs
        | RequestKind::OffsetFetch
        | RequestKind::ApiVersions => lookup(code),
        RequestKind::CreateTopics => create_topics(code),
        // So many are there, or more: whoever asks looks.
        RequestKind::CreatePartitions if code == C::INVALID_PARTITIONS => Class::AlreadyThere,
        RequestKind::CreatePartitions if code == C::REASSIGNMENT_IN_PROGRESS => Class::Retry,
        RequestKind::CreatePartitions => create_topics(code),
    }
}

fn produce(code: C) -> Class {
    match code {
        C::DUPLICATE_SEQUENCE_NUMBER => Class::Duplicate,
        C::MESSAGE_TOO_LARGE | C::RECORD_LIST_TOO_LARGE => Class::Split,
        C::OUT_OF_ORDER_SEQUENCE_NUMBER => Class::OutOfSequence,
        // The records may be in the log: sequences make it safe to send them again.
        C::UNKNOWN_SERVER_ERROR | C::REQUEST_TIMED_OUT | C::NOT_ENOUGH_REPLICAS_AFTER_APPEND => {
            Class::UnknownOutcome
        }
        // Also how a partition leader reports trouble with the transaction coordinator.
        C::NOT_ENOUGH_REPLICAS
        | C::CONCURRENT_TRANSACTIONS
        | C::COORDINATOR_LOAD_IN_PROGRESS
        | C::COORDINATOR_NOT_AVAILABLE
        | C::NOT_COORDINATOR
        | C::CORRUPT_MESSAGE
        | C::THROTTLING_QUOTA_EXCEEDED => Class::Retry,
        C::TRANSACTION_ABORTABLE => Class::Abortable,
        C::INVALID_TIMESTAMP | C::INVALID_RECORD | C::POLICY_VIOLATION | C::INVALID_TOPIC_EXCEPTION => {
            Class::Refused(Refusal::Data)
        }
        C::INVALID_REQUIRED_ACKS => Class::Refused(Refusal::Request),
        _ => disturbed(code)
            .or_else(|| stale_leader(code))
            .or_else(|| refused(code))
            .unwrap_or(Class::FatalForLane),
    }
}

/// The coordinator answers after the decision is in its log, so trouble with that log leaves the outcome open; the
/// same decision is sent again until the answer is definite. Both versions share the codes; what differs is which
/// state gives which, and that nobody can tell from the code (fact sheet of the coordinator's table).
fn end_txn(version: TransactionVersion, code: C) -> Class {
    match code {
        C::CONCURRENT_TRANSACTIONS | C::COORDINATOR_LOAD_IN_PROGRESS | C::THROTTLING_QUOTA_EXCEEDED => {
            Class::Retry
        }
        C::COORDINATOR_NOT_AVAILABLE | C::NOT_COORDINATOR => Class::RefreshCoordinator,
        C::TRANSACTION_ABORTABLE => match version {
            TransactionVersion::V1 | TransactionVersion::V2 => Class::Abortable,
        },
        _ => disturbed(code).or_else(|| refused(code)).unwrap_or(Class::UnknownOutcome),
    }
}

fn begin_txn(code: C) -> Class {
    match code {
        C::CONCURRENT_TRANSACTIONS
        | C::COORDINATOR_LOAD_IN_PROGRESS
        | C::NOT_ENOUGH_REPLICAS
        | C::OPERATION_NOT_ATTEMPTED
        | C::THROTTLING_QUOTA_EXCEEDED => Class::Retry,
        C::COORDINATOR_NOT_AVAILABLE | C::NOT_COORDINATOR => Class::RefreshCoordinator,
        C::UNKNOWN_SERVER_ERROR
        | C::REQUEST_TIMED_OUT
        | C::NETWORK_EXCEPTION
        | C::NOT_ENOUGH_REPLICAS_AFTER_APPEND => Class::UnknownOutcome,
        C::INVALID_TRANSACTION_TIMEOUT => Class::Refused(Refusal::Config),
        C::TRANSACTION_ABORTABLE => Class::Abortable,
        C::UNKNOWN_TOPIC_OR_PARTITION | C::UNKNOWN_TOPIC_ID => Class::UnknownTopic,
        C::INVALID_TOPIC_EXCEPTION => Class::Refused(Refusal::Config),
        _ => disturbed(code).or_else(|| refused(code)).unwrap_or(Class::Refused(Refusal::Unexpected)),
    }
}

/// An offset that is committed twice in a transaction does no harm. A group with members refuses who is none of them, and
/// does so until they are gone.
fn commit_offsets(code: C) -> Class {
    match code {
        C::UNKNOWN_MEMBER_ID
        | C::ILLEGAL_GENERATION
        | C::REBALANCE_IN_PROGRESS
        | C::FENCED_INSTANCE_ID
        | C::FENCED_MEMBER_EPOCH
        | C::STALE_MEMBER_EPOCH
        | C::INVALID_GROUP_ID
        | C::OFFSET_METADATA_TOO_LARGE
        | C::INVALID_COMMIT_OFFSET_SIZE => Class::Refused(Refusal::Config),
        _ => begin_txn(code),
    }
}

/// A marker that is written twice does no harm, so what may have been done is done again.
fn write_marker(code: C) -> Class {
    match code {
        C::NOT_ENOUGH_REPLICAS | C::NOT_ENOUGH_REPLICAS_AFTER_APPEND => Class::Retry,
        C::TRANSACTION_COORDINATOR_FENCED => Class::Disturbed(Disturbance::Superseded),
        _ => disturbed(code).unwrap_or_else(|| partition_read(code)),
    }
}

fn partition_read(code: C) -> Class {
    match code {
        C::OFFSET_OUT_OF_RANGE => Class::OutOfRange,
        C::OFFSET_NOT_AVAILABLE
        | C::UNKNOWN_SERVER_ERROR
        | C::REQUEST_TIMED_OUT
        | C::THROTTLING_QUOTA_EXCEEDED
        | C::FETCH_SESSION_ID_NOT_FOUND
        | C::INVALID_FETCH_SESSION_EPOCH
        | C::FETCH_SESSION_TOPIC_ID_ERROR
        | C::OFFSET_MOVED_TO_TIERED_STORAGE => Class::Retry,
        C::CORRUPT_MESSAGE => Class::Refused(Refusal::Data),
        C::INVALID_TOPIC_EXCEPTION => Class::Refused(Refusal::Config),
        C::INVALID_FETCH_SIZE => Class::Refused(Refusal::Request),
        _ => stale_leader(code).or_else(|| refused(code)).unwrap_or(Class::Refused(Refusal::Unexpected)),
    }
}

fn metadata(code: C) -> Class {
    match code {
        C::LEADER_NOT_AVAILABLE
        | C::LISTENER_NOT_FOUND
        | C::REPLICA_NOT_AVAILABLE
        | C::BROKER_NOT_AVAILABLE
        | C::UNKNOWN_SERVER_ERROR
        | C::REQUEST_TIMED_OUT
        | C::THROTTLING_QUOTA_EXCEEDED
        | C::REBOOTSTRAP_REQUIRED => Class::Retry,
        C::UNKNOWN_TOPIC_OR_PARTITION | C::UNKNOWN_TOPIC_ID | C::INCONSISTENT_TOPIC_ID => Class::UnknownTopic,
        C::INVALID_TOPIC_EXCEPTION => Class::Refused(Refusal::Config),
        _ => refused(code).unwrap_or(Class::Refused(Refusal::Unexpected)),
    }
}

fn lookup(code: C) -> Class {
    match code {
        C::COORDINATOR_LOAD_IN_PROGRESS
        | C::UNKNOWN_SERVER_ERROR
        | C::REQUEST_TIMED_OUT
        | C::THROTTLING_QUOTA_EXCEEDED => Class::Retry,
        C::COORDINATOR_NOT_AVAILABLE | C::NOT_COORDINATOR => Class::RefreshCoordinator,
        C::TRANSACTIONAL_ID_NOT_FOUND | C::RESOURCE_NOT_FOUND => Class::NotFound,
        C::UNKNOWN_TOPIC_OR_PARTITION => Class::UnknownTopic,
        C::INVALID_GROUP_ID | C::INVALID_TOPIC_EXCEPTION => Class::Refused(Refusal::Config),
        C::INVALID_REGULAR_EXPRESSION => Class::Refused(Refusal::Request),
        _ => refused(code).unwrap_or(Class::Refused(Refusal::Unexpected)),
    }
}

fn create_topics(code: C) -> Class {
    match code {
        C::TOPIC_ALREADY_EXISTS => Class::AlreadyThere,
        C::NOT_CONTROLLER | C::BROKER_NOT_AVAILABLE => Class::RefreshMetadata,
        C::THROTTLING_QUOTA_EXCEEDED => Class::Retry,
        C::REQUEST_TIMED_OUT | C::UNKNOWN_SERVER_ERROR => Class::UnknownOutcome,
        C::INVALID_PARTITIONS
        | C::INVALID_REPLICATION_FACTOR
        | C::INVALID_REPLICA_ASSIGNMENT
        | C::INVALID_CONFIG
        | C::POLICY_VIOLATION
        | C::INVALID_TOPIC_EXCEPTION => Class::Refused(Refusal::Config),
        _ => refused(code).unwrap_or(Class::Refused(Refusal::Unexpected)),
    }
}

fn disturbed(code: C) -> Option<Class> {
    let how = match code {
        C::INVALID_TXN_STATE => Disturbance::NotThisState,
        C::INVALID_PRODUCER_EPOCH | C::PRODUCER_FENCED => Disturbance::Superseded,
        C::INVALID_PRODUCER_ID_MAPPING | C::UNKNOWN_PRODUCER_ID => Disturbance::Forgotten,
        _ => return None,
    };
    Some(Class::Disturbed(how))
}

fn stale_leader(code: C) -> Option<Class> {
    match code {
        C::LEADER_NOT_AVAILABLE
        | C::NOT_LEADER_OR_FOLLOWER
        | C::REPLICA_NOT_AVAILABLE
        | C::NETWORK_EXCEPTION
        | C::KAFKA_STORAGE_ERROR
        | C::FENCED_LEADER_EPOCH
        | C::UNKNOWN_LEADER_EPOCH
        | C::LISTENER_NOT_FOUND => Some(Class::RefreshMetadata),
        C::UNKNOWN_TOPIC_OR_PARTITION | C::UNKNOWN_TOPIC_ID | C::INCONSISTENT_TOPIC_ID => {
            Some(Class::UnknownTopic)
        }
        _ => None,
    }
}

fn refused(code: C) -> Option<Class> {
    let why = match code {
        C::TOPIC_AUTHORIZATION_FAILED
        | C::GROUP_AUTHORIZATION_FAILED
        | C::CLUSTER_AUTHORIZATION_FAILED
        | C::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        | C::SASL_AUTHENTICATION_FAILED => Refusal::Rights,
        C::UNSUPPORTED_VERSION
        | C::UNSUPPORTED_FOR_MESSAGE_FORMAT
        | C::UNSUPPORTED_COMPRESSION_TYPE
        | C::SECURITY_DISABLED => Refusal::Version,
        C::INVALID_REQUEST => Refusal::Request,
        _ => return None,
    };
    Some(Class::Refused(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_commit::TransactionVersion::{V1, V2};

    const ALL: [RequestKind; 19] = [
        RequestKind::ApiVersions,
        RequestKind::Metadata,
        RequestKind::FindCoordinator,
        RequestKind::InitProducerId,
        RequestKind::AddPartitionsToTxn,
        RequestKind::AddOffsetsToTxn,
        RequestKind::TxnOffsetCommit,
        RequestKind::OffsetFetch,
        RequestKind::EndTxn(V1),
        RequestKind::EndTxn(V2),
        RequestKind::Produce,
        RequestKind::Fetch,
        RequestKind::ListOffsets,
        RequestKind::DescribeTransactions,
        RequestKind::ListTransactions,
        RequestKind::DescribeProducers,
        RequestKind::DescribeConfigs,
        RequestKind::CreateTopics,
        RequestKind::CreatePartitions,
    ];

    #[test]
    fn only_none_is_success() {
        for request in ALL {
            for code in -2..200 {
                let success = classify(request, C(code)) == Class::Success;
                assert_eq!(success, code == 0, "{request} {code}");
            }
        }
    }

    #[test]
    fn no_code_that_end_txn_does_not_define_counts_as_an_outcome() {
        for version in [V1, V2] {
            let request = RequestKind::EndTxn(version);
            for code in [-1, 3, 5, 6, 7, 13, 19, 20, 56, 89, 999] {
                let class = classify(request, C(code));
                assert!(matches!(class, Class::UnknownOutcome | Class::Retry), "{code}: {class:?}");
            }
            for code in [14, 15, 16, 51] {
                let class = classify(request, C(code));
                assert!(matches!(class, Class::Retry | Class::RefreshCoordinator), "{code}: {class:?}");
            }
        }
    }

    #[test]
    fn fencing_codes_only_ever_disturb() {
        use Disturbance::{Forgotten, NotThisState, Superseded};
        for request in [RequestKind::Produce, RequestKind::EndTxn(V2), RequestKind::InitProducerId] {
            for (code, how) in [(47, Superseded), (90, Superseded), (48, NotThisState), (49, Forgotten)] {
                assert_eq!(classify(request, C(code)), Class::Disturbed(how), "{request} {code}");
            }
        }
    }

    #[test]
    fn a_group_with_members_is_a_refusal_and_a_moving_coordinator_is_not() {
        for code in [C::UNKNOWN_MEMBER_ID, C::ILLEGAL_GENERATION, C::OFFSET_METADATA_TOO_LARGE] {
            let class = classify(RequestKind::TxnOffsetCommit, code);
            assert_eq!(class, Class::Refused(Refusal::Config), "{code}");
        }
        for code in [C::CONCURRENT_TRANSACTIONS, C::COORDINATOR_LOAD_IN_PROGRESS] {
            assert_eq!(classify(RequestKind::TxnOffsetCommit, code), Class::Retry, "{code}");
        }
        for code in [C::NOT_COORDINATOR, C::COORDINATOR_NOT_AVAILABLE] {
            assert_eq!(classify(RequestKind::TxnOffsetCommit, code), Class::RefreshCoordinator, "{code}");
        }
    }

    #[test]
    fn a_code_of_a_later_broker_never_says_retry() {
        for request in ALL {
            assert_ne!(classify(request, C(999)), Class::Retry, "{request}");
        }
    }

    #[test]
    fn records_that_may_be_in_the_log_are_an_unknown_outcome() {
        for code in [-1, 7, 20] {
            assert_eq!(classify(RequestKind::Produce, C(code)), Class::UnknownOutcome);
        }
        assert_eq!(classify(RequestKind::Produce, C::NOT_ENOUGH_REPLICAS), Class::Retry);
    }
}
