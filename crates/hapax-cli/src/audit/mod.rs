//! The audit behind `hapax verify`: are the records of one side those of the other, each once, in order?
//!
//! Knows nothing of Kafka, of files of lines or of a job's checkpoints: readers feed it [`Item`]s of the expected
//! and of the actual side, in any order. Memory is bounded by sorting on disk ([`Config::memory`], twice at most,
//! and a few MiB of buffers), whatever the number of records.
//!
//! What it compares, for each id (a hash of the whole record, or of what `--id` yields):
//! - k times expected, m times there: max(0, k - m) are *missing*, max(0, m - k) are *duplicated*; with k = 0 all m
//!   are *unexpected*;
//! - in order ([`Ordering`]): a record is *reordered* if a record that should come after it stands before it in its
//!   output partition. Only pairs of one source partition (or of one group) are compared.
//!
//! What it cannot tell: which of several identical records in several partitions is which. Their number is
//! compared, their order is not, and [`Report::order_unchecked`] says how many they are.

mod item;
mod join;
mod limits;
mod report;
mod sorter;
mod spool;
#[cfg(test)]
mod tests;

pub(crate) use item::{Id, Item, Order, OrderTooLong, Place};
pub(crate) use limits::SORT_MEMORY;
pub(crate) use report::{Example, Finding, Report};
pub(crate) use spool::SpillError;

use hapax_host::Host;
use item::Side;
use sorter::Sorter;
use spool::Spool;
use std::path::PathBuf;

/// What order means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordering {
    /// Records of one source partition stand in each output partition in the order of their source offsets.
    SourcePosition,
    /// Order values do not descend within an output partition and a group: the group that the actual item names,
    /// else the source partition of the record. The value is the actual item's, else the expected one's.
    Value,
}

/// How to audit.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// What order means.
    pub(crate) ordering: Ordering,
    /// Bytes of records in memory before a sort spills to disk; [`SORT_MEMORY`] where nothing speaks against it.
    pub(crate) memory: usize,
    /// An existing folder for spill files; they take as much space as ids and places of all records.
    pub(crate) folder: PathBuf,
    /// The machine.
    pub(crate) host: Host,
}

/// An audit that is being fed.
pub(crate) struct Audit {
    config: Config,
    records: Sorter,
    /// Of the record that is being encoded.
    buffer: Vec<u8>,
}

impl Audit {
    /// An audit without records.
    pub(crate) fn new(config: Config) -> Self {
        let records = Sorter::new(Spool::new(config.host.clone(), config.folder.clone()), config.memory);
        Self { config, records, buffer: Vec::new() }
    }

    /// Takes a record of the expected side.
    ///
    /// # Errors
    /// Spilling failed; the audit cannot go on.
    pub(crate) fn expected(&mut self, item: &Item) -> Result<(), SpillError> {
        self.add(Side::Expected, item)
    }

    /// Takes a record of the actual side.
    ///
    /// # Errors
    /// Spilling failed; the audit cannot go on.
    pub(crate) fn actual(&mut self, item: &Item) -> Result<(), SpillError> {
        self.add(Side::Actual, item)
    }

    /// Compares.
    ///
    /// # Errors
    /// Spilling failed.
    pub(crate) fn finish(self) -> Result<Report, SpillError> {
        let Self { config, records, .. } = self;
        let (records, spilled) = records.finish()?;
        let lines = Sorter::new(Spool::new(config.host, config.folder), config.memory);
        let mut report = Report { spilled_runs: spilled, ..Report::default() };
        join::join(config.ordering, records, lines, &mut report)?;
        Ok(report)
    }

    fn add(&mut self, side: Side, item: &Item) -> Result<(), SpillError> {
        item::encode(side, item, &mut self.buffer);
        self.records.push(&self.buffer)
    }
}
