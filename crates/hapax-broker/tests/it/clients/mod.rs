//! Clients that are not ours against the broker: each tells the same story, and each must be told the same.
//!
//! The story (`story/`, one program for each client): a transaction is committed, one is aborted; offsets of a group go
//! in with a commit and with an abort; a second producer with the same id fences the first; a transaction of another
//! id stays open and holds readers of committed records back; then it aborts.
//!
//! `lost.json` is a second one, of answers that get lost: its rules are in force in the broker, and in the proxy in
//! front of Apache Kafka.

mod console;
mod hosted;
mod lost;
mod story;
