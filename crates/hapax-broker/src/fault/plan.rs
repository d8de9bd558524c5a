//! What is to be done with a request, and the part of doing it that needs neither machine nor cluster, so that the
//! server and the proxy do it alike.
//!
//! A rule takes a turn at a request when it is due. The turn counts with the first thing that the rule does, before
//! anybody can see it, and is given back if there was nothing to do.

use super::{
    registry::{RuleId, Rules},
    rule::{Afterwards, Api, Verdict},
};
use crate::wire::Response;
use bytes::Bytes;
use kafka_protocol::{messages::ApiVersionsResponse, protocol::StrBytes};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::sleep;

/// A rule's turn. Clones are the same turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    rules: Arc<Mutex<Rules>>,
    rule: RuleId,
    acted: AtomicBool,
}

impl Turn {
    /// Of a rule that has reserved it.
    pub(super) fn new(rules: Arc<Mutex<Rules>>, rule: RuleId) -> Self {
        Self(Arc::new(Taken { rules, rule, acted: AtomicBool::new(false) }))
    }

    /// The rule has done something.
    pub(crate) fn acted(&self) {
        if !self.0.acted.swap(true, Ordering::SeqCst) {
            self.0.end(true);
        }
    }

    /// There was nothing to do for one of its verdicts.
    pub(crate) fn idle(&self, why: &str) {
        tracing::warn!(rule = self.0.rule.0, why, "a rule had nothing to act on");
    }
}

impl Taken {
    fn end(&self, acted: bool) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).end_turn(self.rule, acted);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.acted.load(Ordering::SeqCst) {
            self.end(false);
        }
    }
}

/// What a rule does.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) turn: Turn,
    pub(crate) verdict: Verdict,
}

/// What is to be done with a request.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// In this order, before the request is applied; waits and changes of the answer are among them.
    pub(crate) acts: Vec<Act>,
    /// What becomes of the request, if not the usual.
    pub(crate) fate: Option<Act>,
}

impl Plan {
    /// What becomes of the request, if not the usual.
    pub(crate) fn fate(&self) -> Option<&Verdict> {
        self.fate.as_ref().map(|act| &act.verdict)
    }

    /// The request has met its fate.
    pub(crate) fn met(&self) {
        if let Some(act) = &self.fate {
            act.turn.acted();
        }
    }

    /// What becomes of the connection where the request is applied and nothing is answered behind it.
    pub(crate) fn ends_answers(&self) -> Option<Afterwards> {
        match self.fate()? {
            Verdict::LoseAnswer(then) => Some(*then),
            Verdict::CutAnswer { .. } => Some(Afterwards::Close),
            _ => None,
        }
    }

    /// Changes an answer that was not replaced; says whether it did.
    pub(crate) fn change(&self, response: &mut Response) -> bool {
        let mut changed = false;
        for Act { turn, verdict } in &self.acts {
            if let (Verdict::OldApiVersions { highest, transaction_version }, Response::ApiVersions(answer)) =
                (verdict, &mut *response)
            {
                if grow_old(answer, highest, *transaction_version) {
                    turn.acted();
                    changed = true;
                } else {
                    turn.idle("the answer is as old already");
                }
            }
        }
        changed
    }

    /// Waits as long as an answer is to be late.
    pub(crate) async fn delay_answer(&self) {
        for Act { turn, verdict } in &self.acts {
            if let Verdict::DelayAnswer { ms } = verdict {
                turn.acted();
                sleep(Duration::from_millis(*ms)).await;
            }
        }
    }

    /// What gets through of an answer's frame that is to be cut.
    pub(crate) fn cut(&self, frame: &Bytes) -> Option<Bytes> {
        let Some(Verdict::CutAnswer { after }) = self.fate() else { return None };
        self.met();
        let end = after.unwrap_or(frame.len() / 2).min(frame.len().saturating_sub(1));
        Some(frame.slice(..end))
    }
}

/// Makes an ApiVersions answer an older broker's; says whether it was not.
fn grow_old(
    answer: &mut ApiVersionsResponse,
    highest: &BTreeMap<Api, i16>,
    transaction_version: Option<i16>,
) -> bool {
    let before = answer.clone();
    for (api, highest) in highest {
        for range in answer.api_keys.iter_mut().filter(|range| range.api_key == api.key()) {
            range.max_version = range.max_version.min(*highest);
        }
    }
    answer.api_keys.retain(|range| range.min_version <= range.max_version);
    if let Some(level) = transaction_version {
        let name = StrBytes::from_static_str("transaction.version");
        for feature in answer.finalized_features.iter_mut().filter(|feature| feature.name == name) {
            feature.max_version_level = level;
            feature.min_version_level = feature.min_version_level.min(level);
        }
        // A feature at level 0 is not finalized.
        answer.finalized_features.retain(|feature| feature.max_version_level > 0);
    }
    *answer != before
}
