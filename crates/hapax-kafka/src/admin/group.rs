//! OffsetFetch: what a group has committed.
//!
//! Asked for stable offsets (KIP-447), a broker tells a partition apart for which an open transaction has an offset: what
//! is committed there is about to change, or not, and nobody may go on from it.

use crate::{
    Client, ClientError, Connection, CoordinatorKind, KafkaCode,
    error::{CallError, RequestKind},
    limits,
    retry::{Retry, within},
    transaction::{may_have_moved, partition_of},
    wire::{self, Request},
};
use hapax_host::Deadline;
use kafka_protocol::messages::{
    OffsetFetchRequest, OffsetFetchResponse,
    offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics},
    offset_fetch_response::{OffsetFetchResponseGroup, OffsetFetchResponsePartitions},
};
use std::{collections::BTreeMap, ops::RangeInclusive};

/// From 8 on several groups in one request; from 9 on the group's own protocol plays a part, which is not asked about.
const VERSIONS: RangeInclusive<i16> = 8..=8;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// What its writer put beside it.
    pub metadata: String,
}

/// What a group has committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupOffsets {
    /// By partition, those that can be told.
    pub committed: Vec<CommittedOffset>,
    /// Partitions for which an open transaction has an offset.
    pub unstable: Vec<(String, i32)>,
}

/// Every offset that a group has committed; none where there is no such group. With `stable`, offsets that an open
/// transaction may change are told apart, where something was committed before: see [`unstable_offsets`].
///
/// # Errors
/// The client's reason, at the latest at the deadline.
pub async fn committed_offsets(
    client: &Client,
    group: &str,
    stable: bool,
    deadline: Deadline,
) -> Result<GroupOffsets, ClientError> {
    fetch(client, group, None, stable, deadline).await
}

/// Which of these partitions an open transaction has an offset for. A broker that is asked for whatever is committed leaves
/// out a partition whose first offset is that of the open transaction; asked for by name it is told.
///
/// # Errors
/// The client's reason, at the latest at the deadline.
pub async fn unstable_offsets(
    client: &Client,
    group: &str,
    places: impl IntoIterator<Item = &(String, i32)>,
    deadline: Deadline,
) -> Result<Vec<(String, i32)>, ClientError> {
    Ok(fetch(client, group, Some(by_topic(places)), true, deadline).await?.unstable)
}

fn by_topic<'a>(places: impl IntoIterator<Item = &'a (String, i32)>) -> Vec<OffsetFetchRequestTopics> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in places {
        topics.entry(topic).or_default().push(*partition);
    }
    let wanted = |(topic, partitions)| {
        OffsetFetchRequestTopics::default()
            .with_name(wire::text(topic).into())
            .with_partition_indexes(partitions)
    };
    topics.into_iter().map(wanted).collect()
}

async fn fetch(
    client: &Client,
    group: &str,
    topics: Option<Vec<OffsetFetchRequestTopics>>,
    stable: bool,
    deadline: Deadline,
) -> Result<GroupOffsets, ClientError> {
    let wanted =
        OffsetFetchRequestGroup::default().with_group_id(wire::text(group).into()).with_topics(topics);
    let request = OffsetFetchRequest::default().with_groups(vec![wanted]).with_require_stable(stable);
    let mut retry = Retry::new(client, RequestKind::OffsetFetch, group, deadline);
    loop {
        match fetch_once(client, group, &request, &retry).await {
            Ok(offsets) => return Ok(offsets),
            Err(error) => retry.again(error).await?,
        }
    }
}

async fn fetch_once(
    client: &Client,
    group: &str,
    request: &OffsetFetchRequest,
    retry: &Retry<'_>,
) -> Result<GroupOffsets, ClientError> {
    let connection = retry.bounded(client.coordinator(CoordinatorKind::Group, group)).await?;
    let result = fetch_at(client, group, request, &connection, retry).await;
    if result.as_ref().is_err_and(|error| may_have_moved(error, RequestKind::OffsetFetch)) {
        client.forget_coordinator(CoordinatorKind::Group, group);
    }
    result
}

async fn fetch_at(
    client: &Client,
    group: &str,
    request: &OffsetFetchRequest,
    connection: &Connection,
    retry: &Retry<'_>,
) -> Result<GroupOffsets, ClientError> {
    let version = connection.choose(OffsetFetchRequest::KEY, VERSIONS)?;
    let answer = connection.call(version, request, limits::LOOKUP_TIMEOUT);
    let response =
        within(client, retry.deadline(), OffsetFetchRequest::NAME, connection.node(), answer).await?;
    let found = of_group(response, group).ok_or_else(|| CallError::Malformed {
        api: OffsetFetchRequest::NAME,
        node: connection.node(),
        reason: format!("no entry for group {group}").into(),
    })?;
    offsets_of(found, group)
}

fn of_group(response: OffsetFetchResponse, group: &str) -> Option<OffsetFetchResponseGroup> {
    response.groups.into_iter().find(|found| found.group_id.as_str() == group)
}

fn offsets_of(found: OffsetFetchResponseGroup, group: &str) -> Result<GroupOffsets, ClientError> {
    match KafkaCode(found.error_code) {
        KafkaCode::NONE => {}
        KafkaCode::GROUP_ID_NOT_FOUND => return Ok(GroupOffsets::default()),
        code => return Err(ClientError::broker(RequestKind::OffsetFetch, group, code)),
    }
    let mut offsets = GroupOffsets::default();
    for topic in found.topics {
        for entry in topic.partitions {
            take(&mut offsets, group, topic.name.as_str(), entry)?;
        }
    }
    Ok(offsets)
}

fn take(
    offsets: &mut GroupOffsets,
    group: &str,
    topic: &str,
    entry: OffsetFetchResponsePartitions,
) -> Result<(), ClientError> {
    let partition = entry.partition_index;
    match KafkaCode(entry.error_code) {
        KafkaCode::NONE if entry.committed_offset < 0 => {}
        KafkaCode::NONE => offsets.committed.push(CommittedOffset {
            topic: topic.to_owned(),
            partition,
            offset: entry.committed_offset,
            metadata: entry.metadata.map(|text| text.to_string()).unwrap_or_default(),
        }),
        KafkaCode::UNSTABLE_OFFSET_COMMIT => offsets.unstable.push((topic.to_owned(), partition)),
        code => {
            let place = format!("{topic}-{partition} of group {group}");
            return Err(ClientError::broker(RequestKind::OffsetFetch, place, code));
        }
    }
    Ok(())
}

/// The topic that keeps what groups have committed.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Which of so many partitions of [`OFFSETS_TOPIC`] keeps the offsets of a group (`Utils.abs(groupId.hashCode())`).
pub fn offsets_partition(group: &str, partitions: i32) -> i32 {
    partition_of(group, partitions.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseTopics;

    fn entry(index: i32, offset: i64, code: KafkaCode) -> OffsetFetchResponsePartitions {
        OffsetFetchResponsePartitions::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_metadata(Some(wire::text("beside")))
            .with_error_code(code.0)
    }

    fn group(entries: Vec<OffsetFetchResponsePartitions>) -> OffsetFetchResponseGroup {
        let topic =
            OffsetFetchResponseTopics::default().with_name(wire::text("in").into()).with_partitions(entries);
        OffsetFetchResponseGroup::default().with_group_id(wire::text("g").into()).with_topics(vec![topic])
    }

    #[test]
    fn an_offset_that_is_about_to_change_is_told_apart() {
        let found = group(vec![
            entry(0, 5, KafkaCode::NONE),
            entry(1, -1, KafkaCode::UNSTABLE_OFFSET_COMMIT),
            entry(2, -1, KafkaCode::NONE),
        ]);
        let offsets = offsets_of(found, "g").unwrap();
        assert_eq!(offsets.unstable, [("in".to_owned(), 1)]);
        let committed: Vec<(i32, i64)> =
            offsets.committed.iter().map(|offset| (offset.partition, offset.offset)).collect();
        assert_eq!(committed, [(0, 5)]);
    }

    #[test]
    fn partitions_are_asked_for_by_name_each_topic_once() {
        let places = [("in".to_owned(), 1), ("more".to_owned(), 0), ("in".to_owned(), 0)];
        let topics = by_topic(&places);
        let asked: Vec<(&str, &[i32])> =
            topics.iter().map(|topic| (topic.name.as_str(), topic.partition_indexes.as_slice())).collect();
        assert_eq!(asked, [("in", &[1, 0][..]), ("more", &[0])]);
    }

    #[test]
    fn a_partition_that_is_refused_is_an_error_and_not_a_missing_offset() {
        let found = group(vec![entry(0, -1, KafkaCode::TOPIC_AUTHORIZATION_FAILED)]);
        assert!(offsets_of(found, "g").unwrap_err().is_refusal());
    }

    /// Values of `String.hashCode` in Java, the last one with the sign bit.
    #[test]
    fn the_partition_is_javas_hash() {
        assert_eq!(offsets_partition("", 50), 0);
        assert_eq!(offsets_partition("abc", 50), 96_354 % 50);
        assert_eq!(offsets_partition("carried-untold-k4-v0-15098-82665760", 50), 45, "its hash is negative");
        assert_eq!(offsets_partition("polygenelubricants", 50), 0, "its hash is the least number there is");
    }
}
