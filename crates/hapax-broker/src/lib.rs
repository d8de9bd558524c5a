//! A Kafka for demos, tests, simulation and other people's tests: one process, its log in memory, the hard states of
//! transactions told as Apache Kafka tells them.
//!
//! Not a production broker: one machine, nothing is replicated, and a listener is on loopback unless told otherwise.
//!
//! ```text
//! TCP -> wire (frames, messages) -> fault (rules) -> state (pure: requests and `now` in, answers out)
//! ```
//!
//! Shares no code with the client or the commit protocol of this workspace on purpose: a mistake in both would cancel
//! itself out. Its batch reader is a second one for the same reason.

mod batch;
pub mod state;
pub mod wire;

pub use state::{Machine, Settings};
