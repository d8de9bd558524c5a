//! From less than a handle: a checkpoint that knows only the id of its transaction.
//!
//! Owns the comparison of what a coordinator, or the coordinators' log, says of an id with what the checkpoint knows.
//! Refuses to take over whatever stands under the id: the state must be one that the checkpoint's own transaction can
//! be in, it must have begun in time, and its partitions must be the ones that were written.
//!
//! | state | began in time, partitions fit | else |
//! | --- | --- | --- |
//! | Ongoing | open: it may be committed with the identity found there | refused |
//! | Prepare* | ending: look again | refused |
//! | CompleteCommit | committed | refused |
//! | CompleteAbort | aborted | refused |
//! | Empty, Dead, forgotten | refused: how it ended is not known | refused |
//!
//! The time is the coordinator's, the checkpoint's time the engine's: their clocks are compared, so what is refused for
//! a second is refused rightly. Nobody is asked to be exact: a transaction of the next checkpoint on the same id begins
//! after this one was decided, by as long as an epoch lasts.
//!
//! Sources: KIP-664; `TransactionMetadata` (the start time stays in Complete*, partitions leave it as they are told).

use crate::{evidence::TransactionState, id::Identity};
use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

/// What a checkpoint knows of a transaction where it has no handle. Any transactional id, of whatever shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdOnly {
    /// The id.
    pub transactional_id: String,
    /// When the checkpoint was decided, in milliseconds since 1970: what began later is not its transaction.
    pub decided_ms: i64,
    /// When the transaction began at the earliest, in milliseconds since 1970: what began before is an older one.
    pub started_after_ms: Option<i64>,
    /// The topics that it may have written.
    pub topics: Option<BTreeSet<String>>,
    /// The partitions that it has written, all of them.
    pub partitions: Option<BTreeSet<(String, i32)>>,
}

impl IdOnly {
    /// An id of a checkpoint that was decided then.
    pub fn new(transactional_id: impl Into<String>, decided_ms: i64) -> Self {
        Self {
            transactional_id: transactional_id.into(),
            decided_ms,
            started_after_ms: None,
            topics: None,
            partitions: None,
        }
    }
}

/// What a coordinator, or its log, says of an id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// It knows the id.
    Known {
        /// Its state.
        state: TransactionState,
        /// Its identity.
        identity: Identity,
        /// When its last transaction began, in milliseconds since 1970.
        start_ms: Option<i64>,
        /// Partitions of the open transaction; while it ends, those that are not told yet.
        partitions: Vec<(String, Vec<i32>)>,
    },
    /// It does not know the id.
    Forgotten,
    /// No answer that can be used now.
    Unanswered(String),
}

/// What follows for the checkpoint's transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Inference {
    /// It is open, under this identity.
    Open(Identity),
    /// It is ending.
    Ending(TransactionState),
    /// It is committed.
    Committed,
    /// It is aborted.
    Aborted,
    /// Nobody has answered.
    Unanswered(String),
    /// What is there is not the checkpoint's transaction, or cannot be told to be.
    Refused(Refusal),
}

/// Why what stands under an id is not taken for the checkpoint's transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The coordinator does not know the id: it has expired (7 days), or was never used on this cluster.
    Forgotten,
    /// An identity was given since and nothing begun: how the last transaction ended is not known any more.
    NothingBegun,
    /// It began after the checkpoint was decided: a later transaction of the same id.
    BeganLater {
        /// When it began.
        start_ms: i64,
        /// When the checkpoint was decided.
        decided_ms: i64,
    },
    /// It began before the checkpoint's transaction can have begun.
    BeganEarlier {
        /// When it began.
        start_ms: i64,
        /// When the checkpoint's began at the earliest.
        started_after_ms: i64,
    },
    /// When it began is not told.
    NoStart,
    /// It has written to other partitions.
    OtherPartitions {
        /// Where.
        found: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forgotten => {
                f.write_str("the coordinator does not know the id: it has expired, or was never used")
            }
            Self::NothingBegun => f.write_str(
                "the id was initialised since, so how its last transaction ended is not known any more",
            ),
            Self::BeganLater { start_ms, decided_ms } => write!(
                f,
                "the transaction began at {start_ms}, after the checkpoint was decided at {decided_ms}: it is a later one"
            ),
            Self::BeganEarlier { start_ms, started_after_ms } => write!(
                f,
                "the transaction began at {start_ms}, and the checkpoint's not before {started_after_ms}: it is an older one"
            ),
            Self::NoStart => f.write_str("when the transaction began is not told"),
            Self::OtherPartitions { found } => {
                write!(
                    f,
                    "the transaction has written to {found}, which the checkpoint's did not or not only"
                )
            }
        }
    }
}

/// Compares what is there with what the checkpoint knows.
pub fn infer(known: &IdOnly, seen: &Seen) -> Inference {
    let (state, identity, start_ms, partitions) = match seen {
        Seen::Known { state, identity, start_ms, partitions } => (*state, *identity, *start_ms, partitions),
        Seen::Forgotten => return Inference::Refused(Refusal::Forgotten),
        Seen::Unanswered(why) => return Inference::Unanswered(why.clone()),
    };
    let inference = match state {
        TransactionState::Empty | TransactionState::Dead => {
            return Inference::Refused(Refusal::NothingBegun);
        }
        TransactionState::Ongoing => Inference::Open(identity),
        TransactionState::PrepareCommit
        | TransactionState::PrepareAbort
        | TransactionState::PrepareEpochFence => Inference::Ending(state),
        TransactionState::CompleteCommit => Inference::Committed,
        TransactionState::CompleteAbort => Inference::Aborted,
    };
    // Partitions leave the list as they are told of the end.
    let is_whole = state == TransactionState::Ongoing;
    let misfit = misfit_in_time(known, start_ms).or_else(|| misfit_in_place(known, partitions, is_whole));
    misfit.map_or(inference, Inference::Refused)
}

fn misfit_in_time(known: &IdOnly, start_ms: Option<i64>) -> Option<Refusal> {
    let Some(start_ms) = start_ms else { return Some(Refusal::NoStart) };
    if start_ms > known.decided_ms {
        return Some(Refusal::BeganLater { start_ms, decided_ms: known.decided_ms });
    }
    let started_after_ms = known.started_after_ms.filter(|earliest| start_ms < *earliest)?;
    Some(Refusal::BeganEarlier { start_ms, started_after_ms })
}

fn misfit_in_place(known: &IdOnly, found: &[(String, Vec<i32>)], is_whole: bool) -> Option<Refusal> {
    let found: BTreeSet<(String, i32)> = found
        .iter()
        .flat_map(|(topic, numbers)| numbers.iter().map(move |number| (topic.clone(), *number)))
        .collect();
    let fits_topics =
        known.topics.as_ref().is_none_or(|topics| found.iter().all(|(topic, _)| topics.contains(topic)));
    let fits_partitions = known.partitions.as_ref().is_none_or(|partitions| match is_whole {
        true => *partitions == found,
        false => found.is_subset(partitions),
    });
    (!fits_topics || !fits_partitions).then(|| Refusal::OtherPartitions { found: listed(&found) })
}

fn listed(partitions: &BTreeSet<(String, i32)>) -> String {
    match partitions.is_empty() {
        true => "no partition".to_string(),
        false => partitions
            .iter()
            .map(|(topic, number)| format!("{topic}-{number}"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}
