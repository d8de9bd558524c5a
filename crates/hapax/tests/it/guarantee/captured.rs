//! The log of every job of this process. Lines are told apart by topics and job names, which are unique.

use std::{
    io,
    sync::{Mutex, OnceLock, PoisonError},
};
use tracing_subscriber::fmt::MakeWriter;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps what is logged from now on.
pub(super) fn capture() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(Keep).finish();
        tracing::subscriber::set_global_default(subscriber).expect("nobody else sets a subscriber here");
    });
}

/// Lines so far that contain every one of `words`.
pub(super) fn lines(words: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).cloned().collect()
}

struct Keep;

impl<'a> MakeWriter<'a> for Keep {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl io::Write for Keep {
    /// The formatter hands over a whole event at a time.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(String::from_utf8_lossy(event).trim_end().to_owned());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
