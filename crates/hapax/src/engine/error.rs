//! What went wrong for an engine: whose fault it is, and whether a new recovery may help.

use crate::error::{Code, JobError};
use hapax_commit::{Name, recovery::handover::HandoverFault};
use hapax_kafka::{producer::ProduceError, transaction::InitError};

/// Why a call of an engine has failed. Every text begins with a stable code, listed in `docs/pipeline.md`.
///
/// A lane's first failure is for good: drop all lanes, and begin again with [`super::KafkaSink::recover`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine's: a setting, a name, a call at the wrong time. Nothing was done.
    #[error("{code}: {message}")]
    Usage {
        /// Stable code.
        code: Code,
        /// What was attempted, on what, and what to do.
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
        source: OpaqueCause,
    },
    /// A run failed in a way that another one may mend.
    #[error("{code}: {message}")]
    Run {
        /// Stable code.
        code: Code,
        /// What happened.
        message: String,
    },
    /// A person must decide; nothing was lost by stopping.
    #[error("{code}: {message}")]
    NeedsPerson {
        /// Stable code.
        code: Code,
        /// What happened, and what to do.
        message: String,
    },
    /// A newer run owns the job; this one has to end.
    #[error("{code}: job {job}: run {generation} is not the newest any more; it has stopped", code = Code::Superseded)]
    Superseded {
        /// The job.
        job: Name,
        /// The generation of this run.
        generation: u64,
    },
    /// An invariant does not hold: a bug of ours.
    #[error("{code}: {what}; this is a bug in hapax, please report it", code = Code::Bug)]
    Bug {
        /// What was found.
        what: String,
    },
}

/// The cause of an error, with causes of its own.
pub(super) type OpaqueCause = Box<dyn std::error::Error + Send + Sync>;

impl EngineError {
    /// The stable code that the message begins with.
    pub fn code(&self) -> Code {
        match self {
            Self::Usage { code, .. }
            | Self::Kafka { code, .. }
            | Self::Run { code, .. }
            | Self::NeedsPerson { code, .. } => *code,
            Self::Superseded { .. } => Code::Superseded,
            Self::Bug { .. } => Code::Bug,
        }
    }

    /// May a new recovery succeed without anybody's help?
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Kafka { code, .. } => *code != Code::Refused,
            Self::Run { .. } => true,
            Self::Usage { .. } | Self::NeedsPerson { .. } | Self::Superseded { .. } | Self::Bug { .. } => {
                false
            }
        }
    }

    /// The error with its causes, each once.
    pub fn chain(&self) -> String {
        crate::error::with_causes(self)
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::Usage { code: Code::Usage, message: message.into() }
    }
}

impl From<JobError> for EngineError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Configuration { code, message } => Self::Usage { code, message },
            JobError::Kafka { code, attempted, source } => Self::Kafka { code, attempted, source },
            #[cfg(feature = "pipeline")]
            JobError::Store { code, attempted, source } => Self::Kafka { code, attempted, source },
            JobError::Run { code, message } => Self::Run { code, message },
            JobError::IdTaken { message, .. } => Self::Run { code: Code::Disturbed, message },
            JobError::NeedsPerson { code, message, .. } => Self::NeedsPerson { code, message },
            JobError::Superseded { job, mine, .. } => Self::Superseded { job, generation: mine.0 },
            JobError::TakenOver { job, by } => {
                Self::Run { code: Code::Superseded, message: format!("job {job}: taken over: {by}") }
            }
            JobError::Bug { what } => Self::Bug { what },
        }
    }
}

impl From<ProduceError> for EngineError {
    fn from(error: ProduceError) -> Self {
        JobError::writing(error).into()
    }
}

impl From<InitError> for EngineError {
    fn from(error: InitError) -> Self {
        match error {
            InitError::Client(error) => JobError::kafka("getting an identity for a lane", error).into(),
            error => Self::Run { code: Code::Disturbed, message: error.to_string() },
        }
    }
}

impl From<HandoverFault> for EngineError {
    fn from(fault: HandoverFault) -> Self {
        Self::usage(format!("recovering: {fault}; nothing was touched"))
    }
}
