//! Records by value, and the opinion of `kafka-protocol`, which is not ours, on the bytes of a batch.

use bytes::Bytes;
use hapax_kafka::record::{RawBatch, RecordView, Records};
use kafka_protocol::records::RecordBatchDecoder;

/// A record as any reader tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

pub(super) fn own(records: &Records) -> Vec<Owned> {
    let own = |bytes: &[u8]| bytes.to_vec();
    let record = |view: &RecordView| Owned {
        offset: view.offset,
        timestamp: view.timestamp,
        key: records.key(view).map(own),
        value: records.value(view).map(own),
        headers: records.headers(view).map(|(key, value)| (own(key), value.map(own))).collect(),
    };
    records.views().iter().map(record).collect()
}

/// Holds our reading of a batch against that of `kafka-protocol`, behind the broker's decompression, which is a third
/// reader.
///
/// `kafka-protocol` is asked only about what ours accepts: it makes room for as many records as a batch says. What it
/// cannot tell is left out: headers by a name that is not UTF-8 or not the only one of it, times that overflow (it adds
/// without a look), and times that the broker gave (it tells those of the producer).
pub(super) fn compare(whole: &Bytes, batch: &RawBatch, records: &Records) {
    let header = batch.header();
    if header.record_count == 0 {
        return;
    }
    let payload = hapax_broker::fuzz::payload(whole).expect("the broker decompresses what we do");
    assert_eq!(payload, records.slab()[..], "decompressed otherwise than by the broker");
    let brokers = hapax_broker::fuzz::records(whole, &payload).expect("the broker reads what we do");
    let ours = own(records);
    assert_eq!(brokers.len(), ours.len());
    for (one, other) in brokers.iter().zip(&ours) {
        assert_eq!(header.base_offset + i64::from(one.offset_delta), other.offset);
        assert_eq!(one.key.as_deref(), other.key.as_deref());
        assert_eq!(one.value.as_deref(), other.value.as_deref());
        if !header.attributes.is_log_append_time() {
            assert_eq!(header.base_timestamp.wrapping_add(one.timestamp_delta), other.timestamp);
        }
    }
    let overflows =
        |one: &hapax_broker::fuzz::Record| header.base_timestamp.checked_add(one.timestamp_delta).is_none();
    let is_text = |(name, _): &(Vec<u8>, _)| std::str::from_utf8(name).is_ok();
    if brokers.iter().any(overflows) || !ours.iter().all(|record| record.headers.iter().all(is_text)) {
        return;
    }
    let payload = Bytes::from(payload);
    let theirs = RecordBatchDecoder::decode_with_custom_compression(
        &mut whole.clone(),
        Some(|_: &mut Bytes, _| Ok(payload.clone())),
    );
    let theirs = theirs.expect("kafka-protocol reads what we do").records;
    assert_eq!(theirs.len(), ours.len());
    for (one, other) in theirs.iter().zip(&ours) {
        assert_eq!(one.offset, other.offset);
        assert_eq!(one.key.as_deref(), other.key.as_deref());
        assert_eq!(one.value.as_deref(), other.value.as_deref());
        assert_eq!(one.producer_id, header.producer_id);
        assert_eq!(one.producer_epoch, header.producer_epoch);
        assert_eq!(one.transactional, header.attributes.is_transactional());
        assert_eq!(one.control, header.attributes.is_control());
        if !header.attributes.is_log_append_time() {
            assert_eq!(one.timestamp, other.timestamp);
        }
        // It keeps the last of several headers by one name, at the place of the first.
        assert!(one.headers.len() <= other.headers.len());
        for (name, value) in &one.headers {
            let last = other.headers.iter().rev().find(|(known, _)| known == name.as_bytes());
            assert_eq!(last.map(|(_, value)| value.as_deref()), Some(value.as_deref()));
        }
        assert!(
            other.headers.iter().all(|(name, _)| one.headers.keys().any(|known| known.as_bytes() == *name))
        );
    }
}

/// The bytes as a whole batch of format v2: length, format and checksum are made to fit. None where there is no room for
/// a header.
pub(super) fn mended(bytes: &[u8]) -> Option<Bytes> {
    if bytes.len() < hapax_kafka::record::BATCH_HEADER_BYTES {
        return None;
    }
    let mut bytes = bytes.to_vec();
    let length = i32::try_from(bytes.len() - 12).ok()?;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[16] = 2;
    let checksum = hapax_broker::fuzz::checksum(&bytes);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
    Some(bytes.into())
}
