//! What is not there (any more) is an error; what passes is waited for.

use super::*;
use hapax_commit::ProducerId;
use hapax_kafka::fetch::{ControlSeen, first_control_batch};
use xtask::{judge::Numbers, kafka::Cluster};

/// For each step of a look.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(30);

#[test]
fn an_offset_that_the_log_does_not_have_is_an_error_that_names_its_range() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let topic = made(bootstrap, "range", 1);
        Judge::shared().produce(bootstrap, &topic, &values(20)).unwrap();
        Judge::shared().delete_records(bootstrap, &topic, 0, 8).unwrap();
        block_on(async {
            let client = connect(bootstrap).await;
            let mut reading = Reader::start(&client, FetcherConfig::default());
            let tp = tp(&topic, 0);
            for from in [3, 21] {
                reading.fetcher.assign(tp.clone(), None, from, None);
                // Sticky: every call says so.
                for _ in 0..2 {
                    let error =
                        client.host().timeout(TIMEOUT, reading.fetcher.next()).await.unwrap().unwrap_err();
                    assert!(error.is_gone() && !error.is_retriable());
                    assert!(error.to_string().contains("offsets 8 to 20"), "{error}");
                    let FetchError::OutOfRange { offset, start, end, .. } = error else { panic!("{error}") };
                    assert_eq!((offset, start, end), (from, 8, 20));
                }
            }
            reading.assign(&tp, 8);
            reading.until(&client, &[(tp.clone(), 20)]).await;
            assert_eq!(reading.of(&tp).len(), 12);
            // The end itself is in range.
            reading.assign(&tp, 20);
            assert!(client.host().timeout(Duration::from_secs(1), reading.fetcher.next()).await.is_none());
        });
    }
}

#[test]
fn a_topic_that_was_deleted_and_made_again_is_not_read_as_the_old_one() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let topic = made(bootstrap, "again", 1);
        let judge = Judge::shared();
        judge.produce(bootstrap, &topic, &values(5)).unwrap();
        block_on(async {
            let client = connect(bootstrap).await;
            let old = client.topics(&[&topic]).await.unwrap()[0].id;
            let mut reading = Reader::start(&client, FetcherConfig::default());
            let tp = tp(&topic, 0);
            reading.assign(&tp, 0);
            reading.until(&client, &[(tp.clone(), 5)]).await;
            judge.delete_topic(bootstrap, &topic).unwrap();
            judge.create_topic(bootstrap, &topic, 1, &[]).unwrap();
            judge.produce(bootstrap, &topic, &values(9)).unwrap();

            // The id was pinned at the first fetch, although none was given.
            let error = client.host().timeout(TIMEOUT, reading.fetcher.next()).await.unwrap().unwrap_err();
            assert!(error.is_gone(), "{error}");
            assert!(error.to_string().contains("made again"), "{error}");
            // A restarted job brings the id with its position.
            let mut fresh = Fetcher::start(connect(bootstrap).await, FetcherConfig::default());
            fresh.assign(tp.clone(), Some(old), 5, Some(0));
            let error = client.host().timeout(TIMEOUT, fresh.next()).await.unwrap().unwrap_err();
            assert!(error.is_gone() && error.to_string().contains(&old.to_string()), "{error}");
            let seen = first_control_batch(&client, &topic, old, 0, ProducerId(1), 0, SILENCE).await.unwrap();
            assert!(
                matches!(&seen, ControlSeen::Gone { reason } if reason.contains("made again")),
                "{seen:?}"
            );
            // Assigned on purpose, the new topic is read.
            let new = client.topic_id(&topic).unwrap();
            assert_ne!(new, old);
            fresh.assign(tp.clone(), Some(new), 5, None);
            let fetched = client.host().timeout(TIMEOUT, fresh.next()).await.unwrap().unwrap();
            assert_eq!(rows(&fetched).first().unwrap().offset, 5);
        });
    }
}

#[test]
fn a_topic_that_is_not_there_is_an_error_and_one_that_comes_late_is_not() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let (never, late) = (unique("never"), unique("late"));
    block_on(async {
        let client = connect(bootstrap).await;
        let mut reading = Reader::start(&client, FetcherConfig::default());
        reading.assign(&tp(&late, 0), 0);
        assert!(client.host().timeout(Duration::from_millis(500), reading.fetcher.next()).await.is_none());
        Judge::shared().create_topic(bootstrap, &late, 1, &[]).unwrap();
        Judge::shared().produce(bootstrap, &late, &values(3)).unwrap();
        reading.until(&client, &[(tp(&late, 0), 3)]).await;
        for missing in [tp(&never, 0), tp(&late, 5)] {
            let mut fetcher = Fetcher::start(client.clone(), FetcherConfig::default());
            fetcher.assign(missing, None, 0, None);
            let error = client.host().timeout(TIMEOUT, fetcher.next()).await.unwrap().unwrap_err();
            assert!(error.is_gone(), "{error}");
        }
    });
}

/// Reads partitions on while `hurt` happens to the leader of the first one.
fn survives(cluster: &Cluster, min_isr: &str, hurt: impl Fn(&Cluster, u32)) {
    const PARTITIONS: u32 = 3;
    const HALF: u64 = 12_000;
    let bootstrap = cluster.bootstrap();
    let topic = unique("hurt");
    let judge = Judge::shared();
    judge.create_topic(&bootstrap, &topic, PARTITIONS, &[("min.insync.replicas", min_isr)]).unwrap();
    let small_batches = vec![("batch.size".to_owned(), "10000".to_owned())];
    let numbers = Numbers { config: small_batches, ..Numbers::new(PARTITIONS, HALF) };
    judge.produce_numbers(&bootstrap, &topic, &numbers).unwrap();
    block_on(async {
        let client = connect(&bootstrap).await;
        let config = FetcherConfig { partition_max_bytes: 20_000, ..FetcherConfig::default() };
        let mut reading = Reader::start(&client, config);
        let all: Vec<_> = (0..3).map(|partition| tp(&topic, partition)).collect();
        all.iter().for_each(|tp| reading.assign(tp, 0));
        reading.until(&client, &[(all[0].clone(), 1)]).await;
        assert!(reading.positions[&all[0]] < 4000, "there is more to read when it happens");
        let leader = client.cached_leader(&topic, 0).unwrap();
        hurt(cluster, u32::try_from(leader.node.0).unwrap());
        #[allow(
            clippy::disallowed_methods,
            reason = "the judge blocks, and is to write while this thread reads"
        )]
        let writing = tokio::task::spawn_blocking({
            let numbers = Numbers { from: HALF, ..numbers };
            let (bootstrap, topic) = (bootstrap.clone(), topic.clone());
            move || judge.produce_numbers(&bootstrap, &topic, &numbers).unwrap()
        });
        let ends: Vec<_> = all.iter().map(|tp| (tp.clone(), 8000)).collect();
        reading.until(&client, &ends).await;
        writing.await.unwrap();
        for tp in &all {
            let offsets: Vec<i64> = reading.of(tp).iter().map(|row| row.offset).collect();
            assert_eq!(offsets, (0..8000).collect::<Vec<_>>(), "{tp}");
        }
        let epoch = client.cached_leader(&topic, 0).unwrap().leader_epoch;
        assert!(epoch > leader.leader_epoch, "no new leader was seen: {epoch} after {leader:?}");
    });
}

#[test]
fn a_broker_that_is_killed_and_comes_back_is_read_on() {
    let cluster = Cluster::builder(Version::V4_4).start().unwrap();
    survives(&cluster, "1", |cluster, leader| {
        cluster.kill(leader).unwrap();
        cluster.restart(leader).unwrap();
    });
}

#[test]
fn a_partition_is_read_on_from_its_next_leader() {
    let cluster = Cluster::builder(Version::V4_4).nodes(3).start().unwrap();
    survives(&cluster, "2", |cluster, leader| cluster.kill(leader).unwrap());
}
