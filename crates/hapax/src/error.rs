//! How a job ends when it does not end well: whose fault, which exit code, whether another run may help.

#[cfg(feature = "pipeline")]
use crate::{operator::OperatorError, sink::SinkError, source::SourceError};
use hapax_commit::{Generation, Name};
use hapax_kafka::{ClientError, fetch::FetchError, producer::ProduceError};
#[cfg(feature = "pipeline")]
use hapax_kafka::{Disturbance, transaction::InitError};
#[cfg(feature = "pipeline")]
use hapax_store::StoreError;
use std::path::PathBuf;

/// Why a job, or one run of it, ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The pipeline cannot work as it is written.
    #[error("{code}: {message}")]
    Configuration {
        /// Stable code.
        code: Code,
        /// What was attempted, on what, what happened, what to do.
        message: String,
    },
    /// Kafka is not reachable, or refuses.
    #[error("{code}: {attempted}")]
    Kafka {
        /// Stable code.
        code: Code,
        /// What was attempted, on what.
        attempted: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The checkpoint store failed.
    #[cfg(feature = "pipeline")]
    #[error("{code}: {attempted}")]
    Store {
        /// Stable code.
        code: Code,
        /// What was attempted, on what.
        attempted: String,
        /// The cause.
        #[source]
        source: Box<StoreError>,
    },
    /// A run failed in a way that another run may mend.
    #[error("{code}: {message}")]
    Run {
        /// Stable code.
        code: Code,
        /// What happened.
        message: String,
    },
    /// A broker knows a newer identity under a transactional id than the run has, and none of a newer run: another writer's,
    /// or one that a time-out gave. Another run takes the id back.
    #[error("{code}: {message}", code = Code::Disturbed)]
    IdTaken {
        /// The id.
        id: String,
        /// What was attempted and what happened.
        message: String,
    },
    /// A person must decide. Nothing was lost by stopping.
    #[error("{code}: {message}{}", incident_note(.incident.as_ref()))]
    NeedsPerson {
        /// Stable code.
        code: Code,
        /// What happened, and what to do.
        message: String,
        /// The incident's file.
        incident: Option<PathBuf>,
    },
    /// A newer run has claimed the job.
    #[error("{code}: job {job}: run {mine} was superseded by run {newer} ({by}); this one has stopped", code = Code::Superseded)]
    Superseded {
        /// The job.
        job: Name,
        /// This run.
        mine: Generation,
        /// The newer run.
        newer: Generation,
        /// Who it is.
        by: String,
    },
    /// Another run, of another process, is at work. It has fenced every id of this one.
    #[error("{code}: job {job}: another run took over ({by}); this one has stopped", code = Code::Superseded)]
    TakenOver {
        /// The job.
        job: Name,
        /// What shows it.
        by: String,
    },
    /// An invariant does not hold: a bug of ours.
    #[error("{code}: {what}; this is a bug in hapax, please report it", code = Code::Bug)]
    Bug {
        /// What was found.
        what: String,
    },
}

fn incident_note(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| format!(" (incident: {})", path.display()))
}

/// Stable codes of messages: they keep their meaning for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The command line is not legal.
    Usage,
    /// The pipeline file cannot be read or parsed.
    Pipeline,
    /// A setting contradicts another one.
    Contradiction,
    /// A topic that the pipeline names does not exist.
    UnknownTopic,
    /// The transaction timeout is above the broker's maximum.
    TransactionTimeout,
    /// The pipeline does not fit what the job record says.
    JobChanged,
    /// A cluster is to give transactions without a time-out and cannot.
    TwoPhase,
    /// A broker is not reachable.
    Unreachable,
    /// A broker refuses: rights or version.
    Refused,
    /// The checkpoint store failed.
    Store,
    /// The checkpoint store is damaged or newer.
    StoreDamaged,
    /// The store is empty although the brokers know the job.
    StoreLost,
    /// The brokers are ahead of the store.
    StoreStale,
    /// The store belongs to another job or another cluster.
    StoreForeign,
    /// The commit of a decided epoch cannot be finished by the allowed strategies.
    CommitPhase,
    /// A source cannot serve a position.
    SourceGone,
    /// A record that an operator or a sink cannot handle.
    BadRecord,
    /// A topic has fewer partitions than before, or is another one.
    TopicChanged,
    /// A partition was not told that a transaction is ended, and may not be told by the job.
    MarkerMissing,
    /// Records of a decided epoch were given up, as the job's list allows.
    RecordsGivenUp,
    /// The brokers are behind the store.
    BrokersStale,
    /// Another process writes under the job's transactional ids.
    IdsInUse,
    /// Committed offsets that are the job's progress are missing, or are not the job's.
    ProgressLost,
    /// Writing failed.
    Write,
    /// Reading failed.
    Read,
    /// An epoch was given up before it was decided.
    EpochGivenUp,
    /// A lane was disturbed at the broker.
    Disturbed,
    /// The job was stopped before its last commit was known.
    StopUnfinished,
    /// The machine does not give what a run needs, such as threads.
    Machine,
    /// A newer run has claimed the job.
    Superseded,
    /// An audit found something.
    Audit,
    /// A bug.
    Bug,
}

impl Code {
    /// The code as printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "E0200",
            Self::Pipeline => "E0201",
            Self::Contradiction => "E0202",
            Self::UnknownTopic => "E0203",
            Self::TransactionTimeout => "E0204",
            Self::JobChanged => "E0205",
            Self::TwoPhase => "E0206",
            Self::Unreachable => "E0301",
            Self::Refused => "E0302",
            Self::Write => "E0303",
            Self::Read => "E0304",
            Self::EpochGivenUp => "E0305",
            Self::Disturbed => "E0306",
            Self::StopUnfinished => "E0307",
            Self::Machine => "E0308",
            Self::StoreLost => "E0401",
            Self::StoreStale => "E0402",
            Self::StoreForeign => "E0403",
            Self::CommitPhase => "E0404",
            Self::SourceGone => "E0405",
            Self::BadRecord => "E0406",
            Self::TopicChanged => "E0407",
            Self::MarkerMissing => "E0408",
            Self::RecordsGivenUp => "E0409",
            Self::BrokersStale => "E0410",
            Self::IdsInUse => "E0411",
            Self::ProgressLost => "E0420",
            Self::Superseded => "E0501",
            Self::Store => "E0601",
            Self::StoreDamaged => "E0602",
            Self::Audit => "E0701",
            Self::Bug => "E0101",
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl JobError {
    /// The process exit code of the error: one table for all commands.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Bug { .. } => 1,
            Self::Configuration { .. } => 2,
            #[cfg(feature = "pipeline")]
            Self::Store { .. } => 6,
            Self::Run { code: Code::Store, .. } | Self::NeedsPerson { code: Code::StoreDamaged, .. } => 6,
            Self::Kafka { .. } | Self::Run { .. } | Self::IdTaken { .. } => 3,
            Self::NeedsPerson { .. } => 4,
            Self::Superseded { .. } | Self::TakenOver { .. } => 5,
        }
    }

    /// The stable code that the message begins with.
    pub fn code(&self) -> Code {
        match self {
            Self::Configuration { code, .. }
            | Self::Kafka { code, .. }
            | Self::Run { code, .. }
            | Self::NeedsPerson { code, .. } => *code,
            #[cfg(feature = "pipeline")]
            Self::Store { code, .. } => *code,
            Self::IdTaken { .. } => Code::Disturbed,
            Self::Superseded { .. } | Self::TakenOver { .. } => Code::Superseded,
            Self::Bug { .. } => Code::Bug,
        }
    }

    /// May another run succeed without anybody's help?
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Kafka { code, .. } => *code != Code::Refused,
            #[cfg(feature = "pipeline")]
            Self::Store { source, .. } => source.is_retriable(),
            Self::Run { .. } | Self::IdTaken { .. } => true,
            Self::Configuration { .. }
            | Self::NeedsPerson { .. }
            | Self::Superseded { .. }
            | Self::TakenOver { .. }
            | Self::Bug { .. } => false,
        }
    }

    /// Do Kafka or the store refuse in a way that their operators may take back?
    #[cfg(feature = "pipeline")]
    pub(crate) fn is_environment(&self) -> bool {
        match self {
            Self::Kafka { .. } => true,
            Self::Store { code, .. } => *code != Code::StoreDamaged,
            Self::Configuration { .. }
            | Self::Run { .. }
            | Self::IdTaken { .. }
            | Self::NeedsPerson { .. }
            | Self::Superseded { .. }
            | Self::TakenOver { .. }
            | Self::Bug { .. } => false,
        }
    }

    /// An error of a client call, attempted as said.
    pub(crate) fn kafka(attempted: impl Into<String>, source: ClientError) -> Self {
        let attempted = attempted.into();
        if !source.is_retriable() && !source.is_refusal() {
            let message = format!("{attempted}: {}", with_causes(&source));
            return Self::Run { code: Code::Disturbed, message };
        }
        let code = if source.is_retriable() { Code::Unreachable } else { Code::Refused };
        Self::Kafka { code, attempted, source: Box::new(source) }
    }

    /// Records of a transaction could not be read.
    pub(crate) fn fetching(error: FetchError) -> Self {
        let message = with_causes(&error);
        match error {
            error if error.is_gone() => Self::NeedsPerson { code: Code::SourceGone, message, incident: None },
            FetchError::Client(source) => Self::kafka("reading a source", source),
            FetchError::Data { .. } => Self::NeedsPerson { code: Code::BadRecord, message, incident: None },
            _ => Self::Run { code: Code::Read, message },
        }
    }

    /// Records could not be written.
    pub(crate) fn writing(error: ProduceError) -> Self {
        let message = with_causes(&error);
        match error {
            error if error.is_bad_record() => {
                Self::NeedsPerson { code: Code::BadRecord, message, incident: None }
            }
            ProduceError::Client(source) => Self::kafka("writing to a sink", source),
            error if error.is_refusal() => Self::Kafka {
                code: Code::Refused,
                attempted: "writing to a sink".into(),
                source: Box::new(error),
            },
            _ => Self::Run { code: Code::Write, message },
        }
    }

    /// An error of the store, attempted as said.
    #[cfg(feature = "pipeline")]
    pub(crate) fn store(attempted: impl Into<String>, source: StoreError) -> Self {
        let code = match source {
            StoreError::Damaged { .. } | StoreError::Newer { .. } | StoreError::Misplaced { .. } => {
                Code::StoreDamaged
            }
            _ => Code::Store,
        };
        Self::Store { code, attempted: attempted.into(), source: Box::new(source) }
    }

    /// The error with its causes, each once.
    pub fn chain(&self) -> String {
        with_causes(self)
    }
}

/// Text of an error with its causes, each once.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(feature = "pipeline")]
impl From<OperatorError> for JobError {
    fn from(error: OperatorError) -> Self {
        let message =
            format!("{error}; mend the record's producer or the operator, or set on_error = \"skip\"");
        Self::NeedsPerson { code: Code::BadRecord, message, incident: None }
    }
}

#[cfg(feature = "pipeline")]
impl From<SourceError> for JobError {
    fn from(error: SourceError) -> Self {
        let message = with_causes(&error);
        match error {
            SourceError::Cluster(source) => Self::kafka("reading a source", source),
            SourceError::Fetch(error) => Self::fetching(error),
            SourceError::File { .. } => Self::Run { code: Code::Read, message },
            SourceError::Configuration { .. } => Self::Configuration { code: Code::UnknownTopic, message },
            SourceError::Gone { .. } => Self::NeedsPerson { code: Code::SourceGone, message, incident: None },
            SourceError::BadRecord { .. } => {
                Self::NeedsPerson { code: Code::BadRecord, message, incident: None }
            }
        }
    }
}

#[cfg(feature = "pipeline")]
impl From<SinkError> for JobError {
    fn from(error: SinkError) -> Self {
        let message = with_causes(&error);
        match error {
            SinkError::Cluster(source) => Self::kafka("writing to a sink", source),
            SinkError::Produce(error) => Self::writing(error),
            SinkError::Taken { id, .. } => Self::IdTaken { id, message },
            SinkError::Init(InitError::Disturbed {
                transactional_id, how: Disturbance::Superseded, ..
            }) => Self::IdTaken { id: transactional_id, message },
            SinkError::Init(InitError::Client(source)) => Self::kafka("writing to a sink", source),
            SinkError::File { .. } => Self::Run { code: Code::Write, message },
            SinkError::Journal { lane, epoch, source } => {
                Self::store(format!("storing the journal of lane {lane}, epoch {epoch}"), *source)
            }
            SinkError::Init(_) => Self::Run { code: Code::Disturbed, message },
            SinkError::BadRecord { .. } => {
                Self::NeedsPerson { code: Code::BadRecord, message, incident: None }
            }
            SinkError::Configuration { .. } => Self::Configuration { code: Code::UnknownTopic, message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_kafka::{KafkaCode, RequestKind};

    fn answered(code: KafkaCode) -> JobError {
        let source = ClientError::Broker {
            request: RequestKind::AddPartitionsToTxn,
            subject: "orders.main.0.0".into(),
            code,
            message: None,
        };
        JobError::kafka("writing to a sink", source)
    }

    /// A woken zombie's lane met 90 and the process ended with exit code 3 before it had asked the chain.
    #[test]
    fn a_lost_identity_ends_the_run_and_not_the_process() {
        let fenced = answered(KafkaCode::PRODUCER_FENCED);
        assert!(fenced.is_retriable(), "only the chain says whether a newer run has claimed the job");
        assert!(matches!(fenced, JobError::Run { code: Code::Disturbed, .. }));
    }

    #[test]
    fn a_missing_right_is_a_refusal_and_a_moved_coordinator_is_not() {
        assert!(!answered(KafkaCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED).is_retriable());
        assert!(answered(KafkaCode::NOT_COORDINATOR).is_retriable());
    }
}
