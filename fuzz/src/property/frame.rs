//! Any bytes on a connection to the broker, up to the broker's machine.
//!
//! Property: no panic and no hang, and memory in proportion to the bytes that came, whatever they announce. A request that
//! is decoded is encoded and decoded to the same. Every answer can be encoded in the version of its request, and a client
//! decodes it. What is refused, ends the connection, or only looks (by the machine's own word) leaves the machine's state
//! as it is: then another client, which has a transaction open meanwhile, commits it and reads its record. Whatever came
//! in, the machine goes on answering that client.

use crate::{draw::Draw, memory};
use bytes::{Buf, Bytes, BytesMut};
use futures::FutureExt;
use hapax_broker::{
    Machine, Settings,
    state::{Call, Input, NodeId, Outcome, Reply, Ticket},
    wire::{
        Request, Response,
        frame::{self, Incoming, LARGEST_FRAME},
    },
};
use hapax_kafka::record::{BatchBuilder, Compression, Compressor, RecordRef, Stamp};
use kafka_protocol::{
    messages::{
        AddPartitionsToTxnRequest, CreateTopicsRequest, EndTxnRequest, FindCoordinatorRequest,
        InitProducerIdRequest, ListOffsetsRequest, ProduceRequest, ProducerId, TopicName, TransactionalId,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        create_topics_request::CreatableTopic,
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::StrBytes,
};
use std::collections::BTreeMap;

/// A time of day: sums with it reach the ends of their type, as sums with zero do not.
const START: i64 = 1_700_000_000_000;
/// What a frame of a small length gets at once.
const FIRST_ROOM: usize = 1 << 20;
/// Frames of a connection.
const MOST: usize = 32;
/// Tickets of the other client begin here.
const OTHERS: u64 = 1 << 32;

/// Runs it.
pub fn run(input: &[u8]) {
    let mut draw = Draw::new(input);
    let mode = draw.byte();
    let mut world = World::new();
    let other = Other::begin(&mut world);
    let mut stream = draw.rest();
    let mut harmless = true;
    for turn in 0..MOST {
        let limit = FIRST_ROOM + 4 * stream.len() + (64 << 10);
        let frame = memory::within(limit, "reading a frame", || {
            frame::read(&mut stream, LARGEST_FRAME).now_or_never().expect("a slice is always ready")
        });
        let Ok(Some(frame)) = frame else { break };
        world.now += i64::from(mode >> 1);
        match world.take(turn as u64, frame, mode & 1 == 1) {
            Taken::Closed => break,
            Taken::Looked => {}
            Taken::Acted => harmless = false,
        }
    }
    other.end(&mut world, harmless);
}

/// What a frame did.
enum Taken {
    Closed,
    Looked,
    Acted,
}

struct World {
    machine: Machine,
    now: i64,
    /// Versions of requests that are not answered yet.
    waiting: BTreeMap<Ticket, (Request, i16)>,
}

impl World {
    fn new() -> Self {
        let settings = Settings { transaction_partitions: 1, offsets_partitions: 1, ..Settings::default() };
        Self { machine: Machine::new(settings, START), now: START, waiting: BTreeMap::new() }
    }

    fn take(&mut self, ticket: u64, frame: Bytes, unstable: bool) -> Taken {
        let before = self.machine.digest();
        // Each element of an array costs up to 150 bytes, and as little as one of the frame.
        let limit = (64 << 10) + 512 * frame.len();
        let incoming = memory::within(limit, "decoding a frame", || frame::decode(frame, unstable));
        let (head, request) = match incoming {
            Err(_) => return Taken::Closed,
            Ok(Incoming::TooNew { head, answer }) => {
                let answer = Response::ApiVersions(answer);
                frame::answer(head.correlation, head.version, &answer).expect("an answer in version 0");
                return Taken::Looked;
            }
            Ok(Incoming::Request { head, request, .. }) => (head, request),
        };
        again(&request, head.version);
        let ticket = Ticket(ticket);
        let looks = self.machine.only_looks(head.version, &request);
        // Time alone may change something; it passes first.
        self.step(Input::Tick);
        let passed = self.machine.digest();
        assert!(passed == before || self.machine.now() > START);
        self.waiting.insert(ticket, (request.clone(), head.version));
        let call = Call { ticket, node: NodeId(1), version: head.version, client_id: head.client_id };
        let replies = self.step(Input::Request(call, request.clone()));
        let hangs_up = replies.iter().any(|reply| reply.ticket == ticket && reply.outcome == Outcome::HangUp);
        if looks || hangs_up {
            assert_eq!(self.machine.digest(), passed, "changed by {request:?}");
        }
        match (hangs_up, looks) {
            (true, _) => Taken::Closed,
            (false, true) => Taken::Looked,
            (false, false) => Taken::Acted,
        }
    }

    /// Every answer is one that its client can read.
    fn step(&mut self, input: Input) -> Vec<Reply> {
        let replies = self.machine.step(self.now, input);
        for reply in &replies {
            let (request, version) = self.waiting.remove(&reply.ticket).expect("an answer to what was asked");
            let Outcome::Answer(response) = &reply.outcome else { continue };
            let encoded = frame::answer(7, version, response);
            let mut encoded = encoded.unwrap_or_else(|error| panic!("{version} {request:?}: {error}"));
            let tags = usize::from(request.key().response_header_version(version) >= 1);
            encoded.advance(8 + tags);
            let read = Response::decode(request.key(), version, &mut encoded);
            assert!(matches!(read, Some(Ok(_))) && encoded.is_empty(), "{version} {response:?}: {read:?}");
        }
        replies
    }

    /// Asks for what is answered at once.
    fn ask(&mut self, ticket: u64, version: i16, request: Request) -> Response {
        let ticket = Ticket(OTHERS + ticket);
        self.waiting.insert(ticket, (request.clone(), version));
        let call = Call { ticket, node: NodeId(1), version, client_id: None };
        let mut replies = self.step(Input::Request(call, request));
        let place = replies.iter().position(|reply| reply.ticket == ticket).expect("it is answered at once");
        match replies.swap_remove(place).outcome {
            Outcome::Answer(response) => response,
            other => panic!("{other:?}"),
        }
    }
}

/// A request that was decoded is one that a client could have sent.
fn again(request: &Request, version: i16) {
    let mut bytes = BytesMut::new();
    request.encode(version, &mut bytes).unwrap_or_else(|error| panic!("{version} {request:?}: {error}"));
    let back = frame::body_of(request.key(), version, bytes.freeze());
    assert_eq!(back.as_ref(), Ok(request), "version {version}");
}

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

/// A client with a transaction open.
struct Other {
    producer_id: ProducerId,
    producer_epoch: i16,
    digest: u64,
}

const ID: &str = "other";
const TOPIC: &str = "others";

impl Other {
    fn begin(world: &mut World) -> Self {
        let topic = CreatableTopic::default()
            .with_name(TopicName(text(TOPIC)))
            .with_num_partitions(1)
            .with_replication_factor(1);
        let create = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000);
        let Response::CreateTopics(created) = world.ask(0, 5, create.into()) else {
            panic!("another answer")
        };
        assert_eq!(created.topics[0].error_code, 0);
        let find = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text(ID)]);
        world.ask(6, 4, find.into());
        let init = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(ID))))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let Response::InitProducerId(given) = world.ask(1, 4, init.into()) else { panic!("another answer") };
        assert_eq!(given.error_code, 0);
        let topic =
            AddPartitionsToTxnTopic::default().with_name(TopicName(text(TOPIC))).with_partitions(vec![0]);
        let add = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text(ID)))
            .with_v3_and_below_producer_id(given.producer_id)
            .with_v3_and_below_producer_epoch(given.producer_epoch)
            .with_v3_and_below_topics(vec![topic]);
        world.ask(2, 3, add.into());
        let mut other =
            Self { producer_id: given.producer_id, producer_epoch: given.producer_epoch, digest: 0 };
        assert_eq!(other.produce(world), 0);
        other.digest = world.machine.digest();
        other
    }

    fn produce(&self, world: &mut World) -> i16 {
        let mut builder = BatchBuilder::new();
        let record = RecordRef { value: Some(b"v"), timestamp: START, ..RecordRef::default() };
        builder.push(&record).expect("there is room for a small record");
        let sealed = builder.seal(Compression::None, &mut Compressor::new()).expect("it has a record");
        let stamp = Stamp {
            producer_id: self.producer_id.0,
            producer_epoch: self.producer_epoch,
            base_sequence: 0,
            transactional: true,
        };
        let data = PartitionProduceData::default().with_records(Some(sealed.stamp(stamp).to_bytes()));
        let topic =
            TopicProduceData::default().with_name(TopicName(text(TOPIC))).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(Some(TransactionalId(text(ID))))
            .with_acks(-1)
            .with_timeout_ms(1_000)
            .with_topic_data(vec![topic]);
        let Response::Produce(produced) = world.ask(3, 9, request.into()) else { panic!("another answer") };
        produced.responses[0].partition_responses[0].error_code
    }

    /// Commits; nobody has done anything to it where nobody did anything at all.
    fn end(self, world: &mut World, harmless: bool) {
        if harmless {
            let since = world.machine.now() - START;
            assert!(since > 0 || world.machine.digest() == self.digest);
        }
        let end = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(ID)))
            .with_producer_id(self.producer_id)
            .with_producer_epoch(self.producer_epoch)
            .with_committed(true);
        let Response::EndTxn(ended) = world.ask(4, 3, end.into()) else { panic!("another answer") };
        world.now += 5_000;
        world.step(Input::Tick);
        let listed = ListOffsetsPartition::default().with_timestamp(-1).with_current_leader_epoch(-1);
        let topic =
            ListOffsetsTopic::default().with_name(TopicName(text(TOPIC))).with_partitions(vec![listed]);
        let list = ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_isolation_level(1)
            .with_topics(vec![topic]);
        let Response::ListOffsets(listed) = world.ask(5, 5, list.into()) else { panic!("another answer") };
        if harmless {
            assert_eq!(ended.error_code, 0);
            // The record and its marker, to a reader of what is committed.
            assert_eq!(listed.topics[0].partitions[0].offset, 2);
        }
    }
}
