//! Something that is no run of the job and takes its ids again and again.
//!
//! Kafka has no token by which the job's writer could be told from another one that is configured with the same
//! transactional ids. It shows by what does not happen: run after run loses an id, none of them to a newer claim, and
//! nothing is committed in between.

use crate::{
    error::{Code, JobError},
    limits,
};
use hapax_commit::{Name, Positions};
use std::{collections::BTreeSet, time::Duration};

/// The runs of this process that have lost an id since the job last moved on.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Where the last run went on.
    at: Option<Positions>,
    runs: u32,
    ids: BTreeSet<String>,
}

impl Taken {
    /// A run has taken over, and goes on here. An error where that has been for nothing too often: no newer run has claimed
    /// the job, or this one would not have come so far.
    pub(super) fn goes_on(&mut self, job: &Name, positions: &Positions) -> Result<(), JobError> {
        if self.at.as_ref() != Some(positions) {
            *self = Self { at: Some(positions.clone()), ..Self::default() };
        }
        if self.runs < limits::TAKEN_RUNS {
            return Ok(());
        }
        let ids: Vec<&str> = self.ids.iter().map(String::as_str).collect();
        Err(JobError::NeedsPerson {
            code: Code::IdsInUse,
            message: format!(
                "job {job}: another process uses these names: {} runs in a row have lost transactional ids ({}) to another \
                 writer, no newer run has claimed the job, and nothing was committed in between; nothing is lost, and nothing \
                 of the job is left open; find the producer that is configured with these ids (kafka-transactions.sh describe \
                 shows its producer id, a broker's log its address) and stop it, or give it other ids, then start the job again",
                self.runs,
                ids.join(", ")
            ),
            incident: None,
        })
    }

    /// A run has committed an epoch.
    pub(super) fn moved_on(&mut self) {
        (self.runs, self.ids) = (0, BTreeSet::new());
    }

    /// A run has ended so. One that has lived as long as its transactions may have lost an id to a time-out.
    pub(super) fn ended(&mut self, error: &JobError, lived: Duration, timeout: Duration) {
        if let JobError::IdTaken { id, .. } = error
            && lived < timeout
        {
            self.runs += 1;
            self.ids.insert(id.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_commit::{Position, SplitId};

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn at(next: u64) -> Positions {
        let position = Position { next, leader_epoch: None, topic_id: None, file: None, end: None };
        [(SplitId("s/t/0".into()), position)].into()
    }

    fn lost(id: &str) -> JobError {
        JobError::IdTaken { id: id.into(), message: String::new() }
    }

    /// Runs that go on at the position and lose the id; the error of the run that would be the next one.
    fn runs(taken: &mut Taken, count: u32, next: u64, lived: Duration) -> Result<(), JobError> {
        let job = Name::new("job").unwrap();
        for n in 0..count {
            taken.goes_on(&job, &at(next)).unwrap();
            taken.ended(&lost(&format!("job.main.0.{}", n % 2)), lived, TIMEOUT);
        }
        taken.goes_on(&job, &at(next))
    }

    #[test]
    fn as_many_runs_as_the_limit_says_stop_with_the_ids() {
        let lived = Duration::from_secs(1);
        assert!(runs(&mut Taken::default(), limits::TAKEN_RUNS - 1, 5, lived).is_ok());
        let error = runs(&mut Taken::default(), limits::TAKEN_RUNS, 5, lived).unwrap_err();
        assert_eq!((error.exit_code(), error.code()), (4, Code::IdsInUse));
        assert!(error.to_string().contains("job.main.0.0, job.main.0.1"), "{error}");
    }

    /// Also by its recovery: positions move, although no run of its own has worked.
    #[test]
    fn a_job_that_moves_on_is_not_stopped() {
        let (mut taken, lived) = (Taken::default(), Duration::from_secs(1));
        for next in 0..20 {
            runs(&mut taken, limits::TAKEN_RUNS - 1, next, lived).unwrap();
        }
        taken.ended(&lost("job.main.0.0"), lived, TIMEOUT);
        taken.moved_on();
        runs(&mut taken, limits::TAKEN_RUNS - 1, 19, lived).unwrap();
    }

    /// A broker that aborts what is too old gives the id another producer epoch, too.
    #[test]
    fn a_run_that_lived_as_long_as_its_transactions_shows_no_other_writer() {
        runs(&mut Taken::default(), 3 * limits::TAKEN_RUNS, 5, TIMEOUT).unwrap();
    }

    #[test]
    fn a_run_that_ended_otherwise_shows_no_other_writer() {
        let mut taken = Taken::default();
        for _ in 0..3 * limits::TAKEN_RUNS {
            let error = JobError::Run { code: Code::Disturbed, message: String::new() };
            taken.ended(&error, Duration::ZERO, TIMEOUT);
        }
        runs(&mut taken, 0, 5, TIMEOUT).unwrap();
    }
}
