//! The Kafka source: partitions of topics, `read_committed` by default, bounded or endless.
//!
//! Positions are next offsets with the topic's id and the leader epoch of what was read. Start and end are made
//! concrete once, in [`Source::genesis`]: a restart never asks "latest" again.

mod asking;
mod reader;
mod truncation;

use self::{
    reader::KafkaReader,
    truncation::{Question, Told},
};
use super::{
    BoxFuture, Reader, Source, SourceContext, SourceError, SourceTopic, UNKNOWN_TOPIC, described_topics,
    extent::{self, Edge, Log, Misfit},
};
use crate::limits;
use futures::{StreamExt, TryStreamExt, stream};
use hapax_commit::{Name, Position, Positions, SplitId, TopicId};
use hapax_host::Deadline;
use hapax_kafka::{
    Client, Isolation,
    admin::{OffsetSpec, list_offsets},
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
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
            SourceTopic::of(&self.cluster, topic).map_err(|code| {
                self.wrong(format!(
                    "topic {} on cluster {}: {code}; create it, or correct the name",
                    topic.name, self.cluster
                ))
            })
        });
        topics.collect()
    }

    async fn offsets(
        &self,
        client: &Client,
        topics: &[SourceTopic],
        spec: OffsetSpec,
    ) -> Result<Offsets, SourceError> {
        let wanted: Vec<(&str, i32)> = topics
            .iter()
            .flat_map(|topic| (0..topic.record.partitions).map(|partition| (topic.topic.as_str(), partition)))
            .collect();
        let deadline = Deadline::after(client.host().now(), Some(limits::REPORT_EVERY * 3));
        let listed = list_offsets(client, &wanted, spec, self.isolation, deadline).await?;
        Ok(listed.into_iter().map(|found| ((found.topic, found.partition), found.offset)).collect())
    }

    async fn concrete(&self, client: &Client, topics: &[SourceTopic]) -> Result<Positions, SourceError> {
        let first = self.offsets(client, topics, OffsetSpec::Earliest).await?;
        let last = self.offsets(client, topics, OffsetSpec::Latest).await?;
        let starts = match &self.start {
            Start::Earliest | Start::Offsets(_) => first.clone(),
            Start::Latest => last.clone(),
            Start::Timestamp(at) => self.offsets(client, topics, OffsetSpec::Timestamp(*at)).await?,
        };
        let ends = match &self.end {
            End::Endless => HashMap::new(),
            End::Latest | End::Offsets(_) => last.clone(),
            End::Timestamp(at) => self.offsets(client, topics, OffsetSpec::Timestamp(*at)).await?,
        };
        self.check_named(topics)?;
        let looked_up = LookedUp { first, last, starts, ends };
        let mut positions = Positions::new();
        for topic in topics {
            for partition in 0..topic.record.partitions {
                let (start, end) = self.extent(&looked_up, &topic.topic, partition)?;
                let position = Position {
                    next: unsigned(start),
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

    /// What came after the job was created has no records from before it, so where a new job would begin does not matter;
    /// offsets that are named for it count.
    async fn concrete_added(&self, client: &Client, known: &Positions) -> Result<Positions, SourceError> {
        let mut topics = self.found(client).await?;
        let is_new = |split: &SplitId| !known.contains_key(split);
        topics.retain(|topic| {
            (0..topic.record.partitions).any(|partition| is_new(&self.split(&topic.topic, partition)))
        });
        if topics.is_empty() {
            return Ok(Positions::new());
        }
        let start = match &self.start {
            Start::Earliest | Start::Latest | Start::Timestamp(_) => Start::Earliest,
            Start::Offsets(offsets) => Start::Offsets(offsets.clone()),
        };
        let mut positions = Self { start, ..self.clone() }.concrete(client, &topics).await?;
        positions.retain(|split, _| is_new(split));
        Ok(positions)
    }

    /// Every partition that `start` or `end` names is there.
    fn check_named(&self, topics: &[SourceTopic]) -> Result<(), SourceError> {
        let start = match &self.start {
            Start::Offsets(offsets) => Some(("start", offsets)),
            Start::Earliest | Start::Latest | Start::Timestamp(_) => None,
        };
        let end = match &self.end {
            End::Offsets(offsets) => Some(("end", offsets)),
            End::Endless | End::Latest | End::Timestamp(_) => None,
        };
        for (key, offsets) in start.into_iter().chain(end) {
            for topic in topics {
                let count = topic.record.partitions;
                let named = offsets.get(&topic.topic).into_iter().flatten();
                if let Some((partition, _)) =
                    named.into_iter().find(|(number, _)| !(0..count).contains(*number))
                {
                    return Err(self.wrong(format!(
                        "topic {} has the partitions 0 to {}, and {key} names partition {partition}; take it out",
                        topic.topic,
                        count - 1
                    )));
                }
            }
        }
        Ok(())
    }

    /// Where reading of a partition begins and ends.
    fn extent(
        &self,
        looked_up: &LookedUp,
        topic: &str,
        partition: i32,
    ) -> Result<(i64, Option<i64>), SourceError> {
        let key = (topic.to_owned(), partition);
        let LookedUp { first, last, starts, ends } = looked_up;
        let log = Log { first: answered(first, &key).unwrap_or(0), last: answered(last, &key).unwrap_or(0) };
        let found = |offset: Option<i64>, named: bool| match offset {
            Some(offset) => Edge { offset, named },
            // A time behind the last record has no offset: the end.
            None => Edge { offset: log.last, named: false },
        };
        let start = match &self.start {
            Start::Offsets(offsets) => match named(offsets, &key) {
                Some(offset) => Edge { offset, named: true },
                None => found(answered(starts, &key), false),
            },
            Start::Earliest | Start::Latest | Start::Timestamp(_) => found(answered(starts, &key), false),
        };
        let end = match &self.end {
            End::Endless => None,
            End::Latest => Some(found(answered(ends, &key), false)),
            End::Timestamp(_) => Some(found(answered(ends, &key), true)),
            End::Offsets(offsets) => Some(match named(offsets, &key) {
                Some(offset) => Edge { offset, named: true },
                None => found(answered(ends, &key), false),
            }),
        };
        match extent::check(log, start, end) {
            Ok(()) => Ok((start.offset, end.map(|end| end.offset))),
            Err(Misfit::Wrong(why)) => Err(self.wrong(format!("topic {topic} partition {partition}: {why}"))),
            Err(Misfit::Gone(reason)) => Err(gone(&self.split(topic, partition), start.offset, reason)),
        }
    }

    fn wrong(&self, reason: String) -> SourceError {
        SourceError::Configuration { source_name: self.name.clone(), reason }
    }

    /// What to ask before these positions are gone on from: nothing where no record was read yet, and nothing of a topic that
    /// was made again, which reading it tells.
    fn questions(&self, topics: &[SourceTopic], positions: &Positions) -> Vec<Question> {
        let is_same = |topic: &str, id: Option<TopicId>| {
            let found = topics.iter().find(|found| found.topic == topic);
            found.is_some_and(|found| id.is_none_or(|id| id == found.record.topic_id))
        };
        let asked =
            positions.iter().filter(|(_, position)| !position.at_end()).filter_map(|(split, position)| {
                let (topic, partition) =
                    self.place(split).filter(|(topic, _)| is_same(topic, position.topic_id))?;
                Some(Question {
                    split: split.clone(),
                    topic: topic.to_owned(),
                    topic_id: position.topic_id,
                    partition,
                    read_under: position.leader_epoch?,
                    position: position.next,
                })
            });
        asked.collect()
    }

    async fn check(&self, client: &Client, positions: &Positions) -> Result<(), SourceError> {
        let topics = self.found(client).await?;
        let first = self.offsets(client, &topics, OffsetSpec::Earliest).await?;
        let last = self.offsets(client, &topics, OffsetSpec::Latest).await?;
        let ids: HashMap<&str, TopicId> =
            topics.iter().map(|topic| (topic.topic.as_str(), topic.record.topic_id)).collect();
        for (split, position) in positions.iter().filter(|(_, position)| !position.at_end()) {
            let Some((topic, partition)) = self.place(split) else { continue };
            let gone = |reason: String| gone(split, position.next, reason);
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
        let deadline = Deadline::after(client.host().now(), Some(limits::REPORT_EVERY * 3));
        let asked = self.questions(&topics, positions);
        let told = asked.into_iter().map(|question| {
            let client = client.clone();
            async move { question.until(&client, deadline).await }
        });
        let told: Vec<Told> = stream::iter(told).buffer_unordered(limits::QUESTIONS).try_collect().await?;
        asking::warn_of_withheld(&self.name, told.iter().filter(|told| **told == Told::Withheld).count());
        Ok(())
    }
}

/// Offsets by topic and partition, as a cluster answered.
type Offsets = HashMap<(String, i32), Option<i64>>;

/// What a cluster answered when the job was created.
struct LookedUp {
    first: Offsets,
    last: Offsets,
    starts: Offsets,
    ends: Offsets,
}

fn answered(offsets: &Offsets, key: &(String, i32)) -> Option<i64> {
    offsets.get(key).copied().flatten()
}

fn named(offsets: &BTreeMap<String, BTreeMap<i32, i64>>, (topic, partition): &(String, i32)) -> Option<i64> {
    offsets.get(topic)?.get(partition).copied()
}

fn gone(split: &SplitId, position: impl fmt::Display, reason: String) -> SourceError {
    SourceError::Gone { place: format!("source {}: position {position}", split.0), reason }
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

    fn endless_topics(&self) -> Option<(&Name, &[String])> {
        (self.end == End::Endless).then_some((&self.cluster, &self.topics))
    }

    fn kafka_cluster(&self) -> Option<&Name> {
        Some(&self.cluster)
    }

    fn kafka_partition<'a>(&self, split: &'a SplitId) -> Option<(&'a str, i32)> {
        self.place(split)
    }

    fn topics<'a>(&'a self, cx: &'a SourceContext) -> BoxFuture<'a, Result<Vec<SourceTopic>, SourceError>> {
        Box::pin(async move { self.found(&cx.clusters.client(&self.cluster).await?).await })
    }

    fn genesis<'a>(&'a self, cx: &'a SourceContext) -> BoxFuture<'a, Result<Positions, SourceError>> {
        Box::pin(async move {
            let client = cx.clusters.client(&self.cluster).await?;
            let topics = self.found(&client).await?;
            self.concrete(&client, &topics).await
        })
    }

    fn has(&self, split: &SplitId) -> bool {
        self.place(split).is_some_and(|(topic, _)| self.topics.iter().any(|known| known == topic))
    }

    fn added<'a>(
        &'a self,
        cx: &'a SourceContext,
        known: &'a Positions,
    ) -> BoxFuture<'a, Result<Positions, SourceError>> {
        Box::pin(async move { self.concrete_added(&cx.clusters.client(&self.cluster).await?, known).await })
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
            let topics = self.found(&client).await?;
            KafkaReader::begin(self, client, &topics, positions).await
        })
    }
}
