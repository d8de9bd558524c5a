//! Decider `transaction`: from whatever ran before to progress that nobody changes any more.
//!
//! Owns the order in which a start, and a change of the layout, take a job over; genesis where the job is new. There is no
//! claim and no chain that could tell who came last: the ids themselves are taken, and what they are taken in which order
//! for is all that keeps a run that sleeps from committing behind a reader's back.
//!
//! ```text
//!  to write:   look -> begun? -> (genesis) -> clear all others -> clear the lock -> read
//!  to change:  look                        -> clear the lock -> clear all others -> read
//!
//!  genesis:    may it begin? -> clear the lock -> begun meanwhile? -> is there one? -> commit on the lock -> record
//!              over a former life, instead of `is there one?`:
//!                  its ids -> look, clear all others -> end what it left open -> wait for its offsets
//! ```
//!
//! Looks come first, since clearing makes coordinators forget how the last transaction of an id ended. Progress is read
//! last, since an older run commits until its last id is cleared. Why the lock comes last to one and first to the other is
//! told in [`crate::present`]. Genesis is one transaction on the lock, so there is one of it, whoever else begins the job at
//! the same time; and until it is committed no other id of the job is touched, by which a start that died here is told from
//! offsets that were lost. (A former life has touched them all.)
//!
//! Invariant ([`TakeOver::check`]): progress is read when every id is cleared, and in the order of the goal.

use crate::{
    evidence::{Described, TransactionState},
    id::{Identity, TransactionVersion, TransactionalId},
    invariant::{Broken, holds},
    present::Ids,
};
use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

/// What a job is taken over for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    /// To read and write.
    Write,
    /// To put another layout in the place of the one that there is.
    Change,
}

/// What offsets say of a job that was found to be new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sought {
    /// There are none.
    Nothing,
    /// Genesis is committed, by another start or by one that died behind it.
    Genesis,
    /// More than genesis is: it has run, and what should tell so did not when it was asked.
    Beyond,
}

/// Ids that were cleared, and the identities that this gave.
pub type Cleared = BTreeMap<TransactionalId, Identity>;

/// What is to be done. Each is answered before there is another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask the coordinators of these ids what they know of them, in any order.
    Look {
        /// The ids.
        ids: Vec<TransactionalId>,
    },
    /// Make sure that a job of which nothing is committed has never run, or not further than to here.
    JudgePast,
    /// End what is open under these ids and fence whoever writes there, in any order.
    Clear {
        /// The ids.
        ids: Vec<TransactionalId>,
    },
    /// Ask whether it is recorded that this life of the job has begun.
    AskBegun,
    /// Find the ids that the former life may have used.
    FindFormerIds,
    /// Tell partitions of the sinks how transactions ended that they hold open from before their ids were cleared.
    EndLeftOpen {
        /// What is cleared.
        cleared: Cleared,
    },
    /// Read the offsets, once no open transaction may change them: is there a genesis?
    SeekGenesis {
        /// What is cleared.
        cleared: Cleared,
    },
    /// Wait until no open transaction may change the offsets, whatever they say.
    AwaitStable {
        /// What is cleared.
        cleared: Cleared,
    },
    /// Read the offsets, once no open transaction may change them: they are this job's progress, or nothing can go on.
    ReadProgress {
        /// What is cleared.
        cleared: Cleared,
    },
    /// Commit the positions that the job begins with, on the lock.
    CommitGenesis {
        /// What writes it.
        identity: Identity,
    },
    /// Record that the job has begun.
    Record,
    /// Refuse to begin a job that has run beyond genesis: what should tell that it has begun is not its own.
    Refuse,
    /// What was read last is the job's progress.
    Done {
        /// Every id of the job.
        cleared: Cleared,
    },
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Coordinators were asked.
    Looked,
    /// The job may be begun.
    MayBegin,
    /// Ids were cleared, every one of those asked for.
    Cleared(Cleared),
    /// Has this life of the job begun?
    AskedBegun(bool),
    /// These are the ids of the job, with those of its former life.
    FormerIds(Ids),
    /// Nothing that was left open is any more.
    LeftOpenEnded,
    /// Offsets were read, of a job that is new.
    Sought(Sought),
    /// No open transaction may change them.
    Stable,
    /// Progress was read.
    ProgressRead,
    /// Genesis is committed.
    GenesisCommitted,
    /// It is recorded that the job has begun.
    Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Looking,
    AskingBegun,
    JudgingPast,
    TakingLock,
    AskingBegunMeanwhile,
    FindingFormerIds,
    LookingAtFormer,
    ClearingFormer,
    EndingLeftOpen,
    SeekingGenesis,
    AskingBegunBeyond,
    AwaitingStable,
    CommittingGenesis,
    Recording,
    /// The goal's steps, by number.
    Clearing(usize),
    Reading,
    Refused,
    Done,
}

/// One take-over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TakeOver {
    goal: Goal,
    /// A job that is new takes the place of whatever is committed: it is begun anew.
    overwrites: bool,
    ids: Ids,
    stage: Stage,
    cleared: Cleared,
    /// Ids in the order in which they were cleared for the goal, step by step.
    order: Vec<TransactionalId>,
    effects: VecDeque<Effect>,
}

impl TakeOver {
    /// The take-over of a job with these ids. With `overwrites`, one that has not begun takes the place of whatever is
    /// committed.
    pub fn new(goal: Goal, overwrites: bool, ids: Ids) -> Self {
        let look = Effect::Look { ids: ids.all() };
        Self {
            goal,
            overwrites,
            ids,
            stage: Stage::Looking,
            cleared: Cleared::new(),
            order: Vec::new(),
            effects: [look].into(),
        }
    }

    /// Takes an input.
    pub fn step(&mut self, input: Input) {
        match (self.stage, input) {
            (Stage::Looking, Input::Looked) => match self.goal {
                Goal::Write => self.go(Stage::AskingBegun, Effect::AskBegun),
                // What has not begun has no layout to change.
                Goal::Change => self.clear(0),
            },
            (Stage::AskingBegun, Input::AskedBegun(true)) => self.clear(0),
            (Stage::AskingBegun, Input::AskedBegun(false)) => self.go(Stage::JudgingPast, Effect::JudgePast),
            (Stage::JudgingPast, Input::MayBegin) => {
                let ids = [self.ids.lock.clone()].into();
                self.go(Stage::TakingLock, Effect::Clear { ids });
            }
            (Stage::TakingLock, Input::Cleared(cleared)) => {
                self.cleared.extend(cleared);
                self.go(Stage::AskingBegunMeanwhile, Effect::AskBegun);
            }
            // Whoever has begun it records that, and clears the lock once more before it writes a record: where nothing is
            // recorded by now, none was written, and what that start does from here on comes after this genesis, or
            // fences it.
            (Stage::AskingBegunMeanwhile, Input::AskedBegun(true)) => self.clear(0),
            (Stage::AskingBegunMeanwhile, Input::AskedBegun(false)) if self.overwrites => {
                self.go(Stage::FindingFormerIds, Effect::FindFormerIds);
            }
            (Stage::AskingBegunMeanwhile, Input::AskedBegun(false)) => self.seek_genesis(),
            (Stage::FindingFormerIds, Input::FormerIds(ids)) => {
                self.ids = ids;
                let ids = self.ids.others.clone();
                self.go(Stage::LookingAtFormer, Effect::Look { ids });
            }
            (Stage::LookingAtFormer, Input::Looked) => {
                let ids = self.ids.others.clone();
                self.go(Stage::ClearingFormer, Effect::Clear { ids });
            }
            (Stage::ClearingFormer, Input::Cleared(cleared)) => {
                self.cleared.extend(cleared);
                let cleared = self.cleared.clone();
                self.go(Stage::EndingLeftOpen, Effect::EndLeftOpen { cleared });
            }
            (Stage::EndingLeftOpen, Input::LeftOpenEnded) => {
                let cleared = self.cleared.clone();
                self.go(Stage::AwaitingStable, Effect::AwaitStable { cleared });
            }
            (Stage::AwaitingStable, Input::Stable) => self.commit_genesis(),
            (Stage::SeekingGenesis, Input::Sought(Sought::Nothing)) => self.commit_genesis(),
            (Stage::SeekingGenesis, Input::Sought(Sought::Genesis)) => {
                self.go(Stage::Recording, Effect::Record);
            }
            // Another start took the lock while this one waited for its genesis, and has recorded it before it went on.
            (Stage::SeekingGenesis, Input::Sought(Sought::Beyond)) => {
                self.go(Stage::AskingBegunBeyond, Effect::AskBegun);
            }
            (Stage::AskingBegunBeyond, Input::AskedBegun(true)) => self.clear(0),
            (Stage::AskingBegunBeyond, Input::AskedBegun(false)) => self.go(Stage::Refused, Effect::Refuse),
            (Stage::CommittingGenesis, Input::GenesisCommitted) => self.go(Stage::Recording, Effect::Record),
            (Stage::Recording, Input::Recorded) => self.clear(0),
            (Stage::Clearing(step), Input::Cleared(cleared)) => {
                self.order.extend(cleared.keys().cloned());
                self.cleared.extend(cleared);
                self.clear(step + 1);
            }
            (Stage::Reading, Input::ProgressRead) => {
                let cleared = self.cleared.clone();
                self.go(Stage::Done, Effect::Done { cleared });
            }
            (stage, input) => panic!("{input:?} answers nothing that was asked: {stage:?}"),
        }
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The invariants.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        holds(self.effects.len() <= 1, "one thing is done at a time")?;
        if !matches!(self.stage, Stage::Reading | Stage::Done) {
            return Ok(());
        }
        let all = self.ids.all();
        holds(all.iter().all(|id| self.order.contains(id)), "progress is read when every id is cleared")?;
        let turn = match self.goal {
            Goal::Write => self.order.last(),
            Goal::Change => self.order.first(),
        };
        holds(
            turn == Some(&self.ids.lock),
            "the lock is the last that a run clears, and the first of a change",
        )
    }

    fn go(&mut self, stage: Stage, effect: Effect) {
        self.stage = stage;
        self.effects.push_back(effect);
    }

    fn seek_genesis(&mut self) {
        let cleared = self.cleared.clone();
        self.go(Stage::SeekingGenesis, Effect::SeekGenesis { cleared });
    }

    fn commit_genesis(&mut self) {
        let identity = self.cleared[&self.ids.lock];
        self.go(Stage::CommittingGenesis, Effect::CommitGenesis { identity });
    }

    /// The goal's next step of clearing, or the read behind the last one. What genesis has cleared is cleared again: whoever
    /// began the job at the same time has the ids by now.
    fn clear(&mut self, step: usize) {
        let steps = match self.goal {
            Goal::Write => self.ids.steps_of_start(),
            Goal::Change => self.ids.steps_of_change(),
        };
        match steps.get(step) {
            Some(ids) => self.go(Stage::Clearing(step), Effect::Clear { ids: ids.clone() }),
            None => {
                let cleared = self.cleared.clone();
                self.go(Stage::Reading, Effect::ReadProgress { cleared });
            }
        }
    }
}

/// What of these ids is aborted under its own identity before it is cleared, by what coordinators have said.
///
/// InitProducerId aborts it, too, but a coordinator that has answered that does not tell how the transaction ended, and
/// offsets whose partition was not told (KAFKA-20734) would be waited for without end. Not on V1, where an abort leaves the
/// former run its identity: that run could begin another transaction under it and commit positions there without the
/// records that were aborted.
pub fn to_abort(
    version: TransactionVersion,
    looks: &[(TransactionalId, Described)],
    ids: &[TransactionalId],
) -> BTreeMap<TransactionalId, Identity> {
    let open = looks.iter().filter_map(|(id, described)| match described {
        Described::Known { state: TransactionState::Ongoing, identity } if ids.contains(id) => {
            Some((id.clone(), *identity))
        }
        Described::Known { .. } | Described::Forgotten | Described::Unanswered(_) => None,
    });
    match version {
        TransactionVersion::V1 => BTreeMap::new(),
        TransactionVersion::V2 => open.collect(),
    }
}
