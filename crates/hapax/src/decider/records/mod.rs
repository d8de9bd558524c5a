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

#[cfg(feature = "pipeline")]
mod journaled;

use crate::error::{JobError, with_causes};
use hapax_commit::Handle;
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client,
    fetch::{WrittenError, WrittenReader},
    record::{EncodedHeaders, Header, Headers, RecordRef, Records},
};

/// Where records are read from.
#[derive(Clone)]
pub(super) enum Origin {
    Log,
    #[cfg(feature = "pipeline")]
    Journal {
        journals: hapax_store::Journals,
        journal: hapax_commit::Journal,
    },
}

impl Origin {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Log => "the log",
            #[cfg(feature = "pipeline")]
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
    Log {
        part: usize,
        reader: Option<Box<WrittenReader<'a>>>,
    },
    #[cfg(feature = "pipeline")]
    Journal(journaled::Journaled<'a>),
}

/// Some records, in their order.
pub(super) struct Chunk(Held);

enum Held {
    /// Of one partition of the handle.
    Log { part: usize, records: Records },
    /// Of several.
    #[cfg(feature = "pipeline")]
    Journal(journaled::Rows),
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
    pub(super) fn new(host: &'a Host, client: &'a Client, handle: &'a Handle, origin: &'a Origin) -> Self {
        let from = match origin {
            Origin::Log => Source::Log { part: 0, reader: None },
            #[cfg(feature = "pipeline")]
            Origin::Journal { journals, journal } => {
                Source::Journal(journaled::Journaled::new(journals, journal, handle))
            }
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
            #[cfg(feature = "pipeline")]
            Source::Journal(journal) => Ok(journal.next().await?.map(|rows| Chunk(Held::Journal(rows)))),
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
            #[cfg(feature = "pipeline")]
            Held::Journal(rows) => Box::new(rows.records()),
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

impl From<WrittenError> for Missing {
    fn from(error: WrittenError) -> Self {
        if error.is_final() {
            return Self::ForGood(with_causes(&error));
        }
        match error {
            WrittenError::Fetch(error) => Self::Now(JobError::fetching(error)),
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
