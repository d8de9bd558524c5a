//! Both sides, met id by id; then the order of what both have.
//!
//! ```text
//! records sorted by id, side, place -> counts, and a line for each matched record of the actual side
//! lines sorted by group, output partition, output offset -> does the value ever descend?
//! ```
//! Identical records are told apart by place where that is sure: all expected copies in one source partition, all
//! actual ones in one output partition, none missing. Then the i-th is the i-th, which is the one pairing without
//! a descent if there is any, and what is left over are repetitions.

use super::{
    Ordering,
    item::{Entry, Id, Place, Side, decode, put_place, take, take_place},
    limits::COPIES,
    report::{Finding, Report},
    sorter::{Sorted, Sorter},
    spool::SpillError,
};

/// Compares sorted records and writes what is found into `report`.
pub(super) fn join(
    ordering: Ordering,
    mut records: Sorted,
    lines: Sorter,
    report: &mut Report,
) -> Result<(), SpillError> {
    let mut join = Join { ordering, lines, report, expected: Copies::default(), actual: Copies::default() };
    let mut current: Option<Id> = None;
    let mut record = Vec::new();
    while records.next(&mut record)? {
        let (id, side, entry) = decode(&record);
        if current.is_some_and(|current| current != id) {
            join.settle()?;
        }
        current = Some(id);
        match side {
            Side::Expected => join.expected.add(entry),
            Side::Actual => join.take_actual(entry),
        }
    }
    join.settle()?;
    let Join { lines, report, .. } = join;
    let (lines, spilled) = lines.finish()?;
    report.spilled_runs += spilled;
    check_order(lines, &mut report.reordered)
}

/// The copies of one id on one side.
#[derive(Default)]
struct Copies {
    count: u64,
    /// The first by place.
    first: Vec<Entry>,
    several_partitions: bool,
}

impl Copies {
    fn add(&mut self, entry: Entry) {
        self.count += 1;
        let partition = entry.place.partition;
        self.several_partitions |= self.first.first().is_some_and(|first| first.place.partition != partition);
        if self.first.len() < COPIES {
            self.first.push(entry);
        }
    }

    fn all(&self) -> bool {
        self.count == self.first.len() as u64
    }

    fn clear(&mut self) {
        self.count = 0;
        self.first.clear();
        self.several_partitions = false;
    }
}

struct Join<'a> {
    ordering: Ordering,
    lines: Sorter,
    report: &'a mut Report,
    expected: Copies,
    actual: Copies,
}

impl Join<'_> {
    /// The expected copies of this id are all known: their side sorts first.
    fn take_actual(&mut self, entry: Entry) {
        let place = entry.place;
        self.actual.add(entry);
        if self.expected.count == 0 {
            self.report.unexpected.add(place, None);
        } else if self.actual.count > self.expected.count {
            let expected = self.expected.first.first().map(|first| first.place);
            self.report.duplicated.add(place, expected);
        }
    }

    /// The id is complete.
    fn settle(&mut self) -> Result<(), SpillError> {
        self.report.expected += self.expected.count;
        self.report.actual += self.actual.count;
        self.add_missing();
        self.add_lines()?;
        self.expected.clear();
        self.actual.clear();
        Ok(())
    }

    fn add_missing(&mut self) {
        let missing = self.expected.count.saturating_sub(self.actual.count);
        let named = self.expected.first.iter().skip(usize::try_from(self.actual.count).unwrap_or(usize::MAX));
        let mut unnamed = missing;
        for entry in named {
            self.report.missing.add(entry.place, None);
            unnamed -= 1;
        }
        self.report.missing.add_unnamed(unnamed);
    }

    /// Writes the lines from which order is checked.
    fn add_lines(&mut self) -> Result<(), SpillError> {
        let matched = self.expected.count.min(self.actual.count);
        let one_output = !self.actual.several_partitions;
        // Which of the actual copies are repetitions is known in one partition: those behind.
        let chosen = self.expected.all() && self.actual.all() && (one_output || self.actual.count == matched);
        if !chosen {
            self.report.order_unchecked += matched;
            return Ok(());
        }
        let paired =
            one_output && !self.expected.several_partitions && self.actual.count >= self.expected.count;
        let matched = usize::try_from(matched).expect("all copies are in memory");
        for (at, actual) in self.actual.first[..matched].iter().enumerate() {
            let source = paired.then(|| &self.expected.first[at]);
            match line(self.ordering, actual, source) {
                Some(line) => self.lines.push(&line)?,
                None => self.report.order_unchecked += 1,
            }
        }
        Ok(())
    }
}

/// `group 17 | output partition 4 | output offset 8 | value`, where both group and value are known.
fn line(ordering: Ordering, actual: &Entry, source: Option<&Entry>) -> Option<Vec<u8>> {
    let of_source = |source: &Entry| (0, u128::from(source.place.partition));
    let (kind, group) = match ordering {
        Ordering::SourcePosition => source.map(of_source)?,
        Ordering::Value => actual.group.map(|group| (1, group)).or_else(|| source.map(of_source))?,
    };
    let mut line = vec![kind];
    line.extend_from_slice(&group.to_be_bytes());
    put_place(actual.place, &mut line);
    match ordering {
        Ordering::SourcePosition => line.extend_from_slice(&source?.place.offset.to_be_bytes()),
        Ordering::Value => {
            let value = actual.order.as_ref().or_else(|| source.and_then(|source| source.order.as_ref()))?;
            line.extend_from_slice(value);
        }
    }
    Some(line)
}

/// Follows each group through each output partition.
fn check_order(mut lines: Sorted, reordered: &mut Finding) -> Result<(), SpillError> {
    /// The greatest value so far of one group in one output partition.
    struct Greatest {
        group: [u8; 17],
        at: Place,
        value: Vec<u8>,
    }
    let mut greatest: Option<Greatest> = None;
    let mut line = Vec::new();
    while lines.next(&mut line)? {
        let mut rest = &line[..];
        let group = take(&mut rest);
        let at = take_place(&mut rest);
        match &mut greatest {
            Some(greatest) if greatest.group == group && greatest.at.partition == at.partition => {
                if rest < &greatest.value[..] {
                    reordered.add(at, Some(greatest.at));
                } else {
                    greatest.at = at;
                    greatest.value.clear();
                    greatest.value.extend_from_slice(rest);
                }
            }
            other => *other = Some(Greatest { group, at, value: rest.to_vec() }),
        }
    }
    Ok(())
}
