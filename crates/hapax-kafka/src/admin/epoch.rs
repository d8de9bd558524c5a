//! OffsetForLeaderEpoch: where what a leader epoch wrote ends (KIP-320).
//!
//! Whoever has read up to an offset under an epoch asks for the epoch's end: one that is below the offset, or of an earlier
//! epoch, shows that the log was truncated since. (`LeaderEpochFileCache.endOffsetFor`)

use super::leader::AskLeader;
use crate::{
    Client, ClientError, KafkaCode,
    error::{CallError, RequestKind},
    wire::{self, Request},
};
use hapax_host::Deadline;
use kafka_protocol::messages::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
    offset_for_leader_epoch_response::EpochEndOffset,
};
use std::ops::RangeInclusive;

/// From 3 on brokers tell readers, who need DESCRIBE on the topic.
const VERSIONS: RangeInclusive<i16> = 3..=4;

/// A reader, and no replica.
const READER: i32 = -1;

/// A leader epoch of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderEpochOf<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// The epoch.
    pub leader_epoch: i32,
}

/// Where the log has the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The last epoch in the log that is not after the one that was asked for.
    pub leader_epoch: i32,
    /// The offset behind its last record.
    pub offset: i64,
}

/// Asks for the end of an epoch; none where the partition's leader does not know of such an epoch.
///
/// # Errors
/// No answer until the deadline, or one that another try cannot help (an unknown topic may be a new one and is tried
/// until the deadline).
pub async fn epoch_end(
    client: &Client,
    asked: LeaderEpochOf<'_>,
    deadline: Deadline,
) -> Result<Option<EpochEnd>, ClientError> {
    let LeaderEpochOf { topic, partition, leader_epoch } = asked;
    let wanted = OffsetForLeaderPartition::default()
        .with_partition(partition)
        .with_current_leader_epoch(-1)
        .with_leader_epoch(leader_epoch);
    let wanted =
        OffsetForLeaderTopic::default().with_topic(wire::text(topic).into()).with_partitions(vec![wanted]);
    let request =
        OffsetForLeaderEpochRequest::default().with_replica_id(READER.into()).with_topics(vec![wanted]);
    let code =
        |response: &OffsetForLeaderEpochResponse| entry(response).map(|found| KafkaCode(found.error_code));
    let kind = RequestKind::OffsetForLeaderEpoch;
    let ask =
        AskLeader { topic, partition, kind, versions: VERSIONS, request: &request, code, unanswered: None };
    let response = ask.until_settled(client, deadline).await?;
    let found = entry(&response).filter(|found| found.partition == partition);
    let found = found.ok_or_else(|| CallError::Malformed {
        api: OffsetForLeaderEpochRequest::NAME,
        node: crate::NodeId::BOOTSTRAP,
        reason: format!("no entry for {topic}-{partition}").into(),
    })?;
    let known = found.leader_epoch >= 0 && found.end_offset >= 0;
    Ok(known.then_some(EpochEnd { leader_epoch: found.leader_epoch, offset: found.end_offset }))
}

fn entry(response: &OffsetForLeaderEpochResponse) -> Option<&EpochEndOffset> {
    response.topics.first()?.partitions.first()
}
