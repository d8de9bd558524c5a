//! Decider `transaction`: an epoch is final when its own transaction is committed, which has the positions, too.
//!
//! Owns one run's hold on a job: its ids cleared, its progress read, every shard's offsets and commits. There is no
//! commit phase, so nothing is ever resolved: a transaction that was not committed is read and written again.
//!
//! ```text
//! take over (`hapax_commit::takeover`): every id cleared, stable offsets read -> judge -> left-open partitions -> write
//! ```
//!
//! Progress is read after every id is cleared, or an older run could still commit behind the reader's back; `Cleared` is
//! the proof that the compiler asks for.

mod beginning;
mod drive;
mod ending;
mod finished;
mod genesis;
mod home;
mod identity;
mod inspect;
mod object;
mod offset;
mod relayout;
mod take_over;

pub(crate) use home::{bookmarked_by, group, own_topic};
pub(crate) use identity::OwnIdentities;
pub(crate) use inspect::{carried_transactions, nothing_to_end};
pub(crate) use object::resolved;
pub(crate) use relayout::{changed_meanwhile, not_begun};

use super::{Decider, RunEnd, ShardLinks, Takeover, brokers::Brokers, fit};
use crate::{
    crash::CrashPoints,
    error::JobError,
    job::Plan,
    progress::{Counters, Progress},
    source::{BoxFuture, SourceContext},
    stop::StopSignal,
};
use hapax_commit::{
    DeciderKind, Identity, JobRecord, LaneId, Name, Present, ShardId, TransactionVersion, TransactionalId,
    bookmark, evidence::Described, present::Ids,
};
use hapax_host::Host;
use hapax_kafka::Client;
use hapax_store::{Chain, PositionObjects};
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
    /// What whole bookmarks say of the job.
    pub(crate) present: Option<Present>,
    /// Where positions go that have no room beside an offset.
    pub(crate) objects: Option<PositionObjects>,
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
    /// Bytes that the broker keeps beside an offset.
    room: usize,
    /// What coordinators said of every id before it was cleared.
    looks: Vec<(TransactionalId, Described)>,
    cleared: Option<Cleared>,
    progress: Option<bookmark::Progress>,
}

/// Under another name of the cluster the job would have other ids, and nobody would fence those that it had.
fn check_name(start: &TransactionStart, cluster: &Name) -> Result<(), JobError> {
    match start.present.as_ref().and_then(|present| present.cluster.as_ref()) {
        Some(known) if known != cluster => Err(fit::changed(
            &start.plan.name,
            &format!(
                "its transactional ids are named after [cluster.{known}], and its sinks are on [cluster.{cluster}]; call \
                 the cluster {known} again, also where it is the same one, or begin anew with --fresh"
            ),
        )),
        Some(_) | None => Ok(()),
    }
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
        check_name(&start, &cluster)?;
        let home = match &start.present {
            Some(present) => Home::found(&start.plan.name, &cluster, present),
            None => Home::planned(&start, &start.record.layout, &client).await?,
        };
        let room = home::metadata_limit(&start, &client).await;
        home.check_room(&start.record.layout, &start.record.genesis, room, start.objects.is_some())?;
        let looks = Vec::new();
        Ok(Self { start, cluster, client, version, home, room, looks, cleared: None, progress: None })
    }

    /// How long transactions may stay open.
    pub(crate) fn transaction_timeout(&self) -> Duration {
        self.start.transaction_timeout
    }

    fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.start.record.layout.shards.keys().copied()
    }

    fn lane(&self, shard: ShardId) -> LaneId {
        LaneId { cluster: self.cluster.clone(), shard }
    }

    /// The ids of every shard that the job has ever had.
    fn ids(&self) -> Ids {
        Ids::of(&self.start.plan.name, &self.cluster, self.home.shards_ever())
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
        Box::pin(async { self.left_open_ended(&self.committed()).await })
    }

    fn drive<'a>(
        &'a mut self,
        shards: ShardLinks,
        stop: StopSignal,
    ) -> BoxFuture<'a, Result<RunEnd, JobError>> {
        Box::pin(drive::drive(self, shards, stop))
    }
}
