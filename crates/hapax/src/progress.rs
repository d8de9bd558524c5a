//! What a job tells about itself while it runs and when it ends.

use hapax_commit::{Positions, ShardId, SplitId, decision::PassedOver};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A look at a running job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Records read.
    pub records_in: u64,
    /// Those of them that had been read before: this process had written them to its sinks in an earlier run, or they were
    /// of a decided epoch that it has given up (`rewind`). Sinks of guarantee `at-least-once` may get them twice. What a
    /// process that is gone had read behind its last decided epoch is not counted: nobody knows how far that went.
    pub repeated: u64,
    /// Records acknowledged by sinks, in prepared epochs.
    pub records_out: u64,
    /// Records that operators skipped.
    pub skipped: u64,
    /// Records given up by sinks with guarantee `none`.
    pub dropped: u64,
    /// Records that sources hold and the job has not read, where known: a partition of which nothing was read in this run does not
    /// count.
    pub lag: u64,
    /// Newest committed epoch.
    pub epoch: u64,
    /// Wall time of the newest commit, in milliseconds since 1970; 0 before the first.
    pub committed_ms: i64,
    /// Runs begun in this process.
    pub runs: u64,
    /// Strategies of recovery that were listed and not taken, by name and reason (`rewind source-gone`): how often.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub passed_over: BTreeMap<String, u64>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The job.
    pub job: String,
    /// Every record of a bounded job has been read and committed.
    pub finished: bool,
    /// The last look.
    #[serde(flatten)]
    pub progress: Progress,
}

/// Counters that the shards of a process share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records_in: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) records_out: AtomicU64,
    pub(crate) skipped: AtomicU64,
    dropped: Mutex<BTreeMap<(u64, ShardId, usize), u64>>,
    lag: Mutex<BTreeMap<SplitId, u64>>,
    passed_over: Mutex<BTreeMap<String, u64>>,
    /// Up to where records were written to sinks that may be read again.
    written: Mutex<BTreeMap<SplitId, u64>>,
}

impl Counters {
    pub(crate) fn shared() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn set_lag(&self, split: &SplitId, lag: u64) {
        let mut lags = self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        match lags.get_mut(split) {
            Some(known) => *known = lag,
            None => {
                lags.insert(split.clone(), lag);
            }
        }
    }

    /// Up to where a split's records have been written before.
    pub(crate) fn written_to(&self, split: &SplitId) -> u64 {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.get(split).copied().unwrap_or(0)
    }

    /// Records up to here are written, as far as sinks without a transaction are concerned.
    pub(crate) fn set_written(&self, split: &SplitId, next: u64) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        match written.get_mut(split) {
            Some(known) => *known = (*known).max(next),
            None => {
                written.insert(split.clone(), next);
            }
        }
    }

    /// An epoch is given up that ended at these positions.
    pub(crate) fn given_up(&self, positions: &Positions) {
        positions.iter().for_each(|(split, position)| self.set_written(split, position.next));
    }

    /// Records that a writer, of the process's `run`th run, has given up so far.
    pub(crate) fn set_dropped(&self, run: u64, shard: ShardId, writer: usize, count: u64) {
        if count > 0 {
            let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
            dropped.insert((run, shard, writer), count);
        }
    }

    pub(crate) fn pass_over(&self, passed: &PassedOver) {
        let name = format!("{} {}", passed.strategy.name(), passed.why.name());
        *self.passed_over.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
    }

    pub(crate) fn fill(&self, progress: &mut Progress) {
        progress.records_in = self.records_in.load(Ordering::Relaxed);
        progress.repeated = self.repeated.load(Ordering::Relaxed);
        progress.records_out = self.records_out.load(Ordering::Relaxed);
        progress.skipped = self.skipped.load(Ordering::Relaxed);
        progress.lag = self.lag.lock().unwrap_or_else(PoisonError::into_inner).values().sum();
        progress.passed_over = self.passed_over.lock().unwrap_or_else(PoisonError::into_inner).clone();
        progress.dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner).values().sum();
    }
}
