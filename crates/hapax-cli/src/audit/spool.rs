//! Files that an audit spills to: written once, read once, gone whatever happens.
//!
//! A file loses its name as soon as it is open, so that not even a kill leaves it behind; where the system does not
//! allow that, it is removed when it is dropped.

use super::limits::RUN_BUFFER;
use hapax_host::{Host, OpenFile};
use std::{
    io::{self, BufReader, BufWriter, Read, SeekFrom, Write},
    path::PathBuf,
};

/// A spill file could not be used: no space, as a rule.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempt} the spill file {} of the audit; give it a folder with enough space", .path.display())]
pub(crate) struct SpillError {
    /// What was attempted, as a verb.
    pub(crate) attempt: &'static str,
    /// The file.
    pub(crate) path: PathBuf,
    /// What the file system said.
    #[source]
    pub(crate) source: io::Error,
}

/// Where spill files are made.
pub(super) struct Spool {
    host: Host,
    folder: PathBuf,
    /// Random: audits may share a folder.
    name: u128,
    made: u64,
}

impl Spool {
    pub(super) fn new(host: Host, folder: PathBuf) -> Self {
        let name = host.random_u128();
        Self { host, folder, name, made: 0 }
    }

    pub(super) fn create(&mut self) -> Result<RunWriter, SpillError> {
        let path = self.folder.join(format!("hapax-verify-{:032x}-{}.run", self.name, self.made));
        let open = self.host.files().create_new(&path);
        let file = open.map_err(|source| SpillError { attempt: "create", path: path.clone(), source })?;
        self.made += 1;
        let named = self.host.files().remove(&path).is_err();
        let name = RunName { host: self.host.clone(), path, named };
        Ok(RunWriter { file: BufWriter::with_capacity(RUN_BUFFER, file), name })
    }
}

struct RunName {
    host: Host,
    path: PathBuf,
    named: bool,
}

impl RunName {
    fn failed(&self, attempt: &'static str, source: io::Error) -> SpillError {
        SpillError { attempt, path: self.path.clone(), source }
    }
}

impl Drop for RunName {
    fn drop(&mut self) {
        if self.named {
            let _ = self.host.files().remove(&self.path);
        }
    }
}

/// A run that is being written: records as `length 2 | bytes`.
pub(super) struct RunWriter {
    // Before the name: some systems remove closed files only.
    file: BufWriter<Box<dyn OpenFile>>,
    name: RunName,
}

impl RunWriter {
    pub(super) fn push(&mut self, record: &[u8]) -> Result<(), SpillError> {
        let length = u16::try_from(record.len()).expect("records are bounded by the longest order text");
        let written = self.file.write_all(&length.to_be_bytes()).and_then(|()| self.file.write_all(record));
        written.map_err(|source| self.name.failed("write", source))
    }

    /// All records are in.
    pub(super) fn finish(self) -> Result<Run, SpillError> {
        let Self { file, name } = self;
        let file = file.into_inner().map_err(|error| name.failed("write", error.into_error()))?;
        Ok(Run { file, name })
    }
}

/// A written run; takes no memory.
pub(super) struct Run {
    file: Box<dyn OpenFile>,
    name: RunName,
}

impl Run {
    /// Turns to reading, from the beginning.
    pub(super) fn read(self) -> Result<RunReader, SpillError> {
        let Self { mut file, name } = self;
        file.seek(SeekFrom::Start(0)).map_err(|source| name.failed("rewind", source))?;
        Ok(RunReader { file: BufReader::with_capacity(RUN_BUFFER, file), name })
    }
}

/// A run that is being read.
pub(super) struct RunReader {
    file: BufReader<Box<dyn OpenFile>>,
    name: RunName,
}

impl RunReader {
    /// Reads the next record into `record`; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Vec<u8>) -> Result<bool, SpillError> {
        let read = (|| {
            let mut length = [0; 2];
            if self.file.read(&mut length[..1])? == 0 {
                return Ok(false);
            }
            self.file.read_exact(&mut length[1..])?;
            record.resize(usize::from(u16::from_be_bytes(length)), 0);
            self.file.read_exact(record)?;
            Ok(true)
        })();
        read.map_err(|source| self.name.failed("read", source))
    }
}
