//! What is at a path, asked before it is opened.
//!
//! Only a regular file has a length, serves a position again, and is opened without waiting: a pipe or a device has
//! length 0 whatever comes out of it, and opening a pipe that nobody writes to waits for ever.

use std::{fs::FileType, io, path::Path};

/// What stands at the path where it is no regular file; links are followed.
///
/// # Errors
/// There is nothing, or the file system does not answer.
pub fn irregular(path: &Path) -> io::Result<Option<&'static str>> {
    let kind = path.metadata()?.file_type();
    Ok((!kind.is_file()).then(|| named(kind)))
}

fn named(kind: FileType) -> &'static str {
    if kind.is_dir() { "a folder" } else { special(kind) }
}

#[cfg(unix)]
fn special(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn special(_: FileType) -> &'static str {
    "something else"
}
