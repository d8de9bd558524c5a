//! A broker, a job that copies topics into one, and what can be seen of both.
//!
//! Input partition p of a topic has records `TOPIC-p-0`, `TOPIC-p-1`.. as values; the job keeps partitions, so that each
//! output partition has all of its input partition's records, in order, or something is wrong.

use crate::{
    command_line::{Bench, Ended, hapax},
    harness::{self, unique},
};
use hapax_broker::{ApiKey, Broker, Rule, ServerOptions, Settings};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};
use xtask::{
    hapax::Run,
    judge::{Isolation, Judge, Record},
    kafka::{ListedTransaction, Version, shared, transactions},
};

pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Where a case is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// Our broker, with this `transaction.version`.
    Ours(i16),
    /// Apache Kafka.
    Kafka(Version),
}

impl On {
    /// Our broker, with both protocols.
    pub(super) const OURS: [Self; 2] = [Self::Ours(0), Self::Ours(2)];

    pub(super) fn name(self) -> String {
        match self {
            Self::Ours(level) => format!("v{level}"),
            Self::Kafka(version) => version.number().replace('.', "-"),
        }
    }
}

/// A broker of its own, on its own threads.
pub(super) struct Hosted {
    pub(super) broker: Broker,
    _runtime: Runtime,
}

impl Hosted {
    pub(super) fn start(transaction_version: i16, seed: u64) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let settings = Settings { transaction_version, seed, ..Settings::default() };
        let broker = runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap();
        Self { broker, _runtime: runtime }
    }
}

pub(super) struct Scene {
    hosted: Option<Hosted>,
    pub(super) bootstrap: String,
    pub(super) bench: Bench,
    pub(super) job: String,
    /// What stands at the top of the pipeline file beside the name.
    pub(super) top: &'static str,
    /// Records written to each input topic, by partition.
    fed: BTreeMap<String, Vec<usize>>,
}

impl Scene {
    /// Topics `JOB-in` and `JOB-out` with so many partitions each, and a job that copies without an end.
    pub(super) fn new(name: &str, on: On, partitions: u32) -> Self {
        Self::with_top(name, on, partitions, "")
    }

    /// The same with more at the top of the pipeline file.
    pub(super) fn with_top(name: &str, on: On, partitions: u32, top: &'static str) -> Self {
        let hosted = match on {
            On::Ours(level) => Some(Hosted::start(level, 1)),
            On::Kafka(_) => None,
        };
        let bootstrap = match (on, &hosted) {
            (On::Kafka(version), _) => shared(version).bootstrap.clone(),
            (_, Some(hosted)) => hosted.broker.bootstrap(),
            (_, None) => unreachable!("our broker is hosted"),
        };
        let job = unique(&format!("change-{name}-{}", on.name()));
        let bench = Bench::new(&format!("change-{name}-{}", on.name()), "");
        let mut scene = Self { hosted, bootstrap, bench, job, top, fed: BTreeMap::new() };
        scene.create("in", partitions);
        scene.create("out", partitions);
        scene.write(&scene.pipeline(&["in"], ""));
        scene
    }

    pub(super) fn broker(&self) -> &Broker {
        &self.hosted.as_ref().expect("played on our broker").broker
    }

    pub(super) fn topic(&self, what: &str) -> String {
        format!("{}-{what}", self.job)
    }

    pub(super) fn create(&mut self, what: &str, partitions: u32) {
        Judge::shared().create_topic(&self.bootstrap, &self.topic(what), partitions, &[]).unwrap();
        self.fed.insert(what.to_owned(), vec![0; partitions as usize]);
    }

    pub(super) fn add_partitions(&mut self, what: &str, partitions: u32) {
        Judge::shared().add_partitions(&self.bootstrap, &self.topic(what), partitions).unwrap();
        self.fed.get_mut(what).unwrap().resize(partitions as usize, 0);
    }

    /// Writes so many records more into each partition.
    pub(super) fn feed(&mut self, what: &str, count: usize) {
        self.feed_with(what, count, &[]);
    }

    /// The same by a producer with this configuration: one that nobody has used yet.
    pub(super) fn feed_with(&mut self, what: &str, count: usize, config: &[(&str, &str)]) {
        let topic = self.topic(what);
        let fed = self.fed.get_mut(what).unwrap();
        let mut records = Vec::new();
        for (partition, begun) in fed.iter_mut().enumerate() {
            for n in *begun..*begun + count {
                let value = format!("{what}-{partition}-{n}");
                records.push(Record::new(value.clone(), value).to_partition(partition as i32));
            }
            *begun += count;
        }
        Judge::shared().produce_with(&self.bootstrap, &topic, &records, config).unwrap();
    }

    /// The text of a pipeline that copies topics into `JOB-out`.
    pub(super) fn pipeline(&self, topics: &[&str], more: &str) -> String {
        let topics: Vec<String> = topics.iter().map(|what| format!("{:?}", self.topic(what))).collect();
        format!(
            "job = \"{}\"\ntransaction_timeout = \"60s\"\n{}[checkpoint]\nstore = \"file://{}\"\ninterval = \"50ms\"\n[cluster.main]\nbrokers = \"{}\"\n\
             [[source]]\ntopics = [{}]\n[[sink]]\ntopic = \"{}\"\npartition = \"keep\"\n{more}",
            self.job,
            self.top,
            self.bench.path("store").display(),
            self.bootstrap,
            topics.join(", "),
            self.topic("out")
        )
    }

    pub(super) fn write(&self, text: &str) {
        fs::write(&self.bench.file, text).unwrap();
    }

    pub(super) fn file(&self) -> &str {
        self.bench.file.to_str().unwrap()
    }

    pub(super) fn start(&self, name: &str, more: &[&str]) -> Run {
        harness::run(&self.bench.file, more, &self.bench.path(&format!("{name}.log"))).unwrap()
    }

    /// Dies at a point, as it is told.
    pub(super) fn die(&self, at: &str, more: &[&str]) -> Ended {
        let ended = self.bench.run(&[&["--crash-at", at], more].concat());
        assert_eq!(ended.code, None, "it does not die at {at}: {}", ended.err);
        let point = at.split(':').next().unwrap();
        assert!(ended.err.contains(&format!("crash point {point} reached")), "{}", ended.err);
        ended
    }

    /// Dies at the end of its first epoch, undecided. That epoch lasts until a transaction is open that is wanted: when each
    /// shard has its first record is up to the machine.
    pub(super) fn die_undecided(&self, is_wanted: impl Fn(&String) -> bool) {
        let long = ["--set", "transaction_timeout=10m", "--set", "checkpoint.interval=2m"];
        let mut run = self.start("undecided", &[&long[..], &["--crash-at", "K1:1"]].concat());
        run.until("has none of them open", PATIENCE, |run| match run.process().try_wait()? {
            Some(status) => Err(run.failure(&format!("ended: {status}"))),
            None => Ok(self.open().iter().any(&is_wanted)),
        })
        .unwrap();
        run.process().signal("TERM").unwrap();
        let status = run.wait(PATIENCE).unwrap();
        let at = run.crash_point("K1").unwrap();
        assert!(status.code().is_none() && at.is_some(), "{}", run.output().unwrap());
    }

    /// Sends the commits of what it decides first, which are held back so long, and dies; since when they are.
    pub(super) fn die_with_commits_held(&self, by: Duration) -> Instant {
        let rule = Rule::on(ApiKey::EndTxn).commit(true).delay(by).always();
        let held = self.broker().faults().guard(rule).unwrap();
        let began = Instant::now();
        self.die("K3:1", &[]);
        // What a killed process has written to its socket arrives a moment later.
        while held.fired() == 0 {
            assert!(began.elapsed() < by / 2, "a commit is on its way");
            std::thread::sleep(Duration::from_millis(5));
        }
        began
    }

    /// Writes a record into each partition now and then, until that time.
    pub(super) fn feed_until(&mut self, what: &str, end: Instant) {
        while Instant::now() < end {
            self.feed(what, 1);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Runs until `what` has all that was fed to these inputs, and stops as asked; its log.
    pub(super) fn catch_up(&self, inputs: &[&str], more: &[&str]) -> String {
        let mut run = self.start(&format!("run-{}", unique("n")), more);
        self.until_copied(&mut run, "out", inputs);
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, PATIENCE).unwrap();
        run.output().unwrap()
    }

    pub(super) fn until_copied(&self, run: &mut Run, out: &str, inputs: &[&str]) {
        let wanted: usize = inputs.iter().map(|what| self.fed[*what].iter().sum::<usize>()).sum();
        let what = format!("has not copied {wanted} records");
        run.until(&what, PATIENCE, |run| match run.process().try_wait()? {
            Some(status) => Err(std::io::Error::other(format!("ended: {status}; {}", run.output()?))),
            None => Ok(self.count(out, inputs) >= wanted),
        })
        .unwrap();
    }

    /// The checkpoint store as it is now, in a folder beside it.
    pub(super) fn copy_of_the_store(&self) -> PathBuf {
        let (store, copy) = (self.bench.path("store"), self.bench.path("copy"));
        for file in files(&store) {
            let to = copy.join(file.strip_prefix(&store).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&file, to).unwrap();
        }
        copy
    }

    /// What a `read_committed` reader sees, by partition.
    pub(super) fn read(&self, what: &str) -> Vec<Vec<String>> {
        let read = Judge::shared().read_all(&self.bootstrap, &self.topic(what), Isolation::ReadCommitted);
        let mut partitions = read.unwrap();
        partitions.sort_by_key(|partition| partition.bounds.partition);
        partitions.iter().map(|one| one.records.iter().map(|read| read.text()).collect()).collect()
    }

    /// Records of these inputs that are in `out`.
    pub(super) fn count(&self, out: &str, inputs: &[&str]) -> usize {
        let is_of = |text: &&String| inputs.iter().any(|what| text.starts_with(&format!("{what}-")));
        self.read(out).iter().flatten().filter(is_of).count()
    }

    /// Every record of these inputs is in `out` once, in its partition and its order.
    pub(super) fn assert_copied(&self, out: &str, inputs: &[&str]) {
        self.assert_settled();
        let found = self.read(out);
        for (partition, found) in found.iter().enumerate() {
            let mut count = 0;
            for what in inputs {
                let prefix = format!("{what}-{partition}-");
                let of_input: Vec<&str> =
                    found.iter().filter_map(|text| text.strip_prefix(&prefix)).collect();
                let fed = self.fed[*what].get(partition).copied().unwrap_or(0);
                let expected: Vec<String> = (0..fed).map(|n| n.to_string()).collect();
                assert_eq!(of_input, expected, "{}: partition {partition} of {what}", self.job);
                count += fed;
            }
            assert_eq!(found.len(), count, "{}: partition {partition} has others: {found:?}", self.job);
        }
    }

    /// Transactions of the job, also those in their last phase.
    pub(super) fn transactions(&self) -> Vec<ListedTransaction> {
        let mut listed = transactions(&self.bootstrap).unwrap();
        listed.retain(|one| one.id.starts_with(&format!("{}.", self.job)));
        listed
    }

    pub(super) fn open(&self) -> Vec<String> {
        let open = self.transactions().into_iter().filter(ListedTransaction::is_open);
        open.map(|one| one.id).collect()
    }

    /// Markers follow an answered commit within milliseconds.
    pub(super) fn assert_settled(&self) {
        let began = Instant::now();
        while !self.open().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(10), "still open: {:?}", self.open());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn shards(&self, count: u32, more: &[&str]) -> Ended {
        hapax(&[&["job", "shards", self.file(), &count.to_string()], more].concat())
    }

    /// The job accepts this number as its own, and no other.
    pub(super) fn has_shards(&self, count: u32) -> bool {
        let set = format!("run.shards={count}");
        // It dies right before its first decision, or is refused before it claims.
        let ended = self.bench.run(&["--set", &set, "--from", "999999"]);
        assert_eq!(ended.code, Some(2), "{}", ended.err);
        !ended.err.contains("hapax job shards FILE")
    }

    /// The incidents that were written, oldest first.
    pub(super) fn incidents(&self) -> Vec<serde_json::Value> {
        let all = files(&self.bench.path("store.incidents"));
        all.iter().map(|file| serde_json::from_slice(&fs::read(file).unwrap()).unwrap()).collect()
    }

    /// The slots of the chain.
    pub(super) fn chain(&self) -> Vec<PathBuf> {
        let folder = self.bench.path("store").join(&self.job).join("1/chain/0");
        files(&folder)
    }
}

/// Every file below a folder.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}
