//! Bytes from the network: bounded, and never a panic.

use crate::client::{self, Client, frame, topic};
use bytes::{BufMut, Bytes, BytesMut};
use hapax_broker::{
    Broker, Machine, ServerOptions, Settings,
    state::{Call, Input, NodeId, Ticket},
    wire::{
        ADVERTISED, Request, Response,
        frame::{Incoming, Refused, decode, read},
    },
};
use kafka_protocol::messages::{
    ApiKey, CreateTopicsRequest, FetchRequest, GroupId, ListOffsetsRequest, OffsetCommitRequest,
    ProduceRequest,
    create_topics_request::CreatableTopic,
    fetch_request::{FetchPartition, FetchTopic},
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
    offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
    produce_request::{PartitionProduceData, TopicProduceData},
};
use kafka_protocol::protocol::StrBytes;

/// A time of day: sums with it reach the ends of their type, as sums with zero do not.
const START: i64 = 1_700_000_000_000;

/// Requests that find something when they are mutated only a little.
fn samples() -> Vec<Request> {
    let created =
        CreatableTopic::default().with_name(topic("t")).with_num_partitions(2).with_replication_factor(1);
    let records = Bytes::from(vec![0; 70]);
    let produced = PartitionProduceData::default().with_index(0).with_records(Some(records));
    let produced = TopicProduceData::default().with_name(topic("t")).with_partition_data(vec![produced]);
    let fetched = FetchPartition::default().with_partition(0).with_partition_max_bytes(1 << 20);
    let fetched = FetchTopic::default().with_topic(topic("t")).with_partitions(vec![fetched]);
    let listed = ListOffsetsPartition::default().with_timestamp(-1).with_current_leader_epoch(-1);
    let listed = ListOffsetsTopic::default().with_name(topic("t")).with_partitions(vec![listed]);
    let committed = OffsetCommitRequestPartition::default().with_committed_offset(1);
    let committed =
        OffsetCommitRequestTopic::default().with_name(topic("t")).with_partitions(vec![committed]);
    let committed = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_topics(vec![committed]);
    vec![
        CreateTopicsRequest::default().with_topics(vec![created]).into(),
        ProduceRequest::default().with_acks(-1).with_topic_data(vec![produced]).into(),
        FetchRequest::default().with_max_wait_ms(100).with_min_bytes(1).with_topics(vec![fetched]).into(),
        ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![listed]).into(),
        committed.into(),
        client::init("x").into(),
        client::end("x", true).into(),
        client::metadata(&["t", "u"]).into(),
    ]
}

/// Frames without their lengths: each sample in each version, and each other request as zeros make it.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let samples = samples();
    for (key, range) in ADVERTISED {
        for version in range.min..=range.max {
            let mut zeros = Bytes::from(vec![0; 300]);
            let plain = Request::decode(*key, version, &mut zeros).and_then(Result::ok);
            for request in samples.iter().filter(|sample| sample.key() == *key).cloned().chain(plain) {
                if request.encode(version, &mut BytesMut::new()).is_ok() {
                    frames.push(frame(1, "fuzz", version, &request)[4..].to_vec());
                }
            }
        }
    }
    frames
}

fn mutate(frame: &mut Vec<u8>, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..5) {
        let at = random.usize(0..=frame.len());
        match random.u8(0..7) {
            0 if at < frame.len() => frame[at] ^= 1 << random.u8(0..8),
            1 if at < frame.len() => frame[at] = random.u8(..),
            2 => frame.truncate(at),
            3 => frame.insert(at, random.u8(..)),
            4 if at + 4 <= frame.len() => {
                let extreme = [0, 1, -1, i32::MAX, i32::MIN, 0x0101_0101][random.usize(0..6)];
                frame[at..at + 4].copy_from_slice(&extreme.to_be_bytes());
            }
            5 if at + 8 <= frame.len() => {
                let extreme = [0, 1, -1, i64::MAX, i64::MIN, START][random.usize(0..6)];
                frame[at..at + 8].copy_from_slice(&extreme.to_be_bytes());
            }
            _ if at < frame.len() => {
                let end = random.usize(at..=frame.len());
                let copied = frame[at..end].to_vec();
                frame.splice(at..at, copied);
            }
            _ => {}
        }
    }
}

#[test]
fn no_bytes_make_decoder_or_machine_panic() {
    /// `HAPAX_BROKER_FUZZ` asks for more.
    const FRAMES: u64 = 120_000;
    let count =
        std::env::var("HAPAX_BROKER_FUZZ").ok().and_then(|count| count.parse().ok()).unwrap_or(FRAMES);
    let seeds = frames();
    let mut random = fastrand::Rng::with_seed(11);
    let mut machine = Machine::new(Settings::default(), START);
    let (mut now, mut applied) = (START, 0_u64);
    for turn in 0..count {
        if turn % 3_000 == 0 {
            machine = Machine::new(Settings { nodes: 2, seed: turn, ..Settings::default() }, now);
        }
        let bytes = if random.u8(0..8) == 0 {
            let mut bytes = vec![0; random.usize(0..64)];
            random.fill(&mut bytes);
            bytes
        } else {
            let mut frame = seeds[random.usize(0..seeds.len())].clone();
            if random.u8(0..4) > 0 {
                mutate(&mut frame, &mut random);
            }
            frame
        };
        if let Ok(Incoming::Request { head, request, .. }) = decode(bytes.into(), true) {
            applied += 1;
            now += random.i64(0..30);
            let node = NodeId(random.i32(1..3));
            let call = Call { ticket: Ticket(turn), node, version: head.version, client_id: head.client_id };
            for reply in machine.step(now, Input::Request(call, request)) {
                assert!(reply.ticket.0 <= turn);
            }
        }
    }
    assert!(applied > count / 10, "only {applied} frames of {count} reached the machine");
}

#[test]
fn an_answer_of_every_version_can_be_encoded() {
    let mut machine = Machine::new(Settings::default(), 0);
    for (turn, frame) in frames().into_iter().enumerate() {
        let Ok(Incoming::Request { head, request, .. }) = decode(frame.into(), true) else {
            panic!("a sample")
        };
        let key = request.key();
        let ticket = Ticket(turn as u64);
        let call = Call { ticket, node: NodeId(1), version: head.version, client_id: None };
        for reply in machine.step(turn as i64, Input::Request(call, request)) {
            if let hapax_broker::state::Outcome::Answer(response) = &reply.outcome
                && reply.ticket == ticket
            {
                let encoded = hapax_broker::wire::frame::answer(1, head.version, response);
                assert!(encoded.is_ok(), "{key:?} {}: {encoded:?} {response:?}", head.version);
            }
        }
    }
}

#[tokio::test]
async fn a_frame_longer_than_allowed_is_refused_before_room_is_made() {
    for length in [i32::MAX, 101, -1] {
        let mut bytes = BytesMut::new();
        bytes.put_i32(length);
        let error = read(&mut &bytes[..], 100).await.unwrap_err();
        assert!(matches!(
            error.get_ref().and_then(|inner| inner.downcast_ref()),
            Some(Refused::Size(size)) if *size == length
        ));
    }
}

#[tokio::test]
async fn apiversions_in_an_unknown_version_is_answered_in_version_zero() {
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    let mut client = Client::connect(&broker.bootstrap()).await;
    let mut newer = frame(1, "test", 3, &client::api_versions().into()).to_vec();
    newer[6..8].copy_from_slice(&99_i16.to_be_bytes());
    tokio::io::AsyncWriteExt::write_all(&mut client.stream, &newer).await.unwrap();
    let mut answer = client.frame().await.unwrap().split_off(4);
    let answer = Response::decode(ApiKey::ApiVersions, 0, &mut answer).unwrap().unwrap();
    let Response::ApiVersions(answer) = answer else { panic!("another answer") };
    assert_eq!(answer.error_code, 35);
    assert_eq!((answer.api_keys[0].api_key, answer.api_keys[0].max_version), (18, 4));
    // The connection is as good as new.
    assert!(matches!(client.ask(4, client::api_versions()).await, Response::ApiVersions(_)));
    broker.stop().await;
}

#[tokio::test]
async fn an_unadvertised_version_or_key_costs_the_connection() {
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    for (key, version) in [(22_i16, 6_i16), (0, 2), (999, 0), (-1, 0), (4, 0)] {
        let mut client = Client::connect(&broker.bootstrap()).await;
        let mut bytes = frame(1, "test", 4, &client::init("x").into()).to_vec();
        bytes[4..6].copy_from_slice(&key.to_be_bytes());
        bytes[6..8].copy_from_slice(&version.to_be_bytes());
        tokio::io::AsyncWriteExt::write_all(&mut client.stream, &bytes).await.unwrap();
        client.assert_closed().await;
    }
    broker.stop().await;
}
