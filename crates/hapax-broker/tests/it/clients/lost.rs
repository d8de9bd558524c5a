//! Answers that get lost, in the broker and on the way to Apache Kafka: one file of rules for both.

use super::{
    hosted::{Hosted, runtime},
    story::{python, told},
};
use hapax_broker::{Faults, Proxy, ProxyOptions, Rule, Settings};
use serde_json::{Value, json};
use xtask::kafka::{Version, shared};

const RULES: &str = include_str!("lost.json");

fn play(bootstrap: &str, faults: &Faults) -> Value {
    let rules: Vec<Rule> = serde_json::from_str(RULES).unwrap();
    for rule in rules {
        faults.add(rule).unwrap();
    }
    let told = told(python("lost.py"), bootstrap);
    let unfired = faults.unfired();
    assert!(unfired.is_empty(), "{unfired:?}");
    told
}

fn expected() -> Value {
    json!({
        "offset": 3,
        // Markers are at 2, 4, 6 and 8.
        "committed": [[0, "a0"], [1, "a1"], [3, "b0"], [7, "d0"]],
        "everything": [[0, "a0"], [1, "a1"], [3, "b0"], [5, "c0"], [7, "d0"]],
    })
}

#[test]
fn answers_that_get_lost_in_the_broker_lose_and_double_nothing() {
    let hosted = Hosted::start(Settings { nodes: 2, ..Settings::default() });
    assert_eq!(play(&hosted.bootstrap(), hosted.broker.faults()), expected());
}

#[test]
fn answers_that_get_lost_on_the_way_to_kafka_lose_and_double_nothing() {
    let runtime = runtime();
    let kafka = &shared(Version::V4_4).bootstrap;
    let proxy = runtime.block_on(Proxy::start(kafka, ProxyOptions::default())).unwrap();
    assert_eq!(play(proxy.bootstrap(), proxy.faults()), expected());
}
