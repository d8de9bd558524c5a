//! What has become of the source's topic, and of what is remembered of a job, while nobody ran it.

use super::*;

/// A copy of a topic with numbered records, made by a job that has not begun.
fn copying(name: &str, version: i16, start: &str) -> Case {
    let case = Case::new(name, On::Ours(version));
    Judge::shared().create_topic(&case.cluster.bootstrap(), "in", PARTITIONS as u32, &[]).unwrap();
    let text = fs::read_to_string(&case.bench.file).unwrap();
    let (head, rest) = text.split_once("[[source]]").unwrap();
    let (_, sink) = rest.split_once("[[sink]]").unwrap();
    let source = format!("[[source]]\ntopics = [\"in\"]\nstart = \"{start}\"\n[[sink]]");
    fs::write(&case.bench.file, format!("{head}{source}{sink}")).unwrap();
    case
}

impl Case {
    fn feed(&self, from: u64, count: u64) {
        let record = |id: u64| {
            Record::value(format!("{{\"id\":{id}}}").into_bytes()).to_partition((id % PARTITIONS) as i32)
        };
        let records: Vec<Record> = (from..from + count).map(record).collect();
        Judge::shared().produce(&self.cluster.bootstrap(), "in", &records).unwrap();
    }

    /// Runs until a reader sees so many records, and stops it.
    fn run_until(&self, wanted: usize, more: &[&str]) {
        let mut run = harness::run(&self.bench.file, more, &self.bench.path("run.log")).unwrap();
        let there = |_: &mut xtask::hapax::Run| Ok(self.read().concat().len() >= wanted);
        run.until(&format!("{wanted} records are not there"), PATIENCE, there).unwrap();
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, PATIENCE).unwrap();
    }
}

/// H37: the way back is closed, and what is left of the log is enough for another strategy.
#[test]
fn rewind_is_passed_over_where_the_source_has_lost_the_records() {
    for version in [0, 2] {
        let case = copying(&format!("trimmed-v{version}"), version, "earliest");
        case.feed(0, 400);
        case.die("K2:1", &[]);
        case.cluster.let_time_out(&case.job);
        Judge::shared().delete_records(&case.cluster.bootstrap(), "in", 1, 1).unwrap();
        let ended = case.run(&["resume", "rewind"]);
        ended.says(4, "E0404");
        assert!(ended.err.contains("passed over: rewind: "), "{}", ended.err);
        case.run_until(400, &allowed(&["resume", "rewrite"]).each_ref().map(String::as_str));
        let mut found = case.read().concat();
        found.sort_unstable();
        assert_eq!(found, (0..400).collect::<Vec<_>>(), "v{version}");
    }
}

/// H16: a job that begins at the end of its topics begins there once, whatever comes while it dies.
#[test]
fn a_job_that_begins_at_the_latest_offset_and_dies_at_once_misses_nothing_that_came_since() {
    for version in [0, 2] {
        let case = copying(&format!("latest-v{version}"), version, "latest");
        case.feed(0, 40);
        let mut first =
            harness::run(&case.bench.file, &["--crash-at", "K1:1"], &case.bench.path("first.log")).unwrap();
        let begun = |run: &mut xtask::hapax::Run| Ok(run.output()?.contains("claimed the job"));
        first.until("has not begun", PATIENCE, begun).unwrap();
        // Its start positions are in its record before it claims; nothing is decided before it dies.
        case.feed(40, 40);
        first.until("does not die", PATIENCE, |run| Ok(run.process().try_wait()?.is_some())).unwrap();
        case.feed(80, 40);
        case.run_until(80, &[]);
        let mut found = case.read().concat();
        found.sort_unstable();
        assert_eq!(found, (40..120).collect::<Vec<_>>(), "v{version}");
    }
}

/// H25: coordinators have forgotten the ids of a job that ended well, and its output is trimmed.
#[test]
fn a_job_that_ended_well_goes_on_although_nobody_remembers_its_ids() {
    for version in [0, 2] {
        let case = copying(&format!("forgotten-v{version}"), version, "earliest");
        case.feed(0, 400);
        case.run_until(400, &[]);
        let Cluster::Ours(hosted) = &case.cluster else { unreachable!("played on our broker") };
        hosted.broker.step(Step::ExpireTransactionalIds).unwrap();
        hosted.broker.step(Step::ExpireProducers).unwrap();
        for partition in 0..PARTITIONS as i32 {
            let ends = Judge::shared().end_offsets(&case.cluster.bootstrap(), &case.topic).unwrap();
            let end = ends.iter().find(|bounds| bounds.partition == partition).unwrap().end;
            Judge::shared().delete_records(&case.cluster.bootstrap(), &case.topic, partition, end).unwrap();
        }
        case.feed(400, 200);
        case.run_until(200, &[]);
        let mut found = case.read().concat();
        found.sort_unstable();
        assert_eq!(found, (400..600).collect::<Vec<_>>(), "v{version}");
    }
}

/// Neither store nor coordinators: nobody is left who could tell that it has run.
#[test]
fn a_job_whose_store_is_gone_and_whose_ids_are_forgotten_is_a_first_start() {
    for version in [0, 2] {
        let case = copying(&format!("nobody-v{version}"), version, "earliest");
        case.feed(0, 400);
        case.run_until(400, &[]);
        fs::remove_dir_all(case.bench.path("store")).unwrap();
        case.run(&["resume"]).says(4, "E0401");
        case.forget();
        case.run_until(800, &[]);
        let mut found = case.read().concat();
        found.sort_unstable();
        let twice: Vec<u64> = (0..400).flat_map(|id| [id, id]).collect();
        assert_eq!(found, twice, "v{version}");
    }
}
