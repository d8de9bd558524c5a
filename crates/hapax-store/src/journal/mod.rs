//! Journals: the records of one lane in one epoch, in parts that are created once.
//!
//! Owns where parts lie, that a part is used only when it is the one that the manifest names, and which parts may go:
//! those of a journal whose epoch has its outcome, and those that a run of an older generation has left. Refuses to
//! remove what it does not know to be older: a name that it would not write, and whatever a newer run puts.
//!
//! ```text
//! part full -> put ──► stored .. named by a manifest ──► outcome in the chain ──► removed
//!                        └─ its run died before the manifest: an orphan, removed behind a later run's first manifest
//! ```

#[cfg(feature = "journal")]
mod part;

#[cfg(feature = "journal")]
pub use part::{FinishedPart, PartReader, PartWriter, Rows};

use crate::{
    error::StoreError,
    layout,
    limits::MOST_PARTS,
    object::{Objects, Settled},
};
use bytes::Bytes;
use hapax_commit::{Generation, Journal, JournalPart, envelope::crc32c};
use object_store::path::Path;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The topic that it was written to.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null.
    pub value: Option<&'a [u8]>,
    /// The headers in order.
    pub headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

/// A cohort's journals. Cheap to clone.
#[derive(Clone)]
pub struct Journals {
    objects: Arc<Objects>,
    folder: Path,
    /// The job record: without it this is not the store that the journals are in.
    anchor: Path,
    /// The folder and all above it are durable.
    is_synced: Arc<AtomicBool>,
}

impl Journals {
    pub(crate) fn new(objects: Arc<Objects>, folder: Path, anchor: Path) -> Self {
        Self { objects, folder, anchor, is_synced: Arc::default() }
    }

    /// Puts the next part of a journal, and adds it to its list. Durable when this returns.
    ///
    /// # Errors
    /// As the store fails; whether the part is there is not known then, and the journal is not to be used.
    pub async fn put(&self, journal: &mut Journal, records: u64, bytes: Bytes) -> Result<(), StoreError> {
        let number = journal.parts.len();
        assert!(number < MOST_PARTS && records > 0, "an epoch ends before its journal has that many parts");
        let path = layout::journal_part(&self.folder, journal, number);
        match self.objects.offer(&path, &bytes, Some(&self.anchor)).await {
            Settled::Stored => {}
            Settled::Other(_) => {
                let why = "another run has written it, and no two runs have one generation".to_owned();
                return Err(StoreError::Misplaced { path: self.objects.label(&path), why });
            }
            Settled::Unknown(error) => return Err(error),
        }
        if !self.is_synced.load(Ordering::Acquire) {
            self.objects.sync_up(&self.folder).await?;
            self.is_synced.store(true, Ordering::Release);
        }
        journal.parts.push(JournalPart { bytes: bytes.len() as u64, crc: crc32c([&bytes, &[]]), records });
        Ok(())
    }

    /// A part of a journal, exactly as it was put; or why it cannot be had.
    ///
    /// # Errors
    /// The store fails: nothing is known of the part then.
    pub async fn get(&self, journal: &Journal, part: usize) -> Result<Result<Bytes, String>, StoreError> {
        let path = layout::journal_part(&self.folder, journal, part);
        let label = self.objects.label(&path);
        let Some(bytes) = self.objects.get(&path).await? else {
            // A store that is not mounted has lost nothing.
            self.objects.require(&self.anchor).await?;
            return Ok(Err(format!("{label} is not there any more")));
        };
        let JournalPart { bytes: length, crc, .. } = journal.parts[part];
        let found = bytes.len() as u64;
        if found != length {
            return Ok(Err(format!("{label} is damaged: it has {found} bytes, and {length} were written")));
        }
        if crc32c([&bytes, &[]]) != crc {
            return Ok(Err(format!("{label} is damaged: the checksum does not fit")));
        }
        Ok(Ok(bytes))
    }

    /// Removes journals whose epoch has its outcome.
    ///
    /// # Errors
    /// As the store fails; a later run removes what is left.
    pub async fn remove(&self, journals: &[Journal]) -> Result<(), StoreError> {
        let parts = |journal: &Journal| {
            let path = |part| layout::journal_part(&self.folder, journal, part);
            (0..journal.parts.len()).map(path).collect::<Vec<_>>()
        };
        self.objects.remove_all(journals.iter().flat_map(parts).collect()).await
    }

    /// Removes what runs before `generation` have left, and says how many objects that were. Only for a run whose own
    /// manifest is in the chain: then everything before it has its outcome.
    ///
    /// # Errors
    /// As the store fails; a later run removes what is left.
    pub async fn remove_older(&self, generation: Generation) -> Result<usize, StoreError> {
        let names = self.objects.names(&self.folder).await?.objects;
        let is_older =
            |name: &&String| layout::journal_generation(name).is_some_and(|found| found < generation);
        let older: Vec<Path> =
            names.iter().filter(is_older).map(|name| self.folder.clone().join(name.as_str())).collect();
        let count = older.len();
        self.objects.remove_all(older).await?;
        Ok(count)
    }
}

impl fmt::Debug for Journals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journals").field("folder", &self.objects.label(&self.folder)).finish_non_exhaustive()
    }
}
