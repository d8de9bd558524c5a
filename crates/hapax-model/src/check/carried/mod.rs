//! A small world of decider `transaction`: shards whose transactions carry their positions, runs that start and die, and a
//! broker. There is no chain and no store.
//!
//! Owns the state, which steps there are and what must hold. What it explores is what ships: `TakeOver`, `Ledger`, `Lane`
//! and the bookmarks of `hapax-commit`, against the state machine of `hapax-broker`. Requests and answers are one step, as
//! in the worlds with a chain; a request that its sender has given up, or died over, arrives later or never.
//!
//! What keeps it small: ids are cleared in ascending or in descending order, which is drawn when the run starts; looks at
//! ids are one step, since what is read later, listing and offsets, only gains over them.

mod run;
mod worlds;

pub use worlds::all;

use super::{
    kafka::{Kafka, Offset, Told},
    promise::{NONE_LOST, NONE_TWICE, NOT_NEEDLESSLY, ONLY_DECIDED, ORDER},
    search::{self, Violation},
};
use hapax_commit::{
    Bookmark, Epoch, Identity, LaneId, Name, Position, Positions, Reading, ShardId, SplitId,
    TransactionVersion, TransactionalId,
    bookmark::{self, Progress},
    evidence::{Described, TransactionState},
    ledger::Carrier,
    present::Ids,
    takeover::Goal,
};
use run::{Machine, Run, Task};
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
    sync::Arc,
};

const JOB: &str = "job";

/// What a world is made of, and how much may go wrong in it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name.
    pub name: &'static str,
    /// Shards, each with a split, a lane and an output partition.
    pub shards: usize,
    /// Records of each split.
    pub inputs: u64,
    /// The transaction protocol.
    pub version: TransactionVersion,
    /// Nobody has run the job before.
    pub is_new: bool,
    /// A store tells whether the job has begun; without one its offsets do.
    pub store: bool,
    /// Each run commits its offsets again before it has read anything, as the product does.
    pub recommits: bool,
    /// A shard reads on only when its epoch is recorded, so that ids come round with few records.
    pub singly: bool,
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
    /// Somebody puts another layout in the place of the one that there is.
    pub changes: u8,
    /// What a shard has open is aborted for its age.
    pub time_outs: u8,
    /// Another coordinator takes over.
    pub moves: u8,
    /// An answer is lost after its request was applied.
    pub lost: u8,
    /// An EndTxn is on its way for longer than anybody waits.
    pub late: u8,
}

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A run begins, where there is none; `up`: it clears ids in ascending order.
    Start {
        /// In ascending order?
        up: bool,
    },
    /// A run begins beside another one.
    StartBeside {
        /// In ascending order?
        up: bool,
    },
    /// A change of the layout begins.
    Change {
        /// In ascending order?
        up: bool,
    },
    /// A run dies.
    Crash(usize),
    /// A run's task is done, and its answer heard.
    Do(usize, usize),
    /// A run's task is done, its answer lost.
    Lose(usize, usize),
    /// The interval of a run's shard has passed.
    Tick(usize, usize),
    /// A shard of a run reads and writes a record.
    Work(usize, usize),
    /// A barrier reaches a shard of a run.
    Meet(usize, usize),
    /// An EndTxn that nobody waits for any more comes through.
    Arrive(usize),
    /// Markers of what has been decided reach their partitions.
    Markers,
    /// Time passes, until the next shard's open transactions are aborted.
    TimeOut,
    /// The same, while a start waits for offsets that an open transaction may change: sooner or later it does.
    Outwait,
    /// Another coordinator takes over all ids.
    Move,
}

/// The state.
#[derive(Clone)]
pub struct World {
    config: Arc<Config>,
    kafka: Rc<Kafka>,
    runs: Vec<Arc<Run>>,
    /// EndTxn(commit) of dead runs.
    late: Vec<Carrier>,
    next_run: u64,
    /// The store's record that the job has begun.
    is_recorded: bool,
    /// The topic of its own, which a job makes before it commits genesis.
    has_topic: bool,
    left: Faults,
    reached: Vec<&'static str>,
    fingerprint: u64,
}

fn job() -> Name {
    Name::new(JOB).expect("a good name")
}

fn cluster() -> Name {
    Name::new("main").expect("a good name")
}

fn shard_id(shard: usize) -> ShardId {
    ShardId(u32::try_from(shard).expect("a few"))
}

fn lane_id(shard: usize) -> LaneId {
    LaneId { cluster: cluster(), shard: shard_id(shard) }
}

fn split(shard: usize) -> SplitId {
    SplitId(format!("main/in/{shard}"))
}

fn fingerprint_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl World {
    /// Before anybody has started. A job that is not new has committed genesis, and its ids are known to the broker.
    pub fn new(config: Config) -> Self {
        let mut kafka = Kafka::new(config.version, config.shards);
        kafka.keep_offsets(config.shards);
        let mut world = Self {
            kafka: Rc::new(kafka),
            runs: Vec::new(),
            late: Vec::new(),
            next_run: 1,
            is_recorded: !config.is_new,
            has_topic: !config.is_new,
            left: config.faults,
            reached: Vec::new(),
            fingerprint: 0,
            config: Arc::new(config),
        };
        if !world.config.is_new {
            world.begun();
        }
        world
    }

    fn begun(&mut self) {
        let ids = self.ids();
        for id in &ids.others {
            let _ = self.kafka().init(id, None);
        }
        let Told::Definite(Ok(identity)) = self.kafka().init(&ids.lock, None) else {
            unreachable!("nobody has the id")
        };
        let offsets = self.beginning(1, identity, &vec![0; self.config.shards]);
        assert_eq!(self.kafka().send_offsets(&ids.lock, identity, &offsets), Told::Definite(Ok(())));
        let version = self.config.version;
        let _ = self.kafka().end(&ids.lock, identity, version, true);
        self.kafka().write_markers();
    }

    /// The broker, to be changed.
    fn kafka(&mut self) -> &mut Kafka {
        Rc::make_mut(&mut self.kafka)
    }

    fn ids(&self) -> Ids {
        Ids::of(&job(), &cluster(), u32::try_from(self.config.shards).expect("a few"))
    }

    /// What a layout begins with.
    fn beginning(&self, layout: u32, by: Identity, positions: &[u64]) -> Vec<Offset> {
        let at = |(shard, next): (usize, &u64)| self.offset(layout, shard, Epoch::GENESIS, by, *next);
        positions.iter().enumerate().map(at).collect()
    }

    fn offset(&self, layout: u32, shard: usize, epoch: Epoch, by: Identity, next: u64) -> Offset {
        let count = u32::try_from(self.config.shards).expect("a few");
        let position = Position { next, leader_epoch: None, topic_id: None, file: None, end: None };
        let mark = Bookmark {
            job: job(),
            cluster: Some(cluster()),
            layout,
            shards: count,
            most: 0,
            splits: count,
            shard: shard_id(shard),
            epoch,
            by,
            at: Reading::Positions(Positions::from([(split(shard), position)])),
        };
        Offset {
            partition: i32::try_from(shard).expect("a few"),
            offset: i64::try_from(next).expect("a few"),
            metadata: mark.to_text(),
        }
    }

    /// What is committed of the job's progress; none where it has not begun.
    fn progress(&self) -> Option<Result<Progress, String>> {
        let standing = self.kafka.committed_offsets(JOB);
        if standing.found.is_empty() {
            return None;
        }
        let progress = bookmark::read_progress(&job(), bookmark::Home::Group, &standing.found);
        Some(progress.map_err(|fault| fault.to_string()))
    }

    /// How far each shard is.
    fn positions(&self, progress: &Progress) -> Vec<u64> {
        let positions = progress.positions();
        (0..self.config.shards).map(|shard| positions[&split(shard)].next).collect()
    }

    fn take_fingerprint(&mut self) {
        let late = self.late.iter().fold(0_u64, |sum, one| sum.wrapping_add(fingerprint_of(one)));
        let runs: Vec<u64> = self.runs.iter().map(|run| run.fingerprint()).collect();
        let known = (self.is_recorded, self.has_topic);
        self.fingerprint = fingerprint_of(&(self.kafka.fingerprint(), late, runs, known, self.left));
    }

    /// After every step: what is committed is the input up to the position that is committed, once and in order.
    fn check(&self, before: &Self) -> Result<(), Violation> {
        if self.kafka.fingerprint() == before.kafka.fingerprint() {
            return Ok(());
        }
        let positions = match self.progress() {
            None => vec![0; self.config.shards],
            Some(Err(what)) => return Err(Violation { property: NOT_NEEDLESSLY, what }),
            Some(Ok(progress)) => {
                if let Some(Ok(before)) = before.progress() {
                    check_number(&before, &progress)?;
                }
                self.positions(&progress)
            }
        };
        positions.into_iter().enumerate().try_for_each(|(shard, end)| self.check_output(shard, end))
    }

    fn check_output(&self, shard: usize, end: u64) -> Result<(), Violation> {
        let committed = self.kafka.committed(shard);
        if committed.iter().copied().eq(0..end) {
            return Ok(());
        }
        let once: BTreeSet<u64> = committed.iter().copied().collect();
        let property = if once.len() < committed.len() {
            NONE_TWICE
        } else if !committed.is_sorted() {
            ORDER
        } else if (0..end).any(|value| !once.contains(&value)) {
            NONE_LOST
        } else {
            ONLY_DECIDED
        };
        let what =
            format!("partition {shard} has {committed:?} committed, the offset that is committed is {end}");
        Err(Violation { property, what })
    }

    /// The newest run has written and committed all there is. What an older run has begun under an id after the newer one
    /// had cleared it may be open: the broker ends it when its time is over.
    fn rests(&self) -> bool {
        let Some(run) = self.runs.last() else { return false };
        let Machine::Live(_) = run.machine else { return false };
        let is_own =
            |by: &Identity| run.lanes.iter().any(|lane| lane.states().iter().any(|id| id.identity() == *by));
        let is_done = |shard: usize| {
            !self.kafka.open_in(shard).iter().any(is_own)
                && (0..self.config.inputs).eq(self.kafka.committed(shard))
        };
        self.runs.iter().all(|run| run.tasks.is_empty()) && (0..self.config.shards).all(is_done)
    }

    fn has_open(&self) -> bool {
        let is_open = |id: &TransactionalId| match self.kafka.describe(id) {
            Described::Known { state, .. } => state == TransactionState::Ongoing,
            Described::Forgotten | Described::Unanswered(_) => false,
        };
        self.ids().all().iter().any(is_open)
    }

    /// What a dead run has sent may still arrive, if the world has such delays.
    fn bury(&mut self, run: Run) {
        for task in run.tasks {
            let (Task::End { carrier, .. } | Task::EndBeginning { carrier }) = task else { continue };
            self.delay(carrier);
        }
    }

    fn delay(&mut self, carrier: Carrier) {
        if self.left.late > 0 && !self.late.contains(&carrier) {
            self.left.late -= 1;
            self.late.push(carrier);
        }
    }

    fn keep(&mut self, run: Run) {
        if run.is_over {
            return self.bury(run);
        }
        let at = self.runs.partition_point(|other| other.number < run.number);
        self.runs.insert(at, Arc::new(run));
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

    fn act(&mut self, step: Step) -> Result<(), Violation> {
        match step {
            Step::Start { up } => self.start(up, Goal::Write)?,
            Step::StartBeside { up } => {
                self.left.zombies -= 1;
                self.start(up, Goal::Write)?;
            }
            Step::Change { up } => {
                self.left.changes -= 1;
                self.start(up, Goal::Change)?;
            }
            Step::Crash(run) => {
                self.left.crashes -= 1;
                let run = self.runs.remove(run);
                self.bury(Arc::unwrap_or_clone(run));
            }
            Step::Do(run, task) => self.with(run, |world, run| world.carry_out(run, task))?,
            Step::Lose(run, task) => {
                self.left.lost -= 1;
                self.reached.push("lost answer");
                self.with(run, |world, run| world.lose(run, task))?;
            }
            Step::Tick(run, shard) => self.with(run, |world, run| world.tick(run, shard))?,
            Step::Work(run, shard) => self.with(run, |world, run| world.work(run, shard))?,
            Step::Meet(run, shard) => self.with(run, |world, run| world.meet(run, shard))?,
            Step::Arrive(late) => {
                let carrier = self.late.remove(late);
                let before = self.kafka.fingerprint();
                let _ = self.end(&carrier);
                if self.kafka.fingerprint() != before {
                    self.reached.push("late EndTxn");
                }
            }
            Step::Markers => self.kafka().write_markers(),
            Step::Outwait => {
                self.reached.push("outwaited");
                self.kafka().time_out();
            }
            Step::TimeOut => {
                self.left.time_outs -= 1;
                self.reached.push("time-out");
                self.kafka().time_out();
            }
            Step::Move => {
                self.left.moves -= 1;
                for id in self.ids().all() {
                    self.kafka().move_coordinator(&id.to_string());
                }
            }
        }
        Ok(())
    }
}

impl search::World for World {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        match self.runs.len() {
            0 => steps.extend([true, false].map(|up| Step::Start { up })),
            1 if self.left.zombies > 0 => steps.extend([true, false].map(|up| Step::StartBeside { up })),
            _ => {}
        }
        if self.left.changes > 0 && self.runs.len() <= 1 && self.progress().is_some() {
            steps.extend([true, false].map(|up| Step::Change { up }));
        }
        for (index, run) in self.runs.iter().enumerate() {
            self.steps_of(index, run, &mut steps);
        }
        steps.extend((0..self.late.len()).map(Step::Arrive));
        steps.push(Step::Markers);
        // Time that passes over nothing changes nothing.
        if self.left.time_outs > 0 && self.has_open() {
            steps.push(Step::TimeOut);
        } else if self.runs.iter().any(|run| self.waits_for_others(run)) && self.has_open() {
            steps.push(Step::Outwait);
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
            | Step::StartBeside { .. }
            | Step::Change { .. }
            | Step::Lose(..)
            | Step::TimeOut
            | Step::Move => true,
            Step::Start { .. }
            | Step::Do(..)
            | Step::Tick(..)
            | Step::Work(..)
            | Step::Meet(..)
            | Step::Arrive(_)
            | Step::Outwait
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
        let of_run = |run: usize| format!("run {}", self.runs[run].number);
        match *step {
            Step::Start { up } => format!("a run starts, and clears {}", in_order(up)),
            Step::StartBeside { up } => format!("a run starts beside it, and clears {}", in_order(up)),
            Step::Change { up } => format!("a change of the layout starts, and clears {}", in_order(up)),
            Step::Crash(run) => format!("{} dies", of_run(run)),
            Step::Do(run, at) => format!("{}: {}", of_run(run), self.runs[run].tasks[at].in_words()),
            Step::Lose(run, at) => {
                format!("{}: {}, and the answer is lost", of_run(run), self.runs[run].tasks[at].in_words())
            }
            Step::Tick(run, shard) => format!("{}: shard {shard}'s interval has passed", of_run(run)),
            Step::Work(run, shard) => format!("{}: shard {shard} writes a record", of_run(run)),
            Step::Meet(run, shard) => format!("{}: shard {shard} meets a barrier", of_run(run)),
            Step::Arrive(at) => {
                let Carrier { transactional_id, identity, .. } = &self.late[at];
                format!("a late EndTxn arrives: {transactional_id} {identity} commit true")
            }
            Step::Markers => "markers are written".into(),
            Step::TimeOut | Step::Outwait => "time passes".into(),
            Step::Move => "another coordinator takes over".into(),
        }
    }

    fn story(&self) -> String {
        let mut story = String::new();
        for shard in 0..self.config.shards {
            story.push_str(&format!("  partition {shard}: {:?}\n", self.kafka.log(shard)));
        }
        story.push_str(&format!("  offsets: {:?}\n", self.progress()));
        for id in self.ids().all() {
            story.push_str(&format!("  {id}: {:?}\n", self.kafka.describe(&id)));
        }
        for run in &self.runs {
            let tasks: Vec<String> = run.tasks.iter().map(Task::in_words).collect();
            story.push_str(&format!("  run {}: {tasks:?}\n", run.number));
        }
        story
    }
}

fn in_order(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

/// An epoch's number is committed once in a layout, and layouts follow each other.
fn check_number(before: &Progress, after: &Progress) -> Result<(), Violation> {
    let broken = |what: String| Err(Violation { property: NONE_TWICE, what });
    if after.layout < before.layout {
        return broken(format!("layout {} is committed over {}", after.layout, before.layout));
    }
    for (shard, now) in &after.shards {
        let was = before.shards.get(shard).filter(|_| after.layout == before.layout);
        if was.is_some_and(|was| was.by != now.by && was.epoch >= now.epoch) {
            return broken(format!("shard {shard}: epoch {} is committed over another one", now.epoch));
        }
    }
    Ok(())
}
