//! A fetched record set into batches, and a batch into records.
//!
//! A broker cuts a record set at the byte limit of the fetch, so its last batch may be there in part: that ends the
//! iteration and is no error. Every length is held against the bytes that are there before it is used.

use std::ops::Range;

use bytes::Bytes;

use crate::limits::MAX_FETCHED_BATCH;

use super::compression::{Compression, Decompressor};
use super::control::{self, ControlRecord};
use super::crc::crc32c;
use super::error::RecordError;
use super::header::{
    BATCH_HEADER_BYTES, BatchHeader, CRC_START, LENGTH_OVERHEAD, MAGIC, PREFIX_BYTES, parse_prefix,
};
use super::headers::{get_field, skip_headers};
use super::varint::{get_varint, get_varlong};
use super::view::{RecordView, Records};

/// Bytes of the shortest record: length, attributes, two deltas, null key, null value, no headers.
const MIN_RECORD_BYTES: usize = 7;

/// The batches of a record set, in order. Ends at a batch that is cut, and after the first error.
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
    failed: bool,
}

impl Batches {
    /// Over the records field of one partition of a Fetch response.
    pub fn new(record_set: Bytes) -> Self {
        Self { rest: record_set, failed: false }
    }

    /// Size of the batch that comes next and is not there in whole, in bytes. A fetch that returned nothing but such
    /// a batch must be made again with at least this limit. `None` if there is no such batch.
    pub fn cut_batch_bytes(&self) -> Option<usize> {
        let prefix = self.rest.first_chunk::<PREFIX_BYTES>()?;
        let needed = LENGTH_OVERHEAD + usize::try_from(parse_prefix(prefix).1).ok()?;
        (needed > self.rest.len() && !self.failed).then_some(needed)
    }

    fn parse_next(&mut self) -> Result<Option<RawBatch>, RecordError> {
        let Some(prefix) = self.rest.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let (offset, length, magic) = parse_prefix(prefix);
        if magic != MAGIC {
            return Err(RecordError::UnsupportedMagic { offset, magic });
        }
        let whole = usize::try_from(length).map_or(0, |length| LENGTH_OVERHEAD + length);
        if whole < BATCH_HEADER_BYTES {
            return Err(RecordError::MalformedBatch {
                offset,
                reason: "its length is shorter than its header",
            });
        }
        if whole > MAX_FETCHED_BATCH {
            return Err(RecordError::BatchTooLarge { offset, bytes: whole, limit: MAX_FETCHED_BATCH });
        }
        if whole > self.rest.len() {
            return Ok(None);
        }
        RawBatch::parse(self.rest.split_to(whole)).map(Some)
    }
}

impl Iterator for Batches {
    type Item = Result<RawBatch, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.parse_next();
        self.failed = next.is_err();
        next.transpose()
    }
}

/// One whole batch whose header is read and whose records are not.
#[derive(Debug, Clone)]
pub struct RawBatch {
    header: BatchHeader,
    bytes: Bytes,
}

impl RawBatch {
    /// Takes `bytes` as one batch and nothing else.
    ///
    /// # Errors
    /// When they are not, as far as the header tells. The records are not looked at.
    pub fn parse(bytes: Bytes) -> Result<Self, RecordError> {
        let Some(head) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(RecordError::MalformedBatch {
                offset: -1,
                reason: "it is shorter than a batch header",
            });
        };
        let header = BatchHeader::parse(head)?;
        if usize::try_from(header.batch_length).ok() != Some(bytes.len() - LENGTH_OVERHEAD) {
            let reason = "its length is not that of its bytes";
            return Err(RecordError::MalformedBatch { offset: header.base_offset, reason });
        }
        Ok(Self { header, bytes })
    }

    /// The fields before the records.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch as it was fetched.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Compares the batch's checksum with its bytes.
    ///
    /// # Errors
    /// [`RecordError::CrcMismatch`].
    pub fn verify_crc(&self) -> Result<(), RecordError> {
        let computed = crc32c(&self.bytes[CRC_START..]);
        let BatchHeader { base_offset: offset, crc: stored, .. } = self.header;
        if computed == stored { Ok(()) } else { Err(RecordError::CrcMismatch { offset, stored, computed }) }
    }

    /// The records, markers of control batches too. Does not look at the checksum.
    ///
    /// # Errors
    /// When the batch does not decompress within the decompressor's limit, or a record is malformed.
    pub fn decode(&self, decompressor: &mut Decompressor) -> Result<Records, RecordError> {
        self.decode_reusing(decompressor, Vec::new())
    }

    /// As [`RawBatch::decode`], with the memory of another batch's views.
    ///
    /// # Errors
    /// As [`RawBatch::decode`].
    pub fn decode_reusing(
        &self,
        decompressor: &mut Decompressor,
        mut views: Vec<RecordView>,
    ) -> Result<Records, RecordError> {
        views.clear();
        if self.header.record_count == 0 {
            return Ok(Records::new(Bytes::new(), views));
        }
        let payload = self.bytes.slice(BATCH_HEADER_BYTES..);
        let slab = match self.header.compression()? {
            Compression::None => payload,
            codec => {
                Bytes::copy_from_slice(decompressor.decompress(codec, &payload, self.header.base_offset)?)
            }
        };
        self.read_records(&slab, &mut views)?;
        Ok(Records::new(slab, views))
    }

    /// The marker of a control batch. `None` for a batch of records, and for a control batch whose marker was
    /// cleaned away.
    ///
    /// # Errors
    /// When the marker is malformed.
    pub fn control(&self) -> Result<Option<ControlRecord>, RecordError> {
        if !self.header.attributes.is_control() || self.header.record_count == 0 {
            return Ok(None);
        }
        let records = self.decode(&mut Decompressor::new(control::MAX_CONTROL_BYTES))?;
        let Some(view) = records.views().first() else {
            return Ok(None);
        };
        let parsed = ControlRecord::parse(records.key(view), records.value(view));
        parsed
            .map(Some)
            .map_err(|reason| RecordError::MalformedBatch { offset: self.header.base_offset, reason })
    }

    fn read_records(&self, slab: &[u8], views: &mut Vec<RecordView>) -> Result<(), RecordError> {
        let header = &self.header;
        let malformed = |reason| RecordError::MalformedBatch { offset: header.base_offset, reason };
        let count = header.record_count as usize;
        if count.saturating_mul(MIN_RECORD_BYTES) > slab.len() {
            return Err(malformed("it counts more records than its bytes can hold"));
        }
        views.reserve_exact(count);
        let log_append = header.attributes.is_log_append_time().then_some(header.max_timestamp);
        let mut cursor = RecordCursor::new(slab, header.base_offset);
        let mut expected = 0;
        for _ in 0..count {
            let record = cursor.next()?;
            if record.offset_delta < expected || record.offset_delta > header.last_offset_delta {
                return Err(RecordError::MalformedRecord {
                    offset: header.base_offset,
                    index: views.len() as u32,
                    reason: "its offset is out of order or out of range",
                });
            }
            // The last possible delta is `i32::MAX`; whatever follows it is out of range already.
            expected = record.offset_delta.saturating_add(1);
            views.push(RecordView {
                offset: header.base_offset + i64::from(record.offset_delta),
                timestamp: log_append
                    .unwrap_or_else(|| header.base_timestamp.wrapping_add(record.timestamp_delta)),
                key: record.key,
                value: record.value,
                headers: record.headers,
                header_count: record.header_count,
                body: record.body,
            });
        }
        if cursor.at == slab.len() { Ok(()) } else { Err(malformed("bytes are left after its last record")) }
    }
}

/// One record, relative to its batch and to the slab.
pub(super) struct RawRecord {
    pub(super) timestamp_delta: i64,
    offset_delta: i32,
    key: Option<Range<u32>>,
    value: Option<Range<u32>>,
    headers: Range<u32>,
    header_count: u32,
    body: u32,
}

/// Walks the records of an uncompressed slab, which is shorter than 4 GiB.
pub(super) struct RecordCursor<'a> {
    slab: &'a [u8],
    at: usize,
    index: u32,
    base_offset: i64,
}

impl<'a> RecordCursor<'a> {
    pub(super) fn new(slab: &'a [u8], base_offset: i64) -> Self {
        Self { slab, at: 0, index: 0, base_offset }
    }

    pub(super) fn next(&mut self) -> Result<RawRecord, RecordError> {
        let record = self.parse().map_err(|reason| self.malformed(reason))?;
        self.at = record.headers.end as usize;
        self.index += 1;
        Ok(record)
    }

    pub(super) fn body(&self, record: &RawRecord) -> &'a [u8] {
        &self.slab[record.body as usize..record.headers.end as usize]
    }

    /// An error about the record that comes next.
    fn malformed(&self, reason: &'static str) -> RecordError {
        RecordError::MalformedRecord { offset: self.base_offset, index: self.index, reason }
    }

    #[inline]
    fn parse(&self) -> Result<RawRecord, &'static str> {
        const CUT: &str = "it is cut or a number in it is too wide";
        let mut at = self.at;
        let length = get_varint(self.slab, &mut at).ok_or(CUT)?;
        let length = usize::try_from(length).map_err(|_| "its length is negative")?;
        if length > self.slab.len() - at {
            return Err("it is longer than what is left of its batch");
        }
        let bytes = &self.slab[..at + length];
        // Record attributes: none are defined, and Java ignores them.
        at += 1;
        let timestamp_delta = get_varlong(bytes, &mut at).ok_or(CUT)?;
        let offset_delta = get_varint(bytes, &mut at).ok_or(CUT)?;
        let body = at as u32;
        let key = get_field(bytes, &mut at)?;
        let value = get_field(bytes, &mut at)?;
        let header_count = get_varint(bytes, &mut at).ok_or(CUT)?;
        let header_count = u32::try_from(header_count).map_err(|_| "its header count is negative")?;
        let headers = at as u32;
        skip_headers(bytes, &mut at, header_count)?;
        if at != bytes.len() {
            return Err("bytes are left after its last header");
        }
        let narrow = |range: Range<usize>| range.start as u32..range.end as u32;
        Ok(RawRecord {
            timestamp_delta,
            offset_delta,
            key: key.map(narrow),
            value: value.map(narrow),
            headers: headers..at as u32,
            header_count,
            body,
        })
    }
}
