//! What can go wrong between us and a cluster, and what may have happened all the same.
//!
//! - [`KafkaCode`]: a broker's error code
//! - [`classify`]: the one table that says what a code means for a request
//! - [`CallError`]: no code came back; *was the request perhaps executed?*
//! - [`ClientError`]: the family of the client's own operations
//!
//! Invariant: a request of which a byte may have left the process fails as [`CallError::Unknown`] or
//! [`CallError::Malformed`], never as [`CallError::NotSent`].

mod call;
mod class;
mod client;
mod code;

pub use call::{CallError, Cause};
pub use class::{Class, Disturbance, Refusal, RequestKind, classify};
pub use client::ClientError;
pub use code::KafkaCode;
