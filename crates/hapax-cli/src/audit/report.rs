//! What an audit found.

use super::{item::Place, limits::EXAMPLES};
use std::collections::BTreeSet;

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Records on the expected side.
    pub(crate) expected: u64,
    /// Records on the actual side.
    pub(crate) actual: u64,
    /// Expected and not there, or fewer times than expected; examples are places on the expected side.
    pub(crate) missing: Finding,
    /// Expected, and there more times than expected; examples are places on the actual side, with an expected one.
    pub(crate) duplicated: Finding,
    /// There and not expected at all; examples are places on the actual side.
    pub(crate) unexpected: Finding,
    /// Behind a record that they should precede; examples are places on the actual side, with that record's.
    pub(crate) reordered: Finding,
    /// Records on both sides whose order cannot be told: they lack an order value, or stand identically in several
    /// partitions, or some of their copies are missing. Not a finding.
    pub(crate) order_unchecked: u64,
    /// Sorted runs that were written to disk.
    pub(crate) spilled_runs: u64,
}

impl Report {
    /// Nothing missing, duplicated, unexpected or reordered.
    pub(crate) fn is_clean(&self) -> bool {
        [&self.missing, &self.duplicated, &self.unexpected, &self.reordered]
            .iter()
            .all(|finding| finding.count == 0)
    }
}

/// How many records, and which for example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Number of records.
    pub(crate) count: u64,
    /// The first of them by partition and offset.
    pub(crate) examples: BTreeSet<Example>,
}

/// One record of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Example {
    /// Where it stands.
    pub(crate) at: Place,
    /// The record that it is in conflict with.
    pub(crate) other: Option<Place>,
}

impl Finding {
    pub(super) fn add(&mut self, at: Place, other: Option<Place>) {
        self.count += 1;
        let example = Example { at, other };
        if self.examples.len() < EXAMPLES {
            self.examples.insert(example);
        } else if self.examples.last().is_some_and(|last| example < *last) {
            self.examples.pop_last();
            self.examples.insert(example);
        }
    }

    /// Adds records whose places are not known.
    pub(super) fn add_unnamed(&mut self, count: u64) {
        self.count += count;
    }
}
