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
/// A coordinator that is losing or gaining a partition of its log lists less than there is without a word, so an
/// answer counts only if no leadership was moving while it was given.
///
/// # Errors
/// No address answers, or the brokers could not list their transactions within 20 seconds.
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
    let before = view(bootstrap)?;
    // A broker knows of a leadership some milliseconds before its coordinator acts on it.
    thread::sleep(PAUSE);
    let mut listed = Vec::new();
    for broker in &before.brokers {
        listed.extend(wire::list_transactions(&broker.address)?);
    }
    let after = view(bootstrap)?;
    if before.leaders != after.leaders || before.leaders.iter().any(|(_, leader, _)| *leader < 0) {
        return Err(io::Error::other(format!("{LOG} has partitions whose leadership is moving: {after:?}")));
    }
    listed.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(listed)
}

/// The coordinators' log: its leaders are the coordinators.
const LOG: &str = "__transaction_state";

fn view(bootstrap: &str) -> io::Result<wire::View> {
    let mut found = Err(io::Error::new(io::ErrorKind::InvalidInput, "no address was given"));
    for address in bootstrap.split(',') {
        found = wire::view(address.trim(), Some(LOG));
        if found.is_ok() {
            break;
        }
    }
    found
}
