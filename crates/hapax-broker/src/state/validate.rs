//! Whether a client's batch may go to the log, before its producer is looked at (`ProduceRequest.validateRecords`,
//! `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`).

use super::{Code, Millis, config::Configs};
use crate::{
    batch::{self, Header, Records},
    codec,
};

const NO_TIMESTAMP: i64 = -1;
const ZSTD: i16 = 4;
/// The first Produce that may carry zstd (KIP-110).
const ZSTD_VERSION: i16 = 7;

/// Why a batch is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: i16,
    /// Kafka's exceptions of the log itself do not say where the log starts; the others do.
    pub(crate) silent: bool,
    pub(crate) message: Option<String>,
    /// Records at fault, by their place in the batch.
    pub(crate) records: Vec<(i32, String)>,
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        let silent = matches!(
            code,
            Code::UNKNOWN_TOPIC_OR_PARTITION
                | Code::NOT_LEADER_OR_FOLLOWER
                | Code::MESSAGE_TOO_LARGE
                | Code::RECORD_LIST_TOO_LARGE
                | Code::CORRUPT_MESSAGE
        );
        Self { code: code.0, silent, message: None, records: Vec::new() }
    }
}

/// The one batch that a partition's part of a request carries.
pub(crate) fn only_batch(records: &[u8], version: i16) -> Result<Header, Code> {
    let header = first_batch(records)?.ok_or(Code::INVALID_RECORD)?;
    if header.codec() == ZSTD && version < ZSTD_VERSION {
        return Err(Code::UNSUPPORTED_COMPRESSION_TYPE);
    }
    match next_batch(&records[header.size..])? {
        Some(_) => Err(Code::INVALID_RECORD),
        None => Ok(header),
    }
}

fn first_batch(records: &[u8]) -> Result<Option<Header>, Code> {
    match next_batch(records)? {
        None => Ok(None),
        Some(magic) if magic < 2 => Err(Code::INVALID_RECORD),
        Some(_) => Header::read(records).map(Some).map_err(|_| Code::CORRUPT_MESSAGE),
    }
}

/// Whether the first batch is one of a transaction, in order or not (`RequestUtils.hasTransactionalRecords`).
pub(crate) fn begins_transactional(records: &[u8]) -> bool {
    let header = first_batch(records);
    header.is_ok_and(|header| header.is_some_and(|header| header.is_transactional()))
}

/// The magic of the batch that begins here, if all of it is here (`ByteBufferLogInputStream`): less than that is
/// silently no batch.
fn next_batch(bytes: &[u8]) -> Result<Option<u8>, Code> {
    const SMALLEST: i32 = 14;
    let Some(length) = bytes.get(8..12).and_then(|length| length.try_into().ok()).map(i32::from_be_bytes)
    else {
        return Ok(None);
    };
    if length < SMALLEST {
        return Err(Code::CORRUPT_MESSAGE);
    }
    match bytes.get(16) {
        Some(3..) => Err(Code::CORRUPT_MESSAGE),
        Some(&magic) if bytes.len() - batch::PREFIX >= length as usize => Ok(Some(magic)),
        _ => Ok(None),
    }
}

/// Checks a batch against a topic; gives the latest timestamp of its records.
pub(crate) fn check(
    batch: &[u8],
    header: &Header,
    configs: &Configs,
    now: Millis,
) -> Result<Millis, Refusal> {
    if header.base_offset != 0 {
        return Err(Code::INVALID_RECORD.into());
    }
    if header.size > configs.max_message_bytes {
        return Err(Code::MESSAGE_TOO_LARGE.into());
    }
    if header.crc != batch::checksum(&batch[..header.size]) {
        return Err(Code::CORRUPT_MESSAGE.into());
    }
    let range = i64::from(header.last_offset_delta) + 1;
    let unordered = header.has_producer() && header.base_sequence < 0;
    if range <= 0 || range != i64::from(header.count) || header.is_control() || unordered {
        return Err(Code::INVALID_RECORD.into());
    }
    let latest = check_records(batch, header, configs, now)?;
    if header.size > configs.segment_bytes {
        return Err(Code::RECORD_LIST_TOO_LARGE.into());
    }
    Ok(latest)
}

fn check_records(batch: &[u8], header: &Header, configs: &Configs, now: Millis) -> Result<Millis, Refusal> {
    let payload =
        codec::payload(&batch[batch::HEADER..header.size], header).map_err(|_| Code::UNKNOWN_SERVER_ERROR)?;
    let mut latest = NO_TIMESTAMP;
    let mut faults = Vec::new();
    let mut code = Code::INVALID_RECORD;
    for (at, record) in Records::new(&payload, header.count).enumerate() {
        let record = record.map_err(|_| Code::INVALID_RECORD)?;
        let timestamp = if header.is_log_append_time() {
            header.max_timestamp
        } else {
            header.base_timestamp.wrapping_add(record.timestamp_delta)
        };
        latest = latest.max(timestamp);
        if configs.compacts && record.key.is_none() {
            faults.push((at as i32, "Compacted topic cannot accept message without key".to_owned()));
        } else if let Some(fault) = timestamp_fault(timestamp, header, configs, now) {
            code = Code::INVALID_TIMESTAMP;
            faults.push((at as i32, fault));
        }
    }
    if faults.is_empty() {
        return Ok(latest);
    }
    let message = format!(
        "One or more records have been rejected due to {} record errors in total, and only showing the first three \
         errors at most: {:?}",
        faults.len(),
        &faults[..faults.len().min(3)]
    );
    Err(Refusal { code: code.0, silent: false, message: Some(message), records: faults })
}

fn timestamp_fault(timestamp: Millis, header: &Header, configs: &Configs, now: Millis) -> Option<String> {
    if configs.log_append_time {
        return header.is_log_append_time().then(|| {
            "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime"
                .to_owned()
        });
    }
    if timestamp == NO_TIMESTAMP {
        return None;
    }
    let age = now.saturating_sub(timestamp);
    let bad = age > configs.before_max || age < -configs.after_max;
    bad.then(|| {
        format!(
            "Timestamp {timestamp} of message is out of range. The timestamp should be within [{}, {}]",
            now.saturating_sub(configs.before_max),
            now.saturating_add(configs.after_max)
        )
    })
}
