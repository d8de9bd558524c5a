//! Bytes to messages and back, by the `kafka-protocol` crate.

pub mod frame;
mod message;
mod shape;
mod two_phase;

pub(crate) use message::highest;
pub use message::{ADVERTISED, Malformed, Request, Response};
