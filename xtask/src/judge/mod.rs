//! The independent reader and writer: librdkafka in one long-lived Python process.
//!
//! What a test of the client asserts is asserted by somebody else's code. One process serves one test binary
//! ([`Judge::shared`]); requests go as JSON lines, as many at a time as there are callers, because most of their
//! time is waiting; each has a limit of its own in `xtask/judge/judge.py`. Refuses nothing: every call names the
//! brokers, so one judge serves all clusters.

mod python;
mod report;

pub use python::{VARIABLE, python};
pub use report::{
    Audit, Bounds, Expected, GroupOffset, Isolation, NUMBERS_VALUE, Numbers, Outcome, Partition, Read,
    Record, Report,
};

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::process::{self, Supervised};

const PROGRAM: &str = include_str!("../../judge/judge.py");

/// A reading of a few hundred thousand records takes seconds; a topic whose leader is away would take for ever.
const READ_LIMIT: Duration = Duration::from_secs(120);

/// A running judge. Dropping it ends its process.
#[derive(Debug)]
pub struct Judge {
    requests: Mutex<ChildStdin>,
    next: AtomicU64,
    waiting: Arc<Waiting>,
    log: PathBuf,
    _process: Supervised,
}

/// Who waits for the answer to which request; `None` when there will be no more answers.
type Waiting = Mutex<Option<HashMap<u64, Sender<Value>>>>;

impl Judge {
    /// Starts a judge of its own, for tests that write in the background while they read.
    ///
    /// # Errors
    /// Python or its packages are missing and could not be fetched.
    pub fn start() -> io::Result<Judge> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!("hapax-judge-{}-{number}.log", std::process::id()));
        process::remove_at_exit(&log)?;
        let mut command = Command::new(python()?);
        command
            .args(["-u", "-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        let mut process = Supervised::spawn(&mut command)?;
        let requests = Mutex::new(process.take_stdin().expect("standard input was asked for"));
        let answers = process.take_stdout().expect("standard output was asked for");
        let waiting: Arc<Waiting> = Arc::new(Mutex::new(Some(HashMap::new())));
        let handed_on = waiting.clone();
        thread::spawn(move || hand_on(answers, &handed_on));
        Ok(Judge { requests, next: AtomicU64::new(0), waiting, log, _process: process })
    }

    /// The judge of this process.
    ///
    /// # Panics
    /// It could not be started; the text says why.
    pub fn shared() -> &'static Judge {
        static JUDGE: OnceLock<Judge> = OnceLock::new();
        JUDGE.get_or_init(|| match Judge::start() {
            Ok(judge) => judge,
            Err(error) => panic!("no judge: {error}"),
        })
    }

    /// Creates a topic with the brokers' default replication and waits until every partition has a leader.
    ///
    /// # Errors
    /// The broker refused it, or was not reached.
    pub fn create_topic(
        &self,
        bootstrap: &str,
        topic: &str,
        partitions: u32,
        config: &[(&str, &str)],
    ) -> io::Result<()> {
        let config: Map<String, Value> =
            config.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let request = json!({"topic": topic, "partitions": partitions, "config": config});
        self.ask("create_topic", bootstrap, request).map(drop)
    }

    /// Deletes a topic and waits until the broker no longer knows it.
    ///
    /// # Errors
    /// The broker refused it, or was not reached.
    pub fn delete_topic(&self, bootstrap: &str, topic: &str) -> io::Result<()> {
        self.ask("delete_topic", bootstrap, json!({"topic": topic})).map(drop)
    }

    /// Raises a topic's number of partitions to `partitions` and waits for their leaders.
    ///
    /// # Errors
    /// The broker refused it, or was not reached.
    pub fn add_partitions(&self, bootstrap: &str, topic: &str, partitions: u32) -> io::Result<()> {
        self.ask("add_partitions", bootstrap, json!({"topic": topic, "partitions": partitions})).map(drop)
    }

    /// Changes settings of a topic, the others stay, and waits until the broker tells the new values.
    ///
    /// # Errors
    /// The broker refused it, or was not reached.
    pub fn configure_topic(&self, bootstrap: &str, topic: &str, config: &[(&str, &str)]) -> io::Result<()> {
        let config: Map<String, Value> =
            config.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        self.ask("configure_topic", bootstrap, json!({"topic": topic, "config": config})).map(drop)
    }

    /// Deletes a partition's records before an offset: the log then starts there.
    ///
    /// # Errors
    /// The broker refused it, or was not reached.
    pub fn delete_records(
        &self,
        bootstrap: &str,
        topic: &str,
        partition: i32,
        before: i64,
    ) -> io::Result<()> {
        let request = json!({"topic": topic, "partition": partition, "before": before});
        self.ask("delete_records", bootstrap, request).map(drop)
    }

    /// The names of all topics but Kafka's own, sorted.
    ///
    /// # Errors
    /// The broker was not reached.
    pub fn topics(&self, bootstrap: &str) -> io::Result<Vec<String>> {
        let answer = self.ask("topics", bootstrap, json!({}))?;
        let names = answer.as_array().ok_or_else(|| report::misread(&answer))?;
        Ok(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
    }

    /// The offsets that a consumer group has committed.
    ///
    /// # Errors
    /// The broker was not reached.
    pub fn group_offsets(&self, bootstrap: &str, group: &str) -> io::Result<Vec<GroupOffset>> {
        let answer = self.ask("group_offsets", bootstrap, json!({"group": group}))?;
        each(&answer, GroupOffset::from_json)
    }

    /// Writes records (`acks=all`, idempotent) and returns how many were acknowledged: all of them.
    ///
    /// # Errors
    /// A record was refused, or the broker was not reached.
    pub fn produce(&self, bootstrap: &str, topic: &str, records: &[Record]) -> io::Result<u64> {
        self.produce_with(bootstrap, topic, records, &[])
    }

    /// As [`Judge::produce`], with configuration of librdkafka (`compression.type`, `batch.num.messages`).
    ///
    /// # Errors
    /// A record was refused, or the broker was not reached.
    pub fn produce_with(
        &self,
        bootstrap: &str,
        topic: &str,
        records: &[Record],
        config: &[(&str, &str)],
    ) -> io::Result<u64> {
        let config: Map<String, Value> =
            config.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let records: Vec<Value> = records.iter().map(Record::to_json).collect();
        let request = json!({"topic": topic, "records": records, "config": config});
        count(&self.ask("produce", bootstrap, request)?)
    }

    /// Writes a numbered stream and returns how many records were acknowledged, aborted ones included.
    ///
    /// # Errors
    /// A record was refused, or the broker was not reached.
    pub fn produce_numbers(&self, bootstrap: &str, topic: &str, numbers: &Numbers) -> io::Result<u64> {
        let config: Map<String, Value> =
            numbers.config.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let request = json!({
            "topic": topic,
            "partitions": numbers.partitions,
            "from": numbers.from,
            "count": numbers.count,
            "value": numbers.value,
            "key": numbers.key,
            "per_second": numbers.per_second,
            "transactions_of": numbers.transactions_of,
            "config": config,
        });
        count(&self.ask("produce_numbers", bootstrap, request)?)
    }

    /// Writes records in one transaction with a time-out of `timeout` and ends it as asked. After
    /// [`Outcome::Open`] the next call with the same id goes on with the open transaction.
    ///
    /// # Errors
    /// A record was refused, the broker was not reached, or the producer was fenced.
    pub fn produce_transactional(
        &self,
        bootstrap: &str,
        topic: &str,
        records: &[Record],
        transactional_id: &str,
        timeout: Duration,
        outcome: Outcome,
    ) -> io::Result<u64> {
        let request = json!({
            "topic": topic,
            "records": records.iter().map(Record::to_json).collect::<Vec<_>>(),
            "transactional_id": transactional_id,
            "timeout_ms": timeout.as_millis() as u64,
            "outcome": outcome.name(),
        });
        count(&self.ask("produce_transactional", bootstrap, request)?)
    }

    /// Ends a transaction that [`Outcome::Open`] left open.
    ///
    /// # Errors
    /// There is none of this id, `outcome` is `Open`, the broker was not reached, or the producer was fenced.
    pub fn end_transaction(&self, transactional_id: &str, outcome: Outcome) -> io::Result<()> {
        if outcome == Outcome::Open {
            let text = format!("could not end the transaction of {transactional_id}: open is not an end");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let request = json!({"transactional_id": transactional_id, "outcome": outcome.name()});
        self.ask("end_transaction", "", request).map(drop)
    }

    /// Reads a topic from its log start to the ends that hold now.
    ///
    /// # Errors
    /// The topic is unknown, or was not read to its end in time.
    pub fn read_all(&self, bootstrap: &str, topic: &str, isolation: Isolation) -> io::Result<Vec<Partition>> {
        let request = json!({
            "topic": topic,
            "isolation": isolation.name(),
            "timeout": READ_LIMIT.as_secs(),
        });
        each(&self.ask("read_all", bootstrap, request)?, Partition::from_json)
    }

    /// The offsets of a topic's partitions now.
    ///
    /// # Errors
    /// The topic is unknown, or the broker was not reached.
    pub fn end_offsets(&self, bootstrap: &str, topic: &str) -> io::Result<Vec<Bounds>> {
        each(&self.ask("end_offsets", bootstrap, json!({"topic": topic}))?, Bounds::from_json)
    }

    /// Reads the output topics with `read_committed` to the ends that hold now and counts what is wrong.
    ///
    /// # Errors
    /// A topic is unknown, or was not read to its end in time.
    pub fn audit(&self, bootstrap: &str, audit: &Audit) -> io::Result<Report> {
        let expected = match &audit.expected {
            Expected::Range { from, count } => json!({"from": from, "count": count, "ids": null}),
            Expected::Ids(ids) => json!({"from": 0, "count": 0, "ids": ids}),
        };
        let request = json!({
            "topics": audit.topics,
            "expected": expected,
            "field": audit.field,
            "source_partitions": audit.source_partitions,
            "value": audit.value,
            "timeout": READ_LIMIT.as_secs(),
        });
        Report::from_json(&self.ask("audit", bootstrap, request)?)
    }

    /// Whether a `read_committed` reader of a topic gets, within `limit`, a record whose JSON value holds a number
    /// from `from` on at `field`. It begins at the stable ends of `after`, so it sees what became visible since
    /// then; partitions that are not named are read from their beginning.
    ///
    /// # Errors
    /// The topic is unknown, or the broker was not reached.
    pub fn await_number(
        &self,
        bootstrap: &str,
        topic: &str,
        after: &[Bounds],
        (field, from): (&str, u64),
        limit: Duration,
    ) -> io::Result<bool> {
        let after: Vec<Value> =
            after.iter().map(|bounds| json!([bounds.partition, bounds.stable_end])).collect();
        let request = json!({
            "topic": topic,
            "after": after,
            "field": field,
            "from": from,
            "timeout_ms": limit.as_millis() as u64,
        });
        let answer = self.ask("await_number", bootstrap, request)?;
        answer.as_bool().ok_or_else(|| report::misread(&answer))
    }

    /// Sends one request and waits for its answer.
    fn ask(&self, what: &str, bootstrap: &str, mut request: Value) -> io::Result<Value> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        request["do"] = json!(what);
        request["bootstrap"] = json!(bootstrap);
        request["number"] = json!(number);
        let (answered, answer) = mpsc::channel();
        match lock(&self.waiting).as_mut() {
            Some(waiting) => drop(waiting.insert(number, answered)),
            None => drop(answered),
        }
        // A judge that has ended takes no request and gives no answer: the second says it for both.
        drop(lock(&self.requests).write_all(format!("{request}\n").as_bytes()));
        let Ok(mut answer) = answer.recv() else {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let text = format!("the judge ended during {what}; it wrote:\n{}", process::tail(&log, 25));
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
        };
        match answer["error"].as_str() {
            Some(error) => Err(io::Error::other(format!("the judge could not {what}: {error}"))),
            None => Ok(answer["ok"].take()),
        }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.log)); // the reaper removes what is left
    }
}

/// Gives every answer to who waits for it, until there are no more.
fn hand_on(answers: ChildStdout, waiting: &Waiting) {
    for line in BufReader::new(answers).lines() {
        let Some(answer) = line.ok().and_then(|line| serde_json::from_str::<Value>(&line).ok()) else {
            break;
        };
        let number = answer["number"].as_u64();
        let who =
            number.and_then(|number| lock(waiting).as_mut().and_then(|waiting| waiting.remove(&number)));
        if let Some(who) = who {
            drop(who.send(answer)); // who no longer waits needs no answer
        }
    }
    lock(waiting).take();
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn each<T>(answer: &Value, read: impl Fn(&Value) -> io::Result<T>) -> io::Result<Vec<T>> {
    answer.as_array().ok_or_else(|| report::misread(answer))?.iter().map(read).collect()
}

fn count(answer: &Value) -> io::Result<u64> {
    answer.as_u64().ok_or_else(|| report::misread(answer))
}
