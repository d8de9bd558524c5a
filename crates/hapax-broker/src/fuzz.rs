//! The broker's readers of bytes without a broker, for fuzz targets alone.

use crate::{batch, codec};
use bytes::Bytes;

pub use crate::state::fuzz::{
    Logged, group_rewritten, offset_rewritten, offsets_key, transaction, transaction_key,
    transaction_rewritten, transactional_id,
};

/// A record as the broker reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Behind the batch's base offset.
    pub offset_delta: i32,
    /// Behind the batch's base timestamp.
    pub timestamp_delta: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
}

/// What is behind the header of a batch, uncompressed; none where it is damaged.
pub fn payload(bytes: &[u8]) -> Option<Vec<u8>> {
    let header = batch::Header::read(bytes).ok()?;
    let payload = codec::payload(&bytes[batch::HEADER..header.size], &header).ok()?;
    Some(payload.into_owned())
}

/// The records behind a header, once uncompressed; none where one of them is damaged, or bytes are left.
pub fn records(bytes: &[u8], payload: &[u8]) -> Option<Vec<Record>> {
    let header = batch::Header::read(bytes).ok()?;
    let own = |field: Option<&[u8]>| field.map(Bytes::copy_from_slice);
    let records = batch::Records::new(payload, header.count).map(|record| {
        record.ok().map(|record| Record {
            offset_delta: record.offset_delta,
            timestamp_delta: record.timestamp_delta,
            key: own(record.key),
            value: own(record.value),
        })
    });
    records.collect()
}

/// The checksum that a batch should carry.
pub fn checksum(bytes: &[u8]) -> u32 {
    batch::checksum(bytes)
}
