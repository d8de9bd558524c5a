//! Records that cannot be handled, and topics that are not what they were.

use super::*;
use xtask::judge::{Isolation, Record};

fn produce(topic: &str, records: &[Record]) {
    Judge::shared().produce(bootstrap(), topic, records).unwrap();
}

/// Committed values of the job's output, partition by partition.
fn output(job: &Job) -> Vec<String> {
    let read = Judge::shared().read_all(bootstrap(), &job.sink, Isolation::ReadCommitted).unwrap();
    read.iter().flat_map(|partition| partition.records.iter().map(|record| record.text())).collect()
}

#[test]
fn a_program_that_fails_stops_at_its_record_or_is_counted() {
    let (job, source) = copied("record-program", "end = \"latest\"\n[[operator]]\njq = '{n: (10 - .n)}'");
    produce(
        &source,
        &["1", "\"x\"", "null", "2"].map(|n| Record::value(format!("{{\"n\":{n}}}")).to_partition(1)),
    );
    let place = format!("{source}-1 offset 1");
    job.run("stop", &[]).says(4, "E0406", &[&place, "the program fails", "on_error = \"skip\""]);
    assert!(output(&job).is_empty());
    let skipped = job.run("skip", &["--set", "operator.0.on_error=skip"]).done();
    assert_eq!((&skipped["skipped"], &skipped["records_out"]), (&2.into(), &2.into()));
    assert_eq!(output(&job), ["{\"n\":9}", "{\"n\":8}"]);
}

#[test]
fn a_topic_that_has_fewer_partitions_than_before_is_refused_and_what_was_decided_is_committed() {
    let (job, source) = copied("record-fewer", "end = \"latest\"");
    let fill = |topic: &str, partitions: u32| {
        Judge::shared().produce_numbers(bootstrap(), topic, &Numbers::new(partitions, 100)).unwrap();
    };
    fill(&source, PARTITIONS);
    let killed = job.run("first", &["--crash-at", "K2"]);
    assert_eq!(killed.code, None, "{}", killed.text);
    assert_eq!(output(&job).len(), 0, "the epoch waits for its commit");
    let anew = |topic: &str, partitions: u32| {
        Judge::shared().delete_topic(bootstrap(), topic).unwrap();
        Judge::shared().create_topic(bootstrap(), topic, partitions, &[]).unwrap();
    };
    anew(&source, 1);
    fill(&source, 1);
    let refused = |name: &str| {
        job.run(name, &[]).says(
            4,
            "E0407",
            &[&job.name, &source, "2 partitions then", "1 partitions now", "--fresh"],
        );
        job.bounds()
    };
    let after = refused("source");
    assert!(!output(&job).is_empty(), "what was decided is committed");
    assert!(after.iter().all(|bounds| bounds.end == bounds.stable_end), "{after:?}");
    assert_eq!(refused("again"), after, "nothing is written");
    anew(&job.sink, 1);
    let topics = format!("source.0.topics=[\"{}\"]", job.sink);
    let refused = job.run("sink", &["--set", &topics, "--drop", &source]);
    assert_eq!(refused.code, Some(4), "{}", refused.text);
    assert!(output(&job).is_empty());
}
