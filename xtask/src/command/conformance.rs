//! `cargo xtask conformance`: the broker of this repository against Apache Kafka, at length.
//!
//! Runs the conformance suite of `hapax-broker` with more random schedules than an ordinary test run, and with the
//! scenarios that take minutes; prints what was played, what agreed, and what was reached: states and error codes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;
use xtask::kafka::Version;
use xtask::process::Supervised;

use crate::Failure;
use crate::arguments::Arguments;
use crate::need::{self, Need};

const SCHEDULES: u64 = 500;

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let schedules = arguments.parsed("--schedules")?.unwrap_or(SCHEDULES);
    let first = arguments.parsed("--seed")?.unwrap_or(0_u64);
    let long = !arguments.switch("--short");
    arguments.nothing_left()?;
    need::provide(&[Need::Java, Need::Maven, Need::Compiler])?;
    let report = env::temp_dir().join(format!("hapax-conformance-{}.jsonl", std::process::id()));
    let outcome = play(&report, first, schedules, long);
    let printed = print(&report);
    let _ = fs::remove_file(&report);
    outcome.and(printed)
}

/// Runs the suite's test that is left out otherwise; it writes one line a release into the report.
fn play(report: &Path, first: u64, schedules: u64, long: bool) -> Result<(), Failure> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["test", "--package", "hapax-broker", "--test", "it", "--"])
        .args(["--ignored", "--exact", "--nocapture", "conformance::at_length"])
        .env("HAPAX_CONFORMANCE_REPORT", report)
        .env("HAPAX_CONFORMANCE_SEED", first.to_string())
        .env("HAPAX_CONFORMANCE_SCHEDULES", schedules.to_string())
        .env("HAPAX_CONFORMANCE_LONG", if long { "1" } else { "0" });
    let mut process = Supervised::spawn_group(&mut command)?;
    match process.wait()?.success() {
        true => Ok(()),
        false => Err(Failure::Failed("the broker does not answer as Apache Kafka does".to_owned())),
    }
}

fn print(report: &Path) -> Result<(), Failure> {
    let text = fs::read_to_string(report)
        .map_err(|error| Failure::Failed(format!("the suite left no report: {error}")))?;
    let runs: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    println!("\n{:<14}{:>11}{:>9}{:>11}{:>9}", "Apache Kafka", "scenarios", "equal", "schedules", "equal");
    for run in &runs {
        println!(
            "{:<14}{:>11}{:>9}{:>11}{:>9}",
            run["release"].as_str().unwrap_or_default(),
            times(&run["scenarios"]),
            times(&run["scenarios_equal"]),
            times(&run["schedules"]),
            times(&run["schedules_equal"]),
        );
    }
    let names: BTreeSet<&String> = runs
        .iter()
        .flat_map(|run| [&run["real"], &run["ours"]])
        .filter_map(Value::as_object)
        .flat_map(|tally| tally.keys())
        .collect();
    print!("\n{:<46}", "answered, how often");
    for run in &runs {
        print!("{:>10}{:>10}", run["release"].as_str().unwrap_or_default(), "ours");
    }
    println!();
    for name in names {
        print!("{name:<46}");
        for run in &runs {
            print!("{:>10}{:>10}", times(&run["real"][name]), times(&run["ours"][name]));
        }
        println!();
    }
    match runs.len() == Version::ALL.len() {
        true => Ok(()),
        false => Err(Failure::Failed("not every release was played".to_owned())),
    }
}

fn times(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
