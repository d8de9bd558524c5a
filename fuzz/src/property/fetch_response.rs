//! A whole Fetch answer, from the bytes of its frame to records.
//!
//! Property, for any bytes in any version that is asked for: no panic, and memory in proportion to the frame, whatever it
//! counts. What is read as an answer is one for `kafka-protocol` too, which reads every byte of it; and each partition that
//! was asked for gets the code, the records and the aborted transactions that `kafka-protocol` finds for it, whose batches it
//! reads alike (behind the broker's decompression): the same offsets, times, keys, values and headers, from the wanted
//! offset on.
//!
//! Property, for an answer that is drawn from the input (topics by name or id, partitions that were asked for and others,
//! batches in every codec, plain and transactional, aborted transactions, tagged fields) and written by `kafka-protocol`: it
//! is read. With some bytes of it changed or cut off, what is said of any bytes holds.

use super::record::{Owned, compare, own};
use crate::{draw::Draw, memory};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use hapax_kafka::{
    Isolation,
    fetch::fuzz::{Answer, Wanted, response},
    record::{BatchBuilder, Batches, Compression, Compressor, Decompressor, RecordRef, Stamp},
};
use kafka_protocol::{
    messages::{
        FetchResponse, ProducerId, TopicName,
        fetch_response::{
            AbortedTransaction, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
        },
    },
    protocol::{Decodable, Encodable, StrBytes},
};
use std::collections::BTreeMap;

const LIMIT: usize = 1 << 20;
const MEMORY: usize = 32 << 20;
/// Versions that are asked for, and the first that names topics by id and has tagged fields in its header.
const FIRST: i16 = 11;
const VERSIONS: u16 = 7;
const BY_ID: i16 = 13;
const FLEXIBLE: i16 = 12;
/// Correlation id.
const ID_BYTES: usize = 4;

/// What is asked for; the last topic is never answered for.
const ASKED: [(&str, [u8; 16], i32); 4] =
    [("t", [1; 16], 0), ("t", [1; 16], 1), ("u", [2; 16], 0), ("v", [3; 16], 7)];

/// Runs it.
pub fn run(input: &[u8]) {
    let mut draw = Draw::new(input);
    let mode = draw.below(3);
    let request = Request::drawn(&mut draw);
    if mode == 0 {
        let frame = Bytes::copy_from_slice(draw.rest());
        request.read(&frame);
        return;
    }
    let damage = (draw.u16(), draw.byte(), draw.byte());
    let frame = request.frame(&answer(&mut draw, request.version));
    if mode == 1 {
        assert!(request.read(&frame), "{} {frame:?}", request.version);
    } else {
        request.read(&damaged(&frame, damage));
    }
}

/// Some bytes in a row are replaced by one, or the frame ends there.
fn damaged(frame: &[u8], (at, times, byte): (u16, u8, u8)) -> Bytes {
    let at = usize::from(at) % frame.len();
    let mut frame = frame.to_vec();
    match times % 8 {
        0 => frame.truncate(at),
        times => frame[at..].iter_mut().take(times.into()).for_each(|one| *one = byte),
    }
    frame.into()
}

struct Request {
    version: i16,
    isolation: Isolation,
    wanted: Vec<Wanted>,
}

impl Request {
    fn drawn(draw: &mut Draw<'_>) -> Self {
        let version = FIRST + draw.below(VERSIONS) as i16;
        let isolation =
            if draw.below(2) == 0 { Isolation::ReadUncommitted } else { Isolation::ReadCommitted };
        let wanted = ASKED.map(|(topic, id, partition)| (topic, id, partition, i64::from(draw.byte() % 16)));
        Self { version, isolation, wanted: wanted.to_vec() }
    }

    fn frame(&self, answer: &FetchResponse) -> Bytes {
        let mut frame = BytesMut::new();
        frame.put_i32(7);
        if self.version >= FLEXIBLE {
            frame.put_u8(0);
        }
        answer.encode(&mut frame, self.version).expect("it was drawn for its version");
        frame.freeze()
    }

    /// Reads a frame; says whether it is an answer.
    fn read(&self, frame: &Bytes) -> bool {
        let limit = (64 << 10) + 512 * frame.len();
        let read = memory::within(limit, "reading a Fetch answer", || {
            response(self.version, &self.wanted, self.isolation, frame.clone())
        });
        let Ok((code, parts)) = read else { return false };
        let theirs = self.decoded(frame);
        assert_eq!(code, theirs.error_code);
        let mut found = BTreeMap::new();
        for topic in theirs.responses {
            for part in topic.partitions {
                let name = if self.version >= BY_ID {
                    Err(topic.topic_id.into_bytes())
                } else {
                    Ok(topic.topic.0.clone())
                };
                found.insert((name, part.partition_index), part);
            }
        }
        for ((topic, id, partition, from), part) in self.wanted.iter().zip(parts) {
            let name = if self.version >= BY_ID { Err(*id) } else { Ok(StrBytes::from_static_str(topic)) };
            let theirs = found.remove(&(name, *partition));
            assert_eq!(part.as_ref().map(|(code, _)| *code), theirs.as_ref().map(|data| data.error_code));
            if let Some(((_, answer), theirs)) = part.zip(theirs) {
                self.part(answer, &theirs, *from);
            }
        }
        true
    }

    /// The opinion of `kafka-protocol`, which is asked only about what ours accepts: it makes room for as much as is counted.
    fn decoded(&self, frame: &Bytes) -> FetchResponse {
        let mut body = frame.clone();
        body.advance(ID_BYTES);
        if self.version >= FLEXIBLE {
            skip_tags(&mut body);
        }
        let theirs = FetchResponse::decode(&mut body, self.version).expect("kafka-protocol reads what we do");
        assert!(body.is_empty(), "{} bytes behind the answer", body.len());
        theirs
    }

    /// Records of a partition, against those of the bytes that `kafka-protocol` has for it.
    fn part(&self, mut answer: Answer, theirs: &PartitionData, from: i64) {
        let bytes = theirs.records.clone().unwrap_or_default();
        let listed = theirs.aborted_transactions.clone().unwrap_or_default();
        let mut expected = Vec::new();
        let mut is_whole = true;
        for batch in Batches::new(bytes.clone()) {
            let Ok(batch) = batch else {
                is_whole = false;
                break;
            };
            let header = *batch.header();
            let is_marker = header.attributes.is_control();
            // What a marker says of the transactions behind it has a target of its own.
            if is_marker || batch.verify_crc().is_err() {
                is_whole = false;
                break;
            }
            let is_aborted = self.isolation == Isolation::ReadCommitted
                && header.producer_id >= 0
                && header.attributes.is_transactional()
                && listed.iter().any(|one| {
                    one.producer_id.0 == header.producer_id && one.first_offset < header.next_offset()
                });
            if is_aborted
                || header.next_offset() <= expected.last().map_or(from, |last: &Owned| last.offset + 1)
            {
                continue;
            }
            let Ok(records) = batch.decode(&mut Decompressor::new(LIMIT)) else {
                is_whole = false;
                break;
            };
            compare(batch.bytes(), &batch, &records);
            expected.extend(own(&records).into_iter().filter(|record| record.offset >= from));
        }
        let mut read = Vec::new();
        let mut decompressor = Decompressor::new(LIMIT);
        loop {
            let records = memory::within(MEMORY + 16 * bytes.len(), "reading its records", || {
                answer.read(&mut decompressor)
            });
            match records {
                Ok(records) if records.is_empty() => break,
                Ok(records) => read.extend(own(&records)),
                Err(_) => {
                    assert!(!is_whole, "what each reader of a batch has read is refused");
                    break;
                }
            }
        }
        if is_whole && read.is_sorted_by_key(|record| record.offset) && in_order(&bytes) {
            assert_eq!(read, expected);
        } else if in_order(&bytes) {
            assert!(
                read.starts_with(&expected),
                "{read:?}, and {expected:?} stand in front of what is damaged"
            );
        }
    }
}

/// Do batches follow each other as in a log?
fn in_order(bytes: &Bytes) -> bool {
    let mut next = i64::MIN;
    Batches::new(bytes.clone()).map_while(Result::ok).all(|batch| {
        let follows = batch.header().base_offset >= next;
        next = batch.header().next_offset();
        follows
    })
}

fn skip_tags(body: &mut Bytes) {
    for _ in 0..varint(body) {
        varint(body);
        let size = varint(body) as usize;
        body.advance(size);
    }
}

fn varint(body: &mut Bytes) -> u32 {
    let mut value = 0;
    for place in 0..5 {
        let byte = body.get_u8();
        value |= u32::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn answer(draw: &mut Draw<'_>, version: i16) -> FetchResponse {
    let kinds = draw.byte();
    let mut answer = FetchResponse::default()
        .with_throttle_time_ms(i32::from(draw.byte()))
        .with_error_code(i16::from(kinds & 1))
        .with_session_id(i32::from(kinds >> 1));
    for _ in 0..draw.below(4) {
        answer.responses.push(topic(draw, version));
    }
    if version >= FLEXIBLE && kinds & 2 != 0 {
        answer = answer.with_unknown_tagged_field(9, Bytes::copy_from_slice(draw.take(3)));
    }
    if version >= 16 && kinds & 4 != 0 {
        let node = NodeEndpoint::default().with_host(StrBytes::from_static_str("host")).with_port(9092);
        answer = answer.with_node_endpoints(vec![node]);
    }
    answer
}

fn topic(draw: &mut Draw<'_>, version: i16) -> FetchableTopicResponse {
    let (name, id) = [("t", 1), ("u", 2), ("w", 9)][usize::from(draw.below(3))];
    let mut topic = FetchableTopicResponse::default();
    if version >= BY_ID {
        topic.topic_id = kafka_id([id; 16]);
    } else {
        topic.topic = TopicName(StrBytes::from_static_str(name));
    }
    for _ in 0..draw.below(4) {
        topic.partitions.push(partition(draw, version));
    }
    topic
}

/// The codec's id type has no name here.
fn kafka_id<I: std::str::FromStr<Err: std::fmt::Debug>>(bytes: [u8; 16]) -> I {
    hapax_commit::TopicId(bytes).to_string().parse().expect("32 hex digits are an id")
}

fn partition(draw: &mut Draw<'_>, version: i16) -> PartitionData {
    let kinds = draw.byte();
    let mut data = PartitionData::default()
        .with_partition_index(i32::from(kinds & 1))
        .with_error_code(i16::from(draw.byte() % 4) * 3)
        .with_high_watermark(i64::from(draw.byte()))
        .with_last_stable_offset(i64::from(draw.byte()))
        .with_log_start_offset(0)
        .with_preferred_read_replica((-1).into());
    data.aborted_transactions = (kinds & 2 == 0).then(|| {
        let listed = (0..draw.below(3)).map(|_| {
            AbortedTransaction::default()
                .with_producer_id(ProducerId(i64::from(draw.byte() % 3)))
                .with_first_offset(i64::from(draw.byte() % 32))
        });
        listed.collect()
    });
    if version >= FLEXIBLE && kinds & 4 != 0 {
        data = data.with_current_leader(LeaderIdAndEpoch::default().with_leader_id(3.into()));
    }
    if version >= FLEXIBLE && kinds & 8 != 0 {
        data = data.with_unknown_tagged_field(11, Bytes::copy_from_slice(draw.take(2)));
    }
    data.records = (kinds & 16 == 0).then(|| records(draw));
    data
}

/// Batches in the order of a log, the last one perhaps cut.
fn records(draw: &mut Draw<'_>) -> Bytes {
    let mut compressor = Compressor::new();
    let mut all = BytesMut::new();
    let mut base = i64::from(draw.byte() % 8);
    for _ in 0..draw.below(5) {
        let kinds = draw.byte();
        let mut builder = BatchBuilder::new();
        let count = 1 + i64::from(kinds & 3);
        for number in 0..count {
            let length = usize::from(draw.byte() % 32);
            let record = RecordRef {
                key: (kinds & 4 == 0).then(|| draw.take(2)),
                value: Some(draw.take(length)),
                timestamp: number,
                ..RecordRef::default()
            };
            builder.push(&record).expect("there is room for small records");
        }
        let compression = Compression::ALL[usize::from(draw.below(5))];
        let sealed = builder.seal(compression, &mut compressor).expect("it has a record");
        let stamp = match kinds & 8 {
            0 => Stamp::NONE,
            _ => Stamp {
                producer_id: i64::from(kinds >> 6),
                producer_epoch: 0,
                base_sequence: 0,
                transactional: true,
            },
        };
        let mut bytes = sealed.stamp(stamp).to_bytes().to_vec();
        // In front of the checksum.
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        all.extend_from_slice(&bytes);
        base += count + i64::from(kinds >> 4 & 3);
    }
    let cut = usize::from(draw.byte() % 4 == 3) * 5;
    all.truncate(all.len().saturating_sub(cut));
    all.freeze()
}
