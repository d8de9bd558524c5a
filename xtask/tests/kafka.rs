//! Real brokers and the judge do what the library says of them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "these tests own processes and look at sockets by nature"
)]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use xtask::judge::{Audit, Expected, Isolation, Judge, Numbers, Outcome, Record};
use xtask::kafka::{Cluster, Version, shared, transactions};
use xtask::process::Supervised;
use xtask::tools::Tools;

const SETTLE: Duration = Duration::from_secs(1);
/// What must come takes milliseconds; this covers a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(60);
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn records_survive_the_death_of_their_broker() {
    let cluster = Cluster::builder(Version::V4_4).start().unwrap();
    let bootstrap = cluster.bootstrap();
    let judge = Judge::shared();
    judge.create_topic(&bootstrap, "numbers", 4, &[]).unwrap();
    assert_eq!(judge.produce_numbers(&bootstrap, "numbers", &Numbers::new(4, 100)).unwrap(), 100);
    let before = judge.read_all(&bootstrap, "numbers", Isolation::ReadCommitted).unwrap();
    assert_eq!(before.iter().map(|partition| partition.records.len()).collect::<Vec<_>>(), [25; 4]);

    let port = cluster.port(1);
    cluster.kill(1).unwrap();
    assert_eq!(cluster.process_id(1), None);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "a killed broker still listens");
    cluster.restart(1).unwrap();
    assert_eq!(cluster.bootstrap(), bootstrap);
    assert_eq!(judge.read_all(&bootstrap, "numbers", Isolation::ReadCommitted).unwrap(), before);
    let report = judge.audit(&bootstrap, &Audit::copy("numbers", 4, 100)).unwrap();
    assert!(report.is_exact(), "{report:?}");

    let tools = cluster.tools().unwrap();
    let mut printed =
        tools.console_consume(&bootstrap, "numbers", Isolation::ReadCommitted, 100, SETTLE).unwrap();
    let mut read: Vec<String> =
        before.iter().flat_map(|partition| &partition.records).map(|record| record.text()).collect();
    let nowhere = tools.console_consume("127.0.0.1:x", "numbers", Isolation::ReadCommitted, 100, SETTLE);
    assert!(nowhere.unwrap_err().to_string().contains("ended by itself"));
    printed.sort();
    read.sort();
    assert_eq!(printed, read);
}

#[test]
fn a_paused_broker_answers_only_when_it_goes_on() {
    let cluster = Cluster::builder(Version::V4_4).transaction_version(0).start().unwrap();
    let bootstrap = cluster.bootstrap();
    let judge = Judge::start().unwrap();
    judge.create_topic(&bootstrap, "waiting", 1, &[]).unwrap();
    cluster.pause(1).unwrap();
    thread::scope(|scope| {
        let write = scope.spawn(|| judge.produce(&bootstrap, "waiting", &[Record::value("late")]));
        thread::sleep(Duration::from_secs(1));
        assert!(!write.is_finished(), "a paused broker answered");
        cluster.resume(1).unwrap();
        assert_eq!(write.join().unwrap().unwrap(), 1);
    });

    assert_eq!(finalized_transaction_version(&cluster), "0");
    for level in [2, 1] {
        cluster.set_transaction_version(level).unwrap();
        assert_eq!(finalized_transaction_version(&cluster), level.to_string());
    }
    cluster.stop(1).unwrap();
    assert!(cluster.stop(1).is_err(), "a stopped broker was stopped again");
}

fn finalized_transaction_version(cluster: &Cluster) -> String {
    let bootstrap = cluster.bootstrap();
    let output = cluster
        .run_tool("org.apache.kafka.tools.FeatureCommand", &["--bootstrap-server", &bootstrap, "describe"])
        .expect("the jars are there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("transaction.version")).unwrap_or_default();
    let level = line.split("FinalizedVersionLevel:").nth(1).unwrap_or_default();
    level.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn three_nodes_serve_without_one_of_them() {
    let cluster = Cluster::builder(Version::V4_4).nodes(3).start().unwrap();
    let bootstrap = cluster.bootstrap();
    let judge = Judge::shared();
    judge.create_topic(&bootstrap, "replicated", 3, &[]).unwrap();
    cluster.kill(2).unwrap();
    assert_eq!(judge.produce_numbers(&bootstrap, "replicated", &Numbers::new(3, 300)).unwrap(), 300);
    cluster.restart(2).unwrap();
    let report = judge.audit(&bootstrap, &Audit::copy("replicated", 3, 300)).unwrap();
    assert!(report.is_exact(), "{report:?}");
    assert_eq!(transactions(&bootstrap).unwrap(), []);
}

#[test]
fn an_open_transaction_is_seen_by_every_witness() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let judge = Judge::shared();
        let (topic, id) = ("xtask-open", "xtask-open-id");
        judge.create_topic(bootstrap, topic, 1, &[]).unwrap();
        let write = |value: &str, outcome| {
            let records = [Record::new("k", value)];
            judge.produce_transactional(bootstrap, topic, &records, id, TRANSACTION_TIMEOUT, outcome).unwrap()
        };
        write("aborted", Outcome::Abort);
        write("committed", Outcome::Commit);
        write("open", Outcome::Open);

        let bounds = judge.end_offsets(bootstrap, topic).unwrap()[0];
        assert!(bounds.stable_end < bounds.end, "{bounds:?}");
        let read = |isolation| {
            let partitions = judge.read_all(bootstrap, topic, isolation).unwrap();
            partitions[0].records.iter().map(|record| record.text()).collect::<Vec<_>>()
        };
        assert_eq!(read(Isolation::ReadCommitted), ["committed"]);
        assert_eq!(read(Isolation::ReadUncommitted), ["aborted", "committed", "open"]);

        let listed = transactions(bootstrap).unwrap();
        let mine = listed.iter().find(|transaction| transaction.id == id).unwrap();
        assert!(mine.is_open(), "{mine:?}");
        let tools = Tools::new(version).unwrap();
        assert!(tools.transactions_list(bootstrap).unwrap().contains(mine));
        let described = tools.describe_transaction(bootstrap, id).unwrap().unwrap();
        assert_eq!((described.producer_id, described.state.as_str()), (mine.producer_id, "Ongoing"));
        assert_eq!(described.partitions, ["xtask-open-0"]);
        assert_eq!(tools.describe_transaction(bootstrap, "xtask-nobody").unwrap(), None);

        judge.end_transaction(id, Outcome::Commit).unwrap();
        assert_eq!(read(Isolation::ReadCommitted), ["committed", "open"]);
        judge.delete_topic(bootstrap, topic).unwrap();
        assert!(!judge.topics(bootstrap).unwrap().contains(&topic.to_owned()));
    }
}

#[test]
fn the_judge_counts_every_kind_of_damage() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let judge = Judge::shared();
    let topic = "xtask-damaged";
    judge.create_topic(bootstrap, topic, 1, &[]).unwrap();
    let record = |value: &str| Record::value(value).to_partition(0);
    let whole = |id: u64| {
        let value = format!(r#"{{"id":{id},"amount":{},"key":"k{id}"}}"#, id * 37 % 1000);
        record(&value)
    };
    let foreign = record(r#"{"id":77}"#);
    // 1 and 2 come from source partition 1 and 0: their order is free. 0 comes after 2: reordered. 3 is lost.
    let changed = record(r#"{"id":4,"amount":0,"key":"k4"}"#);
    let records = [whole(1), whole(2), whole(0), whole(1), changed, foreign, record("no json")];
    judge.produce(bootstrap, topic, &records).unwrap();
    let report = judge.audit(bootstrap, &Audit::copy(topic, 2, 5)).unwrap();
    assert!(!report.is_exact());
    assert_eq!(report.records, 7);
    assert_eq!((report.lost, report.duplicated, report.reordered), (1, 1, 1), "{report:?}");
    assert_eq!((report.unexpected, report.mismatched, report.unreadable), (1, 1, 1), "{report:?}");
    assert_eq!(report.unstable, 0);
}

#[test]
fn aborted_numbers_are_in_the_log_and_not_in_the_audit() {
    let bootstrap = &shared(Version::V3_9).bootstrap;
    let judge = Judge::shared();
    let topic = "xtask-aborted";
    judge.create_topic(bootstrap, topic, 2, &[("cleanup.policy", "delete")]).unwrap();
    let numbers = Numbers { transactions_of: Some(50), ..Numbers::new(2, 100) };
    assert_eq!(judge.produce_numbers(bootstrap, topic, &numbers).unwrap(), 140);
    let all = judge.read_all(bootstrap, topic, Isolation::ReadUncommitted).unwrap();
    assert_eq!(all.iter().map(|partition| partition.records.len()).sum::<usize>(), 140);
    let even = Expected::Ids((0..100).step_by(2).collect());
    let report = judge.audit(bootstrap, &Audit { expected: even, ..Audit::copy(topic, 2, 100) }).unwrap();
    assert_eq!((report.records, report.lost, report.unexpected), (100, 0, 50), "{report:?}");
    assert!(judge.audit(bootstrap, &Audit::copy(topic, 2, 100)).unwrap().is_exact());
    assert!(judge.await_number(bootstrap, topic, &[], ("id", 99), PATIENCE).unwrap());
    let limit = Duration::from_secs(1);
    assert!(
        !judge.await_number(bootstrap, topic, &[], ("id", 100), limit).unwrap(),
        "an aborted number was seen"
    );
    let ends = judge.end_offsets(bootstrap, topic).unwrap();
    assert!(
        !judge.await_number(bootstrap, topic, &ends, ("id", 0), limit).unwrap(),
        "nothing is behind the end"
    );
}

#[test]
fn a_judge_that_waits_for_one_caller_writes_for_another() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let judge = Judge::shared();
    let topic = "xtask-at-once";
    judge.create_topic(bootstrap, topic, 1, &[]).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| judge.await_number(bootstrap, topic, &[], ("id", 20), PATIENCE));
        let mut next = 0;
        while !waits.is_finished() {
            judge.produce_numbers(bootstrap, topic, &Numbers { from: next, ..Numbers::new(1, 1) }).unwrap();
            next += 1;
        }
        assert!(waits.join().unwrap().unwrap());
    });
}

#[test]
fn what_a_version_lacks_is_refused_before_anything_starts() {
    let refused = Cluster::builder(Version::V3_9).transaction_version(2).start().unwrap_err();
    assert!(refused.to_string().contains("no feature transaction.version"), "{refused}");
    assert!(Cluster::builder(Version::V4_4).nodes(2).start().is_err());
}

#[test]
fn brokers_end_with_the_process_that_started_them_however_it_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["kafka", "start", "--version", "3.9.1"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut starter = Supervised::spawn(&mut command).unwrap();
    let mut line = String::new();
    BufReader::new(starter.take_stdout().unwrap()).read_line(&mut line).unwrap();
    let node = &serde_json::from_str::<serde_json::Value>(&line).unwrap()["nodes"][0];
    let port = node["port"].as_u64().unwrap() as u16;
    let directory = Path::new(node["log"].as_str().unwrap()).parent().and_then(Path::parent).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(directory.is_dir());

    starter.kill().unwrap();
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() || directory.exists() {
        assert!(start.elapsed() < Duration::from_secs(10), "the broker outlived the process that started it");
        thread::sleep(Duration::from_millis(20));
    }
}
