//! What happens by itself, and when.

use super::{Millis, Ticket};
use std::collections::BTreeMap;

/// Something that is due at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Timer {
    /// A Produce asks again whether its transaction may go on.
    Produce(Ticket),
    /// A Fetch has waited long enough.
    Fetch(Ticket),
    /// The markers of a decided transaction are written.
    WriteMarkers {
        /// Whose transaction.
        transactional_id: String,
        /// The leadership under which it was decided.
        coordinator_epoch: i32,
    },
    /// Transactions that are open for too long are aborted.
    AbortTimedOut,
    /// Transactional ids that nobody has used for long are forgotten.
    ExpireTransactionalIds,
    /// A transaction coordinator has loaded a partition.
    LoadTransactions {
        /// The partition of `__transaction_state`.
        partition: i32,
        /// The leadership for which it loads.
        epoch: i32,
    },
    /// A group coordinator has loaded a partition.
    LoadGroups {
        /// The partition of `__consumer_offsets`.
        partition: i32,
        /// The leadership for which it loads.
        epoch: i32,
    },
    /// A member may not have been heard of for too long.
    LookAtMember {
        /// Its group.
        group: String,
        /// The member.
        member: String,
    },
    /// The time to join a group is over.
    EndJoin {
        /// The group.
        group: String,
        /// Which time it was.
        wait: u64,
    },
    /// The delay of a group's first rebalance is over, or is extended.
    EndFirstJoin {
        /// The group.
        group: String,
        /// Which time it was.
        wait: u64,
        /// How long it was.
        delay: Millis,
        /// What is left to extend it.
        remaining: Millis,
    },
    /// The time to ask for an assignment is over.
    EndSync {
        /// The group.
        group: String,
        /// Which time it was.
        wait: u64,
    },
    /// Offsets that nobody needs are forgotten.
    ExpireOffsets,
}

/// Timers in the order in which they fire: by time, then by when they were set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    waiting: BTreeMap<(Millis, u64), Timer>,
    set: u64,
}

impl Timers {
    /// Sets a timer.
    pub(crate) fn at(&mut self, time: Millis, timer: Timer) {
        self.set += 1;
        self.waiting.insert((time, self.set), timer);
    }

    /// Takes the first one that is due.
    pub(crate) fn due(&mut self, now: Millis) -> Option<(Millis, Timer)> {
        let (&(at, _), _) = self.waiting.first_key_value().filter(|((at, _), _)| *at <= now)?;
        self.waiting.pop_first().map(|(_, timer)| (at, timer))
    }

    /// When the first one is due.
    pub(crate) fn next(&self) -> Option<Millis> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }
}
