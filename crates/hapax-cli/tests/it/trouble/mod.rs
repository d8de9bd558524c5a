//! Trouble: brokers, stores, records and people that do what they should not. Each test is a promise of what the
//! binary then does: its exit code, what its message says, and that the output is exact once all is well again.
//!
//! Jobs here write numbered records, so that lost, duplicated and reordered ones are counted by a reader that is not
//! ours ([`Job::is_exact`]). Brokers are shared but where a test hurts one.

mod broker;
mod disk;
mod message;
mod process;
mod record;
mod store;

use crate::harness::{self, unique};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use xtask::{
    hapax::{Feed, Part, Run},
    judge::{Audit, Bounds, Judge, Numbers},
    kafka::{ListedTransaction, Version, shared, transactions},
};

/// Longer than anything here takes on a machine that is busy with other tests: whatever waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Partitions of every topic, and so the number of shards.
const PARTITIONS: u32 = 2;

fn bootstrap() -> &'static str {
    &shared(Version::V4_4).bootstrap
}

/// A job with a folder of its own, and its output topic.
struct Job {
    name: String,
    bootstrap: String,
    folder: PathBuf,
    file: PathBuf,
    store: PathBuf,
    sink: String,
}

/// A generator of `count` records, `rate` a second.
fn generator(count: u64, rate: u64) -> String {
    format!(
        "generator = {{ count = {count}, rate = {rate}, partitions = {PARTITIONS}, value = '{{\"id\":$id}}' }}"
    )
}

/// A copy from a topic on the broker that tests share, and the topic; `more` follows in its `[[source]]`.
fn copied(name: &str, more: &str) -> (Job, String) {
    let job = Job::new(name, "");
    let source = format!("{}-in", job.name);
    job.create_topic(&source, &[]);
    job.write(&format!("topics = [\"{source}\"]\n{more}"));
    (job, source)
}

impl Job {
    /// A job with this source on the broker that tests share.
    fn new(name: &str, source: &str) -> Self {
        Self::on(bootstrap(), name, source)
    }

    fn on(bootstrap: &str, name: &str, source: &str) -> Self {
        let folder = harness::directory(&format!("trouble-{name}")).unwrap();
        let name = unique(name);
        let (store, file, sink) = (folder.join("store"), folder.join("pipeline.toml"), format!("{name}-out"));
        let job = Self { name, bootstrap: bootstrap.to_owned(), folder, file, store, sink };
        job.create_topic(&job.sink, &[]);
        job.write(source);
        job
    }

    fn create_topic(&self, topic: &str, config: &[(&str, &str)]) {
        Judge::shared().create_topic(&self.bootstrap, topic, PARTITIONS, config).unwrap();
    }

    /// Writes the pipeline file; `source` is the inside of its `[[source]]`, and may have operators behind it.
    fn write(&self, source: &str) {
        let Self { name, bootstrap, store, sink, .. } = self;
        let text = format!(
            "job = \"{name}\"\n[checkpoint]\nstore = \"file://{store}\"\ninterval = \"100ms\"\n\
             [cluster.main]\nbrokers = \"{bootstrap}\"\n[run]\nbackoff = \"100ms\"\nbackoff_max = \"1s\"\n\
             [[source]]\n{source}\n[[sink]]\ncluster = \"main\"\ntopic = \"{sink}\"\n",
            store = store.display(),
        );
        fs::write(&self.file, text).unwrap();
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Run {
        let log = self.folder.join(format!("{name}.log"));
        harness::run(&self.file, &[&["--json"], arguments].concat(), &log).unwrap()
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Ended {
        Ended::of(self.start(name, arguments))
    }

    /// Writes numbers to a topic without a pause, in parts of a few seconds, until it is ended.
    fn feed(&self, topic: &str) -> Feed {
        let part = |_| Part::Write(Numbers { per_second: Some(300), ..Numbers::new(PARTITIONS, 600) });
        let judge = Arc::new(Judge::start().unwrap());
        Feed::start(judge, &self.bootstrap, topic, Duration::ZERO, part)
    }

    /// Waits until the output has `count` records that a `read_committed` reader sees.
    fn await_committed(&self, run: &mut Run, count: i64) {
        let committed = |run: &mut Run| {
            if let Some(status) = run.process().try_wait()? {
                return Err(run.failure(&format!("ended ({status})")));
            }
            Ok(self.bounds().iter().map(|bounds| bounds.stable_end).sum::<i64>() >= count)
        };
        run.until(&format!("{count} offsets of {} are committed", self.sink), PATIENCE, committed).unwrap();
    }

    fn bounds(&self) -> Vec<Bounds> {
        Judge::shared().end_offsets(&self.bootstrap, &self.sink).unwrap()
    }

    /// What the brokers know of the job: its transactions, and where its output ends. A transactional id that
    /// somebody initialises changes its state, so equal ones were left alone.
    fn traces(&self) -> (Vec<ListedTransaction>, Vec<Bounds>) {
        let prefix = format!("{}.", self.name);
        let all = transactions(&self.bootstrap).unwrap();
        (all.into_iter().filter(|listed| listed.id.starts_with(&prefix)).collect(), self.bounds())
    }

    /// The output is the numbers below `count`, each once and in order, and no transaction is open.
    fn is_exact(&self, count: u64) {
        let audit = Audit { value: None, ..Audit::copy(&self.sink, PARTITIONS, count) };
        let report = Judge::shared().audit(&self.bootstrap, &audit).unwrap();
        assert!(report.is_exact() && report.records == count, "{}: {report:?}", self.name);
        let open: Vec<_> = self.traces().0.into_iter().filter(ListedTransaction::is_open).collect();
        assert!(open.is_empty(), "{}: {open:?}", self.name);
    }
}

/// A run that has ended.
struct Ended {
    code: Option<i32>,
    text: String,
}

impl Ended {
    fn of(mut run: Run) -> Self {
        let status = run.wait(PATIENCE).unwrap();
        Self { code: status.code(), text: run.output().unwrap() }
    }

    /// Ended with this exit code, in a last message that begins with `stable` and has all of `parts` in it.
    fn says(&self, code: i32, stable: &str, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.text);
        let message = self.text.lines().last().unwrap_or_default();
        assert!(
            message.starts_with(&format!("{stable}: ")),
            "{stable} is not said at the end of: {}",
            self.text
        );
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in: {message}");
        }
    }

    /// Ended with exit code 0; its summary.
    fn done(&self) -> serde_json::Value {
        assert_eq!(self.code, Some(0), "{}", self.text);
        let line = self.text.lines().rfind(|line| line.starts_with('{'));
        serde_json::from_str(line.unwrap_or_else(|| panic!("no summary: {}", self.text))).unwrap()
    }
}

/// Asks a run to stop with SIGTERM and waits for its end.
fn terminate(mut run: Run) -> Ended {
    run.process().signal("TERM").unwrap();
    Ended::of(run)
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            match fs::copy(entry.path(), target) {
                // A running job removes what it does not need any more while it is copied.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => {
                    copied.unwrap();
                }
            }
        }
    }
}
