//! What a checkpoint may remember of the records that it has written, measured: a row for each record (Parquet, zstd), a
//! handle's ranges with count and digest, and a journal of the records themselves.
//!
//! ```text
//! cargo run --release -p hapax-store --features journal --example offset_index [RECORDS [PARTITIONS]]
//! ```
//! Records go to partitions in turns of a batch, as a producer writes them; a record has a key of 8 bytes and a value of
//! about 100. Times are those of one run on one thread.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types, reason = "a measurement")]

use bytes::Bytes;
use hapax_commit::{
    Epoch, Handle, HandlePartition, Identity, LaneId, Name, ProducerEpoch, ProducerId, ShardId, TopicId,
    TransactionVersion, envelope::crc32c,
};
use hapax_store::journal::{PartReader, PartWriter, Row};
use parquet::{
    basic::{Compression, Encoding, Repetition, Type as Physical, ZstdLevel},
    data_type::{Int32Type, Int64Type},
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::types::Type,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Records that a producer sends to a partition before the next one's turn.
const BATCH: u64 = 500;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let records: u64 = arguments.next().unwrap_or(1_000_000);
    let partitions = arguments.next().unwrap_or(12);
    let all: Vec<Placed> = placed(records, partitions);
    println!("{records} records over {partitions} partitions");
    println!("{:<44}{:>14}{:>12}{:>12}", "", "bytes", "write ms", "read ms");
    for (name, encoding) in
        [("row per record, plain", Encoding::PLAIN), ("row per record, delta", Encoding::DELTA_BINARY_PACKED)]
    {
        let (bytes, wrote) = timed(|| index(&all, encoding));
        let (rows, read) = timed(|| count_rows(&bytes));
        assert_eq!(rows, records);
        print(name, bytes.len(), wrote, read);
    }
    let (bytes, wrote) = timed(|| handle(&all, partitions).to_bytes());
    let (back, read) = timed(|| Handle::from_bytes(&bytes).unwrap());
    assert_eq!(back.records(), records);
    print("ranges, count and digest (a handle)", bytes.len(), wrote, read);
    let raw: usize = all.iter().map(|one| one.key.len() + one.value.len()).sum();
    let (parts, wrote) = timed(|| journal(&all));
    let (rows, read) = timed(|| parts.iter().map(read_part).sum::<u64>());
    assert_eq!(rows, records);
    print("journal: the records themselves", parts.iter().map(Bytes::len).sum(), wrote, read);
    println!("the records have {raw} bytes of keys and values; the journal has {} parts", parts.len());
}

fn print(name: &str, bytes: usize, wrote: Duration, read: Duration) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!("{name:<44}{bytes:>14}{:>12.1}{:>12.1}", ms(wrote), ms(read));
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}

struct Placed {
    partition: i32,
    offset: i64,
    key: [u8; 8],
    value: String,
}

fn placed(records: u64, partitions: u64) -> Vec<Placed> {
    let mut next = vec![0; partitions as usize];
    (0..records)
        .map(|id| {
            let partition = (id / BATCH % partitions) as usize;
            let offset = next[partition];
            next[partition] += 1;
            let noise = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let value = format!("{{\"id\":{id},\"amount\":{},\"user\":\"{noise:016x}\",\"state\":\"shipped\",\"note\":\"as ordered\"}}", noise % 10_000);
            Placed { partition: partition as i32, offset, key: noise.to_be_bytes(), value }
        })
        .collect()
}

/// A row for each record: partition and offset.
fn index(all: &[Placed], encoding: Encoding) -> Bytes {
    let leaf = |name: &str, physical| {
        Arc::new(
            Type::primitive_type_builder(name, physical)
                .with_repetition(Repetition::REQUIRED)
                .build()
                .unwrap(),
        )
    };
    let fields = vec![leaf("partition", Physical::INT32), leaf("offset", Physical::INT64)];
    let schema = Arc::new(Type::group_type_builder("record").with_fields(fields).build().unwrap());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_enabled(false)
        .set_encoding(encoding)
        .build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let mut group = file.next_row_group().unwrap();
    let partitions: Vec<i32> = all.iter().map(|one| one.partition).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&partitions, None, None).unwrap();
    column.close().unwrap();
    let offsets: Vec<i64> = all.iter().map(|one| one.offset).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&offsets, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.into_inner().unwrap().into()
}

fn count_rows(bytes: &Bytes) -> u64 {
    use parquet::{
        column::reader::get_typed_column_reader,
        file::{reader::FileReader, serialized_reader::SerializedFileReader},
    };
    let file = SerializedFileReader::new(bytes.clone()).unwrap();
    let group = file.get_row_group(0).unwrap();
    let rows = group.metadata().num_rows() as usize;
    let mut partitions = Vec::new();
    let mut reader = get_typed_column_reader::<Int32Type>(group.get_column_reader(0).unwrap());
    while reader.read_records(rows, None, None, &mut partitions).unwrap().0 > 0 {}
    let mut offsets = Vec::new();
    let mut reader = get_typed_column_reader::<Int64Type>(group.get_column_reader(1).unwrap());
    while reader.read_records(rows, None, None, &mut offsets).unwrap().0 > 0 {}
    assert_eq!(partitions.len(), offsets.len());
    offsets.len() as u64
}

/// Two offsets, a count and a digest for each partition, as a lane hands them over.
fn handle(all: &[Placed], partitions: u64) -> Handle {
    let lane = LaneId { cluster: Name::new("main").unwrap(), shard: ShardId(0) };
    let of = |partition: i32| {
        let own = all.iter().filter(|one| one.partition == partition);
        let (mut count, mut first, mut last, mut digest) = (0, i64::MAX, 0, 0);
        for one in own {
            (count, first, last) = (count + 1, first.min(one.offset), one.offset);
            // Stands for the running digest, which costs the same a byte.
            digest ^= crc32c([&one.key, one.value.as_bytes()]);
        }
        HandlePartition {
            topic: "orders-large".to_owned(),
            topic_id: TopicId([7; 16]),
            partition,
            first_offset: first,
            last_offset: last,
            count,
            digest: Some(digest),
        }
    };
    Handle {
        cluster_id: "4L6g3nShT-eMCtK--X86sw".to_owned(),
        brokers: "kafka-1:9092,kafka-2:9092".to_owned(),
        transactional_id: lane.transactional_id(&Name::new("orders").unwrap(), Epoch(7)),
        lane,
        identity: Identity { producer_id: ProducerId(9_000), producer_epoch: ProducerEpoch(3) },
        version: TransactionVersion::V2,
        epoch: Epoch(7),
        started_ms: 1_790_000_000_000,
        deadline_ms: 1_790_000_900_000,
        partitions: (0..partitions as i32).map(of).collect(),
    }
}

fn journal(all: &[Placed]) -> Vec<Bytes> {
    let mut parts = Vec::new();
    let mut part = PartWriter::new(&[]);
    for one in all {
        let row = Row {
            topic: "orders-large",
            partition: one.partition,
            timestamp: 1_790_000_000_000 + one.offset,
            key: Some(&one.key),
            value: Some(one.value.as_bytes()),
            headers: Vec::new(),
        };
        part.append(&row).unwrap();
        if part.is_full() {
            parts.push(std::mem::replace(&mut part, PartWriter::new(&[])).finish().unwrap().bytes);
        }
    }
    if part.records() > 0 {
        parts.push(part.finish().unwrap().bytes);
    }
    parts
}

fn read_part(bytes: &Bytes) -> u64 {
    let mut reader = PartReader::open(bytes.clone()).unwrap();
    let mut count = 0;
    while let Some(rows) = reader.next_rows().unwrap() {
        count += rows.iter().filter(|row| row.value.is_some()).count() as u64;
    }
    count
}
