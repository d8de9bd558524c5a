//! `hapax demo`: the main job on a Kafka of its own, killed again and again, audited while it runs.
//!
//! ```text
//!  demo (this process): broker, schedule of kills, screen
//!    |-- writer    hapax run generate.toml   lifelike orders, for as long as the demo lasts      -> orders
//!    |-- job       hapax run orders.toml     killed with SIGKILL and started again               -> orders-large
//!    '-- auditor   hapax demo-auditor        a read_committed reader of both topics, counting what is wrong
//! ```
//!
//! The pipelines are the repository's examples, with other names and a shorter interval. Nothing that the job counts
//! of itself decides how the demo ends: what was written is told by the writer, everything else by the auditor.

mod auditor;
mod child;
mod ledger;
mod result;
mod schedule;

pub(crate) use auditor::audit;

use crate::{
    FOUND,
    arguments::DemoArguments,
    broker::{self, OwnBroker},
    command::Signals,
    screen::Screen,
};
use child::Child;
use hapax::{Code, Host, JobError};
use hapax_broker::ServerOptions;
use hapax_host::{Deadline, Instant};
use hapax_kafka::{
    Client, ClientConfig, ClientError, Isolation,
    admin::{OffsetSpec, list_offsets},
};
use ledger::Tally;
use result::Found;
use schedule::End;
use serde::Deserialize;
use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

/// The job, as users find it.
const ORDERS: &str = include_str!("../../../../examples/orders.toml");

/// What fills its input, as users find it.
const GENERATE: &str = include_str!("../../../../examples/generate.toml");

/// Orders per second: what a job that was not compiled for speed keeps up with, too.
const RATE: u32 = if cfg!(debug_assertions) { 1_000 } else { 5_000 };

/// Orders that may wait for the job before the writer is made to wait: a machine that is busy with other things kills
/// a job that catches up, and would see nothing of its commits.
const MOST_WAITING: u64 = 10_000;

/// Of the job: short, so that many epochs go by.
const INTERVAL: Duration = Duration::from_millis(100);

/// How long transactions may stay open; and those that are to time out on a broker whose clock we cannot move.
const TIMEOUT: Duration = Duration::from_secs(60);
const SHORT_TIMEOUT: Duration = Duration::from_secs(10);

/// For what takes moments on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A process that was killed, or had its time, is gone by then.
const DEATH: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the demo; answers the exit code.
///
/// # Errors
/// It could not be carried out.
pub(crate) async fn demo(host: &Host, screen: &Screen, arguments: DemoArguments) -> Result<u8, JobError> {
    if let Some(address) = &arguments.kafka {
        ClientConfig::parse_bootstrap(address).map_err(|error| JobError::Configuration {
            code: Code::Usage,
            message: format!("--kafka {address}: {error}"),
        })?;
    }
    let folder = Folder::create(host)?;
    let mut signals = Signals::listen();
    let played = tokio::select! {
        played = play(host, screen, &arguments, &folder.0) => played,
        (name, number) = signals.next() => {
            screen.status("");
            screen.line(&format!("{name}: the demo ends early"));
            drop(folder);
            return Ok(u8::try_from(128 + number).unwrap_or(u8::MAX));
        }
    };
    screen.status("");
    let (found, topics) = played.inspect_err(|error| {
        // Of a cluster that is not reached there is nothing to be looked at.
        if error.code() != Code::Unreachable {
            folder.keep(screen);
        }
    })?;
    screen.answer(&format!("\n{}\n", found.table()));
    if arguments.json {
        screen.answer(&found.json((&topics.input, &topics.output)).to_string());
    } else {
        screen.answer(&what_next(&arguments));
    }
    if found.is_exact() {
        return Ok(0);
    }
    folder.keep(screen);
    screen.line(&format!("{}: the audit of the demo found something", Code::Audit));
    Ok(FOUND)
}

fn what_next(arguments: &DemoArguments) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "hapax".to_owned());
    let next = [
        (format!("{program} demo --seed {}", arguments.seed.wrapping_add(1)), "other moments"),
        (format!("{program} demo --kafka HOST:PORT"), "the same on your Kafka"),
        (format!("{program} broker"), "this Kafka for your own client"),
        ("cargo xtask demo".to_owned(), "Apache Kafka, and an audit by librdkafka"),
    ];
    let width = next.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let lines = next.map(|(command, what)| format!("  {command:<width$}  {what}"));
    format!("The auditor shares the Kafka client with the job, and nothing else. Next:\n{}", lines.join("\n"))
}

/// A folder of the system's for temporary files, with the demo's stores and logs.
struct Folder(PathBuf);

impl Folder {
    fn create(host: &Host) -> Result<Self, JobError> {
        let temporary = std::env::temp_dir();
        let path = std::path::absolute(&temporary).map_err(|error| unusable(&temporary, &error))?;
        let cannot_hold = match path.to_str() {
            None => Some("its name is not UTF-8"),
            Some(text) if text.contains(['%', '?', '#', '"', '\\']) => {
                Some("its name has one of % ? # \" \\ in it")
            }
            Some(_) if !path.is_dir() => Some("there is no such folder"),
            Some(_) => None,
        };
        if let Some(why) = cannot_hold {
            let message = format!(
                "the folder for temporary files, {}, cannot hold a demo: {why}; set TMPDIR to another one",
                path.display()
            );
            return Err(JobError::Configuration { code: Code::Usage, message });
        }
        let path = path.join(format!("hapax-demo-{:016x}", host.random_u64()));
        host.files().create_dir_all(&path).map_err(|error| unusable(&path, &error))?;
        Ok(Self(path))
    }

    /// Leaves it where it is, so that it can be looked at.
    fn keep(&self, screen: &Screen) {
        screen.line(&format!("stores and logs are in {}", self.0.display()));
        // Its removal looks for this file.
        let _ = Host::real().files().create_new(&self.0.join(KEPT));
    }
}

const KEPT: &str = "kept";

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.0.join(KEPT).exists() {
            // What cannot be removed is the system's to remove.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> JobError {
    JobError::Run { code: Code::Machine, message: format!("{} cannot be used: {error}", path.display()) }
}

/// Topics of the demo.
#[derive(Clone)]
struct Topics {
    input: String,
    output: String,
}

/// A demo on its way.
struct Demo<'a> {
    host: &'a Host,
    screen: &'a Screen,
    folder: &'a Path,
    /// Ours, where no other was named.
    broker: Option<OwnBroker>,
    bootstrap: String,
    client: Client,
    /// The job's name.
    job: String,
    topics: Topics,
    auditor: Child,
    writer: Option<Child>,
    /// The writer is stopped for now.
    paused: bool,
    kills: usize,
    runs: usize,
    found: Found,
    began: Instant,
}

async fn play(
    host: &Host,
    screen: &Screen,
    arguments: &DemoArguments,
    folder: &Path,
) -> Result<(Found, Topics), JobError> {
    let began = host.now();
    let ends = schedule::ends(arguments.seed, arguments.kills);
    let mut demo = Demo::prepare(host, screen, arguments, folder, ends.len(), began).await?;
    demo.writer = Some(demo.write(arguments.seed)?);
    for end in ends {
        demo.kill(end).await?;
        demo.check()?;
    }
    let mut job = demo.start(TIMEOUT, &[])?;
    demo.stop_writing().await?;
    demo.catch_up(&mut job).await?;
    job.terminate()?;
    job.success(host, PATIENCE).await?;
    demo.read(&job);
    demo.see_none_open("the job has ended").await?;
    demo.finish().await
}

impl<'a> Demo<'a> {
    async fn prepare(
        host: &'a Host,
        screen: &'a Screen,
        arguments: &DemoArguments,
        folder: &'a Path,
        kills: usize,
        began: Instant,
    ) -> Result<Self, JobError> {
        let (broker, bootstrap, suffix) = match &arguments.kafka {
            // Names that no earlier demo has used on a cluster that remembers.
            Some(address) => (None, address.clone(), format!("-demo-{:08x}", host.random_u64() as u32)),
            None => {
                let options = ServerOptions::default();
                let broker =
                    OwnBroker::start(host, "the demo's broker", broker::settings(host), options).await?;
                let bootstrap = broker.bootstrap();
                (Some(broker), bootstrap, String::new())
            }
        };
        let topics = Topics { input: format!("orders{suffix}"), output: format!("orders-large{suffix}") };
        let failed = |error| kafka(&bootstrap, error);
        let names = [topics.input.clone(), topics.output.clone()];
        broker::make_topics(host, &bootstrap, &names).await.map_err(failed)?;
        let config = ClientConfig::new(ClientConfig::parse_bootstrap(&bootstrap).map_err(failed)?);
        let client = Client::connect(host.clone(), config).await.map_err(failed)?;
        for (name, text) in [("orders.toml", ORDERS), ("generate.toml", GENERATE)] {
            let path = folder.join(name);
            let written = host.files().create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|error| unusable(&path, &error))?;
        }
        let of = [
            "--brokers",
            bootstrap.as_str(),
            "--input",
            topics.input.as_str(),
            "--output",
            topics.output.as_str(),
        ];
        let arguments: Vec<String> =
            ["demo-auditor"].iter().chain(&of).map(|text| (*text).to_owned()).collect();
        let auditor = Child::start(host, "auditor", &arguments, &[], &folder.join("auditor.log"))?;
        let place = if broker.is_some() { "embedded broker" } else { "Kafka" };
        screen.line(&format!(
            "demo: {place} at {bootstrap}; hapax run examples/orders.toml, {kills} kills to come"
        ));
        Ok(Self {
            host,
            screen,
            folder,
            broker,
            bootstrap,
            client,
            job: format!("orders{suffix}"),
            topics,
            auditor,
            writer: None,
            paused: false,
            kills,
            runs: 0,
            found: Found { planned: kills as u64, ..Found::default() },
            began,
        })
    }

    /// Starts the writer of orders. It writes no transactions, so that none of its own times out with the job's.
    fn write(&self, seed: u64) -> Result<Child, JobError> {
        let set = [
            format!("job=\"generate-{}\"", self.job),
            // The numbers of a pipeline file are signed.
            format!("source.0.generator={{ rate = {RATE}, partitions = 4, seed = {} }}", seed >> 1),
            format!("sink.0.topic=\"{}\"", self.topics.input),
            "sink.0.guarantee=\"at-least-once\"".to_owned(),
        ];
        self.run("writer", "generate.toml", &set, "generated", &["--json".to_owned()], "writer.log")
    }

    /// Starts the job.
    fn start(&mut self, timeout: Duration, more: &[String]) -> Result<Child, JobError> {
        self.runs += 1;
        let set = [
            format!("job=\"{}\"", self.job),
            format!("transaction_timeout=\"{}s\"", timeout.as_secs()),
            format!("checkpoint.interval=\"{}ms\"", INTERVAL.as_millis()),
            format!("source.0.topics=[\"{}\"]", self.topics.input),
            format!("sink.0.topic=\"{}\"", self.topics.output),
        ];
        let more = [&["--progress".to_owned()], more].concat();
        self.run("job", "orders.toml", &set, "store", &more, &format!("run-{}.log", self.runs))
    }

    fn run(
        &self,
        what: &'static str,
        file: &str,
        set: &[String],
        store: &str,
        more: &[String],
        log: &str,
    ) -> Result<Child, JobError> {
        let mut arguments = vec!["run".to_owned(), self.folder.join(file).display().to_string()];
        arguments.push("--with-parent".to_owned());
        arguments.extend(set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
        arguments.extend_from_slice(more);
        let store = format!("file://{}", self.folder.join(store).display());
        let variables = [("HAPAX_BROKERS", self.bootstrap.as_str()), ("HAPAX_STORE", &store)];
        Child::start(self.host, what, &arguments, &variables, &self.folder.join(log))
    }

    /// Starts the job and sees it die.
    async fn kill(&mut self, end: End) -> Result<(), JobError> {
        let crash_at: Vec<String> =
            end.crash_at().into_iter().flat_map(|at| ["--crash-at".to_owned(), at]).collect();
        let waits = end == End::TimedOut && self.broker.is_none();
        let mut job = self.start(if waits { SHORT_TIMEOUT } else { TIMEOUT }, &crash_at)?;
        let at_most = if let End::After(moment) = end { moment } else { PATIENCE };
        let until = self.host.now() + at_most;
        while self.host.now() < until && job.ended()?.is_none() {
            self.look(Some(&job));
            self.check()?;
            self.pace()?;
            self.host.sleep(LOOK).await;
        }
        if let End::After(_) = end
            && job.ended()?.is_none()
        {
            job.kill()?;
        }
        job.death(self.host, DEATH).await?;
        self.read(&job);
        self.found.kills += 1;
        self.found.at_points += u64::from(end.crash_at().is_some());
        self.look(Some(&job));
        self.screen.line(&format!("demo: kill {} of {}: {}", self.found.kills, self.kills, end.describe()));
        if end == End::TimedOut {
            self.time_out().await?;
        }
        Ok(())
    }

    /// Lets the broker give up what the dead process has left open.
    async fn time_out(&mut self) -> Result<(), JobError> {
        if let Some(broker) = &self.broker {
            let by = TIMEOUT + Duration::from_secs(1);
            broker.broker().jump_clock(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
        }
        self.see_none_open("their time was over").await
    }

    /// Waits until no transaction of the output is open.
    async fn see_none_open(&mut self, since: &str) -> Result<(), JobError> {
        let until = self.host.now() + PATIENCE;
        while self.has_open_transactions().await.map_err(|error| kafka(&self.bootstrap, error))? {
            if self.host.now() >= until {
                let message = format!(
                    "transactions of {} are still open {PATIENCE:?} after {since}",
                    self.topics.output
                );
                return Err(JobError::Run { code: Code::Read, message });
            }
            self.look(None);
            self.host.sleep(LOOK * 5).await;
        }
        Ok(())
    }

    /// Does the output hold records of transactions that have not ended?
    async fn has_open_transactions(&self) -> Result<bool, ClientError> {
        let output = &self.topics.output;
        Ok(self.ends(output, Isolation::ReadCommitted).await?
            != self.ends(output, Isolation::ReadUncommitted).await?)
    }

    async fn ends(&self, topic: &str, isolation: Isolation) -> Result<Vec<Option<i64>>, ClientError> {
        let asked: Vec<(&str, i32)> = (0..broker::PARTITIONS).map(|partition| (topic, partition)).collect();
        let deadline = Deadline::after(self.host.now(), Some(PATIENCE));
        let listed = list_offsets(&self.client, &asked, OffsetSpec::Latest, isolation, deadline).await?;
        Ok(listed.into_iter().map(|found| found.offset).collect())
    }

    /// Writer and auditor must live for as long as the demo.
    fn check(&mut self) -> Result<(), JobError> {
        for child in [&mut self.auditor].into_iter().chain(&mut self.writer) {
            if let Some(status) = child.ended()? {
                return Err(child.failure(self.host, &format!("ended by itself, with {status}")));
            }
        }
        Ok(())
    }

    /// Holds the writer back while too much waits for the job.
    fn pace(&mut self) -> Result<(), JobError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let waiting = self.found.tally.expected.saturating_sub(self.found.tally.output);
        let pause = waiting > if self.paused { MOST_WAITING / 2 } else { MOST_WAITING };
        if pause != self.paused {
            writer.pause(pause)?;
            self.paused = pause;
        }
        Ok(())
    }

    async fn stop_writing(&mut self) -> Result<(), JobError> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        writer.terminate()?;
        // A process that is stopped does not hear of it.
        writer.pause(false)?;
        writer.success(self.host, PATIENCE).await?;
        #[derive(Deserialize)]
        struct Written {
            records_out: u64,
            runs: u64,
        }
        let written: Option<Written> = writer.said();
        let written = written.ok_or_else(|| writer.failure(self.host, "has not said what it wrote"))?;
        if written.runs != 1 {
            // It counts what it sends again a second time.
            return Err(writer.failure(self.host, "had to begin again, so nobody knows how much it wrote"));
        }
        self.found.records = written.records_out;
        Ok(())
    }

    /// Waits until the job has passed on the last of what was written.
    async fn catch_up(&mut self, job: &mut Child) -> Result<(), JobError> {
        let until = self.host.now() + PATIENCE;
        // Without transactions, offsets count records.
        let ends = self.ends(&self.topics.input, Isolation::ReadUncommitted).await;
        let ends = ends.map_err(|error| kafka(&self.bootstrap, error))?;
        let written = ends.into_iter().flatten().map(i64::unsigned_abs).sum();
        while self.host.now() < until {
            self.look(Some(job));
            if self.found.is_caught_up(written) {
                return Ok(());
            }
            if let Some(status) = job.ended()? {
                return Err(job.failure(self.host, &format!("ended by itself, with {status}")));
            }
            self.host.sleep(LOOK).await;
        }
        Err(self.found.behind(written, PATIENCE))
    }

    async fn finish(mut self) -> Result<(Found, Topics), JobError> {
        self.auditor.close_input();
        self.auditor.success(self.host, PATIENCE).await?;
        self.look(None);
        self.found.took = self.host.now().saturating_duration_since(self.began);
        let topics = self.topics.clone();
        let found = self.found.clone();
        drop(self.client);
        if let Some(broker) = self.broker {
            broker.stop().await;
        }
        Ok((found, topics))
    }

    /// Takes what auditor and job say, and shows it.
    fn look(&mut self, job: Option<&Child>) {
        if let Some(tally) = self.auditor.said::<Tally>() {
            self.found.tally = tally;
        }
        #[derive(Deserialize)]
        struct Progress {
            epoch: u64,
        }
        if let Some(Progress { epoch }) = job.and_then(Child::said) {
            self.found.epochs = self.found.epochs.max(epoch);
        }
        if self.screen.is_terminal() {
            self.screen.status(&self.found.line(self.kills));
        }
    }

    /// Counts what a run that has ended says it has mended.
    fn read(&mut self, job: &Child) {
        let log = job.log(self.host);
        let count = |text: &str| log.lines().filter(|line| line.contains(text)).count() as u64;
        self.found.resumed += count("resumed: the decided epoch is committed");
        self.found.repaired += count("rewound: every transaction of the epoch was aborted");
    }
}

fn kafka(bootstrap: &str, error: ClientError) -> JobError {
    let code = if error.is_retriable() { Code::Unreachable } else { Code::Refused };
    JobError::Kafka { code, attempted: format!("demo on {bootstrap}"), source: Box::new(error) }
}
