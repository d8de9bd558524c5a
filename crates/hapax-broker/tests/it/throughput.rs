//! How much goes through one connection. Not part of a plain run: a number means something in release mode only.

use crate::client::{Client, frame, topic};
use bytes::{BufMut, Bytes, BytesMut};
use hapax_broker::{
    Broker, ServerOptions, Settings,
    wire::{Request, Response},
};
use kafka_protocol::messages::{
    ApiKey, FetchRequest, ProduceRequest,
    fetch_request::{FetchPartition, FetchTopic},
    produce_request::{PartitionProduceData, TopicProduceData},
};
use std::time::Instant;
use tokio::io::AsyncWriteExt;

const BATCHES: usize = 600;
const VALUE: usize = 1_000_000;

/// A varint of a number that is not negative, as records have it.
fn varint(into: &mut BytesMut, value: usize) {
    let mut rest = value << 1;
    while rest >= 0x80 {
        into.put_u8((rest as u8) | 0x80);
        rest >>= 7;
    }
    into.put_u8(rest as u8);
}

/// A batch of one record.
fn batch() -> Bytes {
    let mut record = BytesMut::new();
    record.put_slice(&[0, 0, 0, 1]);
    varint(&mut record, VALUE);
    record.put_bytes(b'x', VALUE);
    record.put_u8(0);
    let mut checked = BytesMut::new();
    checked.put_i16(0);
    checked.put_i32(0);
    checked.put_i64(1);
    checked.put_i64(1);
    checked.put_i64(-1);
    checked.put_i16(-1);
    checked.put_i32(-1);
    checked.put_i32(1);
    varint(&mut checked, record.len());
    checked.put_slice(&record);
    let mut batch = BytesMut::new();
    batch.put_i64(0);
    batch.put_i32(i32::try_from(checked.len() + 9).unwrap());
    batch.put_i32(-1);
    batch.put_u8(2);
    batch.put_u32(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &checked) as u32);
    batch.put_slice(&checked);
    batch.freeze()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: cargo test --release -p hapax-broker throughput -- --ignored --nocapture"]
async fn produce_and_fetch_through_one_connection() {
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    let mut client = Client::connect(&broker.bootstrap()).await;
    client.create_topic("t", 1).await;
    let megabytes = (BATCHES * VALUE) as f64 / 1e6;

    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch()));
    let data = TopicProduceData::default().with_name(topic("t")).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(1_000).with_topic_data(vec![data]);
    let request = frame(1, "test", 9, &Request::from(request));
    let before = Instant::now();
    let mut ahead = 0;
    for _ in 0..BATCHES {
        client.stream.write_all(&request).await.unwrap();
        ahead += 1;
        if ahead == 5 {
            client.frame().await.unwrap();
            ahead -= 1;
        }
    }
    for _ in 0..ahead {
        client.frame().await.unwrap();
    }
    let produced = before.elapsed();

    let before = Instant::now();
    let mut offset = 0;
    while offset < BATCHES as i64 {
        let partition =
            FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(16 << 20);
        let fetched = FetchTopic::default().with_topic(topic("t")).with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_max_wait_ms(100)
            .with_min_bytes(1)
            .with_max_bytes(16 << 20)
            .with_topics(vec![fetched]);
        client.send(11, request).await;
        let mut body = client.frame().await.unwrap().split_off(4);
        let answer = Response::decode(ApiKey::Fetch, 11, &mut body).unwrap().unwrap();
        let Response::Fetch(answer) = answer else { panic!("another answer") };
        let records = answer.responses[0].partitions[0].records.as_ref().map_or(0, Bytes::len);
        assert!(records >= VALUE, "{answer:?}");
        offset += i64::try_from(records / VALUE).unwrap();
    }
    let fetched = before.elapsed();
    let rate = |time: std::time::Duration| megabytes / time.as_secs_f64();
    println!("produced {:.0} MB/s, fetched {:.0} MB/s", rate(produced), rate(fetched));
    assert!(rate(produced) > 300.0 && rate(fetched) > 300.0);
}
