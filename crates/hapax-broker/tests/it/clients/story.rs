//! The story, told by each client.

use super::hosted::Hosted;
use hapax_broker::Settings;
use serde_json::{Value, json};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use xtask::{
    judge,
    kafka::{Installation, Version, shared},
    node,
    process::Supervised,
};

/// Much longer than a client takes that is answered as it expects.
const LIMIT: Duration = Duration::from_secs(400);

fn script(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/it/clients/story", name].iter().collect()
}

/// Runs a client to its end; what it printed.
pub(super) fn told(mut command: Command, bootstrap: &str) -> Value {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("story-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    command.args([bootstrap, &name, &format!("{name}-group")]);
    let [out, err] = ["out", "err"].map(|kind| std::env::temp_dir().join(format!("{name}.{kind}")));
    let file = |path: &PathBuf| Stdio::from(std::fs::File::create(path).unwrap());
    command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err));
    let ended = Supervised::spawn_group(&mut command).unwrap().wait_for(LIMIT).unwrap();
    let [printed, complaints] = [&out, &err].map(|path| std::fs::read_to_string(path).unwrap());
    for path in [out, err] {
        std::fs::remove_file(path).unwrap();
    }
    let told = printed.lines().last().and_then(|line| serde_json::from_str(line).ok());
    match (ended, told) {
        (Some(status), Some(told)) if status.success() => told,
        (ended, _) => panic!("the client ended with {ended:?}\n{printed}\n{complaints}"),
    }
}

/// What every client must be told; only the words for being fenced differ.
fn expected(fenced: &str) -> Value {
    json!({
        "offset": 5,
        "fenced": fenced,
        "held": ["a0", "a1", "a2", "c0"],
        "committed": ["a0", "a1", "a2", "c0", "e0"],
        "everything": ["a0", "a1", "a2", "b0", "b1", "c0", "d0", "o0", "e0"],
    })
}

pub(super) fn python(name: &str) -> Command {
    let mut command = Command::new(judge::python().expect("the clients' Python"));
    // Isolated: the folder of the program is no place to import from.
    command.arg("-I").arg(script(name));
    command
}

fn java(version: Version) -> Command {
    let installation = Installation::provide(version).expect("the jars of Kafka");
    installation.source(&script("Story.java"), "ERROR")
}

fn kafkajs() -> Command {
    let mut command = node::command().expect("kafkajs and what it runs on");
    command.arg(script("kafkajs.js"));
    command
}

#[test]
fn librdkafka_is_told_the_truth() {
    let broker = Hosted::start(Settings::default());
    assert_eq!(told(python("librdkafka.py"), &broker.bootstrap()), expected("_FENCED"));
}

#[test]
fn librdkafka_is_told_the_truth_by_a_cluster_of_transactions_v1_with_several_nodes() {
    let broker = Hosted::start(Settings { nodes: 3, transaction_version: 0, ..Settings::default() });
    assert_eq!(told(python("librdkafka.py"), &broker.bootstrap()), expected("_FENCED"));
}

#[test]
fn kafkas_java_client_4_4_is_told_the_truth() {
    let broker = Hosted::start(Settings { nodes: 3, ..Settings::default() });
    assert_eq!(told(java(Version::V4_4), &broker.bootstrap()), expected("InvalidProducerEpochException"));
}

#[test]
fn kafkas_java_client_3_9_is_told_the_truth_by_a_cluster_of_transactions_v1() {
    let broker = Hosted::start(Settings { transaction_version: 0, ..Settings::default() });
    assert_eq!(told(java(Version::V3_9), &broker.bootstrap()), expected("ProducerFencedException"));
}

#[test]
fn aiokafka_is_told_the_truth() {
    let broker = Hosted::start(Settings::default());
    assert_eq!(told(python("aiokafka.py"), &broker.bootstrap()), expected("ProducerFenced"));
}

#[test]
fn apache_kafka_tells_every_client_the_same() {
    let kafka = &shared(Version::V4_4).bootstrap;
    assert_eq!(told(python("librdkafka.py"), kafka), expected("_FENCED"));
    assert_eq!(told(python("aiokafka.py"), kafka), expected("ProducerFenced"));
    assert_eq!(told(kafkajs(), kafka), expected("INVALID_PRODUCER_EPOCH"));
    assert_eq!(told(java(Version::V4_4), kafka), expected("InvalidProducerEpochException"));
}

#[test]
fn kafkajs_is_told_the_truth() {
    let broker = Hosted::start(Settings::default());
    assert_eq!(told(kafkajs(), &broker.bootstrap()), expected("INVALID_PRODUCER_EPOCH"));
}
