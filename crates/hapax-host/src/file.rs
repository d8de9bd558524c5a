//! Files other than the checkpoint store's: lines in, lines out, incidents, the pipeline file, spill files.

use std::{
    fs,
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

/// An open file.
pub trait OpenFile: Read + Write + Seek + Send {
    /// Makes what was written durable.
    ///
    /// # Errors
    /// The disk refuses.
    fn sync(&self) -> io::Result<()>;

    /// What this file is, whatever its name.
    ///
    /// # Errors
    /// The file system does not answer.
    fn identity(&self) -> io::Result<FileIdentity>;
}

/// What tells one file from another with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Access to files by path.
pub trait Files: Send + Sync {
    /// Reads a whole text file.
    ///
    /// # Errors
    /// As the file system says.
    fn read_to_string(&self, path: &Path) -> io::Result<String>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As the file system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>>;

    /// Opens a file for appending, creating it where it is absent.
    ///
    /// # Errors
    /// As the file system says.
    fn append(&self, path: &Path) -> io::Result<Box<dyn OpenFile>>;

    /// Creates a file that must not exist, readable and writable by its owner only.
    ///
    /// # Errors
    /// `AlreadyExists`, or as the file system says.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn OpenFile>>;

    /// Creates a folder and its parents.
    ///
    /// # Errors
    /// As the file system says.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the entries of a folder durable: a new file is there after a loss of power only when its folder is synced.
    ///
    /// # Errors
    /// As the file system says.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// The entries of a folder, sorted.
    ///
    /// # Errors
    /// As the file system says.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Gives a file another name in its folder, in one step.
    ///
    /// # Errors
    /// As the file system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the file system says.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug)]
pub struct RealFiles;

#[allow(clippy::disallowed_methods, reason = "this module is the file system of the seam")]
impl Files for RealFiles {
    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(RealFile(fs::File::open(path)?)))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(RealFile(fs::OpenOptions::new().create(true).append(true).open(path)?)))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        let mut options = fs::OpenOptions::new();
        options.create_new(true).read(true).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    #[cfg(unix)]
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    #[cfg(not(unix))]
    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut entries =
            fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

struct RealFile(fs::File);

impl OpenFile for RealFile {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    #[cfg(unix)]
    fn identity(&self) -> io::Result<FileIdentity> {
        use std::os::unix::fs::MetadataExt;
        let meta = self.0.metadata()?;
        Ok(FileIdentity { device: meta.dev(), inode: meta.ino(), length: meta.len() })
    }

    #[cfg(not(unix))]
    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity { device: 0, inode: 0, length: self.0.metadata()?.len() })
    }
}

impl Read for RealFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for RealFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Seek for RealFile {
    fn seek(&mut self, pos: io::SeekFrom) -> io::Result<u64> {
        self.0.seek(pos)
    }
}
