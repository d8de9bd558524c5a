//! Files of a simulated machine, in memory: incidents are all that a job writes there.

use hapax_host::{FileIdentity, Files, OpenFile};
use std::{
    collections::BTreeMap,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type Content = Arc<Mutex<Vec<u8>>>;

/// The files of a machine. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<BTreeMap<PathBuf, Content>>>);

impl Memory {
    /// Every file.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.files().keys().cloned().collect()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Content>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self, path: &Path) -> io::Result<Content> {
        self.files().get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn bytes(content: &Content) -> MutexGuard<'_, Vec<u8>> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files for Memory {
    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        let bytes = bytes(&self.found(path)?).clone();
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(Opened { content: self.found(path)?, at: 0 }))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        let content = self.files().entry(path.to_owned()).or_default().clone();
        let at = bytes(&content).len();
        Ok(Box::new(Opened { content, at }))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        if self.files().contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.append(path)
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.files().keys().filter(|file| file.parent() == Some(path)).cloned().collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let content = self.files().remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.files().insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files().remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

struct Opened {
    content: Content,
    at: usize,
}

impl OpenFile for Opened {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity { device: 0, inode: 0, length: bytes(&self.content).len() as u64 })
    }
}

impl Read for Opened {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let content = bytes(&self.content);
        let rest = content.get(self.at..).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

impl Write for Opened {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut content = bytes(&self.content);
        let end = self.at + buf.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[self.at..end].copy_from_slice(buf);
        self.at = end;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Opened {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.at as u64, by),
            SeekFrom::End(by) => (bytes(&self.content).len() as u64, by),
        };
        let at = base.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        self.at = usize::try_from(at).map_err(io::Error::other)?;
        Ok(at)
    }
}
