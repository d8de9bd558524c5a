//! A job that is changed: its shards, its pipeline file, its place in its own history, its name; or started more than once.
//!
//! Played on the broker of this repository, and in its core on Apache Kafka, with librdkafka as the reader.

mod again;
mod carried;
mod claims;
mod fork;
mod late;
mod naming;
mod pipeline;
mod restore;
mod scene;
mod shards;
mod truncation;
