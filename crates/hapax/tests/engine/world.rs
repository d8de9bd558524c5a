//! A cluster, a topic, and an engine that keeps what it is told in memory.

use hapax::{
    cluster::Cluster,
    engine::{Handle, KafkaSink, KafkaSinkBuilder, Known, Lane, Outcome, Record, Recovered},
};
use hapax_broker::{Broker, ServerOptions, Settings};
use hapax_kafka::{
    Client, ClientConfig,
    transaction::{self, EndTxnAnswer},
};
use std::{
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use xtask::judge::{Isolation, Judge, Read};

/// Both transaction protocols, as `transaction.version`.
pub(crate) const PROTOCOLS: [i16; 2] = [0, 2];

pub(crate) const PARTITIONS: i32 = 2;

/// A cluster with one topic.
pub(crate) struct World {
    pub(crate) broker: Option<Broker>,
    pub(crate) bootstrap: String,
    pub(crate) topic: String,
    pub(crate) job: String,
}

/// Runs a scenario on an embedded broker of each protocol.
pub(crate) fn on_each<F: Future<Output = ()>>(scenario: impl Fn(World) -> F) {
    for transaction_version in PROTOCOLS {
        block_on(async {
            let settings = Settings { transaction_version, ..Settings::default() };
            let broker = Broker::start(settings, ServerOptions::default()).await.unwrap();
            broker.create_topic("out", PARTITIONS).await.unwrap();
            let bootstrap = broker.bootstrap();
            scenario(World { broker: Some(broker), bootstrap, topic: "out".into(), job: "orders".into() })
                .await;
        });
    }
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A name that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn wall_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

impl World {
    pub(crate) fn builder(&self) -> KafkaSinkBuilder {
        let cluster = Cluster::named("main", &self.bootstrap).unwrap();
        KafkaSink::builder(cluster).job(&self.job).patience(Duration::from_secs(20))
    }

    /// A sink of another process, as far as the broker can tell.
    pub(crate) fn sink(&self) -> KafkaSink {
        self.builder().exactly_once().unwrap()
    }

    pub(crate) fn broker(&self) -> &Broker {
        self.broker.as_ref().unwrap()
    }

    /// A sink that has taken over shards 0 to 2 of a job that has decided nothing.
    pub(crate) async fn begun(&self) -> KafkaSink {
        let sink = self.sink();
        recover::<Known>(&sink, &[]).await.recorded().await.unwrap();
        sink
    }

    /// Writes `count` records from number `from` on and prepares them, in every partition.
    pub(crate) async fn prepared(&self, lane: &mut Lane, epoch: u64, from: u64, count: u64) -> Handle {
        for number in from..from + count {
            let (key, value) = (format!("k{number}"), number.to_string());
            let partition = i32::try_from(number % 2).unwrap();
            lane.write(Record::to(&self.topic).key(&key).value(&value).partition(partition)).await.unwrap();
        }
        lane.prepare(epoch).await.unwrap().unwrap()
    }

    /// What `read_committed` readers see, by the judge.
    pub(crate) async fn seen(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> =
            self.records().await.iter().map(|record| record.text().parse().unwrap()).collect();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) async fn records(&self) -> Vec<Read> {
        let (bootstrap, topic) = (self.bootstrap.clone(), self.topic.clone());
        let read = tokio::task::spawn_blocking(move || {
            Judge::shared().read_all(&bootstrap, &topic, Isolation::ReadCommitted).unwrap()
        });
        read.await.unwrap().into_iter().flat_map(|partition| partition.records).collect()
    }

    /// Ends a transaction by abort, as an admin with another tool does.
    pub(crate) async fn abort(&self, handle: &Handle) {
        self.end(handle, false).await;
    }

    /// Ends a transaction at its coordinator, as somebody does who looks at nothing.
    pub(crate) async fn end(&self, handle: &Handle, commit: bool) {
        let client = self.client().await;
        let deadline = hapax_host::Deadline::after(client.host().now(), Some(Duration::from_secs(30)));
        let id = handle.transactional_id.to_string();
        let (identity, version) = (handle.identity, handle.version);
        let answer = transaction::end_txn(&client, &id, identity, version, commit, deadline, || {}).await;
        let is_done = match &answer {
            EndTxnAnswer::Committed { .. } => commit,
            EndTxnAnswer::Aborted { .. } => !commit,
            _ => false,
        };
        assert!(is_done, "{answer:?}");
    }

    /// A client of its own.
    pub(crate) async fn client(&self) -> Client {
        let config = ClientConfig::new(ClientConfig::parse_bootstrap(&self.bootstrap).unwrap());
        Client::connect(hapax::Host::real(), config).await.unwrap()
    }
}

/// The first look after a start, for shards 0 to 2.
pub(crate) async fn recover<K: Clone + Into<Known>>(sink: &KafkaSink, decided: &[K]) -> Recovered {
    sink.recover(decided, &sink.ids(0..3), 1).await.unwrap()
}

/// Hands over until everything is committed and recorded; how many reports that took.
pub(crate) async fn settle(sink: &KafkaSink, decided: &[Handle]) -> usize {
    let mut left: Vec<Known> = decided.iter().cloned().map(Known::from).collect();
    for reports in 1..4 {
        let report = recover(sink, &left).await;
        left = report.left();
        if report.is_settled() {
            report.recorded().await.unwrap();
            return reports;
        }
    }
    panic!("never settled: {left:?}")
}

pub(crate) async fn commit(lane: &Lane, handle: &Handle) -> hapax::engine::Proof {
    match lane.commit(handle).await.unwrap() {
        Outcome::Committed(proof) => proof,
        other => panic!("{other:?}"),
    }
}
