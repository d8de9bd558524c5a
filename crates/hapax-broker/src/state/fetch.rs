//! Fetch: batches to readers, and readers that wait for more.
//!
//! A read is planned first (what may be read, how many bytes there are) and copied only when it is answered. Who has
//! asked for more than there is waits until enough was appended, became stable, or its time is over. No sessions are
//! kept: every answer says session 0, which every client takes as "send all partitions again".
//!
//! Sources: `KafkaApis.handleFetchRequest`, `ReplicaManager.readFromLog`, `DelayedFetch`, KIP-98 (aborted lists),
//! KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids).

use super::{Answer, Call, Code, Machine, NodeId, Ticket, Timer, TopicPartition, catalog::Partition, log};
use bytes::Bytes;
use kafka_protocol::{
    messages::{
        FetchRequest, FetchResponse, TopicName,
        fetch_request::FetchPartition,
        fetch_response::{
            AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
            PartitionData,
        },
    },
    protocol::StrBytes,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The first version that names topics by id.
const TOPIC_IDS: i16 = 13;
/// The first version that is told the new leader.
const TELLS_LEADER: i16 = 16;
/// `fetch.max.bytes` of the broker.
const MAX_BYTES: i32 = 57_671_680;
const READ_COMMITTED: i8 = 1;

/// Readers that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readers {
    waiting: BTreeMap<Ticket, Reading>,
    by_partition: BTreeMap<TopicPartition, BTreeSet<Ticket>>,
}

/// A request on its way through.
#[derive(Clone, Debug)]
struct Reading {
    call: Call,
    committed: bool,
    min_bytes: u64,
    max_bytes: usize,
    topics: Vec<(TopicName, Uuid)>,
    parts: Vec<Part>,
}

/// What is asked of a partition.
#[derive(Clone, Debug)]
struct Part {
    /// Place of its topic in the request.
    topic: usize,
    /// `None` for a topic id that nothing has.
    place: Option<TopicPartition>,
    asked: FetchPartition,
}

/// What may be read of a partition.
enum Plan {
    /// From the wanted offset up to, not with, this one; so many bytes are there.
    Read { to: i64, bytes: u64 },
    /// The reader's log has gone another way (KIP-320).
    Diverged(EpochEndOffset),
}

impl Machine {
    /// Answers Fetch.
    pub(crate) fn fetch(&mut self, call: &Call, request: FetchRequest) -> Answer {
        if let Some(code) = session_fault(&request) {
            return Answer::Now(FetchResponse::default().with_error_code(code.0).into());
        }
        let max_wait = i64::from(request.max_wait_ms);
        let reading = self.reading(call, request);
        if max_wait <= 0 || reading.parts.is_empty() || self.is_ready(&reading) {
            return Answer::Now(self.read(&reading).into());
        }
        let ticket = call.ticket;
        self.timers.at(self.now.saturating_add(max_wait), Timer::Fetch(ticket));
        for place in reading.parts.iter().filter_map(|part| part.place.clone()) {
            self.readers.by_partition.entry(place).or_default().insert(ticket);
        }
        self.readers.waiting.insert(ticket, reading);
        Answer::Later
    }

    /// Answers a reader with what there is: its time is over.
    pub(crate) fn fetch_over(&mut self, ticket: Ticket) {
        if let Some(reading) = self.readers.remove(ticket) {
            let response = self.read(&reading);
            self.reply(ticket, response.into());
        }
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn fetch_gone(&mut self, ticket: Ticket) {
        self.readers.remove(ticket);
    }

    /// Answers the readers that wait for partitions that changed, if there is enough for them now.
    pub(crate) fn wake_readers(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        if self.readers.waiting.is_empty() {
            return;
        }
        let tickets: BTreeSet<Ticket> = touched
            .iter()
            .filter_map(|place| self.readers.by_partition.get(place))
            .flatten()
            .copied()
            .collect();
        for ticket in tickets {
            if self.readers.waiting.get(&ticket).is_some_and(|reading| self.is_ready(reading)) {
                self.fetch_over(ticket);
            }
        }
    }

    fn reading(&self, call: &Call, request: FetchRequest) -> Reading {
        let max_bytes = request.max_bytes.clamp(0, MAX_BYTES);
        let mut topics = Vec::with_capacity(request.topics.len());
        let mut parts = Vec::new();
        for (at, topic) in request.topics.into_iter().enumerate() {
            let name = match call.version {
                TOPIC_IDS.. => self.catalog.name(topic.topic_id).map(str::to_owned),
                _ => Some(topic.topic.to_string()),
            };
            topics.push((topic.topic, topic.topic_id));
            parts.extend(topic.partitions.into_iter().map(|asked| {
                let place = name.clone().map(|topic| TopicPartition { topic, partition: asked.partition });
                Part { topic: at, place, asked }
            }));
        }
        Reading {
            call: call.clone(),
            committed: request.isolation_level == READ_COMMITTED,
            min_bytes: request.min_bytes.clamp(0, max_bytes) as u64,
            max_bytes: max_bytes as usize,
            topics,
            parts,
        }
    }

    /// Whether a reader is answered at once: there is enough, or something is wrong.
    fn is_ready(&self, reading: &Reading) -> bool {
        let mut bytes = 0;
        for part in &reading.parts {
            match self.plan(reading, part) {
                Ok((_, Plan::Read { bytes: here, .. })) => {
                    bytes += here.min(part.asked.partition_max_bytes.max(0) as u64);
                }
                Ok((_, Plan::Diverged(_))) | Err(_) => return true,
            }
        }
        bytes >= reading.min_bytes
    }

    fn plan(&self, reading: &Reading, part: &Part) -> Result<(&Partition, Plan), Code> {
        let place = part.place.as_ref().ok_or(Code::UNKNOWN_TOPIC_ID)?;
        let gone = if reading.call.version >= TOPIC_IDS {
            // The name was found when the request came; the topic may have been deleted since.
            let (_, id) = reading.topics[part.topic];
            (self.catalog.name(id) != Some(place.topic.as_str())).then_some(Code::UNKNOWN_TOPIC_ID)
        } else {
            None
        };
        if let Some(code) = gone {
            return Err(code);
        }
        let partition =
            self.catalog.partition(&place.topic, place.partition).ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        partition.admit(reading.call.node, part.asked.current_leader_epoch)?;
        let (log, from) = (&partition.log, part.asked.fetch_offset);
        if let Some(diverged) = diverged(&partition.log, &part.asked)? {
            return Ok((partition, Plan::Diverged(diverged)));
        }
        log::in_range(log, from)?;
        let to = if reading.committed { log.last_stable() } else { log.end() };
        let bytes = if from < to { log.bytes_between(from, to) } else { 0 };
        Ok((partition, Plan::Read { to, bytes }))
    }

    fn read(&self, reading: &Reading) -> FetchResponse {
        let mut response = FetchResponse::default();
        for (name, id) in &reading.topics {
            let topic = FetchableTopicResponse::default();
            response.responses.push(match reading.call.version {
                TOPIC_IDS.. => topic.with_topic_id(*id),
                _ => topic.with_topic(name.clone()),
            });
        }
        let mut room = reading.max_bytes;
        let mut first = true;
        let mut leaders = BTreeSet::new();
        for part in &reading.parts {
            let data = match self.plan(reading, part) {
                Ok((partition, plan)) => read_part(partition, reading, part, plan, room, first),
                Err(code) => self.refuse(reading, part, code, &mut leaders),
            };
            let bytes = data.records.as_ref().map_or(0, Bytes::len);
            first &= bytes == 0;
            room = room.saturating_sub(bytes);
            response.responses[part.topic].partitions.push(data);
        }
        let endpoints = self.nodes().filter(|(node, ..)| leaders.contains(&NodeId(node.0)));
        let endpoints = endpoints.map(|(node, host, port)| {
            NodeEndpoint::default().with_node_id(node).with_host(StrBytes::from_string(host)).with_port(port)
        });
        response.node_endpoints = endpoints.collect();
        response
    }

    fn refuse(
        &self,
        reading: &Reading,
        part: &Part,
        code: Code,
        leaders: &mut BTreeSet<NodeId>,
    ) -> PartitionData {
        let mut data = empty(part.asked.partition)
            .with_error_code(code.0)
            .with_high_watermark(-1)
            .with_last_stable_offset(-1)
            .with_log_start_offset(-1);
        if [Code::UNKNOWN_TOPIC_ID, Code::UNKNOWN_TOPIC_OR_PARTITION].contains(&code) {
            // Kafka finds this before it looks at a log, and then says an empty list (`FetchResponse.partitionResponse`).
            data.aborted_transactions = Some(Vec::new());
        }
        let moved = [Code::NOT_LEADER_OR_FOLLOWER, Code::FENCED_LEADER_EPOCH].contains(&code);
        let place = part.place.as_ref().filter(|_| moved && reading.call.version >= TELLS_LEADER);
        if let Some(partition) = place.and_then(|place| self.catalog.partition(&place.topic, place.partition))
        {
            data.current_leader = LeaderIdAndEpoch::default()
                .with_leader_id(partition.leader.0.into())
                .with_leader_epoch(partition.leader_epoch);
            leaders.insert(partition.leader);
        }
        data
    }
}

impl Readers {
    fn remove(&mut self, ticket: Ticket) -> Option<Reading> {
        let reading = self.waiting.remove(&ticket)?;
        for place in reading.parts.iter().filter_map(|part| part.place.as_ref()) {
            if let Some(tickets) = self.by_partition.get_mut(place) {
                tickets.remove(&ticket);
                if tickets.is_empty() {
                    self.by_partition.remove(place);
                }
            }
        }
        Some(reading)
    }
}

fn read_part(
    partition: &Partition,
    reading: &Reading,
    part: &Part,
    plan: Plan,
    room: usize,
    whole_first: bool,
) -> PartitionData {
    let log = &partition.log;
    let data = empty(part.asked.partition)
        .with_high_watermark(log.end())
        .with_last_stable_offset(log.last_stable())
        .with_log_start_offset(log.start());
    let (from, to) = match plan {
        Plan::Read { to, .. } => (part.asked.fetch_offset, to),
        Plan::Diverged(diverged) => return data.with_diverging_epoch(diverged),
    };
    if from >= to {
        return data.with_aborted_transactions(reading.committed.then(Vec::new));
    }
    let max = room.min(part.asked.partition_max_bytes.max(0) as usize);
    let slice = log.read(from, to, max, whole_first);
    let aborted = reading.committed.then(|| {
        let aborted = log.aborted(from, slice.upper).into_iter();
        aborted
            .map(|aborted| {
                AbortedTransaction::default()
                    .with_producer_id(aborted.producer_id.into())
                    .with_first_offset(aborted.first)
            })
            .collect()
    });
    data.with_records(Some(slice.records)).with_aborted_transactions(aborted)
}

fn empty(partition: i32) -> PartitionData {
    PartitionData::default()
        .with_partition_index(partition)
        .with_aborted_transactions(None)
        .with_preferred_read_replica((-1).into())
        .with_records(Some(Bytes::new()))
}

/// What is wrong with a session, where none is kept (`FetchManager.newContext`).
fn session_fault(request: &FetchRequest) -> Option<Code> {
    let full = request.session_epoch == 0 || request.session_epoch == -1;
    (!full).then_some(Code::FETCH_SESSION_ID_NOT_FOUND)
}

/// Where the log parted from what the reader has, if it says what it has (`Partition.readRecords`).
fn diverged(log: &log::Log, asked: &FetchPartition) -> Result<Option<EpochEndOffset>, Code> {
    if asked.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let (epoch, end) = log.epoch_end(asked.last_fetched_epoch);
    if epoch < 0 || end < 0 {
        return Err(Code::OFFSET_OUT_OF_RANGE);
    }
    let parted = epoch < asked.last_fetched_epoch || end < asked.fetch_offset;
    Ok(parted.then(|| EpochEndOffset::default().with_epoch(epoch).with_end_offset(end)))
}

#[cfg(test)]
mod tests {
    use super::super::{
        append::Marker,
        probe::{Probe, Produced, answer_of, fetch_request, fetched, headers, produce_request},
    };
    use super::*;
    use crate::state::{Input, Settings, Step};

    fn transactional(probe: &mut Probe, id: i64) -> i64 {
        let records = [(Bytes::from_static(b"k"), Some(Bytes::from_static(b"v")))];
        probe.machine.append_records("t", 0, Some((id, 0)), &records).unwrap()
    }

    fn end(probe: &mut Probe, producer_id: i64, commit: bool) {
        let marker =
            Marker { producer_id, producer_epoch: 0, coordinator_epoch: 0, commit, transaction_version: 0 };
        probe.machine.write_marker("t", 0, marker).unwrap();
    }

    fn topic() -> Probe {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        probe
    }

    #[test]
    fn a_reader_of_committed_records_sees_nothing_of_open_transactions() {
        let mut probe = topic();
        transactional(&mut probe, 1);
        probe.produce(9, "t", Produced::plain(1).bytes());
        let data = probe.fetch("t", 0, true);
        assert_eq!((data.last_stable_offset, data.high_watermark), (0, 2));
        assert_eq!(data.records.unwrap().len(), 0);
        assert_eq!(headers(&probe.fetch("t", 0, false).records.unwrap()).len(), 2);

        end(&mut probe, 1, true);
        let data = probe.fetch("t", 0, true);
        assert_eq!(data.last_stable_offset, 3);
        assert_eq!(data.aborted_transactions, Some(Vec::new()));
        assert_eq!(headers(&data.records.unwrap()).len(), 3);
    }

    #[test]
    fn aborted_transactions_are_listed_to_who_reads_their_range() {
        let mut probe = topic();
        transactional(&mut probe, 1);
        transactional(&mut probe, 2);
        end(&mut probe, 1, false);
        end(&mut probe, 2, true);
        transactional(&mut probe, 3);
        end(&mut probe, 3, false);
        let listed = |data: PartitionData| -> Vec<(i64, i64)> {
            let aborted = data.aborted_transactions.unwrap().into_iter();
            aborted.map(|aborted| (aborted.producer_id.0, aborted.first_offset)).collect()
        };
        assert_eq!(listed(probe.fetch("t", 0, true)), [(1, 0), (3, 4)]);
        assert_eq!(listed(probe.fetch("t", 3, true)), [(3, 4)]);
        assert_eq!(probe.fetch("t", 0, false).aborted_transactions, None);
    }

    #[test]
    fn a_reader_that_waits_is_answered_when_something_is_appended() {
        let mut probe = topic();
        let (ticket, replies) = probe.send(12, fetch_request("t", 0, false, 500));
        assert!(replies.is_empty());
        assert_eq!(probe.machine.next_wake(), Some(probe.now + 500));
        let (_, replies) = probe.send(9, produce_request("t", Produced::plain(3).bytes(), None));
        let data = fetched(answer_of(ticket, &replies).unwrap());
        assert_eq!(data.high_watermark, 3);
        assert!(probe.machine.readers.waiting.is_empty() && probe.machine.readers.by_partition.is_empty());
    }

    #[test]
    fn a_reader_that_waits_for_committed_records_is_answered_by_the_marker() {
        let mut probe = topic();
        let (ticket, _) = probe.send(12, fetch_request("t", 0, true, 500));
        transactional(&mut probe, 1);
        assert_eq!(answer_of(ticket, &probe.pass(1)), None);
        end(&mut probe, 1, true);
        let data = fetched(answer_of(ticket, &probe.pass(1)).unwrap());
        assert_eq!(headers(&data.records.unwrap()).len(), 2);
    }

    #[test]
    fn a_reader_is_answered_empty_when_its_time_is_over_and_not_when_it_left() {
        let mut probe = topic();
        let (ticket, _) = probe.send(12, fetch_request("t", 0, false, 500));
        assert_eq!(answer_of(ticket, &probe.pass(499)), None);
        assert_eq!(fetched(answer_of(ticket, &probe.pass(1)).unwrap()).records.unwrap().len(), 0);

        let (gone, _) = probe.send(12, fetch_request("t", 0, false, 500));
        probe.machine.step(probe.now, Input::Gone(vec![gone]));
        assert!(probe.machine.readers.waiting.is_empty() && probe.machine.readers.by_partition.is_empty());
        assert!(probe.pass(1_000).is_empty());
    }

    #[test]
    fn a_topic_that_is_not_there_has_no_aborted_transactions_and_an_offset_outside_no_list_of_them() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        assert_eq!(probe.fetch("nowhere", 0, false).aborted_transactions, Some(Vec::new()));
        assert_eq!(probe.fetch("t", 9, false).aborted_transactions, None);
    }

    #[test]
    fn offsets_outside_the_log_are_refused_without_waiting() {
        let mut probe = topic();
        probe.produce(9, "t", Produced::plain(4).bytes());
        probe.act(Step::Retain { topic: "t".to_owned(), partition: 0, from: 2 });
        for (from, expected) in [(-1, 1), (1, 1), (2, 0), (4, 0), (5, 1)] {
            let data = probe.fetch("t", from, false);
            assert_eq!(data.error_code, expected, "from {from}");
            assert_eq!(data.log_start_offset, if expected == 0 { 2 } else { -1 });
        }
    }

    #[test]
    fn a_fetch_stops_at_its_limit_but_never_before_one_whole_batch() {
        let mut probe = topic();
        let size = Produced::plain(1).bytes().len() as i32;
        (0..3).for_each(|_| drop(probe.produce(9, "t", Produced::plain(1).bytes())));
        let mut fetch = |max: i32| {
            let mut request = fetch_request("t", 0, false, 0);
            request.topics[0].partitions[0].partition_max_bytes = max;
            fetched(probe.ask(12, request)).records.unwrap()
        };
        assert_eq!(fetch(1).len() as i32, size);
        assert_eq!(headers(&fetch(2 * size)).len(), 2);
        let cut = fetch(2 * size + 20);
        assert_eq!(
            (cut.len() as i32, headers(&cut).len()),
            (2 * size + 20, 2),
            "cut in a batch, as Kafka cuts"
        );
        assert_eq!(headers(&fetch(1 << 20)).len(), 3);
    }

    #[test]
    fn leader_epochs_and_moved_leaders_are_told() {
        let mut probe = Probe::with(Settings { nodes: 2, ..Settings::default() });
        probe.topic("t", 1, &[]);
        let (waiting, _) = probe.send(12, fetch_request("t", 0, false, 500));
        let replies = probe.act(Step::MoveLeader { topic: "t".to_owned(), partition: 0, to: None });
        let data = fetched(answer_of(waiting, &replies).unwrap());
        assert_eq!(Code(data.error_code), Code::NOT_LEADER_OR_FOLLOWER);
        probe.node = NodeId(2);
        let mut with_epoch = |epoch| {
            let mut request = fetch_request("t", 0, false, 0);
            request.topics[0].partitions[0].current_leader_epoch = epoch;
            Code(fetched(probe.ask(12, request)).error_code)
        };
        assert_eq!(with_epoch(0), Code::FENCED_LEADER_EPOCH);
        assert_eq!(with_epoch(1), Code::NONE);
        assert_eq!(with_epoch(2), Code::UNKNOWN_LEADER_EPOCH);
    }

    #[test]
    fn a_session_that_is_not_there_is_not_continued() {
        let mut probe = topic();
        let request = fetch_request("t", 0, false, 0).with_session_id(9).with_session_epoch(3);
        let crate::wire::Response::Fetch(response) = probe.ask(12, request) else { panic!("not Fetch") };
        assert_eq!(Code(response.error_code), Code::FETCH_SESSION_ID_NOT_FOUND);
    }
}
