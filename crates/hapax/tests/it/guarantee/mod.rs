//! What each guarantee means, on real Kafka: the contract's rules, and the losses that others had.
//!
//! Outputs are read by the judge (librdkafka), checkpoints from the chain's files; neither knows of the job. A fault
//! that a test injects is asserted to have happened.

mod boundary;
mod captured;
mod case;
mod outage;
mod refused;
mod rewind;
mod running;
mod scripted;
mod silence;
mod split;
mod taken;
mod undecided;
mod unresolved;
mod wire;

use std::{
    thread,
    time::{Duration, Instant},
};

/// Longest wait for what must come: far above what a loaded machine takes.
const LIMIT: Duration = Duration::from_secs(120);

/// The value that comes; a panic that names it when it does not.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
