//! The sealed batches of one partition that are not acknowledged yet: which may be sent, and what an answer means.
//!
//! Owns sequences, what is in flight, and the order. Pure: it is told the time, and how an answer was classified.
//! Refuses: to know of brokers, error codes or buffers.
//!
//! ```text
//!            push                       send                    acknowledged
//!  batch ──────────► [ waiting ... waiting | in flight ... in flight ] ──────────► gone
//!                            ▲                        │
//!                            └── retry, split ────────┘   and no sending until nothing is in flight
//! ```
//!
//! Invariants
//! * A sequence is given to a record once, when its batch is pushed, and stays: through every resend, and through a
//!   split, whose halves share the sequences of the whole.
//! * Only the first `window` batches that are not settled in order are ever sent. A partition's leader remembers the
//!   last five batches of a producer; so whatever it may have appended, and we do not know of, it still recognises.
//! * Until something is acknowledged under an identity, one batch is on its way. A leader that knows nothing of a
//!   producer takes any sequence for its first: a batch behind one that failed (too large, too few replicas in sync)
//!   would be appended in its place, and the failed one could never follow.
//! * After a failed attempt nothing of the partition is sent until every batch that is in flight has its answer;
//!   then sending begins again at the first batch that is not acknowledged.
//!
//! Sources: KIP-98, KIP-360; `ProducerAppendInfo`, `ProducerStateEntry`, `TransactionManager`.

#[cfg(test)]
mod tests;

use crate::record::{Compressor, RecordError, SealedBatch, Stamp};
use hapax_commit::Identity;
use hapax_host::Instant;
use std::{collections::VecDeque, time::Duration};

/// Names one attempt to send one batch; never used twice in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// A batch to be sent now.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) ticket: Ticket,
    pub(super) batch: SealedBatch,
    pub(super) stamp: Stamp,
}

/// How an attempt ended, in the terms of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The batch is in the log, now or since an earlier attempt; at this offset, if the broker said so.
    Appended { base_offset: Option<i64> },
    /// Not appended, or nobody knows (`outcome_unknown`); to be sent again, not before `at`.
    TryAgain { at: Instant, outcome_unknown: bool },
    /// Not appended: larger than the topic allows.
    TooLarge,
    /// Not appended: its first sequence is not the partition's next one. If that is worth another try, not before `at`.
    OutOfSequence { at: Instant },
    /// It will not be appended by being sent again.
    Refused,
}

/// What became of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The attempt is not known (any more): nothing changed.
    Stale,
    /// It is acknowledged and gone.
    Acknowledged { records: u32, bytes: usize, base_offset: Option<i64> },
    /// It waits to be sent again.
    Again,
    /// It is two batches now; together they take this many bytes.
    Split { before: usize, after: usize },
    /// It is gone without being appended: the broker refused it, or it is one record that is too large. What follows
    /// waits for [`PartitionQueue::renew`], because there is a gap before its sequences now.
    GivenUp { records: u32, bytes: usize },
    /// The first unacknowledged batch is not what the partition expects next: it forgot the producer or lost records.
    /// The batch waits for [`PartitionQueue::renew`] or [`PartitionQueue::drop_first`].
    OutOfSequence { sequence: i32 },
}

/// The batch that has waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Oldest {
    /// When its first record was written.
    pub(super) since: Instant,
    /// Its records.
    pub(super) records: u32,
    /// Attempts of the partition that failed since the last success.
    pub(super) failures: u32,
}

#[derive(Debug)]
enum Slot {
    Unacknowledged(Entry),
    /// In the log, while one before it is not known to be.
    Acknowledged,
}

#[derive(Debug)]
struct Entry {
    batch: SealedBatch,
    base_sequence: i32,
    appended: Instant,
    flight: Option<Ticket>,
    /// An attempt ended without a trustworthy answer: the batch may be in the log.
    outcome_unknown: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct PartitionQueue {
    identity: Option<Identity>,
    transactional: bool,
    window: usize,
    slots: VecDeque<Slot>,
    next_sequence: i32,
    next_ticket: u64,
    in_flight: usize,
    /// Something was acknowledged under this identity.
    is_known: bool,
    /// No sending until nothing is in flight.
    muted: bool,
    /// No sending under this identity any more: a batch was given up, or the partition forgot the producer.
    spent: bool,
    retry_at: Option<Instant>,
    failures: u32,
}

impl PartitionQueue {
    pub(super) fn new(window: usize) -> Self {
        Self {
            identity: None,
            transactional: false,
            window,
            slots: VecDeque::new(),
            next_sequence: 0,
            next_ticket: 0,
            in_flight: 0,
            is_known: false,
            muted: false,
            spent: false,
            retry_at: None,
            failures: 0,
        }
    }

    /// Begins again at sequence 0 under an identity.
    ///
    /// # Panics
    /// When something is unacknowledged: it would be sent twice.
    pub(super) fn open(&mut self, identity: Identity, transactional: bool) {
        assert!(self.is_empty(), "an identity changes only when everything before it is settled");
        self.identity = Some(identity);
        self.transactional = transactional;
        self.next_sequence = 0;
        self.is_known = false;
        self.muted = false;
        self.spent = false;
        self.retry_at = None;
        self.failures = 0;
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Nothing is unacknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Another batch could be sent at once if it were pushed now.
    pub(super) fn has_room(&self) -> bool {
        self.slots.len() < self.window
    }

    /// Records that are not acknowledged.
    pub(super) fn records(&self) -> u64 {
        self.entries().map(|entry| u64::from(entry.batch.count())).sum()
    }

    /// Bytes of the batches that are not acknowledged.
    pub(super) fn bytes(&self) -> usize {
        self.entries().map(|entry| entry.batch.len()).sum()
    }

    pub(super) fn oldest(&self) -> Option<Oldest> {
        let entry = self.entries().next()?;
        Some(Oldest { since: entry.appended, records: entry.batch.count(), failures: self.failures })
    }

    /// A batch may be in the log although it is not acknowledged.
    pub(super) fn has_unknown_outcome(&self) -> bool {
        self.entries().any(|entry| entry.outcome_unknown)
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Takes a batch, whose first record was written at `appended`, and gives it its sequences.
    pub(super) fn push(&mut self, batch: SealedBatch, appended: Instant) {
        assert!(self.identity.is_some(), "a batch belongs to an identity");
        let base_sequence = self.next_sequence;
        self.next_sequence = sequence_after(base_sequence, batch.count());
        let entry = Entry { batch, base_sequence, appended, flight: None, outcome_unknown: false };
        self.slots.push_back(Slot::Unacknowledged(entry));
    }

    /// When a batch may be sent: now (`Some(now)` or earlier), later, or only after an answer.
    pub(super) fn sendable_at(&self, now: Instant) -> Option<Instant> {
        if self.spent || ((self.muted || !self.is_known) && self.in_flight > 0) {
            return None;
        }
        self.next_index().map(|_| self.retry_at.unwrap_or(now))
    }

    /// The next batch, which is in flight from now on.
    pub(super) fn send(&mut self, now: Instant) -> Option<Sending> {
        if self.sendable_at(now)? > now {
            return None;
        }
        let index = self.next_index()?;
        self.muted = false;
        self.retry_at = None;
        let identity = self.identity.expect("a batch was pushed under an identity");
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.in_flight += 1;
        let transactional = self.transactional;
        let Slot::Unacknowledged(entry) = &mut self.slots[index] else {
            unreachable!("the next batch is not acknowledged");
        };
        entry.flight = Some(ticket);
        let stamp = Stamp {
            producer_id: identity.producer_id.0,
            producer_epoch: identity.producer_epoch.0,
            base_sequence: entry.base_sequence,
            transactional,
        };
        Some(Sending { ticket, batch: entry.batch.clone(), stamp })
    }

    /// Takes the answer to an attempt.
    ///
    /// # Errors
    /// A batch that is to be split does not decompress any more.
    pub(super) fn answered(
        &mut self,
        ticket: Ticket,
        verdict: Verdict,
        compressor: &mut Compressor,
    ) -> Result<Effect, RecordError> {
        let Some(index) = self.position(ticket) else { return Ok(Effect::Stale) };
        self.in_flight -= 1;
        let expects_no_other = index == 0 && !self.spent;
        let entry = self.entry_mut(index);
        entry.flight = None;
        let sequence = entry.base_sequence;
        match verdict {
            Verdict::Appended { base_offset } => Ok(self.acknowledge(index, base_offset)),
            Verdict::TryAgain { at, outcome_unknown } => {
                entry.outcome_unknown |= outcome_unknown;
                Ok(self.again(at))
            }
            // What stood before it is not in the log, so this says nothing of the batch.
            Verdict::OutOfSequence { at } if !expects_no_other => Ok(self.again(at)),
            Verdict::OutOfSequence { .. } => {
                self.spent = true;
                Ok(Effect::OutOfSequence { sequence })
            }
            Verdict::Refused => Ok(self.give_up(index)),
            Verdict::TooLarge => match entry.batch.split(compressor)? {
                None => Ok(self.give_up(index)),
                Some(halves) => Ok(self.split(index, halves)),
            },
        }
    }

    /// Gives up the batch that has waited longest, in flight or not; answers its records and bytes.
    pub(super) fn drop_first(&mut self) -> Option<(u32, usize)> {
        let index = self.slots.iter().position(|slot| matches!(slot, Slot::Unacknowledged(_)))?;
        if self.entry_mut(index).flight.is_some() {
            self.in_flight -= 1;
        }
        match self.give_up(index) {
            Effect::GivenUp { records, bytes } => Some((records, bytes)),
            _ => unreachable!("giving up has one effect"),
        }
    }

    /// Batches wait for a new identity, and nothing is in flight under the old one.
    pub(super) fn needs_identity(&self) -> bool {
        self.spent && self.in_flight == 0 && !self.slots.is_empty()
    }

    /// Gives all batches new sequences, from 0, under a new identity.
    pub(super) fn renew(&mut self, identity: Identity) {
        assert!(self.in_flight == 0, "sequences do not change under way");
        let mut next = 0;
        self.slots.retain(|slot| matches!(slot, Slot::Unacknowledged(_)));
        for slot in &mut self.slots {
            if let Slot::Unacknowledged(entry) = slot {
                entry.base_sequence = next;
                entry.outcome_unknown = false;
                next = sequence_after(next, entry.batch.count());
            }
        }
        self.next_sequence = next;
        self.identity = Some(identity);
        self.is_known = false;
        self.muted = false;
        self.spent = false;
    }

    /// Drops everything; answers the records and bytes. Answers that are still to come are stale.
    pub(super) fn clear(&mut self) -> (u64, usize) {
        let dropped = (self.records(), self.bytes());
        self.slots.clear();
        self.in_flight = 0;
        self.identity = None;
        dropped
    }

    fn acknowledge(&mut self, index: usize, base_offset: Option<i64>) -> Effect {
        let slot = std::mem::replace(&mut self.slots[index], Slot::Acknowledged);
        let Slot::Unacknowledged(entry) = slot else {
            unreachable!("an attempt is of an unacknowledged batch")
        };
        self.failures = 0;
        self.is_known = true;
        self.forget_settled();
        Effect::Acknowledged { records: entry.batch.count(), bytes: entry.batch.len(), base_offset }
    }

    fn forget_settled(&mut self) {
        while matches!(self.slots.front(), Some(Slot::Acknowledged)) {
            self.slots.pop_front();
        }
    }

    fn again(&mut self, at: Instant) -> Effect {
        self.muted = true;
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(self.retry_at.map_or(at, |known| known.max(at)));
        Effect::Again
    }

    fn give_up(&mut self, index: usize) -> Effect {
        let Some(Slot::Unacknowledged(entry)) = self.slots.remove(index) else {
            unreachable!("what is given up is not acknowledged");
        };
        self.spent = true;
        self.forget_settled();
        Effect::GivenUp { records: entry.batch.count(), bytes: entry.batch.len() }
    }

    fn split(&mut self, index: usize, (first, second): (SealedBatch, SealedBatch)) -> Effect {
        let entry = self.entry_mut(index);
        let before = entry.batch.len();
        let after = first.len() + second.len();
        let second = Entry {
            base_sequence: sequence_after(entry.base_sequence, first.count()),
            batch: second,
            appended: entry.appended,
            flight: None,
            outcome_unknown: entry.outcome_unknown,
        };
        entry.batch = first;
        self.slots.insert(index + 1, Slot::Unacknowledged(second));
        // What was sent behind it is answered as out of sequence; the halves go first.
        self.muted = true;
        Effect::Split { before, after }
    }

    /// The first batch that waits, if those before it are all in flight or settled and it is inside the window.
    fn next_index(&self) -> Option<usize> {
        let waits = |slot: &Slot| matches!(slot, Slot::Unacknowledged(entry) if entry.flight.is_none());
        self.slots.iter().take(self.window).position(waits)
    }

    fn position(&self, ticket: Ticket) -> Option<usize> {
        let is_it = |slot: &Slot| matches!(slot, Slot::Unacknowledged(entry) if entry.flight == Some(ticket));
        // Only what is inside the window, or was pushed out of it by a split, can be in flight.
        self.slots.iter().position(is_it)
    }

    fn entry_mut(&mut self, index: usize) -> &mut Entry {
        match &mut self.slots[index] {
            Slot::Unacknowledged(entry) => entry,
            Slot::Acknowledged => unreachable!("an attempt is of an unacknowledged batch"),
        }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Unacknowledged(entry) => Some(entry),
            Slot::Acknowledged => None,
        })
    }
}

/// Sequences count records and go from the largest 32-bit number to 0.
fn sequence_after(base: i32, records: u32) -> i32 {
    ((i64::from(base) + i64::from(records)) & i64::from(i32::MAX)) as i32
}

/// The wait before the next attempt after `failures` failed ones.
pub(super) fn backoff(first: Duration, longest: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(10)).min(longest)
}
