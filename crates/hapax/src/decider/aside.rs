//! Keeps the records of aborted transactions in a file, before a job goes on without them.
//!
//! Owns the choice of a source for each transaction: the log, which knows the offsets, or the journal where the log does
//! not have the records any more. Refuses a file with a part of the records: either all of every transaction are in it
//! and on the disk, or there is none. While it is written, and where a process died in between, it has another name
//! (`.part`).

use super::{
    records::{Kept, Missing, Origin, RecordReader},
    repair::Outcome,
};
use crate::error::{Code, JobError};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax_commit::{Handle, Journal};
use hapax_host::{Host, OpenFile};
use hapax_kafka::Client;
use hapax_store::Journals;
use serde_json::{Value, json};
use std::{
    io,
    path::{Path, PathBuf},
};

/// A transaction whose records are kept, as far as readers do not see them.
pub(super) struct Lost {
    pub(super) client: Client,
    /// All of it, as it stands in the journal.
    pub(super) handle: Handle,
    /// The partitions that readers do not see it in.
    pub(super) missing: Handle,
    pub(super) journal: Option<Journal>,
}

/// What records are kept with.
pub(super) struct Aside<'a> {
    pub(super) host: &'a Host,
    pub(super) journals: &'a Journals,
    pub(super) lost: &'a [Lost],
    /// The file, which must not be there.
    pub(super) path: &'a Path,
}

impl Aside<'_> {
    /// Writes every record of every transaction into the file, a line of JSON each.
    ///
    /// # Errors
    /// Brokers, store or file system do not answer now.
    pub(super) async fn keep(&self) -> Outcome<()> {
        let mut from = Vec::new();
        for lost in self.lost {
            match self.origin(lost).await {
                Ok(origin) => from.push((lost, origin)),
                Err(Missing::ForGood(why)) => return Ok(Err(why)),
                Err(Missing::Now(error)) => return Err(error),
            }
        }
        if let Some(folder) = self.path.parent() {
            self.host.files().create_dir_all(folder).map_err(|error| self.failed(&error))?;
        }
        let mut part = self.path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let mut file = self.host.files().create_new(&part).map_err(|error| self.failed(&error))?;
        let written = self.write(&from, &mut *file).await;
        if matches!(written, Ok(Ok(()))) {
            self.whole(&part).map_err(|error| self.failed(&error))?;
        } else {
            let _ = self.host.files().remove(&part);
        }
        written
    }

    /// Gives the file its name, which it keeps when the machine loses its power.
    fn whole(&self, part: &Path) -> io::Result<()> {
        self.host.files().rename(part, self.path)?;
        self.path.parent().map_or(Ok(()), |folder| self.host.files().sync_folder(folder))
    }

    /// Where all records of a transaction are.
    async fn origin(&self, lost: &Lost) -> Result<Origin, Missing> {
        let in_log = match self.reader(lost, &Origin::Log).compare().await {
            Ok(()) => return Ok(Origin::Log),
            Err(Missing::ForGood(why)) => why,
            Err(now) => return Err(now),
        };
        let Some(journal) = &lost.journal else {
            let why = format!("{in_log}; and lane {} keeps no journal", lost.handle.lane);
            return Err(Missing::ForGood(why));
        };
        let origin = Origin::Journal { journals: self.journals.clone(), journal: journal.clone() };
        match self.reader(lost, &origin).compare().await {
            Ok(()) => Ok(origin),
            Err(Missing::ForGood(why)) => Err(Missing::ForGood(format!("{in_log}; and {why}"))),
            Err(now) => Err(now),
        }
    }

    fn reader<'b>(&'b self, lost: &'b Lost, origin: &'b Origin) -> RecordReader<'b> {
        RecordReader::new(self.host, &lost.client, lost.read_with(origin), origin)
    }

    async fn write(&self, from: &[(&Lost, Origin)], file: &mut dyn OpenFile) -> Outcome<()> {
        for (lost, origin) in from {
            let (id, name) = (&lost.handle.transactional_id, origin.name());
            tracing::info!(%id, "setting {} records aside, from {name}", lost.missing.records());
            let mut reader = self.reader(lost, origin);
            let handle = lost.read_with(origin);
            let mut places = Places::of(handle);
            loop {
                let chunk = match reader.next().await {
                    Ok(Some(chunk)) => chunk,
                    Ok(None) => break,
                    Err(Missing::ForGood(why)) => return Ok(Err(why)),
                    Err(Missing::Now(error)) => return Err(error),
                };
                let mut text = Vec::new();
                for record in chunk.records() {
                    if !lost.missing.partitions.contains(&handle.partitions[record.part]) {
                        continue;
                    }
                    text.extend_from_slice(places.line(handle, &record).to_string().as_bytes());
                    text.push(b'\n');
                }
                file.write_all(&text).map_err(|error| self.failed(&error))?;
            }
        }
        file.sync().map_err(|error| self.failed(&error))?;
        Ok(Ok(()))
    }

    fn failed(&self, error: &io::Error) -> JobError {
        JobError::Run {
            code: Code::Machine,
            message: format!("setting records aside in {}: {error}", self.path.display()),
        }
    }
}

impl Lost {
    /// A journal has all partitions of the transaction and is compared in whole; the log is read where records are missing.
    fn read_with(&self, origin: &Origin) -> &Handle {
        match origin {
            Origin::Log => &self.missing,
            Origin::Journal { .. } => &self.handle,
        }
    }
}

/// Where the records of a transaction were in the log: the journal does not say it, and where nobody else wrote in
/// between it follows from their order.
struct Places(Vec<Option<i64>>);

impl Places {
    fn of(handle: &Handle) -> Self {
        let is_dense = |part: &hapax_commit::HandlePartition| {
            u64::try_from(part.last_offset - part.first_offset + 1) == Ok(part.count)
        };
        Self(handle.partitions.iter().map(|part| is_dense(part).then_some(part.first_offset)).collect())
    }

    /// One record, with all that is needed to write it again. Bytes that are not UTF-8 stand in Base64 under another
    /// name.
    fn line(&mut self, handle: &Handle, record: &Kept<'_>) -> Value {
        let part = &handle.partitions[record.part];
        let next = &mut self.0[record.part];
        let offset = record.offset.or(*next);
        *next = next.map(|next| next + 1);
        let mut line = json!({
            "cluster_id": handle.cluster_id,
            "epoch": handle.epoch.0,
            "topic": part.topic,
            "partition": part.partition,
            "offset": offset,
            "timestamp": record.timestamp,
        });
        put_bytes(&mut line, "key", record.key);
        put_bytes(&mut line, "value", record.value);
        let header = |(key, value): (&[u8], Option<&[u8]>)| {
            let mut one = json!({});
            put_bytes(&mut one, "key", Some(key));
            put_bytes(&mut one, "value", value);
            one
        };
        line["headers"] = record.as_it_was().headers.iter().map(header).collect();
        line
    }
}

fn put_bytes(line: &mut Value, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => line[name] = Value::Null,
        Some((_, Ok(text))) => line[name] = text.into(),
        Some((bytes, Err(_))) => line[format!("{name}_base64")] = STANDARD.encode(bytes).into(),
    }
}
