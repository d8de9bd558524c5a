//! What an epoch left in the log.

use hapax_commit::TopicId;
use hapax_host::Instant;

/// Everything of an epoch that was acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// What each partition got, in order of topic and partition; only partitions with records.
    pub partitions: Vec<FlushedPartition>,
    /// Wall clock (milliseconds since 1970) and monotonic time before the first request of the epoch was sent: a
    /// transaction is not older than this. `None`: no record was written.
    pub started: Option<(i64, Instant)>,
}

/// What one partition got in an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushedPartition {
    /// The topic's name.
    pub topic: String,
    /// The topic's id when the producer looked it up.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: i32,
    /// Offset of the first record; -1 where a broker did not say it, never in a transaction.
    pub first_offset: i64,
    /// Offset of the last record; -1 where a broker did not say it, never in a transaction.
    pub last_offset: i64,
    /// Records.
    pub count: u64,
    /// CRC-32C over the records in order, each from its key length to its end; 0 outside transactions.
    pub digest: u32,
}
