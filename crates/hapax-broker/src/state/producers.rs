//! What a partition remembers of its producers (`ProducerStateManager`, `ProducerAppendInfo`): epochs, the last five
//! batches, open transactions, and which first appends of a transaction still wait for the coordinator's word.
//!
//! Decides whether a batch or a marker may be appended. Does not know bytes, the log or the coordinator.

use super::{Code, Millis};
use crate::batch::Header;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many batches a repetition is recognised in (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
const WINDOW: usize = 5;
/// `producer.id.expiration.check.interval.ms`; a shorter expiry is checked as often as it lasts.
const LONGEST_CHECK_INTERVAL: Millis = 600_000;
const NO_EPOCH: i16 = -1;
const NO_SEQUENCE: i32 = -1;

/// A batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) first_sequence: i32,
    pub(crate) last_sequence: i32,
    pub(crate) first_offset: i64,
    pub(crate) timestamp: Millis,
}

/// What is known of a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) epoch: i16,
    pub(crate) coordinator_epoch: i32,
    pub(crate) last_timestamp: Millis,
    pub(crate) transaction_from: Option<i64>,
    pub(crate) window: VecDeque<Written>,
}

impl Producer {
    fn new() -> Self {
        Self {
            epoch: NO_EPOCH,
            coordinator_epoch: -1,
            last_timestamp: -1,
            transaction_from: None,
            window: VecDeque::new(),
        }
    }

    /// The sequence of its last record, or -1.
    pub(crate) fn last_sequence(&self) -> i32 {
        self.window.back().map_or(NO_SEQUENCE, |written| written.last_sequence)
    }

    fn adopt(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.window.clear();
        }
    }
}

/// A first append of a transaction that the coordinator has not confirmed yet (`VerificationStateEntry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    lowest_sequence: i32,
    epoch: i16,
    bumps: bool,
    since: Millis,
}

/// Who appends, which decides what is checked (`AppendOrigin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A producer; `verified` where the coordinator has confirmed the partition for this append.
    Client {
        /// Whether the coordinator knows the partition as part of the transaction.
        verified: bool,
    },
    /// A coordinator for its own topic: it has checked sequence and transaction itself.
    Coordinator,
}

/// What becomes of a batch that is in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is new.
    Append,
    /// It is in the log already.
    Duplicate(Written),
}

/// A transaction that a marker ended in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) first_offset: i64,
}

/// The producers of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    known: BTreeMap<i64, Producer>,
    pending: BTreeMap<i64, Pending>,
    /// First offsets of open transactions.
    open: BTreeSet<(i64, i64)>,
    next_check: Millis,
}

impl Producers {
    /// All producers, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Producer)> {
        self.known.iter().map(|(id, producer)| (*id, producer))
    }

    /// The offset of the oldest open transaction.
    pub(crate) fn first_open(&self) -> Option<i64> {
        self.open.first().map(|(offset, _)| *offset)
    }

    /// Whether the producer has an open transaction here, of that epoch if one is given
    /// (`UnifiedLog.hasOngoingTransaction`, which compares epochs since Kafka 4.0).
    pub(crate) fn is_open(&self, producer_id: i64, epoch: Option<i16>) -> bool {
        self.known.get(&producer_id).is_some_and(|producer| {
            epoch.is_none_or(|epoch| producer.epoch == epoch) && producer.transaction_from.is_some()
        })
    }

    /// Whether the producer has written with a later epoch here.
    pub(crate) fn is_stale(&self, producer_id: i64, epoch: i16) -> bool {
        self.known.get(&producer_id).is_some_and(|producer| epoch < producer.epoch)
    }

    /// Remembers that the coordinator is being asked about a first append. `bumps`: every transaction has its own
    /// epoch (KIP-890 part 2).
    pub(crate) fn ask(&mut self, header: &Header, bumps: bool, now: Millis) {
        let (sequence, epoch) = (header.base_sequence, header.producer_epoch);
        let pending = self.pending.entry(header.producer_id).or_insert(Pending {
            lowest_sequence: sequence,
            epoch,
            bumps,
            since: now,
        });
        if epoch > pending.epoch {
            (pending.epoch, pending.lowest_sequence) = (epoch, sequence);
        } else if epoch == pending.epoch {
            pending.lowest_sequence = pending.lowest_sequence.min(sequence);
        }
    }

    /// Forgets what the coordinator is being asked: that is in memory only.
    pub(crate) fn ask_nothing(&mut self) {
        self.pending.clear();
    }

    /// Whether a data batch may be appended (`UnifiedLog.analyzeAndValidateProducerState`, then
    /// `ProducerAppendInfo.appendDataBatch`).
    pub(crate) fn check(&self, header: &Header, origin: Origin) -> Result<Verdict, Code> {
        let known = self.known.get(&header.producer_id);
        if let Origin::Client { verified } = origin {
            if let Some(duplicate) = known.and_then(|producer| duplicate(producer, header)) {
                return Ok(Verdict::Duplicate(duplicate));
            }
            // A stale epoch is named first: 48 would be fatal for a producer that only has to begin again (KAFKA-19690).
            if known.is_some_and(|producer| header.producer_epoch < producer.epoch) {
                return Err(Code::INVALID_PRODUCER_EPOCH);
            }
            let open = self.is_open(header.producer_id, Some(header.producer_epoch));
            if header.is_transactional() && !open && !verified {
                return Err(Code::INVALID_TXN_STATE);
            }
            self.check_sequence(header, known)?;
        } else if known.is_some_and(|producer| header.producer_epoch < producer.epoch) {
            return Err(Code::INVALID_PRODUCER_EPOCH);
        }
        if known.is_some_and(|producer| producer.transaction_from.is_some()) && !header.is_transactional() {
            return Err(Code::INVALID_TXN_STATE);
        }
        Ok(Verdict::Append)
    }

    fn check_sequence(&self, header: &Header, known: Option<&Producer>) -> Result<(), Code> {
        let sequence = header.base_sequence;
        if let Some(pending) = self.pending.get(&header.producer_id) {
            let empty = known.is_none_or(|producer| producer.window.is_empty());
            if sequence > pending.lowest_sequence || (pending.bumps && sequence != 0 && empty) {
                return Err(Code::OUT_OF_ORDER_SEQUENCE_NUMBER);
            }
        }
        let Some(producer) = known.filter(|producer| producer.epoch != NO_EPOCH) else {
            return Ok(());
        };
        let follows = if producer.epoch == header.producer_epoch {
            let last = producer.last_sequence();
            i64::from(sequence) == i64::from(last) + 1 || (sequence == 0 && last == i32::MAX)
        } else {
            sequence == 0
        };
        if follows { Ok(()) } else { Err(Code::OUT_OF_ORDER_SEQUENCE_NUMBER) }
    }

    /// Remembers a data batch that stands in the log now.
    pub(crate) fn append(&mut self, header: &Header) {
        self.pending.remove(&header.producer_id);
        let producer = self.known.entry(header.producer_id).or_insert_with(Producer::new);
        producer.adopt(header.producer_epoch);
        producer.last_timestamp = header.max_timestamp;
        if producer.window.len() == WINDOW {
            producer.window.pop_front();
        }
        producer.window.push_back(Written {
            first_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
            first_offset: header.base_offset,
            timestamp: header.max_timestamp,
        });
        if header.is_transactional() && producer.transaction_from.is_none() {
            producer.transaction_from = Some(header.base_offset);
            self.open.insert((header.base_offset, header.producer_id));
        }
    }

    /// Whether a marker may be written (`ProducerAppendInfo.checkProducerEpoch`, `checkCoordinatorEpoch`). From
    /// transaction version 2 on a marker has an epoch of its own; an equal one is a repetition, and taken as such where
    /// nothing is open (KAFKA-19999).
    pub(crate) fn check_marker(
        &self,
        producer_id: i64,
        epoch: i16,
        coordinator_epoch: i32,
        version: i16,
    ) -> Result<(), Code> {
        let Some(producer) = self.known.get(&producer_id) else { return Ok(()) };
        let repeated = version >= 2 && epoch == producer.epoch && producer.transaction_from.is_some();
        if epoch < producer.epoch || repeated {
            return Err(Code::INVALID_PRODUCER_EPOCH);
        }
        if coordinator_epoch < producer.coordinator_epoch {
            return Err(Code::TRANSACTION_COORDINATOR_FENCED);
        }
        Ok(())
    }

    /// Remembers a marker that stands in the log now.
    pub(crate) fn end(
        &mut self,
        producer_id: i64,
        epoch: i16,
        coordinator_epoch: i32,
        time: Millis,
    ) -> Option<Ended> {
        self.pending.remove(&producer_id);
        let producer = self.known.entry(producer_id).or_insert_with(Producer::new);
        producer.adopt(epoch);
        producer.coordinator_epoch = coordinator_epoch;
        producer.last_timestamp = time;
        let first_offset = producer.transaction_from.take()?;
        self.open.remove(&(first_offset, producer_id));
        Some(Ended { first_offset })
    }

    /// Does what Kafka's periodic check would have done by now: forgets producers without an open transaction whose
    /// last record is `expiration` old. Between two checks an old producer is known, however old its records say that
    /// it is. (`producer.id.expiration.ms`, `producer.id.expiration.check.interval.ms`)
    pub(crate) fn expire_due(&mut self, now: Millis, expiration: Millis) {
        if now < self.next_check {
            return;
        }
        let interval = expiration.clamp(1, LONGEST_CHECK_INTERVAL);
        let check = now.saturating_sub(now.rem_euclid(interval));
        self.next_check = check.saturating_add(interval);
        self.expire(check.saturating_sub(expiration));
    }

    /// Forgets producers without an open transaction that were last heard of at `since` or before.
    pub(crate) fn expire(&mut self, since: Millis) {
        self.known
            .retain(|_, producer| producer.transaction_from.is_some() || producer.last_timestamp > since);
        self.pending.retain(|_, pending| pending.since > since);
    }
}

fn duplicate(producer: &Producer, header: &Header) -> Option<Written> {
    let same = |written: &&Written| {
        written.first_sequence == header.base_sequence && written.last_sequence == header.last_sequence()
    };
    producer.window.iter().find(same).copied().filter(|_| producer.epoch == header.producer_epoch)
}
