//! Evidence: what the brokers say about one prepared transaction, and what it means.
//!
//! Owns the reading of DescribeTransactions (KIP-664) and of control batches against a handle. Refuses to guess: what
//! cannot be told is named, and whoever judges the epoch decides what may be done without knowing.
//!
//! With the handle's identity (P, E):
//!
//! | coordinator | V1 | V2 |
//! | --- | --- | --- |
//! | Ongoing (P, E) | open | open |
//! | Prepare* (P, E or E+1) | in flight | in flight |
//! | CompleteCommit | (P, E) committed | (P, E+1) committed |
//! | CompleteAbort | (P, E) or (P, E+1) aborted | (P, E+1) aborted |
//! | Empty (P, E), V2 also Complete* (P, E) | never begun: the data decides | the same |
//! | PrepareCommit, CompleteCommit beyond these | brokers ahead of the store | the same |
//! | anything else beyond, forgotten | the data decides | the same |
//! | (P, below E) | brokers behind the store: they lost what they knew | the same |
//!
//! CompleteAbort at E+2 proves nothing by itself: 4.0.0 bumps twice at a time-out, but a run that woke inside its
//! start may also have initialised the id after the commit and left a transaction of its own to be timed out.
//!
//! A start clears every id, and what coordinators knew of commits is gone with it: an id that has gone on further than
//! the handle's own end, one InitProducerId and one begun transaction explain may hide commits. They still stand in
//! the data, as commit markers of the producer id behind the one that ended the handle ([`may_hide_commits`]).
//!
//! An open transaction is committed by another process only when its records are in the log as they were acknowledged:
//! a cluster that lost acknowledged records (an unclean leader election, a machine without power) would commit the rest.
//!
//! The data decides: a producer id has one transaction at a time in a partition, so the first control batch with P at
//! or after the handle's first offset ended the handle's transaction. Where it was read, it outranks the coordinator,
//! whose *Ongoing* may be that of a deposed one; *Complete* is final, so a control batch against it is an incident.
//!
//! Sources: `TransactionCoordinator`, `TransactionMetadata`, KIP-98, KIP-890, KIP-664.

use crate::{
    handle::{Handle, HandlePartition},
    id::{Identity, ProducerEpoch, TransactionVersion},
};
use alloc::{format, string::String, vec::Vec};
use core::fmt;

/// States of a transaction at its coordinator, as DescribeTransactions names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionState {
    /// An identity was given, nothing begun.
    Empty,
    /// Begun.
    Ongoing,
    /// To be committed; control batches under way.
    PrepareCommit,
    /// To be aborted; control batches under way.
    PrepareAbort,
    /// Committed.
    CompleteCommit,
    /// Aborted.
    CompleteAbort,
    /// Being fenced; never stored.
    PrepareEpochFence,
    /// Expired; never reported.
    Dead,
}

impl TransactionState {
    /// Reads Kafka's name of a state; `None` for one that this release does not know.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "Empty" => Self::Empty,
            "Ongoing" => Self::Ongoing,
            "PrepareCommit" => Self::PrepareCommit,
            "PrepareAbort" => Self::PrepareAbort,
            "CompleteCommit" => Self::CompleteCommit,
            "CompleteAbort" => Self::CompleteAbort,
            "PrepareEpochFence" => Self::PrepareEpochFence,
            "Dead" => Self::Dead,
            _ => return None,
        })
    }

    /// Kafka's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
            Self::PrepareEpochFence => "PrepareEpochFence",
            Self::Dead => "Dead",
        }
    }
}

/// Who told how a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Witness {
    /// The coordinator: DescribeTransactions.
    Coordinator,
    /// The topic that coordinators load from: `__transaction_state`.
    CoordinatorLog,
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coordinator => "DescribeTransactions",
            Self::CoordinatorLog => "__transaction_state",
        })
    }
}

/// The answer of DescribeTransactions for one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Described {
    /// The coordinator knows the id.
    Known {
        /// Its state.
        state: TransactionState,
        /// The identity stored with it.
        identity: Identity,
    },
    /// TRANSACTIONAL_ID_NOT_FOUND: never used, or expired (7 days).
    Forgotten,
    /// No answer that can be used now: unreachable, loading, or a state that this release does not know.
    Unanswered(String),
}

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// The records before it count.
    Commit,
    /// They do not.
    Abort,
}

/// The first control batch of the handle's producer id at or after the handle's first offset in a partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartitionEnd {
    /// It is there.
    Marker {
        /// What it says.
        marker: Marker,
        /// Its producer epoch.
        producer_epoch: ProducerEpoch,
    },
    /// None up to the high watermark, and the handle's first offset is still in the log.
    NoneYet,
    /// It can never be read: the log starts behind the handle's first offset, or the topic is another one now.
    Gone(String),
    /// It could not be read now.
    Unread(String),
}

/// What was found in one partition of a handle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionLook {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// What was found.
    pub end: PartitionEnd,
}

/// Everything that was read, without changing anything, about one handle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneLook {
    /// Who told what the coordinator knows.
    pub by: Witness,
    /// The coordinator's answer.
    pub described: Described,
    /// The protocol that the cluster offers now.
    pub level: TransactionVersion,
    /// Control batches, where they were asked for: one entry per partition of the handle.
    pub markers: Option<Vec<PartitionLook>>,
    /// Are the records of an open transaction all there, as they were acknowledged? `None`: not read.
    pub records: Option<Result<(), String>>,
}

/// The answer to EndTxn with a handle's identity and version, retried until definite where it can be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndTxnAnswer {
    /// Done: the transaction is committed.
    Committed,
    /// Done: the transaction is aborted.
    Aborted,
    /// 48: not in a state for this decision. For a commit: aborted, or nothing was begun.
    NotThisState,
    /// 47, 90: the coordinator has gone on to another epoch. Says nothing about the outcome.
    Superseded,
    /// 49: the coordinator does not know this producer id any more. Says nothing about the outcome.
    Forgotten,
    /// The right is missing or the request is refused otherwise; nothing was done.
    Refused(String),
    /// No definite answer.
    Unknown(String),
}

impl LaneLook {
    /// What was seen, a line for each witness.
    pub fn in_words(&self) -> Vec<String> {
        let missing = self.records.iter().filter_map(|records| records.as_ref().err());
        let missing = missing.map(|why| format!("the log: {why}"));
        let markers = self.markers.iter().flatten().map(PartitionLook::in_words);
        [described_in_words(self.by, &self.described)].into_iter().chain(markers).chain(missing).collect()
    }
}

/// A coordinator's answer, with who told it.
pub fn described_in_words(by: Witness, described: &Described) -> String {
    match described {
        Described::Known { state, identity } => format!("{by}: {} {identity}", state.name()),
        Described::Forgotten => format!("{by}: the id is not known"),
        Described::Unanswered(why) => format!("{by}: no answer: {why}"),
    }
}

impl PartitionLook {
    /// Was this part of a handle seen committed?
    pub fn is_committed(&self, part: &HandlePartition) -> bool {
        let is_commit = matches!(self.end, PartitionEnd::Marker { marker: Marker::Commit, .. });
        is_commit && self.topic == part.topic && self.partition == part.partition
    }

    /// May a later look at this part of a handle see something else?
    pub fn is_to_come(&self, part: &HandlePartition) -> bool {
        let is_open = matches!(self.end, PartitionEnd::NoneYet | PartitionEnd::Unread(_));
        is_open && self.topic == part.topic && self.partition == part.partition
    }

    /// What was seen.
    pub fn in_words(&self) -> String {
        let Self { topic, partition, end } = self;
        match end {
            PartitionEnd::Marker { marker, producer_epoch } => {
                let what = match marker {
                    Marker::Commit => "commit",
                    Marker::Abort => "abort",
                };
                format!("{topic}-{partition}: a control batch, {what}, producer epoch {producer_epoch}")
            }
            PartitionEnd::NoneYet => format!("{topic}-{partition}: no control batch yet"),
            PartitionEnd::Gone(why) => format!("{topic}-{partition}: gone: {why}"),
            PartitionEnd::Unread(why) => format!("{topic}-{partition}: not read: {why}"),
        }
    }
}

impl fmt::Display for EndTxnAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Committed => f.write_str("done, committed"),
            Self::Aborted => f.write_str("done, aborted"),
            Self::NotThisState => f.write_str("INVALID_TXN_STATE: aborted, or nothing was begun"),
            Self::Superseded => f.write_str("the coordinator has gone on to another producer epoch"),
            Self::Forgotten => f.write_str("INVALID_PRODUCER_ID_MAPPING: the producer id is not known"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Unknown(why) => write!(f, "no definite answer: {why}"),
        }
    }
}

/// What is known about one lane of the epoch in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LaneFate {
    /// Committed.
    Committed,
    /// Aborted; that is final.
    Aborted,
    /// Open: it can be ended with the handle.
    Open,
    /// Open, but records that were acknowledged are not in the log: it must not be committed.
    Incomplete(String),
    /// Ending one way or the other: look again.
    InFlight(String),
    /// The coordinator cannot tell: look at the control batches.
    Undetermined(String),
    /// Somebody who would know did not answer: look again.
    Unanswered(String),
    /// Nobody can tell any more, or the transaction cannot be ended.
    Unknown(String),
    /// Two facts exclude each other.
    Contradiction(String),
    /// Ended for good, but coordinator and control batches, or control batches among themselves, do not say the same:
    /// somebody has written markers in the coordinator's place. Readers may not see a part of its records.
    Torn(String),
    /// Something was committed under this id that no slot decided: this is an old copy of the store.
    BrokersAhead(String),
    /// The coordinator knows less than it once answered: the brokers are an old copy, or have lost acknowledged writes.
    BrokersBehind(String),
}

impl fmt::Display for LaneFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Committed => f.write_str("committed"),
            Self::Aborted => f.write_str("aborted by the broker"),
            Self::Open => f.write_str("open"),
            Self::Incomplete(why) => write!(f, "open, but acknowledged records are missing: {why}"),
            Self::InFlight(why) => write!(f, "ending: {why}"),
            Self::Undetermined(why) => write!(f, "not told by the coordinator: {why}"),
            Self::Unanswered(why) => write!(f, "no answer: {why}"),
            Self::Unknown(why) => write!(f, "unknown: {why}"),
            Self::Contradiction(why) => write!(f, "contradiction: {why}"),
            Self::Torn(why) => write!(f, "torn: {why}"),
            Self::BrokersAhead(why) => write!(f, "the brokers are ahead of the store: {why}"),
            Self::BrokersBehind(why) => write!(f, "the brokers are behind the store: {why}"),
        }
    }
}

/// What a look says about a handle.
pub fn judge_lane(handle: &Handle, look: &LaneLook) -> LaneFate {
    let by_coordinator = judge_described(handle, &look.described);
    if matches!(by_coordinator, LaneFate::BrokersAhead(_) | LaneFate::BrokersBehind(_)) {
        return by_coordinator;
    }
    let fate = match &look.markers {
        None => by_coordinator,
        Some(partitions) if let Some(why) = against(&by_coordinator, partitions) => LaneFate::Torn(why),
        Some(partitions) => match judge_markers(handle, partitions) {
            // The log is gone, which could tell a foreign writer's abort from ours: ours is the likely one by far.
            LaneFate::Unknown(_) if is_fenced_abort(handle, &look.described) => LaneFate::Aborted,
            data => weigh(by_coordinator, data),
        },
    };
    if fate == LaneFate::Open && look.level < handle.version {
        return LaneFate::Unknown(format!(
            "the transaction is open and was begun with {}, but the cluster offers {} now, which cannot end it",
            handle.version, look.level
        ));
    }
    if let (LaneFate::Open, Some(Err(why))) = (&fate, &look.records) {
        return LaneFate::Incomplete(why.clone());
    }
    fate
}

/// May a person abort it, whose coordinator says that it is open? Markers of an abort in its partitions are no hindrance:
/// somebody has written them in the coordinator's place, and with its own abort all agree. A commit is one.
pub fn may_be_aborted(handle: &Handle, look: &LaneLook) -> bool {
    let is_commit =
        |look: &PartitionLook| matches!(look.end, PartitionEnd::Marker { marker: Marker::Commit, .. });
    judge_described(handle, &look.described) == LaneFate::Open
        && look.level >= handle.version
        && look.markers.as_ref().is_some_and(|partitions| !partitions.iter().any(is_commit))
}

/// V1, and an abort at the epoch after the handle's: its own, that InitProducerId or a time-out has fenced; or that of a
/// foreign writer who began behind its end.
fn is_fenced_abort(handle: &Handle, described: &Described) -> bool {
    match described {
        Described::Known { state: TransactionState::CompleteAbort, identity } => {
            handle.version == TransactionVersion::V1 && past(handle.identity, *identity) == Some(1)
        }
        Described::Known { .. } | Described::Forgotten | Described::Unanswered(_) => false,
    }
}

/// What DescribeTransactions alone says; also for an id whose newest handle is settled already.
pub fn judge_described(handle: &Handle, described: &Described) -> LaneFate {
    let (state, identity) = match described {
        Described::Known { state, identity } => (*state, *identity),
        Described::Forgotten => return LaneFate::Undetermined("the coordinator has forgotten the id".into()),
        Described::Unanswered(why) => return LaneFate::Unanswered(why.clone()),
    };
    let seen =
        || format!("{} has {} at {identity}, the handle {}", handle.at(), state.name(), handle.identity);
    if identity.producer_id == handle.identity.producer_id
        && identity.producer_epoch < handle.identity.producer_epoch
    {
        return LaneFate::BrokersBehind(seen());
    }
    let past = past(handle.identity, identity);
    let ended_at = match handle.version {
        TransactionVersion::V1 => 0,
        TransactionVersion::V2 => 1,
    };
    match (state, past) {
        (TransactionState::Ongoing, Some(0)) => LaneFate::Open,
        (TransactionState::PrepareCommit, Some(at)) if at == ended_at => LaneFate::InFlight(seen()),
        (TransactionState::PrepareAbort | TransactionState::PrepareEpochFence, Some(0 | 1)) => {
            LaneFate::InFlight(seen())
        }
        (TransactionState::CompleteCommit, Some(at)) if at == ended_at => LaneFate::Committed,
        // On V1 a foreign writer's transaction, at the epoch after ours, ends in the same state as ours that it fenced.
        (TransactionState::CompleteAbort, Some(at)) if at == ended_at => LaneFate::Aborted,
        (TransactionState::PrepareCommit | TransactionState::CompleteCommit, past) if past != Some(0) => {
            LaneFate::BrokersAhead(seen())
        }
        (
            TransactionState::Empty
            | TransactionState::Ongoing
            | TransactionState::PrepareCommit
            | TransactionState::PrepareAbort
            | TransactionState::CompleteCommit
            | TransactionState::CompleteAbort
            | TransactionState::PrepareEpochFence
            | TransactionState::Dead,
            _,
        ) => LaneFate::Undetermined(seen()),
    }
}

/// Could a transaction have been committed under the id after the handle's own, as far as the coordinator tells? Then
/// the data has to be asked before the id is cleared. Without such a commit the id is past the handle by its end (V2),
/// by the InitProducerId of the next start or, on V1, of the next transaction, and by the end of one transaction. A
/// state that says *committed* hides nothing: [`judge_described`] has its meaning.
pub fn may_hide_commits(handle: &Handle, described: &Described) -> bool {
    let (state, identity) = match described {
        Described::Known { state, identity } => (state, *identity),
        Described::Forgotten => return true,
        Described::Unanswered(_) => return false,
    };
    let explained = match (handle.version, state) {
        (_, TransactionState::PrepareCommit | TransactionState::CompleteCommit) => return false,
        (TransactionVersion::V1, _) | (TransactionVersion::V2, TransactionState::Ongoing) => 1,
        (TransactionVersion::V2, _) => 2,
    };
    past(handle.identity, identity).is_none_or(|gap| gap > explained)
}

/// How many epochs the coordinator is past the handle's; `None` for another producer id or an earlier epoch.
fn past(handle: Identity, stored: Identity) -> Option<i32> {
    let gap = i32::from(stored.producer_epoch.0) - i32::from(handle.producer_epoch.0);
    (stored.producer_id == handle.producer_id && gap >= 0).then_some(gap)
}

/// What the control batches alone say.
pub fn judge_markers(handle: &Handle, partitions: &[PartitionLook]) -> LaneFate {
    let mut seen: Option<Marker> = None;
    let (mut none_yet, mut unread, mut gone) = (None, None, None);
    for look in partitions {
        let at = format!("{}-{} (producer {})", look.topic, look.partition, handle.identity);
        match &look.end {
            PartitionEnd::Marker { marker, producer_epoch } => {
                let gap = i32::from(producer_epoch.0) - i32::from(handle.identity.producer_epoch.0);
                if !(0..=2).contains(&gap) {
                    return LaneFate::Contradiction(format!(
                        "the first control batch in {at} has producer epoch {producer_epoch}"
                    ));
                }
                if seen.is_some_and(|earlier| earlier != *marker) {
                    return LaneFate::Torn(format!(
                        "some partitions are committed and some aborted, {at} among them"
                    ));
                }
                seen = Some(*marker);
            }
            PartitionEnd::NoneYet => none_yet = Some(at),
            PartitionEnd::Unread(why) => unread = Some(format!("{at}: {why}")),
            PartitionEnd::Gone(why) => gone = Some(format!("{at}: {why}")),
        }
    }
    match (seen, none_yet, unread, gone) {
        (_, _, Some(why), _) => LaneFate::Unanswered(why),
        (Some(_), Some(at), None, _) => LaneFate::InFlight(format!("no control batch yet in {at}")),
        (Some(Marker::Commit), None, None, _) => LaneFate::Committed,
        (Some(Marker::Abort), None, None, _) => LaneFate::Aborted,
        (None, Some(at), None, _) => LaneFate::Undetermined(format!("no control batch in {at}")),
        (None, None, None, Some(why)) => LaneFate::Unknown(why),
        (None, None, None, None) => LaneFate::Unknown("no partition was looked at".into()),
    }
}

/// A control batch that says the opposite of what the coordinator calls final, in words. One is enough, whatever the other
/// partitions have or do not tell: readers of that one see what it says.
fn against(coordinator: &LaneFate, partitions: &[PartitionLook]) -> Option<String> {
    let (said, opposite, seen) = match coordinator {
        LaneFate::Committed => ("committed", Marker::Abort, "aborted"),
        LaneFate::Aborted => ("aborted", Marker::Commit, "committed"),
        LaneFate::Open
        | LaneFate::Incomplete(_)
        | LaneFate::InFlight(_)
        | LaneFate::Undetermined(_)
        | LaneFate::Unanswered(_)
        | LaneFate::Unknown(_)
        | LaneFate::Contradiction(_)
        | LaneFate::Torn(_)
        | LaneFate::BrokersAhead(_)
        | LaneFate::BrokersBehind(_) => return None,
    };
    let is_opposite =
        |look: &&PartitionLook| matches!(look.end, PartitionEnd::Marker { marker, .. } if marker == opposite);
    let PartitionLook { topic, partition, .. } = partitions.iter().find(is_opposite)?;
    Some(format!("the coordinator says {said}, the data {seen}: {topic}-{partition}"))
}

/// Coordinator and data together.
fn weigh(coordinator: LaneFate, data: LaneFate) -> LaneFate {
    use LaneFate::{
        Aborted, BrokersAhead, BrokersBehind, Committed, Contradiction, InFlight, Incomplete, Open, Torn,
        Unanswered, Undetermined, Unknown,
    };
    match (coordinator, data) {
        (_, data @ (Contradiction(_) | BrokersAhead(_) | BrokersBehind(_))) => data,
        (behind @ BrokersBehind(_), _) => behind,
        (Committed, Aborted) => Torn("the coordinator says committed, the data aborted".into()),
        (Aborted, Committed) => Torn("the coordinator says aborted, the data committed".into()),
        // Until it has ended more can come.
        (Open | InFlight(_) | Unanswered(_), Torn(why)) => Contradiction(why),
        (_, torn @ Torn(_)) | (torn @ Torn(_), _) => torn,
        // Markers come from the coordinator; while it says Ongoing it is deposed, or somebody else wrote them.
        (Open, Committed | Aborted) => {
            Contradiction("control batches are there, the coordinator says open".into())
        }
        (Open, InFlight(why)) => Contradiction(why),
        (Committed, Committed | InFlight(_) | Undetermined(_) | Unanswered(_) | Unknown(_) | Open) => {
            Committed
        }
        (Aborted, Aborted | InFlight(_) | Undetermined(_) | Unanswered(_) | Unknown(_) | Open) => Aborted,
        (Open, Undetermined(_) | Unanswered(_) | Unknown(_) | Open) => Open,
        (in_flight @ InFlight(_), _) => in_flight,
        (_, data @ (Committed | Aborted | InFlight(_))) => data,
        (_, unanswered @ Unanswered(_)) | (unanswered @ Unanswered(_), _) => unanswered,
        (Undetermined(said), Undetermined(read)) => Contradiction(format!("{said}, and {read}")),
        (_, unknown @ Unknown(_)) | (unknown @ Unknown(_), _) => unknown,
        (fate @ (Contradiction(_) | BrokersAhead(_) | Undetermined(_)), Open | Undetermined(_)) => fate,
        (Incomplete(_), _) | (_, Incomplete(_)) => {
            unreachable!("neither coordinator nor control batches tell of records")
        }
    }
}
