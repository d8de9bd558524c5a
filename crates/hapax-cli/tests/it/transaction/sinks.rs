//! Several sinks of one job: each sees what was committed together, or at least once where that is all it promises.

use super::{Case, Mode, On, PARTITIONS, PATIENCE, Point, TOTAL, crash_at, judges};
use hapax_broker::{ApiKey, Rule};
use std::{
    fs,
    time::{Duration, Instant},
};
use xtask::judge::{Audit, Isolation};

impl Case {
    /// A second sink for a copy of the same records.
    fn and_to(&self, guarantee: &str) -> String {
        let second = format!("{}-second", self.job);
        judges().reader.create_topic(&self.bootstrap, &second, PARTITIONS, &[]).unwrap();
        let text = fs::read_to_string(&self.file).unwrap();
        let sink = format!("[[sink]]\ntopic = \"{second}\"\nguarantee = \"{guarantee}\"\n");
        fs::write(&self.file, text + &sink).unwrap();
        second
    }

    fn dies_and_goes_on(&self, point: Point) {
        let mut feed = self.feed();
        let mut first = self.start("first", &["--crash-at", &crash_at(point, Mode::Kill)]);
        Case::await_crash(&mut first, point, Mode::Kill);
        let mut second = self.start("second", &[]);
        assert_eq!(feed.join().unwrap(), TOTAL);
        second.demand_exit(0, PATIENCE).unwrap();
        self.assert_done(point.name());
    }
}

#[test]
fn two_sinks_of_a_cluster_are_one_transaction_and_both_exact() {
    for (version, point) in [(0, Point::K1oOffsetsTaken), (2, Point::K3EndTxnSent)] {
        let case = Case::new(&format!("two sinks v{version}"), On::Ours(version), "");
        let second = case.and_to("exactly-once");
        case.dies_and_goes_on(point);
        let report =
            judges().reader.audit(&case.bootstrap, &Audit::copy(&second, PARTITIONS, TOTAL)).unwrap();
        assert!(report.is_exact(), "v{version}: {report:?}");
    }
}

/// What was acknowledged before the positions were committed is there, whatever is written again.
#[test]
fn a_sink_of_at_least_once_beside_it_lacks_no_record() {
    for (version, point) in [(0, Point::K1Prepared), (2, Point::K1oOffsetsTaken)] {
        let case = Case::new(&format!("at least v{version}"), On::Ours(version), "");
        let second = case.and_to("at-least-once");
        case.dies_and_goes_on(point);
        let read = judges().reader.read_all(&case.bootstrap, &second, Isolation::ReadUncommitted).unwrap();
        let mut ids: Vec<u64> = read
            .iter()
            .flat_map(|partition| &partition.records)
            .map(|record| {
                let record: serde_json::Value = serde_json::from_str(&record.text()).unwrap();
                record["id"].as_u64().unwrap()
            })
            .collect();
        let written = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids, (0..TOTAL).collect::<Vec<_>>(), "v{version}");
        assert!(written as u64 > TOTAL, "the epoch that died was written twice: {written}");
    }
}

/// An epoch is ready when its last sink is: here one that takes nothing until its records are given up.
#[test]
fn a_sink_without_a_guarantee_that_takes_nothing_holds_the_exact_one_up() {
    const NOT_ENOUGH_REPLICAS: i16 = 19;
    const GIVEN_UP_AFTER: Duration = Duration::from_secs(4);
    let case = Case::new("held up", On::Ours(2), "");
    let none = case.and_to("none");
    let text = fs::read_to_string(&case.file).unwrap();
    fs::write(&case.file, format!("{text}delivery_timeout = \"{}s\"\n", GIVEN_UP_AFTER.as_secs())).unwrap();
    case.fill();
    let rule = Rule::on(ApiKey::Produce).topic(&*none).always().error(NOT_ENOUGH_REPLICAS);
    let refused = case.hosted.as_ref().unwrap().broker.faults().guard(rule).unwrap();
    let began = Instant::now();
    let ended = case.run(&["--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(began.elapsed() >= GIVEN_UP_AFTER, "nothing is committed before: {:?}", began.elapsed());
    assert!(refused.fired() > 0);
    assert_eq!(ended.summary()["dropped"], TOTAL);
    case.assert_done("held up");
}
