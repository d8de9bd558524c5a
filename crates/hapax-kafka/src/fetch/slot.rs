//! What reader and task share: one slot for each assigned partition, and the queue between them.

use super::{FetchError, TopicPartition, completed::Completed};
use crate::{Leader, limits};
use hapax_commit::TopicId;
use hapax_host::Instant;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicUsize},
    time::Duration,
};
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Bytes of answers that are not read yet.
    pub(super) buffered: AtomicUsize,
    /// Wakes the task: an assignment changed, or there is room.
    pub(super) work: Notify,
    /// Wakes the reader: something was queued, or the task ended.
    pub(super) readable: Notify,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) slots: BTreeMap<TopicPartition, Slot>,
    pub(super) queue: VecDeque<Queued>,
    /// The partition that the reader was told of, with its error.
    failed: Option<(TopicPartition, FetchError)>,
    /// An error of the whole fetcher.
    ended: Option<FetchError>,
    /// The newest assignment.
    generation: u64,
    /// The newest answer that had data.
    turn: u64,
}

pub(super) enum Queued {
    Read(Completed),
    /// The partition ends in an error, behind what was read of it before.
    Failed {
        tp: TopicPartition,
        generation: u64,
        error: FetchError,
    },
}

/// What the task does about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is fetched.
    Open,
    /// The broker says that the offset is out of range; which range is being asked.
    Probing,
    /// It ends in an error that is queued or was delivered.
    Failed,
}

pub(super) struct Slot {
    /// Of the assignment; what was fetched for another one is not delivered.
    pub(super) generation: u64,
    pub(super) topic_id: Option<TopicId>,
    /// Where the reader is.
    pub(super) position: i64,
    pub(super) leader_epoch: Option<i32>,
    /// Where the next request begins: behind what is queued.
    pub(super) fetch_from: i64,
    /// Largest answer, raised where a batch did not fit.
    pub(super) max_bytes: Option<i32>,
    pub(super) leader: Option<Leader>,
    /// The cached metadata was found wrong: only newer one may name a leader.
    pub(super) stale: bool,
    pub(super) paused: bool,
    pub(super) phase: Phase,
    /// The answer that last had data: who waited longest is asked for first.
    pub(super) turn: u64,
    pub(super) trouble: Option<Trouble>,
}

impl Slot {
    pub(super) fn is_wanted(&self, now: Instant) -> bool {
        !self.paused
            && self.phase == Phase::Open
            && self.trouble.as_ref().is_none_or(|trouble| trouble.retry_at <= now)
    }
}

/// A partition that could not be fetched lately, for reasons that may pass.
pub(super) struct Trouble {
    pub(super) since: Instant,
    pub(super) failures: u32,
    pub(super) retry_at: Instant,
    pub(super) last: Arc<str>,
    /// Since when fresh metadata says that it is not there.
    pub(super) unknown_since: Option<Instant>,
}

impl Trouble {
    /// Has metadata said for long enough that the partition is not there?
    pub(super) fn is_gone(&self, now: Instant) -> bool {
        self.unknown_since
            .is_some_and(|since| now.saturating_duration_since(since) >= limits::GONE_TOPIC_PATIENCE)
    }
}

impl State {
    pub(super) fn assign(
        &mut self,
        tp: TopicPartition,
        topic_id: Option<TopicId>,
        from: i64,
        leader_epoch: Option<i32>,
    ) {
        self.unassign(&tp);
        let slot = Slot {
            generation: self.next_generation(),
            // All zeroes stand for "no id" on the wire.
            topic_id: topic_id.filter(|id| id.0 != [0; 16]),
            position: from,
            leader_epoch,
            fetch_from: from,
            max_bytes: None,
            leader: None,
            stale: false,
            paused: false,
            phase: Phase::Open,
            turn: 0,
            trouble: None,
        };
        self.slots.insert(tp, slot);
    }

    pub(super) fn unassign(&mut self, tp: &TopicPartition) {
        self.slots.remove(tp);
        self.forget(tp);
    }

    pub(super) fn set_paused(&mut self, tp: &TopicPartition, paused: bool) {
        let generation = self.next_generation();
        let Some(slot) = self.slots.get_mut(tp).filter(|slot| slot.paused != paused) else { return };
        slot.paused = paused;
        if paused {
            slot.generation = generation;
            slot.phase = Phase::Open;
            slot.fetch_from = slot.position;
            self.forget(tp);
        }
    }

    fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    fn forget(&mut self, tp: &TopicPartition) {
        self.queue.retain(|queued| match queued {
            Queued::Read(completed) => completed.tp != *tp,
            Queued::Failed { tp: failed, .. } => failed != tp,
        });
        self.failed.take_if(|(failed, _)| failed == tp);
    }

    /// The slot of an assignment, unless there was a newer one.
    pub(super) fn slot(&mut self, tp: &TopicPartition, generation: u64) -> Option<&mut Slot> {
        self.slots.get_mut(tp).filter(|slot| slot.generation == generation)
    }

    /// The slot that a completed fetch belongs to.
    pub(super) fn slot_of(&mut self, completed: &Completed) -> Option<&mut Slot> {
        self.slot(&completed.tp, completed.generation)
    }

    /// Counts the answers that had data.
    pub(super) fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// The error that the reader is told from now on, if it is one of a partition that is still assigned.
    pub(super) fn fail(&mut self, tp: &TopicPartition, generation: u64, error: FetchError) {
        let Some(slot) = self.slot(tp, generation) else { return };
        slot.phase = Phase::Failed;
        self.failed.get_or_insert_with(|| (tp.clone(), error));
    }

    /// Queues an error behind what was read of the partition before.
    pub(super) fn queue_failure(&mut self, tp: &TopicPartition, generation: u64, error: FetchError) {
        let Some(slot) = self.slot(tp, generation) else { return };
        slot.phase = Phase::Failed;
        self.queue.push_back(Queued::Failed { tp: tp.clone(), generation, error });
    }

    /// Ends everything; the first reason counts.
    pub(super) fn end(&mut self, error: FetchError) {
        self.ended.get_or_insert(error);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// What the reader is told instead of records.
    pub(super) fn failure(&self) -> Option<&FetchError> {
        self.failed.as_ref().map(|(_, error)| error).or(self.ended.as_ref())
    }

    /// How long partitions have been in trouble: number, one of the longest, since when, what was last.
    pub(super) fn worst_trouble(&self) -> Option<(usize, &TopicPartition, &Trouble)> {
        let troubled = || {
            let open = self.slots.iter().filter(|(_, slot)| !slot.paused && slot.phase != Phase::Failed);
            open.filter_map(|(tp, slot)| Some((tp, slot.trouble.as_ref()?)))
        };
        let (tp, trouble) = troubled().min_by_key(|(_, trouble)| trouble.since)?;
        Some((troubled().count(), tp, trouble))
    }

    /// When the next partition may be tried again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.slots
            .values()
            .filter(|slot| !slot.paused && slot.phase == Phase::Open)
            .filter_map(|slot| Some(slot.trouble.as_ref()?.retry_at))
            .min()
    }
}

/// Notes a failure of a partition; it is tried again after `wait`.
pub(super) fn note_trouble(
    slot: &mut Slot,
    now: Instant,
    wait: impl FnOnce(u32) -> Duration,
    last: Arc<str>,
) {
    let (since, failures, unknown_since) = match &slot.trouble {
        Some(known) => (known.since, known.failures.saturating_add(1), known.unknown_since),
        None => (now, 0, None),
    };
    slot.trouble = Some(Trouble { since, failures, retry_at: now + wait(failures), last, unknown_since });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tp() -> TopicPartition {
        TopicPartition { topic: "t".into(), partition: 0 }
    }

    fn generation(state: &State) -> u64 {
        state.slots[&tp()].generation
    }

    #[test]
    fn an_error_stays_until_its_partition_is_assigned_anew() {
        let mut state = State::default();
        state.assign(tp(), None, 5, None);
        let first = generation(&state);
        state.fail(&tp(), first, FetchError::Stopped);
        assert!(state.failure().is_some());
        state.assign(tp(), None, 6, None);
        assert!(state.failure().is_none());
        state.fail(&tp(), first, FetchError::Stopped);
        state.queue_failure(&tp(), first, FetchError::Stopped);
        assert!(state.failure().is_none() && state.queue.is_empty(), "it belongs to the earlier assignment");
    }

    #[test]
    fn a_pause_drops_what_is_queued_and_keeps_the_position() {
        let mut state = State::default();
        state.assign(tp(), None, 5, Some(2));
        let before = generation(&state);
        let slot = state.slot(&tp(), before).unwrap();
        (slot.position, slot.fetch_from) = (7, 30);
        state.queue_failure(&tp(), before, FetchError::Stopped);
        state.set_paused(&tp(), true);
        assert!(state.queue.is_empty());
        assert!(state.slot(&tp(), before).is_none(), "an answer on its way is not delivered");
        let slot = &state.slots[&tp()];
        assert_eq!((slot.position, slot.fetch_from, slot.phase), (7, 7, Phase::Open));
    }

    #[test]
    fn all_zeroes_are_no_topic_id() {
        let mut state = State::default();
        state.assign(tp(), Some(TopicId([0; 16])), 0, None);
        assert_eq!(state.slots[&tp()].topic_id, None);
    }
}
