//! Records in memory, column by column: what becomes a row group, and what one is read into.

use super::schema::{FIELD_THERE, HEADER_THERE};
use crate::journal::Row;
use parquet::data_type::ByteArray;

/// A column of bytes: a level for each place, a value for each place that is not null.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    pub(super) levels: Vec<i16>,
    pub(super) values: Vec<ByteArray>,
}

/// The records of one row group, in their order.
#[derive(Debug, Default)]
pub struct Rows {
    pub(super) topics: Vec<ByteArray>,
    pub(super) partitions: Vec<i32>,
    pub(super) timestamps: Vec<i64>,
    pub(super) keys: Bytes,
    pub(super) values: Bytes,
    pub(super) header_keys: Bytes,
    pub(super) header_values: Bytes,
    /// For both columns of headers: 0 begins a record.
    pub(super) repeats: Vec<i16>,
}

impl Rows {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// There is no record.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// The records, in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        let (mut keys, mut values) = (Fields::of(&self.keys), Fields::of(&self.values));
        let mut headers = Headers {
            rows: self,
            at: 0,
            keys: Fields::of(&self.header_keys),
            values: Fields::of(&self.header_values),
        };
        (0..self.len()).map(move |at| Row {
            topic: std::str::from_utf8(self.topics[at].data()).expect("checked when the rows were read"),
            partition: self.partitions[at],
            timestamp: self.timestamps[at],
            key: keys.next(FIELD_THERE),
            value: values.next(FIELD_THERE),
            headers: headers.next(),
        })
    }

    /// Do all columns tell of the same records?
    pub(super) fn check(&self) -> Result<(), String> {
        let there = |bytes: &Bytes, level: i16| bytes.levels.iter().filter(|found| **found == level).count();
        let firsts = self.repeats.iter().filter(|repeat| **repeat == 0).count();
        let is_whole = self.topics.len() == self.len()
            && self.timestamps.len() == self.len()
            && self.keys.levels.len() == self.len()
            && self.values.levels.len() == self.len()
            && there(&self.keys, FIELD_THERE) == self.keys.values.len()
            && there(&self.values, FIELD_THERE) == self.values.values.len()
            && there(&self.header_keys, HEADER_THERE) == self.header_keys.values.len()
            && there(&self.header_values, HEADER_THERE + 1) == self.header_values.values.len()
            && firsts == self.len()
            && self.repeats.first().is_none_or(|repeat| *repeat == 0)
            && self.header_keys.levels.len() == self.repeats.len()
            && self.header_values.levels.len() == self.repeats.len();
        if !is_whole {
            return Err("its columns do not fit each other".to_owned());
        }
        match self.topics.iter().find(|topic| std::str::from_utf8(topic.data()).is_err()) {
            Some(_) => Err("a topic's name is not a text".to_owned()),
            None => Ok(()),
        }
    }
}

/// Walks a column of bytes.
struct Fields<'a> {
    of: &'a Bytes,
    place: usize,
    value: usize,
}

impl<'a> Fields<'a> {
    fn of(of: &'a Bytes) -> Self {
        Self { of, place: 0, value: 0 }
    }

    /// What stands at the next place, where its level says that something does.
    fn next(&mut self, there: i16) -> Option<&'a [u8]> {
        let level = self.of.levels[self.place];
        self.place += 1;
        (level == there).then(|| {
            self.value += 1;
            self.of.values[self.value - 1].data()
        })
    }
}

/// Walks both columns of headers.
struct Headers<'a> {
    rows: &'a Rows,
    at: usize,
    keys: Fields<'a>,
    values: Fields<'a>,
}

impl<'a> Headers<'a> {
    /// The headers of the next record. A record without any has one place, of level 0.
    fn next(&mut self) -> Vec<(&'a [u8], Option<&'a [u8]>)> {
        let mut headers = Vec::new();
        loop {
            let key = self.keys.next(HEADER_THERE);
            let value = self.values.next(HEADER_THERE + 1);
            headers.extend(key.map(|key| (key, value)));
            self.at += 1;
            if self.rows.repeats.get(self.at).is_none_or(|repeat| *repeat == 0) {
                return headers;
            }
        }
    }
}
