//! The offsets of one group: committed ones, and those of transactions that are still open. The latter are invisible
//! until a marker commits them, and a later plain commit wins over them. (Kafka's `OffsetMetadataManager`)

use crate::state::{Millis, TopicPartition};
use std::collections::BTreeMap;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: String,
    /// When it was committed.
    pub(crate) at: Millis,
    /// When it expires, where its client said so (OffsetCommit 2 to 4).
    pub(crate) expires: Option<Millis>,
    /// Where its record is: of two commits the later record holds, whichever became visible later.
    pub(crate) record_offset: i64,
}

/// The offsets of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub(crate) committed: BTreeMap<TopicPartition, Committed>,
    /// By the producer id of the open transaction.
    pub(crate) pending: BTreeMap<i64, BTreeMap<TopicPartition, Committed>>,
}

impl Offsets {
    /// Whether an open transaction has an offset here.
    pub(crate) fn is_unstable(&self, at: &TopicPartition) -> bool {
        self.pending.values().any(|pending| pending.contains_key(at))
    }

    /// An offset of an open transaction.
    pub(crate) fn put_pending(&mut self, producer_id: i64, at: TopicPartition, committed: Committed) {
        self.pending.entry(producer_id).or_default().insert(at, committed);
    }

    /// An offset of an open transaction is none after all.
    pub(crate) fn take_back(&mut self, producer_id: i64, at: &TopicPartition) {
        if let Some(pending) = self.pending.get_mut(&producer_id) {
            pending.remove(at);
        }
    }

    /// The transaction of a producer has ended.
    pub(crate) fn end(&mut self, producer_id: i64, commit: bool) {
        for (at, committed) in self.pending.remove(&producer_id).unwrap_or_default() {
            let is_latest = |held: &Committed| committed.record_offset > held.record_offset;
            if commit && self.committed.get(&at).is_none_or(is_latest) {
                self.committed.insert(at, committed);
            }
        }
    }

    /// A tombstone: also the offsets of open transactions go.
    pub(crate) fn remove(&mut self, at: &TopicPartition) {
        self.committed.remove(at);
        self.pending.values_mut().for_each(|pending| drop(pending.remove(at)));
    }

    /// Everything that a tombstone would be about.
    pub(crate) fn all(&self) -> Vec<TopicPartition> {
        let pending = self.pending.values().flat_map(BTreeMap::keys);
        let mut all: Vec<_> = self.committed.keys().chain(pending).cloned().collect();
        all.sort();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> TopicPartition {
        TopicPartition { topic: "t".to_owned(), partition: 0 }
    }

    fn committed(offset: i64, record_offset: i64) -> Committed {
        Committed { offset, leader_epoch: -1, metadata: String::new(), at: 0, expires: None, record_offset }
    }

    #[test]
    fn offsets_of_a_transaction_are_seen_when_it_commits() {
        let mut offsets = Offsets::default();
        offsets.put_pending(7, at(), committed(10, 0));
        assert!(offsets.is_unstable(&at()) && offsets.committed.is_empty());
        offsets.end(8, true);
        assert!(offsets.is_unstable(&at()), "another producer's marker says nothing");
        offsets.end(7, true);
        assert_eq!(offsets.committed[&at()].offset, 10);
        assert!(!offsets.is_unstable(&at()));
    }

    #[test]
    fn offsets_of_an_aborted_transaction_are_gone() {
        let mut offsets = Offsets::default();
        offsets.put_pending(7, at(), committed(10, 0));
        offsets.end(7, false);
        assert_eq!(offsets, Offsets::default());
    }

    #[test]
    fn a_plain_commit_that_was_written_later_wins_over_the_transaction() {
        let mut offsets = Offsets::default();
        offsets.put_pending(7, at(), committed(10, 4));
        offsets.committed.insert(at(), committed(20, 5));
        offsets.end(7, true);
        assert_eq!(offsets.committed[&at()].offset, 20);
    }
}
