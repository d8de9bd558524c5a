//! Brokers that are silent, gone, back again, or not the coordinator any more.

use super::*;
use hapax_host::Host;
use hapax_kafka::{Client, ClientConfig, CoordinatorKind};
use std::time::Instant;
use xtask::{
    judge::{Isolation, Read},
    kafka::Cluster,
};

#[test]
fn a_broker_that_accepts_and_says_nothing_is_exit_code_3_within_the_start_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let job = Job::new("broker-silent", &generator(10, 10));
    let began = Instant::now();
    let ended = job.run(
        "silent",
        &["--set", &format!("cluster.main.brokers={address}"), "--set", "run.start_timeout=3s"],
    );
    let took = began.elapsed();
    ended.says(3, "E0301", &[]);
    assert!(took >= Duration::from_secs(2), "it waits: {took:?}");
    assert!(took < Duration::from_secs(10), "the timeout, and what a busy machine adds: {took:?}");
    assert!(!job.store.join(&job.name).exists(), "nothing was stored");
}

#[test]
fn a_source_cluster_that_is_gone_keeps_nothing_that_was_decided_from_being_committed() {
    let far = Cluster::builder(Version::V4_4).start().unwrap();
    let cluster = format!("cluster.far.brokers={}", far.bootstrap());
    let job = Job::new("broker-source-gone", "");
    let source = format!("{}-in", job.name);
    Judge::shared().create_topic(&far.bootstrap(), &source, PARTITIONS, &[]).unwrap();
    let numbers = Numbers { value: "{\"id\":$id}".to_owned(), ..Numbers::new(PARTITIONS, 400) };
    Judge::shared().produce_numbers(&far.bootstrap(), &source, &numbers).unwrap();
    job.write(&format!("cluster = \"far\"\ntopics = [\"{source}\"]\nend = \"latest\""));
    let killed = job.run("decided", &["--set", &cluster, "--crash-at", "K2"]);
    assert_eq!(killed.code, None, "{}", killed.text);
    assert!(
        job.bounds().iter().any(|bounds| bounds.end > bounds.stable_end),
        "an epoch waits for its commit"
    );
    far.kill(1).unwrap();
    let refused = job.run("gone", &["--set", &cluster, "--set", "run.start_timeout=4s"]);
    refused.says(3, "E0301", &["cluster far"]);
    is_without_gaps(&job);
    far.restart(1).unwrap();
    job.run("back", &["--set", &cluster]).done();
    job.is_exact(400);
}

/// Waits until more is committed than was written when this is called.
fn goes_on(job: &Job, run: &mut Run) {
    let written: i64 = job.bounds().iter().map(|bounds| bounds.end).sum();
    job.await_committed(run, written + 100);
}

/// Each partition has the numbers of one split, from the first on, without a gap, in order.
fn is_without_gaps(job: &Job) {
    let read = Judge::shared().read_all(&job.bootstrap, &job.sink, Isolation::ReadCommitted).unwrap();
    for partition in read {
        let texts: Vec<String> = partition.records.iter().map(Read::text).collect();
        let number = |at: usize| at * PARTITIONS as usize + partition.bounds.partition as usize;
        let expected: Vec<String> = (0..texts.len()).map(|at| format!("{{\"id\":{}}}", number(at))).collect();
        let wrong = texts.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "{} of {} records", partition.bounds.partition, texts.len());
        assert!(!texts.is_empty() && partition.bounds.stable_end == partition.bounds.end);
    }
}

#[test]
fn a_job_outlives_a_broker_that_is_paused_killed_and_restarted() {
    let cluster = Cluster::builder(Version::V4_4).start().unwrap();
    // A source that goes on whatever the broker does, so that there is always something to write.
    let source = format!("generator = {{ rate = 300, partitions = {PARTITIONS}, value = '{{\"id\":$id}}' }}");
    let job = Job::on(&cluster.bootstrap(), "broker-trouble", &source);
    // Shorter than the pause, so that the run fails and is followed by another.
    let mut run = job.start("run", &["--set", "sink.0.delivery_timeout=4s"]);
    goes_on(&job, &mut run);
    cluster.pause(1).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    cluster.resume(1).unwrap();
    goes_on(&job, &mut run);
    cluster.kill(1).unwrap();
    cluster.restart(1).unwrap();
    goes_on(&job, &mut run);
    cluster.stop(1).unwrap();
    cluster.restart(1).unwrap();
    goes_on(&job, &mut run);
    let ended = terminate(run).done();
    assert!(ended["runs"].as_u64().unwrap() > 1, "the pause ended a run: {ended}");
    is_without_gaps(&job);
    sigterm_without_a_broker(&job, &cluster);
}

/// Nothing says that the last epoch was committed, so the exit code must not be 0; the next run settles it.
fn sigterm_without_a_broker(job: &Job, cluster: &Cluster) {
    // No barrier comes before the broker is gone: what was written is open.
    let mut run = job.start("term", &["--set", "run.stop_budget=3s", "--set", "checkpoint.interval=200s"]);
    let open = |_: &mut Run| Ok(job.bounds().iter().all(|bounds| bounds.end > bounds.stable_end));
    run.until("has written into a transaction of each shard", PATIENCE, open).unwrap();
    cluster.kill(1).unwrap();
    let began = Instant::now();
    let ended = terminate(run);
    assert!(began.elapsed() < Duration::from_secs(20), "the budget bounds it: {:?}", began.elapsed());
    ended.says(3, "E0307", &[&job.name, "asked to stop", "nothing is lost, the next run resolves it"]);
    assert_eq!(ended.text.lines().last().unwrap().matches("E0307").count(), 1, "said once");
    cluster.restart(1).unwrap();
    let mut run = job.start("after", &[]);
    goes_on(job, &mut run);
    terminate(run).done();
    is_without_gaps(job);
}

/// The node that coordinates a transactional id.
fn coordinator(bootstrap: &str, id: &str) -> u32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = ClientConfig::new(ClientConfig::parse_bootstrap(bootstrap).unwrap());
        let client = Client::connect(Host::real(), config).await.unwrap();
        let found = client.coordinator(CoordinatorKind::Transaction, id).await.unwrap();
        u32::try_from(found.node().0).unwrap()
    })
}

#[test]
fn a_job_outlives_the_coordinators_of_its_transactions() {
    let cluster = Cluster::builder(Version::V4_4).nodes(3).start().unwrap();
    let job = Job::on(&cluster.bootstrap(), "broker-coordinator", "");
    let source = format!("{}-in", job.name);
    job.create_topic(&source, &[]);
    job.write(&format!("topics = [\"{source}\"]"));
    let (feed, judge) = (job.feed(&source), Judge::start().unwrap());
    let mut run = job.start("run", &[]);
    // Something that was not written yet when this is called is committed.
    let goes_on = |run: &mut Run| {
        run.await_committed(&judge, (&job.bootstrap, &job.sink), &[], feed.begun(), PATIENCE).unwrap();
    };
    goes_on(&mut run);
    let id = format!("{}.main.0.0", job.name);
    let before = coordinator(&job.bootstrap, &id);
    cluster.kill(before).unwrap();
    goes_on(&mut run);
    assert_ne!(coordinator(&job.bootstrap, &id), before, "the id has moved");
    cluster.restart(before).unwrap();
    goes_on(&mut run);
    let written = feed.end().unwrap();
    run.await_committed(&judge, (&job.bootstrap, &job.sink), &[], written - 1, PATIENCE).unwrap();
    terminate(run).done();
    job.is_exact(written);
}
