//! `cargo xtask sim`: plays seeds of the simulator. Without a seed it begins at one that nobody has played yet, as far as the
//! clock tells.
//!
//! The last line is JSON; exit code 0 only if nothing was wrong. What was wrong is one line each, which plays its seed again.

use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use xtask::process::Supervised;

use super::program;
use crate::Failure;
use crate::arguments::Arguments;
use crate::need::{self, Need};

/// As many as the test command plays.
const SEEDS: u64 = 200;

/// Begins that are drawn lie so far apart, which is more than anybody plays at once.
const APART: u64 = 100_000;

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let seeds = arguments.parsed("--seeds")?.unwrap_or(SEEDS);
    let seed: Option<u64> = arguments.parsed("--seed")?;
    let threads: Option<usize> = arguments.parsed("--threads")?;
    let log = arguments.value("--log")?;
    let (trace, release) = (arguments.switch("--trace"), arguments.switch("--release"));
    arguments.nothing_left()?;
    need::provide(&[Need::Compiler])?;
    let seed = seed.unwrap_or_else(|| drawn().saturating_mul(APART));
    let mut command = Command::new(program::build_one("hapax-sim", release)?);
    command.args(["--seeds", &seeds.to_string(), "--seed", &seed.to_string()]).stdin(Stdio::null());
    if let Some(threads) = threads {
        command.args(["--threads", &threads.to_string()]);
    }
    if let Some(log) = log {
        command.args(["--log", &log]);
    }
    if trace {
        command.arg("--trace");
    }
    let profile = if release { " --release" } else { "" };
    eprintln!("sim: cargo xtask sim --seeds {seeds} --seed {seed}{profile}");
    let status = Supervised::spawn_group(&mut command)?.wait()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(2) => Err(Failure::Usage("the simulator does not take these options together".to_owned())),
        _ => Err(Failure::Failed("the simulator found something; the lines above play it again".to_owned())),
    }
}

fn drawn() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
