//! The 61 bytes before the records of a batch, format v2, big endian.
//!
//! ```text
//!   0 base offset       8   23 last offset delta  4   53 base sequence  4
//!   8 batch length      4   27 base timestamp     8   57 record count   4
//!  12 leader epoch      4   35 max timestamp      8   61 records
//!  16 magic             1   43 producer id        8
//!  17 CRC-32C of 21..   4   51 producer epoch     2
//!  21 attributes        2
//! ```

use super::compression::{Compression, UnknownCompression};
use super::error::RecordError;

/// Bytes before the first record of a batch.
pub const BATCH_HEADER_BYTES: usize = 61;
/// Bytes that the batch length does not count: base offset and the length itself.
pub(super) const LENGTH_OVERHEAD: usize = 12;
/// Bytes from the start of a batch to its magic, and past it: enough to tell its length and format.
pub(super) const PREFIX_BYTES: usize = 17;
/// Where the bytes begin that the CRC covers.
pub(super) const CRC_START: usize = 21;
/// The only message format that is read or written.
pub(super) const MAGIC: i8 = 2;

const CRC_AT: usize = 17;
const COMPRESSION_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

/// The bits of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attributes(i16);

impl Attributes {
    pub(super) fn new(compression: Compression, transactional: bool) -> Self {
        let bit = if transactional { TRANSACTIONAL } else { 0 };
        Self(i16::from(compression.code()) | bit)
    }

    /// The bits as on the wire.
    pub fn bits(self) -> i16 {
        self.0
    }

    /// How the records are compressed.
    ///
    /// # Errors
    /// When the code is none of Kafka's.
    pub fn compression(self) -> Result<Compression, UnknownCompression> {
        Compression::from_code((self.0 & COMPRESSION_MASK) as u8)
    }

    /// The broker gave all records one timestamp, the batch's maximum.
    pub fn is_log_append_time(self) -> bool {
        self.0 & LOG_APPEND_TIME != 0
    }

    /// The batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & TRANSACTIONAL != 0
    }

    /// The batch holds a marker of the broker, not records of a producer.
    pub fn is_control(self) -> bool {
        self.0 & CONTROL != 0
    }

    /// The base timestamp is the time at which tombstones and markers of the batch may be removed.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & DELETE_HORIZON != 0
    }
}

/// All fields before the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset that the records' deltas are relative to.
    pub base_offset: i64,
    /// Bytes of the batch after this field.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch, -1 before that.
    pub partition_leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: Attributes,
    /// Offset of the last record that was written, relative to the base, whether it is still there or not.
    pub last_offset_delta: i32,
    /// Time that the records' deltas are relative to, milliseconds since the Unix epoch.
    pub base_timestamp: i64,
    /// Newest timestamp of the records, milliseconds since the Unix epoch.
    pub max_timestamp: i64,
    /// Producer id, -1 for none.
    pub producer_id: i64,
    /// Producer epoch, -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 for none.
    pub base_sequence: i32,
    /// Number of records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header of a batch of which at least [`BATCH_HEADER_BYTES`] are there.
    pub(super) fn parse(bytes: &[u8; BATCH_HEADER_BYTES]) -> Result<Self, RecordError> {
        let header = Self {
            base_offset: i64::from_be_bytes(field(bytes, 0)),
            batch_length: i32::from_be_bytes(field(bytes, 8)),
            partition_leader_epoch: i32::from_be_bytes(field(bytes, 12)),
            crc: u32::from_be_bytes(field(bytes, CRC_AT)),
            attributes: Attributes(i16::from_be_bytes(field(bytes, CRC_START))),
            last_offset_delta: i32::from_be_bytes(field(bytes, 23)),
            base_timestamp: i64::from_be_bytes(field(bytes, 27)),
            max_timestamp: i64::from_be_bytes(field(bytes, 35)),
            producer_id: i64::from_be_bytes(field(bytes, 43)),
            producer_epoch: i16::from_be_bytes(field(bytes, 51)),
            base_sequence: i32::from_be_bytes(field(bytes, 53)),
            record_count: i32::from_be_bytes(field(bytes, 57)),
        };
        header.check(i8::from_be_bytes(field(bytes, 16)))?;
        Ok(header)
    }

    fn check(&self, magic: i8) -> Result<(), RecordError> {
        if magic != MAGIC {
            return Err(RecordError::UnsupportedMagic { offset: self.base_offset, magic });
        }
        let wrong = |reason| Err(RecordError::MalformedBatch { offset: self.base_offset, reason });
        if self.base_offset < 0
            || self.base_offset.checked_add(i64::from(self.last_offset_delta) + 1).is_none()
        {
            return wrong("its offsets are out of range");
        }
        if self.last_offset_delta < 0 {
            return wrong("its last offset delta is negative");
        }
        if self.record_count < 0 {
            return wrong("its record count is negative");
        }
        if i64::from(self.record_count) > i64::from(self.last_offset_delta) + 1 {
            return wrong("it counts more records than it has offsets");
        }
        Ok(())
    }

    /// Writes all fields but the CRC, which is only known once the rest stands: see [`write_crc`].
    pub(super) fn write(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut out = [0; BATCH_HEADER_BYTES];
        put(&mut out, 0, &self.base_offset.to_be_bytes());
        put(&mut out, 8, &self.batch_length.to_be_bytes());
        put(&mut out, 12, &self.partition_leader_epoch.to_be_bytes());
        put(&mut out, 16, &MAGIC.to_be_bytes());
        put(&mut out, CRC_START, &self.attributes.0.to_be_bytes());
        put(&mut out, 23, &self.last_offset_delta.to_be_bytes());
        put(&mut out, 27, &self.base_timestamp.to_be_bytes());
        put(&mut out, 35, &self.max_timestamp.to_be_bytes());
        put(&mut out, 43, &self.producer_id.to_be_bytes());
        put(&mut out, 51, &self.producer_epoch.to_be_bytes());
        put(&mut out, 53, &self.base_sequence.to_be_bytes());
        put(&mut out, 57, &self.record_count.to_be_bytes());
        out
    }

    /// Offset of the last record that was written into this batch.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// The position after this batch, also when its last records were compacted away.
    pub fn next_offset(&self) -> i64 {
        self.last_offset() + 1
    }

    /// From when on the batch's tombstones and markers may be removed, in milliseconds since the Unix epoch.
    pub fn delete_horizon(&self) -> Option<i64> {
        self.attributes.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// How the records are compressed.
    ///
    /// # Errors
    /// When the code is none of Kafka's.
    pub fn compression(&self) -> Result<Compression, RecordError> {
        self.attributes
            .compression()
            .map_err(|e| RecordError::UnknownCompression { offset: self.base_offset, code: e.code })
    }
}

/// Base offset, batch length and magic of what begins with `prefix`.
pub(super) fn parse_prefix(prefix: &[u8; PREFIX_BYTES]) -> (i64, i32, i8) {
    let offset = i64::from_be_bytes(field(prefix, 0));
    let length = i32::from_be_bytes(field(prefix, 8));
    (offset, length, i8::from_be_bytes(field(prefix, 16)))
}

pub(super) fn write_crc(header: &mut [u8; BATCH_HEADER_BYTES], crc: u32) {
    put(header, CRC_AT, &crc.to_be_bytes());
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}
