//! The decision table: what may be done about a decided epoch that is in doubt.
//!
//! Owns the judgement of an epoch once all its lanes have been looked at, and the choice among the strategies that
//! the job allows. Refuses to go back while a lane is, or may be, committed, and to call unknown anything else.
//!
//! | lanes | judgement |
//! | --- | --- |
//! | all committed | record it |
//! | none aborted | resume the open ones, nearest deadline first |
//! | some aborted, none committed | rewind: end the open ones, look again, give the epoch up |
//! | some aborted, some committed | resume the open ones; the aborted need `rewrite` or `replay` |
//! | one cannot be told for good | resume the open ones, never go back, then a person |
//! | one does not answer yet | wait; with a deadline near and none aborted, resume the open ones |
//!
//! With a lane known to be aborted and another silent it waits in any case: an open lane that times out meanwhile
//! is one more aborted lane, which going back needs anyway, while committing it would make going back impossible.

use crate::{evidence::LaneFate, handle::Handle};
use alloc::{string::String, vec::Vec};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Ways to resolve an epoch in doubt. A job lists those that it allows, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Commit with the handle.
    Resume,
    /// Give the epoch up and read its input again.
    Rewind,
    /// Read the aborted records from the log and write them again.
    Rewrite,
    /// Write the epoch's records again from its journal.
    Replay,
    /// Give the epoch's records up.
    Abandon,
    /// Give the epoch's records up, but keep them aside.
    SetAside,
}

impl Strategy {
    /// What a job allows unless it says otherwise.
    pub const DEFAULT: [Self; 4] = [Self::Resume, Self::Rewind, Self::Rewrite, Self::Replay];

    /// Its name in the pipeline file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Rewind => "rewind",
            Self::Rewrite => "rewrite",
            Self::Replay => "replay",
            Self::Abandon => "abandon",
            Self::SetAside => "set-aside",
        }
    }
}

/// What the lanes' fates amount to. Open handles are in order of their deadlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Every lane is committed.
    Committed,
    /// No lane is aborted.
    ResumeAll {
        /// To be committed.
        open: Vec<Handle>,
    },
    /// Some lane is aborted, none committed.
    RewindAll {
        /// To be aborted.
        open: Vec<Handle>,
    },
    /// Some lane is aborted, some committed.
    Mixed {
        /// To be committed.
        open: Vec<Handle>,
    },
    /// A lane's outcome will not be known, or two facts exclude each other.
    Stuck {
        /// To be committed.
        open: Vec<Handle>,
    },
    /// Not all is known yet, but what is open will not stay so for long.
    Hurry {
        /// To be committed.
        open: Vec<Handle>,
    },
    /// Not all is known yet.
    Wait,
}

/// Judges an epoch by its lanes. `hurry`: the deadline of an open lane is near.
pub fn judge_epoch<'a>(
    lanes: impl IntoIterator<Item = (&'a Handle, &'a LaneFate)>,
    hurry: bool,
) -> Judgement {
    let mut open: Vec<Handle> = Vec::new();
    let (mut committed, mut aborted, mut stuck, mut pending) = (false, false, false, false);
    for (handle, fate) in lanes {
        match fate {
            LaneFate::Open => open.push(handle.clone()),
            LaneFate::Committed => committed = true,
            LaneFate::Aborted => aborted = true,
            LaneFate::Unknown(_) | LaneFate::Contradiction(_) | LaneFate::BrokersAhead(_) => stuck = true,
            LaneFate::InFlight(_) | LaneFate::Undetermined(_) | LaneFate::Unanswered(_) => pending = true,
        }
    }
    open.sort_by_key(|handle| handle.deadline_ms);
    if pending {
        return if hurry && !aborted && !open.is_empty() {
            Judgement::Hurry { open }
        } else {
            Judgement::Wait
        };
    }
    match (stuck, aborted, committed) {
        (true, _, _) => Judgement::Stuck { open },
        (false, true, true) => Judgement::Mixed { open },
        (false, true, false) => Judgement::RewindAll { open },
        (false, false, _) if open.is_empty() => Judgement::Committed,
        (false, false, _) => Judgement::ResumeAll { open },
    }
}

/// What the choice needs to know beside the lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewindFacts {
    /// Does each source still serve the positions to go back to? `None`: not asked yet.
    pub sources: Option<Result<(), String>>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Put the proof.
    Record,
    /// Look again.
    Wait,
    /// Commit these, then look again.
    Resume(Vec<Handle>),
    /// Ask the sources before anything is given up.
    ProbeSources,
    /// Abort these, look again at all; with none open and all seen aborted twice, give the epoch up.
    Rewind(Vec<Handle>),
    /// Nothing that is allowed and possible is left.
    Stop(Vec<PassedOver>),
}

/// A strategy that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// Which.
    pub strategy: Strategy,
    /// Why not.
    pub why: PassReason,
}

/// Why a strategy was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassReason {
    /// The job does not list it.
    NotAllowed,
    /// This release does not have it.
    NotBuilt,
    /// The evidence excludes it.
    DoesNotFit(&'static str),
    /// A source does not have the records any more.
    SourceGone(String),
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.strategy.name();
        match &self.why {
            PassReason::NotAllowed => write!(f, "{name}: not in the job's list"),
            PassReason::NotBuilt => write!(f, "{name}: not in this release"),
            PassReason::DoesNotFit(why) => write!(f, "{name}: {why}"),
            PassReason::SourceGone(why) => write!(f, "{name}: a source cannot be read again: {why}"),
        }
    }
}

/// Chooses among the strategies that are allowed, in their order.
pub fn choose(judgement: &Judgement, allowed: &[Strategy], facts: &RewindFacts) -> Plan {
    match judgement {
        Judgement::Committed => Plan::Record,
        Judgement::Wait => Plan::Wait,
        Judgement::Hurry { open } => {
            if allowed.contains(&Strategy::Resume) {
                Plan::Resume(open.clone())
            } else {
                Plan::Wait
            }
        }
        Judgement::ResumeAll { open } => forward(open, allowed, facts, "the open lanes need `resume`"),
        Judgement::Mixed { open } => forward(open, allowed, facts, "some lane is committed"),
        Judgement::Stuck { open } => forward(open, allowed, facts, "a lane may be committed"),
        Judgement::RewindAll { open } => match &facts.sources {
            _ if !allowed.contains(&Strategy::Rewind) => {
                Plan::Stop(passed_over(allowed, PassReason::NotAllowed))
            }
            None => Plan::ProbeSources,
            Some(Ok(())) => Plan::Rewind(open.clone()),
            // There is no way back any more, so what can still be saved is what is open.
            Some(Err(_)) if !open.is_empty() && allowed.contains(&Strategy::Resume) => {
                Plan::Resume(open.clone())
            }
            Some(Err(why)) => Plan::Stop(passed_over(allowed, PassReason::SourceGone(why.clone()))),
        },
    }
}

/// Commits what is open; the rest needs strategies that this release does not have.
fn forward(open: &[Handle], allowed: &[Strategy], facts: &RewindFacts, no_rewind: &'static str) -> Plan {
    if !open.is_empty() && allowed.contains(&Strategy::Resume) {
        return Plan::Resume(open.to_vec());
    }
    Plan::Stop(passed_over(
        allowed,
        match &facts.sources {
            Some(Err(why)) => PassReason::SourceGone(why.clone()),
            Some(Ok(())) | None => PassReason::DoesNotFit(no_rewind),
        },
    ))
}

fn passed_over(allowed: &[Strategy], rewind: PassReason) -> Vec<PassedOver> {
    let all = [
        Strategy::Resume,
        Strategy::Rewind,
        Strategy::Rewrite,
        Strategy::Replay,
        Strategy::Abandon,
        Strategy::SetAside,
    ];
    let listed = allowed.iter().copied();
    let unlisted = all.into_iter().filter(|strategy| !allowed.contains(strategy));
    listed
        .chain(unlisted)
        .map(|strategy| {
            let why = match strategy {
                _ if !allowed.contains(&strategy) => PassReason::NotAllowed,
                Strategy::Resume => PassReason::DoesNotFit("no lane that needs it is open"),
                Strategy::Rewind => rewind.clone(),
                Strategy::Rewrite | Strategy::Replay | Strategy::Abandon | Strategy::SetAside => {
                    PassReason::NotBuilt
                }
            };
            PassedOver { strategy, why }
        })
        .collect()
}
