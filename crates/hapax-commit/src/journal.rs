//! The journal: the records of one lane in one epoch, kept beside the checkpoint until the epoch has its outcome.
//!
//! Owns what a manifest says of it: who wrote it, and number, length and checksum of its parts, so that a part is
//! known as the one that was written before a byte of it is used. Where parts lie and what stands in them is the
//! store's.
//!
//! ```text
//! written with the epoch -> every part stored -> named by the share -> manifest -> outcome in the chain -> removed
//! ```
//!
//! Invariants ([`Journal::fits`]): it has exactly the records of the lane's handle, and no part is empty. An amended
//! handle has the same records, so the journal fits it, too.

use crate::{
    handle::Handle,
    id::{Epoch, Generation, LaneId},
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The journal of one lane and epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Journal {
    /// The lane.
    pub lane: LaneId,
    /// The epoch whose records these are.
    pub epoch: Epoch,
    /// The run that wrote it.
    pub generation: Generation,
    /// Its objects, in order; the number in the list, from 0, is a part of the name.
    pub parts: Vec<JournalPart>,
}

/// One object of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JournalPart {
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-32C of all of them.
    pub crc: u32,
    /// Records in it.
    pub records: u64,
}

impl Journal {
    /// Number of records.
    pub fn records(&self) -> u64 {
        self.parts.iter().map(|part| part.records).sum()
    }

    /// Could these be the records of that transaction? What they are is compared when they are read.
    pub fn fits(&self, handle: &Handle) -> bool {
        self.lane == handle.lane
            && self.records() == handle.records()
            && self.parts.iter().all(|part| part.records > 0 && part.bytes > 0)
    }
}
