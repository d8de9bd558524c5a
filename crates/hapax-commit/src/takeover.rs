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
//!  genesis:    may it begin? -> clear the lock -> begun meanwhile? -> read -> commit on the lock -> record
//!              over a former life, before the read:  its ids -> look, clear all others -> end what it left open
//! ```
//!
//! Looks come first, since clearing makes coordinators forget how the last transaction of an id ended. Progress is read
//! last, since an older run commits until its last id is cleared. Why the lock comes last to one and first to the other is
//! told in [`crate::present`]. Genesis is one transaction on the lock, so there is one of it, whoever else begins the job at
//! the same time; and until it is committed no other id of the job is touched, by which a start that died here is told from
//! offsets that were lost.
//!
//! Invariants ([`TakeOver::check`]): progress is read when every id is cleared, and in the order of the goal; genesis is
//! committed under the identity that clearing the lock has given last.

use crate::{
    id::{Identity, TransactionalId},
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

/// What offsets are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expected {
    /// They are this job's progress, or nothing can go on.
    Progress,
    /// There are none, unless another start has committed genesis.
    Genesis,
    /// What they say is given up; they are only waited for.
    Anything,
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
    /// Read the offsets, once no open transaction may change them.
    Read {
        /// What is cleared.
        cleared: Cleared,
        /// What for.
        expected: Expected,
    },
    /// Commit the positions that the job begins with, on the lock.
    CommitGenesis {
        /// What writes it.
        identity: Identity,
    },
    /// Record that the job has begun.
    Record,
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
    /// Offsets were read, and are what was expected; or there are none.
    Read {
        /// Are there any?
        found: bool,
    },
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
    ReadingGenesis,
    CommittingGenesis,
    Recording,
    /// The goal's steps, by number.
    Clearing(usize),
    Reading,
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
            (Stage::AskingBegunMeanwhile, Input::AskedBegun(false)) => self.read_genesis(),
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
            (Stage::EndingLeftOpen, Input::LeftOpenEnded) => self.read_genesis(),
            // Committed by another start, or by one that died behind it.
            (Stage::ReadingGenesis, Input::Read { found: true }) if !self.overwrites => {
                self.go(Stage::Recording, Effect::Record);
            }
            (Stage::ReadingGenesis, Input::Read { .. }) => {
                let identity = self.cleared[&self.ids.lock];
                self.go(Stage::CommittingGenesis, Effect::CommitGenesis { identity });
            }
            (Stage::CommittingGenesis, Input::GenesisCommitted) => self.go(Stage::Recording, Effect::Record),
            (Stage::Recording, Input::Recorded) => self.clear(0),
            (Stage::Clearing(step), Input::Cleared(cleared)) => {
                self.order.extend(cleared.keys().cloned());
                self.cleared.extend(cleared);
                self.clear(step + 1);
            }
            (Stage::Reading, Input::Read { .. }) => {
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

    fn read_genesis(&mut self) {
        let cleared = self.cleared.clone();
        let expected = if self.overwrites { Expected::Anything } else { Expected::Genesis };
        self.go(Stage::ReadingGenesis, Effect::Read { cleared, expected });
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
                self.go(Stage::Reading, Effect::Read { cleared, expected: Expected::Progress });
            }
        }
    }
}
