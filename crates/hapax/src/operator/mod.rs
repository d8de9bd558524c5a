//! What happens to records between source and sink.
//!
//! An operator sees batches of one split, in order, and nothing else: no clock, no runtime. Each shard has its own
//! instance. An operator that fails names the record; the job's policy stops there or skips and counts.

mod closure;
#[cfg(feature = "jq")]
mod jq;

pub use closure::{Closure, Emit};
#[cfg(feature = "jq")]
pub use jq::{Jq, JqError, JqProgram, JqSettings};

use crate::batch::{Batch, Origin};
use std::{fmt, sync::Arc};

/// What to do with a record that an operator cannot handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// End with an error that names topic, partition and offset.
    #[default]
    Stop,
    /// Drop the record and count it.
    Skip,
}

/// A record that an operator could not handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorError {
    /// Source topic or file.
    pub topic: Arc<str>,
    /// Source partition; none in a file.
    pub partition: Option<i32>,
    /// Offset there; in a file that of the line's first byte.
    pub offset: i64,
    /// Which operator.
    pub operator: String,
    /// What is wrong with it.
    pub reason: String,
}

impl OperatorError {
    fn new(origin: &Origin, offset: i64, operator: &str, reason: String) -> Self {
        Self {
            topic: origin.topic.clone(),
            partition: origin.partitions.map(|_| origin.partition),
            offset,
            operator: operator.to_owned(),
            reason,
        }
    }
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, partition, offset, operator, reason } = self;
        match partition {
            Some(number) => {
                write!(f, "operator {operator} on the record at {topic}-{number} offset {offset}: {reason}")
            }
            None => write!(f, "operator {operator} on the line at byte {offset} of {topic}: {reason}"),
        }
    }
}

impl std::error::Error for OperatorError {}

/// Records an operator skipped, and why; handed to it with each batch.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: Option<OperatorError>,
}

impl Skipped {
    /// Counts a record.
    pub fn record(&mut self, error: OperatorError) {
        self.count += 1;
        self.first.get_or_insert(error);
    }
}

/// One step between source and sink.
pub trait Operator: Send {
    /// Turns a batch into the next one. Records keep their order.
    ///
    /// # Errors
    /// A record that cannot be handled, where the policy is [`OnError::Stop`].
    fn apply(&mut self, batch: Batch, skipped: &mut Skipped) -> Result<Batch, OperatorError>;
}

/// Makes an instance for each shard.
pub type OperatorFactory = Arc<dyn Fn() -> Box<dyn Operator> + Send + Sync>;
