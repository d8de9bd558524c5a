//! One run of a world: carries out what the machines ask for.
//!
//! It stands for the shells of the product, in as few steps as requests can be seen apart: a claim is looked at before an id
//! is cleared and not with it; a commit counts when every partition was told; a look and its answer are one step unless the
//! answer is held back.

use super::{
    super::{
        kafka::{Refused, TOPIC, TOPIC_ID, Told},
        promise::INVARIANT,
        search::Violation,
    },
    CLUSTER, Late, Step, World, fingerprint_of, lane_id, name,
    oracle::closes_the_way_back,
    position, split,
};
use hapax_commit::{
    Cohort, CohortConfig, Epoch, Generation, Handle, HandlePartition, IdAt, Identity, Lane, LaneConfig,
    Naming, Recovery, RunNonce, ShardId, Slot, SlotBody, SlotNumber, TransactionalId,
    chain::ChainView,
    cohort::{self, LaneEnd, PreparedHandle, Share},
    evidence::{Described, EndTxnAnswer, LaneLook, PartitionEnd, PartitionLook, TransactionState, Witness},
    handle::LAST_PRODUCER_EPOCH,
    lane::{OpenWith, Outcome, Written},
    recovery::{self, Resolution},
};
use std::{
    collections::{BTreeMap, VecDeque},
    hash::Hash,
    sync::Arc,
};

/// What a request was answered, and what that breaks.
type Answered<T> = Result<Told<Result<T, Refused>>, Violation>;

#[derive(Clone, Hash)]
pub(super) enum Machine {
    Recovery(Box<Recovery>),
    Cohort(Box<Cohort>),
}

/// What a run has begun and not finished.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Recover(recovery::Effect),
    /// The chain was seen to be still this run's; anything may happen before the request arrives.
    Init(IdAt),
    /// `asked`: no answer to it has come.
    Offer {
        slot: Slot,
        asked: bool,
    },
    /// EndTxn(commit) of a live run; `asked`: an answer to it was lost.
    End {
        handle: Handle,
        asked: bool,
    },
    /// Its commit is decided, and counts once its partition was told.
    Complete {
        handle: Handle,
        next: Identity,
    },
    /// An answer that is not heard yet.
    Hear(recovery::Input),
}

#[derive(Clone)]
pub(super) struct Run {
    pub(super) nonce: RunNonce,
    pub(super) generation: Generation,
    pub(super) view: Arc<ChainView>,
    pub(super) machine: Machine,
    pub(super) tasks: Vec<Task>,
    pub(super) lanes: Vec<Lane>,
    pub(super) shards: Vec<Shard>,
    pub(super) is_over: bool,
    /// It began with a lane aborted and none committed, in a job that can go back.
    pub(super) must_go_back: bool,
    /// Does it go through its ids and lanes in ascending order?
    up: bool,
    /// What the broker was like when a look at an id found it ending.
    looked: BTreeMap<IdAt, u64>,
}

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Shard {
    pub(super) next: u64,
    opening: Option<OpenWith>,
    writing: Option<(Identity, TransactionalId)>,
    /// First and last offset, and how many.
    written: Option<(i64, i64, u64)>,
    touched: bool,
    barriers: VecDeque<(Epoch, bool)>,
    /// A record of the epoch that is written, on its way.
    sent: Option<Sent>,
    /// The epoch before it, of which a record is on its way.
    flushing: Option<Flushing>,
}

#[derive(Clone, Debug, Hash)]
struct Sent {
    identity: Identity,
    id: TransactionalId,
    value: u64,
}

/// An epoch whose barrier has come, and not every acknowledgement.
#[derive(Clone, Debug, Hash)]
struct Flushing {
    epoch: Epoch,
    next: u64,
    written: Option<(i64, i64, u64)>,
    sent: Sent,
}

impl Shard {
    fn is_sending(&self) -> bool {
        self.sent.is_some() || self.flushing.is_some()
    }
}

impl Run {
    pub(super) fn new(
        nonce: RunNonce,
        generation: Generation,
        view: Arc<ChainView>,
        machine: Machine,
        up: bool,
    ) -> Self {
        Self {
            nonce,
            generation,
            view,
            machine,
            tasks: Vec::new(),
            lanes: Vec::new(),
            shards: Vec::new(),
            is_over: false,
            must_go_back: false,
            up,
            looked: BTreeMap::new(),
        }
    }

    /// Its tasks are a set.
    pub(super) fn fingerprint(&self) -> u64 {
        let tasks = self.tasks.iter().fold(0_u64, |sum, task| sum.wrapping_add(fingerprint_of(task)));
        let machines = (&self.machine, &self.lanes, &self.shards);
        let rest = (self.up, self.must_go_back, &self.looked);
        fingerprint_of(&(self.nonce, &self.view, machines, tasks, rest))
    }

    fn comes_before<T: Ord>(&self, one: &T, other: &T) -> bool {
        if self.up { one < other } else { one > other }
    }

    /// Is another shard to meet its barrier before this one?
    fn meets_later(&self, lane: usize) -> bool {
        let shards = self.shards.iter().enumerate();
        let mut waiting = shards.filter(|(_, shard)| !shard.barriers.is_empty());
        waiting.any(|(other, _)| self.comes_before(&other, &lane))
    }

    /// Reads come one after the other, and so do requests that clear and requests that end: is this task's turn?
    fn has_turn(&self, task: &Task) -> bool {
        let key = task.turn();
        let others = || self.tasks.iter().map(Task::turn);
        match &key {
            Turn::Any => true,
            Turn::Read(at) => {
                others().all(|other| !matches!(&other, Turn::Read(other) if self.comes_before(other, at)))
            }
            Turn::Clear(at) => {
                others().all(|other| !matches!(&other, Turn::Clear(other) if self.comes_before(other, at)))
            }
            Turn::End(at) => {
                others().all(|other| !matches!(&other, Turn::End(other) if self.comes_before(other, at)))
            }
        }
    }
}

/// When a task may be done, among the others of its run.
enum Turn {
    Any,
    Read(IdAt),
    Clear(IdAt),
    End(IdAt),
}

impl Task {
    fn turn(&self) -> Turn {
        use recovery::Effect;
        match self {
            Self::Recover(Effect::Survey { at, .. }) => Turn::Read(at.clone()),
            Self::Recover(Effect::Look { handle, .. } | Effect::ReadBack { handle, .. }) => {
                Turn::Read(handle.at())
            }
            Self::Recover(Effect::ClearId { at }) | Self::Init(at) => Turn::Clear(at.clone()),
            Self::Recover(Effect::EndTxn { handle, .. }) | Self::End { handle, asked: false } => {
                Turn::End(handle.at())
            }
            Self::Recover(_)
            | Self::Offer { .. }
            | Self::End { .. }
            | Self::Complete { .. }
            | Self::Hear(_) => Turn::Any,
        }
    }

    /// What it does, for a trace.
    pub(super) fn in_words(&self) -> String {
        use recovery::Effect;
        match self {
            Self::Recover(Effect::Survey { at, .. }) => format!("surveys {at}"),
            Self::Recover(Effect::ClearId { at }) => format!("makes sure of its claim, to clear {at}"),
            Self::Recover(Effect::Look { handle, markers, .. }) => {
                format!("looks at {}{}", handle.at(), if *markers { ", with control batches" } else { "" })
            }
            Self::Recover(Effect::EndTxn { handle, commit }) => {
                format!("EndTxn {} {} commit {commit}", handle.at(), handle.identity)
            }
            Self::Recover(Effect::ReadBack { handle, .. }) => format!("reads back {}", handle.at()),
            Self::Recover(Effect::ProbeSources { .. }) => "asks its sources".into(),
            Self::Recover(Effect::Repair { handle, strategy, epoch, .. }) => {
                format!("writes {} again under epoch {epoch}, by {}", handle.at(), strategy.name())
            }
            Self::Recover(Effect::GiveUp { strategy, .. }) => format!("gives up, by {}", strategy.name()),
            Self::Recover(Effect::CheckClaim) => "makes sure of its claim".into(),
            Self::Recover(effect) => format!("{effect:?}"),
            Self::Init(at) => format!("InitProducerId {at}"),
            Self::Offer { slot, .. } => format!("puts slot {}: {}", slot.number, in_words(&slot.body)),
            Self::End { handle, .. } => format!("EndTxn {} {} commit true", handle.at(), handle.identity),
            Self::Complete { handle, .. } => format!("sees that {} is told everywhere", handle.at()),
            Self::Hear(_) => "hears a slow answer".into(),
        }
    }
}

/// A slot, for a trace.
pub(super) fn in_words(body: &SlotBody) -> String {
    match body {
        SlotBody::Claim(_) => "claim".into(),
        SlotBody::Manifest(manifest) => {
            let handles: Vec<String> = manifest
                .handles
                .iter()
                .map(|handle| format!("{} {}", handle.at(), handle.identity))
                .collect();
            let positions: Vec<u64> = manifest.positions.values().map(|at| at.next).collect();
            format!("manifest {} at {positions:?} with {handles:?}", manifest.epoch)
        }
        other => format!("{other:?}"),
    }
}

impl World {
    /// What may happen to a run.
    pub(super) fn steps_of(&self, index: usize, run: &Run, steps: &mut Vec<Step>) {
        for (at, task) in run.tasks.iter().enumerate() {
            if !run.has_turn(task) || !self.is_worth_asking(run, task) {
                continue;
            }
            steps.push(Step::Do(index, at));
            self.troubles_of(index, at, task, steps);
        }
        if let Machine::Cohort(_) = run.machine {
            steps.push(Step::Tick(index));
            for (lane, shard) in run.shards.iter().enumerate() {
                if !shard.barriers.is_empty() && !run.meets_later(lane) {
                    steps.push(Step::Meet(index, lane));
                }
                if shard.is_sending() {
                    steps.push(Step::Acknowledge(index, lane));
                }
                let has_room = !(self.config.singly && shard.touched);
                if has_room && shard.sent.is_none() && shard.next < self.config.inputs {
                    steps.push(Step::Work(index, lane));
                    if self.left.unacknowledged > 0 {
                        steps.push(Step::Send(index, lane));
                    }
                }
                if self.left.empty > 0 && shard.writing.is_none() {
                    steps.push(Step::Open(index, lane));
                }
            }
        }
        if self.left.crashes > 0 {
            steps.push(Step::Crash(index));
        }
    }

    fn troubles_of(&self, index: usize, at: usize, task: &Task, steps: &mut Vec<Step>) {
        use recovery::Effect;
        let is_end = matches!(task, Task::End { .. } | Task::Recover(Effect::EndTxn { .. }));
        let is_put = matches!(task, Task::Offer { .. });
        let is_write = matches!(task, Task::Init(_) | Task::Recover(Effect::Repair { .. }));
        if self.left.lost > 0 && (is_end || is_put || is_write) {
            steps.push(Step::Lose(index, at));
        }
        let late_put = self.left.late > 0 && is_put;
        if late_put || (is_end && self.left.late + self.left.late_ends > 0) {
            steps.push(Step::Delay(index, at));
        }
        if self.left.slow > 0 && matches!(task, Task::Recover(Effect::Look { .. } | Effect::ReadBack { .. }))
        {
            steps.push(Step::Hold(index, at));
        }
        let restarts = self.left.restarts > 0 && matches!(task, Task::Offer { asked: true, .. });
        if restarts || matches!(task, Task::End { asked: true, .. }) {
            steps.push(Step::GiveUp(index, at));
        }
    }

    /// What was seen ending is looked at again when something has happened.
    fn is_worth_asking(&self, run: &Run, task: &Task) -> bool {
        use recovery::Effect;
        match task {
            Task::Recover(Effect::Look { handle, attempt, .. } | Effect::ReadBack { handle, attempt }) => {
                *attempt == 0 || run.looked.get(&handle.at()) != Some(&self.kafka.fingerprint())
            }
            Task::Complete { handle, .. } => self.is_told(handle),
            Task::Recover(_) | Task::Init(_) | Task::Offer { .. } | Task::End { .. } | Task::Hear(_) => true,
        }
    }

    fn is_told(&self, handle: &Handle) -> bool {
        let end = |part| self.kafka.first_control(part, handle.identity.producer_id);
        handle.partitions.iter().all(|part| end(part) != PartitionEnd::NoneYet)
    }

    pub(super) fn carry_out(&mut self, run: &mut Run, at: usize) -> Result<(), Violation> {
        match run.tasks.remove(at) {
            Task::Recover(effect) => self.recover(run, effect),
            Task::Init(at) => self.init(run, at),
            Task::Offer { slot, .. } => {
                self.create(&slot);
                self.hear_of(run, &slot)
            }
            Task::End { handle, asked } => match self.end(&handle, true) {
                Told::ComeAgain => {
                    run.tasks.push(Task::End { handle, asked });
                    Ok(())
                }
                Told::Definite((EndTxnAnswer::Committed, next)) => {
                    run.tasks.push(Task::Complete { handle, next });
                    Ok(())
                }
                Told::Definite((answer, _)) => {
                    let why = format!("{answer:?}");
                    self.lane_ended(run, &handle, LaneEnd::NotCommitted(why), Outcome::Aborted)
                }
            },
            Task::Complete { handle, next } => {
                self.lane_ended(run, &handle, LaneEnd::Committed, Outcome::Committed { next })
            }
            Task::Hear(input) => self.recovering(run, input),
        }
    }

    /// The request is applied; nobody hears of it.
    pub(super) fn lose(&mut self, run: &mut Run, at: usize) -> Result<(), Violation> {
        self.reached.push("lost answer");
        match run.tasks.remove(at) {
            Task::Init(at) => {
                let _ = self.kafka().init(&at.id, None);
                run.tasks.push(Task::Init(at));
                Ok(())
            }
            Task::Offer { slot, .. } => {
                self.create(&slot);
                run.tasks.push(Task::Offer { slot, asked: true });
                Ok(())
            }
            Task::End { handle, .. } => {
                let _ = self.end(&handle, true);
                run.tasks.push(Task::End { handle, asked: true });
                Ok(())
            }
            Task::Recover(recovery::Effect::EndTxn { handle, commit }) => {
                let _ = self.end(&handle, commit);
                let answer = EndTxnAnswer::Unknown("lost".into());
                self.recovering(run, recovery::Input::EndTxnAnswered { at: handle.at(), answer })
            }
            // The run is over where it cannot tell how far it came.
            Task::Recover(recovery::Effect::Repair { handle, epoch, identity, .. }) => {
                let _ = self.write_again(&handle, epoch, identity);
                run.is_over = true;
                Ok(())
            }
            other => unreachable!("{other:?} is not lost"),
        }
    }

    /// The request is on its way for longer than its sender waits.
    pub(super) fn delay(&mut self, run: &mut Run, at: usize) -> Result<(), Violation> {
        match run.tasks.remove(at) {
            Task::Offer { slot, .. } => {
                self.late.push(Late::Put(slot.clone()));
                run.tasks.push(Task::Offer { slot, asked: true });
                Ok(())
            }
            Task::End { handle, .. } => {
                self.late.push(Late::End { handle: handle.clone(), commit: true });
                run.tasks.push(Task::End { handle, asked: true });
                Ok(())
            }
            Task::Recover(recovery::Effect::EndTxn { handle, commit }) => {
                self.late.push(Late::End { handle: handle.clone(), commit });
                let answer = EndTxnAnswer::Unknown("late".into());
                self.recovering(run, recovery::Input::EndTxnAnswered { at: handle.at(), answer })
            }
            other => unreachable!("{other:?} is not late"),
        }
    }

    /// A look is answered, and the answer is heard later.
    pub(super) fn hold(&mut self, run: &mut Run, at: usize) -> Result<(), Violation> {
        let input = match run.tasks.remove(at) {
            Task::Recover(recovery::Effect::Look { handle, markers, .. }) => self.look(run, &handle, markers),
            Task::Recover(recovery::Effect::ReadBack { handle, .. }) => self.read_back(run, &handle),
            other => unreachable!("{other:?} is not slow"),
        };
        run.tasks.push(Task::Hear(input));
        Ok(())
    }

    /// Its last answer was lost, and it does not ask again.
    pub(super) fn lose_patience(&mut self, run: &mut Run, at: usize) -> Result<(), Violation> {
        match run.tasks.remove(at) {
            Task::End { handle, .. } => {
                self.lane_ended(run, &handle, LaneEnd::NotCommitted("no answer".into()), Outcome::Unknown)
            }
            Task::Offer { .. } => {
                self.left.restarts -= 1;
                self.reached.push("restart in process");
                match run.machine {
                    Machine::Recovery(_) => run.is_over = true,
                    Machine::Cohort(_) => {
                        self.live(run, cohort::Input::Failed { why: "the put has no answer".into() })?;
                    }
                }
                Ok(())
            }
            other => unreachable!("{other:?} is not waited for"),
        }
    }

    fn recover(&mut self, run: &mut Run, effect: recovery::Effect) -> Result<(), Violation> {
        use recovery::{Effect, Input};
        let input = match effect {
            Effect::Survey { at, .. } => {
                let described = self.kafka.describe(&at.id);
                // The chain of these worlds is never an old copy, so the data has no commit that it does not know.
                Input::Surveyed { at, by: Witness::Coordinator, described, beyond: None }
            }
            Effect::ClearId { at } => {
                if self.truth.is_newest(run.nonce) {
                    run.tasks.push(Task::Init(at));
                    return Ok(());
                }
                Input::ChainMoved
            }
            Effect::Look { handle, markers, .. } => self.look(run, &handle, markers),
            Effect::ReadBack { handle, .. } => self.read_back(run, &handle),
            Effect::EndTxn { handle, commit: true } if run.must_go_back && self.must_go_back() => {
                return closes_the_way_back(&handle);
            }
            Effect::EndTxn { handle, commit } => match self.end(&handle, commit) {
                Told::ComeAgain => {
                    run.tasks.push(Task::Recover(Effect::EndTxn { handle, commit }));
                    return Ok(());
                }
                Told::Definite((answer, _)) => Input::EndTxnAnswered { at: handle.at(), answer },
            },
            Effect::ProbeSources { .. } if self.config.sources_go_back => Input::SourcesProbed(Ok(())),
            Effect::ProbeSources { .. } => Input::SourcesProbed(Err("the records are gone".into())),
            Effect::Repair { handle, strategy, journal, epoch, identity } => {
                if !self.config.repairs {
                    let outcome = Err("it has a hole".into());
                    Input::Repaired { at: handle.at(), strategy, outcome }
                } else {
                    match self.write_again(&handle, epoch, identity) {
                        Told::ComeAgain => {
                            let again = Effect::Repair { handle, strategy, journal, epoch, identity };
                            run.tasks.push(Task::Recover(again));
                            return Ok(());
                        }
                        Told::Definite(Ok(prepared)) => {
                            Input::Repaired { at: handle.at(), strategy, outcome: Ok(prepared) }
                        }
                        Told::Definite(Err(Refused(_))) => {
                            run.is_over = true;
                            return Ok(());
                        }
                    }
                }
            }
            Effect::GiveUp { committed, lost, .. } => {
                self.check_given_up(&committed, &lost)?;
                Input::GivenUp(Ok("incident".into()))
            }
            Effect::CheckClaim if self.truth.is_newest(run.nonce) => Input::ClaimHolds,
            Effect::CheckClaim => Input::ChainMoved,
            other @ (Effect::PutSlot { .. } | Effect::Done(_) | Effect::Fenced | Effect::Stop(_)) => {
                unreachable!("{other:?} is followed at once")
            }
        };
        self.recovering(run, input)
    }

    fn look(&mut self, run: &mut Run, handle: &Handle, markers: bool) -> recovery::Input {
        let described = self.kafka.describe(&handle.transactional_id);
        let controls = markers.then(|| self.controls(handle));
        let (is_ending, is_open) = match &described {
            Described::Known { state, identity } => (
                matches!(
                    state,
                    TransactionState::PrepareCommit
                        | TransactionState::PrepareAbort
                        | TransactionState::PrepareEpochFence
                ),
                *state == TransactionState::Ongoing && *identity == handle.identity,
            ),
            Described::Forgotten | Described::Unanswered(_) => (false, false),
        };
        self.note_ending(run, handle, is_ending);
        let look = LaneLook {
            by: Witness::Coordinator,
            described,
            level: self.kafka.version(),
            markers: controls,
            records: is_open.then_some(Ok(())),
        };
        recovery::Input::Looked { at: handle.at(), look }
    }

    fn read_back(&mut self, run: &mut Run, handle: &Handle) -> recovery::Input {
        let partitions = self.controls(handle);
        let is_ending = partitions.iter().any(|look| look.end == PartitionEnd::NoneYet);
        self.note_ending(run, handle, is_ending);
        recovery::Input::ReadBack { at: handle.at(), partitions }
    }

    fn note_ending(&self, run: &mut Run, handle: &Handle, is_ending: bool) {
        if is_ending {
            run.looked.insert(handle.at(), self.kafka.fingerprint());
        } else {
            run.looked.remove(&handle.at());
        }
    }

    fn controls(&self, handle: &Handle) -> Vec<PartitionLook> {
        let look = |part: &HandlePartition| PartitionLook {
            topic: part.topic.clone(),
            partition: part.partition,
            end: self.kafka.first_control(part, handle.identity.producer_id),
        };
        handle.partitions.iter().map(look).collect()
    }

    fn recovering(&mut self, run: &mut Run, input: recovery::Input) -> Result<(), Violation> {
        // A run that is past its recovery hears a slow answer.
        let Machine::Recovery(machine) = &mut run.machine else { return Ok(()) };
        machine.step(0, input);
        machine.check().map_err(|broken| broken_rule(&broken))?;
        self.drain(run)
    }

    fn live(&mut self, run: &mut Run, input: cohort::Input) -> Result<(), Violation> {
        let Machine::Cohort(machine) = &mut run.machine else { unreachable!("a live run's answer") };
        machine.step(0, input);
        machine.check().map_err(|broken| broken_rule(&broken))?;
        self.drain(run)
    }

    /// Follows what asks for no request at once; what does becomes a task.
    pub(super) fn drain(&mut self, run: &mut Run) -> Result<(), Violation> {
        loop {
            match &mut run.machine {
                Machine::Recovery(machine) => {
                    while let Some(passed) = machine.poll_passed_over() {
                        drop(passed);
                        self.reached.push("strategy passed over");
                    }
                    match machine.poll_effect() {
                        Some(effect) => self.follow(run, effect)?,
                        None => return Ok(()),
                    }
                }
                Machine::Cohort(machine) => match machine.poll_effect() {
                    Some(effect) => self.follow_live(run, effect)?,
                    None => return Ok(()),
                },
            }
        }
    }

    fn follow(&mut self, run: &mut Run, effect: recovery::Effect) -> Result<(), Violation> {
        use recovery::Effect;
        match effect {
            Effect::PutSlot { number, body } => self.offer(run, number, body),
            Effect::Done(done) => self.go_live(run, done),
            Effect::Fenced => {
                self.check_fenced(run.nonce)?;
                self.reached.push("fenced in recovery");
                run.is_over = true;
            }
            Effect::Stop(incident) => {
                self.check_incident(&incident)?;
                self.reached.push("a person is called");
                self.stopped_by = Some(incident);
            }
            effect => run.tasks.push(Task::Recover(effect)),
        }
        Ok(())
    }

    fn follow_live(&mut self, run: &mut Run, effect: cohort::Effect) -> Result<(), Violation> {
        match effect {
            cohort::Effect::SendBarrier { epoch, last } => {
                run.shards.iter_mut().for_each(|shard| shard.barriers.push_back((epoch, last)));
            }
            cohort::Effect::PutSlot { number, body } => self.offer(run, number, body),
            cohort::Effect::Commit { handles } => {
                for handle in handles {
                    self.check_decided(&handle)?;
                    run.lanes[handle.lane.shard.0 as usize].committing(handle.epoch);
                    run.tasks.push(Task::End { handle, asked: false });
                }
            }
            cohort::Effect::Recorded { epoch } => {
                run.lanes.iter_mut().for_each(|lane| lane.recorded(epoch));
                let prunable = run.view.prunable(2);
                if !prunable.is_empty() {
                    self.reached.push("pruned");
                }
                for number in &prunable {
                    self.chain.remove(&number.0);
                }
                Arc::make_mut(&mut run.view).pruned(&prunable);
                Arc::make_mut(&mut self.truth).pruned(&prunable);
            }
            cohort::Effect::End(end) => {
                if end == cohort::End::Fenced {
                    self.check_fenced(run.nonce)?;
                }
                self.reached.push(match end {
                    cohort::End::Finished | cohort::End::Stopped => "orderly stop",
                    cohort::End::Fenced => "fenced zombie",
                    cohort::End::Failed(_) => "failed run",
                });
                run.is_over = true;
            }
        }
        Ok(())
    }

    fn go_live(&mut self, run: &mut Run, done: recovery::Done) {
        self.reached.push(match done.resolved {
            Some((_, Resolution::Resumed)) => "resumed",
            Some((_, Resolution::FoundCommitted)) => "found committed",
            Some((_, Resolution::Rewound)) => "rewound",
            Some((_, Resolution::Repaired)) => "written again",
            Some((_, Resolution::Abandoned)) => "abandoned",
            None => "nothing in doubt",
        });
        let lanes = 0..self.config.lanes;
        let identities = |lane| {
            lane_id(lane)
                .transactional_ids(&name("job"))
                .map(|id: TransactionalId| done.identities[&IdAt { cluster_id: CLUSTER.into(), id }])
        };
        let config = |lane| LaneConfig {
            job: name("job"),
            lane: lane_id(lane),
            cluster_id: CLUSTER.into(),
            brokers: "b:1".into(),
            version: self.kafka.version(),
            naming: Naming::Rotating,
            first: done.start.last_epoch.next(),
        };
        run.lanes = lanes.clone().map(|lane| Lane::new(config(lane), identities(lane))).collect();
        let shard = |lane| Shard { next: done.start.positions[&split(lane)].next, ..Shard::default() };
        run.shards = lanes.clone().map(shard).collect();
        let shards = lanes.map(shard_id).collect();
        let config = CohortConfig { shards, lifetime_ms: None };
        run.machine = Machine::Cohort(Box::new(Cohort::new(config, done.start)));
        run.looked.clear();
        run.tasks.clear();
    }

    fn offer(&mut self, run: &mut Run, number: SlotNumber, body: SlotBody) {
        let slot = Slot { number, run: run.nonce, generation: run.generation, written_ms: 0, body };
        run.tasks.push(Task::Offer { slot, asked: false });
    }

    /// A put is settled by what stands in its slot.
    fn hear_of(&mut self, run: &mut Run, slot: &Slot) -> Result<(), Violation> {
        let number = slot.number;
        let is_mine = self.chain.get(&number.0).is_some_and(|found| **found == *slot);
        if is_mine {
            let applied = Arc::make_mut(&mut run.view).apply(slot);
            applied.map_err(|fault| Violation { property: INVARIANT, what: format!("{fault:?}") })?;
        }
        match (&run.machine, is_mine) {
            (Machine::Recovery(_), true) => self.recovering(run, recovery::Input::SlotStored { number }),
            (Machine::Recovery(_), false) => self.recovering(run, recovery::Input::SlotTaken { number }),
            (Machine::Cohort(_), true) => self.live(run, cohort::Input::SlotStored { number }),
            (Machine::Cohort(_), false) => self.live(run, cohort::Input::SlotTaken { number }),
        }
    }

    fn init(&mut self, run: &mut Run, at: IdAt) -> Result<(), Violation> {
        match self.kafka().init(&at.id, None) {
            Told::ComeAgain => {
                run.tasks.push(Task::Init(at));
                Ok(())
            }
            Told::Definite(Ok(identity)) => {
                self.note_used_up(identity);
                self.recovering(run, recovery::Input::Cleared { at, identity })
            }
            Told::Definite(Err(Refused(_))) => {
                run.is_over = true;
                Ok(())
            }
        }
    }

    fn end(&mut self, handle: &Handle, commit: bool) -> Told<(EndTxnAnswer, Identity)> {
        self.kafka().end(&handle.transactional_id, handle.identity, handle.version, commit)
    }

    fn lane_ended(
        &mut self,
        run: &mut Run,
        handle: &Handle,
        ended: LaneEnd,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let lane = &mut run.lanes[handle.lane.shard.0 as usize];
        lane.ended(handle.epoch, outcome);
        lane.check().map_err(|broken| broken_rule(&broken))?;
        let input = cohort::Input::LaneEnded { lane: handle.lane.clone(), epoch: handle.epoch, ended };
        self.live(run, input)
    }

    /// Writes the records of a handle's transaction under another id, and prepares them.
    fn write_again(
        &mut self,
        handle: &Handle,
        epoch: Epoch,
        identity: Identity,
    ) -> Told<Result<Handle, Refused>> {
        let mut prepared = Handle {
            transactional_id: handle.lane.transactional_id(&handle.transactional_id.job, epoch),
            identity,
            epoch,
            ..handle.clone()
        };
        for part in &mut prepared.partitions {
            let values = self.kafka.written(part, handle.identity);
            let mut written: Option<(i64, i64)> = None;
            for (sequence, value) in values.into_iter().enumerate() {
                let sequence = i32::try_from(sequence).expect("a few");
                match self.kafka().produce(&prepared.transactional_id, identity, sequence, value) {
                    Told::ComeAgain => return Told::ComeAgain,
                    Told::Definite(Err(refused)) => return Told::Definite(Err(refused)),
                    Told::Definite(Ok(offset)) => {
                        written = Some((written.map_or(offset, |(first, _)| first), offset));
                    }
                }
            }
            let (first, last) = written.expect("a handle has records");
            (part.first_offset, part.last_offset) = (first, last);
        }
        Told::Definite(Ok(prepared))
    }

    pub(super) fn tick(&mut self, run: &mut Run) -> Result<(), Violation> {
        self.live(run, cohort::Input::Tick)
    }

    /// The epoch that a shard writes: until it meets a barrier, the one before that.
    fn epoch_of(run: &Run, lane: usize) -> Option<Epoch> {
        let Machine::Cohort(machine) = &run.machine else { return None };
        Some(run.shards[lane].barriers.front().map_or(machine.writing(), |(epoch, _)| *epoch))
    }

    /// A shard reads its next record and writes it.
    pub(super) fn work(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let Some(epoch) = Self::epoch_of(run, lane) else { return Ok(()) };
        let value = run.shards[lane].next;
        let told = match self.begin(run, lane, epoch)? {
            Told::Definite(Ok((identity, id))) => {
                let mut written = run.shards[lane].written;
                let told = self.write(run.nonce, lane, &mut written, &Sent { identity, id, value })?;
                run.shards[lane].written = written;
                told
            }
            Told::Definite(Err(refused)) => Told::Definite(Err(refused)),
            Told::ComeAgain => Told::ComeAgain,
        };
        match told {
            Told::ComeAgain => Ok(()),
            Told::Definite(Err(refused)) => self.refused(run, refused),
            Told::Definite(Ok(())) => self.has_read(run, lane, epoch),
        }
    }

    /// A shard reads its next record and sends it: nobody has written it yet.
    pub(super) fn send(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let Some(epoch) = Self::epoch_of(run, lane) else { return Ok(()) };
        match self.begin(run, lane, epoch)? {
            Told::ComeAgain => Ok(()),
            Told::Definite(Err(refused)) => self.refused(run, refused),
            Told::Definite(Ok((identity, id))) => {
                let shard = &mut run.shards[lane];
                shard.sent = Some(Sent { identity, id, value: shard.next });
                self.has_read(run, lane, epoch)
            }
        }
    }

    /// A shard begins the transaction of its epoch.
    pub(super) fn open(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let Some(epoch) = Self::epoch_of(run, lane) else { return Ok(()) };
        match self.begin(run, lane, epoch)? {
            Told::Definite(Ok(_)) => self.reached.push("opened without a record"),
            Told::Definite(Err(refused)) => return self.refused(run, refused),
            Told::ComeAgain => {}
        }
        Ok(())
    }

    /// What was sent is written; an epoch that waited for it is handed over.
    pub(super) fn acknowledge(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let shard = &run.shards[lane];
        let (mut written, sent) = match (&shard.flushing, &shard.sent) {
            (Some(flushing), _) => (flushing.written, flushing.sent.clone()),
            (None, Some(sent)) => (shard.written, sent.clone()),
            (None, None) => return Ok(()),
        };
        match self.write(run.nonce, lane, &mut written, &sent)? {
            Told::ComeAgain => return Ok(()),
            Told::Definite(Err(refused)) => return self.refused(run, refused),
            Told::Definite(Ok(())) => {}
        }
        let shard = &mut run.shards[lane];
        if let Some(flushing) = shard.flushing.take() {
            self.reached.push("acknowledged behind a barrier");
            return self.hand_over(run, lane, flushing.epoch, flushing.next, Some(written));
        }
        shard.sent = None;
        shard.written = written;
        Ok(())
    }

    fn refused(&mut self, run: &mut Run, Refused(code): Refused) -> Result<(), Violation> {
        self.reached.push("fenced producer");
        self.live(run, cohort::Input::Failed { why: format!("code {code}") })
    }

    fn has_read(&mut self, run: &mut Run, lane: usize, epoch: Epoch) -> Result<(), Violation> {
        let shard = &mut run.shards[lane];
        shard.next += 1;
        if !std::mem::replace(&mut shard.touched, true) {
            return self.live(run, cohort::Input::Touched { shard: shard_id(lane), epoch });
        }
        Ok(())
    }

    /// Begins a transaction, if none is begun: who writes it, and under which id.
    fn begin(&mut self, run: &mut Run, lane: usize, epoch: Epoch) -> Answered<(Identity, TransactionalId)> {
        if run.shards[lane].writing.is_none() {
            if run.shards[lane].opening.is_none() {
                // Not yet is back-pressure.
                let Ok(open) = run.lanes[lane].open(epoch) else { return Ok(Told::ComeAgain) };
                run.shards[lane].opening = Some(open);
            }
            while let Some(open) = run.shards[lane].opening.clone().filter(|open| open.init) {
                self.note_used_up(open.identity);
                let own = (!open.is_fresh).then_some(open.identity);
                match self.kafka().init(&open.transactional_id, own) {
                    Told::ComeAgain => return Ok(Told::ComeAgain),
                    Told::Definite(Err(refused)) => return Ok(Told::Definite(Err(refused))),
                    Told::Definite(Ok(identity)) => {
                        self.check_identified(run.nonce, &open.transactional_id)?;
                        run.shards[lane].opening = Some(run.lanes[lane].identified(epoch, identity));
                    }
                }
            }
            run.lanes[lane].check().map_err(|broken| broken_rule(&broken))?;
            let open = run.shards[lane].opening.take().expect("it was just opened");
            run.shards[lane].writing = Some((open.identity, open.transactional_id));
        }
        Ok(Told::Definite(Ok(run.shards[lane].writing.clone().expect("it was just opened"))))
    }

    /// Produce of a record behind what a transaction has written.
    fn write(
        &mut self,
        by: RunNonce,
        lane: usize,
        written: &mut Option<(i64, i64, u64)>,
        sent: &Sent,
    ) -> Answered<()> {
        let count = written.map_or(0, |(_, _, count)| count);
        let sequence = i32::try_from(count).expect("a few");
        Ok(match self.kafka().produce(&sent.id, sent.identity, sequence, sent.value) {
            Told::ComeAgain => Told::ComeAgain,
            Told::Definite(Err(refused)) => Told::Definite(Err(refused)),
            Told::Definite(Ok(offset)) => {
                *written = Some((written.map_or(offset, |(first, ..)| first), offset, count + 1));
                self.check_produced(by, lane, sent.value)?;
                Told::Definite(Ok(()))
            }
        })
    }

    fn note_used_up(&mut self, identity: Identity) {
        if identity.producer_epoch >= LAST_PRODUCER_EPOCH {
            self.reached.push("producer epochs used up");
        }
    }

    /// A barrier reaches a shard, which hands over at once where everything is acknowledged.
    pub(super) fn meet(&mut self, run: &mut Run, lane: usize) -> Result<(), Violation> {
        let shard = &mut run.shards[lane];
        let Some((epoch, _)) = shard.barriers.pop_front() else { return Ok(()) };
        shard.touched = false;
        let (next, written) = (shard.next, shard.written.take());
        let has_begun = shard.writing.take().is_some();
        if has_begun {
            run.lanes[lane].flushing(epoch);
        }
        if let Some(sent) = run.shards[lane].sent.take() {
            run.shards[lane].flushing = Some(Flushing { epoch, next, written, sent });
            return Ok(());
        }
        self.hand_over(run, lane, epoch, next, has_begun.then_some(written))
    }

    /// What a shard has of an epoch; `written`: of a transaction, if one was begun.
    fn hand_over(
        &mut self,
        run: &mut Run,
        lane: usize,
        epoch: Epoch,
        next: u64,
        written: Option<Option<(i64, i64, u64)>>,
    ) -> Result<(), Violation> {
        let mut share = Share { positions: [(split(lane), position(next))].into(), ..Share::default() };
        if let Some(written) = written {
            let partition = |(first_offset, last_offset, count)| HandlePartition {
                topic: TOPIC.into(),
                topic_id: TOPIC_ID,
                partition: i32::try_from(lane).expect("a few"),
                first_offset,
                last_offset,
                count,
                digest: None,
            };
            let written = written.map(|part| Written {
                started_ms: self.kafka.now_ms(),
                deadline_ms: i64::MAX,
                partitions: vec![partition(part)],
            });
            let handle = run.lanes[lane].flushed(epoch, written);
            let handle =
                handle.map_err(|fault| Violation { property: INVARIANT, what: format!("{fault:?}") })?;
            run.lanes[lane].check().map_err(|broken| broken_rule(&broken))?;
            share.handles.extend(handle.map(|handle| PreparedHandle { handle, deadline_ms: u64::MAX }));
        }
        self.live(run, cohort::Input::ShardPrepared { shard: shard_id(lane), epoch, share })
    }
}

fn shard_id(lane: usize) -> ShardId {
    ShardId(u32::try_from(lane).expect("a few"))
}

fn broken_rule(broken: &hapax_commit::Broken) -> Violation {
    Violation { property: INVARIANT, what: broken.to_string() }
}
