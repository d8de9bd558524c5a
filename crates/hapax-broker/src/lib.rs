//! A Kafka for demos, tests, simulation and other people's tests: one process, its log in memory, the hard states of
//! transactions told as Apache Kafka tells them.
//!
//! Not a production broker: one machine, nothing is replicated, and a listener is on loopback unless told otherwise.
//!
//! ```text
//! TCP -> wire (frames, messages) -> fault (rules) -> state (pure: requests and `now` in, answers out)
//! ```
//!
//! Its answers are compared with those of real Kafka; `docs/broker-fidelity.md` says how, and what differs.
//!
//! Shares no code with the client or the commit protocol of this workspace on purpose: a mistake in both would cancel
//! itself out. Its batch reader is a second one for the same reason.

mod batch;
mod codec;
mod control;
pub mod fault;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod journal;
pub mod proxy;
pub mod server;
pub mod state;
#[cfg(feature = "store")]
pub mod store;
pub mod wire;

pub use codec::decompressed;
pub use fault::{Afterwards, Faults, Rule, RuleGuard, Verdict};
pub use journal::JournalError;
pub use kafka_protocol::messages::ApiKey;
pub use proxy::{Proxy, ProxyOptions};
pub use server::{Broker, ServerOptions};
pub use state::{Machine, NodeId, Settings, Step};
