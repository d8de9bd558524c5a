//! What a demo has found: a table for people, an object for programs.

use super::ledger::Tally;
use crate::command::grouped;
use hapax::{Code, JobError};
use serde_json::{Value, json};
use std::time::Duration;

/// Counts of a demo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Orders that were written into the input, as their writer says.
    pub(super) records: u64,
    /// Kills that were to be.
    pub(super) planned: u64,
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
        let Tally { input, repeated, missing, .. } = self.tally;
        missing + self.records.saturating_sub(input - repeated)
    }

    /// Is everything right, and was there something that could have been wrong?
    pub(super) fn is_exact(&self) -> bool {
        let Tally { expected, duplicated, reordered, foreign, complete, .. } = self.tally;
        complete
            && expected > 0
            && self.kills == self.planned
            && self.lost() + duplicated + reordered + foreign == 0
    }

    /// Has the auditor read all of an input of so many records, and the job passed on the last of what is expected?
    pub(super) fn is_caught_up(&self, input: u64) -> bool {
        self.tally.input >= input && self.tally.pending == 0
    }

    /// What a job says that has not caught up: nothing of it is lost.
    pub(super) fn behind(&self, input: u64, waited: Duration) -> JobError {
        let Tally { input: read, pending, .. } = self.tally;
        let message = format!(
            "the job has not caught up within {waited:?}: {pending} large orders are still to come, and {read} of \
             {input} orders are audited; the machine may be too busy for the demo, so try it again"
        );
        JobError::Run { code: Code::Machine, message }
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
            planned: 3,
            kills: 3,
            tally: Tally { input: 9, expected: 4, output: 4, complete: true, ..Tally::default() },
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
        assert!(!with(|found| found.kills = 2));
        assert!(!with(|found| found.tally.expected = 0), "an audit of nothing finds nothing");
    }

    #[test]
    fn input_that_was_written_again_does_not_stand_for_input_that_is_lost() {
        let tally = Tally { input: 10, repeated: 2, ..Tally::default() };
        assert_eq!(Found { records: 9, tally, ..Found::default() }.lost(), 1);
        assert_eq!(Found { records: 8, tally, ..Found::default() }.lost(), 0);
    }

    #[test]
    fn a_job_that_is_slow_has_lost_nothing() {
        let found = |pending, missing| Found {
            tally: Tally { input: 10, expected: 6, pending, missing, ..Tally::default() },
            ..Found::default()
        };
        assert!(!found(2, 0).is_caught_up(10));
        assert!(!found(0, 0).is_caught_up(11), "nobody knows what is expected of the last one");
        assert!(found(0, 1).is_caught_up(10), "what is missing before the last one is lost");
        let error = found(2, 0).behind(10, Duration::from_secs(180));
        assert!(error.exit_code() != 0 && error.exit_code() != crate::FOUND);
        assert_eq!(found(2, 0).lost(), 0);
        assert!(error.to_string().contains("2 large orders are still to come"), "{error}");
    }
}
