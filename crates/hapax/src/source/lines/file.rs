//! Files: which one a position belongs to, and reading on from there.

use super::{
    Chunk, Reader, SourceError, chunk,
    cut::{Rules, cut},
};
use crate::{
    batch::Origin,
    limits,
    source::{BoxFuture, irregular},
};
use hapax_commit::Position;
use hapax_host::{Host, OpenFile};
use std::{
    collections::VecDeque,
    io::{self, Read, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Identity and length of the file at a path.
pub(super) fn identify(host: &Host, path: &Path) -> Result<(String, u64), SourceError> {
    identity_of(host, path, None).map_err(|source| failed(path, source))
}

/// `device:inode:head length:checksum of the head`; the head is as long as asked, or what there is of it now.
fn identity_of(host: &Host, path: &Path, head: Option<usize>) -> io::Result<(String, u64)> {
    let mut file = host.files().open(path)?;
    let found = file.identity()?;
    let wanted = head.unwrap_or(limits::FILE_HEAD).min(limits::FILE_HEAD);
    let mut bytes = Vec::with_capacity(wanted);
    (&mut file).take(wanted as u64).read_to_end(&mut bytes)?;
    let checksum = hapax_kafka::record::crc32c(&bytes);
    Ok((format!("{}:{}:{}:{checksum:08x}", found.device, found.inode, bytes.len()), found.length))
}

pub(super) fn failed(path: &Path, source: io::Error) -> SourceError {
    SourceError::File { path: path.display().to_string(), source }
}

fn gone(path: &Path, byte: u64, reason: String) -> SourceError {
    SourceError::Gone { place: format!("file {}: byte {byte}", path.display()), reason }
}

/// Is the file at the path still the one of the position, with everything before it and up to its end?
pub(super) fn check(host: &Host, path: &Path, position: &Position) -> Result<(), SourceError> {
    let gone = |reason: String| gone(path, position.next, reason);
    if let Ok(Some(what)) = irregular(path) {
        return Err(gone(format!(
            "{what} is in its place; put the file back, or run with --fresh to begin anew"
        )));
    }
    let known = position.file.as_deref().unwrap_or_default();
    let head = known.split(':').nth(2).and_then(|length| length.parse().ok());
    let (found, length) = match identity_of(host, path, head) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(gone(
                "the file is not there any more; put it back, or run with --fresh to begin anew".into(),
            ));
        }
        found => found.map_err(|source| failed(path, source))?,
    };
    if found != known {
        return Err(gone(format!(
            "another file is in its place (device:inode:head {found}, not {known}); put the first one back, or run \
             with --fresh to begin anew"
        )));
    }
    let needed = position.end.unwrap_or(0).max(position.next);
    if length < needed {
        return Err(gone(format!("the file has {length} bytes and had {needed}: it was cut")));
    }
    Ok(())
}

/// One file, read on from a position.
pub(super) struct FileLines {
    path: PathBuf,
    file: Box<dyn OpenFile>,
    origin: Arc<Origin>,
    position: Position,
    rules: Rules,
    /// What was read and is not cut yet: the beginning of a line.
    rest: Vec<u8>,
}

impl FileLines {
    pub(super) fn open(
        host: &Host,
        path: &Path,
        origin: Arc<Origin>,
        position: Position,
        rules: Rules,
    ) -> Result<Self, SourceError> {
        check(host, path, &position)?;
        let opened = host.files().open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(position.next))?;
            Ok(file)
        });
        let file = opened.map_err(|source| failed(path, source))?;
        Ok(Self { path: path.to_owned(), file, origin, position, rules, rest: Vec::new() })
    }

    /// More lines, or none where the file has no more whole ones now.
    fn read(&mut self, timestamp: i64) -> Result<Option<Chunk>, SourceError> {
        loop {
            let read_to = self.position.next + self.rest.len() as u64;
            let wanted =
                self.position.end.map_or(u64::MAX, |end| end - read_to).min(limits::LINE_BUFFER as u64);
            let count = (&mut self.file)
                .take(wanted)
                .read_to_end(&mut self.rest)
                .map_err(|source| failed(&self.path, source))?;
            if count == 0 && self.position.end.is_some_and(|end| read_to < end) {
                let reason = format!("the file ends at byte {read_to}: it was cut");
                return Err(gone(&self.path, self.position.next, reason));
            }
            let read_to = read_to + count as u64;
            let last = self.position.end == Some(read_to);
            let lines = cut(&self.rest, self.position.next, last, self.rules, &self.origin, timestamp)?;
            if lines.taken > 0 {
                self.rest.drain(..lines.taken);
                self.position.next += lines.taken as u64;
                // How many records are left is known at the end only.
                let lag = self.position.at_end().then_some(0);
                return Ok(Some(chunk(lines, self.position.clone(), lag)));
            }
            if count == 0 {
                return Ok(None);
            }
        }
    }

    /// Is the open file still the one that a position in it would be checked against?
    fn check(&self, host: &Host) -> Result<(), SourceError> {
        check(host, &self.path, &self.position)
    }
}

/// Reads files one after the other; followed ones in turn.
pub(super) struct FilesReader {
    host: Host,
    files: VecDeque<FileLines>,
}

impl FilesReader {
    pub(super) fn new(host: Host, files: Vec<FileLines>) -> Self {
        Self { host, files: files.into() }
    }

    /// Nothing is awaited between reading a chunk and returning it, so a dropped future loses nothing.
    async fn read(&mut self) -> Result<Chunk, SourceError> {
        // A file is always ready: others on this worker get their turn here.
        tokio::task::yield_now().await;
        loop {
            for _ in 0..self.files.len() {
                let Some(mut file) = self.files.pop_front() else { break };
                let timestamp = self.host.wall_ms();
                let read = file.read(timestamp);
                let ended = file.position.at_end();
                match &read {
                    Ok(Some(_)) if !ended && file.position.end.is_some() => self.files.push_front(file),
                    Ok(Some(_)) if !ended => self.files.push_back(file),
                    Ok(None) if !ended => {
                        file.check(&self.host)?;
                        self.files.push_back(file);
                    }
                    _ => {}
                }
                if let Some(chunk) = read? {
                    return Ok(chunk);
                }
            }
            if self.files.is_empty() {
                std::future::pending::<()>().await;
            }
            self.host.sleep(limits::FOLLOW_INTERVAL).await;
        }
    }
}

impl Reader for FilesReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Chunk, SourceError>> {
        Box::pin(self.read())
    }
}
