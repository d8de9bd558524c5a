//! A job as its user writes it down, and the plan that its rules make of it.
//!
//! [`Job`] collects; [`Job::plan`] checks every rule that holds between two settings, once. Later code works on a
//! [`Plan`] and cannot meet a contradiction.

use crate::{
    batch::RecordRef,
    cluster::Cluster,
    error::{Code, JobError},
    journal,
    lane::ProducerSettings,
    limits,
    operator::{Closure, Emit, OnError, Operator, OperatorFactory},
    sink::{Guarantee, KafkaSinks, Route, Sink},
    source::Source,
};
use hapax_commit::{DeciderKind, Name, Naming, Strategy, limits::KEEP_CHECKPOINTS};
use hapax_store::ObjectStore;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// Shards of a job at most: each has channels of its own in every run, and a claim names three ids for each of its lanes.
pub const MAX_SHARDS: u32 = 10_000;

/// A pipeline with a stable name.
#[derive(Clone)]
pub struct Job {
    pub(crate) name: String,
    pub(crate) pipeline: String,
    pub(crate) settings: Settings,
    pub(crate) clusters: BTreeMap<Name, Cluster>,
    pub(crate) sources: Vec<Arc<dyn Source>>,
    pub(crate) operators: Vec<OperatorFactory>,
    pub(crate) kafka_sinks: Vec<SinkTopic>,
    pub(crate) other_sinks: Vec<Arc<dyn Sink>>,
}

/// Settings of a job beside its parts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What makes an epoch final; by default what the job's parts allow, see [`Plan::decider`].
    pub decider: Option<DeciderKind>,
    /// After this time positions that did not move are committed again (decider `transaction`): brokers forget offsets.
    pub recommit: Duration,
    /// Checkpoint store, as a URL (`file:///path`).
    pub store: Option<String>,
    /// The store itself, where no URL opens it; `store` is then only its name, which it must have.
    pub object_store: Option<Arc<dyn ObjectStore>>,
    /// Folder for incident files; by default `incidents` in a local store.
    pub incidents: Option<PathBuf>,
    /// Time between barriers.
    pub interval: Duration,
    /// Checkpoints kept, at least [`KEEP_CHECKPOINTS`].
    pub keep: usize,
    /// Number of shards of a new job; by default the smaller of source partitions and 16. A job that is there is given
    /// another number by [`crate::layout::reshape`].
    pub shards: Option<u32>,
    /// How transactional ids are named; by default they rotate. Fixed by the job record.
    pub naming: Option<Naming>,
    /// Worker threads; by default the machine's cores.
    pub workers: Option<usize>,
    /// How long a transaction may stay open; by default the smaller of 15 minutes and the broker's maximum.
    pub transaction_timeout: Option<Duration>,
    /// Strategies allowed in the commit phase, in order.
    pub recovery: Vec<Strategy>,
    /// Strategies allowed beside these until the job has been taken over once: what a person answers to an incident.
    pub recover_once: Vec<Strategy>,
    /// How long Kafka and the store may stay unreachable at the start.
    pub start_timeout: Duration,
    /// How long a stop may take.
    pub stop_budget: Duration,
    /// First and longest wait between two runs.
    pub run_backoff: (Duration, Duration),
    /// Begin anew although there is, or was, a job of this name.
    pub fresh: bool,
    /// What the pipeline has no more and the job may forget: topics, files, sources or clusters by name. For one start.
    pub drop: Vec<String>,
    /// Go back to this kept checkpoint before the first record is read: what came out since comes out twice. For one start.
    pub from: Option<u64>,
    /// Begin a new job at a proven checkpoint of another one, which is not touched.
    pub fork: Option<Fork>,
}

/// Where a job begins that goes on from another one's checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The other job's name.
    pub of: String,
    /// Which of its kept checkpoints; the newest proven one where none is named.
    pub epoch: Option<u64>,
    /// The other job's store, where it is not this one's.
    pub store: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            decider: None,
            recommit: limits::RECOMMIT_OFFSETS,
            store: None,
            object_store: None,
            incidents: None,
            interval: Duration::from_secs(1),
            keep: KEEP_CHECKPOINTS,
            shards: None,
            naming: None,
            workers: None,
            transaction_timeout: None,
            recovery: vec![Strategy::Resume, Strategy::Rewind, Strategy::Rewrite, Strategy::Replay],
            recover_once: Vec::new(),
            start_timeout: Duration::from_secs(60),
            stop_budget: Duration::from_secs(30),
            run_backoff: (Duration::from_millis(500), Duration::from_secs(30)),
            fresh: false,
            drop: Vec::new(),
            from: None,
            fork: None,
        }
    }
}

/// A sink topic on a cluster.
#[derive(Clone, Debug)]
pub struct SinkTopic {
    /// The cluster's name.
    pub cluster: String,
    /// What is promised.
    pub guarantee: Guarantee,
    /// Where records go.
    pub route: Route,
    /// Producer settings.
    pub producer: ProducerSettings,
    /// Its records are kept in the checkpoint store until they are committed, so that `replay` may write them again
    /// when the log does not have them any more.
    pub journal: bool,
}

impl SinkTopic {
    /// A sink topic with the defaults: exactly once.
    pub fn new(cluster: &str, topic: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            guarantee: Guarantee::default(),
            route: Route::topic(topic),
            producer: ProducerSettings::default(),
            journal: false,
        }
    }

    /// The same sink with another guarantee.
    #[must_use]
    pub fn guarantee(self, guarantee: Guarantee) -> Self {
        Self { guarantee, ..self }
    }

    /// The same sink with a journal, or without one.
    #[must_use]
    pub fn journal(self, journal: bool) -> Self {
        Self { journal, ..self }
    }
}

impl Job {
    /// A job without parts. The name is the prefix of every id that it owns on the broker.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            pipeline: String::new(),
            settings: Settings::default(),
            clusters: BTreeMap::new(),
            sources: Vec::new(),
            operators: Vec::new(),
            kafka_sinks: Vec::new(),
            other_sinks: Vec::new(),
        }
    }

    /// Where checkpoints are kept, as a URL.
    #[must_use]
    pub fn store(mut self, url: &str) -> Self {
        self.settings.store = Some(url.to_owned());
        self
    }

    /// Where checkpoints are kept, as an object store that honours `PutMode::Create`. Its name is what messages show, and
    /// what incidents are put beside where it is a `file://`.
    #[must_use]
    pub fn store_on(mut self, name: &str, store: Arc<dyn ObjectStore>) -> Self {
        self.settings.object_store = Some(store);
        self.store(name)
    }

    /// Changes settings.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// The text of the pipeline file, kept in the job record.
    #[must_use]
    pub fn pipeline_text(mut self, text: &str) -> Self {
        text.clone_into(&mut self.pipeline);
        self
    }

    /// Adds a cluster.
    ///
    /// # Errors
    /// The name or the addresses are not legal.
    pub fn cluster(mut self, name: &str, brokers: &str) -> Result<Self, JobError> {
        let illegal = |message: String| JobError::Configuration { code: Code::Pipeline, message };
        let name = Name::new(name).map_err(|error| illegal(format!("cluster {error}")))?;
        let cluster = Cluster::new(name.clone(), brokers)
            .map_err(|error| illegal(format!("cluster {name}: brokers {brokers:?}: {error}")))?;
        self.clusters.insert(name, cluster);
        Ok(self)
    }

    /// Lets no time-out end the job's transactions on a cluster (KIP-939). Refused at the start where the cluster has not
    /// the whole of two-phase commit.
    ///
    /// # Errors
    /// There is no cluster of that name.
    pub fn two_phase(mut self, cluster: &str) -> Result<Self, JobError> {
        match self.clusters.iter_mut().find(|(name, _)| name.as_str() == cluster) {
            Some((_, cluster)) => cluster.two_phase = true,
            None => {
                return Err(contradiction(format!(
                    "two_phase: cluster {cluster:?} is not in the job; add it first"
                )));
            }
        }
        Ok(self)
    }

    /// Adds a source.
    #[must_use]
    pub fn source(mut self, source: impl Source + 'static) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// Adds an operator; each shard gets an instance.
    #[must_use]
    pub fn operator(mut self, factory: impl Fn() -> Box<dyn Operator> + Send + Sync + 'static) -> Self {
        self.operators.push(Arc::new(factory));
        self
    }

    /// Keeps the records that the closure accepts.
    #[must_use]
    pub fn filter(self, keep: impl Fn(RecordRef<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.operator(Closure::filter("filter", OnError::Stop, move |record| Ok(keep(record))))
    }

    /// Writes a new value for each record into the buffer that is handed over.
    #[must_use]
    pub fn map_value(
        self,
        map: impl Fn(RecordRef<'_>, &mut Vec<u8>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.flat_map(move |record, out| {
            let mut value = Vec::new();
            map(record, &mut value)?;
            out.emit(record.with_value(Some(&value)));
            Ok(())
        })
    }

    /// Turns each record into none, one or several.
    #[must_use]
    pub fn flat_map(
        self,
        map: impl Fn(RecordRef<'_>, &mut Emit<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.operator(Closure::flat_map("flat_map", OnError::Stop, map))
    }

    /// Sends each record to the topic that the closure names.
    #[must_use]
    pub fn route(self, route: impl Fn(RecordRef<'_>) -> Option<Arc<str>> + Send + Sync + 'static) -> Self {
        self.operator(Closure::route("route", route))
    }

    /// Adds a sink on Kafka.
    #[must_use]
    pub fn sink(mut self, sink: SinkTopic) -> Self {
        self.kafka_sinks.push(sink);
        self
    }

    /// Adds a sink of another kind.
    #[must_use]
    pub fn other_sink(mut self, sink: impl Sink + 'static) -> Self {
        self.other_sinks.push(Arc::new(sink));
        self
    }

    /// Checks all rules and makes a plan.
    ///
    /// # Errors
    /// A rule does not hold; the message says which settings contradict each other and what to change.
    pub fn plan(self) -> Result<Plan, JobError> {
        let name = Name::new(&self.name).map_err(|error| JobError::Configuration {
            code: Code::Pipeline,
            message: format!("job {error}"),
        })?;
        self.check_loops()?;
        let sinks = self.sinks()?;
        let journals = self.kafka_sinks.iter().any(|sink| sink.journal);
        let plan = Plan {
            name,
            pipeline: self.pipeline,
            settings: self.settings,
            clusters: self.clusters,
            sources: self.sources,
            operators: self.operators,
            sinks,
            journals,
        };
        plan.check()?;
        Ok(plan)
    }

    /// A job that reads without an end what it writes never comes to rest.
    fn check_loops(&self) -> Result<(), JobError> {
        for (cluster, topics) in self.sources.iter().filter_map(|source| source.endless_topics()) {
            let loops = |sink: &&SinkTopic| {
                sink.route.topic.as_ref().is_some_and(|topic| topics.contains(topic))
                    && self.same_cluster(cluster, &sink.cluster)
            };
            if let Some(sink) = self.kafka_sinks.iter().find(loops) {
                return Err(contradiction(format!(
                    "job {}: topic {} of cluster {cluster} is read without an end and written, so what is written is read \
                     again for ever; write to another topic, or give the source an end",
                    self.name,
                    sink.route.name()
                )));
            }
        }
        Ok(())
    }

    /// Two names are one cluster where they share an address.
    fn same_cluster(&self, one: &Name, other: &str) -> bool {
        let addresses = |name: &str| {
            let found = self.clusters.iter().find(|(known, _)| known.as_str() == name);
            found.map_or("", |(_, cluster)| cluster.brokers.as_str()).split(',').map(str::trim)
        };
        one.as_str() == other
            || addresses(one.as_str())
                .any(|address| !address.is_empty() && addresses(other).any(|found| found == address))
    }

    /// All Kafka sinks of one cluster and one guarantee are one sink with several routes.
    fn sinks(&self) -> Result<Vec<Arc<dyn Sink>>, JobError> {
        let mut groups: BTreeMap<(Name, Guarantee), KafkaSinks> = BTreeMap::new();
        for sink in &self.kafka_sinks {
            let name = self.clusters.keys().find(|name| name.as_str() == sink.cluster).ok_or_else(|| {
                contradiction(format!(
                    "sink {}: cluster {:?} is not in the pipeline; add [cluster.{}]",
                    sink.route.name(),
                    sink.cluster,
                    sink.cluster
                ))
            })?;
            check_delivery(sink)?;
            check_journal(sink, self.settings.decider)?;
            let group = groups.entry((name.clone(), sink.guarantee)).or_insert_with(|| {
                KafkaSinks::new(name.clone(), sink.guarantee, sink.producer.clone(), sink.journal)
            });
            let (producer, journal) = group.settings();
            if *producer != sink.producer {
                return Err(contradiction(format!(
                    "sink {}: the sinks of cluster {name} with one guarantee share a transaction and a producer, so \
                     compression, linger, batch, buffer and delivery_timeout must be the same on all of them",
                    sink.route.name()
                )));
            }
            if journal != sink.journal {
                return Err(contradiction(format!(
                    "sink {}: the exactly-once sinks of cluster {name} are one transaction, which can be written again from \
                     a journal of all its records only; set journal = true on each of them, or on none",
                    sink.route.name()
                )));
            }
            group.add(sink.route.clone());
        }
        let kafka = groups.into_values().map(|sinks| Arc::new(sinks) as Arc<dyn Sink>);
        Ok(kafka.chain(self.other_sinks.iter().cloned()).collect())
    }
}

/// A record must have time for its linger and for one whole attempt: given up earlier, it would fail without the broker
/// ever having had a say.
fn check_delivery(sink: &SinkTopic) -> Result<(), JobError> {
    let ProducerSettings { linger, delivery_timeout, .. } = sink.producer;
    let least = linger.saturating_add(limits::MIN_REQUEST_TIMEOUT);
    match delivery_timeout {
        Some(timeout) if timeout < least => Err(contradiction(format!(
            "sink {}: delivery_timeout {timeout:?} leaves no time for a request after linger {linger:?}; it must be at \
             least {least:?}, raise it or lower linger",
            sink.route.name()
        ))),
        _ => Ok(()),
    }
}

/// A journal stands behind a transaction, whose records could be lost after they were counted as written.
fn check_journal(sink: &SinkTopic, decider: Option<DeciderKind>) -> Result<(), JobError> {
    if !sink.journal {
        return Ok(());
    }
    if decider == Some(DeciderKind::Transaction) {
        return Err(contradiction(format!(
            "sink {}: journal = true is not for decider \"transaction\": what is not committed there is read again; take it \
             out, or set decider = \"checkpoint\"",
            sink.route.name()
        )));
    }
    if sink.guarantee != Guarantee::ExactlyOnce {
        return Err(contradiction(format!(
            "sink {}: journal = true keeps the records of a transaction, and guarantee {:?} has none; set guarantee = \
             \"exactly-once\", or take journal out",
            sink.route.name(),
            sink.guarantee
        )));
    }
    if !journal::AVAILABLE {
        return Err(contradiction(format!(
            "sink {}: journal = true, and this build of hapax has no journals (feature `journal`)",
            sink.route.name()
        )));
    }
    Ok(())
}

/// A checked job.
#[derive(Clone)]
pub struct Plan {
    pub(crate) name: Name,
    pub(crate) pipeline: String,
    pub(crate) settings: Settings,
    pub(crate) clusters: BTreeMap<Name, Cluster>,
    pub(crate) sources: Vec<Arc<dyn Source>>,
    pub(crate) operators: Vec<OperatorFactory>,
    pub(crate) sinks: Vec<Arc<dyn Sink>>,
    /// A sink is to keep a journal.
    pub(crate) journals: bool,
}

fn contradiction(message: String) -> JobError {
    JobError::Configuration { code: Code::Contradiction, message }
}

impl Plan {
    /// The strongest guarantee of the sinks.
    pub fn guarantee(&self) -> Guarantee {
        self.sinks.iter().map(|sink| sink.guarantee()).max().unwrap_or(Guarantee::None)
    }

    fn check(&self) -> Result<(), JobError> {
        if self.sources.is_empty() || self.sinks.is_empty() {
            return Err(contradiction(format!("job {}: needs at least one source and one sink", self.name)));
        }
        self.check_names()?;
        self.check_naming()?;
        self.check_decider()?;
        self.check_store()?;
        self.check_guarantee()?;
        self.check_shards()?;
        self.check_times()
    }

    /// What a run that slept begins under a fresh id of its own is ended by its time-out alone.
    fn check_naming(&self) -> Result<(), JobError> {
        let unbounded = self.clusters.values().find(|cluster| cluster.two_phase);
        match (self.settings.naming, unbounded) {
            (Some(Naming::PerEpoch), Some(cluster)) => Err(contradiction(format!(
                "job {}: naming = \"per-epoch\" needs transactions that time out, and [cluster.{}] has two_phase = true; \
                 take one of the two out",
                self.name, cluster.name
            ))),
            _ => Ok(()),
        }
    }

    /// What makes an epoch of this job final: what its settings say; else `transaction` from Kafka to exactly-once sinks
    /// on one Kafka cluster, where nothing is set that has to do with checkpoints; else `checkpoint`.
    pub fn decider(&self) -> DeciderKind {
        let default = || match self.is_copied_by_transactions() && !self.asks_for_checkpoints() {
            true => DeciderKind::Transaction,
            false => DeciderKind::Checkpoint,
        };
        self.settings.decider.unwrap_or_else(default)
    }

    fn is_copied_by_transactions(&self) -> bool {
        self.sources.iter().all(|source| source.kafka_cluster().is_some())
            && self.transactional_clusters().len() == 1
    }

    fn asks_for_checkpoints(&self) -> bool {
        let Settings { store, recovery, naming, from, .. } = &self.settings;
        store.is_some()
            || *recovery != Settings::default().recovery
            || *naming == Some(Naming::PerEpoch)
            || from.is_some()
            || self.journals
    }

    /// The clusters that exactly-once sinks write to.
    pub(crate) fn transactional_clusters(&self) -> BTreeSet<&Name> {
        self.sinks.iter().filter_map(|sink| sink.transactional_cluster()).collect()
    }

    fn check_decider(&self) -> Result<(), JobError> {
        let clusters = self.transactional_clusters();
        match self.decider() {
            DeciderKind::Transaction if clusters.len() != 1 => Err(contradiction(format!(
                "job {}: decider = \"transaction\" needs exactly-once sinks on one Kafka cluster, whose transactions then \
                 hold the positions, and this job has them on {}; set decider = \"checkpoint\" with a [checkpoint] store",
                self.name,
                clusters.len()
            ))),
            DeciderKind::Transaction => self.check_carried(),
            DeciderKind::Checkpoint => Ok(()),
        }
    }

    /// What asks for a chain of checkpoints means nothing where there is none.
    fn check_carried(&self) -> Result<(), JobError> {
        let Settings { recover_once, from, naming, .. } = &self.settings;
        let why = match (recover_once.first(), from, naming) {
            (Some(strategy), ..) => format!(
                "--recover {} has nothing to resolve: under decider \"transaction\" no checkpoint is ever in doubt",
                strategy.name()
            ),
            (_, Some(epoch), ..) => {
                format!("--from {epoch} goes back to a checkpoint, and decider \"transaction\" keeps none")
            }
            (_, _, Some(Naming::PerEpoch)) => {
                "naming = \"per-epoch\" is not for decider \"transaction\", whose ids must be known before progress is read"
                    .to_owned()
            }
            (_, _, Some(Naming::Rotating) | None) => return Ok(()),
        };
        Err(contradiction(format!("job {}: {why}; take it out, or set decider = \"checkpoint\"", self.name)))
    }

    fn check_names(&self) -> Result<(), JobError> {
        let mut names: Vec<&str> = self.sources.iter().map(|source| source.name()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(contradiction(format!(
                "job {}: two sources are named {:?}; give one of them another name",
                self.name, pair[0]
            ))),
            None => Ok(()),
        }
    }

    /// Whether a job has a store is asked by its name in many places.
    fn check_store(&self) -> Result<(), JobError> {
        let Settings { store, object_store, .. } = &self.settings;
        if store.is_none() && object_store.is_some() {
            return Err(contradiction(format!(
                "job {}: an object store is set, and no name of it; set settings.store beside it, or give both with \
                 Job::store_on",
                self.name
            )));
        }
        Ok(())
    }

    fn check_guarantee(&self) -> Result<(), JobError> {
        let guarantee = self.guarantee();
        if guarantee == Guarantee::None {
            return Ok(());
        }
        if let Some(source) = self.sources.iter().find(|source| !source.replayable()) {
            return Err(contradiction(format!(
                "job {}: source {} cannot be read again after a crash, so no sink can promise {guarantee:?}; set \
                 guarantee = \"none\" on every sink, or put the records into a file or a topic first",
                self.name,
                source.name()
            )));
        }
        if self.settings.store.is_none() && self.decider() == DeciderKind::Checkpoint {
            return Err(contradiction(format!(
                "job {}: a sink with guarantee {guarantee:?} needs a checkpoint store; set [checkpoint] store = \
                 \"file:///...\"",
                self.name
            )));
        }
        Ok(())
    }

    fn check_shards(&self) -> Result<(), JobError> {
        match self.settings.shards {
            Some(shards) => self.check_shard_count(shards),
            None => Ok(()),
        }
    }

    /// No job has more shards than this process can name.
    pub(crate) fn check_shard_count(&self, shards: u32) -> Result<(), JobError> {
        match shards {
            0 => Err(contradiction(format!(
                "job {}: shards = 0 would read nothing; take at least 1",
                self.name
            ))),
            _ if shards > MAX_SHARDS => Err(contradiction(format!(
                "job {}: shards = {shards} are more than a job may have; take at most {MAX_SHARDS}",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), JobError> {
        let Settings { interval, transaction_timeout, .. } = &self.settings;
        if interval.is_zero() || *interval > limits::MAX_INTERVAL {
            return Err(contradiction(format!(
                "job {}: checkpoint interval {interval:?} is not between 1 ms and {:?}",
                self.name,
                limits::MAX_INTERVAL
            )));
        }
        let repairs = self.settings.recovery.iter().find(|strategy| strategy.repairs());
        if let Some(repairs) = repairs.filter(|_| !self.settings.recovery.contains(&Strategy::Resume)) {
            return Err(contradiction(format!(
                "job {}: recovery lists {} and not resume: what it writes again would never be committed; add \"resume\"",
                self.name,
                repairs.name()
            )));
        }
        if self.settings.keep < KEEP_CHECKPOINTS {
            return Err(contradiction(format!(
                "job {}: keep = {} checkpoints are too few to find out an old copy of the store; take at least {KEEP_CHECKPOINTS}",
                self.name, self.settings.keep
            )));
        }
        transaction_timeout.map_or(Ok(()), |timeout| self.check_timeout(timeout))
    }

    /// The transaction timeout, the wanted or the broker's, against the interval.
    pub(crate) fn check_timeout(&self, timeout: Duration) -> Result<(), JobError> {
        let interval = self.settings.interval;
        if timeout >= interval * limits::INTERVALS_PER_TIMEOUT {
            return Ok(());
        }
        Err(contradiction(format!(
            "job {}: transaction_timeout {timeout:?} must be at least {} times the checkpoint interval {interval:?}, or \
             transactions time out before they can be committed; raise the one or lower the other",
            self.name,
            limits::INTERVALS_PER_TIMEOUT
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::GeneratorSource;
    use object_store::memory::InMemory;

    /// A job by transactions with such a store recorded nothing there, and nobody had refused it.
    #[test]
    fn a_store_without_a_name_is_refused() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let job = Job::new("orders").cluster("main", "b:9092").unwrap();
        let job = job.source(GeneratorSource::new("made", Some(1))).sink(SinkTopic::new("main", "out"));
        let nameless = job.clone().settings(|settings| settings.object_store = Some(store.clone()));
        let Err(error) = nameless.plan() else { panic!("a store without a name makes no plan") };
        assert_eq!(error.code(), Code::Contradiction);
        assert!(error.to_string().contains("settings.store"), "{error}");
        job.store_on("memory://named", store).plan().unwrap();
    }
}
