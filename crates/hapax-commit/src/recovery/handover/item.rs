//! One decided transaction of a handover: by its handle, or by its id alone.
//!
//! Owns what is known of it. Refuses to believe an answer to EndTxn of a transaction without a handle: what became of
//! it is what is seen afterwards.

use super::{Effect, Known};
use crate::{
    evidence::{EndTxnAnswer, LaneFate},
    handle::Handle,
    id::{Epoch, Identity, LaneId},
    inference::{IdOnly, Inference, Seen, infer},
    limits::{HURRY_MS, REFUSALS_BEFORE_INCIDENT},
    recovery::case::Case,
};
use alloc::{
    format,
    string::{String, ToString},
};

/// One decided transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// EndTxn or a rewrite is under way.
    pub(super) acting: bool,
    pub(super) telling: Telling,
    /// EndTxn was sent before.
    pub(super) was_tried: bool,
    pub(super) rewritten: Option<Handle>,
    pub(super) not_rewritten: Option<String>,
}

/// Whether the partitions of a committed transaction know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Telling {
    /// They may not yet.
    Waits,
    /// They do, or there is nothing that they are waited for.
    Done,
    /// It was not found out in time.
    TimeOver,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Handle(Case),
    IdOnly(Guess),
}

/// A transaction of which only the id is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Guess {
    pub(super) known: IdOnly,
    pub(super) fate: LaneFate,
    pub(super) identity: Option<Identity>,
    attempt: u32,
    refusals: u32,
}

impl Item {
    pub(super) fn new(known: Known) -> Self {
        let kind = match known {
            Known::Handle(handle) => Kind::Handle(Case::new(handle)),
            Known::IdOnly(known) => Kind::IdOnly(Guess::new(known)),
        };
        Self {
            kind,
            acting: false,
            telling: Telling::Waits,
            was_tried: false,
            rewritten: None,
            not_rewritten: None,
        }
    }

    pub(super) fn known(&self) -> Known {
        match &self.kind {
            Kind::Handle(case) => Known::Handle(case.handle().clone()),
            Kind::IdOnly(guess) => Known::IdOnly(guess.known.clone()),
        }
    }

    pub(super) fn transactional_id(&self) -> String {
        match &self.kind {
            Kind::Handle(case) => case.handle().transactional_id.to_string(),
            Kind::IdOnly(guess) => guess.known.transactional_id.clone(),
        }
    }

    pub(super) fn fate(&self) -> &LaneFate {
        match &self.kind {
            Kind::Handle(case) => case.fate(),
            Kind::IdOnly(guess) => &guess.fate,
        }
    }

    /// Where it stands in a lane.
    pub(super) fn place(&self) -> Option<(&LaneId, Epoch)> {
        match &self.kind {
            Kind::Handle(case) => Some((&case.handle().lane, case.handle().epoch)),
            Kind::IdOnly(_) => None,
        }
    }

    /// When the broker may abort it, where that is known.
    pub(super) fn deadline_ms(&self) -> Option<i64> {
        match &self.kind {
            Kind::Handle(case) => Some(case.handle().deadline_ms),
            Kind::IdOnly(_) => None,
        }
    }

    pub(super) fn is_near(&self, wall_ms: i64) -> bool {
        let near = self.deadline_ms().is_some_and(|deadline| deadline.saturating_sub(wall_ms) < HURRY_MS);
        near && *self.fate() == LaneFate::Open
    }

    /// Seen committed, and where there is a handle not by the coordinator alone: somebody may have marked a partition
    /// aborted behind its back.
    pub(super) fn is_committed(&self) -> bool {
        *self.fate() == LaneFate::Committed
            && match &self.kind {
                Kind::Handle(case) => case.confirmed(),
                Kind::IdOnly(_) => true,
            }
    }

    /// Those behind it in its lane may follow: it is committed, whatever its partitions say. Of a torn one nothing can be
    /// written again in its place, and to keep the others waiting would only lose them too.
    pub(super) fn lets_follow(&self) -> bool {
        let said = matches!(&self.kind, Kind::Handle(case) if case.said_committed());
        said || *self.fate() == LaneFate::Committed
    }

    /// Committed, and nobody is left who has to be told.
    pub(super) fn is_done(&self) -> bool {
        self.is_committed() && self.telling == Telling::Done
    }

    /// Also while it is looked at once more.
    pub(super) fn is_broken(&self) -> bool {
        let said = matches!(&self.kind, Kind::Handle(case) if case.said_aborted());
        said || matches!(self.fate(), LaneFate::Aborted | LaneFate::Incomplete(_))
    }

    /// An answer is still to come.
    pub(super) fn is_pending(&self) -> bool {
        let is_read_back = matches!(&self.kind, Kind::Handle(case) if case.acting());
        is_read_back
            || matches!(
                self.fate(),
                LaneFate::InFlight(_) | LaneFate::Undetermined(_) | LaneFate::Unanswered(_)
            )
    }

    /// Committed, or nobody can say that it is not.
    pub(super) fn may_be_committed(&self) -> bool {
        self.is_pending()
            || match self.fate() {
                LaneFate::Open | LaneFate::Aborted | LaneFate::Incomplete(_) => false,
                LaneFate::Committed
                | LaneFate::InFlight(_)
                | LaneFate::Undetermined(_)
                | LaneFate::Unanswered(_)
                | LaneFate::Unknown(_)
                | LaneFate::Contradiction(_)
                | LaneFate::Torn(_)
                | LaneFate::BrokersAhead(_)
                | LaneFate::BrokersBehind(_) => true,
            }
    }
}

impl Guess {
    pub(super) fn new(known: IdOnly) -> Self {
        let fate = LaneFate::Unanswered("not looked at yet".into());
        Self { known, fate, identity: None, attempt: 0, refusals: 0 }
    }

    pub(super) fn describe(&self, item: usize) -> Effect {
        Effect::Describe { item, id: self.known.transactional_id.clone(), attempt: self.attempt }
    }

    /// Looks again where nothing definite was seen.
    pub(super) fn described(&mut self, item: usize, seen: &Seen) -> Option<Effect> {
        self.fate = match infer(&self.known, seen) {
            Inference::Open(_) if self.refusals >= REFUSALS_BEFORE_INCIDENT => LaneFate::Contradiction(
                format!("it is seen open, but the coordinator refused {} times to commit it", self.refusals),
            ),
            Inference::Open(identity) => {
                self.identity = Some(identity);
                LaneFate::Open
            }
            Inference::Ending(state) => LaneFate::InFlight(format!("the coordinator has {}", state.name())),
            Inference::Unanswered(why) => LaneFate::Unanswered(why),
            Inference::Committed => LaneFate::Committed,
            Inference::Aborted => LaneFate::Aborted,
            Inference::Refused(why) => LaneFate::Unknown(why.to_string()),
        };
        let again = matches!(self.fate, LaneFate::InFlight(_) | LaneFate::Unanswered(_));
        again.then(|| {
            self.attempt = self.attempt.saturating_add(1);
            self.describe(item)
        })
    }

    /// What became of it is what is seen afterwards, whatever was answered.
    pub(super) fn end_answered(&mut self, item: usize, answer: &EndTxnAnswer) -> Effect {
        match answer {
            EndTxnAnswer::Committed | EndTxnAnswer::Aborted => self.attempt = 0,
            EndTxnAnswer::NotThisState
            | EndTxnAnswer::Superseded
            | EndTxnAnswer::Forgotten
            | EndTxnAnswer::Refused(_) => self.refusals += 1,
            EndTxnAnswer::Unknown(_) => self.attempt = self.attempt.saturating_add(1),
        }
        self.fate = LaneFate::InFlight(format!("EndTxn was answered: {answer}"));
        self.describe(item)
    }
}
