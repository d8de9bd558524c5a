//! Why reading cannot go on. Trouble that passes by itself is none of these.

use super::TopicPartition;
use crate::{ClientError, record::RecordError};

/// A partition cannot be read on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// Data: the log does not have the wanted offset.
    #[error(
        "reading {tp} from offset {offset}: the log has offsets {start} to {end}; records were removed by \
         retention or by hand, or the log was truncated; choose where to go on"
    )]
    OutOfRange {
        /// The partition.
        tp: TopicPartition,
        /// The wanted offset.
        offset: i64,
        /// The first offset that the log has.
        start: i64,
        /// Where the log ends (exclusive).
        end: i64,
    },
    /// Data: the topic or partition is not there any more, or the topic is another one of the same name.
    #[error("reading {tp}: {reason}; create it, or begin anew on what is there now")]
    Gone {
        /// The partition.
        tp: TopicPartition,
        /// What was found instead.
        reason: String,
    },
    /// Data: what the broker sent is damaged, or in a format that is not read.
    #[error("reading {tp}: {source}; check the broker's log, or begin behind that batch")]
    Data {
        /// The partition.
        tp: TopicPartition,
        /// What is wrong, and at which offset.
        source: RecordError,
    },
    /// The cluster refused, for a reason that waiting does not change.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The fetcher's task ended, because its runtime did or by a bug.
    #[error("reading: the task of the fetcher has ended; start another fetcher")]
    Stopped,
}

impl FetchError {
    /// Is what was to be read not there any more: removed, truncated, deleted or made again?
    pub fn is_gone(&self) -> bool {
        match self {
            Self::OutOfRange { .. } | Self::Gone { .. } => true,
            Self::Data { .. } | Self::Client(_) | Self::Stopped => false,
        }
    }

    /// Can the same reading succeed later without a change of configuration, rights or data?
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Client(error) => error.is_retriable(),
            Self::Stopped => true,
            Self::OutOfRange { .. } | Self::Gone { .. } | Self::Data { .. } => false,
        }
    }
}
