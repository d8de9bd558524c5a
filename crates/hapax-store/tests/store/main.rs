//! Promises of the checkpoint store, over memory, over local files, and over stores that fail.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod chain;
mod fault;
mod golden;
mod job;
#[cfg(feature = "journal")]
mod journal;
mod local;
mod put;
mod sample;
