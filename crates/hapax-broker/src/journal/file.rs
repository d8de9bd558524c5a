//! The journal's file: opened or begun, locked, appended to.

use super::entry::{self, Entry, Kept};
use crate::state::{Input, Machine, Millis, Settings};
use bytes::Bytes;
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

const MAGIC: &[u8; 8] = b"HAPAXBRJ";
/// Of the bytes, and of what the machine makes of them: a change that lets the same inputs give another state is a new
/// format, too.
const FORMAT: u32 = 2;
const NAME: &str = "broker.journal";

/// Length, checksum, and a checksum of both.
const PRELUDE: usize = 12;

/// The longest payload: a frame and what is said beside it.
const LONGEST: usize = crate::wire::frame::LARGEST_FRAME + 64 * 1024;

/// A digest follows this many records at least, and a quarter of all that there are: it costs as much as there is in
/// the machine, so each record pays for a few others at most.
const BETWEEN_DIGESTS: u64 = 1_000;

/// What is kept of the buffer between two records.
const ROOM: usize = 4 * 1024 * 1024;

/// Why there is no journal, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refuses.
    #[error("journal {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// Another process has it.
    #[error("journal {}: another broker uses it; stop that one, or take another folder", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a journal, or one of a newer release.
    #[error("journal {}: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Bytes are not as they were written.
    #[error(
        "journal {}: damaged at byte {at}: {why}; what follows cannot be trusted, so restore a copy of the file, or \
         begin with an empty folder",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the record begins.
        at: u64,
        /// What is wrong.
        why: String,
    },
    /// The records give another state than they gave their writer.
    #[error(
        "journal {}: its records give another state at byte {at} than when they were written, so what clients were told \
         would no longer hold; it was begun by release {release} and this is {}: go on with the release that wrote it, \
         or begin with an empty folder",
        path.display(),
        env!("CARGO_PKG_VERSION")
    )]
    Strayed {
        /// The file.
        path: PathBuf,
        /// Where the record begins that says what the state was.
        at: u64,
        /// The release that began the journal.
        release: String,
    },
    /// An earlier write failed: what the file ends with is not known.
    #[error("journal {}: an earlier write failed, so nothing more is applied; start the broker again", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
    },
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    release: String,
    created_ms: Millis,
    settings: Settings,
}

/// A journal that is open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    sync: bool,
    broken: bool,
    buffer: Vec<u8>,
    /// Records behind the header, digests not counted.
    records: u64,
    /// How many of them there were at the last digest.
    digested: u64,
}

/// What a journal gave back.
pub(crate) struct Restored {
    /// The machine after the last record.
    pub(crate) machine: Machine,
    /// Higher than every ticket that the records name.
    pub(crate) next_ticket: u64,
    /// Records that were replayed.
    pub(crate) records: u64,
}

#[allow(
    clippy::disallowed_methods,
    reason = "the broker stands beside the system under test, with files of its own"
)]
impl Journal {
    /// Opens a folder's journal and replays it, or begins one with these settings.
    pub(crate) fn open(
        folder: &Path,
        settings: Settings,
        now: Millis,
        sync: bool,
    ) -> Result<(Self, Restored), JournalError> {
        let path = folder.join(NAME);
        let failed = |source| JournalError::Io { path: path.clone(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Locked { path }),
            Err(TryLockError::Error(source)) => return Err(JournalError::Io { path, source }),
        }
        let mut journal =
            Self { path, file, sync, broken: false, buffer: Vec::new(), records: 0, digested: 0 };
        let restored = match journal.read_header()? {
            Some((header, at)) => journal.replay(header, &settings, at)?,
            None => journal.begin(folder, settings, now)?,
        };
        Ok((journal, restored))
    }

    /// Is the machine's digest wanted before the next input?
    pub(crate) fn wants_digest(&self) -> bool {
        self.records - self.digested >= BETWEEN_DIGESTS.max(self.records / 4)
    }

    /// Is there an input behind the last digest?
    pub(crate) fn is_ahead(&self) -> bool {
        self.records > self.digested
    }

    /// Keeps an input. Must be done before the input is applied.
    pub(crate) fn append(&mut self, time: Millis, entry: &Entry<'_>) -> Result<(), JournalError> {
        if self.broken {
            return Err(JournalError::Broken { path: self.path.clone() });
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; PRELUDE]);
        entry.encode(time, &mut self.buffer);
        seal(&mut self.buffer);
        let written = self.still_there().and_then(|()| self.file.write_all(&self.buffer));
        let written = written.and_then(|()| self.synced());
        self.buffer.shrink_to(ROOM);
        match entry {
            Entry::Digest(_) => self.digested = self.records,
            Entry::Request(..) | Entry::Gone(_) | Entry::Step(_) | Entry::Time => self.records += 1,
        }
        written.map_err(|source| {
            self.broken = true;
            self.failed(source)
        })
    }

    /// What is written to a file that was removed outlives nothing.
    fn still_there(&self) -> io::Result<()> {
        #[cfg(unix)]
        if std::os::unix::fs::MetadataExt::nlink(&self.file.metadata()?) == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed while it was in use"));
        }
        Ok(())
    }

    fn synced(&self) -> io::Result<()> {
        if self.sync { self.file.sync_data() } else { Ok(()) }
    }

    fn begin(&mut self, folder: &Path, settings: Settings, now: Millis) -> Result<Restored, JournalError> {
        let header = Header {
            format: FORMAT,
            release: env!("CARGO_PKG_VERSION").into(),
            created_ms: now,
            settings: settings.clone(),
        };
        let mut record = vec![0; PRELUDE];
        record.extend(serde_json::to_vec(&header).expect("settings are plain data"));
        seal(&mut record);
        let bytes = [MAGIC.as_slice(), &record].concat();
        self.cut(0)?;
        self.file.write_all(&bytes).map_err(|source| self.failed(source))?;
        if self.sync {
            let folder = File::open(folder).and_then(|folder| folder.sync_all());
            self.file.sync_all().and(folder).map_err(|source| self.failed(source))?;
        }
        Ok(Restored { machine: Machine::new(settings, now), next_ticket: 0, records: 0 })
    }

    /// The header and where it ends; `None` where there is no whole one, because its writer died.
    fn read_header(&mut self) -> Result<Option<(Header, u64)>, JournalError> {
        let length = self.file.metadata().map_err(|source| self.failed(source))?.len();
        self.file.seek(SeekFrom::Start(0)).map_err(|source| self.failed(source))?;
        let mut magic = Vec::new();
        let mut start = (&self.file).take(MAGIC.len() as u64);
        start.read_to_end(&mut magic).map_err(|source| self.failed(source))?;
        if !MAGIC.starts_with(&magic) {
            return Err(self.foreign("it is not a broker's journal"));
        }
        if magic.len() < MAGIC.len() {
            return Ok(None);
        }
        let mut reader = Reader { from: &self.file, at: MAGIC.len() as u64, end: length };
        let payload = match reader.record().map_err(|source| self.failed(source))? {
            Found::Record(payload) => payload,
            Found::End | Found::Torn(_) => return Ok(None),
            Found::Damage(why) => return Err(self.damaged(MAGIC.len() as u64, why.into())),
        };
        let at = reader.at;
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let unreadable = |error: serde_json::Error| self.foreign(&format!("its header: {error}"));
        let Format { format } = serde_json::from_slice(&payload).map_err(unreadable)?;
        if format != FORMAT {
            return Err(self.foreign(&format!("format {format}, and this release reads format {FORMAT} only: use the release that wrote it, or begin with an \
                 empty folder")));
        }
        Ok(Some((serde_json::from_slice(&payload).map_err(unreadable)?, at)))
    }

    fn replay(&mut self, header: Header, wanted: &Settings, at: u64) -> Result<Restored, JournalError> {
        let path = self.path.display();
        // The seed is the cluster's identity, and every start of a broker may offer another one.
        if header.settings != (Settings { seed: header.settings.seed, ..wanted.clone() }) {
            tracing::warn!(%path, "the journal's settings are in force, not the given ones");
        }
        let release = header.release;
        if release != env!("CARGO_PKG_VERSION") {
            tracing::warn!(%path, release, "the journal was begun by another release");
        }
        let mut machine = Machine::new(header.settings, header.created_ms);
        let (mut next_ticket, mut records, mut digested) = (0, 0, 0);
        let end = self.file.metadata().map_err(|source| self.failed(source))?.len();
        let mut reader = Reader { from: BufReader::with_capacity(256 * 1024, &self.file), at, end };
        let tail = loop {
            let at = reader.at;
            match reader.record().map_err(|source| self.failed(source))? {
                Found::Record(payload) => {
                    let kept = entry::decode(payload).map_err(|why| self.damaged(at, why))?;
                    match kept {
                        Kept::Input(time, input) => {
                            if let Input::Request(call, _) = &input {
                                next_ticket = next_ticket.max(call.ticket.0 + 1);
                            }
                            machine.step(time, input);
                            records += 1;
                        }
                        Kept::Digest(digest) if digest == machine.digest() => digested = records,
                        Kept::Digest(_) => {
                            return Err(JournalError::Strayed { path: self.path.clone(), at, release });
                        }
                    }
                }
                Found::End => break at,
                Found::Torn(bytes) => {
                    tracing::warn!(%path, at, bytes, "cut off a record that was not written to its end");
                    break at;
                }
                Found::Damage(why) => return Err(self.damaged(at, why.into())),
            }
        };
        self.cut(tail)?;
        (self.records, self.digested) = (records, digested);
        Ok(Restored { machine, next_ticket, records })
    }

    fn cut(&mut self, at: u64) -> Result<(), JournalError> {
        let cut = self.file.set_len(at).and_then(|()| self.file.seek(SeekFrom::Start(at)));
        cut.map(drop).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), source }
    }

    fn foreign(&self, why: &str) -> JournalError {
        JournalError::Foreign { path: self.path.clone(), why: why.into() }
    }

    fn damaged(&self, at: u64, why: String) -> JournalError {
        JournalError::Damaged { path: self.path.clone(), at, why }
    }
}

/// Fills in the prelude of a record.
fn seal(record: &mut [u8]) {
    let (prelude, payload) = record.split_at_mut(PRELUDE);
    let length = u32::try_from(payload.len()).expect("a frame is far shorter");
    prelude[..4].copy_from_slice(&length.to_be_bytes());
    prelude[4..8].copy_from_slice(&checksum(payload).to_be_bytes());
    let check = checksum(&prelude[..8]);
    prelude[8..].copy_from_slice(&check.to_be_bytes());
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

enum Found {
    Record(Bytes),
    End,
    /// A record that is there in part, and how much of it.
    Torn(u64),
    Damage(&'static str),
}

struct Reader<R> {
    from: R,
    at: u64,
    end: u64,
}

impl<R: Read> Reader<R> {
    fn record(&mut self) -> io::Result<Found> {
        let rest = self.end - self.at;
        if rest == 0 {
            return Ok(Found::End);
        }
        if rest < PRELUDE as u64 {
            return Ok(Found::Torn(rest));
        }
        let mut prelude = [0; PRELUDE];
        self.from.read_exact(&mut prelude)?;
        let word =
            |at: usize| u32::from_be_bytes([prelude[at], prelude[at + 1], prelude[at + 2], prelude[at + 3]]);
        let (length, sum, check) = (word(0), word(4), word(8));
        if check != checksum(&prelude[..8]) {
            // A machine that lost power may leave a file that grew and was never filled.
            let blank = prelude == [0; PRELUDE] && self.is_blank()?;
            return Ok(if blank {
                Found::Torn(rest)
            } else {
                Found::Damage("a record's length is not as written")
            });
        }
        let whole = PRELUDE as u64 + u64::from(length);
        if length as usize > LONGEST {
            return Ok(Found::Damage("a record is longer than any"));
        }
        if rest < whole {
            return Ok(Found::Torn(rest));
        }
        let mut payload = vec![0; length as usize];
        self.from.read_exact(&mut payload)?;
        if sum != checksum(&payload) {
            return Ok(Found::Damage("a record is not as written"));
        }
        self.at += whole;
        Ok(Found::Record(payload.into()))
    }

    fn is_blank(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 8192];
        loop {
            let read = self.from.read(&mut chunk)?;
            if read == 0 {
                return Ok(true);
            }
            if chunk[..read].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }
}
