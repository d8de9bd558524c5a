//! The inputs that changed the machine, in one file: replaying them restores it, cluster id, topic ids, producer ids
//! and open transactions included.
//!
//! Owns: the bytes of the file, and its lock: two processes on one folder are refused.
//! Refuses: to go on behind damage. A record that a dying process wrote in part is cut off with a warning, for it was
//! never answered; anything else that is not as it was written is an error.
//!
//! ```text
//! file   := magic "HAPAXBRJ", records; the first record is the header (JSON: format, release, created, settings)
//! record := length u32, CRC-32C of the payload u32, CRC-32C of these eight bytes u32, payload
//! payload:= kind u8, time i64, then by kind
//! ```
//!
//! Now and then a record says what the machine's digest was, so that a replay which comes to another state is an error
//! and not another past: a commit must not become an abort because the release did.
//!
//! All numbers are big endian. A record is written, by one call, before its input is answered: that outlives the
//! process (`kill -9`). It outlives the machine if `sync` is on.

mod entry;
mod file;

pub(crate) use entry::Entry;
pub use file::JournalError;
pub(crate) use file::{Journal, Restored};
