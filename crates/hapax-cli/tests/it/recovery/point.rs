//! Recovery that dies or sleeps at each of its points, in an epoch of which transactions are open.
//!
//! A person has aborted one transaction of it, or none. What a recovery has ended of the rest before it dies stays ended,
//! and the next one judges anew.

use super::*;

impl Case {
    fn file(&self) -> &str {
        self.bench.file.to_str().unwrap()
    }

    /// Ids of the epoch in doubt whose transactions are open.
    fn open_in_doubt(&self) -> Vec<String> {
        let ended = hapax(&["txn", "describe", self.file(), "--json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let all = ended.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let open = all.filter(|one| one["chain"]["in-doubt"].is_object() && one["outcome"] == "open");
        open.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Dies behind a decision, and a person aborts one of its transactions; those that stay open.
    fn split(&self) -> Vec<String> {
        self.die("K2:3", &[]);
        let mut open = self.open_in_doubt();
        assert!(open.len() >= 2, "{open:?}");
        let aborted = open.remove(0);
        let ended = hapax(&["txn", "abort", self.file(), &aborted, "--decided"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_eq!(self.open_in_doubt(), open);
        open
    }

    /// Dies at a point of recovery, a second time where it is reached again, and goes on; all that was said.
    fn recover_past(&self, point: &str, strategies: &[&str], open: &[String]) -> String {
        let list = allowed(strategies);
        let mut log = self.die(point, &[&list[0], &list[1]]);
        match point {
            "R0" | "R1" | "R2" => assert_eq!(self.open_in_doubt(), open, "{point}: looking ends nothing"),
            "R3" => assert!(self.open_in_doubt().len() < open.len(), "one has ended"),
            _ => {}
        }
        log.push_str(&self.die_or_be_done(point, &[&list[0], &list[1]]));
        let ended = self.run(strategies);
        assert_eq!(ended.code, Some(0), "{point}: {}", ended.err);
        log.push_str(&ended.err);
        log
    }
}

/// What is open is aborted with its handle, all are looked at again, and `void` is put.
#[test]
fn rewind_that_dies_at_any_point_gives_up_what_was_open_beside_an_aborted_transaction() {
    play(versions(&["R0", "R1", "R2", "R3", "R5", "R6"]), |(on, point)| goes_back(on, point));
}

#[test]
fn on_apache_kafka_too_rewind_that_dies_with_a_part_of_the_open_transactions_ended_goes_back() {
    goes_back(On::Kafka(Version::V4_4), "R3");
}

fn goes_back(on: On, point: &str) {
    let when = format!("back-{point}-{}", name_of(on, Left::AllOpen)).to_lowercase();
    let case = Case::new(&when, on);
    // Nothing times out here.
    let text = fs::read_to_string(&case.bench.file).unwrap();
    fs::write(&case.bench.file, text.replace(&format!("\"{REAL_TIMEOUT}\""), "\"60s\"")).unwrap();
    let open = case.split();
    let aborts = match on {
        On::Ours(_) => Some(case.withhold(Rule::on(ApiKey::EndTxn).commit(false).delay(A_MOMENT))),
        On::Kafka(_) => None,
    };
    let log = case.recover_past(point, &["resume", "rewind"], &open);
    assert_eq!(log.matches("rewound: ").count(), 1, "{when}: {log}");
    assert!(!log.contains("resumed: "), "{when}: {log}");
    if let Some(aborts) = aborts {
        assert!(aborts.fired() >= open.len() as u64, "{when}: each is ended by its handle");
    }
    case.assert_exact(&when);
}

/// Long enough for a rule that only counts.
const A_MOMENT: Duration = Duration::from_millis(1);

#[test]
fn resume_that_dies_at_any_point_commits_what_was_decided() {
    play(versions(&["R0", "R1", "R2", "R3", "R5", "R6"]), |(on, point)| {
        let when = format!("resume-{point}-{}", name_of(on, Left::AllOpen)).to_lowercase();
        let case = Case::new(&when, on);
        case.die("K2:3", &[]);
        let open = case.open_in_doubt();
        assert!(open.len() >= 2, "{open:?}");
        let log = case.recover_past(point, &["resume"], &open);
        assert_eq!(log.matches("resumed: ").count(), 1, "{when}: {log}");
        case.assert_exact(&when);
    });
}

/// The newest incident is the one that counts, and each that was written is whole.
#[test]
fn records_are_given_up_as_the_newest_incident_says_wherever_recovery_dies() {
    let points = ["R0", "R1", "R2", "R3", "R4n", "R5", "R6"];
    let all = ["set-aside", "abandon"].into_iter().flat_map(|strategy| points.map(|point| (strategy, point)));
    // Seven points, so that each is played with both protocols.
    let all = [0, 2].into_iter().cycle().zip(all);
    play(all, |(version, (strategy, point))| {
        let when = format!("{strategy}-{point}-v{version}").to_lowercase();
        let case = Case::new(&when, On::Ours(version));
        let open = case.split();
        let log = case.recover_past(point, &["resume", strategy], &open);
        let incidents = case.incidents();
        assert_eq!(incidents.len(), if point == "R4n" { 3 } else { 1 }, "{when}");
        case.assert_given_up(&incidents, strategy, &log);
    });
}

/// A file that may not grow over a size ends whoever writes on: half a file is left, which does not look like a whole one, and no
/// incident names it.
#[test]
fn a_death_within_the_file_that_is_set_aside_is_followed_by_a_whole_one() {
    for version in [0, 2] {
        let case = Case::new(&format!("half-a-file-v{version}"), On::Ours(version));
        let padding = "x".repeat(1_000);
        let text = fs::read_to_string(&case.bench.file).unwrap();
        fs::write(&case.bench.file, text.replace("$id}", &format!("$id,\"padding\":\"{padding}\"}}")))
            .unwrap();
        case.leave(Left::AllOpen);
        let list = allowed(&["resume", "set-aside"]);
        let mut command = std::process::Command::new("sh");
        // 16 KiB in blocks of 512 bytes: more than a slot has, and less than the records of an epoch.
        command.args(["-c", "ulimit -f 32; exec \"$0\" \"$@\""]).arg(harness::binary());
        let ended = command.args(["run", case.file(), &list[0], &list[1]]).output().unwrap();
        assert_eq!(ended.status.code(), None, "{}", String::from_utf8_lossy(&ended.stderr));
        assert!(case.files("ndjson").is_empty());
        let [half] = &case.files("part")[..] else { panic!("{:?}", case.files("part")) };
        assert!(!fs::read(half).unwrap().ends_with(b"}\n"), "the file is cut off");
        assert!(case.incidents().is_empty());
        let ended = case.run(&["resume", "set-aside"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let incidents = case.incidents();
        assert_eq!(incidents.len(), 1);
        case.assert_given_up(&incidents, "set-aside", &ended.err);
    }
}

impl Case {
    /// Readers see every record once and in order but those that the incident names which the log names; the other ones
    /// say the same, and so do their files.
    fn assert_given_up(&self, incidents: &[serde_json::Value], strategy: &str, log: &str) {
        let found = self.read();
        let mut missing: Vec<u64> = (0..RECORDS).filter(|id| !found.concat().contains(id)).collect();
        missing.sort_unstable();
        assert!(!missing.is_empty());
        for (partition, found) in (0..PARTITIONS).zip(&found) {
            let all = (partition..RECORDS).step_by(PARTITIONS as usize);
            let rest: Vec<u64> = all.filter(|id| !missing.contains(id)).collect();
            assert_eq!(found, &rest, "partition {partition}");
        }
        let said: Vec<&str> = log.lines().filter(|line| line.contains("E0409")).collect();
        let [said] = said.as_slice() else { panic!("{said:?}") };
        let newest = incidents.last().unwrap();
        assert!(said.contains(&format!("{}-{}-E0409.json", self.job, newest["written_ms"])), "{said}");
        for incident in incidents {
            assert_eq!(incident["code"], "E0409");
            assert_eq!(self.listed(incident), missing);
            let message = incident["message"].as_str().unwrap();
            let Some((_, file)) = message.split_once("they were written to ") else {
                assert_eq!(strategy, "abandon", "{message}");
                continue;
            };
            assert_eq!(ids_in(Path::new(file)), missing, "{file}");
        }
        assert_eq!(self.files("ndjson").is_empty(), strategy == "abandon");
    }

    /// The records at the offsets that an incident names.
    fn listed(&self, incident: &serde_json::Value) -> Vec<u64> {
        let (bootstrap, isolation) = (self.cluster.bootstrap(), Isolation::ReadUncommitted);
        let written = Judge::shared().read_all(&bootstrap, &self.topic, isolation).unwrap();
        let mut listed = Vec::new();
        let lanes = incident["in_doubt"].as_array().unwrap().iter();
        for part in lanes.flat_map(|lane| lane["handle"]["partitions"].as_array().unwrap()) {
            let offsets = part["first_offset"].as_i64().unwrap()..=part["last_offset"].as_i64().unwrap();
            let of_part = written.iter().find(|read| part["partition"] == read.bounds.partition).unwrap();
            let named = of_part.records.iter().filter(|read| offsets.contains(&read.offset));
            listed.extend(named.map(|read| id_in(&read.text())));
        }
        listed.sort_unstable();
        listed
    }
}

fn id_in(value: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(value).unwrap();
    value["id"].as_u64().unwrap()
}

/// The records of a file that they were set aside in.
fn ids_in(file: &Path) -> Vec<u64> {
    let of_line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        id_in(line["value"].as_str().unwrap())
    };
    let mut ids: Vec<u64> = fs::read_to_string(file).unwrap().lines().map(of_line).collect();
    ids.sort_unstable();
    ids
}

/// It wakes behind a second one that has done all, with handles of transactions that have ended, in this way or that.
#[test]
fn a_recovery_that_slept_among_open_transactions_does_no_harm_when_it_wakes() {
    let all = [("rewind", ["R0", "R1", "R2", "R3", "R5"].as_slice()), ("rewrite", &["R2", "R3", "R4", "R5"])];
    let all: Vec<_> =
        all.into_iter().flat_map(|(strategy, points)| points.iter().map(move |at| (strategy, *at))).collect();
    play(versions(&all), |(on, (strategy, point))| {
        let when = format!("among-{strategy}-{point}-{}", name_of(on, Left::AllOpen)).to_lowercase();
        let case = Case::new(&when, on);
        let open = case.split();
        let look = || {
            if point == "R3" {
                assert!(case.open_in_doubt().len() < open.len(), "{when}: one has ended");
            }
        };
        case.sleep_through(point, strategy, look, &when);
    });
}
