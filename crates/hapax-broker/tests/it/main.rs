//! Tests of the broker as its users have it: by frames on a connection, by rules, by the control port.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "tests stand beside the system under test: files, clocks and sockets are their own, and their helpers may panic"
)]

mod client;
mod clients;
mod conformance;
mod control;
mod fault;
mod frame;
mod journal;
mod proxy;
mod sequence;
mod server;
#[cfg(feature = "store")]
mod store;
mod throughput;
