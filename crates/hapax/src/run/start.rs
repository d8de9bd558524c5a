//! Before a run: finds the job's record or makes it, and checks that brokers, store and topics are the ones it knows.
//!
//! What takes part in resolving an earlier run's transactions is checked before the claim; the rest behind it, so that
//! a source that is down or changed keeps nothing that was decided from being committed.
//!
//! Refuses to begin a job anew where something is missing: an empty store beside brokers that know the job's ids is
//! an unmounted volume, not a first start.

use super::{fork, surroundings, two_phase};
use crate::{
    assignment::{All, Assignment},
    cluster::Clusters,
    decider::{Brokers, bookmarked_by, own_topic},
    error::{Code, JobError},
    job::Plan,
    limits,
    sink::Guarantee,
    source::{SourceContext, UNKNOWN_TOPIC},
};
use hapax_commit::{
    DeciderKind, Generation, JobRecord, Name, Naming, Positions, RunNonce, Slot, SlotBody, SlotNumber,
    TransactionalId, chain::ChainView, evidence::Described, id::IDS_PER_LANE,
};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client, KafkaCode, admin,
    transaction::{self, ListFilter},
};
use hapax_store::{Chain, Created, Incarnation, Patience, PositionObjects, PutOutcome, Store, StoredJob};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
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

/// Counts the requests of the store that have no answer yet: each of them, and each wait before it is tried again, is
/// bounded by a sleep. Tells a start that takes too long whom it waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreWaits(Arc<AtomicUsize>);

/// One request, for as long as it has no answer.
struct StoreWait(Arc<AtomicUsize>);

impl StoreWaits {
    /// Is the store waited for now?
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn begin(&self) -> StoreWait {
        self.0.fetch_add(1, Ordering::Relaxed);
        StoreWait(self.0.clone())
    }
}

impl Drop for StoreWait {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens the checkpoint store; a job that promises nothing and names none keeps its positions in memory.
pub(super) fn open(plan: &Plan, host: &Host, waits: &StoreWaits) -> Result<Store, JobError> {
    open_at(plan.settings.store.as_deref().unwrap_or("memory://"), plan, host, waits)
}

fn open_at(url: &str, plan: &Plan, host: &Host, waits: &StoreWaits) -> Result<Store, JobError> {
    let (sleeper, waits) = (host.clone(), waits.clone());
    let sleep: hapax_store::Sleep = Arc::new(move |wait| {
        let (host, waiting) = (sleeper.clone(), waits.begin());
        Box::pin(async move {
            host.sleep(wait).await;
            drop(waiting);
        })
    });
    Store::open(url, Patience::default(), sleep).map_err(|error| {
        JobError::store(format!("job {}: opening the checkpoint store {url}", plan.name), error)
    })
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

    /// The job's record. A folder without one may be another start's that is putting it just now.
    async fn stored(&self) -> Result<Option<StoredJob>, JobError> {
        for _ in 0..limits::RECORD_LOOKS {
            let stored = self.store.job(&self.plan.name).await;
            let stored = stored.map_err(|error| self.store_error("reading the job record", error))?;
            if stored.is_some() || self.newest_incarnation().await?.is_none() {
                return Ok(stored);
            }
            self.host.sleep(limits::RECORD_PAUSE).await;
        }
        Err(JobError::NeedsPerson {
            code: Code::StoreDamaged,
            message: format!(
                "job {}: the checkpoint store {} has a chain of this job and not its record; nothing was changed, bring \
                 the record back from where it is whole, or begin anew with --fresh",
                self.plan.name,
                self.url()
            ),
            incident: None,
        })
    }

    /// The record of a job that must be there.
    async fn required(&self) -> Result<StoredJob, JobError> {
        self.stored().await?.ok_or_else(|| JobError::Configuration {
            code: Code::Usage,
            message: format!("job {}: the checkpoint store {} has no such job", self.plan.name, self.url()),
        })
    }

    async fn newest_incarnation(&self) -> Result<Option<Incarnation>, JobError> {
        let newest = self.store.newest_incarnation(&self.plan.name).await;
        newest.map_err(|error| self.store_error("looking for former lives of the job", error))
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

    /// The wanted timeout where every sink cluster allows it, else both numbers.
    async fn transaction_timeout(&self, brokers: &Brokers) -> Result<Duration, JobError> {
        let mut timeout = self.plan.settings.transaction_timeout.unwrap_or(limits::TRANSACTION_TIMEOUT);
        for (name, client) in brokers.transactional() {
            if self.clusters.cluster(name).two_phase {
                continue;
            }
            let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY * 3));
            let maximum = match admin::broker_config(client, "transaction.max.timeout.ms", patience).await {
                Ok(value) => {
                    value.and_then(|value| value.parse().ok()).map_or(timeout, Duration::from_millis)
                }
                Err(error) => {
                    tracing::warn!(cluster = %name, "the broker's transaction.max.timeout.ms could not be read ({error}); {timeout:?} is tried");
                    continue;
                }
            };
            match self.plan.settings.transaction_timeout {
                Some(wanted) if wanted > maximum => {
                    return Err(JobError::Configuration {
                        code: Code::TransactionTimeout,
                        message: format!(
                            "job {}: transaction_timeout is {} ms, and cluster {name} allows at most {} ms \
                             (transaction.max.timeout.ms); lower the one or raise the other",
                            self.plan.name,
                            wanted.as_millis(),
                            maximum.as_millis()
                        ),
                    });
                }
                Some(_) => {}
                None => timeout = timeout.min(maximum),
            }
        }
        if self.plan.guarantee() == Guarantee::ExactlyOnce {
            self.plan.check_timeout(timeout)?;
        }
        let (_, longest_wait) = self.plan.settings.run_backoff;
        if timeout < longest_wait && self.plan.guarantee() == Guarantee::ExactlyOnce {
            tracing::warn!(
                job = %self.plan.name,
                "transaction_timeout {timeout:?} is shorter than the longest wait before a restart ({longest_wait:?}): \
                 after such a restart the last epoch is read again instead of being committed"
            );
        }
        Ok(timeout)
    }

    /// The job's record, which is made where there was never one.
    async fn found_or_made(
        &self,
        brokers: &Brokers,
        used: bool,
    ) -> Result<(Incarnation, JobRecord), JobError> {
        let mut stored = self.stored().await?;
        // A store that this process has used and that is empty now was unmounted or removed.
        if stored.is_none()
            && self.plan.settings.store.is_some()
            && let Err(lost) = self.refuse_lost_store(brokers, used).await
        {
            // Another first start may have made the record since, and begun with the ids.
            stored = self.stored().await?;
            if stored.is_none() {
                if self.plan.decider() == DeciderKind::Checkpoint {
                    self.refuse_carried(brokers).await?;
                }
                return Err(lost);
            }
        }
        match stored {
            Some(stored) => {
                self.tell_not_forked();
                Ok((stored.incarnation, stored.record))
            }
            None => self.create().await,
        }
    }

    /// What makes epochs final is fixed with the job: the positions of one decider mean nothing to the other.
    fn check_decider(&self, known: DeciderKind) -> Result<(), JobError> {
        let wanted = self.plan.decider();
        if known == wanted {
            return Ok(());
        }
        Err(self.other_decider(known, "the checkpoint store says that the job was created with"))
    }

    fn other_decider(&self, known: DeciderKind, how: &str) -> JobError {
        let (known, wanted) = (known.name(), self.plan.decider().name());
        JobError::Configuration {
            code: Code::JobChanged,
            message: format!(
                "job {}: {how} decider \"{known}\", and it would run with \"{wanted}\"{}; set decider = \"{known}\" at \
                 the top of the file, or begin anew with --fresh",
                self.plan.name,
                match self.plan.settings.decider {
                    Some(_) => ", as the file says",
                    None => ", which is the default for its present sources and sinks",
                }
            ),
        }
    }

    /// A job that the brokers know and the store does not, since it has committed positions with its transactions. Asked
    /// only then: a cluster on which nobody uses groups need not have a coordinator of any.
    async fn refuse_carried(&self, brokers: &Brokers) -> Result<(), JobError> {
        for (name, client) in brokers.transactional() {
            let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY));
            match bookmarked_by(client, &self.plan.name, patience).await {
                Ok(marks) if marks.is_empty() => {}
                Ok(_) => {
                    let how = format!("its offsets on cluster {name} say that it runs with");
                    return Err(self.other_decider(DeciderKind::Transaction, &how));
                }
                // Nothing that this decider needs: a principal may have no right to look at the group.
                Err(error) if error.is_refusal() => {
                    tracing::info!(job = %self.plan.name, "whether the job has committed offsets cannot be asked: {error}");
                }
                Err(error) => {
                    return Err(JobError::kafka(
                        format!("reading the offsets of group {}", self.plan.name),
                        error,
                    ));
                }
            }
        }
        match self.remembered(brokers).await? {
            Some(topic) => {
                Err(self.other_decider(DeciderKind::Transaction, &format!("{topic} says that it runs with")))
            }
            None => Ok(()),
        }
    }

    /// The topic of its own that a job of decider `transaction` makes, where it is there: brokers forget offsets and ids
    /// of a job that is stopped for long, and no topic.
    async fn remembered(&self, brokers: &Brokers) -> Result<Option<String>, JobError> {
        let topic = own_topic(&self.plan.name);
        for (name, client) in brokers.transactional() {
            let failed =
                |error| JobError::kafka(format!("looking at topic {topic} of cluster {name}"), error);
            let found = client.topics(&[&topic]).await.map_err(failed)?;
            let Some(found) = found.first() else { continue };
            match found.error {
                None => return Ok(Some(format!("topic {topic} on cluster {name}"))),
                // What the job may not see it has not made.
                Some(UNKNOWN_TOPIC | KafkaCode::TOPIC_AUTHORIZATION_FAILED) => {}
                Some(_) => {
                    found.usable().map_err(failed)?;
                }
            }
        }
        Ok(None)
    }

    /// A store without this job, although there is one somewhere.
    async fn refuse_lost_store(&self, brokers: &Brokers, used: bool) -> Result<(), JobError> {
        let survey =
            self.store.survey().await.map_err(|error| self.store_error("looking at what is", error))?;
        if !survey.jobs.is_empty() && self.plan.settings.fork.is_none() {
            let jobs: Vec<String> = survey.jobs.iter().map(Name::to_string).collect();
            return Err(self.needs_person(
                Code::StoreForeign,
                format!(
                    "the checkpoint store {} belongs to job {}; give this job a store of its own, or correct the name; if \
                     the job was renamed, stop it under its old name and go on from its newest checkpoint with hapax run \
                     FILE --fork-of {}; --fresh begins a new job beside it",
                    self.url(),
                    jobs.join(", "),
                    jobs[0]
                ),
            ));
        }
        let known = self.known_ids(brokers).await?.first().map(|id| format!("the brokers know {id}"));
        let known = match known {
            None => self.remembered(brokers).await?.map(|topic| format!("{topic} is its own")),
            known => known,
        };
        if used || known.is_some() {
            return Err(self.needs_person(
                Code::StoreLost,
                format!(
                    "the checkpoint store {} is empty, but the job has run before ({}); is a volume not mounted? nothing \
                     was cleared and nothing was read; with the store back it goes on, where it ran without a store it goes \
                     on without one, and --fresh begins anew, which may write records a second time",
                    self.url(),
                    known.unwrap_or_else(|| "the brokers know nothing of it any more".to_owned())
                ),
            ));
        }
        Ok(())
    }

    /// Ids of this job that the brokers know: by listing, and those of shard 0 by name where listing shows nothing.
    async fn known_ids(&self, brokers: &Brokers) -> Result<Vec<TransactionalId>, JobError> {
        let mut known = Vec::new();
        for (name, client) in brokers.transactional() {
            let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY * 3));
            let listed =
                transaction::list_transactions(client, &ListFilter::default(), patience).await.map_err(
                    |error| JobError::kafka(format!("listing the transactions of cluster {name}"), error),
                )?;
            let ours = listed.iter().filter_map(|listed| TransactionalId::parse(&listed.transactional_id));
            let is_named_so = |id: &TransactionalId| match self.plan.settings.naming.unwrap_or_default() {
                Naming::Rotating => id.index < IDS_PER_LANE,
                Naming::PerEpoch => true,
            };
            known.extend(ours.filter(|id| id.job == self.plan.name && is_named_so(id)));
            let lane = hapax_commit::LaneId { cluster: name.clone(), shard: hapax_commit::ShardId(0) };
            for id in lane.transactional_ids(&self.plan.name) {
                match brokers.describe(client, &id.to_string()).await {
                    Described::Known { .. } => known.push(id),
                    Described::Forgotten => {}
                    // A coordinator that does not answer may know the id: no answer is not "no".
                    Described::Unanswered(why) => {
                        return Err(JobError::Run {
                            code: Code::Unreachable,
                            message: format!(
                                "job {}: asking whether cluster {name} knows {id}: {why}",
                                self.plan.name
                            ),
                        });
                    }
                }
            }
        }
        Ok(known)
    }

    async fn create(&self) -> Result<(Incarnation, JobRecord), JobError> {
        self.probe().await?;
        let record = self.record().await?;
        let created = self.store.create_job(&record).await;
        Self::created(record, created.map_err(|error| self.store_error("creating the job record", error))?)
    }

    /// A supervisor starts a job again with the arguments that it was created with.
    fn tell_not_forked(&self) {
        if let Some(fork) = &self.plan.settings.fork {
            tracing::warn!(job = %self.plan.name, "goes on from its own checkpoint: --fork-of {} counts for a new job only", fork.of);
        }
    }

    /// `--fresh`: fences what may still run on the old chain, then begins the next incarnation.
    ///
    /// A life that `--fresh` has begun is never the first one, also in a store that is empty: the brokers may know a life
    /// before it by the job's ids, and each later start has to know that what they call committed is no newer store's.
    async fn anew(&self) -> Result<(Incarnation, JobRecord), JobError> {
        self.probe().await?;
        let (old, record) = match self.newest_incarnation().await? {
            Some(old) => {
                // Where no record is, no run can put a slot any more.
                if let Some(stored) = self.newest_record().await? {
                    self.close(stored).await?;
                }
                (old, self.record().await?)
            }
            None => {
                let record = self.record().await?;
                self.stand_in_for_the_first(&record).await?;
                (Incarnation::FIRST, record)
            }
        };
        let created = self.store.begin_again(&record, old).await;
        tracing::warn!(job = %self.plan.name, "begins anew: positions of the former job are not used");
        Self::created(record, created.map_err(|error| self.store_error("creating the job record", error))?)
    }

    /// A first life that never runs. Another start may be making it just now, so its chain is closed like any other.
    async fn stand_in_for_the_first(&self, record: &JobRecord) -> Result<(), JobError> {
        let created = self.store.create_job(record).await;
        created.map_err(|error| self.store_error("creating the job record", error))?;
        self.close(Incarnation::FIRST).await
    }

    /// The newest life of the job that has a record, also one that cannot be read.
    async fn newest_record(&self) -> Result<Option<Incarnation>, JobError> {
        match self.store.job(&self.plan.name).await {
            Ok(stored) => Ok(stored.map(|stored| stored.incarnation)),
            Err(error) if error.is_damage() => {
                tracing::warn!(job = %self.plan.name, "{error}; begins anew without it");
                self.newest_incarnation().await
            }
            Err(error) => Err(self.store_error("reading the job record", error)),
        }
    }

    /// Puts a claim behind the end of a chain that will not be used again.
    async fn close(&self, old: Incarnation) -> Result<(), JobError> {
        let chain = self.store.chain(&self.plan.name, old, 0);
        for _ in 0..limits::CLAIM_TRIES {
            let last = chain
                .last_number()
                .await
                .map_err(|error| self.store_error("finding the chain's end", error))?;
            let number = last.map_or(SlotNumber::FIRST, SlotNumber::next);
            let claim = hapax_commit::Claim {
                ids: BTreeMap::new(),
                layout: 0,
                naming: Naming::Rotating,
                by: "--fresh".into(),
            };
            let slot = Slot {
                number,
                run: RunNonce(self.host.random_u128()),
                generation: Generation(number.0),
                written_ms: self.host.wall_ms(),
                body: SlotBody::Claim(claim),
            };
            match chain.put(&slot).await {
                PutOutcome::Stored => return Ok(()),
                PutOutcome::Taken(_) => {}
                PutOutcome::Unknown(error) => return Err(self.store_error("closing the old chain", error)),
            }
        }
        Err(JobError::Run {
            code: Code::Disturbed,
            message: format!(
                "job {}: the old chain could not be closed, other runs keep writing to it",
                self.plan.name
            ),
        })
    }

    /// What a chain that has no claim yet takes over: without it, transactions that the life before left open under ids
    /// of shards or clusters that the job has no more would keep readers waiting for the transaction timeout.
    async fn inherited(
        &self,
        incarnation: Incarnation,
        chain: &Chain,
        brokers: &Brokers,
    ) -> Result<BTreeMap<String, BTreeSet<TransactionalId>>, JobError> {
        let last = chain.last_number().await;
        let claimed = last.map_err(|error| self.store_error("finding the chain's end", error))?.is_some();
        let Some(former) = incarnation.former().filter(|_| !claimed) else { return Ok(BTreeMap::new()) };
        // A damaged chain is a reason to begin anew, so it is none to stop here.
        let slots =
            self.store.chain(&self.plan.name, former, 0).read().await.map_err(|error| error.to_string());
        let view = slots.and_then(|slots| ChainView::read(&slots).map_err(|fault| fault.to_string()));
        let mut ids = match view {
            Ok(view) => view.ids(),
            Err(why) => {
                tracing::warn!(job = %self.plan.name, "the chain of the former job cannot be read ({why}): what it left open ends with its transaction timeout");
                return Ok(BTreeMap::new());
            }
        };
        for cluster_id in ids.keys().cloned().collect::<Vec<_>>() {
            match brokers.client(&cluster_id, "what the former job left").await {
                Ok(_) => {}
                Err(error @ JobError::Configuration { .. }) => {
                    tracing::warn!(job = %self.plan.name, "what the former job left open ends with its transaction timeout: {error}");
                    ids.remove(&cluster_id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ids)
    }

    fn created(record: JobRecord, created: Created) -> Result<(Incarnation, JobRecord), JobError> {
        Ok(match created {
            Created::Mine(incarnation) => (incarnation, record),
            Created::Existed(stored) => (stored.incarnation, stored.record),
        })
    }

    async fn probe(&self) -> Result<(), JobError> {
        let run = RunNonce(self.host.random_u128());
        self.store
            .probe(run)
            .await
            .map_err(|error| self.store_error("probing that a slot is created only once", error))
    }

    /// The record of a new job: concrete positions before the first record is read.
    async fn record(&self) -> Result<JobRecord, JobError> {
        let cx = SourceContext { host: self.host.clone(), clusters: self.clusters.clone() };
        let mut genesis = Positions::new();
        for source in &self.plan.sources {
            genesis.extend(source.genesis(&cx).await?);
        }
        if let Some(fork) = &self.plan.settings.fork {
            let store = match &fork.store {
                Some(url) => open_at(url, self.plan, self.host, &StoreWaits::default())?,
                None => self.store.clone(),
            };
            fork::begin(self.plan, &cx, &store, fork, &mut genesis).await?;
        }
        let shards = self.plan.settings.shards.unwrap_or_else(|| default_shards(genesis.len()));
        Ok(JobRecord {
            job: self.plan.name.clone(),
            created_ms: self.host.wall_ms(),
            decider: self.plan.decider(),
            assignment: All.kind(),
            naming: self.plan.settings.naming.unwrap_or_default(),
            clusters: surroundings::clusters_now(self.clusters).await?,
            topics: surroundings::records(&surroundings::topics(self.plan, &cx).await?),
            layout: All.layout(&genesis, shards),
            genesis,
            pipeline: self.plan.pipeline.clone(),
        })
    }

    fn check_cluster(&self, record: &JobRecord, name: &Name, client: &Client) -> Result<(), JobError> {
        let id = client.cluster_id();
        match record.clusters.get(name) {
            Some(known) if known.cluster_id != id => Err(self.needs_person(
                Code::StoreForeign,
                format!(
                    "cluster {name} has id {id}, and the checkpoint store {} was written with id {}; put the right \
                     addresses into [cluster.{name}] (for an embedded broker, its journal back in its place), or use a \
                     store of its own",
                    self.url(),
                    known.cluster_id
                ),
            )),
            _ => Ok(()),
        }
    }
}

fn default_shards(splits: usize) -> u32 {
    u32::try_from(splits.clamp(1, limits::DEFAULT_SHARDS)).expect("the default is small")
}
