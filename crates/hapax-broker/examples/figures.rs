//! The broker's figures: start to first answer, throughput of one connection on loopback, memory over idle time.
//!
//! ```text
//! cargo run --release -p hapax-broker --example figures [MEGABYTES]
//! ```
//!
//! The client is raw frames on a blocking socket, so that what is measured is the broker: a frame with a batch of a
//! megabyte is made once and sent again and again, a few ahead of the answers, as a client's `max.in.flight` allows.
//! Prints one object of JSON. Ends with exit code 1, and says which, if a figure is not what the broker promises; the
//! promises about throughput are for a build with optimization.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement stands beside the system under test: clocks and sockets are its own"
)]

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hapax_broker::{
    Broker, ServerOptions, Settings,
    wire::{Request, Response},
};
use kafka_protocol::{
    messages::{
        CreateTopicsRequest, FetchRequest, MetadataRequest, ProduceRequest, RequestHeader, TopicName,
        create_topics_request::CreatableTopic,
        fetch_request::{FetchPartition, FetchTopic},
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::{Encodable, StrBytes},
};
use std::{
    error::Error,
    io::{Read, Write},
    net::TcpStream,
    process::ExitCode,
    time::{Duration, Instant},
};

const RECORDS: i32 = 1_000;
const VALUE: usize = 1_024;
const IN_FLIGHT: usize = 5;
const FETCH_BYTES: i32 = 8 * 1024 * 1024;
const STARTS: usize = 21;
const A_DAY: i64 = 24 * 3_600_000;

/// From starting to the first answer, as the median of the starts.
const SLOWEST_START_MS: f64 = 50.0;
/// Resident memory over idle time, in percent of the fresh broker's.
const MOST_MEMORY: u64 = 110;
/// In and out, in megabytes a second.
const LEAST_RATE: f64 = 300.0;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<ExitCode> {
    let megabytes: usize = std::env::args().nth(1).map_or(Ok(1_000), |count| count.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let start = start_to_first_answer(&runtime)?;
    let idle = idle(&runtime)?;
    let (produce, consume) = throughput(&runtime, megabytes)?;
    println!(
        "{}",
        serde_json::json!({
            "start_to_first_answer_ms": start,
            "resident_kb": idle,
            "produce_mb_per_s": produce,
            "consume_mb_per_s": consume,
            "megabytes": megabytes,
            "batch_bytes": batch().len(),
        })
    );
    let broken = broken(start, idle, produce, consume, !cfg!(debug_assertions));
    broken.iter().for_each(|promise| eprintln!("figures: {promise}"));
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The promises that the figures do not keep.
fn broken(start: [f64; 3], idle: [u64; 4], produce: f64, consume: f64, optimized: bool) -> Vec<String> {
    let mut broken = Vec::new();
    let [_, median, _] = start;
    if median >= SLOWEST_START_MS {
        broken.push(format!("start to first answer takes {median} ms, not below {SLOWEST_START_MS}"));
    }
    let [fresh, later @ ..] = idle;
    let most = later.into_iter().max().unwrap_or(fresh);
    if most * 100 > fresh * MOST_MEMORY {
        broken.push(format!("resident memory grows from {fresh} to {most} kB while nothing happens"));
    }
    for (what, rate) in [("produce", produce), ("consume", consume)] {
        if optimized && rate < LEAST_RATE {
            broken.push(format!("{what} reaches {rate} MB/s, less than {LEAST_RATE}"));
        }
    }
    broken
}

fn broker(runtime: &tokio::runtime::Runtime) -> Outcome<Broker> {
    Ok(runtime.block_on(Broker::start(Settings::default(), ServerOptions::default()))?)
}

/// The least, the median and the most of several starts, in milliseconds.
fn start_to_first_answer(runtime: &tokio::runtime::Runtime) -> Outcome<[f64; 3]> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let before = Instant::now();
        let broker = broker(runtime)?;
        Client::connect(&broker)?.ask(12, MetadataRequest::default().into())?;
        times.push(millis(before.elapsed()));
        runtime.block_on(broker.stop());
    }
    times.sort_by(f64::total_cmp);
    Ok([times[0], times[STARTS / 2], times[STARTS - 1]])
}

/// Resident memory: of the fresh broker, after some seconds of nothing, after the timers of a day and of four more.
fn idle(runtime: &tokio::runtime::Runtime) -> Outcome<[u64; 4]> {
    let broker = broker(runtime)?;
    let mut client = Client::connect(&broker)?;
    client.create_topic("idle")?;
    let produced = client.ask(9, produce("idle", batch()))?;
    expect_produced(&produced)?;
    let mut kilobytes = [resident()?, 0, 0, 0];
    std::thread::sleep(Duration::from_secs(5));
    kilobytes[1] = resident()?;
    for (at, days) in [(2, 1), (3, 4)] {
        for _ in 0..days {
            broker.jump_clock(A_DAY);
            client.ask(12, MetadataRequest::default().into())?;
        }
        kilobytes[at] = resident()?;
    }
    runtime.block_on(broker.stop());
    Ok(kilobytes)
}

/// Megabytes (10^6 bytes of batches) a second: in, and out again.
fn throughput(runtime: &tokio::runtime::Runtime, megabytes: usize) -> Outcome<(f64, f64)> {
    let broker = broker(runtime)?;
    let mut client = Client::connect(&broker)?;
    client.create_topic("t")?;
    let batch = batch();
    let frame = client.frame(9, &produce("t", batch.clone()))?;
    let count = (megabytes * 1_000_000).div_ceil(batch.len());
    let before = Instant::now();
    for sent in 0..count + IN_FLIGHT {
        if sent < count {
            client.stream.write_all(&frame)?;
        }
        if sent >= IN_FLIGHT {
            let answer = client.receive(9, hapax_broker::ApiKey::Produce)?;
            if sent == IN_FLIGHT {
                expect_produced(&answer)?;
            }
        }
    }
    let total = count * batch.len();
    let produced = rate(total, before.elapsed());
    let before = Instant::now();
    let end = count as i64 * i64::from(RECORDS);
    let (mut offset, mut read) = (0, 0);
    while offset < end {
        let Response::Fetch(answer) = client.ask(12, fetch("t", offset))? else {
            return Err("another answer".into());
        };
        let part = &answer.responses[0].partitions[0];
        let bytes = part.records.as_ref().map_or(0, Bytes::len);
        if part.error_code != 0 || bytes == 0 {
            return Err(format!("nothing at {offset}: error {}", part.error_code).into());
        }
        read += bytes;
        offset += (bytes / batch.len()) as i64 * i64::from(RECORDS);
    }
    let consumed = rate(read, before.elapsed());
    runtime.block_on(broker.stop());
    Ok((produced, consumed))
}

fn rate(bytes: usize, time: Duration) -> f64 {
    (bytes as f64 / 1e6 / time.as_secs_f64()).round()
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 100.0
}

/// What the system says this process holds in memory; only Linux shows it in a file.
fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}

struct Client {
    stream: TcpStream,
}

impl Client {
    fn connect(broker: &Broker) -> Outcome<Self> {
        let stream = TcpStream::connect(broker.bootstrap())?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    fn frame(&self, version: i16, request: &Request) -> Outcome<Bytes> {
        let header = RequestHeader::default()
            .with_request_api_key(request.key() as i16)
            .with_request_api_version(version)
            .with_correlation_id(1)
            .with_client_id(Some(StrBytes::from_static_str("figures")));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header.encode(&mut frame, request.key().request_header_version(version))?;
        request.encode(version, &mut frame)?;
        let length = i32::try_from(frame.len() - 4)?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(frame.freeze())
    }

    fn ask(&mut self, version: i16, request: Request) -> Outcome<Response> {
        let frame = self.frame(version, &request)?;
        self.stream.write_all(&frame)?;
        self.receive(version, request.key())
    }

    fn receive(&mut self, version: i16, key: hapax_broker::ApiKey) -> Outcome<Response> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        self.stream.read_exact(&mut frame)?;
        let mut frame = Bytes::from(frame);
        frame.advance(4 + usize::from(key.response_header_version(version) >= 1));
        Ok(Response::decode(key, version, &mut frame).ok_or("an answer that is not known")??)
    }

    fn create_topic(&mut self, name: &str) -> Outcome<()> {
        let topic = CreatableTopic::default()
            .with_name(topic(name))
            .with_num_partitions(1)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000);
        match self.ask(7, request.into())? {
            Response::CreateTopics(answer) if answer.topics[0].error_code == 0 => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }
}

fn topic(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

fn produce(name: &str, batch: Bytes) -> Request {
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(batch));
    let data = TopicProduceData::default().with_name(topic(name)).with_partition_data(vec![partition]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![data]).into()
}

fn expect_produced(answer: &Response) -> Outcome<()> {
    match answer {
        Response::Produce(answer) if answer.responses[0].partition_responses[0].error_code == 0 => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn fetch(name: &str, offset: i64) -> Request {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(-1)
        .with_fetch_offset(offset)
        .with_last_fetched_epoch(-1)
        .with_partition_max_bytes(FETCH_BYTES);
    let wanted = FetchTopic::default().with_topic(topic(name)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(FETCH_BYTES)
        .with_isolation_level(1)
        .with_session_epoch(-1)
        .with_topics(vec![wanted])
        .into()
}

/// A plain batch of version 2 of about a megabyte.
fn batch() -> Bytes {
    let mut records = BytesMut::new();
    for number in 0..RECORDS {
        let mut record = BytesMut::new();
        record.put_u8(0); // attributes
        varint(&mut record, 0); // timestamp
        varint(&mut record, i64::from(number));
        varint(&mut record, -1); // no key
        varint(&mut record, VALUE as i64);
        record.put_bytes(number as u8, VALUE);
        varint(&mut record, 0); // no headers
        varint(&mut records, record.len() as i64);
        records.put(record);
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as i64);
    let mut body = BytesMut::new();
    body.put_i16(0); // attributes
    body.put_i32(RECORDS - 1);
    body.put_i64(now);
    body.put_i64(now);
    body.put_i64(-1); // no producer
    body.put_i16(-1);
    body.put_i32(-1);
    body.put_i32(RECORDS);
    body.put(records);
    let mut batch = BytesMut::new();
    batch.put_i64(0);
    batch.put_i32(body.len() as i32 + 9);
    batch.put_i32(-1);
    batch.put_u8(2);
    batch.put_u32(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &body) as u32);
    batch.put(body);
    batch.freeze()
}

fn varint(to: &mut BytesMut, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left >= 0x80 {
        to.put_u8(left as u8 | 0x80);
        left >>= 7;
    }
    to.put_u8(left as u8);
}

#[test]
fn a_figure_beyond_its_limit_is_named() {
    let good = ([1.0, 49.9, 80.0], [1_000, 1_100, 990, 1_050], 300.0, 300.0);
    let named = |(start, idle, produce, consume), optimized| broken(start, idle, produce, consume, optimized);
    assert!(named(good, true).is_empty());
    let (start, idle, produce, consume) = good;
    for (bad, word) in [
        (([1.0, 50.0, 80.0], idle, produce, consume), "start"),
        ((start, [1_000, 1_000, 1_101, 1_000], produce, consume), "memory"),
        ((start, idle, 299.0, consume), "produce"),
        ((start, idle, produce, 299.0), "consume"),
    ] {
        let named = named(bad, true);
        assert!(named.len() == 1 && named[0].contains(word), "{named:?}");
    }
    assert!(named((start, idle, 1.0, 1.0), false).is_empty(), "a build without optimization is slow");
}
