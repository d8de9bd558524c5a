//! Partitions that are not told how a transaction ended (KAFKA-20734): of a sink, or that of the group's offsets, without
//! which no start could read the job's progress.

use super::{Case, Mode, On, PARTITIONS, PATIENCE, Point, TOTAL, crash_at, judges};
use crate::command_line::hapax;
use hapax_broker::Step;
use hapax_kafka::{admin::OFFSETS_TOPIC, transaction::TRANSACTION_STATE_TOPIC};
use std::{
    thread,
    time::{Duration, Instant},
};
use xtask::judge::Isolation;

const FIVE_DAYS_MS: i64 = 5 * 24 * 60 * 60 * 1_000;

impl Case {
    /// From now on the partitions of a topic get no markers from coordinators.
    fn leave_out(&self, topic: &str) {
        self.step_each(topic, |topic, partition| Step::LeaveOutMarkers { topic, partition, leave_out: true });
    }

    /// From now on they get them again; those that were left out stay so.
    fn leave_out_no_more(&self, topic: &str) {
        self.step_each(topic, |topic, partition| Step::LeaveOutMarkers {
            topic,
            partition,
            leave_out: false,
        });
    }

    fn step_each(&self, topic: &str, step: impl Fn(String, i32) -> Step) {
        let broker = &self.hosted.as_ref().unwrap().broker;
        let there = (0..).map_while(|partition| broker.step(step(topic.to_owned(), partition)).ok());
        assert!(there.count() > 0, "{topic} is there");
    }

    /// Somebody clears every id of the job and comes no further: its coordinators do not say any more how the transactions
    /// before have ended.
    fn clear_every_id(&self) {
        let ended = hapax(&["job", "shards", self.file.to_str().unwrap(), "2", "--crash-at", "R1"]);
        assert_eq!(ended.code, None, "{}", ended.err);
        assert!(ended.err.contains("crash point R1 reached"), "{}", ended.err);
        assert!(self.listed().iter().all(|(_, state)| state == "Empty"), "{:?}", self.listed());
    }

    /// What `read_committed` readers see of a topic, by partition.
    pub(super) fn read(&self, topic: &str) -> Vec<Vec<String>> {
        let mut read = judges().reader.read_all(&self.bootstrap, topic, Isolation::ReadCommitted).unwrap();
        read.sort_by_key(|partition| partition.bounds.partition);
        read.iter().map(|one| one.records.iter().map(|read| read.text()).collect()).collect()
    }

    /// Dies behind its only commit, of which a partition of the sink is not told. One epoch has everything, so that none
    /// behind it is open: of that one nothing would tell how it ended.
    fn die_untold(&self, when: &str) {
        self.fill();
        self.leave_out(&self.sink());
        let whole = ["--set", "run.shards=1", "--set", "checkpoint.interval=10s"];
        let ended = self.run(&[&whole[..], &["--crash-at", "K4:1:kill"]].concat());
        assert_eq!(ended.code, None, "{}", ended.err);
        let bounds = judges().reader.end_offsets(&self.bootstrap, &self.sink()).unwrap();
        assert!(bounds.iter().any(|bounds| bounds.stable_end < bounds.end), "{when}: {bounds:?}");
    }

    /// What the former life has committed, by partition, and behind it the whole input once.
    fn assert_begun_anew_behind(&self, former: &[i64], when: &str) {
        self.await_nothing_open(when);
        assert!(former.iter().any(|count| *count > 0), "{when}: a former life that has written: {former:?}");
        let input = self.read(&self.source());
        let before = input.iter().zip(former).map(|(records, count)| &records[..*count as usize]);
        let wanted: Vec<Vec<String>> =
            before.zip(&input).map(|(before, all)| [before, all.as_slice()].concat()).collect();
        assert_eq!(self.read(&self.sink()), wanted, "{when}");
        let ends: Vec<i64> = self.offsets().iter().map(|offset| offset.offset).collect();
        assert_eq!(ends, vec![super::per_partition() as i64; PARTITIONS as usize], "{when}");
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
        case.die_untold(&when);
        let ended = case.run(&["--set", "run.shards=1"]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        assert!(ended.err.contains("finished already"), "{when}: {}", ended.err);
        case.assert_done(&when);
    }
}

/// The bookmarks of the former life are all that tells what it has committed last, and genesis takes their place.
#[test]
fn a_job_that_is_begun_anew_tells_its_sinks_what_the_former_life_has_committed() {
    for version in [0, 2] {
        let when = format!("untold former life v{version}");
        let case = Case::new(&when, On::Ours(version), "");
        case.die_untold(&when);
        let former: Vec<i64> = case.offsets().iter().map(|offset| offset.offset).collect();
        case.clear_every_id();
        case.step_each(TRANSACTION_STATE_TOPIC, |topic, partition| Step::Compact { topic, partition });
        case.leave_out_no_more(&case.sink());
        let ended = case.run(&["--fresh"]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        case.assert_begun_anew_behind(&former, &when);
    }
}

/// The next start finds the bookmarks of the life before, which the partition still shows.
#[test]
fn a_job_begun_anew_that_dies_before_the_offsets_partition_knows_of_it_is_gone_on_with() {
    for version in [0, 2] {
        let when = format!("untold new life v{version}");
        let case = Case::new(&when, On::Ours(version), "");
        let mut feed = case.feed();
        let ended = case.run(&["--set", "run.shards=1", "--crash-at", "K5:2"]);
        assert_eq!(ended.code, None, "{}", ended.err);
        let former: Vec<i64> = case.offsets().iter().map(|offset| offset.offset).collect();
        assert_eq!(feed.join().unwrap(), TOTAL);
        case.clear_every_id();
        case.leave_out(OFFSETS_TOPIC);
        let mut anew = case.start("anew", &["--fresh"]);
        let is_committed = || case.listed().iter().any(|(_, state)| state == "CompleteCommit");
        anew.until("its genesis is not committed", PATIENCE, |_| Ok(is_committed())).unwrap();
        anew.process().signal("KILL").unwrap();
        anew.wait(PATIENCE).unwrap();
        let shown: Vec<i64> = case.offsets().iter().map(|offset| offset.offset).collect();
        assert_eq!(shown, former, "{when}: the partition was not told");
        case.leave_out_no_more(OFFSETS_TOPIC);
        let ended = case.run(&[]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        case.assert_begun_anew_behind(&former, &when);
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
