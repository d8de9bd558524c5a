//! Any bytes as keys and values of the coordinators' topics.
//!
//! Property: no panic, and memory in proportion. Of `__transaction_state`: a key or value that both the client's and the
//! broker's reader take says the same to both; what the broker makes of a value and writes again, the client reads as the
//! broker does; and a key of the client is the one that the broker writes. Of `__consumer_offsets`: what the broker has
//! read once, it writes in a form that it reads and writes alike.

use crate::memory;
use bytes::Bytes;
use hapax_broker::fuzz::{self as broker, Logged};
use hapax_kafka::transaction::{LoggedTransaction, TransactionState, fuzz as client};
use std::collections::BTreeSet;

/// A tag or an element costs a hundred bytes at most, and a byte on the wire.
const MEMORY: usize = 64 << 10;
const A_BYTE: usize = 256;

/// Runs it.
pub fn run(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    key(&bytes);
    value(&bytes);
    for rewrite in [broker::offsets_key, broker::offset_rewritten, broker::group_rewritten] {
        let limit = MEMORY + A_BYTE * input.len();
        if let Some(once) = memory::within(limit, "a record of __consumer_offsets", || rewrite(bytes.clone()))
        {
            assert_eq!(rewrite(once.clone()).as_ref(), Some(&once), "it is not read as it was written");
        }
    }
}

fn key(bytes: &Bytes) {
    let ours = client::key(bytes);
    let theirs = broker::transactional_id(bytes.clone());
    if let Ok(ours) = ours {
        assert_eq!(theirs.as_deref(), Some(ours));
        assert_eq!(broker::transaction_key(ours), *bytes);
    }
    if let Some(theirs) = theirs {
        assert_eq!(client::key(&broker::transaction_key(&theirs)), Ok(&*theirs));
    }
}

fn value(bytes: &Bytes) {
    let limit = MEMORY + A_BYTE * bytes.len();
    let ours = memory::within(limit, "reading a value", || client::value(bytes));
    let theirs =
        memory::within(limit, "the broker's reading of a value", || broker::transaction(bytes.clone()));
    if let (Ok(ours), Some(theirs)) = (&ours, &theirs) {
        agree(ours, theirs);
    }
    for level in [0, 1, 2] {
        let Some(written) = broker::transaction_rewritten(bytes.clone(), level) else { continue };
        let theirs = broker::transaction(written.clone()).expect("the broker reads what it wrote");
        let ours = client::value(&written).expect("the client reads what the broker wrote");
        agree(&ours, &theirs);
    }
}

fn agree(ours: &LoggedTransaction, theirs: &Logged) {
    let state = match ours.state {
        TransactionState::Empty => 0,
        TransactionState::Ongoing => 1,
        TransactionState::PrepareCommit => 2,
        TransactionState::PrepareAbort => 3,
        TransactionState::CompleteCommit => 4,
        TransactionState::CompleteAbort => 5,
        ref other => panic!("the broker has no state {other}"),
    };
    assert_eq!(state, theirs.state);
    assert_eq!(ours.identity.producer_id.0, theirs.producer_id);
    assert_eq!(ours.identity.producer_epoch.0, theirs.producer_epoch);
    assert_eq!(ours.timeout_ms, theirs.timeout_ms);
    assert_eq!(ours.updated_ms, theirs.updated);
    assert_eq!(ours.start_ms, Some(theirs.start).filter(|start| *start >= 0));
    assert_eq!(ours.client_version, theirs.level);
    let flat = |(topic, partitions): &(String, Vec<i32>)| {
        partitions.iter().map(|partition| (topic.clone(), *partition)).collect::<Vec<_>>()
    };
    let ours: BTreeSet<(String, i32)> = ours.partitions.iter().flat_map(flat).collect();
    assert_eq!(ours, theirs.partitions.iter().cloned().collect());
}
