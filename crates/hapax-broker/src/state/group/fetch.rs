//! OffsetFetch: committed offsets of one group, or from version 8 on of several. With `require_stable`, a partition
//! that an open transaction has an offset for is told apart (KIP-447), since what is committed is about to change.

use super::{member::Group, offset::Committed};
use crate::state::{Answer, Call, Code, Machine, TopicPartition};
use kafka_protocol::{
    messages::{
        OffsetFetchRequest, OffsetFetchResponse, TopicName,
        offset_fetch_response::{
            OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
            OffsetFetchResponseTopic, OffsetFetchResponseTopics,
        },
    },
    protocol::StrBytes,
};
use std::collections::BTreeMap;

/// Partitions of a topic that are asked for.
type Wanted = Vec<(TopicName, Vec<i32>)>;

/// What is told of a partition.
struct Told {
    index: i32,
    offset: i64,
    epoch: i32,
    metadata: String,
    code: Code,
}

impl Told {
    fn nothing(index: i32, code: Code) -> Self {
        Self { index, offset: -1, epoch: -1, metadata: String::new(), code }
    }

    fn of(index: i32, committed: &Committed) -> Self {
        Self {
            index,
            offset: committed.offset,
            epoch: committed.leader_epoch,
            metadata: committed.metadata.clone(),
            code: Code::NONE,
        }
    }
}

impl Machine {
    pub(crate) fn offset_fetch(&self, call: &Call, request: OffsetFetchRequest) -> Answer {
        let stable = request.require_stable;
        if call.version < 8 {
            let wanted = request.topics.map(|topics| {
                topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)).collect()
            });
            return Answer::Now(self.fetch_one(call, &request.group_id, wanted, stable).into());
        }
        let mut groups = Vec::with_capacity(request.groups.len());
        for asked in request.groups {
            let wanted = asked.topics.map(|topics| {
                topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)).collect()
            });
            let answer = OffsetFetchResponseGroup::default().with_group_id(asked.group_id.clone());
            groups.push(match self.offsets_told(call, &asked.group_id, wanted, stable) {
                Err(code) => answer.with_error_code(code.0),
                Ok(told) => answer.with_topics(told.into_iter().map(batched_topic).collect()),
            });
        }
        Answer::Now(OffsetFetchResponse::default().with_groups(groups).into())
    }

    fn fetch_one(
        &self,
        call: &Call,
        group: &str,
        wanted: Option<Wanted>,
        stable: bool,
    ) -> OffsetFetchResponse {
        let response = OffsetFetchResponse::default();
        match self.offsets_told(call, group, wanted.clone(), stable) {
            Ok(told) => response.with_topics(told.into_iter().map(topic).collect()),
            // Version 1 has no place for an error of the group.
            Err(code) if call.version < 2 => {
                let refused = |(name, indexes): (TopicName, Vec<i32>)| {
                    topic((name, indexes.into_iter().map(|index| Told::nothing(index, code)).collect()))
                };
                response.with_topics(wanted.unwrap_or_default().into_iter().map(refused).collect())
            }
            Err(code) => response.with_error_code(code.0),
        }
    }

    fn offsets_told(
        &self,
        call: &Call,
        group: &str,
        wanted: Option<Wanted>,
        stable: bool,
    ) -> Result<Vec<(TopicName, Vec<Told>)>, Code> {
        let group = self.group(group, call.node)?;
        let Some(wanted) = wanted else {
            return Ok(group.map(|group| all_told(group, stable)).unwrap_or_default());
        };
        let told = |(name, indexes): (TopicName, Vec<i32>)| {
            let told = indexes.into_iter().map(|index| {
                let at = TopicPartition::new(name.as_str(), index);
                match group {
                    Some(group) if stable && group.offsets.is_unstable(&at) => {
                        Told::nothing(index, Code::UNSTABLE_OFFSET_COMMIT)
                    }
                    Some(group) => group.offsets.committed.get(&at).map_or_else(
                        || Told::nothing(index, Code::NONE),
                        |committed| Told::of(index, committed),
                    ),
                    None => Told::nothing(index, Code::NONE),
                }
            });
            (name.clone(), told.collect())
        };
        Ok(wanted.into_iter().map(told).collect())
    }
}

fn all_told(group: &Group, stable: bool) -> Vec<(TopicName, Vec<Told>)> {
    let mut topics: BTreeMap<&str, Vec<Told>> = BTreeMap::new();
    for (at, committed) in &group.offsets.committed {
        let told = if stable && group.offsets.is_unstable(at) {
            Told::nothing(at.partition, Code::UNSTABLE_OFFSET_COMMIT)
        } else {
            Told::of(at.partition, committed)
        };
        topics.entry(&at.topic).or_default().push(told);
    }
    topics.into_iter().map(|(topic, told)| (StrBytes::from_string(topic.to_owned()).into(), told)).collect()
}

fn topic((name, told): (TopicName, Vec<Told>)) -> OffsetFetchResponseTopic {
    let partition = |told: Told| {
        OffsetFetchResponsePartition::default()
            .with_partition_index(told.index)
            .with_committed_offset(told.offset)
            .with_committed_leader_epoch(told.epoch)
            .with_metadata(Some(StrBytes::from_string(told.metadata)))
            .with_error_code(told.code.0)
    };
    OffsetFetchResponseTopic::default()
        .with_name(name)
        .with_partitions(told.into_iter().map(partition).collect())
}

fn batched_topic((name, told): (TopicName, Vec<Told>)) -> OffsetFetchResponseTopics {
    let partition = |told: Told| {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(told.index)
            .with_committed_offset(told.offset)
            .with_committed_leader_epoch(told.epoch)
            .with_metadata(Some(StrBytes::from_string(told.metadata)))
            .with_error_code(told.code.0)
    };
    OffsetFetchResponseTopics::default()
        .with_name(name)
        .with_partitions(told.into_iter().map(partition).collect())
}
