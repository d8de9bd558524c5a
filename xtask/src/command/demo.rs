//! `cargo xtask demo`: the main job on real Apache Kafka, killed three times.
//!
//! Starts a broker, writes 100,000 orders while `hapax run examples/orders.toml` filters and reshapes them, kills
//! the run with SIGKILL three times and starts it again, and has the output audited by librdkafka. What must be
//! there is computed here from the input, not asked of the job. Exit code 0 only if nothing is lost, duplicated,
//! reordered or changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use xtask::hapax::{Feed, Part, Run};
use xtask::judge::{Audit, Bounds, Expected, Judge, Numbers, Report};
use xtask::kafka::{Cluster, Version};

use super::program;
use crate::Failure;
use crate::arguments::Arguments;
use crate::need::{self, Need};

const PIPELINE: &str = "examples/orders.toml";
const SOURCE: &str = "orders";
const SINK: &str = "orders-large";
const PARTITIONS: u32 = 4;
const RECORDS: u64 = 100_000;
const PER_SECOND: u32 = 8_000;
/// Records that are written at a time: whoever dies has not read what comes after the part of that moment.
const PART: u64 = 2_000;
/// The job is killed when a reader has got an order from these on.
const KILLS_AT: [u64; 3] = [15_000, 40_000, 65_000];
/// Until each kill no more than this many orders are written, so that others come after it.
const BEFORE_KILL: [u64; 3] = [36_000, 60_000, 84_000];
const PAUSE: Duration = Duration::from_millis(5);
/// Seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The amount of an order, as the judge writes it.
fn amount(id: u64) -> u64 {
    id * 37 % 1000
}

/// The orders that the pipeline passes on: `select(.amount > 100)`.
fn is_large(id: &u64) -> bool {
    amount(*id) > 100
}

/// An order as it is written.
const ORDER: &str = r#"{"id":$id,"customer":"$key","amount":$amount,"currency":"EUR"}"#;
/// An order as the pipeline passes it on: `{id, customer, amount}`.
const LARGE: &str = r#"{"id":$id,"customer":"$key","amount":$amount}"#;

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.nothing_left()?;
    need::provide(&[Need::Java, Need::Maven, Need::Python, Need::Compiler])?;
    let began = Instant::now();
    let demo = Demo::prepare()?;
    let recoveries = demo.play().map_err(|error| demo.failed(&error.to_string()))?;
    let report = demo.audit()?;
    print(&report, &recoveries, began.elapsed());
    if !report.is_exact() {
        return Err(demo.failed(&report.examples.join("\n")));
    }
    fs::remove_dir_all(&demo.directory)?;
    Ok(())
}

struct Demo {
    binary: PathBuf,
    cluster: Cluster,
    reader: Judge,
    writer: Arc<Judge>,
    directory: PathBuf,
}

impl Demo {
    fn prepare() -> Result<Self, Failure> {
        let binary = program::build(false)?;
        println!("demo: starting Apache Kafka {}", Version::V4_4);
        let cluster =
            Cluster::builder(Version::V4_4).property("broker.session.timeout.ms", "30000").start()?;
        let directory = program::target()?.join("demo");
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        let reader = Judge::start()?;
        for topic in [SOURCE, SINK] {
            reader.create_topic(&cluster.bootstrap(), topic, PARTITIONS, &[])?;
        }
        Ok(Self { binary, cluster, reader, writer: Arc::new(Judge::start()?), directory })
    }

    fn failed(&self, why: &str) -> Failure {
        Failure::Failed(format!("{why}\nthe logs are kept in {}", self.directory.display()))
    }

    /// Runs the job to the end of its input and returns the time from each kill to the first new commit.
    fn play(&self) -> io::Result<Vec<Duration>> {
        println!("demo: hapax run {PIPELINE}, while {RECORDS} orders are written");
        let until = Arc::new(AtomicU64::new(BEFORE_KILL[0]));
        let mut feed = self.feed(until.clone());
        let mut run = self.start(0)?;
        let mut recoveries = Vec::new();
        for (number, at) in (1..).zip(KILLS_AT) {
            self.await_order(&mut run, &[], at)?;
            let ends = self.reader.end_offsets(&self.cluster.bootstrap(), SINK)?;
            run.process().kill()?;
            let (killed, new) = (Instant::now(), feed.begun());
            until.store(BEFORE_KILL.get(number).copied().unwrap_or(RECORDS), Ordering::SeqCst);
            run = self.start(number)?;
            self.await_order(&mut run, &ends, new)?;
            let took = killed.elapsed();
            println!(
                "demo: kill {number} of {}, first new commit after {} ms",
                KILLS_AT.len(),
                took.as_millis()
            );
            recoveries.push(took);
        }
        let written = feed.join()?;
        if written != RECORDS {
            return Err(io::Error::other(format!("{written} of {RECORDS} orders were written")));
        }
        self.drain(run)?;
        Ok(recoveries)
    }

    /// Writes orders up to the number in `until`, which rises after each kill.
    fn feed(&self, until: Arc<AtomicU64>) -> Feed {
        Feed::start(self.writer.clone(), &self.cluster.bootstrap(), SOURCE, PAUSE, move |from| {
            let left = until.load(Ordering::SeqCst) - from;
            let mut numbers = Numbers::new(PARTITIONS, PART.min(left));
            numbers.value = ORDER.to_owned();
            numbers.per_second = Some(PER_SECOND);
            match (from, left) {
                (RECORDS, _) => Part::End,
                (_, 0) => Part::Wait,
                _ => Part::Write(numbers),
            }
        })
    }

    fn start(&self, number: usize) -> io::Result<Run> {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
        let mut command = Command::new(&self.binary);
        command.args(["run", PIPELINE]).current_dir(root);
        command.env("HAPAX_BROKERS", self.cluster.bootstrap());
        command.env("HAPAX_STORE", format!("file://{}", self.directory.join("store").display()));
        Run::of(command, &self.directory.join(format!("run-{number}.log")))
    }

    /// Waits until a `read_committed` reader that begins at `after` gets a large order from `from` on.
    fn await_order(&self, run: &mut Run, after: &[Bounds], from: u64) -> io::Result<()> {
        let bootstrap = self.cluster.bootstrap();
        run.await_committed(&self.reader, (&bootstrap, SINK), after, from, PATIENCE)
    }

    /// Waits until every large order has come, and asks the job to stop.
    fn drain(&self, mut run: Run) -> io::Result<()> {
        let start = Instant::now();
        while self.audit()?.lost > 0 && start.elapsed() < PATIENCE {
            if let Some(status) = run.process().try_wait()? {
                return Err(run.failure(&format!("ended by itself ({status}) before its input was read")));
            }
        }
        run.process().signal("TERM")?;
        run.demand_exit(0, PATIENCE)
    }

    fn audit(&self) -> io::Result<Report> {
        let audit = Audit {
            topics: vec![SINK.to_owned()],
            expected: Expected::Ids((0..RECORDS).filter(is_large).collect()),
            field: "id".to_owned(),
            // Partitions are kept, so in each of them all numbers ascend.
            source_partitions: 1,
            value: Some(LARGE.to_owned()),
        };
        self.reader.audit(&self.cluster.bootstrap(), &audit)
    }
}

fn print(report: &Report, recoveries: &[Duration], took: Duration) {
    let expected = (0..RECORDS).filter(is_large).count();
    let longest = recoveries.iter().max().copied().unwrap_or_default();
    println!();
    for (what, value) in [
        ("orders written", RECORDS),
        ("kills (SIGKILL)", recoveries.len() as u64),
        ("large orders expected", expected as u64),
        ("large orders read (read_committed, librdkafka)", report.records),
        ("lost", report.lost),
        ("duplicated", report.duplicated),
        ("reordered", report.reordered),
        ("foreign or changed", report.unexpected + report.unreadable + report.mismatched),
        ("longest time from kill to first new commit, ms", longest.as_millis() as u64),
        ("seconds", took.as_secs()),
    ] {
        println!("  {what:<48}{value:>8}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_orders_are_those_that_the_example_selects() {
        let large: Vec<u64> = (0..6).filter(is_large).collect();
        assert_eq!(large, [3, 4, 5], "0, 37 and 74 are not above 100; 111 is the first that is");
    }

    #[test]
    fn orders_are_left_for_after_each_kill() {
        let next = BEFORE_KILL[1..].iter().chain([&RECORDS]);
        assert!(KILLS_AT.iter().zip(&BEFORE_KILL).all(|(kill, until)| kill + PART < *until));
        assert!(BEFORE_KILL.iter().zip(next).all(|(until, next)| until + PART <= *next));
    }
}
