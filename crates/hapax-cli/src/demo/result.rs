//! What a demo has found: a table for people, an object for programs.

use super::ledger::Tally;
use crate::command::grouped;
use serde_json::{Value, json};
use std::time::Duration;

/// Counts of a demo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Orders that were written into the input, as their writer says.
    pub(super) records: u64,
    pub(super) kills: u64,
    /// Of them at crash points.
    pub(super) at_points: u64,
    /// The newest committed epoch.
    pub(super) epochs: u64,
    /// Decided epochs whose commit a later process has finished.
    pub(super) resumed: u64,
    /// Epochs that the broker had given up, and that a later process has read and written again.
    pub(super) repaired: u64,
    pub(super) tally: Tally,
    pub(super) took: Duration,
}

impl Found {
    /// Records that should be there and are not, input that the auditor has not seen among them.
    pub(super) fn lost(&self) -> u64 {
        self.tally.missing + self.records.saturating_sub(self.tally.input)
    }

    pub(super) fn is_exact(&self) -> bool {
        let Tally { duplicated, reordered, foreign, complete, .. } = self.tally;
        complete && self.lost() + duplicated + reordered + foreign == 0
    }

    /// A line that is shown while it goes on.
    pub(super) fn line(&self, kills: usize) -> String {
        let Tally { input, output, missing, duplicated, .. } = self.tally;
        format!(
            "{}/{kills} kills | epoch {} | {} in | {} out | {} lost | {} duplicated | {} commits resumed",
            self.kills,
            grouped(self.epochs),
            grouped(input),
            grouped(output),
            grouped(missing),
            grouped(duplicated),
            grouped(self.resumed)
        )
    }

    pub(super) fn table(&self) -> String {
        let rows = [
            ("orders written", self.records),
            ("kills (SIGKILL)", self.kills),
            ("  of them at crash points of the commit", self.at_points),
            ("epochs committed", self.epochs),
            ("  by the run after the one that decided them", self.resumed),
            ("epochs timed out by the broker, written again", self.repaired),
            ("large orders expected", self.tally.expected),
            ("large orders read (read_committed)", self.tally.output),
            ("lost", self.lost()),
            ("duplicated", self.tally.duplicated),
            ("reordered", self.tally.reordered),
            ("foreign or changed", self.tally.foreign),
            ("seconds", self.took.as_secs()),
        ];
        let row = |(what, count): (&str, u64)| format!("  {what:<48}{:>10}", grouped(count));
        rows.map(row).join("\n")
    }

    pub(super) fn json(&self, topics: (&str, &str)) -> Value {
        json!({
            "records": self.records,
            "kills": self.kills,
            "kills_at_crash_points": self.at_points,
            "epochs": self.epochs,
            "resumed": self.resumed,
            "repaired": self.repaired,
            "expected": self.tally.expected,
            "read": self.tally.output,
            "lost": self.lost(),
            "duplicated": self.tally.duplicated,
            "reordered": self.tally.reordered,
            "foreign": self.tally.foreign,
            "seconds": self.took.as_secs_f64(),
            "input": topics.0,
            "output": topics.1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_audit_without_findings_is_exact() {
        let right = Found {
            records: 9,
            tally: Tally { input: 9, complete: true, ..Tally::default() },
            ..Found::default()
        };
        assert!(right.is_exact());
        let with = |change: fn(&mut Found)| {
            let mut found = right.clone();
            change(&mut found);
            found.is_exact()
        };
        assert!(!with(|found| found.tally.complete = false));
        assert!(!with(|found| found.tally.missing = 1));
        assert!(!with(|found| found.tally.duplicated = 1));
        assert!(!with(|found| found.tally.reordered = 1));
        assert!(!with(|found| found.tally.foreign = 1));
        assert!(!with(|found| found.records = 10));
    }
}
