//! The records of a transaction out of its journal: the parts in their order, each record with the partition of the handle
//! that it belongs to, and at the end the comparison.

use super::{Kept, KeptHeaders, Missing};
use crate::{
    error::JobError,
    journal::{self, JournalReader},
};
use hapax_commit::{Handle, Journal};
use hapax_kafka::record::{BatchBuilder, Headers, RecordDigest, RecordRef};
use hapax_store::{Journals, journal::Row};
use std::collections::BTreeMap;

/// Reads a journal, and counts and digests what it has.
pub(super) struct Journaled<'a> {
    handle: &'a Handle,
    reader: JournalReader<'a>,
    account: Account<'a>,
}

/// Some records, and the partition of each.
pub(super) struct Rows {
    parts: Vec<usize>,
    rows: Box<journal::Rows>,
}

impl<'a> Journaled<'a> {
    pub(super) fn new(journals: &'a Journals, journal: &'a Journal, handle: &'a Handle) -> Self {
        Self { handle, reader: JournalReader::new(journals, journal), account: Account::of(handle) }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Rows>, Missing> {
        let attempted = || format!("reading the journal of lane {}", self.handle.lane);
        let rows = self.reader.next().await;
        let rows = rows.map_err(|error| Missing::Now(JobError::store(attempted(), error)))?;
        match rows.map_err(Missing::ForGood)? {
            Some(rows) => {
                let parts = self.account.take(&rows).map_err(Missing::ForGood)?;
                Ok(Some(Rows { parts, rows: Box::new(rows) }))
            }
            None => self.account.compare(self.handle).map(|()| None).map_err(Missing::ForGood),
        }
    }
}

impl Rows {
    pub(super) fn records(&self) -> impl Iterator<Item = Kept<'_>> + Send + '_ {
        self.rows.iter().zip(&self.parts).map(|(row, part)| Kept {
            part: *part,
            offset: None,
            timestamp: row.timestamp,
            key: row.key,
            value: row.value,
            headers: KeptHeaders::List(row.headers),
        })
    }
}

/// What was read of a journal so far, by the handle's partitions.
struct Account<'a> {
    numbers: BTreeMap<(&'a str, i32), usize>,
    read: Vec<(u64, RecordDigest)>,
    /// Encodes each record once more, as it is digested.
    body: BatchBuilder,
}

impl<'a> Account<'a> {
    fn of(handle: &'a Handle) -> Self {
        let numbered = handle.partitions.iter().enumerate();
        let numbers =
            numbered.map(|(number, part)| ((part.topic.as_str(), part.partition), number)).collect();
        let read = vec![(0, RecordDigest::new()); handle.partitions.len()];
        Self { numbers, read, body: BatchBuilder::new() }
    }

    /// The partition of each record.
    fn take(&mut self, rows: &journal::Rows) -> Result<Vec<usize>, String> {
        rows.iter().map(|row| self.take_one(&row)).collect()
    }

    fn take_one(&mut self, row: &Row<'_>) -> Result<usize, String> {
        let number = *self.numbers.get(&(row.topic, row.partition)).ok_or_else(|| {
            format!("the journal has records of {}-{}, and the transaction none", row.topic, row.partition)
        })?;
        let headers = Headers::List(&row.headers);
        let record = RecordRef { key: row.key, value: row.value, headers, timestamp: row.timestamp };
        self.body.clear();
        self.body.push(&record).map_err(|error| format!("a record of the journal: {error}"))?;
        let (count, digest) = &mut self.read[number];
        *count += 1;
        digest.update(self.body.last_body());
        Ok(number)
    }

    fn compare(&self, handle: &Handle) -> Result<(), String> {
        for (part, (count, digest)) in handle.partitions.iter().zip(&self.read) {
            let at = format!("{}-{}", part.topic, part.partition);
            if *count != part.count {
                return Err(format!("the journal has {count} records of {at}, {} were written", part.count));
            }
            let digest = digest.value();
            if let Some(written) = part.digest.filter(|written| *written != digest) {
                return Err(format!(
                    "the digest of the journal's {count} records of {at} is {digest:08x}, and was {written:08x} when \
                     they were written"
                ));
            }
        }
        Ok(())
    }
}
