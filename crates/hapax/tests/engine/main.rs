//! The sink for somebody else's engine, by its public face: on the embedded broker under both transaction protocols, and
//! its core on real Kafka. Outputs are read by the judge (librdkafka).

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    missing_docs,
    reason = "tests stand outside the seam, and a panic is how they fail"
)]

mod inferred;
mod lane;
mod marked;
mod patience;
mod real;
mod recover;
mod two_phase;
mod world;
