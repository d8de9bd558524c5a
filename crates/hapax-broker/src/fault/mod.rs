//! What goes wrong on purpose, between the wire and the machine; the same in front of a real cluster.
//!
//! ```text
//! request -> Subject (what it is about) -> rules, in the order they were added -> Plan
//!            Plan: acts first (crash, move, jump, wait), then at most one fate of the request, then its answer
//! ```
//!
//! Every rule that matches counts the match; of those that are due, all give their acts, and the first with a fate
//! decides it. A rule that was not heard stays due, and so does one that found nothing to act on. Nothing here is
//! random but by a rule's own seed, so one order of requests gets one order of faults.
//!
//! Refuses: acting on a machine or a cluster. The server and the proxy carry a [`Plan`] out.

mod plan;
mod rebuff;
mod registry;
mod rule;
mod subject;

pub use registry::{Faults, Invalid, Place, RuleGuard, RuleId, RuleReport};
pub use rule::{Afterwards, Api, Rule, Verdict, When};

pub(crate) use plan::{Act, Plan, Turn};
pub(crate) use rebuff::rebuff;
pub(crate) use subject::Subject;
