//! Topics as the hot path sees them.

use hapax_commit::TopicId;
use std::sync::Arc;

/// A topic that one producer may write to: looked up once, cheap to clone. It keeps the number of partitions that the
/// topic had then.
#[derive(Clone, Debug)]
pub struct TopicHandle(pub(super) Arc<Topic>);

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    pub(super) id: TopicId,
    pub(super) partitions: i32,
    /// Which producer knows it, and where: its number, and the place of its partition 0.
    pub(super) producer: u64,
    pub(super) number: usize,
    pub(super) first: usize,
}

impl TopicHandle {
    /// The topic's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How many partitions it had when it was looked up.
    pub fn partitions(&self) -> i32 {
        self.0.partitions
    }

    /// The topic's id. All zeroes on a cluster without topic ids.
    pub fn topic_id(&self) -> TopicId {
        self.0.id
    }
}

/// Where a record goes.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The topic, looked up by the same producer.
    pub topic: &'a TopicHandle,
    /// The partition; `None` goes by key, and without a key where the current batch goes.
    pub partition: Option<i32>,
}
