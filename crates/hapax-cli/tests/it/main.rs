//! The binary `hapax` as its users meet it: command lines, real Kafka, crashes.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "these tests own processes, files and clocks by nature"
)]

mod broker;
mod change;
mod command_line;
mod commit_phase;
mod demo;
mod embedded;
mod harness;
mod matrix;
mod page;
mod pipeline;
mod recovery;
mod transaction;
mod trouble;
mod two_phase;
