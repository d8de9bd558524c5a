//! The digest of a partition's records, as a handle carries it.
//!
//! CRC-32C over the records in order, each from its key length to its end. What precedes the key length (the
//! record's own length, attributes, timestamp and offset deltas) is relative to the batch, so leaving it out makes the
//! digest the same however the records are cut into batches, and whatever codec those use.

use std::fmt;

use super::crc::RunningCrc;
use super::view::{RecordBody, Records};

/// A digest that grows record by record, over as many batches as there are.
#[derive(Clone, Copy)]
pub struct RecordDigest(RunningCrc);

impl RecordDigest {
    /// The digest of no records.
    pub fn new() -> Self {
        Self(RunningCrc::new())
    }

    /// Adds the next record.
    pub fn update(&mut self, body: RecordBody<'_>) {
        self.0.update(body.as_bytes());
    }

    /// Adds all records of a decoded batch, in order.
    pub fn update_all(&mut self, records: &Records) {
        for view in records.views() {
            self.update(records.body(view));
        }
    }

    /// The digest of all records so far.
    pub fn value(&self) -> u32 {
        self.0.value()
    }
}

impl Default for RecordDigest {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RecordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordDigest({:#010x})", self.value())
    }
}
