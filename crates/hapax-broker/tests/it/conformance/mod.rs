//! One suite of scenarios against our broker and against real Apache Kafka: their transcripts must be equal.
//!
//! Owns the comparison. A difference is a bug of the broker, or an entry of `docs/broker-fidelity.md`.

mod peer;
mod transaction;
mod world;

use hapax_broker::{Broker, ServerOptions, Settings};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
};
use world::World;
use xtask::kafka::{Version, shared};

/// A scenario: the same acts on every cluster.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) play: fn(&mut World, Protocol),
}

/// Which transactions a cluster runs, and so which request versions a client of it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    V1,
    V2,
}

impl Protocol {
    /// EndTxn of the protocol.
    pub(crate) fn end(self) -> i16 {
        match self {
            Self::V1 => 4,
            Self::V2 => 5,
        }
    }

    /// Produce of the protocol.
    pub(crate) fn produce(self) -> i16 {
        match self {
            Self::V1 => 11,
            Self::V2 => 12,
        }
    }
}

fn scenarios() -> Vec<Scenario> {
    transaction::scenarios()
}

fn play(scenario: &Scenario, bootstrap: &str, protocol: Protocol) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("{}-{}-{}", scenario.name, std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut world = World::new(bootstrap, &prefix);
    let played = catch_unwind(AssertUnwindSafe(|| (scenario.play)(&mut world, protocol)));
    if played.is_err() {
        world.note("the scenario could not go on");
    }
    world.transcript()
}

/// The first line that differs, with what led there.
fn difference(real: &[String], ours: &[String]) -> Option<String> {
    let length = real.len().max(ours.len());
    let line = |lines: &[String], index: usize| lines.get(index).cloned().unwrap_or_else(|| "(ended)".into());
    let index = (0..length).find(|&index| line(real, index) != line(ours, index))?;
    let before = real[..index.min(real.len())].join("\n    ");
    Some(format!("    {before}\n  real: {}\n  ours: {}", line(real, index), line(ours, index)))
}

fn compare(version: Version, protocol: Protocol, ours: &str) {
    let real = &shared(version).bootstrap;
    let mut failed = Vec::new();
    let scenarios = scenarios();
    for scenario in &scenarios {
        let (expected, found) = (play(scenario, real, protocol), play(scenario, ours, protocol));
        if let Some(difference) = difference(&expected, &found) {
            failed.push(format!("{}:\n{difference}", scenario.name));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} scenarios differ from Kafka {version:?}:\n{}",
        failed.len(),
        scenarios.len(),
        failed.join("\n")
    );
}

/// Our broker with the periods of the real ones that tests use.
fn ours(level: i16) -> Settings {
    Settings { transaction_version: level, ..Settings::default() }
}

/// Plays on a broker of ours that lives as long as the comparison.
fn against(version: Version, protocol: Protocol, level: i16) {
    let (tell, told) = mpsc::channel();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let broker = Broker::start(ours(level), ServerOptions::default()).await.unwrap();
            tell.send(broker.bootstrap()).unwrap();
            let _ = ended.await;
            broker.stop().await;
        });
    });
    compare(version, protocol, &told.recv().unwrap());
    drop(end);
    serving.join().unwrap();
}

#[test]
#[ignore = "plays against real Kafka with transactions of 300 ms, which needs a machine without other load"]
fn transactions_of_v2_are_those_of_kafka_4_4() {
    against(Version::V4_4, Protocol::V2, 2);
}

#[test]
#[ignore = "plays against real Kafka with transactions of 300 ms, which needs a machine without other load"]
fn transactions_of_v1_are_those_of_kafka_3_9() {
    against(Version::V3_9, Protocol::V1, 0);
}
