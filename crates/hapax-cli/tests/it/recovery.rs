//! The commit phase: a process dies between decision and commit, the broker aborts what it left, the next one goes on.
//!
//! Played on the broker of this repository, whose clock jumps, with librdkafka as the reader. Each case: a bounded
//! job of four lanes dies at a crash point of its third epoch, its transactions time out, and it is started again with a
//! list of strategies.

use crate::command_line::{Bench, Ended};
use hapax_broker::{Broker, ServerOptions, Settings};
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};
use xtask::judge::{Isolation, Judge, Read};

const PATIENCE: Duration = Duration::from_secs(120);

/// Of the jobs here: the broker's clock jumps over it.
const TIMEOUT_MS: i64 = 60_000;

const RECORDS: u64 = 2_000;
const PARTITIONS: u64 = 4;

/// A broker of its own, on its own threads.
struct Hosted {
    broker: Broker,
    _runtime: Runtime,
}

impl Hosted {
    fn start(transaction_version: i16) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let settings = Settings { transaction_version, default_partitions: 4, ..Settings::default() };
        let broker = runtime.block_on(async {
            let broker = Broker::start(settings, ServerOptions::default()).await.unwrap();
            broker.create_topic("out", PARTITIONS as i32).await.unwrap();
            broker
        });
        Self { broker, _runtime: runtime }
    }

    /// Lets every open transaction time out, and waits until the broker has aborted them.
    fn let_time_out(&self) {
        self.broker.jump_clock(TIMEOUT_MS + 1_000);
        let open = || {
            let state = self.broker.state();
            let transactions = state["transactions"].as_array().unwrap().clone();
            transactions.iter().any(|one| {
                !matches!(one["state"].as_str(), Some("Empty" | "CompleteAbort" | "CompleteCommit"))
            })
        };
        let began = Instant::now();
        while open() {
            assert!(began.elapsed() < PATIENCE, "{}", self.broker.state());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// How a job is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Decided, no lane committed.
    AllOpen,
    /// Decided, one lane committed.
    Mixed,
}

impl Left {
    fn crash_at(self) -> String {
        match self {
            Self::AllOpen => "K2:3".to_owned(),
            Self::Mixed => format!("K2b:{}", 2 * (PARTITIONS - 1) + 1),
        }
    }
}

struct Case {
    hosted: Hosted,
    bench: Bench,
}

impl Case {
    fn new(name: &str, version: i16) -> Self {
        let hosted = Hosted::start(version);
        let text = format!(
            "job = \"recovered\"\ntransaction_timeout = \"60s\"\n[checkpoint]\nstore = \"file://PATH/store\"\n\
             interval = \"50ms\"\n[cluster.main]\nbrokers = \"{}\"\n[[source]]\n\
             generator = {{ count = {RECORDS}, rate = 4000, partitions = {PARTITIONS}, value = '{{\"id\":$id}}' }}\n\
             [[sink]]\ntopic = \"out\"\npartition = \"keep\"\n",
            hosted.broker.bootstrap()
        );
        Self { hosted, bench: Bench::new(&format!("recovery-{name}"), &text) }
    }

    /// Dies as it is told, and its transactions time out.
    fn leave(&self, left: Left) {
        self.die(&left.crash_at(), &[]);
        self.hosted.let_time_out();
    }

    fn die(&self, at: &str, more: &[&str]) {
        let ended = self.bench.run(&[&["--crash-at", at], more].concat());
        assert_eq!(ended.code, None, "it does not die at {at}: {}", ended.err);
        assert!(
            ended.err.contains(&format!("crash point {} reached", at.split(':').next().unwrap())),
            "{}",
            ended.err
        );
    }

    fn run(&self, strategies: &[&str]) -> Ended {
        self.bench.run(&["--json", &allowed(strategies)[0], &allowed(strategies)[1]])
    }

    fn read(&self) -> Vec<Vec<u64>> {
        let read = Judge::shared().read_all(&self.hosted.broker.bootstrap(), "out", Isolation::ReadCommitted);
        let mut partitions = read.unwrap();
        partitions.sort_by_key(|partition| partition.bounds.partition);
        let id = |read: &Read| {
            let record: serde_json::Value = serde_json::from_str(&read.text()).unwrap();
            record["id"].as_u64().unwrap()
        };
        partitions.iter().map(|partition| partition.records.iter().map(id).collect()).collect()
    }

    /// Every record once and in its order.
    fn assert_exact(&self, when: &str) {
        let expected: Vec<Vec<u64>> =
            (0..PARTITIONS).map(|first| (first..RECORDS).step_by(PARTITIONS as usize).collect()).collect();
        let found = self.read();
        for (partition, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found.len(), expected.len(), "{when}: partition {partition}");
            assert_eq!(found, expected, "{when}: partition {partition}");
        }
        assert_eq!(found.len(), expected.len());
    }

    /// The incidents that were written, oldest first.
    fn incidents(&self) -> Vec<serde_json::Value> {
        let mut files = self.files("json");
        files.sort();
        files.iter().map(|file| serde_json::from_slice(&fs::read(file).unwrap()).unwrap()).collect()
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let Ok(folder) = fs::read_dir(self.bench.path("store.incidents")) else { return Vec::new() };
        let files = folder.map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
    }
}

fn allowed(strategies: &[&str]) -> [String; 2] {
    let list = strategies.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    ["--set".to_owned(), format!("recovery=[{list}]")]
}

fn ways() -> impl Iterator<Item = (i16, Left)> {
    [0, 2].into_iter().flat_map(|version| [Left::AllOpen, Left::Mixed].map(|left| (version, left)))
}

#[test]
fn a_job_that_was_down_for_longer_than_its_timeout_goes_on_by_itself() {
    for (version, left) in ways() {
        for strategy in ["rewind", "rewrite"] {
            let when = format!("{strategy}-v{version}-{left:?}").to_lowercase();
            let case = Case::new(&when, version);
            case.leave(left);
            let ended = case.run(&["resume", strategy]);
            if (strategy, left) == ("rewind", Left::Mixed) {
                ended.says(4, "some lane is committed");
                let ended = case.run(&["resume", "rewind", "rewrite"]);
                assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
            } else {
                assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
            }
            case.assert_exact(&when);
        }
    }
}

#[test]
fn with_resume_alone_it_stops_and_one_more_strategy_brings_it_to_the_same_end() {
    for (version, left) in ways() {
        let when = format!("alone-v{version}-{left:?}").to_lowercase();
        let case = Case::new(&when, version);
        case.leave(left);
        for _ in 0..2 {
            let ended = case.run(&["resume"]);
            ended.says(4, "E0404");
            ended.says(4, "rewrite: not in the job's list");
        }
        let list = allowed(&["resume"]);
        let ended = case.bench.run(&[&list[0], &list[1], "--recover", "rewrite"]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        assert!(ended.err.contains("written again"), "{}", ended.err);
        case.assert_exact(&when);
    }
}

/// Only what the broker aborted is missing, and the incident names each record of it.
#[test]
fn abandoned_records_are_exactly_those_that_the_incident_lists() {
    for (version, left) in ways() {
        for strategy in ["abandon", "set-aside"] {
            let when = format!("{strategy}-v{version}-{left:?}").to_lowercase();
            let case = Case::new(&when, version);
            case.leave(left);
            let ended = case.run(&["resume", strategy]);
            assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
            assert!(ended.err.contains("E0409"), "{}", ended.err);
            let incidents = case.incidents();
            let [incident] = incidents.as_slice() else { panic!("{when}: {incidents:?}") };
            let mut missing: Vec<u64> = (0..RECORDS).collect();
            for found in case.read().concat() {
                let at = missing.iter().position(|id| *id == found);
                missing.remove(at.unwrap_or_else(|| panic!("{when}: {found} came twice")));
            }
            let lanes = incident["in_doubt"].as_array().unwrap();
            assert_eq!(lanes.len(), if left == Left::Mixed { 3 } else { 4 }, "{when}");
            let listed: u64 = lanes.iter().map(|lane| lane["records"].as_u64().unwrap()).sum();
            assert_eq!(missing.len() as u64, listed, "{when}");
            assert!(listed > 0);
            let kept = case.files("ndjson");
            if strategy == "abandon" {
                assert!(kept.is_empty());
                continue;
            }
            let text = fs::read_to_string(&kept[0]).unwrap();
            let id = |line: &str| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let value: serde_json::Value = serde_json::from_str(line["value"].as_str().unwrap()).unwrap();
                value["id"].as_u64().unwrap()
            };
            let mut aside: Vec<u64> = text.lines().map(id).collect();
            aside.sort_unstable();
            assert_eq!(aside, missing, "{when}: what was set aside is what is missing");
        }
    }
}

/// R0 to R6: recovery dies wherever it can, twice in a row, and the third run ends in the same place.
#[test]
fn recovery_that_dies_at_any_of_its_points_ends_in_the_same_place() {
    for (version, left) in ways() {
        for strategy in ["rewind", "rewrite"] {
            if (strategy, left) == ("rewind", Left::Mixed) {
                continue;
            }
            for point in ["R0", "R1", "R2", "R3", "R4", "R5", "R6"] {
                // Nothing is open, so nothing is ended before records are written again; and going back writes none.
                let is_reached = match point {
                    "R3" | "R4" => strategy == "rewrite",
                    _ => true,
                };
                if !is_reached {
                    continue;
                }
                let when = format!("{point}-{strategy}-v{version}-{left:?}").to_lowercase();
                let case = Case::new(&when, version);
                case.leave(left);
                let list = allowed(&["resume", strategy]);
                for _ in 0..2 {
                    case.die_or_be_done(point, &[&list[0], &list[1]]);
                }
                let ended = case.run(&["resume", strategy]);
                assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
                case.assert_exact(&when);
            }
        }
    }
}

impl Case {
    /// The second time a point may not be reached any more, because the first run got behind it.
    fn die_or_be_done(&self, at: &str, more: &[&str]) {
        let ended = self.bench.run(&[&["--crash-at", at], more].concat());
        assert!(matches!(ended.code, None | Some(0)), "{at}: {}", ended.err);
        if ended.code.is_none() {
            assert!(ended.err.contains(&format!("crash point {at} reached")), "{}", ended.err);
        }
    }
}
