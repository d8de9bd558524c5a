//! Decider `transaction`: the job dies or sleeps at each point of an epoch's life, and nothing is ever in doubt.
//!
//! Played on the broker of this repository, with both transaction protocols, and in its core on Apache Kafka; librdkafka
//! reads what comes out and what the group has committed. Each case is a copy of a topic that is fed while the job runs.

use crate::{
    command_line::Ended,
    harness::{self, Input, Judges, Trickle, binary, directory, unique},
};
use hapax::crash::Point;
use hapax_broker::{Broker, ServerOptions, Settings};
use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};
use xtask::{
    hapax::Run,
    judge::{Audit, GroupOffset},
    kafka::{Version, shared, transactions},
};

mod carrier;
mod group;
mod loss;
mod memory;
mod object;
mod sinks;
mod start;
mod untold;

const PARTITIONS: u32 = 4;
const TOTAL: u64 = 800;
const INPUT: Input = Input {
    partitions: PARTITIONS,
    busy: PARTITIONS,
    backlog: 40,
    before_rest: TOTAL - 100,
    total: TOTAL,
    pause: Duration::from_millis(150),
};
const PATIENCE: Duration = Duration::from_secs(120);
const TIMEOUT_MS: i64 = 60_000;

/// How the first run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Kill,
    Stop,
}

/// Where a case is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// Our broker, with this `transaction.version`.
    Ours(i16),
    /// Apache Kafka.
    Kafka(Version),
}

/// Our broker, on its own threads.
struct Hosted {
    broker: Broker,
    _runtime: Runtime,
}

impl Hosted {
    fn start(transaction_version: i16) -> Self {
        Self::of_seed(transaction_version, Settings::default().seed)
    }

    /// Of another seed it is another cluster.
    fn of_seed(transaction_version: i16, seed: u64) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let settings = Settings { transaction_version, seed, ..Settings::default() };
        let broker = runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap();
        Self { broker, _runtime: runtime }
    }
}

fn judges() -> &'static Judges {
    static JUDGES: OnceLock<Judges> = OnceLock::new();
    JUDGES.get_or_init(|| Judges::start().unwrap())
}

struct Case {
    hosted: Option<Hosted>,
    bootstrap: String,
    job: String,
    folder: PathBuf,
    file: PathBuf,
}

impl Case {
    /// `more` goes to the top of the pipeline file, where `PATH` stands for the case's folder.
    fn new(name: &str, on: On, more: &str) -> Self {
        let (hosted, bootstrap, timeout) = match on {
            On::Ours(version) => {
                let hosted = Hosted::start(version);
                let bootstrap = hosted.broker.bootstrap();
                (Some(hosted), bootstrap, "60s")
            }
            On::Kafka(version) => (None, shared(version).bootstrap.clone(), "10s"),
        };
        let name = name.to_lowercase().replace(['.', ' '], "-");
        let job = unique(&format!("carried-{name}"));
        let folder = directory(&format!("transaction-{name}")).unwrap();
        let case = Self { hosted, bootstrap, job, file: folder.join("pipeline.toml"), folder };
        for topic in [case.source(), case.sink()] {
            judges().reader.create_topic(&case.bootstrap, &topic, PARTITIONS, &[]).unwrap();
        }
        case.write(&format!("transaction_timeout = \"{timeout}\"\n{more}"), &case.kafka_source());
        case
    }

    fn kafka_source(&self) -> String {
        let ends: Vec<String> =
            (0..PARTITIONS).map(|partition| format!("{partition} = {}", per_partition())).collect();
        let source = self.source();
        format!(
            "[[source]]\ntopics = [\"{source}\"]\nend = {{ offsets = {{ \"{source}\" = {{ {} }} }} }}\n",
            ends.join(", ")
        )
    }

    fn write(&self, top: &str, source: &str) {
        let text = format!(
            "job = \"{}\"\ndecider = \"transaction\"\n{top}\n[cluster.main]\nbrokers = \"{}\"\n{source}\n[[sink]]\ntopic = \
             \"{}\"\n",
            self.job,
            self.bootstrap,
            self.sink()
        );
        let more = "interval = \"60ms\"\nincidents = \"PATH/incidents\"";
        let text = match text.contains("[checkpoint]") {
            true => text,
            false => text.replace("[cluster.main]", &format!("[checkpoint]\n{more}\n[cluster.main]")),
        };
        fs::write(&self.file, text.replace("PATH", self.folder.to_str().unwrap())).unwrap();
    }

    fn source(&self) -> String {
        format!("{}-in", self.job)
    }

    fn sink(&self) -> String {
        format!("{}-out", self.job)
    }

    fn start(&self, name: &str, more: &[&str]) -> Run {
        harness::run(&self.file, more, &self.folder.join(format!("{name}.log"))).unwrap()
    }

    fn run(&self, more: &[&str]) -> Ended {
        let mut command = Command::new(binary());
        command.arg("run").arg(&self.file).args(more).stdin(Stdio::null());
        Ended::of(&command.output().unwrap())
    }

    fn feed(&self) -> Trickle {
        Trickle::start(&judges().feeder, &self.bootstrap, &self.source(), INPUT)
    }

    /// Writes the whole input.
    fn fill(&self) {
        self.feed().join().unwrap();
    }

    /// Waits until the first run is dead by SIGKILL, or stopped by SIGSTOP, at its point.
    fn await_crash(run: &mut Run, point: Point, mode: Mode) {
        let ended = |run: &mut Run| Ok(run.process().try_wait()?.is_some() || run.is_stopped()?);
        run.until("neither at its crash point nor at its end", PATIENCE, ended).unwrap();
        assert!(run.crash_point(point.name()).unwrap().is_some(), "{}", run.failure("ended elsewhere"));
        match (mode, run.process().try_wait().unwrap()) {
            (Mode::Kill, Some(status)) => assert_eq!(status.signal(), Some(9)),
            (Mode::Stop, None) => {}
            (_, ended) => panic!("{}", run.failure(&format!("did not end as asked for: {ended:?}"))),
        }
    }

    /// The clock of our broker jumps over the timeout of whatever is open.
    fn let_time_out(&self) {
        let hosted = self.hosted.as_ref().expect("played on our broker");
        hosted.broker.jump_clock(TIMEOUT_MS + 1_000).unwrap();
        self.await_nothing_open("timed out");
    }

    /// The job's ids with their states.
    fn listed(&self) -> Vec<(String, String)> {
        let listed = transactions(&self.bootstrap).unwrap();
        let ours = listed.into_iter().filter(|one| one.id.starts_with(&format!("{}.", self.job)));
        ours.map(|one| (one.id, one.state)).collect()
    }

    fn open(&self) -> Vec<String> {
        let listed = transactions(&self.bootstrap).unwrap();
        let ours = listed.into_iter().filter(|one| one.id.starts_with(&format!("{}.", self.job)));
        ours.filter(|one| one.is_open()).map(|one| one.id).collect()
    }

    /// The last phase of a commit takes milliseconds.
    fn await_nothing_open(&self, when: &str) {
        let began = Instant::now();
        while !self.open().is_empty() {
            assert!(began.elapsed() < PATIENCE, "{when}: {:?}", self.open());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The offsets of the job's group, by topic and partition.
    fn offsets(&self) -> Vec<GroupOffset> {
        let mut offsets = judges().reader.group_offsets(&self.bootstrap, &self.job).unwrap();
        offsets.sort_by_key(|offset| offset.partition);
        offsets
    }

    /// As [`Case::offsets`]; a broker that nobody has asked for a group yet has no coordinator for a moment.
    fn offsets_now(&self) -> Vec<GroupOffset> {
        judges().reader.group_offsets(&self.bootstrap, &self.job).unwrap_or_default()
    }

    /// Every record once and in order, nothing open, and tools that show lag show none.
    fn assert_done(&self, when: &str) {
        self.assert_exact(when);
        let offsets: Vec<(i32, i64)> =
            self.offsets().iter().map(|offset| (offset.partition, offset.offset)).collect();
        let ends: Vec<(i32, i64)> =
            (0..PARTITIONS as i32).map(|partition| (partition, per_partition() as i64)).collect();
        assert_eq!(offsets, ends, "{when}");
    }

    fn assert_exact(&self, when: &str) {
        self.await_nothing_open(when);
        let audit = Audit::copy(&self.sink(), PARTITIONS, TOTAL);
        let report = judges().reader.audit(&self.bootstrap, &audit).unwrap();
        assert!(report.is_exact(), "{when}: {report:?}");
        assert_eq!(report.records, TOTAL, "{when}");
    }
}

fn per_partition() -> u64 {
    TOTAL / u64::from(PARTITIONS)
}

/// Every point but the first is reached once in an epoch of a shard: this is behind the first commits.
fn crash_at(point: Point, mode: Mode) -> String {
    let mode = match mode {
        Mode::Kill => "kill",
        Mode::Stop => "stop",
    };
    format!("{point}:{}:{mode}", 2 * PARTITIONS + 2)
}

/// A run that dies or sleeps at a point, a second one behind it, and the first one awake again.
fn play(on: On, point: Point, mode: Mode) {
    let when = format!("{on:?} {point} {mode:?}");
    let case = Case::new(&when.replace(['(', ')', '_'], " "), on, "");
    let mut feed = case.feed();
    let mut first = case.start("first", &["--crash-at", &crash_at(point, mode)]);
    Case::await_crash(&mut first, point, mode);
    let mut second = case.start("second", &[]);
    let wakes_early = Point::TRANSACTION.iter().position(|other| *other == point).unwrap() % 2 == 0;
    if mode == Mode::Stop && wakes_early {
        let behind = feed.begun();
        let sink = case.sink();
        let place = (case.bootstrap.as_str(), sink.as_str());
        second.await_committed(&judges().reader, place, &[], behind.min(TOTAL - 1), PATIENCE).unwrap();
        first.process().signal("CONT").unwrap();
    }
    assert_eq!(feed.join().unwrap(), TOTAL);
    second.demand_exit(0, PATIENCE).unwrap();
    case.assert_done(&when);
    if mode == Mode::Stop {
        if !wakes_early {
            first.process().signal("CONT").unwrap();
        }
        let status = first.wait(PATIENCE).unwrap();
        // Whoever finds all done has nothing to be taken from it.
        assert!(matches!(status.code(), Some(5 | 0)), "{}", first.failure(&format!("ended with {status}")));
        case.assert_done(&format!("{when}, and the first run is awake"));
    }
}

#[test]
fn a_run_that_dies_at_any_point_is_followed_by_one_that_goes_on_where_it_committed() {
    for version in [0, 2] {
        for point in Point::TRANSACTION {
            play(On::Ours(version), point, Mode::Kill);
        }
    }
}

#[test]
fn a_run_that_slept_at_any_point_changes_nothing_behind_its_successor() {
    for version in [0, 2] {
        for point in Point::TRANSACTION {
            play(On::Ours(version), point, Mode::Stop);
        }
    }
}

#[test]
fn on_apache_kafka_too_a_run_that_dies_or_sleeps_costs_nothing() {
    thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || {
                for (point, mode) in [
                    (Point::K1oOffsetsTaken, Mode::Kill),
                    (Point::K3EndTxnSent, Mode::Kill),
                    (Point::K1oOffsetsTaken, Mode::Stop),
                    (Point::K4Ended, Mode::Stop),
                ] {
                    play(On::Kafka(version), point, mode);
                }
            });
        }
    });
}

/// What decider checkpoint needs recovery for: here it costs time and nothing else.
#[test]
fn a_transaction_that_times_out_at_any_point_costs_time_and_never_a_record() {
    for version in [0, 2] {
        for point in Point::TRANSACTION {
            let when = format!("timed out {point} v{version}");
            let case = Case::new(&when, On::Ours(version), "");
            let mut feed = case.feed();
            let mut first = case.start("first", &["--crash-at", &crash_at(point, Mode::Kill)]);
            Case::await_crash(&mut first, point, Mode::Kill);
            case.let_time_out();
            let mut second = case.start("second", &[]);
            assert_eq!(feed.join().unwrap(), TOTAL);
            second.demand_exit(0, PATIENCE).unwrap();
            case.assert_done(&when);
        }
    }
}

/// The run sleeps for longer than its transactions live and goes on, with nobody else there.
#[test]
fn a_run_whose_transactions_time_out_under_it_begins_another_run_by_itself() {
    for version in [0, 2] {
        for point in Point::TRANSACTION {
            let when = format!("timed out asleep {point} v{version}");
            let case = Case::new(&when, On::Ours(version), "");
            let mut feed = case.feed();
            let mut run = case.start("run", &["--crash-at", &crash_at(point, Mode::Stop)]);
            Case::await_crash(&mut run, point, Mode::Stop);
            case.let_time_out();
            run.process().signal("CONT").unwrap();
            assert_eq!(feed.join().unwrap(), TOTAL);
            run.demand_exit(0, PATIENCE).unwrap();
            case.assert_done(&when);
        }
    }
}
