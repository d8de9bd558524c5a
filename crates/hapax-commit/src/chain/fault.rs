//! What no run of this protocol writes, in types and in words.

use crate::id::{Epoch, LaneId, RunNonce, SlotNumber, TransactionalId};
use core::fmt;

/// What no run of this protocol writes: the store is damaged, or something else writes into it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChainFault {
    /// A number that does not ascend.
    Order {
        /// The end of the chain before it.
        end: Option<SlotNumber>,
        /// The number found.
        found: SlotNumber,
    },
    /// The chain does not begin with a claim in slot 1.
    NoClaim {
        /// The first slot found.
        found: SlotNumber,
    },
    /// A claim that names another slot as its generation.
    ClaimGeneration {
        /// The slot.
        slot: SlotNumber,
    },
    /// Written behind a claim by a run that is not the claimant.
    Foreign {
        /// The slot.
        slot: SlotNumber,
        /// Who wrote it.
        run: RunNonce,
    },
    /// An epoch number that is used twice or does not rise.
    EpochRepeated {
        /// The slot.
        slot: SlotNumber,
        /// The epoch.
        epoch: Epoch,
    },
    /// An epoch was decided while an earlier one was in doubt.
    DecidedInDoubt {
        /// The slot.
        slot: SlotNumber,
        /// The epoch in doubt.
        unresolved: Epoch,
    },
    /// An outcome or amendment of an epoch that is not in doubt.
    NotInDoubt {
        /// The slot.
        slot: SlotNumber,
        /// The epoch that it names.
        epoch: Epoch,
    },
    /// The deciding run itself gave up or amended its epoch: that takes a new claim.
    WithoutClaim {
        /// The slot.
        slot: SlotNumber,
    },
    /// A handle that does not belong there: another epoch's, an unknown lane's, or on an id that was not claimed.
    Handle {
        /// The slot.
        slot: SlotNumber,
        /// The handle's id.
        id: TransactionalId,
    },
    /// A journal that does not belong there: another run's or epoch's, or without a handle whose records it could have.
    Journal {
        /// The slot.
        slot: SlotNumber,
        /// Its lane.
        lane: LaneId,
    },
    /// A revision, or a restored checkpoint, that does not belong there.
    Revision {
        /// The slot.
        slot: SlotNumber,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A job that has ended went on.
    Finished {
        /// The slot.
        slot: SlotNumber,
    },
    /// Slots are missing that are never pruned.
    Missing {
        /// The first one missing.
        slot: SlotNumber,
    },
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { end: Some(end), found } => write!(f, "slot {found} was read after slot {end}"),
            Self::Order { end: None, found } => write!(f, "slot {found} is not a slot number"),
            Self::NoClaim { found } => {
                write!(f, "the chain begins with slot {found}, not with a claim in slot 1")
            }
            Self::ClaimGeneration { slot } => {
                write!(f, "the claim in slot {slot} names another slot as its own")
            }
            Self::Foreign { slot, run } => {
                write!(f, "slot {slot} was written by run {run}, which has not the newest claim")
            }
            Self::EpochRepeated { slot, epoch } => write!(f, "slot {slot} uses epoch {epoch} again"),
            Self::DecidedInDoubt { slot, unresolved } => {
                write!(f, "slot {slot} decides an epoch while epoch {unresolved} is in doubt")
            }
            Self::NotInDoubt { slot, epoch } => {
                write!(f, "slot {slot} names epoch {epoch}, which is not in doubt")
            }
            Self::WithoutClaim { slot } => {
                write!(f, "slot {slot} gives up or amends an epoch without a claim before it")
            }
            Self::Handle { slot, id } => write!(f, "the handle of {id} does not belong into slot {slot}"),
            Self::Journal { slot, lane } => {
                write!(f, "the journal of lane {lane} does not belong into slot {slot}")
            }
            Self::Revision { slot, why } => write!(f, "slot {slot} changes the job where it may not: {why}"),
            Self::Finished { slot } => write!(f, "slot {slot} decides an epoch of a job that has ended"),
            Self::Missing { slot } => write!(f, "slot {slot} is missing and cannot have been pruned"),
        }
    }
}

impl core::error::Error for ChainFault {}
