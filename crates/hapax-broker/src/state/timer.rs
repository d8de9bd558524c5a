//! What happens by itself, and when.

use super::{
    Millis, Ticket,
    digest::{Digest, Feed},
};
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

impl Timer {
    /// Does it fire for a reader alone, who changes nothing and is not kept?
    fn is_of_reader(&self) -> bool {
        matches!(self, Self::Fetch(_))
    }
}

impl Feed for Timer {
    fn feed(&self, into: &mut Digest) {
        match self {
            Self::Produce(ticket) => (0_u8, *ticket).feed(into),
            Self::Fetch(ticket) => (1_u8, *ticket).feed(into),
            Self::WriteMarkers { transactional_id, coordinator_epoch } => {
                2_u8.feed(into);
                transactional_id.feed(into);
                coordinator_epoch.feed(into);
            }
            Self::AbortTimedOut => 3_u8.feed(into),
            Self::ExpireTransactionalIds => 4_u8.feed(into),
            Self::LoadTransactions { partition, epoch } => (5_u8, (*partition, *epoch)).feed(into),
            Self::LoadGroups { partition, epoch } => (6_u8, (*partition, *epoch)).feed(into),
            Self::LookAtMember { group, member } => {
                7_u8.feed(into);
                group.feed(into);
                member.feed(into);
            }
            Self::EndJoin { group, wait } => {
                8_u8.feed(into);
                group.feed(into);
                wait.feed(into);
            }
            Self::EndFirstJoin { group, wait, delay, remaining } => {
                9_u8.feed(into);
                group.feed(into);
                wait.feed(into);
                (*delay, *remaining).feed(into);
            }
            Self::EndSync { group, wait } => {
                10_u8.feed(into);
                group.feed(into);
                wait.feed(into);
            }
            Self::ExpireOffsets => 11_u8.feed(into),
        }
    }
}

/// Timers in the order in which they fire: by time, then by when they were set.
#[derive(Clone, Debug, Default)]
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

    /// Is one due that changes more than who waits?
    pub(crate) fn change_by(&self, now: Millis) -> bool {
        self.waiting.range(..=(now, u64::MAX)).any(|(_, timer)| !timer.is_of_reader())
    }

    /// When the first one is due.
    pub(crate) fn next(&self) -> Option<Millis> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }
}

impl Feed for Timers {
    fn feed(&self, into: &mut Digest) {
        // How many were ever set counts readers too, and says nothing but their order.
        let Self { waiting, set: _ } = self;
        for ((at, _), timer) in waiting.iter().filter(|(_, timer)| !timer.is_of_reader()) {
            at.feed(into);
            timer.feed(into);
        }
    }
}
