//! One run of a world: carries out what the machines ask for.
//!
//! It stands for the shells of the product, in as few steps as requests can be seen apart: a claim is looked at before an id
//! is cleared and not with it; a commit counts when every partition was told; a look and its answer are one step unless the
//! answer is held back.

use super::{
    super::{
        kafka::{Refused, Told},
        promise::INVARIANT,
        search::Violation,
    },
    CLUSTER, Late, Step, World, fingerprint_of, lane_id, name,
    oracle::closes_the_way_back,
    shard::{Shard, shard_id},
    split,
    task::{Task, Turn},
};
use hapax_commit::{
    Cohort, CohortConfig, Epoch, Generation, Handle, HandlePartition, IdAt, Identity, Lane, LaneConfig,
    Naming, Recovery, RunNonce, Slot, SlotBody, SlotNumber, TransactionalId,
    chain::ChainView,
    cohort::{self, LaneEnd},
    evidence::{Described, EndTxnAnswer, LaneLook, PartitionEnd, PartitionLook, TransactionState, Witness},
    lane::Outcome,
    recovery::{self, Resolution},
};
use std::{collections::BTreeMap, hash::Hash, sync::Arc};

#[derive(Clone, Hash)]
pub(super) enum Machine {
    Recovery(Box<Recovery>),
    Cohort(Box<Cohort>),
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

    pub(super) fn live(&mut self, run: &mut Run, input: cohort::Input) -> Result<(), Violation> {
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
}

pub(super) fn broken_rule(broken: &hapax_commit::Broken) -> Violation {
    Violation { property: INVARIANT, what: broken.to_string() }
}
