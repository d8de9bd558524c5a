//! A seeded random walk through the world of decider `transaction`: one shard, three ids, no store, and several runs
//! that start, sleep, wake, crash and send requests late, while the coordinator times transactions out (H3, H4).
//!
//! What must hold at every step: what is committed is exactly the input from the first genesis up to the committed
//! position, once and in order. Mistakes that an implementer might make are planted, and the walk must find each.

use crate::broker::Broker;
use hapax_commit::{
    Epoch, Identity, Lane, LaneConfig, LaneId, Ledger, Name, Naming, Position, Positions, ShardId, SplitId,
    TransactionVersion, TransactionalId,
    evidence::{EndTxnAnswer, TransactionState},
    lane::Outcome,
    ledger::{Carrier, Effect, End, Flushed, Input},
};
use std::collections::{BTreeMap, VecDeque};

/// Values of the input: 0 to this, exclusive. Every third is filtered out and moves the position only.
const INPUT: u64 = 60;
const MOST_RUNS: usize = 3;
const STEPS: u32 = 2_000;

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    Nothing,
    /// Which id an epoch stands on depends on the run (H4).
    IdOfTheRun,
    /// Progress is read when the first id is cleared, not the last (H4).
    ReadsBeforeAllAreCleared,
    /// The answer's top level is looked at and no partition's (H13).
    IgnoresPartitionErrors,
    /// A running lane asks for an identity without its own (H3).
    TakesIdsBack,
    /// Epoch e+1 is ended when it is flushed, whatever became of e.
    EndsOutOfOrder,
}

/// Interesting states, counted so that a walk that never gets anywhere fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reached {
    committed: u64,
    empty_epochs: u64,
    fenced: u64,
    timed_out: u64,
    crashed: u64,
    late_ends: u64,
    refused: u64,
    several_began: u64,
    finished: u64,
}

/// Progress as it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Committed {
    epoch: Epoch,
    next: u64,
    /// When it was sent, by number.
    sent: u64,
}

struct World {
    rng: fastrand::Rng,
    mistake: Mistake,
    broker: Broker,
    /// Offsets of open transactions.
    pending: BTreeMap<TransactionalId, (Identity, Committed)>,
    /// Offsets sent so far: of two that are committed the broker keeps the one that was sent last.
    sent: u64,
    committed: Option<Committed>,
    genesis: Option<u64>,
    runs: Vec<Run>,
    born: u64,
    now: u32,
    /// EndTxn requests whose sender is gone.
    late: Vec<(TransactionalId, Identity)>,
    calm: bool,
    /// Something may have become visible.
    changed: bool,
    reached: Reached,
}

enum Stage {
    /// Looks whether anything is committed; takes the id of genesis where not.
    Fresh,
    /// Has the id of genesis, and looks again.
    HasGenesisId(Identity),
    /// The offsets of genesis are sent.
    EndsGenesis(Identity),
    /// Clears one id after the other.
    Clearing(Vec<Identity>, Option<Committed>),
    Reading([Identity; 3]),
    Working(Box<Work>),
    Over,
}

struct Run {
    number: u64,
    /// Where this run would begin: "latest" is not the same for all.
    start: u64,
    /// It does nothing until so many steps of the world are done.
    sleeps_until: u32,
    stage: Stage,
}

struct Work {
    lane: Lane,
    ledger: Ledger,
    next: u64,
    open: Option<(TransactionalId, Identity)>,
    commands: VecDeque<Effect>,
    tasks: Vec<Effect>,
    /// Added to every epoch before the lane sees it.
    shift: u64,
    touched: bool,
    drained: bool,
}

fn lane_id() -> LaneId {
    LaneId { cluster: Name::new("main").unwrap(), shard: ShardId(0) }
}

fn job() -> Name {
    Name::new("orders").unwrap()
}

fn ids() -> [TransactionalId; 3] {
    lane_id().transactional_ids(&job())
}

fn is_filtered(value: u64) -> bool {
    value.is_multiple_of(3)
}

fn positions(next: u64) -> Positions {
    let position = Position { next, leader_epoch: None, topic_id: None, file: None, end: Some(INPUT) };
    [(SplitId("in/topic/0".into()), position)].into()
}

impl World {
    fn new(seed: u64, version: TransactionVersion, mistake: Mistake) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let first_epoch = if rng.bool() { 0 } else { 32_760 };
        Self {
            rng,
            mistake,
            broker: Broker::new(version, 1, first_epoch),
            pending: BTreeMap::new(),
            sent: 0,
            committed: None,
            genesis: None,
            runs: Vec::new(),
            born: 0,
            now: 0,
            late: Vec::new(),
            calm: false,
            changed: false,
            reached: Reached::default(),
        }
    }

    /// Walks, then lets one run go on undisturbed to the end.
    fn walk(mut self) -> Result<Reached, String> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.calm = true;
        self.runs.clear();
        self.late.clear();
        for _ in 0..STEPS * 4 {
            self.step()?;
            if self.committed.is_some_and(|committed| committed.next == INPUT) {
                return Ok(self.reached);
            }
        }
        Err(format!("a run that nobody disturbs does not come to the end: {:?}", self.committed))
    }

    fn chance(&mut self, percent: u32) -> bool {
        !self.calm && self.rng.u32(0..100) < percent
    }

    fn step(&mut self) -> Result<(), String> {
        self.runs.retain(|run| !matches!(run.stage, Stage::Over));
        if self.runs.is_empty() || (self.runs.len() < MOST_RUNS && self.chance(2)) {
            self.born += 1;
            self.reached.several_began += u64::from(!self.runs.is_empty());
            let (number, start) = (self.born, self.rng.u64(0..6));
            let run = Run { number, start, sleeps_until: 0, stage: Stage::Fresh };
            self.runs.push(run);
        }
        if self.chance(1) {
            let index = self.rng.usize(0..3);
            self.time_out(&ids()[index]);
        }
        if !self.late.is_empty() && self.chance(5) {
            let index = self.rng.usize(0..self.late.len());
            let (id, identity) = self.late.swap_remove(index);
            self.reached.late_ends += 1;
            self.end(&id, identity);
        }
        let index = self.rng.usize(0..self.runs.len());
        self.now += 1;
        if self.chance(2) {
            self.runs[index].sleeps_until = self.now + self.rng.u32(20..500);
        }
        if self.runs[index].sleeps_until > self.now && !self.calm {
            return self.check();
        }
        if self.chance(1) {
            self.crash(index);
        } else {
            self.advance(index);
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        let visible = self.broker.committed(0);
        let from = self.genesis.unwrap_or(0);
        let to = self.committed.map_or(from, |committed| committed.next);
        let expected: Vec<u64> = (from..to).filter(|value| !is_filtered(*value)).collect();
        if visible == expected {
            return Ok(());
        }
        Err(format!("{from} to {to} are committed by their offsets, and readers see {visible:?}"))
    }

    fn crash(&mut self, index: usize) {
        self.reached.crashed += 1;
        let run = self.runs.swap_remove(index);
        if let Stage::Working(work) = run.stage {
            let ends = work.tasks.into_iter().filter_map(|task| match task {
                Effect::EndTxn { carrier, .. } => Some((carrier.transactional_id, carrier.identity)),
                _ => None,
            });
            self.late.extend(ends);
        }
    }

    fn time_out(&mut self, id: &TransactionalId) {
        if self.broker.time_out(id) {
            self.pending.remove(id);
            self.reached.timed_out += 1;
        }
    }

    fn init(&mut self, id: &TransactionalId, own: Option<Identity>) -> Option<Identity> {
        let was_open = self.broker.ids.get(id).is_some_and(|known| known.state == TransactionState::Ongoing);
        let answer = self.broker.init(id, own).ok();
        let is_open = self.broker.ids.get(id).is_some_and(|known| known.state == TransactionState::Ongoing);
        if was_open && !is_open {
            self.pending.remove(id);
        }
        if answer.is_none() {
            self.reached.fenced += 1;
        }
        answer
    }

    fn end(&mut self, id: &TransactionalId, identity: Identity) -> Option<Identity> {
        self.changed = true;
        let (answer, next) = self.broker.end(id, identity, true, false);
        if answer != EndTxnAnswer::Committed {
            self.reached.fenced += 1;
            return None;
        }
        if let Some((by, committed)) = self.pending.get(id).copied()
            && by == identity
        {
            self.pending.remove(id);
            if self.committed.is_none_or(|known| known.sent < committed.sent) {
                self.committed = Some(committed);
            }
            if committed.epoch == Epoch::GENESIS {
                self.genesis.get_or_insert(committed.next);
            }
            self.reached.committed += 1;
        }
        Some(next)
    }

    /// TxnOffsetCommit: true where the offset was taken; an answer without it says so in the partition only.
    fn offsets(&mut self, id: &TransactionalId, identity: Identity, at: (Epoch, u64)) -> Option<bool> {
        self.broker.join(id, identity).ok()?;
        if self.chance(10) {
            self.reached.refused += 1;
            return Some(false);
        }
        self.sent += 1;
        let (epoch, next) = at;
        self.pending.insert(id.clone(), (identity, Committed { epoch, next, sent: self.sent }));
        Some(true)
    }

    /// Offsets that no open transaction may change.
    fn stable(&self) -> Option<Option<Committed>> {
        self.pending.is_empty().then_some(self.committed)
    }

    fn advance(&mut self, index: usize) {
        let mut run = self.runs.swap_remove(index);
        run.stage = match std::mem::replace(&mut run.stage, Stage::Over) {
            Stage::Working(work) => self.work(work),
            stage => self.start(&run, stage),
        };
        self.runs.push(run);
    }

    fn start(&mut self, run: &Run, stage: Stage) -> Stage {
        let genesis = &ids()[0];
        match stage {
            Stage::Fresh if self.committed.is_some() => Stage::Clearing(Vec::new(), None),
            Stage::Fresh => match self.init(genesis, None) {
                Some(identity) => Stage::HasGenesisId(identity),
                None => Stage::Over,
            },
            Stage::HasGenesisId(identity) => match self.stable() {
                None => Stage::HasGenesisId(identity),
                Some(Some(_)) => Stage::Clearing(Vec::new(), None),
                Some(None) => match self.offsets(genesis, identity, (Epoch::GENESIS, run.start)) {
                    Some(true) => Stage::EndsGenesis(identity),
                    Some(false) | None => Stage::Over,
                },
            },
            Stage::EndsGenesis(identity) => match self.end(genesis, identity) {
                Some(_) => Stage::Clearing(Vec::new(), None),
                None => Stage::Over,
            },
            Stage::Clearing(identities, early) => self.clear(identities, early),
            Stage::Reading(identities) => match self.stable() {
                Some(Some(committed)) => self.begin(run, identities, committed),
                Some(None) | None => Stage::Reading(identities),
            },
            stage @ (Stage::Working(_) | Stage::Over) => stage,
        }
    }

    fn clear(&mut self, mut identities: Vec<Identity>, mut early: Option<Committed>) -> Stage {
        if self.mistake == Mistake::ReadsBeforeAllAreCleared && identities.len() == 1 && early.is_none() {
            early = self.committed;
        }
        let Some(identity) = self.init(&ids()[identities.len()], None) else { return Stage::Over };
        identities.push(identity);
        match (<[Identity; 3]>::try_from(identities.clone()), early) {
            (Ok(all), Some(committed)) => {
                let run = Run { number: 0, start: 0, sleeps_until: 0, stage: Stage::Over };
                self.begin(&run, all, committed)
            }
            (Ok(all), None) => Stage::Reading(all),
            (Err(_), early) => Stage::Clearing(identities, early),
        }
    }

    fn begin(&mut self, run: &Run, identities: [Identity; 3], committed: Committed) -> Stage {
        let config = LaneConfig {
            job: job(),
            lane: lane_id(),
            cluster_id: "C".into(),
            brokers: String::new(),
            version: self.broker.version,
            naming: Naming::Rotating,
            first: committed.epoch.next(),
        };
        let shift = if self.mistake == Mistake::IdOfTheRun { run.number % 3 } else { 0 };
        Stage::Working(Box::new(Work {
            lane: Lane::new(config, identities),
            ledger: Ledger::new(committed.epoch),
            next: committed.next,
            open: None,
            commands: VecDeque::new(),
            tasks: Vec::new(),
            shift,
            touched: false,
            drained: false,
        }))
    }

    /// One thing that a run does; it is over when anything fails.
    fn work(&mut self, mut work: Box<Work>) -> Stage {
        let done = match self.rng.u32(0..4) {
            0 => self.read(&mut work),
            1 => self.obey(&mut work),
            2 if !work.tasks.is_empty() => {
                let task = work.tasks.remove(0);
                self.carry_out(&mut work, task)
            }
            _ => {
                if self.rng.u32(0..3) == 0 {
                    work.ledger.step(Input::Tick);
                }
                Some(())
            }
        };
        if done.is_none() || self.collect(&mut work).is_none() {
            return Stage::Over;
        }
        work.ledger.check().unwrap();
        work.lane.check().unwrap();
        Stage::Working(work)
    }

    /// Takes what the ledger asks for; `None` at its end.
    fn collect(&mut self, work: &mut Work) -> Option<()> {
        while let Some(effect) = work.ledger.poll_effect() {
            match effect {
                Effect::End(End::Finished) => {
                    self.reached.finished += 1;
                    return None;
                }
                Effect::End(End::Stopped | End::Failed(_)) => return None,
                Effect::SendBarrier { .. } | Effect::Recorded { .. } => work.commands.push_back(effect),
                Effect::SendOffsets { .. } | Effect::EndTxn { .. } | Effect::Tell { .. } => {
                    work.tasks.push(effect);
                }
            }
        }
        Some(())
    }

    fn read(&mut self, work: &mut Work) -> Option<()> {
        let epoch = shard_epoch(work);
        if work.next == INPUT {
            if !work.drained {
                work.drained = true;
                work.ledger.step(Input::Drained);
                work.ledger.step(Input::AllDrained);
            }
            return Some(());
        }
        if !is_filtered(work.next) {
            self.open(work, epoch)?;
            let (id, identity) = work.open.clone().expect("it is open");
            self.broker.produce(&id, identity, work.next).ok()?;
        }
        work.next += 1;
        work.touched = true;
        work.ledger.step(Input::Touched { epoch });
        Some(())
    }

    fn open(&mut self, work: &mut Work, epoch: Epoch) -> Option<()> {
        if work.open.is_some() {
            return Some(());
        }
        let shifted = Epoch(epoch.0 + work.shift);
        let mut with = work.lane.open(shifted).expect("the window keeps the id free");
        while with.init {
            let own = (self.mistake != Mistake::TakesIdsBack).then_some(with.identity);
            let identity = self.init(&with.transactional_id, own)?;
            with = work.lane.identified(shifted, identity);
        }
        work.open = Some((with.transactional_id, with.identity));
        Some(())
    }

    fn obey(&mut self, work: &mut Work) -> Option<()> {
        let Some(command) = work.commands.pop_front() else { return Some(()) };
        match command {
            Effect::SendBarrier { epoch, .. } => {
                if std::mem::take(&mut work.touched) {
                    self.open(work, epoch)?;
                }
                let carrier = work.open.take().map(|(transactional_id, identity)| {
                    let shifted = Epoch(epoch.0 + work.shift);
                    work.lane.flushing(shifted);
                    let carrier = work.lane.carrying(shifted, Vec::new());
                    Carrier { transactional_id, identity, ..carrier }
                });
                self.reached.empty_epochs += u64::from(carrier.is_none());
                if self.mistake == Mistake::EndsOutOfOrder
                    && let (Some(carrier), false) = (&carrier, work.tasks.is_empty())
                {
                    let at = (epoch, work.next);
                    self.offsets(&carrier.transactional_id, carrier.identity, at)?.then_some(())?;
                    self.end(&carrier.transactional_id, carrier.identity)?;
                }
                let flushed = Flushed { carrier, positions: positions(work.next) };
                work.ledger.step(Input::Flushed { epoch, flushed });
            }
            Effect::Recorded { epoch, committed: true } => {
                work.lane.recorded(Epoch(epoch.0 + work.shift));
            }
            _ => {}
        }
        Some(())
    }

    fn carry_out(&mut self, work: &mut Work, task: Effect) -> Option<()> {
        match task {
            Effect::SendOffsets { epoch, carrier, positions } => {
                let next = positions.values().map(|position| position.next).sum();
                let taken = self.offsets(&carrier.transactional_id, carrier.identity, (epoch, next))?;
                if !taken && self.mistake != Mistake::IgnoresPartitionErrors {
                    return None;
                }
                work.ledger.step(Input::OffsetsTaken { epoch });
            }
            Effect::EndTxn { epoch, carrier } => {
                let next = self.end(&carrier.transactional_id, carrier.identity)?;
                if self.chance(3) {
                    // The answer is lost: the run ends, and the next one reads what is committed.
                    return None;
                }
                let shifted = Epoch(epoch.0 + work.shift);
                work.lane.committing(shifted);
                work.lane.ended(shifted, Outcome::Committed { next });
                work.ledger.step(Input::Committed { epoch });
            }
            Effect::Tell { epoch, .. } => work.ledger.step(Input::Told { epoch }),
            Effect::SendBarrier { .. } | Effect::Recorded { .. } | Effect::End(_) => {}
        }
        Some(())
    }
}

/// The epoch that the shard writes: that of the oldest barrier which it has not met.
fn shard_epoch(work: &Work) -> Epoch {
    let barrier = work.commands.iter().find_map(|command| match command {
        Effect::SendBarrier { epoch, .. } => Some(*epoch),
        _ => None,
    });
    barrier.unwrap_or_else(|| work.ledger.writing())
}

fn walks(mistake: Mistake, seeds: std::ops::Range<u64>) -> impl Iterator<Item = Result<Reached, String>> {
    let both = [TransactionVersion::V1, TransactionVersion::V2];
    seeds.flat_map(move |seed| both.map(|version| World::new(seed, version, mistake).walk()))
}

#[test]
fn whatever_runs_do_to_each_other_every_record_is_committed_once_and_in_order() {
    let mut all = Reached::default();
    for (seed, walked) in walks(Mistake::Nothing, 0..100).enumerate() {
        let reached = walked.unwrap_or_else(|why| panic!("walk {seed}: {why}"));
        all.committed += reached.committed;
        all.empty_epochs += reached.empty_epochs;
        all.fenced += reached.fenced;
        all.timed_out += reached.timed_out;
        all.crashed += reached.crashed;
        all.late_ends += reached.late_ends;
        all.refused += reached.refused;
        all.several_began += reached.several_began;
        all.finished += reached.finished;
    }
    let counts = [
        all.committed,
        all.empty_epochs,
        all.fenced,
        all.timed_out,
        all.crashed,
        all.late_ends,
        all.refused,
        all.several_began,
        all.finished,
    ];
    assert!(counts.iter().all(|count| *count > 20), "the walks get everywhere: {all:?}");
}

fn is_found(mistake: Mistake) {
    let found = walks(mistake, 0..2_000).position(|walked| walked.is_err());
    assert!(found.is_some(), "{mistake:?} was not found");
}

#[test]
fn an_id_that_is_not_a_function_of_the_epoch_is_found() {
    is_found(Mistake::IdOfTheRun);
}

#[test]
fn progress_that_is_read_before_every_id_is_cleared_is_found() {
    is_found(Mistake::ReadsBeforeAllAreCleared);
}

#[test]
fn an_offset_that_was_refused_and_taken_for_committed_is_found() {
    is_found(Mistake::IgnoresPartitionErrors);
}

#[test]
fn a_running_lane_that_takes_its_id_back_is_found() {
    is_found(Mistake::TakesIdsBack);
}

#[test]
fn an_epoch_that_is_ended_before_the_one_before_it_is_found() {
    is_found(Mistake::EndsOutOfOrder);
}
