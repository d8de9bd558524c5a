//! What is asked of the judge and what it answers, as types.

use serde_json::{Value, json};
use std::io;

/// What a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Only what was committed, up to the last stable offset.
    ReadCommitted,
    /// Everything, up to the high watermark.
    ReadUncommitted,
}

impl Isolation {
    /// Kafka's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read_committed",
            Isolation::ReadUncommitted => "read_uncommitted",
        }
    }
}

/// A record to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The key; `None` is null.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// The partition; `None` lets librdkafka choose.
    pub partition: Option<i32>,
    /// Milliseconds since the Unix epoch; `None` is now.
    pub timestamp_ms: Option<i64>,
}

impl Record {
    /// A record with a key and a value.
    pub fn new(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Record {
        Record { key: Some(key.into()), value: Some(value.into()), ..Record::default() }
    }

    /// A record with a value alone.
    pub fn value(value: impl Into<Vec<u8>>) -> Record {
        Record { value: Some(value.into()), ..Record::default() }
    }

    /// The same record for a certain partition.
    #[must_use]
    pub fn to_partition(mut self, partition: i32) -> Record {
        self.partition = Some(partition);
        self
    }

    pub(super) fn to_json(&self) -> Value {
        let headers: Vec<Value> =
            self.headers.iter().map(|(name, value)| json!([name, hex(value.as_deref())])).collect();
        json!({
            "key": hex(self.key.as_deref()),
            "value": hex(self.value.as_deref()),
            "headers": headers,
            "partition": self.partition,
            "timestamp": self.timestamp_ms,
        })
    }
}

/// A numbered stream of records to write. Number `n` goes to partition `n` modulo `partitions`.
///
/// In the templates `$id` is the number, `$amount` is `n * 37 % 1000`, `$key` is `k` and `n % 100`.
#[derive(Debug, Clone)]
pub struct Numbers {
    /// The number of partitions of the topic that are written.
    pub partitions: u32,
    /// The first number.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// The template of the value.
    pub value: String,
    /// The template of the key; `None` is null.
    pub key: Option<String>,
    /// How many a second; `None` is as fast as it goes.
    pub per_second: Option<u32>,
    /// Writes transactions of this many records, and after each one an aborted transaction of ten records a
    /// partition with numbers from 10^12 on, which no `read_committed` reader may see. `None`: no transactions.
    pub transactions_of: Option<u32>,
    /// Configuration of librdkafka, such as `compression.type`.
    pub config: Vec<(String, String)>,
}

/// The value that [`Numbers::new`] writes.
pub const NUMBERS_VALUE: &str = r#"{"id":$id,"amount":$amount,"key":"$key"}"#;

impl Numbers {
    /// The numbers 0 to `count` - 1 with [`NUMBERS_VALUE`] as value and `$key` as key.
    pub fn new(partitions: u32, count: u64) -> Numbers {
        Numbers {
            partitions,
            from: 0,
            count,
            value: NUMBERS_VALUE.to_owned(),
            key: Some("$key".to_owned()),
            per_second: None,
            transactions_of: None,
            config: Vec::new(),
        }
    }
}

/// How a transaction of the judge shall end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Committed.
    Commit,
    /// Aborted.
    Abort,
    /// Left open until [`super::Judge::end_transaction`] or its time-out.
    Open,
}

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Outcome::Commit => "commit",
            Outcome::Abort => "abort",
            Outcome::Open => "open",
        }
    }
}

/// The offsets of a partition when a reading began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The partition.
    pub partition: i32,
    /// The log start offset.
    pub start: i64,
    /// The last stable offset: smaller than `end` while a transaction is open.
    pub stable_end: i64,
    /// The high watermark.
    pub end: i64,
}

/// A record as the judge read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The offset.
    pub offset: i64,
    /// The key; `None` is null.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
}

impl Read {
    /// The value as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }
}

/// A partition from its log start to the end that was fixed when the reading began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The offsets.
    pub bounds: Bounds,
    /// The records, in the order of the log.
    pub records: Vec<Read>,
}

/// The numbers that an audited output must hold.
#[derive(Debug, Clone)]
pub enum Expected {
    /// `from` to `from + count - 1`.
    Range {
        /// The first number.
        from: u64,
        /// How many.
        count: u64,
    },
    /// Exactly these.
    Ids(Vec<u64>),
}

/// An audit: what the output topics, read together with `read_committed` to their ends, must hold.
#[derive(Debug, Clone)]
pub struct Audit {
    /// The topics.
    pub topics: Vec<String>,
    /// The numbers, each exactly once over all topics.
    pub expected: Expected,
    /// Where in a JSON value the number stands; dots separate the fields of nested objects.
    pub field: String,
    /// Number `n` came from source partition `n` modulo this. In one output partition the numbers of one source
    /// partition must ascend.
    pub source_partitions: u32,
    /// The template ([`Numbers`]) that every value must equal byte by byte; `None` looks at the number only.
    pub value: Option<String>,
}

impl Audit {
    /// The audit of a copy of [`Numbers::new`]`(source_partitions, count)` to one topic, values compared.
    pub fn copy(topic: &str, source_partitions: u32, count: u64) -> Audit {
        Audit {
            topics: vec![topic.to_owned()],
            expected: Expected::Range { from: 0, count },
            field: "id".to_owned(),
            source_partitions,
            value: Some(NUMBERS_VALUE.to_owned()),
        }
    }
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Records read.
    pub records: u64,
    /// Expected numbers that are not there.
    pub lost: u64,
    /// Further copies of a number.
    pub duplicated: u64,
    /// Numbers behind a higher one of the same source partition.
    pub reordered: u64,
    /// Numbers that were not expected.
    pub unexpected: u64,
    /// Values that differ from the template.
    pub mismatched: u64,
    /// Values that hold no number.
    pub unreadable: u64,
    /// Offsets between last stable offset and high watermark, over all partitions: above zero while a
    /// transaction is open.
    pub unstable: u64,
    /// The first findings, in words.
    pub examples: Vec<String>,
}

impl Report {
    /// Nothing lost, duplicated, reordered, foreign or changed, and no transaction open.
    pub fn is_exact(&self) -> bool {
        let findings = self.lost + self.duplicated + self.reordered + self.unexpected + self.mismatched;
        findings + self.unreadable + self.unstable == 0
    }

    pub(super) fn from_json(value: &Value) -> io::Result<Report> {
        let examples = list(value, "examples")?;
        Ok(Report {
            records: number(value, "records")? as u64,
            lost: number(value, "lost")? as u64,
            duplicated: number(value, "duplicated")? as u64,
            reordered: number(value, "reordered")? as u64,
            unexpected: number(value, "unexpected")? as u64,
            mismatched: number(value, "mismatched")? as u64,
            unreadable: number(value, "unreadable")? as u64,
            unstable: number(value, "unstable")? as u64,
            examples: examples.iter().filter_map(|example| example.as_str().map(str::to_owned)).collect(),
        })
    }
}

/// An offset that a consumer group has committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The committed offset.
    pub offset: i64,
    /// The metadata that was committed with it.
    pub metadata: String,
}

impl GroupOffset {
    pub(super) fn from_json(value: &Value) -> io::Result<GroupOffset> {
        let text = |index: usize| value[index].as_str().unwrap_or_default().to_owned();
        let number = |index: usize| value[index].as_i64().ok_or_else(|| misread(value));
        Ok(GroupOffset {
            topic: text(0),
            partition: number(1)? as i32,
            offset: number(2)?,
            metadata: text(3),
        })
    }
}

impl Bounds {
    pub(super) fn from_json(value: &Value) -> io::Result<Bounds> {
        Ok(Bounds {
            partition: number(value, "partition")? as i32,
            start: number(value, "start")?,
            stable_end: number(value, "stable_end")?,
            end: number(value, "end")?,
        })
    }
}

impl Partition {
    pub(super) fn from_json(value: &Value) -> io::Result<Partition> {
        let records = list(value, "records")?.iter().map(Read::from_json).collect::<io::Result<_>>()?;
        Ok(Partition { bounds: Bounds::from_json(value)?, records })
    }
}

impl Read {
    fn from_json(value: &Value) -> io::Result<Read> {
        let header = |header: &Value| {
            let name = header[0].as_str().ok_or_else(|| misread(value))?;
            Ok((name.to_owned(), unhex(&header[1])?))
        };
        Ok(Read {
            offset: value[0].as_i64().ok_or_else(|| misread(value))?,
            key: unhex(&value[1])?,
            value: unhex(&value[2])?,
            headers: value[3]
                .as_array()
                .ok_or_else(|| misread(value))?
                .iter()
                .map(header)
                .collect::<io::Result<_>>()?,
            timestamp_ms: value[4].as_i64().ok_or_else(|| misread(value))?,
        })
    }
}

pub(super) fn misread(value: &Value) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("could not read the judge's answer {value}"))
}

fn number(value: &Value, name: &str) -> io::Result<i64> {
    value[name].as_i64().ok_or_else(|| misread(value))
}

fn list<'a>(value: &'a Value, name: &str) -> io::Result<&'a Vec<Value>> {
    value[name].as_array().ok_or_else(|| misread(value))
}

fn hex(bytes: Option<&[u8]>) -> Option<String> {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.map(|bytes| bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}

fn unhex(value: &Value) -> io::Result<Option<Vec<u8>>> {
    if value.is_null() {
        return Ok(None);
    }
    let text = value.as_str().ok_or_else(|| misread(value))?.as_bytes();
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|nibble| nibble as u8);
    let byte = |pair: &[u8]| Some(nibble(*pair.first()?)? << 4 | nibble(*pair.get(1)?)?);
    text.chunks(2).map(byte).collect::<Option<Vec<u8>>>().map(Some).ok_or_else(|| misread(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_way_to_the_judge_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&json!(hex(Some(&all)))).unwrap(), Some(all));
        assert_eq!(unhex(&json!(hex(None))).unwrap(), None);
        assert_eq!(unhex(&json!(hex(Some(&[])))).unwrap(), Some(Vec::new()));
        assert!(unhex(&json!("abc")).is_err());
        assert!(unhex(&json!("zz")).is_err());
    }
}
