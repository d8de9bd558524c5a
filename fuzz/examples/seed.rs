//! Writes the seeds that encoders make: `cargo run -p hapax-fuzz --example seed`, after a format has got something new.
//!
//! Batches come from the client's encoder, frames from the messages of the broker, durable bytes from the golden files of
//! old releases, pipeline files from the examples. Scripts, and inputs that once found something, were written by hand or
//! by a fuzzer, and stay.
#![allow(clippy::disallowed_methods, reason = "it writes files, on somebody's own machine")]

use bytes::{BufMut, Bytes, BytesMut};
use hapax_broker::wire::{ADVERTISED, Request};
use hapax_commit::TopicId;
use hapax_kafka::record::{BatchBuilder, Compression, Compressor, Headers, RecordRef, Stamp};
use kafka_protocol::{
    messages::{
        FetchResponse, ProducerId, TopicName,
        fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData},
    },
    protocol::{Encodable, StrBytes},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    batches()?;
    fetch_responses()?;
    frames()?;
    durable()?;
    state_log()?;
    for name in ["orders", "generate", "route"] {
        keep("pipeline", name, &fs::read(root().join(format!("../examples/{name}.toml")))?)?;
    }
    Ok(())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn keep(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = root().join("seeds").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}

fn batch(compression: Compression, producer_id: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (number, value) in [Some(&b"one value, one value"[..]), None, Some(b"")].into_iter().enumerate() {
        let headers = [(&b"trace"[..], Some(&b"1"[..])), (b"trace", None)];
        let record = RecordRef {
            key: Some(b"key"),
            value,
            headers: Headers::List(&headers[..number]),
            timestamp: 1_700_000_000_000 + number as i64,
        };
        builder.push(&record).expect("there is room");
    }
    let stamp = Stamp { producer_id, producer_epoch: 3, base_sequence: 7, transactional: producer_id >= 0 };
    let sealed = builder.seal(compression, &mut Compressor::new()).expect("there are records");
    sealed.stamp(stamp).to_bytes().to_vec()
}

/// At an offset, with a leader epoch, as an answer has it. The base offset and the epoch are in front of the checksum.
fn at(mut batch: Vec<u8>, offset: u8) -> Vec<u8> {
    batch[7] = offset;
    batch[12..16].copy_from_slice(&5_i32.to_be_bytes());
    batch
}

fn changed(mut batch: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut batch);
    let length = (batch.len() - 12) as i32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let checksum = hapax_kafka::record::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&checksum.to_be_bytes());
    batch
}

fn marker(producer_id: i64, commit: bool) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let (key, value) = ([0, 0, 0, u8::from(commit)], [0, 0, 0, 0, 0, 9]);
    let record = RecordRef { key: Some(&key), value: Some(&value), ..RecordRef::default() };
    builder.push(&record).expect("there is room");
    let stamp = Stamp { producer_id, producer_epoch: 3, base_sequence: -1, transactional: true };
    let sealed = builder.seal(Compression::None, &mut Compressor::new()).expect("there is a record");
    changed(sealed.stamp(stamp).to_bytes().to_vec(), |batch| batch[22] |= 0x20)
}

fn batches() -> io::Result<()> {
    for compression in Compression::ALL {
        keep("batch_in", compression.name(), &batch(compression, 4711))?;
        let answer = [at(batch(compression, -1), 4), at(batch(compression, 1), 7), at(marker(1, false), 10)];
        // Any bytes, from offset 5, with one aborted transaction.
        let head = [0, 5, 2, 1, 7];
        keep("fetch", compression.name(), &[&head[..], &answer.concat()].concat())?;
    }
    keep("batch_in", "marker", &marker(1, true))?;
    keep("batch_in", "log-append-time", &changed(batch(Compression::None, -1), |batch| batch[22] |= 8))?;
    keep("batch_in", "compacted", &changed(batch(Compression::None, -1), |batch| batch[26] = 20))?;
    keep("batch_in", "older", &changed(batch(Compression::None, -1), |batch| batch[16] = 1))?;
    let empty = changed(batch(Compression::None, -1), |batch| {
        batch.truncate(61);
        batch[60] = 0;
    });
    keep("batch_in", "empty", &empty)?;
    keep("batch_in", "several", &[batch(Compression::None, 1), batch(Compression::Zstd, 2)].concat())
}

/// Whole answers in every version that is asked for, as `kafka-protocol` writes them; and scripts of answers, whole, cut and
/// with a count that is damaged.
fn fetch_responses() -> io::Result<()> {
    for version in 11..=17_i16 {
        let records = [at(batch(Compression::Lz4, -1), 4), at(batch(Compression::Zstd, 1), 7)].concat();
        let aborted = AbortedTransaction::default().with_producer_id(ProducerId(1)).with_first_offset(7);
        let partition = PartitionData::default()
            .with_high_watermark(10)
            .with_last_stable_offset(10)
            .with_aborted_transactions(Some(vec![aborted]))
            .with_records(Some(records.into()));
        let mut topic = FetchableTopicResponse::default().with_partitions(vec![partition]);
        if version >= 13 {
            topic.topic_id = TopicId([1; 16]).to_string().parse().expect("32 hex digits are an id");
        } else {
            topic.topic = TopicName(StrBytes::from_static_str("t"));
        }
        let answer = FetchResponse::default().with_responses(vec![topic]);
        let mut frame = BytesMut::new();
        frame.put_i32(7);
        if version >= 12 {
            frame.put_u8(0);
        }
        answer.encode(&mut frame, version).map_err(io::Error::other)?;
        // Any bytes, in this version, committed records, from the offsets 5, 0, 0 and 0.
        let head = [0, (version - 11) as u8, 1, 5, 0, 0, 0];
        keep("fetch_response", &format!("version-{version}"), &[&head[..], &frame].concat())?;
    }
    // Two topics: three partitions with batches, transactional ones too, and one without records.
    let answer = [
        &[6, 0, 2][..],
        &[0, 2],
        &[0, 0, 9, 9, 1, 1, 0, 0, 2, 0x49, 3, b'k', b'1', b'a', b'b', b'c', 1, b'k', b'2', b'd', 3],
        &[0, 2, b'k', b'3', b'x', b'y', 4, 0],
        &[5, 0, 9, 9, 0, 3, 1, 0x16, 0, 0, 0, 1, 0],
        &[1, 1],
        &[0x1e, 3, 9, 9, b'?', b'!'],
    ]
    .concat();
    let scripts = [
        ("script-by-name", [1, 1, 1], [0; 4]),
        ("script-by-id", [1, 2, 0], [0; 4]),
        ("script-newest", [1, 6, 1], [0; 4]),
        ("script-cut", [2, 2, 1], [0, 60, 0, 0]),
        // The count of topics, and the length of the first record set.
        ("script-counts-much", [2, 2, 1], [0, 15, 4, 0xff]),
        ("script-long", [2, 1, 1], [0, 70, 3, 0xff]),
    ];
    for (name, head, damage) in scripts {
        keep("fetch_response", name, &[&head[..], &[0, 1, 0, 0], &damage, &answer].concat())?;
    }
    Ok(())
}

/// A frame with its length in front.
fn frame(key: i16, version: i16, header_version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = BytesMut::new();
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(1);
    if header_version >= 1 {
        frame.put_i16(4);
        frame.put_slice(b"fuzz");
    }
    if header_version >= 2 {
        frame.put_u8(0);
    }
    frame.put_slice(body);
    [&(frame.len() as i32).to_be_bytes()[..], &frame].concat()
}

/// For each request a connection that sends it in every version, as zeros make it and, where that is another one, with
/// arrays of one element.
fn frames() -> io::Result<()> {
    for (key, range) in ADVERTISED {
        for (name, byte) in [("zeros", 0), ("ones", 1)] {
            let mut stream = vec![2];
            for version in range.min..=range.max {
                let mut body = Bytes::from(vec![byte; 600]);
                let Some(Ok(request)) = Request::decode(*key, version, &mut body) else { continue };
                let mut body = BytesMut::new();
                if request.encode(version, &mut body).is_ok() {
                    stream.extend(frame(*key as i16, version, key.request_header_version(version), &body));
                }
            }
            if stream.len() > 1 && stream.len() < 16 << 10 {
                keep("frame", &format!("{key:?}-{name}"), &stream)?;
            }
        }
    }
    Ok(())
}

fn durable() -> io::Result<()> {
    let golden = root().join("../crates/hapax-commit/tests/it/golden");
    for (kind, name) in
        [(b'H', "handle-v1"), (b'S', "manifest-journal-v1"), (b'P', "positions-v1"), (b'B', "bookmark-v1")]
    {
        keep("durable", name, &[&[kind], &fs::read(golden.join(name))?[..]].concat())?;
    }
    let mark = fs::read_to_string(golden.join("bookmark-v1"))?;
    let other = mark.replace("\"shard\":0", "\"shard\":1").replace("main/in/0", "main/in/1");
    keep("durable", "bookmarks", format!("B{mark}\n{other}").as_bytes())?;
    for of in ["v1", "v1-changed"] {
        let job = root().join(format!("../crates/hapax-store/tests/golden/{of}/orders/1"));
        keep("durable", &format!("{of}-job"), &[b"J", &fs::read(job.join("job"))?[..]].concat())?;
        let mut slots: Vec<PathBuf> =
            fs::read_dir(job.join("chain/0"))?.map(|slot| Ok(slot?.path())).collect::<io::Result<_>>()?;
        slots.sort();
        let mut bodies = Vec::new();
        for (number, slot) in slots.iter().enumerate() {
            let slot = fs::read(slot)?;
            keep("durable", &format!("{of}-slot-{}", number + 1), &[b"S", &slot[..]].concat())?;
            bodies.push(slot[20..].to_vec());
        }
        keep("durable", &format!("{of}-chain"), &[b"C", &bodies.join(&b'\n')[..]].concat())?;
    }
    keep("durable", "object", b"O4001.5.2.17")
}

fn state_log() -> io::Result<()> {
    let mut v0 = BytesMut::new();
    v0.put_i16(0);
    v0.put_i64(5);
    v0.put_i16(3);
    v0.put_i32(60_000);
    v0.put_slice(&[1, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2]);
    v0.put_i64(78);
    v0.put_i64(77);
    keep("state_log", "transaction-0", &v0)?;
    for (name, tags) in
        [("transaction-1", &[0][..]), ("transaction-1-tags", &[2, 2, 2, 0, 2, 3, 2, 0, 9][..])]
    {
        let mut v1 = BytesMut::new();
        v1.put_i16(1);
        v1.put_i64(5);
        v1.put_i16(3);
        v1.put_i32(60_000);
        v1.put_slice(&[1, 2, 2, b'a', 3, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        v1.put_i64(78);
        v1.put_i64(77);
        v1.put_slice(tags);
        keep("state_log", name, &v1)?;
    }
    keep("state_log", "transaction-key", &hapax_broker::fuzz::transaction_key("orders.main.0.1"))?;
    keep("state_log", "offset-key", b"\0\x01\0\x01g\0\x01t\0\0\0\x03")?;
    let mut offset = BytesMut::new();
    offset.put_i16(3);
    offset.put_i64(7);
    offset.put_i32(2);
    offset.put_slice(b"\0\x01m");
    offset.put_i64(5);
    keep("state_log", "offset-3", &offset)?;
    let mut group = BytesMut::new();
    group.put_i16(3);
    group.put_slice(b"\0\x08consumer");
    group.put_i32(4);
    group.put_slice(b"\0\x05range\0\x01a");
    group.put_i64(5);
    group.put_i32(1);
    group.put_slice(b"\0\x01a\xff\xff\0\x01c\0\x0a/127.0.0.1");
    group.put_i32(1);
    group.put_i32(2);
    group.put_slice(b"\0\0\0\x03sub\0\0\0\x03all");
    keep("state_log", "group-3", &group)
}
