//! What makes an epoch final, and what is done about an epoch whose outcome is in doubt.

#[cfg(feature = "pipeline")]
mod aside;
#[cfg_attr(not(feature = "pipeline"), allow(dead_code, reason = "a pipeline asks more"))]
mod brokers;
#[cfg(feature = "pipeline")]
mod change;
#[cfg(feature = "pipeline")]
mod checkpoint;
#[cfg(feature = "pipeline")]
mod coordinate;
#[cfg(feature = "pipeline")]
mod fit;
#[cfg(feature = "pipeline")]
pub(crate) mod inspect;
#[cfg_attr(not(feature = "pipeline"), allow(dead_code, reason = "a pipeline also keeps records aside"))]
mod records;
#[cfg(feature = "pipeline")]
mod recover;
mod repair;
#[cfg(feature = "pipeline")]
mod tidy;
mod told;
#[cfg(feature = "pipeline")]
mod transaction;

pub(crate) use brokers::Brokers;
#[cfg(feature = "pipeline")]
pub(crate) use change::foreign_cluster;
#[cfg(feature = "pipeline")]
pub use change::{CheckpointLine, CheckpointStanding};
#[cfg(feature = "pipeline")]
pub(crate) use checkpoint::{CheckpointDecider, CheckpointStart, Intent};
pub(crate) use told::{marker_of, needs_person};
#[cfg(feature = "pipeline")]
pub(crate) use transaction::{
    OwnIdentities, RecordAt, TransactionDecider, TransactionStart, bookmarked_by, carried_transactions,
    changed_meanwhile, group, not_begun, nothing_to_end, own_topic, resolved,
};

#[cfg(feature = "pipeline")]
use crate::{
    error::JobError,
    run::shard::{FromShard, ToShard},
    source::BoxFuture,
    stop::StopSignal,
};
#[cfg(feature = "pipeline")]
use hapax_commit::{DeciderKind, Epoch, Identity, LaneId, Positions, ShardId};
#[cfg(feature = "pipeline")]
use hapax_host::Instant;
#[cfg(feature = "pipeline")]
use std::collections::BTreeMap;
#[cfg(feature = "pipeline")]
use tokio::sync::mpsc;

#[cfg(feature = "pipeline")]
/// Where a run goes on after it has taken over.
#[derive(Clone, Debug)]
pub struct Takeover {
    /// Epoch of each shard's first record.
    pub epochs: BTreeMap<ShardId, Epoch>,
    /// Positions of every split.
    pub positions: Positions,
    /// Identities of each lane's ids, as clearing them answered.
    pub identities: BTreeMap<LaneId, [Identity; 3]>,
    /// A bounded job that has ended: there is nothing to do.
    pub finished: bool,
}

#[cfg(feature = "pipeline")]
/// How a run ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// A bounded job is done, and that is recorded.
    Finished,
    /// The job was asked to stop; everything read is committed, and that is recorded.
    Stopped,
}

#[cfg(feature = "pipeline")]
/// The channels between a cohort's shards and its decider.
#[derive(Debug)]
pub struct ShardLinks {
    /// To each shard.
    pub(crate) commands: BTreeMap<ShardId, mpsc::Sender<ToShard>>,
    /// From all of them.
    pub(crate) events: mpsc::Receiver<FromShard>,
    /// Zero of monotonic milliseconds.
    pub(crate) zero: Instant,
}

#[cfg(feature = "pipeline")]
/// Makes epochs final.
pub trait Decider: Send {
    /// What stands in the job record.
    fn kind(&self) -> DeciderKind;

    /// Takes the job over from whatever ran before: claim, clear, resolve, clear the rest, read progress.
    fn take_over(&mut self) -> BoxFuture<'_, Result<Takeover, JobError>>;

    /// Last before records are read: no partition that will be written holds an old transaction of the job open.
    fn end_left_open(&self) -> BoxFuture<'_, Result<(), JobError>>;

    /// Drives the shards from barrier to barrier until the end.
    fn drive<'a>(
        &'a mut self,
        shards: ShardLinks,
        stop: StopSignal,
    ) -> BoxFuture<'a, Result<RunEnd, JobError>>;
}
