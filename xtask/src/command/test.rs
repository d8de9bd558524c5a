//! `cargo xtask test`: the test command.
//!
//! First what the machine needs. Then the stages, each of which is timed: formatting, lints and the build of
//! every test; Kafka and the judge; the tests that need no broker; the integration tests. Lints end the run when
//! they fail; the tests all run, so that one failure does not hide another, and a failure of any is the
//! command's.
//!
//! Integration tests wait for most of their time (time-outs, pauses before a request is sent again, processes that start),
//! so several of them share a core.
//!
//! Every call of cargo names the whole workspace: another choice of packages would unify features in another
//! way and build the dependencies once more.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use xtask::judge;
use xtask::kafka::{Cluster, Version, start_shared};
use xtask::process::Supervised;

use super::{model, sink_alone};
use crate::Failure;
use crate::arguments::Arguments;
use crate::need::{self, Need};

/// Integration tests at a time for each core. One keeps a core busy for a sixth of its time.
const WAITING_A_CORE: usize = 2;
/// Of all that run at a time: the brokers are shared by all of them.
const WAITING: usize = 16;
/// Mistakes that are planted in each run, so that a model that sees nothing is noticed: one in the judgement of a lane, one in
/// the order of recovery, one in the chain. `cargo xtask model` plants all.
const PLANTED: [&str; 3] = ["abort-is-commit", "answer-is-not-read-back", "clears-its-own-ids-only"];
/// The test runner's own variable. Who has set it has chosen.
const THREADS: &str = "RUST_TEST_THREADS";

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let lint = !arguments.switch("--no-lint");
    let filters = arguments.rest()?;
    need::provide(&[
        Need::Java,
        Need::JavaCompiler,
        Need::Maven,
        Need::Python,
        Need::Node,
        Need::Compiler,
        Need::Git,
    ])?;
    let mut times = Times::default();
    let outcome = stages(lint, &filters, &mut times);
    times.print();
    outcome
}

fn stages(lint: bool, filters: &[String], times: &mut Times) -> Result<(), Failure> {
    times.take(Part::Build, sink_alone::check)?;
    times.take(Part::Build, || build(lint))?;
    let shared = times.take(Part::Preparation, Environment::provide)?;
    let mut failed = Vec::new();
    for (part, what, targets) in [
        (Part::Rest, "unit tests", ["--lib", "--bins", "--examples"].as_slice()),
        (Part::Rest, "documentation tests", &["--doc"]),
        (Part::Kafka, "integration tests", &["--test", "*"]),
    ] {
        let passed = times.take(part, || {
            let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
            command.args(targets).arg("--").args(filters);
            shared.name_in(&mut command);
            if part == Part::Kafka && env::var_os(THREADS).is_none() {
                let cores = thread::available_parallelism().map_or(1, usize::from);
                command.env(THREADS, (WAITING_A_CORE * cores).min(WAITING.max(cores)).to_string());
            }
            status(&mut command)
        })?;
        if !passed {
            failed.push(what);
        }
    }
    if filters.is_empty() && times.take(Part::Model, plant).map_err(|failure| failure.print()).is_err() {
        failed.push("mistakes that the model must catch");
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(format!("these failed: {}", failed.join(", ")))),
    }
}

/// Formatting and lints (unless they are left out), then every test binary.
fn build(lint: bool) -> Result<(), Failure> {
    if lint {
        demand("cargo fmt", &mut cargo(&["fmt", "--all", "--check"]))?;
        let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        demand("cargo clippy", &mut cargo(&clippy))?;
    }
    demand("the build", &mut cargo(&["test", "--workspace", "--no-run"]))
}

fn plant() -> Result<(), Failure> {
    let caught = model::catch(|name| PLANTED.contains(&name))?;
    caught.demand(PLANTED.len())
}

/// What the test binaries find in their environment: one broker a version, and the judge's Python.
struct Environment {
    brokers: Vec<Cluster>,
    python: PathBuf,
}

impl Environment {
    fn provide() -> Result<Self, Failure> {
        let python = judge::python()?;
        let brokers = thread::scope(|scope| {
            let starts: Vec<_> =
                Version::ALL.into_iter().map(|version| scope.spawn(move || start_shared(version))).collect();
            starts
                .into_iter()
                .map(|start| start.join().expect("starting a broker does not panic"))
                .collect::<io::Result<Vec<Cluster>>>()
        })?;
        Ok(Self { brokers, python })
    }

    fn name_in(&self, command: &mut Command) {
        command.env(judge::VARIABLE, &self.python);
        for broker in &self.brokers {
            command.env(broker.version().variable(), broker.bootstrap());
        }
    }
}

pub(super) fn demand(what: &str, command: &mut Command) -> Result<(), Failure> {
    match status(command)? {
        true => Ok(()),
        false => Err(Failure::Failed(format!("{what} failed"))),
    }
}

/// Runs a command of which nothing stays behind, whether it ends by itself or this process is ended.
fn status(command: &mut Command) -> Result<bool, Failure> {
    let shown: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    println!("\n$ cargo {}", shown.join(" "));
    let mut process = Supervised::spawn_group(command.stdin(Stdio::null()))?;
    Ok(process.wait()?.success())
}

/// The cargo that runs this, in the root of the workspace.
pub(super) fn cargo(arguments: &[&str]) -> Command {
    let program = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(program);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    command.args(arguments).current_dir(root);
    command
}

/// The parts of a run for which there is a limit on a machine with two cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Preparation,
    Build,
    Kafka,
    Model,
    Rest,
}

impl Part {
    const ALL: [Part; 5] = [Part::Preparation, Part::Build, Part::Kafka, Part::Model, Part::Rest];

    fn name(self) -> &'static str {
        match self {
            Part::Preparation => "Kafka and judge",
            Part::Build => "build and lints",
            Part::Kafka => "real Kafka",
            Part::Model => "mistakes planted",
            Part::Rest => "the rest",
        }
    }

    /// In minutes.
    fn limit(self) -> Option<u64> {
        match self {
            Part::Preparation => None,
            Part::Build => Some(12),
            Part::Kafka => Some(15),
            Part::Model => Some(6),
            Part::Rest => Some(10),
        }
    }
}

#[derive(Default)]
struct Times(Vec<(Part, Duration)>);

impl Times {
    fn take<T>(&mut self, part: Part, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.0.push((part, start.elapsed()));
        result
    }

    fn print(&self) {
        println!("\nwhere the time went");
        let mut total = Duration::ZERO;
        for part in Part::ALL {
            let spent: Duration = self.0.iter().filter(|(of, _)| *of == part).map(|(_, time)| *time).sum();
            total += spent;
            let over = part.limit().filter(|minutes| spent > Duration::from_secs(60 * minutes));
            let remark = over.map_or(String::new(), |minutes| format!("  over its limit of {minutes} min"));
            println!("  {:<26}{:>8}{remark}", part.name(), shown(spent));
        }
        println!("  {:<26}{:>8}", "in all", shown(total));
    }
}

fn shown(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}
