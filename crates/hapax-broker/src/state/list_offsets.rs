//! ListOffsets and OffsetForLeaderEpoch: offsets by time, and where leader epochs ended.
//!
//! Sources: `Partition.fetchOffsetForTimestamp`, `UnifiedLog.fetchOffsetByTimestamp`, KIP-320, KIP-734 (latest record).

use super::{Answer, Call, Code, Machine, Millis, catalog::Partition, log::Stored};
use crate::{batch::Records, codec};
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    list_offsets_request::ListOffsetsPartition,
    list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
    offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
};
use std::collections::BTreeSet;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const READ_COMMITTED: i8 = 1;

/// An offset that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    timestamp: Millis,
    offset: i64,
    leader_epoch: i32,
}

const NOTHING: Found = Found { timestamp: -1, offset: -1, leader_epoch: -1 };

impl Machine {
    /// Answers ListOffsets.
    pub(crate) fn list_offsets(&self, call: &Call, request: ListOffsetsRequest) -> Answer {
        let committed = request.isolation_level == READ_COMMITTED;
        let twice = twice(&request);
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let found = match twice.contains(&(topic.name.as_str(), asked.partition_index)) {
                    true => Err(Code::INVALID_REQUEST),
                    false => self.find_offset(call, &topic.name, asked, committed),
                };
                answer(call, asked, found)
            });
            ListOffsetsTopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions.collect())
        });
        Answer::Now(ListOffsetsResponse::default().with_topics(topics.collect()).into())
    }

    fn find_offset(
        &self,
        call: &Call,
        topic: &str,
        asked: &ListOffsetsPartition,
        committed: bool,
    ) -> Result<Found, Code> {
        if asked.timestamp < 0 && since(asked.timestamp).is_none_or(|first| call.version < first) {
            return Err(Code::UNSUPPORTED_VERSION);
        }
        let partition =
            self.catalog.partition(topic, asked.partition_index).ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        partition.admit(call.node, asked.current_leader_epoch)?;
        let log = &partition.log;
        let end = if committed { log.last_stable() } else { log.end() };
        match asked.timestamp {
            LATEST => Ok(Found { timestamp: -1, offset: end, leader_epoch: partition.leader_epoch }),
            EARLIEST | EARLIEST_LOCAL => {
                let leader_epoch = log.epoch_at(log.start()).unwrap_or(-1);
                Ok(Found { timestamp: -1, offset: log.start(), leader_epoch })
            }
            // Nothing is ever moved to another tier.
            LATEST_TIERED => Ok(NOTHING),
            MAX_TIMESTAMP => Ok(latest(partition).filter(|found| found.offset < end).unwrap_or(NOTHING)),
            timestamp => {
                Ok(at_or_after(partition, timestamp).filter(|found| found.offset < end).unwrap_or(NOTHING))
            }
        }
    }

    /// Answers OffsetForLeaderEpoch.
    pub(crate) fn offset_for_leader_epoch(
        &self,
        call: &Call,
        request: OffsetForLeaderEpochRequest,
    ) -> Answer {
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let answer = EpochEndOffset::default().with_partition(asked.partition);
                let partition = self.catalog.partition(&topic.topic, asked.partition);
                let end = partition.ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION).and_then(|partition| {
                    partition.admit(call.node, asked.current_leader_epoch)?;
                    Ok(partition.log.epoch_end(asked.leader_epoch))
                });
                match end {
                    Ok((epoch, end)) => answer.with_leader_epoch(epoch).with_end_offset(end),
                    Err(code) => answer.with_error_code(code.0).with_leader_epoch(-1).with_end_offset(-1),
                }
            });
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic.clone())
                .with_partitions(partitions.collect())
        });
        Answer::Now(OffsetForLeaderEpochResponse::default().with_topics(topics.collect()).into())
    }
}

/// The first version that may ask for a place that is no time (`ReplicaManager.timestampMinSupportedVersion`).
fn since(timestamp: i64) -> Option<i16> {
    match timestamp {
        LATEST | EARLIEST => Some(1),
        MAX_TIMESTAMP => Some(7),
        EARLIEST_LOCAL => Some(8),
        LATEST_TIERED => Some(9),
        _ => None,
    }
}

fn twice(request: &ListOffsetsRequest) -> BTreeSet<(&str, i32)> {
    let mut once = BTreeSet::new();
    let all = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| (topic.name.as_str(), partition.partition_index))
    });
    all.filter(|place| !once.insert(*place)).collect()
}

fn answer(
    call: &Call,
    asked: &ListOffsetsPartition,
    found: Result<Found, Code>,
) -> ListOffsetsPartitionResponse {
    let answer = ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
    let (code, found) = match found {
        Ok(found) => (Code::NONE, found),
        Err(code) => (code, NOTHING),
    };
    // Version 4 brought leader epochs.
    let leader_epoch = if call.version >= 4 { found.leader_epoch } else { -1 };
    answer
        .with_error_code(code.0)
        .with_timestamp(found.timestamp)
        .with_offset(found.offset)
        .with_leader_epoch(leader_epoch)
}

fn at_or_after(partition: &Partition, timestamp: Millis) -> Option<Found> {
    let start = partition.log.start();
    partition
        .log
        .batches(start)
        .filter(|stored| stored.max_timestamp() >= timestamp)
        .find_map(|stored| find(stored, |time, offset| time >= timestamp && offset >= start))
}

fn latest(partition: &Partition) -> Option<Found> {
    let stored = partition.log.latest().filter(|stored| stored.max_timestamp() >= 0)?;
    find(stored, |time, _| time == stored.max_timestamp())
}

/// The first record that is wanted by its time and offset.
fn find(stored: &Stored, wanted: impl Fn(Millis, i64) -> bool) -> Option<Found> {
    let header = &stored.batch.header;
    let payload = codec::payload(&stored.batch.records, header).ok()?;
    Records::new(&payload, header.count).map_while(Result::ok).find_map(|record| {
        let timestamp = match header.is_log_append_time() {
            true => header.max_timestamp,
            false => header.base_timestamp.wrapping_add(record.timestamp_delta),
        };
        let offset = header.base_offset + i64::from(record.offset_delta);
        wanted(timestamp, offset).then_some(Found { timestamp, offset, leader_epoch: header.leader_epoch })
    })
}

#[cfg(test)]
mod tests {
    use super::super::probe::{Probe, Produced, START, name};
    use super::*;
    use crate::{
        state::{NodeId, Settings, Step},
        wire::Response,
    };
    use kafka_protocol::messages::{
        list_offsets_request::ListOffsetsTopic,
        offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
    };

    fn list(probe: &mut Probe, timestamp: i64, isolation: i8) -> (i16, i64, i64, i32) {
        list_in(9, probe, timestamp, isolation)
    }

    fn list_in(version: i16, probe: &mut Probe, timestamp: i64, isolation: i8) -> (i16, i64, i64, i32) {
        let partition =
            ListOffsetsPartition::default().with_current_leader_epoch(-1).with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_isolation_level(isolation).with_topics(vec![topic]);
        let Response::ListOffsets(response) = probe.ask(version, request) else { panic!("not ListOffsets") };
        let answer = &response.topics[0].partitions[0];
        (answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch)
    }

    #[test]
    fn offsets_are_found_by_time_and_by_name() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        assert_eq!(list(&mut probe, MAX_TIMESTAMP, 0), (0, -1, -1, -1));
        for at in [10, 30, 20] {
            probe.produce(9, "t", Produced { timestamp: START + at, ..Produced::plain(2) }.bytes());
        }
        assert_eq!(list(&mut probe, EARLIEST, 0), (0, -1, 0, 0));
        assert_eq!(list(&mut probe, LATEST, 0), (0, -1, 6, 0));
        assert_eq!(list(&mut probe, MAX_TIMESTAMP, 0), (0, START + 30, 2, 0));
        assert_eq!(list(&mut probe, START, 0), (0, START + 10, 0, 0));
        assert_eq!(list(&mut probe, START + 11, 0), (0, START + 30, 2, 0));
        assert_eq!(list(&mut probe, START + 31, 0), (0, -1, -1, -1));
        probe.act(Step::Retain { topic: "t".to_owned(), partition: 0, from: 3 });
        assert_eq!(list(&mut probe, START, 0), (0, START + 30, 3, 0));
    }

    /// The shape of an unclean election: the leader's records are not all there, and others come in their place.
    #[test]
    fn a_truncated_log_ends_the_epoch_where_it_was_cut() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        (0..3).for_each(|_| drop(probe.produce(9, "t", Produced::plain(4).bytes())));
        probe.act(Step::MoveLeader { topic: "t".to_owned(), partition: 0, to: None });
        probe.produce(9, "t", Produced::plain(4).bytes());
        let ends = |probe: &mut Probe| [0, 1, 2].map(|epoch| epoch_end(probe, epoch));
        assert_eq!(ends(&mut probe), [Ok((0, 12)), Ok((1, 16)), Ok((-1, -1))]);
        probe.act(Step::Truncate { topic: "t".to_owned(), partition: 0, from: 5 });
        assert_eq!(list(&mut probe, LATEST, 0).2, 4, "the batch with the offset is lost whole");
        assert_eq!(ends(&mut probe), [Ok((0, 4)), Ok((0, 4)), Ok((2, 4))]);
        probe.produce(9, "t", Produced::plain(20).bytes());
        assert_eq!(ends(&mut probe), [Ok((0, 4)), Ok((0, 4)), Ok((2, 24))]);
        assert_eq!(list(&mut probe, LATEST, 0).2, 24);
    }

    #[test]
    fn a_place_without_a_time_is_told_to_versions_that_know_it() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        for (place, first) in
            [(LATEST, 1), (EARLIEST, 1), (MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9)]
        {
            for version in 1..=10 {
                let expected = if version < first { Code::UNSUPPORTED_VERSION } else { Code::NONE };
                assert_eq!(Code(list_in(version, &mut probe, place, 0).0), expected, "{place} v{version}");
            }
        }
        assert_eq!(Code(list_in(10, &mut probe, -9, 0).0), Code::UNSUPPORTED_VERSION);
    }

    #[test]
    fn the_latest_committed_offset_is_the_last_stable_one() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        probe.produce(9, "t", Produced::plain(1).bytes());
        probe.machine.append_records("t", 0, Some((5, 0)), &[(bytes::Bytes::new(), None)]).unwrap();
        assert_eq!(list(&mut probe, LATEST, 0).2, 2);
        assert_eq!(list(&mut probe, LATEST, READ_COMMITTED).2, 1);
        assert_eq!(list(&mut probe, START, READ_COMMITTED).2, 0);
    }

    fn epoch_end(probe: &mut Probe, epoch: i32) -> Result<(i32, i64), Code> {
        let asked =
            OffsetForLeaderPartition::default().with_current_leader_epoch(-1).with_leader_epoch(epoch);
        let topic = OffsetForLeaderTopic::default().with_topic(name("t")).with_partitions(vec![asked]);
        let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
        let Response::OffsetForLeaderEpoch(response) = probe.ask(4, request) else {
            panic!("another answer")
        };
        let answer = &response.topics[0].partitions[0];
        match Code(answer.error_code) {
            Code::NONE => Ok((answer.leader_epoch, answer.end_offset)),
            code => Err(code),
        }
    }

    #[test]
    fn an_epoch_ends_where_the_next_leader_began() {
        let mut probe = Probe::with(Settings { nodes: 2, ..Settings::default() });
        probe.topic("t", 1, &[]);
        probe.produce(9, "t", Produced::plain(3).bytes());
        probe.act(Step::MoveLeader { topic: "t".to_owned(), partition: 0, to: Some(NodeId(2)) });
        assert_eq!(epoch_end(&mut probe, 0), Err(Code::NOT_LEADER_OR_FOLLOWER));
        probe.node = NodeId(2);
        assert_eq!(epoch_end(&mut probe, 0), Ok((0, 3)));
    }
}
