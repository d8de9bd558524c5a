//! Any bytes as a record set, and as one batch whose length and checksum fit.
//!
//! Property: reading them never panics and never takes memory out of proportion; what is read as a batch is read alike by
//! the broker's reader and by `kafka-protocol` (offsets, times, keys, values, headers), in every codec; and its records
//! survive our encoder. Everything else is an error.

use super::record::{compare, mended, own};
use crate::memory;
use bytes::Bytes;
use hapax_kafka::record::{
    BatchBuilder, Batches, Compression, Compressor, Decompressor, RawBatch, Records, Stamp,
};

/// Decompressed bytes of a batch.
const LIMIT: usize = 1 << 20;

/// The decompressed bytes, twice while they are copied; views of records that have 7 bytes each; the codecs' windows.
const MEMORY: usize = 32 << 20;

/// Runs it.
pub fn run(input: &[u8]) {
    memory::within(MEMORY + 16 * input.len(), "reading a record set", || {
        let mut decompressor = Decompressor::new(LIMIT);
        for batch in Batches::new(Bytes::copy_from_slice(input)).map_while(Result::ok) {
            drop(batch.verify_crc());
            drop(batch.control());
            drop(batch.decode(&mut decompressor));
        }
    });
    let Some(whole) = mended(input) else { return };
    let Ok(batch) = RawBatch::parse(whole.clone()) else { return };
    batch.verify_crc().expect("the checksum is that of the broker");
    drop(batch.control());
    let decoded = memory::within(MEMORY + 16 * input.len(), "reading a batch", || {
        batch.decode(&mut Decompressor::new(LIMIT))
    });
    if let Ok(records) = decoded {
        assert!(records.len() == batch.header().record_count as usize);
        compare(&whole, &batch, &records);
        passed_on(&records);
    }
}

/// Records go out as the bytes that they came in.
fn passed_on(records: &Records) {
    let mut builder = BatchBuilder::new();
    for view in records.views() {
        builder.push_body(records.body(view), view.timestamp).expect("there is room for what had room");
        assert_eq!(builder.last_body(), records.body(view));
    }
    let Some(sealed) = builder.seal(Compression::None, &mut Compressor::new()) else { return };
    let batch = RawBatch::parse(sealed.stamp(Stamp::NONE).to_bytes()).expect("our own batch");
    batch.verify_crc().expect("our own checksum");
    let again = batch.decode(&mut Decompressor::new(LIMIT)).expect("our own records");
    let strip = |mut all: Vec<super::record::Owned>| {
        // Offsets are given anew.
        all.iter_mut().for_each(|record| record.offset = 0);
        all
    };
    assert_eq!(strip(own(&again)), strip(own(records)));
}
