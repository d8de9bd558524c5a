//! The records of a transaction, from either of two sources: the log, where they stay after an abort, or the journal.
//!
//! Owns the comparison with the handle: a reader does not hand out the end of what is not there in whole. Refuses to
//! say anything of records that could not be read now.
//!
//! ```text
//!  log:      partition by partition, the batches of the handle's identity ─┐
//!                                                                          ├─► records, and at the end: as counted
//!  journal:  part by part, all partitions as they were written ────────────┘   and digested when they were written?
//! ```

use crate::{
    error::{JobError, with_causes},
    journal::{JournalReader, Rows},
    source::SourceError,
};
use hapax_commit::{Handle, Journal};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client,
    fetch::{WrittenError, WrittenReader},
    record::{BatchBuilder, EncodedHeaders, Header, Headers, RecordDigest, RecordRef, Records},
};
use hapax_store::{Journals, journal::Row};
use std::collections::BTreeMap;

/// Where records are read from.
#[derive(Clone, Copy)]
pub(super) enum Origin<'a> {
    Log,
    Journal { journals: &'a Journals, journal: &'a Journal },
}

impl Origin<'_> {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Log => "the log",
            Self::Journal { .. } => "the journal",
        }
    }
}

/// Why records cannot be had.
#[derive(Debug)]
pub(super) enum Missing {
    /// They are not all there as they were written, and never will be.
    ForGood(String),
    /// They could not be read now.
    Now(JobError),
}

/// Reads the records of a transaction.
pub(super) struct RecordReader<'a> {
    host: &'a Host,
    client: &'a Client,
    handle: &'a Handle,
    from: Source<'a>,
}

enum Source<'a> {
    Log { part: usize, reader: Option<Box<WrittenReader<'a>>> },
    Journal { reader: JournalReader<'a>, account: Account<'a> },
}

/// Some records, in their order.
pub(super) struct Chunk(Held);

enum Held {
    /// Of one partition of the handle.
    Log { part: usize, records: Records },
    /// Of several, by number.
    Journal { parts: Vec<usize>, rows: Box<Rows> },
}

/// One record, and which of the handle's partitions it belongs to.
pub(super) struct Kept<'a> {
    pub(super) part: usize,
    /// In the log; a journal does not know it.
    pub(super) offset: Option<i64>,
    pub(super) timestamp: i64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    headers: KeptHeaders<'a>,
}

enum KeptHeaders<'a> {
    Encoded(EncodedHeaders<'a>),
    List(Vec<Header<'a>>),
}

impl<'a> RecordReader<'a> {
    pub(super) fn new(host: &'a Host, client: &'a Client, handle: &'a Handle, origin: Origin<'a>) -> Self {
        let from = match origin {
            Origin::Log => Source::Log { part: 0, reader: None },
            Origin::Journal { journals, journal } => Source::Journal {
                reader: JournalReader::new(journals, journal),
                account: Account::of(handle),
            },
        };
        Self { host, client, handle, from }
    }

    /// The next records. `None`: these were all, and they are as they were written.
    pub(super) async fn next(&mut self) -> Result<Option<Chunk>, Missing> {
        match &mut self.from {
            Source::Log { part, reader } => {
                while let Some(written) = self.handle.partitions.get(*part) {
                    let open = reader.get_or_insert_with(|| {
                        // A broker that is away has lost nothing: it is waited for, and each wait is told.
                        let deadline = Deadline::after(self.host.now(), None);
                        Box::new(WrittenReader::new(self.client, self.handle.identity, written, deadline))
                    });
                    if let Some(records) = open.next().await? {
                        return Ok(Some(Chunk(Held::Log { part: *part, records })));
                    }
                    (*part, *reader) = (*part + 1, None);
                }
                Ok(None)
            }
            Source::Journal { reader, account } => {
                let attempted = || format!("reading the journal of lane {}", self.handle.lane);
                let rows =
                    reader.next().await.map_err(|error| Missing::Now(JobError::store(attempted(), error)))?;
                match rows.map_err(Missing::ForGood)? {
                    Some(rows) => {
                        let parts = account.take(&rows).map_err(Missing::ForGood)?;
                        Ok(Some(Chunk(Held::Journal { parts, rows: Box::new(rows) })))
                    }
                    None => account.compare(self.handle).map(|()| None).map_err(Missing::ForGood),
                }
            }
        }
    }

    /// Reads to the end, which compares everything.
    pub(super) async fn compare(mut self) -> Result<(), Missing> {
        while self.next().await?.is_some() {}
        Ok(())
    }
}

impl Chunk {
    pub(super) fn records(&self) -> Box<dyn Iterator<Item = Kept<'_>> + Send + '_> {
        match &self.0 {
            Held::Log { part, records } => Box::new(records.views().iter().map(move |view| Kept {
                part: *part,
                offset: Some(view.offset),
                timestamp: view.timestamp,
                key: records.key(view),
                value: records.value(view),
                headers: KeptHeaders::Encoded(records.encoded_headers(view)),
            })),
            Held::Journal { parts, rows } => Box::new(rows.iter().zip(parts).map(|(row, part)| Kept {
                part: *part,
                offset: None,
                timestamp: row.timestamp,
                key: row.key,
                value: row.value,
                headers: KeptHeaders::List(row.headers),
            })),
        }
    }
}

impl Kept<'_> {
    /// As it is to be written again.
    pub(super) fn as_it_was(&self) -> RecordRef<'_> {
        let headers = match &self.headers {
            KeptHeaders::Encoded(encoded) => Headers::Encoded(*encoded),
            KeptHeaders::List(list) => Headers::List(list),
        };
        RecordRef { key: self.key, value: self.value, headers, timestamp: self.timestamp }
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
    fn take(&mut self, rows: &Rows) -> Result<Vec<usize>, String> {
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

impl From<WrittenError> for Missing {
    fn from(error: WrittenError) -> Self {
        if error.is_final() {
            return Self::ForGood(with_causes(&error));
        }
        match error {
            WrittenError::Fetch(error) => Self::Now(SourceError::Fetch(error).into()),
            WrittenError::Gone { .. } | WrittenError::Incomplete { .. } => Self::ForGood(error.to_string()),
        }
    }
}

/// Reads in the log everything that a transaction has written, and compares it with its handle.
///
/// # Errors
/// It is not all there, or could not be read now.
pub(super) async fn compare_log(host: &Host, client: &Client, handle: &Handle) -> Result<(), WrittenError> {
    for part in &handle.partitions {
        let deadline = Deadline::after(host.now(), None);
        let mut reader = WrittenReader::new(client, handle.identity, part, deadline);
        while reader.next().await?.is_some() {}
    }
    Ok(())
}
