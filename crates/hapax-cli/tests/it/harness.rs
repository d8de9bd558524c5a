//! What tests of the binary share: where it is, where its files go, names that nobody else uses.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use xtask::hapax::Run;
use xtask::judge::Judge;

/// The binary under test.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_hapax"))
}

/// Starts `hapax run FILE ARGUMENTS` with its output in `log`.
pub(crate) fn run(file: &Path, arguments: &[&str], log: &Path) -> io::Result<Run> {
    Run::start(binary(), file, arguments, log)
}

/// An empty directory in the target directory. It stays there, so that a failure can be looked at; the next run
/// of the same test empties it.
pub(crate) fn directory(name: &str) -> io::Result<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        fs::remove_dir_all(&path)?;
    }
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// A name for a job and its topics that no test before used on a broker that lives longer than this process.
pub(crate) fn unique(name: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is behind 1970");
    format!("{name}-{}-{}", std::process::id(), since.as_millis() % 1_000_000_000)
}

/// A writer that feeds a job and a reader that looks at its output meanwhile.
#[derive(Debug)]
pub(crate) struct Judges {
    pub(crate) feeder: Arc<Judge>,
    pub(crate) reader: Judge,
}

impl Judges {
    pub(crate) fn start() -> io::Result<Judges> {
        Ok(Judges { feeder: Arc::new(Judge::start()?), reader: Judge::start()? })
    }
}
