//! Checkpoint stores that are another job's, another cluster's, empty, old or damaged: refused before anything is
//! cleared, read or written.

use super::*;
use hapax_commit::{Identity, ProducerEpoch};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client, ClientConfig,
    transaction::{self, EndMarker},
};

/// Copies what is there now, as far as a job that writes it lets it be copied.
fn put_in_place(of: &Path, copied: &Path) {
    fs::remove_dir_all(of).unwrap();
    copy(copied, of);
}

#[test]
fn a_store_of_another_job_is_refused_untouched() {
    let (mine, other) =
        (Job::new("store-mine", &generator(200, 100_000)), Job::new("store-other", &generator(200, 100_000)));
    mine.run("mine", &[]).done();
    let store = format!("checkpoint.store=file://{}", mine.store.display());
    let refused = other.run("refused", &["--set", &store]);
    refused.says(4, "E0403", &[&other.name, &mine.name, mine.store.to_str().unwrap(), "--fresh"]);
    assert!(other.traces().0.is_empty(), "no id of the job was touched");
    assert!(other.bounds().iter().all(|bounds| bounds.end == 0));
    mine.is_exact(200);
}

#[test]
fn a_store_of_another_cluster_is_refused_untouched() {
    let elsewhere = &shared(Version::V3_9).bootstrap;
    let job = Job::new("store-cluster", &generator(200, 100_000));
    job.run("first", &[]).done();
    Judge::shared().create_topic(elsewhere, &job.sink, PARTITIONS, &[]).unwrap();
    let refused = job.run("refused", &["--set", &format!("cluster.main.brokers={elsewhere}")]);
    refused.says(
        4,
        "E0403",
        &[&job.name, "cluster main has id", job.store.to_str().unwrap(), "[cluster.main]"],
    );
    let there = transactions(elsewhere).unwrap();
    assert!(!there.iter().any(|listed| listed.id.starts_with(&job.name)), "no id was touched there");
    assert!(Judge::shared().end_offsets(elsewhere, &job.sink).unwrap().iter().all(|bounds| bounds.end == 0));
    job.run("again", &[]).done();
    job.is_exact(200);
}

#[test]
fn an_empty_store_of_a_known_job_is_an_unmounted_volume_until_fresh_is_asked_for() {
    const COUNT: u64 = 10_000;
    let job = Job::new("store-empty", &generator(COUNT, 500));
    let mut first = job.start("first", &[]);
    job.await_committed(&mut first, 200);
    terminate(first).done();
    let before = job.traces();
    assert!(!before.0.is_empty());

    let away = job.folder.join("away");
    fs::rename(&job.store, &away).unwrap();
    for arguments in [&[][..], &["--set", "run.shards=1"]] {
        job.run("refused", arguments).says(
            4,
            "E0401",
            &[&job.name, job.store.to_str().unwrap(), "nothing was cleared", "--fresh"],
        );
    }
    assert_eq!(job.traces(), before, "nothing was cleared and nothing was written");
    put_in_place(&job.store, &away);
    job.run("back", &["--set", "source.0.generator.rate=100000"]).done();
    job.is_exact(COUNT);

    fs::remove_dir_all(&job.store).unwrap();
    let anew = job.run("anew", &["--fresh", "--set", "source.0.generator.rate=100000"]).done();
    assert_eq!((&anew["finished"], &anew["records_out"]), (&true.into(), &COUNT.into()));
    let audit = Audit { value: None, ..Audit::copy(&job.sink, PARTITIONS, COUNT) };
    let report = Judge::shared().audit(bootstrap(), &audit).unwrap();
    assert_eq!((report.lost, report.duplicated, report.records), (0, COUNT, 2 * COUNT), "{report:?}");
}

/// The folder of the job's first life, and its slots in order.
fn first_life(job: &Job) -> (PathBuf, Vec<PathBuf>) {
    let life = job.store.join(&job.name).join("1");
    let mut slots: Vec<PathBuf> =
        fs::read_dir(life.join("chain").join("0")).unwrap().map(|entry| entry.unwrap().path()).collect();
    slots.retain(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.'));
    slots.sort();
    (life, slots)
}

#[test]
fn a_store_that_has_lost_its_newest_files_is_refused_untouched() {
    const COUNT: u64 = 10_000;
    let job = Job::new("store-newest", &generator(COUNT, 500));
    let mut first = job.start("first", &[]);
    job.await_committed(&mut first, 1_000);
    terminate(first).done();
    let before = job.traces();
    let whole = job.folder.join("whole");
    copy(&job.store, &whole);
    // The newest is a proof, which the run after it finds again by itself.
    for lost in [2, 3, 4] {
        let (_, slots) = first_life(&job);
        slots.iter().rev().take(lost).for_each(|slot| fs::remove_file(slot).unwrap());
        job.run("lost", &[]).says(
            4,
            "E0402",
            &[&job.name, "ahead of the checkpoint store", "nothing was cleared"],
        );
        assert_eq!(job.traces(), before, "{lost} slots: nothing was cleared and nothing was written");
        put_in_place(&job.store, &whole);
    }
    job.run("whole", &["--set", "source.0.generator.rate=100000"]).done();
    job.is_exact(COUNT);
}

/// A coordinator that starts again writes the markers of a decided transaction again.
#[test]
fn a_marker_that_stands_there_twice_is_not_taken_for_a_commit_that_the_store_does_not_know() {
    let (job, source) = copied("store-marker", "");
    let fill = |from: u64| {
        let numbers = Numbers { from, ..Numbers::new(PARTITIONS, 100) };
        Judge::shared().produce_numbers(bootstrap(), &source, &numbers).unwrap();
    };
    let run = |name: &str, committed: i64| {
        let mut run = job.start(name, &[]);
        // Where nothing is left to be committed: before it has claimed the job, a signal may end it at once.
        run.until("claims the job", PATIENCE, |run| Ok(run.output()?.contains("claimed the job"))).unwrap();
        job.await_committed(&mut run, committed);
        terminate(run).done();
    };
    fill(0);
    run("first", 100);
    mark_again(&job.sink);
    // Each start clears the ids again, so that coordinators know less and less of what was committed.
    (0..3).for_each(|number| run(&format!("idle-{number}"), 100));
    fill(100);
    run("last", 200);
    job.is_exact(200);
}

/// Writes the newest marker of every producer of a topic once more.
fn mark_again(topic: &str) {
    let config = ClientConfig::new(ClientConfig::parse_bootstrap(bootstrap()).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(Host::real(), config).await.unwrap();
        let soon = || Deadline::after(client.host().now(), Some(PATIENCE));
        for partition in 0..PARTITIONS as i32 {
            let producers = transaction::describe_producers(&client, topic, partition, soon()).await.unwrap();
            assert!(!producers.is_empty());
            for producer in producers {
                let identity = Identity {
                    producer_id: producer.producer_id,
                    producer_epoch: ProducerEpoch(producer.producer_epoch as i16),
                };
                let coordinator_epoch = producer.coordinator_epoch.unwrap();
                let marker = EndMarker { identity, commit: true, coordinator_epoch };
                let unanswered = std::sync::atomic::AtomicUsize::new(0);
                let written =
                    transaction::write_end_marker(&client, topic, partition, marker, soon(), &unanswered);
                written.await.unwrap();
            }
        }
    });
}

#[test]
fn a_job_without_its_record_is_refused_and_begins_anew_from_the_start() {
    const COUNT: u64 = 400;
    let job = Job::new("store-record", &generator(COUNT, 100_000));
    job.run("first", &[]).done();
    let record = first_life(&job).0.join("job");
    for damaged in [None, Some(Vec::new())] {
        match &damaged {
            None => fs::remove_file(&record).unwrap(),
            Some(bytes) => fs::write(&record, bytes).unwrap(),
        }
        job.run("refused", &[]).says(6, "E0602", &[&job.name, "--fresh"]);
        let anew = job.run("anew", &["--fresh"]).done();
        assert_eq!((&anew["finished"], &anew["records_out"]), (&true.into(), &COUNT.into()));
        for life in ["2", "3"] {
            let _ = fs::remove_dir_all(job.store.join(&job.name).join(life));
        }
    }
    let audit = Audit { value: None, ..Audit::copy(&job.sink, PARTITIONS, COUNT) };
    let report = Judge::shared().audit(bootstrap(), &audit).unwrap();
    assert_eq!((report.lost, report.records), (0, 3 * COUNT), "{report:?}");
}

/// The older process is in the middle of its work, and fails because its ids are fenced.
#[test]
fn a_run_that_is_begun_anew_elsewhere_ends_with_exit_code_5() {
    const COUNT: u64 = 20_000;
    for interval in ["checkpoint.interval=3s", "checkpoint.interval=100ms"] {
        let job = Job::new("store-anew", &generator(COUNT, 200));
        let mut old = job.start("old", &["--set", interval]);
        let open = |_: &mut Run| Ok(job.bounds().iter().any(|bounds| bounds.end > 0));
        old.until("has written", PATIENCE, open).unwrap();
        let faster = "source.0.generator.rate=100000";
        let anew = job.run("new", &["--fresh", "--set", faster, "--set", "run.start_timeout=60s"]).done();
        assert_eq!((&anew["finished"], &anew["records_out"]), (&true.into(), &COUNT.into()));
        Ended::of(old).says(5, "E0501", &[&job.name]);
    }
}

#[test]
fn what_a_former_job_left_open_is_ended_also_on_shards_that_there_are_no_more() {
    const COUNT: u64 = 20_000;
    let job = Job::new("store-shards", &generator(COUNT, 500));
    let never = ["--set", "checkpoint.interval=200s"];
    let mut former = job.start("former", &never);
    let open = |_: &mut Run| Ok(job.bounds().iter().all(|bounds| bounds.end > bounds.stable_end));
    former.until("has written into a transaction of each shard", PATIENCE, open).unwrap();
    former.process().kill().unwrap();
    let anew = job
        .run("anew", &["--fresh", "--set", "run.shards=1", "--set", "source.0.generator.rate=100000"])
        .done();
    assert_eq!((&anew["finished"], &anew["records_out"]), (&true.into(), &COUNT.into()));
    job.is_exact(COUNT);
    // Nothing is left to inherit, and nothing is inherited twice.
    job.run("again", &["--set", "run.shards=1"]).done();
    job.is_exact(COUNT);
}

#[test]
fn an_old_copy_of_a_store_is_refused_untouched() {
    const COUNT: u64 = 10_000;
    let job = Job::new("store-copy", &generator(COUNT, 500));
    let (live, stopped, newest) =
        (job.folder.join("live"), job.folder.join("stopped"), job.folder.join("newest"));
    let mut run = job.start("first", &[]);
    job.await_committed(&mut run, 200);
    copy(&job.store, &live);
    terminate(run).done();
    copy(&job.store, &stopped);
    let after = job.bounds().iter().map(|bounds| bounds.end).sum::<i64>();
    let mut run = job.start("second", &[]);
    job.await_committed(&mut run, after + 200);
    terminate(run).done();
    copy(&job.store, &newest);
    let before = job.traces();

    for (name, old) in [("live", &live), ("stopped", &stopped)] {
        put_in_place(&job.store, old);
        let refused = job.run(name, &[]);
        refused.says(
            4,
            "E0402",
            &[&job.name, "ahead of the checkpoint store", "nothing was cleared", "CompleteCommit"],
        );
        assert_eq!(job.traces(), before, "{name}: nothing was cleared and nothing was written");
        let folder = job.folder.join("store.incidents");
        let incident = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| refused.text.contains(path.to_str().unwrap()));
        let incident = fs::read_to_string(incident.expect("the message names the incident's file")).unwrap();
        let incident: serde_json::Value = serde_json::from_str(&incident).unwrap();
        assert_eq!(incident["code"], "E0402");
    }
    put_in_place(&job.store, &newest);
    job.run("back", &["--set", "source.0.generator.rate=100000"]).done();
    job.is_exact(COUNT);
}

/// A start clears every id, which takes away what coordinators knew of commits. The control batches in the output
/// still tell, so an old copy is found out even if the job was started, and wrote nothing, since.
#[test]
fn an_old_copy_of_a_store_is_refused_after_a_start_that_wrote_nothing() {
    let (job, source) = copied("store-idle", "");
    // So that the copy has a transaction of each id.
    let start = |name: &str| job.start(name, &["--set", "checkpoint.keep=20"]);
    let burst = |run: &mut Run, from: u64| {
        let numbers = Numbers { from, ..Numbers::new(PARTITIONS, 100) };
        Judge::shared().produce_numbers(bootstrap(), &source, &numbers).unwrap();
        let last = numbers.from + numbers.count;
        for partition in 0..u64::from(PARTITIONS) {
            let output = (bootstrap(), job.sink.as_str());
            run.await_committed(Judge::shared(), output, &[], last - 1 - partition, PATIENCE).unwrap();
        }
    };
    let mut first = start("first");
    [0, 100, 200].into_iter().for_each(|from| burst(&mut first, from));
    terminate(first).done();
    let old = job.folder.join("old");
    copy(&job.store, &old);
    let mut second = start("second");
    burst(&mut second, 300);
    terminate(second).done();
    let mut idle = start("idle");
    let cleared = |_: &mut Run| Ok(job.traces().0.iter().all(|listed| listed.state == "Empty"));
    idle.until("has cleared every id", PATIENCE, cleared).unwrap();
    terminate(idle).done();
    let before = job.traces();

    put_in_place(&job.store, &old);
    let refused = Ended::of(start("refused"));
    refused.says(
        4,
        "E0402",
        &[&job.name, "ahead of the checkpoint store", "nothing was cleared", "has a commit"],
    );
    assert_eq!(job.traces(), before, "nothing was cleared and nothing was written");
    job.is_exact(400);
}

/// The copy is older than the first checkpoint: its chain names ids and no transaction.
#[test]
fn a_copy_from_before_the_first_checkpoint_is_refused_untouched() {
    let (job, source) = copied("store-early", "");
    let early = job.folder.join("early");
    let mut run = job.start("first", &[]);
    let claimed = |run: &mut Run| Ok(run.output()?.contains("claimed the job"));
    run.until("has claimed the job", PATIENCE, claimed).unwrap();
    copy(&job.store, &early);
    Judge::shared().produce_numbers(bootstrap(), &source, &Numbers::new(PARTITIONS, 100)).unwrap();
    run.await_committed(Judge::shared(), (bootstrap(), &job.sink), &[], 99, PATIENCE).unwrap();
    terminate(run).done();
    let before = job.traces();
    put_in_place(&job.store, &early);
    job.run("refused", &[]).says(
        4,
        "E0402",
        &[&job.name, "ahead of the checkpoint store", "nothing was cleared"],
    );
    assert_eq!(job.traces(), before, "nothing was cleared and nothing was written");
    job.is_exact(100);
}

#[test]
fn a_damaged_object_is_named_and_nothing_is_used() {
    let job = Job::new("store-damaged", &generator(400, 2_000));
    job.run("first", &[]).done();
    let (life, slots) = first_life(&job);
    let chain = life.join("chain/0");
    let before = job.traces();
    let flipped = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bytes
    };
    let damages: [(&Path, Vec<u8>); 5] = [
        (slots.last().unwrap(), flipped(&fs::read(slots.last().unwrap()).unwrap())),
        (&slots[0], flipped(&fs::read(&slots[0]).unwrap())),
        (slots.last().unwrap(), fs::read(slots.last().unwrap()).unwrap()[..20].to_vec()),
        (slots.last().unwrap(), Vec::new()),
        (&life.join("job"), flipped(&fs::read(life.join("job")).unwrap())),
    ];
    for (path, damaged) in damages {
        let whole = fs::read(path).unwrap();
        fs::write(path, damaged).unwrap();
        job.run("damaged", &[]).says(
            6,
            "E0602",
            &[&job.name, path.to_str().unwrap(), "damaged; nothing was used"],
        );
        fs::write(path, whole).unwrap();
    }
    let claim = fs::read(&slots[0]).unwrap();
    fs::remove_file(&slots[0]).unwrap();
    job.run("missing", &[]).says(
        6,
        "E0602",
        &[&job.name, "not with a claim in slot 1", "nothing was changed"],
    );
    fs::write(&slots[0], claim).unwrap();
    let foreign = chain.join("notes.txt");
    fs::write(&foreign, "do not delete").unwrap();
    job.run("foreign", &[]).says(6, "E0602", &[&job.name, foreign.to_str().unwrap(), "move it away"]);
    fs::remove_file(&foreign).unwrap();
    assert_eq!(job.traces(), before);
    job.run("again", &[]).done();
    job.is_exact(400);
}
