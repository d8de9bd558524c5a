//! Before a run: finds the job's record or makes it, and checks that brokers, store and topics are the ones it knows.
//!
//! Owns the ways into a job: to run it, to look at it, to change it, each with as much of the brokers as it needs. In files
//! of their own: the record (`record`), what brokers remember without it (`past`), `--fresh` (`anew`), how long transactions
//! may take (`timeout`), the store (`store`).
//!
//! What takes part in resolving an earlier run's transactions is checked before the claim; the rest behind it, so that
//! a source that is down or changed keeps nothing that was decided from being committed.
//!
//! Refuses to begin a job anew where something is missing: an empty store beside brokers that know the job's ids is
//! an unmounted volume, not a first start.

mod anew;
mod past;
mod record;
mod store;
mod timeout;

pub(super) use store::{StoreWaits, open};

use super::two_phase;
use crate::{
    cluster::Clusters,
    decider::Brokers,
    error::{Code, JobError},
    job::Plan,
    limits,
};
use hapax_commit::{Generation, JobRecord, Name, TransactionalId};
use hapax_host::Host;
use hapax_store::{Chain, Incarnation, PositionObjects, Store};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// What a run starts from.
pub(super) struct Found {
    pub(super) record: JobRecord,
    pub(super) chain: Chain,
    /// Which of the job's lives this is.
    pub(super) incarnation: Incarnation,
    /// The job had a life before this one.
    pub(super) begun_anew: bool,
    /// Ids of the life before, which the first claim of this one takes over, by the Kafka id of their cluster.
    pub(super) inherited: BTreeMap<String, BTreeSet<TransactionalId>>,
    pub(super) brokers: Brokers,
    pub(super) transaction_timeout: Duration,
}

/// Connects to the clusters of the job's transactions, and finds or makes its record.
pub(super) async fn find(
    plan: &Arc<Plan>,
    host: &Host,
    clusters: &Clusters,
    store: &Store,
    fresh: bool,
    previous: Option<Generation>,
) -> Result<Found, JobError> {
    let begin = Begin { plan, host, clusters, store: store.clone() };
    let brokers = Brokers::connect(host, clusters, plan).await?;
    two_phase::check(plan, host, clusters, &brokers).await?;
    let transaction_timeout = begin.transaction_timeout(&brokers).await?;
    let name = &plan.name;
    let (incarnation, record) =
        if fresh { begin.anew().await? } else { begin.found_or_made(&brokers, previous.is_some()).await? };
    begin.check_decider(record.decider)?;
    for (cluster, client) in brokers.transactional() {
        begin.check_cluster(&record, cluster, client)?;
    }
    let chain = begin.store.chain(name, incarnation, 0);
    let begun_anew = incarnation != Incarnation::FIRST;
    let inherited = begin.inherited(incarnation, &chain, &brokers).await?;
    Ok(Found { record, chain, incarnation, begun_anew, inherited, brokers, transaction_timeout })
}

/// The clusters that a look at a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Every one that its transactions live on.
    All,
    /// Those that answer: the job is only looked at, and one cluster that is down must not hide the others.
    Answering,
    /// None: only the store is read.
    Store,
}

/// What there is of a job, without making anything.
pub(super) async fn existing(
    plan: &Arc<Plan>,
    host: &Host,
    clusters: &Clusters,
    store: &Store,
    reach: Reach,
) -> Result<Found, JobError> {
    let begin = Begin { plan, host, clusters, store: store.clone() };
    let stored = begin.required().await?;
    begin.check_decider(stored.record.decider)?;
    let (brokers, transaction_timeout) = match reach {
        Reach::All => {
            let brokers = Brokers::connect(host, clusters, plan).await?;
            let timeout = begin.transaction_timeout(&brokers).await?;
            (brokers, timeout)
        }
        // Whoever only looks begins no transaction, so no cluster is asked how long one may take.
        Reach::Answering => {
            let answering = begin.answering().await;
            (Brokers::connect(host, clusters, &answering).await?, limits::TRANSACTION_TIMEOUT)
        }
        Reach::Store => {
            let none = Plan { sinks: Vec::new(), ..Plan::clone(plan) };
            (Brokers::connect(host, clusters, &none).await?, limits::TRANSACTION_TIMEOUT)
        }
    };
    for (cluster, client) in brokers.transactional() {
        begin.check_cluster(&stored.record, cluster, client)?;
    }
    let chain = begin.store.chain(&plan.name, stored.incarnation, 0);
    let begun_anew = stored.incarnation != Incarnation::FIRST;
    // Who only looks claims nothing; who acts may be the first to claim this life.
    let inherited = match reach {
        Reach::All => begin.inherited(stored.incarnation, &chain, &brokers).await?,
        Reach::Answering | Reach::Store => BTreeMap::new(),
    };
    Ok(Found {
        record: stored.record,
        chain,
        incarnation: stored.incarnation,
        begun_anew,
        inherited,
        brokers,
        transaction_timeout,
    })
}

/// The record of a new job.
pub(super) async fn new_record(
    plan: &Arc<Plan>,
    host: &Host,
    clusters: &Clusters,
    store: &Store,
) -> Result<JobRecord, JobError> {
    Begin { plan, host, clusters, store: store.clone() }.record().await
}

/// Where a job of decider `transaction` stands in the checkpoint store.
pub(super) struct Stored {
    pub(super) record: JobRecord,
    pub(super) chain: Chain,
    /// Where positions go that have no room beside an offset.
    pub(super) objects: PositionObjects,
    /// The job had a life before this one, or is begun anew.
    pub(super) begun_anew: bool,
}

/// Finds or makes the record of a job of decider `transaction` in the store.
pub(super) async fn find_stored(
    plan: &Arc<Plan>,
    host: &Host,
    clusters: &Clusters,
    store: &Store,
    brokers: &Brokers,
    fresh: bool,
) -> Result<Stored, JobError> {
    let begin = Begin { plan, host, clusters, store: store.clone() };
    let (incarnation, record) =
        if fresh { begin.anew().await? } else { begin.found_or_made(brokers, false).await? };
    begin.check_decider(record.decider)?;
    for (cluster, client) in brokers.transactional() {
        begin.check_cluster(&record, cluster, client)?;
    }
    let begun_anew = fresh || incarnation != Incarnation::FIRST;
    let chain = begin.store.chain(&plan.name, incarnation, 0);
    let objects = begin.store.positions(&plan.name, incarnation);
    Ok(Stored { record, chain, objects, begun_anew })
}

/// Refuses a job that its store does not know, without making anything.
pub(super) async fn require(
    plan: &Arc<Plan>,
    host: &Host,
    clusters: &Clusters,
    store: &Store,
) -> Result<(), JobError> {
    if plan.settings.store.is_none() {
        return Ok(());
    }
    Begin { plan, host, clusters, store: store.clone() }.required().await.map(drop)
}

/// Is genesis of a job of decider `transaction` recorded? The chain holds one claim from then on.
pub(super) async fn has_begun(plan: &Plan, chain: &Chain) -> Result<bool, JobError> {
    let last = chain.last_number().await;
    let last =
        last.map_err(|error| JobError::store(format!("job {}: looking at the chain", plan.name), error))?;
    Ok(last.is_some())
}

/// How long transactions may stay open.
pub(super) async fn transaction_timeout(
    plan: &Arc<Plan>,
    host: &Host,
    clusters: &Clusters,
    store: &Store,
    brokers: &Brokers,
) -> Result<Duration, JobError> {
    Begin { plan, host, clusters, store: store.clone() }.transaction_timeout(brokers).await
}

struct Begin<'a> {
    plan: &'a Arc<Plan>,
    host: &'a Host,
    clusters: &'a Clusters,
    store: Store,
}

impl Begin<'_> {
    fn url(&self) -> &str {
        self.plan.settings.store.as_deref().unwrap_or("memory://")
    }

    fn store_error(&self, what: &str, error: hapax_store::StoreError) -> JobError {
        JobError::store(format!("job {}: {what} in {}", self.plan.name, self.url()), error)
    }

    fn needs_person(&self, code: Code, message: String) -> JobError {
        JobError::NeedsPerson { code, message: format!("job {}: {message}", self.plan.name), incident: None }
    }

    /// The plan without the sinks whose cluster does not answer now.
    async fn answering(&self) -> Plan {
        let patience = limits::REPORT_EVERY.min(self.plan.settings.start_timeout / 2);
        let mut plan = Plan::clone(self.plan);
        let names: BTreeSet<Name> =
            plan.sinks.iter().filter_map(|sink| sink.transactional_cluster().cloned()).collect();
        let asked = futures::future::join_all(names.into_iter().map(|name| async move {
            let connected = self.host.timeout(patience, self.clusters.connected(&name)).await;
            matches!(connected, Some(Ok(_))).then_some(name)
        }));
        let answering: BTreeSet<Name> = asked.await.into_iter().flatten().collect();
        plan.sinks.retain(|sink| sink.transactional_cluster().is_none_or(|name| answering.contains(name)));
        plan
    }
}
