//! Batches that are larger than the topic allows, split while a barrier waits for them (KAFKA-19479: there, a flush
//! returned when the batch was gone and its halves were not sent).

use super::{
    case::{Case, count, everywhere},
    running::{OnReach, Running},
    scripted::Scripted,
};
use hapax::{Compression, Guarantee, crash::Point};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use xtask::{
    judge::Isolation,
    kafka::{Version, shared},
};

const RECORDS: u64 = 40;
const SMALL_TOPIC: &[(&str, &str)] = &[("max.message.bytes", "10000")];

/// One batch of 80 kB waits at the barrier, for a topic that takes 10 kB.
#[test]
fn a_barrier_waits_for_all_parts_of_a_split_batch() {
    for (version, guarantee) in everywhere() {
        let bootstrap = &shared(version).bootstrap;
        let mut source = Scripted::new(1, RECORDS);
        source.padding = |_| 2_000;
        source.allow(RECORDS);
        let name = format!("split-{guarantee:?}").to_lowercase();
        let mut case = Case::with_topic(&name, bootstrap, guarantee, source, SMALL_TOPIC);
        case.producer.linger = Duration::from_secs(60);
        case.producer.compression = Compression::None;
        let in_log = Arc::new(Mutex::new(Vec::new()));
        let (seen, topic) = (in_log.clone(), case.name.clone());
        let crash = OnReach::new(move |point, _| {
            if matches!(point, Point::K0BeforeFlush | Point::K1Prepared) {
                let records = count(bootstrap, &topic, Isolation::ReadUncommitted);
                seen.lock().unwrap().push((point, records));
            }
        });
        let summary = Running::start(case.plan(), crash).ended().finished();
        let in_log = in_log.lock().unwrap();
        assert_eq!(*in_log, [(Point::K0BeforeFlush, 0), (Point::K1Prepared, RECORDS)], "{name}");
        assert_eq!(summary.progress.runs, 1, "{name}: {summary:?}");
        let outcome = case.outcome();
        outcome.assert_complete();
        assert_eq!(outcome.report.duplicated, 0, "{name}: no part was sent twice");
    }
}

/// The part in front is still too large when the one behind it would fit, and the leader knows nothing of the producer
/// yet: appended before its time, it would keep the rest out for good.
#[test]
fn a_part_that_fits_waits_for_one_in_front_that_does_not() {
    for (version, guarantee) in everywhere() {
        let bootstrap = &shared(version).bootstrap;
        let mut source = Scripted::new(1, RECORDS);
        source.padding = |n| if n < 4 { 4_000 } else { 10 };
        source.allow(RECORDS);
        let name = format!("uneven-{guarantee:?}").to_lowercase();
        let mut case = Case::with_topic(&name, bootstrap, guarantee, source, SMALL_TOPIC);
        case.producer.compression = Compression::None;
        let summary = case.finish();
        assert_eq!(summary.progress.runs, 1, "{name}: {summary:?}");
        let outcome = case.outcome();
        outcome.assert_complete();
        assert_eq!((outcome.report.duplicated, outcome.report.reordered), (0, 0), "{name}");
    }
}

#[test]
fn without_a_guarantee_a_record_that_the_topic_refuses_is_counted_and_its_neighbours_arrive() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let mut source = Scripted::new(1, 10);
    source.padding = |n| if n == 4 { 20_000 } else { 10 };
    source.allow(10);
    let mut case = Case::with_topic("refused-record", bootstrap, Guarantee::None, source, SMALL_TOPIC);
    case.producer.compression = Compression::None;
    assert_eq!(case.settings.store, None, "no store is needed");
    let progress = case.finish().progress;
    assert_eq!((progress.dropped, progress.records_out, progress.runs), (1, 9, 1), "{progress:?}");
    let report = case.outcome().report;
    assert_eq!((report.lost, report.duplicated, report.reordered), (1, 0, 0), "{report:?}");
}
