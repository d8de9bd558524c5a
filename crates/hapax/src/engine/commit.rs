//! The end of a decided transaction, and what is known of it afterwards.
//!
//! Owns the plain way: EndTxn from the handle alone, then the wait until every partition knows. Anything but a plain
//! answer goes through the same machine as recovery, which looks before it says anything. Refuses to commit an epoch of a
//! lane before the one in front of it, and to call an outcome by another name than it has.

use super::{
    error::EngineError,
    resolve::{Bounds, resolve_one},
    sink::Connected,
};
use crate::{decider::marker_of, error::Code, limits};
use hapax_commit::{
    Epoch, Handle, Identity,
    evidence::EndTxnAnswer,
    recovery::handover::{Handover, Standing},
};
use hapax_host::Deadline;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

/// How a decided transaction has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Committed, and every partition knows it. Store that before [`super::Lane::recorded`].
    Committed(Proof),
    /// The broker has aborted it. The records are where they were, and `read_committed` readers do not see them:
    /// recover, which may write them again, or go back to the checkpoint before if nothing of this one is committed.
    Aborted(Lost),
    /// Not known yet: neither write it again nor call it done. Commit again, or recover.
    Unknown(String),
}

/// That a transaction is committed. Its id may be used again when the engine has stored this: when no checkpoint that
/// the engine could start from names the transaction any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an id gets nothing new before its proof is recorded"]
pub struct Proof {
    pub(super) transactional_id: String,
    pub(super) epoch: Epoch,
    pub(super) next: Identity,
}

impl Proof {
    /// The id of the transaction.
    pub fn transactional_id(&self) -> &str {
        &self.transactional_id
    }
}

/// Records of a decided transaction that readers do not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The transactional id.
    pub transactional_id: String,
    /// Where they are; empty where only the id was known.
    pub partitions: Vec<LostPartition>,
    /// Why they were not written again.
    pub why: String,
}

/// Where records are that readers do not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPartition {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Offset of the first one.
    pub first_offset: i64,
    /// Offset of the last one.
    pub last_offset: i64,
    /// How many; other transactions' records may stand between them.
    pub records: u64,
}

impl Lost {
    pub(super) fn of(handle: &Handle, why: &str) -> Self {
        let partitions = handle.partitions.iter().map(|part| LostPartition {
            topic: part.topic.clone(),
            partition: part.partition,
            first_offset: part.first_offset,
            last_offset: part.last_offset,
            records: part.count,
        });
        Self {
            transactional_id: handle.transactional_id.to_string(),
            partitions: partitions.collect(),
            why: why.to_owned(),
        }
    }

    /// How many records.
    pub fn records(&self) -> u64 {
        self.partitions.iter().map(|part| part.records).sum()
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: aborted by the broker", self.transactional_id)?;
        for part in &self.partitions {
            let LostPartition { topic, partition, first_offset, last_offset, records } = part;
            write!(f, ", {records} records in {topic}-{partition} {first_offset}..{last_offset}")?;
        }
        write!(f, " ({})", self.why)
    }
}

/// The transactions of a lane that are prepared and not yet known to be committed, each with whether EndTxn was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Unproven(Arc<Mutex<BTreeMap<Epoch, bool>>>);

impl Unproven {
    pub(super) fn prepared(&self, epoch: Epoch) {
        self.all().insert(epoch, false);
    }

    /// Was EndTxn sent before?
    fn trying(&self, epoch: Epoch) -> bool {
        self.all().insert(epoch, true).unwrap_or_default()
    }

    fn committed(&self, epoch: Epoch) {
        self.all().remove(&epoch);
    }

    fn first(&self) -> Option<Epoch> {
        self.all().keys().next().copied()
    }

    fn has(&self, epoch: Epoch) -> bool {
        self.all().contains_key(&epoch)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Epoch, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Commits what one lane has prepared; may be used beside it, so that the next epoch is written meanwhile.
#[derive(Clone, Debug)]
pub struct Committer {
    pub(super) connected: Connected,
    pub(super) bounds: Bounds,
    pub(super) lane: hapax_commit::LaneId,
    pub(super) unproven: Unproven,
}

impl Committer {
    /// Commits a transaction that the engine has decided: its handle is in a checkpoint that no other run can supersede.
    /// Repeats EndTxn until its answer is definite or the sink's patience is over. Dropping the future undoes nothing;
    /// it may be called again, in this process or by a recovery in another.
    ///
    /// # Errors
    /// [`EngineError::Usage`]: the handle is not of this lane and run, or an earlier one is not committed.
    /// [`EngineError::NeedsPerson`] with E0408: a partition was not told by its broker (KAFKA-20734), and may not be told
    /// by us. Else what the brokers could not be asked.
    pub async fn commit(&self, handle: &Handle) -> Result<Outcome, EngineError> {
        self.check(handle)?;
        // What became of it meanwhile is looked at, with its control batches: an answer alone does not tell.
        if self.unproven.trying(handle.epoch) {
            return self.look(handle, "before, without an end that was seen").await;
        }
        let Connected { host, client, brokers, job, .. } = &self.connected;
        let deadline = Deadline::after(host.now(), Some(self.bounds.patience));
        let (answer, next) = brokers.end(client, handle, true, deadline, || {}).await;
        if let (EndTxnAnswer::Committed, Some(next)) = (&answer, next) {
            let told = brokers.complete_noting(job, client, handle, &self.connected.late_markers);
            return match host.timeout(self.bounds.patience.max(limits::REPORT_EVERY), told).await {
                Some(told) => {
                    told?;
                    Ok(Outcome::Committed(self.proof(handle, next)))
                }
                None => Ok(Outcome::Unknown(format!(
                    "{}: the coordinator has committed it, and not every partition is known to know it",
                    handle.transactional_id
                ))),
            };
        }
        self.look(handle, &format!("and answered {answer:?}")).await
    }

    /// What became of a transaction whose commit had no plain answer.
    async fn look(&self, handle: &Handle, sent: &str) -> Result<Outcome, EngineError> {
        let id = &handle.transactional_id;
        tracing::warn!(%id, "EndTxn was sent {sent}: the transaction is looked at");
        let standing = resolve_one(&self.connected, self.bounds, Handover::of_one(handle.clone())).await?;
        Ok(match standing {
            Standing::Committed => Outcome::Committed(self.proof(handle, marker_of(handle))),
            Standing::Aborted(why) => Outcome::Aborted(Lost::of(handle, &why)),
            Standing::Open(why) | Standing::Incomplete(why) | Standing::Unknown(why) => {
                Outcome::Unknown(format!("{id}: {why} (EndTxn was sent {sent})"))
            }
            Standing::Rewritten(_) => {
                return Err(EngineError::Bug { what: format!("{id} was written again by a live commit") });
            }
        })
    }

    fn proof(&self, handle: &Handle, next: Identity) -> Proof {
        self.unproven.committed(handle.epoch);
        Proof { transactional_id: handle.transactional_id.to_string(), epoch: handle.epoch, next }
    }

    fn check(&self, handle: &Handle) -> Result<(), EngineError> {
        let (id, epoch) = (&handle.transactional_id, handle.epoch);
        if handle.lane != self.lane || !self.unproven.has(epoch) {
            return Err(EngineError::usage(format!(
                "committing {id}: it is not a transaction that this lane has prepared in this run and not committed yet; \
                 hand those of earlier runs to recover"
            )));
        }
        if self.connected.late_markers.load(Ordering::Relaxed) > 0 {
            return Err(EngineError::Run {
                code: Code::Disturbed,
                message: format!(
                    "committing {id}: a marker that was written in a coordinator's place has no answer: hand over what is \
                     decided to recover of a new sink, which takes the ids anew"
                ),
            });
        }
        match self.unproven.first() {
            Some(first) if first < epoch => Err(EngineError::usage(format!(
                "committing {id}: the lane's transaction {first} was prepared before its {epoch} and is not committed; \
                 commit in order"
            ))),
            _ => Ok(()),
        }
    }
}
