//! One cell of the crash matrix: a job that dies, or is stopped, at one point, and the run that follows it.
//!
//! A job copies a topic of four partitions, a shard each, to two topics of one cluster. It is bounded, so it ends by
//! itself when everything is copied. Records come while it runs: some wait for it, others trickle in until the cell
//! has seen what it wants to see, the rest comes at once. With idle shards two of the four get nothing before that
//! rest.
//!
//! ```text
//! first run ---- epochs ---- crash point: dead, or stopped          (stopped) SIGCONT -> exit code 5, or
//! second run                            '-- start -- first new commit ---- rest is fed -- exit code 0 --'
//! ```
//!
//! A stopped run is woken while the second run works in half of the cells, and after its end in the other half,
//! where nothing may change any more, not even an end offset. *First new commit* is the moment at which a
//! `read_committed` reader, librdkafka, gets a record that was fed after the crash; the clock starts when this test
//! sees that the process has died or stopped, and the time for the new process to start is in it.

use crate::harness::{self, Input, Judges, Trickle};
use hapax::crash::Point;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use xtask::hapax::{Pipeline, Run};
use xtask::judge::{Audit, Bounds, Isolation};
use xtask::kafka::{Version, shared, transactions};
use xtask::tools::Tools;

const PARTITIONS: u32 = 4;
const IDLE_PARTITIONS: u32 = 2;
/// Records that wait for the first run.
const BACKLOG: u64 = 200;
/// Records that come before the rest: backlog and trickle.
const BEFORE_REST: u64 = 1_400;
const TOTAL: u64 = 1_600;
const INTERVAL: Duration = Duration::from_millis(150);
/// The trickle lasts for some twenty seconds.
const FEED_PAUSE: Duration = Duration::from_millis(250);
/// Everything takes seconds; this covers a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(90);
/// The last phase of a commit takes milliseconds.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
/// Time in which a record too many would come.
const CONSOLE_SETTLE: Duration = Duration::from_secs(1);

/// How the first run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT behind the second run's back.
    Stop,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Kill => "kill",
            Mode::Stop => "stop",
        }
    }
}

/// Which shards have records when the point is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Load {
    /// All.
    Busy,
    /// Half of them.
    Idle,
}

impl Load {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Load::Busy => "busy",
            Load::Idle => "idle",
        }
    }

    fn partitions(self) -> u32 {
        match self {
            Load::Busy => PARTITIONS,
            Load::Idle => IDLE_PARTITIONS,
        }
    }
}

/// When a stopped run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    WhileTheNewRunWorks,
    AfterTheNewRun,
}

/// A cell's coordinates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) version: Version,
    pub(crate) mode: Mode,
    pub(crate) point: Point,
    pub(crate) load: Load,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.version, self.mode.name(), self.point, self.load.name())
    }
}

/// What a cell that went well has seen.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) epoch: u64,
    pub(crate) recovery: Duration,
    pub(crate) took: Duration,
}

impl Cell {
    /// Plays the cell under names that begin with `run`. Its files go below `directory`, and stay when it fails.
    pub(crate) fn play(self, run: &str, directory: &Path, judges: &Judges) -> io::Result<Passed> {
        let began = Instant::now();
        let scene = Scene::prepare(self, run, directory, judges)?;
        let (epoch, recovery) = scene.play()?;
        fs::remove_dir_all(&scene.directory)?;
        Ok(Passed { epoch, recovery, took: began.elapsed() })
    }

    /// The point's place among all, which spreads what only some cells do.
    fn index(self) -> usize {
        Point::COMMIT.iter().position(|point| *point == self.point).expect("a point is one of all")
    }

    fn wake(self) -> Wake {
        match (self.index() + self.load as usize) % 2 {
            0 => Wake::WhileTheNewRunWorks,
            _ => Wake::AfterTheNewRun,
        }
    }

    /// A tenth of the cells is also read by Apache Kafka's console consumer: points further on in each test.
    fn by_console(self) -> bool {
        let test = 2 * usize::from(self.version == Version::V3_9) + usize::from(self.mode == Mode::Stop);
        self.index() / 2 == test && self.index() < 8 && self.load as usize == self.index() % 2
    }

    /// The reach that ends or stops the process: in an epoch after the first, so that something has been committed.
    /// A shard reaches K0, and a lane K3, in every epoch.
    fn crash_at(self) -> String {
        let lanes = self.load.partitions();
        let nth = match self.point {
            Point::K0BeforeFlush => 2 * PARTITIONS + 2,
            Point::K2bBetweenLanes => 2 * (lanes - 1) + 1,
            Point::K3EndTxnSent => 2 * lanes + 1,
            Point::K1Prepared
            | Point::K1pPositionsPut
            | Point::K1oOffsetsTaken
            | Point::K1bUnstored
            | Point::K1bStored
            | Point::K2Decided
            | Point::K4Ended
            | Point::K5Proven => 3,
            Point::R0Claimed
            | Point::R1Cleared
            | Point::R2Looked
            | Point::R3LaneEnded
            | Point::R4Rewritten
            | Point::R4nNoted
            | Point::R5Recorded
            | Point::R6IdsCleared
            | Point::L0Unstored
            | Point::L1Stored => 1,
        };
        format!("{}:{nth}:{}", self.point, self.mode.name())
    }
}

/// A cell on the broker: topics, files, names.
struct Scene<'a> {
    cell: Cell,
    judges: &'a Judges,
    bootstrap: &'static str,
    pipeline: Pipeline,
    directory: PathBuf,
    file: PathBuf,
}

impl<'a> Scene<'a> {
    fn prepare(cell: Cell, run: &str, directory: &Path, judges: &'a Judges) -> io::Result<Self> {
        let bootstrap = &shared(cell.version).bootstrap;
        let name = format!("{}-{}", cell.point.name().to_lowercase(), cell.load.name());
        let directory = directory.join(&name);
        fs::create_dir_all(&directory)?;
        let job = format!("{run}-{name}");
        let topic = |what: &str| format!("{job}-{what}");
        let rest = (TOTAL - BEFORE_REST) / u64::from(PARTITIONS);
        let before = BEFORE_REST / u64::from(cell.load.partitions());
        let end = |partition| rest + if partition < cell.load.partitions() { before } else { 0 };
        let pipeline = Pipeline {
            job: job.clone(),
            bootstrap: bootstrap.clone(),
            store: directory.join("store"),
            interval: INTERVAL,
            source: topic("in"),
            ends: (0..PARTITIONS).map(end).collect(),
            sinks: vec![topic("a"), topic("b")],
        };
        for topic in pipeline.sinks.iter().chain([&pipeline.source]) {
            judges.reader.create_topic(bootstrap, topic, PARTITIONS, &[])?;
        }
        let file = directory.join("pipeline.toml");
        pipeline.write(&file)?;
        Ok(Self { cell, judges, bootstrap, pipeline, directory, file })
    }

    /// The epoch of the crash, and the time from there to the first new commit.
    fn play(&self) -> io::Result<(u64, Duration)> {
        let mut feed = self.feed();
        let mut first = self.start("first", &["--crash-at", &self.cell.crash_at()])?;
        self.await_crash(&mut first)?;
        let (crashed, new) = (Instant::now(), feed.begun());
        let mut second = self.start("second", &[])?;
        let sink = (self.bootstrap, self.pipeline.sinks[0].as_str());
        second.await_committed(&self.judges.reader, sink, &[], new, PATIENCE)?;
        let recovery = crashed.elapsed();
        let epoch = self.epoch(&first)?;

        if self.cell.mode == Mode::Stop && self.cell.wake() == Wake::WhileTheNewRunWorks {
            self.wake(&mut first)?;
            if second.process().try_wait()?.is_some() {
                return Err(second.failure("ended before everything was fed"));
            }
        }
        let fed = feed.join()?;
        expect(fed == TOTAL, || format!("{fed} of {TOTAL} records were fed"))?;
        second.demand_exit(0, PATIENCE)?;
        self.judge()?;
        if self.cell.mode == Mode::Stop && self.cell.wake() == Wake::AfterTheNewRun {
            let before = self.bounds()?;
            self.wake(&mut first)?;
            let after = self.bounds()?;
            expect(after == before, || format!("the woken run changed {before:?} to {after:?}"))?;
            self.judge()?;
        }
        Ok((epoch, recovery))
    }

    fn start(&self, name: &str, arguments: &[&str]) -> io::Result<Run> {
        harness::run(&self.file, arguments, &self.directory.join(format!("{name}.log")))
    }

    fn feed(&self) -> Trickle {
        let busy = self.cell.load.partitions();
        let input = Input {
            partitions: PARTITIONS,
            busy,
            backlog: BACKLOG,
            before_rest: BEFORE_REST,
            total: TOTAL,
            pause: FEED_PAUSE,
        };
        Trickle::start(&self.judges.feeder, self.bootstrap, &self.pipeline.source, input)
    }

    /// Waits until the first run is dead by SIGKILL, or stopped by SIGSTOP.
    fn await_crash(&self, first: &mut Run) -> io::Result<()> {
        let what = format!("is neither at its crash point {} nor at its end", self.cell.point);
        first.until(&what, PATIENCE, |run| Ok(run.process().try_wait()?.is_some() || run.is_stopped()?))?;
        match (self.cell.mode, first.process().try_wait()?) {
            (Mode::Kill, Some(status)) if status.signal() == Some(9) => Ok(()),
            (Mode::Stop, None) => Ok(()),
            (_, ended) => Err(first.failure(&format!("did not end as asked for: {ended:?}"))),
        }
    }

    /// The epoch in which the first run says that it reached its point.
    fn epoch(&self, first: &Run) -> io::Result<u64> {
        match first.crash_point(self.cell.point.name())? {
            Some(epoch) if epoch >= 2 => Ok(epoch),
            found => Err(first.failure(&format!("reached its point in epoch {found:?}, not in a later one"))),
        }
    }

    /// A woken run finds that a newer one has claimed the job.
    fn wake(&self, first: &mut Run) -> io::Result<()> {
        expect(first.is_stopped()?, || "the first run did not stay stopped".into())?;
        first.process().signal("CONT")?;
        first.demand_exit(5, PATIENCE)
    }

    fn bounds(&self) -> io::Result<Vec<Vec<Bounds>>> {
        self.pipeline.sinks.iter().map(|sink| self.judges.reader.end_offsets(self.bootstrap, sink)).collect()
    }

    /// Every record is there once, in both topics, in order; no transaction of the job is open.
    fn judge(&self) -> io::Result<()> {
        self.await_settled()?;
        for sink in &self.pipeline.sinks {
            // Partitions are kept, so in each of them all numbers ascend.
            let report = self.judges.reader.audit(self.bootstrap, &Audit::copy(sink, 1, TOTAL))?;
            expect(report.is_exact(), || format!("{sink}: {report:?}"))?;
        }
        match self.cell.by_console() {
            true => self.judge_by_console(),
            false => Ok(()),
        }
    }

    /// The markers of a committed transaction are written after its answer: a job that has just ended has
    /// transactions in their last phase for some milliseconds.
    fn await_settled(&self) -> io::Result<()> {
        let (start, prefix) = (Instant::now(), format!("{}.", self.pipeline.job));
        loop {
            let mut ours = transactions(self.bootstrap)?;
            ours.retain(|listed| listed.id.starts_with(&prefix));
            expect(!ours.is_empty(), || format!("the coordinators know no transaction of {prefix}"))?;
            ours.retain(|listed| listed.is_open());
            if ours.is_empty() {
                return Ok(());
            }
            expect(start.elapsed() < SETTLED_WITHIN, || format!("these transactions stay open: {ours:?}"))?;
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn judge_by_console(&self) -> io::Result<()> {
        let tools = Tools::new(self.cell.version)?;
        let expected: BTreeSet<String> = (0..TOTAL)
            .map(|n| format!(r#"{{"id":{n},"amount":{},"key":"k{}"}}"#, n * 37 % 1000, n % 100))
            .collect();
        for sink in &self.pipeline.sinks {
            let read = tools.console_consume(
                self.bootstrap,
                sink,
                Isolation::ReadCommitted,
                TOTAL as usize,
                CONSOLE_SETTLE,
            )?;
            let distinct: BTreeSet<String> = read.iter().cloned().collect();
            expect(read.len() as u64 == TOTAL && distinct == expected, || {
                format!(
                    "{sink}: the console consumer read {} lines, {} of them distinct",
                    read.len(),
                    distinct.len()
                )
            })?;
        }
        Ok(())
    }
}

fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(otherwise())) }
}
