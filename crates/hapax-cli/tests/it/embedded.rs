//! `brokers = "embedded"`: a job whose Kafka lives and dies with its process.

use crate::command_line::{Bench, Ended};
use crate::harness::{self, binary};
use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use xtask::{
    hapax::Run,
    judge::{Isolation, Judge, Read},
};

const PATIENCE: Duration = Duration::from_secs(180);

/// Generated records, without an end, into a topic of four partitions, split by split.
fn generating(name: &str) -> Bench {
    let text = "job = \"generate\"\n[checkpoint]\nstore = \"file://PATH/store\"\ninterval = \"50ms\"\n\
                [cluster.main]\nbrokers = \"embedded\"\n\
                [[source]]\ngenerator = { rate = 1000, partitions = 4, value = '{\"id\":$id}' }\n\
                [[sink]]\ntopic = \"out\"\npartition = \"keep\"\n";
    Bench::new(name, text)
}

fn start(bench: &Bench, number: usize, more: &[&str]) -> Run {
    let arguments = [&["--json"], more].concat();
    harness::run(&bench.file, &arguments, &bench.path(&format!("run-{number}.log"))).unwrap()
}

/// What a reader sees in the broker that a job has left behind: its journal, served by `hapax broker`.
fn left_behind(bench: &Bench, topic: &str) -> Vec<Vec<Read>> {
    let data = bench.path("store.broker").join("main");
    let broker = crate::broker::Program::start(&["--data", data.to_str().unwrap()]);
    let mut partitions =
        Judge::shared().read_all(&broker.bootstrap, topic, Isolation::ReadCommitted).unwrap();
    partitions.sort_by_key(|partition| partition.bounds.partition);
    partitions.into_iter().map(|partition| partition.records).collect()
}

/// Runs until something new is committed, and stops as asked.
fn run_a_while(bench: &Bench, number: usize) -> String {
    let mut run = start(bench, number, &["--progress"]);
    let commits = |run: &mut Run| Ok(run.output()?.lines().any(is_commit));
    run.until("a commit", PATIENCE, commits).unwrap();
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, PATIENCE).unwrap();
    run.output().unwrap()
}

/// A line of progress after a commit.
fn is_commit(line: &str) -> bool {
    let progress = serde_json::from_str::<serde_json::Value>(line);
    progress.is_ok_and(|progress| progress["committed_ms"].as_u64() > Some(0))
}

/// Split s of n has the ids s, s + n, s + 2n...: each partition holds these, none left out, none twice, in order. How
/// many there are.
fn assert_exact(partitions: &[Vec<Read>]) -> usize {
    assert_eq!(partitions.len(), 4);
    for (number, records) in partitions.iter().enumerate() {
        for (at, read) in records.iter().enumerate() {
            let record: serde_json::Value = serde_json::from_str(&read.text()).unwrap();
            assert_eq!(record["id"], number + 4 * at, "record {at} of partition {number}");
        }
    }
    partitions.iter().map(Vec::len).sum()
}

#[test]
fn after_sigkill_at_any_moment_a_second_run_of_the_same_file_goes_on_exactly_once() {
    let bench = generating("embedded-kill");
    // Moments of the commit, in an epoch after the first, and moments of the clock.
    let points = ["K0:9", "K1:3", "K1b-stored:3", "K2:3", "K2b:7", "K3:9", "K4:3", "K5:3"];
    let mut runs = 0;
    for point in points {
        let mut run = start(&bench, runs, &["--crash-at", point]);
        runs += 1;
        let status = run.wait(PATIENCE).unwrap();
        assert_eq!(status.code(), None, "{point}: {}", run.output().unwrap());
        assert!(run.crash_point(point.split(':').next().unwrap()).unwrap().is_some(), "{point}");
    }
    for millis in [20, 150, 400] {
        let mut run = start(&bench, runs, &[]);
        runs += 1;
        thread::sleep(Duration::from_millis(millis));
        run.process().kill().unwrap();
    }
    run_a_while(&bench, runs);
    let count = assert_exact(&left_behind(&bench, "out"));
    run_a_while(&bench, runs + 1);
    assert!(assert_exact(&left_behind(&bench, "out")) > count, "it goes on");
}

#[test]
fn a_decided_epoch_is_resumed_from_the_journal() {
    let bench = generating("embedded-resume");
    let mut run = start(&bench, 0, &["--crash-at", "K2:3"]);
    assert_eq!(run.wait(PATIENCE).unwrap().code(), None);
    let log = run_a_while(&bench, 1);
    assert!(log.contains("resumed: the decided epoch is committed"), "{log}");
    assert_exact(&left_behind(&bench, "out"));
}

/// The job cannot start its broker again without ending itself, so it does.
#[test]
fn a_job_whose_broker_can_keep_nothing_any_more_ends_and_the_next_one_is_told_what_is_missing() {
    let bench = generating("embedded-broken");
    let mut run = start(&bench, 0, &["--progress"]);
    run.until("a commit", PATIENCE, |run| Ok(run.output()?.lines().any(is_commit))).unwrap();
    let journal = bench.path("store.broker").join("main").join("broker.journal");
    let aside = bench.path("aside");
    std::fs::copy(&journal, &aside).unwrap();
    std::fs::remove_file(&journal).unwrap();
    run.demand_exit(3, PATIENCE).unwrap();
    let log = run.output().unwrap();
    assert!(log.contains("E0308") && log.contains("can keep nothing any more"), "{log}");
    bench.run(&[]).says(4, "its journal back in its place");
}

#[test]
fn a_second_run_at_the_same_time_is_refused() {
    let bench = generating("embedded-twice");
    let mut first = start(&bench, 0, &["--progress"]);
    first
        .until("its broker is there", PATIENCE, |run| Ok(run.output()?.contains("embedded broker")))
        .unwrap();
    bench.run(&[]).says(3, "another broker uses it");
    // Before it works, a signal ends it at once.
    first.until("a commit", PATIENCE, |run| Ok(run.output()?.lines().any(is_commit))).unwrap();
    first.process().signal("TERM").unwrap();
    first.demand_exit(0, PATIENCE).unwrap();
}

#[test]
fn the_example_has_its_topics_and_says_where_anybody_can_write() {
    let bench = Bench::new("embedded-example", "");
    let log = bench.path("log");
    let mut command = Command::new(binary());
    command.arg("run").arg(format!("{}/../../examples/orders.toml", env!("CARGO_MANIFEST_DIR")));
    command.args(["--set", "checkpoint.interval=100ms"]).env_remove("HAPAX_BROKERS");
    command.env("HAPAX_STORE", format!("file://{}", bench.path("store").display()));
    let mut run = Run::of(command, &log).unwrap();
    let address = |run: &Run| {
        let output = run.output().unwrap();
        // A line that is not written to its end is not read.
        let line = output.split_once("address=").and_then(|(_, rest)| rest.split_once('\n'));
        line.and_then(|(line, _)| line.split_whitespace().next()).map(str::to_owned)
    };
    run.until("its address", PATIENCE, |run| Ok(address(run).is_some())).unwrap();
    let bootstrap = address(&run).unwrap();
    let order = |id: u32, amount: u32| {
        let value = format!(r#"{{"id":{id},"customer":"c","amount":{amount},"currency":"EUR"}}"#);
        xtask::judge::Record::new("c", value)
    };
    let judge = Judge::shared();
    let began = Instant::now();
    // The topics are there a moment after the broker.
    while judge.produce(&bootstrap, "orders", &[order(1, 99), order(2, 101)]).is_err() {
        assert!(began.elapsed() < PATIENCE, "{}", run.output().unwrap());
    }
    while judge
        .read_all(&bootstrap, "orders-large", Isolation::ReadCommitted)
        .map_or(true, |partitions| partitions.iter().flat_map(|partition| &partition.records).count() < 1)
    {
        assert!(began.elapsed() < PATIENCE, "{}", run.output().unwrap());
        thread::sleep(Duration::from_millis(50));
    }
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, PATIENCE).unwrap();
    assert!(bench.path("store.broker").join("main").join("broker.journal").exists());
}

#[test]
fn in_memory_nothing_is_kept_and_a_store_that_outlives_it_is_refused() {
    let text = |brokers: &str, store: &str| {
        format!(
            "job = \"a\"\n[checkpoint]\nstore = \"{store}\"\ninterval = \"50ms\"\n[cluster.main]\n{brokers}\n\
             [[source]]\ngenerator = {{ count = 100 }}\n[[sink]]\ntopic = \"out\"\n"
        )
    };
    let memory = "brokers = \"embedded-memory\"";
    let bench = Bench::new("embedded-memory-store", &text(memory, "file://PATH/store"));
    bench.run(&[]).says(2, "E0202: ");
    bench.run(&[]).says(2, "embedded-memory");
    assert!(!bench.path("store").exists() && !bench.path("store.broker").exists());

    let bench = Bench::new("embedded-memory", &text(memory, "memory://"));
    for _ in 0..2 {
        let ended: Ended = bench.run(&["--json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_eq!(ended.summary()["records_out"], 100, "it begins anew each time");
    }

    let bench = Bench::new("embedded-missing", &text("", "file://PATH/store"));
    bench.run(&[]).says(2, "write host:port of some of its brokers, or \"embedded\"");
    let left = Command::new("ls").arg(bench.path("")).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout).trim(), "pipeline.toml");
}
