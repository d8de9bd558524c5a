//! A batch whose records stand, and what is put before them when it is sent.
//!
//! Identity and sequence are no part of a sealed batch: the same batch is stamped again when they change, and its
//! payload is neither copied nor compressed again.

use bytes::Bytes;

use super::compression::{Compression, Compressor, Decompressor};
use super::crc::RunningCrc;
use super::decode::RecordCursor;
use super::encode::BatchBuilder;
use super::error::RecordError;
use super::header::{Attributes, BATCH_HEADER_BYTES, BatchHeader, CRC_START, LENGTH_OVERHEAD, write_crc};
use super::view::RecordBody;

/// A batch that is complete but for its identity.
#[derive(Debug, Clone)]
pub struct SealedBatch {
    pub(super) payload: Bytes,
    pub(super) compression: Compression,
    pub(super) count: i32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    /// Bytes of the records before compression.
    pub(super) records_len: usize,
}

/// Whose batch it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Producer id, -1 for none.
    pub producer_id: i64,
    /// Producer epoch, -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record in its partition, -1 for none.
    pub base_sequence: i32,
    /// The batch belongs to the producer's open transaction.
    pub transactional: bool,
}

impl Stamp {
    /// Neither idempotent nor transactional.
    pub const NONE: Self =
        Self { producer_id: -1, producer_epoch: -1, base_sequence: -1, transactional: false };
}

/// A batch as it goes on the wire, in two pieces so that the payload is not copied.
#[derive(Debug, Clone)]
pub struct StampedBatch {
    /// Everything before the records, checksum included.
    pub header: [u8; BATCH_HEADER_BYTES],
    /// The records.
    pub payload: Bytes,
}

impl StampedBatch {
    /// Bytes on the wire.
    pub fn len(&self) -> usize {
        BATCH_HEADER_BYTES + self.payload.len()
    }

    /// Never: a batch has at least its header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Both pieces in one buffer: a copy.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.len());
        out.extend_from_slice(&self.header);
        out.extend_from_slice(&self.payload);
        out.into()
    }
}

impl SealedBatch {
    /// Bytes on the wire.
    pub fn len(&self) -> usize {
        BATCH_HEADER_BYTES + self.payload.len()
    }

    /// Never: only a batch with records is sealed.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Number of records, which is also the number of sequences that the batch takes.
    pub fn count(&self) -> u32 {
        self.count as u32
    }

    /// Bytes of the records before compression.
    pub fn records_len(&self) -> usize {
        self.records_len
    }

    /// How the records are compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Newest timestamp of the records, milliseconds since the Unix epoch.
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// The batch under an identity, ready to be sent.
    pub fn stamp(&self, stamp: Stamp) -> StampedBatch {
        let mut header = BatchHeader {
            base_offset: 0,
            batch_length: (self.len() - LENGTH_OVERHEAD) as i32,
            partition_leader_epoch: -1,
            crc: 0,
            attributes: Attributes::new(self.compression, stamp.transactional),
            last_offset_delta: self.count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: stamp.producer_id,
            producer_epoch: stamp.producer_epoch,
            base_sequence: stamp.base_sequence,
            record_count: self.count,
        }
        .write();
        let mut crc = RunningCrc::new();
        crc.update(&header[CRC_START..]);
        crc.update(&self.payload);
        write_crc(&mut header, crc.value());
        StampedBatch { header, payload: self.payload.clone() }
    }

    /// Two batches with the same records in the same order, each with about half of them; `None` for a batch of one
    /// record. The codec stays the same.
    ///
    /// # Errors
    /// When the batch does not decompress any more: its memory was damaged.
    pub fn split(&self, compressor: &mut Compressor) -> Result<Option<(Self, Self)>, RecordError> {
        if self.count < 2 {
            return Ok(None);
        }
        let mut decompressor = Decompressor::new(self.records_len);
        let records = match self.compression {
            Compression::None => &self.payload[..],
            codec => decompressor.decompress(codec, &self.payload, 0)?,
        };
        let mut cursor = RecordCursor::new(records, 0);
        let first = self.half(&mut cursor, self.count / 2, compressor)?;
        let second = self.half(&mut cursor, self.count - self.count / 2, compressor)?;
        Ok(Some((first, second)))
    }

    fn half(
        &self,
        cursor: &mut RecordCursor<'_>,
        count: i32,
        compressor: &mut Compressor,
    ) -> Result<Self, RecordError> {
        let mut builder = BatchBuilder::new();
        for _ in 0..count {
            let record = cursor.next()?;
            let timestamp = self.base_timestamp.wrapping_add(record.timestamp_delta);
            builder.push_body(RecordBody::trusted(cursor.body(&record)), timestamp)?;
        }
        Ok(builder.seal(self.compression, compressor).expect("each half of two records or more has one"))
    }
}
