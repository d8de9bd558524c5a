//! A job that is changed: its shards, its pipeline file, its place in its own history, its name.
//!
//! Played on the broker of this repository, and in its core on Apache Kafka, with librdkafka as the reader.

mod fork;
mod pipeline;
mod restore;
mod scene;
mod shards;
