//! What tests of the binary share: where it is, where its files go, names that nobody else uses.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xtask::hapax::{Feed, Part, Run};
use xtask::judge::{Judge, Numbers};

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

/// Each part of a trickle is this share of what is left of it: it slows down, and does not end before somebody has seen
/// what it was for.
const TRICKLE_SHARE: u64 = 24;

/// Input that waits for a job, input that trickles in while it works, and the rest, which comes when it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    /// Partitions of the topic.
    pub(crate) partitions: u32,
    /// Of those, the first ones that get records before the rest.
    pub(crate) busy: u32,
    /// Records that wait for the job.
    pub(crate) backlog: u64,
    /// Records that come before the rest: backlog and trickle.
    pub(crate) before_rest: u64,
    /// All records.
    pub(crate) total: u64,
    /// Between two parts of the trickle.
    pub(crate) pause: Duration,
}

/// An input on its way.
#[derive(Debug)]
pub(crate) struct Trickle {
    feed: Feed,
    rest: Arc<AtomicBool>,
}

impl Trickle {
    pub(crate) fn start(judge: &Arc<Judge>, bootstrap: &str, topic: &str, input: Input) -> Trickle {
        let rest = Arc::new(AtomicBool::new(false));
        let wanted = rest.clone();
        let feed = Feed::start(judge.clone(), bootstrap, topic, input.pause, move |from| {
            let rest = wanted.load(Ordering::SeqCst);
            let left = input.before_rest.saturating_sub(from);
            match (from, left) {
                (0, _) => Part::Write(Numbers::new(input.busy, input.backlog)),
                (written, _) if written == input.total => Part::End,
                (_, 0) if rest => Part::Write(Numbers::new(input.partitions, input.total - from)),
                (_, 0) => Part::Wait,
                (_, left) if rest => Part::Write(Numbers::new(input.busy, left)),
                (_, left) => {
                    let part = (left / TRICKLE_SHARE).max(u64::from(input.partitions)).min(left);
                    Part::Write(Numbers::new(input.busy, part))
                }
            }
        });
        Trickle { feed, rest }
    }

    /// The first number of which no writing has begun.
    pub(crate) fn begun(&self) -> u64 {
        self.feed.begun()
    }

    /// Lets the rest come, and returns how many numbers were written.
    pub(crate) fn join(&mut self) -> io::Result<u64> {
        self.rest.store(true, Ordering::SeqCst);
        self.feed.join()
    }
}
