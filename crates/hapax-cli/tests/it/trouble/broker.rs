//! Brokers that are silent, gone, back again, or not the coordinator any more.

use super::*;
use hapax_host::Host;
use hapax_kafka::{Client, ClientConfig, CoordinatorKind};
use std::time::Instant;
use xtask::kafka::Cluster;

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

/// A job that copies what a feed writes meanwhile, without a pause.
struct Fed {
    job: Job,
    feed: Feed,
}

impl Fed {
    fn start(name: &str, cluster: &Cluster) -> Self {
        let job = Job::on(&cluster.bootstrap(), name, "");
        let source = format!("{}-in", job.name);
        job.create_topic(&source, &[]);
        job.write(&format!("topics = [\"{source}\"]"));
        let feed = job.feed(&source);
        Self { job, feed }
    }

    /// Waits until more is committed than was written when this is called.
    fn goes_on(&self, run: &mut Run) {
        let written: i64 = self.job.bounds().iter().map(|bounds| bounds.end).sum();
        self.job.await_committed(run, written + 100);
    }

    /// Ends the feed, and waits until all of it is committed. The job, the number of records, and the runs it took.
    fn finish(self, mut run: Run) -> (Job, u64, u64) {
        let written = self.feed.end().unwrap();
        let sink = (self.job.bootstrap.as_str(), self.job.sink.as_str());
        run.await_committed(Judge::shared(), sink, &[], written - 1, PATIENCE).unwrap();
        let runs = terminate(run).done()["runs"].as_u64().unwrap();
        (self.job, written, runs)
    }
}

#[test]
fn a_job_outlives_a_broker_that_is_paused_killed_and_restarted() {
    let cluster = Cluster::builder(Version::V4_4).start().unwrap();
    let fed = Fed::start("broker-trouble", &cluster);
    // Shorter than the pause, so that the run fails and is followed by another.
    let mut run = fed.job.start("run", &["--set", "sink.0.delivery_timeout=4s"]);
    fed.goes_on(&mut run);
    cluster.pause(1).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    cluster.resume(1).unwrap();
    fed.goes_on(&mut run);
    cluster.kill(1).unwrap();
    cluster.restart(1).unwrap();
    fed.goes_on(&mut run);
    cluster.stop(1).unwrap();
    cluster.restart(1).unwrap();
    fed.goes_on(&mut run);
    let (job, written, runs) = fed.finish(run);
    assert!(runs > 1, "the pause ended a run");
    job.is_exact(written);
    sigterm_without_a_broker(&job, &cluster, written);
}

/// Nothing says that the last epoch was committed, so the exit code must not be 0; the next run settles it.
fn sigterm_without_a_broker(job: &Job, cluster: &Cluster, written: u64) {
    let source = format!("{}-in", job.name);
    let more = Numbers { from: written, ..Numbers::new(PARTITIONS, 5_000) };
    Judge::shared().produce_numbers(&job.bootstrap, &source, &more).unwrap();
    // No barrier comes before the broker is gone: what was written is open.
    let mut run = job.start("term", &["--set", "run.stop_budget=3s", "--set", "checkpoint.interval=200s"]);
    let open = |_: &mut Run| Ok(job.bounds().iter().any(|bounds| bounds.end > bounds.stable_end));
    run.until("has written into a transaction", PATIENCE, open).unwrap();
    cluster.kill(1).unwrap();
    let began = Instant::now();
    let ended = terminate(run);
    assert!(began.elapsed() < Duration::from_secs(20), "the budget bounds it: {:?}", began.elapsed());
    ended.says(3, "E0307", &[&job.name, "asked to stop", "nothing is lost, the next run resolves it"]);
    assert_eq!(ended.text.lines().last().unwrap().matches("E0307").count(), 1, "said once");
    cluster.restart(1).unwrap();
    let mut run = job.start("after", &[]);
    let last = written + 4_999;
    run.await_committed(Judge::shared(), (&job.bootstrap, &job.sink), &[], last, PATIENCE).unwrap();
    terminate(run).done();
    job.is_exact(last + 1);
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
    let fed = Fed::start("broker-coordinator", &cluster);
    let mut run = fed.job.start("run", &[]);
    fed.goes_on(&mut run);
    let id = format!("{}.main.0.0", fed.job.name);
    let before = coordinator(&fed.job.bootstrap, &id);
    cluster.kill(before).unwrap();
    fed.goes_on(&mut run);
    let after = coordinator(&fed.job.bootstrap, &id);
    assert_ne!(after, before, "the id has moved");
    cluster.restart(before).unwrap();
    fed.goes_on(&mut run);
    let (job, written, _) = fed.finish(run);
    job.is_exact(written);
}
