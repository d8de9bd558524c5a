//! Standard error: log lines, messages, and on a terminal one progress line that stays below them. Standard output:
//! what a command answers.
//!
//! Invariants: nothing that cannot be written ends the process, or changes its exit code; control characters of data,
//! which could steer a terminal, are shown and not sent.

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
        let lines = tracing_subscriber::fmt()
            .with_writer(self.clone())
            .with_ansi(false)
            .with_max_level(level)
            // They would be printed to standard error by a macro that panics where that is closed.
            .log_internal_errors(false);
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

    /// Writes what a command answers to standard output. A reader that has gone away wants no more; of another
    /// failure standard error tells.
    pub(crate) fn answer(&self, text: &str) {
        let mut out = io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                self.line(&format!("standard output cannot be written: {error}; the exit code stands"));
            }
            _ => {}
        }
    }

    fn above(&self, bytes: &[u8]) -> io::Result<()> {
        let text = visible(&String::from_utf8_lossy(bytes));
        let bytes = text.as_bytes();
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

/// The text with its control characters written out; lines stay lines.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A log that nobody reads does not end the job.
        let _ = self.above(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Screen {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_lines_stay_lines() {
        assert_eq!(visible("a\0b\x1b[2J\r\u{9b}\nü\t."), "a\\u{0}b\\u{1b}[2J\\u{d}\\u{9b}\nü\t.");
    }
}
