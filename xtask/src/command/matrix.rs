//! `cargo xtask soak --matrix`: the whole matrix of the commit phase on the broker of this repository, and its core on
//! Apache Kafka.
//!
//! Runs the tests of the binary that an ordinary test run leaves out, or plays a share of; prints which cells are none and
//! why. The last line is JSON; exit code 0 only if every cell passed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use xtask::process::Supervised;

use crate::Failure;
use crate::need::{self, Need};

/// What waits for real timeouts, on each release of Apache Kafka.
const CORE: &str =
    "recovery::on_apache_kafka_too_a_job_that_was_down_for_longer_than_its_timeout_goes_on_by_itself";

/// Plays the cells whose names contain `only`.
pub(crate) fn run(only: &str) -> Result<(), Failure> {
    need::provide(&[Need::Java, Need::Maven, Need::Python, Need::Compiler])?;
    let core = play(&["--exact", CORE], &[])?;
    let report = env::temp_dir().join(format!("hapax-matrix-{}.txt", std::process::id()));
    let at_length = ["--ignored", "--exact", "--nocapture", "commit_phase::at_length"];
    let passed = play(
        &at_length,
        &[("HAPAX_MATRIX_REPORT", report.as_path()), ("HAPAX_MATRIX_ONLY", Path::new(only))],
    )?;
    let text = fs::read_to_string(&report)
        .map_err(|error| Failure::Failed(format!("the matrix left no report: {error}")))?;
    let _ = fs::remove_file(&report);
    println!("\nthe core on Apache Kafka: {}", if core { "passed" } else { "FAILED" });
    print!("{text}");
    match core && passed {
        true => Ok(()),
        false => Err(Failure::Failed("not every cell of the commit phase passed".to_owned())),
    }
}

/// Runs tests of the binary; the whole workspace is named, as by the test command, so that nothing is built anew.
fn play(arguments: &[&str], environment: &[(&str, &Path)]) -> Result<bool, Failure> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    command.args(["test", "--workspace", "--test", "it", "--"]).args(arguments);
    command.envs(environment.iter().copied()).current_dir(root).stdin(Stdio::null());
    Ok(Supervised::spawn_group(&mut command)?.wait()?.success())
}
