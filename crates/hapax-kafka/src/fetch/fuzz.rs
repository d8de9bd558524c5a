//! One partition's part of a Fetch answer without a connection, for fuzz targets alone.

use super::{
    TopicPartition,
    aborted::AbortedFilter,
    completed::{Bounds, Completed, Load, Walked, walk},
};
use crate::record::{Batches, Decompressor, RecordError, Records};
use bytes::Bytes;
use std::sync::Arc;

/// What the fetcher makes of a record set.
pub struct Answer(Completed);

impl Answer {
    /// Asked for from an offset on. `aborted` has (producer id, first offset) of the aborted transactions that a broker
    /// lists; none where all records are wanted.
    pub fn new(from: i64, aborted: Option<&[(i64, i64)]>, records: Bytes) -> Self {
        Self(Completed {
            tp: TopicPartition { topic: "t".into(), partition: 0 },
            generation: 1,
            position: from,
            leader_epoch: None,
            bounds: Bounds { high_watermark: 0, last_stable_offset: 0, log_start: 0 },
            batches: Batches::new(records),
            aborted: aborted.map(|listed| AbortedFilter::new(listed.iter().copied())),
            _load: Arc::new(Load::new(&Arc::default(), &Arc::default(), 0)),
        })
    }

    /// Records of the next batch that has wanted ones; none at the end.
    ///
    /// # Errors
    /// The record set is damaged.
    pub fn read(&mut self, decompressor: &mut Decompressor) -> Result<Records, RecordError> {
        self.0.read(decompressor, true)
    }

    /// The next offset to deliver.
    pub fn position(&self) -> i64 {
        self.0.position
    }
}

/// Up to where the headers of a record set are well; none where it is damaged, or has not one whole batch.
pub fn well_up_to(records: &Bytes, from: i64) -> Option<i64> {
    match walk(records, from) {
        Walked::To(offset) => Some(offset),
        Walked::Nothing { .. } | Walked::Damaged => None,
    }
}
