//! Handover: what an engine's checkpoints have left, resolved without a chain of ours.
//!
//! Owns the order of a start for an engine that decides by itself: clear, look at all, judge once, commit what may be
//! committed or prepare aborted records again, report. Then it waits until the engine has stored what the report says,
//! and clears the rest. Refuses to send anything to an id that a decided transaction stands on, but EndTxn(commit),
//! before that is stored.
//!
//! ```text
//! Clearing -> Resolving: look at every transaction -> judge
//!               |            none aborted: commit them, each lane in order
//!               |            some aborted: write again what may be, else leave the open ones to the engine
//!               v
//!             Telling (partitions know of what is committed) -> Reported -> Recorded: ClearingRest -> Ready
//!                                                                 |
//!                                                                 +-- not settled: the engine stores, and begins again
//! ```
//!
//! - An engine may have decided several epochs of a lane (its store completes a checkpoint, and nobody hears of it). They
//!   are committed in order; one that is not committed holds back those behind it.
//! - As long as nothing is committed the engine can go back to the checkpoint before. So with one transaction aborted
//!   the open ones stay open, unless something was committed already or the aborted ones could be prepared again.
//! - Only the last decided transaction of a lane is written again: behind a later one its records would stand in the
//!   wrong order.
//! - What was prepared again is not committed here. The engine stores the new handle in the place of the old one, as a
//!   chain has its `amend`, and hands over once more; a crash before that loses nothing but the work.
//! - Committed is what coordinator and control batches say: an admin can mark a partition aborted behind the coordinator's
//!   back, which says committed all the same.
//! - A committed transaction's id is cleared when the engine has stored that it is committed. Before, the coordinator's
//!   memory of it is the evidence for a crash in between.

mod item;
mod word;

pub use word::{CommitWith, Effect, HandoverFault, Input, Known, Settled, Standing};

use super::{
    Effect as LaneEffect,
    case::{Case, Next},
};
use crate::{
    evidence::{EndTxnAnswer, LaneFate},
    handle::{Handle, LAST_PRODUCER_EPOCH},
    id::{Epoch, Identity, Name},
    inference::Seen,
    invariant::{Broken, holds},
};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    format,
    string::{String, ToString},
    vec::Vec,
};
use item::{Guess, Item, Kind, Telling};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Clearing,
    Resolving,
    Telling,
    Reported,
    ClearingRest,
    Ended,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handover {
    items: Vec<Item>,
    may_rewrite: bool,
    phase: Phase,
    clearing: BTreeSet<String>,
    identities: BTreeMap<String, Identity>,
    is_impatient: bool,
    effects: VecDeque<Effect>,
}

impl Handover {
    /// Begins with every decided transaction that is not known to be committed, and every id that the engine has ever
    /// used or is about to use.
    ///
    /// # Errors
    /// What was handed over cannot be; nothing was touched.
    pub fn new(
        job: &Name,
        cluster_id: &str,
        known: Vec<Known>,
        ids: impl IntoIterator<Item = String>,
        may_rewrite: bool,
    ) -> Result<Self, HandoverFault> {
        let in_doubt = check_known(job, cluster_id, &known)?;
        let of_lanes = known.iter().flat_map(lane_ids);
        let clearing: BTreeSet<String> =
            ids.into_iter().chain(of_lanes).filter(|id| !in_doubt.contains(id)).collect();
        let mut handover = Self {
            items: known.into_iter().map(Item::new).collect(),
            may_rewrite,
            phase: Phase::Clearing,
            effects: clearing.iter().map(|id| Effect::Clear { id: id.clone() }).collect(),
            clearing,
            identities: BTreeMap::new(),
            is_impatient: false,
        };
        handover.look_when_cleared();
        Ok(handover)
    }

    /// One transaction of a live lane whose commit had no plain answer: it is looked at, and committed if it is open.
    pub fn of_one(handle: Handle) -> Self {
        let mut handover = Self {
            items: [Item::new(Known::Handle(handle))].into(),
            may_rewrite: false,
            phase: Phase::Clearing,
            clearing: BTreeSet::new(),
            identities: BTreeMap::new(),
            is_impatient: false,
            effects: VecDeque::new(),
        };
        handover.look_when_cleared();
        handover
    }

    /// Takes an input. `wall_ms` is wall time in milliseconds since 1970; it hurries and decides nothing.
    pub fn step(&mut self, wall_ms: i64, input: Input) {
        match input {
            Input::Tick => {}
            Input::ClaimLost => return self.end(Effect::Superseded),
            Input::Cleared { id, identity } => self.cleared(id, identity),
            Input::Told { item } => self.told(item),
            Input::PatienceOver => self.patience_over(),
            // Nobody waits for it any more: what the report says of it stays.
            Input::Looked { .. }
            | Input::Described { .. }
            | Input::EndTxnAnswered { .. }
            | Input::ReadBack { .. }
            | Input::Rewritten { .. }
                if self.phase > Phase::Resolving => {}
            Input::Looked { item, look } => {
                let next = self.case(item).looked(&look);
                self.follow(item, next);
            }
            Input::Described { item, seen } => self.described(item, &seen),
            Input::EndTxnAnswered { item, answer } => self.end_answered(item, &answer),
            Input::ReadBack { item, partitions } => {
                let next = self.case(item).read_back(&partitions);
                self.follow(item, next);
            }
            Input::Rewritten { item, outcome } => self.rewritten(item, outcome),
        }
        self.decide(wall_ms);
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The engine has stored what the report says: no checkpoint names a transaction of it any more. What was in doubt
    /// is cleared.
    ///
    /// # Panics
    /// Before the report, or when it has a transaction that is not committed.
    pub fn recorded(&mut self) {
        assert!(self.phase == Phase::Reported, "what was not reported cannot be recorded");
        assert!(self.items.iter().all(Item::is_done), "only what is committed is done with");
        self.phase = Phase::ClearingRest;
        self.clearing = self.items.iter().map(Item::transactional_id).collect();
        self.effects.extend(self.clearing.iter().map(|id| Effect::Clear { id: id.clone() }));
        self.finish_when_cleared();
    }

    /// Has every transaction been seen committed, by coordinator, control batches and readers?
    pub fn is_settled(&self) -> bool {
        self.phase >= Phase::Reported && self.items.iter().all(Item::is_done)
    }

    /// The invariants.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        let in_doubt = |id: &String| self.items.iter().any(|item| item.transactional_id() == *id);
        if self.phase < Phase::ClearingRest {
            let touched = self.clearing.iter().chain(self.identities.keys());
            holds(
                !touched.into_iter().any(in_doubt),
                "what is in doubt is not cleared before it is recorded",
            )?;
        }
        let ahead = |item: &Item| item.acting && item.rewritten.is_none() && self.is_held_back(item);
        holds(!self.items.iter().any(ahead), "a lane's transactions are committed in order")?;
        let lost = |item: &Item| item.rewritten.is_some() && *item.fate() != LaneFate::Aborted;
        holds(!self.items.iter().any(lost), "only what is aborted is written again")
    }

    fn case(&mut self, item: usize) -> &mut Case {
        match &mut self.items[item].kind {
            Kind::Handle(case) => case,
            Kind::IdOnly(guess) => panic!("{} has no handle to look with", guess.known.transactional_id),
        }
    }

    fn guess(&mut self, item: usize) -> &mut Guess {
        match &mut self.items[item].kind {
            Kind::IdOnly(guess) => guess,
            Kind::Handle(case) => panic!("{} has a handle", case.handle().at()),
        }
    }

    fn cleared(&mut self, id: String, identity: Identity) {
        assert!(self.clearing.contains(&id), "an id is cleared when asked for");
        if identity.producer_epoch >= LAST_PRODUCER_EPOCH {
            // Nothing is written under the last epoch; once more gives another producer id.
            return self.effects.push_back(Effect::Clear { id });
        }
        self.clearing.remove(&id);
        self.identities.insert(id, identity);
        self.look_when_cleared();
        self.finish_when_cleared();
    }

    /// What the report says stays: an answer that comes behind it changes nothing.
    fn told(&mut self, item: usize) {
        if self.phase == Phase::Telling {
            self.items[item].telling = Telling::Done;
            self.report_when_told();
        }
    }

    /// What is cleared is bounded by itself, and what was not looked at cannot be reported.
    fn patience_over(&mut self) {
        match self.phase {
            Phase::Resolving => self.is_impatient = true,
            Phase::Telling => {
                let waiting = self.items.iter_mut().filter(|item| item.telling == Telling::Waits);
                waiting.for_each(|item| item.telling = Telling::TimeOver);
                self.report_when_told();
            }
            Phase::Clearing | Phase::Reported | Phase::ClearingRest | Phase::Ended => {}
        }
    }

    fn look_when_cleared(&mut self) {
        if self.phase != Phase::Clearing || !self.clearing.is_empty() {
            return;
        }
        self.phase = Phase::Resolving;
        for index in 0..self.items.len() {
            match &mut self.items[index].kind {
                Kind::Handle(case) => {
                    let effect = case.begin().expect("nobody has looked yet");
                    self.effects.push_back(of_lane(index, effect));
                }
                Kind::IdOnly(guess) => self.effects.push_back(guess.describe(index)),
            }
        }
        self.decide(i64::MIN);
    }

    fn finish_when_cleared(&mut self) {
        if self.phase == Phase::ClearingRest && self.clearing.is_empty() {
            let identities = core::mem::take(&mut self.identities);
            self.end(Effect::Ready(identities));
        }
    }

    fn follow(&mut self, item: usize, next: Next) {
        match next {
            Next::Settle | Next::OutOfStep => {}
            Next::Do(effect) => self.effects.push_back(of_lane(item, *effect)),
        }
    }

    fn described(&mut self, item: usize, seen: &Seen) {
        let guess = self.guess(item);
        if let Some(again) = guess.described(item, seen) {
            self.effects.push_back(again);
        }
    }

    fn end_answered(&mut self, item: usize, answer: &EndTxnAnswer) {
        self.items[item].acting = false;
        match &mut self.items[item].kind {
            Kind::Handle(case) => {
                let next = case.end_answered(answer);
                self.follow(item, next);
            }
            Kind::IdOnly(guess) => {
                let effect = guess.end_answered(item, answer);
                self.effects.push_back(effect);
            }
        }
    }

    fn rewritten(&mut self, item: usize, outcome: Result<Handle, String>) {
        let case = self.case(item);
        case.repaired();
        let old = case.handle().clone();
        let this = &mut self.items[item];
        this.acting = false;
        match outcome {
            Ok(new) => {
                let fits = new.lane == old.lane && new.epoch > old.epoch && new.check().is_ok();
                assert!(
                    fits && new.records() == old.records(),
                    "what was prepared again is not what was aborted"
                );
                this.rewritten = Some(new);
            }
            Err(why) => this.not_rewritten = Some(why),
        }
    }

    /// Judges all transactions whenever no act is under way, and does what follows.
    fn decide(&mut self, wall_ms: i64) {
        if self.phase != Phase::Resolving || self.items.iter().any(|item| item.acting) {
            return;
        }
        let is_broken = self.items.iter().any(Item::is_broken);
        if self.items.iter().any(Item::is_pending) && !self.is_impatient {
            let near = self.items.iter().any(|item| item.is_near(wall_ms));
            if near && !is_broken {
                self.commit_open();
            }
            return;
        }
        if self.confirm() {
            return;
        }
        let is_way_back = !self.items.iter().any(Item::may_be_committed);
        if is_broken && is_way_back {
            if !self.rewrite() {
                self.tell();
            }
            return;
        }
        if !self.commit_open() && !self.rewrite() {
            self.tell();
        }
    }

    /// Commits what is open and not held back; `false`: there is nothing.
    fn commit_open(&mut self) -> bool {
        let next: Vec<usize> =
            (0..self.items.len()).filter(|index| self.is_next(&self.items[*index])).collect();
        let mut next: Vec<(Option<i64>, usize)> =
            next.into_iter().map(|index| (self.items[index].deadline_ms(), index)).collect();
        next.sort_unstable();
        for &(_, index) in &next {
            let item = &mut self.items[index];
            // What was just sent has a time of its own, once.
            self.is_impatient &= item.was_tried;
            (item.acting, item.was_tried) = (true, true);
            let with = match &mut item.kind {
                Kind::Handle(case) => {
                    let LaneEffect::EndTxn { handle, .. } = case.end(true) else {
                        unreachable!("a lane is ended by EndTxn")
                    };
                    CommitWith::Handle(handle)
                }
                Kind::IdOnly(guess) => CommitWith::Inferred {
                    id: guess.known.transactional_id.clone(),
                    identity: guess.identity.expect("what is open was seen with an identity"),
                },
            };
            self.effects.push_back(Effect::Commit { item: index, with });
        }
        !next.is_empty()
    }

    fn is_next(&self, item: &Item) -> bool {
        *item.fate() == LaneFate::Open && !item.is_pending() && !self.is_held_back(item)
    }

    /// An earlier transaction of the lane is not committed, by its coordinator at least.
    fn is_held_back(&self, item: &Item) -> bool {
        let Some((lane, epoch)) = item.place() else { return false };
        let earlier = |other: &&Item| other.place().is_some_and(|(of, at)| of == lane && at < epoch);
        self.items.iter().filter(earlier).any(|other| !other.lets_follow())
    }

    /// Transactions that have ended are looked at a second time, with the control batches, before anything follows from it.
    fn confirm(&mut self) -> bool {
        if self.is_impatient {
            return false;
        }
        let mut asked = false;
        for index in 0..self.items.len() {
            let Kind::Handle(case) = &mut self.items[index].kind else { continue };
            if !matches!(case.fate(), LaneFate::Aborted | LaneFate::Committed) {
                continue;
            }
            if let Some(effect) = case.confirm() {
                self.effects.push_back(of_lane(index, effect));
                asked = true;
            }
        }
        asked
    }

    /// Writes again what may be; `false`: there is nothing.
    fn rewrite(&mut self) -> bool {
        let mut began = false;
        for index in 0..self.items.len() {
            let (handle, reason) = match self.may_be_rewritten(&self.items[index]) {
                None => continue,
                Some(may) => may,
            };
            let (epoch, identity) = match reason {
                Ok(fresh) => fresh,
                Err(why) => {
                    self.items[index].not_rewritten = Some(why);
                    continue;
                }
            };
            let id = handle.lane.transactional_id(&handle.transactional_id.job, epoch).to_string();
            self.identities.remove(&id);
            self.case(index).repair();
            self.items[index].acting = true;
            self.is_impatient = false;
            self.effects.push_back(Effect::Rewrite { item: index, handle, epoch, identity });
            began = true;
        }
        began
    }

    /// An aborted transaction that nothing was tried on yet: the number and identity to write it under, or why not.
    #[allow(clippy::type_complexity, reason = "said in the line above, used once")]
    fn may_be_rewritten(&self, item: &Item) -> Option<(Handle, Result<(Epoch, Identity), String>)> {
        let Kind::Handle(case) = &item.kind else { return None };
        let tried = item.rewritten.is_some() || item.not_rewritten.is_some();
        if *case.fate() != LaneFate::Aborted || !case.confirmed() || tried {
            return None;
        }
        let handle = case.handle().clone();
        if !self.may_rewrite {
            return Some((handle, Err("the engine does not allow rewrite".to_string())));
        }
        let later = |other: &&Item| {
            other.place().is_some_and(|(lane, epoch)| *lane == handle.lane && epoch > handle.epoch)
        };
        if let Some(later) = self.items.iter().find(later) {
            return Some((handle, Err(behind(later))));
        }
        let fresh = self.fresh(&handle).ok_or_else(|| {
            "each of the lane's ids stands for a decided transaction: none is free to write it under"
                .to_string()
        });
        Some((handle, fresh))
    }

    /// A number above the lane's last one whose id is cleared, and the id's identity.
    fn fresh(&self, handle: &Handle) -> Option<(Epoch, Identity)> {
        let first = handle.epoch.next();
        let numbers = [first, first.next(), first.next().next()];
        numbers.into_iter().find_map(|epoch| {
            let id = handle.lane.transactional_id(&handle.transactional_id.job, epoch).to_string();
            Some((epoch, *self.identities.get(&id)?))
        })
    }

    fn tell(&mut self) {
        self.phase = Phase::Telling;
        for (index, item) in self.items.iter_mut().enumerate() {
            match &item.kind {
                Kind::Handle(case) if item.is_committed() => {
                    self.effects.push_back(Effect::Tell { item: index, handle: case.handle().clone() });
                }
                Kind::Handle(_) | Kind::IdOnly(_) => item.telling = Telling::Done,
            }
        }
        self.report_when_told();
    }

    fn report_when_told(&mut self) {
        if self.phase == Phase::Telling && self.items.iter().all(|item| item.telling != Telling::Waits) {
            self.phase = Phase::Reported;
            let report = self.items.iter().map(|item| self.settled(item)).collect();
            self.effects.push_back(Effect::Report(report));
        }
    }

    fn settled(&self, item: &Item) -> Settled {
        let standing = match item.fate() {
            _ if item.rewritten.is_some() => Standing::Rewritten(item.rewritten.clone().expect("just seen")),
            LaneFate::Committed if item.is_done() => Standing::Committed,
            LaneFate::Committed if item.is_committed() => {
                Standing::Unknown("it is committed, and not every partition is known to know it".to_string())
            }
            LaneFate::Committed => Standing::Unknown(
                "its coordinator says committed; there was no time to look at its control batches"
                    .to_string(),
            ),
            LaneFate::Aborted => {
                Standing::Aborted(item.not_rewritten.clone().unwrap_or_else(|| match &item.kind {
                    Kind::Handle(_) => "there was no time to look at its control batches".to_string(),
                    Kind::IdOnly(_) => "only its id is known, and not where its records are".to_string(),
                }))
            }
            LaneFate::Open if item.is_pending() => {
                Standing::Unknown("its end was sent, and is not seen yet".to_string())
            }
            LaneFate::Open if self.is_held_back(item) => {
                Standing::Open("an earlier transaction of its lane is not committed".to_string())
            }
            LaneFate::Open => Standing::Open(
                "another transaction was aborted, and nothing is committed: the engine can still go back"
                    .to_string(),
            ),
            LaneFate::Incomplete(why) => Standing::Incomplete(why.clone()),
            fate @ (LaneFate::InFlight(_)
            | LaneFate::Undetermined(_)
            | LaneFate::Unanswered(_)
            | LaneFate::Contradiction(_)
            | LaneFate::Torn(_)
            | LaneFate::BrokersAhead(_)
            | LaneFate::BrokersBehind(_)) => Standing::Unknown(fate.to_string()),
            LaneFate::Unknown(why) => Standing::Unknown(why.clone()),
        };
        Settled { known: item.known(), standing }
    }

    fn end(&mut self, effect: Effect) {
        self.effects.clear();
        self.effects.push_back(effect);
        self.phase = Phase::Ended;
    }
}

impl PartialOrd for Phase {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some((*self as u8).cmp(&(*other as u8)))
    }
}

/// Why an aborted transaction is not written again behind a later one of its lane.
fn behind(later: &Item) -> String {
    let (id, is) = (later.transactional_id(), if later.is_committed() { " and is committed" } else { "" });
    format!(
        "{id} was decided after it{is}: what is written again would stand behind its records, in the wrong order; go \
         back to the checkpoint before while that is possible, or go on without them"
    )
}

fn check_known(job: &Name, cluster_id: &str, known: &[Known]) -> Result<BTreeSet<String>, HandoverFault> {
    let mut ids = BTreeSet::new();
    for known in known {
        let id = known.transactional_id();
        if let Known::Handle(handle) = known {
            handle.check().map_err(|fault| HandoverFault::Handle(id.clone(), fault))?;
            if handle.transactional_id.job != *job {
                return Err(HandoverFault::OtherJob(id));
            }
            if handle.cluster_id != cluster_id {
                return Err(HandoverFault::OtherCluster(id, handle.cluster_id.clone()));
            }
        }
        if !ids.insert(id.clone()) {
            return Err(HandoverFault::SameId(id));
        }
    }
    Ok(ids)
}

/// All ids of the lane: one of them is needed to write an aborted transaction again.
fn lane_ids(known: &Known) -> Vec<String> {
    match known {
        Known::Handle(handle) => {
            let ids = handle.lane.transactional_ids(&handle.transactional_id.job);
            ids.iter().map(ToString::to_string).collect()
        }
        Known::IdOnly(_) => Vec::new(),
    }
}

/// What a lane of a recovery asks for, in this machine's words.
fn of_lane(item: usize, effect: LaneEffect) -> Effect {
    match effect {
        LaneEffect::Look { handle, markers, attempt } => Effect::Look { item, handle, markers, attempt },
        LaneEffect::ReadBack { handle, attempt } => Effect::ReadBack { item, handle, attempt },
        other => unreachable!("a lane looks and reads back, it does not ask for {other:?}"),
    }
}
