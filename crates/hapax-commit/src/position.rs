//! Where reading goes on: positions of every split of every source.

use crate::id::TopicId;
use alloc::{collections::BTreeMap, string::String};
use serde::{Deserialize, Serialize};

/// Names one ordered part of a source: a partition, or a file.
///
/// As text (the key in durable JSON): `source/topic/partition` or `source/path`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SplitId(pub String);

/// The next thing to read from a split.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Offset of the next record (Kafka), next byte (file), next number (generator).
    pub next: u64,
    /// Kafka: leader epoch of the last batch read; for truncation detection (KIP-320).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_epoch: Option<i32>,
    /// Kafka: the topic that the offset belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<TopicId>,
    /// File: which file the offset belongs to (device, inode, checksum of its head).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Where a bounded split ends (exclusive), fixed before its first record is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
}

impl Position {
    /// Has a bounded split been read to its end?
    pub fn at_end(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}

/// Positions by split.
pub type Positions = BTreeMap<SplitId, Position>;
