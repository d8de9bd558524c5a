//! One job from a scripted source into one topic, and what can be seen of it from outside.

use super::{
    captured, eventually,
    running::{OnReach, Running},
    scripted::Scripted,
};
use hapax::{Guarantee, Job, Plan, ProducerSettings, Settings, SinkTopic};
use hapax_commit::{Manifest, Slot, SlotBody};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use xtask::{
    judge::{Audit, Expected, Isolation, Judge, Report},
    kafka::{self, Version},
};

/// Every guarantee that has a checkpoint behind it.
pub(super) const GUARANTEED: [Guarantee; 2] = [Guarantee::AtLeastOnce, Guarantee::ExactlyOnce];

/// Each of them on each version.
pub(super) fn everywhere() -> impl Iterator<Item = (Version, Guarantee)> {
    Version::ALL.into_iter().flat_map(|version| GUARANTEED.map(|guarantee| (version, guarantee)))
}

#[derive(Clone, Debug)]
pub(super) struct Case {
    /// Name of the job and of its topic.
    pub(super) name: String,
    pub(super) bootstrap: String,
    pub(super) guarantee: Guarantee,
    pub(super) source: Scripted,
    pub(super) producer: ProducerSettings,
    pub(super) settings: Settings,
    store: PathBuf,
}

impl Case {
    /// Creates the topic, with a partition for each split.
    pub(super) fn new(name: &str, bootstrap: &str, guarantee: Guarantee, source: Scripted) -> Self {
        Self::with_topic(name, bootstrap, guarantee, source, &[])
    }

    pub(super) fn with_topic(
        name: &str,
        bootstrap: &str,
        guarantee: Guarantee,
        source: Scripted,
        topic: &[(&str, &str)],
    ) -> Self {
        let name = unique(name);
        Judge::shared().create_topic(bootstrap, &name, source.splits, topic).unwrap();
        let store = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        let settings = Settings {
            store: (guarantee != Guarantee::None).then(|| format!("file://{}", store.display())),
            interval: Duration::from_millis(300),
            // The tests look at all of them.
            keep: 10_000,
            shards: Some(source.splits),
            run_backoff: (Duration::from_millis(100), Duration::from_secs(1)),
            ..Settings::default()
        };
        Self {
            name,
            bootstrap: bootstrap.to_owned(),
            guarantee,
            source,
            producer: ProducerSettings::default(),
            settings,
            store,
        }
    }

    pub(super) fn plan(&self) -> Plan {
        self.job().plan().unwrap()
    }

    pub(super) fn job(&self) -> Job {
        let sink = SinkTopic::new("main", &self.name).guarantee(self.guarantee);
        Job::new(&self.name)
            .settings(|settings| *settings = self.settings.clone())
            .cluster("main", &self.bootstrap)
            .unwrap()
            .source(self.source.clone())
            .sink(SinkTopic { producer: self.producer.clone(), ..sink })
    }

    pub(super) fn start(&self) -> Running {
        Running::start(self.plan(), OnReach::nothing())
    }

    /// Runs the job to its end.
    pub(super) fn finish(&self) -> hapax::Summary {
        self.start().ended().finished()
    }

    /// The slots of the chain, from its files.
    pub(super) fn chain(&self) -> Vec<Slot> {
        let folder = self.store.join(&self.name).join("1/chain/0");
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        let is_slot = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.bytes().all(|byte| byte.is_ascii_digit())
        };
        let mut slots: Vec<Slot> =
            paths.filter(is_slot).map(|path| Slot::from_bytes(&fs::read(path).unwrap()).unwrap()).collect();
        slots.sort_by_key(|slot| slot.number);
        slots
    }

    pub(super) fn manifests(&self) -> Vec<Manifest> {
        let manifest = |slot: Slot| match slot.body {
            SlotBody::Manifest(manifest) => Some(manifest),
            _ => None,
        };
        self.chain().into_iter().filter_map(manifest).collect()
    }

    /// Records that the newest manifest covers, over all splits.
    pub(super) fn covered(&self) -> u64 {
        self.manifests().last().map_or(0, covered_by)
    }

    /// Records in the topic's log, committed or not.
    pub(super) fn in_log(&self) -> u64 {
        count(&self.bootstrap, &self.name, Isolation::ReadUncommitted)
    }

    pub(super) fn await_in_log(&self, records: u64) {
        eventually(&format!("{records} records in {}", self.name), || {
            (self.in_log() >= records).then_some(())
        });
    }

    /// The output is what the guarantee promises of a job that has finished.
    pub(super) fn assert_complete(&self) {
        self.outcome().assert_complete();
    }

    /// An answered commit is visible a moment later: this waits until no reader has to wait for the job.
    pub(super) fn outcome(&self) -> Outcome {
        let what = format!("no transaction of {} is open and none of its records waits for one", self.name);
        let report = eventually(&what, || {
            let report = audit(&self.bootstrap, &self.name, &self.source);
            (report.unstable == 0 && self.open_transactions().is_empty()).then_some(report)
        });
        self.log("missing marker is written").iter().for_each(|line| println!("{line}"));
        Outcome {
            name: self.name.clone(),
            guarantee: self.guarantee,
            total: self.source.total(),
            report,
            covered: self.covered(),
        }
    }

    /// Transactions of the job that a reader waits for.
    pub(super) fn open_transactions(&self) -> Vec<kafka::ListedTransaction> {
        let prefix = format!("{}.", self.name);
        let listed = kafka::transactions(&self.bootstrap).unwrap();
        listed.into_iter().filter(|listed| listed.id.starts_with(&prefix) && listed.is_open()).collect()
    }

    /// Lines of the log that name this case and contain `words`.
    pub(super) fn log(&self, words: &str) -> Vec<String> {
        captured::lines(&[&self.name, words])
    }
}

/// What a job has left behind.
#[derive(Debug)]
pub(super) struct Outcome {
    name: String,
    guarantee: Guarantee,
    total: u64,
    /// What a `read_committed` reader finds, against what the source has.
    pub(super) report: Report,
    /// Records that the newest manifest covers.
    pub(super) covered: u64,
}

impl Outcome {
    pub(super) fn assert_complete(&self) {
        let report = &self.report;
        match self.guarantee {
            Guarantee::ExactlyOnce => assert!(report.is_exact(), "{}: {report:?}", self.name),
            Guarantee::AtLeastOnce | Guarantee::None => {
                assert_eq!((report.lost, report.unexpected), (0, 0), "{}: {report:?}", self.name);
            }
        }
        assert_eq!(self.covered, self.total, "{}", self.name);
    }
}

pub(super) fn covered_by(manifest: &Manifest) -> u64 {
    manifest.positions.values().map(|position| position.next).sum()
}

pub(super) fn count(bootstrap: &str, topic: &str, isolation: Isolation) -> u64 {
    let partitions = Judge::shared().read_all(bootstrap, topic, isolation).unwrap();
    partitions.iter().map(|partition| partition.records.len() as u64).sum()
}

pub(super) fn audit(bootstrap: &str, topic: &str, source: &Scripted) -> Report {
    let audit = Audit {
        topics: vec![topic.to_owned()],
        expected: Expected::Range { from: 0, count: source.total() },
        field: "id".to_owned(),
        source_partitions: source.splits,
        value: None,
    };
    Judge::shared().audit(bootstrap, &audit).unwrap()
}

/// A name that no job or topic had before, also on a broker that outlives this process.
pub(super) fn unique(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}-{}", std::process::id(), since.as_millis() % 1_000_000_000)
}
