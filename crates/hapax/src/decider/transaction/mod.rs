//! Decider `transaction`: an epoch is final when its own transaction is committed, which has the positions, too.
//!
//! Owns one run's hold on a job: its ids cleared, its progress read, every shard's offsets and commits. There is no
//! commit phase, so nothing is ever resolved: a transaction that was not committed is read and written again.
//!
//! ```text
//! look at every id -> (genesis) -> clear every id -> read stable offsets -> judge -> left-open partitions -> write
//! ```
//!
//! Progress is read after every id is cleared, or an older run could still commit behind the reader's back; `Cleared` is
//! the proof that the compiler asks for.

mod drive;
mod ending;
mod finished;
mod genesis;
mod home;
mod identity;
mod inspect;
mod offset;
mod take_over;

pub(crate) use home::bookmarked_by;
pub(crate) use identity::OwnIdentities;
pub(crate) use inspect::{carried_transactions, nothing_to_end};

use super::{Decider, RunEnd, ShardLinks, Takeover, brokers::Brokers};
use crate::{
    crash::CrashPoints,
    error::JobError,
    job::Plan,
    progress::{Counters, Progress},
    source::{BoxFuture, SourceContext},
    stop::StopSignal,
};
use hapax_commit::{
    DeciderKind, Identity, JobRecord, LaneId, Name, ShardId, TransactionVersion, TransactionalId, bookmark,
    evidence::Described,
};
use hapax_host::Host;
use hapax_kafka::Client;
use hapax_store::Chain;
use home::Home;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::watch;

/// Where a job's record stands.
pub(crate) enum RecordAt {
    /// In the checkpoint store. The chain holds one claim from the moment on that genesis is committed.
    Store {
        /// The chain.
        chain: Chain,
        /// Genesis takes the place of whatever is committed: the job was begun anew.
        overwrites: bool,
    },
    /// Beside the offsets, which were there.
    Offsets {
        /// They tell of every split that the job has.
        whole: bool,
    },
    /// Nowhere yet: it becomes a part of the first offsets.
    Nowhere {
        /// Genesis takes the place of whatever is committed: the job is begun anew.
        overwrites: bool,
    },
}

/// What a run's decider starts from.
pub(crate) struct TransactionStart {
    pub(crate) plan: Arc<Plan>,
    pub(crate) host: Host,
    pub(crate) sources: SourceContext,
    pub(crate) brokers: Brokers,
    pub(crate) record: JobRecord,
    pub(crate) record_at: RecordAt,
    pub(crate) transaction_timeout: Duration,
    pub(crate) crash: Arc<dyn CrashPoints>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) progress: watch::Sender<Progress>,
    /// Identities that runs of this process have had.
    pub(crate) own: OwnIdentities,
    /// Set when genesis is committed, which happens once in a life of the job, whatever becomes of the start.
    pub(crate) begun: Arc<AtomicBool>,
}

/// Decides by transactions that carry positions.
pub(crate) struct TransactionDecider {
    start: TransactionStart,
    cluster: Name,
    client: Client,
    version: TransactionVersion,
    home: Home,
    /// What coordinators said of every id before it was cleared.
    looks: Vec<(TransactionalId, Described)>,
    cleared: Option<Cleared>,
    progress: Option<bookmark::Progress>,
}

/// Every id of the job was cleared by this run, and these are its identities.
#[derive(Clone, Debug)]
struct Cleared(BTreeMap<TransactionalId, Identity>);

impl TransactionDecider {
    /// A decider that has touched nothing.
    pub(crate) async fn new(start: TransactionStart) -> Result<Self, JobError> {
        let cluster = home::sink_cluster(&start.plan).clone();
        let client = start.sources.clusters.connected(&cluster).await?;
        let version = client.transaction_version().await;
        let version =
            version.map_err(|error| JobError::kafka("asking for the transaction version", error))?;
        let home = Home::of(&start, &client).await?;
        let looks = Vec::new();
        Ok(Self { start, cluster, client, version, home, looks, cleared: None, progress: None })
    }

    fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.start.record.layout.shards.keys().copied()
    }

    fn lane(&self, shard: ShardId) -> LaneId {
        LaneId { cluster: self.cluster.clone(), shard }
    }

    fn ids(&self) -> Vec<TransactionalId> {
        self.shards().flat_map(|shard| self.lane(shard).transactional_ids(&self.start.plan.name)).collect()
    }
}

impl Decider for TransactionDecider {
    fn kind(&self) -> DeciderKind {
        DeciderKind::Transaction
    }

    fn take_over(&mut self) -> BoxFuture<'_, Result<Takeover, JobError>> {
        Box::pin(self.taken_over())
    }

    fn end_left_open(&self) -> BoxFuture<'_, Result<(), JobError>> {
        Box::pin(self.left_open_ended())
    }

    fn drive<'a>(
        &'a mut self,
        shards: ShardLinks,
        stop: StopSignal,
    ) -> BoxFuture<'a, Result<RunEnd, JobError>> {
        Box::pin(drive::drive(self, shards, stop))
    }
}
