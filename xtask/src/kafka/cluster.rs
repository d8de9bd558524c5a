//! A cluster of one or three nodes that lives as long as its value.
//!
//! Invariants: a node keeps its ports and its data through kill and restart; nothing of a cluster outlives the
//! process that started it (see [`crate::process`]); no port is fixed.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Version;
use super::node::Node;
use super::provision::Installation;
use crate::process::{self, POLL};
use crate::tools::Tools;

/// A broker is up in seconds; this covers a machine that builds and runs others at the same time.
const READY_LIMIT: Duration = Duration::from_secs(180);
/// A port that was free a moment ago can be taken by a program that knows nothing of our reservations.
const START_TRIES: u32 = 3;

/// How a cluster shall be.
#[derive(Debug, Clone)]
pub struct Builder {
    version: Version,
    nodes: u32,
    properties: Vec<(String, String)>,
    transaction_version: Option<u16>,
}

/// A running cluster. Dropping it kills its nodes and removes their directories.
#[derive(Debug)]
pub struct Cluster {
    installation: Installation,
    directory: PathBuf,
    bootstrap: String,
    nodes: Mutex<Vec<Node>>,
}

impl Builder {
    /// The number of nodes: 1 (default) or 3. Each is broker and controller. Three nodes replicate every topic
    /// three times with `min.insync.replicas` 2.
    #[must_use]
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets a broker property on every node, over the defaults of tests.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Formats the storage with this level of the feature `transaction.version` (0, 1 or 2). Without it the
    /// release's own default holds: 2 for 4.4.0. 3.9.1 has no such feature.
    #[must_use]
    pub fn transaction_version(mut self, level: u16) -> Self {
        self.transaction_version = Some(level);
        self
    }

    /// Starts the cluster and returns when every node answers and both coordinators are found.
    ///
    /// # Errors
    /// The jars cannot be fetched, a node ended by itself (the end of its log is in the text), or the cluster
    /// was not ready in time.
    pub fn start(&self) -> io::Result<Cluster> {
        self.check()?;
        let installation = Installation::provide(self.version)?;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.start_once(&installation) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < START_TRIES => {}
                other => return other,
            }
        }
    }

    fn check(&self) -> io::Result<()> {
        let problem = match (self.nodes, self.transaction_version) {
            (1 | 3, None) => return Ok(()),
            (1 | 3, Some(_)) if self.version.knows_v2() => return Ok(()),
            (1 | 3, Some(_)) => format!("kafka {} has no feature transaction.version", self.version),
            (nodes, _) => format!("{nodes} nodes are not offered: take 1 or 3"),
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("could not start a cluster: {problem}")))
    }

    fn start_once(&self, installation: &Installation) -> io::Result<Cluster> {
        let directory = new_directory()?;
        process::remove_at_exit(&directory)?;
        let nodes: Vec<Node> =
            (1..=self.nodes).map(|id| Node::create(id, &directory)).collect::<io::Result<_>>()?;
        let addresses: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let cluster = Cluster {
            installation: installation.clone(),
            directory,
            bootstrap: addresses.join(","),
            nodes: Mutex::new(nodes),
        };
        self.prepare(&cluster)?;
        for node in cluster.lock().iter_mut() {
            node.launch(installation)?;
        }
        cluster.await_all()?;
        Ok(cluster)
    }

    /// Writes every node's configuration and formats its storage, the nodes side by side.
    fn prepare(&self, cluster: &Cluster) -> io::Result<()> {
        let nodes = cluster.lock();
        let voters: Vec<String> = nodes.iter().map(Node::voter).collect();
        let voters = voters.join(",");
        let cluster_id = cluster_id(&cluster.directory);
        let mut properties = defaults(self.version, self.nodes);
        properties.extend(self.properties.iter().cloned());
        thread::scope(|scope| {
            let formats: Vec<_> = nodes
                .iter()
                .map(|node| {
                    let (voters, properties, cluster_id) = (&voters, &properties, &cluster_id);
                    scope.spawn(move || {
                        node.configure(voters, properties)?;
                        node.format(&cluster.installation, cluster_id, self.transaction_version)
                    })
                })
                .collect();
            formats.into_iter().try_for_each(|format| format.join().expect("formatting does not panic"))
        })
    }
}

impl Cluster {
    /// A description to be started, with one node.
    pub fn builder(version: Version) -> Builder {
        Builder { version, nodes: 1, properties: Vec::new(), transaction_version: None }
    }

    /// The addresses of all nodes, separated by commas.
    pub fn bootstrap(&self) -> String {
        self.bootstrap.clone()
    }

    /// The Kafka version.
    pub fn version(&self) -> Version {
        self.installation.version()
    }

    /// The ids of the nodes: 1, or 1 to 3.
    pub fn nodes(&self) -> Vec<u32> {
        self.lock().iter().map(Node::id).collect()
    }

    /// The client port of a node, on 127.0.0.1.
    ///
    /// # Panics
    /// There is no such node.
    pub fn port(&self, node: u32) -> u16 {
        self.with(node, |node| node.port())
    }

    /// The process id of a node, while it has a process.
    ///
    /// # Panics
    /// There is no such node.
    pub fn process_id(&self, node: u32) -> Option<u32> {
        self.with(node, |node| node.process_id())
    }

    /// The file to which a node logs. It goes with the cluster.
    ///
    /// # Panics
    /// There is no such node.
    pub fn log_path(&self, node: u32) -> PathBuf {
        self.with(node, |node| node.log_path())
    }

    /// Ends a node with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// The node does not run.
    ///
    /// # Panics
    /// There is no such node.
    pub fn kill(&self, node: u32) -> io::Result<()> {
        self.with(node, Node::kill)
    }

    /// Ends a node with SIGTERM and waits for its end.
    ///
    /// # Errors
    /// The node does not run, or had to be killed.
    ///
    /// # Panics
    /// There is no such node.
    pub fn stop(&self, node: u32) -> io::Result<()> {
        self.with(node, Node::stop)
    }

    /// Stops a node's process in its tracks (SIGSTOP): connections stay, nothing is answered.
    ///
    /// # Errors
    /// The node does not run.
    ///
    /// # Panics
    /// There is no such node.
    pub fn pause(&self, node: u32) -> io::Result<()> {
        self.with(node, Node::pause)
    }

    /// Lets a paused node go on (SIGCONT).
    ///
    /// # Errors
    /// The node does not run.
    ///
    /// # Panics
    /// There is no such node.
    pub fn resume(&self, node: u32) -> io::Result<()> {
        self.with(node, Node::resume)
    }

    /// Starts a node that was killed or stopped, on its old port and data, without waiting for it. Needed where
    /// a majority of three nodes is down: none of them is ready before the second one runs.
    ///
    /// # Errors
    /// The node runs already, or Java could not be started.
    ///
    /// # Panics
    /// There is no such node.
    pub fn launch(&self, node: u32) -> io::Result<()> {
        let installation = self.installation.clone();
        self.with(node, |node| node.launch(&installation))
    }

    /// Starts a node that was killed or stopped, on its old port and data, and waits until it answers and is a
    /// member of the cluster again. When all nodes run, it also waits for both coordinators.
    ///
    /// # Errors
    /// The node runs already, ended by itself, or was not ready in time.
    ///
    /// # Panics
    /// There is no such node.
    pub fn restart(&self, node: u32) -> io::Result<()> {
        self.launch(node)?;
        self.await_ready(node)
    }

    /// Waits until a node answers and is a member of the cluster.
    ///
    /// # Errors
    /// The node ended by itself or was not ready in time.
    ///
    /// # Panics
    /// There is no such node.
    pub fn await_ready(&self, node: u32) -> io::Result<()> {
        let start = Instant::now();
        loop {
            let all = self.lock().iter().all(Node::is_running);
            let alive = if all { self.lock().len() } else { 1 };
            let outcome = self.with(node, |node| {
                node.check()?;
                Ok::<_, io::Error>(node.answers(alive, all))
            })?;
            match outcome {
                Ok(()) => return Ok(()),
                Err(last) if start.elapsed() > READY_LIMIT => {
                    let log = self.log_path(node);
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!(
                            "kafka node {node} was not ready within {READY_LIMIT:?}: {last}; its log ends:\n{}",
                            process::tail(&fs::read_to_string(log).unwrap_or_default(), 25)
                        ),
                    ));
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    fn await_all(&self) -> io::Result<()> {
        self.nodes().into_iter().try_for_each(|node| self.await_ready(node))
    }

    /// Sets the finalized level of the feature `transaction.version` on the running cluster.
    ///
    /// # Errors
    /// Kafka's tool refused it; the text has its words.
    pub fn set_transaction_version(&self, level: u16) -> io::Result<()> {
        self.tools()?.set_transaction_version(&self.bootstrap, level)
    }

    /// Apache Kafka's tools of this cluster's version.
    ///
    /// # Errors
    /// The jars cannot be fetched.
    pub fn tools(&self) -> io::Result<Tools> {
        Tools::new(self.version())
    }

    /// Runs a main class of Kafka's tools to its end. The caller passes `--bootstrap-server` itself and looks at
    /// the exit status.
    ///
    /// # Errors
    /// Java could not be started.
    pub fn run_tool(&self, main_class: &str, arguments: &[&str]) -> io::Result<Output> {
        self.tools()?.run(main_class, arguments)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, id: u32, act: impl FnOnce(&mut Node) -> T) -> T {
        let mut nodes = self.lock();
        let node = nodes.iter_mut().find(|node| node.id() == id);
        act(node.unwrap_or_else(|| panic!("there is no kafka node {id}")))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.lock().clear();
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("could not remove {}: {error}", self.directory.display());
        }
    }
}

/// What tests want of every broker: small internal topics, quick ends of abandoned transactions and groups, no
/// topic that springs up from a misspelt name.
fn defaults(version: Version, nodes: u32) -> Vec<(String, String)> {
    let (replicas, in_sync) = if nodes == 1 { ("1", "1") } else { ("3", "2") };
    // A single node that was killed registers again only when its old session has ended; among three, a session
    // that ends early moves leaderships although nothing died.
    let session = if nodes == 1 { "3000" } else { "6000" };
    let mut properties = vec![
        ("auto.create.topics.enable", "false"),
        ("default.replication.factor", replicas),
        ("min.insync.replicas", in_sync),
        ("offsets.topic.num.partitions", "4"),
        ("offsets.topic.replication.factor", replicas),
        ("transaction.state.log.num.partitions", "4"),
        ("transaction.state.log.replication.factor", replicas),
        ("transaction.state.log.min.isr", in_sync),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.min.session.timeout.ms", "1000"),
        ("broker.heartbeat.interval.ms", "500"),
        ("broker.session.timeout.ms", session),
        ("num.network.threads", "2"),
        ("num.io.threads", "4"),
        ("num.replica.fetchers", "1"),
        // Retention goes by the records' own times and takes those of open transactions too: a test's record of 1970
        // would be gone at the next segment. A topic that wants retention says so.
        ("log.retention.ms", "-1"),
        ("log.cleaner.dedupe.buffer.size", "4194304"),
        ("log.index.size.max.bytes", "1048576"),
    ];
    match version {
        Version::V4_4 => properties.extend([
            ("share.coordinator.state.topic.num.partitions", "1"),
            ("share.coordinator.state.topic.replication.factor", replicas),
            ("share.coordinator.state.topic.min.isr", in_sync),
        ]),
        Version::V3_9 => {}
    }
    properties.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A cluster id in Kafka's form: 22 characters of URL-safe base 64.
fn cluster_id(directory: &Path) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let hash = crate::cache::fingerprint(&format!("{} {now:?}", directory.display()));
    format!("hapax{hash}A")
}

fn new_directory() -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("hapax-kafka-{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|()| path),
        }
    }
}
