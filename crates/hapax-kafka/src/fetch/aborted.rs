//! Which batches of one Fetch answer belong to aborted transactions.
//!
//! The broker lists aborted transactions of the range that it answers (producer id and first offset, in no order,
//! perhaps some of outside the range); only the producer id says what belongs to them. Source: `CompletedFetch`.

use crate::record::{BatchHeader, ControlKind};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

/// The filter; made anew for each answer, asked about each batch in order.
#[derive(Debug, Default)]
pub(super) struct AbortedFilter {
    /// By first offset.
    ahead: BinaryHeap<Reverse<(i64, i64)>>,
    /// Producers whose aborted transaction has begun and not ended.
    open: BTreeSet<i64>,
}

impl AbortedFilter {
    /// Over (producer id, first offset) of an answer.
    pub(super) fn new(listed: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let ahead = listed.into_iter().map(|(producer, first)| Reverse((first, producer))).collect();
        Self { ahead, open: BTreeSet::new() }
    }

    /// Does the next batch belong to an aborted transaction? `control` is its marker, if it has one.
    pub(super) fn drops(&mut self, batch: &BatchHeader, control: Option<ControlKind>) -> bool {
        if batch.producer_id < 0 {
            return false;
        }
        let last = batch.last_offset();
        while let Some(&Reverse((first, producer))) = self.ahead.peek()
            && first <= last
        {
            self.ahead.pop();
            self.open.insert(producer);
        }
        if control == Some(ControlKind::Abort) {
            self.open.remove(&batch.producer_id);
            return false;
        }
        batch.attributes.is_transactional() && self.open.contains(&batch.producer_id)
    }
}
