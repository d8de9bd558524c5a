//! One partition's part of a Fetch answer, on its way to the reader.

use super::{Fetched, TopicPartition, aborted::AbortedFilter, request::Asked, slot::Shared};
use crate::{
    Isolation,
    record::{Batches, Decompressor, RecordError, Records},
};
use bytes::Bytes;
use kafka_protocol::messages::fetch_response::PartitionData;
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
    /// The records that answer what was asked. The aborted transactions that are listed count where only committed records
    /// are wanted.
    pub(super) fn of(asked: &Asked, data: PartitionData, isolation: Isolation, load: &Arc<Load>) -> Self {
        let aborted = data.aborted_transactions.unwrap_or_default();
        let aborted = (isolation == Isolation::ReadCommitted)
            .then(|| AbortedFilter::new(aborted.iter().map(|one| (one.producer_id.0, one.first_offset))));
        Self {
            tp: asked.tp.clone(),
            generation: asked.generation,
            position: asked.offset,
            leader_epoch: None,
            bounds: Bounds {
                high_watermark: data.high_watermark,
                last_stable_offset: data.last_stable_offset,
                log_start: data.log_start_offset,
            },
            batches: Batches::new(data.records.unwrap_or_default()),
            aborted,
            _load: Arc::clone(load),
        }
    }

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

/// What the headers of an answer's batches say.
pub(super) enum Walked {
    /// All is well up to this offset.
    To(i64),
    /// There is not one whole batch; the next one takes this many bytes.
    Nothing {
        needed: usize,
    },
    Damaged,
}

pub(super) fn walk(records: &Bytes, from: i64) -> Walked {
    let mut batches = Batches::new(records.clone());
    let mut next = None;
    for batch in &mut batches {
        match batch {
            Ok(batch) => next = Some(batch.header().next_offset()),
            Err(_) => return Walked::Damaged,
        }
    }
    match next {
        Some(next) => Walked::To(next.max(from)),
        None => Walked::Nothing { needed: batches.cut_batch_bytes().unwrap_or(0) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BatchBuilder, Compression, Compressor, RecordRef, Stamp, crc32c};

    const CONTROL: u8 = 0x20;
    const COMMIT: [u8; 4] = [0, 0, 0, 1];
    const ABORT: [u8; 4] = [0, 0, 0, 0];

    /// A batch as it stands in a log.
    struct Logged {
        base: i64,
        producer: i64,
        /// Offsets relative to the base that are left of the batch.
        count: u32,
        /// Offsets that the batch once had.
        width: i32,
        marker: Option<[u8; 4]>,
    }

    impl Logged {
        fn plain(base: i64, count: u32) -> Self {
            Self { base, producer: -1, count, width: count as i32, marker: None }
        }

        fn of(producer: i64, base: i64, count: u32) -> Self {
            Self { producer, ..Self::plain(base, count) }
        }

        fn marker(producer: i64, base: i64, key: [u8; 4]) -> Self {
            Self { marker: Some(key), ..Self::of(producer, base, 1) }
        }

        fn bytes(&self) -> Vec<u8> {
            let mut builder = BatchBuilder::new();
            let key = self.marker.as_ref().map(<[u8; 4]>::as_slice);
            for _ in 0..self.count.max(1) {
                let value = Some([0; 6].as_slice());
                builder.push(&RecordRef { key, value, ..RecordRef::default() }).unwrap();
            }
            let sealed = builder.seal(Compression::None, &mut Compressor::new()).unwrap();
            let stamp = Stamp {
                producer_id: self.producer,
                producer_epoch: 0,
                base_sequence: 0,
                transactional: self.producer >= 0,
            };
            let mut bytes = sealed.stamp(stamp).to_bytes().to_vec();
            if self.count == 0 {
                bytes.truncate(61);
                bytes[8..12].copy_from_slice(&49_i32.to_be_bytes());
                bytes[57..61].copy_from_slice(&0_i32.to_be_bytes());
            }
            bytes[..8].copy_from_slice(&self.base.to_be_bytes());
            bytes[12..16].copy_from_slice(&5_i32.to_be_bytes());
            bytes[23..27].copy_from_slice(&(self.width - 1).to_be_bytes());
            if self.marker.is_some() {
                bytes[22] |= CONTROL;
            }
            let crc = crc32c(&bytes[21..]);
            bytes[17..21].copy_from_slice(&crc.to_be_bytes());
            bytes
        }
    }

    fn completed(from: i64, aborted: Option<&[(i64, i64)]>, records: Vec<u8>) -> Completed {
        Completed {
            tp: TopicPartition { topic: "t".into(), partition: 0 },
            generation: 1,
            position: from,
            leader_epoch: None,
            bounds: Bounds { high_watermark: 0, last_stable_offset: 0, log_start: 0 },
            batches: Batches::new(records.into()),
            aborted: aborted.map(|listed| AbortedFilter::new(listed.iter().copied())),
            _load: Arc::new(Load::new(&Arc::default(), &Arc::default(), 0)),
        }
    }

    fn log(batches: &[Logged]) -> Vec<u8> {
        batches.iter().flat_map(Logged::bytes).collect()
    }

    /// Offsets of each chunk until nothing comes, and the last position.
    fn read(mut completed: Completed) -> (Vec<Vec<i64>>, i64) {
        let mut chunks = Vec::new();
        loop {
            let records = completed.read(&mut Decompressor::default(), true).unwrap();
            if records.is_empty() {
                return (chunks, completed.position);
            }
            chunks.push(records.views().iter().map(|view| view.offset).collect());
        }
    }

    #[test]
    fn records_before_the_wanted_offset_are_dropped() {
        let batches = || log(&[Logged::plain(10, 2), Logged::plain(12, 4)]);
        assert_eq!(read(completed(10, None, batches())), (vec![vec![10, 11], vec![12, 13, 14, 15]], 16));
        assert_eq!(read(completed(11, None, batches())), (vec![vec![11], vec![12, 13, 14, 15]], 16));
        assert_eq!(read(completed(14, None, batches())), (vec![vec![14, 15]], 16));
    }

    #[test]
    fn the_position_passes_gaps_empty_batches_and_markers() {
        let gap = Logged { width: 8, ..Logged::plain(10, 2) };
        let empty = Logged { width: 3, ..Logged::of(7, 30, 0) };
        let marker = Logged::marker(7, 40, COMMIT);
        assert_eq!(read(completed(0, Some(&[]), log(&[gap, empty, marker]))), (vec![vec![10, 11]], 41));
    }

    #[test]
    fn a_batch_that_is_cut_at_the_end_is_left_for_the_next_fetch() {
        let mut records = log(&[Logged::plain(0, 2), Logged::plain(2, 2)]);
        records.pop();
        let bytes = Bytes::from(records.clone());
        assert!(matches!(walk(&bytes, 0), Walked::To(2)));
        assert_eq!(read(completed(0, None, records)), (vec![vec![0, 1]], 2));
        let whole = Logged::plain(2, 2).bytes();
        let cut = Bytes::from(whole[..40].to_vec());
        let Walked::Nothing { needed } = walk(&cut, 2) else { panic!("a part of a batch") };
        assert_eq!(needed, whole.len());
    }

    #[test]
    fn a_length_beyond_every_batch_is_damage_and_is_not_asked_for() {
        let mut records = log(&[Logged::plain(0, 2), Logged::plain(2, 2)]);
        let at = Logged::plain(0, 2).bytes().len() + 8;
        records[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        assert!(matches!(walk(&Bytes::from(records.clone()), 0), Walked::Damaged));
        let mut completed = completed(0, None, records);
        let mut decompressor = Decompressor::default();
        assert_eq!(completed.read(&mut decompressor, true).unwrap().len(), 2);
        let error = completed.read(&mut decompressor, true).unwrap_err();
        assert!(matches!(error, RecordError::BatchTooLarge { offset: 2, .. }), "{error}");
        assert_eq!(completed.position, 2);
    }

    #[test]
    fn a_damaged_batch_stops_the_position_before_it() {
        let mut records = log(&[Logged::plain(0, 2), Logged::plain(2, 2)]);
        *records.last_mut().unwrap() ^= 1;
        let mut completed = completed(0, None, records);
        let mut decompressor = Decompressor::default();
        assert_eq!(completed.read(&mut decompressor, true).unwrap().len(), 2);
        let error = completed.read(&mut decompressor, true).unwrap_err();
        assert!(matches!(error, RecordError::CrcMismatch { offset: 2, .. }), "{error}");
        assert_eq!(completed.position, 2);
    }

    /// Producer 7 aborts, then commits; producer 8 commits in between.
    fn side_by_side() -> Vec<u8> {
        log(&[
            Logged::of(7, 0, 2),
            Logged::of(8, 2, 1),
            Logged::of(7, 3, 2),
            Logged::marker(7, 5, ABORT),
            Logged::marker(8, 6, COMMIT),
            Logged::of(7, 7, 1),
            Logged::marker(7, 8, COMMIT),
            Logged::plain(9, 1),
        ])
    }

    #[test]
    fn only_records_of_the_aborted_transaction_are_dropped() {
        let listed = [(7, 0)];
        assert_eq!(read(completed(0, Some(&listed), side_by_side())), (vec![vec![2], vec![7], vec![9]], 10));
        assert_eq!(read(completed(4, Some(&listed), side_by_side())), (vec![vec![7], vec![9]], 10));
    }

    #[test]
    fn without_the_filter_everything_but_markers_is_read() {
        let (chunks, position) = read(completed(0, None, side_by_side()));
        assert_eq!(chunks.concat(), [0, 1, 2, 3, 4, 7, 9]);
        assert_eq!(position, 10);
    }

    #[test]
    fn an_answer_of_aborted_records_alone_moves_the_position() {
        let records = log(&[Logged::of(7, 0, 2)]);
        assert_eq!(read(completed(0, Some(&[(7, 0)]), records)), (vec![], 2));
    }
}
