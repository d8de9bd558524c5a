//! Processes that are too many, that are asked to stop, that have nothing to do any more.

use super::*;
use xtask::judge::Isolation;

#[test]
fn a_second_run_of_a_job_takes_over_and_the_older_one_ends_with_code_5() {
    const COUNT: u64 = 6_000;
    let job = Job::new("two-runs", &generator(COUNT, 500));
    let mut older = job.start("older", &[]);
    job.await_committed(&mut older, 200);
    let newer = job.start("newer", &[]);
    Ended::of(older).says(5, "E0501", &[&job.name, "was superseded by run", "process"]);
    assert_eq!(Ended::of(newer).done()["finished"], true);
    job.is_exact(COUNT);
}

#[test]
fn of_runs_that_are_started_at_once_one_goes_on() {
    const COUNT: u64 = 4_500;
    let job = Job::new("at-once", &generator(COUNT, 500));
    let runs = ["a", "b", "c"].map(|name| job.start(name, &[]));
    let ended = runs.map(Ended::of);
    let (done, superseded): (Vec<_>, Vec<_>) = ended.iter().partition(|run| run.code == Some(0));
    assert_eq!(done.len(), 1, "{:?}", ended.iter().map(|run| &run.text).collect::<Vec<_>>());
    assert_eq!(done[0].done()["finished"], true);
    superseded.iter().for_each(|run| run.says(5, "E0501", &[&job.name]));
    job.is_exact(COUNT);
}

#[test]
fn sigterm_drains_commits_and_ends_with_code_0_within_its_budget() {
    let (job, source) = copied("sigterm", "");
    let feed = job.feed(&source);
    let mut run = job.start("first", &[]);
    job.await_committed(&mut run, 500);
    run.process().signal("TERM").unwrap();
    // The budget, and what the machine takes to end a process.
    let status = run.wait(Duration::from_secs(35)).unwrap();
    let ended = Ended { code: status.code(), text: run.output().unwrap() };
    let summary = ended.done();
    assert_eq!(summary["finished"], false);
    let written = feed.end().unwrap();
    let records = summary["records_out"].as_u64().unwrap();
    assert_eq!(records_of_a_cut(&job), records, "what was read is committed");
    assert!(written > records, "it stopped in the middle: {records} of {written}");

    let mut rest = job.start("rest", &[]);
    rest.await_committed(Judge::shared(), (bootstrap(), &job.sink), &[], written - 1, PATIENCE).unwrap();
    terminate(rest).done();
    job.is_exact(written);
}

/// Partitions stop at places of their own, each behind a record of it: its numbers are there from the first on, in
/// order. Answers how many there are.
fn records_of_a_cut(job: &Job) -> u64 {
    let read = Judge::shared().read_all(&job.bootstrap, &job.sink, Isolation::ReadCommitted).unwrap();
    let mut records = 0;
    for partition in read {
        let id =
            |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap()["id"].as_u64().unwrap();
        let ids: Vec<u64> = partition.records.iter().map(|record| id(record.text())).collect();
        let number = |at: u64| at * u64::from(PARTITIONS) + partition.bounds.partition as u64;
        let expected: Vec<u64> = (0..ids.len() as u64).map(number).collect();
        assert_eq!(ids, expected, "partition {}", partition.bounds.partition);
        records += ids.len() as u64;
    }
    records
}

#[test]
fn a_bounded_job_commits_its_tail_and_adds_nothing_when_it_is_run_again() {
    const COUNT: u64 = 777;
    let (job, source) = copied("tail", "end = \"latest\"");
    Judge::shared().produce_numbers(bootstrap(), &source, &Numbers::new(PARTITIONS, COUNT)).unwrap();
    // No barrier comes before the end of the input.
    let first = job.run("first", &["--set", "checkpoint.interval=200s"]).done();
    assert_eq!((&first["finished"], &first["records_out"]), (&true.into(), &COUNT.into()));
    job.is_exact(COUNT);
    // What came later is behind the end, which was fixed when the job was created.
    Judge::shared()
        .produce_numbers(bootstrap(), &source, &Numbers { from: COUNT, ..Numbers::new(PARTITIONS, 100) })
        .unwrap();
    let before = job.bounds();
    for name in ["second", "third"] {
        let again = job.run(name, &[]).done();
        assert_eq!(
            (&again["finished"], &again["records_in"], &again["records_out"]),
            (&true.into(), &0.into(), &0.into())
        );
    }
    assert_eq!(job.bounds(), before);
    job.is_exact(COUNT);
}
