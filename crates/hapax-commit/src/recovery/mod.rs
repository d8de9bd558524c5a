//! Recovery: from a claim to the first new record.
//!
//! Owns the order of a start: survey, clear, look, resolve, record, clear the rest, go on. Refuses to send anything
//! to an id of the epoch in doubt but EndTxn with its own handle, before the epoch's outcome is in the chain.
//!
//! ```text
//!  claimed -> per cluster: survey -> clear what is not in doubt -> look at its lanes
//!                                                                      |
//!       ResumeAll: EndTxn(commit), read back .. look again <-----------+-> Stop: a person
//!       RewindAll: ask sources, EndTxn(abort), look again with the control batches
//!       Repair: look again, write what was aborted under a fresh epoch number, put `amend` .. resume that
//!                                                                      |
//!             put `proven`, `void` or `abandoned` -> clear the ids that were in doubt -> Done
//! ```
//!
//! - *Survey*: whatever was committed under an id of ours was decided by a slot of our chain, so a commit beyond the
//!   newest handle of an id shows that the store is an old copy. Clearing destroys what coordinators know of it; where
//!   an earlier start has done that, the data still tells.
//! - Every resolution is a slot before anything new is sent to its ids, and everything before that slot can be done
//!   twice: a crash at any point ends in the same place.
//! - Clusters go at their own pace until the judgement, which needs all lanes, so that one that is down keeps neither
//!   the readers of another waiting nor its deadlines unnoticed.

mod case;
pub mod handover;
mod incident;

use crate::{
    chain::{ChainView, Unresolved},
    cohort::CohortStart,
    decision::{Facts, PassedOver, Plan, Strategy, choose, judge_epoch, passed_before},
    evidence::{
        Described, EndTxnAnswer, LaneFate, LaneLook, PartitionLook, Witness, described_in_words,
        judge_described,
    },
    handle::{Handle, LAST_PRODUCER_EPOCH},
    id::{Epoch, IdAt, Identity, Naming, RunNonce, SlotNumber},
    invariant::{Broken, holds},
    journal::Journal,
    limits::HURRY_MS,
    position::Positions,
    slot::SlotBody,
};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    string::String,
    vec::Vec,
};
use case::{Case, Next};

pub use incident::{Incident, IncidentKind, LaneLoss, LaneReport};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Time has passed: a deadline may be near.
    Tick,
    /// Answer to [`Effect::Survey`].
    Surveyed {
        /// The id.
        at: IdAt,
        /// Who told it.
        by: Witness,
        /// What its coordinator knows.
        described: Described,
        /// Where that may hide commits ([`crate::evidence::may_hide_commits`]): a commit of the newest handle's producer
        /// id that the data has behind the handle's own end, in words.
        beyond: Option<String>,
    },
    /// Answer to [`Effect::ClearId`]: what was open is ended, older writers are fenced.
    Cleared {
        /// The id.
        at: IdAt,
        /// The identity to write with.
        identity: Identity,
    },
    /// Answer to [`Effect::CheckClaim`]: the newest claim is still this run's.
    ClaimHolds,
    /// The chain has a newer claim than this run's.
    ChainMoved,
    /// Answer to [`Effect::Look`].
    Looked {
        /// The handle's id.
        at: IdAt,
        /// What was seen.
        look: LaneLook,
    },
    /// Answer to [`Effect::EndTxn`].
    EndTxnAnswered {
        /// The handle's id.
        at: IdAt,
        /// The answer.
        answer: EndTxnAnswer,
    },
    /// Answer to [`Effect::ReadBack`].
    ReadBack {
        /// The handle's id.
        at: IdAt,
        /// One entry per partition of the handle.
        partitions: Vec<PartitionLook>,
    },
    /// Answer to [`Effect::ProbeSources`]; an error names source, split and reason.
    SourcesProbed(Result<(), String>),
    /// Answer to [`Effect::Repair`].
    Repaired {
        /// The aborted handle's id.
        at: IdAt,
        /// By which strategy.
        strategy: Strategy,
        /// The prepared handle, or why this strategy cannot: nothing of it counts then.
        outcome: Result<Handle, String>,
    },
    /// Answer to [`Effect::GiveUp`]: the name of the incident, or why the records cannot be set aside.
    GivenUp(Result<String, String>),
    /// The slot holds what was offered.
    SlotStored {
        /// The slot.
        number: SlotNumber,
    },
    /// The slot holds another run's claim.
    SlotTaken {
        /// The slot.
        number: SlotNumber,
    },
}

/// What is to be done. Effects are independent of each other; back off by `attempt`, which begins at 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// DescribeTransactions for the id and, where that may hide commits, a look for them in the data.
    Survey {
        /// The id.
        at: IdAt,
        /// Which try.
        attempt: u32,
    },
    /// Make sure that the newest claim is still this run's (else [`Input::ChainMoved`]), then InitProducerId without
    /// an identity: it ends what is open and fences whoever wrote.
    ClearId {
        /// The id.
        at: IdAt,
    },
    /// Read, changing nothing, what the coordinator and, with `markers`, the handle's partitions say.
    Look {
        /// The handle.
        handle: Handle,
        /// Read the control batches too.
        markers: bool,
        /// Which try.
        attempt: u32,
    },
    /// EndTxn with the handle's identity and version, until definite or until the shell's patience ends.
    EndTxn {
        /// The handle.
        handle: Handle,
        /// Commit or abort.
        commit: bool,
    },
    /// Read the first control batch of every partition of a handle whose commit was just answered.
    ReadBack {
        /// The handle.
        handle: Handle,
        /// Which try.
        attempt: u32,
    },
    /// Does every source still serve these positions?
    ProbeSources {
        /// Where reading would go on after a rewind.
        positions: Positions,
    },
    /// Write the records of an aborted transaction again, all or none, and prepare them.
    Repair {
        /// The aborted transaction.
        handle: Handle,
        /// How: from the log, or from the journal.
        strategy: Strategy,
        /// The journal of its lane, where one was kept.
        journal: Option<Journal>,
        /// The number that they are written under.
        epoch: Epoch,
        /// The identity of the id that belongs to this number.
        identity: Identity,
    },
    /// Wait until every partition of the committed lanes knows of it (clearing their ids would let a partition that does
    /// not be aborted), then write down which records are given up, kept aside first where that is the strategy.
    GiveUp {
        /// The committed transactions of the epoch.
        committed: Vec<Handle>,
        /// What readers do not see, of each transaction that was not committed in whole.
        lost: Vec<LaneLoss>,
        /// `abandon` or `set-aside`.
        strategy: Strategy,
        /// Journals of their lanes, as far as they were kept.
        journals: Vec<Journal>,
    },
    /// Is the newest claim still this run's? Asked before a person is called, because a newer run changes what an
    /// older one sees at the brokers. [`Input::ClaimHolds`] or [`Input::ChainMoved`].
    CheckClaim,
    /// Offer a slot.
    PutSlot {
        /// Where.
        number: SlotNumber,
        /// What.
        body: SlotBody,
    },
    /// Recovery is complete. Terminal.
    Done(Done),
    /// A newer run has claimed the job. Terminal.
    Fenced,
    /// A person is needed; nothing was lost. Terminal.
    Stop(Incident),
}

/// Where a run goes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    /// For the coordinator.
    pub start: CohortStart,
    /// The job has ended: there is nothing to do.
    pub finished: bool,
    /// The identity of every id that was cleared.
    pub identities: BTreeMap<IdAt, Identity>,
    /// What became of the epoch that was in doubt, if there was one.
    pub resolved: Option<(Epoch, Resolution)>,
}

/// What became of an epoch in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// It had been committed before.
    FoundCommitted,
    /// Committed with its handles.
    Resumed,
    /// Aborted in part or whole, written again and committed.
    Repaired,
    /// Given up; its input is read again.
    Rewound,
    /// Gone on from without its aborted records.
    Abandoned,
}

/// What is offered to the chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Putting {
    Resolution(Resolution),
    Amend(Vec<Handle>),
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovery {
    allowed: Vec<Strategy>,
    naming: Naming,
    unresolved: Option<Unresolved>,
    start: CohortStart,
    finished: bool,
    surveys: BTreeMap<IdAt, (Handle, u32)>,
    to_clear: BTreeSet<IdAt>,
    clearing: BTreeSet<IdAt>,
    identities: BTreeMap<IdAt, Identity>,
    cases: BTreeMap<IdAt, Case>,
    facts: Facts,
    /// Strategies that were not taken, as far as told and untold.
    passed: Vec<PassedOver>,
    untold: VecDeque<PassedOver>,
    probing: bool,
    giving_up: bool,
    resumed: bool,
    amended: bool,
    putting: Option<Putting>,
    resolved: Option<(Epoch, Resolution)>,
    stopping: Option<Incident>,
    ended: bool,
    effects: VecDeque<Effect>,
}

impl Recovery {
    /// Begins, with a chain whose newest claim is this run's. `genesis`: positions of the job record.
    pub fn new(chain: &ChainView, run: RunNonce, genesis: &Positions, allowed: &[Strategy]) -> Self {
        assert!(chain.is_newest(run), "recovery begins with the run's own claim");
        let positions = chain.progress().map_or(genesis, |manifest| &manifest.positions).clone();
        let handles = chain.unresolved().map_or(&[][..], |unresolved| &unresolved.manifest.handles);
        let mut recovery = Self {
            allowed: allowed.to_vec(),
            naming: chain.naming(),
            unresolved: chain.unresolved().cloned(),
            start: CohortStart {
                last_epoch: chain.last_epoch(),
                settled: chain.settled_epoch(),
                positions,
                next_slot: chain.next_slot(),
            },
            finished: chain.finished(),
            surveys: chain.newest_handles().map(|handle| (handle.at(), (handle.clone(), 0))).collect(),
            to_clear: chain.ids_to_clear(),
            clearing: BTreeSet::new(),
            identities: BTreeMap::new(),
            cases: handles.iter().map(|handle| (handle.at(), Case::new(handle.clone()))).collect(),
            facts: Facts::default(),
            passed: Vec::new(),
            untold: VecDeque::new(),
            probing: false,
            giving_up: false,
            resumed: false,
            amended: false,
            putting: None,
            resolved: None,
            stopping: None,
            ended: false,
            effects: VecDeque::new(),
        };
        let surveys = recovery.surveys.keys();
        recovery.effects = surveys.map(|at| Effect::Survey { at: at.clone(), attempt: 0 }).collect();
        let clusters: BTreeSet<_> =
            recovery.to_clear.iter().chain(recovery.cases.keys()).map(|at| at.cluster_id.clone()).collect();
        clusters.iter().for_each(|cluster| recovery.clear_cluster(cluster));
        recovery.finish_if_done();
        recovery
    }

    /// Takes an input. `wall_ms` is wall time in milliseconds since 1970; it hurries and decides nothing.
    pub fn step(&mut self, wall_ms: i64, input: Input) {
        if self.ended {
            return;
        }
        match (input, self.stopping.take()) {
            (Input::ChainMoved | Input::SlotTaken { .. }, _) => self.end(Effect::Fenced),
            (Input::ClaimHolds, Some(incident)) => self.end(Effect::Stop(incident)),
            (_, Some(incident)) => self.stopping = Some(incident),
            (input, None) => {
                self.take(input);
                self.go_on(wall_ms);
            }
        }
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// A listed strategy that was not taken, once with each reason.
    pub fn poll_passed_over(&mut self) -> Option<PassedOver> {
        self.untold.pop_front()
    }

    /// The invariants.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        let in_doubt = |at: &IdAt| self.unresolved.is_some() && self.cases.contains_key(at);
        let cleared = self.clearing.iter().chain(self.identities.keys());
        let queued = self.effects.iter().filter_map(|effect| match effect {
            Effect::ClearId { at } => Some(at),
            Effect::Survey { .. }
            | Effect::Look { .. }
            | Effect::EndTxn { .. }
            | Effect::ReadBack { .. }
            | Effect::ProbeSources { .. }
            | Effect::Repair { .. }
            | Effect::GiveUp { .. }
            | Effect::CheckClaim
            | Effect::PutSlot { .. }
            | Effect::Done(_)
            | Effect::Fenced
            | Effect::Stop(_) => None,
        });
        holds(
            !cleared.chain(queued).any(in_doubt),
            "no id in doubt is cleared before its outcome is in the chain",
        )?;
        let Some(putting) = &self.putting else { return self.check_end() };
        let is_aborted = |case: &Case| *case.fate() == LaneFate::Aborted && case.confirmed();
        let is_torn = |case: &Case| matches!(case.fate(), LaneFate::Torn(_)) && case.confirmed();
        let is_committed = |case: &Case| *case.fate() == LaneFate::Committed && case.confirmed();
        let (fits, rule) = match putting {
            Putting::Resolution(Resolution::FoundCommitted | Resolution::Resumed | Resolution::Repaired) => (
                self.cases.values().all(is_committed),
                "an epoch is proven only when every lane was seen committed, with its control batches",
            ),
            Putting::Resolution(Resolution::Rewound) => (
                self.cases.values().all(is_aborted),
                "an epoch is given up only when every lane was seen aborted after its end",
            ),
            Putting::Resolution(Resolution::Abandoned) => (
                self.cases.values().all(|case| is_aborted(case) || is_torn(case) || is_committed(case)),
                "an epoch is gone on from only when every lane has ended",
            ),
            Putting::Amend(handles) => (
                handles.iter().all(|new| {
                    let of_lane = |case: &&Case| case.handle().lane == new.lane;
                    self.cases.values().find(of_lane).is_some_and(is_aborted)
                }),
                "only what was seen aborted after its end is replaced",
            ),
        };
        holds(fits, rule)?;
        self.check_end()
    }

    fn check_end(&self) -> Result<(), Broken> {
        holds(!self.ended || self.effects.len() <= 1, "nothing is done after the end")
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Surveyed { at, by, described, beyond } => self.surveyed(&at, by, &described, beyond),
            Input::Cleared { at, identity } => self.cleared(at, identity),
            Input::Looked { at, look } => {
                let next = self.case(&at).looked(&look);
                self.follow(next);
            }
            Input::EndTxnAnswered { at, answer } => {
                self.resumed |= answer == EndTxnAnswer::Committed;
                let next = self.case(&at).end_answered(&answer);
                self.follow(next);
            }
            Input::ReadBack { at, partitions } => {
                let next = self.case(&at).read_back(&partitions);
                self.follow(next);
            }
            Input::SourcesProbed(sources) => {
                self.probing = false;
                self.facts.sources = Some(sources);
            }
            Input::Repaired { at, strategy, outcome } => self.repaired(at, strategy, outcome),
            Input::GivenUp(noted) => self.given_up(noted),
            Input::SlotStored { number } => self.stored(number),
            Input::Tick | Input::ClaimHolds | Input::ChainMoved | Input::SlotTaken { .. } => {}
        }
    }

    fn go_on(&mut self, wall_ms: i64) {
        if !self.ended && self.stopping.is_none() {
            self.decide(wall_ms);
            self.finish_if_done();
        }
    }

    fn surveyed(&mut self, at: &IdAt, by: Witness, described: &Described, beyond: Option<String>) {
        let (handle, attempt) = self.surveys.get_mut(at).expect("an id is surveyed when asked for");
        let fate = beyond.map_or_else(|| judge_described(handle, described), LaneFate::BrokersAhead);
        match fate {
            fate @ (LaneFate::BrokersAhead(_) | LaneFate::BrokersBehind(_)) => {
                let evidence = [described_in_words(by, described)].into();
                let lanes = [LaneReport { handle: handle.clone(), fate, evidence }].into();
                self.out_of_step(lanes);
            }
            LaneFate::Unanswered(_) => {
                *attempt = attempt.saturating_add(1);
                self.effects.push_back(Effect::Survey { at: at.clone(), attempt: *attempt });
            }
            LaneFate::Committed
            | LaneFate::Aborted
            | LaneFate::Open
            | LaneFate::Incomplete(_)
            | LaneFate::InFlight(_)
            | LaneFate::Undetermined(_)
            | LaneFate::Unknown(_)
            | LaneFate::Contradiction(_)
            | LaneFate::Torn(_) => {
                self.surveys.remove(at);
                self.clear_cluster(&at.cluster_id);
            }
        }
    }

    fn cleared(&mut self, at: IdAt, identity: Identity) {
        assert!(self.clearing.contains(&at), "an id is cleared when asked for");
        if identity.producer_epoch >= LAST_PRODUCER_EPOCH {
            // Nothing is written under the last epoch; once more gives another producer id.
            self.effects.push_back(Effect::ClearId { at });
            return;
        }
        self.clearing.remove(&at);
        let cluster = at.cluster_id.clone();
        self.identities.insert(at, identity);
        self.look_at_cluster(&cluster);
    }

    /// Clears what is not in doubt on a cluster, once all its newest handles were surveyed.
    fn clear_cluster(&mut self, cluster: &str) {
        if self.surveys.keys().any(|at| at.cluster_id == cluster) {
            return;
        }
        let (here, elsewhere) =
            core::mem::take(&mut self.to_clear).into_iter().partition(|at| at.cluster_id == cluster);
        self.to_clear = elsewhere;
        self.clear(here);
        self.look_at_cluster(cluster);
    }

    fn clear(&mut self, ids: BTreeSet<IdAt>) {
        for at in ids {
            self.clearing.insert(at.clone());
            self.effects.push_back(Effect::ClearId { at });
        }
    }

    fn look_at_cluster(&mut self, cluster: &str) {
        let busy = self.clearing.iter().chain(self.surveys.keys()).any(|at| at.cluster_id == cluster);
        if busy || self.unresolved.is_none() {
            return;
        }
        let here = self.cases.iter_mut().filter(|(at, _)| at.cluster_id == cluster);
        self.effects.extend(here.filter_map(|(_, case)| case.begin()));
    }

    fn case(&mut self, at: &IdAt) -> &mut Case {
        self.cases.get_mut(at).expect("answers come for lanes of the epoch in doubt")
    }

    fn follow(&mut self, next: Next) {
        match next {
            Next::Settle => {}
            Next::Do(effect) => self.effects.push_back(*effect),
            Next::OutOfStep => {
                let lanes = self.reports();
                self.out_of_step(lanes);
            }
        }
    }

    fn out_of_step(&mut self, lanes: Vec<LaneReport>) {
        let is_behind = |lane: &LaneReport| matches!(lane.fate, LaneFate::BrokersBehind(_));
        let kind = match lanes.iter().any(is_behind) {
            true => IncidentKind::BrokersBehind,
            false => IncidentKind::BrokersAhead,
        };
        self.stop(kind, lanes, Vec::new());
    }

    /// Judges the epoch whenever no act is under way, and does what follows.
    fn decide(&mut self, wall_ms: i64) {
        let busy = self.probing || self.giving_up || self.putting.is_some();
        let acting = busy || self.cases.values().any(Case::acting);
        let Some(unresolved) = self.unresolved.as_ref().filter(|_| !acting) else { return };
        let epoch = unresolved.manifest.epoch;
        let near = |case: &Case| {
            *case.fate() == LaneFate::Open && case.handle().deadline_ms.saturating_sub(wall_ms) < HURRY_MS
        };
        // What is looked at once more before it counts as aborted is not hurried past.
        let hurry = self.cases.values().any(near) && !self.cases.values().any(Case::said_aborted);
        let judgement = judge_epoch(self.cases.values().map(|case| (case.handle(), case.fate())), hurry);
        let plan = choose(&judgement, &self.allowed, &self.facts);
        self.note_passed(passed_before(&plan, &judgement, &self.allowed, &self.facts));
        match plan {
            Plan::Wait => {}
            // The coordinator says committed; somebody may have marked a partition aborted behind its back.
            Plan::Record if !self.all_are_confirmed() => {}
            Plan::Record => {
                let found = match (self.amended, self.resumed) {
                    (true, _) => Resolution::Repaired,
                    (false, true) => Resolution::Resumed,
                    (false, false) => Resolution::FoundCommitted,
                };
                self.resolve(found, SlotBody::Proven { epoch, finished: false });
            }
            Plan::Resume(open) => self.end_all(&open, true),
            Plan::ProbeSources => {
                self.probing = true;
                self.effects.push_back(Effect::ProbeSources { positions: self.start.positions.clone() });
            }
            Plan::Rewind(open) if !open.is_empty() => self.end_all(&open, false),
            Plan::Rewind(_) => {
                if self.all_are_confirmed() {
                    self.resolve(Resolution::Rewound, SlotBody::Void { epoch });
                }
            }
            Plan::Repair(lanes) => {
                if self.are_confirmed(&lanes.iter().map(|(handle, _)| handle.at()).collect::<Vec<_>>()) {
                    lanes.into_iter().for_each(|(handle, strategy)| self.repair(handle, strategy));
                }
            }
            Plan::Amend(handles) => {
                let body = SlotBody::Amend { epoch, handles: handles.clone() };
                self.put(Putting::Amend(handles), body);
            }
            Plan::GiveUp(lanes, strategy) => {
                if self.all_are_confirmed() {
                    self.giving_up = true;
                    let is_committed = |case: &&Case| *case.fate() == LaneFate::Committed;
                    let committed = self.cases.values().filter(is_committed);
                    let committed = committed.map(|case| case.handle().clone()).collect();
                    let journals = lanes.iter().filter_map(|handle| self.journal(handle)).collect();
                    let loss = |handle: &Handle| {
                        let case = &self.cases[&handle.at()];
                        LaneLoss { lane: case.report(), missing: case.missing() }
                    };
                    let lost = lanes.iter().map(loss).collect();
                    self.effects.push_back(Effect::GiveUp { committed, lost, strategy, journals });
                }
            }
            Plan::Stop(passed_over) => {
                let lanes = self.reports();
                self.stop(IncidentKind::Unresolved(epoch), lanes, passed_over);
            }
        }
    }

    /// Each strategy is told once with each reason.
    fn note_passed(&mut self, passed: Vec<PassedOver>) {
        for one in passed {
            if !self.passed.contains(&one) {
                self.untold.push_back(one.clone());
                self.passed.push(one);
            }
        }
    }

    fn end_all(&mut self, handles: &[Handle], commit: bool) {
        for handle in handles {
            let effect = self.case(&handle.at()).end(commit);
            self.effects.push_back(effect);
        }
    }

    /// What has ended is looked at a second time, with the control batches, before anything follows from it: the first
    /// look was before the open lanes were ended, and a delayed commit could have come between. Asks for what is
    /// missing.
    fn all_are_confirmed(&mut self) -> bool {
        let all: Vec<_> = self.cases.keys().cloned().collect();
        self.are_confirmed(&all)
    }

    fn are_confirmed(&mut self, lanes: &[IdAt]) -> bool {
        let of_these = self.cases.iter_mut().filter(|(at, _)| lanes.contains(at));
        let unconfirmed: Vec<_> = of_these.filter_map(|(_, case)| case.confirm()).collect();
        let confirmed = unconfirmed.is_empty();
        self.effects.extend(unconfirmed);
        confirmed
    }

    /// The number that a lane's aborted records are written again under: above every one used before, and of another id
    /// than the one in doubt.
    fn fresh_epoch(&self, handle: &Handle) -> Epoch {
        let next = self.start.last_epoch.next();
        if next.id_index() == handle.epoch.id_index() { next.next() } else { next }
    }

    /// The id that belongs to the fresh number.
    fn fresh_id(&self, handle: &Handle) -> IdAt {
        let (job, epoch) = (&handle.transactional_id.job, self.fresh_epoch(handle));
        let id = handle.lane.id_of(job, self.naming, epoch);
        IdAt { cluster_id: handle.cluster_id.clone(), id }
    }

    /// Waits where the id is being cleared.
    fn repair(&mut self, handle: Handle, strategy: Strategy) {
        let fresh = self.fresh_id(&handle);
        let Some(identity) = self.identities.remove(&fresh) else {
            assert!(self.clearing.contains(&fresh), "{fresh} is neither cleared nor being cleared");
            return;
        };
        let (epoch, journal) = (self.fresh_epoch(&handle), self.journal(&handle));
        self.case(&handle.at()).repair();
        self.effects.push_back(Effect::Repair { handle, strategy, journal, epoch, identity });
    }

    /// The journal of a handle's lane: of the epoch in doubt, whichever number the handle was prepared again under.
    fn journal(&self, handle: &Handle) -> Option<Journal> {
        let journals = self.unresolved.iter().flat_map(|unresolved| &unresolved.manifest.journals);
        journals.into_iter().find(|journal| journal.lane == handle.lane).cloned()
    }

    fn repaired(&mut self, at: IdAt, strategy: Strategy, outcome: Result<Handle, String>) {
        let case = self.case(&at);
        case.repaired();
        let old = case.handle().clone();
        let fresh = self.fresh_epoch(&old);
        let repair = self.facts.repairs.entry(at).or_default();
        match outcome {
            Ok(new) => {
                let fits = new.lane == old.lane && new.epoch == fresh && new.check().is_ok();
                assert!(
                    fits && new.records() == old.records(),
                    "what was prepared again is not what was aborted"
                );
                repair.prepared = Some(new);
            }
            // What it may have begun to write is ended before anybody else writes there.
            Err(why) => {
                repair.refused.push((strategy, why));
                let id = self.fresh_id(&old);
                self.clear([id].into());
            }
        }
    }

    fn given_up(&mut self, noted: Result<String, String>) {
        self.giving_up = false;
        match (noted, &self.unresolved) {
            (Ok(incident), Some(unresolved)) => {
                let body = SlotBody::Abandoned { epoch: unresolved.manifest.epoch, incident };
                self.resolve(Resolution::Abandoned, body);
            }
            (Err(why), _) => self.facts.not_set_aside = Some(why),
            (Ok(_), None) => unreachable!("only an epoch in doubt is given up"),
        }
    }

    fn resolve(&mut self, resolution: Resolution, body: SlotBody) {
        self.put(Putting::Resolution(resolution), body);
    }

    fn put(&mut self, putting: Putting, body: SlotBody) {
        self.putting = Some(putting);
        self.effects.push_back(Effect::PutSlot { number: self.start.next_slot, body });
    }

    fn stored(&mut self, number: SlotNumber) {
        assert!(number == self.start.next_slot, "one slot is offered at a time");
        self.start.next_slot = number.next();
        match self.putting.take().expect("a slot was offered") {
            Putting::Amend(handles) => self.replace(handles),
            Putting::Resolution(resolution) => self.settle(resolution),
        }
    }

    /// What was aborted is void, and its id free; what was prepared in its place is in doubt.
    fn replace(&mut self, handles: Vec<Handle>) {
        self.amended = true;
        for handle in handles {
            self.start.last_epoch = self.start.last_epoch.max(handle.epoch);
            let is_old = |(_, case): &(&IdAt, &Case)| case.handle().lane == handle.lane;
            let old = self.cases.iter().find(is_old).map(|(at, _)| at.clone());
            let old = old.expect("only lanes of the epoch in doubt are amended");
            self.cases.remove(&old);
            self.facts.repairs.remove(&old);
            self.cases.insert(handle.at(), Case::prepared(handle));
            self.clear([old].into());
        }
    }

    fn settle(&mut self, resolution: Resolution) {
        let unresolved = self.unresolved.take().expect("only an epoch in doubt is resolved");
        if resolution != Resolution::Rewound {
            self.start.settled = unresolved.manifest.epoch;
            self.start.positions = unresolved.manifest.positions;
        }
        self.resolved = Some((unresolved.manifest.epoch, resolution));
        self.clear(self.cases.keys().cloned().collect());
    }

    fn finish_if_done(&mut self) {
        let cleared = self.surveys.is_empty() && self.to_clear.is_empty() && self.clearing.is_empty();
        if !self.ended && self.unresolved.is_none() && cleared {
            let done = Done {
                start: self.start.clone(),
                finished: self.finished,
                identities: core::mem::take(&mut self.identities),
                resolved: self.resolved,
            };
            self.end(Effect::Done(done));
        }
    }

    fn reports(&self) -> Vec<LaneReport> {
        self.cases.values().map(Case::report).collect()
    }

    fn stop(&mut self, kind: IncidentKind, lanes: Vec<LaneReport>, passed_over: Vec<PassedOver>) {
        self.effects.clear();
        self.effects.push_back(Effect::CheckClaim);
        self.stopping = Some(Incident { kind, lanes, passed_over });
    }

    /// What was asked for and not sent yet is not sent any more.
    fn end(&mut self, effect: Effect) {
        self.effects.clear();
        self.effects.push_back(effect);
        self.ended = true;
    }
}
