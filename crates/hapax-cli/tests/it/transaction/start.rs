//! First starts, bounded ends, stops, idle partitions, and several runs at once.

use super::{Case, Mode, On, PARTITIONS, PATIENCE, Point, TOTAL, crash_at, judges, per_partition};
use crate::command_line::{Bench, hapax};
use std::{thread, time::Duration};
use xtask::judge::{GroupOffset, Outcome, Record};

/// A file that names neither a decider nor a store.
#[test]
fn a_copy_from_kafka_to_kafka_needs_no_store() {
    let case = Case::new("default", On::Ours(2), "");
    let text = std::fs::read_to_string(&case.file).unwrap();
    std::fs::write(&case.file, text.replace("decider = \"transaction\"\n", "")).unwrap();
    case.fill();
    let ended = case.run(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    case.assert_done("by default");
    case.give_store();
    case.run(&[]).says(2, "say that it runs with decider \"transaction\"");
}

#[test]
fn a_job_without_a_store_starts_finishes_and_adds_nothing_when_it_is_run_again() {
    for version in [0, 2] {
        let case = Case::new(&format!("plain v{version}"), On::Ours(version), "");
        case.fill();
        let ended = case.run(&["--json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let summary = ended.summary();
        assert_eq!((&summary["records_in"], &summary["records_out"]), (&TOTAL.into(), &TOTAL.into()));
        assert_eq!(summary["finished"], true);
        case.assert_done("finished");
        let again = case.run(&["--json"]);
        assert_eq!((again.code, &again.summary()["records_in"]), (Some(0), &0.into()), "{}", again.err);
        case.assert_done("finished and run again");
    }
}

/// An offset that is not committed again expires by itself while the job runs.
#[test]
fn every_partition_of_a_shard_is_committed_each_time() {
    let case = Case::new("idle", On::Ours(2), "[run]\nshards = 1");
    let records: Vec<Record> = (0..per_partition())
        .map(|n| Record::new("k", format!("{{\"id\":{n}}}").into_bytes()).to_partition(0))
        .collect();
    judges().reader.produce(&case.bootstrap, &case.source(), &records).unwrap();
    let ended = case.run(&["--crash-at", "K5:1"]);
    assert_eq!(ended.code, None, "{}", ended.err);
    let offsets = case.offsets();
    assert_eq!(offsets.len(), PARTITIONS as usize);
    let marks: Vec<&str> =
        offsets.iter().map(|offset| offset.metadata.split("\"at\"").next().unwrap()).collect();
    assert!(marks[0].contains("\"epoch\":1"), "{}", marks[0]);
    assert!(marks.iter().all(|mark| *mark == marks[0]), "one transaction committed all: {marks:?}");
}

#[test]
fn a_first_start_that_dies_before_its_end_is_done_again() {
    for point in [Point::K0BeforeFlush, Point::K1Prepared] {
        let case = Case::new(&format!("first-{point}"), On::Ours(2), "");
        case.fill();
        let ended = case.run(&["--crash-at", &format!("{point}:1")]);
        assert_eq!(ended.code, None, "{}", ended.err);
        assert_eq!(case.run(&[]).code, Some(0));
        case.assert_done("begun twice");
    }
}

#[test]
fn a_stopped_job_has_committed_what_it_read() {
    let case = Case::new("sigterm", On::Ours(2), "");
    let mut feed = case.feed();
    let mut first = case.start("first", &[]);
    let sink = case.sink();
    first.await_committed(&judges().reader, (&case.bootstrap, &sink), &[], 80, PATIENCE).unwrap();
    first.process().signal("TERM").unwrap();
    first.demand_exit(0, PATIENCE).unwrap();
    assert!(case.open().is_empty(), "a stopped job leaves nothing open");
    assert_eq!(feed.join().unwrap(), TOTAL);
    assert_eq!(case.run(&[]).code, Some(0));
    case.assert_done("stopped and run again");
}

/// No store stands between them: the brokers' identities alone say whose job it is.
#[test]
fn of_several_runs_at_once_one_does_the_work_and_no_record_is_written_twice() {
    for (version, count) in [(0, 2), (2, 3)] {
        let case = Case::new(&format!("{count} at once v{version}"), On::Ours(version), "");
        let mut feed = case.feed();
        let mut runs: Vec<_> = (0..count).map(|n| case.start(&format!("run-{n}"), &[])).collect();
        assert_eq!(feed.join().unwrap(), TOTAL);
        let codes: Vec<Option<i32>> = runs.iter_mut().map(|run| run.wait(PATIENCE).unwrap().code()).collect();
        assert!(codes.iter().all(|code| matches!(code, Some(0 | 5))), "{codes:?}");
        assert!(codes.contains(&Some(0)), "somebody did the work: {codes:?}");
        case.assert_done(&format!("{count} at once"));
    }
}

#[test]
fn a_job_that_is_killed_again_and_again_ends_with_every_record_once() {
    for version in [0, 2] {
        let case = Case::new(&format!("kills v{version}"), On::Ours(version), "");
        let mut feed = case.feed();
        let mut killed = 0;
        for n in 0..20_u64 {
            let point = Point::TRANSACTION[(n % 6) as usize];
            let mut run = case.start(&format!("run-{n}"), &["--crash-at", &format!("{point}:{}", 1 + n % 3)]);
            let status = run.wait(PATIENCE).unwrap();
            killed += u32::from(status.code().is_none());
            if status.code() == Some(0) {
                break;
            }
        }
        assert!(killed >= 10, "{killed} kills");
        assert_eq!(feed.join().unwrap(), TOTAL);
        assert_eq!(case.run(&[]).code, Some(0));
        case.assert_done("killed again and again");
    }
}

#[test]
fn a_decider_that_does_not_fit_is_refused_before_anything_is_touched() {
    let text = "job = \"a\"\ndecider = \"transaction\"\n[[source]]\ngenerator = { count = 9 }\n[[sink]]\n\
                file = \"PATH/out\"\nguarantee = \"at-least-once\"\n";
    let bench = Bench::new("no-transaction", text);
    bench.run(&[]).says(2, "needs exactly-once sinks on one Kafka cluster");
    assert!(!bench.path("out").exists());
    let case = Case::new("recovered", On::Ours(2), "");
    case.run(&["--recover", "rewind"]).says(2, "--recover rewind has nothing to resolve");
    case.run(&["--from", "1"]).says(2, "--from 1 goes back to a checkpoint");
    assert!(case.offsets_now().is_empty());
}

#[test]
fn a_person_sees_epoch_and_positions_and_may_end_nothing() {
    let case = Case::new("described", On::Ours(2), "");
    case.fill();
    assert_eq!(case.run(&[]).code, Some(0));
    let file = case.file.to_str().unwrap();
    let seen = hapax(&["txn", "describe", file]);
    assert_eq!(seen.code, Some(0), "{}", seen.err);
    assert_eq!(seen.out.lines().count(), 3 * PARTITIONS as usize, "{}", seen.out);
    let first = seen.out.lines().next().unwrap();
    assert!(first.contains("decider transaction, epoch "), "{first}");
    assert!(first.contains(&format!("next: main/{}/0 {}", case.source(), per_partition())), "{first}");
    let id = format!("{}.main.0.0", case.job);
    hapax(&["txn", "abort", file, &id]).says(2, "no transaction of it is in doubt");
}

/// A run that has nothing to do learns of its successor all the same.
#[test]
fn an_idle_run_finds_out_that_another_one_has_taken_over() {
    let case = Case::new("idle-zombie", On::Ours(2), "");
    let mut first = case.start("first", &[]);
    let began = std::time::Instant::now();
    while case.offsets_now().len() < PARTITIONS as usize {
        assert!(began.elapsed() < PATIENCE, "start positions are committed");
        thread::sleep(Duration::from_millis(50));
    }
    let mut second = case.start("second", &[]);
    first.demand_exit(5, PATIENCE).unwrap();
    case.fill();
    second.demand_exit(0, PATIENCE).unwrap();
    case.assert_done("taken over while idle");
}

/// Offsets that an open transaction may change cannot be read: its id is cleared before.
#[test]
fn offsets_in_the_transaction_of_a_run_that_sleeps_hold_nobody_back() {
    let case = Case::new("slept-in-group", On::Ours(2), "");
    let mut feed = case.feed();
    let mut first = case.start("first", &["--crash-at", &crash_at(Point::K1oOffsetsTaken, Mode::Stop)]);
    Case::await_crash(&mut first, Point::K1oOffsetsTaken, Mode::Stop);
    let mut second = case.start("second", &[]);
    assert_eq!(feed.join().unwrap(), TOTAL);
    second.demand_exit(0, PATIENCE).unwrap();
    first.process().kill().unwrap();
    case.assert_done("not held back");
}

/// The committed offsets of an aborted input transaction are those of the next record to read, as everywhere.
#[test]
fn input_that_was_aborted_is_passed_over_and_its_offsets_are_committed() {
    let case = Case::new("aborted-input", On::Ours(2), "");
    let sink = case.sink();
    let text = std::fs::read_to_string(&case.file).unwrap();
    let endless: Vec<&str> = text.lines().filter(|line| !line.starts_with("end =")).collect();
    std::fs::write(&case.file, endless.join("\n")).unwrap();
    let records: Vec<Record> = (0..40)
        .map(|n| Record::new("k", format!("{{\"id\":{n}}}").into_bytes()).to_partition(n % PARTITIONS as i32))
        .collect();
    judges()
        .reader
        .produce_transactional(
            &case.bootstrap,
            &case.source(),
            &records,
            "somebody-else",
            Duration::from_secs(30),
            Outcome::Abort,
        )
        .unwrap();
    let mut run = case.start("run", &[]);
    let began = std::time::Instant::now();
    // Ten records and a marker in each partition; nothing comes out of it.
    let is_passed = |offsets: &[GroupOffset]| {
        offsets.len() == PARTITIONS as usize && offsets.iter().all(|offset| offset.offset >= 11)
    };
    while !is_passed(&case.offsets_now()) {
        assert!(began.elapsed() < PATIENCE, "{:?}", case.offsets_now());
        thread::sleep(Duration::from_millis(50));
    }
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, PATIENCE).unwrap();
    let written = judges().reader.end_offsets(&case.bootstrap, &sink).unwrap();
    assert!(
        written.iter().all(|bounds| bounds.stable_end == 0),
        "no transaction leaves a marker: {written:?}"
    );
}
