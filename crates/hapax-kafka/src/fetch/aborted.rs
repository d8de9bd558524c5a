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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BatchBuilder, Batches, Compression, Compressor, RecordRef, Stamp};

    /// The header of one record at an offset, or of its producer's marker.
    fn batch(offset: i64, producer_id: i64, transactional: bool) -> BatchHeader {
        let mut builder = BatchBuilder::new();
        builder.push(&RecordRef::default()).unwrap();
        let sealed = builder.seal(Compression::None, &mut Compressor::new()).unwrap();
        let stamp = Stamp { producer_id, producer_epoch: 0, base_sequence: 0, transactional };
        let header = *Batches::new(sealed.stamp(stamp).to_bytes()).next().unwrap().unwrap().header();
        BatchHeader { base_offset: offset, ..header }
    }

    #[test]
    fn transactions_are_listed_in_no_order_and_end_at_their_markers() {
        let mut filter = AbortedFilter::new([(7, 20), (8, 5), (7, 0)]);
        assert!(filter.drops(&batch(0, 7, true), None));
        assert!(!filter.drops(&batch(1, 8, true), None), "an earlier transaction of 8 was committed");
        assert!(!filter.drops(&batch(2, 7, true), Some(ControlKind::Abort)));
        assert!(!filter.drops(&batch(3, 7, true), None), "this transaction of 7 is not listed");
        assert!(!filter.drops(&batch(4, 8, true), Some(ControlKind::Commit)));
        assert!(filter.drops(&batch(6, 8, true), None));
        assert!(filter.drops(&batch(21, 7, true), None));
    }

    #[test]
    fn a_transaction_that_began_before_the_answer_is_dropped_from_its_first_batch_on() {
        let mut filter = AbortedFilter::new([(7, 3)]);
        assert!(filter.drops(&batch(100, 7, true), None));
    }

    #[test]
    fn records_without_a_transaction_stay() {
        let mut filter = AbortedFilter::new([(7, 0)]);
        assert!(!filter.drops(&batch(1, 7, false), None));
        assert!(!filter.drops(&batch(2, -1, false), None));
    }
}
