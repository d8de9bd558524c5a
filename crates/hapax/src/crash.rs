//! Numbered crash points: every boundary between two effects of the commit protocol.
//!
//! A run calls [`CrashPoints::reach`] at each; the product's own implementation does nothing. A test's ends or stops
//! the process there.

use hapax_commit::Epoch;
use std::fmt;

/// Where a process may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// A barrier has reached a shard; nothing of the epoch is flushed.
    K0BeforeFlush,
    /// Every lane is prepared; the manifest (decider `transaction`: the positions) is not sent.
    K1Prepared,
    /// Decider `transaction`, positions that are too long to stand beside an offset: their object is put, the offsets that
    /// point to it are not sent.
    K1pPositionsPut,
    /// Decider `transaction`: the positions are in the transaction, EndTxn is not sent.
    K1oOffsetsTaken,
    /// The manifest is being put and is not stored.
    K1bUnstored,
    /// The manifest is stored and the answer has not arrived.
    K1bStored,
    /// The epoch is decided; nothing is ended.
    K2Decided,
    /// One lane's EndTxn is answered and the next one's not sent.
    K2bBetweenLanes,
    /// EndTxn is sent and not answered.
    K3EndTxnSent,
    /// Every lane's EndTxn is answered; the proof is not in the chain.
    K4Ended,
    /// The proof is in the chain.
    K5Proven,
    /// Recovery of an epoch in doubt: the claim is put, nothing is cleared.
    R0Claimed,
    /// Recovery: what is not in doubt is cleared, nothing is looked at.
    R1Cleared,
    /// Recovery: every lane was looked at, nothing was done.
    R2Looked,
    /// Recovery: a lane's EndTxn is answered.
    R3LaneEnded,
    /// Recovery: aborted records are written again and prepared; the slot that says so is not put.
    R4Rewritten,
    /// Recovery: what is given up is written down, and kept in a file where it is set aside; `abandoned` is not put.
    R4nNoted,
    /// Recovery: `amend`, `void`, `abandoned` or the proof is in the chain.
    R5Recorded,
    /// Recovery: the ids that were in doubt are cleared.
    R6IdsCleared,
    /// A slot that changes the job (a revision, or a checkpoint that is restored) is being put and is not stored.
    L0Unstored,
    /// That slot is stored and nobody has been told.
    L1Stored,
}

impl Point {
    /// The points of recovery, which only a run reaches that finds an epoch in doubt; one that gives records up reaches
    /// [`Self::R4nNoted`] in the place of [`Self::R4Rewritten`].
    pub const RECOVERY: [Self; 7] = [
        Self::R0Claimed,
        Self::R1Cleared,
        Self::R2Looked,
        Self::R3LaneEnded,
        Self::R4Rewritten,
        Self::R5Recorded,
        Self::R6IdsCleared,
    ];

    /// The points of a change of the job: of its shards, its splits, or back to an older checkpoint.
    pub const CHANGE: [Self; 2] = [Self::L0Unstored, Self::L1Stored];

    /// The points of an epoch's life under decider `transaction`, in its order.
    pub const TRANSACTION: [Self; 6] = [
        Self::K0BeforeFlush,
        Self::K1Prepared,
        Self::K1oOffsetsTaken,
        Self::K3EndTxnSent,
        Self::K4Ended,
        Self::K5Proven,
    ];

    /// The points of an epoch's life under decider `checkpoint`, in its order.
    pub const COMMIT: [Self; 9] = [
        Self::K0BeforeFlush,
        Self::K1Prepared,
        Self::K1bUnstored,
        Self::K1bStored,
        Self::K2Decided,
        Self::K2bBetweenLanes,
        Self::K3EndTxnSent,
        Self::K4Ended,
        Self::K5Proven,
    ];

    /// The point's name on the command line and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::K0BeforeFlush => "K0",
            Self::K1Prepared => "K1",
            Self::K1pPositionsPut => "K1p",
            Self::K1oOffsetsTaken => "K1o",
            Self::K1bUnstored => "K1b-unstored",
            Self::K1bStored => "K1b-stored",
            Self::K2Decided => "K2",
            Self::K2bBetweenLanes => "K2b",
            Self::K3EndTxnSent => "K3",
            Self::K4Ended => "K4",
            Self::K5Proven => "K5",
            Self::R0Claimed => "R0",
            Self::R1Cleared => "R1",
            Self::R2Looked => "R2",
            Self::R3LaneEnded => "R3",
            Self::R4Rewritten => "R4",
            Self::R4nNoted => "R4n",
            Self::R5Recorded => "R5",
            Self::R6IdsCleared => "R6",
            Self::L0Unstored => "L0",
            Self::L1Stored => "L1",
        }
    }

    /// All points.
    pub fn all() -> impl Iterator<Item = Self> {
        let commit = Self::COMMIT.into_iter().chain([Self::K1pPositionsPut, Self::K1oOffsetsTaken]);
        commit.chain(Self::RECOVERY).chain([Self::R4nNoted]).chain(Self::CHANGE)
    }

    /// The point of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|point| point.name() == name)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Told of every crash point as it is reached.
pub trait CrashPoints: Send + Sync + fmt::Debug {
    /// The point is reached in `epoch`. An implementation may end or stop the process here.
    fn reach(&self, point: Point, epoch: Epoch);

    /// Should lanes be ended one after the other, so that [`Point::K2bBetweenLanes`] has a place?
    fn one_lane_at_a_time(&self) -> bool {
        false
    }
}

/// No crash point does anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undisturbed;

impl CrashPoints for Undisturbed {
    fn reach(&self, _: Point, _: Epoch) {}
}
