//! Records into a batch: encoded straight into one buffer, without an allocation per record.

use std::mem;

use bytes::Bytes;

use super::compression::{Compression, Compressor};
use super::error::RecordError;
use super::header::BATCH_HEADER_BYTES;
use super::headers::{Headers, field_len};
use super::sealed::SealedBatch;
use super::varint::{VARINT_SLACK, put_varint, put_varlong, varint_len, varlong_len};
use super::view::RecordBody;

/// Bytes of the largest batch, header included: its length on the wire is a positive 32-bit number.
pub const MAX_BATCH_BYTES: usize = i32::MAX as usize;
/// The most that precedes a record's body: its length, attributes, timestamp delta and offset delta.
const MAX_RECORD_PREFIX: usize = 5 + 1 + 10 + 5;
/// The most that the lengths of key and value and the header count take.
const MAX_FIELD_LENGTHS: usize = 3 * 5;
/// Bytes of the largest record body.
const MAX_BODY_BYTES: usize = MAX_BATCH_BYTES - BATCH_HEADER_BYTES - MAX_RECORD_PREFIX;
/// First buffer of a batch whose predecessor tells nothing of its size.
const FIRST_BUFFER_BYTES: usize = 1 << 10;

/// A record to write. Key, value and headers are bytes; nothing is interpreted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null: a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: Headers<'a>,
    /// Milliseconds since the Unix epoch.
    pub timestamp: i64,
}

impl RecordRef<'_> {
    /// Bytes that the record takes in a batch, at most.
    pub fn size_bound(&self) -> usize {
        let fields = self.key.map_or(0, <[u8]>::len).saturating_add(self.value.map_or(0, <[u8]>::len));
        let headers = usize::try_from(self.headers.encoded_len()).unwrap_or(usize::MAX);
        fields.saturating_add(headers).saturating_add(MAX_RECORD_PREFIX + MAX_FIELD_LENGTHS)
    }

    fn body_len(&self) -> u64 {
        let count = varint_len(self.headers.count() as i32) as u64;
        field_len(self.key) + field_len(self.value) + count + self.headers.encoded_len()
    }
}

/// A batch that is being filled. After [`BatchBuilder::seal`] it is empty and serves the next one.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    records: RecordBuffer,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    /// Where the body of the last record begins.
    last_body: usize,
    /// Size of the batch before this one, as a guess of this one's.
    expected: usize,
}

impl BatchBuilder {
    /// An empty batch; its buffer comes with its first record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the batch if it were sealed now without compression.
    pub fn len(&self) -> usize {
        BATCH_HEADER_BYTES + self.records.len()
    }

    /// Number of records.
    pub fn count(&self) -> u32 {
        self.count as u32
    }

    /// There is no record yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A record of at most `size` bytes can be pushed without the batch growing beyond `limit` bytes. An empty batch
    /// takes a record of any size that the format allows: whether it is too large is for the broker to say.
    pub fn fits(&self, size: usize, limit: usize) -> bool {
        let grown = self.len().saturating_add(size);
        self.is_empty() || (grown <= limit.min(MAX_BATCH_BYTES) && self.count < i32::MAX)
    }

    /// Encodes a record; returns the bytes that it took.
    ///
    /// # Errors
    /// [`RecordError::RecordTooLarge`] and [`RecordError::BatchFull`]; the batch is then as before.
    pub fn push(&mut self, record: &RecordRef<'_>) -> Result<usize, RecordError> {
        let before = self.records.len();
        self.begin(record.timestamp, record.body_len())?;
        self.records.put_field(record.key);
        self.records.put_field(record.value);
        self.records.put_varint(record.headers.count() as i32);
        match record.headers {
            Headers::List(list) => {
                for (key, value) in list {
                    self.records.put_field(Some(key));
                    self.records.put_field(*value);
                }
            }
            Headers::Encoded(encoded) => self.records.put(encoded.as_bytes()),
        }
        Ok(self.records.len() - before)
    }

    /// Writes a record whose key, value and headers are already encoded; returns the bytes that it took.
    ///
    /// # Errors
    /// As [`BatchBuilder::push`].
    pub fn push_body(&mut self, body: RecordBody<'_>, timestamp: i64) -> Result<usize, RecordError> {
        let before = self.records.len();
        self.begin(timestamp, body.as_bytes().len() as u64)?;
        self.records.put(body.as_bytes());
        Ok(self.records.len() - before)
    }

    /// The record that was pushed last, for the digest. Only while the batch is not empty.
    pub fn last_body(&self) -> RecordBody<'_> {
        RecordBody::trusted(&self.records.as_slice()[self.last_body..])
    }

    /// Ends the batch: compresses it and leaves the builder empty. `None` if there is no record.
    pub fn seal(&mut self, compression: Compression, compressor: &mut Compressor) -> Option<SealedBatch> {
        if self.is_empty() {
            return None;
        }
        let records_len = self.records.len();
        self.expected = records_len;
        let payload = if compression == Compression::None {
            self.records.take()
        } else {
            Bytes::copy_from_slice(compressor.compress(compression, self.records.as_slice()))
        };
        let sealed = SealedBatch {
            payload,
            compression,
            count: self.count,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            records_len,
        };
        self.clear();
        Some(sealed)
    }

    /// Drops all records.
    pub fn clear(&mut self) {
        self.records.clear();
        self.count = 0;
        self.last_body = 0;
    }

    /// Writes what precedes the body of the next record, and counts the record.
    fn begin(&mut self, timestamp: i64, body_len: u64) -> Result<(), RecordError> {
        if body_len > MAX_BODY_BYTES as u64 {
            return Err(RecordError::RecordTooLarge { bytes: body_len, limit: MAX_BODY_BYTES });
        }
        let body_len = body_len as usize;
        let bound = body_len + MAX_RECORD_PREFIX;
        if self.count == i32::MAX || bound > MAX_BATCH_BYTES - self.len() {
            return Err(RecordError::BatchFull { bytes: body_len as u64 });
        }
        if self.is_empty() {
            self.base_timestamp = timestamp;
            self.max_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.records.reserve(bound, self.expected);
        // The format's deltas wrap as Java's do, so every pair of timestamps has one.
        let delta = timestamp.wrapping_sub(self.base_timestamp);
        let length = 1 + varlong_len(delta) + varint_len(self.count) + body_len;
        self.records.put_varint(length as i32);
        self.records.put_byte(0);
        self.records.put_varlong(delta);
        self.records.put_varint(self.count);
        self.last_body = self.records.len();
        self.count += 1;
        Ok(())
    }
}

/// Bytes that are written one after another. All of `bytes` is initialised and there is always some slack behind what
/// is reserved, so that a number is one store of a fixed size, of which only a part counts.
#[derive(Debug, Default)]
struct RecordBuffer {
    bytes: Vec<u8>,
    len: usize,
}

impl RecordBuffer {
    fn len(&self) -> usize {
        self.len
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Makes room for `more` bytes and the slack; a buffer that is new begins with `expected` bytes.
    fn reserve(&mut self, more: usize, expected: usize) {
        let needed = self.len + more + VARINT_SLACK;
        if needed > self.bytes.len() {
            let target =
                needed.max(self.bytes.len() * 2).max(expected + expected / 8).max(FIRST_BUFFER_BYTES);
            self.bytes.resize(target, 0);
        }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    fn put_varint(&mut self, value: i32) {
        put_varint(&mut self.bytes, &mut self.len, value);
    }

    #[inline]
    fn put_varlong(&mut self, value: i64) {
        put_varlong(&mut self.bytes, &mut self.len, value);
    }

    #[inline]
    fn put_field(&mut self, field: Option<&[u8]>) {
        match field {
            None => self.put_varint(-1),
            Some(bytes) => {
                self.put_varint(bytes.len() as i32);
                self.put(bytes);
            }
        }
    }

    fn take(&mut self) -> Bytes {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.truncate(self.len);
        bytes.into()
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}
