//! The whole stack on one thread, under a seed: client, lanes, runner, store and broker, in virtual time.
//!
//! ```text
//! seed -> Scenario (a swarm: job, settings, which faults, how often)
//!      -> World: broker (the code of hapax-broker), network, store, files; processes, each behind a gate
//!      -> trouble: Keepers start, harm and restart jobs; Chaos does the rest; the input is fed
//!      -> healed: everything must come, once, in order, and then more of it; nothing may stay open
//!      -> ending: jobs are asked to stop, and do
//! ```
//!
//! The oracle reads the broker's logs with a decoder that neither side uses. What violates is the first of: an output that is
//! no beginning of the expected one, a panic, an end of a process that nothing explains, a wait that lasts too long.
//!
//! The same seed gives the same bytes: tokio's clock is paused, every random number comes from the seed, and nothing here or
//! below takes another thread. What would break that is found by [`Report::digest`], which covers every event.

mod campaign;
mod chaos;
mod cluster;
mod disk;
mod fault;
mod file;
mod incident;
mod keeper;
mod network;
mod oracle;
mod panics;
mod process;
mod run;
mod scenario;
#[cfg(test)]
mod scene;
mod signal;
mod trace;
mod workload;
mod world;

pub use campaign::{Campaign, line_of};
pub use fault::Kind;
pub use run::{Planted, Report, Watched, run};
pub use scenario::{Scenario, Workload};
