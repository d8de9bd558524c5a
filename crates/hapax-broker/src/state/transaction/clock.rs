//! What happens to transactional ids when time passes: open transactions are aborted after their time-out, and ids
//! that nobody uses are forgotten.
//!
//! Kafka looks every so often, and so does this: at the multiples of a period, however only at those where there may be
//! something to do. A machine that is idle has no timers.

use super::{metadata::Transaction, record};
use crate::state::{Machine, Millis, Timer, catalog::TRANSACTION_STATE};

/// When something is to be done about a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    deadline: Option<Millis>,
    unused_since: Option<Millis>,
}

impl Due {
    pub(super) fn of(stored: &Transaction) -> Self {
        let unused = stored.phase.may_expire() && stored.pending.is_none();
        Self { deadline: stored.deadline(), unused_since: unused.then_some(stored.updated) }
    }
}

impl Machine {
    /// Sets the next looks for everything that is stored.
    pub(super) fn wake_clocks(&mut self) {
        let loaded = self.transactions.shards.values().filter(|shard| !shard.loading);
        let stored: Vec<_> = loaded.flat_map(|shard| shard.transactions.values()).map(Due::of).collect();
        let deadline = stored.iter().filter_map(|due| due.deadline).min();
        let unused_since = stored.iter().filter_map(|due| due.unused_since).min();
        self.wake_clock(Due { deadline, unused_since });
    }

    /// Sets the next looks if they are to be earlier than those that are set.
    pub(super) fn wake_clock(&mut self, due: Due) {
        let settings = &self.settings;
        // Aborted when more time than the time-out has passed, forgotten when at least the period has.
        let abort = due.deadline.map(|at| self.next_look(at.saturating_add(1), settings.timeout_interval_ms));
        let expiry = due.unused_since.map(|at| {
            self.next_look(at.saturating_add(settings.id_expiration_ms), settings.expiry_interval_ms)
        });
        if let Some(at) = abort.filter(|at| self.transactions.reaper_due.is_none_or(|due| *at < due)) {
            self.transactions.reaper_due = Some(at);
            self.timers.at(at, Timer::AbortTimedOut);
        }
        if let Some(at) = expiry.filter(|at| self.transactions.expiry_due.is_none_or(|due| *at < due)) {
            self.transactions.expiry_due = Some(at);
            self.timers.at(at, Timer::ExpireTransactionalIds);
        }
    }

    /// The first look that is not before a time and still to come.
    fn next_look(&self, at: Millis, period: Millis) -> Millis {
        let period = period.max(1);
        let from = at.max(self.now.saturating_add(1));
        match from.rem_euclid(period) {
            0 => from,
            past => from.saturating_add(period - past),
        }
    }

    /// Aborts what is open for too long.
    pub(crate) fn abort_timed_out(&mut self) {
        if self.transactions.reaper_due.is_some_and(|due| due <= self.now) {
            self.transactions.reaper_due = None;
        }
        let now = self.now;
        let late: Vec<String> = self
            .transactions
            .shards
            .values()
            .filter(|shard| !shard.loading)
            .flat_map(|shard| &shard.transactions)
            .filter(|(_, stored)| stored.deadline().is_some_and(|at| at < now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in late {
            if let Err(code) = self.abort_by_broker(&id) {
                tracing::debug!(transactional_id = id, code = code.0, "the abort after the time-out failed");
            }
        }
        self.wake_clocks();
    }

    /// Forgets what nobody has used for long: a tombstone, and the id is as new.
    pub(crate) fn expire_transactional_ids(&mut self, at_once: bool) {
        if self.transactions.expiry_due.is_some_and(|due| due <= self.now) {
            self.transactions.expiry_due = None;
        }
        let oldest = self.now.saturating_sub(self.settings.id_expiration_ms);
        let mut unused = Vec::new();
        for (partition, shard) in &self.transactions.shards {
            for (id, stored) in shard.transactions.iter().filter(|_| !shard.loading) {
                let free = stored.phase.may_expire() && stored.pending.is_none();
                if free && (at_once || stored.updated <= oldest) {
                    unused.push((*partition, id.clone()));
                }
            }
        }
        for (partition, id) in unused {
            let key = record::key(&id);
            if let Err(code) = self.append_internal(TRANSACTION_STATE, partition, key, None) {
                tracing::error!(transactional_id = id, code = code.0, "an unused id stays");
                continue;
            }
            if let Some(shard) = self.transactions.shards.get_mut(&partition) {
                shard.transactions.remove(&id);
            }
        }
        self.wake_clocks();
    }
}
