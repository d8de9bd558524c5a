//! A partition's log: batches as the bytes that readers get, and what is derived from them — offsets, the last stable
//! offset, the index of aborted transactions, leader epochs, producers.
//!
//! ```text
//! start ............ last stable offset ............ end = high watermark
//!                    |<- an open transaction begins
//! ```
//!
//! One replica is the whole cluster, so that the high watermark is the end. What was not synced may be lost by
//! [`Log::crash`]; everything derived is then what the surviving batches say.
//!
//! Sources: `UnifiedLog`, `LocalLog`, `TransactionIndex`, `LeaderEpochFileCache`.

use super::{Code, Millis, digest::feed, producers::Producers};
use crate::batch::{Batch, Records};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// `index.interval.bytes`: a sparse index decides how far behind a fetch aborted transactions are listed.
const INDEX_INTERVAL: u64 = 4_096;

/// A batch in the log.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) base: i64,
    pub(crate) last: i64,
    /// Bytes before it since the log was created: a measure of distance.
    position: u64,
    /// Whether Kafka's sparse index would have an entry for it.
    indexed: bool,
    pub(crate) batch: Batch,
}

feed!(Stored { base, last, position, indexed, batch });

impl Stored {
    /// The latest timestamp of its records.
    pub(crate) fn max_timestamp(&self) -> Millis {
        self.batch.header.max_timestamp
    }
}

/// An aborted transaction, as readers of committed records are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aborted {
    pub(crate) producer_id: i64,
    pub(crate) first: i64,
    /// The offset of its marker.
    pub(crate) last: i64,
    /// The last stable offset when the marker was written.
    stable: i64,
}

feed!(Aborted { producer_id, first, last, stable });

/// What a reader gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) records: Bytes,
    /// Offsets before this are what aborted transactions are looked up for.
    pub(crate) upper: i64,
}

/// Something that a coordinator reloads: a record with its place, or the end of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A record; with its producer if it is part of a transaction.
    Record { offset: i64, producer: Option<(i64, i16)>, key: Option<Bytes>, value: Option<Bytes> },
    /// A transaction's end.
    Marker { producer_id: i64, commit: bool },
}

/// What a crash cannot take.
#[derive(Clone, Debug)]
struct Synced {
    end: i64,
    producers: Producers,
}

feed!(Synced { end, producers });

/// The log of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    batches: VecDeque<Stored>,
    start: i64,
    end: i64,
    written: u64,
    since_index: u64,
    pub(crate) producers: Producers,
    aborted: Vec<Aborted>,
    /// Leader epochs with the offset that each began at.
    epochs: Vec<(i32, i64)>,
    /// `None` while every append is synced at once.
    synced: Option<Synced>,
}

feed!(Log { batches, start, end, written, since_index, producers, aborted, epochs, synced });

impl Log {
    /// The first offset that a reader may ask for.
    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    /// The offset that the next record gets.
    pub(crate) fn end(&self) -> i64 {
        self.end
    }

    /// Everything before it is decided: what a reader of committed records may see.
    pub(crate) fn last_stable(&self) -> i64 {
        self.producers.first_open().map_or(self.end, |first| first.max(self.start))
    }

    fn push(&mut self, batch: Batch) {
        let header = &batch.header;
        assert!(header.base_offset >= self.end, "a batch goes to the end");
        let indexed = self.since_index > INDEX_INTERVAL;
        self.since_index = if indexed { 0 } else { self.since_index } + batch.len() as u64;
        if self.epochs.last().is_none_or(|(epoch, _)| *epoch < header.leader_epoch) {
            self.begin_epoch(batch.header.leader_epoch);
        }
        let (base, last) = (batch.header.base_offset, batch.header.last_offset());
        self.end = last + 1;
        let position = self.written;
        self.written += batch.len() as u64;
        self.batches.push_back(Stored { base, last, position, indexed, batch });
    }

    /// A leader begins: its epoch starts at the end, and one in which nothing was written is forgotten.
    pub(crate) fn begin_epoch(&mut self, epoch: i32) {
        self.epochs.retain(|(_, from)| *from < self.end);
        self.epochs.push((epoch, self.end));
    }

    /// Appends a batch of records that carries its offset and leader epoch already, and remembers its producer.
    pub(crate) fn push_records(&mut self, batch: Batch) {
        if batch.header.has_producer() {
            self.producers.append(&batch.header);
        }
        self.push(batch);
    }

    /// Appends a control batch and ends the transaction that it is about.
    pub(crate) fn push_marker(&mut self, batch: Batch) {
        self.apply_marker(&batch);
        self.push(batch);
    }

    fn apply_marker(&mut self, batch: &Batch) {
        let Some((commit, coordinator_epoch)) = batch.marker() else { return };
        let header = &batch.header;
        let (id, epoch) = (header.producer_id, header.producer_epoch);
        let ended = self.producers.end(id, epoch, coordinator_epoch, header.max_timestamp);
        if let Some(ended) = ended.filter(|_| !commit) {
            let last = header.base_offset;
            let stable = self.producers.first_open().unwrap_or(last + 1);
            self.aborted.push(Aborted { producer_id: id, first: ended.first_offset, last, stable });
        }
    }

    /// The stored batches, from the first that has `from` or a later offset.
    pub(crate) fn batches(&self, from: i64) -> impl Iterator<Item = &Stored> {
        self.batches.range(self.index_of(from)..)
    }

    fn index_of(&self, offset: i64) -> usize {
        self.batches.partition_point(|stored| stored.last < offset)
    }

    /// Bytes of the batches from the one with `from` up to, not with, the one that has `to`.
    pub(crate) fn bytes_between(&self, from: i64, to: i64) -> u64 {
        let position =
            |offset| self.batches.get(self.index_of(offset)).map_or(self.written, |stored| stored.position);
        position(to).saturating_sub(position(from))
    }

    /// Reads at most `max` bytes from the batch with `from` on and before `to`; the first batch whole even if it is
    /// larger, where `whole_first` says so. The last batch may be cut, as Kafka cuts it (`LogSegment.read`).
    pub(crate) fn read(&self, from: i64, to: i64, max: usize, whole_first: bool) -> Slice {
        let at = self.index_of(from);
        let Some(first) = self.batches.get(at).filter(|stored| stored.base < to) else {
            return Slice { records: Bytes::new(), upper: self.end };
        };
        if first.batch.len() > max && !whole_first {
            return Slice { records: Bytes::new(), upper: self.upper(at) };
        }
        let max = max.max(first.batch.len());
        let available = self.bytes_between(from, to) as usize;
        let limit = max.min(available);
        let mut records = BytesMut::with_capacity(limit);
        let mut next = at;
        for stored in self.batches.range(at..) {
            if records.len() == limit {
                break;
            }
            for part in [&stored.batch.head[..], &stored.batch.records[..]] {
                let room = limit - records.len();
                records.extend_from_slice(&part[..part.len().min(room)]);
            }
            next += 1;
        }
        Slice { records: records.freeze(), upper: self.upper(next) }
    }

    /// The offset that `LogSegment.fetchUpperBoundOffset` finds for a fetch that ends before the batch at `next`: the
    /// next one that the sparse index knows, or the end of the log.
    fn upper(&self, next: usize) -> i64 {
        let mut behind = self.batches.range(next.min(self.batches.len())..);
        behind.find(|stored| stored.indexed).map_or(self.end, |stored| stored.last)
    }

    /// Aborted transactions for a reader of `from..upper` (`TransactionIndex.collectAbortedTxns`).
    pub(crate) fn aborted(&self, from: i64, upper: i64) -> Vec<Aborted> {
        let mut found = Vec::new();
        let at = self.aborted.partition_point(|aborted| aborted.last < from);
        for aborted in &self.aborted[at..] {
            if aborted.first < upper {
                found.push(*aborted);
            }
            if aborted.stable >= upper {
                break;
            }
        }
        found
    }

    /// Moves the start forward; batches wholly before it go. Says whether it moved.
    pub(crate) fn advance_start(&mut self, to: i64) -> bool {
        let to = to.min(self.end);
        if to <= self.start {
            return false;
        }
        self.start = to;
        while self.batches.front().is_some_and(|stored| stored.last < self.start) {
            self.batches.pop_front();
        }
        self.aborted.retain(|aborted| aborted.last >= self.start);
        let before = self.epochs.partition_point(|(_, from)| *from <= self.start);
        self.epochs.drain(..before.saturating_sub(1));
        if let Some(first) = self.epochs.first_mut() {
            first.1 = first.1.max(self.start);
        }
        true
    }

    /// The last epoch that is not after the wanted one, and where it ended (`LeaderEpochFileCache.endOffsetFor`);
    /// (-1, -1) where the log cannot know.
    pub(crate) fn epoch_end(&self, wanted: i32) -> (i32, i64) {
        let above = self.epochs.partition_point(|(epoch, _)| *epoch <= wanted);
        match (above.checked_sub(1).and_then(|at| self.epochs.get(at)), self.epochs.get(above)) {
            _ if wanted < 0 => (-1, -1),
            (Some((epoch, _)), None) if *epoch == wanted => (wanted, self.end),
            (_, None) => (-1, -1),
            (None, Some((_, from))) => (wanted, *from),
            (Some((epoch, _)), Some((_, from))) => (*epoch, *from),
        }
    }

    /// The leader epoch that wrote an offset.
    pub(crate) fn epoch_at(&self, offset: i64) -> Option<i32> {
        let above = self.epochs.partition_point(|(_, from)| *from <= offset);
        above.checked_sub(1).and_then(|at| self.epochs.get(at)).map(|(epoch, _)| *epoch)
    }

    /// The latest timestamp, at its first batch.
    pub(crate) fn latest(&self) -> Option<&Stored> {
        self.batches
            .iter()
            .reduce(|best, stored| if stored.max_timestamp() > best.max_timestamp() { stored } else { best })
    }

    /// From now on a crash may take appends (`false`), or cannot.
    pub(crate) fn sync_always(&mut self, always: bool) {
        self.synced = None;
        if !always {
            self.sync();
        }
    }

    /// What is here now survives a crash. Says whether it would not have.
    pub(crate) fn sync_now(&mut self) -> bool {
        let at_risk = self.is_at_risk();
        if at_risk {
            self.sync();
        }
        at_risk
    }

    /// Is there anything that a crash may take?
    pub(crate) fn is_at_risk(&self) -> bool {
        let is_old = |synced: &Synced| synced.end != self.end || synced.producers != self.producers;
        self.synced.as_ref().is_some_and(is_old)
    }

    fn sync(&mut self) {
        self.synced = Some(Synced { end: self.end, producers: self.producers.clone() });
    }

    /// Loses a tail of what was not synced: `choose(n)` says how many of the `n` batches at risk survive.
    pub(crate) fn crash(&mut self, choose: impl FnOnce(usize) -> usize) {
        self.producers.ask_nothing();
        let Some(synced) = self.synced.take() else { return };
        let sure = self.index_of(synced.end);
        let survive = sure + choose(self.batches.len() - sure).min(self.batches.len() - sure);
        self.batches.truncate(survive);
        let tail: Vec<Stored> = self.batches.drain(sure..).collect();
        self.end = tail.first().map_or(synced.end.max(self.start), |stored| stored.base);
        self.producers = synced.producers;
        self.producers.ask_nothing();
        self.written = self.batches.back().map_or(0, |stored| stored.position + stored.batch.len() as u64);
        self.aborted.retain(|aborted| aborted.last < self.end);
        self.epochs.retain(|(_, from)| *from < self.end);
        tail.into_iter().for_each(|stored| self.replay(stored.batch));
        self.sync();
    }

    /// Loses the batch that has `from` and all behind it. What is known of producers is read anew from what is left, as a
    /// replica does that has no snapshot of them. Says whether anything was lost.
    pub(crate) fn truncate(&mut self, from: i64) -> bool {
        let survive = self.index_of(from);
        let Some(first_lost) = self.batches.get(survive) else { return false };
        let end = first_lost.base.max(self.start);
        let is_synced_at_once = self.synced.is_none();
        self.batches.truncate(survive);
        let left = std::mem::take(&mut self.batches);
        self.written = left.front().map_or(0, |stored| stored.position);
        self.end = left.front().map_or(end, |stored| stored.base);
        self.producers = Producers::default();
        self.aborted.clear();
        self.epochs.retain(|(_, from)| *from < end);
        left.into_iter().for_each(|stored| self.replay(stored.batch));
        self.end = end;
        if !is_synced_at_once {
            self.sync();
        }
        true
    }

    fn replay(&mut self, batch: Batch) {
        if batch.header.is_control() {
            self.push_marker(batch);
        } else {
            self.push_records(batch);
        }
    }

    /// Records that are not control records and not compressed: what a coordinator writes and reloads.
    pub(crate) fn records(&self) -> impl Iterator<Item = (i64, Option<Bytes>, Option<Bytes>)> {
        self.entries().filter_map(|entry| match entry {
            Entry::Record { offset, key, value, .. } => Some((offset, key, value)),
            Entry::Marker { .. } => None,
        })
    }

    /// [`Log::records`], with the ends of transactions in their places.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.batches.iter().flat_map(entries_of)
    }

    /// Replaces the batches by what the log cleaner leaves of each; one of which nothing is left goes. Says whether
    /// any is not what it was.
    pub(crate) fn rewrite(&mut self, clean: impl Fn(&Stored) -> Cleaned) -> bool {
        let mut changed = false;
        let old = std::mem::take(&mut self.batches);
        let mut position = old.front().map_or(self.written, |stored| stored.position);
        for mut stored in old {
            match clean(&stored) {
                Cleaned::Same => {}
                Cleaned::Gone => {
                    changed = true;
                    continue;
                }
                Cleaned::Rest(batch) => {
                    changed = true;
                    stored.batch = batch;
                }
            }
            stored.position = position;
            position += stored.batch.len() as u64;
            self.batches.push_back(stored);
        }
        self.written = position;
        changed
    }
}

/// What the log cleaner leaves of a batch.
#[derive(Clone, Debug)]
pub(crate) enum Cleaned {
    /// All of it.
    Same,
    /// Nothing.
    Gone,
    /// Some records.
    Rest(Batch),
}

fn entries_of(stored: &Stored) -> Vec<Entry> {
    let (header, records) = (&stored.batch.header, &stored.batch.records);
    if header.is_control() {
        let marker = stored.batch.marker();
        let entry = |(commit, _)| Entry::Marker { producer_id: header.producer_id, commit };
        return marker.map(entry).into_iter().collect();
    }
    if header.codec() != 0 {
        return Vec::new();
    }
    let owned = |part: Option<&[u8]>| part.map(|part| records.slice_ref(part));
    let producer = header.is_transactional().then_some((header.producer_id, header.producer_epoch));
    Records::new(records, header.count)
        .map_while(Result::ok)
        .map(|record| Entry::Record {
            offset: header.base_offset + i64::from(record.offset_delta),
            producer,
            key: owned(record.key),
            value: owned(record.value),
        })
        .collect()
}

/// Where a fetch or a look-up may not go.
pub(crate) fn in_range(log: &Log, offset: i64) -> Result<(), Code> {
    if (log.start()..=log.end()).contains(&offset) { Ok(()) } else { Err(Code::OFFSET_OUT_OF_RANGE) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Writer;

    fn append(log: &mut Log, leader_epoch: i32, producer: Option<(i64, i16)>, count: usize) {
        let records: Vec<_> = (0..count).map(|_| (Bytes::from_static(b"k"), None)).collect();
        log.push_records(
            Writer { base_offset: log.end(), leader_epoch, timestamp: 1, producer }.records(&records),
        );
    }

    fn end(log: &mut Log, producer_id: i64, commit: bool) {
        let producer = Some((producer_id, 0));
        let writer = Writer { base_offset: log.end(), leader_epoch: 0, timestamp: 1, producer };
        log.push_marker(writer.marker(commit, 0));
    }

    #[test]
    fn the_last_stable_offset_is_where_the_oldest_open_transaction_began() {
        let mut log = Log::default();
        append(&mut log, 0, None, 2);
        append(&mut log, 0, Some((1, 0)), 1);
        append(&mut log, 0, Some((2, 0)), 1);
        assert_eq!((log.last_stable(), log.end()), (2, 4));
        end(&mut log, 1, true);
        assert_eq!(log.last_stable(), 3);
        end(&mut log, 2, false);
        assert_eq!(log.last_stable(), 6);
        let aborted = log.aborted(0, 6);
        assert_eq!(aborted.len(), 1);
        assert_eq!((aborted[0].producer_id, aborted[0].first, aborted[0].last), (2, 3, 5));
    }

    #[test]
    fn a_crash_takes_only_what_was_not_synced_and_what_is_derived_follows() {
        let mut log = Log::default();
        log.sync_always(false);
        append(&mut log, 0, Some((1, 0)), 1);
        log.sync_now();
        end(&mut log, 1, false);
        append(&mut log, 0, None, 1);
        let mut kept = log.clone();

        log.crash(|at_risk| {
            assert_eq!(at_risk, 2);
            0
        });
        assert_eq!(
            (log.end(), log.last_stable(), log.aborted(0, 9).len()),
            (1, 0, 0),
            "the transaction is open again"
        );

        kept.crash(|_| 1);
        assert_eq!((kept.end(), kept.last_stable(), kept.aborted(0, 9).len()), (2, 2, 1));
        append(&mut kept, 0, None, 1);
        assert_eq!(kept.end(), 3);
    }

    #[test]
    fn what_is_synced_at_once_survives_every_crash() {
        let mut log = Log::default();
        append(&mut log, 0, None, 3);
        log.crash(|_| 0);
        assert_eq!(log.end(), 3);
    }

    #[test]
    fn a_leader_epoch_ends_where_the_next_one_began() {
        let mut log = Log::default();
        log.begin_epoch(0);
        assert_eq!(log.epoch_end(0), (0, 0));
        append(&mut log, 0, None, 2);
        log.begin_epoch(2);
        append(&mut log, 2, None, 1);
        log.begin_epoch(3);
        assert_eq!([0, 1, 2, 3].map(|epoch| log.epoch_end(epoch)), [(0, 2), (0, 2), (2, 3), (3, 3)]);
        assert_eq!([-1, 4].map(|epoch| log.epoch_end(epoch)), [(-1, -1), (-1, -1)]);
        assert_eq!((log.epoch_at(1), log.epoch_at(2)), (Some(0), Some(2)));
    }

    #[test]
    fn a_start_that_moves_takes_whole_batches_and_never_moves_back() {
        let mut log = Log::default();
        (0..3).for_each(|_| append(&mut log, 0, None, 2));
        log.advance_start(3);
        log.advance_start(1);
        assert_eq!((log.start(), log.batches(0).count()), (3, 2), "the batch that holds the start stays");
        log.advance_start(99);
        assert_eq!((log.start(), log.batches(0).count()), (6, 0));
    }

    #[test]
    fn coordinators_reload_records_with_their_producers_and_the_ends_of_transactions() {
        let mut log = Log::default();
        append(&mut log, 0, Some((9, 0)), 1);
        end(&mut log, 9, true);
        let key = Some(Bytes::from_static(b"k"));
        let record = Entry::Record { offset: 0, producer: Some((9, 0)), key: key.clone(), value: None };
        let entries: Vec<_> = log.entries().collect();
        assert_eq!(entries, [record, Entry::Marker { producer_id: 9, commit: true }]);
        assert_eq!(log.records().collect::<Vec<_>>(), [(0, key, None)]);
    }
}
