//! From the address in the pipeline file to an object store; the root folder of a local one.
//!
//! Folders and files inside the root are made by object_store with the process's umask, so what keeps others out
//! is the root itself: it is made with mode 0700. A root that exists keeps its mode. object_store follows symbolic
//! links inside the root; whoever can put one there can as well write slots.
//!
//! The calls here touch the disk before a job exists, on the caller's thread; everything later goes through
//! object_store, which has its own threads for that.

use crate::error::StoreError;
use object_store::{ObjectStore, local::LocalFileSystem, memory::InMemory};
use std::{io, path::Path, sync::Arc};

/// Opens what `url` names; also returns the prefix that messages put before a path.
pub(crate) fn open(url: &str) -> Result<(Arc<dyn ObjectStore>, String), StoreError> {
    let refuse = |why: &str| StoreError::Address { url: url.to_owned(), why: why.to_owned() };
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(refuse("write file:///absolute/path"));
    };
    match scheme {
        "file" => {
            if !rest.starts_with('/') {
                return Err(refuse("the path must be absolute: file:///absolute/path"));
            }
            if rest.contains(['%', '?', '#', '\0']) {
                return Err(refuse("the path is taken as it stands and must not contain '%', '?' or '#'"));
            }
            let root = Path::new(rest);
            if root.parent().is_none() {
                return Err(refuse("the root of the file system is no place for checkpoints"));
            }
            Ok((Arc::new(open_root(root)?), format!("{}/", rest.trim_end_matches('/'))))
        }
        "memory" => Ok((Arc::new(InMemory::new()), "memory:///".to_owned())),
        "s3" | "gs" | "az" | "azure" | "abfs" | "abfss" | "http" | "https" => {
            Err(refuse("this kind of store is not built into this release; it has file:///absolute/path"))
        }
        _ => Err(refuse("unknown kind of store; write file:///absolute/path")),
    }
}

fn open_root(root: &Path) -> Result<LocalFileSystem, StoreError> {
    let failed = |source| StoreError::Root { path: root.display().to_string(), source };
    make_private_folder(root).map_err(failed)?;
    let store = LocalFileSystem::new_with_prefix(root).map_err(|error| failed(error.into()))?;
    Ok(store.with_fsync(true))
}

/// Makes the folder, not its parents: a missing parent is a volume that is not mounted, or a slip of the pen.
fn make_private_folder(root: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(root) {
        Ok(()) => sync_parent(root),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && root.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
#[allow(clippy::disallowed_methods, reason = "a folder is synced by opening it; the seam has no such call")]
fn sync_parent(root: &Path) -> io::Result<()> {
    root.parent().map_or(Ok(()), |parent| std::fs::File::open(parent)?.sync_all())
}

#[cfg(not(unix))]
fn sync_parent(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_work_are_refused_with_what_to_write_instead() {
        for url in ["", "/var/lib/hapax", "file://relative", "file:///a%20b", "file:///", "ftp://x/y"] {
            let error = open(url).expect_err(url).to_string();
            assert!(error.contains(&format!("{url:?}")), "{error}");
        }
        for url in ["s3://bucket/x", "gs://bucket/x", "az://box/x"] {
            let error = open(url).expect_err(url).to_string();
            assert!(error.contains("not built into this release"), "{error}");
        }
    }
}
