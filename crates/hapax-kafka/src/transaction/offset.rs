//! Committed offsets as a part of a transaction: they are seen when it is committed, and never otherwise.
//!
//! On V1 the group's offsets partition is added first, by the transaction's coordinator (AddOffsetsToTxn); on V2
//! TxnOffsetCommit 5 adds it by itself. Errors are per partition, and each fails the whole: what is left out would be
//! read again after a restart, although its records are committed.
//!
//! No member of the group is named: whoever may write offsets is decided by the producer's identity alone. A group of
//! this name that has members refuses such a writer.
//!
//! Sources: KIP-98, KIP-447, KIP-890; `GroupCoordinator`, `GroupMetadataManager`, `OffsetMetadataManager`.

use super::Ask;
use crate::{
    Client, ClientError, Connection, CoordinatorKind, KafkaCode,
    error::{CallError, Class, RequestKind, classify},
    limits,
    retry::{Retry, within},
    wire::{self, Request},
};
use hapax_commit::{Identity, TransactionVersion};
use hapax_host::Deadline;
use kafka_protocol::messages::{
    self, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
    txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
};
use std::ops::RangeInclusive;

/// From 3 on flexible; 4 tells an abortable error.
const ADD_OFFSETS: RangeInclusive<i16> = 1..=4;

/// An offset to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetToCommit {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch of the last record that was read.
    pub leader_epoch: Option<i32>,
    /// What the writer wants to stand beside it.
    pub metadata: String,
}

/// The transaction that carries offsets.
#[derive(Clone, Copy, Debug)]
pub struct CarryingTransaction<'a> {
    /// Its id.
    pub transactional_id: &'a str,
    /// The identity that writes it.
    pub identity: Identity,
    /// The protocol that it was begun under.
    pub version: TransactionVersion,
}

/// Makes offsets of `group` a part of a transaction, which begins with them where nothing was written in it yet.
/// Doing so twice is no error.
///
/// # Errors
/// The code of the first partition that was refused, or the client's reason, at the latest at the deadline. The
/// transaction must not be committed then.
pub async fn commit_offsets(
    client: &Client,
    transaction: CarryingTransaction<'_>,
    group: &str,
    offsets: &[OffsetToCommit],
    deadline: Deadline,
) -> Result<(), ClientError> {
    if transaction.version == TransactionVersion::V1 {
        add_offsets(client, transaction, group, deadline).await?;
    }
    for part in parts(offsets) {
        let request = commit_request(transaction, group, part);
        let mut retry = Retry::new(client, RequestKind::TxnOffsetCommit, group, deadline);
        while let Err(error) =
            commit_once(client, transaction.version, group, part.len(), &request, &retry).await
        {
            retry.again(error).await?;
        }
    }
    Ok(())
}

/// A coordinator writes each request as one batch, which must not be larger than its topic takes. The transaction makes one
/// of them all.
fn parts(offsets: &[OffsetToCommit]) -> Vec<&[OffsetToCommit]> {
    let (mut parts, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, offset) in offsets.iter().enumerate() {
        let size = limits::OFFSET_RECORD_BYTES + offset.topic.len() + offset.metadata.len();
        if at > from && bytes + size > limits::OFFSETS_REQUEST_BYTES {
            parts.push(&offsets[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += size;
    }
    parts.push(&offsets[from..]);
    parts
}

async fn add_offsets(
    client: &Client,
    transaction: CarryingTransaction<'_>,
    group: &str,
    deadline: Deadline,
) -> Result<(), ClientError> {
    let CarryingTransaction { transactional_id, identity, .. } = transaction;
    let request = AddOffsetsToTxnRequest::default()
        .with_transactional_id(wire::text(transactional_id).into())
        .with_producer_id(messages::ProducerId(identity.producer_id.0))
        .with_producer_epoch(identity.producer_epoch.0)
        .with_group_id(wire::text(group).into());
    let ask = Ask {
        transactional_id,
        kind: RequestKind::AddOffsetsToTxn,
        versions: ADD_OFFSETS,
        timeout: limits::END_TXN_REQUEST_TIMEOUT,
        request: &request,
        code: |response| KafkaCode(response.error_code),
    };
    let mut retry = Retry::new(client, RequestKind::AddOffsetsToTxn, transactional_id, deadline);
    ask.until_settled(client, &mut retry).await.map(|_| ())
}

fn commit_request(
    transaction: CarryingTransaction<'_>,
    group: &str,
    offsets: &[OffsetToCommit],
) -> TxnOffsetCommitRequest {
    let mut topics: Vec<TxnOffsetCommitRequestTopic> = Vec::new();
    for offset in offsets {
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(offset.partition)
            .with_committed_offset(offset.offset)
            .with_committed_leader_epoch(offset.leader_epoch.unwrap_or(-1))
            .with_committed_metadata(Some(wire::text(&offset.metadata)));
        match topics.iter_mut().find(|topic| topic.name.as_str() == offset.topic) {
            Some(topic) => topic.partitions.push(partition),
            None => topics.push(
                TxnOffsetCommitRequestTopic::default()
                    .with_name(wire::text(&offset.topic).into())
                    .with_partitions(vec![partition]),
            ),
        }
    }
    TxnOffsetCommitRequest::default()
        .with_transactional_id(wire::text(transaction.transactional_id).into())
        .with_group_id(wire::text(group).into())
        .with_producer_id(messages::ProducerId(transaction.identity.producer_id.0))
        .with_producer_epoch(transaction.identity.producer_epoch.0)
        .with_topics(topics)
}

/// Below 5 the transaction's coordinator must have been asked before; 5 asks it, and belongs to V2 alone.
fn commit_versions(version: TransactionVersion) -> RangeInclusive<i16> {
    match version {
        TransactionVersion::V1 => 3..=4,
        TransactionVersion::V2 => 5..=5,
    }
}

async fn commit_once(
    client: &Client,
    version: TransactionVersion,
    group: &str,
    count: usize,
    request: &TxnOffsetCommitRequest,
    retry: &Retry<'_>,
) -> Result<(), ClientError> {
    let connection = retry.bounded(client.coordinator(CoordinatorKind::Group, group)).await?;
    let result = commit_at(client, version, count, request, &connection, retry).await;
    if result.as_ref().is_err_and(|error| may_have_moved(error, RequestKind::TxnOffsetCommit)) {
        client.forget_coordinator(CoordinatorKind::Group, group);
    }
    result
}

async fn commit_at(
    client: &Client,
    version: TransactionVersion,
    count: usize,
    request: &TxnOffsetCommitRequest,
    connection: &Connection,
    retry: &Retry<'_>,
) -> Result<(), ClientError> {
    let chosen = connection.choose(TxnOffsetCommitRequest::KEY, commit_versions(version))?;
    let answer = connection.call(chosen, request, limits::END_TXN_REQUEST_TIMEOUT);
    let response =
        within(client, retry.deadline(), TxnOffsetCommitRequest::NAME, connection.node(), answer).await?;
    match refused_partition(&response) {
        Some((place, code)) => Err(ClientError::broker(RequestKind::TxnOffsetCommit, place, code)),
        None if told(&response) == count => Ok(()),
        None => Err(CallError::Malformed {
            api: TxnOffsetCommitRequest::NAME,
            node: connection.node(),
            reason: format!("{} of {count} partitions have an entry", told(&response)).into(),
        }
        .into()),
    }
}

fn told(response: &TxnOffsetCommitResponse) -> usize {
    response.topics.iter().map(|topic| topic.partitions.len()).sum()
}

/// The first partition whose offset was not taken.
fn refused_partition(response: &TxnOffsetCommitResponse) -> Option<(String, KafkaCode)> {
    let entries =
        response.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |entry| (topic, entry)));
    let mut refused = entries.filter(|(_, entry)| KafkaCode(entry.error_code) != KafkaCode::NONE);
    refused.next().map(|(topic, entry)| {
        let place = format!("{}-{}", topic.name.as_str(), entry.partition_index);
        (place, KafkaCode(entry.error_code))
    })
}

/// After this, another broker may coordinate the group.
pub(crate) fn may_have_moved(error: &ClientError, kind: RequestKind) -> bool {
    match error {
        ClientError::Call(_) => true,
        ClientError::Broker { code, .. } => classify(kind, *code) == Class::RefreshCoordinator,
        ClientError::Config(_)
        | ClientError::Unreachable { .. }
        | ClientError::TooOld { .. }
        | ClientError::OtherCluster { .. }
        | ClientError::Deadline { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_commit::{ProducerEpoch, ProducerId};
    use kafka_protocol::messages::txn_offset_commit_response::{
        TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
    };

    fn transaction() -> CarryingTransaction<'static> {
        CarryingTransaction {
            transactional_id: "orders.main.0.1",
            identity: Identity { producer_id: ProducerId(7), producer_epoch: ProducerEpoch(3) },
            version: TransactionVersion::V2,
        }
    }

    fn offset(topic: &str, partition: i32) -> OffsetToCommit {
        OffsetToCommit {
            topic: topic.to_owned(),
            partition,
            offset: 10,
            leader_epoch: None,
            metadata: "beside".to_owned(),
        }
    }

    #[test]
    fn every_partition_is_asked_for_once_under_its_topic() {
        let request =
            commit_request(transaction(), "orders", &[offset("a", 0), offset("b", 0), offset("a", 1)]);
        let asked: Vec<(&str, usize)> =
            request.topics.iter().map(|topic| (topic.name.as_str(), topic.partitions.len())).collect();
        assert_eq!(asked, [("a", 2), ("b", 1)]);
        assert_eq!(request.generation_id, -1, "no member of the group is named");
        assert_eq!(request.topics[0].partitions[0].committed_leader_epoch, -1);
    }

    /// Genesis and changes of a job commit every place at once.
    #[test]
    fn the_offsets_of_a_large_job_go_in_parts_of_which_none_is_too_large() {
        let offset = |partition: i32| OffsetToCommit {
            topic: "orders".to_owned(),
            partition,
            offset: 7,
            leader_epoch: None,
            metadata: "x".repeat(350),
        };
        let all: Vec<_> = (0..3_000).map(offset).collect();
        let sent = parts(&all);
        assert!(sent.len() > 4, "{}", sent.len());
        assert!(sent.iter().all(|part| part.len() * 480 <= limits::OFFSETS_REQUEST_BYTES));
        assert_eq!(sent.concat(), all);
        let one = [OffsetToCommit { metadata: "x".repeat(limits::OFFSETS_REQUEST_BYTES), ..offset(0) }];
        assert_eq!(parts(&one), [&one[..]], "what is too large by itself is the broker's to refuse");
        assert_eq!(parts(&all[..1]), [&all[..1]]);
    }

    #[test]
    fn one_refused_partition_among_others_is_found() {
        let partition = |index: i32, code: KafkaCode| {
            TxnOffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(code.0)
        };
        let topic = |name: &str, partitions| {
            TxnOffsetCommitResponseTopic::default()
                .with_name(wire::text(name).into())
                .with_partitions(partitions)
        };
        let unknown = KafkaCode::UNKNOWN_TOPIC_OR_PARTITION;
        let response = TxnOffsetCommitResponse::default().with_topics(vec![
            topic("a", vec![partition(0, KafkaCode::NONE)]),
            topic("b", vec![partition(0, KafkaCode::NONE), partition(1, unknown)]),
        ]);
        assert_eq!(refused_partition(&response), Some(("b-1".to_owned(), unknown)));
        assert_eq!(told(&response), 3);
    }

    #[test]
    fn a_version_belongs_to_one_protocol() {
        let (old, new) = (commit_versions(TransactionVersion::V1), commit_versions(TransactionVersion::V2));
        assert!(old.clone().all(|version| !new.contains(&version)));
    }
}
