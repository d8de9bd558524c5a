//! Bytes to messages and back, by the `kafka-protocol` crate.

mod message;

pub use message::{ADVERTISED, Malformed, Request, Response};
