//! Positions on a carrier topic: sources that are not Kafka, or on another cluster than the sinks.

use super::{Case, Hosted, Mode, On, PARTITIONS, PATIENCE, Point, TOTAL, crash_at, judges, per_partition};
use crate::harness::Trickle;
use std::{fmt::Write as _, fs};
use xtask::judge::{Audit, Expected};

const VALUE: &str = r#"{"id":$id}"#;

impl Case {
    fn carrier(&self) -> String {
        format!("{}.progress", self.job)
    }

    /// One offset for each shard, of a topic without records; and every number once, in the order of its source.
    fn assert_carried(&self, shards: usize, when: &str) {
        let offsets = self.offsets();
        assert_eq!(offsets.len(), shards, "{when}: {offsets:?}");
        assert!(offsets.iter().all(|offset| offset.topic == self.carrier() && offset.offset == 0), "{when}");
        let bounds = judges().reader.end_offsets(&self.bootstrap, &self.carrier()).unwrap();
        assert!(bounds.iter().all(|bounds| bounds.stable_end == 0), "{when}: it has no records");
        self.await_nothing_open(when);
        let audit = Audit {
            topics: vec![self.sink()],
            expected: Expected::Range { from: 0, count: TOTAL },
            field: "id".to_owned(),
            source_partitions: PARTITIONS,
            value: None,
        };
        let report = judges().reader.audit(&self.bootstrap, &audit).unwrap();
        assert!(report.is_exact(), "{when}: {report:?}");
    }

    /// Dies when it has come to each point so often, in turn; then comes to its end. So many of the points are reached at
    /// least before everything is written.
    fn kill_at_every_point(&self, shards: usize, reach: usize, least: u32, when: &str) {
        let mut killed = 0;
        for point in Point::TRANSACTION {
            let at = format!("{point}:{reach}");
            let ended = self.run(&["--set", "checkpoint.interval=100ms", "--crash-at", &at]);
            assert!(matches!(ended.code, None | Some(0)), "{when} {point}: {}", ended.err);
            killed += u32::from(ended.code.is_none());
        }
        assert!(killed >= least, "{when}: {killed} kills");
        let ended = self.run(&[]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        self.assert_carried(shards, when);
    }
}

#[test]
fn a_generators_positions_stand_beside_a_topic_of_their_own() {
    for version in [0, 2] {
        let when = format!("generated v{version}");
        let case = Case::new(&when, On::Ours(version), "");
        let source = format!(
            "[[source]]\ngenerator = {{ count = {TOTAL}, rate = 400, partitions = {PARTITIONS}, value = '{VALUE}' }}\n"
        );
        case.write("transaction_timeout = \"60s\"\n", &source);
        let shards = PARTITIONS as usize;
        case.kill_at_every_point(shards, shards + 1, 6, &when);
    }
}

#[test]
fn a_files_positions_stand_beside_a_topic_of_their_own() {
    let case = Case::new("lines", On::Ours(2), "");
    let mut text = String::new();
    (0..TOTAL).for_each(|id| writeln!(text, "{{\"id\":{id}}}").unwrap());
    fs::write(case.folder.join("in.ndjson"), text).unwrap();
    case.write("transaction_timeout = \"60s\"\n", "[[source]]\nfile = \"PATH/in.ndjson\"\n");
    // All of it is one epoch, and is written when its commit was sent.
    case.kill_at_every_point(1, 1, 3, "lines");
}

/// H13: the sink's cluster does not have the source's topics, and refuses offsets of them.
#[test]
fn positions_in_another_cluster_stand_beside_a_topic_of_the_sinks_cluster() {
    let case = Case::new("two clusters", On::Ours(2), "");
    let other = Hosted::of_seed(2, 4_711);
    let source = case.source();
    let bootstrap = other.broker.bootstrap();
    judges().reader.create_topic(&bootstrap, &source, PARTITIONS, &[]).unwrap();
    let text = case.kafka_source().replace("[[source]]", "[[source]]\ncluster = \"other\"");
    let text = format!("[cluster.other]\nbrokers = \"{bootstrap}\"\n{text}");
    case.write("transaction_timeout = \"60s\"\n", &text);
    let file = fs::read_to_string(&case.file).unwrap();
    fs::write(&case.file, file.replace("[[sink]]", "[[sink]]\ncluster = \"main\"")).unwrap();
    let mut feed = Trickle::start(&judges().feeder, &bootstrap, &source, super::INPUT);
    let mut first = case.start("first", &["--crash-at", &crash_at(Point::K1oOffsetsTaken, Mode::Kill)]);
    Case::await_crash(&mut first, Point::K1oOffsetsTaken, Mode::Kill);
    let mut second = case.start("second", &[]);
    assert_eq!(feed.join().unwrap(), TOTAL);
    second.demand_exit(0, PATIENCE).unwrap();
    case.assert_carried(PARTITIONS as usize, "two clusters");
    let marks = case.offsets();
    let end = format!("\"next\":{}", per_partition());
    assert!(marks.iter().all(|mark| mark.metadata.contains(&end)), "{marks:?}");
}

#[test]
fn positions_that_would_not_fit_beside_an_offset_are_refused_before_the_first_record() {
    let case = Case::new("too long", On::Ours(2), "");
    let source =
        format!("[[source]]\ngenerator = {{ count = 10000, partitions = 500, value = '{VALUE}' }}\n");
    case.write("transaction_timeout = \"60s\"\n[run]\nshards = 2", &source);
    let ended = case.run(&[]);
    ended.says(2, "the positions of shard 0 (250 splits) take up to");
    ended.says(2, "the broker takes 4096 (offset.metadata.max.bytes)");
    assert!(!judges().reader.topics(&case.bootstrap).unwrap().contains(&case.carrier()), "nothing was made");
    let ended = case.run(&["--set", "run.shards=100", "--crash-at", "K5:3"]);
    assert_eq!(ended.code, None, "more shards have less each: {}", ended.err);
}

#[test]
fn a_carrier_topic_that_was_deleted_is_no_first_start() {
    let case = Case::new("no carrier", On::Ours(2), "");
    let source =
        format!("[[source]]\ngenerator = {{ rate = 400, partitions = {PARTITIONS}, value = '{VALUE}' }}\n");
    case.write("transaction_timeout = \"60s\"\n", &source);
    assert_eq!(case.run(&["--crash-at", "K5:8"]).code, None);
    judges().reader.delete_topic(&case.bootstrap, &case.carrier()).unwrap();
    case.run(&[]).says(4, "E0420");
}

/// Bookmarks of two lives together would be nobody's progress.
#[test]
fn a_job_that_is_begun_anew_with_fewer_places_takes_its_bookmarks_off_the_others() {
    let case = Case::new("fewer", On::Ours(2), "");
    let source =
        format!("[[source]]\ngenerator = {{ rate = 400, partitions = {PARTITIONS}, value = '{VALUE}' }}\n");
    case.write("transaction_timeout = \"60s\"\n", &source);
    assert_eq!(case.run(&["--crash-at", "K5:8"]).code, None);
    case.write("transaction_timeout = \"60s\"\n[run]\nshards = 2", &source);
    let anew = case.run(&["--fresh", "--crash-at", "K5:3"]);
    assert_eq!(anew.code, None, "{}", anew.err);
    let marked = case.offsets().iter().filter(|offset| !offset.metadata.is_empty()).count();
    assert_eq!(marked, 2);
    let next = case.run(&["--crash-at", "K5:6"]);
    assert_eq!(next.code, None, "it goes on: {}", next.err);
}

/// Its ids are named after the cluster: under another name nobody would fence those that it had.
#[test]
fn a_cluster_that_is_called_otherwise_is_refused_before_an_id_is_cleared() {
    let case = Case::new("called", On::Ours(2), "");
    let source =
        format!("[[source]]\ngenerator = {{ rate = 400, partitions = {PARTITIONS}, value = '{VALUE}' }}\n");
    case.write("transaction_timeout = \"60s\"\n", &source);
    assert_eq!(case.run(&["--crash-at", "K1:8"]).code, None);
    let open = case.open();
    assert!(!open.is_empty());
    let text = fs::read_to_string(&case.file).unwrap();
    fs::write(&case.file, text.replace("[cluster.main]", "[cluster.other]")).unwrap();
    let ended = case.run(&[]);
    ended.says(2, "E0205");
    ended.says(2, "its transactional ids are named after [cluster.main]");
    assert_eq!(case.open(), open, "nothing was touched");
    fs::write(&case.file, text).unwrap();
    assert_eq!(case.run(&["--crash-at", "K5:4"]).code, None, "as it was, it goes on");
}
