//! Bytes into lines, and lines into records. Pure.

use super::{BadLine, LineFormat, STANDARD_INPUT, SourceError};
use crate::{
    batch::{Batch, Headers, Origin, RecordRef},
    limits,
};
use serde::de::IgnoredAny;
use std::sync::Arc;

/// What lines must be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) format: LineFormat,
    pub(super) bad_line: BadLine,
}

/// The records of some bytes.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) batch: Batch,
    /// Bytes taken, line breaks included.
    pub(super) taken: usize,
    /// Lines left out by [`BadLine::Skip`].
    pub(super) skipped: u64,
}

/// Cuts the whole lines at the beginning of `bytes`, which begin at `offset` of the split; `last` says that a line
/// without a line break is one too.
pub(super) fn cut(
    bytes: &[u8],
    offset: u64,
    last: bool,
    rules: Rules,
    origin: &Arc<Origin>,
    timestamp: i64,
) -> Result<Lines, SourceError> {
    let mut batch = Batch::builder(origin.clone());
    let (mut taken, mut skipped) = (0, 0);
    while let Some((line, length)) = next_line(&bytes[taken..], last) {
        let at = offset + taken as u64;
        taken += length;
        match judge(line, rules.format) {
            Verdict::Nothing => {}
            Verdict::Record => batch.push(RecordRef {
                key: None,
                value: Some(line),
                headers: Headers::default(),
                timestamp,
                offset: i64::try_from(at).unwrap_or(i64::MAX),
                topic: None,
                partition: None,
            }),
            Verdict::Bad(reason) => match rules.bad_line {
                BadLine::Skip => {
                    skipped += 1;
                    tracing::warn!("{}: a line was skipped: {reason}", place(origin, at));
                }
                BadLine::Stop => return Err(bad_line(origin, at, reason)),
            },
        }
    }
    if taken == 0 && bytes.len() >= limits::LINE_BYTES {
        let reason = format!(
            "no line break within {} bytes, more than a line may have, also with on_error = \"skip\"; break the line, or \
             take it out of the file",
            limits::LINE_BYTES
        );
        return Err(SourceError::BadRecord { place: place(origin, offset), reason });
    }
    Ok(Lines { batch: batch.build(), taken, skipped })
}

fn bad_line(origin: &Origin, offset: u64, reason: String) -> SourceError {
    let reason = format!("{reason}; mend the line, or set on_error = \"skip\" or format = \"text\"");
    SourceError::BadRecord { place: place(origin, offset), reason }
}

/// A line by the first of its bytes: positions count no lines.
fn place(origin: &Origin, offset: u64) -> String {
    match &*origin.topic {
        STANDARD_INPUT => format!("standard input: the line at byte {offset}"),
        path => format!("file {path}: the line at byte {offset}"),
    }
}

/// The first line without its line break, and its length with it.
fn next_line(bytes: &[u8], last: bool) -> Option<(&[u8], usize)> {
    let (line, length) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], end + 1),
        None if last && !bytes.is_empty() => (bytes, bytes.len()),
        None => return None,
    };
    Some((line.strip_suffix(b"\r").unwrap_or(line), length))
}

enum Verdict {
    Record,
    Nothing,
    Bad(String),
}

fn judge(line: &[u8], format: LineFormat) -> Verdict {
    match format {
        LineFormat::Text => Verdict::Record,
        LineFormat::Json if line.trim_ascii().is_empty() => Verdict::Nothing,
        LineFormat::Json => match std::str::from_utf8(line) {
            Err(error) => Verdict::Bad(format!("the line is not JSON: {error}")),
            Ok(text) => match serde_json::from_str::<IgnoredAny>(text) {
                Ok(_) => Verdict::Record,
                Err(error) => Verdict::Bad(format!("the line is not JSON: {error}")),
            },
        },
    }
}
