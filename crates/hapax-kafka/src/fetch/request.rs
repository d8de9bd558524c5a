//! One Fetch exchange: the request for some partitions of one leader, and its answer by partition.
//!
//! Topics go by id where the broker offers it and every id is known (KIP-516), so that a topic made again under the
//! same name is not read by mistake; else by name. No fetch session.

use super::TopicPartition;
use crate::{
    Connection, Isolation, KafkaCode,
    error::CallError,
    wire::{self, Request},
};
use hapax_commit::TopicId;
use kafka_protocol::messages::{
    FetchRequest, FetchResponse,
    fetch_request::{FetchPartition, FetchTopic},
    fetch_response::{FetchableTopicResponse, PartitionData},
};
use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

/// By name: 11 is offered by every broker from Kafka 2.3, 12 is the last.
const BY_NAME: RangeInclusive<i16> = 11..=12;
/// By topic id, or by name on brokers before Kafka 3.1; later versions are for replicas only.
const BY_ID: RangeInclusive<i16> = 11..=17;
const FIRST_BY_ID: i16 = 13;

/// One partition that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) tp: TopicPartition,
    pub(super) generation: u64,
    pub(super) topic_id: Option<TopicId>,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) max_bytes: i32,
}

/// What holds for the whole request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) isolation: Isolation,
    pub(super) max_wait: Duration,
    pub(super) min_bytes: i32,
    pub(super) max_bytes: i32,
    /// From the call until the answer is read, the broker's wait included.
    pub(super) timeout: Duration,
}

/// The broker's answer.
pub(super) struct Answer {
    /// Of the whole answer.
    pub(super) code: KafkaCode,
    /// How long the broker wants to be left alone.
    pub(super) throttle: Duration,
    /// In the order asked; none where the broker left a partition out.
    pub(super) partitions: Vec<Option<PartitionData>>,
}

/// Asks for partitions, whose order the broker observes when there is not room for all.
pub(super) async fn ask(
    connection: &Connection,
    asked: &[Asked],
    terms: &Terms,
) -> Result<Answer, CallError> {
    let ours = if asked.iter().all(|one| one.topic_id.is_some()) { BY_ID } else { BY_NAME };
    let version = connection.choose(FetchRequest::KEY, ours)?;
    let by_id = version >= FIRST_BY_ID;
    let request = FetchRequest::default()
        .with_max_wait_ms(millis(terms.max_wait))
        .with_min_bytes(terms.min_bytes)
        .with_max_bytes(asked.iter().map(|one| one.max_bytes).fold(terms.max_bytes, i32::max))
        .with_isolation_level(terms.isolation.code())
        .with_topics(topics(asked, by_id));
    let response = connection.call(version, &request, terms.timeout).await?;
    Ok(Answer::of(response, asked, version))
}

impl Answer {
    pub(super) fn of(response: FetchResponse, asked: &[Asked], version: i16) -> Self {
        Self {
            code: KafkaCode(response.error_code),
            throttle: Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0)),
            partitions: matched(response, asked, version >= FIRST_BY_ID),
        }
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// Topics in the order in which they are first asked for, so that the first partition stays the first.
fn topics(asked: &[Asked], by_id: bool) -> Vec<FetchTopic> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    let mut places = BTreeMap::new();
    for one in asked {
        let place = *places.entry((&one.tp.topic, one.topic_id)).or_insert_with(|| {
            let mut topic = FetchTopic::default();
            match one.topic_id.filter(|_| by_id) {
                // The codec's id type cannot be named here, only be parsed.
                Some(id) => topic.topic_id = id.to_string().parse().expect("32 hex digits are an id"),
                None => topic.topic = wire::text(&one.tp.topic).into(),
            }
            topics.push(topic);
            topics.len() - 1
        });
        topics[place].partitions.push(
            FetchPartition::default()
                .with_partition(one.tp.partition)
                .with_current_leader_epoch(one.leader_epoch)
                .with_fetch_offset(one.offset)
                .with_partition_max_bytes(one.max_bytes),
        );
    }
    topics
}

fn matched(response: FetchResponse, asked: &[Asked], by_id: bool) -> Vec<Option<PartitionData>> {
    let mut found = BTreeMap::new();
    for topic in response.responses {
        let FetchableTopicResponse { topic, topic_id, partitions, .. } = topic;
        let topic = if by_id { Err(TopicId(topic_id.into_bytes())) } else { Ok(topic.0) };
        for partition in partitions {
            found.insert((topic.clone(), partition.partition_index), partition);
        }
    }
    let key = |one: &Asked| match one.topic_id.filter(|_| by_id) {
        Some(id) => (Err(id), one.tp.partition),
        None => (Ok(wire::text(&one.tp.topic)), one.tp.partition),
    };
    asked.iter().map(|one| found.remove(&key(one))).collect()
}
