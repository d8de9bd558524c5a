//! One run: carries out what the take-over and the ledgers ask for.
//!
//! It stands for the shells of the product, in as few steps as requests can be seen apart. Whether offsets may change and
//! what they are is one step: where they are read as progress every id is cleared, so nobody but a newer run comes in
//! between; where a genesis is sought, whatever is there by then counts.

use super::{
    super::{
        kafka::{Offset, Refused, Told},
        promise::{INVARIANT, NOT_NEEDLESSLY},
        search::Violation,
    },
    JOB, Step, World, cluster, fingerprint_of, job, lane_id, shard_id, split,
};
use hapax_commit::{
    Epoch, HandlePartition, Identity, Lane, LaneConfig, Ledger, Naming, TakeOver, TransactionVersion,
    TransactionalId,
    bookmark::{self, Past},
    evidence::{Described, EndTxnAnswer, PartitionEnd},
    lane::{OpenWith, Outcome},
    ledger::{self, Carrier, End, Flushed},
    takeover::{self, Cleared, Goal, Sought},
};
use std::collections::BTreeMap;

#[derive(Clone, Hash)]
pub(super) enum Machine {
    TakeOver(Box<TakeOver>),
    /// A ledger for each shard.
    Live(Vec<Ledger>),
}

/// What a run has begun and not finished.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Look(Vec<TransactionalId>),
    /// Whether a job of which nothing is committed has run: by what listing shows.
    JudgePast,
    /// Of what a look found open.
    Abort {
        id: TransactionalId,
        identity: Identity,
    },
    Init(TransactionalId),
    /// Whether the store has a record that it has begun.
    AskBegun,
    SeekGenesis,
    ReadProgress,
    /// Of a layout: genesis, or what a change has made of the one before.
    SendBeginning(Identity),
    EndBeginning {
        carrier: Carrier,
    },
    TellBeginning,
    Record,
    SendOffsets {
        shard: usize,
        epoch: Epoch,
        carrier: Carrier,
        next: u64,
    },
    End {
        shard: usize,
        epoch: Epoch,
        carrier: Carrier,
    },
    Tell {
        shard: usize,
        epoch: Epoch,
        carrier: Carrier,
    },
}

#[derive(Clone)]
pub(super) struct Run {
    pub(super) number: u64,
    pub(super) machine: Machine,
    pub(super) tasks: Vec<Task>,
    pub(super) lanes: Vec<Lane>,
    pub(super) is_over: bool,
    shards: Vec<Shard>,
    /// Does it clear ids in ascending order?
    up: bool,
    goal: Goal,
    /// The layout that the offsets told of when it started, if there were any.
    layout: Option<u32>,
    looks: Vec<(TransactionalId, Described)>,
    cleared: Cleared,
    /// Of each shard the newest committed epoch and the next record, as they were read.
    progress: Vec<(Epoch, u64)>,
}

#[derive(Clone, Debug, Hash)]
struct Shard {
    epoch: Epoch,
    next: u64,
    opening: Option<OpenWith>,
    writing: Option<(Identity, TransactionalId)>,
    /// First and last offset, and how many.
    written: Option<(i64, i64, u64)>,
    touched: bool,
    /// The barrier that it has not met, and whether offsets are committed although nothing moved.
    barrier: Option<(Epoch, bool)>,
    /// The identity that the end of the epoch which is being told has given.
    ended: Option<Identity>,
}

impl Run {
    pub(super) fn fingerprint(&self) -> u64 {
        let tasks = self.tasks.iter().fold(0_u64, |sum, task| sum.wrapping_add(fingerprint_of(task)));
        let start = (self.up, self.goal, self.layout, &self.looks, &self.cleared, &self.progress);
        fingerprint_of(&(self.number, &self.machine, tasks, &self.lanes, &self.shards, start))
    }

    /// What is open is aborted before anything is cleared, each in the order that was drawn.
    fn has_turn(&self, task: &Task) -> bool {
        let Some(turn) = task.turn() else { return true };
        let mut others = self.tasks.iter().filter_map(Task::turn);
        others.all(|other| match self.up {
            true => turn <= other,
            false => (turn.0, other.1) <= (other.0, turn.1),
        })
    }
}

impl Task {
    /// Of what clears ids: first that it is an InitProducerId, then the id.
    fn turn(&self) -> Option<(bool, &TransactionalId)> {
        match self {
            Self::Abort { id, .. } => Some((false, id)),
            Self::Init(id) => Some((true, id)),
            _ => None,
        }
    }

    /// What it does, for a trace.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Look(ids) => format!("looks at {} ids", ids.len()),
            Self::JudgePast => "asks whether the job has run before".into(),
            Self::Abort { id, identity } => format!("EndTxn {id} {identity} commit false"),
            Self::Init(id) => format!("InitProducerId {id}"),
            Self::AskBegun => "asks the store whether the job has begun".into(),
            Self::SeekGenesis => "reads offsets, to find a genesis".into(),
            Self::ReadProgress => "reads offsets".into(),
            Self::SendBeginning(identity) => format!("sends what a layout begins with as {identity}"),
            Self::EndBeginning { carrier } => {
                format!("EndTxn of a layout's beginning as {}", carrier.identity)
            }
            Self::TellBeginning => "sees that a layout's beginning is told".into(),
            Self::Record => "records that the job has begun".into(),
            Self::SendOffsets { shard, epoch, carrier, next } => {
                format!(
                    "sends the offset of shard {shard} behind {next} in {} of epoch {epoch}",
                    carrier.identity
                )
            }
            Self::End { epoch, carrier, .. } => {
                format!("EndTxn {} {} of epoch {epoch}", carrier.transactional_id, carrier.identity)
            }
            Self::Tell { epoch, carrier, .. } => {
                format!("sees that {} of epoch {epoch} is told everywhere", carrier.transactional_id)
            }
        }
    }
}

fn needless(what: String) -> Result<(), Violation> {
    Err(Violation { property: NOT_NEEDLESSLY, what })
}

fn broken_rule(broken: &hapax_commit::Broken) -> Violation {
    Violation { property: INVARIANT, what: broken.to_string() }
}

impl World {
    /// Reads what stands beside the offsets, and begins to take over.
    pub(super) fn start(&mut self, up: bool, goal: Goal) -> Result<(), Violation> {
        let number = self.next_run;
        self.next_run += 1;
        let machine = TakeOver::new(goal, false, self.ids());
        let mut run = Run {
            number,
            machine: Machine::TakeOver(Box::new(machine)),
            tasks: Vec::new(),
            lanes: Vec::new(),
            is_over: false,
            shards: Vec::new(),
            up,
            goal,
            layout: self.progress().and_then(Result::ok).map(|progress| progress.layout),
            looks: Vec::new(),
            cleared: Cleared::new(),
            progress: Vec::new(),
        };
        self.drain(&mut run)?;
        self.keep(run);
        Ok(())
    }

    /// What may happen to a run.
    pub(super) fn steps_of(&self, index: usize, run: &Run, steps: &mut Vec<Step>) {
        for (at, task) in run.tasks.iter().enumerate() {
            if !run.has_turn(task) || !self.is_worth_asking(task) {
                continue;
            }
            steps.push(Step::Do(index, at));
            if self.left.lost > 0 && is_request(task) {
                steps.push(Step::Lose(index, at));
            }
        }
        if let Machine::Live(_) = run.machine {
            for (shard, of) in run.shards.iter().enumerate() {
                steps.push(Step::Tick(index, shard));
                if of.barrier.is_some() {
                    steps.push(Step::Meet(index, shard));
                }
                let waits =
                    self.config.singly && (of.touched || of.barrier.is_some() || !run.tasks.is_empty());
                if of.next < self.config.inputs && !waits {
                    steps.push(Step::Work(index, shard));
                }
            }
        }
        if self.left.crashes > 0 {
            steps.push(Step::Crash(index));
        }
    }

    /// What is not there yet is not asked for.
    fn is_worth_asking(&self, task: &Task) -> bool {
        let all: Vec<usize> = (0..self.config.shards).collect();
        match task {
            Task::SeekGenesis | Task::ReadProgress | Task::TellBeginning => self.is_stable(&all),
            Task::Tell { shard, carrier, .. } => self.is_told(*shard, carrier),
            _ => true,
        }
    }

    /// A start reads offsets that a transaction holds which another run has begun behind its back.
    pub(super) fn waits_for_others(&self, run: &Run) -> bool {
        let reads = |task: &Task| matches!(task, Task::SeekGenesis | Task::ReadProgress);
        run.tasks.iter().any(|task| reads(task) && !self.is_worth_asking(task))
    }

    fn is_stable(&self, shards: &[usize]) -> bool {
        let partitions: Vec<i32> = shards.iter().map(|shard| i32::try_from(*shard).expect("a few")).collect();
        !self.kafka.is_unstable(JOB, &partitions)
    }

    fn is_told(&self, shard: usize, carrier: &Carrier) -> bool {
        let end = |(topic, partition, last): &(String, i32, i64)| {
            let part = HandlePartition {
                topic: topic.clone(),
                topic_id: super::super::kafka::TOPIC_ID,
                partition: *partition,
                first_offset: *last,
                last_offset: *last,
                count: 1,
                digest: None,
            };
            self.kafka.first_control(&part, carrier.identity.producer_id)
        };
        self.is_stable(&[shard]) && carrier.partitions.iter().all(|part| end(part) != PartitionEnd::NoneYet)
    }

    pub(super) fn end(&mut self, carrier: &Carrier) -> Told<(EndTxnAnswer, Identity)> {
        self.kafka().end(&carrier.transactional_id, carrier.identity, carrier.version, true)
    }

    pub(super) fn carry_out(&mut self, run: &mut Run, at: usize) -> Result<(), Violation> {
        match run.tasks.remove(at) {
            Task::Look(ids) => {
                for id in ids {
                    let described = self.kafka.describe(&id);
                    run.looks.push((id, described));
                }
                self.taking_over(run, takeover::Input::Looked)
            }
            Task::JudgePast => self.judge_past(run),
            Task::Abort { id, identity } => {
                match self.kafka().end(&id, identity, TransactionVersion::V2, false) {
                    Told::ComeAgain => run.tasks.push(Task::Abort { id, identity }),
                    Told::Definite(_) => {
                        let described = self.kafka.describe(&id);
                        run.looks
                            .iter_mut()
                            .filter(|(at, _)| *at == id)
                            .for_each(|(_, look)| *look = described.clone());
                        run.tasks.push(Task::Init(id));
                    }
                }
                Ok(())
            }
            Task::Init(id) => self.clear(run, id),
            Task::AskBegun => {
                let begun = self.is_recorded;
                self.taking_over(run, takeover::Input::AskedBegun(begun))
            }
            Task::SeekGenesis => self.seek_genesis(run),
            Task::ReadProgress => self.read(run),
            Task::SendBeginning(identity) => {
                self.send_beginning(run, identity);
                Ok(())
            }
            Task::EndBeginning { carrier } => {
                match self.end(&carrier) {
                    Told::ComeAgain => run.tasks.push(Task::EndBeginning { carrier }),
                    Told::Definite((EndTxnAnswer::Committed, _)) => run.tasks.push(Task::TellBeginning),
                    Told::Definite(_) => run.is_over = true,
                }
                Ok(())
            }
            Task::TellBeginning if run.goal == Goal::Change => {
                self.reached.push("changed");
                run.is_over = true;
                Ok(())
            }
            Task::TellBeginning => {
                self.reached.push("genesis");
                self.taking_over(run, takeover::Input::GenesisCommitted)
            }
            Task::Record => {
                self.is_recorded = true;
                self.taking_over(run, takeover::Input::Recorded)
            }
            Task::SendOffsets { shard, epoch, carrier, next } => {
                let offset = self.offset(run.layout.unwrap_or(1), shard, epoch, carrier.identity, next);
                match self.kafka().send_offsets(&carrier.transactional_id, carrier.identity, &[offset]) {
                    Told::ComeAgain => {
                        run.tasks.push(Task::SendOffsets { shard, epoch, carrier, next });
                        Ok(())
                    }
                    Told::Definite(Ok(())) => self.live(run, shard, ledger::Input::OffsetsTaken { epoch }),
                    Told::Definite(Err(refused)) => self.refused(run, shard, refused),
                }
            }
            Task::End { shard, epoch, carrier } => match self.end(&carrier) {
                Told::ComeAgain => {
                    run.tasks.push(Task::End { shard, epoch, carrier });
                    Ok(())
                }
                Told::Definite((EndTxnAnswer::Committed, next)) => {
                    run.shards[shard].ended = Some(next);
                    self.live(run, shard, ledger::Input::Committed { epoch })
                }
                Told::Definite((answer, _)) => {
                    self.reached.push("not committed");
                    self.live(run, shard, ledger::Input::Failed { why: format!("{answer:?}") })
                }
            },
            Task::Tell { shard, epoch, .. } => self.live(run, shard, ledger::Input::Told { epoch }),
        }
    }

    /// The request is applied; nobody hears of it, and it is sent again.
    pub(super) fn lose(&mut self, run: &mut Run, at: usize) -> Result<(), Violation> {
        match run.tasks[at].clone() {
            Task::Abort { id, identity } => {
                drop(self.kafka().end(&id, identity, TransactionVersion::V2, false))
            }
            Task::Init(id) => drop(self.kafka().init(&id, None)),
            // The first copy is on its way, and may come behind the second.
            Task::EndBeginning { carrier } | Task::End { carrier, .. } if self.left.late > 0 => {
                self.delay(carrier)
            }
            Task::EndBeginning { carrier } | Task::End { carrier, .. } => drop(self.end(&carrier)),
            Task::SendBeginning(identity) => {
                let (lock, offsets) = (self.ids().lock, self.beginning_of(run, identity));
                let _ = self.kafka().send_offsets(&lock, identity, &offsets);
            }
            Task::SendOffsets { shard, epoch, carrier, next } => {
                let offset = self.offset(run.layout.unwrap_or(1), shard, epoch, carrier.identity, next);
                let _ = self.kafka().send_offsets(&carrier.transactional_id, carrier.identity, &[offset]);
            }
            other => unreachable!("{other:?} is not lost"),
        }
        Ok(())
    }

    /// With a store a job is judged by the topic of its own, which brokers do not forget.
    fn judge_past(&mut self, run: &mut Run) -> Result<(), Violation> {
        let lock = self.ids().lock;
        let is_known = |id: &TransactionalId| !matches!(self.kafka.describe(id), Described::Forgotten);
        let past = bookmark::judge_past(&lock, &run.looks);
        let (known, is_under_way) = match self.config.store {
            true if past == Past::None && self.has_topic => (Some(lock.clone()), is_known(&lock)),
            true => (None, true),
            false => {
                let listed = self.ids().others.into_iter().find(is_known);
                let known = if let Past::Known(id) = past { Some(id) } else { listed };
                let all: Vec<usize> = (0..self.config.shards).collect();
                (known, self.progress().is_some() || !self.is_stable(&all))
            }
        };
        match known {
            None => self.taking_over(run, takeover::Input::MayBegin),
            // Another run has begun it meanwhile: this one starts again.
            Some(_) if is_under_way => {
                self.reached.push("begun meanwhile");
                run.is_over = true;
                Ok(())
            }
            Some(id) => needless(format!("the job has no offsets, and {id} is known")),
        }
    }

    fn clear(&mut self, run: &mut Run, id: TransactionalId) -> Result<(), Violation> {
        match self.kafka().init(&id, None) {
            Told::ComeAgain => {
                run.tasks.push(Task::Init(id));
                Ok(())
            }
            Told::Definite(Ok(identity)) => {
                run.cleared.insert(id, identity);
                if run.tasks.iter().any(|task| task.turn().is_some()) {
                    return Ok(());
                }
                let cleared = std::mem::take(&mut run.cleared);
                self.taking_over(run, takeover::Input::Cleared(cleared))
            }
            Told::Definite(Err(Refused(_))) => {
                run.is_over = true;
                Ok(())
            }
        }
    }

    fn seek_genesis(&mut self, run: &mut Run) -> Result<(), Violation> {
        let sought = match self.progress() {
            None => match bookmark::judge_past(&self.ids().lock, &run.looks) {
                Past::None | Past::Interrupted => Sought::Nothing,
                past => return needless(format!("the job has no offsets: {past:?}")),
            },
            Some(Err(fault)) => return needless(fault),
            Some(Ok(progress)) => {
                let at_genesis = progress.shards.values().all(|shard| shard.epoch == Epoch::GENESIS);
                if self.config.store && !at_genesis { Sought::Beyond } else { Sought::Genesis }
            }
        };
        if sought == Sought::Beyond {
            self.reached.push("beyond genesis");
        }
        self.taking_over(run, takeover::Input::Sought(sought))
    }

    fn read(&mut self, run: &mut Run) -> Result<(), Violation> {
        let progress = match self.progress() {
            Some(Ok(progress)) => progress,
            Some(Err(fault)) => return needless(fault),
            None => return needless("the job has begun and has no offsets".into()),
        };
        if run.layout.is_some_and(|layout| layout != progress.layout) {
            // The layout was another one a moment ago: the run starts again.
            self.reached.push("layout changed meanwhile");
            run.is_over = true;
            return Ok(());
        }
        run.layout = Some(progress.layout);
        let positions = self.positions(&progress);
        let of = |(shard, next)| (progress.epoch(shard_id(shard)), next);
        run.progress = positions.into_iter().enumerate().map(of).collect();
        self.taking_over(run, takeover::Input::ProgressRead)
    }

    /// Genesis, or the positions that were read under the layout that follows.
    fn beginning_of(&self, run: &Run, by: Identity) -> Vec<Offset> {
        let positions: Vec<u64> = run.progress.iter().map(|(_, next)| *next).collect();
        match run.goal {
            Goal::Change => self.beginning(run.layout.unwrap_or(1) + 1, by, &positions),
            Goal::Write => self.beginning(1, by, &vec![0; self.config.shards]),
        }
    }

    fn send_beginning(&mut self, run: &mut Run, identity: Identity) {
        let (lock, offsets) = (self.ids().lock, self.beginning_of(run, identity));
        self.has_topic = true;
        match self.kafka().send_offsets(&lock, identity, &offsets) {
            Told::ComeAgain => run.tasks.push(Task::SendBeginning(identity)),
            Told::Definite(Ok(())) => run.tasks.push(Task::EndBeginning {
                carrier: Carrier {
                    transactional_id: lock,
                    identity,
                    version: self.config.version,
                    partitions: Vec::new(),
                },
            }),
            Told::Definite(Err(Refused(_))) => run.is_over = true,
        }
    }

    fn refused(&mut self, run: &mut Run, shard: usize, refused: Refused) -> Result<(), Violation> {
        self.reached.push("fenced producer");
        self.live(run, shard, ledger::Input::Failed { why: format!("code {}", refused.0) })
    }

    fn taking_over(&mut self, run: &mut Run, input: takeover::Input) -> Result<(), Violation> {
        let Machine::TakeOver(machine) = &mut run.machine else { unreachable!("it takes the job over") };
        machine.step(input);
        machine.check().map_err(|broken| broken_rule(&broken))?;
        self.drain(run)
    }

    fn live(&mut self, run: &mut Run, shard: usize, input: ledger::Input) -> Result<(), Violation> {
        let Machine::Live(ledgers) = &mut run.machine else { unreachable!("it has taken the job over") };
        ledgers[shard].step(input);
        ledgers[shard].check().map_err(|broken| broken_rule(&broken))?;
        self.drain(run)
    }

    /// Follows what asks for no request at once; what does becomes a task.
    fn drain(&mut self, run: &mut Run) -> Result<(), Violation> {
        loop {
            match &mut run.machine {
                Machine::TakeOver(machine) => match machine.poll_effect() {
                    Some(effect) => self.follow(run, effect)?,
                    None => return Ok(()),
                },
                Machine::Live(ledgers) => {
                    let polled = ledgers.iter_mut().enumerate();
                    let Some((shard, effect)) =
                        polled.filter_map(|(shard, ledger)| Some((shard, ledger.poll_effect()?))).next()
                    else {
                        return Ok(());
                    };
                    self.follow_live(run, shard, effect)?;
                }
            }
        }
    }

    fn follow(&mut self, run: &mut Run, effect: takeover::Effect) -> Result<(), Violation> {
        use takeover::{Effect, Input};
        let Machine::TakeOver(machine) = &mut run.machine else { unreachable!("it takes the job over") };
        match effect {
            Effect::Look { ids } => run.tasks.push(Task::Look(ids)),
            Effect::JudgePast => run.tasks.push(Task::JudgePast),
            Effect::Clear { ids } => {
                let open = takeover::to_abort(self.config.version, &run.looks, &ids);
                let task = |id: TransactionalId| match open.get(&id) {
                    Some(&identity) => Task::Abort { id, identity },
                    None => Task::Init(id),
                };
                let tasks: Vec<Task> = ids.into_iter().map(task).collect();
                run.tasks.extend(tasks);
            }
            Effect::AskBegun if self.config.store => run.tasks.push(Task::AskBegun),
            Effect::AskBegun => machine.step(Input::AskedBegun(run.layout.is_some())),
            Effect::SeekGenesis { .. } => run.tasks.push(Task::SeekGenesis),
            Effect::ReadProgress { .. } => {
                run.looks.clear();
                run.tasks.push(Task::ReadProgress);
            }
            Effect::CommitGenesis { identity } => run.tasks.push(Task::SendBeginning(identity)),
            Effect::Record if self.config.store => run.tasks.push(Task::Record),
            Effect::Record => machine.step(Input::Recorded),
            Effect::Done { cleared } if run.goal == Goal::Change => {
                run.tasks.push(Task::SendBeginning(cleared[&self.ids().lock]));
            }
            Effect::Done { cleared } => self.go_live(run, &cleared),
            Effect::Refuse => return needless("the store is said not to be the job's".into()),
            Effect::FindFormerIds | Effect::EndLeftOpen { .. } | Effect::AwaitStable { .. } => {
                unreachable!("no job is begun anew here")
            }
        }
        Ok(())
    }

    fn go_live(&mut self, run: &mut Run, cleared: &Cleared) {
        self.reached.push(match run.progress.iter().any(|(_, next)| *next > 0) {
            true => "goes on",
            false => "begins",
        });
        let lane = |(shard, (last, _)): (usize, &(Epoch, u64))| {
            let config = LaneConfig {
                job: job(),
                lane: lane_id(shard),
                cluster_id: cluster().as_str().into(),
                brokers: "b:1".into(),
                version: self.config.version,
                naming: Naming::Rotating,
                first: last.next(),
            };
            Lane::new(config, lane_id(shard).transactional_ids(&job()).map(|id| cleared[&id]))
        };
        run.lanes = run.progress.iter().enumerate().map(lane).collect();
        let shard = |(last, next): &(Epoch, u64)| Shard {
            epoch: last.next(),
            next: *next,
            opening: None,
            writing: None,
            written: None,
            touched: false,
            barrier: None,
            ended: None,
        };
        run.shards = run.progress.iter().map(shard).collect();
        let ledger = |(last, _): &(Epoch, u64)| {
            let mut ledger = Ledger::new(*last);
            if self.config.recommits {
                ledger.step(ledger::Input::RecommitDue);
            }
            ledger
        };
        run.machine = Machine::Live(run.progress.iter().map(ledger).collect());
        run.progress.clear();
    }

    fn follow_live(&mut self, run: &mut Run, shard: usize, effect: ledger::Effect) -> Result<(), Violation> {
        match effect {
            ledger::Effect::SendBarrier { epoch, recommit, .. } => {
                run.shards[shard].barrier = Some((epoch, recommit));
            }
            ledger::Effect::SendOffsets { epoch, carrier, positions } => {
                let next = positions[&split(shard)].next;
                run.tasks.push(Task::SendOffsets { shard, epoch, carrier, next });
            }
            ledger::Effect::EndTxn { epoch, carrier } => run.tasks.push(Task::End { shard, epoch, carrier }),
            ledger::Effect::Tell { epoch, carrier } => run.tasks.push(Task::Tell { shard, epoch, carrier }),
            ledger::Effect::Recorded { epoch, .. } => {
                let lane = &mut run.lanes[shard];
                if let Some(next) = run.shards[shard].ended.take() {
                    lane.committing(epoch);
                    lane.ended(epoch, Outcome::Committed { next });
                }
                lane.recorded(epoch);
                lane.check().map_err(|broken| broken_rule(&broken))?;
                if epoch >= Epoch(3) {
                    self.reached.push("ids in turn");
                }
            }
            ledger::Effect::End(end) => {
                if let End::Failed(_) = end {
                    self.reached.push("failed run");
                }
                run.is_over = true;
            }
        }
        Ok(())
    }

    pub(super) fn tick(&mut self, run: &mut Run, shard: usize) -> Result<(), Violation> {
        self.live(run, shard, ledger::Input::Tick)
    }

    /// A shard reads its next record and writes it.
    pub(super) fn work(&mut self, run: &mut Run, shard: usize) -> Result<(), Violation> {
        let (epoch, value) = (run.shards[shard].epoch, run.shards[shard].next);
        match self.write(run, shard, value)? {
            Told::ComeAgain => return Ok(()),
            Told::Definite(Err(refused)) => return self.refused(run, shard, refused),
            Told::Definite(Ok(())) => {}
        }
        let of = &mut run.shards[shard];
        of.next += 1;
        if std::mem::replace(&mut of.touched, true) {
            return Ok(());
        }
        self.live(run, shard, ledger::Input::Touched { epoch })
    }

    /// Sees to it that the epoch's transaction has an id and an identity.
    fn open(&mut self, run: &mut Run, shard: usize) -> Result<Told<Result<(), Refused>>, Violation> {
        let epoch = run.shards[shard].epoch;
        if run.shards[shard].writing.is_some() {
            return Ok(Told::Definite(Ok(())));
        }
        if run.shards[shard].opening.is_none() {
            // Not yet is back-pressure.
            let Ok(open) = run.lanes[shard].open(epoch) else { return Ok(Told::ComeAgain) };
            run.shards[shard].opening = Some(open);
        }
        while let Some(open) = run.shards[shard].opening.clone().filter(|open| open.init) {
            let own = (!open.is_fresh).then_some(open.identity);
            match self.kafka().init(&open.transactional_id, own) {
                Told::ComeAgain => return Ok(Told::ComeAgain),
                Told::Definite(Err(refused)) => return Ok(Told::Definite(Err(refused))),
                Told::Definite(Ok(identity)) => {
                    run.shards[shard].opening = Some(run.lanes[shard].identified(epoch, identity));
                }
            }
        }
        run.lanes[shard].check().map_err(|broken| broken_rule(&broken))?;
        let open = run.shards[shard].opening.take().expect("it was just opened");
        run.shards[shard].writing = Some((open.identity, open.transactional_id));
        Ok(Told::Definite(Ok(())))
    }

    fn write(
        &mut self,
        run: &mut Run,
        shard: usize,
        value: u64,
    ) -> Result<Told<Result<(), Refused>>, Violation> {
        match self.open(run, shard)? {
            Told::Definite(Ok(())) => {}
            not_open => return Ok(not_open),
        }
        let of = &mut run.shards[shard];
        let (identity, id) = of.writing.clone().expect("it was just opened");
        let (first, count) = of.written.map_or((None, 0), |(first, _, count)| (Some(first), count));
        let sequence = i32::try_from(count).expect("a few");
        Ok(match self.kafka().produce(&id, identity, sequence, value) {
            Told::ComeAgain => Told::ComeAgain,
            Told::Definite(Err(refused)) => Told::Definite(Err(refused)),
            Told::Definite(Ok(offset)) => {
                of.written = Some((first.unwrap_or(offset), offset, count + 1));
                Told::Definite(Ok(()))
            }
        })
    }

    /// A barrier reaches a shard: everything is acknowledged, so it hands over at once. An epoch in which nothing was written
    /// has a transaction all the same, which carries its positions.
    pub(super) fn meet(&mut self, run: &mut Run, shard: usize) -> Result<(), Violation> {
        let Some((epoch, recommit)) = run.shards[shard].barrier else { return Ok(()) };
        let mut carrier = None;
        if run.shards[shard].touched || recommit {
            match self.open(run, shard)? {
                Told::ComeAgain => return Ok(()),
                Told::Definite(Err(refused)) => return self.refused(run, shard, refused),
                Told::Definite(Ok(())) => {}
            }
            let partition = i32::try_from(shard).expect("a few");
            let written = run.shards[shard].written.take();
            let partitions = written
                .map(|(_, last, _)| (super::super::kafka::TOPIC.to_owned(), partition, last))
                .into_iter();
            run.lanes[shard].flushing(epoch);
            carrier = Some(run.lanes[shard].carrying(epoch, partitions.collect()));
            run.lanes[shard].check().map_err(|broken| broken_rule(&broken))?;
        }
        let of = &mut run.shards[shard];
        (of.touched, of.barrier, of.writing) = (false, None, None);
        of.epoch = epoch.next();
        let position = hapax_commit::Position {
            next: of.next,
            leader_epoch: None,
            topic_id: None,
            file: None,
            end: None,
        };
        let positions = BTreeMap::from([(split(shard), position)]);
        self.live(run, shard, ledger::Input::Flushed { epoch, flushed: Flushed { carrier, positions } })
    }
}

fn is_request(task: &Task) -> bool {
    match task {
        Task::Abort { .. }
        | Task::Init(_)
        | Task::SendBeginning(_)
        | Task::EndBeginning { .. }
        | Task::SendOffsets { .. }
        | Task::End { .. } => true,
        Task::Look(_)
        | Task::AskBegun
        | Task::JudgePast
        | Task::SeekGenesis
        | Task::ReadProgress
        | Task::TellBeginning
        | Task::Record
        | Task::Tell { .. } => false,
    }
}
