//! Record batches of format v2 (`DefaultRecordBatch`): header, checksum, records, and the few batches that a broker
//! writes itself. A second reader beside the client's on purpose: one mistake must not hide in both.
//!
//! ```text
//! 0 base offset | 8 length | 12 leader epoch | 16 magic | 17 CRC-32C of all that follows | 21 attributes
//! 23 last offset delta | 27 base timestamp | 35 max timestamp | 43 producer id | 51 epoch | 53 sequence | 57 count | 61
//! ```
//!
//! What comes from a client is taken as it is, byte by byte: only the offset, the leader epoch and, where the topic
//! wants it, the timestamps are replaced. Never panics on any bytes.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before the first record.
pub(crate) const HEADER: usize = 61;
/// Bytes before what the length field counts.
pub(crate) const PREFIX: usize = 12;

const LEADER_EPOCH_AT: usize = 12;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;
const COUNT_AT: usize = 57;
const CODEC: i16 = 0b111;
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

/// What a batch says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) base_offset: i64,
    /// Bytes of the whole batch.
    pub(crate) size: usize,
    pub(crate) leader_epoch: i32,
    pub(crate) magic: i8,
    pub(crate) crc: u32,
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) count: i32,
}

/// Bytes that are no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl Header {
    /// Reads the header of the first batch of `bytes`, and that the whole batch is there.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Broken> {
        let length = i32::from_be_bytes(part(bytes, 8)?);
        let size = usize::try_from(length).map_err(|_| Broken)?.checked_add(PREFIX).ok_or(Broken)?;
        if size < HEADER || bytes.len() < size {
            return Err(Broken);
        }
        Ok(Self {
            base_offset: i64::from_be_bytes(part(bytes, 0)?),
            size,
            leader_epoch: i32::from_be_bytes(part(bytes, LEADER_EPOCH_AT)?),
            magic: i8::from_be_bytes(part(bytes, 16)?),
            crc: u32::from_be_bytes(part(bytes, CRC_AT)?),
            attributes: i16::from_be_bytes(part(bytes, ATTRIBUTES_AT)?),
            last_offset_delta: i32::from_be_bytes(part(bytes, 23)?),
            base_timestamp: i64::from_be_bytes(part(bytes, 27)?),
            max_timestamp: i64::from_be_bytes(part(bytes, MAX_TIMESTAMP_AT)?),
            producer_id: i64::from_be_bytes(part(bytes, 43)?),
            producer_epoch: i16::from_be_bytes(part(bytes, 51)?),
            base_sequence: i32::from_be_bytes(part(bytes, 53)?),
            count: i32::from_be_bytes(part(bytes, COUNT_AT)?),
        })
    }

    fn bytes(&self) -> [u8; HEADER] {
        let mut head = [0; HEADER];
        let mut into = &mut head[..];
        into.put_i64(self.base_offset);
        into.put_i32((self.size - PREFIX) as i32);
        into.put_i32(self.leader_epoch);
        into.put_i8(self.magic);
        into.put_u32(self.crc);
        into.put_i16(self.attributes);
        into.put_i32(self.last_offset_delta);
        into.put_i64(self.base_timestamp);
        into.put_i64(self.max_timestamp);
        into.put_i64(self.producer_id);
        into.put_i16(self.producer_epoch);
        into.put_i32(self.base_sequence);
        into.put_i32(self.count);
        head
    }

    /// The number of the compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    pub(crate) fn codec(&self) -> i16 {
        self.attributes & CODEC
    }

    pub(crate) fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    pub(crate) fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    pub(crate) fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    pub(crate) fn has_producer(&self) -> bool {
        self.producer_id > -1
    }

    pub(crate) fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The sequence of the last record: sequences wrap to 0 after `i32::MAX` (`DefaultRecordBatch.incrementSequence`).
    pub(crate) fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        (i64::from(self.base_sequence) + i64::from(self.last_offset_delta)).rem_euclid(1 << 31) as i32
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Broken> {
    bytes.get(at..at + N).and_then(|part| part.try_into().ok()).ok_or(Broken)
}

/// The checksum that a batch should carry.
pub(crate) fn checksum(batch: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, batch.get(ATTRIBUTES_AT..).unwrap_or_default())
        as u32
}

/// What a leader writes over a client's header (`LogValidator`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) base_offset: i64,
    pub(crate) leader_epoch: i32,
    /// The broker's time, where the topic wants that and not the producer's.
    pub(crate) log_append_time: Option<i64>,
    /// The latest timestamp of the records.
    pub(crate) max_timestamp: i64,
}

/// A batch as it is kept: its header as readers get it, and its records as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) header: Header,
    pub(crate) head: [u8; HEADER],
    pub(crate) records: Bytes,
}

impl Batch {
    /// Takes the first batch of `bytes` as it is.
    pub(crate) fn read(bytes: &Bytes) -> Result<Self, Broken> {
        let header = Header::read(bytes)?;
        let head = part(bytes, 0)?;
        Ok(Self { header, head, records: bytes.slice(HEADER..header.size) })
    }

    /// Bytes of the whole batch.
    pub(crate) fn len(&self) -> usize {
        self.header.size
    }

    /// Writes the leader's stamp; the checksum changes only with what it covers.
    pub(crate) fn stamp(mut self, stamp: Stamp) -> Self {
        let header = &mut self.header;
        (header.base_offset, header.leader_epoch) = (stamp.base_offset, stamp.leader_epoch);
        write(&mut self.head, 0, &stamp.base_offset.to_be_bytes());
        write(&mut self.head, LEADER_EPOCH_AT, &stamp.leader_epoch.to_be_bytes());
        let (attributes, max_timestamp) = match stamp.log_append_time {
            Some(time) => (header.attributes | LOG_APPEND_TIME, time),
            None => (header.attributes & !LOG_APPEND_TIME, stamp.max_timestamp),
        };
        if (attributes, max_timestamp) != (header.attributes, header.max_timestamp) {
            (header.attributes, header.max_timestamp) = (attributes, max_timestamp);
            write(&mut self.head, ATTRIBUTES_AT, &attributes.to_be_bytes());
            write(&mut self.head, MAX_TIMESTAMP_AT, &max_timestamp.to_be_bytes());
            self.seal();
        }
        self
    }

    /// The batch with only some of its records, at their offsets (`MemoryRecords.filterTo`): the header keeps the range
    /// of offsets and sequences that the batch once had. The records are written uncompressed.
    pub(crate) fn keep(&self, count: i32, records: Bytes, max_timestamp: i64) -> Self {
        let mut kept = Self { records, ..self.clone() };
        let header = &mut kept.header;
        (header.count, header.max_timestamp) = (count, max_timestamp);
        header.attributes &= !CODEC;
        header.size = HEADER + kept.records.len();
        write(&mut kept.head, 8, &((header.size - PREFIX) as i32).to_be_bytes());
        write(&mut kept.head, ATTRIBUTES_AT, &header.attributes.to_be_bytes());
        write(&mut kept.head, MAX_TIMESTAMP_AT, &max_timestamp.to_be_bytes());
        write(&mut kept.head, COUNT_AT, &count.to_be_bytes());
        kept.seal();
        kept
    }

    fn seal(&mut self) {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&self.head[ATTRIBUTES_AT..]);
        digest.update(&self.records);
        self.header.crc = digest.finalize() as u32;
        write(&mut self.head, CRC_AT, &self.header.crc.to_be_bytes());
    }

    /// Whether the transaction committed and its coordinator's epoch, if this is the control batch that ends one.
    pub(crate) fn marker(&self) -> Option<(bool, i32)> {
        marker_in(&self.records, &self.header)
    }
}

fn write(batch: &mut [u8], at: usize, value: &[u8]) {
    batch[at..at + value.len()].copy_from_slice(value);
}

/// A record of an uncompressed payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    /// The record with its length in front.
    pub(crate) raw: &'a [u8],
}

/// Reads `count` records, and that nothing is left behind them.
#[derive(Clone, Debug)]
pub(crate) struct Records<'a> {
    rest: &'a [u8],
    left: i32,
    failed: bool,
}

impl<'a> Records<'a> {
    /// Over the payload behind a header.
    pub(crate) fn new(payload: &'a [u8], count: i32) -> Self {
        Self { rest: payload, left: count, failed: false }
    }

    fn record(&mut self) -> Result<Record<'a>, Broken> {
        let start = self.rest;
        let length = usize::try_from(varint(&mut self.rest)?).map_err(|_| Broken)?;
        let mut body = take(&mut self.rest, length)?;
        take(&mut body, 1)?;
        let timestamp_delta = varlong(&mut body)?;
        let offset_delta = varint(&mut body)?;
        let key = nullable(&mut body)?;
        let value = nullable(&mut body)?;
        for _ in 0..varint(&mut body).and_then(|count| u32::try_from(count).map_err(|_| Broken))? {
            nullable(&mut body)?.ok_or(Broken)?;
            nullable(&mut body)?;
        }
        if !body.is_empty() {
            return Err(Broken);
        }
        let raw = &start[..start.len() - self.rest.len()];
        Ok(Record { timestamp_delta, offset_delta, key, value, raw })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = match self.left {
            ..=0 if self.rest.is_empty() => return None,
            ..=0 => Err(Broken),
            _ => self.record(),
        };
        self.left -= 1;
        self.failed = item.is_err();
        Some(item)
    }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Result<&'a [u8], Broken> {
    let (head, rest) = from.split_at_checked(count).ok_or(Broken)?;
    *from = rest;
    Ok(head)
}

fn nullable<'a>(from: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Broken> {
    match varint(from)? {
        ..=-1 => Ok(None),
        length => take(from, length as usize).map(Some),
    }
}

fn varint(from: &mut &[u8]) -> Result<i32, Broken> {
    i32::try_from(varlong(from)?).map_err(|_| Broken)
}

fn varlong(from: &mut &[u8]) -> Result<i64, Broken> {
    let mut value = 0_u64;
    for (at, &byte) in from.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *from = &from[at + 1..];
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err(Broken)
}

/// The batches that a broker writes itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub(crate) base_offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) timestamp: i64,
    /// Id and epoch of a transaction's producer.
    pub(crate) producer: Option<(i64, i16)>,
}

impl Writer {
    /// A batch of plain records, as coordinators write them.
    pub(crate) fn records(&self, records: &[(Bytes, Option<Bytes>)]) -> Batch {
        let attributes = if self.producer.is_some() { TRANSACTIONAL } else { 0 };
        let mut written = BytesMut::new();
        for (delta, (key, value)) in records.iter().enumerate() {
            put_record(&mut written, delta as i64, Some(key), value.as_deref());
        }
        self.batch(attributes, records.len() as i32, written)
    }

    /// The control batch that ends a transaction in a partition (`EndTransactionMarker`).
    pub(crate) fn marker(&self, commit: bool, coordinator_epoch: i32) -> Batch {
        let key = [0, 0, 0, u8::from(commit)];
        let mut value = [0; 6];
        value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
        let mut written = BytesMut::new();
        put_record(&mut written, 0, Some(&key), Some(&value));
        self.batch(TRANSACTIONAL | CONTROL, 1, written)
    }

    fn batch(&self, attributes: i16, count: i32, records: BytesMut) -> Batch {
        let (producer_id, producer_epoch) = self.producer.unwrap_or((-1, -1));
        let header = Header {
            base_offset: self.base_offset,
            size: HEADER + records.len(),
            leader_epoch: self.leader_epoch,
            magic: 2,
            crc: 0,
            attributes,
            last_offset_delta: count - 1,
            base_timestamp: self.timestamp,
            max_timestamp: self.timestamp,
            producer_id,
            producer_epoch,
            base_sequence: -1,
            count,
        };
        let mut batch = Batch { header, head: header.bytes(), records: records.freeze() };
        batch.seal();
        batch
    }
}

fn put_record(batch: &mut BytesMut, offset_delta: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
    let mut body = BytesMut::new();
    body.put_u8(0);
    put_varlong(&mut body, 0);
    put_varlong(&mut body, offset_delta);
    for field in [key, value] {
        put_varlong(&mut body, field.map_or(-1, |field| field.len() as i64));
        body.put_slice(field.unwrap_or_default());
    }
    put_varlong(&mut body, 0);
    put_varlong(batch, body.len() as i64);
    batch.put_slice(&body);
}

fn put_varlong(into: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        into.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    into.put_u8(rest as u8);
}

/// What the first record of a control batch says: whether the transaction committed, and its coordinator's epoch.
#[cfg(test)]
pub(crate) fn marker_of(batch: &[u8], header: &Header) -> Option<(bool, i32)> {
    marker_in(batch.get(HEADER..)?, header)
}

fn marker_in(records: &[u8], header: &Header) -> Option<(bool, i32)> {
    let record = Records::new(records, header.count).next()?.ok()?;
    let kind = i16::from_be_bytes(part(record.key?, 2).ok()?);
    let epoch = i32::from_be_bytes(part(record.value?, 2).ok()?);
    (header.is_control() && (kind == 0 || kind == 1)).then_some((kind == 1, epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(producer: Option<(i64, i16)>) -> Writer {
        Writer { base_offset: 7, leader_epoch: 3, timestamp: 1_000, producer }
    }

    fn whole(batch: &Batch) -> Bytes {
        Bytes::from([&batch.head[..], &batch.records[..]].concat())
    }

    fn key(key: &'static str) -> (Bytes, Option<Bytes>) {
        (Bytes::from(key), None)
    }

    #[test]
    fn a_written_batch_reads_back_with_its_checksum_and_records() {
        let batch = writer(None).records(&[(Bytes::from("a"), Some(Bytes::from("1"))), key("b")]);
        let bytes = whole(&batch);
        assert_eq!(Batch::read(&bytes), Ok(batch.clone()));
        let header = batch.header;
        assert_eq!((header.base_offset, header.last_offset(), header.count), (7, 8, 2));
        assert_eq!(header.crc, checksum(&bytes));
        let records: Vec<_> = Records::new(&batch.records, 2).map(Result::unwrap).collect();
        assert_eq!(records[0].key, Some(&b"a"[..]));
        assert_eq!((records[1].offset_delta, records[1].value), (1, None));
    }

    #[test]
    fn a_marker_says_how_the_transaction_ended() {
        let batch = writer(Some((5, 1))).marker(true, 42);
        assert!(batch.header.is_control() && batch.header.is_transactional());
        assert_eq!(batch.marker(), Some((true, 42)));
        assert_eq!(writer(None).records(&[key("a")]).marker(), None);
    }

    #[test]
    fn a_stamp_leaves_the_checksum_alone_unless_timestamps_change() {
        let batch = writer(None).records(&[key("a")]);
        let stamp = Stamp { base_offset: 9, leader_epoch: 4, log_append_time: None, max_timestamp: 1_000 };
        let placed = batch.clone().stamp(stamp);
        assert_eq!(Batch::read(&whole(&placed)), Ok(placed.clone()));
        let header = placed.header;
        assert_eq!((header.base_offset, header.leader_epoch, header.crc), (9, 4, batch.header.crc));

        let timed = batch.stamp(Stamp { log_append_time: Some(2_000), ..stamp });
        assert_eq!(Batch::read(&whole(&timed)), Ok(timed.clone()));
        assert!(timed.header.is_log_append_time());
        assert_eq!((timed.header.max_timestamp, timed.header.crc), (2_000, checksum(&whole(&timed))));
    }

    #[test]
    fn a_batch_that_lost_records_keeps_its_range() {
        let batch = writer(None).records(&[key("a"), key("b"), key("c")]);
        let middle = Records::new(&batch.records, 3).nth(1).unwrap().unwrap();
        let kept = batch.keep(1, Bytes::copy_from_slice(middle.raw), 500);
        let bytes = whole(&kept);
        assert_eq!(Batch::read(&bytes), Ok(kept.clone()));
        assert_eq!((kept.header.last_offset(), kept.header.count, kept.header.crc), (9, 1, checksum(&bytes)));
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let batch = whole(&writer(Some((5, 1))).records(&[(Bytes::from("key"), Some(Bytes::from("value")))]));
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes = batch.to_vec();
            bytes.truncate(random.usize(..=bytes.len()));
            for _ in 0..random.usize(..4) {
                if !bytes.is_empty() {
                    let at = random.usize(..bytes.len());
                    bytes[at] = random.u8(..);
                }
            }
            if let Ok(header) = Header::read(&bytes) {
                let _ = Records::new(&bytes[HEADER..header.size], header.count).take(1_000).count();
                let _ = marker_of(&bytes, &header);
            }
        }
    }

    #[test]
    fn sequences_wrap_behind_the_largest_number() {
        let batch = writer(None).records(&[(Bytes::new(), None), (Bytes::new(), None)]);
        let header = Header { base_sequence: i32::MAX, ..batch.header };
        assert_eq!(header.last_sequence(), 0);
    }
}
