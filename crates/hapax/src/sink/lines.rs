//! Lines to a file or to standard output: each record's value and a line break.
//!
//! For looking (`none`), or into a file at least once: at a barrier the file is flushed to the disk before the epoch
//! counts as written. A run that was killed in the middle of a line leaves it cut; the next one begins a new line
//! and writes the record again. All shards append to one file, whole lines at a time.
//!
//! A pipe or a device (`/dev/stdout`) takes lines under `none` only: it keeps nothing, and is not read for a cut line.
//!
//! Refuses exactly once: a file cannot take back what was appended. A value with a line break is no line: it is
//! refused, or dropped and counted under `none`. A tombstone is the line `null`.

use super::{BoxFuture, Guarantee, Prepared, Sink, SinkError, SinkWriter, WriterContext};
use crate::{
    batch::Batch,
    cluster::Clusters,
    limits,
    source::{SourceTopic, irregular},
};
use hapax_commit::{Epoch, Identity, Name};
use hapax_host::{Host, OpenFile};
use std::{
    fmt,
    io::{self, Read, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinesTarget {
    /// Standard output.
    Stdout,
    /// Appended to a file, which is created where it is absent.
    File(PathBuf),
}

impl fmt::Display for LinesTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Writes lines.
#[derive(Clone, Debug)]
pub struct LinesSink {
    name: String,
    target: LinesTarget,
    guarantee: Guarantee,
    shared: Shared,
}

/// The file, opened by the first writer and shared by the shards of a process.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Option<Box<dyn OpenFile>>>>);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl LinesSink {
    /// To standard output, with no guarantee.
    pub fn stdout(name: &str) -> Self {
        Self::new(name, LinesTarget::Stdout, Guarantee::None)
    }

    /// Appends to a file; `durable` promises each record at least once.
    pub fn file(name: &str, path: PathBuf, durable: bool) -> Self {
        let guarantee = if durable { Guarantee::AtLeastOnce } else { Guarantee::None };
        Self::new(name, LinesTarget::File(path), guarantee)
    }

    fn new(name: &str, target: LinesTarget, guarantee: Guarantee) -> Self {
        Self { name: name.to_owned(), target, guarantee, shared: Shared::default() }
    }

    fn failed(&self, source: io::Error) -> SinkError {
        SinkError::File { sink: self.name.clone(), path: self.target.to_string(), source }
    }

    /// Refuses what cannot keep the sink's promise. Nothing is opened: a pipe without a reader would wait.
    fn check_kind(&self, path: &Path) -> Result<(), SinkError> {
        let reason = match irregular(path) {
            Ok(Some(what)) if path.is_dir() => format!("{} is {what}; name a file in it", path.display()),
            Ok(Some(what)) if self.guarantee != Guarantee::None => format!(
                "{} is {what} and not a regular file, and keeps nothing; set guarantee = \"none\", or write to a file",
                path.display()
            ),
            // What is not there yet is made, and what cannot be asked is told of by opening it.
            Ok(_) | Err(_) => return Ok(()),
        };
        Err(SinkError::Configuration { sink: self.name.clone(), reason })
    }
}

impl Sink for LinesSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    fn transactional_cluster(&self) -> Option<&Name> {
        None
    }

    fn topics<'a>(&'a self, _: &'a Clusters) -> BoxFuture<'a, Result<Vec<SourceTopic>, SinkError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn writer<'a>(&'a self, cx: WriterContext) -> BoxFuture<'a, Result<Box<dyn SinkWriter>, SinkError>> {
        Box::pin(async move {
            if let LinesTarget::File(path) = &self.target {
                self.check_kind(path)?;
                self.shared.open(&cx.host, path).map_err(|source| self.failed(source))?;
            }
            let sink = self.clone();
            Ok(Box::new(LinesWriter { sink, buffer: Vec::new(), waiting: 0, written: 0, dropped: 0 })
                as Box<dyn SinkWriter>)
        })
    }
}

impl Shared {
    fn open(&self, host: &Host, path: &Path) -> io::Result<()> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.is_some() {
            return Ok(());
        }
        if let Ok(Some(_)) = irregular(path) {
            *shared = Some(host.files().append(path)?);
            return Ok(());
        }
        let cut = is_cut(host, path)?;
        let mut file = host.files().append(path)?;
        if cut {
            file.write_all(b"\n")?;
        }
        // The file's name is durable only with its folder.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        host.files().open(folder.unwrap_or(Path::new(".")))?.sync()?;
        *shared = Some(file);
        Ok(())
    }

    fn with<T>(&self, use_file: impl FnOnce(&mut dyn OpenFile) -> io::Result<T>) -> io::Result<T> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = shared.as_mut() else {
            return Err(io::Error::other("the file was closed after a failure"));
        };
        let used = use_file(&mut **file);
        if used.is_err() {
            // The next run opens it again, and so looks at its last line again.
            *shared = None;
        }
        used
    }
}

/// Is the last line of the file without a line break?
fn is_cut(host: &Host, path: &Path) -> io::Result<bool> {
    let mut file = match host.files().open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    if file.identity()?.length == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

struct LinesWriter {
    sink: LinesSink,
    buffer: Vec<u8>,
    /// Records in the buffer.
    waiting: u64,
    /// Records written in the epoch.
    written: u64,
    dropped: u64,
}

impl LinesWriter {
    fn push(&mut self, batch: &Batch) -> Result<(), SinkError> {
        for record in batch.iter() {
            let value = record.value.unwrap_or(b"null");
            if value.contains(&b'\n') {
                self.refuse(batch, record.offset)?;
                continue;
            }
            self.buffer.extend_from_slice(value);
            self.buffer.push(b'\n');
            self.waiting += 1;
            if self.buffer.len() >= limits::LINE_BUFFER {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// A value that is no line.
    fn refuse(&mut self, batch: &Batch, offset: i64) -> Result<(), SinkError> {
        if self.sink.guarantee == Guarantee::None {
            self.dropped += 1;
            return Ok(());
        }
        let origin = batch.origin();
        let place = match origin.partitions {
            Some(_) => format!("record at {}-{} offset {offset}", origin.topic, origin.partition),
            None => format!("record of the line at byte {offset} of {}", origin.topic),
        };
        let reason = format!(
            "the {place} has a line break in its value, so it is not one line; reshape it with an operator, or set \
             guarantee = \"none\" to drop such records"
        );
        Err(SinkError::BadRecord { sink: self.sink.name.clone(), reason })
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let wrote = match &self.sink.target {
            LinesTarget::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&self.buffer).and_then(|()| out.flush())
            }
            LinesTarget::File(_) => self.sink.shared.with(|file| file.write_all(&self.buffer)),
        };
        let waiting = std::mem::take(&mut self.waiting);
        self.buffer.clear();
        match wrote {
            Ok(()) => self.written += waiting,
            Err(error) if self.sink.guarantee == Guarantee::None => {
                if self.dropped == 0 {
                    tracing::warn!(sink = %self.sink.name, "records are dropped: writing {}: {error}", self.sink.target);
                }
                self.dropped += waiting;
            }
            Err(error) => return Err(self.sink.failed(error)),
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<Prepared, SinkError> {
        self.flush()?;
        if self.sink.guarantee == Guarantee::AtLeastOnce && self.written > 0 {
            self.sink.shared.with(|file| file.sync()).map_err(|source| self.sink.failed(source))?;
        }
        Ok(Prepared { records: std::mem::take(&mut self.written), ..Prepared::default() })
    }
}

impl SinkWriter for LinesWriter {
    fn begin(&mut self, _: Epoch) {}

    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async move { self.push(batch) })
    }

    fn prepare(&mut self, _: Epoch) -> BoxFuture<'_, Result<Prepared, SinkError>> {
        Box::pin(async move { self.settle() })
    }

    fn recorded(&mut self, _: Epoch, _: Option<Identity>) {}

    fn wants_barrier(&self) -> bool {
        false
    }

    fn failed(&mut self) -> BoxFuture<'_, SinkError> {
        Box::pin(std::future::pending())
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
