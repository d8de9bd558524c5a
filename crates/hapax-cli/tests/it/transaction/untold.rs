//! Partitions that are not told how a transaction ended (KAFKA-20734): of a sink, or that of the group's offsets, without
//! which no start could read the job's progress.

use super::{Case, Mode, On, PARTITIONS, PATIENCE, Point, TOTAL, crash_at, judges};
use hapax_broker::Step;
use hapax_kafka::admin::OFFSETS_TOPIC;
use std::{
    thread,
    time::{Duration, Instant},
};

const FIVE_DAYS_MS: i64 = 5 * 24 * 60 * 60 * 1_000;

impl Case {
    /// From now on the partitions of a topic get no markers from coordinators.
    fn leave_out(&self, topic: &str) {
        let broker = &self.hosted.as_ref().unwrap().broker;
        let there = (0..).map_while(|partition| {
            let step = Step::LeaveOutMarkers { topic: topic.to_owned(), partition, leave_out: true };
            broker.step(step).ok()
        });
        assert!(there.count() > 0, "{topic} is there");
    }
}

#[test]
fn a_start_tells_the_offsets_partition_what_coordinators_have_not_told_it() {
    thread::scope(|scope| {
        for version in [0, 2] {
            scope.spawn(move || {
                for point in [Point::K1oOffsetsTaken, Point::K3EndTxnSent, Point::K4Ended] {
                    untold(version, point);
                }
            });
        }
    });
}

fn untold(version: i16, point: Point) {
    let when = format!("untold {point} v{version}");
    let case = Case::new(&when, On::Ours(version), "");
    let mut feed = case.feed();
    let mut first = case.start("first", &["--crash-at", &crash_at(Point::K5Proven, Mode::Kill)]);
    Case::await_crash(&mut first, Point::K5Proven, Mode::Kill);
    case.leave_out(OFFSETS_TOPIC);
    let mut second = case.start("second", &["--crash-at", &format!("{point}:2:kill")]);
    Case::await_crash(&mut second, point, Mode::Kill);
    // One that comes no further than to clear the ids takes what coordinators remember with it.
    let mut third = case.start("third", &[]);
    third.until("has not cleared the ids", PATIENCE, |_| Ok(case.open().is_empty())).unwrap();
    third.process().signal("KILL").unwrap();
    third.wait(PATIENCE).unwrap();
    let mut last = case.start("last", &[]);
    assert_eq!(feed.join().unwrap(), TOTAL);
    last.demand_exit(0, PATIENCE).unwrap();
    case.assert_done(&when);
}

#[test]
fn a_first_start_that_dies_before_the_offsets_partition_knows_of_genesis_is_gone_on_with() {
    for version in [0, 2] {
        let when = format!("untold genesis v{version}");
        let case = Case::new(&when, On::Ours(version), "");
        case.fill();
        let began = Instant::now();
        while judges().reader.group_offsets(&case.bootstrap, &case.job).is_err() {
            assert!(began.elapsed() < PATIENCE, "a coordinator of groups");
            thread::sleep(Duration::from_millis(20));
        }
        case.leave_out(OFFSETS_TOPIC);
        let mut first = case.start("first", &[]);
        // It waits for two seconds before it tells the partition by itself.
        let is_committed = || {
            let listed = xtask::kafka::transactions(&case.bootstrap).unwrap();
            listed.iter().any(|one| one.id.starts_with(&case.job) && one.state == "CompleteCommit")
        };
        first.until("genesis is not committed", PATIENCE, |_| Ok(is_committed())).unwrap();
        first.process().signal("KILL").unwrap();
        first.wait(PATIENCE).unwrap();
        assert!(case.offsets_now().is_empty(), "{when}: the partition was not told");
        let ended = case.run(&[]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        case.assert_done(&when);
    }
}

#[test]
fn a_job_that_died_behind_its_last_commit_still_tells_its_sinks() {
    for version in [0, 2] {
        let when = format!("untold last v{version}");
        let case = Case::new(&when, On::Ours(version), "");
        case.fill();
        case.leave_out(&case.sink());
        let ended = case.run(&["--set", "run.shards=1", "--crash-at", "K4:1:kill"]);
        assert_eq!(ended.code, None, "{}", ended.err);
        let bounds = judges().reader.end_offsets(&case.bootstrap, &case.sink()).unwrap();
        assert!(bounds.iter().any(|bounds| bounds.stable_end < bounds.end), "{when}: {bounds:?}");
        let ended = case.run(&["--set", "run.shards=1"]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        assert!(ended.err.contains("finished already"), "{when}: {}", ended.err);
        case.assert_done(&when);
    }
}

#[test]
fn a_finished_job_that_is_started_now_and_then_is_never_forgotten() {
    let case = Case::new("finished", On::Ours(2), "");
    case.fill();
    assert_eq!(case.run(&[]).code, Some(0));
    for _ in 0..3 {
        case.hosted.as_ref().unwrap().broker.jump_clock(FIVE_DAYS_MS).unwrap();
        let ended = case.run(&[]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("finished already"), "{}", ended.err);
    }
    assert_eq!(case.offsets().len(), PARTITIONS as usize);
    case.assert_done("finished, and started again");
}
