//! One transition: the record first, then the memory.
//!
//! What cannot be written leaves its mark. A record that version 0 has no place for throws in Kafka after the pending
//! state is set, so the id stays busy until its coordinator is loaded again. A record that the log refuses resets the
//! pending state, and may be in the log nevertheless: then it is found by the next coordinator that loads.

use super::{clock::Due, metadata::Transaction, phase::Phase, record};
use crate::state::{Code, Machine, Timer, catalog::TRANSACTION_STATE};

/// How the next append for a transactional id fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AppendFault {
    /// Whether the record is in the log although the append failed, as after a time-out waiting for replicas.
    pub written: bool,
    /// What the client is told: 15 (`COORDINATOR_NOT_AVAILABLE`), 16 (`NOT_COORDINATOR`) or -1.
    pub code: i16,
}

impl Machine {
    /// Writes what an id becomes and remembers it.
    pub(super) fn write_transaction(&mut self, id: &str, mut next: Transaction) -> Result<(), Code> {
        let phase = next.phase;
        let before = self.stored_mut(id).map(|before| (before.phase, before.start));
        if let Some((before, _)) = before {
            assert!(phase.may_follow(before), "{before:?} may not become {phase:?}");
        }
        let partition = self.state_partition(id);
        let Ok(value) = record::value(&next, self.cluster_level()) else {
            if let Some(before) = self.stored_mut(id) {
                before.pending = Some(phase);
            }
            return Err(Code::UNSUPPORTED_VERSION);
        };
        let fault = self.transactions.faults.remove(id);
        if fault.is_none_or(|fault| fault.written) {
            self.append_internal(TRANSACTION_STATE, partition, record::key(id), Some(value))?;
        }
        if let Some(fault) = fault {
            return Err(Code(fault.code));
        }
        if let Some((_, start)) = before.filter(|_| phase == Phase::Empty && !self.cluster_level().bumps()) {
            // A coordinator of 3.9 writes that nothing has begun, and remembers when the last transaction did.
            next.start = start;
        }
        let shard = self.transactions.shards.get_mut(&partition).ok_or(Code::NOT_COORDINATOR)?;
        shard.transactions.insert(id.to_owned(), next);
        self.after_transition(id);
        Ok(())
    }

    /// Sets what is to happen by itself in the phase that an id has reached.
    pub(super) fn after_transition(&mut self, id: &str) {
        let Some(stored) = self.stored_mut(id) else { return };
        let completion = stored.phase.completion();
        stored.pending = completion.map(|(_, complete)| complete);
        let nothing_to_mark = stored.partitions.is_empty();
        let due = Due::of(stored);
        if completion.is_none() {
            self.wake_clock(due);
        } else if nothing_to_mark {
            self.complete_transaction(id);
        } else {
            self.schedule_markers(id);
        }
    }

    /// Sets when the markers of an id are written.
    pub(super) fn schedule_markers(&mut self, id: &str) {
        let partition = self.state_partition(id);
        let Some(coordinator_epoch) = self.transactions.shards.get(&partition).map(|shard| shard.epoch)
        else {
            return;
        };
        let due = self.now.saturating_add(self.settings.marker_delay_ms);
        self.timers.at(due, Timer::WriteMarkers { transactional_id: id.to_owned(), coordinator_epoch });
    }

    /// Lets the next append for an id fail.
    pub(crate) fn fail_next_append(&mut self, id: &str, fault: AppendFault) {
        self.transactions.faults.insert(id.to_owned(), fault);
    }
}
