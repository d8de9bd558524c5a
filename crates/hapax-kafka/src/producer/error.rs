//! Why records could not be delivered.

use crate::{
    CallError, ClientError, KafkaCode,
    error::{Class, Disturbance, Refusal, RequestKind, classify},
    record::RecordError,
};
use hapax_commit::Epoch;
use std::{sync::Arc, time::Duration};

/// A partition of a topic, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Records were given up. The first one is kept for the rest of the producer's life: the epoch and all later ones are
/// lost to this run, another run writes them again from the last checkpoint.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProduceError {
    /// No acknowledgement within the delivery timeout.
    #[error(
        "writing {records} records to {place} in epoch {epoch}: not acknowledged after {age:?}, {failures} failed \
         attempts{}; look at the brokers of this partition, or raise delivery_timeout", last_attempt(.last)
    )]
    Expired {
        /// Where.
        place: Place,
        /// The epoch.
        epoch: Epoch,
        /// Records that are written to this partition and not acknowledged.
        records: u64,
        /// Age of the oldest of them.
        age: Duration,
        /// Attempts that failed since the last success.
        failures: u32,
        /// How the last of them failed.
        last: Option<Arc<str>>,
    },
    /// One record that the topic does not take.
    #[error(
        "writing a record to {place} in epoch {epoch}: its batch of {bytes} bytes is larger than the topic allows; \
         raise max.message.bytes of the topic, or keep such records out"
    )]
    RecordTooLarge {
        /// Where.
        place: Place,
        /// The epoch.
        epoch: Epoch,
        /// The record as a batch of its own, compressed.
        bytes: usize,
    },
    /// The broker answered with a code that ends the epoch.
    #[error("writing {records} records to {place} in epoch {epoch}: the broker answered {code}{}", detail(.message))]
    Refused {
        /// Where.
        place: Place,
        /// The epoch.
        epoch: Epoch,
        /// Records in the batch.
        records: u32,
        /// The answer.
        code: KafkaCode,
        /// The broker's own words.
        message: Option<Arc<str>>,
    },
    /// The partition does not know what we had acknowledged: it forgot the producer, or lost records.
    #[error(
        "writing to {place} in epoch {epoch}: the partition does not expect sequence {sequence} next; it forgot the \
         producer or lost acknowledged records (unclean leader election?)"
    )]
    OutOfSequence {
        /// Where.
        place: Place,
        /// The epoch.
        epoch: Epoch,
        /// First sequence of the batch.
        sequence: i32,
    },
    /// A transaction has to say where its records are, and the broker did not.
    #[error("writing to {place} in epoch {epoch}: the broker acknowledged records without an offset")]
    NoOffset {
        /// Where.
        place: Place,
        /// The epoch.
        epoch: Epoch,
    },
    /// The topic is not there.
    #[error("writing to topic {topic}: the cluster does not have it; create it, or correct the name")]
    UnknownTopic {
        /// The topic.
        topic: Arc<str>,
    },
    /// The partition is not there.
    #[error("writing to {place}: the topic has {partitions} partitions")]
    UnknownPartition {
        /// Where.
        place: Place,
        /// Partitions of the topic.
        partitions: i32,
    },
    /// The record cannot be encoded, or a batch was damaged in memory.
    #[error("writing to {place}: {reason}")]
    Record {
        /// Where.
        place: Place,
        /// Why.
        reason: RecordError,
    },
    /// A request that will not succeed, however often it is sent.
    #[error("writing to {place} in epoch {epoch}: {reason}")]
    Call {
        /// Where.
        place: Place,
        /// The epoch.
        epoch: Epoch,
        /// Why.
        reason: CallError,
    },
    /// A request beside Produce failed: metadata, AddPartitionsToTxn, InitProducerId.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The sender's task ended although the producer was in use: a bug, or the runtime is shutting down.
    #[error("writing stopped: the sender's task ended")]
    SenderEnded,
}

impl ProduceError {
    /// A person must act, because the same records would fail again: a record that is too large or unacceptable, or a
    /// topic or partition that is not there. Everything else may be mended by another run.
    pub fn is_bad_record(&self) -> bool {
        match self {
            Self::RecordTooLarge { .. }
            | Self::UnknownTopic { .. }
            | Self::UnknownPartition { .. }
            | Self::Record { .. } => true,
            Self::Refused { code, .. } => {
                classify(RequestKind::Produce, *code) == Class::Refused(Refusal::Data)
            }
            Self::Expired { .. }
            | Self::OutOfSequence { .. }
            | Self::NoOffset { .. }
            | Self::Call { .. }
            | Self::Client(_)
            | Self::SenderEnded => false,
        }
    }

    /// The broker will not take it, however often it is asked: rights, version, its own configuration.
    pub fn is_refusal(&self) -> bool {
        let refused = |code| {
            matches!(
                classify(RequestKind::Produce, code),
                Class::Refused(Refusal::Rights | Refusal::Version | Refusal::Config)
            )
        };
        match self {
            Self::Refused { code, .. } => refused(*code),
            Self::Call { reason, .. } => matches!(reason, CallError::Unsupported { .. }),
            Self::RecordTooLarge { .. }
            | Self::UnknownTopic { .. }
            | Self::UnknownPartition { .. }
            | Self::Record { .. }
            | Self::Expired { .. }
            | Self::OutOfSequence { .. }
            | Self::NoOffset { .. }
            | Self::Client(_)
            | Self::SenderEnded => false,
        }
    }

    /// Does the broker know a newer producer epoch of the transactional id: another writer's, or one that a time-out gave?
    pub fn is_superseded(&self) -> bool {
        match self {
            Self::Refused { code, .. } => {
                classify(RequestKind::Produce, *code) == Class::Disturbed(Disturbance::Superseded)
            }
            Self::Client(error) => error.is_superseded(),
            Self::RecordTooLarge { .. }
            | Self::UnknownTopic { .. }
            | Self::UnknownPartition { .. }
            | Self::Record { .. }
            | Self::Expired { .. }
            | Self::OutOfSequence { .. }
            | Self::NoOffset { .. }
            | Self::Call { .. }
            | Self::SenderEnded => false,
        }
    }

    /// The code that the broker answered, if one was the reason.
    pub fn code(&self) -> Option<KafkaCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::OutOfSequence { .. } => Some(KafkaCode::OUT_OF_ORDER_SEQUENCE_NUMBER),
            Self::RecordTooLarge { .. } => Some(KafkaCode::MESSAGE_TOO_LARGE),
            Self::Client(error) => error.code(),
            Self::Expired { .. }
            | Self::NoOffset { .. }
            | Self::UnknownTopic { .. }
            | Self::UnknownPartition { .. }
            | Self::Record { .. }
            | Self::Call { .. }
            | Self::SenderEnded => None,
        }
    }
}

fn last_attempt(last: &Option<Arc<str>>) -> String {
    last.as_ref().map(|text| format!(" (the last one: {text})")).unwrap_or_default()
}

fn detail(message: &Option<Arc<str>>) -> String {
    message.as_ref().map(|text| format!(": {text}")).unwrap_or_default()
}
