//! The scripts of this repository as a library: real Apache Kafka for tests, and a reader that is not ours.
//!
//! | module | owns |
//! | --- | --- |
//! | [`kafka`] | the jars of each Kafka version, brokers as child processes, the brokers that tests share |
//! | [`tools`] | Apache Kafka's own command-line tools |
//! | [`judge`] | the independent reader and writer (librdkafka in a Python process) |
//! | [`node`] | a client in JavaScript, for tests of our broker |
//! | [`hapax`] | runs of the program under test, and records that are fed to them |
//! | [`process`] | child processes that never outlive this one, signals |
//! | [`cache`] | the directory outside the checkout where downloads are kept |
//!
//! Integration tests of other crates use it as a dev-dependency, so it depends on no crate of this workspace
//! (a shared mistake cannot cancel itself out) and on nothing asynchronous: every call blocks.
//! Errors are [`std::io::Error`] with a text that says what was attempted and what happened.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate owns processes, files and clocks by nature; it is not part of the product"
)]

pub mod cache;
pub mod hapax;
pub mod judge;
pub mod kafka;
pub mod node;
pub mod process;
pub mod tools;
