//! ListOffsets: from where, up to where.

use super::leader::AskLeader;
use crate::{
    Client, ClientError, KafkaCode,
    error::{CallError, RequestKind},
    wire::{self, Request},
};
use futures::future::try_join_all;
use hapax_host::Deadline;
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse,
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
    list_offsets_response::ListOffsetsPartitionResponse,
};
use std::ops::RangeInclusive;

/// Leader epochs came with 4.
const VERSIONS: RangeInclusive<i16> = 4..=7;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// Which records a reader sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Only those of committed transactions (and of none), up to the last stable offset.
    #[default]
    ReadCommitted,
    /// All up to the high watermark.
    ReadUncommitted,
}

impl Isolation {
    pub(crate) fn code(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The start of the log.
    Earliest,
    /// The end: high watermark, or last stable offset for `ReadCommitted`.
    Latest,
    /// The first record whose timestamp (milliseconds since 1970) is not before this.
    Timestamp(i64),
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset; none where no record is late enough.
    pub offset: Option<i64>,
    /// The timestamp of the record found by time.
    pub timestamp_ms: Option<i64>,
    /// The leader epoch of the offset, where the broker knows it.
    pub leader_epoch: Option<i32>,
}

/// Asks for an offset of each partition, in the order asked.
///
/// # Errors
/// The first partition that has no answer until the deadline, or whose answer is an error that another try cannot
/// help (an unknown topic may be a new one and is tried until the deadline).
pub async fn list_offsets(
    client: &Client,
    partitions: &[(&str, i32)],
    spec: OffsetSpec,
    isolation: Isolation,
    deadline: Deadline,
) -> Result<Vec<ListedOffset>, ClientError> {
    try_join_all(
        partitions
            .iter()
            .map(|&(topic, partition)| list_offset(client, topic, partition, spec, isolation, deadline)),
    )
    .await
}

async fn list_offset(
    client: &Client,
    topic: &str,
    partition: i32,
    spec: OffsetSpec,
    isolation: Isolation,
    deadline: Deadline,
) -> Result<ListedOffset, ClientError> {
    let timestamp = match spec {
        OffsetSpec::Earliest => EARLIEST,
        OffsetSpec::Latest => LATEST,
        OffsetSpec::Timestamp(at) => at.max(0),
    };
    let wanted = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(timestamp);
    let wanted =
        ListOffsetsTopic::default().with_name(wire::text(topic).into()).with_partitions(vec![wanted]);
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_isolation_level(isolation.code())
        .with_topics(vec![wanted]);
    let code = |response: &ListOffsetsResponse| entry(response).map(|found| KafkaCode(found.error_code));
    let kind = RequestKind::ListOffsets;
    let request = &|_| request.clone();
    let ask = AskLeader { topic, partition, kind, versions: VERSIONS, request, code, unanswered: None };
    let response = ask.until_settled(client, deadline).await?;
    let found = entry(&response).filter(|found| found.partition_index == partition);
    let found = found.ok_or_else(|| CallError::Malformed {
        api: ListOffsetsRequest::NAME,
        node: crate::NodeId::BOOTSTRAP,
        reason: format!("no entry for {topic}-{partition}").into(),
    })?;
    Ok(ListedOffset {
        topic: topic.to_owned(),
        partition,
        offset: Some(found.offset).filter(|offset| *offset >= 0),
        timestamp_ms: Some(found.timestamp).filter(|at| *at >= 0),
        leader_epoch: Some(found.leader_epoch).filter(|epoch| *epoch >= 0),
    })
}

fn entry(response: &ListOffsetsResponse) -> Option<&ListOffsetsPartitionResponse> {
    response.topics.first()?.partitions.first()
}
