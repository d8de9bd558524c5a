//! Apache Kafka's own command-line tools, run as Java programs.
//!
//! The second opinion beside [`crate::judge`]: the console consumer and the transactions command read with
//! Kafka's Java client. Each run costs one to three seconds of start-up.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::judge::Isolation;
use crate::kafka::{Installation, ListedTransaction, Version};
use crate::process::{Supervised, run, tail};

const CONSOLE_CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const TRANSACTIONS: &str = "org.apache.kafka.tools.TransactionsCommand";
const FEATURES: &str = "org.apache.kafka.tools.FeatureCommand";

/// Longer than a start of Java, a join of a group and a reading take on a busy machine.
const CONSUME_LIMIT: Duration = Duration::from_secs(120);

/// The tools of one Kafka version.
#[derive(Debug, Clone)]
pub struct Tools {
    installation: Installation,
}

/// A transaction as its coordinator describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedTransaction {
    /// The transactional id.
    pub id: String,
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch.
    pub producer_epoch: i32,
    /// The state in Kafka's words.
    pub state: String,
    /// The transaction's time-out, in milliseconds.
    pub timeout_ms: i64,
    /// The partitions in the transaction, as `topic-partition`.
    pub partitions: Vec<String>,
}

impl Tools {
    /// The tools of `version`.
    ///
    /// # Errors
    /// The jars cannot be fetched.
    pub fn new(version: Version) -> io::Result<Tools> {
        Ok(Tools { installation: Installation::provide(version)? })
    }

    /// Runs a main class to its end; the caller looks at the exit status.
    ///
    /// # Errors
    /// Java could not be started.
    pub fn run(&self, main_class: &str, arguments: &[&str]) -> io::Result<Output> {
        self.command(main_class, arguments).stdin(Stdio::null()).output()
    }

    /// The values of a topic from its beginning, as Kafka's console consumer prints them, one a line.
    ///
    /// The consumer itself knows no end. It is ended when `expected` lines have come and then none for `settle`
    /// (so that a surplus shows), or after two minutes, with what has come by then.
    ///
    /// # Errors
    /// The tool ended by itself; its words are in the text.
    pub fn console_consume(
        &self,
        bootstrap: &str,
        topic: &str,
        isolation: Isolation,
        expected: usize,
        settle: Duration,
    ) -> io::Result<Vec<String>> {
        let mut command = self.command(
            CONSOLE_CONSUMER,
            &[
                "--bootstrap-server",
                bootstrap,
                "--topic",
                topic,
                "--from-beginning",
                "--isolation-level",
                isolation.name(),
            ],
        );
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut consumer = Supervised::spawn(&mut command)?;
        let printed = follow(consumer.take_stdout().expect("standard output was asked for"));
        let complaints = follow(consumer.take_stderr().expect("standard error was asked for"));
        let start = Instant::now();
        let mut lines = Vec::new();
        loop {
            let left = CONSUME_LIMIT.saturating_sub(start.elapsed());
            let wait = if lines.len() < expected { left } else { settle.min(left) };
            match printed.recv_timeout(wait) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    let status = consumer.wait()?;
                    let complaints: Vec<String> = complaints.iter().collect();
                    let words = tail(&complaints.join("\n"), 10);
                    return Err(io::Error::other(format!(
                        "the console consumer of {topic} ended by itself ({status}) after {} lines:\n{words}",
                        lines.len()
                    )));
                }
            }
        }
        consumer.kill()?;
        Ok(lines)
    }

    /// Every transaction that the coordinators of a cluster know; [`crate::kafka::transactions`] is the fast way.
    ///
    /// # Errors
    /// The tool failed, or printed what is not a table.
    pub fn transactions_list(&self, bootstrap: &str) -> io::Result<Vec<ListedTransaction>> {
        let table = self.table(&["--bootstrap-server", bootstrap, "list"])?;
        table
            .iter()
            .map(|row| {
                Ok(ListedTransaction {
                    id: row.cell("TransactionalId")?,
                    producer_id: row.number("ProducerId")?,
                    state: row.cell("TransactionState")?,
                })
            })
            .collect()
    }

    /// What the coordinator of a transactional id says of it; `None` when it does not know the id.
    ///
    /// # Errors
    /// The tool failed, or printed what is not a table.
    pub fn describe_transaction(
        &self,
        bootstrap: &str,
        id: &str,
    ) -> io::Result<Option<DescribedTransaction>> {
        let arguments = ["--bootstrap-server", bootstrap, "describe", "--transactional-id", id];
        let table = match self.table(&arguments) {
            Err(error) if error.to_string().contains("the ID could not be found") => return Ok(None),
            other => other?,
        };
        let Some(row) = table.first() else {
            return Ok(None);
        };
        Ok(Some(DescribedTransaction {
            id: row.cell("TransactionalId")?,
            producer_id: row.number("ProducerId")?,
            producer_epoch: row.number("ProducerEpoch")? as i32,
            state: row.cell("TransactionState")?,
            timeout_ms: row.number("TransactionTimeoutMs")?,
            partitions: row
                .cell("TopicPartitions")?
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        }))
    }

    /// Sets the finalized level of the feature `transaction.version`.
    ///
    /// # Errors
    /// The tool refused both to upgrade and to downgrade to that level.
    pub fn set_transaction_version(&self, bootstrap: &str, level: u16) -> io::Result<()> {
        let feature = format!("transaction.version={level}");
        let change =
            |verb: &str| self.run(FEATURES, &["--bootstrap-server", bootstrap, verb, "--feature", &feature]);
        let upgrade = change("upgrade")?;
        if upgrade.status.success() {
            return Ok(());
        }
        let downgrade = change("downgrade")?;
        if downgrade.status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "could not set {feature}: upgrade said\n{}downgrade said\n{}",
            tail(&words(&upgrade), 5),
            tail(&words(&downgrade), 5)
        )))
    }

    fn command(&self, main_class: &str, arguments: &[&str]) -> Command {
        let mut command = self.installation.command(main_class, "ERROR");
        command.args(arguments);
        command
    }

    fn table(&self, arguments: &[&str]) -> io::Result<Vec<Row>> {
        let output = run(&mut self.command(TRANSACTIONS, arguments))?;
        let mut rows = lines(&output).into_iter().map(|line| cells(&line));
        let Some(head) = rows.next() else {
            return Err(io::Error::other("the transactions command printed nothing"));
        };
        Ok(rows.map(|cells| Row { head: head.clone(), cells }).collect())
    }
}

/// The lines of a pipe as they come; the channel closes with the pipe.
fn follow(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n') {
            let Ok(line) = line else { return };
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A line of a table that a tool printed, with the table's head.
struct Row {
    head: Vec<String>,
    cells: Vec<String>,
}

impl Row {
    fn cell(&self, name: &str) -> io::Result<String> {
        let index = self.head.iter().position(|head| head == name);
        let cell = index.and_then(|index| self.cells.get(index));
        let missing =
            || format!("the transactions command printed no {name}: {:?}, {:?}", self.head, self.cells);
        cell.cloned().ok_or_else(|| io::Error::other(missing()))
    }

    fn number(&self, name: &str) -> io::Result<i64> {
        let cell = self.cell(name)?;
        cell.parse()
            .map_err(|_| io::Error::other(format!("the transactions command printed {name} {cell:?}")))
    }
}

/// The cells of a line. The tools put a tab after each column's padding, so that an empty cell still counts.
fn cells(line: &str) -> Vec<String> {
    line.split('\t').map(|cell| cell.trim().to_owned()).collect()
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
