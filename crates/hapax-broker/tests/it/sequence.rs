//! Long random histories of requests that make sense, and of some that do not: nothing panics, hangs or answers twice,
//! every answer fits its version, and one seed gives one history.

use crate::client::topic;
use bytes::{BufMut, Bytes, BytesMut};
use hapax_broker::{
    Machine, Settings, Step,
    state::{Call, Input, NodeId, Outcome, Ticket},
    wire::{ADVERTISED, Request, Response, frame},
};
use kafka_protocol::{
    messages::{
        AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, CreatePartitionsRequest, CreateTopicsRequest,
        DeleteGroupsRequest, DeleteRecordsRequest, DeleteTopicsRequest, DescribeGroupsRequest,
        DescribeProducersRequest, DescribeTransactionsRequest, EndTxnRequest, FetchRequest,
        FindCoordinatorRequest, GroupId, HeartbeatRequest, InitProducerIdRequest, JoinGroupRequest,
        LeaveGroupRequest, ListGroupsRequest, ListOffsetsRequest, ListTransactionsRequest,
        OffsetCommitRequest, OffsetFetchRequest, ProduceRequest, ProducerId, SyncGroupRequest,
        TransactionalId, TxnOffsetCommitRequest, WriteTxnMarkersRequest,
        add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction},
        create_partitions_request::CreatePartitionsTopic,
        create_topics_request::CreatableTopic,
        delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
        delete_topics_request::DeleteTopicState,
        describe_producers_request::TopicRequest,
        fetch_request::{FetchPartition, FetchTopic},
        join_group_request::JoinGroupRequestProtocol,
        leave_group_request::MemberIdentity,
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics},
        produce_request::{PartitionProduceData, TopicProduceData},
        sync_group_request::SyncGroupRequestAssignment,
        txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
        write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
    },
    protocol::StrBytes,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};
use uuid::Uuid;

/// Steps of all histories together; `HAPAX_BROKER_STEPS` asks for more.
const STEPS: u64 = 100_000;
/// A new cluster after as many.
const STEPS_OF_ONE: u64 = 5_000;
/// No answer to these requests is as long: readers ask for less, and everything else is bounded by what was written.
const LARGEST_ANSWER: usize = 4 << 20;
/// Longer than a session, a join and a fetch that waits.
const LONG: i64 = 3_600_000;

/// A producer as a client knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// Where a producer's sequence goes on.
type Place = (i64, i16, String, i32);

/// What an answer will say something of.
enum Asked {
    /// A producer id, for this producer.
    Id(u8),
    /// An end, of this producer's transaction.
    End(u8),
    /// Records: where, and how many.
    Records(Place, i32),
    /// A member of this group.
    Member(String),
    Other,
}

struct History {
    machine: Machine,
    /// Is told only what a journal keeps.
    replayed: Machine,
    /// Requests that are kept and not answered.
    kept: BTreeSet<Ticket>,
    random: fastrand::Rng,
    now: i64,
    next: u64,
    /// Requests without an answer so far, with their version.
    open: BTreeMap<Ticket, (i16, Asked)>,
    /// By the number in their transactional id; the last has none.
    producers: BTreeMap<u8, Producer>,
    sequences: BTreeMap<Place, i32>,
    members: Vec<(String, String, i32)>,
    topic_ids: Vec<Uuid>,
    /// Of every answer.
    digest: u64,
    answered: BTreeSet<&'static str>,
    granted: u64,
}

fn text(value: impl Into<String>) -> StrBytes {
    StrBytes::from_string(value.into())
}

fn zigzag(into: &mut BytesMut, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left >= 0x80 {
        into.put_u8(left as u8 | 0x80);
        left >>= 7;
    }
    into.put_u8(left as u8);
}

/// A batch of version 2 that is in order.
pub(crate) fn batch(producer: Producer, sequence: i32, transactional: bool, count: i32, now: i64) -> Bytes {
    let mut body = BytesMut::new();
    body.put_i16(if transactional { 16 } else { 0 });
    body.put_i32(count - 1);
    body.put_i64(now);
    body.put_i64(now);
    body.put_i64(producer.id);
    body.put_i16(producer.epoch);
    body.put_i32(sequence);
    body.put_i32(count);
    for number in 0..count {
        let mut record = BytesMut::new();
        record.put_u8(0);
        zigzag(&mut record, 0);
        zigzag(&mut record, i64::from(number));
        zigzag(&mut record, 1);
        record.put_u8(b'a' + (number % 5) as u8);
        zigzag(&mut record, 3);
        record.put_slice(b"abc");
        zigzag(&mut record, 0);
        zigzag(&mut body, record.len() as i64);
        body.put(record);
    }
    let mut batch = BytesMut::new();
    batch.put_i64(0);
    batch.put_i32(body.len() as i32 + 9);
    batch.put_i32(-1);
    batch.put_u8(2);
    batch.put_u32(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &body) as u32);
    batch.put(body);
    batch.freeze()
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let settings = Settings {
            seed,
            nodes: [1, 1, 1, 3][random.usize(0..4)],
            transaction_version: random.i16(0..3),
            two_phase_commit: random.bool(),
            ..Settings::default()
        };
        let now = 1_700_000_000_000;
        Self {
            machine: Machine::new(settings.clone(), now),
            replayed: Machine::new(settings, now),
            kept: BTreeSet::new(),
            random,
            now,
            next: 0,
            open: BTreeMap::new(),
            producers: BTreeMap::new(),
            sequences: BTreeMap::new(),
            members: Vec::new(),
            topic_ids: Vec::new(),
            digest: 0,
            answered: BTreeSet::new(),
            granted: 0,
        }
    }

    fn play(&mut self, steps: u64) {
        for step in 0..steps {
            if step % 64 == 0 {
                assert_eq!(
                    self.machine.digest(),
                    self.replayed.digest(),
                    "a replay strays before step {step}"
                );
            }
            self.pass_time();
            match self.random.u8(0..40) {
                0 => {
                    let step = self.step();
                    self.input(Input::Step(step));
                }
                1 => {
                    let gone: Vec<_> = self.open.keys().copied().filter(|_| self.random.bool()).collect();
                    // Some are answered in the same step, before they are gone: their time was over.
                    self.input(Input::Gone(gone.clone()));
                    self.open.retain(|ticket, _| !gone.contains(ticket));
                }
                _ => self.request(),
            }
        }
        assert_eq!(self.machine.digest(), self.replayed.digest(), "a replay comes to another state");
        // Markers that are held would keep a commit waiting for ever, as they should.
        self.input(Input::Step(Step::HoldMarkers(false)));
        self.now += LONG;
        self.input(Input::Tick);
        assert!(self.open.is_empty(), "these hang: {:?}", self.open.keys());
        assert!(self.machine.waiting().is_empty());
    }

    fn pass_time(&mut self) {
        self.now += match self.random.u16(0..1_000) {
            0 => 2 * 24 * LONG,
            1..5 => 70_000,
            5..50 => self.random.i64(0..3_000),
            _ => self.random.i64(0..10),
        };
    }

    /// What a journal keeps of an input.
    fn keep(&mut self, input: &Input) -> Option<Input> {
        let kept = match input {
            Input::Request(call, request) => {
                let kept = !self.machine.only_looks(call.version, request);
                kept.then(|| self.kept.insert(call.ticket));
                kept.then(|| input.clone())
            }
            Input::Gone(tickets) => {
                let kept: Vec<_> =
                    tickets.iter().copied().filter(|ticket| self.kept.remove(ticket)).collect();
                (!kept.is_empty()).then_some(Input::Gone(kept))
            }
            Input::Step(_) => Some(input.clone()),
            Input::Tick => None,
        };
        kept.or_else(|| self.machine.changes_by(self.now).then_some(Input::Tick))
    }

    fn input(&mut self, input: Input) {
        if let Some(kept) = self.keep(&input) {
            self.replayed.step(self.now, kept);
        }
        let replies = self.machine.step(self.now, input);
        for reply in replies {
            // One that nobody waits for is answered to nobody.
            let (version, asked) = self.open.remove(&reply.ticket).expect("a ticket is answered once");
            match &reply.outcome {
                Outcome::Answer(response) => {
                    let framed = frame::answer(0, version, response).expect("an answer fits its version");
                    assert!(framed.len() < LARGEST_ANSWER, "{} bytes: {:?}", framed.len(), response.key());
                    let mix =
                        |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
                    self.digest = framed.iter().fold(self.digest, mix);
                    self.learn(response, asked);
                }
                Outcome::Silence | Outcome::HangUp => self.digest = self.digest.wrapping_add(1),
            }
        }
    }

    fn learn(&mut self, response: &Response, asked: Asked) {
        match (response, asked) {
            (Response::InitProducerId(answer), Asked::Id(slot)) if answer.error_code == 0 => {
                self.answered.insert("a producer id");
                let producer = Producer { id: answer.producer_id.0, epoch: answer.producer_epoch };
                self.producers.insert(slot, producer);
            }
            (Response::EndTxn(answer), Asked::End(slot)) if answer.error_code == 0 => {
                self.answered.insert("an end");
                if answer.producer_id.0 >= 0 {
                    let producer = Producer { id: answer.producer_id.0, epoch: answer.producer_epoch };
                    self.producers.insert(slot, producer);
                }
            }
            (Response::JoinGroup(answer), Asked::Member(group)) if !answer.member_id.is_empty() => {
                self.answered.insert("a member");
                self.members.push((group, answer.member_id.to_string(), answer.generation_id));
                if self.members.len() > 12 {
                    self.members.remove(0);
                }
            }
            (Response::Metadata(answer), _) => {
                self.topic_ids.extend(answer.topics.iter().map(|it| it.topic_id).filter(|id| !id.is_nil()));
                let surplus = self.topic_ids.len().saturating_sub(6);
                drop(self.topic_ids.drain(..surplus));
            }
            (Response::Produce(answer), Asked::Records(place, count)) => {
                let mut parts = answer.responses.iter().flat_map(|it| &it.partition_responses);
                if parts.all(|part| part.error_code == 0) {
                    self.granted += 1;
                    let next = self.sequences.entry(place).or_insert(0);
                    *next = next.wrapping_add(count) & i32::MAX;
                }
            }
            (Response::Fetch(answer), _) => {
                for part in answer.responses.iter().flat_map(|it| &it.partitions) {
                    assert!(part.last_stable_offset <= part.high_watermark, "{part:?}");
                    assert!(part.log_start_offset <= part.high_watermark, "{part:?}");
                    if part.records.as_ref().is_some_and(|records| !records.is_empty()) {
                        self.answered.insert("records");
                    }
                }
            }
            _ => {}
        }
    }

    fn topic(&mut self) -> String {
        match self.random.u8(0..20) {
            0 => "__transaction_state".to_owned(),
            1 => "__consumer_offsets".to_owned(),
            2 => "missing".to_owned(),
            at => format!("t{}", at % 3),
        }
    }

    /// Sometimes: the newest versions name topics by their ids, and no older one does.
    fn topic_id(&mut self) -> Option<Uuid> {
        let named = self.random.u8(0..3) > 0;
        self.random.choice(self.topic_ids.clone()).filter(|_| !named)
    }

    fn partition(&mut self) -> i32 {
        if self.random.u8(0..30) == 0 { self.random.i32(-1..9) } else { self.random.i32(0..2) }
    }

    /// Mostly the producer's own.
    fn transactional_id(&mut self, slot: u8) -> TransactionalId {
        let slot = if self.random.u8(0..24) == 0 { self.random.u8(0..3) } else { slot % 3 };
        TransactionalId(text(format!("x{slot}")))
    }

    fn group(&mut self) -> GroupId {
        GroupId(text(format!("g{}", self.random.u8(0..2))))
    }

    /// Mostly one that somebody has; now and then a bit off.
    fn producer(&mut self) -> (u8, Producer) {
        let slot = self.random.u8(0..4);
        let mut producer = self.producers.get(&slot).copied().unwrap_or(Producer { id: -1, epoch: -1 });
        match self.random.u8(0..30) {
            0 => producer.epoch = producer.epoch.wrapping_add(self.random.i16(-2..3)),
            1 => producer.id += 1,
            2 => producer.epoch = i16::MAX - 1,
            _ => {}
        }
        (slot, producer)
    }

    fn member(&mut self) -> (GroupId, StrBytes, i32) {
        match self.random.choice(self.members.clone()) {
            Some((group, member, generation)) if self.random.u8(0..8) > 0 => {
                (GroupId(text(group)), text(member), generation)
            }
            _ => (self.group(), StrBytes::default(), -1),
        }
    }

    fn step(&mut self) -> Step {
        let (topic, partition) = (self.topic(), self.partition());
        match self.random.u8(0..14) {
            0 => Step::Crash,
            1 => Step::HoldMarkers(self.random.bool()),
            2..5 => Step::MoveLeader { topic, partition, to: None },
            5 => Step::MoveCoordinator { transactional_id: self.transactional_id(0).to_string() },
            6 => Step::SyncAlways(self.random.bool()),
            7 => Step::Sync,
            8 => Step::Compact { topic, partition },
            9 => Step::Retain { topic, partition, from: self.random.i64(0..200) },
            10 => Step::ExpireTransactionalIds,
            11 => Step::ExpireProducers,
            12 => Step::ExpireOffsets,
            _ => Step::Sync,
        }
    }

    fn request(&mut self) {
        let (request, asked) = self.any();
        let key = request.key();
        let (_, range) = ADVERTISED.iter().find(|(advertised, _)| *advertised == key).expect("ours");
        let version = self.random.i16(range.min..=range.max);
        // A field that the version does not have is as good as another version.
        let mut body = BytesMut::new();
        if request.encode(version, &mut body).is_err() {
            return;
        }
        let request = frame::body_of(key, version, body.freeze()).expect("what was encoded can be decoded");
        let ticket = Ticket(self.next);
        self.next += 1;
        let node = NodeId(self.random.i32(1..=self.machine.settings().nodes));
        self.open.insert(ticket, (version, asked));
        self.input(Input::Request(Call { ticket, node, version, client_id: None }, request));
    }

    fn any(&mut self) -> (Request, Asked) {
        let other = match self.random.u8(0..60) {
            0..16 => return self.produce(),
            16..20 => return self.init(),
            20..24 => return self.end(),
            24..32 => self.transaction(),
            32..39 => self.fetch(),
            39..43 => self.offsets(),
            43..52 => self.membership(),
            _ => self.admin(),
        };
        let asked = match &other {
            Request::JoinGroup(join) => Asked::Member(join.group_id.to_string()),
            _ => Asked::Other,
        };
        (other, asked)
    }

    fn produce(&mut self) -> (Request, Asked) {
        let (slot, producer) = self.producer();
        let transactional = producer.id >= 0 && slot < 3;
        let count = self.random.i32(1..6);
        let (name, partition) = (self.topic(), self.partition());
        let place = (producer.id, producer.epoch, name.clone(), partition);
        let mut sequence = match producer.id {
            0.. => self.sequences.get(&place).copied().unwrap_or(0),
            _ => -1,
        };
        if self.random.u8(0..20) == 0 {
            sequence = self.random.i32(..);
        }
        let mut records = batch(producer, sequence, transactional, count, self.now);
        if self.random.u8(0..30) == 0 {
            let mut broken = records.to_vec();
            let at = self.random.usize(0..broken.len());
            broken[at] ^= 1 << self.random.u8(0..8);
            records = broken.into();
        }
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(records));
        let data = TopicProduceData::default().with_partition_data(vec![data]);
        let data = match self.topic_id() {
            Some(id) => data.with_topic_id(id),
            None => data.with_name(topic(&name)),
        };
        let request = ProduceRequest::default()
            .with_acks([-1, -1, -1, 1, 0][self.random.usize(0..5)])
            .with_transactional_id(transactional.then(|| self.transactional_id(slot)))
            .with_timeout_ms(1_000)
            .with_topic_data(vec![data]);
        (request.into(), Asked::Records(place, count))
    }

    fn init(&mut self) -> (Request, Asked) {
        let (slot, producer) = self.producer();
        let again = self.random.u8(0..3) == 0;
        let request = InitProducerIdRequest::default()
            .with_transactional_id((slot < 3).then(|| self.transactional_id(slot)))
            .with_transaction_timeout_ms(self.random.i32(-1..100_000))
            .with_producer_id(ProducerId(if again { producer.id } else { -1 }))
            .with_producer_epoch(if again { producer.epoch } else { -1 });
        (request.into(), Asked::Id(slot))
    }

    fn fetch(&mut self) -> Request {
        let partitions = (0..2).map(|partition| {
            FetchPartition::default()
                .with_partition(partition)
                .with_current_leader_epoch(-1)
                .with_last_fetched_epoch(if self.random.u8(0..10) == 0 { self.random.i32(0..4) } else { -1 })
                .with_fetch_offset(self.random.i64(0..400))
                .with_partition_max_bytes(self.random.i32(0..1 << 20))
        });
        let partitions = partitions.collect();
        let wanted = FetchTopic::default().with_partitions(partitions);
        let wanted = match self.topic_id() {
            Some(id) => wanted.with_topic_id(id),
            None => wanted.with_topic(topic(&self.topic())),
        };
        FetchRequest::default()
            .with_replica_id((-1).into())
            .with_max_wait_ms(self.random.i32(0..2_000))
            .with_min_bytes(self.random.i32(0..5_000))
            .with_max_bytes(self.random.i32(0..2 << 20))
            .with_isolation_level(self.random.i8(0..2))
            .with_session_epoch(-1)
            .with_topics(vec![wanted])
            .into()
    }

    fn transaction(&mut self) -> Request {
        let (slot, producer) = self.producer();
        let (id, group) = (self.transactional_id(slot), self.group());
        let (producer_id, epoch) = (ProducerId(producer.id), producer.epoch);
        let added = AddPartitionsToTxnTopic::default()
            .with_name(topic(&self.topic()))
            .with_partitions(vec![self.partition()]);
        match self.random.u8(0..10) {
            0..5 => AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(id)
                .with_v3_and_below_producer_id(producer_id)
                .with_v3_and_below_producer_epoch(epoch)
                .with_v3_and_below_topics(vec![added])
                .into(),
            5 => {
                let transaction = AddPartitionsToTxnTransaction::default()
                    .with_transactional_id(id)
                    .with_producer_id(producer_id)
                    .with_producer_epoch(epoch)
                    .with_verify_only(self.random.bool())
                    .with_topics(vec![added]);
                AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]).into()
            }
            6 => AddOffsetsToTxnRequest::default()
                .with_transactional_id(id)
                .with_producer_id(producer_id)
                .with_producer_epoch(epoch)
                .with_group_id(group)
                .into(),
            _ => {
                let partition = TxnOffsetCommitRequestPartition::default()
                    .with_partition_index(self.partition())
                    .with_committed_offset(self.random.i64(-1..100));
                let offsets = TxnOffsetCommitRequestTopic::default()
                    .with_name(topic(&self.topic()))
                    .with_partitions(vec![partition]);
                TxnOffsetCommitRequest::default()
                    .with_transactional_id(id)
                    .with_group_id(group)
                    .with_producer_id(producer_id)
                    .with_producer_epoch(epoch)
                    .with_generation_id(-1)
                    .with_topics(vec![offsets])
                    .into()
            }
        }
    }

    fn end(&mut self) -> (Request, Asked) {
        let (slot, producer) = self.producer();
        if self.random.u8(0..12) == 0 {
            let topic = WritableTxnMarkerTopic::default()
                .with_name(topic(&self.topic()))
                .with_partition_indexes(vec![self.partition()]);
            let marker = WritableTxnMarker::default()
                .with_producer_id(ProducerId(producer.id))
                .with_producer_epoch(producer.epoch)
                .with_transaction_result(self.random.bool())
                .with_coordinator_epoch(self.random.i32(-1..3))
                .with_topics(vec![topic]);
            let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
            return (request.into(), Asked::Other);
        }
        let request = EndTxnRequest::default()
            .with_transactional_id(self.transactional_id(slot))
            .with_producer_id(ProducerId(producer.id))
            .with_producer_epoch(producer.epoch)
            .with_committed(self.random.bool());
        (request.into(), Asked::End(slot))
    }

    fn offsets(&mut self) -> Request {
        let (group, member, generation) = self.member();
        if self.random.bool() {
            let partition = OffsetCommitRequestPartition::default()
                .with_partition_index(self.partition())
                .with_committed_offset(self.random.i64(-1..100));
            let topic = OffsetCommitRequestTopic::default()
                .with_name(topic(&self.topic()))
                .with_partitions(vec![partition]);
            return OffsetCommitRequest::default()
                .with_group_id(group)
                .with_member_id(member)
                .with_generation_id_or_member_epoch(generation)
                .with_topics(vec![topic])
                .into();
        }
        let topic = OffsetFetchRequestTopics::default()
            .with_name(topic(&self.topic()))
            .with_partition_indexes(vec![0]);
        let wanted = OffsetFetchRequestGroup::default()
            .with_group_id(group)
            .with_topics(self.random.bool().then(|| vec![topic]));
        OffsetFetchRequest::default().with_groups(vec![wanted]).with_require_stable(self.random.bool()).into()
    }

    fn membership(&mut self) -> Request {
        let (group, member, generation) = self.member();
        match self.random.u8(0..8) {
            0..4 => {
                let protocol = JoinGroupRequestProtocol::default()
                    .with_name(text(["range", "sticky"][self.random.usize(0..2)]))
                    .with_metadata(Bytes::from_static(b"m"));
                JoinGroupRequest::default()
                    .with_group_id(group)
                    .with_member_id(member)
                    .with_session_timeout_ms(self.random.i32(1_000..40_000))
                    .with_rebalance_timeout_ms(self.random.i32(-1..60_000))
                    .with_protocol_type(text("consumer"))
                    .with_protocols(vec![protocol])
                    .into()
            }
            4..6 => {
                let assignment = SyncGroupRequestAssignment::default()
                    .with_member_id(member.clone())
                    .with_assignment(Bytes::from_static(b"a"));
                SyncGroupRequest::default()
                    .with_group_id(group)
                    .with_member_id(member)
                    .with_generation_id(generation)
                    .with_assignments(vec![assignment])
                    .into()
            }
            6 => HeartbeatRequest::default()
                .with_group_id(group)
                .with_member_id(member)
                .with_generation_id(generation)
                .into(),
            _ => LeaveGroupRequest::default()
                .with_group_id(group)
                .with_members(vec![MemberIdentity::default().with_member_id(member)])
                .into(),
        }
    }

    fn admin(&mut self) -> Request {
        let (name, partition) = (self.topic(), self.partition());
        match self.random.u8(0..20) {
            0 if self.random.bool() => {
                let gone = DeleteTopicState::default().with_name(Some(topic(&name)));
                match self.random.bool() {
                    true => DeleteTopicsRequest::default().with_topics(vec![gone]).into(),
                    false => DeleteTopicsRequest::default().with_topic_names(vec![topic(&name)]).into(),
                }
            }
            0..6 => {
                let wanted = CreatableTopic::default()
                    .with_name(topic(&name))
                    .with_num_partitions([2, 2, 2, 3, 1, -1, 0][self.random.usize(0..7)])
                    .with_replication_factor(1);
                CreateTopicsRequest::default().with_topics(vec![wanted]).into()
            }
            6 => {
                let more = CreatePartitionsTopic::default().with_name(topic(&name)).with_count(partition + 1);
                CreatePartitionsRequest::default().with_topics(vec![more]).into()
            }
            7 => {
                let before = DeleteRecordsPartition::default()
                    .with_partition_index(partition)
                    .with_offset(self.random.i64(-1..300));
                let records =
                    DeleteRecordsTopic::default().with_name(topic(&name)).with_partitions(vec![before]);
                DeleteRecordsRequest::default().with_topics(vec![records]).into()
            }
            8..11 => {
                let wanted = ListOffsetsPartition::default()
                    .with_partition_index(partition)
                    .with_current_leader_epoch(-1)
                    .with_timestamp([-1, -2, -3, self.now][self.random.usize(0..4)]);
                let wanted =
                    ListOffsetsTopic::default().with_name(topic(&name)).with_partitions(vec![wanted]);
                ListOffsetsRequest::default()
                    .with_replica_id((-1).into())
                    .with_isolation_level(self.random.i8(0..2))
                    .with_topics(vec![wanted])
                    .into()
            }
            11 => {
                let wanted =
                    TopicRequest::default().with_name(topic(&name)).with_partition_indexes(vec![partition]);
                DescribeProducersRequest::default().with_topics(vec![wanted]).into()
            }
            12 => {
                let ids = vec![self.transactional_id(0)];
                DescribeTransactionsRequest::default().with_transactional_ids(ids).into()
            }
            13 => ListTransactionsRequest::default().with_duration_filter(-1).into(),
            14 => DescribeGroupsRequest::default().with_groups(vec![self.group()]).into(),
            15 => ListGroupsRequest::default().into(),
            16 => DeleteGroupsRequest::default().with_groups_names(vec![self.group()]).into(),
            17 => FindCoordinatorRequest::default()
                .with_key_type(self.random.i8(0..2))
                .with_key(text(name.clone()))
                .into(),
            18 => FindCoordinatorRequest::default()
                .with_key_type(self.random.i8(0..2))
                .with_coordinator_keys(vec![text(name), text("x0")])
                .into(),
            _ => crate::client::metadata(&[name.as_str()]).into(),
        }
    }
}

#[test]
fn no_history_of_requests_panics_hangs_or_answers_twice() {
    let steps =
        std::env::var("HAPAX_BROKER_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    let (mut reached, mut granted) = (BTreeSet::new(), 0);
    for seed in 0..steps.div_ceil(STEPS_OF_ONE) {
        let played = std::panic::catch_unwind(|| {
            let mut history = History::new(seed);
            history.play(STEPS_OF_ONE);
            (history.answered, history.granted)
        });
        let Ok((answered, written)) = played else { panic!("the history of seed {seed}, see above") };
        reached.extend(answered);
        granted += written;
    }
    // Requests that are all refused would show nothing.
    assert_eq!(reached.len(), 4, "only {reached:?}");
    assert!(granted > steps / 60, "only {granted} batches were taken");
}

#[test]
fn a_replay_of_what_is_kept_comes_to_the_same_state_at_each_step() {
    for seed in 100..104 {
        let mut history = History::new(seed);
        history.play(1_500);
        let before = history.machine.digest();
        history.input(Input::Step(Step::HoldMarkers(true)));
        assert_ne!(history.machine.digest(), before, "a digest that does not change says nothing");
    }
}

#[test]
fn one_seed_gives_one_history() {
    let digests = [3, 3, 4].map(|seed| {
        let mut history = History::new(seed);
        history.play(2_000);
        let mut shown = String::new();
        write!(shown, "{:x} {:?}", history.digest, history.machine.now()).unwrap();
        shown
    });
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[0], digests[2]);
}
