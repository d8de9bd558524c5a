//! Records that are drawn from the input, through our encoder.
//!
//! Property: what it writes is read by `kafka-protocol` and by the broker's reader as the same records, in every codec; so
//! it is by ours, with the same digest; the checksum is the one that the broker computes; no record takes more than was
//! said before; and the two halves of a batch that is split are the whole.

use super::record::{Owned, compare, own};
use crate::draw::Draw;
use hapax_kafka::record::{
    BatchBuilder, Compression, Compressor, Decompressor, Header, Headers, RawBatch, RecordDigest, RecordRef,
    SealedBatch, Stamp,
};

/// Records of a batch: each costs three readers and an encoder.
const MOST: usize = 256;
const LIMIT: usize = 64 << 20;

/// Runs it.
pub fn run(input: &[u8]) {
    let mut draw = Draw::new(input);
    let compression = Compression::ALL[usize::from(draw.below(5))];
    let stamp = stamp(&mut draw);
    let mut records = Vec::new();
    while !draw.is_empty() && records.len() < MOST {
        records.push(record(&mut draw, records.len() as i64));
    }
    let mut builder = BatchBuilder::new();
    let mut written = RecordDigest::new();
    for record in &records {
        push(&mut builder, record);
        written.update(builder.last_body());
    }
    let mut compressor = Compressor::new();
    let Some(sealed) = builder.seal(compression, &mut compressor) else { return };
    let mut read = RecordDigest::new();
    assert_eq!(read_back(&sealed, stamp, &mut read), records);
    assert_eq!(read.value(), written.value());
    let Some((first, second)) = sealed.split(&mut compressor).expect("it was made just now") else { return };
    let mut halves = RecordDigest::new();
    let mut back = read_back(&first, stamp, &mut halves);
    back.extend(read_back(&second, stamp, &mut halves));
    back.iter_mut().zip(0..).for_each(|(record, offset)| record.offset = offset);
    assert_eq!(back, records);
    assert_eq!(halves.value(), written.value());
}

fn stamp(draw: &mut Draw<'_>) -> Stamp {
    match draw.below(3) {
        0 => Stamp::NONE,
        kind => Stamp {
            producer_id: i64::from(draw.u16()),
            producer_epoch: i16::from_be_bytes([draw.byte() & 0x7f, draw.byte()]),
            base_sequence: draw.i32() & i32::MAX,
            transactional: kind == 2,
        },
    }
}

fn record(draw: &mut Draw<'_>, offset: i64) -> Owned {
    let kinds = draw.byte();
    let timestamp = match kinds & 3 {
        0 => 1_700_000_000_000,
        1 => 1_700_000_000_000 + i64::from(draw.byte()),
        2 => i64::from(draw.i32()),
        _ => draw.i64(),
    };
    let key = field(draw, kinds >> 2);
    let value = field(draw, kinds >> 4);
    let headers = (0..kinds >> 6).map(|_| (field(draw, 1).unwrap_or_default(), field(draw, 2)));
    Owned { offset, timestamp, key, value, headers: headers.collect() }
}

/// Null, short, short or null, or a piece that repeats itself, so that it compresses.
fn field(draw: &mut Draw<'_>, kind: u8) -> Option<Vec<u8>> {
    let length = usize::from(draw.byte());
    match kind & 3 {
        0 => None,
        1 => Some(draw.take(length % 32).to_vec()),
        2 => (length != 0).then(|| draw.take(length).to_vec()),
        _ => {
            let times = 1 + usize::from(draw.byte());
            Some(draw.take(length % 64).repeat(times))
        }
    }
}

fn push(builder: &mut BatchBuilder, record: &Owned) {
    let headers: Vec<Header<'_>> =
        record.headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
    let record = RecordRef {
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: Headers::List(&headers),
        timestamp: record.timestamp,
    };
    let took = builder.push(&record).expect("there is room for small records");
    assert!(took <= record.size_bound());
}

fn read_back(sealed: &SealedBatch, stamp: Stamp, digest: &mut RecordDigest) -> Vec<Owned> {
    let bytes = sealed.stamp(stamp).to_bytes();
    assert_eq!(bytes.len(), sealed.len());
    let batch = RawBatch::parse(bytes.clone()).expect("our own batch");
    batch.verify_crc().expect("our own checksum");
    let header = batch.header();
    assert_eq!(header.crc, hapax_broker::fuzz::checksum(&bytes), "the broker computes another checksum");
    assert_eq!(
        (header.record_count as u32, header.last_offset_delta),
        (sealed.count(), header.record_count - 1)
    );
    let records = batch.decode(&mut Decompressor::new(LIMIT)).expect("our own records");
    assert_eq!(records.slab().len(), sealed.records_len());
    digest.update_all(&records);
    compare(&bytes, &batch, &records);
    let owned = own(&records);
    assert_eq!(owned.iter().map(|record| record.timestamp).max(), Some(header.max_timestamp));
    owned
}
