//! `cargo xtask soak`: a job that copies an endless stream is killed at random moments, again and again.
//!
//! Moments are drawn from the seed: some deaths come while a run still takes over, some after it has committed. A
//! share of them is a pause instead: SIGSTOP, a new run, SIGCONT, after which one of the two runs must give way
//! with exit code 5. At the end the job drains, is asked to stop, and its output is audited by a reader that is
//! not ours. The last line is JSON; exit code 0 only if nothing was lost, duplicated or reordered, no transaction
//! stayed open, and as many kills happened as were asked for. The seed fixes what is drawn, not how the
//! machine's scheduler interleaves it.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use xtask::hapax::{Feed, Part, Pipeline, Run};
use xtask::judge::{Audit, Bounds, Judge, Numbers, Report};
use xtask::kafka::{Cluster, Version, transactions};

use super::{matrix, program};
use crate::Failure;
use crate::arguments::Arguments;
use crate::need::{self, Need};

const PARTITIONS: u32 = 4;
const INTERVAL: Duration = Duration::from_millis(200);
/// A run that has been followed by another one has this long to commit, to give way or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// A soak ends without its kills when they take longer than this, each.
const LIMIT_PER_KILL: Duration = Duration::from_secs(20);
/// Of a hundred deaths this many come without waiting for a commit: most of them while a run takes over.
const EARLY_PERCENT: u64 = 30;
/// Of a hundred deaths this many are pauses.
const PAUSE_PERCENT: u64 = 15;
/// A death comes up to this long after the run has started, or has committed.
const LONGEST_WAIT_MS: u64 = 1_500;
const REPORT_EVERY: Duration = Duration::from_secs(10);

struct Options {
    kills: u64,
    seed: u64,
    version: Version,
    rate: u32,
    release: bool,
}

impl Options {
    fn parse(mut arguments: Arguments) -> Result<Self, Failure> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let version = match arguments.value("--version")? {
            None => Version::V4_4,
            Some(number) => Version::from_number(&number)
                .ok_or_else(|| Failure::Usage(format!("kafka {number} is not offered")))?,
        };
        let options = Self {
            kills: arguments.parsed("--kills")?.unwrap_or(100),
            seed: arguments.parsed("--seed")?.unwrap_or(since.as_millis() as u64 % 1_000_000),
            version,
            rate: arguments.parsed("--rate")?.unwrap_or(2_000),
            release: arguments.switch("--release"),
        };
        arguments.nothing_left()?;
        match options.rate {
            0 => Err(Failure::Usage("--rate must be above zero".to_owned())),
            _ => Ok(options),
        }
    }
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    if arguments.switch("--matrix") {
        let only = arguments.value("--only")?.unwrap_or_default();
        arguments.nothing_left()?;
        return matrix::run(&only);
    }
    let options = Options::parse(arguments)?;
    need::provide(&[Need::Java, Need::Maven, Need::Python, Need::Compiler])?;
    let Options { kills, seed, version, rate, release } = options;
    let profile = if release { " --release" } else { "" };
    eprintln!(
        "soak: cargo xtask soak --kills {kills} --seed {seed} --version {version} --rate {rate}{profile}"
    );
    let mut soak = Soak::prepare(options)?;
    let played = soak.play();
    let directory = soak.directory.clone();
    let kept =
        |error: io::Error| Failure::Failed(format!("{error}\nthe logs are kept in {}", directory.display()));
    let outcome = played.map_err(kept)?;
    println!("{}", outcome.json());
    if outcome.is_exact() && outcome.kills == kills {
        fs::remove_dir_all(&soak.directory)?;
        return Ok(());
    }
    let examples =
        outcome.reports.iter().flat_map(|report| &report.examples).map(|example| format!("  {example}\n"));
    Err(Failure::Failed(format!(
        "the soak of seed {seed} found damage, or did not come to {kills} kills; the logs are kept in {}\n{}",
        soak.directory.display(),
        examples.collect::<String>()
    )))
}

/// A death of a run, until its successor has committed.
struct Death {
    at: Instant,
    /// The sink when it died.
    ends: Vec<Bounds>,
    /// The first number that it cannot have read.
    new: u64,
}

struct Soak {
    options: Options,
    draw: Draw,
    binary: PathBuf,
    cluster: Cluster,
    writer: Arc<Judge>,
    reader: Judge,
    pipeline: Pipeline,
    directory: PathBuf,
    began: Instant,
    reported: Instant,
    runs: u64,
    kills: u64,
    pauses: u64,
    recoveries: Vec<Duration>,
}

impl Soak {
    fn prepare(options: Options) -> Result<Self, Failure> {
        let binary = program::build(options.release)?;
        let directory = program::target()?.join("soak").join(format!("{}-{}", options.version, options.seed));
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        let cluster =
            Cluster::builder(options.version).property("broker.session.timeout.ms", "30000").start()?;
        let bootstrap = cluster.bootstrap();
        let pipeline = Pipeline {
            job: "soak".to_owned(),
            bootstrap: bootstrap.clone(),
            store: directory.join("store"),
            interval: INTERVAL,
            source: "numbers".to_owned(),
            ends: Vec::new(),
            sinks: vec!["copy-a".to_owned(), "copy-b".to_owned()],
        };
        let reader = Judge::start()?;
        for topic in pipeline.sinks.iter().chain([&pipeline.source]) {
            reader.create_topic(&bootstrap, topic, PARTITIONS, &[])?;
        }
        pipeline.write(&directory.join("pipeline.toml"))?;
        let now = Instant::now();
        Ok(Self {
            draw: Draw(options.seed),
            options,
            binary,
            cluster,
            writer: Arc::new(Judge::start()?),
            reader,
            pipeline,
            directory,
            began: now,
            reported: now,
            runs: 0,
            kills: 0,
            pauses: 0,
            recoveries: Vec::new(),
        })
    }

    fn play(&mut self) -> io::Result<Outcome> {
        let limit = PATIENCE + LIMIT_PER_KILL * u32::try_from(self.options.kills).unwrap_or(u32::MAX);
        let feed = self.feed();
        let mut run = self.start()?;
        let mut death = None;
        while self.kills < self.options.kills && self.began.elapsed() < limit {
            if !self.draw.percent(EARLY_PERCENT) {
                self.await_recovery(&mut run, death.take())?;
            }
            thread::sleep(self.draw.wait());
            if let Some(status) = run.process().try_wait()? {
                return Err(run.failure(&format!("ended by itself ({status})")));
            }
            let ends = self.ends()?;
            (run, death) = match self.draw.percent(PAUSE_PERCENT) {
                true => (self.pause(run)?, None),
                false => {
                    self.kill(run)?;
                    let at = Instant::now();
                    (self.start()?, Some(Death { at, ends, new: feed.begun() }))
                }
            };
            self.report(&feed);
        }
        self.await_recovery(&mut run, death)?;
        let records = feed.end()?;
        self.drain(&mut run, records)?;
        self.audit(records)
    }

    fn feed(&self) -> Feed {
        let rate = self.options.rate;
        let count = u64::from((rate / 4).max(1));
        let (bootstrap, topic) = (self.cluster.bootstrap(), &self.pipeline.source);
        Feed::start(self.writer.clone(), &bootstrap, topic, Duration::ZERO, move |_| {
            Part::Write(Numbers { per_second: Some(rate), ..Numbers::new(PARTITIONS, count) })
        })
    }

    fn start(&mut self) -> io::Result<Run> {
        self.runs += 1;
        let log = self.directory.join(format!("run-{:04}.log", self.runs));
        Run::start(&self.binary, &self.directory.join("pipeline.toml"), &[], &log)
    }

    fn ends(&self) -> io::Result<Vec<Bounds>> {
        self.reader.end_offsets(&self.pipeline.bootstrap, &self.pipeline.sinks[0])
    }

    /// Measures the time from a death to the first commit of a record that the dead run cannot have read.
    fn await_recovery(&mut self, run: &mut Run, death: Option<Death>) -> io::Result<()> {
        let Some(Death { at, ends, new }) = death else {
            return Ok(());
        };
        let sink = (self.pipeline.bootstrap.as_str(), self.pipeline.sinks[0].as_str());
        run.await_committed(&self.reader, sink, &ends, new, PATIENCE)?;
        self.recoveries.push(at.elapsed());
        Ok(())
    }

    fn kill(&mut self, mut run: Run) -> io::Result<()> {
        run.process().kill()?;
        let status = run.process().wait()?;
        match status.signal() {
            Some(9) => self.kills += 1,
            _ => return Err(run.failure(&format!("ended by itself ({status}) while it was being killed"))),
        }
        Ok(())
    }

    /// Stops a run, starts another, lets the first go on: the one of the two that claimed first gives way. A run
    /// that was stopped before its claim may be the newer one.
    fn pause(&mut self, mut old: Run) -> io::Result<Run> {
        old.process().signal("STOP")?;
        old.until("is not stopped by SIGSTOP", PATIENCE, |run| run.is_stopped())?;
        self.pauses += 1;
        let mut new = self.start()?;
        thread::sleep(self.draw.wait());
        old.process().signal("CONT")?;
        let start = Instant::now();
        loop {
            if old.process().try_wait()?.is_some() {
                old.demand_exit(5, Duration::ZERO)?;
                return Ok(new);
            }
            if new.process().try_wait()?.is_some() {
                new.demand_exit(5, Duration::ZERO)?;
                return Ok(old);
            }
            if start.elapsed() > PATIENCE {
                return Err(old.failure("was woken beside a newer run, and neither of them gave way"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn report(&mut self, feed: &Feed) {
        if self.reported.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported = Instant::now();
        eprintln!(
            "soak: {} of {} kills, {} pauses, {} records, {:.0} s",
            self.kills,
            self.options.kills,
            self.pauses,
            feed.begun(),
            self.began.elapsed().as_secs_f64()
        );
    }

    /// Waits until the output holds as many records as were fed, and asks the job to stop. Too few are found by the
    /// audit that follows.
    fn drain(&mut self, run: &mut Run, records: u64) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let reports = self.reports(records)?;
            if reports.iter().all(|report| report.records >= records) {
                break;
            }
            if let Some(status) = run.process().try_wait()? {
                return Err(run.failure(&format!("ended by itself ({status}) before its input was copied")));
            }
            thread::sleep(INTERVAL);
        }
        run.process().signal("TERM")?;
        run.demand_exit(0, PATIENCE)
    }

    fn reports(&self, records: u64) -> io::Result<Vec<Report>> {
        // Partitions are kept, so in each of them all numbers ascend.
        let audit =
            |sink: &String| self.reader.audit(&self.pipeline.bootstrap, &Audit::copy(sink, 1, records));
        self.pipeline.sinks.iter().map(audit).collect()
    }

    fn audit(&mut self, records: u64) -> io::Result<Outcome> {
        let open_transactions = self.open_transactions()?;
        self.recoveries.sort_unstable();
        let at = |index: usize| self.recoveries.get(index).copied().unwrap_or_default();
        Ok(Outcome {
            kills: self.kills,
            pauses: self.pauses,
            records,
            open_transactions,
            reports: self.reports(records)?,
            seconds: self.began.elapsed().as_secs(),
            seed: self.options.seed,
            version: self.options.version,
            recoveries: self.recoveries.len(),
            median: at(self.recoveries.len() / 2),
            longest: at(self.recoveries.len().saturating_sub(1)),
        })
    }

    /// Open transactions under the job's name, once those in their last phase have had time to leave it.
    fn open_transactions(&self) -> io::Result<u64> {
        let start = Instant::now();
        loop {
            let listed = transactions(&self.pipeline.bootstrap)?;
            let ours: Vec<_> = listed.iter().filter(|listed| listed.id.starts_with("soak.")).collect();
            if ours.is_empty() {
                return Err(io::Error::other("the coordinators know no transaction of the job"));
            }
            let open = ours.iter().filter(|listed| listed.is_open()).count() as u64;
            if open == 0 || start.elapsed() > Duration::from_secs(10) {
                return Ok(open);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What the soak has found.
struct Outcome {
    kills: u64,
    pauses: u64,
    records: u64,
    open_transactions: u64,
    reports: Vec<Report>,
    seconds: u64,
    seed: u64,
    version: Version,
    recoveries: usize,
    median: Duration,
    longest: Duration,
}

impl Outcome {
    fn is_exact(&self) -> bool {
        self.open_transactions == 0 && self.reports.iter().all(Report::is_exact)
    }

    fn json(&self) -> String {
        let sum = |count: fn(&Report) -> u64| self.reports.iter().map(count).sum::<u64>();
        format!(
            "{{\"kills\":{},\"records\":{},\"lost\":{},\"duplicated\":{},\"reordered\":{},\"open_transactions\":{},\
             \"foreign\":{},\"changed\":{},\"pauses\":{},\"sinks\":{},\"seconds\":{},\"seed\":{},\"version\":\"{}\",\
             \"recoveries\":{},\"recovery_ms_median\":{},\"recovery_ms_max\":{}}}",
            self.kills,
            self.records,
            sum(|report| report.lost),
            sum(|report| report.duplicated),
            sum(|report| report.reordered),
            self.open_transactions,
            sum(|report| report.unexpected + report.unreadable),
            sum(|report| report.mismatched),
            self.pauses,
            self.reports.len(),
            self.seconds,
            self.seed,
            self.version,
            self.recoveries,
            self.median.as_millis(),
            self.longest.as_millis(),
        )
    }
}

/// Draws from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }

    fn wait(&mut self) -> Duration {
        Duration::from_millis(self.next() % LONGEST_WAIT_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lost: u64, unstable: u64) -> Report {
        Report {
            records: 10,
            lost,
            duplicated: 0,
            reordered: 0,
            unexpected: 0,
            mismatched: 0,
            unreadable: 0,
            unstable,
            examples: Vec::new(),
        }
    }

    #[test]
    fn the_last_line_is_json_that_begins_with_what_counts() {
        let mut outcome = Outcome {
            kills: 3,
            pauses: 1,
            records: 10,
            open_transactions: 0,
            reports: vec![report(0, 0), report(2, 0)],
            seconds: 4,
            seed: 5,
            version: Version::V4_4,
            recoveries: 1,
            median: Duration::from_millis(6),
            longest: Duration::from_millis(7),
        };
        let json = outcome.json();
        let start = r#"{"kills":3,"records":10,"lost":2,"duplicated":0,"reordered":0,"open_transactions":0,"#;
        assert!(json.starts_with(start), "{json}");
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["recovery_ms_max"], 7);
        assert!(!outcome.is_exact());
        outcome.reports = vec![report(0, 0), report(0, 0)];
        assert!(outcome.is_exact());
        outcome.open_transactions = 1;
        assert!(!outcome.is_exact());
    }

    #[test]
    fn one_seed_draws_the_same_twice() {
        let draws = |seed: u64| {
            let mut draw = Draw(seed);
            (0..100).map(|_| (draw.wait(), draw.percent(50))).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        assert!(draws(7).iter().all(|(wait, _)| *wait < Duration::from_millis(LONGEST_WAIT_MS)));
    }
}
