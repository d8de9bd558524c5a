//! One partition's part of a Fetch answer, on its way to the reader.

use super::{Fetched, TopicPartition, aborted::AbortedFilter, slot::Shared};
use crate::record::{Batches, Decompressor, RecordError, Records};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// One answer that still has unread parts; counted until the last of them is gone.
pub(super) struct Load {
    /// Answers of the leader that are not read yet.
    leader: Arc<AtomicUsize>,
    total: Arc<Shared>,
    bytes: usize,
}

impl Load {
    pub(super) fn new(leader: &Arc<AtomicUsize>, total: &Arc<Shared>, bytes: usize) -> Self {
        leader.fetch_add(1, Ordering::Relaxed);
        total.buffered.fetch_add(bytes, Ordering::Relaxed);
        Self { leader: Arc::clone(leader), total: Arc::clone(total), bytes }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.leader.fetch_sub(1, Ordering::Relaxed);
        self.total.buffered.fetch_sub(self.bytes, Ordering::Relaxed);
        self.total.work.notify_one();
    }
}

/// Where the log stood at the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    pub(super) log_start: i64,
}

pub(super) struct Completed {
    pub(super) tp: TopicPartition,
    /// The assignment that it was fetched for.
    pub(super) generation: u64,
    /// The next offset to deliver.
    pub(super) position: i64,
    /// Of the last batch that was read.
    pub(super) leader_epoch: Option<i32>,
    pub(super) bounds: Bounds,
    pub(super) batches: Batches,
    /// None where all records are wanted.
    pub(super) aborted: Option<AbortedFilter>,
    pub(super) _load: Arc<Load>,
}

impl Completed {
    /// Records of the next batch that has wanted ones; none at the end. Moves the position either way.
    pub(super) fn read(
        &mut self,
        decompressor: &mut Decompressor,
        verify_crc: bool,
    ) -> Result<Records, RecordError> {
        for batch in self.batches.by_ref() {
            let batch = batch?;
            if verify_crc {
                batch.verify_crc()?;
            }
            let header = *batch.header();
            let control = header.attributes.is_control();
            let marker = if control { batch.control()?.map(|marker| marker.kind) } else { None };
            let aborted = self.aborted.as_mut().is_some_and(|filter| filter.drops(&header, marker));
            // A broker answers whole batches: the first may begin, or lie, before the wanted offset.
            if header.next_offset() <= self.position {
                continue;
            }
            let wanted = self.position;
            let mut records = Records::default();
            if !control && !aborted {
                records = batch.decode(decompressor)?;
                records.drop_before(wanted);
            }
            self.position = header.next_offset();
            if header.partition_leader_epoch >= 0 {
                self.leader_epoch = Some(header.partition_leader_epoch);
            }
            if !records.is_empty() {
                return Ok(records);
            }
        }
        Ok(Records::default())
    }

    pub(super) fn fetched(&self, records: Records, leader_epoch: Option<i32>) -> Fetched {
        Fetched {
            tp: self.tp.clone(),
            records,
            next_offset: self.position,
            leader_epoch,
            high_watermark: self.bounds.high_watermark,
            last_stable_offset: self.bounds.last_stable_offset,
            log_start: self.bounds.log_start,
        }
    }
}
