//! Where records come from.
//!
//! A source is a list of *splits* (a partition, a file): ordered parts, each read by one shard from a position. A
//! source that is *replayable* serves the same records again from an older position; only such a source can
//! stand behind a guarantee.

mod extent;
mod generator;
mod irregular;
mod kafka;
mod lines;

pub use generator::{GeneratorSource, ORDER, Template};
pub use irregular::irregular;
pub use kafka::{End, KafkaSource, Start};
pub use lines::{BadLine, LineFormat, LinesSource, STANDARD_INPUT};

use crate::{batch::Batch, cluster::Clusters, limits};
use hapax_commit::{Name, Position, Positions, SplitId};
use hapax_host::Host;
use std::{fmt, future::Future, pin::Pin, sync::Arc};

/// A future that a trait object gives back.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a source has to work with.
#[derive(Clone, Debug)]
pub struct SourceContext {
    /// The machine.
    pub host: Host,
    /// The clusters of the pipeline file, connected when first used.
    pub clusters: Clusters,
}

/// A topic that a source reads, as the broker describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTopic {
    /// The cluster.
    pub cluster: Name,
    /// The topic.
    pub topic: String,
    /// Its id and number of partitions.
    pub record: hapax_commit::TopicRecord,
}

impl SourceTopic {
    /// A topic of the broker's metadata, or the code that it answered.
    pub(crate) fn of(
        cluster: &Name,
        topic: &hapax_kafka::TopicMetadata,
    ) -> Result<Self, hapax_kafka::KafkaCode> {
        if let Some(code) = topic.error {
            return Err(code);
        }
        let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let record = hapax_commit::TopicRecord { topic_id: topic.id, partitions };
        Ok(Self { cluster: cluster.clone(), topic: topic.name.to_string(), record })
    }
}

/// The topics as the broker describes them. One that is not there is asked for again for a moment: a broker that has
/// just started, or a topic that has just been made, is not known everywhere at once.
pub(crate) async fn described_topics(
    client: &hapax_kafka::Client,
    names: &[&str],
) -> Result<Vec<Arc<hapax_kafka::TopicMetadata>>, hapax_kafka::ClientError> {
    let began = client.host().now();
    loop {
        let found = client.topics(names).await?;
        let unknown = |topic: &Arc<hapax_kafka::TopicMetadata>| topic.error == Some(UNKNOWN_TOPIC);
        let waited = client.host().now().saturating_duration_since(began);
        if waited >= limits::UNKNOWN_TOPIC_PATIENCE || !found.iter().any(unknown) {
            return Ok(found);
        }
        client.host().sleep(limits::UNKNOWN_TOPIC_PAUSE).await;
    }
}

/// The one code that says that a name is wrong; others say that a broker cannot or will not answer.
pub(crate) const UNKNOWN_TOPIC: hapax_kafka::KafkaCode = hapax_kafka::KafkaCode::UNKNOWN_TOPIC_OR_PARTITION;

/// Records with the position behind them.
#[derive(Debug)]
pub struct Chunk {
    /// The records; may be none where only the position moves (aborted data, compacted gaps).
    pub batch: Batch,
    /// The position behind the last of them.
    pub position: Position,
    /// How many more the split holds at the moment, where the source knows.
    pub lag: Option<u64>,
    /// Records before `position` that the source left out, as its policy for bad ones says.
    pub skipped: u64,
}

/// A source of records.
pub trait Source: Send + Sync + fmt::Debug {
    /// Its name: prefix of its splits.
    fn name(&self) -> &str;

    /// Does an older position give the same records again?
    fn replayable(&self) -> bool;

    /// The cluster and the topics that it reads without an end.
    fn endless_topics(&self) -> Option<(&Name, &[String])> {
        None
    }

    /// The cluster that it reads, for a source whose splits are Kafka partitions.
    fn kafka_cluster(&self) -> Option<&Name> {
        None
    }

    /// Topic and partition of one of its splits, for such a source.
    fn kafka_partition<'a>(&self, _split: &'a SplitId) -> Option<(&'a str, i32)> {
        None
    }

    /// The topics that it reads.
    fn topics<'a>(&'a self, cx: &'a SourceContext) -> BoxFuture<'a, Result<Vec<SourceTopic>, SourceError>>;

    /// Its splits with concrete start and, where bounded, end positions: checkpoint 0.
    fn genesis<'a>(&'a self, cx: &'a SourceContext) -> BoxFuture<'a, Result<Positions, SourceError>>;

    /// Does it read this split, as the pipeline stands now?
    fn has(&self, split: &SplitId) -> bool {
        split.0.strip_prefix(self.name()).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The splits that it has beside those that the job knows, with concrete positions: a partition or a topic that came
    /// later is read from its first record on, whatever the start of a new job would be.
    fn added<'a>(
        &'a self,
        cx: &'a SourceContext,
        known: &'a Positions,
    ) -> BoxFuture<'a, Result<Positions, SourceError>> {
        Box::pin(async move {
            let mut positions = self.genesis(cx).await?;
            positions.retain(|split, _| !known.contains_key(split));
            Ok(positions)
        })
    }

    /// Can it still serve these positions (of its own splits)?
    fn serves<'a>(
        &'a self,
        cx: &'a SourceContext,
        positions: &'a Positions,
    ) -> BoxFuture<'a, Result<(), SourceError>>;

    /// Reads some of its splits from the given positions.
    fn reader<'a>(
        &'a self,
        cx: &'a SourceContext,
        positions: Positions,
    ) -> BoxFuture<'a, Result<Box<dyn Reader>, SourceError>>;
}

/// Reads splits.
pub trait Reader: Send {
    /// The next records of any of the splits; pending while there is nothing to read, also when every bounded split
    /// is at its end. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Result<Chunk, SourceError>>;
}

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The cluster is not reachable or refuses.
    #[error(transparent)]
    Cluster(#[from] hapax_kafka::ClientError),
    /// Fetching failed.
    #[error(transparent)]
    Fetch(#[from] hapax_kafka::fetch::FetchError),
    /// The configuration names what does not exist.
    #[error("source {source_name}: {reason}")]
    Configuration {
        /// The source.
        source_name: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A position cannot be served any more.
    #[error("{place} cannot be served: {reason}")]
    Gone {
        /// The split and the position asked for, as a person finds them.
        place: String,
        /// What is there instead, and what to do.
        reason: String,
    },
    /// A record that is not what the source promises.
    #[error("{place}: {reason}")]
    BadRecord {
        /// Where it stands, as a person finds it.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Reading a file failed.
    #[error("reading {path}")]
    File {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}
