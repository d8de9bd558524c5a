//! `cargo xtask`: the one entry for the scripts of this repository.
//!
//! A command is a module of [`command`] with a function that takes [`arguments::Arguments`]; this file only
//! finds it. Exit codes: 0 done, 1 something failed, 2 wrong usage or something that the machine lacks.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate owns processes, files and clocks by nature; it is not part of the product"
)]

mod arguments;
mod command;
mod need;

use std::env;
use std::process::ExitCode;

use arguments::Arguments;

const USAGE: &str = "\
cargo xtask COMMAND

  conformance [--schedules 500] [--seed 0] [--short]
                                 compare the broker with Apache Kafka at length; --short leaves out what takes minutes
  demo                           copy 100,000 orders through a job that is killed three times, audit the output
  fuzz [--seconds 30] [TARGET...]
                                 run each fuzz target for some seconds from its seeds; the last line is JSON
  test [--no-lint] [FILTER...]   formatting, lints, every test; FILTER: only tests whose name contains it
  kafka provision                fetch Apache Kafka into the cache
  kafka start [--version 4.4.0|3.9.1] [--nodes 1|3] [--transaction-version 0|1|2] [--property NAME=VALUE]...
                                 run brokers until Ctrl-C or the end of standard input; the first line is JSON
  model [--world TEXT] [--mutant TEXT]
                                 explore every world of the protocol's model, then plant every mistake, which a world must
                                 catch; TEXT: only worlds, or only mistakes, whose name contains it; the last line is JSON
  proof [--seeds 10000] [--seconds 30]
                                 model, sim and fuzz at length, one after the other, each with its JSON; the last line has
                                 their times and what failed
  sim [--seeds 200] [--seed N] [--threads N] [--release] [--trace] [--log LEVEL]
                                 the whole stack under seeds, in virtual time; the last line is JSON; --trace and --log: for one
  soak [--kills 100] [--seed N] [--version 4.4.0|3.9.1] [--rate 2000] [--release]
                                 kill a running job at random moments, audit its output; the last line is JSON
  soak --matrix [--only TEXT]    play every cell of the commit phase's matrix; TEXT: only cells whose name contains it
  timely [--kills 20] [--seed N] [--version 4.4.0|3.9.1]
                                 build the example dataflow of two processes, kill either at random moments, audit it
";

/// How a command failed.
#[derive(Debug)]
enum Failure {
    /// The caller asked for something that does not exist.
    Usage(String),
    /// The machine lacks something; the text says how to install it.
    Missing(String),
    /// Something was attempted and did not succeed.
    Failed(String),
}

impl Failure {
    /// Tells a person of it.
    fn print(&self) {
        match self {
            Failure::Usage(text) => eprint!("xtask: {text}\n\n{USAGE}"),
            Failure::Missing(text) | Failure::Failed(text) => eprintln!("xtask: {text}"),
        }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) | Failure::Missing(_) => ExitCode::from(2),
            Failure::Failed(_) => ExitCode::FAILURE,
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::new(env::args().skip(1));
    let outcome = match arguments.command().as_deref() {
        Some("test") => command::test::run(arguments),
        Some("kafka") => command::kafka::run(arguments),
        Some("conformance") => command::conformance::run(arguments),
        Some("demo") => command::demo::run(arguments),
        Some("fuzz") => command::fuzz::run(arguments),
        Some("model") => command::model::run(arguments),
        Some("proof") => command::proof::run(arguments),
        Some("soak") => command::soak::run(arguments),
        Some("sim") => command::sim::run(arguments),
        Some("timely") => command::timely::run(arguments),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            Ok(())
        }
        Some(other) => Err(Failure::Usage(format!("there is no command {other:?}"))),
        None => Err(Failure::Usage("no command was given".to_owned())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}
