//! What is delivered: the records that librdkafka reads, in order, from the wanted offset on.

use super::*;
use futures::FutureExt;
use hapax_kafka::Isolation;
use std::collections::BTreeSet;
use xtask::{
    judge::{Numbers, Outcome},
    kafka::Cluster,
};

/// Librdkafka waits this long for more, so that records of one call share a batch.
const ONE_BATCH: &[(&str, &str)] = &[("linger.ms", "300")];

fn uncommitted() -> FetcherConfig {
    FetcherConfig { isolation: Isolation::ReadUncommitted, ..FetcherConfig::default() }
}

/// Reads partition 0 of a topic from `from` to `end`.
async fn read(bootstrap: &str, topic: &str, config: FetcherConfig, from: i64, end: i64) -> Vec<Read> {
    let client = connect(bootstrap).await;
    let mut reading = Reader::start(&client, config);
    let tp = tp(topic, 0);
    reading.assign(&tp, from);
    reading.until(&client, &[(tp.clone(), end)]).await;
    reading.of(&tp).to_vec()
}

/// Committed, aborted and plain records, one transaction over several batches, and an open one at the end.
fn mixed_topic(bootstrap: &str) -> (String, String) {
    let topic = made(bootstrap, "mixed", 1);
    let judge = Judge::shared();
    let id = |name: &str| format!("{topic}-{name}");
    let write = |id: &str, count, outcome| {
        judge.produce_transactional(bootstrap, &topic, &values(count), id, TIMEOUT, outcome).unwrap();
    };
    write(&id("a"), 10, Outcome::Commit);
    write(&id("b"), 20, Outcome::Abort);
    judge.produce(bootstrap, &topic, &values(7)).unwrap();
    // Two open side by side, one aborted later; then the same producer commits.
    write(&id("a"), 3, Outcome::Open);
    write(&id("b"), 4, Outcome::Open);
    write(&id("a"), 5, Outcome::Open);
    judge.end_transaction(&id("a"), Outcome::Abort).unwrap();
    judge.end_transaction(&id("b"), Outcome::Commit).unwrap();
    write(&id("a"), 6, Outcome::Commit);
    write(&id("c"), 8, Outcome::Open);
    judge.produce(bootstrap, &topic, &values(2)).unwrap();
    let open = id("c");
    (topic, open)
}

#[test]
fn committed_reading_sees_what_librdkafka_sees_and_stops_before_an_open_transaction() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let (topic, open) = mixed_topic(bootstrap);
        let judge = Judge::shared();
        let before = judge.read_all(bootstrap, &topic, Reading::ReadCommitted).unwrap().remove(0);
        assert_eq!(before.records.len(), 10 + 7 + 4 + 6);
        assert!(before.bounds.stable_end < before.bounds.end);
        block_on(async {
            let client = connect(bootstrap).await;
            let mut reading = Reader::start(&client, FetcherConfig::default());
            let tp = tp(&topic, 0);
            reading.assign(&tp, 0);
            reading.until(&client, &[(tp.clone(), before.bounds.stable_end)]).await;
            assert_eq!(reading.of(&tp), before.records);
            assert_eq!(reading.positions[&tp], before.bounds.stable_end);
            let last = reading.last.take().unwrap();
            assert_eq!(last.last_stable_offset, before.bounds.stable_end);
            assert_eq!(last.high_watermark, before.bounds.end);
            // The broker holds the next fetch back; several of them bring nothing.
            assert!(client.host().timeout(Duration::from_secs(2), reading.fetcher.next()).await.is_none());

            judge.end_transaction(&open, Outcome::Commit).unwrap();
            let after = judge.read_all(bootstrap, &topic, Reading::ReadCommitted).unwrap().remove(0);
            assert_eq!(after.records.len(), before.records.len() + 8 + 2);
            // Behind the last record stands the marker: the position passes it.
            reading.until(&client, &[(tp.clone(), after.bounds.end)]).await;
            assert_eq!(reading.of(&tp), after.records);
        });
    }
}

#[test]
fn uncommitted_reading_sees_everything_but_markers() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let (topic, _) = mixed_topic(bootstrap);
        let expected =
            Judge::shared().read_all(bootstrap, &topic, Reading::ReadUncommitted).unwrap().remove(0);
        assert_eq!(expected.records.len(), 10 + 20 + 7 + 3 + 4 + 5 + 6 + 8 + 2);
        let seen = block_on(read(bootstrap, &topic, uncommitted(), 0, expected.bounds.end));
        assert_eq!(seen, expected.records);
    }
}

#[test]
fn reading_begins_exactly_at_the_wanted_offset_also_inside_a_batch() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    for codec in ["none", "lz4"] {
        let topic = made(bootstrap, "middle", 1);
        let config = [ONE_BATCH, &[("compression.type", codec)]].concat();
        Judge::shared().produce_with(bootstrap, &topic, &values(40), &config).unwrap();
        block_on(async {
            let client = connect(bootstrap).await;
            let mut fetcher = Fetcher::start(client.clone(), FetcherConfig::default());
            let tp = tp(&topic, 0);
            for from in [0, 1, 17, 39] {
                fetcher.assign(tp.clone(), None, from, Some(7));
                let fetched = client.host().timeout(TIMEOUT, fetcher.next()).await.unwrap().unwrap();
                let offsets: Vec<i64> = rows(&fetched).iter().map(|row| row.offset).collect();
                assert_eq!(offsets, (from..40).collect::<Vec<_>>(), "one batch, cut to {from}");
                assert_eq!((fetched.next_offset, fetched.leader_epoch), (40, Some(0)));
            }
        });
    }
}

#[test]
fn every_codec_of_librdkafka_is_read() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
            let topic = made(bootstrap, codec, 1);
            let config = [("compression.type".to_owned(), codec.to_owned())].to_vec();
            let numbers = Numbers { config, ..Numbers::new(1, 3000) };
            Judge::shared().produce_numbers(bootstrap, &topic, &numbers).unwrap();
            let seen = block_on(read(bootstrap, &topic, FetcherConfig::default(), 0, 3000));
            let expected =
                Judge::shared().read_all(bootstrap, &topic, Reading::ReadCommitted).unwrap().remove(0);
            assert_eq!(seen, expected.records, "{codec}");
        }
    }
}

#[test]
fn keys_values_headers_and_timestamps_come_as_they_were_written() {
    let header =
        |name: &str, value: Option<&str>| (name.to_owned(), value.map(|value| value.as_bytes().to_vec()));
    let record = |key: Option<&str>, value: Option<&str>, timestamp, headers: Vec<_>| Record {
        key: key.map(Into::into),
        value: value.map(Into::into),
        headers,
        partition: Some(0),
        timestamp_ms: Some(timestamp),
    };
    let written = [
        record(Some("k"), Some("v"), 1_700_000_000_000, vec![]),
        record(Some("tombstone"), None, 1_700_000_000_001, vec![header("a", Some("1")), header("a", None)]),
        record(None, None, 1_600_000_000_000, vec![header("", Some(""))]),
        record(Some(""), Some(""), 1_700_000_000_005, vec![]),
    ];
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let topic = made(bootstrap, "fields", 1);
        Judge::shared().produce_with(bootstrap, &topic, &written, ONE_BATCH).unwrap();
        let seen = block_on(read(bootstrap, &topic, FetcherConfig::default(), 0, 4));
        let seen: Vec<_> = seen
            .into_iter()
            .map(|row| Record {
                key: row.key,
                value: row.value,
                headers: row.headers,
                partition: Some(0),
                timestamp_ms: Some(row.timestamp_ms),
            })
            .collect();
        assert_eq!(seen, written);
    }
}

#[test]
fn an_empty_topic_is_waited_for_and_dropping_the_wait_loses_nothing() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let topic = made(bootstrap, "empty", 1);
    block_on(async {
        let client = connect(bootstrap).await;
        let mut reading = Reader::start(&client, FetcherConfig::default());
        let tp = tp(&topic, 0);
        reading.assign(&tp, 0);
        assert!(client.host().timeout(Duration::from_millis(1500), reading.fetcher.next()).await.is_none());
        Judge::shared().produce_numbers(bootstrap, &topic, &Numbers::new(1, 5000)).unwrap();
        let mut dropped = 0;
        while reading.positions[&tp] < 5000 {
            match reading.fetcher.next().now_or_never() {
                Some(next) => reading.take(next.unwrap()),
                None => {
                    dropped += 1;
                    tokio::task::yield_now().await;
                }
            }
        }
        assert!(dropped > 0);
        let offsets: Vec<i64> = reading.of(&tp).iter().map(|row| row.offset).collect();
        assert_eq!(offsets, (0..5000).collect::<Vec<_>>());
    });
}

#[test]
fn a_paused_partition_is_silent_and_goes_on_where_it_was() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let topic = made(bootstrap, "paused", 2);
    Judge::shared().produce_numbers(bootstrap, &topic, &Numbers::new(2, 40_000)).unwrap();
    block_on(async {
        let client = connect(bootstrap).await;
        // Small answers: at the pause some of both partitions is queued and some is not fetched yet.
        let config = FetcherConfig { partition_max_bytes: 50_000, ..FetcherConfig::default() };
        let mut reading = Reader::start(&client, config);
        let (left, right) = (tp(&topic, 0), tp(&topic, 1));
        reading.assign(&left, 0);
        reading.assign(&right, 0);
        reading.until(&client, &[(left.clone(), 1)]).await;
        reading.fetcher.pause(&left);
        let paused_at = reading.positions[&left];
        assert!(paused_at < 20_000);
        reading.until(&client, &[(right.clone(), 20_000)]).await;
        assert_eq!(reading.positions[&left], paused_at);
        reading.fetcher.resume(&left);
        reading.until(&client, &[(left.clone(), 20_000)]).await;
        assert_eq!(reading.of(&left).len(), 20_000);
        assert_eq!(reading.of(&right).len(), 20_000);

        reading.fetcher.assign(left.clone(), None, 0, None);
        reading.fetcher.unassign(&left);
        assert!(client.host().timeout(Duration::from_secs(1), reading.fetcher.next()).await.is_none());
    });
}

#[test]
fn batches_larger_than_every_limit_are_read_and_no_partition_starves() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let topic = made(bootstrap, "large", 6);
        let records: Vec<_> =
            (0..24).map(|n| Record::value(vec![n as u8; 300_000]).to_partition(n % 6)).collect();
        Judge::shared().produce(bootstrap, &topic, &records).unwrap();
        block_on(async {
            let client = connect(bootstrap).await;
            let config =
                FetcherConfig { max_bytes: 1000, partition_max_bytes: 100, ..FetcherConfig::default() };
            let mut reading = Reader::start(&client, config);
            let all: Vec<_> = (0..6).map(|partition| (tp(&topic, partition), 4)).collect();
            for (tp, _) in &all {
                reading.assign(tp, 0);
            }
            // Each answer has room for one batch: the partitions take turns.
            let mut first = BTreeSet::new();
            for _ in 0..6 {
                let next = client.host().timeout(TIMEOUT, reading.fetcher.next()).await.unwrap().unwrap();
                first.insert(next.tp.partition);
                reading.take(next);
            }
            assert_eq!(first.len(), 6);
            reading.until(&client, &all).await;
            let values = reading.rows.values().flatten().map(|row| row.value.as_ref().unwrap());
            let mut seen: Vec<_> = values.map(|value| (value[0], value.len())).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..24).map(|n| (n, 300_000)).collect::<Vec<_>>());
        });
    }
}

#[test]
fn a_reader_that_does_not_read_is_not_fetched_for() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let topic = made(bootstrap, "bounded", 1);
    let records: Vec<_> = (0..60).map(|_| Record::value(vec![1; 100_000]).to_partition(0)).collect();
    Judge::shared().produce(bootstrap, &topic, &records).unwrap();
    block_on(async {
        let client = connect(bootstrap).await;
        let config = FetcherConfig { partition_max_bytes: 1_000_000, ..FetcherConfig::default() };
        let mut reading = Reader::start(&client, config);
        let tp = tp(&topic, 0);
        reading.assign(&tp, 0);
        let fetcher = &reading.fetcher;
        eventually(&client, "one answer and one ahead", || async {
            (fetcher.buffered_bytes() > 1_000_000).then_some(())
        })
        .await;
        client.host().sleep(Duration::from_secs(1)).await;
        assert!(reading.fetcher.buffered_bytes() <= 2_000_000, "{}", reading.fetcher.buffered_bytes());
        reading.until(&client, &[(tp, 60)]).await;
        // Whoever asks for more is done with what came before.
        assert!(client.host().timeout(Duration::from_millis(100), reading.fetcher.next()).await.is_none());
        assert_eq!(reading.fetcher.buffered_bytes(), 0);
    });
}

#[test]
fn a_compacted_log_is_read_across_its_gaps() {
    const ROUNDS: usize = 6;
    let cluster = Cluster::builder(Version::V4_4).property("log.cleaner.backoff.ms", "100").start().unwrap();
    let bootstrap = cluster.bootstrap();
    let topic = unique("compacted");
    let judge = Judge::shared();
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "1"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "0"),
    ];
    judge.create_topic(&bootstrap, &topic, 1, &config).unwrap();
    let keyed = |round: usize| -> Vec<Record> {
        let record = |key: usize| Record::new(format!("k{key}"), format!("{round}")).to_partition(0);
        // Every round has a key of its own beside those that the next round replaces.
        (0..5).map(record).chain([record(100 + round)]).collect()
    };
    for round in 0..ROUNDS {
        judge.produce_with(&bootstrap, &topic, &keyed(round), ONE_BATCH).unwrap();
        let outcome = if round % 2 == 0 { Outcome::Commit } else { Outcome::Abort };
        judge
            .produce_transactional(&bootstrap, &topic, &keyed(round), "compacted", TIMEOUT, outcome)
            .unwrap();
    }
    block_on(async {
        let client = connect(&bootstrap).await;
        let left = eventually(&client, "the log cleaned up", || async {
            let read = judge.read_all(&bootstrap, &topic, Reading::ReadCommitted).unwrap().remove(0);
            (read.records.len() < 3 * ROUNDS).then_some(read)
        })
        .await;
        let end = left.bounds.end;
        for from in [0, left.records[0].offset + 1, end - 1] {
            let seen = read(&bootstrap, &topic, FetcherConfig::default(), from, end).await;
            // The cleaner may have gone on meanwhile: what is there now is what is there in the end.
            let left = judge.read_all(&bootstrap, &topic, Reading::ReadCommitted).unwrap().remove(0);
            let wanted: Vec<_> = left.records.into_iter().filter(|row| row.offset >= from).collect();
            assert!(wanted.iter().all(|row| seen.contains(row)), "from {from}");
            assert!(seen.iter().all(|row| row.offset >= from), "from {from}");
        }
    });
}
