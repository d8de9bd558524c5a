//! The client against real Apache Kafka: 4.4.0 (transactions V2) and 3.9.1 (V1), on shared brokers except where a
//! test hurts one. The judge (librdkafka, Apache Kafka's own tools) shares no code with what is tested.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod client;
mod complete;
mod ending;
mod failover;
mod fetch;
mod level;
mod listing;
mod other_process;
mod producer;
mod state_log;
mod support;
mod two_phase;
