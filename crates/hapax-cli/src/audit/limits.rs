//! Bounds of an audit, with their reasons.

/// Memory of one sort before it spills: a million records fit, and two sorts are never full at once.
pub(crate) const SORT_MEMORY: usize = 64 << 20;

/// Runs merged at once, and so open files: far below the usual limit of 1,024 for each of two sorts.
pub(super) const FAN_IN: usize = 64;

/// Buffer before each run's file. [`FAN_IN`] of them are 4 MiB.
pub(super) const RUN_BUFFER: usize = 64 << 10;

/// Identical records on one side whose order is still followed; of more than these only the number is compared.
pub(super) const COPIES: usize = 10_000;

/// Longest text that `--order` may yield, in bytes: it is stored with every record.
pub(super) const ORDER_TEXT: usize = 255;

/// Examples kept of each finding.
pub(super) const EXAMPLES: usize = 10;
