//! The process that audits the demo's output while it is written: a `read_committed` reader of both topics.
//!
//! It fetches with this workspace's client and runs no code of a job, a sink or a commit. It says what it has counted
//! as a line of JSON several times a second; when its standard input closes, it reads both topics to the ends that
//! they have then, says the last line and ends.

use super::ledger::{Ledger, Record, Tally};
use crate::{arguments::AuditorArguments, command::parent_gone, screen::Screen};
use hapax::{Code, Host, JobError};
use hapax_host::Deadline;
use hapax_kafka::{
    Client, ClientConfig, ClientError, Isolation,
    admin::{OffsetSpec, list_offsets},
    fetch::{Fetched, Fetcher, FetcherConfig, TopicPartition},
};
use std::{collections::HashMap, time::Duration};

/// Between two lines.
const TELL: Duration = Duration::from_millis(100);

/// How long the ends are asked for, and how long a reader that gets nothing waits for more before them.
const PATIENCE: Duration = Duration::from_secs(30);

/// Audits until standard input closes; answers the exit code, which says only that the audit took place.
///
/// # Errors
/// The topics cannot be read.
pub(crate) async fn audit(host: &Host, screen: &Screen, arguments: AuditorArguments) -> Result<u8, JobError> {
    let gone = parent_gone(host, true)?;
    let mut auditor = Auditor::start(host, &arguments).await.map_err(|error| failed(&error))?;
    let mut next_line = host.now() + TELL;
    tokio::pin!(gone);
    loop {
        tokio::select! {
            () = &mut gone => break,
            fetched = auditor.fetcher.next() => {
                let fetched = fetched.map_err(|error| unread(&error.to_string()))?;
                auditor.take(&fetched);
            }
            () = host.sleep(TELL) => {}
        }
        if host.now() >= next_line {
            auditor.tell(screen);
            next_line = host.now() + TELL;
        }
    }
    auditor.finish(host).await?;
    auditor.tell(screen);
    Ok(0)
}

fn failed(error: &ClientError) -> JobError {
    unread(&error.to_string())
}

fn unread(why: &str) -> JobError {
    JobError::Run { code: Code::Read, message: format!("the auditor cannot read: {why}") }
}

struct Auditor<'a> {
    arguments: &'a AuditorArguments,
    client: Client,
    fetcher: Fetcher,
    /// Up to where each partition is read.
    read: HashMap<TopicPartition, i64>,
    ledgers: HashMap<i32, Ledger>,
}

impl<'a> Auditor<'a> {
    async fn start(host: &Host, arguments: &'a AuditorArguments) -> Result<Self, ClientError> {
        let config = ClientConfig::new(ClientConfig::parse_bootstrap(&arguments.brokers)?);
        let client = Client::connect(host.clone(), config).await?;
        // Short waits, so that what it says is fresh.
        let config = FetcherConfig {
            isolation: Isolation::ReadCommitted,
            max_wait: Duration::from_millis(100),
            ..FetcherConfig::default()
        };
        let mut fetcher = Fetcher::start(client.clone(), config);
        let mut read = HashMap::new();
        let mut ledgers: HashMap<i32, Ledger> = HashMap::new();
        let names = [arguments.input.as_str(), arguments.output.as_str()];
        let mut topics = client.topics(&names).await?;
        // Brokers learn of new topics a moment after they were made.
        let until = host.now() + PATIENCE;
        while topics.iter().any(|topic| topic.error.is_some()) && host.now() < until {
            host.sleep(TELL).await;
            client.refresh(&names).await?;
            topics = client.topics(&names).await?;
        }
        for topic in topics {
            for partition in 0..i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX) {
                let tp = TopicPartition { topic: topic.name.to_string().into(), partition };
                fetcher.assign(tp.clone(), None, 0, None);
                ledgers.entry(partition).or_default();
                read.insert(tp, 0);
            }
        }
        Ok(Self { arguments, client, fetcher, read, ledgers })
    }

    fn take(&mut self, fetched: &Fetched) {
        let ledger = self.ledgers.entry(fetched.tp.partition).or_default();
        let is_input = *fetched.tp.topic == *self.arguments.input;
        for view in fetched.records.views() {
            let record = Record { key: fetched.records.key(view), value: fetched.records.value(view) };
            if is_input { ledger.input(&record) } else { ledger.output(&record) }
        }
        self.read.insert(fetched.tp.clone(), fetched.next_offset);
    }

    async fn finish(&mut self, host: &Host) -> Result<(), JobError> {
        let ends = self.ends(host).await.map_err(|error| failed(&error))?;
        let is_behind = |read: &HashMap<TopicPartition, i64>| {
            ends.iter().any(|(tp, end)| read.get(tp).copied().unwrap_or(0) < *end)
        };
        while is_behind(&self.read) {
            let fetched = host.timeout(PATIENCE, self.fetcher.next()).await;
            let fetched = fetched.ok_or_else(|| unread("nothing more came before the topics' ends"))?;
            self.take(&fetched.map_err(|error| unread(&error.to_string()))?);
        }
        self.ledgers.values_mut().for_each(Ledger::close);
        Ok(())
    }

    /// The last stable offset of each partition.
    async fn ends(&self, host: &Host) -> Result<Vec<(TopicPartition, i64)>, ClientError> {
        let asked: Vec<(&str, i32)> = self.read.keys().map(|tp| (&*tp.topic, tp.partition)).collect();
        let deadline = Deadline::after(host.now(), Some(PATIENCE));
        let listed =
            list_offsets(&self.client, &asked, OffsetSpec::Latest, Isolation::ReadCommitted, deadline)
                .await?;
        let of = |found: hapax_kafka::admin::ListedOffset| {
            (
                TopicPartition { topic: found.topic.into(), partition: found.partition },
                found.offset.unwrap_or(0),
            )
        };
        Ok(listed.into_iter().map(of).collect())
    }

    fn tell(&self, screen: &Screen) {
        let tally = self.ledgers.values().map(Ledger::tally).reduce(Tally::and).unwrap_or_default();
        if let Ok(line) = serde_json::to_string(&tally) {
            screen.answer(&line);
        }
    }
}
