//! One job's writer into one cluster.
//!
//! Owns the settings, the connection, and which ids this run has cleared. Refuses to open a lane whose ids it has not
//! cleared: an older run could still be writing under them.

use super::{
    commit::{Committer, Unproven},
    error::EngineError,
    lane::{Lane, LaneParts},
    owner::Owner,
    recover::Recovered,
    resolve::Bounds,
};
use crate::{
    cluster::{Cluster, Clusters},
    decider::Brokers,
    error::{Code, JobError},
    lane::{Identities, ProducerSettings, identity_patience},
    limits, two_phase,
};
use hapax_commit::{
    Epoch, Identity, LaneId, Name, Naming, ShardId, TransactionalId,
    recovery::handover::{Handover, Known},
};
use hapax_host::Host;
use hapax_kafka::{Client, admin, transaction::Lifetime};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::OnceCell;

/// Settings of a [`KafkaSink`].
#[derive(Clone, Debug)]
pub struct KafkaSinkBuilder {
    cluster: Cluster,
    host: Host,
    job: String,
    producer: ProducerSettings,
    transaction_timeout: Option<Duration>,
    may_rewrite: bool,
    patience: Duration,
}

impl KafkaSinkBuilder {
    /// The job's name: the prefix of every transactional id. Two jobs of one name on one cluster fence each other.
    #[must_use]
    pub fn job(self, name: &str) -> Self {
        Self { job: name.to_owned(), ..self }
    }

    /// The machine; by default the real one.
    #[must_use]
    pub fn host(self, host: Host) -> Self {
        Self { host, ..self }
    }

    /// Compression, batching, and what may wait for acknowledgement in each lane.
    #[must_use]
    pub fn producer(self, producer: ProducerSettings) -> Self {
        Self { producer, ..self }
    }

    /// How long a transaction may stay open at the broker: longer than the engine may be down, or its records have to be
    /// written again. By default the smaller of 15 minutes and the broker's maximum.
    #[must_use]
    pub fn transaction_timeout(self, timeout: Duration) -> Self {
        Self { transaction_timeout: Some(timeout), ..self }
    }

    /// May recovery write aborted records again, out of the log? By default it may. Then its report has handles that
    /// the engine must store in the place of the old ones.
    #[must_use]
    pub fn rewrite(self, may_rewrite: bool) -> Self {
        Self { may_rewrite, ..self }
    }

    /// How long a commit or a recovery may wait for brokers before it says `Unknown`; by default a minute.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The sink, exactly once: one transaction for each lane and epoch. Nothing is connected yet.
    ///
    /// # Errors
    /// No job is named, or its name has other characters than `a-z`, `0-9`, `_`, `-`.
    pub fn exactly_once(self) -> Result<KafkaSink, EngineError> {
        let job = Name::new(&self.job).map_err(|error| EngineError::Usage {
            code: Code::Contradiction,
            message: format!("job: {error}"),
        })?;
        Ok(KafkaSink(Arc::new(Inner {
            job,
            settings: self,
            connected: OnceCell::new(),
            cleared: Mutex::default(),
            generation: Mutex::default(),
        })))
    }
}

/// One job's writer into one cluster, for an engine that decides by itself. Cheap to clone.
///
/// See the [module](super) for an example.
#[derive(Clone)]
pub struct KafkaSink(Arc<Inner>);

struct Inner {
    job: Name,
    settings: KafkaSinkBuilder,
    connected: OnceCell<Connected>,
    cleared: Mutex<Cleared>,
    /// The highest that this sink has seen.
    generation: Mutex<Option<u64>>,
}

/// What this run has cleared.
#[derive(Debug, Default)]
struct Cleared {
    /// By id: what InitProducerId answered, as long as no lane has taken it.
    identities: BTreeMap<String, Identity>,
    /// Numbers of transactions that earlier runs have used, by lane.
    last: BTreeMap<LaneId, Epoch>,
}

/// A sink that has reached its cluster.
#[derive(Clone, Debug)]
pub(super) struct Connected {
    pub(super) host: Host,
    pub(super) job: Name,
    pub(super) client: Client,
    pub(super) brokers: Brokers,
    pub(super) transaction_timeout: Duration,
    /// How long a transaction may stay open: for the timeout, or for ever where the cluster has two-phase commit.
    pub(super) lifetime: Lifetime,
    /// How its lanes write.
    pub(super) producer: ProducerSettings,
    /// Markers that were written in a coordinator's place and may still land: nothing is written under their ids before a
    /// recovery has taken these anew.
    pub(super) late_markers: Arc<AtomicUsize>,
}

impl KafkaSink {
    /// Settings for a sink on a cluster; [`KafkaSinkBuilder::job`] must be called.
    pub fn builder(cluster: Cluster) -> KafkaSinkBuilder {
        KafkaSinkBuilder {
            cluster,
            host: Host::real(),
            job: String::new(),
            producer: ProducerSettings::default(),
            transaction_timeout: None,
            may_rewrite: true,
            patience: Duration::from_secs(60),
        }
    }

    /// The ids that lanes of these shards use. The engine stores them before it uses them for the first time, and hands
    /// back all that it has ever stored, so that a run that dies early leaves nothing behind that nobody looks for.
    pub fn ids(&self, shards: impl IntoIterator<Item = u32>) -> Vec<String> {
        let ids = shards.into_iter().flat_map(|shard| self.lane_ids(shard));
        ids.map(|id| id.to_string()).collect()
    }

    fn lane_id(&self, shard: u32) -> LaneId {
        LaneId { cluster: self.0.settings.cluster.name.clone(), shard: ShardId(shard) }
    }

    fn lane_ids(&self, shard: u32) -> [TransactionalId; 3] {
        self.lane_id(shard).transactional_ids(&self.0.job)
    }

    /// Takes over from whatever ran before, for all lanes at once: clears every id but those of `decided`, looks at all of
    /// these, judges once, commits what may be committed, prepares again what was aborted, and says how each stands.
    ///
    /// * `decided`: every transaction that the newest checkpoint names, also several of a lane; [`super::Handle`]s, or
    ///   [`super::IdOnly`] where the checkpoint knows no more than the id. Only from a checkpoint that no other run can
    ///   supersede: what is handed over is committed. One that is given up is handed over as an id, and then aborted.
    /// * `ids`: every id that this job has ever used on this cluster, of any shape, and those of the lanes to be opened
    ///   ([`KafkaSink::ids`]). What is open under them is aborted, and their writers are fenced.
    /// * `owner`: the run, as a number or as an [`Owner`] that is asked before each request that could hurt a newer run.
    ///   Brokers do not know generations; the fence around the decision is the engine's.
    ///
    /// While nothing is committed the engine can still go back to the checkpoint before. So with one transaction aborted
    /// that cannot be written again, the open ones stay open, and the report says so ([`Recovered::has_way_back`]).
    ///
    /// May be called again at any time before a lane is opened; what it did before a crash is found as it is.
    ///
    /// # Errors
    /// [`EngineError::Usage`]: `decided` cannot be what this job has written here, or a newer generation was seen.
    /// [`EngineError::Superseded`]: the owner does not hold any more. [`EngineError::NeedsPerson`] with E0408: see
    /// [`Committer::commit`]. [`EngineError::Kafka`]: brokers that do not answer or refuse; call it again.
    pub async fn recover<K>(
        &self,
        decided: &[K],
        ids: &[String],
        owner: impl Owner + 'static,
    ) -> Result<Recovered, EngineError>
    where
        K: Clone + Into<Known>,
    {
        self.newer(owner.generation())?;
        let connected = self.connected().await?;
        let decided: Vec<Known> = decided.iter().cloned().map(Into::into).collect();
        self.remember_numbers(&decided);
        let (job, cluster_id) = (&self.0.job, connected.client.cluster_id());
        let ids = ids.iter().cloned();
        let handover = Handover::new(job, cluster_id, decided, ids, self.0.settings.may_rewrite)?;
        // What was decided is cleared before a lane is opened, and no other lane of this sink works on.
        connected.late_markers.store(0, Ordering::Relaxed);
        Recovered::begin(self.clone(), connected, self.bounds(), Arc::new(owner), handover).await
    }

    /// Opens the lane of a shard, once in a run, after recovery is complete.
    ///
    /// # Errors
    /// [`EngineError::Usage`]: its ids were not cleared by this run, or the lane was opened before. Else the cluster is not
    /// reachable.
    pub async fn lane(&self, shard: u32) -> Result<Lane, EngineError> {
        let connected = self.connected().await?;
        let version = connected.client.transaction_version().await;
        let version =
            version.map_err(|error| JobError::kafka(format!("opening the lane of shard {shard}"), error))?;
        let identities = self.take_identities(shard)?;
        let lane = self.lane_id(shard);
        let last = self.cleared().last.get(&lane).copied().unwrap_or(Epoch::GENESIS);
        let config = hapax_commit::lane::LaneConfig {
            job: self.0.job.clone(),
            lane: lane.clone(),
            cluster_id: connected.client.cluster_id().to_owned(),
            brokers: self.0.settings.cluster.brokers.clone(),
            version,
            naming: Naming::Rotating,
            first: last.next(),
        };
        let committer = Committer { connected, bounds: self.bounds(), lane, unproven: Unproven::default() };
        Ok(Lane::new(LaneParts {
            machine: hapax_commit::Lane::new(config, identities),
            producer: self.0.settings.producer.clone(),
            committer,
            next: last.next(),
        }))
    }

    fn take_identities(&self, shard: u32) -> Result<Identities, EngineError> {
        let ids = self.lane_ids(shard).map(|id| id.to_string());
        let mut cleared = self.cleared();
        if let Some(missing) = ids.iter().find(|id| !cleared.identities.contains_key(*id)) {
            return Err(EngineError::usage(format!(
                "opening the lane of shard {shard}: {missing} was not cleared by this run, or its lane is open; hand the ids \
                 of every shard to recover, have its report recorded, and open each lane once"
            )));
        }
        Ok(ids.map(|id| cleared.identities.remove(&id).expect("just seen")))
    }

    /// Ids that were cleared, under the identities that clearing answered.
    pub(super) fn have_cleared(&self, identities: BTreeMap<String, Identity>) {
        self.cleared().identities.extend(identities);
    }

    fn cleared(&self) -> MutexGuard<'_, Cleared> {
        self.0.cleared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember_numbers(&self, decided: &[Known]) {
        let mut cleared = self.cleared();
        for known in decided {
            if let Known::Handle(handle) = known {
                let last = cleared.last.entry(handle.lane.clone()).or_insert(Epoch::GENESIS);
                *last = (*last).max(handle.epoch);
            }
        }
    }

    fn newer(&self, generation: u64) -> Result<(), EngineError> {
        let mut seen = self.0.generation.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some(newest) if newest > generation => Err(EngineError::usage(format!(
                "recovering job {} as run {generation}: this process has recovered it as run {newest}, which is newer",
                self.0.job
            ))),
            _ => {
                *seen = Some(generation);
                Ok(())
            }
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds { patience: self.0.settings.patience }
    }

    async fn connected(&self) -> Result<Connected, EngineError> {
        self.0.connected.get_or_try_init(|| self.connect()).await.cloned()
    }

    async fn connect(&self) -> Result<Connected, EngineError> {
        let KafkaSinkBuilder { cluster, host, transaction_timeout, producer, .. } = &self.0.settings;
        let name = cluster.name.clone();
        let clusters = Clusters::new(host.clone(), &[(name.clone(), cluster.clone())].into());
        let brokers = Brokers::of(host, &clusters, [&name]).await?;
        let client = clusters.connected(&name).await?;
        let transaction_timeout = if cluster.two_phase {
            two_phase::check(&self.0.job, host, &name, &client).await?;
            transaction_timeout.unwrap_or(limits::TRANSACTION_TIMEOUT)
        } else {
            self.allowed(&client, *transaction_timeout).await?
        };
        Ok(Connected {
            host: host.clone(),
            job: self.0.job.clone(),
            client,
            brokers,
            transaction_timeout,
            lifetime: cluster.lifetime(transaction_timeout),
            producer: producer.clone(),
            late_markers: Arc::default(),
        })
    }

    /// The wanted timeout where the cluster allows it, else both numbers.
    async fn allowed(&self, client: &Client, wanted: Option<Duration>) -> Result<Duration, EngineError> {
        const MAXIMUM: &str = "transaction.max.timeout.ms";
        let maximum = match admin::broker_config(client, MAXIMUM, identity_patience(client)).await {
            Ok(value) => value.and_then(|value| value.parse().ok()).map(Duration::from_millis),
            Err(error) => {
                tracing::warn!("the broker's {MAXIMUM} could not be read: {error}");
                None
            }
        };
        match (wanted, maximum) {
            (Some(wanted), Some(maximum)) if wanted > maximum => Err(EngineError::Usage {
                code: Code::TransactionTimeout,
                message: format!(
                    "job {}: the transaction timeout is {} ms, and the cluster allows at most {} ms ({MAXIMUM}); lower the \
                     one or raise the other",
                    self.0.job,
                    wanted.as_millis(),
                    maximum.as_millis()
                ),
            }),
            (Some(wanted), _) => Ok(wanted),
            (None, maximum) => Ok(limits::TRANSACTION_TIMEOUT.min(maximum.unwrap_or(Duration::MAX))),
        }
    }
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink")
            .field("job", &self.0.job)
            .field("cluster", &self.0.settings.cluster.name)
            .finish_non_exhaustive()
    }
}
