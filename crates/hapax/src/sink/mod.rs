//! Where records go.
//!
//! A sink promises a [`Guarantee`]. Each shard has a writer of its own. At a barrier the writer *prepares*: every
//! record of the epoch is acknowledged, and what another process needs to commit it is known. All exactly-once
//! sinks of a job on one cluster are one [`Sink`], because a lane is one transaction per epoch and cluster.

mod each;
mod kafka;
mod lines;
mod oversize;

pub use crate::journal::JournalPlace;
pub(crate) use each::each;
pub use kafka::{KafkaSinks, Partitioning, Route};
pub use lines::{LinesSink, LinesTarget};

use crate::{
    batch::Batch,
    cluster::Clusters,
    lane::ProducerSettings,
    source::{BoxFuture, SourceTopic},
};
use hapax_commit::{Epoch, Handle, Identity, Journal, Name, Naming, ShardId, ledger::Carrier};
use hapax_host::{Host, Instant};
use std::{fmt, time::Duration};

/// What a sink promises about every record that a source handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarantee {
    /// Nothing: a record that cannot be written is counted and dropped.
    None,
    /// Each record at least once: a checkpoint completes only when every record before it is acknowledged.
    AtLeastOnce,
    /// Each record once, to `read_committed` readers.
    #[default]
    ExactlyOnce,
}

/// What a writer has to work with.
#[derive(Clone, Debug)]
pub struct WriterContext {
    /// The machine.
    pub host: Host,
    /// The clients of this worker.
    pub clusters: Clusters,
    /// The job.
    pub job: Name,
    /// The shard.
    pub shard: ShardId,
    /// For a transactional sink: the identities of the lane's three ids, by index, as clearing them answered.
    pub identities: Option<[Identity; 3]>,
    /// How the lane's ids are named.
    pub naming: Naming,
    /// The run's first epoch.
    pub first: Epoch,
    /// How long a transaction may stay open at the broker, where its cluster gives it a time-out at all.
    pub transaction_timeout: Duration,
    /// Where a transactional sink keeps the journal of its epochs, if it is to have one.
    pub journal: Option<JournalPlace>,
    /// For a transactional sink: its transactions carry the positions (decider `transaction`), so they have no handle.
    pub carries: bool,
}

/// A prepared epoch of one writer.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// The transaction; none where nothing was written, or without transactions.
    pub handle: Option<Handle>,
    /// When the broker may abort it; none where no time-out ends it.
    pub deadline: Option<Instant>,
    /// Its records, stored: where the sink keeps a journal.
    pub journal: Option<Journal>,
    /// Records acknowledged in the epoch.
    pub records: u64,
}

/// A declared sink.
pub trait Sink: Send + Sync + fmt::Debug {
    /// Its name in messages.
    fn name(&self) -> &str;

    /// What it promises.
    fn guarantee(&self) -> Guarantee;

    /// The cluster whose transactions it uses; its ids are claimed and cleared before anything is written.
    fn transactional_cluster(&self) -> Option<&Name>;

    /// How its lanes write, so that what recovery writes again is written alike.
    fn producer(&self) -> Option<&ProducerSettings> {
        None
    }

    /// The topics that it is known to write, checked before the first record.
    fn topics<'a>(&'a self, clusters: &'a Clusters) -> BoxFuture<'a, Result<Vec<SourceTopic>, SinkError>>;

    /// May it write topics that [`Sink::topics`] does not name?
    fn chooses_topics(&self) -> bool {
        false
    }

    /// A writer for a shard.
    fn writer<'a>(&'a self, cx: WriterContext) -> BoxFuture<'a, Result<Box<dyn SinkWriter>, SinkError>>;
}

/// Writes the records of one shard.
pub trait SinkWriter: Send {
    /// Opens an epoch. Called first, and after each [`SinkWriter::prepare`].
    fn begin(&mut self, epoch: Epoch);

    /// Writes a batch; waits for room.
    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), SinkError>>;

    /// The gate: returns when every record of the epoch is acknowledged.
    fn prepare(&mut self, epoch: Epoch) -> BoxFuture<'_, Result<Prepared, SinkError>>;

    /// Opens the epoch's transaction where nothing was written in it yet, since it will carry the shard's positions.
    fn open_carrier(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(async { Ok(()) })
    }

    /// The transaction of the epoch that was prepared last, once.
    fn take_carrier(&mut self) -> Option<Carrier> {
        None
    }

    /// The outcome of `epoch` is in the chain: its id may be used again, under the identity that ending it
    /// answered (none where nothing was written).
    fn recorded(&mut self, epoch: Epoch, next: Option<Identity>);

    /// Would the open epoch soon outgrow its transaction?
    fn wants_barrier(&self) -> bool;

    /// Waits for a failure that no call has met yet; pending while there is none.
    fn failed(&mut self) -> BoxFuture<'_, SinkError>;

    /// Records given up under [`Guarantee::None`].
    fn dropped(&self) -> u64 {
        0
    }

    /// Records left out, as the sink's policy for those that its topic does not take says, since the last call.
    fn take_skipped(&mut self) -> u64 {
        0
    }
}

/// Why a sink cannot write. A first failure is sticky for the run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The cluster is not reachable or refuses.
    #[error(transparent)]
    Cluster(#[from] hapax_kafka::ClientError),
    /// Records could not be written.
    #[error(transparent)]
    Produce(#[from] hapax_kafka::producer::ProduceError),
    /// The broker knows a newer identity under the id that a lane writes on.
    #[error("writing under {id}: another writer has taken the id, or its transaction has timed out")]
    Taken {
        /// The id.
        id: String,
        /// The answer.
        #[source]
        source: Box<hapax_kafka::producer::ProduceError>,
    },
    /// A lane could not get the identity for its next transaction.
    #[error(transparent)]
    Init(#[from] hapax_kafka::transaction::InitError),
    /// The journal of an epoch could not be stored.
    #[error("storing the journal of lane {lane}, epoch {epoch}")]
    Journal {
        /// The lane.
        lane: String,
        /// The epoch, which is not decided.
        epoch: Epoch,
        /// The cause.
        #[source]
        source: Box<hapax_store::StoreError>,
    },
    /// A record cannot go where it is sent.
    #[error("sink {sink}: {reason}")]
    BadRecord {
        /// The sink.
        sink: String,
        /// Which record, what is wrong, what to do.
        reason: String,
    },
    /// The configuration names what does not exist.
    #[error("sink {sink}: {reason}")]
    Configuration {
        /// The sink.
        sink: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// Writing lines failed.
    #[error("sink {sink}: writing {path}")]
    File {
        /// The sink.
        sink: String,
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}
