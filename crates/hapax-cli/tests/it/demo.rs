//! `hapax demo`: what it says of its own run, and what librdkafka says of it.

use crate::{
    broker::Program,
    command_line::{Ended, hapax},
};
use xtask::judge::{Audit, Expected, Isolation, Judge};

fn exact(ended: &Ended) -> serde_json::Value {
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.out, ended.err);
    let found = ended.summary();
    for count in ["lost", "duplicated", "reordered", "foreign"] {
        assert_eq!(found[count], 0, "{count}: {found}");
    }
    assert!(found["records"].as_u64().unwrap() > 1_000, "{found}");
    assert!(found["resumed"].as_u64().unwrap() >= 3, "a decided epoch outlives its process: {found}");
    assert!(found["repaired"].as_u64().unwrap() >= 1, "one was timed out: {found}");
    found
}

#[test]
fn it_kills_and_finds_nothing_lost_and_nothing_twice() {
    let ended = hapax(&["demo", "--seed", "7", "--kills", "2", "--json"]);
    let found = exact(&ended);
    assert_eq!(found["kills"], 9 + 2 + 1);
    assert!(ended.out.contains("large orders read (read_committed)"), "{}", ended.out);
    assert!(ended.err.contains("kill 12 of 12"), "{}", ended.err);
}

#[test]
fn librdkafka_finds_the_same_in_the_topics_of_a_demo_on_a_cluster() {
    let broker = Program::start(&["--with-parent"]);
    let found = exact(&hapax(&["demo", "--kills", "0", "--json", "--kafka", &broker.bootstrap]));
    let topic = |what: &str| found[what].as_str().unwrap().to_owned();
    let judge = Judge::shared();
    let written = judge.read_all(&broker.bootstrap, &topic("input"), Isolation::ReadCommitted).unwrap();
    let orders = written.iter().flat_map(|partition| &partition.records);
    let orders: Vec<serde_json::Value> =
        orders.map(|read| serde_json::from_str(&read.text()).unwrap()).collect();
    assert_eq!(found["records"], orders.len());
    let large = orders.iter().filter(|order| order["amount"].as_f64().unwrap() > 100.0);
    let ids: Vec<u64> = large.map(|order| order["id"].as_u64().unwrap()).collect();
    let audit = Audit {
        topics: vec![topic("output")],
        expected: Expected::Ids(ids),
        field: "id".to_owned(),
        // Ids of all partitions' keys are mixed: their order is the demo's own audit's.
        source_partitions: 4,
        value: None,
    };
    let report = judge.audit(&broker.bootstrap, &audit).unwrap();
    assert_eq!([report.lost, report.duplicated, report.unexpected, report.unreadable], [0; 4], "{report:?}");
    assert_eq!(found["read"], report.records);
}

#[test]
fn a_folder_that_cannot_hold_a_demo_is_refused_before_anything_starts() {
    for (folder, why) in [("/nowhere/at/all", "no such folder"), ("/tmp/a%20b", "has one of %")] {
        let mut command = std::process::Command::new(crate::harness::binary());
        let ended = command.args(["demo", "--kills", "0"]).env("TMPDIR", folder).output().unwrap();
        Ended::of(&ended).says(2, why);
        assert!(!std::path::Path::new(folder).exists());
    }
    hapax(&["demo", "--kills", "4294967295"]).says(2, "4294967295");
}

#[test]
fn the_largest_seed_is_one() {
    exact(&hapax(&["demo", "--seed", "18446744073709551615", "--kills", "0", "--json"]));
}

#[test]
fn a_cluster_that_is_not_there_is_said() {
    hapax(&["demo", "--kafka", "127.0.0.1:1"]).says(3, "127.0.0.1:1");
    hapax(&["demo", "--kafka", "nonsense"]).says(2, "nonsense");
}
