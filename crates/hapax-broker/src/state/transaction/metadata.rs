//! What the coordinator knows of one transactional id, and what each event makes of it. Pure: an event takes the
//! stored value and gives the next one; nothing is stored here. (Kafka's `TransactionMetadata`)
//!
//! Two rules run through all of it. Each new value remembers the producer id of the one before it, so that a retry
//! after an epoch overflow is recognised. The epoch 32767 belongs to the coordinator: a client that is at 32766 gets
//! a new producer id next, so there is always one epoch left to fence with.

use super::phase::Phase;
use crate::state::{
    Code, Millis, TopicPartition,
    digest::{Digest, Feed, feed},
};
use std::collections::BTreeSet;

/// Not a producer id.
pub(crate) const NO_PRODUCER_ID: i64 = -1;
/// Not an epoch.
pub(crate) const NO_EPOCH: i16 = -1;
/// No time: the start of what has not started.
pub(crate) const NO_TIME: Millis = -1;
/// The last epoch that a client is given.
pub(crate) const LAST_CLIENT_EPOCH: i16 = i16::MAX - 1;
/// The time-out that says "two-phase commit": never. (KIP-939 keeps no other mark)
pub(crate) const NEVER: i32 = i32::MAX;

/// A level of `transaction.version`, of the cluster or of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level(pub(crate) i16);

impl Feed for Level {
    fn feed(&self, into: &mut Digest) {
        self.0.feed(into);
    }
}

impl Level {
    /// Requests of the first protocol.
    pub(crate) const CLASSIC: Self = Self(0);
    /// Each transaction has its own epoch. (KIP-890 part 2)
    pub(crate) const BUMPING: Self = Self(2);

    /// Whether the end of a transaction bumps the epoch.
    pub(crate) fn bumps(self) -> bool {
        self >= Self::BUMPING
    }

    /// What an EndTxn of this request version may do.
    pub(crate) fn of_end(version: i16) -> Self {
        if version >= 5 { Self::BUMPING } else { Self::CLASSIC }
    }

    /// What an AddPartitionsToTxn of this request version may do.
    pub(crate) fn of_add(version: i16) -> Self {
        if version >= 4 { Self::BUMPING } else { Self::CLASSIC }
    }

    /// The version of records in `__transaction_state`.
    pub(crate) fn record_version(self) -> i16 {
        i16::from(self.0 >= 1)
    }
}

/// A producer id and one of its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

feed!(Identity { id, epoch });

impl Identity {
    /// What an answer says that has none.
    pub(crate) const NONE: Self = Self { id: NO_PRODUCER_ID, epoch: NO_EPOCH };

    /// Whether no further epoch is given to clients under this producer id.
    pub(crate) fn is_exhausted(self) -> bool {
        self.epoch >= LAST_CLIENT_EPOCH
    }
}

/// One transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// The producer and its epoch. While prepared under V2 the epoch is the bumped one already.
    pub(crate) producer: Identity,
    /// The producer id of the value before this one.
    pub(crate) previous_id: i64,
    /// The producer id that takes over when the prepared transaction completes, after an overflow.
    pub(crate) next_id: i64,
    /// The epoch before the last bump. Not in the record: a coordinator that loads does not know it (KAFKA-20357).
    pub(crate) last_epoch: i16,
    /// `transaction.timeout.ms` of the last InitProducerId.
    pub(crate) timeout_ms: i32,
    /// Where it stands.
    pub(crate) phase: Phase,
    /// Where it is going. Almost everything is answered with CONCURRENT_TRANSACTIONS meanwhile.
    pub(crate) pending: Option<Phase>,
    /// What has been added, and has no marker yet.
    pub(crate) partitions: BTreeSet<TopicPartition>,
    /// When the first partition was added.
    pub(crate) start: Millis,
    /// When anything was written last.
    pub(crate) updated: Millis,
    /// The level of the request that wrote last.
    pub(crate) level: Level,
    /// A fence whose record was refused has raised the epoch already.
    pub(crate) fence_failed: bool,
    /// What a client that took a prepared transaction over holds, while the data still belongs to `producer`.
    pub(crate) successor: Option<Identity>,
}

feed!(Transaction {
    producer,
    previous_id,
    next_id,
    last_epoch,
    timeout_ms,
    phase,
    pending,
    partitions,
    start,
    updated,
    level,
    fence_failed,
    successor,
});

impl Transaction {
    /// An id that nobody has used yet. It has no epoch until InitProducerId has given it one.
    pub(crate) fn new(id: i64, timeout_ms: i32, now: Millis) -> Self {
        Self {
            producer: Identity { id, epoch: NO_EPOCH },
            previous_id: NO_PRODUCER_ID,
            next_id: NO_PRODUCER_ID,
            last_epoch: NO_EPOCH,
            timeout_ms,
            phase: Phase::Empty,
            pending: None,
            partitions: BTreeSet::new(),
            start: NO_TIME,
            updated: now,
            level: Level::CLASSIC,
            fence_failed: false,
            successor: None,
        }
    }

    /// Whether the coordinator never aborts it by itself.
    pub(crate) fn never_times_out(&self) -> bool {
        self.timeout_ms == NEVER
    }

    /// When it may be aborted: later than this.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        (self.phase == Phase::Ongoing && self.pending.is_none() && !self.never_times_out())
            .then(|| self.start.saturating_add(Millis::from(self.timeout_ms)))
    }

    /// What EndTxn must name: the producer, or the client that took a prepared transaction over.
    pub(crate) fn client(&self) -> Identity {
        self.successor.unwrap_or(self.producer)
    }

    fn becomes(&self, phase: Phase) -> Self {
        Self { previous_id: self.producer.id, phase, pending: None, ..self.clone() }
    }

    /// InitProducerId while nothing is open: one epoch further.
    ///
    /// With the epoch that the client had, only that client goes on; a client that asks a second time because it
    /// missed the answer gets the same answer. (KIP-360)
    pub(crate) fn with_next_epoch(
        &self,
        timeout_ms: i32,
        had: Option<i16>,
        now: Millis,
    ) -> Result<Self, Code> {
        let bumped = self.producer.epoch.saturating_add(1);
        let (epoch, last_epoch) = match had {
            None => (bumped, NO_EPOCH),
            Some(had) if self.producer.epoch == NO_EPOCH || had == self.producer.epoch => {
                (bumped, self.producer.epoch)
            }
            Some(had) if had == self.last_epoch => (self.producer.epoch, self.last_epoch),
            Some(_) => return Err(Code::PRODUCER_FENCED),
        };
        Ok(Self {
            producer: Identity { epoch, ..self.producer },
            last_epoch,
            ..self.emptied(timeout_ms, now)
        })
    }

    /// InitProducerId after the last epoch: a new producer id.
    pub(crate) fn with_producer_id(&self, id: i64, timeout_ms: i32, keep_last: bool, now: Millis) -> Self {
        Self {
            producer: Identity { id, epoch: 0 },
            last_epoch: if keep_last { self.producer.epoch } else { NO_EPOCH },
            ..self.emptied(timeout_ms, now)
        }
    }

    fn emptied(&self, timeout_ms: i32, now: Millis) -> Self {
        Self {
            timeout_ms,
            partitions: BTreeSet::new(),
            start: NO_TIME,
            updated: now,
            ..self.becomes(Phase::Empty)
        }
    }

    /// Partitions are added; the first ones start the transaction and its time-out.
    pub(crate) fn with_partitions(&self, added: &[TopicPartition], level: Level, now: Millis) -> Self {
        let start = if self.phase == Phase::Ongoing { self.start } else { now };
        let partitions = self.partitions.iter().chain(added).cloned().collect();
        Self { partitions, start, updated: now, level, ..self.becomes(Phase::Ongoing) }
    }

    /// The decision. Under V2 the epoch is bumped here, and markers carry the bumped one; `next_id` is the producer id
    /// that takes over if no epoch is left for the client.
    pub(crate) fn prepared(&self, commit: bool, level: Level, next_id: i64, now: Millis) -> Self {
        let started = self.phase == Phase::Ongoing;
        let mut next = Self {
            next_id,
            start: if started { self.start } else { now },
            updated: now,
            level,
            ..self.becomes(Phase::prepared(commit))
        };
        if let Some(held) = self.successor {
            next.hand_over(held, level);
        } else if level.bumps() {
            next.last_epoch = self.producer.epoch;
            next.producer.epoch = self.producer.epoch.saturating_add(1);
        }
        next
    }

    /// The decision about a transaction that another client took over: markers go out under the producer id of the
    /// data and fence its old client, and the new client goes on with what it holds. (KIP-939)
    fn hand_over(&mut self, held: Identity, level: Level) {
        let bump = i16::from(level.bumps());
        self.last_epoch = held.epoch;
        if held.id == self.producer.id {
            self.producer.epoch = held.epoch.saturating_add(bump);
            self.successor = None;
        } else {
            self.producer.epoch = i16::MAX;
            self.successor = Some(Identity { epoch: held.epoch.saturating_add(bump), ..held });
        }
    }

    /// All markers are written.
    pub(crate) fn completed(&self, now: Millis) -> Option<Self> {
        let (_, phase) = self.phase.completion()?;
        let producer = self.after_completion();
        Some(Self {
            producer,
            next_id: NO_PRODUCER_ID,
            partitions: BTreeSet::new(),
            updated: now,
            fence_failed: false,
            successor: None,
            ..self.becomes(phase)
        })
    }

    /// What the client goes on with after a prepared transaction. It is told before the markers are written.
    pub(crate) fn after_completion(&self) -> Identity {
        if let Some(successor) = self.successor {
            successor
        } else if self.level.bumps() && self.next_id != NO_PRODUCER_ID {
            Identity { id: self.next_id, epoch: 0 }
        } else {
            self.producer
        }
    }

    /// A fence of V1: nobody is told this epoch, and no retry of the old one is recognised.
    pub(crate) fn fenced(&self) -> Self {
        let bump = i16::from(!self.fence_failed);
        let epoch = self.producer.epoch.saturating_add(bump);
        Self { producer: Identity { epoch, ..self.producer }, last_epoch: NO_EPOCH, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(id: i64, epoch: i16) -> Transaction {
        let new = Transaction::new(id, 1_000, 5);
        let mut open = new.with_partitions(&[TopicPartition::new("t", 0)], Level::BUMPING, 10);
        open.producer.epoch = epoch;
        open
    }

    #[test]
    fn a_new_id_starts_at_epoch_zero_and_later_calls_fence() {
        let first = Transaction::new(7, 1_000, 0).with_next_epoch(1_000, None, 1).unwrap();
        assert_eq!((first.producer, first.last_epoch), (Identity { id: 7, epoch: 0 }, -1));
        let second = first.with_next_epoch(2_000, None, 2).unwrap();
        assert_eq!((second.producer.epoch, second.last_epoch, second.timeout_ms), (1, -1, 2_000));
        assert_eq!(
            second.with_next_epoch(1, Some(0), 3),
            Err(Code::PRODUCER_FENCED),
            "the first one is fenced"
        );
    }

    #[test]
    fn a_client_that_missed_its_answer_gets_it_again() {
        let first = Transaction::new(7, 1_000, 0).with_next_epoch(1_000, None, 1).unwrap();
        let bumped = first.with_next_epoch(1_000, Some(0), 2).unwrap();
        assert_eq!((bumped.producer.epoch, bumped.last_epoch), (1, 0));
        let again = bumped.with_next_epoch(1_000, Some(0), 3).unwrap();
        assert_eq!((again.producer.epoch, again.last_epoch), (1, 0));
        let after_load = Transaction { last_epoch: NO_EPOCH, ..bumped };
        assert_eq!(after_load.with_next_epoch(1_000, Some(0), 4), Err(Code::PRODUCER_FENCED));
    }

    #[test]
    fn the_time_out_counts_from_the_first_partition() {
        let open = open(7, 0);
        let later = open.with_partitions(&[TopicPartition::new("t", 1)], Level::BUMPING, 900);
        assert_eq!(later.deadline(), Some(1_010));
        assert_eq!(Transaction { timeout_ms: NEVER, ..later }.deadline(), None);
    }

    #[test]
    fn a_decision_of_v2_bumps_and_one_of_v1_does_not() {
        let v2 = open(7, 3).prepared(true, Level::BUMPING, NO_PRODUCER_ID, 20);
        assert_eq!((v2.producer.epoch, v2.last_epoch, v2.phase), (4, 3, Phase::PrepareCommit));
        assert_eq!(v2.completed(30).unwrap().producer, Identity { id: 7, epoch: 4 });
        let v1 = open(7, 3).prepared(true, Level::CLASSIC, NO_PRODUCER_ID, 20);
        assert_eq!(v1.completed(30).unwrap().producer, Identity { id: 7, epoch: 3 });
    }

    #[test]
    fn after_the_last_epoch_completion_hands_over_to_a_new_producer_id() {
        let prepared = open(7, LAST_CLIENT_EPOCH).prepared(false, Level::BUMPING, 8, 20);
        assert_eq!(prepared.producer, Identity { id: 7, epoch: i16::MAX }, "markers belong to the old id");
        assert_eq!(prepared.after_completion(), Identity { id: 8, epoch: 0 });
        let complete = prepared.completed(30).unwrap();
        assert_eq!((complete.producer, complete.previous_id), (Identity { id: 8, epoch: 0 }, 7));
        assert_eq!((complete.next_id, complete.last_epoch), (NO_PRODUCER_ID, LAST_CLIENT_EPOCH));
    }

    #[test]
    fn an_empty_abort_starts_when_it_is_decided() {
        let empty = Transaction::new(7, 1_000, 0).with_next_epoch(1_000, None, 1).unwrap();
        let prepared = empty.prepared(false, Level::BUMPING, NO_PRODUCER_ID, 50);
        assert_eq!((prepared.start, prepared.producer.epoch), (50, 1));
        assert!(prepared.partitions.is_empty());
    }

    #[test]
    fn a_fence_that_could_not_be_written_is_not_bumped_twice() {
        let fenced = open(7, 3).fenced();
        assert_eq!((fenced.producer.epoch, fenced.last_epoch), (4, NO_EPOCH));
        assert_eq!(Transaction { fence_failed: true, ..fenced }.fenced().producer.epoch, 4);
    }
}
