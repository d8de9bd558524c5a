//! The Kafka source: partitions of topics, `read_committed` by default, bounded or endless.
//!
//! Positions are next offsets with the topic's id and the leader epoch of what was read. Start and end are made
//! concrete once, in [`Source::genesis`]: a restart never asks "latest" again.

use super::{
    BoxFuture, Chunk, Reader, Source, SourceContext, SourceError, SourceTopic, UNKNOWN_TOPIC,
    described_topics,
};
use crate::{
    batch::{Batch, Origin},
    limits,
};
use hapax_commit::{Name, Position, Positions, SplitId, TopicId};
use hapax_host::Deadline;
use hapax_kafka::{
    Client, Isolation,
    admin::{OffsetSpec, list_offsets},
    fetch::{Fetcher, FetcherConfig, TopicPartition},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Where a new job begins to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The first record that the topic still has.
    #[default]
    Earliest,
    /// The end of the topic when the job is created.
    Latest,
    /// The first record at or after a time, in milliseconds since 1970.
    Timestamp(i64),
    /// Offsets by topic and partition; partitions that are not named begin at the earliest.
    Offsets(BTreeMap<String, BTreeMap<i32, i64>>),
}

/// Where a bounded job stops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Never.
    #[default]
    Endless,
    /// The end of the topic when the job is created.
    Latest,
    /// The first record at or after a time, in milliseconds since 1970.
    Timestamp(i64),
    /// Offsets (exclusive) by topic and partition; partitions that are not named end where they end at creation.
    Offsets(BTreeMap<String, BTreeMap<i32, i64>>),
}

/// Reads topics of one cluster.
#[derive(Clone, Debug)]
pub struct KafkaSource {
    /// Its name: prefix of its splits.
    pub name: String,
    /// The cluster.
    pub cluster: Name,
    /// The topics.
    pub topics: Vec<String>,
    /// Where a new job begins.
    pub start: Start,
    /// Where a bounded job stops.
    pub end: End,
    /// Which records of transactions are seen.
    pub isolation: Isolation,
}

impl KafkaSource {
    /// Reads `topics` of `cluster` from the earliest record on, without end, `read_committed`.
    pub fn new<'a>(cluster: Name, topics: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            name: cluster.to_string(),
            cluster,
            topics: topics.into_iter().map(str::to_owned).collect(),
            start: Start::default(),
            end: End::default(),
            isolation: Isolation::ReadCommitted,
        }
    }

    fn split(&self, topic: &str, partition: i32) -> SplitId {
        SplitId(format!("{}/{topic}/{partition}", self.name))
    }

    /// Topic and partition of a split of this source.
    fn place<'a>(&self, split: &'a SplitId) -> Option<(&'a str, i32)> {
        let rest = split.0.strip_prefix(&self.name)?.strip_prefix('/')?;
        let (topic, partition) = rest.rsplit_once('/')?;
        Some((topic, partition.parse().ok()?))
    }

    async fn found(&self, client: &Client) -> Result<Vec<SourceTopic>, SourceError> {
        let names: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        let found = described_topics(client, &names).await?;
        if let Some(refused) =
            found.iter().find(|topic| topic.error.is_some_and(|code| code != UNKNOWN_TOPIC))
        {
            refused.usable()?;
        }
        let topics = found.iter().map(|topic| {
            SourceTopic::of(&self.cluster, topic).map_err(|code| SourceError::Configuration {
                source_name: self.name.clone(),
                reason: format!(
                    "topic {} on cluster {}: {code}; create it, or correct the name",
                    topic.name, self.cluster
                ),
            })
        });
        topics.collect()
    }

    async fn offsets(
        &self,
        client: &Client,
        topics: &[SourceTopic],
        spec: OffsetSpec,
    ) -> Result<HashMap<(String, i32), Option<i64>>, SourceError> {
        let wanted: Vec<(&str, i32)> = topics
            .iter()
            .flat_map(|topic| (0..topic.record.partitions).map(|partition| (topic.topic.as_str(), partition)))
            .collect();
        let deadline = Deadline::after(client.host().now(), Some(limits::REPORT_EVERY * 3));
        let listed = list_offsets(client, &wanted, spec, self.isolation, deadline).await?;
        Ok(listed.into_iter().map(|found| ((found.topic, found.partition), found.offset)).collect())
    }

    async fn concrete(&self, client: &Client) -> Result<Positions, SourceError> {
        let topics = self.found(client).await?;
        let first = self.offsets(client, &topics, OffsetSpec::Earliest).await?;
        let last = self.offsets(client, &topics, OffsetSpec::Latest).await?;
        let starts = match &self.start {
            Start::Earliest | Start::Offsets(_) => first.clone(),
            Start::Latest => last.clone(),
            Start::Timestamp(at) => self.offsets(client, &topics, OffsetSpec::Timestamp(*at)).await?,
        };
        let ends = match &self.end {
            End::Endless => HashMap::new(),
            End::Latest | End::Offsets(_) => last.clone(),
            End::Timestamp(at) => self.offsets(client, &topics, OffsetSpec::Timestamp(*at)).await?,
        };
        let mut positions = Positions::new();
        for topic in &topics {
            for partition in 0..topic.record.partitions {
                let key = (topic.topic.clone(), partition);
                // A time behind the last record has no offset: the end.
                let concrete = |offsets: &HashMap<(String, i32), Option<i64>>| {
                    offsets.get(&key).and_then(|&offset| offset.or(last[&key]))
                };
                let named = |offsets: &BTreeMap<String, BTreeMap<i32, i64>>| {
                    offsets.get(&topic.topic).and_then(|parts| parts.get(&partition)).copied()
                };
                let start = match &self.start {
                    Start::Offsets(offsets) => named(offsets).or_else(|| concrete(&starts)),
                    Start::Earliest | Start::Latest | Start::Timestamp(_) => concrete(&starts),
                };
                let end = match &self.end {
                    End::Offsets(offsets) => named(offsets).or_else(|| concrete(&ends)),
                    End::Endless | End::Latest | End::Timestamp(_) => concrete(&ends),
                };
                let position = Position {
                    next: unsigned(start.unwrap_or(0)),
                    leader_epoch: None,
                    topic_id: Some(topic.record.topic_id),
                    file: None,
                    end: end.map(unsigned),
                };
                positions.insert(self.split(&topic.topic, partition), position);
            }
        }
        Ok(positions)
    }

    async fn check(&self, client: &Client, positions: &Positions) -> Result<(), SourceError> {
        let topics = self.found(client).await?;
        let first = self.offsets(client, &topics, OffsetSpec::Earliest).await?;
        let last = self.offsets(client, &topics, OffsetSpec::Latest).await?;
        let ids: HashMap<&str, TopicId> =
            topics.iter().map(|topic| (topic.topic.as_str(), topic.record.topic_id)).collect();
        for (split, position) in positions.iter().filter(|(_, position)| !position.at_end()) {
            let Some((topic, partition)) = self.place(split) else { continue };
            let gone =
                |reason: String| SourceError::Gone { split: split.clone(), position: position.next, reason };
            let key = (topic.to_owned(), partition);
            match (position.topic_id, ids.get(topic)) {
                (Some(known), Some(found)) if known != *found => {
                    return Err(gone(format!(
                        "topic {topic} was deleted and made again (id {known} then, {found} now); run with --fresh \
                         to begin anew"
                    )));
                }
                _ => {}
            }
            match (first.get(&key).copied().flatten(), last.get(&key).copied().flatten()) {
                (Some(first), Some(last))
                    if position.next >= unsigned(first) && position.next <= unsigned(last) => {}
                (Some(first), Some(last)) => {
                    return Err(gone(format!(
                        "the partition has offsets {first} to {last}; records were removed by retention or by hand"
                    )));
                }
                _ => return Err(gone("the topic has fewer partitions than before".into())),
            }
        }
        Ok(())
    }
}

fn unsigned(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}

impl Source for KafkaSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn replayable(&self) -> bool {
        true
    }

    fn topics<'a>(&'a self, cx: &'a SourceContext) -> BoxFuture<'a, Result<Vec<SourceTopic>, SourceError>> {
        Box::pin(async move { self.found(&cx.clusters.client(&self.cluster).await?).await })
    }

    fn genesis<'a>(&'a self, cx: &'a SourceContext) -> BoxFuture<'a, Result<Positions, SourceError>> {
        Box::pin(async move { self.concrete(&cx.clusters.client(&self.cluster).await?).await })
    }

    fn serves<'a>(
        &'a self,
        cx: &'a SourceContext,
        positions: &'a Positions,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async move { self.check(&cx.clusters.client(&self.cluster).await?, positions).await })
    }

    fn reader<'a>(
        &'a self,
        cx: &'a SourceContext,
        positions: Positions,
    ) -> BoxFuture<'a, Result<Box<dyn Reader>, SourceError>> {
        Box::pin(async move {
            let client = cx.clusters.client(&self.cluster).await?;
            let counts: HashMap<String, i32> = self
                .found(&client)
                .await?
                .into_iter()
                .map(|topic| (topic.topic, topic.record.partitions))
                .collect();
            let config = FetcherConfig { isolation: self.isolation, ..FetcherConfig::default() };
            let mut fetcher = Fetcher::start(client, config);
            let mut splits = HashMap::new();
            for (split, position) in positions {
                let Some((topic, partition)) = self.place(&split) else { continue };
                if position.at_end() {
                    continue;
                }
                let tp = TopicPartition { topic: Arc::from(topic), partition };
                let from = i64::try_from(position.next).unwrap_or(i64::MAX);
                fetcher.assign(tp.clone(), position.topic_id, from, position.leader_epoch);
                let partitions = counts.get(topic).copied();
                let origin = Origin { split, topic: tp.topic.clone(), partition, partitions };
                splits.insert(tp, (Arc::new(origin), position));
            }
            Ok(Box::new(KafkaReader { fetcher, splits }) as Box<dyn Reader>)
        })
    }
}

struct KafkaReader {
    fetcher: Fetcher,
    splits: HashMap<TopicPartition, (Arc<Origin>, Position)>,
}

impl KafkaReader {
    async fn read(&mut self) -> Result<Chunk, SourceError> {
        loop {
            let fetched = self.fetcher.next().await?;
            let Some((origin, position)) = self.splits.get_mut(&fetched.tp) else { continue };
            let mut batch = Batch::of_decoded(origin.clone(), &fetched.records);
            position.next = unsigned(fetched.next_offset);
            position.leader_epoch = fetched.leader_epoch.or(position.leader_epoch);
            if let Some(end) = position.end.filter(|&end| position.next >= end) {
                let end = i64::try_from(end).unwrap_or(i64::MAX);
                batch.retain(|record| Ok::<_, SourceError>(record.offset < end))?;
                position.next = unsigned(end);
                self.fetcher.unassign(&fetched.tp);
            }
            let lag = unsigned(fetched.high_watermark).saturating_sub(position.next);
            return Ok(Chunk { batch, position: position.clone(), lag: Some(lag), skipped: 0 });
        }
    }
}

impl Reader for KafkaReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Chunk, SourceError>> {
        Box::pin(self.read())
    }
}
