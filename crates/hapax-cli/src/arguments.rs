//! The command line.

use crate::crash::CrashAt;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use tracing_subscriber::filter::LevelFilter;

/// The one table of exit codes.
const EXIT_CODES: &str = "\
Exit codes:
  0  done; never with a commit whose outcome is unknown
  1  a bug
  2  wrong usage, or a pipeline that cannot work as it is written
  3  Kafka is not reachable, or refuses (rights, version)
  4  a person is needed: see the incident file
  5  a newer run has claimed the job
  6  the checkpoint store failed
  7  an audit found something";

/// Moves records into Apache Kafka exactly once, and can show it.
#[derive(Debug, Parser)]
#[command(name = "hapax", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How much is logged, to standard error
    #[arg(long, global = true, value_enum, default_value_t = Log::Info)]
    pub(crate) log: Log,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pipeline until it is finished or stopped (SIGTERM, SIGINT)
    Run(RunArguments),
    /// Compare what is there with what should be: missing, duplicated, unexpected and reordered records
    Verify(VerifyArguments),
}

/// How much is logged.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Log {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<Log> for LevelFilter {
    fn from(log: Log) -> Self {
        match log {
            Log::Off => Self::OFF,
            Log::Error => Self::ERROR,
            Log::Warn => Self::WARN,
            Log::Info => Self::INFO,
            Log::Debug => Self::DEBUG,
            Log::Trace => Self::TRACE,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The pipeline file (TOML)
    pub(crate) file: PathBuf,
    /// Set a key of the pipeline file, such as checkpoint.interval=200ms or source.0.start=latest
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Begin anew although there is, or was, a job of this name: records may be written a second time
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Write a summary as one JSON object to standard output at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// For tests: end or stop the process at the n-th reach of a crash point, POINT[:N][:kill|stop]
    #[arg(long, hide = true, value_name = "POINT[:N][:kill|stop]")]
    pub(crate) crash_at: Option<CrashAt>,
}

/// Both sides are read to the ends that they have when the audit begins; a topic read_committed.
#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// What should be there: kafka://host:port,host:port/topic,topic or a file of lines
    #[arg(long, value_name = "SIDE")]
    pub(crate) expected: String,
    /// What is there
    #[arg(long, value_name = "SIDE")]
    pub(crate) actual: String,
    /// What tells records apart, in jq: each output is one id, none leaves the record out. By default the whole
    /// record counts (key, value and headers; of a file, and beside one, the value)
    #[arg(long, value_name = "JQ")]
    pub(crate) id: Option<String>,
    /// The same for the actual side, where it differs
    #[arg(long, value_name = "JQ", requires = "id")]
    pub(crate) id_actual: Option<String>,
    /// What must not descend within a partition, in jq: a number or a string. By default records must stand in the
    /// order of the expected side
    #[arg(long, value_name = "JQ")]
    pub(crate) order: Option<String>,
    /// The same for the actual side, where it differs
    #[arg(long, value_name = "JQ", requires = "order")]
    pub(crate) order_actual: Option<String>,
    /// Do not look at the order
    #[arg(long, conflicts_with = "order")]
    pub(crate) unordered: bool,
    /// Folder for what does not fit into memory [default: the system's for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) temp: Option<PathBuf>,
    /// Write the report as one JSON object to standard output
    #[arg(long)]
    pub(crate) json: bool,
}
