//! Requests of a run that is gone or asleep, which arrive while a newer one works: decider `transaction`, whose epochs are final
//! with their transactions.

use super::scene::{On, PATIENCE, Scene};
use hapax_broker::{ApiKey, Rule};
use std::{
    thread,
    time::{Duration, Instant},
};

const PARTITIONS: u32 = 4;

const DECIDER: &str = "decider = \"transaction\"\n";

/// How long a request is held back: what the next run does meanwhile takes a second or two on a machine that is not busy.
const HELD: Duration = Duration::from_secs(40);

/// The transaction was aborted when the newer run cleared its id, and its positions with it.
#[test]
fn an_endtxn_of_an_epoch_that_a_newer_run_has_read_again_commits_nothing() {
    thread::scope(|scope| {
        for on in On::OURS {
            scope.spawn(move || late_commit(on));
        }
    });
}

fn late_commit(on: On) {
    let mut scene = Scene::with_top("carried-late-commit", on, PARTITIONS, DECIDER);
    scene.feed("in", 20);
    scene.catch_up(&["in"], &[]);
    scene.feed("in", 20);
    let began = scene.die_with_commits_held(HELD);
    scene.catch_up(&["in"], &[]);
    scene.assert_copied("out", &["in"]);
    assert!(began.elapsed() < HELD, "the next run was slower than the request: {:?}", began.elapsed());

    let mut run = scene.start("meanwhile", &[]);
    scene.feed_until("in", began + HELD + Duration::from_secs(1));
    scene.until_copied(&mut run, "out", &["in"]);
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, PATIENCE).unwrap();
    scene.assert_copied("out", &["in"]);
}

/// H11: it takes one id from the newer run, which begins again; of a run that took all of them it would be the end.
#[test]
fn an_initproducerid_that_arrives_late_costs_a_carried_job_time_and_no_records() {
    thread::scope(|scope| {
        for (on, index) in On::OURS.into_iter().flat_map(|on| [0, 1, 2].map(|index| (on, index))) {
            scope.spawn(move || late_init(on, index));
        }
    });
}

fn late_init(on: On, index: u32) {
    let mut scene = Scene::with_top(&format!("carried-late-init-{index}"), on, PARTITIONS, DECIDER);
    scene.feed("in", 20);
    scene.catch_up(&["in"], &[]);
    let id = format!("{}.main.0.{index}", scene.job);
    let rule = Rule::on(ApiKey::InitProducerId).transactional_id(id.as_str()).delay(HELD).times(1);
    let held = scene.broker().faults().guard(rule).unwrap();
    let began = Instant::now();
    let mut older = scene.start("older", &[]);
    older.until("asks for the id", PATIENCE, |_| Ok(held.fired() == 1)).unwrap();
    older.process().kill().unwrap();

    let mut newer = scene.start("newer", &[]);
    scene.feed("in", 10);
    scene.until_copied(&mut newer, "out", &["in"]);
    assert!(began.elapsed() < HELD, "the newer run was slower than the request: {:?}", began.elapsed());
    scene.feed_until("in", began + HELD + Duration::from_secs(1));
    scene.feed("in", 10);
    scene.until_copied(&mut newer, "out", &["in"]);
    let log = newer.output().unwrap();
    assert!(log.contains("the run ended, the next begins"), "the id was taken from it: {log}");
    newer.process().signal("TERM").unwrap();
    newer.demand_exit(0, PATIENCE).unwrap();
    scene.assert_copied("out", &["in"]);
}
