//! What is handed over, what happens, what is to be done, and what the engine is told.

use crate::{
    evidence::{EndTxnAnswer, LaneLook, PartitionLook},
    handle::{Handle, HandleFault},
    id::{Epoch, Identity},
    inference::{IdOnly, Seen},
};
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

/// What a checkpoint knows of a transaction that it has decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Known {
    /// All that is needed.
    Handle(Handle),
    /// The id, and when it was decided.
    IdOnly(IdOnly),
}

impl Known {
    /// The id that the transaction runs under.
    pub fn transactional_id(&self) -> String {
        match self {
            Self::Handle(handle) => handle.transactional_id.to_string(),
            Self::IdOnly(known) => known.transactional_id.clone(),
        }
    }
}

impl From<Handle> for Known {
    fn from(handle: Handle) -> Self {
        Self::Handle(handle)
    }
}

impl From<IdOnly> for Known {
    fn from(known: IdOnly) -> Self {
        Self::IdOnly(known)
    }
}

/// Why what was handed over is refused. Nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HandoverFault {
    /// A handle breaks an invariant.
    Handle(String, HandleFault),
    /// A handle of another job: its transactions are not ours to end.
    OtherJob(String),
    /// A handle of another cluster.
    OtherCluster(String, String),
    /// Two decided transactions on one id, of which one must have been settled before.
    SameId(String),
}

impl fmt::Display for HandoverFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handle(id, fault) => write!(f, "the handle of {id} breaks the invariant {fault:?}"),
            Self::OtherJob(id) => {
                write!(f, "{id} belongs to another job, whose transactions are not touched")
            }
            Self::OtherCluster(id, cluster) => {
                write!(f, "{id} lives on the cluster with id {cluster}: hand it to the sink of that cluster")
            }
            Self::SameId(id) => write!(
                f,
                "{id} is handed over twice: one of the two was settled before the other began, so hand over only the \
                 newest"
            ),
        }
    }
}

impl core::error::Error for HandoverFault {}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Time has passed: a deadline may be near.
    Tick,
    /// The engine's claim does not hold any more.
    ClaimLost,
    /// Answer to [`Effect::Clear`].
    Cleared {
        /// The id.
        id: String,
        /// The identity to write with.
        identity: Identity,
    },
    /// Answer to [`Effect::Look`].
    Looked {
        /// Which transaction.
        item: usize,
        /// What was seen.
        look: LaneLook,
    },
    /// Answer to [`Effect::Describe`].
    Described {
        /// Which transaction.
        item: usize,
        /// What was seen.
        seen: Seen,
    },
    /// Answer to [`Effect::Commit`].
    EndTxnAnswered {
        /// Which transaction.
        item: usize,
        /// The answer.
        answer: EndTxnAnswer,
    },
    /// Answer to [`Effect::ReadBack`].
    ReadBack {
        /// Which transaction.
        item: usize,
        /// One entry per partition of the handle.
        partitions: Vec<PartitionLook>,
    },
    /// Answer to [`Effect::Rewrite`].
    Rewritten {
        /// Which transaction.
        item: usize,
        /// The prepared handle, or why it cannot be.
        outcome: Result<Handle, String>,
    },
    /// Answer to [`Effect::Tell`].
    Told {
        /// Which transaction.
        item: usize,
    },
    /// What is not known by now is reported as unknown; while ids are cleared it changes nothing.
    PatienceOver,
}

/// What is to be done. Effects are independent of each other; back off by `attempt`, which begins at 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Make sure that the engine's claim holds (else [`Input::ClaimLost`]), then InitProducerId without an identity.
    Clear {
        /// The id.
        id: String,
    },
    /// Read, changing nothing, what the coordinator and, with `markers`, the handle's partitions say.
    Look {
        /// Which transaction.
        item: usize,
        /// The handle.
        handle: Handle,
        /// Read the control batches too.
        markers: bool,
        /// Which try.
        attempt: u32,
    },
    /// Read, changing nothing, what the coordinator or its log says of an id.
    Describe {
        /// Which transaction.
        item: usize,
        /// The id.
        id: String,
        /// Which try.
        attempt: u32,
    },
    /// EndTxn(commit), until definite or until the shell's patience ends.
    Commit {
        /// Which transaction.
        item: usize,
        /// With what.
        with: CommitWith,
    },
    /// Read the first control batch of every partition of a handle whose commit was just answered.
    ReadBack {
        /// Which transaction.
        item: usize,
        /// The handle.
        handle: Handle,
        /// Which try.
        attempt: u32,
    },
    /// Write the records of an aborted transaction again, all or none, and prepare them.
    Rewrite {
        /// Which transaction.
        item: usize,
        /// The aborted transaction.
        handle: Handle,
        /// The number that they are written under.
        epoch: Epoch,
        /// The identity of the id that belongs to this number.
        identity: Identity,
    },
    /// Wait until every partition of a committed transaction knows of it.
    Tell {
        /// Which transaction.
        item: usize,
        /// The handle.
        handle: Handle,
    },
    /// Every transaction was looked at, and what may be done without the engine is done.
    Report(Vec<Settled>),
    /// Every id is cleared; lanes may be opened. Terminal.
    Ready(BTreeMap<String, Identity>),
    /// The engine's claim does not hold any more. Terminal.
    Superseded,
}

/// With what a transaction is committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CommitWith {
    /// Its handle.
    Handle(Handle),
    /// The identity that stood under the id, with the protocol that the cluster offers.
    Inferred {
        /// The id.
        id: String,
        /// The identity.
        identity: Identity,
    },
}

/// One transaction in the report.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settled {
    /// What was handed over.
    pub known: Known,
    /// How it stands.
    pub standing: Standing,
}

/// How a decided transaction stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Committed, by its coordinator and by the control batches in its partitions, and all of them know it.
    Committed,
    /// Aborted; its records are prepared again, under this handle.
    Rewritten(Handle),
    /// Aborted, and not written again for this reason.
    Aborted(String),
    /// Open, and held back for this reason.
    Open(String),
    /// Open without all of its records: it must not be committed.
    Incomplete(String),
    /// Not known.
    Unknown(String),
}
