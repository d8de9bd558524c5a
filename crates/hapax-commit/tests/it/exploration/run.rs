//! One run of the world: carries out what the machines ask for, one step at a time, with answers that get lost.

use super::{
    CLUSTER, Late, Machine, Run, SHARDS, Shard, Task, World, at, lane_id, name, passes, position, split,
};
use crate::broker::Fenced;
use hapax_commit::{
    Cohort, CohortConfig, Epoch, Handle, HandlePartition, IdAt, Identity, Lane, LaneConfig, Naming,
    ProducerEpoch, ShardId, Slot, SlotBody, SlotNumber, Strategy, TopicId, TransactionalId,
    cohort::{self, End, Failure, LaneEnd, PreparedHandle, Share},
    evidence::{Described, EndTxnAnswer, LaneFate, LaneLook, PartitionLook, TransactionState, Witness},
    lane::{Outcome, Written},
    recovery::{self, LaneLoss, Resolution},
};
use std::collections::BTreeSet;

impl World {
    pub(super) fn step_run(&mut self, run: &mut Run) {
        let busy = run.tasks.len() as u32;
        if busy > 0 && self.rng.u32(..busy + 2) < busy + 1 {
            let index = self.rng.usize(..run.tasks.len());
            let task = run.tasks.swap_remove(index);
            self.carry_out(run, task);
        } else if !run.shards.is_empty() {
            match self.rng.u32(..8) {
                0 => self.live(run, cohort::Input::Tick),
                1 if self.calm => self.live(run, cohort::Input::StopWanted),
                _ => {
                    let shard = self.rng.usize(..SHARDS);
                    self.work(run, shard);
                }
            }
        }
    }

    fn carry_out(&mut self, run: &mut Run, task: Task) {
        match task {
            Task::Recover(effect) => self.recover(run, effect),
            Task::Init(at) => self.init(run, at),
            Task::Offer(slot) => self.offer(run, slot),
            Task::End(handle) => self.end(run, handle),
        }
    }

    fn recover(&mut self, run: &mut Run, effect: recovery::Effect) {
        use recovery::{Effect, Input};
        let input = match effect {
            Effect::Survey { at, .. } => {
                let described = self.describe(&at.id);
                // The chain of this world is never an old copy, so the data has no commit that it does not know.
                Input::Surveyed { at, by: Witness::Coordinator, described, beyond: None }
            }
            Effect::ClearId { at } => {
                if self.truth.is_newest(run.nonce) {
                    return run.tasks.push(Task::Init(at));
                }
                Input::ChainMoved
            }
            Effect::Look { handle, markers, .. } => {
                let markers = markers.then(|| self.controls(&handle));
                let described = self.describe(&handle.transactional_id);
                let records = self.records(&handle, &described);
                let look = LaneLook {
                    by: Witness::Coordinator,
                    described,
                    level: self.broker.version,
                    markers,
                    records,
                };
                Input::Looked { at: handle.at(), look }
            }
            Effect::EndTxn { handle, commit } => {
                let seen_by = self.incomplete.get(&handle.identity);
                let is_seen = seen_by.is_some_and(|first| first.0 <= run.nonce.0);
                assert!(!(commit && is_seen), "{} is committed without all of its records", handle.at());
                let answer = self.end_txn(&handle, commit).0;
                Input::EndTxnAnswered { at: handle.at(), answer }
            }
            Effect::ReadBack { handle, .. } => {
                let partitions = self.controls(&handle);
                Input::ReadBack { at: handle.at(), partitions }
            }
            Effect::ProbeSources { .. } => Input::SourcesProbed(Ok(())),
            Effect::Repair { handle, strategy, epoch, identity, .. } => {
                let able = self.repairs_by(strategy, handle.lane.shard.0 as usize);
                // A part may be written before it is seen that it cannot be done, or before the run ends.
                let written = self.broker.write_again(&handle, epoch, identity);
                let (Ok(prepared), false) = (written, self.chance(10)) else {
                    run.over = Some(End::Failed(Failure::Run("the repair broke off".into())));
                    return;
                };
                let outcome = if able { Ok(prepared) } else { Err("it has a hole".into()) };
                Input::Repaired { at: handle.at(), strategy, outcome }
            }
            Effect::GiveUp { committed, lost, strategy, .. } => {
                self.check_given_up(&committed, &lost);
                match strategy == Strategy::SetAside && self.chance(3) {
                    true => {
                        self.reached.not_set_aside += 1;
                        Input::GivenUp(Err("neither log nor journal has them".into()))
                    }
                    false => Input::GivenUp(Ok("incident".into())),
                }
            }
            Effect::CheckClaim if self.truth.is_newest(run.nonce) => Input::ClaimHolds,
            Effect::CheckClaim => Input::ChainMoved,
            Effect::PutSlot { number, body } => return self.plan_offer(run, number, body),
            Effect::Done(done) => return self.go_live(run, done),
            Effect::Fenced => {
                run.over = Some(End::Fenced);
                return;
            }
            Effect::Stop(incident) => {
                self.stopped_by = Some(incident);
                return;
            }
        };
        self.recovering(run, input);
    }

    /// Each lane is given up, or said to be committed, by what its log says.
    fn check_given_up(&self, committed: &[Handle], lost: &[LaneLoss]) {
        assert!(!lost.is_empty(), "nothing is given up");
        assert!(
            lost.iter().all(|lane| lane.missing == lane.lane.handle),
            "what is aborted is missing in whole"
        );
        let fates = committed.iter().map(|handle| (handle, LaneFate::Committed));
        let fates = fates.chain(lost.iter().map(|lane| (&lane.lane.handle, LaneFate::Aborted)));
        for (handle, fate) in fates {
            assert!(self.right(handle, &fate).is_some(), "{} is not {fate}", handle.at());
        }
    }

    /// Are the records of an open transaction all there?
    fn records(&mut self, handle: &Handle, described: &Described) -> Option<Result<(), String>> {
        let is_open = matches!(
            described,
            Described::Known { state: TransactionState::Ongoing, identity } if *identity == handle.identity
        );
        let is_whole = !self.incomplete.contains_key(&handle.identity);
        self.reached.seen_incomplete += u64::from(is_open && !is_whole);
        is_open.then(|| if is_whole { Ok(()) } else { Err("acknowledged records are gone".into()) })
    }

    fn describe(&mut self, id: &TransactionalId) -> Described {
        if self.chance(10) { Described::Unanswered("lost".into()) } else { self.broker.describe(id) }
    }

    fn controls(&self, handle: &Handle) -> Vec<PartitionLook> {
        let look = |part: &HandlePartition| PartitionLook {
            topic: part.topic.clone(),
            partition: part.partition,
            end: self.broker.first_control(
                part.partition as usize,
                handle.identity.producer_id,
                part.first_offset,
            ),
        };
        handle.partitions.iter().map(look).collect()
    }

    fn recovering(&mut self, run: &mut Run, input: recovery::Input) {
        let Machine::Recovery(machine) = &mut run.machine else {
            panic!("a recovery's answer in a live run")
        };
        machine.step(0, input);
        machine.check().unwrap();
        self.drain(run);
    }

    fn live(&mut self, run: &mut Run, input: cohort::Input) {
        let Machine::Cohort(machine) = &mut run.machine else { panic!("a live run's answer in recovery") };
        machine.step(0, input);
        machine.check().unwrap();
        self.drain(run);
    }

    pub(super) fn drain(&mut self, run: &mut Run) {
        loop {
            match &mut run.machine {
                Machine::Recovery(machine) => match machine.poll_effect() {
                    Some(effect) => run.tasks.push(Task::Recover(effect)),
                    None => return,
                },
                Machine::Cohort(machine) => match machine.poll_effect() {
                    Some(effect) => self.do_live(run, effect),
                    None => return,
                },
            }
        }
    }

    fn do_live(&mut self, run: &mut Run, effect: cohort::Effect) {
        match effect {
            cohort::Effect::SendBarrier { epoch, last } => {
                run.shards.iter_mut().for_each(|shard| shard.barriers.push_back((epoch, last)));
            }
            cohort::Effect::PutSlot { number, body } => self.plan_offer(run, number, body),
            cohort::Effect::Commit { handles } => {
                for handle in handles {
                    let stored = self.chain.values().any(|slot| slot.handles().contains(&handle));
                    assert!(stored, "a commit before its manifest is stored");
                    run.lanes[handle.lane.shard.0 as usize].committing(handle.epoch);
                    run.tasks.push(Task::End(handle));
                }
            }
            cohort::Effect::Recorded { epoch } => {
                assert!(
                    run.view.unresolved().is_none_or(|doubt| doubt.manifest.epoch > epoch),
                    "recorded too early"
                );
                run.lanes.iter_mut().for_each(|lane| lane.recorded(epoch));
                let prunable = run.view.prunable(2);
                self.reached.pruned += prunable.len() as u64;
                prunable.iter().for_each(|number| drop(self.chain.remove(&number.0)));
                run.view.pruned(&prunable);
            }
            cohort::Effect::End(end) => run.over = Some(end),
        }
    }

    fn go_live(&mut self, run: &mut Run, done: recovery::Done) {
        match done.resolved {
            Some((_, Resolution::Resumed)) => self.reached.resumed += 1,
            Some((_, Resolution::FoundCommitted)) => self.reached.found_committed += 1,
            Some((_, Resolution::Rewound)) => self.reached.rewound += 1,
            Some((_, Resolution::Repaired)) => self.reached.repaired += 1,
            Some((_, Resolution::Abandoned)) => self.reached.given_up += 1,
            None => {}
        }
        let shard_ids = (0..SHARDS).map(|shard| ShardId(shard as u32)).collect::<BTreeSet<_>>();
        let identities = |shard| {
            lane_id(shard)
                .transactional_ids(&name("job"))
                .map(|id: TransactionalId| done.identities[&at(&id)])
        };
        let config = |shard| LaneConfig {
            job: name("job"),
            lane: lane_id(shard),
            cluster_id: CLUSTER.into(),
            brokers: "b:1".into(),
            version: self.broker.version,
            naming: Naming::Rotating,
            first: Epoch(1),
        };
        run.lanes = (0..SHARDS).map(|shard| Lane::new(config(shard), identities(shard))).collect();
        let shard = |shard| Shard { next: done.start.positions[&split(shard)].next, ..Shard::default() };
        run.shards = (0..SHARDS).map(shard).collect();
        let config = CohortConfig { shards: shard_ids, lifetime_ms: None };
        run.machine = Machine::Cohort(Box::new(Cohort::new(config, done.start)));
    }

    fn plan_offer(&mut self, run: &mut Run, number: SlotNumber, body: SlotBody) {
        let slot = Slot { number, run: run.nonce, generation: run.generation, written_ms: 0, body };
        run.tasks.push(Task::Offer(slot));
    }

    /// A put whose answer is lost is settled by reading; where the slot is empty, the same bytes go again.
    fn offer(&mut self, run: &mut Run, slot: Slot) {
        if self.chance(8) {
            self.reached.lost_put += 1;
            if self.rng.bool() {
                self.create(&slot);
            } else {
                self.late.push(Late::Put(slot.clone()));
            }
            return run.tasks.push(Task::Offer(slot));
        }
        self.create(&slot);
        let number = slot.number;
        let Some(found) = self.chain.get(&number.0).cloned() else { unreachable!("it was just created") };
        let mine = found == slot;
        if mine {
            run.view.apply(&slot).unwrap();
            self.reached.decided += u64::from(matches!(slot.body, SlotBody::Manifest(_)));
        } else {
            assert!(
                matches!(found.body, SlotBody::Claim(_)),
                "an old run's next slot is its successor's claim"
            );
        }
        match (&run.machine, mine) {
            (Machine::Recovery(_), true) => self.recovering(run, recovery::Input::SlotStored { number }),
            (Machine::Recovery(_), false) => self.recovering(run, recovery::Input::SlotTaken { number }),
            (Machine::Cohort(_), true) => self.live(run, cohort::Input::SlotStored { number }),
            (Machine::Cohort(_), false) => self.live(run, cohort::Input::SlotTaken { number }),
        }
    }

    fn init(&mut self, run: &mut Run, at: IdAt) {
        let in_doubt = self.truth.ids_in_doubt().contains(&at);
        assert!(
            !(in_doubt && self.truth.is_newest(run.nonce)),
            "InitProducerId on {at}, whose epoch is in doubt"
        );
        self.reached.disturbed += u64::from(in_doubt);
        let mut identity = self.broker.init(&at.id, None).unwrap();
        while identity.producer_epoch >= ProducerEpoch(32_766) {
            self.reached.rolled_over += 1;
            identity = self.broker.init(&at.id, None).unwrap();
        }
        if self.chance(20) {
            return run.tasks.push(Task::Init(at));
        }
        self.recovering(run, recovery::Input::Cleared { at, identity });
    }

    fn end_txn(&mut self, handle: &Handle, commit: bool) -> (EndTxnAnswer, Identity) {
        let unknown = (EndTxnAnswer::Unknown("lost".into()), handle.identity);
        if self.chance(10) {
            self.late.push(Late::End { handle: handle.clone(), commit });
            return unknown;
        }
        let slow = self.rng.u8(..3) == 0;
        self.changed = true;
        let answer = self.broker.end(&handle.transactional_id, handle.identity, commit, slow);
        if self.chance(10) { unknown } else { answer }
    }

    fn end(&mut self, run: &mut Run, handle: Handle) {
        let (answer, next) = self.end_txn(&handle, true);
        let unknown = matches!(answer, EndTxnAnswer::Unknown(_));
        if unknown && (self.calm || self.rng.bool()) {
            return run.tasks.push(Task::End(handle));
        }
        let (ended, outcome) = match answer {
            EndTxnAnswer::Committed => (LaneEnd::Committed, Outcome::Committed { next }),
            EndTxnAnswer::Unknown(why) => (LaneEnd::NotCommitted(why), Outcome::Unknown),
            answer => (LaneEnd::NotCommitted(format!("{answer:?}")), Outcome::Aborted),
        };
        let lane = &mut run.lanes[handle.lane.shard.0 as usize];
        lane.ended(handle.epoch, outcome);
        lane.check().unwrap();
        let input = cohort::Input::LaneEnded { lane: handle.lane, epoch: handle.epoch, ended };
        self.live(run, input);
    }

    /// A shard meets a barrier, or reads a record and writes it if it passes.
    fn work(&mut self, run: &mut Run, index: usize) {
        let shard = &mut run.shards[index];
        if shard.stopped {
            return;
        }
        if !shard.barriers.is_empty() && self.rng.bool() {
            return self.barrier(run, index);
        }
        let Machine::Cohort(machine) = &run.machine else { return };
        let pending = run.shards[index].barriers.front();
        let epoch = pending.map_or(machine.writing(), |(epoch, _)| *epoch);
        let value = run.shards[index].next;
        if passes(value) && self.write(run, index, epoch, value).is_err() {
            return self.live(run, cohort::Input::Failed { why: "a record was given up".into() });
        }
        let shard = &mut run.shards[index];
        shard.next += 1;
        if !std::mem::replace(&mut shard.touched, true) {
            self.live(run, cohort::Input::Touched { shard: ShardId(index as u32), epoch });
        }
    }

    fn write(&mut self, run: &mut Run, index: usize, epoch: Epoch, value: u64) -> Result<(), Fenced> {
        if run.shards[index].writing.is_none() {
            let mut open =
                run.lanes[index].open(epoch).expect("a barrier is sent only when the next id is free");
            while open.init {
                let identity = self.broker.init(&open.transactional_id, Some(open.identity))?;
                open = run.lanes[index].identified(epoch, identity);
            }
            run.lanes[index].check().unwrap();
            run.shards[index].writing = Some((open.identity, open.transactional_id));
        }
        let shard = &mut run.shards[index];
        let (identity, id) = shard.writing.as_ref().expect("it was just opened");
        let offset = self.broker.produce(id, *identity, value)?;
        let (first, count) = shard.written.map_or((offset, 0), |(first, _, count)| (first, count));
        shard.written = Some((first, offset, count + 1));
        Ok(())
    }

    fn barrier(&mut self, run: &mut Run, index: usize) {
        let shard = &mut run.shards[index];
        let Some((epoch, last)) = shard.barriers.pop_front() else { return };
        shard.stopped = last;
        shard.touched = false;
        let mut share =
            Share { positions: [(split(index), position(shard.next))].into(), ..Share::default() };
        if shard.writing.take().is_some() {
            let partitions = |(first_offset, last_offset, count)| HandlePartition {
                topic: "out".into(),
                topic_id: TopicId([1; 16]),
                partition: index as i32,
                first_offset,
                last_offset,
                count,
                digest: None,
            };
            let written = shard.written.take().map(|part| Written {
                started_ms: 0,
                deadline_ms: i64::MAX,
                partitions: vec![partitions(part)],
            });
            run.lanes[index].flushing(epoch);
            let handle = run.lanes[index].flushed(epoch, written).unwrap();
            run.lanes[index].check().unwrap();
            share.handles.extend(handle.map(|handle| PreparedHandle { handle, deadline_ms: u64::MAX }));
        }
        self.live(run, cohort::Input::ShardPrepared { shard: ShardId(index as u32), epoch, share });
    }
}
