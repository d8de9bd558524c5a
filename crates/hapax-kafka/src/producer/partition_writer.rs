//! One partition of one topic: the batch that is being filled, the batches that are not acknowledged, the account.

use super::{
    account::Counters,
    config::OpenAs,
    error::{Place, ProduceError},
    flushed::FlushedPartition,
    partition_queue::{Effect, Oldest, PartitionQueue, Ticket, Verdict},
    topic::TopicHandle,
};
use crate::record::{BatchBuilder, Compression, Compressor, RecordDigest, RecordError, RecordRef};
use hapax_commit::{Epoch, Identity};
use hapax_host::Instant;
use std::sync::Arc;

pub(super) struct PartitionWriter {
    pub(super) topic: TopicHandle,
    pub(super) partition: i32,
    builder: BatchBuilder,
    /// When the first record of the open batch was written.
    builder_since: Option<Instant>,
    pub(super) queue: PartitionQueue,
    counters: Counters,
    digest: RecordDigest,
    /// First and last offset of the epoch, as far as brokers said them.
    offsets: Option<(i64, i64)>,
    /// A batch was acknowledged without its offset.
    has_unplaced: bool,
    /// The epoch that the account is of, and the identity that it was opened with.
    pub(super) opening: u64,
    base: Option<Identity>,
    /// V1: the partition is known to belong to the transaction.
    pub(super) is_added: bool,
    /// It stands in the list of partitions with something to do.
    pub(super) is_listed: bool,
    /// It waits for an answer of AddPartitionsToTxn or InitProducerId.
    pub(super) is_pending: bool,
    /// Its leader moved: it waits for newer metadata.
    pub(super) awaits_metadata: bool,
    /// Since when brokers say that they do not know it.
    pub(super) unknown_since: Option<Instant>,
    /// How the last attempt failed.
    pub(super) last_failure: Option<Arc<str>>,
}

impl PartitionWriter {
    pub(super) fn new(topic: TopicHandle, partition: i32, window: usize) -> Self {
        Self {
            topic,
            partition,
            builder: BatchBuilder::new(),
            builder_since: None,
            queue: PartitionQueue::new(window),
            counters: Counters::default(),
            digest: RecordDigest::new(),
            offsets: None,
            has_unplaced: false,
            opening: 0,
            base: None,
            is_added: false,
            is_listed: false,
            is_pending: false,
            awaits_metadata: false,
            unknown_since: None,
            last_failure: None,
        }
    }

    pub(super) fn place(&self) -> Place {
        Place { topic: Arc::clone(&self.topic.0.name), partition: self.partition }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// The account agrees with what is really there.
    pub(super) fn is_consistent(&self) -> bool {
        self.counters.is_balanced()
            && self.counters.inflight == u64::from(self.builder.count()) + self.queue.records()
    }

    /// Bytes that are written and not acknowledged.
    pub(super) fn bytes(&self) -> usize {
        self.open_bytes() + self.queue.bytes()
    }

    fn open_bytes(&self) -> usize {
        if self.builder.is_empty() { 0 } else { self.builder.len() }
    }

    /// Nothing is left to be sent or answered.
    pub(super) fn is_idle(&self) -> bool {
        self.builder.is_empty() && self.queue.is_empty()
    }

    pub(super) fn fits(&self, bound: usize, batch_bytes: usize) -> bool {
        self.builder.fits(bound, batch_bytes)
    }

    /// Appends a record to the open batch; answers the bytes that it took, and whether the batch is new.
    pub(super) fn append(
        &mut self,
        record: &RecordRef<'_>,
        digested: bool,
        now: impl FnOnce() -> Instant,
    ) -> Result<(usize, bool), RecordError> {
        let before = self.open_bytes();
        self.builder.push(record)?;
        if digested {
            self.digest.update(self.builder.last_body());
        }
        self.counters.written();
        if before == 0 {
            self.builder_since = Some(now());
        }
        Ok((self.open_bytes() - before, before == 0))
    }

    /// Ends the open batch, if there is one; answers how many bytes it took before and takes now.
    pub(super) fn seal(&mut self, compression: Compression, compressor: &mut Compressor) -> (usize, usize) {
        let before = self.open_bytes();
        let Some(batch) = self.builder.seal(compression, compressor) else { return (0, 0) };
        let since = self.builder_since.take().expect("an open batch has a first record");
        let after = batch.len();
        self.queue.push(batch, since);
        (before, after)
    }

    /// When the open batch has to be sealed although it is not full.
    pub(super) fn open_since(&self) -> Option<Instant> {
        self.builder_since
    }

    /// What has waited longest, in the queue or in the open batch.
    pub(super) fn oldest(&self) -> Option<Oldest> {
        self.queue.oldest().or_else(|| {
            let since = self.builder_since?;
            Some(Oldest { since, records: self.builder.count(), failures: self.queue.failures() })
        })
    }

    pub(super) fn answered(
        &mut self,
        ticket: Ticket,
        verdict: Verdict,
        compressor: &mut Compressor,
    ) -> Result<Effect, RecordError> {
        let effect = self.queue.answered(ticket, verdict, compressor)?;
        match effect {
            Effect::Acknowledged { records, base_offset, .. } => {
                self.counters.acknowledged(u64::from(records));
                self.unknown_since = None;
                self.last_failure = None;
                self.place_records(base_offset, records);
            }
            Effect::GivenUp { records, .. } => self.counters.given_up(u64::from(records)),
            Effect::Stale | Effect::Again | Effect::Split { .. } | Effect::OutOfSequence { .. } => {}
        }
        Ok(effect)
    }

    fn place_records(&mut self, base_offset: Option<i64>, records: u32) {
        let Some(base) = base_offset else {
            self.has_unplaced = true;
            return;
        };
        let last = base + i64::from(records) - 1;
        let (low, high) = self.offsets.unwrap_or((base, last));
        self.offsets = Some((low.min(base), high.max(last)));
    }

    /// Gives up what has waited longest; answers its records and bytes.
    pub(super) fn drop_oldest(&mut self) -> (u64, usize) {
        let (records, bytes) = match self.queue.drop_first() {
            Some((records, bytes)) => (u64::from(records), bytes),
            None => self.drop_open(),
        };
        self.counters.given_up(records);
        (records, bytes)
    }

    /// Gives up everything; answers records and bytes.
    pub(super) fn drop_all(&mut self) -> (u64, usize) {
        let (open_records, open_bytes) = self.drop_open();
        let (records, bytes) = self.queue.clear();
        self.counters.given_up(records + open_records);
        (records + open_records, bytes + open_bytes)
    }

    fn drop_open(&mut self) -> (u64, usize) {
        let dropped = (u64::from(self.builder.count()), self.open_bytes());
        self.builder.clear();
        self.builder_since = None;
        dropped
    }

    /// Begins the account of another epoch. An identity that is continued keeps its sequences.
    pub(super) fn begin(&mut self, opening: u64, open_as: &OpenAs) {
        assert!(
            self.is_consistent() && self.counters.inflight == 0,
            "an epoch begins when all before is settled"
        );
        let identity = open_as.identity();
        let transactional = matches!(open_as, OpenAs::Transaction { .. });
        if transactional || self.base != Some(identity) || self.queue.identity().is_none() {
            self.queue.open(identity, transactional);
        }
        self.base = Some(identity);
        self.opening = opening;
        self.counters = Counters::default();
        self.digest = RecordDigest::new();
        self.offsets = None;
        self.has_unplaced = false;
        self.is_added = false;
        self.is_pending = false;
    }

    /// What the partition got in the epoch, which is settled; `None` if that is nothing.
    pub(super) fn flushed(
        &self,
        epoch: Epoch,
        transactional: bool,
    ) -> Result<Option<FlushedPartition>, ProduceError> {
        let count = self.counters.acked;
        if count == 0 {
            return Ok(None);
        }
        if transactional && self.has_unplaced {
            return Err(ProduceError::NoOffset { place: self.place(), epoch });
        }
        let placed = self.offsets.filter(|_| !self.has_unplaced);
        let (first_offset, last_offset) = placed.unwrap_or((-1, -1));
        Ok(Some(FlushedPartition {
            topic: self.topic.name().to_owned(),
            topic_id: self.topic.topic_id(),
            partition: self.partition,
            first_offset,
            last_offset,
            count,
            digest: if transactional { self.digest.value() } else { 0 },
        }))
    }
}
