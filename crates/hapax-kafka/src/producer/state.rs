//! What the writing side and the sender share: partitions, the open epoch, the buffer's size, the first failure.
//!
//! Owns every change of the account. Pure but for logging: it is told the time and never waits. The lock around it is
//! held for one record or one pass of the sender.

use super::{
    account::Counters,
    config::{OpenAs, ProducerConfig},
    error::{Place, ProduceError},
    flushed::Flushed,
    partition_queue::{Effect, Ticket, Verdict},
    partition_writer::PartitionWriter,
    topic::{Destination, Topic, TopicHandle},
};
use crate::{
    limits,
    metadata::TopicMetadata,
    partition::Partitioner,
    record::{Compressor, RecordRef},
};
use hapax_commit::{Epoch, Identity};
use hapax_host::Instant;
use std::{collections::BTreeMap, sync::Arc};

/// The epoch that is being written.
pub(super) struct OpenEpoch {
    pub(super) epoch: Epoch,
    pub(super) open_as: OpenAs,
    pub(super) started: Option<(i64, Instant)>,
    pub(super) bytes: u64,
    /// Partitions with records of the epoch.
    touched: Vec<usize>,
}

struct TopicState {
    handle: TopicHandle,
    partitioner: Partitioner,
}

pub(super) struct State {
    pub(super) config: ProducerConfig,
    producer: u64,
    topics: Vec<TopicState>,
    by_name: BTreeMap<Arc<str>, usize>,
    pub(super) partitions: Vec<PartitionWriter>,
    /// Partitions with something to do, each once.
    pub(super) busy: Vec<usize>,
    pub(super) compressor: Compressor,
    pub(super) epoch: Option<OpenEpoch>,
    /// Distinguishes the epochs of this producer, also those that were abandoned: late answers are told apart by it.
    pub(super) opening: u64,
    /// Bytes that are written and not acknowledged.
    buffered: usize,
    /// Open batches are sealed without waiting for more records.
    pub(super) is_flushing: bool,
    /// A writer waits for room.
    pub(super) is_full: bool,
    failure: Option<ProduceError>,
    dropped: u64,
    /// The identity whose sequences are not known any more, because an epoch was abandoned under it.
    abandoned: Option<Identity>,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// It is in a batch.
    To {
        /// The partition.
        partition: i32,
        /// Wake the sender: there is something to send, or a linger begins.
        wake: bool,
    },
    /// The buffer is full, nothing was appended: wake the sender, wait.
    NoRoom,
}

impl State {
    pub(super) fn new(config: ProducerConfig, producer: u64) -> Self {
        Self {
            config,
            producer,
            topics: Vec::new(),
            by_name: BTreeMap::new(),
            partitions: Vec::new(),
            busy: Vec::new(),
            compressor: Compressor::new(),
            epoch: None,
            opening: 0,
            buffered: 0,
            is_flushing: false,
            is_full: false,
            failure: None,
            dropped: 0,
            abandoned: None,
        }
    }

    pub(super) fn topic(&self, name: &str) -> Option<TopicHandle> {
        self.by_name.get(name).map(|&number| self.topics[number].handle.clone())
    }

    /// Makes a topic known; `seed` decides where records without a key begin.
    pub(super) fn intern(&mut self, topic: &TopicMetadata, seed: u64) -> TopicHandle {
        if let Some(known) = self.topic(&topic.name) {
            return known;
        }
        let first = self.partitions.len();
        let partitions =
            i32::try_from(topic.partitions.len()).expect("partitions are numbered by 32-bit numbers");
        let name = Arc::clone(&topic.name);
        let number = self.topics.len();
        let handle = TopicHandle(Arc::new(Topic {
            name: Arc::clone(&name),
            id: topic.id,
            partitions,
            producer: self.producer,
            number,
            first,
        }));
        let window = self.config.max_in_flight;
        self.partitions
            .extend((0..partitions).map(|partition| PartitionWriter::new(handle.clone(), partition, window)));
        self.topics.push(TopicState { handle: handle.clone(), partitioner: Partitioner::new(seed) });
        self.by_name.insert(name, number);
        handle
    }

    pub(super) fn open(&mut self, epoch: Epoch, open_as: OpenAs) {
        assert!(self.epoch.is_none(), "epoch {epoch} is opened before the one before it is flushed");
        let transactional = matches!(open_as, OpenAs::Transaction { .. });
        assert_eq!(
            transactional, self.config.transactional,
            "epochs are opened as the producer is configured"
        );
        assert!(self.buffered == 0, "nothing is left of an epoch that was flushed or abandoned");
        let spent = self.abandoned == Some(open_as.identity());
        assert!(!spent, "epoch {epoch} is opened under an identity whose sequences were abandoned");
        self.opening += 1;
        self.epoch = Some(OpenEpoch { epoch, open_as, started: None, bytes: 0, touched: Vec::new() });
    }

    /// Appends a record, if there is room.
    pub(super) fn append(
        &mut self,
        to: Destination<'_>,
        record: &RecordRef<'_>,
        now: impl FnOnce() -> Instant,
    ) -> Result<Appended, ProduceError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        assert!(self.epoch.is_some(), "a record is written into an open epoch");
        let bound = record.size_bound();
        if self.buffered > 0 && self.buffered.saturating_add(bound) > self.config.buffer_bytes {
            self.is_full = true;
            return Ok(Appended::NoRoom);
        }
        let (index, sealed) = self.choose(to, record, bound)?;
        self.touch(index);
        let writer = &mut self.partitions[index];
        let (bytes, is_new) = writer
            .append(record, self.config.transactional, now)
            .map_err(|reason| ProduceError::Record { place: writer.place(), reason })?;
        self.buffered += bytes;
        if let Some(epoch) = &mut self.epoch {
            epoch.bytes += bytes as u64;
        }
        Ok(Appended::To { partition: writer.partition, wake: sealed || is_new })
    }

    /// The partition of a record; a batch that is too full for it is sealed.
    fn choose(
        &mut self,
        to: Destination<'_>,
        record: &RecordRef<'_>,
        bound: usize,
    ) -> Result<(usize, bool), ProduceError> {
        let topic = &to.topic.0;
        assert_eq!(topic.producer, self.producer, "a topic handle is used with the producer that gave it");
        if let Some(partition) = to.partition.filter(|partition| !(0..topic.partitions).contains(partition)) {
            let place = Place { topic: Arc::clone(&topic.name), partition };
            return Err(ProduceError::UnknownPartition { place, partitions: topic.partitions });
        }
        let mut index = self.index_of(to, record);
        let batch_bytes = self.config.batch_bytes;
        if self.partitions[index].fits(bound, batch_bytes) {
            return Ok((index, false));
        }
        self.seal(index);
        // A record without a key goes where the next batch is; a batch there may be too full in its turn.
        index = self.index_of(to, record);
        if !self.partitions[index].fits(bound, batch_bytes) {
            self.seal(index);
        }
        Ok((index, true))
    }

    fn index_of(&mut self, to: Destination<'_>, record: &RecordRef<'_>) -> usize {
        let topic = &to.topic.0;
        let partitioner = &mut self.topics[topic.number].partitioner;
        let partition = partitioner.choose(record.key, to.partition, topic.partitions);
        topic.first + partition as usize
    }

    /// Makes a partition ready for records of the open epoch.
    fn touch(&mut self, index: usize) {
        let epoch = self.epoch.as_mut().expect("a record is written into an open epoch");
        let writer = &mut self.partitions[index];
        if writer.opening != self.opening {
            writer.begin(self.opening, &epoch.open_as);
            epoch.touched.push(index);
        }
        if !writer.is_listed {
            writer.is_listed = true;
            self.busy.push(index);
        }
    }

    /// Ends the open batch of a partition.
    pub(super) fn seal(&mut self, index: usize) {
        let writer = &mut self.partitions[index];
        let (before, after) = writer.seal(self.config.compression, &mut self.compressor);
        self.buffered = self.buffered + after - before;
        let topic = &writer.topic.0;
        self.topics[topic.number].partitioner.batch_sealed(writer.partition, topic.partitions);
    }

    /// Takes the answer to an attempt.
    pub(super) fn answered(&mut self, index: usize, ticket: Ticket, verdict: Verdict) -> Effect {
        let writer = &mut self.partitions[index];
        let effect = match writer.answered(ticket, verdict, &mut self.compressor) {
            Ok(effect) => effect,
            Err(reason) => {
                let error = ProduceError::Record { place: writer.place(), reason };
                self.fail(error);
                return Effect::Stale;
            }
        };
        match effect {
            Effect::Acknowledged { bytes, .. } | Effect::GivenUp { bytes, .. } => self.buffered -= bytes,
            Effect::Split { before, after } => self.buffered = self.buffered + after - before,
            Effect::Stale | Effect::Again | Effect::OutOfSequence { .. } => {}
        }
        effect
    }

    /// Records are given up for `error`: under `best_effort` they are counted, else it is the producer's failure, if
    /// it is the first.
    pub(super) fn give_up(&mut self, records: u64, error: ProduceError) {
        if !self.config.best_effort {
            self.fail(error);
            return;
        }
        self.dropped += records;
        tracing::warn!(records, total = self.dropped, %error, "records dropped: the guarantee is none");
    }

    /// Gives up what has waited longest in a partition.
    pub(super) fn drop_oldest(&mut self, index: usize, error: ProduceError) {
        let (records, bytes) = self.partitions[index].drop_oldest();
        self.buffered -= bytes;
        self.give_up(records, error);
    }

    pub(super) fn fail(&mut self, error: ProduceError) {
        self.failure.get_or_insert(error);
    }

    pub(super) fn failure(&self) -> Option<&ProduceError> {
        self.failure.as_ref()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn buffered(&self) -> usize {
        self.buffered
    }

    pub(super) fn epoch_number(&self) -> Epoch {
        self.epoch.as_ref().map_or(Epoch::GENESIS, |open| open.epoch)
    }

    pub(super) fn transaction(&self) -> Option<(String, Identity)> {
        match &self.epoch.as_ref()?.open_as {
            OpenAs::Transaction { transactional_id, identity } => {
                Some((transactional_id.to_string(), *identity))
            }
            OpenAs::Idempotent { .. } => None,
        }
    }

    /// Records of the open epoch, over all partitions.
    pub(super) fn counters(&self) -> Counters {
        let touched = self.epoch.iter().flat_map(|epoch| &epoch.touched);
        touched
            .map(|&index| self.partitions[index].counters())
            .fold(Counters::default(), |sum, one| sum + one)
    }

    /// The account agrees with what is really there.
    pub(super) fn is_consistent(&self) -> bool {
        self.partitions.iter().all(PartitionWriter::is_consistent)
            && self.buffered == self.partitions.iter().map(PartitionWriter::bytes).sum::<usize>()
    }

    /// The gate. `None` while records are under way.
    pub(super) fn settle(&mut self) -> Option<Result<Flushed, ProduceError>> {
        if let Some(failure) = &self.failure {
            return Some(Err(failure.clone()));
        }
        let Some(epoch) = &self.epoch else { return Some(Ok(Flushed::default())) };
        let counters = self.counters();
        if counters.inflight > 0 {
            return None;
        }
        // Under `best_effort` records may be given up; otherwise a failure would stand.
        assert!(counters.is_settled() || self.config.best_effort, "given up without a failure: {counters:?}");
        assert!(self.is_consistent() && self.buffered == 0, "settled with records left: {counters:?}");
        let mut flushed = Flushed { partitions: Vec::new(), started: epoch.started };
        for &index in &epoch.touched {
            match self.partitions[index].flushed(epoch.epoch, self.config.transactional) {
                Ok(partition) => flushed.partitions.extend(partition),
                Err(error) => {
                    self.fail(error.clone());
                    return Some(Err(error));
                }
            }
        }
        flushed.partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        self.epoch = None;
        Some(Ok(flushed))
    }

    /// Gives up the open epoch with all its records; answers to come are ignored.
    pub(super) fn abandon(&mut self) {
        for writer in &mut self.partitions {
            let (_, bytes) = writer.drop_all();
            self.buffered -= bytes;
        }
        assert!(self.buffered == 0, "everything that was written is given up");
        self.abandoned = self.epoch.take().map(|epoch| epoch.open_as.identity());
        self.opening += 1;
    }

    /// When the first record of all that wait was written, for [`limits::STILL_UNDELIVERED_REPORT`] and expiry.
    pub(super) fn expired(&self, index: usize, now: Instant) -> Option<ProduceError> {
        let timeout = self.config.delivery_timeout?;
        let writer = &self.partitions[index];
        let oldest = writer.oldest()?;
        let age = now.saturating_duration_since(oldest.since);
        (age >= timeout).then(|| ProduceError::Expired {
            place: writer.place(),
            epoch: self.epoch_number(),
            records: writer.counters().inflight,
            age,
            failures: oldest.failures,
            last: writer.last_failure.clone(),
        })
    }

    /// Says what has waited long: a delivery timeout is minutes, or never.
    pub(super) fn report(&self, now: Instant) {
        for &index in &self.busy {
            let writer = &self.partitions[index];
            let Some(oldest) = writer.oldest() else { continue };
            let age = now.saturating_duration_since(oldest.since);
            if age < limits::STILL_UNDELIVERED_REPORT {
                continue;
            }
            let (place, records) = (writer.place(), writer.counters().inflight);
            let (failures, last) = (oldest.failures, writer.last_failure.as_deref().unwrap_or("none yet"));
            tracing::warn!(%place, records, ?age, failures, last, "records not acknowledged yet, waiting on");
        }
    }
}
