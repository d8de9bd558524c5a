//! A whole job on one thread in paused time: what a simulator stands on.

use crate::counting::{Counting, Remembering};
use hapax::{Host, Job, Progress, RunOptions, Stopper, Summary};
use hapax_host::{RealFiles, RealNet};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const DAY_MS: i64 = 1_700_000_000_000;

async fn run(remembering: &Remembering, count: u64, seed: u64) -> (Summary, Duration) {
    let host = Host::seeded(seed, DAY_MS, Arc::new(RealNet), Arc::new(RealFiles));
    let began = host.now();
    let plan = Job::new("paused")
        .store("memory://")
        .settings(|settings| {
            settings.shards = Some(2);
            settings.interval = Duration::from_secs(10);
        })
        .source(Counting { splits: 4, count, pace: Duration::from_secs(1) })
        .other_sink(remembering.clone())
        .plan()
        .unwrap();
    let summary = hapax::run(plan, host.clone(), RunOptions::default()).await.unwrap();
    (summary, host.now().duration_since(began))
}

fn times_seen(remembering: &Remembering) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for value in &remembering.0.lock().unwrap().values {
        *times.entry(value.clone()).or_default() += 1;
    }
    times
}

#[tokio::test(start_paused = true)]
async fn two_shards_run_on_one_thread_in_paused_time() {
    let remembering = Remembering::default();
    let (summary, took) = run(&remembering, 50, 1).await;
    assert!(summary.finished);
    let Progress { records_in, records_out, repeated, .. } = summary.progress;
    assert_eq!((records_in, records_out, repeated), (200, 200, 0));
    // Two shards, a record a second each: a hundred virtual seconds, in no real time to speak of.
    assert!(took >= Duration::from_secs(100) && took < Duration::from_secs(130), "{took:?}");
    let times = times_seen(&remembering);
    assert_eq!(times.len(), 200);
    assert!(times.values().all(|&times| times == 1));
    let prepared = remembering.0.lock().unwrap().prepared.clone();
    assert_eq!(prepared.values().sum::<u64>(), 200);
    assert!(prepared.len() >= 9, "an epoch each ten seconds: {prepared:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_is_followed_by_another_from_the_last_checkpoint() {
    let remembering = Remembering::default();
    remembering.0.lock().unwrap().fail_at = Some(77);
    let (summary, _) = run(&remembering, 50, 2).await;
    assert!(summary.finished);
    assert_eq!(summary.progress.runs, 2);
    let times = times_seen(&remembering);
    assert_eq!(times.len(), 200, "at least once: nothing is missing");
    let again = times.values().filter(|&&times| times == 2).count();
    assert!(again > 0 && again <= 40, "only what lay behind the last checkpoint is read again: {again}");
    assert!(times.values().all(|&times| times <= 2));
    assert_eq!(summary.progress.repeated, again as u64, "each of them is counted, and no other");
    assert_eq!(remembering.0.lock().unwrap().fail_at, None, "the fault fired");
}

#[tokio::test(start_paused = true)]
async fn one_seed_twice_gives_the_same_order() {
    let (first, second) = (Remembering::default(), Remembering::default());
    run(&first, 20, 3).await;
    run(&second, 20, 3).await;
    assert_eq!(first.0.lock().unwrap().values, second.0.lock().unwrap().values);
}

#[tokio::test(start_paused = true)]
async fn a_stop_drains_and_checkpoints() {
    let remembering = Remembering::default();
    let host = Host::seeded(4, DAY_MS, Arc::new(RealNet), Arc::new(RealFiles));
    let plan = Job::new("paused")
        .store("memory://")
        .settings(|settings| settings.shards = Some(2))
        .source(Counting { splits: 4, count: u64::MAX, pace: Duration::from_millis(100) })
        .other_sink(remembering.clone())
        .plan()
        .unwrap();
    let (stopper, stop) = Stopper::new();
    let options = RunOptions { stop, ..RunOptions::default() };
    let stopping = async {
        host.sleep(Duration::from_millis(5_550)).await;
        stopper.stop();
    };
    let (summary, ()) = tokio::join!(hapax::run(plan, host.clone(), options), stopping);
    let summary = summary.unwrap();
    assert!(!summary.finished);
    let seen = remembering.0.lock().unwrap();
    assert_eq!(seen.values.len() as u64, summary.progress.records_out, "everything read is in a checkpoint");
    assert_eq!(seen.prepared.values().sum::<u64>(), summary.progress.records_out);
}
