//! A small world: lanes, a chain of slots, runs that start and die, and a broker; with everything that may happen in it.
//!
//! Owns the state and which steps there are. A request is applied and its answer heard in one step: a run may be slow to
//! act on what it heard, which is the same as hearing it late but for the order in which it hears two answers, so a
//! world may have answers that are held back too. Requests that a run has given up, or died over, arrive later or never.
//!
//! What keeps it finite: time stands still but for time-outs, faults are counted, and a look is repeated only after
//! something has changed. What keeps it small: reads of one run come in the order of their ids, and so do requests that clear
//! ids, requests that end transactions, and barriers that shards meet, in one or the other direction, which is drawn when
//! the run starts.

mod oracle;
mod run;
mod shard;
mod task;

use super::{
    kafka::Kafka,
    promise::INVARIANT,
    search::{self, Violation},
};
use hapax_commit::{
    Claim, Generation, Handle, Identity, LaneId, Name, Naming, Position, Positions, RunNonce, ShardId, Slot,
    SlotBody, SplitId, Strategy, TransactionVersion,
    chain::ChainView,
    recovery::{self, Incident},
};
use run::{Machine, Run};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    rc::Rc,
    sync::Arc,
};
use task::Task;

const CLUSTER: &str = "cluster";

/// What a world is made of, and how much may go wrong in it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name.
    pub name: &'static str,
    /// Lanes, each with a shard and an output partition.
    pub lanes: usize,
    /// Records of each shard's input.
    pub inputs: u64,
    /// The transaction protocol.
    pub version: TransactionVersion,
    /// The strategies of the job.
    pub allowed: &'static [Strategy],
    /// Can the sources go back?
    pub sources_go_back: bool,
    /// Can `rewrite` and `replay` find every record?
    pub repairs: bool,
    /// How many records of each input a run has read at least before another starts beside it, with no request of its own
    /// under way; 0: at any time.
    pub sleeps_after: u64,
    /// Has an epoch one record of a shard, and never more?
    pub singly: bool,
    /// Are the ids' producer epochs nearly used up?
    pub used_up: bool,
    /// Faults.
    pub faults: Faults,
    /// What has to happen on some way through it, or it shows less than it seems to.
    pub reaches: &'static [&'static str],
}

/// How often each fault may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A run dies.
    pub crashes: u8,
    /// A run starts although another one goes on.
    pub zombies: u8,
    /// What a lane has open is aborted for its age.
    pub time_outs: u8,
    /// Another coordinator takes over.
    pub moves: u8,
    /// An answer is lost after its request was applied, or a run gives up waiting for one.
    pub lost: u8,
    /// A request is on its way for longer than anybody waits.
    pub late: u8,
    /// An EndTxn is on its way for longer than anybody waits.
    pub late_ends: u8,
    /// An answer to a look is heard after others.
    pub slow: u8,
    /// A run does not wait for a put that is on its way: it fails, and the process starts another.
    pub restarts: u8,
    /// A record is on its way for longer than the next one.
    pub unacknowledged: u8,
    /// A shard begins a transaction and has no record for it.
    pub empty: u8,
}

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A run begins with a claim; `up`: it goes through ids and lanes in ascending order.
    Start {
        /// In ascending order?
        up: bool,
    },
    /// A run dies.
    Crash(usize),
    /// A run's task is done, and its answer heard.
    Do(usize, usize),
    /// A run's task is done, its answer lost.
    Lose(usize, usize),
    /// A run's request does not come through yet.
    Delay(usize, usize),
    /// A run's look is answered, and the answer is heard later.
    Hold(usize, usize),
    /// A run does not wait any longer for an answer that was lost.
    GiveUp(usize, usize),
    /// The checkpoint interval of a run has passed.
    Tick(usize),
    /// A shard of a run reads and writes a record.
    Work(usize, usize),
    /// A shard of a run reads and sends a record, which is on its way.
    Send(usize, usize),
    /// What a shard of a run has sent is written.
    Acknowledge(usize, usize),
    /// A shard of a run begins its epoch, and has read no record.
    Open(usize, usize),
    /// A barrier reaches a shard of a run.
    Meet(usize, usize),
    /// A request that nobody waits for any more comes through.
    Arrive(usize),
    /// Markers of what has been decided reach their partitions.
    Markers,
    /// Time passes, until the next lane's open transactions are aborted.
    TimeOut,
    /// Another coordinator takes over all ids.
    Move,
}

/// A request that its sender has given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Late {
    Put(Slot),
    End { handle: Handle, commit: bool },
}

/// The state.
#[derive(Clone)]
pub struct World {
    config: Arc<Config>,
    kafka: Rc<Kafka>,
    chain: BTreeMap<u64, Arc<Slot>>,
    truth: Arc<ChainView>,
    late: Vec<Late>,
    runs: Vec<Arc<Run>>,
    next_nonce: u128,
    left: Faults,
    stopped_by: Option<Incident>,
    /// Identities of the transactions that slots of the chain have decided.
    decided: BTreeSet<Identity>,
    /// Of each lane: records that were given up.
    given_up: Vec<BTreeSet<u64>>,
    reached: Vec<&'static str>,
    /// Of all that tells this state from others.
    fingerprint: u64,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

fn lane_id(lane: usize) -> LaneId {
    LaneId { cluster: name("main"), shard: ShardId(u32::try_from(lane).expect("a few")) }
}

fn split(lane: usize) -> SplitId {
    SplitId(format!("in/topic/{lane}"))
}

fn position(next: u64) -> Position {
    Position { next, leader_epoch: None, topic_id: None, file: None, end: None }
}

fn fingerprint_of(what: &impl Hash) -> u64 {
    let mut hasher = Folding(0);
    what.hash(&mut hasher);
    hasher.finish()
}

/// Multiplies each word into the state and folds the product: nobody here chooses what is hashed to make two states meet.
struct Folding(u64);

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u64(&mut self, word: u64) {
        // 2⁶⁴ divided by the golden ratio, and the fraction of pi.
        let mixed = u128::from(self.0.rotate_left(29) ^ word ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (mixed as u64) ^ ((mixed >> 64) as u64) ^ word.rotate_left(32);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

impl World {
    /// A job that nobody has run yet. Its ids are known to the broker, as after a first run that wrote nothing, so that
    /// producer ids do not depend on the order in which they are asked for.
    pub fn new(config: Config) -> Self {
        let mut kafka = Kafka::new(config.version, config.lanes);
        for lane in 0..config.lanes {
            for id in lane_id(lane).transactional_ids(&name("job")) {
                let _ = kafka.init(&id, None);
                if config.used_up {
                    kafka.use_up_epochs(&id);
                }
            }
        }
        Self {
            kafka: Rc::new(kafka),
            chain: BTreeMap::new(),
            truth: Arc::new(ChainView::empty()),
            late: Vec::new(),
            runs: Vec::new(),
            next_nonce: 1,
            left: config.faults,
            stopped_by: None,
            decided: BTreeSet::new(),
            given_up: vec![BTreeSet::new(); config.lanes],
            reached: Vec::new(),
            fingerprint: 0,
            config: Arc::new(config),
        }
    }

    /// The broker, to be changed.
    fn kafka(&mut self) -> &mut Kafka {
        Rc::make_mut(&mut self.kafka)
    }

    fn take_fingerprint(&mut self) {
        let late = self.late.iter().fold(0_u64, |sum, one| sum.wrapping_add(fingerprint_of(one)));
        let runs: Vec<u64> = self.runs.iter().map(|run| run.fingerprint()).collect();
        let rest = (&self.chain, late, runs, self.left, &self.given_up, self.stopped_by.is_some());
        self.fingerprint = fingerprint_of(&(self.kafka.fingerprint(), rest));
    }

    fn genesis(&self) -> Positions {
        (0..self.config.lanes).map(|lane| (split(lane), position(0))).collect()
    }

    /// Create-only; who wrote it hears of it by reading.
    fn create(&mut self, slot: &Slot) {
        if self.chain.contains_key(&slot.number.0) {
            return;
        }
        self.chain.insert(slot.number.0, Arc::new(slot.clone()));
        if slot.number == self.truth.next_slot() {
            if let SlotBody::Abandoned { .. } = slot.body {
                self.give_up();
            }
            self.decided.extend(slot.handles().iter().map(|handle| handle.identity));
            Arc::make_mut(&mut self.truth).apply(slot).expect("the machines write a chain that reads back");
        }
    }

    /// The records of the epoch in doubt that are not committed are given up.
    fn give_up(&mut self) {
        let Some(doubt) = self.truth.unresolved() else { return };
        for lane in 0..self.config.lanes {
            let committed: BTreeSet<u64> = self.kafka.committed(lane).into_iter().collect();
            let before = self.truth.progress().map_or(0, |manifest| manifest.positions[&split(lane)].next);
            let after = doubt.manifest.positions[&split(lane)].next;
            self.given_up[lane].extend((before..after).filter(|value| !committed.contains(value)));
        }
    }

    /// Reads the chain and puts a claim behind it.
    fn start(&mut self, up: bool) -> Result<(), Violation> {
        let nonce = RunNonce(self.next_nonce);
        self.next_nonce += 1;
        let number = self.truth.next_slot();
        let ids = (0..self.config.lanes).flat_map(|lane| lane_id(lane).transactional_ids(&name("job")));
        let body = SlotBody::Claim(Claim {
            ids: [(CLUSTER.into(), ids.collect())].into(),
            layout: 1,
            naming: Naming::Rotating,
            by: "model".into(),
        });
        let generation = Generation(number.0);
        self.create(&Slot { number, run: nonce, generation, written_ms: 0, body });
        let view = ChainView::read(self.chain.values().map(|slot| &**slot));
        let view = view.map_err(|fault| Violation { property: INVARIANT, what: fault.to_string() })?;
        let recovery = hapax_commit::Recovery::new(&view, nonce, &self.genesis(), self.config.allowed);
        let mut run = Run::new(nonce, generation, Arc::new(view), Machine::Recovery(Box::new(recovery)), up);
        run.must_go_back = self.must_go_back();
        self.drain(&mut run)?;
        self.keep(run);
        Ok(())
    }

    /// What a dead run has sent may still arrive, if the world has such delays.
    fn bury(&mut self, run: Run) {
        for task in run.tasks {
            let late = match task {
                Task::Offer { slot, .. } => Late::Put(slot),
                Task::End { handle, .. } => Late::End { handle, commit: true },
                Task::Recover(recovery::Effect::EndTxn { handle, commit }) => Late::End { handle, commit },
                Task::Recover(_) | Task::Init(_) | Task::Complete { .. } | Task::Hear(_) => continue,
            };
            if self.left.late > 0 && !self.late.contains(&late) {
                self.left.late -= 1;
                self.late.push(late);
            }
        }
    }

    /// A run that goes on stays where it was among the others; one that is over is buried.
    fn keep(&mut self, run: Run) {
        if run.is_over {
            return self.bury(run);
        }
        let at = self.runs.partition_point(|other| other.nonce.0 < run.nonce.0);
        self.runs.insert(at, Arc::new(run));
    }

    fn arrive(&mut self, late: Late) {
        match late {
            Late::Put(slot) => {
                if !self.chain.contains_key(&slot.number.0) {
                    self.reached.push("late put");
                }
                self.create(&slot);
            }
            Late::End { handle, commit } => {
                let id = &handle.transactional_id;
                let before = self.kafka.fingerprint();
                let _ = self.kafka().end(id, handle.identity, handle.version, commit);
                if self.kafka.fingerprint() != before {
                    self.reached.push("late EndTxn");
                }
            }
        }
    }

    fn act(&mut self, step: Step) -> Result<(), Violation> {
        match step {
            Step::Start { up } => {
                self.left.zombies -= u8::from(!self.runs.is_empty());
                self.start(up)?;
            }
            Step::Crash(run) => {
                self.left.crashes -= 1;
                let run = self.runs.remove(run);
                self.bury(Arc::unwrap_or_clone(run));
            }
            Step::Do(run, task) => self.with(run, |world, run| world.carry_out(run, task))?,
            Step::Lose(run, task) => {
                self.left.lost -= 1;
                self.with(run, |world, run| world.lose(run, task))?;
            }
            Step::Delay(run, task) => {
                match self.left.late_ends {
                    0 => self.left.late -= 1,
                    _ => self.left.late_ends -= 1,
                }
                self.with(run, |world, run| world.delay(run, task))?;
            }
            Step::Hold(run, task) => {
                self.left.slow -= 1;
                self.with(run, |world, run| world.hold(run, task))?;
            }
            Step::GiveUp(run, task) => self.with(run, |world, run| world.lose_patience(run, task))?,
            Step::Tick(run) => self.with(run, |world, run| world.tick(run))?,
            Step::Work(run, shard) => self.with(run, |world, run| world.work(run, shard))?,
            Step::Send(run, shard) => {
                self.left.unacknowledged -= 1;
                self.with(run, |world, run| world.send(run, shard))?;
            }
            Step::Acknowledge(run, shard) => {
                self.with(run, |world, run| world.acknowledge(run, shard))?;
            }
            Step::Open(run, shard) => {
                self.left.empty -= 1;
                self.with(run, |world, run| world.open(run, shard))?;
            }
            Step::Meet(run, shard) => self.with(run, |world, run| world.meet(run, shard))?,
            Step::Arrive(late) => {
                let late = self.late.remove(late);
                self.arrive(late);
            }
            Step::Markers => self.kafka().write_markers(),
            Step::TimeOut => {
                self.left.time_outs -= 1;
                let open = (0..self.config.lanes).any(|lane| !self.kafka.open_in(lane).is_empty());
                self.kafka().time_out();
                if open {
                    self.reached.push("time-out");
                }
            }
            Step::Move => {
                self.left.moves -= 1;
                for lane in 0..self.config.lanes {
                    for id in lane_id(lane).transactional_ids(&name("job")) {
                        self.kafka().move_coordinator(&id.to_string());
                    }
                }
            }
        }
        Ok(())
    }

    fn with(
        &mut self,
        run: usize,
        act: impl FnOnce(&mut Self, &mut Run) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let mut run = Arc::unwrap_or_clone(self.runs.remove(run));
        act(self, &mut run)?;
        self.keep(run);
        Ok(())
    }
}

impl search::World for World {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        if self.stopped_by.is_some() {
            return Vec::new();
        }
        let mut steps = Vec::new();
        let has_read = |run: &Run| {
            let read = run.shards.iter().map(|shard| shard.next).min();
            let is_idle = self.config.sleeps_after == 0 || run.tasks.is_empty();
            is_idle && read.unwrap_or_default() >= self.config.sleeps_after
        };
        let joins =
            self.left.zombies > 0 && self.runs.len() == 1 && self.runs.iter().all(|run| has_read(run));
        if self.runs.is_empty() || joins {
            steps.extend([Step::Start { up: true }, Step::Start { up: false }]);
        }
        for (index, run) in self.runs.iter().enumerate() {
            self.steps_of(index, run, &mut steps);
        }
        steps.extend((0..self.late.len()).map(Step::Arrive));
        steps.push(Step::Markers);
        if self.left.time_outs > 0 {
            steps.push(Step::TimeOut);
        }
        if self.left.moves > 0 {
            steps.push(Step::Move);
        }
        steps
    }

    fn after(&self, step: &Step) -> Result<Option<Self>, Violation> {
        let mut after = self.clone();
        after.reached.clear();
        after.act(*step)?;
        after.check(self)?;
        after.take_fingerprint();
        Ok((after.fingerprint != self.fingerprint).then_some(after))
    }

    fn is_fault(step: &Step) -> bool {
        match step {
            Step::Crash(_)
            | Step::Lose(..)
            | Step::Delay(..)
            | Step::Hold(..)
            | Step::Send(..)
            | Step::Open(..)
            | Step::TimeOut
            | Step::Move => true,
            Step::Start { .. }
            | Step::Do(..)
            | Step::GiveUp(..)
            | Step::Tick(_)
            | Step::Work(..)
            | Step::Acknowledge(..)
            | Step::Meet(..)
            | Step::Arrive(_)
            | Step::Markers => false,
        }
    }

    fn is_at_rest(&self) -> bool {
        self.rests()
    }

    fn reached(&self) -> &[&'static str] {
        &self.reached
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn tell(&self, step: &Step) -> String {
        let of_run = |run: usize| format!("run {}", self.runs[run].nonce.0);
        let task = |run: usize, task: usize| self.runs[run].tasks[task].in_words();
        match *step {
            Step::Start { up } => format!("a run starts, and goes {}", if up { "up" } else { "down" }),
            Step::Crash(run) => format!("{} dies", of_run(run)),
            Step::Do(run, at) => format!("{}: {}", of_run(run), task(run, at)),
            Step::Lose(run, at) => format!("{}: {}, and the answer is lost", of_run(run), task(run, at)),
            Step::Delay(run, at) => format!("{}: {} is on its way", of_run(run), task(run, at)),
            Step::Hold(run, at) => format!("{}: {}, and the answer is slow", of_run(run), task(run, at)),
            Step::GiveUp(run, at) => format!("{} waits no longer: {}", of_run(run), task(run, at)),
            Step::Tick(run) => format!("{}: the interval has passed", of_run(run)),
            Step::Work(run, shard) => format!("{}: shard {shard} writes a record", of_run(run)),
            Step::Send(run, shard) => format!("{}: shard {shard} sends a record", of_run(run)),
            Step::Acknowledge(run, shard) => format!("{}: what shard {shard} sent is written", of_run(run)),
            Step::Open(run, shard) => format!("{}: shard {shard} begins its epoch", of_run(run)),
            Step::Meet(run, shard) => format!("{}: shard {shard} meets a barrier", of_run(run)),
            Step::Arrive(at) => match &self.late[at] {
                Late::Put(slot) => format!("a late put arrives: slot {}", slot.number),
                Late::End { handle, commit } => {
                    format!("a late EndTxn arrives: {} commit {commit}", handle.at())
                }
            },
            Step::Markers => "markers are written".into(),
            Step::TimeOut => "time passes".into(),
            Step::Move => "another coordinator takes over".into(),
        }
    }

    fn story(&self) -> String {
        let mut story = String::new();
        for slot in self.chain.values() {
            story.push_str(&format!("  slot {}: {}\n", slot.number, task::in_words(&slot.body)));
        }
        for lane in 0..self.config.lanes {
            story.push_str(&format!("  partition {lane}: {:?}\n", self.kafka.log(lane)));
            for id in lane_id(lane).transactional_ids(&name("job")) {
                story.push_str(&format!("  {id}: {:?}\n", self.kafka.describe(&id)));
            }
        }
        for run in &self.runs {
            let tasks: Vec<String> = run.tasks.iter().map(Task::in_words).collect();
            story.push_str(&format!("  run {}: {tasks:?}\n", run.nonce.0));
        }
        if let Some(incident) = &self.stopped_by {
            story.push_str(&format!("  stopped: {incident}\n"));
        }
        story
    }
}
