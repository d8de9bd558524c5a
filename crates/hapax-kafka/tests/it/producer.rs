//! The lane producer on real brokers: what is flushed is in the log, once and in order, whatever happens meanwhile.

use crate::support::*;
use hapax_commit::{Epoch, Identity, LaneId, Name, ShardId, TransactionVersion, TransactionalId};
use hapax_host::Host;
use hapax_kafka::{
    Client,
    partition::murmur2_partition,
    producer::{Destination, Flushed, LaneProducer, OpenAs, ProduceError, ProducerConfig, TopicHandle},
    record::{Compression, Headers, RecordRef},
    transaction::{self, Described, EndTxnAnswer, TransactionState},
};
use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use xtask::{judge::Read, kafka::Cluster};

const TIMEOUT: Duration = Duration::from_secs(120);

/// A lane with one open transaction.
struct Lane {
    client: Client,
    producer: LaneProducer,
    id: TransactionalId,
    identity: Identity,
    version: TransactionVersion,
}

impl Lane {
    async fn open(bootstrap: &str, change: impl FnOnce(&mut ProducerConfig)) -> Self {
        let client = connect(bootstrap).await;
        let version = client.transaction_version().await.unwrap();
        let lane = LaneId { cluster: Name::new("main").unwrap(), shard: ShardId(0) };
        let id = lane.transactional_id(&Name::new(&unique("lane")).unwrap(), Epoch(1));
        let timeout = i32::try_from(TIMEOUT.as_millis()).unwrap();
        let name = id.to_string();
        let identity = transaction::init_producer_id(
            &client,
            &name,
            transaction::Lifetime::Millis(timeout),
            None,
            soon(&client),
        )
        .await
        .unwrap();
        let mut config =
            ProducerConfig { transaction_version: version, transactional: true, ..ProducerConfig::default() };
        change(&mut config);
        let mut producer = LaneProducer::start(client.clone(), config);
        producer.open(Epoch(1), OpenAs::Transaction { transactional_id: id.clone(), identity });
        Self { client, producer, id, identity, version }
    }

    async fn write(&mut self, topic: &TopicHandle, partition: Option<i32>, number: usize) {
        let (key, value) = (key(number), value(number));
        let headers: &[(&[u8], Option<&[u8]>)] = &[(b"n", None), (b"n", Some(b"1"))];
        let record = RecordRef {
            key: Some(key.as_bytes()),
            value: (number % 10 != 9).then_some(value.as_bytes()),
            headers: if number.is_multiple_of(3) { Headers::List(headers) } else { Headers::NONE },
            timestamp: timestamp(number),
        };
        self.producer.write(Destination { topic, partition }, record).await.unwrap();
    }

    async fn commit(&self) {
        self.commit_by(&self.client).await;
    }

    /// Commits, and waits for the markers: an answered commit is decided, not yet visible.
    async fn commit_by(&self, client: &Client) {
        let (id, identity, version) = (self.id.to_string(), self.identity, self.version);
        let answer = transaction::end_txn(client, &id, identity, version, true, soon(client), || {}).await;
        assert!(matches!(answer, EndTxnAnswer::Committed { .. }), "{answer:?}");
        eventually(client, "the markers are written", || async {
            match transaction::describe_transaction(client, &id, soon(client)).await.unwrap() {
                Described::Known { state: TransactionState::CompleteCommit, .. } => Some(()),
                _ => None,
            }
        })
        .await;
    }
}

fn key(number: usize) -> String {
    format!("key-{}", number % 101)
}

/// Of today: brokers delete what is older than a topic's retention, also out of a transaction that is open.
fn timestamp(number: usize) -> i64 {
    static BASE: OnceLock<i64> = OnceLock::new();
    BASE.get_or_init(|| Host::real().wall_ms()) + i64::try_from(number).unwrap()
}

fn value(number: usize) -> String {
    format!("{{\"id\":{number},\"text\":\"some text that every record has\"}}")
}

/// What the judge must read in each partition: records of `0..count` by key, in order.
fn expected(count: usize, partitions: i32) -> Vec<Vec<usize>> {
    let of = |partition| {
        (0..count)
            .filter(|number| murmur2_partition(key(*number).as_bytes(), partitions) == partition)
            .collect()
    };
    (0..partitions).map(of).collect()
}

fn assert_is(read: &Read, number: usize) {
    assert_eq!(read.key.as_deref(), Some(key(number).as_bytes()));
    let value = (number % 10 != 9).then(|| value(number).into_bytes());
    assert_eq!(read.value, value, "record {number}");
    let headers = match number % 3 {
        0 => vec![("n".to_owned(), None), ("n".to_owned(), Some(b"1".to_vec()))],
        _ => vec![],
    };
    assert_eq!(read.headers, headers, "record {number}");
    assert_eq!(read.timestamp_ms, timestamp(number), "record {number}");
}

/// The topic holds exactly the records `0..count`, each once, where `flushed` says.
fn assert_exact(bootstrap: &str, topic: &str, reading: Reading, count: usize, flushed: &Flushed) {
    let partitions = Judge::shared().read_all(bootstrap, topic, reading).unwrap();
    let wanted = expected(count, i32::try_from(partitions.len()).unwrap());
    for (partition, wanted) in partitions.iter().zip(&wanted) {
        assert_eq!(partition.records.len(), wanted.len(), "{topic}: {:?}", partition.bounds);
        for (read, number) in partition.records.iter().zip(wanted) {
            assert_is(read, *number);
        }
    }
    let seen: Vec<(i64, i64, u64)> =
        flushed.partitions.iter().map(|p| (p.first_offset, p.last_offset, p.count)).collect();
    let in_log: Vec<(i64, i64, u64)> = partitions
        .iter()
        .filter_map(|p| Some((p.records.first()?.offset, p.records.last()?.offset, p.records.len() as u64)))
        .collect();
    assert_eq!(seen, in_log, "{topic}");
}

#[test]
fn ten_thousand_records_in_every_codec_are_committed_once_and_in_order() {
    const COUNT: usize = 10_000;
    for broker in Version::ALL {
        let bootstrap = &shared(broker).bootstrap;
        for compression in Compression::ALL {
            let topic = unique(&format!("codec-{compression}"));
            Judge::shared().create_topic(bootstrap, &topic, 3, &[]).unwrap();
            let flushed = block_on(async {
                let small = |config: &mut ProducerConfig| {
                    config.compression = compression;
                    config.batch_bytes = 16 << 10;
                    config.buffer_bytes = 256 << 10;
                };
                let mut lane = Lane::open(bootstrap, small).await;
                assert_eq!(lane.version, protocol(broker));
                let handle = lane.producer.topic(&topic).await.unwrap();
                for number in 0..COUNT {
                    lane.write(&handle, None, number).await;
                    assert!(lane.producer.counters().is_balanced());
                }
                assert_eq!(lane.producer.records_of_epoch(), COUNT as u64);
                let flushed = lane.producer.flush().await.unwrap();
                lane.commit().await;
                flushed
            });
            assert_exact(bootstrap, &topic, Reading::ReadCommitted, COUNT, &flushed);
            assert!(flushed.started.is_some());
        }
    }
}

#[test]
fn flush_waits_for_both_halves_of_a_batch_that_was_too_large() {
    const COUNT: usize = 1000;
    for broker in Version::ALL {
        let bootstrap = &shared(broker).bootstrap;
        let topic = unique("split");
        Judge::shared().create_topic(bootstrap, &topic, 1, &[("max.message.bytes", "2000")]).unwrap();
        let (lane, flushed) = block_on(async {
            let plain = |config: &mut ProducerConfig| config.compression = Compression::None;
            let mut lane = Lane::open(bootstrap, plain).await;
            let handle = lane.producer.topic(&topic).await.unwrap();
            for number in 0..COUNT {
                lane.write(&handle, Some(0), number).await;
            }
            let flushed = lane.producer.flush().await.unwrap();
            (lane, flushed)
        });
        // Still open: what flush answered for must be in the log before anything else happens.
        assert_exact(bootstrap, &topic, Reading::ReadUncommitted, COUNT, &flushed);
        block_on(async {
            // Another runtime, and the sender of the lane is gone with the first: the transaction is not.
            let client = connect(bootstrap).await;
            lane.commit_by(&client).await;
        });
        assert_exact(bootstrap, &topic, Reading::ReadCommitted, COUNT, &flushed);
    }
}

#[test]
fn a_record_larger_than_its_topic_allows_is_named_and_ends_the_epoch() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let topic = unique("too-large");
    Judge::shared().create_topic(bootstrap, &topic, 2, &[("max.message.bytes", "2000")]).unwrap();
    block_on(async {
        let plain = |config: &mut ProducerConfig| config.compression = Compression::None;
        let mut lane = Lane::open(bootstrap, plain).await;
        let handle = lane.producer.topic(&topic).await.unwrap();
        let to = Destination { topic: &handle, partition: Some(1) };
        let large = RecordRef { value: Some(&[7; 5000]), timestamp: timestamp(0), ..RecordRef::default() };
        lane.producer.write(to, RecordRef { value: Some(b"small"), ..large }).await.unwrap();
        lane.producer.write(to, large).await.unwrap();
        let error = lane.producer.flush().await.unwrap_err();
        assert!(error.is_bad_record());
        let text = error.to_string();
        assert!(text.contains(&format!("{topic}-1")) && text.contains("max.message.bytes"), "{text}");
        assert_eq!(lane.producer.failed().await.to_string(), text, "the failure stays");
        assert!(lane.producer.try_write(to, RecordRef::default()).is_err());
        let counters = lane.producer.counters();
        assert!(counters.is_balanced() && counters.failed >= 1, "{counters:?}");
    });
}

#[test]
fn an_unknown_topic_is_named() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    block_on(async {
        let lane = Lane::open(bootstrap, |_| ()).await;
        let error = lane.producer.topic("no-such-topic").await.unwrap_err();
        assert!(error.is_bad_record());
        assert!(error.to_string().contains("no-such-topic"), "{error}");
    });
}

/// One broker of our own, for the tests that hurt it, one after another.
fn hurt() -> (MutexGuard<'static, ()>, &'static Cluster) {
    static TURN: Mutex<()> = Mutex::new(());
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = CLUSTER.get_or_init(|| Cluster::builder(Version::V4_4).start().unwrap());
    (turn, cluster)
}

/// Runs what blocks beside the producer.
#[allow(
    clippy::disallowed_methods,
    reason = "a test hurts a broker while it writes; nothing is simulated here"
)]
fn beside(work: impl FnOnce() + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(work)
}

#[test]
fn a_broker_killed_and_restarted_in_the_middle_of_an_epoch_loses_and_repeats_nothing() {
    const COUNT: usize = 30_000;
    let (_turn, cluster) = hurt();
    let bootstrap = &cluster.bootstrap();
    let topic = unique("killed");
    Judge::shared().create_topic(bootstrap, &topic, 3, &[]).unwrap();
    let flushed = block_on(async {
        let small = |config: &mut ProducerConfig| {
            config.batch_bytes = 4 << 10;
            config.buffer_bytes = 128 << 10;
        };
        let mut lane = Lane::open(bootstrap, small).await;
        let handle = lane.producer.topic(&topic).await.unwrap();
        for number in 0..COUNT / 2 {
            lane.write(&handle, None, number).await;
        }
        assert!(lane.producer.counters().inflight > 0, "the broker is killed with records under way");
        cluster.kill(1).unwrap();
        let restart = beside(move || cluster.restart(1).unwrap());
        for number in COUNT / 2..COUNT {
            lane.write(&handle, None, number).await;
        }
        let flushed = lane.producer.flush().await.unwrap();
        restart.await.unwrap();
        lane.commit().await;
        flushed
    });
    assert_exact(bootstrap, &topic, Reading::ReadCommitted, COUNT, &flushed);
}

#[test]
fn a_silent_broker_and_a_delivery_timeout_give_partition_count_and_age() {
    let (_turn, cluster) = hurt();
    let bootstrap = &cluster.bootstrap();
    let topic = unique("paused");
    Judge::shared().create_topic(bootstrap, &topic, 2, &[]).unwrap();
    block_on(async {
        let hasty = |config: &mut ProducerConfig| config.delivery_timeout = Some(Duration::from_secs(2));
        let mut lane = Lane::open(bootstrap, hasty).await;
        let handle = lane.producer.topic(&topic).await.unwrap();
        cluster.pause(1).unwrap();
        for number in 0..7 {
            lane.write(&handle, Some(1), number).await;
        }
        let flushed = lane.producer.flush().await;
        cluster.resume(1).unwrap();
        let error = flushed.unwrap_err();
        let ProduceError::Expired { place, records, age, .. } = &error else { panic!("{error}") };
        assert_eq!((place.to_string(), *records), (format!("{topic}-1"), 7));
        assert!(*age >= Duration::from_secs(2) && *age < Duration::from_secs(20), "{age:?}");
        assert!(!error.is_bad_record(), "another run may do better");
        assert_eq!(lane.producer.failed().await.to_string(), error.to_string());
        lane.producer.abandon();
        assert_eq!(lane.producer.buffered(), 0);
    });
}

/// H22: the broker counts from when it has the first request of a transaction, so nothing is decided on a later time.
#[test]
fn the_clock_of_a_transaction_starts_before_a_broker_has_its_first_request() {
    let (_turn, cluster) = hurt();
    let bootstrap = &cluster.bootstrap();
    let topic = unique("clock");
    Judge::shared().create_topic(bootstrap, &topic, 1, &[]).unwrap();
    block_on(async {
        for version in [TransactionVersion::V1, TransactionVersion::V2] {
            let mut lane = Lane::open(bootstrap, |config| config.transaction_version = version).await;
            let handle = lane.producer.topic(&topic).await.unwrap();
            let client = lane.client.clone();
            // A request needs a connection, and none is opened to a broker that is silent.
            client.connection(client.cached_leader(&topic, 0).unwrap().node).await.unwrap();
            assert_eq!(lane.producer.started(), None);
            cluster.pause(1).unwrap();
            let (before, wall_ms) = (client.host().now(), client.host().wall_ms());
            lane.write(&handle, Some(0), 0).await;
            let started = eventually(&client, "the clock starts", || {
                let started = lane.producer.started();
                async move { started }
            })
            .await;
            let acked = lane.producer.counters().acked;
            cluster.resume(1).unwrap();
            assert_eq!(acked, 0, "the broker was silent");
            let flushed = lane.producer.flush().await.unwrap();
            let (flushed_ms, flushed) = flushed.started.unwrap();
            assert_eq!(flushed, started, "what a handle's deadline is counted from");
            assert!(started >= before && flushed_ms >= wall_ms);
        }
    });
}

#[test]
fn without_a_delivery_timeout_a_silent_broker_is_waited_for() {
    const COUNT: usize = 500;
    let (_turn, cluster) = hurt();
    let bootstrap = &cluster.bootstrap();
    let topic = unique("patient");
    Judge::shared().create_topic(bootstrap, &topic, 3, &[]).unwrap();
    let flushed = block_on(async {
        let patient = |config: &mut ProducerConfig| {
            config.delivery_timeout = None;
            // The connection is given up and opened again while the broker is silent.
            config.request_timeout = Duration::from_secs(1);
        };
        let mut lane = Lane::open(bootstrap, patient).await;
        let handle = lane.producer.topic(&topic).await.unwrap();
        cluster.pause(1).unwrap();
        for number in 0..COUNT {
            lane.write(&handle, None, number).await;
        }
        let host = lane.client.host().clone();
        assert!(host.timeout(Duration::from_secs(4), lane.producer.flush()).await.is_none());
        assert_eq!(lane.producer.counters().inflight, COUNT as u64);
        cluster.resume(1).unwrap();
        let flushed = lane.producer.flush().await.unwrap();
        lane.commit().await;
        flushed
    });
    assert_exact(bootstrap, &topic, Reading::ReadCommitted, COUNT, &flushed);
}

#[test]
fn an_idempotent_producer_that_the_broker_forgot_goes_on() {
    // Not for other tests: the half-done checks of transactional batches are forgotten as early.
    let cluster = Cluster::builder(Version::V3_9)
        .property("producer.id.expiration.ms", "500")
        .property("producer.id.expiration.check.interval.ms", "100")
        .start()
        .unwrap();
    let bootstrap = &cluster.bootstrap();
    let topic = unique("idle");
    Judge::shared().create_topic(bootstrap, &topic, 1, &[]).unwrap();
    block_on(async {
        let client = connect(bootstrap).await;
        let identity = transaction::init_idempotent(&client, soon(&client)).await.unwrap();
        let mut producer = LaneProducer::start(client.clone(), ProducerConfig::default());
        let handle = producer.topic(&topic).await.unwrap();
        for epoch in 1..=3 {
            producer.open(Epoch(epoch), OpenAs::Idempotent { identity });
            for _ in 0..10 {
                let record = RecordRef { value: Some(b"v"), timestamp: timestamp(0), ..RecordRef::default() };
                producer.write(Destination { topic: &handle, partition: None }, record).await.unwrap();
            }
            let flushed = producer.flush().await.unwrap();
            assert_eq!(flushed.partitions[0].count, 10);
            eventually(&client, "the broker forgets the producer", || async {
                let known = transaction::describe_producers(&client, &topic, 0, soon(&client)).await.unwrap();
                known.is_empty().then_some(())
            })
            .await;
        }
    });
    assert_eq!(judged(bootstrap, &topic, Reading::ReadCommitted).len(), 30);
}

#[test]
fn best_effort_goes_on_after_a_record_that_the_topic_does_not_take() {
    let bootstrap = &shared(Version::V3_9).bootstrap;
    let topic = unique("best-effort");
    Judge::shared().create_topic(bootstrap, &topic, 1, &[("max.message.bytes", "2000")]).unwrap();
    block_on(async {
        let client = connect(bootstrap).await;
        let identity = transaction::init_idempotent(&client, soon(&client)).await.unwrap();
        let config =
            ProducerConfig { best_effort: true, compression: Compression::None, ..ProducerConfig::default() };
        let mut producer = LaneProducer::start(client, config);
        let handle = producer.topic(&topic).await.unwrap();
        producer.open(Epoch(1), OpenAs::Idempotent { identity });
        for number in 0..100 {
            let large = [7; 5000];
            let text = number.to_string();
            let value = if number == 50 { &large[..] } else { text.as_bytes() };
            let record = RecordRef { value: Some(value), timestamp: timestamp(0), ..RecordRef::default() };
            producer.write(Destination { topic: &handle, partition: None }, record).await.unwrap();
        }
        let flushed = producer.flush().await.unwrap();
        assert_eq!((flushed.partitions[0].count, producer.dropped()), (99, 1));
        assert!(producer.failure().is_none());
    });
    let wanted: Vec<String> =
        (0..100).filter(|number| *number != 50).map(|number| number.to_string()).collect();
    assert_eq!(judged(bootstrap, &topic, Reading::ReadCommitted), wanted);
}

#[test]
fn leaders_that_move_in_the_middle_of_an_epoch_lose_and_repeat_nothing() {
    const COUNT: usize = 30_000;
    let cluster = Cluster::builder(Version::V4_4).nodes(3).start().unwrap();
    let bootstrap = &cluster.bootstrap();
    let topic = unique("moved");
    Judge::shared().create_topic(bootstrap, &topic, 6, &[]).unwrap();
    let flushed = block_on(async {
        let small = |config: &mut ProducerConfig| {
            config.batch_bytes = 4 << 10;
            config.buffer_bytes = 128 << 10;
        };
        let mut lane = Lane::open(bootstrap, small).await;
        let handle = lane.producer.topic(&topic).await.unwrap();
        let leads = |client: &Client, node: u32| {
            (0..6)
                .filter_map(|p| client.cached_leader(&topic, p))
                .any(|l| u32::try_from(l.node.0) == Ok(node))
        };
        let victim = (1..=3).find(|node| leads(&lane.client, *node)).unwrap();
        for number in 0..COUNT {
            if number == COUNT / 2 {
                cluster.kill(victim).unwrap();
            }
            lane.write(&handle, None, number).await;
        }
        let flushed = lane.producer.flush().await.unwrap();
        lane.commit().await;
        flushed
    });
    assert_exact(bootstrap, &topic, Reading::ReadCommitted, COUNT, &flushed);
}
