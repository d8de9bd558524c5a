//! The command line.

use crate::crash::CrashAt;
use clap::{Args, Parser, Subcommand, ValueEnum};
use hapax_commit::Strategy;
use std::{net::SocketAddr, path::PathBuf};
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
    /// Look at the transactions of a job, or end one of them
    Txn(TxnArguments),
    /// Look at the checkpoints of a job
    Checkpoint(CheckpointArguments),
    /// Change what is fixed when a job is created
    Job(JobArguments),
    /// See it: a job on a Kafka of its own, killed again and again, audited while it runs
    Demo(DemoArguments),
    /// Run a Kafka for tests and demos, in one process and in memory: no production broker
    Broker(BrokerArguments),
    /// The demo's third process
    #[command(hide = true)]
    DemoAuditor(AuditorArguments),
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
    /// Allow a recovery strategy for this start, after those of the pipeline file: what an incident asks a person for
    #[arg(long, value_name = "STRATEGY", value_parser = strategy)]
    pub(crate) recover: Vec<Strategy>,
    /// Forget the positions of a topic, file or source that the pipeline does not read any more, or what is open at a
    /// cluster that it does not know any more
    #[arg(long, value_name = "NAME")]
    pub(crate) drop: Vec<String>,
    /// Go back to this checkpoint first, 0 is the beginning: what came out since comes out a second time. Each start with
    /// this does so; `hapax checkpoint list` names those that are kept
    #[arg(long, value_name = "EPOCH", conflicts_with = "fresh")]
    pub(crate) from: Option<u64>,
    /// Begin this job, which is new, at a proven checkpoint of another one, which is not touched
    #[arg(long, value_name = "JOB[@EPOCH]", value_parser = fork, conflicts_with_all = ["fresh", "from"])]
    pub(crate) fork_of: Option<ForkOf>,
    /// The other job's checkpoint store, where it is not this one's
    #[arg(long, value_name = "URL", requires = "fork_of")]
    pub(crate) fork_store: Option<String>,
    /// Write a summary as one JSON object to standard output at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// For tests: end or stop the process at the n-th reach of a crash point, POINT[:N][:kill|stop]
    #[arg(long, hide = true, value_name = "POINT[:N][:kill|stop]")]
    pub(crate) crash_at: Option<CrashAt>,
    /// For the demo: progress as lines of JSON to standard output
    #[arg(long, hide = true)]
    pub(crate) progress: bool,
    /// For the demo: end at once when standard input closes
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

fn strategy(name: &str) -> Result<Strategy, String> {
    let known = || Strategy::ALL.map(Strategy::name).join(", ");
    Strategy::parse(name).ok_or_else(|| format!("there is no such strategy; there are {}", known()))
}

/// A job and one of its checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct ForkOf {
    pub(crate) job: String,
    pub(crate) epoch: Option<u64>,
}

fn fork(text: &str) -> Result<ForkOf, String> {
    let (job, epoch) = match text.split_once('@') {
        Some((job, epoch)) => {
            let number = epoch.parse().map_err(|_| format!("{epoch:?} is not the number of a checkpoint"))?;
            (job, Some(number))
        }
        None => (text, None),
    };
    Ok(ForkOf { job: job.to_owned(), epoch })
}

#[derive(Debug, Args)]
pub(crate) struct CheckpointArguments {
    #[command(subcommand)]
    pub(crate) command: CheckpointCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// The checkpoints that are kept, oldest first: what `hapax run FILE --from` takes; changes nothing
    List {
        #[command(flatten)]
        pipeline: PipelineArguments,
        /// A JSON object a line
        #[arg(long)]
        json: bool,
    },
}

/// A run that is alive ends with exit code 5. What is in doubt is resolved first.
#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    #[command(subcommand)]
    pub(crate) command: JobCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Give a stopped job another number of shards
    Shards {
        #[command(flatten)]
        pipeline: PipelineArguments,
        /// How many
        shards: u32,
        /// For tests: end or stop the process at the n-th reach of a crash point, POINT[:N][:kill|stop]
        #[arg(long, hide = true, value_name = "POINT[:N][:kill|stop]")]
        crash_at: Option<CrashAt>,
    },
}

/// Running the job does all of this by itself, and better; this is for what a person has decided.
#[derive(Debug, Args)]
pub(crate) struct TxnArguments {
    #[command(subcommand)]
    pub(crate) command: TxnCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TxnCommand {
    /// Every transactional id of the job: what checkpoints, coordinator and data say of it; changes nothing
    Describe {
        #[command(flatten)]
        pipeline: PipelineArguments,
        /// This one only
        #[arg(long)]
        id: Option<String>,
        /// Also read the records of what is in doubt and open, and compare them with what was acknowledged
        #[arg(long)]
        records: bool,
        /// A JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Commit a transaction that a checkpoint has decided
    ///
    /// A run that is alive ends with exit code 5, unless the commit is refused by what can be seen beforehand.
    Commit {
        #[command(flatten)]
        pipeline: PipelineArguments,
        #[command(flatten)]
        id: IdArguments,
        /// Also where another transaction of the checkpoint is not open and none is committed yet
        ///
        /// Until the first commit the job can go back to the checkpoint before and read the input again (rewind).
        /// Afterwards it cannot: records that another transaction of the checkpoint has lost must be written again out
        /// of the log (rewrite), or given up.
        #[arg(long)]
        no_way_back: bool,
    },
    /// Abort what is open under an id
    ///
    /// A run that is alive ends with exit code 5, unless the abort is refused by what can be seen beforehand.
    Abort {
        #[command(flatten)]
        pipeline: PipelineArguments,
        #[command(flatten)]
        id: IdArguments,
        /// Also what a checkpoint has decided: its records are then left to the recovery strategies of the job
        #[arg(long)]
        decided: bool,
    },
}

/// Which transactional id.
#[derive(Debug, Args)]
pub(crate) struct IdArguments {
    /// The transactional id
    pub(crate) id: String,
    /// Kafka's id of the cluster, where a replaced cluster has left the same transactional id at two
    #[arg(long, value_name = "ID")]
    pub(crate) cluster_id: Option<String>,
}

/// Which job.
#[derive(Debug, Args)]
pub(crate) struct PipelineArguments {
    /// The pipeline file (TOML)
    pub(crate) file: PathBuf,
    /// Set a key of the pipeline file
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Takes about half a minute. Exit code 0 only if nothing is lost and nothing duplicated.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// What the orders and the moments of the kills follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Kills at random moments, beside one at each crash point and one that is followed by a time-out
    #[arg(long, value_name = "COUNT", default_value_t = 15, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) kills: u32,
    /// Write what was found as one JSON object, the last line of standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Do it on a real cluster, in topics of its own, which stay there
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) kafka: Option<String>,
}

/// What the demo's auditor reads.
#[derive(Debug, Args)]
pub(crate) struct AuditorArguments {
    #[arg(long)]
    pub(crate) brokers: String,
    #[arg(long)]
    pub(crate) input: String,
    #[arg(long)]
    pub(crate) output: String,
}

/// The first line of standard output is its address as JSON: {"bootstrap":"127.0.0.1:39213","control":null}.
/// It ends with SIGTERM or SIGINT.
#[derive(Debug, Args)]
pub(crate) struct BrokerArguments {
    /// Where it listens; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The host that clients are told, where it is not the address
    #[arg(long, value_name = "HOST")]
    pub(crate) advertise: Option<String>,
    /// Folder of its journal, from which it goes on after any end; nothing is kept without it
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Nodes that it poses as; with a port, later ones take the ports after it
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) nodes: i32,
    /// Where its control port listens (HTTP, JSON): faults, steps, state
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) control: Option<SocketAddr>,
    /// File with a JSON list of rules that are in force from the start; one that never acts makes exit code 7
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// The cluster's transaction.version: 2 as Kafka 4, 0 as Kafka 3
    #[arg(long, value_name = "LEVEL", default_value_t = 2, value_parser = clap::value_parser!(i16).range(0..=2))]
    pub(crate) transaction_version: i16,
    /// Answer the half of KIP-939 that no released Kafka answers: InitProducerId 6 with Enable2Pc, KeepPreparedTxn
    #[arg(long)]
    pub(crate) two_phase_commit: bool,
    /// What cluster id, topic ids and the order of chance follow from; another one at each start by default
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Be a proxy with the same faults in front of a real cluster instead
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with_all = ["data", "nodes", "transaction_version", "two_phase_commit", "seed"]
    )]
    pub(crate) proxy: Option<String>,
    /// End when standard input closes, which it does however the parent ends
    #[arg(long)]
    pub(crate) with_parent: bool,
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
