//! Whether partitions know what the coordinators have ended: the last thing that stands between a commit and its readers.
//!
//! A proof goes into the chain only when every partition of the epoch knows of the commit, and a run writes only when no
//! partition of its sinks holds a transaction of its ids open that was aborted before. Both are what coordinators do
//! by themselves, but for KAFKA-20734; see `hapax_kafka::transaction::complete`.

use super::brokers::Brokers;
#[cfg(feature = "pipeline")]
use super::checkpoint::CheckpointDecider;
use crate::error::{Code, JobError};
#[cfg(feature = "pipeline")]
use crate::{cluster::Clusters, job::Plan, source::SourceTopic};
use hapax_commit::{Handle, Identity, Name, ProducerEpoch, TransactionVersion};
#[cfg(feature = "pipeline")]
use hapax_commit::{ProducerId, id::IdAt};
use hapax_kafka::{
    Client,
    transaction::{self, EndedTransaction, MarkerRefused},
};
#[cfg(feature = "pipeline")]
use hapax_kafka::{
    admin::OFFSETS_TOPIC,
    transaction::{LeftOpen, TRANSACTION_STATE_TOPIC},
};
#[cfg(feature = "pipeline")]
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

impl Brokers {
    /// Waits until every partition of a committed transaction knows of it.
    ///
    /// # Errors
    /// A marker may not be written; or one was sent whose answer was lost, so that the id has to be taken anew.
    #[cfg(feature = "pipeline")]
    pub(crate) async fn complete(
        &self,
        job: &Name,
        client: &Client,
        handle: &Handle,
    ) -> Result<(), JobError> {
        self.complete_noting(job, client, handle, &AtomicUsize::new(0)).await
    }

    /// The same; `late` counts markers of ours that may still land, also when the future is dropped.
    pub(crate) async fn complete_noting(
        &self,
        job: &Name,
        client: &Client,
        handle: &Handle,
        late: &AtomicUsize,
    ) -> Result<(), JobError> {
        let partitions: Vec<_> =
            handle.partitions.iter().map(|part| (&*part.topic, part.partition, part.last_offset)).collect();
        let ended = EndedTransaction {
            transactional_id: &handle.transactional_id.to_string(),
            identity: marker_of(handle),
            commit: true,
            partitions: &partitions,
        };
        complete(job, client, &ended, late).await
    }
}

/// Markers of one transaction that may still land, which count for all of them however the wait for it ends.
struct Late<'a> {
    of_all: &'a AtomicUsize,
    here: AtomicUsize,
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.of_all.fetch_add(self.here.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A marker of ours that may still land would end a part of the next transaction of its id: whoever goes on clears the id
/// first, as each start does.
pub(crate) async fn complete(
    job: &Name,
    client: &Client,
    ended: &EndedTransaction<'_>,
    late: &AtomicUsize,
) -> Result<(), JobError> {
    let own = Late { of_all: late, here: AtomicUsize::new(0) };
    let told = transaction::complete(client, ended, &own.here).await;
    told.map_err(|refused| needs_person(job, &refused))?;
    if own.here.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    Err(JobError::Run {
        code: Code::Disturbed,
        message: format!(
            "job {job}: {} is committed, a partition was told of it in its coordinator's place (KAFKA-20734), and an answer \
             to that was lost: the id is taken anew before anything else is written under it",
            ended.transactional_id
        ),
    })
}

/// The identity that stands in the markers of a handle's transaction (KIP-890).
pub(crate) fn marker_of(handle: &Handle) -> Identity {
    let ProducerEpoch(epoch) = handle.identity.producer_epoch;
    let marked = match handle.version {
        TransactionVersion::V1 => epoch,
        TransactionVersion::V2 => epoch.saturating_add(1),
    };
    Identity { producer_epoch: ProducerEpoch(marked), ..handle.identity }
}

#[cfg(feature = "pipeline")]
impl CheckpointDecider {
    /// Waits until every partition of the epoch in doubt, which is committed, knows of it.
    pub(super) fn complete_unresolved(&self) -> impl Future<Output = Result<(), JobError>> + Send + use<> {
        let (job, brokers) = (self.start.plan.name.clone(), self.start.brokers.clone());
        let handles = self.view.unresolved().map(|unresolved| unresolved.manifest.handles.clone());
        async move {
            for handle in handles.iter().flatten() {
                let what = format!("the committed transaction {}", handle.transactional_id);
                let client = brokers.client(&handle.cluster_id, &what).await?;
                brokers.complete(&job, &client, handle).await?;
            }
            Ok(())
        }
    }

    /// Ends what partitions of the sinks hold open under ids that this run has cleared. Asked before it writes: the
    /// next commit of the same producer would make those records visible.
    pub(crate) async fn end_left_open(&self) -> Result<(), JobError> {
        for (name, client) in self.start.brokers.transactional() {
            let ids: BTreeMap<ProducerId, (&IdAt, ProducerEpoch)> = self
                .cleared
                .iter()
                .filter(|(at, _)| at.cluster_id == client.cluster_id())
                .map(|(at, identity)| (identity.producer_id, (at, identity.producer_epoch)))
                .collect();
            // What this run's clearing has aborted is older than what it answered; the rest is a newer run's.
            let id = |open: Identity| {
                let (at, cleared) = ids.get(&open.producer_id)?;
                (open.producer_epoch < *cleared).then(|| at.id.to_string())
            };
            for (topic, partition) in self.sink_partitions(name, client).await? {
                let ended = transaction::end_left_open(client, &topic, partition, id).await;
                ended.map_err(|error| left_open(&self.start.plan.name, (&topic, partition), error))?;
            }
        }
        Ok(())
    }

    /// Partitions of the topics that the plan names, and those that newer handles know.
    async fn sink_partitions(&self, cluster: &Name, client: &Client) -> Result<Vec<(String, i32)>, JobError> {
        let known = self
            .view
            .newest_handles()
            .filter(|handle| handle.cluster_id == client.cluster_id())
            .flat_map(|handle| &handle.partitions)
            .map(|part| (part.topic.clone(), part.partition));
        let mut partitions =
            written(&self.start.plan, &self.start.sources.clusters, (cluster, client)).await?;
        partitions.extend(known);
        Ok(partitions.into_iter().collect())
    }
}

#[cfg(feature = "pipeline")]
/// The partitions that exactly-once sinks may have written on a cluster: of the topics that they name, and of every topic
/// that can be seen where an operator names it.
pub(super) async fn written(
    plan: &Plan,
    clusters: &Clusters,
    (cluster, client): (&Name, &Client),
) -> Result<BTreeSet<(String, i32)>, JobError> {
    let mut topics: BTreeMap<String, i32> = BTreeMap::new();
    for sink in plan.sinks.iter().filter(|sink| sink.transactional_cluster() == Some(cluster)) {
        for SourceTopic { topic, record, .. } in sink.topics(clusters).await? {
            topics.insert(topic, record.partitions);
        }
        if sink.chooses_topics() {
            let all = client.all_topics().await;
            let all =
                all.map_err(|error| JobError::kafka(format!("listing the topics of {cluster}"), error))?;
            let is_internal = |name: &str| name == OFFSETS_TOPIC || name == TRANSACTION_STATE_TOPIC;
            let all = all.into_iter().filter(|topic| topic.error.is_none() && !is_internal(&topic.name));
            topics.extend(all.map(|topic| (topic.name.to_string(), topic.partitions.len() as i32)));
        }
    }
    let of = |(topic, count): (String, i32)| (0..count).map(move |partition| (topic.clone(), partition));
    Ok(topics.into_iter().flat_map(of).collect())
}

#[cfg(feature = "pipeline")]
/// The error of a partition that may still hold an old transaction open.
pub(super) fn left_open(job: &Name, (topic, partition): (&str, i32), error: LeftOpen) -> JobError {
    match error {
        LeftOpen::Refused(refused) => needs_person(job, &refused),
        LeftOpen::Unanswered(error) => JobError::kafka(
            format!("asking whether {topic}-{partition} holds an old transaction of the job open"),
            error,
        ),
    }
}

pub(crate) fn needs_person(job: &Name, refused: &MarkerRefused) -> JobError {
    JobError::NeedsPerson {
        code: Code::MarkerMissing,
        message: format!(
            "job {job}: {refused} ({}); give the job's principal the right Alter on the cluster and start it again, it \
             then writes the marker; do not abort the transaction with another tool, and write nothing else under its id",
            refused.source
        ),
        incident: None,
    }
}
