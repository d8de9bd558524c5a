//! OffsetForLeaderEpoch: where what a leader epoch wrote ends (KIP-320).
//!
//! Whoever has read up to an offset under an epoch asks for the epoch's end: one that is below the offset, or of an earlier
//! epoch, shows that the log was truncated since. (`LeaderEpochFileCache.endOffsetFor`)

use super::leader::AskLeader;
use crate::{
    Client, ClientError, KafkaCode, Leader,
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

/// Asks for the end of an epoch under which records were read; none where the log has nothing up to it.
///
/// A leader of an earlier epoch is not believed: a node that is cut off from its cluster goes on as the leader that it was,
/// and does not know what came since. It is asked under the epoch that is known here, refuses, and another one may be named.
///
/// # Errors
/// No answer until the deadline, or one that another try cannot help (an unknown topic may be a new one and is tried
/// until the deadline).
pub async fn epoch_end(
    client: &Client,
    asked: LeaderEpochOf<'_>,
    deadline: Deadline,
) -> Result<Option<EpochEnd>, ClientError> {
    let LeaderEpochOf { topic, partition, .. } = asked;
    let code =
        |response: &OffsetForLeaderEpochResponse| entry(response).map(|found| KafkaCode(found.error_code));
    let kind = RequestKind::OffsetForLeaderEpoch;
    let request = &|leader| request(asked, leader);
    let ask = AskLeader { topic, partition, kind, versions: VERSIONS, request, code, unanswered: None };
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

fn request(asked: LeaderEpochOf<'_>, leader: Leader) -> OffsetForLeaderEpochRequest {
    let LeaderEpochOf { topic, partition, leader_epoch } = asked;
    // Records were read under it, so it has been: whoever leads under an earlier one has not heard of it, whatever metadata
    // says.
    let current = leader.leader_epoch.max(leader_epoch);
    let wanted = OffsetForLeaderPartition::default()
        .with_partition(partition)
        .with_current_leader_epoch(current)
        .with_leader_epoch(leader_epoch);
    let wanted =
        OffsetForLeaderTopic::default().with_topic(wire::text(topic).into()).with_partitions(vec![wanted]);
    OffsetForLeaderEpochRequest::default().with_replica_id(READER.into()).with_topics(vec![wanted])
}

fn entry(response: &OffsetForLeaderEpochResponse) -> Option<&EpochEndOffset> {
    response.topics.first()?.partitions.first()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, admin::leader::moves_the_leader};

    #[test]
    fn a_leader_that_is_cut_off_is_asked_under_an_epoch_that_it_has_not_heard_of() {
        let current = |told, read_under| {
            let asked = LeaderEpochOf { topic: "t", partition: 0, leader_epoch: read_under };
            let leader = Leader { node: NodeId(1), leader_epoch: told };
            request(asked, leader).topics[0].partitions[0].current_leader_epoch
        };
        assert_eq!(current(5, 7), 7, "metadata is of the leader that was cut off, too");
        assert_eq!((current(7, 7), current(9, 7)), (7, 9), "metadata is newer");
        let kind = RequestKind::OffsetForLeaderEpoch;
        for refused in [KafkaCode::UNKNOWN_LEADER_EPOCH, KafkaCode::FENCED_LEADER_EPOCH] {
            assert!(moves_the_leader(&ClientError::broker(kind, "t-0", refused)), "{refused} asks again");
        }
    }
}
