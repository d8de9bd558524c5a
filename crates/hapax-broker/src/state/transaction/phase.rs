//! The states of a transaction, their ids in `__transaction_state`, their names in the admin interface, and which one
//! may follow which. (Kafka's `TransactionState`)
//!
//! ```text
//! Empty ──┬─> Ongoing ──┬─> PrepareCommit ──> CompleteCommit ─┐
//!   ^     │      ^ └────┴─> PrepareAbort  ──> CompleteAbort  ─┤
//!   │     └──────┼──────────────^ (an empty abort of V2) ─────┤
//!   └────────────┴────────────────────────────────────────────┘
//! ```
//!
//! Kafka's `Dead` and `PrepareEpochFence` are marks of steps that are one step here, so nobody ever sees them; a filter
//! may name them nevertheless.

use crate::state::digest::{Digest, Feed};

/// Where a transaction stands. Only what is written to `__transaction_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// An id with a producer, and nothing begun since InitProducerId.
    Empty,
    /// At least one partition has been added.
    Ongoing,
    /// Decided: commit. Markers are to be written.
    PrepareCommit,
    /// Decided: abort. Markers are to be written.
    PrepareAbort,
    /// All markers are written, the transaction is visible.
    CompleteCommit,
    /// All markers are written, the transaction is gone.
    CompleteAbort,
}

impl Feed for Phase {
    fn feed(&self, into: &mut Digest) {
        self.id().feed(into);
    }
}

impl Phase {
    const ALL: [Self; 6] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
    ];

    /// Names that a filter may have although no answer has them.
    const NEVER_SHOWN: [&'static str; 2] = ["Dead", "PrepareEpochFence"];

    /// The prepared phase of a decision.
    pub(crate) fn prepared(commit: bool) -> Self {
        if commit { Self::PrepareCommit } else { Self::PrepareAbort }
    }

    /// The id in a record.
    pub(crate) fn id(self) -> i8 {
        match self {
            Self::Empty => 0,
            Self::Ongoing => 1,
            Self::PrepareCommit => 2,
            Self::PrepareAbort => 3,
            Self::CompleteCommit => 4,
            Self::CompleteAbort => 5,
        }
    }

    /// The phase of a record.
    pub(crate) fn from_id(id: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.id() == id)
    }

    /// The name in ListTransactions and DescribeTransactions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    /// Whether a filter may have this name.
    pub(crate) fn knows(name: &str) -> bool {
        Self::ALL.iter().any(|phase| phase.name() == name) || Self::NEVER_SHOWN.contains(&name)
    }

    /// Decided, and the markers are not all written.
    pub(crate) fn is_prepared(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::PrepareAbort)
    }

    /// An id in this phase may be forgotten.
    pub(crate) fn may_expire(self) -> bool {
        matches!(self, Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
    }

    /// What a prepared transaction becomes: the decision, and the phase after the markers.
    pub(crate) fn completion(self) -> Option<(bool, Self)> {
        match self {
            Self::PrepareCommit => Some((true, Self::CompleteCommit)),
            Self::PrepareAbort => Some((false, Self::CompleteAbort)),
            Self::Empty | Self::Ongoing | Self::CompleteCommit | Self::CompleteAbort => None,
        }
    }

    /// Whether this phase may follow the other.
    pub(crate) fn may_follow(self, before: Self) -> bool {
        match self {
            Self::Empty => before.may_expire(),
            Self::Ongoing => before == Self::Ongoing || before.may_expire(),
            Self::PrepareCommit => before == Self::Ongoing,
            Self::PrepareAbort => before == Self::Ongoing || before.may_expire(),
            Self::CompleteCommit => before == Self::PrepareCommit,
            Self::CompleteAbort => before == Self::PrepareAbort,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_those_of_kafka() {
        let ids: Vec<i8> = Phase::ALL.iter().map(|phase| phase.id()).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
        for phase in Phase::ALL {
            assert_eq!(Phase::from_id(phase.id()), Some(phase));
            assert_eq!(phase.name(), format!("{phase:?}"));
            assert!(Phase::knows(phase.name()));
        }
        assert_eq!(Phase::from_id(6), None);
        assert!(Phase::knows("Dead") && !Phase::knows("dead"));
    }

    #[test]
    fn a_decision_is_never_taken_back() {
        for after in Phase::ALL {
            assert_eq!(after.may_follow(Phase::PrepareCommit), after == Phase::CompleteCommit);
            assert_eq!(after.may_follow(Phase::PrepareAbort), after == Phase::CompleteAbort);
        }
        assert!(!Phase::PrepareCommit.may_follow(Phase::Empty), "an empty transaction cannot be committed");
    }
}
