//! What a cluster's transaction coordinators list, asked for without a Java program: milliseconds instead of
//! seconds, so that every test can look.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::wire;

/// A coordinator that has just moved answers when it has loaded its part of the log.
const LOAD_LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// A transaction as a coordinator lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTransaction {
    /// The transactional id.
    pub id: String,
    /// The producer id.
    pub producer_id: i64,
    /// The state in Kafka's words: `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`,
    /// `CompleteAbort`, `PrepareEpochFence`.
    pub state: String,
}

impl ListedTransaction {
    /// Whether a `read_committed` reader waits for it: neither complete nor empty.
    pub fn is_open(&self) -> bool {
        !matches!(self.state.as_str(), "Empty" | "CompleteCommit" | "CompleteAbort")
    }
}

/// Every transaction that the coordinators of a cluster know, by id. `bootstrap` holds IP addresses with ports,
/// separated by commas; the first that answers names the brokers, and each of them is asked.
///
/// # Errors
/// No address answers, or some broker could not list its transactions within 20 seconds.
pub fn transactions(bootstrap: &str) -> io::Result<Vec<ListedTransaction>> {
    let start = Instant::now();
    loop {
        match list(bootstrap) {
            Err(_) if start.elapsed() < LOAD_LIMIT => thread::sleep(PAUSE),
            other => return other,
        }
    }
}

fn list(bootstrap: &str) -> io::Result<Vec<ListedTransaction>> {
    let mut found = Err(io::Error::new(io::ErrorKind::InvalidInput, "no address was given"));
    for address in bootstrap.split(',') {
        found = wire::brokers(address.trim());
        if found.is_ok() {
            break;
        }
    }
    let mut listed = Vec::new();
    for broker in found? {
        listed.extend(wire::list_transactions(&broker.address)?);
    }
    listed.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(listed)
}
