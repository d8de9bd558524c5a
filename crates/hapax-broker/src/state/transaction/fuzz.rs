//! Records of `__transaction_state`, as the broker reads and writes them.

use super::{metadata::Level, record};
use bytes::Bytes;

/// What a value says, in the fields of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch.
    pub producer_epoch: i16,
    /// Of the transaction, in milliseconds.
    pub timeout_ms: i32,
    /// Kafka's number of the state.
    pub state: i8,
    /// Topic and partition, each once and in order.
    pub partitions: Vec<(String, i32)>,
    /// When the record was made.
    pub updated: i64,
    /// When the transaction began.
    pub start: i64,
    /// The level of its client.
    pub level: i16,
}

/// The transactional id of a key.
pub fn transactional_id(key: Bytes) -> Option<String> {
    record::read_key(key)
}

/// The key of a transactional id.
pub fn transaction_key(transactional_id: &str) -> Bytes {
    record::key(transactional_id)
}

/// What a value says.
pub fn transaction(value: Bytes) -> Option<Logged> {
    let read = record::read_value(value).ok()?;
    let partitions = read.partitions.iter().map(|one| (one.topic.clone(), one.partition)).collect();
    Some(Logged {
        producer_id: read.producer.id,
        producer_epoch: read.producer.epoch,
        timeout_ms: read.timeout_ms,
        state: read.phase.id(),
        partitions,
        updated: read.updated,
        start: read.start,
        level: read.level.0,
    })
}

/// A value read, and written again by a cluster of this `transaction.version`; none where either fails.
pub fn transaction_rewritten(value: Bytes, level: i16) -> Option<Bytes> {
    record::value(&record::read_value(value).ok()?, Level(level)).ok()
}
