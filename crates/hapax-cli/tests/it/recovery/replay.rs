//! The journal of a sink: an epoch whose transactions the broker has aborted, and whose records the log may have lost.
//!
//! As in the module above, but for what is lost meanwhile: the log's cleaner, retention, a person, a disk.

use super::*;
use std::io::Write;

/// A case whose sink keeps a journal.
fn journaled(name: &str, on: On) -> Case {
    let case = Case::new(&format!("replay-{name}"), on);
    append(&case, "journal = true\n");
    case
}

/// The same, with a key of its own in each record, so that compaction leaves every committed one.
fn keyed(name: &str, on: On) -> Case {
    let case = journaled(name, on);
    append(&case, "[[operator]]\njq = \".\"\nkey = \".id | tostring\"\n");
    case
}

fn append(case: &Case, text: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(&case.bench.file).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

impl Case {
    /// What is kept of journals now.
    fn parts(&self) -> Vec<PathBuf> {
        let folder = self.bench.path("store").join(&self.job).join("1/journal/0");
        let Ok(folder) = fs::read_dir(folder) else { return Vec::new() };
        let parts = folder.map(|entry| entry.unwrap().path());
        let mut parts: Vec<_> =
            parts.filter(|path| path.extension().is_some_and(|found| found == "parquet")).collect();
        parts.sort();
        parts
    }

    /// The parts of the newest epoch that has any.
    fn newest_parts(&self) -> Vec<PathBuf> {
        let mut parts = self.parts();
        let newest = parts.iter().map(|part| field(part, 1)).max().unwrap_or_default();
        parts.retain(|part| field(part, 1) == newest);
        parts
    }

    /// The part of the epoch in doubt whose records were aborted last, and its shard.
    fn part_in_doubt(&self) -> (PathBuf, usize) {
        let ended = hapax(&["txn", "describe", self.bench.file.to_str().unwrap(), "--json"]);
        let lines = ended.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let aborted = lines.filter(|one| one["outcome"] == "aborted by the broker");
        let of = |one: serde_json::Value| {
            let shard: u64 = one["id"].as_str().unwrap().split('.').nth(2).unwrap().parse().unwrap();
            (shard, one["chain"]["in-doubt"]["epoch"].as_u64().unwrap())
        };
        let (shard, epoch) = aborted.map(of).max().unwrap();
        let is_it = |part: &PathBuf| (field(part, 1), field(part, 3)) == (epoch, shard);
        let mut parts: Vec<_> = self.parts().into_iter().filter(is_it).collect();
        (parts.pop().unwrap(), shard as usize)
    }

    fn ours(&self) -> &Broker {
        let Cluster::Ours(hosted) = &self.cluster else { panic!("played on our broker") };
        &hosted.broker
    }

    /// The log's cleaner takes what was aborted.
    fn compact(&self) {
        for partition in 0..PARTITIONS as i32 {
            self.ours().step(Step::Compact { topic: self.topic.clone(), partition }).unwrap();
        }
    }

    /// Everything that is in the log now is deleted; how many committed records of each partition that were.
    fn delete_all(&self) -> Vec<usize> {
        let committed = self.read().iter().map(Vec::len).collect();
        let (judge, bootstrap) = (Judge::shared(), self.cluster.bootstrap());
        for bounds in judge.end_offsets(&bootstrap, &self.topic).unwrap() {
            judge.delete_records(&bootstrap, &self.topic, bounds.partition, bounds.end).unwrap();
        }
        committed
    }

    /// Every record but the first so many of each partition, once and in its order.
    fn assert_rest(&self, deleted: &[usize], when: &str) {
        for (partition, (found, deleted)) in self.read().iter().zip(deleted).enumerate() {
            let all: Vec<u64> = (partition as u64..RECORDS).step_by(PARTITIONS as usize).collect();
            assert_eq!(found, &all[*deleted..], "{when}: partition {partition}");
        }
    }

    fn ends(&self) -> Vec<i64> {
        let bounds = Judge::shared().end_offsets(&self.cluster.bootstrap(), &self.topic).unwrap();
        bounds.iter().map(|bounds| bounds.end).collect()
    }

    fn goes_on(&self, strategies: &[&str], when: &str) -> Ended {
        let began = Instant::now();
        let ended = self.run(strategies);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        assert!(began.elapsed() < GOES_ON_WITHIN, "{when}: {:?}", began.elapsed());
        let left = self.parts();
        assert!(left.is_empty(), "{when}: a journal is left: {left:?}");
        ended
    }
}

#[test]
fn a_job_that_was_down_for_longer_than_its_timeout_goes_on_from_its_journal() {
    for (on, left) in ways() {
        let when = format!("alone-{}", name_of(on, left));
        let case = journaled(&when, on);
        case.leave(left);
        assert!(!case.parts().is_empty(), "the epoch in doubt has a journal");
        let ended = case.run(&["resume"]);
        ended.says(4, "E0404");
        ended.says(4, "replay: not in the job's list");
        let ended = case.goes_on(&["resume", "replay"], &when);
        assert!(
            ended.err.contains("from the journal") && ended.err.contains("written again"),
            "{}",
            ended.err
        );
        case.assert_exact(&when);
    }
}

#[test]
fn with_resume_alone_it_stops_and_replay_for_one_start_brings_it_to_the_same_end() {
    for (on, left) in ways() {
        let when = format!("once-{}", name_of(on, left));
        let case = journaled(&when, on);
        case.leave(left);
        case.run(&["resume"]).says(4, "E0404");
        let list = allowed(&["resume"]);
        let ended = case.bench.run(&[&list[0], &list[1], "--recover", "replay"]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        case.assert_exact(&when);
    }
}

/// The log's cleaner removes aborted records; whichever of the two comes first in the list.
#[test]
fn records_that_were_compacted_away_are_written_again_from_the_journal() {
    for (on, left) in ways() {
        for list in [["resume", "rewrite", "replay"], ["resume", "replay", "rewrite"]] {
            let when = format!("compacted-{}-{}", list[1], name_of(on, left));
            let case = keyed(&when, on);
            case.leave(left);
            case.compact();
            case.run(&["resume", "rewrite"]).says(4, "rewrite: ");
            let ended = case.goes_on(&list, &when);
            assert_eq!(ended.err.contains("passed over: rewrite"), list[1] == "rewrite", "{}", ended.err);
            case.assert_exact(&when);
        }
    }
}

#[test]
fn records_that_somebody_deleted_are_written_again_from_the_journal() {
    for (on, left) in ways() {
        let when = format!("deleted-{}", name_of(on, left));
        let case = journaled(&when, on);
        case.leave(left);
        let deleted = case.delete_all();
        case.run(&["resume", "rewrite"]).says(4, "rewrite: ");
        case.goes_on(&["resume", "rewrite", "replay"], &when);
        case.assert_rest(&deleted, &when);
    }
}

/// The core on Apache Kafka, where each case waits for its timeout: at the same time.
#[test]
fn on_apache_kafka_too_a_job_goes_on_from_its_journal() {
    std::thread::scope(|scope| {
        for version in Version::ALL {
            for (left, is_deleted) in [(Left::AllOpen, false), (Left::AllOpen, true), (Left::Mixed, true)] {
                scope.spawn(move || {
                    let on = On::Kafka(version);
                    let when = format!("kafka-{is_deleted}-{}", name_of(on, left));
                    let case = journaled(&when, on);
                    case.leave(left);
                    case.run(&["resume"]).says(4, "E0404");
                    if is_deleted {
                        let deleted = case.delete_all();
                        case.goes_on(&["resume", "rewrite", "replay"], &when);
                        case.assert_rest(&deleted, &when);
                    } else {
                        case.goes_on(&["resume", "replay"], &when);
                        case.assert_exact(&when);
                    }
                });
            }
        }
    });
}

/// R0 to R6, twice in a row, with the log's copy gone.
#[test]
fn replay_that_dies_at_any_point_of_recovery_ends_in_the_same_place() {
    for (on, left) in ways() {
        for point in ["R0", "R1", "R2", "R3", "R4", "R5", "R6"] {
            let when = format!("{point}-{}", name_of(on, left)).to_lowercase();
            let case = keyed(&when, on);
            case.leave(left);
            case.compact();
            let list = allowed(&["resume", "replay"]);
            case.die(point, &[&list[0], &list[1]]);
            case.die_or_be_done(point, &[&list[0], &list[1]]);
            case.goes_on(&["resume", "replay"], &when);
            case.assert_exact(&when);
        }
    }
}

/// What was prepared again and timed out once more is written again from the same journal.
#[test]
fn a_repair_that_times_out_is_repaired_from_the_same_journal() {
    for (on, left) in ways() {
        let when = format!("again-{}", name_of(on, left));
        let case = keyed(&when, on);
        case.leave(left);
        let list = allowed(&["resume", "replay"]);
        for point in ["R4", "R5", "R5"] {
            case.compact();
            case.die(point, &[&list[0], &list[1]]);
            case.cluster.let_time_out(&case.job);
        }
        case.compact();
        case.goes_on(&["resume", "replay"], &when);
        case.assert_exact(&when);
    }
}

/// K1: every lane's journal is stored, and no manifest names it.
#[test]
fn a_journal_whose_manifest_never_came_is_removed_behind_the_first_one_of_a_later_run() {
    for version in [0, 2] {
        for at in ["K1:3", "K1b-unstored:3"] {
            let when = format!("orphan-{}-v{version}", at.replace(':', "-").to_lowercase());
            let case = journaled(&when, On::Ours(version));
            case.die(at, &[]);
            let orphans = case.newest_parts();
            assert!(!orphans.is_empty() && field(&orphans[0], 1) == 3, "{when}: {orphans:?}");
            // As long as it has decided nothing itself, a run removes nothing of these.
            case.die("K1", &[]);
            assert!(orphans.iter().all(|orphan| case.parts().contains(orphan)), "{when}");
            case.goes_on(&["resume"], &when);
            case.assert_exact(&when);
        }
    }
}

#[test]
fn a_journal_that_is_damaged_or_gone_is_refused_before_a_byte_is_written() {
    for (on, left) in ways() {
        let when = format!("damaged-{}", name_of(on, left));
        let case = keyed(&when, on);
        case.leave(left);
        case.compact();
        let (last, partition) = case.part_in_doubt();
        let whole = fs::read(&last).unwrap();
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        for (bytes, why) in [
            (Some(&damaged[..]), "the checksum does not fit"),
            (Some(&whole[..whole.len() - 1]), "bytes, and"),
            (None, "is not there any more"),
        ] {
            match bytes {
                Some(bytes) => fs::write(&last, bytes).unwrap(),
                None => fs::remove_file(&last).unwrap(),
            }
            // A lane whose own journal is whole may be prepared; none of the damaged one's records is written.
            let before = case.ends();
            let ended = case.run(&["resume", "replay"]);
            ended.says(4, why);
            ended.says(4, "replay: ");
            assert_eq!(case.ends()[partition], before[partition], "{when}: {why}");
        }
        fs::write(&last, whole).unwrap();
        case.cluster.let_time_out(&case.job);
        case.goes_on(&["resume", "replay"], &when);
        case.assert_exact(&when);
    }
}

/// A number in the name of a part: 0 is the generation, 1 the epoch, 3 the shard. The generator's partitions are the
/// shards, and the sink keeps them.
fn field(part: &Path, number: usize) -> u64 {
    let name = part.file_name().unwrap().to_str().unwrap();
    name.split('.').nth(number).unwrap().parse().unwrap()
}

#[test]
fn a_job_without_a_journal_passes_replay_over_with_that_reason() {
    let case = Case::new("replay-without", On::Ours(2));
    case.leave(Left::AllOpen);
    assert!(case.parts().is_empty());
    case.run(&["resume", "replay"]).says(4, "replay: recovered.main.0.0 at cluster ");
    case.run(&["resume", "replay"]).says(4, "no journal was kept (journal = true on the sink)");
    let ended = case.run(&["resume", "replay", "rewrite"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    case.assert_exact("by rewrite");
}

/// A journal that was taken out of the file is still that of the epoch in doubt.
#[test]
fn an_epoch_in_doubt_is_replayed_also_when_the_sink_keeps_no_journal_any_more() {
    let case = keyed("switched", On::Ours(2));
    case.leave(Left::AllOpen);
    case.compact();
    let list = allowed(&["resume", "replay"]);
    let ended = case.bench.run(&[&list[0], &list[1], "--set", "sink.0.journal=false"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(case.parts().is_empty());
    case.assert_exact("without a journal from here on");
}

#[test]
fn records_are_set_aside_from_the_journal_where_the_log_lacks_them() {
    for (on, left) in ways() {
        let when = format!("aside-{}", name_of(on, left));
        let case = keyed(&when, on);
        case.leave(left);
        let uncommitted = |case: &Case| {
            let read =
                Judge::shared().read_all(&case.cluster.bootstrap(), &case.topic, Isolation::ReadUncommitted);
            read.unwrap()
        };
        let before = uncommitted(&case);
        case.compact();
        let (part, _) = case.part_in_doubt();
        let whole = fs::read(&part).unwrap();
        fs::write(&part, b"nothing").unwrap();
        case.run(&["resume", "set-aside"]).says(4, "damaged: it has 7 bytes");
        assert!(case.files("ndjson").is_empty(), "a part of the records is no file");
        fs::write(&part, whole).unwrap();
        case.goes_on(&["resume", "set-aside"], &when);
        let found = case.read().concat();
        let missing: Vec<u64> = (0..RECORDS).filter(|id| !found.contains(id)).collect();
        let [file] = &case.files("ndjson")[..] else { panic!("{when}") };
        let mut aside = Vec::new();
        for line in fs::read_to_string(file).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let value: serde_json::Value = serde_json::from_str(line["value"].as_str().unwrap()).unwrap();
            aside.push(value["id"].as_u64().unwrap());
            // Where it was before it was compacted away.
            let at = line["partition"].as_i64().unwrap();
            let partition = before.iter().find(|read| i64::from(read.bounds.partition) == at).unwrap();
            let was = partition.records.iter().find(|record| record.text() == line["value"]).unwrap();
            // A journal knows it only where nothing stood in between, such as the marker of the epoch before.
            assert!(line["offset"].is_null() || line["offset"] == was.offset, "{when}: {line}");
            assert_eq!(Some(was.timestamp_ms), line["timestamp"].as_i64());
        }
        aside.sort_unstable();
        assert_eq!(aside, missing, "{when}: what was set aside is what is missing");
    }
}

/// Nothing in a new topic of the same name is the old one's.
#[test]
fn a_topic_that_was_made_again_is_not_written_to() {
    let case = journaled("made-again", On::Ours(2));
    case.leave(Left::AllOpen);
    let (judge, bootstrap) = (Judge::shared(), case.cluster.bootstrap());
    judge.delete_topic(&bootstrap, &case.topic).unwrap();
    case.run(&["resume", "replay"]).says(4, "replay: ");
    judge.create_topic(&bootstrap, &case.topic, PARTITIONS as u32, &[]).unwrap();
    case.run(&["resume", "replay"]).says(4, "was deleted and made again since");
    assert!(case.ends().iter().all(|end| *end == 0), "{:?}", case.ends());
}

/// Null keys, tombstones, headers that repeat or are null, timestamps out of order, small and compressed batches.
#[test]
fn whatever_a_record_holds_comes_back_as_it_was_from_the_journal_and_from_the_log() {
    for (version, compression, strategy) in [
        (0, "zstd", "replay"),
        (2, "none", "replay"),
        (2, "gzip", "replay"),
        (0, "gzip", "rewrite"),
        (2, "zstd", "rewrite"),
    ] {
        let when = format!("fields-{strategy}-{compression}-v{version}");
        let case = journaled(&when, On::Ours(version));
        let (judge, bootstrap) = (Judge::shared(), case.cluster.bootstrap());
        judge.create_topic(&bootstrap, "in", PARTITIONS as u32, &[]).unwrap();
        let field = |at: u64| match at % 3 {
            0 => None,
            1 => Some(Vec::new()),
            _ => Some(vec![0xfe, at as u8, 0]),
        };
        let record = |at: u64| Record {
            key: field(at),
            value: field(at / 3),
            headers: (0..at % 3).map(|header| ("h".to_owned(), field(at + header))).collect(),
            partition: Some((at % PARTITIONS) as i32),
            timestamp_ms: Some(1_790_000_000_000 - (at as i64) * 7),
        };
        judge.produce(&bootstrap, "in", &(0..600).map(record).collect::<Vec<_>>()).unwrap();
        let text = fs::read_to_string(&case.bench.file).unwrap();
        let (head, rest) = text.split_once("[[source]]").unwrap();
        let (_, sink) = rest.split_once("[[sink]]").unwrap();
        let source = "[[source]]\ntopics = [\"in\"]\nend = \"latest\"\n[[sink]]";
        let text = format!("{head}{source}{sink}compression = \"{compression}\"\nbatch = \"200B\"\n");
        fs::write(&case.bench.file, text).unwrap();
        case.die("K2", &[]);
        case.cluster.let_time_out(&case.job);
        let ended = case.goes_on(&["resume", strategy], &when);
        assert!(ended.err.contains(strategy), "{when}: {}", ended.err);
        let read = |topic: &str| {
            let mut read = judge.read_all(&bootstrap, topic, Isolation::ReadCommitted).unwrap();
            read.sort_by_key(|partition| partition.bounds.partition);
            let of = |read: Read| (read.key, read.value, read.headers, read.timestamp_ms);
            read.into_iter().map(|partition| partition.records.into_iter().map(of).collect()).collect()
        };
        let (wanted, found): (Vec<Vec<_>>, Vec<Vec<_>>) = (read("in"), read(&case.topic));
        assert_eq!(found, wanted, "{when}");
        assert_eq!(wanted.iter().map(Vec::len).sum::<usize>(), 600);
    }
}

/// A store that does not take the journal ends the run, before anything is decided.
#[test]
fn a_store_that_does_not_take_the_journal_costs_a_run_and_no_record() {
    let case = journaled("store", On::Ours(2));
    case.die("K2:2", &[]);
    // Something else is in the way where the journal has its folder.
    let folder = case.bench.path("store").join(&case.job).join("1/journal/0");
    let away = case.bench.path("away");
    fs::rename(&folder, &away).unwrap();
    fs::write(&folder, b"in the way").unwrap();
    let log = case.bench.path("in-the-way.log");
    let mut run = harness::run(&case.bench.file, &["--json"], &log).unwrap();
    let told = |run: &mut xtask::hapax::Run| {
        let output = run.output()?;
        Ok(output.contains("E0601") && output.contains("storing the journal of lane main."))
    };
    run.until("says that the journal is not stored", PATIENCE, told).unwrap();
    assert!(run.process().try_wait().unwrap().is_none(), "it tries again");
    fs::remove_file(&folder).unwrap();
    fs::rename(&away, &folder).unwrap();
    run.demand_exit(0, PATIENCE).unwrap();
    case.assert_exact("after the store was mended");
    assert!(case.parts().is_empty());
}

#[test]
fn a_journal_for_a_part_of_a_transaction_or_for_none_is_a_contradiction() {
    let case = journaled("contradiction", On::Ours(2));
    case.bench.run(&["--set", "sink.0.guarantee=at-least-once"]).says(2, "take journal out");
    append(&case, "[[sink]]\ntopic = \"second\"\n");
    case.bench.run(&[]).says(2, "set journal = true on each of them, or on none");
    assert!(!case.bench.path("store").exists(), "nothing was touched");
}

/// Twenty kills behind a decision, each followed by a timeout and by the log's cleaner.
#[test]
fn twenty_kills_with_every_transaction_timed_out_lose_nothing() {
    let case = keyed("soak", On::Ours(2));
    let count = "source.0.generator.count=100000";
    let list = allowed(&["resume", "replay"]);
    let common = ["--set", count, &list[0], &list[1]];
    for kill in 0..20 {
        let at = ["K2:2", "K2b:2", "K3:3", "K1:2"][kill % 4];
        case.die(at, &common);
        case.cluster.let_time_out(&case.job);
        case.compact();
    }
    let faster = ["--set", "source.0.generator.rate=100000", "--json"];
    let ended = case.bench.run(&[&common[..], &faster].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(case.parts().is_empty());
    for (partition, found) in case.read().iter().enumerate() {
        let all: Vec<u64> = (partition as u64..100_000).step_by(PARTITIONS as usize).collect();
        assert_eq!(found.len(), all.len(), "partition {partition}");
        assert_eq!(found, &all, "partition {partition}");
    }
}
