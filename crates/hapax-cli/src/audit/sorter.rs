//! An external merge sort of byte records, in bounded memory.
//!
//! ```text
//! push -> arena -- full --> sorted run on disk -- FAN_IN of them --> merged into one run
//!           \-- finish: arena, or all runs merged as they are read
//! ```

use super::{
    limits::FAN_IN,
    spool::{Run, RunReader, RunWriter, SpillError, Spool},
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

/// Takes records in any order.
pub(super) struct Sorter {
    spool: Spool,
    memory: usize,
    arena: Arena,
    /// Runs by how often they were merged: only runs of one level are merged, so that a record is rewritten
    /// a logarithmic number of times.
    levels: Vec<Vec<Run>>,
    spilled: u64,
}

/// Records end to end, and where each begins.
#[derive(Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    records: Vec<(u32, u16)>,
}

impl Arena {
    fn record(&self, (start, length): (u32, u16)) -> &[u8] {
        &self.bytes[start as usize..][..usize::from(length)]
    }

    fn size(&self) -> usize {
        self.bytes.len() + size_of::<(u32, u16)>() * self.records.len()
    }

    /// Grows by doubling, but not beyond `most` bytes.
    fn push(&mut self, record: &[u8], most: usize) {
        let needed = self.bytes.len() + record.len();
        if needed > self.bytes.capacity() {
            let wanted = (2 * self.bytes.capacity()).min(most).max(needed);
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        let start = u32::try_from(self.bytes.len()).expect("a sort's memory is below 4 GiB");
        let length = u16::try_from(record.len()).expect("records are bounded by the longest order text");
        self.bytes.extend_from_slice(record);
        self.records.push((start, length));
    }

    fn sort(&mut self) {
        let mut records = std::mem::take(&mut self.records);
        records.sort_unstable_by(|a, b| self.record(*a).cmp(self.record(*b)));
        self.records = records;
    }
}

impl Sorter {
    /// A sort that spills when `memory` bytes are full; the buffers of its open runs come on top.
    pub(super) fn new(spool: Spool, memory: usize) -> Self {
        let memory = memory.min(u32::MAX as usize / 2);
        Self { spool, memory, arena: Arena::default(), levels: Vec::new(), spilled: 0 }
    }

    pub(super) fn push(&mut self, record: &[u8]) -> Result<(), SpillError> {
        let grown = self.arena.size() + record.len() + size_of::<(u32, u16)>();
        if grown > self.memory && !self.arena.records.is_empty() {
            self.spill()?;
        }
        self.arena.push(record, self.memory);
        Ok(())
    }

    /// Turns to reading: all records in order of their bytes, and how many runs were spilled on the way.
    pub(super) fn finish(mut self) -> Result<(Sorted, u64), SpillError> {
        if self.levels.is_empty() {
            self.arena.sort();
            return Ok((Sorted::Memory { arena: self.arena, next: 0 }, 0));
        }
        if !self.arena.records.is_empty() {
            self.spill()?;
        }
        drop(std::mem::take(&mut self.arena));
        let mut runs: Vec<Run> = self.levels.into_iter().flatten().collect();
        while runs.len() > FAN_IN {
            // Only as many as needed, the least merged and so the smallest first.
            let surplus = (runs.len() - FAN_IN + 1).min(FAN_IN);
            let merged = merge(runs.drain(..surplus).collect(), self.spool.create()?)?;
            runs.push(merged);
        }
        Ok((Sorted::Runs(Merge::new(runs)?), self.spilled))
    }

    fn spill(&mut self) -> Result<(), SpillError> {
        self.arena.sort();
        let mut run = self.spool.create()?;
        for record in &self.arena.records {
            run.push(self.arena.record(*record))?;
        }
        self.arena.bytes.clear();
        self.arena.records.clear();
        self.spilled += 1;
        let mut run = run.finish()?;
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            self.levels[level].push(run);
            if self.levels[level].len() < FAN_IN {
                break;
            }
            run = merge(std::mem::take(&mut self.levels[level]), self.spool.create()?)?;
        }
        Ok(())
    }
}

fn merge(runs: Vec<Run>, mut into: RunWriter) -> Result<Run, SpillError> {
    let mut merge = Merge::new(runs)?;
    let mut record = Vec::new();
    while merge.next(&mut record)? {
        into.push(&record)?;
    }
    into.finish()
}

/// Gives records in order.
pub(super) enum Sorted {
    Memory { arena: Arena, next: usize },
    Runs(Merge),
}

impl Sorted {
    /// Puts the next record into `record`; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Vec<u8>) -> Result<bool, SpillError> {
        match self {
            Self::Runs(merge) => merge.next(record),
            Self::Memory { arena, next } => {
                let Some(found) = arena.records.get(*next) else { return Ok(false) };
                record.clear();
                record.extend_from_slice(arena.record(*found));
                *next += 1;
                Ok(true)
            }
        }
    }
}

/// Runs, merged as they are read.
pub(super) struct Merge {
    runs: Vec<RunReader>,
    /// The next record of each run that has one.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
}

impl Merge {
    fn new(runs: Vec<Run>) -> Result<Self, SpillError> {
        let mut heads = BinaryHeap::with_capacity(runs.len());
        let mut runs = runs.into_iter().map(Run::read).collect::<Result<Vec<_>, _>>()?;
        for (at, run) in runs.iter_mut().enumerate() {
            let mut record = Vec::new();
            if run.next(&mut record)? {
                heads.push(Reverse((record, at)));
            }
        }
        Ok(Self { runs, heads })
    }

    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, SpillError> {
        let Some(mut top) = self.heads.peek_mut() else { return Ok(false) };
        let Reverse((record, run)) = &mut *top;
        std::mem::swap(out, record);
        if !self.runs[*run].next(record)? {
            PeekMut::pop(top);
        }
        Ok(true)
    }
}
