//! `hapax-sim`: plays seeds and says what was wrong; what `cargo xtask sim` runs.
//!
//! The last line is JSON. Exit code 0 only if nothing was wrong, 1 if something was, 2 for wrong usage.

use hapax_model::sim::{Campaign, Report, Scenario, Watched, line_of, run};
use std::{env, num::NonZero, process::ExitCode, str::FromStr, thread};

struct Options {
    seeds: u64,
    seed: u64,
    threads: usize,
    trace: bool,
    log: Option<tracing::Level>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let mut options = Self { seeds: 200, seed: 0, threads, trace: false, log: None };
        while let Some(name) = arguments.next() {
            match name.as_str() {
                "--seeds" => options.seeds = value(&name, arguments.next())?,
                "--seed" => options.seed = value(&name, arguments.next())?,
                "--threads" => options.threads = value(&name, arguments.next())?,
                "--log" => options.log = Some(value(&name, arguments.next())?),
                "--trace" => options.trace = true,
                _ => return Err(format!("there is no option {name:?} here")),
            }
        }
        match (options.trace || options.log.is_some(), options.seeds) {
            (_, 0) => Err("--seeds must be above zero".to_owned()),
            (true, 2..) => Err("--trace and --log are for one seed: add --seeds 1".to_owned()),
            _ => Ok(options),
        }
    }
}

fn value<T: FromStr>(name: &str, text: Option<String>) -> Result<T, String> {
    let text = text.ok_or_else(|| format!("{name} needs a value"))?;
    text.parse().map_err(|_| format!("{text:?} is no value for {name}"))
}

fn main() -> ExitCode {
    let options = match Options::parse(env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("hapax-sim: {wrong}");
            return ExitCode::from(2);
        }
    };
    if let Some(level) = options.log {
        tracing_subscriber::fmt().with_max_level(level).without_time().with_ansi(false).init();
    }
    let began = clock();
    if options.seeds == 1 {
        let scenario = Scenario::of(options.seed);
        println!("seed {}: {scenario}", options.seed);
        let report = run(&scenario, Watched { shown: options.trace, planted: None });
        println!("digest {:016x}, logs {:016x}", report.digest, report.log_digest);
        let mut campaign = Campaign::default();
        campaign.add(&report);
        if let Some(violation) = &report.violation {
            println!("{}", line_of(report.seed, violation));
        }
        return told(&campaign, began.elapsed().as_secs_f64());
    }
    let end = options.seed.saturating_add(options.seeds);
    let mut played = 0;
    let tell = |report: &Report| {
        played += 1;
        if let Some(violation) = &report.violation {
            println!("{}", line_of(report.seed, violation));
        } else if played % 100 == 0 {
            println!("{played} of {} seeds", options.seeds);
        }
    };
    let campaign = Campaign::play(options.seed..end, options.threads, tell);
    if campaign.seeds < options.seeds {
        for (seed, violation) in &campaign.violations {
            println!("{}", line_of(*seed, violation));
        }
    }
    told(&campaign, began.elapsed().as_secs_f64())
}

fn told(campaign: &Campaign, seconds: f64) -> ExitCode {
    println!("{}", campaign.to_json(seconds));
    if campaign.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[allow(clippy::disallowed_methods, reason = "how long it really took is for people")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}
