//! Records: what a partition takes, what it refuses, and what its readers are given.

use super::{
    Protocol, Scenario, all,
    answer::At,
    world::{Batch, World, text},
};
use bytes::{Bytes, BytesMut};
use hapax_broker::wire::Response;
use kafka_protocol::messages::{
    DeleteRecordsRequest, DescribeProducersRequest, FetchRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, TopicName,
    delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
    describe_producers_request::TopicRequest,
    fetch_request::{FetchPartition, FetchTopic},
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
    metadata_request::MetadataRequestTopic,
    offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
    produce_request::{PartitionProduceData, TopicProduceData},
};
use std::io::Write as _;
use uuid::Uuid;

pub(super) fn scenarios() -> Vec<Scenario> {
    all![
        produce_in_every_version,
        produce_bad_batches,
        produce_with_other_acks,
        produce_too_much,
        produce_to_several_partitions,
        produce_every_codec,
        produce_with_other_times,
        idempotent_without_an_id,
        fetch_in_every_version,
        fetch_within_limits,
        fetch_what_is_not_there,
        leader_epochs,
        delete_records,
        delete_records_of_open_transactions,
        list_offsets,
        describe_producers,
    ]
}

pub(super) fn topic_name(world: &World, short: &str) -> TopicName {
    text(&world.name(short)).into()
}

/// The id of a topic, as Metadata tells it.
pub(super) fn topic_id(world: &mut World, short: &str) -> Uuid {
    let wanted = MetadataRequestTopic::default().with_name(Some(topic_name(world, short)));
    let request =
        MetadataRequest::default().with_topics(Some(vec![wanted])).with_allow_auto_topic_creation(false);
    let bootstrap = world.peer().bootstrap();
    let Response::Metadata(found) = world.peer().ask(&bootstrap, 12, request) else { unreachable!() };
    found.topics[0].topic_id
}

/// How a batch is sent.
struct Sent<'a> {
    version: i16,
    topic: &'a str,
    partition: i32,
    id: Option<&'a str>,
    acks: i16,
    topic_id: Uuid,
}

impl<'a> Sent<'a> {
    fn to(topic: &'a str) -> Self {
        Self { version: 9, topic, partition: 0, id: None, acks: -1, topic_id: Uuid::nil() }
    }

    fn request(&self, world: &World, records: Option<Bytes>) -> ProduceRequest {
        let data = PartitionProduceData::default().with_index(self.partition).with_records(records);
        let mut topic =
            TopicProduceData::default().with_partition_data(vec![data]).with_topic_id(self.topic_id);
        if self.version < 13 {
            topic = topic.with_name(topic_name(world, self.topic));
        }
        ProduceRequest::default()
            .with_transactional_id(self.id.map(|id| text(&world.name(id)).into()))
            .with_acks(self.acks)
            .with_timeout_ms(20_000)
            .with_topic_data(vec![topic])
    }

    fn send(&self, world: &mut World, what: &str, records: Option<Bytes>) {
        let request = self.request(world, records);
        world.tell(&format!("produce {what}"), At::Any, self.version, request);
    }
}

fn plain(world: &World, values: &[&str]) -> Bytes {
    Batch::plain("t", values).encoded(world.zero())
}

/// A batch with other bytes and the checksum of these.
fn patched(batch: &Bytes, patch: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut bytes = BytesMut::from(&batch[..]);
    patch(&mut bytes);
    let length = (bytes.len() - 12) as u32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[21..]) as u32;
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
    bytes.freeze()
}

fn with_attributes(batch: &Bytes, attributes: i16) -> Bytes {
    patched(batch, |bytes| bytes[21..23].copy_from_slice(&attributes.to_be_bytes()))
}

fn compressed(batch: &Bytes, codec: i16) -> Bytes {
    let payload = &batch[61..];
    let packed = match codec {
        1 => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            gzip.write_all(payload).unwrap();
            gzip.finish().unwrap()
        }
        2 => snap::raw::Encoder::new().compress_vec(payload).unwrap(),
        3 => {
            // A frame of one independent block without checksums: magic, flags with their checksum, block, end.
            let block = lz4_flex::block::compress(payload);
            let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
            frame.extend_from_slice(&(block.len() as u32).to_le_bytes());
            frame.extend_from_slice(&block);
            frame.extend_from_slice(&[0; 4]);
            frame
        }
        4 => zstd::encode_all(payload, 3).unwrap(),
        other => panic!("no codec {other}"),
    };
    patched(batch, |bytes| {
        bytes.truncate(61);
        bytes.extend_from_slice(&packed);
        bytes[21..23].copy_from_slice(&codec.to_be_bytes());
    })
}

fn produce_in_every_version(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 2, &[]);
    let last = if protocol == Protocol::V2 { 13 } else { 11 };
    for version in 3..=last {
        let topic_id = if version >= 13 { topic_id(world, "t") } else { Uuid::nil() };
        let batch = plain(world, &["a", "b"]);
        let to = Sent { version, topic_id, ..Sent::to("t") };
        to.send(world, "well", Some(batch.clone()));
        Sent { partition: 7, ..to }.send(world, "to no partition", Some(batch.clone()));
        let bad = patched(&batch, |bytes| bytes[60] = 9);
        Sent { version, topic_id, ..Sent::to("t") }.send(world, "a wrong count", Some(bad));
        let nowhere = if version >= 13 { Uuid::from_u128(7) } else { Uuid::nil() };
        let to = Sent { version, topic_id: nowhere, ..Sent::to("nowhere") };
        let request = to.request(world, Some(batch));
        world.tell_settled(&[5, 6], "produce nowhere", At::Any, version, request);
    }
    read(world, "t", 0, 11);
}

fn produce_bad_batches(world: &mut World, _: Protocol) {
    world.create_topic("t", 1, &[]);
    world.create_topic("compact", 1, &[("cleanup.policy", "compact")]);
    let good = plain(world, &["a", "b"]);
    let corrupt = |at: usize| {
        let mut bytes = BytesMut::from(&good[..]);
        bytes[at] ^= 1;
        bytes.freeze()
    };
    let mut twice = BytesMut::from(&good[..]);
    twice.extend_from_slice(&good);
    let set = |at: usize, value: &'static [u8]| {
        patched(&good, |bytes| bytes[at..at + value.len()].copy_from_slice(value))
    };
    let own = super::world::Identity { id: 77_000_000, epoch: 0 };
    let idempotent = Batch { own: Some(own), sequence: 0, ..Batch::plain("t", &["i"]) }.encoded(world.zero());
    let cases: Vec<(&str, Option<Bytes>)> = vec![
        ("a wrong checksum", Some(corrupt(65))),
        ("a flipped magic", Some(set(16, &[3]))),
        ("old magic", Some(set(16, &[1]))),
        ("a control batch", Some(with_attributes(&good, 0x20))),
        ("a transactional control batch", Some(with_attributes(&good, 0x30))),
        ("a transactional batch without a producer", Some(with_attributes(&good, 0x10))),
        ("a base offset", Some(set(0, &[0, 0, 0, 0, 0, 0, 0, 5]))),
        ("a last delta too large", Some(set(26, &[4]))),
        ("a count too large", Some(set(60, &[3]))),
        ("a count of zero", Some(set(60, &[0]))),
        ("a negative count", Some(set(57, &[0xff; 4]))),
        ("a leader epoch", Some(set(15, &[9]))),
        ("two batches", Some(twice.freeze())),
        ("half a batch", Some(good.slice(..70))),
        ("half a header", Some(good.slice(..30))),
        ("nothing", Some(Bytes::new())),
        ("log append time", Some(with_attributes(&good, 8))),
        ("a delete horizon", Some(with_attributes(&good, 0x40))),
        ("an unknown attribute", Some(with_attributes(&good, 0x80))),
        ("an unknown codec", Some(with_attributes(&good, 5))),
        ("a codec that it is not", Some(with_attributes(&good, 1))),
        ("a producer without a sequence", Some(patched(&idempotent, |bytes| bytes[53..57].fill(0xff)))),
        ("a producer without an epoch", Some(patched(&idempotent, |bytes| bytes[51..53].fill(0xff)))),
        ("a broken record", Some(patched(&good, |bytes| bytes[61] = 0x7f))),
        ("a short record", Some(patched(&good, |bytes| bytes[61] = 0x02))),
        ("good", Some(good.clone())),
    ];
    for (what, records) in cases {
        for version in [3, 9, 11] {
            Sent { version, ..Sent::to("t") }.send(world, what, records.clone());
        }
    }
    Sent::to("compact").send(world, "no key", Some(good.clone()));
    Sent { version: 11, ..Sent::to("compact") }.send(world, "no key", Some(good.clone()));
    Sent { id: Some("x"), ..Sent::to("t") }.send(world, "an id without a transaction", Some(good));
    let name = world.name("t");
    world.note(format!("so far {name}"));
    read(world, "t", 0, 11);
}

fn produce_with_other_acks(world: &mut World, _: Protocol) {
    world.create_topic("t", 1, &[]);
    let batch = plain(world, &["a"]);
    for acks in [1, -1, 2, -2, 5] {
        Sent { acks, ..Sent::to("t") }.send(world, &format!("with acks {acks}"), Some(batch.clone()));
    }
    let address = world.peer().bootstrap();
    for (what, topic) in [("well", "t"), ("nowhere", "nowhere")] {
        let request = Sent { acks: 0, ..Sent::to(topic) }.request(world, Some(batch.clone()));
        let goes_on = world.peer().send_only(&address, 9, request);
        world.note(format!("produce without acks {what}: the connection goes on {goes_on}"));
    }
    world.create_topic("strict", 1, &[("min.insync.replicas", "2")]);
    for acks in [1, -1] {
        let request = Sent { acks, ..Sent::to("strict") }.request(world, Some(batch.clone()));
        world.tell_settled(&[5, 6], &format!("produce strict {acks}"), At::Any, 9, request);
    }
    read(world, "t", 0, 11);
}

fn produce_too_much(world: &mut World, _: Protocol) {
    world.create_topic("small", 1, &[("max.message.bytes", "200")]);
    world.create_topic("segment", 1, &[("segment.bytes", "1048576")]);
    let long = "x".repeat(300);
    for value in ["short", &long] {
        let batch = plain(world, &[value]);
        Sent::to("small").send(world, &format!("{} bytes", value.len()), Some(batch.clone()));
        Sent { version: 11, ..Sent::to("small") }.send(world, "packed", Some(compressed(&batch, 1)));
    }
    let huge = "y".repeat(1_048_500);
    for cut in [0, 200] {
        let batch = plain(world, &[&huge[cut..]]);
        Sent::to("segment").send(world, &format!("{} bytes", batch.len()), Some(batch));
    }
}

fn produce_to_several_partitions(world: &mut World, _: Protocol) {
    world.create_topic("t", 2, &[]);
    world.create_topic("u", 1, &[("max.message.bytes", "100")]);
    let batch = plain(world, &["a"]);
    let data = |index, records: &Bytes| {
        PartitionProduceData::default().with_index(index).with_records(Some(records.clone()))
    };
    let long = plain(world, &["z".repeat(200).as_str()]);
    let topic =
        |name, partitions| TopicProduceData::default().with_name(name).with_partition_data(partitions);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(20_000).with_topic_data(vec![
        topic(topic_name(world, "t"), vec![data(0, &batch), data(1, &batch)]),
        topic(topic_name(world, "u"), vec![data(0, &long)]),
    ]);
    let Some(Response::Produce(mut answer)) =
        world.quietly(|world| world.tell("several", At::Any, 9, request))
    else {
        panic!("no answer")
    };
    answer.responses.sort_by(|one, other| one.name.cmp(&other.name));
    for topic in &mut answer.responses {
        topic.partition_responses.sort_by_key(|partition| partition.index);
    }
    let line = world.shown(answer.into());
    world.note(line);
}

fn produce_every_codec(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let batch = plain(world, &["aaaa", "bbbb"]);
    for codec in 1..=4 {
        let packed = compressed(&batch, codec);
        for version in [3, 6, 7, 9] {
            Sent { version, ..Sent::to("t") }.send(world, &format!("codec {codec}"), Some(packed.clone()));
        }
        let holed = patched(&packed, |bytes| bytes[60] = 1);
        Sent::to("t").send(world, &format!("codec {codec} with a wrong count"), Some(holed));
        let cut = patched(&packed, |bytes| bytes.truncate(bytes.len() - 3));
        Sent { version: 11, ..Sent::to("t") }.send(world, &format!("codec {codec} cut"), Some(cut));
    }
    for version in [4, 9, 10, 11] {
        read(world, "t", 0, version);
    }
    // Within a transaction.
    let own = world.init("packer", 4, None).unwrap();
    for (sequence, codec) in [(0, 1), (1, 2), (2, 3), (3, 4)] {
        if protocol == Protocol::V1 {
            world.add("packer", 3, own, "t", &[0]);
        }
        let batch = Batch { sequence, ..Batch::first("t", "packer", own, &["in"]) }.encoded(world.zero());
        let packed = compressed(&batch, codec);
        let packed = with_attributes(&packed, codec | 0x10);
        Sent { version: protocol.produce(), id: Some("packer"), ..Sent::to("t") }.send(
            world,
            &format!("codec {codec} in a transaction"),
            Some(packed),
        );
    }
    world.end("packer", protocol.end(), own, false);
    world.describe("packer");
    read(world, "t", 16, 11);
}

fn produce_with_other_times(world: &mut World, _: Protocol) {
    // The default of this one is of the release.
    let after = ("message.timestamp.after.max.ms", "3600000");
    world.create_topic("create", 1, &[after]);
    world.create_topic("append", 1, &[after, ("message.timestamp.type", "LogAppendTime")]);
    world.create_topic(
        "bounded",
        1,
        &[("message.timestamp.before.max.ms", "3600000"), ("message.timestamp.after.max.ms", "3600000")],
    );
    let hour = 3_600_000;
    for (what, by) in [("now", 0), ("early", -5 * hour), ("late", 5 * hour)] {
        let batch = Batch::plain("t", &["a", "b"]).encoded(world.zero() + by);
        for topic in ["create", "append", "bounded"] {
            let to = Sent { version: 11, ..Sent::to(topic) };
            to.send(world, &format!("{what} to {topic}"), Some(batch.clone()));
            to.send(world, &format!("{what} to {topic} packed"), Some(compressed(&batch, 1)));
        }
    }
    let timeless = Batch::plain("t", &["a"]).encoded(world.zero());
    let timeless = patched(&timeless, |bytes| bytes[27..43].fill(0xff));
    Sent { version: 11, ..Sent::to("create") }.send(world, "timeless", Some(timeless));
}

fn idempotent_without_an_id(world: &mut World, protocol: Protocol) {
    use kafka_protocol::messages::InitProducerIdRequest;
    world.create_topic("t", 1, &[]);
    for version in 0..=5 {
        let request = InitProducerIdRequest::default().with_transactional_id(None);
        let Some(Response::InitProducerId(own)) = world.tell("init without an id", At::Any, version, request)
        else {
            panic!("no answer")
        };
        let own = super::world::Identity { id: own.producer_id.0, epoch: own.producer_epoch };
        let batch = |sequence| Batch { own: Some(own), sequence, ..Batch::plain("t", &["i"]) };
        let produce = protocol.produce();
        for sequence in [0, 1, 1, 0, 5] {
            world.produce(produce, &batch(sequence));
        }
        world.produce(produce, &Batch { own: Some(own.later(1)), ..batch(7) });
        world.produce(produce, &Batch { own: Some(own.later(1)), ..batch(0) });
        world.produce(produce, &batch(2));
        world.produce(produce, &Batch { transactional: true, ..batch(1) });
        world.produce(produce, &Batch { own: Some(own.later(2)), sequence: i32::MAX, ..batch(0) });
    }
    let again = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_producer_id(5.into())
        .with_producer_epoch(2);
    world.tell("init with an identity only", At::Any, 4, again);
    let empty = InitProducerIdRequest::default().with_transactional_id(Some(text("").into()));
    world.tell("init with an empty id", At::Any, 4, empty);
    world.producers("t", 0);
    read(world, "t", 0, 11);
}

/// What a fetch asks for.
struct Wanted {
    version: i16,
    from: i64,
    bytes: i32,
    partition_bytes: i32,
    committed: bool,
    leader_epoch: i32,
    partition: i32,
}

impl Wanted {
    fn from(version: i16, from: i64) -> Self {
        Self {
            version,
            from,
            bytes: 1_000_000,
            partition_bytes: 1_000_000,
            committed: false,
            leader_epoch: -1,
            partition: 0,
        }
    }

    fn fetch(&self, world: &mut World, what: &str, topic: &str, topic_id: Uuid) {
        let partition = FetchPartition::default()
            .with_partition(self.partition)
            .with_fetch_offset(self.from)
            .with_current_leader_epoch(if self.version >= 9 { self.leader_epoch } else { -1 })
            .with_log_start_offset(-1)
            .with_partition_max_bytes(self.partition_bytes);
        let mut wanted = FetchTopic::default().with_partitions(vec![partition]);
        if self.version >= 13 {
            wanted = wanted.with_topic_id(topic_id);
        } else {
            wanted = wanted.with_topic(topic_name(world, topic));
        }
        let mut request = FetchRequest::default()
            .with_max_wait_ms(10)
            .with_min_bytes(1)
            .with_max_bytes(self.bytes)
            .with_session_epoch(-1)
            .with_isolation_level(i8::from(self.committed))
            .with_topics(vec![wanted]);
        if self.version <= 14 {
            request = request.with_replica_id((-1).into());
        }
        if self.version < 7 {
            request = request.with_session_epoch(-1);
        }
        world.tell_settled(
            &[5, 6],
            &format!("fetch {what} {topic} from {}", self.from),
            At::Any,
            self.version,
            request,
        );
    }
}

/// Everything from an offset on.
pub(super) fn read(world: &mut World, topic: &str, from: i64, version: i16) {
    let id = topic_id(world, topic);
    Wanted::from(version, from).fetch(world, "all", topic, id);
}

/// The last version of Fetch that a release has.
fn last_fetch(protocol: Protocol) -> i16 {
    if protocol == Protocol::V2 { 18 } else { 17 }
}

fn fetch_in_every_version(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    world.produce(9, &Batch::plain("t", &["a", "b"]));
    let own = world.init("tx", 4, None).unwrap();
    if protocol == Protocol::V1 {
        world.add("tx", 3, own, "t", &[0]);
    }
    world.produce(protocol.produce(), &Batch::first("t", "tx", own, &["c"]));
    world.end("tx", protocol.end(), own, false);
    world.describe("tx");
    let id = topic_id(world, "t");
    for version in 4..=last_fetch(protocol) {
        for committed in [false, true] {
            Wanted { committed, ..Wanted::from(version, 0) }.fetch(world, "everything", "t", id);
            Wanted { committed, ..Wanted::from(version, 4) }.fetch(world, "the end", "t", id);
        }
        Wanted::from(version, 9).fetch(world, "beyond", "t", id);
        Wanted { partition: 4, ..Wanted::from(version, 0) }.fetch(world, "no partition of", "t", id);
        Wanted::from(version, 0).fetch(world, "in", "nowhere", Uuid::from_u128(5));
    }
}

fn fetch_within_limits(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 2, &[]);
    for value in ["a", "b", "c"] {
        world.produce(9, &Batch::plain("t", &[value.repeat(100).as_str()]));
        world.produce(9, &Batch { partition: 1, ..Batch::plain("t", &[value]) });
    }
    let id = topic_id(world, "t");
    let versions = [4, 11, 12, last_fetch(protocol)];
    for version in versions {
        for bytes in [0, 1, 171, 172, 340, 400, 10_000] {
            Wanted { bytes, ..Wanted::from(version, 0) }.fetch(world, &format!("at most {bytes}"), "t", id);
            Wanted { partition_bytes: bytes, ..Wanted::from(version, 0) }.fetch(
                world,
                &format!("at most {bytes} a partition"),
                "t",
                id,
            );
            Wanted { bytes, committed: true, ..Wanted::from(version, 1) }.fetch(
                world,
                &format!("committed at most {bytes}"),
                "t",
                id,
            );
        }
    }
}

fn fetch_what_is_not_there(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let id = topic_id(world, "t");
    let versions = [4, 9, 11, 12, 13, last_fetch(protocol)];
    for from in [-1, 0, 1] {
        versions.iter().for_each(|version| {
            Wanted::from(*version, from).fetch(world, "an empty one", "t", id);
        });
    }
    world.produce(9, &Batch::plain("t", &["a"]));
    for from in [-5, 0, 1, 2, i64::MAX] {
        versions.iter().for_each(|version| {
            Wanted::from(*version, from).fetch(world, "one record", "t", id);
            Wanted { committed: true, ..Wanted::from(*version, from) }.fetch(world, "committed", "t", id);
        });
    }
}

fn leader_epochs(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    world.produce(9, &Batch::plain("t", &["a"]));
    let id = topic_id(world, "t");
    for leader_epoch in [-1, 0, 1, 7] {
        for version in [9, 11, 12, last_fetch(protocol)] {
            let wanted = Wanted { leader_epoch, ..Wanted::from(version, 0) };
            wanted.fetch(world, &format!("as of epoch {leader_epoch}"), "t", id);
        }
        for version in [4, 5, 7] {
            list_with(world, "t", version, -1, leader_epoch, false);
        }
        for asked in [-1, 0, 1, 5] {
            for version in [2, 3, 4] {
                for (topic, partition) in [("t", 0), ("t", 3), ("nowhere", 0)] {
                    let partition = OffsetForLeaderPartition::default()
                        .with_partition(partition)
                        .with_current_leader_epoch(leader_epoch)
                        .with_leader_epoch(asked);
                    let wanted = OffsetForLeaderTopic::default()
                        .with_topic(topic_name(world, topic))
                        .with_partitions(vec![partition]);
                    let request = OffsetForLeaderEpochRequest::default()
                        .with_replica_id(if version >= 3 { -1 } else { -2 }.into())
                        .with_topics(vec![wanted]);
                    let what = format!("end of epoch {asked} as of {leader_epoch} {topic}");
                    world.tell_settled(&[5, 6], &what, At::Any, version, request);
                }
            }
        }
    }
}

pub(super) fn delete(world: &mut World, version: i16, topic: &str, partition: i32, offset: i64) {
    let wanted = DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset);
    let wanted =
        DeleteRecordsTopic::default().with_name(topic_name(world, topic)).with_partitions(vec![wanted]);
    let request = DeleteRecordsRequest::default().with_timeout_ms(20_000).with_topics(vec![wanted]);
    world.tell_settled(
        &[5, 6],
        &format!("delete {topic}-{partition} before {offset}"),
        At::Any,
        version,
        request,
    );
}

fn delete_records(world: &mut World, _: Protocol) {
    world.create_topic("t", 1, &[]);
    for value in ["a", "b", "c", "d"] {
        world.produce(9, &Batch::plain("t", &[value, value]));
    }
    delete(world, 0, "t", 0, 2);
    read(world, "t", 0, 11);
    read(world, "t", 2, 11);
    // Within a batch, and backwards.
    for (version, offset) in [(1, 3), (2, 1), (2, 3)] {
        delete(world, version, "t", 0, offset);
    }
    for from in [0, 2, 3, 4] {
        read(world, "t", from, 11);
    }
    for time in [-2, -1, 0, 1] {
        world.list_offset("t", 0, time, false);
    }
    for (topic, partition, offset) in
        [("t", 0, 99), ("t", 0, -2), ("t", 4, 0), ("nowhere", 0, 0), ("t", 0, -1)]
    {
        delete(world, 2, topic, partition, offset);
    }
    read(world, "t", 8, 11);
    read(world, "t", 0, 11);
    world.produce(11, &Batch::plain("t", &["e"]));
    read(world, "t", 8, 11);
    world.create_topic("compact", 1, &[("cleanup.policy", "compact")]);
    delete(world, 2, "compact", 0, 0);
    world.create_topic("both", 1, &[("cleanup.policy", "compact,delete")]);
    delete(world, 2, "both", 0, 0);
}

fn delete_records_of_open_transactions(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    world.produce(9, &Batch::plain("t", &["p"]));
    for (id, commit) in [("one", false), ("two", true)] {
        let own = world.init(id, 4, None).unwrap();
        if protocol == Protocol::V1 {
            world.add(id, 3, own, "t", &[0]);
        }
        world.produce(protocol.produce(), &Batch::first("t", id, own, &["a", "b"]));
        world.produce(protocol.produce(), &Batch { sequence: 2, ..Batch::first("t", id, own, &["c"]) });
        world.produce(9, &Batch::plain("t", &["q"]));
        // Kafka deletes up to the high watermark, open or not.
        delete(world, 2, "t", 0, if commit { -1 } else { 3 });
        world.fetch("t", 0, 3, true);
        world.producers("t", 0);
        world.end(id, protocol.end(), own, commit);
        world.describe(id);
        for from in [3, 4, 5, 6] {
            world.fetch("t", 0, from, true);
        }
        world.list_offset("t", 0, -1, true);
        world.producers("t", 0);
    }
}

fn list_with(world: &mut World, topic: &str, version: i16, time: i64, leader_epoch: i32, committed: bool) {
    let wanted = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_timestamp(if time < 0 { time } else { world.zero() + time })
        .with_current_leader_epoch(if version >= 4 { leader_epoch } else { -1 });
    let wanted =
        ListOffsetsTopic::default().with_name(topic_name(world, topic)).with_partitions(vec![wanted]);
    let mut request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![wanted]);
    if version >= 2 {
        request = request.with_isolation_level(i8::from(committed));
    }
    let what = format!("list {topic} {time} as of {leader_epoch} committed {committed}");
    world.tell_settled(&[5, 6], &what, At::Any, version, request);
}

fn list_offsets(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    for version in 1..=9 {
        for time in [-1, -2, 0] {
            list_with(world, "t", version, time, -1, false);
        }
    }
    world.produce(9, &Batch::plain("t", &["a", "b"]));
    world.produce(9, &Batch::plain("t", &["c"]));
    let own = world.init("tx", 4, None).unwrap();
    if protocol == Protocol::V1 {
        world.add("tx", 3, own, "t", &[0]);
    }
    world.produce(protocol.produce(), &Batch::first("t", "tx", own, &["d", "e", "f"]));
    let last = if protocol == Protocol::V2 { 10 } else { 9 };
    for version in 1..=last {
        for time in [-1, -2, -3, -4, -5, -9, 0, 1, 2, 3] {
            for committed in [false, true] {
                list_with(world, "t", version, time, -1, committed);
            }
        }
        list_with(world, "nowhere", version, -1, -1, false);
    }
}

fn describe_producers(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    world.producers("t", 0);
    let own = world.init("tx", 4, None).unwrap();
    if protocol == Protocol::V1 {
        world.add("tx", 3, own, "t", &[0]);
    }
    world.produce(protocol.produce(), &Batch::first("t", "tx", own, &["d", "e"]));
    world.producers("t", 0);
    world.end("tx", protocol.end(), own, true);
    world.describe("tx");
    world.producers("t", 0);
    for (topic, partitions) in [("t", vec![3]), ("nowhere", vec![0]), ("t", vec![0])] {
        let wanted =
            TopicRequest::default().with_name(topic_name(world, topic)).with_partition_indexes(partitions);
        let request = DescribeProducersRequest::default().with_topics(vec![wanted]);
        let Some(Response::DescribeProducers(mut found)) =
            world.quietly(|world| world.tell_settled(&[5, 6], "describe", At::Any, 0, request))
        else {
            panic!("no answer")
        };
        for partition in found.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            for producer in &mut partition.active_producers {
                producer.last_timestamp = producer.last_timestamp.signum();
            }
        }
        let line = world.shown(found.into());
        world.note(line);
    }
}
