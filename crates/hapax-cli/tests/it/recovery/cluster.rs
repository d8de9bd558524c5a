//! One epoch on two clusters, where its transactions come to different ends, or one cluster says nothing for a while.
//!
//! Two brokers of this repository, each with a clock of its own, so that only one of them times out; librdkafka reads both.

use super::*;

const JOB: &str = "parted";
const TOPIC: &str = "out";
const LANES: [&str; 2] = ["a", "b"];

/// A transaction timeout that is far from being near, and one of which there is never much left.
const PATIENT: i64 = 600_000;
const HASTY: i64 = 28_000;

/// A start gives up behind this: longer than it takes to resolve what can be resolved.
const PATIENCE_OF_A_START: &str = "run.start_timeout=6s";

/// A job of one shard, every record of which goes to cluster `a` and to cluster `b`.
struct Parted {
    brokers: [Hosted; 2],
    bench: Bench,
    timeout_ms: i64,
}

impl Parted {
    /// Decided on both clusters, ended on none.
    fn new(name: &str, version: i16, timeout_ms: i64) -> Self {
        let brokers = [1, 2].map(|seed| {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let settings = Settings { transaction_version: version, seed, ..Settings::default() };
            let broker = runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap();
            Judge::shared().create_topic(&broker.bootstrap(), TOPIC, PARTITIONS as u32, &[]).unwrap();
            Hosted { broker, _runtime: runtime }
        });
        let sections = |section: fn(&str, &str) -> String| {
            let both = LANES.iter().zip(&brokers);
            both.map(|(lane, hosted)| section(lane, &hosted.broker.bootstrap())).collect::<String>()
        };
        let text = format!(
            "job = \"{JOB}\"\ntransaction_timeout = \"{timeout_ms}ms\"\n[checkpoint]\nstore = \"file://PATH/store\"\n\
             interval = \"50ms\"\n{}[run]\nshards = 1\n[[source]]\n\
             generator = {{ count = {RECORDS}, rate = 1500, partitions = {PARTITIONS}, value = '{{\"id\":$id}}' }}\n{}",
            sections(|lane, brokers| format!("[cluster.{lane}]\nbrokers = \"{brokers}\"\n")),
            sections(|lane, _| format!(
                "[[sink]]\ncluster = \"{lane}\"\ntopic = \"{TOPIC}\"\npartition = \"keep\"\n"
            )),
        );
        let parted =
            Self { brokers, bench: Bench::new(&format!("parted-{name}-v{version}"), &text), timeout_ms };
        let ended = parted.bench.run(&["--crash-at", "K2:3"]);
        assert!(ended.code.is_none() && ended.err.contains("crash point K2 reached"), "{}", ended.err);
        assert_eq!(parted.fates(), ["open", "open"]);
        parted
    }

    fn run(&self, strategies: &[&str]) -> Ended {
        let list = allowed(strategies);
        self.bench.run(&["--json", &list[0], &list[1], "--set", PATIENCE_OF_A_START])
    }

    fn txn(&self, arguments: &[&str]) -> Ended {
        hapax(&[&["txn", arguments[0], self.bench.file.to_str().unwrap()], &arguments[1..]].concat())
    }

    /// What is in doubt: the id of each cluster's transaction, and what has become of it.
    fn doubt(&self) -> [(String, String); 2] {
        let ended = self.txn(&["describe", "--json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let all = ended.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let doubt: Vec<_> = all.filter(|one| one["chain"]["in-doubt"].is_object()).collect();
        LANES.map(|lane| {
            let id = |one: &serde_json::Value| one["id"].as_str().unwrap().to_owned();
            let prefix = format!("{JOB}.{lane}.");
            let one = doubt.iter().find(|one| id(one).starts_with(&prefix)).unwrap();
            (id(one), one["outcome"].as_str().unwrap().to_owned())
        })
    }

    fn fates(&self) -> [String; 2] {
        self.doubt().map(|(_, fate)| fate)
    }

    /// The coordinator of a cluster tells nothing.
    fn silence(&self, lane: usize) -> RuleGuard {
        let rule = Rule::on(ApiKey::DescribeTransactions).always().error(15);
        self.brokers[lane].broker.faults().guard(rule).unwrap()
    }

    /// The time of one cluster runs out.
    fn let_time_out(&self, lane: usize) {
        self.brokers[lane].broker.jump_clock(self.timeout_ms + 1_000).unwrap();
        let began = Instant::now();
        let bootstrap = self.brokers[lane].broker.bootstrap();
        while transactions(&bootstrap).unwrap().iter().any(|one| one.is_open()) {
            assert!(began.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_open(&self, lane: usize, id: &str) -> bool {
        let listed = transactions(&self.brokers[lane].broker.bootstrap()).unwrap();
        listed.iter().any(|one| one.id == id && one.is_open())
    }

    /// What readers see on each cluster, and what is there.
    fn records(&self) -> Vec<Vec<u64>> {
        let all = [Isolation::ReadCommitted, Isolation::ReadUncommitted].into_iter();
        let all = all.flat_map(|isolation| self.brokers.each_ref().map(|hosted| (hosted, isolation)));
        all.flat_map(|(hosted, isolation)| read(hosted, isolation)).collect()
    }

    /// Every record once and in order, on both clusters.
    fn assert_exact(&self, when: &str) {
        for (lane, hosted) in LANES.iter().zip(&self.brokers) {
            let found = read(hosted, Isolation::ReadCommitted);
            assert_eq!(found.len() as u64, PARTITIONS);
            for (partition, found) in (0..).zip(found) {
                let all: Vec<u64> = (partition..RECORDS).step_by(PARTITIONS as usize).collect();
                assert_eq!(found, all, "{when}: partition {partition} of {lane}");
            }
        }
    }
}

/// The records of each partition.
fn read(hosted: &Hosted, isolation: Isolation) -> Vec<Vec<u64>> {
    let mut read = Judge::shared().read_all(&hosted.broker.bootstrap(), TOPIC, isolation).unwrap();
    read.sort_by_key(|partition| partition.bounds.partition);
    read.iter().map(|partition| partition.records.iter().map(number).collect()).collect()
}

fn number(read: &Read) -> u64 {
    let value: serde_json::Value = serde_json::from_str(&read.text()).unwrap();
    value["id"].as_u64().unwrap()
}

/// There is no way back behind a commit, wherever it is.
#[test]
fn what_is_committed_on_one_cluster_and_aborted_on_the_other_is_written_again_on_the_other_alone() {
    for version in [0, 2] {
        let parted = Parted::new("committed", version, PATIENT);
        let [(a, _), (b, _)] = parted.doubt();
        let ended = parted.txn(&["commit", &a]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        parted.let_time_out(1);
        assert_eq!(parted.fates(), ["committed", "aborted by the broker"]);
        parted.run(&["resume", "rewind"]).says(4, "some lane is committed");
        let ended = parted.run(&["resume", "rewind", "rewrite"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let again: Vec<&str> =
            ended.err.lines().filter(|line| line.contains("prepared once more, from")).collect();
        assert!(again.len() == 1 && again[0].contains(&b), "{again:?}");
        parted.assert_exact("written again on one cluster");
    }
}

#[test]
fn what_is_open_on_one_cluster_and_aborted_on_the_other_is_read_again() {
    for version in [0, 2] {
        let parted = Parted::new("aborted", version, PATIENT);
        parted.let_time_out(1);
        assert_eq!(parted.fates(), ["open", "aborted by the broker"]);
        let ended = parted.run(&["resume", "rewind"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("rewound: ") && !ended.err.contains("resumed: "), "{}", ended.err);
        parted.assert_exact("read again");
    }
}

/// H10: forward, since what is open here would not be so for much longer; the way back is given up with that.
#[test]
fn what_is_open_is_committed_before_its_deadline_although_the_other_cluster_says_nothing() {
    play([(0, false), (0, true), (2, false), (2, true)], |(version, times_out)| {
        let parted = Parted::new(&format!("hasty-{times_out}"), version, HASTY);
        let [(a, _), (b, _)] = parted.doubt();
        let silent = parted.silence(1);
        parted.run(&["resume", "rewind", "rewrite"]).says(3, "E0301");
        assert!(!parted.is_open(0, &a), "committed in a hurry");
        assert!(silent.fired() > 0);
        assert!(parted.is_open(1, &b), "nothing was concluded about it");
        drop(silent);
        assert_eq!(parted.fates(), ["committed", "open"]);
        if times_out {
            parted.let_time_out(1);
        }
        let ended = parted.run(&["resume", "rewind", "rewrite"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_eq!(ended.err.contains("written again: "), times_out, "{}", ended.err);
        parted.assert_exact("resolved when it answered");
    });
}

/// Nothing follows from silence: neither that it is aborted, nor that it is not.
#[test]
fn where_one_cluster_says_nothing_and_nothing_presses_the_start_waits_and_changes_nothing() {
    play([(0, false), (0, true), (2, false), (2, true)], |(version, is_aborted)| {
        let parted = Parted::new(&format!("silent-{is_aborted}"), version, PATIENT);
        if is_aborted {
            parted.let_time_out(0);
        }
        let (fates, records) = (parted.fates(), parted.records());
        assert_eq!(fates, [if is_aborted { "aborted by the broker" } else { "open" }, "open"]);
        let silent = parted.silence(1);
        parted.run(&["resume", "rewind", "rewrite", "replay", "abandon"]).says(3, "E0301");
        assert!(silent.fired() > 0);
        drop(silent);
        assert_eq!(parted.fates(), fates);
        assert_eq!(parted.records(), records, "nothing was written, and nothing is shown");
        let ended = parted.run(&["resume", "rewind"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let told = if is_aborted { "rewound: " } else { "resumed: " };
        assert!(ended.err.contains(told), "{}", ended.err);
        parted.assert_exact("resolved when it answered");
    });
}
