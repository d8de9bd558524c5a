//! The decision table: what may be done about a decided epoch that is in doubt.
//!
//! Owns the judgement of an epoch once all its lanes have been looked at, and the choice among the strategies that
//! the job allows. Refuses to go back while a lane is, or may be, committed, and to call unknown anything else.
//!
//! | lanes | judgement |
//! | --- | --- |
//! | all committed | record it |
//! | none aborted | resume the open ones, nearest deadline first |
//! | some aborted, none committed | rewind: end the open ones, look again, give the epoch up; else as below |
//! | some aborted, some committed | resume the open ones, then write the aborted ones again |
//! | one open lane lost records, none committed | as if it were aborted: rewind |
//! | one open lane lost records, one committed | resume the others, never that one, then a person |
//! | one cannot be told for good | resume the open ones, never go back, then a person |
//! | one is torn: ended, and its partitions do not agree | as with one committed, then go on without what readers do not see |
//! | one does not answer yet | wait; with a deadline near and none aborted, resume the open ones |
//!
//! With a lane known to be aborted and another silent it waits in any case: an open lane that times out meanwhile
//! is one more aborted lane, which going back needs anyway, while committing it would make going back impossible.
//!
//! The judgement says whether to go back or forward; the job's list says what is allowed. Each aborted lane is written
//! again by the first of `rewrite` and `replay` in the list that can; when none can, `set-aside` or `abandon`, whichever
//! comes first. As long as no lane is committed there may be a way back, if not in this list, then in the next one of a
//! person: so the aborted lanes are prepared again first, and the open ones committed only when every aborted one is
//! prepared or may be given up.

use crate::{evidence::LaneFate, handle::Handle, id::IdAt};
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Ways to resolve an epoch in doubt. A job lists those that it allows, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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

    /// All, in the order in which they are told of.
    pub const ALL: [Self; 6] =
        [Self::Resume, Self::Rewind, Self::Rewrite, Self::Replay, Self::SetAside, Self::Abandon];

    /// Reads the name of the pipeline file.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }

    /// Writes the records of an aborted transaction again.
    pub fn repairs(self) -> bool {
        matches!(self, Self::Rewrite | Self::Replay)
    }

    /// Goes on without the records of an aborted transaction.
    pub fn gives_up(self) -> bool {
        matches!(self, Self::Abandon | Self::SetAside)
    }

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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
        /// Open without all of their records: to be aborted, never committed.
        incomplete: Vec<Handle>,
        /// Aborted already.
        aborted: Vec<Handle>,
    },
    /// Some lane is aborted, some committed.
    Mixed {
        /// To be committed.
        open: Vec<Handle>,
        /// Open without all of their records: never committed.
        incomplete: Vec<Handle>,
        /// To be written again.
        aborted: Vec<Handle>,
    },
    /// A lane's outcome will not be known, or two facts exclude each other.
    Stuck {
        /// To be committed.
        open: Vec<Handle>,
    },
    /// Some lane is torn, and all others will end one way or the other.
    Torn {
        /// To be committed.
        open: Vec<Handle>,
        /// Open without all of their records: never committed.
        incomplete: Vec<Handle>,
        /// To be written again.
        aborted: Vec<Handle>,
        /// Readers do not see all of their records.
        torn: Vec<Handle>,
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
    let (mut aborted, mut incomplete): (Vec<Handle>, Vec<Handle>) = (Vec::new(), Vec::new());
    let mut torn: Vec<Handle> = Vec::new();
    let (mut committed, mut stuck, mut pending) = (false, false, false);
    for (handle, fate) in lanes {
        match fate {
            LaneFate::Open => open.push(handle.clone()),
            LaneFate::Incomplete(_) => incomplete.push(handle.clone()),
            LaneFate::Committed => committed = true,
            LaneFate::Aborted => aborted.push(handle.clone()),
            LaneFate::Torn(_) => torn.push(handle.clone()),
            LaneFate::Unknown(_)
            | LaneFate::Contradiction(_)
            | LaneFate::BrokersAhead(_)
            | LaneFate::BrokersBehind(_) => stuck = true,
            LaneFate::InFlight(_) | LaneFate::Undetermined(_) | LaneFate::Unanswered(_) => pending = true,
        }
    }
    open.sort_by_key(|handle| handle.deadline_ms);
    let is_broken = !aborted.is_empty() || !incomplete.is_empty();
    let is_torn = !torn.is_empty();
    if pending {
        return if hurry && !is_broken && !is_torn && !open.is_empty() {
            Judgement::Hurry { open }
        } else {
            Judgement::Wait
        };
    }
    match (stuck, is_broken, committed) {
        (true, _, _) => Judgement::Stuck { open },
        (false, _, _) if is_torn => Judgement::Torn { open, incomplete, aborted, torn },
        (false, true, true) => Judgement::Mixed { open, incomplete, aborted },
        (false, true, false) => Judgement::RewindAll { open, incomplete, aborted },
        (false, false, _) if open.is_empty() => Judgement::Committed,
        (false, false, _) => Judgement::ResumeAll { open },
    }
}

/// What the choice needs to know beside the lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    /// Does each source still serve the positions to go back to? `None`: not asked yet.
    pub sources: Option<Result<(), String>>,
    /// What became of tries to write aborted transactions again, by the id of their handle.
    pub repairs: BTreeMap<IdAt, Repair>,
    /// Why the records could not be set aside.
    pub not_set_aside: Option<String>,
}

/// The tries to write one aborted transaction again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Repair {
    /// Strategies that could not, and why.
    pub refused: Vec<(Strategy, String)>,
    /// Prepared again, to take the aborted one's place.
    pub prepared: Option<Handle>,
}

impl Facts {
    /// The first strategy of the list that has not failed to write a lane again.
    fn next_repair(&self, allowed: &[Strategy], handle: &Handle) -> Option<Strategy> {
        let failed = |strategy: Strategy| {
            let repair = self.repairs.get(&handle.at());
            repair.is_some_and(|repair| repair.refused.iter().any(|(refused, _)| *refused == strategy))
        };
        allowed.iter().copied().find(|strategy| strategy.repairs() && !failed(*strategy))
    }

    fn prepared(&self, handle: &Handle) -> Option<&Handle> {
        self.repairs.get(&handle.at()).and_then(|repair| repair.prepared.as_ref())
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// Write these again, each by a strategy, and prepare them.
    Repair(Vec<(Handle, Strategy)>),
    /// Put what was prepared again in the place of what was aborted.
    Amend(Vec<Handle>),
    /// Go on without what readers do not see of these, kept aside first or not.
    GiveUp(Vec<Handle>, Strategy),
    /// Nothing that is allowed and possible is left.
    Stop(Vec<PassedOver>),
}

/// A strategy that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PassedOver {
    /// Which.
    pub strategy: Strategy,
    /// Why not.
    pub why: PassReason,
}

/// Why a strategy was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PassReason {
    /// The job does not list it.
    NotAllowed,
    /// The evidence excludes it.
    DoesNotFit(&'static str),
    /// A source does not have the records any more.
    SourceGone(String),
    /// It was tried and could not.
    Refused(String),
}

impl PassReason {
    /// One word for what is counted together.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotAllowed => "not-allowed",
            Self::DoesNotFit(_) => "does-not-fit",
            Self::SourceGone(_) => "source-gone",
            Self::Refused(_) => "refused",
        }
    }
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.strategy.name();
        match &self.why {
            PassReason::NotAllowed => write!(f, "{name}: not in the job's list"),
            PassReason::DoesNotFit(why) => write!(f, "{name}: {why}"),
            PassReason::SourceGone(why) => write!(f, "{name}: a source cannot be read again: {why}"),
            PassReason::Refused(why) => write!(f, "{name}: {why}"),
        }
    }
}

/// Chooses among the strategies that are allowed.
pub fn choose(judgement: &Judgement, allowed: &[Strategy], facts: &Facts) -> Plan {
    let may_resume = allowed.contains(&Strategy::Resume);
    match judgement {
        Judgement::Committed => Plan::Record,
        Judgement::Wait => Plan::Wait,
        Judgement::Hurry { open } if may_resume => Plan::Resume(open.clone()),
        Judgement::Hurry { .. } => Plan::Wait,
        Judgement::ResumeAll { open } | Judgement::Stuck { open } if may_resume && !open.is_empty() => {
            Plan::Resume(open.clone())
        }
        Judgement::ResumeAll { .. } => {
            Plan::Stop(passed_over(allowed, facts, "no lane is aborted, the open ones need `resume`"))
        }
        Judgement::Stuck { .. } => Plan::Stop(passed_over(allowed, facts, "a lane may be committed")),
        Judgement::Torn { open, incomplete, aborted, torn } => {
            let lanes = Lanes { open, incomplete, aborted, is_way_back: false };
            match forward(&lanes, allowed, facts, "some lane is committed in part") {
                Plan::GiveUp(lanes, strategy) => {
                    Plan::GiveUp(torn.iter().cloned().chain(lanes).collect(), strategy)
                }
                other => other,
            }
        }
        Judgement::Mixed { open, incomplete, aborted } => {
            let lanes = Lanes { open, incomplete, aborted, is_way_back: false };
            forward(&lanes, allowed, facts, "some lane is committed")
        }
        Judgement::RewindAll { open, incomplete, aborted } => match &facts.sources {
            None if allowed.contains(&Strategy::Rewind) => Plan::ProbeSources,
            Some(Ok(())) if allowed.contains(&Strategy::Rewind) => {
                Plan::Rewind(open.iter().chain(incomplete).cloned().collect())
            }
            sources => {
                let is_way_back = !matches!(sources, Some(Err(_)));
                let lanes = Lanes { open, incomplete, aborted, is_way_back };
                forward(&lanes, allowed, facts, "not in the job's list")
            }
        },
    }
}

/// The lanes of an epoch of which not all can be committed.
struct Lanes<'a> {
    open: &'a [Handle],
    incomplete: &'a [Handle],
    aborted: &'a [Handle],
    /// Nothing is committed, and the sources have the records still, as far as is known.
    is_way_back: bool,
}

/// Goes on: what is open is committed, what is aborted is written again.
fn forward(lanes: &Lanes<'_>, allowed: &[Strategy], facts: &Facts, no_rewind: &'static str) -> Plan {
    let Lanes { open, incomplete, aborted, is_way_back } = *lanes;
    let stop = || Plan::Stop(passed_over(allowed, facts, no_rewind));
    let resume = || match allowed.contains(&Strategy::Resume) {
        true => Plan::Resume(open.to_vec()),
        false => stop(),
    };
    if is_way_back && !incomplete.is_empty() {
        return stop();
    }
    if !is_way_back && !open.is_empty() {
        return resume();
    }
    let unprepared: Vec<_> = aborted.iter().filter(|handle| facts.prepared(handle).is_none()).collect();
    let next = |handle: &&Handle| Some(((*handle).clone(), facts.next_repair(allowed, handle)?));
    let repairs: Vec<_> = unprepared.iter().filter_map(next).collect();
    if !repairs.is_empty() {
        return Plan::Repair(repairs);
    }
    let gives_up = gives_up(allowed, facts);
    if !open.is_empty() {
        return if unprepared.is_empty() || gives_up.is_some() { resume() } else { stop() };
    }
    let prepared: Vec<_> = aborted.iter().filter_map(|handle| facts.prepared(handle).cloned()).collect();
    match (prepared.is_empty(), gives_up) {
        // With the way back still there, a part is not committed for a rest that nobody may give up.
        (false, None) if is_way_back && !unprepared.is_empty() => stop(),
        (false, _) => Plan::Amend(prepared),
        // What is open has not ended, and is nobody's to give up.
        (true, Some(strategy)) if incomplete.is_empty() => Plan::GiveUp(aborted.to_vec(), strategy),
        (true, _) => stop(),
    }
}

/// The first strategy of the list that may go on without records, and can.
fn gives_up(allowed: &[Strategy], facts: &Facts) -> Option<Strategy> {
    let able = |strategy: &Strategy| match strategy {
        Strategy::Abandon => true,
        Strategy::SetAside => facts.not_set_aside.is_none(),
        Strategy::Resume | Strategy::Rewind | Strategy::Rewrite | Strategy::Replay => false,
    };
    allowed.iter().copied().find(able)
}

/// Which of the allowed strategies were not taken where this was planned, and why: `resume` and `rewind` come before the
/// others, which stand in the list's order.
pub fn passed_before(
    plan: &Plan,
    judgement: &Judgement,
    allowed: &[Strategy],
    facts: &Facts,
) -> Vec<PassedOver> {
    let is_taken = |strategy: Strategy| match plan {
        Plan::Resume(_) => strategy == Strategy::Resume,
        Plan::Rewind(_) => strategy == Strategy::Rewind,
        Plan::Repair(lanes) => lanes.iter().any(|(_, by)| *by == strategy),
        Plan::GiveUp(_, by) => *by == strategy,
        Plan::Record | Plan::Wait | Plan::ProbeSources | Plan::Amend(_) | Plan::Stop(_) => false,
    };
    let place = |strategy: Strategy| match strategy {
        Strategy::Resume => 0,
        Strategy::Rewind => 1,
        other => 2 + allowed.iter().take_while(|listed| **listed != other).count(),
    };
    let last = match plan {
        Plan::Stop(_) => Some(usize::MAX),
        _ => allowed.iter().copied().filter(|strategy| is_taken(*strategy)).map(place).max(),
    };
    let Some(last) = last else { return Vec::new() };
    let no_rewind = match judgement {
        Judgement::Mixed { .. } => "some lane is committed",
        Judgement::Torn { .. } => "some lane is committed in part",
        Judgement::Stuck { .. } => "a lane may be committed",
        Judgement::Committed
        | Judgement::ResumeAll { .. }
        | Judgement::RewindAll { .. }
        | Judgement::Hurry { .. }
        | Judgement::Wait => "no lane is aborted",
    };
    let passed = passed_over(allowed, facts, no_rewind).into_iter();
    let is_before = |passed: &PassedOver| {
        // Records are given up only when nothing else is left, wherever that stands in the list.
        let is_kept_back = passed.strategy.gives_up() && matches!(plan, Plan::Repair(_));
        allowed.contains(&passed.strategy)
            && !is_taken(passed.strategy)
            && !is_kept_back
            && place(passed.strategy) < last
    };
    passed.filter(is_before).collect()
}

/// Why nothing is left, strategy by strategy.
fn passed_over(allowed: &[Strategy], facts: &Facts, no_rewind: &'static str) -> Vec<PassedOver> {
    let refused = |strategy: Strategy| {
        let of_lane = |(at, repair): (&IdAt, &Repair)| {
            let (_, why) = repair.refused.iter().find(|(refused, _)| *refused == strategy)?;
            Some(format!("{at}: {why}"))
        };
        facts.repairs.iter().filter_map(of_lane).collect::<Vec<_>>().join("; ")
    };
    let reason = |strategy: Strategy| match strategy {
        _ if !allowed.contains(&strategy) => PassReason::NotAllowed,
        Strategy::Resume => PassReason::DoesNotFit("no lane that it may commit is open"),
        Strategy::Rewind => match &facts.sources {
            Some(Err(why)) => PassReason::SourceGone(why.clone()),
            Some(Ok(())) | None => PassReason::DoesNotFit(no_rewind),
        },
        Strategy::Rewrite | Strategy::Replay => match refused(strategy) {
            why if why.is_empty() => PassReason::DoesNotFit("no lane is known to be aborted"),
            why => PassReason::Refused(why),
        },
        Strategy::SetAside => match &facts.not_set_aside {
            Some(why) => PassReason::Refused(why.clone()),
            None => PassReason::DoesNotFit("not every lane has ended"),
        },
        Strategy::Abandon => PassReason::DoesNotFit("not every lane has ended"),
    };
    let unlisted = Strategy::ALL.into_iter().filter(|strategy| !allowed.contains(strategy));
    let all = allowed.iter().copied().chain(unlisted);
    all.map(|strategy| PassedOver { strategy, why: reason(strategy) }).collect()
}
