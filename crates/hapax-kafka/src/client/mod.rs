//! One cluster: its brokers, what is known about it, and how to reach the broker that a request belongs to.
//!
//! Owns metadata, coordinators and connections of one worker. Refuses: to decide whether a failed operation is worth
//! another try (the operation's module does, by the error table).
//!
//! Invariants: never an answer of another cluster (the cluster id is compared each time); many callers that ask for
//! the same refresh cause one request.
//!
//! Sources: KIP-320 (leader epochs), KIP-516 (topic ids), KIP-584 (finalized features); `NetworkClient`, `Metadata`.

mod lookup;
mod pool;

pub(crate) use pool::{Purpose, backoff};

use crate::{
    ClientConfig, ClientError,
    connection::{BrokerVersions, Connection},
    error::CallError,
    limits,
    metadata::{Leader, MetadataCache, TopicMetadata},
    node::NodeId,
};
use hapax_commit::{TopicId, TransactionVersion};
use hapax_host::{Host, Instant};
use pool::Pool;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Which kind of coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoordinatorKind {
    /// Of a consumer group.
    Group,
    /// Of a transactional id.
    Transaction,
}

/// A client of one cluster. Clones share everything.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    host: Host,
    config: ClientConfig,
    cluster_id: String,
    pool: Pool,
    state: Mutex<State>,
    /// Held by the one refresh that runs; remembers when the newest successful one began.
    refreshing: tokio::sync::Mutex<Option<Instant>>,
    upkeep: Mutex<Option<tokio::task::AbortHandle>>,
}

#[derive(Default)]
struct State {
    metadata: MetadataCache,
    coordinators: BTreeMap<(CoordinatorKind, String), NodeId>,
    /// Topics that a refresh has to fetch beside the known ones.
    wanted: BTreeSet<String>,
    features: Option<Features>,
}

/// The newest word about finalized features.
#[derive(Clone, Copy)]
struct Features {
    version: TransactionVersion,
    epoch: i64,
    learned: Instant,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let upkeep = self.upkeep.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = upkeep.take() {
            task.abort();
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, versions: &BrokerVersions) {
        let learned = self.host.now();
        let new =
            Features { version: versions.transaction_version(), epoch: versions.features_epoch(), learned };
        let mut state = self.state();
        if state.features.is_none_or(|known| known.epoch <= new.epoch) {
            state.features = Some(new);
        }
    }
}

impl Client {
    /// Connects to a cluster: one bootstrap broker has to answer ApiVersions and Metadata.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] with what happened at each address, [`ClientError::TooOld`] for a broker before
    /// Kafka 3.0, [`ClientError::Config`] for an empty bootstrap list.
    pub async fn connect(host: Host, config: ClientConfig) -> Result<Self, ClientError> {
        lookup::connect(host, config).await
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> &str {
        &self.inner.cluster_id
    }

    /// The machine that the client runs on.
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// The settings.
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// The transaction protocol that the cluster has finalized, at most 30 s old. It may change while a job runs: a
    /// transaction keeps the version that it began with.
    ///
    /// # Errors
    /// No broker answered.
    pub async fn transaction_version(&self) -> Result<TransactionVersion, ClientError> {
        lookup::transaction_version(self).await
    }

    /// Asks the cluster about topics now. Every name has an entry in the answer, in the order asked; an unknown topic
    /// is an entry with an error. Topics are never created.
    ///
    /// # Errors
    /// No broker answered.
    pub async fn topics(&self, names: &[&str]) -> Result<Vec<Arc<TopicMetadata>>, ClientError> {
        lookup::topics(self, names).await
    }

    /// Asks the cluster about every topic that this client may see.
    ///
    /// # Errors
    /// No broker answered.
    pub async fn all_topics(&self) -> Result<Vec<TopicMetadata>, ClientError> {
        lookup::all_topics(self).await
    }

    /// What is known about a topic, without asking.
    pub fn cached_topic(&self, topic: &str) -> Option<Arc<TopicMetadata>> {
        self.inner.state().metadata.topic(topic)
    }

    /// The known leader of a partition, without asking.
    pub fn cached_leader(&self, topic: &str, partition: i32) -> Option<Leader> {
        self.inner.state().metadata.leader(topic, partition)
    }

    /// The known id of a topic, without asking.
    pub fn topic_id(&self, topic: &str) -> Option<TopicId> {
        self.cached_topic(topic).filter(|topic| topic.error.is_none()).map(|topic| topic.id)
    }

    /// The known brokers.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.inner.state().metadata.nodes().collect()
    }

    /// The broker that admin requests go to, as far as it is known.
    pub fn controller(&self) -> Option<NodeId> {
        self.inner.state().metadata.controller()
    }

    /// Fetches metadata of these topics and of all that are known, once for all callers that ask meanwhile, and not
    /// more often than the back-off allows. A topic that is unknown is no error here.
    ///
    /// # Errors
    /// No broker answered.
    pub async fn refresh(&self, topics: &[&str]) -> Result<(), ClientError> {
        lookup::refresh(self, topics).await
    }

    /// The shared connection of a broker for produce requests and the like; opened if need be, after the back-off of
    /// the last failure.
    ///
    /// # Errors
    /// The broker cannot be connected to or is not known: never an effect.
    pub async fn connection(&self, node: NodeId) -> Result<Connection, CallError> {
        self.open(node, Purpose::Data).await
    }

    /// A connection of its own, for requests that the broker holds back (fetches): it handles one request of a
    /// connection at a time.
    ///
    /// # Errors
    /// As [`Client::connection`].
    pub async fn dedicated_connection(&self, node: NodeId) -> Result<Connection, CallError> {
        self.open(node, Purpose::Dedicated).await
    }

    /// The shared connection of a broker for coordinator and admin requests, which must not wait behind produce
    /// requests.
    ///
    /// # Errors
    /// As [`Client::connection`].
    pub async fn control_connection(&self, node: NodeId) -> Result<Connection, CallError> {
        self.open(node, Purpose::Control).await
    }

    async fn open(&self, node: NodeId, purpose: Purpose) -> Result<Connection, CallError> {
        let address = || self.inner.state().metadata.address(node);
        self.inner.pool.get(node, purpose, address, |versions| self.inner.learn(versions)).await
    }

    /// The connection to the coordinator of a transactional id or group. It is looked up once and remembered until
    /// [`Client::forget_coordinator`].
    ///
    /// # Errors
    /// No broker knows it yet (retriable), a right is missing, or it cannot be connected to. Never an effect.
    pub async fn coordinator(&self, kind: CoordinatorKind, key: &str) -> Result<Connection, ClientError> {
        lookup::coordinator(self, kind, key).await
    }

    /// Forgets who coordinates: after `NOT_COORDINATOR` and the like.
    pub fn forget_coordinator(&self, kind: CoordinatorKind, key: &str) {
        self.inner.state().coordinators.remove(&(kind, key.to_owned()));
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.inner.cluster_id)
    }
}
