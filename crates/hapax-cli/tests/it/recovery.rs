//! The commit phase: a process dies between decision and commit, the broker aborts what it left, the next one goes on.
//!
//! Played on the broker of this repository, whose clock jumps, and in its core on Apache Kafka, where the timeout is
//! waited for; with librdkafka as the reader. Each case: a bounded job of four lanes dies at a crash point of its third
//! epoch, its transactions time out, and it is started again with a list of strategies.

mod cluster;
mod incident;
mod input;
mod point;
mod replay;
mod topic;

use crate::{
    command_line::{Bench, Ended, hapax},
    harness::{self, unique},
};
use hapax_broker::{ApiKey, Broker, Rule, RuleGuard, ServerOptions, Settings, Step};
use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};
use xtask::{
    judge::{Isolation, Judge, Outcome, Read, Record},
    kafka::{Version, shared, transactions},
};

const PATIENCE: Duration = Duration::from_secs(120);

/// A job that was down for longer than its timeout goes on within this, whatever has become of its transactions.
const GOES_ON_WITHIN: Duration = Duration::from_secs(30);

/// Of the jobs on our broker: its clock jumps over it.
const TIMEOUT_MS: i64 = 60_000;

/// Of the jobs on Apache Kafka that die: it is waited for.
const REAL_TIMEOUT: &str = "6s";

/// Of those that go on there, which nothing may time out on a busy machine.
const LASTING: &str = "transaction_timeout=60s";

/// Cases at a time: they wait for processes more than they work.
const AT_A_TIME: usize = 3;

const RECORDS: u64 = 2_000;
const PARTITIONS: u64 = 4;

/// A broker of its own, on its own threads.
struct Hosted {
    broker: Broker,
    _runtime: Runtime,
}

/// Where a case is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// Our broker, with this `transaction.version`.
    Ours(i16),
    /// Apache Kafka.
    Kafka(Version),
}

enum Cluster {
    Ours(Hosted),
    Kafka(&'static str),
}

impl Cluster {
    fn of(on: On) -> Self {
        let transaction_version = match on {
            On::Kafka(version) => return Self::Kafka(&shared(version).bootstrap),
            On::Ours(transaction_version) => transaction_version,
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let settings = Settings { transaction_version, ..Settings::default() };
        let broker = runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap();
        Self::Ours(Hosted { broker, _runtime: runtime })
    }

    fn bootstrap(&self) -> String {
        match self {
            Self::Ours(hosted) => hosted.broker.bootstrap(),
            Self::Kafka(bootstrap) => (*bootstrap).to_owned(),
        }
    }

    /// Waits until the broker has aborted every open transaction of a job.
    fn let_time_out(&self, job: &str) {
        if let Self::Ours(hosted) = self {
            hosted.broker.jump_clock(TIMEOUT_MS + 1_000).unwrap();
        }
        let open = || {
            let listed = transactions(&self.bootstrap()).unwrap();
            let of_job = listed.into_iter().filter(|one| one.id.starts_with(&format!("{job}.")));
            of_job.filter(|one| one.is_open()).collect::<Vec<_>>()
        };
        let began = Instant::now();
        while !open().is_empty() {
            assert!(began.elapsed() < PATIENCE, "{:?}", open());
            std::thread::sleep(Duration::from_millis(50));
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
    cluster: Cluster,
    bench: Bench,
    job: String,
    topic: String,
}

impl Case {
    fn new(name: &str, on: On) -> Self {
        let cluster = Cluster::of(on);
        // There must be a third epoch, with records in every lane, also where a machine is busy; Apache Kafka's first
        // transactions take seconds there.
        let (job, timeout, rate) = match on {
            On::Ours(_) => ("recovered".to_owned(), "60s", 1_500),
            On::Kafka(_) => (unique(&format!("recovered-{}", name.replace('.', "-"))), REAL_TIMEOUT, 500),
        };
        let topic = format!("{job}-out");
        Judge::shared().create_topic(&cluster.bootstrap(), &topic, PARTITIONS as u32, &[]).unwrap();
        let text = format!(
            "job = \"{job}\"\ntransaction_timeout = \"{timeout}\"\n[checkpoint]\nstore = \"file://PATH/store\"\n\
             interval = \"50ms\"\n[cluster.main]\nbrokers = \"{}\"\n[[source]]\n\
             generator = {{ count = {RECORDS}, rate = {rate}, partitions = {PARTITIONS}, value = '{{\"id\":$id}}' }}\n\
             [[sink]]\ntopic = \"{topic}\"\npartition = \"keep\"\n",
            cluster.bootstrap()
        );
        Self { cluster, bench: Bench::new(&format!("recovery-{name}"), &text), job, topic }
    }

    /// Dies as it is told, and its transactions time out.
    fn leave(&self, left: Left) {
        self.die(&left.crash_at(), &[]);
        self.cluster.let_time_out(&self.job);
    }

    /// Refuses requests for as long as the guard lives, which insists that there were such.
    fn withhold(&self, rule: Rule) -> RuleGuard {
        let Cluster::Ours(hosted) = &self.cluster else { panic!("played on our broker") };
        hosted.broker.faults().guard(rule.always()).unwrap()
    }

    /// What it said until then.
    fn die(&self, at: &str, more: &[&str]) -> String {
        let ended = self.bench.run(&[&["--crash-at", at], more].concat());
        assert_eq!(ended.code, None, "it does not die at {at}: {}", ended.err);
        assert!(
            ended.err.contains(&format!("crash point {} reached", at.split(':').next().unwrap())),
            "{}",
            ended.err
        );
        ended.err
    }

    fn run(&self, strategies: &[&str]) -> Ended {
        let list = allowed(strategies);
        let lasting = match self.cluster {
            Cluster::Ours(_) => &[][..],
            Cluster::Kafka(_) => &["--set", LASTING],
        };
        self.bench.run(&[&["--json", &list[0], &list[1]], lasting].concat())
    }

    fn read(&self) -> Vec<Vec<u64>> {
        let read = Judge::shared().read_all(&self.cluster.bootstrap(), &self.topic, Isolation::ReadCommitted);
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

fn name_of(on: On, left: Left) -> String {
    let on = match on {
        On::Ours(level) => format!("v{level}"),
        On::Kafka(version) => version.number().to_owned(),
    };
    format!("{on}-{left:?}").to_lowercase()
}

/// On our broker, all there is.
fn ways() -> impl Iterator<Item = (On, Left)> {
    [0, 2].into_iter().flat_map(|version| [Left::AllOpen, Left::Mixed].map(|left| (On::Ours(version), left)))
}

/// Each with both transaction protocols of our broker.
fn versions<T: Copy>(all: &[T]) -> impl Iterator<Item = (On, T)> {
    all.iter().flat_map(|one| [0, 2].map(|version| (On::Ours(version), *one)))
}

/// Plays all of them, some at a time.
fn play<T: Send>(cases: impl IntoIterator<Item = T>, one: impl Fn(T) + Sync) {
    let queue: Mutex<VecDeque<T>> = Mutex::new(cases.into_iter().collect());
    let next = || queue.lock().unwrap().pop_front();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(case) = next() {
                    one(case);
                }
            });
        }
    });
}

/// The summary of it all on Apache Kafka, where each case waits for its timeout: at the same time.
#[test]
fn on_apache_kafka_too_a_job_that_was_down_for_longer_than_its_timeout_goes_on_by_itself() {
    let cases: Vec<_> = Version::ALL
        .into_iter()
        .flat_map(|version| {
            [(Left::AllOpen, "rewind"), (Left::AllOpen, "rewrite"), (Left::Mixed, "rewrite")]
                .map(|(left, strategy)| (version, left, strategy))
        })
        .collect();
    std::thread::scope(|scope| {
        for (version, left, strategy) in cases {
            scope.spawn(move || {
                let on = On::Kafka(version);
                let when = format!("{strategy}-{}", name_of(on, left));
                let case = Case::new(&when, on);
                case.leave(left);
                case.run(&["resume"]).says(4, "E0404");
                let began = Instant::now();
                let ended = case.run(&["resume", strategy]);
                assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
                assert!(began.elapsed() < GOES_ON_WITHIN, "{when}: {:?}", began.elapsed());
                case.assert_exact(&when);
            });
        }
    });
}

#[test]
fn a_job_that_was_down_for_longer_than_its_timeout_goes_on_by_itself() {
    for (on, left) in ways() {
        for strategy in ["rewind", "rewrite"] {
            let when = format!("{strategy}-{}", name_of(on, left));
            let case = Case::new(&when, on);
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
    for (on, left) in ways() {
        let when = format!("alone-{}", name_of(on, left));
        let case = Case::new(&when, on);
        case.leave(left);
        case.run(&["rewind", "rewrite"]).says(2, "would never be committed");
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
    for (on, left) in ways() {
        for strategy in ["abandon", "set-aside"] {
            let when = format!("{strategy}-{}", name_of(on, left));
            let case = Case::new(&when, on);
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
            assert!(!lanes.is_empty(), "{when}");
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

/// Retention takes committed records, too: what it took of a prepared transaction is no loss of the cluster's.
#[test]
fn retention_that_took_prepared_records_keeps_nothing_from_being_committed() {
    for version in [0, 2] {
        let case = Case::new(&format!("retained-v{version}"), On::Ours(version));
        case.die("K2:3", &[]);
        let Cluster::Ours(hosted) = &case.cluster else { panic!("played on our broker") };
        let end = |isolation| {
            let read = Judge::shared().read_all(&case.cluster.bootstrap(), &case.topic, isolation).unwrap();
            let first = read.into_iter().find(|partition| partition.bounds.partition == 0).unwrap();
            first.records.last().unwrap().offset + 1
        };
        let (from, committed) = (end(Isolation::ReadUncommitted), end(Isolation::ReadCommitted));
        assert!(from > committed, "something is prepared");
        hosted.broker.step(Step::Retain { topic: case.topic.clone(), partition: 0, from }).unwrap();
        let ended = case.run(&["resume"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("resumed") && ended.err.contains("cannot be told"), "{}", ended.err);
        let found = case.read();
        let first: Vec<u64> = (0..RECORDS).step_by(PARTITIONS as usize).collect();
        assert!(first.ends_with(&found[0]) && !found[0].is_empty(), "what was removed is gone, nothing else");
        for (partition, found) in found.iter().enumerate().skip(1) {
            let all: Vec<u64> = (partition as u64..RECORDS).step_by(PARTITIONS as usize).collect();
            assert_eq!(found, &all, "partition {partition}");
        }
    }
}

/// What happened at the broker while the job was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    /// Its transactions timed out, and the coordinator has forgotten their ids since.
    TimedOutAndForgotten,
    /// Somebody else began with its ids, which aborts what is open, and aborted a transaction of his own.
    Taken,
    /// They had been committed, and the coordinator has forgotten their ids since.
    CommittedAndForgotten,
}

impl Case {
    fn forget(&self) {
        let Cluster::Ours(hosted) = &self.cluster else { panic!("played on our broker") };
        hosted.broker.step(Step::ExpireTransactionalIds).unwrap();
        assert_eq!(transactions(&self.cluster.bootstrap()).unwrap(), [], "ids are forgotten");
    }

    /// As librdkafka does it that is configured with the ids of the job.
    fn take(&self) {
        let ended = hapax(&["txn", "describe", self.bench.file.to_str().unwrap(), "--json"]);
        let all = ended.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let doubt = all.filter(|one| one["chain"]["in-doubt"].is_object());
        for id in doubt.map(|one| one["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>() {
            let records = [Record::value("foreign")];
            let judge = Judge::shared();
            judge
                .produce_transactional(
                    &self.cluster.bootstrap(),
                    "elsewhere",
                    &records,
                    &id,
                    PATIENCE,
                    Outcome::Abort,
                )
                .unwrap();
        }
    }
}

#[test]
fn whoever_ended_it_and_whatever_is_remembered_of_it_the_data_tells_how_it_ended() {
    for (version, meanwhile, strategy) in [0, 2].into_iter().flat_map(|version| {
        let all = [Meanwhile::TimedOutAndForgotten, Meanwhile::Taken, Meanwhile::CommittedAndForgotten];
        all.into_iter()
            .flat_map(move |meanwhile| ["rewind", "rewrite"].map(|strategy| (version, meanwhile, strategy)))
    }) {
        let when = format!("{meanwhile:?}-{strategy}-v{version}").to_lowercase();
        let case = Case::new(&when, On::Ours(version));
        Judge::shared().create_topic(&case.cluster.bootstrap(), "elsewhere", 1, &[]).unwrap();
        case.die(if meanwhile == Meanwhile::CommittedAndForgotten { "K4:3" } else { "K2:3" }, &[]);
        match meanwhile {
            Meanwhile::TimedOutAndForgotten | Meanwhile::CommittedAndForgotten => {
                case.cluster.let_time_out(&case.job);
                case.forget();
            }
            Meanwhile::Taken => case.take(),
        }
        let ended = case.run(&["resume", strategy]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        let told = match (meanwhile, strategy) {
            (Meanwhile::CommittedAndForgotten, _) => "resumed",
            (_, "rewind") => "rewound",
            _ => "written again",
        };
        assert!(ended.err.contains(told), "{when}: {}", ended.err);
        case.assert_exact(&when);
    }
}

/// Coordinators that must not be asked have written all that they would say.
#[test]
fn a_job_that_may_not_ask_coordinators_is_resumed_by_what_their_log_says() {
    for ((on, left), code) in ways().zip([53, 31].into_iter().cycle()) {
        let when = format!("withheld-{}", name_of(on, left));
        let case = Case::new(&when, on);
        case.die(&left.crash_at(), &[]);
        let refused = case.withhold(Rule::on(ApiKey::DescribeTransactions).error(code));
        let ended = case.run(&["resume"]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        assert_eq!(
            ended.err.matches("inferred from the topic __transaction_state").count(),
            1,
            "{}",
            ended.err
        );
        case.assert_exact(&when);
        drop(refused);
    }
}

#[test]
fn a_job_that_may_not_ask_coordinators_sees_in_their_log_what_was_aborted() {
    for (on, left) in ways() {
        let when = format!("withheld-aborted-{}", name_of(on, left));
        let case = Case::new(&when, on);
        case.leave(left);
        let refused = case.withhold(Rule::on(ApiKey::DescribeTransactions).error(53));
        case.run(&["resume"]).says(4, "E0404");
        let ended = case.run(&["resume", "rewrite"]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        case.assert_exact(&when);
        drop(refused);
    }
}

/// Neither coordinator nor log: both reasons are said, and nothing is concluded.
#[test]
fn where_the_log_must_not_be_read_either_both_refusals_are_named() {
    let case = Case::new("withheld-both", On::Ours(2));
    case.die("K2:3", &[]);
    let _refused = [
        case.withhold(Rule::on(ApiKey::DescribeTransactions).error(53)),
        case.withhold(Rule::on(ApiKey::Fetch).topic("__transaction_state").error(29)),
    ];
    let ended = hapax(&["txn", "describe", case.bench.file.to_str().unwrap(), "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let all: Vec<serde_json::Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 3 * PARTITIONS as usize);
    for one in all {
        let told = one["coordinator"].as_str().unwrap();
        assert!(told.contains("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), "{told}");
        assert!(told.contains("TOPIC_AUTHORIZATION_FAILED (29)"), "{told}");
    }
}

/// What a person sees and may do while a checkpoint is in doubt.
#[test]
fn a_person_sees_each_transaction_and_ends_only_what_the_chain_allows() {
    for version in [0, 2] {
        let case = Case::new(&format!("txn-v{version}"), On::Ours(version));
        let file = case.bench.file.to_str().unwrap().to_owned();
        let txn = |arguments: &[&str]| hapax(&[&["txn"], arguments].concat());
        txn(&["describe", &file]).says(2, "has no such job");
        case.die("K2:3", &[]);
        let described = || -> Vec<serde_json::Value> {
            let ended = txn(&["describe", &file, "--json"]);
            assert_eq!(ended.code, Some(0), "{}", ended.err);
            ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let all = described();
        assert_eq!(all.len(), 3 * PARTITIONS as usize, "three ids a lane");
        let doubt: Vec<_> = all.iter().filter(|one| one["chain"]["in-doubt"]["epoch"] == 3).collect();
        assert!(doubt.len() >= 2, "{all:?}");
        assert!(doubt.iter().all(|one| one["outcome"] == "open" && one["handle"].is_object()), "{doubt:?}");
        let id = |one: &serde_json::Value| one["id"].as_str().unwrap().to_owned();
        let (first, second) = (id(doubt[0]), id(doubt[1]));
        let free = id(all.iter().find(|one| one["chain"]["in-doubt"].is_null()).unwrap());

        // Nothing of it is claimed: the chain ends where it ended.
        let chain = || store_files(&case.bench.path("store"));
        let before = chain();
        txn(&["commit", &file, "other.main.0.0"]).says(2, "is no id of the job");
        txn(&["commit", &file, &first, "--cluster-id", "elsewhere"])
            .says(2, "no id of the job at cluster elsewhere");
        txn(&["commit", &file, &free]).says(2, "no checkpoint decided");
        txn(&["abort", &file, &first]).says(2, "say --decided");
        assert_eq!(chain(), before);
        let old_copy = case.bench.path("old-copy");
        copy_folder(&case.bench.path("store"), &old_copy);

        let ended = txn(&["describe", &file, "--records", "--id", &first]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.out.contains("is decided and in doubt; open; "), "{}", ended.out);
        let down = "cluster.main.brokers=\"127.0.0.1:1\"";
        let ended = txn(&["describe", &file, "--json", "--set", down]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_eq!(ended.out.lines().count(), all.len());
        assert!(ended.out.lines().all(|line| line.contains("\"cluster not reachable: ")), "{}", ended.out);

        let cluster_id = doubt[0]["cluster_id"].as_str().unwrap();
        let ended = txn(&["abort", &file, &free, "--cluster-id", cluster_id]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let ended = txn(&["abort", &file, &second, "--decided"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let before = chain();
        txn(&["commit", &file, &first]).says(2, "say --no-way-back");
        txn(&["commit", &file, &second, "--no-way-back"]).says(2, "it is aborted by the broker");
        assert_eq!(chain(), before);
        for _ in 0..2 {
            let ended = txn(&["commit", &file, &first, "--no-way-back"]);
            assert_eq!(ended.code, Some(0), "{}", ended.err);
        }
        let outcome =
            |wanted: &str| described().into_iter().find(|one| id(one) == wanted).unwrap()["outcome"].clone();
        assert_eq!((outcome(&first), outcome(&second)), ("committed".into(), "aborted by the broker".into()));

        // One committed, one aborted: the job writes the aborted one again.
        let ended = case.run(&["resume", "rewind", "rewrite"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        case.assert_exact("after a person's hand");
        assert!(described().iter().all(|one| one["chain"]["in-doubt"].is_null()));

        // What the chain of then has settled long ago was committed again since.
        let settled = all.iter().find(|one| one["chain"]["settled"].is_object()).unwrap();
        let store = format!("checkpoint.store=\"file://{}\"", old_copy.display());
        let before = store_files(&old_copy);
        txn(&["abort", &file, &id(settled), "--set", &store]).says(4, "looks like an old copy");
        assert_eq!(store_files(&old_copy), before);
    }
    a_run_that_is_alive_goes_on_until_something_may_be_ended();
    the_same_id_at_two_clusters_is_told_apart();
}

/// Stopped with a decided checkpoint, a run is alive all the same.
fn a_run_that_is_alive_goes_on_until_something_may_be_ended() {
    for is_ended in [false, true] {
        let case = Case::new(&format!("txn-alive-{is_ended}"), On::Ours(2));
        let file = case.bench.file.to_str().unwrap().to_owned();
        let txn = |arguments: &[&str]| hapax(&[&["txn"], arguments].concat());
        let arguments = ["--json", "--crash-at", "K2:3:stop"];
        let mut alive = harness::run(&case.bench.file, &arguments, &case.bench.path("alive.log")).unwrap();
        alive.until("it stops", PATIENCE, |run| Ok(run.crash_point("K2")?.is_some())).unwrap();
        let described = txn(&["describe", &file, "--json"]);
        let all: Vec<serde_json::Value> =
            described.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |is_in_doubt: bool| {
            let one = all.iter().find(|one| one["chain"]["in-doubt"].is_object() == is_in_doubt).unwrap();
            one["id"].as_str().unwrap()
        };
        txn(&["abort", &file, "other.main.0.0"]).says(2, "nothing was ended");
        txn(&["commit", &file, of(false)]).says(2, "nothing was ended");
        txn(&["abort", &file, of(true)]).says(2, "nothing was ended");
        if is_ended {
            let ended = txn(&["commit", &file, of(true)]);
            assert_eq!(ended.code, Some(0), "{}", ended.err);
        }
        alive.process().signal("CONT").unwrap();
        alive.demand_exit(if is_ended { 5 } else { 0 }, PATIENCE).unwrap();
        if is_ended {
            let ended = case.run(&["resume"]);
            assert_eq!(ended.code, Some(0), "{}", ended.err);
        }
        case.assert_exact("after a person's hand on a run that is alive");
    }
}

/// A job is begun anew on another cluster, and the one before is still there under another name.
fn the_same_id_at_two_clusters_is_told_apart() {
    let case = Case::new("txn-replaced", On::Ours(2));
    case.die("K2:3", &[]);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // The id of a cluster follows from its seed.
    let settings = Settings { seed: 7, ..Settings::default() };
    let replaced = runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap();
    Judge::shared().create_topic(&replaced.bootstrap(), &case.topic, PARTITIONS as u32, &[]).unwrap();
    let text = fs::read_to_string(&case.bench.file).unwrap();
    let text = text.replace(&case.cluster.bootstrap(), &replaced.bootstrap());
    let text = text.replace("[[sink]]\n", "[[sink]]\ncluster = \"main\"\n");
    let text = format!("{text}[cluster.before]\nbrokers = \"{}\"\n", case.cluster.bootstrap());
    fs::write(&case.bench.file, text).unwrap();
    case.bench.run(&["--fresh", "--crash-at", "K2:3"]);

    let file = case.bench.file.to_str().unwrap().to_owned();
    let txn = |arguments: &[&str]| hapax(&[&["txn"], arguments].concat());
    let described = |more: &[&str]| -> Vec<serde_json::Value> {
        let ended = txn(&[&["describe", &file, "--json"], more].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = described(&[]);
    assert_eq!(all.len(), 6 * PARTITIONS as usize, "three ids a lane, at two clusters");
    let is_in_doubt = |one: &serde_json::Value| one["chain"]["in-doubt"].is_object();
    let doubt = all.iter().find(|one| is_in_doubt(one)).unwrap();
    let in_doubt = doubt["id"].as_str().unwrap();
    let twin = all.iter().find(|one| one["id"] == in_doubt && !is_in_doubt(one)).unwrap();
    let before = twin["cluster_id"].as_str().unwrap();
    txn(&["abort", &file, in_doubt]).says(2, "say --decided");
    let doubtful: Vec<_> = all.iter().filter(|one| is_in_doubt(one)).map(|one| one["id"].clone()).collect();
    let free = all.iter().find(|one| !doubtful.contains(&one["id"])).unwrap()["id"].as_str().unwrap();
    let refused = txn(&["abort", &file, free]);
    refused.says(2, "say which one is meant with --cluster-id");
    refused.says(2, before);
    for id in [in_doubt, free] {
        let ended = txn(&["abort", &file, id, "--cluster-id", before]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }

    // What is down hides nothing of what is up.
    let of_before = described(&["--set", "cluster.before.brokers=\"127.0.0.1:1\""]);
    assert_eq!(of_before.len(), all.len());
    for one in of_before {
        let is_down = one["coordinator"].as_str().unwrap().starts_with("cluster not reachable: ");
        assert_eq!(is_down, one["cluster_id"] == before, "{one}");
    }
}

/// Every file below a folder, so that nothing was put there if nothing is to be.
fn store_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(store_files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

fn copy_folder(from: &Path, to: &Path) {
    for file in store_files(from) {
        let copy = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(&file, copy).unwrap();
    }
}

/// R0 to R6: recovery dies wherever it can, twice in a row, and the third run ends in the same place.
#[test]
fn recovery_that_dies_at_any_of_its_points_ends_in_the_same_place() {
    let all = ["R0", "R1", "R2", "R3", "R4", "R5", "R6"].map(|point| ("rewrite", point));
    // Nothing is open, so going back ends nothing, and it writes none again.
    let back = ["R0", "R1", "R2", "R5", "R6"].map(|point| ("rewind", point));
    let cases = ways().flat_map(|(on, left)| {
        let back = back.into_iter().filter(move |_| left == Left::AllOpen);
        all.into_iter().chain(back).map(move |(strategy, point)| (on, left, strategy, point))
    });
    play(cases, |(on, left, strategy, point)| {
        let when = format!("{point}-{strategy}-{}", name_of(on, left)).to_lowercase();
        let case = Case::new(&when, on);
        case.leave(left);
        let list = allowed(&["resume", strategy]);
        case.die(point, &[&list[0], &list[1]]);
        case.die_or_be_done(point, &[&list[0], &list[1]]);
        let ended = case.run(&["resume", strategy]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        case.assert_exact(&when);
    });
}

/// A recovery that is stopped at a point, a second one that does it all, and the first one wakes: it finds the newer
/// claim, and what it sends meanwhile harms nothing.
#[test]
fn a_recovery_that_slept_does_no_harm_when_it_wakes() {
    let points = ["R0", "R1", "R2", "R3", "R4", "R5"];
    let cases = ways().flat_map(|(on, left)| points.map(|point| (on, left, point)));
    play(cases, |(on, left, point)| {
        let when = format!("asleep-{point}-{}", name_of(on, left)).to_lowercase();
        let case = Case::new(&when, on);
        case.leave(left);
        case.sleep_through(point, "rewrite", || {}, &when);
    });
}

impl Case {
    /// Recovery stops at a point, where it is looked at; a second one does all, and the first one wakes.
    fn sleep_through(&self, point: &str, strategy: &str, look: impl FnOnce(), when: &str) {
        let list = allowed(&["resume", strategy]);
        let at = format!("{point}:1:stop");
        let arguments = ["--json", &list[0], &list[1], "--crash-at", &at];
        let mut asleep = harness::run(&self.bench.file, &arguments, &self.bench.path("asleep.log")).unwrap();
        asleep.until("it sleeps", PATIENCE, |run| Ok(run.crash_point(point)?.is_some())).unwrap();
        look();
        let ended = self.run(&["resume", strategy]);
        assert_eq!(ended.code, Some(0), "{when}: {}", ended.err);
        self.assert_exact(when);
        asleep.process().signal("CONT").unwrap();
        asleep.demand_exit(5, PATIENCE).unwrap();
        self.assert_exact(when);
    }

    /// The second time a point may not be reached any more, because the first run got behind it.
    fn die_or_be_done(&self, at: &str, more: &[&str]) -> String {
        let ended = self.bench.run(&[&["--crash-at", at], more].concat());
        assert!(matches!(ended.code, None | Some(0)), "{at}: {}", ended.err);
        if ended.code.is_none() {
            assert!(ended.err.contains(&format!("crash point {at} reached")), "{}", ended.err);
        }
        ended.err
    }
}
