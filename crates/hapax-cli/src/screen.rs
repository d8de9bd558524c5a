//! Standard error: log lines, messages, and on a terminal one progress line that stays below them.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, PoisonError},
};
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter};

/// Moves to the line's beginning and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Standard error of the process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen {
    /// The progress line, empty where none is shown.
    status: Arc<Mutex<String>>,
}

impl Screen {
    /// Sends log events here.
    pub(crate) fn log_to_it(&self, level: LevelFilter) {
        let lines =
            tracing_subscriber::fmt().with_writer(self.clone()).with_ansi(false).with_max_level(level);
        // Fails only where a subscriber is set already, which then has the log.
        let _ = tracing::subscriber::set_global_default(lines.finish());
    }

    /// Is a person looking?
    pub(crate) fn is_terminal(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Shows a progress line in the place of the one before; an empty one removes it.
    pub(crate) fn status(&self, text: &str) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if *status == text {
            return;
        }
        text.clone_into(&mut status);
        // A terminal that is gone does not end the job.
        let _ = write!(io::stderr(), "{CLEAR}{text}");
    }

    /// Writes a line that stays.
    pub(crate) fn line(&self, text: &str) {
        // As above.
        let _ = self.above(&[text.as_bytes(), b"\n"].concat());
    }

    fn above(&self, bytes: &[u8]) -> io::Result<()> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = io::stderr().lock();
        if status.is_empty() {
            return out.write_all(bytes);
        }
        out.write_all(CLEAR.as_bytes())?;
        out.write_all(bytes)?;
        out.write_all(status.as_bytes())?;
        out.flush()
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.above(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for Screen {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
