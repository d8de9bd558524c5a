//! The cache: where downloads live between runs, outside the checkout.
//!
//! Owns the choice of directory and the locks of what is made there. Several processes may need the same entry
//! at once: one makes it, the others wait. An entry is complete or absent: it is built beside its place and
//! renamed into it, so the rename is its completion marker.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The cache directory: `$HAPAX_CACHE`, else `$XDG_CACHE_HOME/hapax`, else `$HOME/.cache/hapax`, else a
/// directory under the temporary one.
pub fn directory() -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(own) = set("HAPAX_CACHE") {
        return own;
    }
    if let Some(xdg) = set("XDG_CACHE_HOME") {
        return xdg.join("hapax");
    }
    if let Some(home) = set("HOME") {
        return home.join(".cache").join("hapax");
    }
    env::temp_dir().join("hapax-cache")
}

/// The directory `name` of the cache, made by `make` if it is not there.
///
/// `make` gets an empty directory to fill; when it succeeds the directory is renamed into place. A second
/// process that asks for the same name waits for the first.
///
/// # Errors
/// The error of `make`, or of the file system; both name the entry.
pub fn entry(name: &str, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
    let target = directory().join(name);
    if target.is_dir() {
        return Ok(target);
    }
    let parent = target.parent().expect("an entry is inside the cache directory");
    fs::create_dir_all(parent).map_err(|e| explain(&format!("create the cache {}", parent.display()), &e))?;
    let lock = File::create(beside(&target, ".lock"))?;
    lock.lock()?;
    if target.is_dir() {
        return Ok(target);
    }
    let part = beside(&target, ".part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    fs::create_dir_all(&part)?;
    make(&part).map_err(|e| explain(&format!("make the cache entry {}", target.display()), &e))?;
    fs::rename(&part, &target)?;
    Ok(target)
}

/// A short name for `content`, for entries that must be made again when their recipe changes (FNV-1a, 64 bits).
pub fn fingerprint(content: &str) -> String {
    let hash = content
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn beside(target: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(target.file_name().expect("an entry has a name"));
    name.push(suffix);
    target.with_file_name(name)
}

/// `error` with what was attempted in front of it.
pub(crate) fn explain(attempted: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("could not {attempted}: {error}"))
}
