//! The clusters of a job, by their name in the pipeline file, and one client for each and each worker.

use crate::error::{Code, JobError};
use hapax_commit::Name;
use hapax_host::Host;
use hapax_kafka::{Client, ClientConfig, ClientError, transaction::Lifetime};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};
use tokio::sync::OnceCell;

/// How a cluster is reached.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its name in the pipeline file.
    pub name: Name,
    /// `host:port` of some of its brokers, with commas.
    pub brokers: String,
    /// The client's settings.
    pub client: ClientConfig,
    /// No time-out ends the job's transactions there (KIP-939): whatever was decided can be committed, however late, and
    /// whatever is left open keeps readers waiting until somebody ends it.
    pub two_phase: bool,
}

impl Cluster {
    /// A cluster with the client's defaults.
    ///
    /// # Errors
    /// `brokers` is not a list of `host:port`.
    pub fn new(name: Name, brokers: &str) -> Result<Self, String> {
        let bootstrap = ClientConfig::parse_bootstrap(brokers).map_err(|error| error.to_string())?;
        Ok(Self { name, brokers: brokers.to_owned(), client: ClientConfig::new(bootstrap), two_phase: false })
    }

    /// How long a transaction there may stay open, where its timeout is this one.
    pub(crate) fn lifetime(&self, timeout: Duration) -> Lifetime {
        if self.two_phase {
            return Lifetime::Unbounded;
        }
        Lifetime::Millis(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX))
    }
}

impl Cluster {
    /// A cluster with the client's defaults, for an engine: `name` stands in the transactional ids.
    ///
    /// # Errors
    /// The name has other characters than `a-z`, `0-9`, `_`, `-`, or `brokers` is not a list of `host:port`.
    pub fn named(name: &str, brokers: &str) -> Result<Self, crate::engine::EngineError> {
        let illegal =
            |message: String| crate::engine::EngineError::Usage { code: Code::Contradiction, message };
        let name = Name::new(name).map_err(|error| illegal(format!("cluster: {error}")))?;
        Self::new(name.clone(), brokers)
            .map_err(|error| illegal(format!("cluster {name}: brokers {brokers:?}: {error}")))
    }
}

/// The clients of one worker: connected when first asked for, then shared by all that runs there.
#[derive(Clone)]
pub struct Clusters {
    host: Host,
    clients: Arc<BTreeMap<Name, (Cluster, OnceCell<Client>)>>,
}

impl Clusters {
    /// Nothing is connected yet.
    pub fn new(host: Host, clusters: &BTreeMap<Name, Cluster>) -> Self {
        let clients = clusters
            .iter()
            .map(|(name, cluster)| (name.clone(), (cluster.clone(), OnceCell::new())))
            .collect::<BTreeMap<_, _>>();
        Self { host, clients: Arc::new(clients) }
    }

    /// The client of a cluster.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub async fn client(&self, name: &Name) -> Result<Client, ClientError> {
        let (cluster, cell) = self.clients.get(name).expect("a plan names only clusters that it has");
        let connect = || Client::connect(self.host.clone(), cluster.client.clone());
        cell.get_or_try_init(connect).await.cloned()
    }

    /// As [`Clusters::client`], with an error that says what was attempted.
    pub(crate) async fn connected(&self, name: &Name) -> Result<Client, JobError> {
        let attempted = || format!("connecting to cluster {name} at {}", self.cluster(name).brokers);
        self.client(name).await.map_err(|error| JobError::kafka(attempted(), error))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.clients.keys()
    }

    /// How a cluster is reached.
    pub fn cluster(&self, name: &Name) -> &Cluster {
        &self.clients.get(name).expect("a plan names only clusters that it has").0
    }
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clients.keys()).finish()
    }
}
