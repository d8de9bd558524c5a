//! Several runs of one job: at once, asleep, and with requests that arrive when their run is long gone.

use super::scene::{On, PATIENCE, Scene};
use hapax::crash::Point;
use hapax_broker::{ApiKey, Rule};
use std::{
    thread,
    time::{Duration, Instant},
};
use xtask::{hapax::Run, kafka::Version};

const PARTITIONS: u32 = 4;

/// Longer than the transaction timeout of the job.
const TIMED_OUT_MS: i64 = 61_000;

/// How long a request is held back: what the next run does meanwhile takes a second or two on a machine that is not busy.
const HELD: Duration = Duration::from_secs(40);

/// The lists that resolve whatever a crash leaves, going back where possible, or never.
const LISTS: [&str; 2] =
    ["recovery=[\"resume\", \"rewind\", \"rewrite\"]", "recovery=[\"resume\", \"rewrite\"]"];

/// H4, H11: any number of runs, each claims, the newest is the one that works.
#[test]
fn of_any_number_of_runs_at_once_one_works_and_the_others_end_with_exit_code_5() {
    for (on, count) in On::OURS.into_iter().flat_map(|on| [2, 3, 8].map(|count| (on, count))) {
        let mut scene = Scene::new(&format!("runs-{count}"), on, PARTITIONS);
        scene.feed("in", 20);
        let mut runs: Vec<Run> = (0..count).map(|n| scene.start(&format!("run-{n}"), &[])).collect();
        scene.feed("in", 20);
        let wanted = 40 * PARTITIONS as usize;
        let began = Instant::now();
        let alive = |runs: &mut Vec<Run>| -> usize {
            runs.iter_mut()
                .filter_map(|run| run.process().try_wait().unwrap().is_none().then_some(()))
                .count()
        };
        // A run that is idle looks after some seconds whether there is a newer one.
        while alive(&mut runs) > 1 || scene.read("out").concat().len() < wanted {
            assert!(began.elapsed() < PATIENCE, "{} are alive", alive(&mut runs));
            thread::sleep(Duration::from_millis(50));
        }
        scene.feed("in", 20);
        let last = runs.iter_mut().position(|run| run.process().try_wait().unwrap().is_none());
        let mut last = runs.remove(last.expect("one of them works"));
        scene.until_copied(&mut last, "out", &["in"]);
        last.process().signal("TERM").unwrap();
        last.demand_exit(0, PATIENCE).unwrap();
        for run in &mut runs {
            run.demand_exit(5, PATIENCE).unwrap();
        }
        scene.assert_copied("out", &["in"]);
    }
}

/// The broker aborts what a run left that sleeps, the next one repairs it, and the first one wakes and goes on with
/// whatever it was about to do.
#[test]
fn a_run_that_slept_at_any_point_while_its_epoch_was_repaired_changes_nothing() {
    for (on, list) in On::OURS.into_iter().flat_map(|on| LISTS.map(|list| (on, list))) {
        for point in Point::COMMIT {
            let mut scene = Scene::new(&format!("asleep-{}", point.name().to_lowercase()), on, PARTITIONS);
            scene.feed("in", 20);
            let reach = match point {
                Point::K0BeforeFlush | Point::K3EndTxnSent => 2,
                _ => 1,
            };
            let mut asleep = scene.start("asleep", &["--crash-at", &format!("{point}:{reach}:stop")]);
            asleep.until("sleeps", PATIENCE, |run| Ok(run.crash_point(point.name())?.is_some())).unwrap();
            scene.broker().jump_clock(TIMED_OUT_MS).unwrap();
            scene.feed("in", 10);
            scene.catch_up(&["in"], &["--set", list]);
            scene.assert_copied("out", &["in"]);
            asleep.process().signal("CONT").unwrap();
            asleep.demand_exit(5, PATIENCE).unwrap();
            scene.assert_copied("out", &["in"]);
        }
    }
}

/// It has cleared every id and sleeps before it looks at the sinks' partitions, where a newer run is at work under the same
/// producers when it wakes: only what its own clearing has ended is told there.
#[test]
fn a_run_that_wakes_behind_its_clearing_ends_nothing_that_a_newer_run_has_open() {
    On::OURS.into_iter().for_each(wakes_behind_its_clearing);
}

#[test]
fn on_apache_kafka_too_a_run_that_wakes_behind_its_clearing_ends_nothing_of_a_newer_one() {
    Version::ALL.into_iter().map(On::Kafka).for_each(wakes_behind_its_clearing);
}

fn wakes_behind_its_clearing(on: On) {
    let mut scene = Scene::new("wakes", on, PARTITIONS);
    scene.feed("in", 20);
    scene.die("K2:1", &[]);
    let asleep_at = Point::R6IdsCleared.name();
    let mut asleep = scene.start("asleep", &["--crash-at", &format!("{asleep_at}:1:stop")]);
    asleep.until("sleeps", PATIENCE, |run| Ok(run.crash_point(asleep_at)?.is_some())).unwrap();
    scene.feed("in", 20);
    let mut newer = scene.start("newer", &["--crash-at", "K2:1:stop"]);
    newer.until("has an epoch decided", PATIENCE, |run| Ok(run.crash_point("K2")?.is_some())).unwrap();
    let open = scene.open();
    assert!(!open.is_empty(), "nothing of the newer run is open");
    asleep.process().signal("CONT").unwrap();
    asleep.demand_exit(5, PATIENCE).unwrap();
    assert_eq!(scene.open(), open);
    newer.process().signal("CONT").unwrap();
    scene.until_copied(&mut newer, "out", &["in"]);
    newer.process().signal("TERM").unwrap();
    newer.demand_exit(0, PATIENCE).unwrap();
    let log = newer.output().unwrap();
    assert!(!["written again", "rewound", "E04"].iter().any(|what| log.contains(what)), "{log}");
    scene.assert_copied("out", &["in"]);
}

/// What became of an epoch while its EndTxn was on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Resumed,
    Rewound,
    Rewritten,
}

/// An old run's EndTxn can only commit what the chain decided and did not void.
#[test]
fn an_endtxn_that_arrives_late_shows_nothing_twice() {
    let all = [Meanwhile::Resumed, Meanwhile::Rewound, Meanwhile::Rewritten];
    thread::scope(|scope| {
        for (on, meanwhile) in On::OURS.into_iter().flat_map(|on| all.map(|meanwhile| (on, meanwhile))) {
            scope.spawn(move || late_commit(on, meanwhile));
        }
    });
}

fn late_commit(on: On, meanwhile: Meanwhile) {
    let mut scene = Scene::new(&format!("late-{meanwhile:?}").to_lowercase(), on, PARTITIONS);
    scene.feed("in", 20);
    let began = scene.die_with_commits_held(HELD);
    if meanwhile != Meanwhile::Resumed {
        scene.broker().jump_clock(TIMED_OUT_MS).unwrap();
    }
    scene.feed("in", 10);
    let (list, told) = match meanwhile {
        Meanwhile::Resumed => (LISTS[0], "resumed"),
        Meanwhile::Rewound => (LISTS[0], "rewound"),
        Meanwhile::Rewritten => (LISTS[1], "written again"),
    };
    let log = scene.catch_up(&["in"], &["--set", list]);
    assert!(log.contains(told), "{log}");
    scene.assert_copied("out", &["in"]);
    assert!(began.elapsed() < HELD, "the next run was slower than the request: {:?}", began.elapsed());

    // It arrives while a run works under the same ids.
    let mut run = scene.start("meanwhile", &[]);
    scene.feed_until("in", began + HELD + Duration::from_secs(1));
    scene.until_copied(&mut run, "out", &["in"]);
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, PATIENCE).unwrap();
    scene.assert_copied("out", &["in"]);
}

/// H11: Kafka has no token that would refuse it. It takes the newer run's id, which costs that run an epoch's time.
#[test]
fn an_initproducerid_of_an_older_run_that_arrives_late_costs_the_newer_one_time_and_no_records() {
    thread::scope(|scope| {
        for (on, index) in On::OURS.into_iter().flat_map(|on| [0, 1, 2].map(|index| (on, index))) {
            scope.spawn(move || late_init(on, index));
        }
    });
}

fn late_init(on: On, index: u32) {
    let mut scene = Scene::new(&format!("late-init-{index}"), on, PARTITIONS);
    scene.feed("in", 20);
    scene.catch_up(&["in"], &[]);
    let id = format!("{}.main.0.{index}", scene.job);
    let rule = Rule::on(ApiKey::InitProducerId).transactional_id(id.as_str()).delay(HELD).times(1);
    let held = scene.broker().faults().guard(rule).unwrap();
    let began = Instant::now();
    let mut older = scene.start("older", &[]);
    older.until("asks for the id", PATIENCE, |_| Ok(held.fired() == 1)).unwrap();
    older.process().signal("STOP").unwrap();

    let mut newer = scene.start("newer", &[]);
    scene.until_copied(&mut newer, "out", &["in"]);
    assert!(began.elapsed() < HELD, "the newer run was slower than the request: {:?}", began.elapsed());
    scene.feed_until("in", began + HELD + Duration::from_secs(1));
    // Whoever finds its id taken asks the chain, which has no newer claim: it goes on.
    scene.feed("in", 10);
    scene.until_copied(&mut newer, "out", &["in"]);
    let log = newer.output().unwrap();
    assert!(log.contains("the run ended, the next begins"), "the id was taken from it: {log}");
    assert!(!log.contains("E0501"), "{log}");

    older.process().signal("CONT").unwrap();
    older.demand_exit(5, PATIENCE).unwrap();
    scene.feed("in", 10);
    scene.until_copied(&mut newer, "out", &["in"]);
    newer.process().signal("TERM").unwrap();
    newer.demand_exit(0, PATIENCE).unwrap();
    scene.assert_copied("out", &["in"]);
}

/// A job that stops for a person keeps only what the person has to decide about.
#[test]
fn ten_seconds_after_a_start_nothing_is_open_but_what_an_incident_names() {
    On::OURS.into_iter().for_each(ten_seconds_after_a_start);
}

#[test]
fn on_apache_kafka_too_ten_seconds_after_a_start_nothing_is_open_but_what_an_incident_names() {
    ten_seconds_after_a_start(On::Kafka(Version::V4_4));
}

fn ten_seconds_after_a_start(on: On) {
    let mut scene = Scene::new("ten-seconds", on, PARTITIONS);
    scene.feed("in", 20);
    scene.catch_up(&["in"], &["--set", "run.shards=4"]);
    // Records come all the time, so that lanes have some in each epoch. One lane of the decided epoch is aborted by hand, the
    // others stay open; the next epoch's are open too.
    let mut dies = scene.start("dies", &["--crash-at", "K2:2", "--set", "checkpoint.interval=500ms"]);
    while dies.process().try_wait().unwrap().is_none() {
        scene.feed("in", 1);
    }
    assert!(dies.crash_point("K2").unwrap().is_some(), "{}", dies.failure("ended elsewhere"));
    let described = crate::command_line::hapax(&["txn", "describe", scene.file(), "--json"]);
    let doubt: Vec<serde_json::Value> = described
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|one: &serde_json::Value| one["chain"]["in-doubt"].is_object())
        .collect();
    assert!(doubt.len() >= 2, "{doubt:?}");
    let aborted = doubt[0]["id"].as_str().unwrap();
    let ended = crate::command_line::hapax(&["txn", "abort", scene.file(), aborted, "--decided"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);

    let began = Instant::now();
    let ended = scene.bench.run(&["--set", "recovery=[\"resume\"]"]);
    ended.says(4, "E0404");
    let incidents = scene.incidents();
    let named: Vec<String> = incidents.last().unwrap()["in_doubt"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lane| lane["handle"]["transactional_id"].as_str().unwrap().to_owned())
        .collect();
    let open = scene.open();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(!open.is_empty() && open.iter().all(|id| named.contains(id)), "{open:?} of {named:?}");

    scene.catch_up(&["in"], &["--recover", "rewrite"]);
    scene.assert_copied("out", &["in"]);
}
