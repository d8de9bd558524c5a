//! The `hapax` binary: runs pipelines and audits their output.
//!
//! ```text
//!  arguments -- config --> hapax::Job --> command::run      the job, with crash points, signals, progress
//!                                         command::verify   readers -> audit -> report
//!                                         command::txn      a job's transactions, for a person on call
//!                                         command::job      a job's shards and checkpoints, for a person
//!                                         command::broker   hapax-broker as a program
//!                                         demo              a job, its broker, its killer and its auditor
//!  screen    log lines and the progress line, both on standard error
//! ```
//!
//! Every message begins with a stable code, and one table has all exit codes ([`hapax::JobError::exit_code`]; an
//! audit that found something is 7, wrong usage 2).

mod arguments;
mod audit;
mod broker;
mod command;
mod config;
mod crash;
mod demo;
mod excerpt;
mod screen;
mod topic;

use arguments::{Arguments, Command, Log};
use clap::Parser;
use hapax::{Code, Host, JobError};
use screen::Screen;
use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    panic,
    process::ExitCode,
};
use tracing_subscriber::filter::LevelFilter;

/// Exit code of an audit that found something.
const FOUND: u8 = 7;

/// Exit code of wrong usage.
const USAGE: u8 = 2;

/// Exit code of a bug.
const BUG: u8 = 1;

fn main() -> ExitCode {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        // A panic while panicking would end the process without its exit code.
        let _ = writeln!(
            io::stderr(),
            "{}: a panic, which is a bug in hapax; please report it with what follows",
            Code::Bug
        );
        usual(info);
    }));
    panic::catch_unwind(hapax).unwrap_or(ExitCode::from(BUG))
}

fn hapax() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let screen = Screen::default();
    screen.log_to_it(level(&arguments));
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("no runtime can be started: {error}; raise the limit of open files");
            return failed(&screen, &JobError::Run { code: Code::Machine, message });
        }
    };
    let host = Host::real();
    let done = runtime.block_on(async {
        match arguments.command {
            Command::Run(run) => command::run(&host, &screen, run).await,
            Command::Verify(verify) => command::verify(&host, &screen, verify).await,
            Command::Demo(arguments) => demo::demo(&host, &screen, arguments).await,
            Command::DemoAuditor(arguments) => demo::audit(&host, &screen, arguments).await,
            Command::Txn(arguments) => command::transactions(&host, &screen, arguments).await,
            Command::Checkpoint(arguments) => command::checkpoints(&host, &screen, arguments).await,
            Command::Job(arguments) => command::change(&host, &screen, arguments).await,
            Command::Broker(broker) => command::broker(&host, &screen, broker).await,
        }
    });
    // A worker that waits for standard input would hold the runtime up; the process ends here anyway.
    runtime.shutdown_background();
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&screen, &error),
    }
}

/// The demo tells by itself what happens; what its broker and its client say beside that is for those who ask.
fn level(arguments: &Arguments) -> LevelFilter {
    match (&arguments.command, arguments.log) {
        (Command::Demo(_), Log::Info | Log::Warn) => LevelFilter::ERROR,
        (_, log) => log.into(),
    }
}

/// The signals' pair of sockets is asked for by tokio in a way that panics where it is not given; asked for before, it
/// is there, or its absence is an error.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    drop((UnixStream::pair()?, UnixStream::pair()?, UnixStream::pair()?));
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn failed(screen: &Screen, error: &JobError) -> ExitCode {
    screen.line(&error.chain());
    ExitCode::from(error.exit_code())
}

/// Help goes to standard output; anything else is a message with a code.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Nothing can be done about a closed standard output.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    Screen::default().line(format!("{}: {text}", Code::Usage).trim_end());
    ExitCode::from(USAGE)
}
