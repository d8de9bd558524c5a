//! Lanes whose transactions no time-out ends (`two_phase`), on the broker of this repository, the only one that has the
//! whole of KIP-939; its clock jumps over weeks.

use crate::command_line::{Bench, hapax};
use hapax_broker::{Broker, ServerOptions, Settings};
use tokio::runtime::{Builder, Runtime};
use xtask::{
    judge::{Isolation, Judge, Read},
    kafka::transactions,
};

const RECORDS: u64 = 2_000;
const PARTITIONS: u64 = 4;

/// Longer than any transaction timeout that a broker takes.
const A_MONTH_MS: i64 = 31 * 24 * 3_600 * 1_000;

struct Scene {
    broker: Broker,
    _runtime: Runtime,
    bench: Bench,
}

impl Scene {
    fn new(name: &str, settings: Settings) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let broker = runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap();
        Judge::shared().create_topic(&broker.bootstrap(), "out", PARTITIONS as u32, &[]).unwrap();
        let text = format!(
            "job = \"unhurried\"\nrecovery = [\"resume\"]\n[checkpoint]\nstore = \"file://PATH/store\"\n\
             interval = \"50ms\"\n[cluster.main]\nbrokers = \"{}\"\ntwo_phase = true\n[[source]]\n\
             generator = {{ count = {RECORDS}, rate = 4000, partitions = {PARTITIONS}, value = '{{\"id\":$id}}' }}\n\
             [[sink]]\ntopic = \"out\"\npartition = \"keep\"\n",
            broker.bootstrap()
        );
        Self { broker, _runtime: runtime, bench: Bench::new(&format!("two-phase-{name}"), &text) }
    }

    fn open(&self) -> Vec<String> {
        let listed = transactions(&self.broker.bootstrap()).unwrap();
        listed.into_iter().filter(|one| one.is_open()).map(|one| one.id).collect()
    }

    /// What it said until then.
    fn die(&self, at: &str) -> String {
        let ended = self.bench.run(&["--crash-at", at]);
        assert_eq!(ended.code, None, "it does not die at {at}: {}", ended.err);
        let point = at.split(':').next().unwrap();
        assert!(ended.err.contains(&format!("crash point {point} reached")), "{}", ended.err);
        ended.err
    }

    fn assert_exact(&self) {
        let read = Judge::shared().read_all(&self.broker.bootstrap(), "out", Isolation::ReadCommitted);
        let mut partitions = read.unwrap();
        partitions.sort_by_key(|partition| partition.bounds.partition);
        let id = |read: &Read| {
            let record: serde_json::Value = serde_json::from_str(&read.text()).unwrap();
            record["id"].as_u64().unwrap()
        };
        assert_eq!(partitions.len() as u64, PARTITIONS);
        for (first, partition) in (0..PARTITIONS).zip(&partitions) {
            let found: Vec<u64> = partition.records.iter().map(id).collect();
            let expected: Vec<u64> = (first..RECORDS).step_by(PARTITIONS as usize).collect();
            assert_eq!(found, expected, "partition {first}");
        }
    }
}

fn with_the_switch(transaction_version: i16) -> Settings {
    Settings { transaction_version, two_phase_commit: true, ..Settings::default() }
}

/// With `resume` as the only strategy: there is nothing that another one would be needed for.
#[test]
fn a_job_that_was_down_for_a_month_commits_what_it_had_decided() {
    for version in [0, 2] {
        let scene = Scene::new(&format!("month-v{version}"), with_the_switch(version));
        scene.die("K2:3");
        let open = scene.open();
        assert!(open.len() >= PARTITIONS as usize, "{open:?}");
        scene.broker.jump_clock(A_MONTH_MS).unwrap();
        assert_eq!(scene.open(), open, "no time-out ends them");
        let ended = scene.bench.run(&["--json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("resumed"), "{}", ended.err);
        assert_eq!(scene.open(), [""; 0]);
        scene.assert_exact();
    }
}

/// R0 to R6 but R4, where records would be written again: twice where the first death has left the epoch in doubt.
#[test]
fn recovery_that_dies_at_any_of_its_points_commits_what_was_decided() {
    for version in [0, 2] {
        for point in ["R0", "R1", "R2", "R3", "R5", "R6"] {
            let scene = Scene::new(&format!("{}-v{version}", point.to_lowercase()), with_the_switch(version));
            scene.die("K2:3");
            scene.broker.jump_clock(A_MONTH_MS).unwrap();
            let mut log = scene.die(point);
            if ["R0", "R1", "R2"].contains(&point) {
                log.push_str(&scene.die(point));
            }
            let ended = scene.bench.run(&["--json"]);
            assert_eq!(ended.code, Some(0), "{point}: {}", ended.err);
            log.push_str(&ended.err);
            assert_eq!(log.matches("resumed: ").count(), 1, "{point}: {log}");
            assert_eq!(scene.open(), [""; 0]);
            scene.assert_exact();
        }
    }
}

/// What is not decided is ended by the next start, however long nobody came.
#[test]
fn what_was_not_decided_is_cleared_by_the_next_start() {
    for version in [0, 2] {
        let scene = Scene::new(&format!("undecided-v{version}"), with_the_switch(version));
        scene.die("K1:3");
        scene.broker.jump_clock(A_MONTH_MS).unwrap();
        assert!(!scene.open().is_empty());
        let ended = scene.bench.run(&[]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_eq!(scene.open(), [""; 0]);
        scene.assert_exact();
    }
}

/// Whoever gives the job up ends them by hand: else readers wait for ever.
#[test]
fn a_person_ends_what_a_job_that_is_given_up_left_open() {
    let scene = Scene::new("given-up", with_the_switch(2));
    scene.die("K1:3");
    scene.broker.jump_clock(A_MONTH_MS).unwrap();
    let file = scene.bench.file.to_str().unwrap();
    for id in scene.open() {
        let ended = hapax(&["txn", "abort", file, &id]);
        assert_eq!(ended.code, Some(0), "{id}: {}", ended.err);
    }
    assert_eq!(scene.open(), [""; 0]);
}

#[test]
fn a_cluster_without_it_is_refused_before_anything_is_written() {
    let scene = Scene::new("refused", Settings::default());
    scene.bench.run(&[]).says(2, "E0206");
    scene.bench.run(&[]).says(2, "offers InitProducerId 0 to 5");
    let written = std::fs::read_dir(scene.bench.path("store")).unwrap().count();
    assert_eq!(written, 0, "the store is opened, and stays empty");
    assert_eq!(transactions(&scene.broker.bootstrap()).unwrap(), []);
    let unlimited = Settings { max_timeout_ms: i32::MAX, ..Settings::default() };
    let scene = Scene::new("refused-unlimited", unlimited);
    scene.bench.run(&[]).says(2, "transaction_timeout = \"2147483647ms\"");
}
