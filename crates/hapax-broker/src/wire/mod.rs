//! Bytes to messages and back, by the `kafka-protocol` crate.

mod message;
mod two_phase;

pub use message::{ADVERTISED, Malformed, Request, Response};
