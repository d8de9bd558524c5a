//! One lane of the epoch in doubt: what is known about it, what was asked, how often it contradicted itself.
//!
//! Refuses to settle on a contradiction, or on an outcome that cannot be told, before it was seen several times.

use super::{Effect, LaneReport};
use crate::{
    evidence::{
        EndTxnAnswer, LaneFate, LaneLook, Marker, PartitionEnd, PartitionLook, judge_described, judge_lane,
        judge_markers,
    },
    handle::Handle,
    limits::{LOOKS_BEFORE_INCIDENT, READ_BACKS, REFUSALS_BEFORE_INCIDENT},
};
use alloc::{boxed::Box, collections::BTreeSet, format, string::String, vec::Vec};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Case {
    handle: Handle,
    fate: LaneFate,
    stage: Stage,
    attempt: u32,
    oddities: u32,
    refusals: u32,
    confirmed: bool,
    /// The last answer to EndTxn, in words.
    answered: Option<String>,
    /// What the last look saw, in words.
    seen: Vec<String>,
    /// Its coordinator said that it is committed.
    said_committed: bool,
    /// It was seen aborted, and nothing was seen since that says otherwise.
    said_aborted: bool,
    /// Partitions whose control batch is a commit.
    committed_in: BTreeSet<(String, i32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Not asked for yet: its cluster is being cleared.
    Waiting,
    Looking {
        markers: bool,
    },
    Ending {
        commit: bool,
    },
    ReadingBack,
    /// Its records are being written again, to be prepared under another handle.
    Repairing,
    Seen,
}

/// What follows from an answer.
pub(super) enum Next {
    /// The lane's fate stands, for now.
    Settle,
    Do(Box<Effect>),
    /// Brokers and store do not belong together.
    OutOfStep,
}

impl Case {
    pub(super) fn new(handle: Handle) -> Self {
        let fate = LaneFate::Unanswered("not looked at yet: its cluster is being cleared".into());
        Self {
            handle,
            fate,
            stage: Stage::Waiting,
            attempt: 0,
            oddities: 0,
            refusals: 0,
            confirmed: false,
            answered: None,
            seen: Vec::new(),
            said_committed: false,
            said_aborted: false,
            committed_in: BTreeSet::new(),
        }
    }

    /// Of a transaction that this run has just prepared.
    pub(super) fn prepared(handle: Handle) -> Self {
        Self { fate: LaneFate::Open, stage: Stage::Seen, ..Self::new(handle) }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn fate(&self) -> &LaneFate {
        &self.fate
    }

    /// What is known of it, and by whom.
    pub(super) fn report(&self) -> LaneReport {
        let evidence = self.answered.iter().chain(&self.seen).cloned().collect();
        LaneReport { handle: self.handle.clone(), fate: self.fate.clone(), evidence }
    }

    /// Seen ended, with the control batches, after the last act.
    pub(super) fn confirmed(&self) -> bool {
        self.confirmed
    }

    /// Its coordinator said so, which nothing takes back; its partitions may say something else.
    pub(super) fn said_committed(&self) -> bool {
        self.said_committed
    }

    /// Seen aborted, also while it is looked at once more.
    pub(super) fn said_aborted(&self) -> bool {
        self.said_aborted
    }

    /// The part of the transaction that readers do not see, as far as it has ended.
    pub(super) fn missing(&self) -> Handle {
        let is_missing = |topic: &str, partition| !self.committed_in.contains(&(topic.into(), partition));
        let partitions = self.handle.partitions.iter();
        let missing = partitions.filter(|part| is_missing(&part.topic, part.partition)).cloned();
        Handle { partitions: missing.collect(), ..self.handle.clone() }
    }

    /// An act is under way, whose answer comes before the epoch is judged again.
    pub(super) fn acting(&self) -> bool {
        matches!(self.stage, Stage::Ending { .. } | Stage::ReadingBack | Stage::Repairing)
    }

    /// The first look.
    pub(super) fn begin(&mut self) -> Option<Effect> {
        (self.stage == Stage::Waiting).then(|| self.look(false))
    }

    /// A look with the control batches, unless there was one already.
    pub(super) fn confirm(&mut self) -> Option<Effect> {
        (!self.confirmed).then(|| {
            self.attempt = 0;
            self.fate = LaneFate::InFlight("looked at once more, with its control batches".into());
            self.look(true)
        })
    }

    pub(super) fn end(&mut self, commit: bool) -> Effect {
        let may_end = match self.fate {
            LaneFate::Open => true,
            LaneFate::Incomplete(_) => !commit,
            _ => false,
        };
        assert!(may_end, "only an open transaction is ended, and committed only with all of its records");
        self.stage = Stage::Ending { commit };
        Effect::EndTxn { handle: self.handle.clone(), commit }
    }

    /// What is written again was seen aborted twice, the second time with its control batches.
    pub(super) fn repair(&mut self) {
        assert!(
            self.fate == LaneFate::Aborted && self.confirmed,
            "only what is known to be aborted is repaired"
        );
        self.stage = Stage::Repairing;
    }

    pub(super) fn repaired(&mut self) {
        assert!(self.stage == Stage::Repairing, "nobody repairs {}", self.handle.at());
        self.stage = Stage::Seen;
    }

    pub(super) fn looked(&mut self, look: &LaneLook) -> Next {
        let Stage::Looking { markers } = self.stage else {
            panic!("nobody looks at {}", self.handle.at());
        };
        self.said_committed |= judge_described(&self.handle, &look.described) == LaneFate::Committed;
        self.fate = judge_lane(&self.handle, look);
        self.seen = look.in_words();
        self.said_aborted = match self.fate {
            LaneFate::Aborted => true,
            LaneFate::InFlight(_) | LaneFate::Undetermined(_) | LaneFate::Unanswered(_) => self.said_aborted,
            _ => false,
        };
        self.note_commits(look.markers.as_deref().unwrap_or_default());
        // A leader that is away for a moment may have a control batch that says otherwise.
        if let (LaneFate::Committed | LaneFate::Aborted | LaneFate::Torn(_), Some(why)) =
            (&self.fate, unread(look))
        {
            if self.oddities < LOOKS_BEFORE_INCIDENT {
                self.fate = LaneFate::InFlight(why);
                self.oddities += 1;
                return Next::Do(Box::new(self.look_again(true)));
            }
            // Which part of it readers do not see cannot be said.
            if let LaneFate::Torn(torn) = &self.fate {
                self.fate = LaneFate::Contradiction(format!("{torn}; and {why}"));
            }
        }
        match &self.fate {
            LaneFate::BrokersAhead(_) | LaneFate::BrokersBehind(_) => return Next::OutOfStep,
            LaneFate::Undetermined(_) if !markers => return Next::Do(Box::new(self.look(true))),
            LaneFate::InFlight(_) | LaneFate::Unanswered(_) | LaneFate::Undetermined(_) => {
                return Next::Do(Box::new(self.look_again(markers)));
            }
            LaneFate::Unknown(why)
            | LaneFate::Contradiction(why)
            | LaneFate::Torn(why)
            | LaneFate::Incomplete(why)
                if self.oddities < LOOKS_BEFORE_INCIDENT =>
            {
                self.fate = LaneFate::InFlight(why.clone());
                self.oddities += 1;
                return Next::Do(Box::new(self.look_again(true)));
            }
            LaneFate::Open if self.refusals >= REFUSALS_BEFORE_INCIDENT => {
                let why =
                    format!("it is seen open, but the coordinator refused {} times to end it", self.refusals);
                self.fate = LaneFate::Contradiction(why);
            }
            LaneFate::Aborted | LaneFate::Committed | LaneFate::Torn(_) => self.confirmed = markers,
            LaneFate::Unknown(_) | LaneFate::Contradiction(_) | LaneFate::Open | LaneFate::Incomplete(_) => {}
        }
        self.stage = Stage::Seen;
        Next::Settle
    }

    /// Only a commit that was answered is believed without a look, and even that is read back. The look after an
    /// abort reads the control batches too, because the epoch may be given up on it.
    pub(super) fn end_answered(&mut self, answer: &EndTxnAnswer) -> Next {
        let Stage::Ending { commit } = self.stage else {
            panic!("nobody ends {}", self.handle.at());
        };
        let decision = if commit { "commit" } else { "abort" };
        self.answered = Some(format!("EndTxn({decision}): {answer}"));
        match answer {
            EndTxnAnswer::Committed if commit => {
                self.said_committed = true;
                self.stage = Stage::ReadingBack;
                self.attempt = 0;
                return Next::Do(Box::new(self.ask_back()));
            }
            EndTxnAnswer::Committed | EndTxnAnswer::Aborted => self.attempt = 0,
            EndTxnAnswer::NotThisState
            | EndTxnAnswer::Superseded
            | EndTxnAnswer::Forgotten
            | EndTxnAnswer::Refused(_) => self.refusals += 1,
            EndTxnAnswer::Unknown(_) => self.attempt = self.attempt.saturating_add(1),
        }
        self.fate = LaneFate::InFlight(format!("EndTxn was answered: {answer}"));
        Next::Do(Box::new(self.look(!commit)))
    }

    /// A partition that can never be read does not take the coordinator's answer back; a control batch that says
    /// otherwise does.
    pub(super) fn read_back(&mut self, partitions: &[PartitionLook]) -> Next {
        assert!(self.stage == Stage::ReadingBack, "nobody reads back {}", self.handle.at());
        self.note_commits(partitions);
        self.seen = partitions.iter().map(PartitionLook::in_words).collect();
        self.fate = match judge_markers(&self.handle, partitions) {
            LaneFate::Committed | LaneFate::Unknown(_) => LaneFate::Committed,
            LaneFate::InFlight(_)
            | LaneFate::Undetermined(_)
            | LaneFate::Unanswered(_)
            | LaneFate::Incomplete(_)
            | LaneFate::Open => {
                if self.attempt >= READ_BACKS {
                    // The coordinator says whether markers are still under way, and other lanes are not kept waiting.
                    self.fate = LaneFate::InFlight("committed, and not every partition is told yet".into());
                    self.attempt = 0;
                    return Next::Do(Box::new(self.look(true)));
                }
                self.attempt = self.attempt.saturating_add(1);
                return Next::Do(Box::new(self.ask_back()));
            }
            LaneFate::Aborted => {
                LaneFate::Torn("the coordinator answered committed, the data says aborted".into())
            }
            LaneFate::Torn(why) => LaneFate::Torn(why),
            LaneFate::Contradiction(why) | LaneFate::BrokersAhead(why) | LaneFate::BrokersBehind(why) => {
                LaneFate::Contradiction(why)
            }
        };
        self.confirmed = self.fate == LaneFate::Committed;
        self.stage = Stage::Seen;
        Next::Settle
    }

    fn note_commits(&mut self, partitions: &[PartitionLook]) {
        let is_commit =
            |look: &&PartitionLook| matches!(look.end, PartitionEnd::Marker { marker: Marker::Commit, .. });
        let commits = partitions.iter().filter(is_commit);
        self.committed_in.extend(commits.map(|look| (look.topic.clone(), look.partition)));
    }

    fn look(&mut self, markers: bool) -> Effect {
        self.stage = Stage::Looking { markers };
        Effect::Look { handle: self.handle.clone(), markers, attempt: self.attempt }
    }

    fn look_again(&mut self, markers: bool) -> Effect {
        self.attempt = self.attempt.saturating_add(1);
        self.look(markers)
    }

    fn ask_back(&self) -> Effect {
        Effect::ReadBack { handle: self.handle.clone(), attempt: self.attempt }
    }
}

/// A partition whose control batch was asked for and could not be read.
fn unread(look: &LaneLook) -> Option<String> {
    look.markers.iter().flatten().find_map(|partition| {
        let PartitionEnd::Unread(why) = &partition.end else { return None };
        Some(format!("{}-{}: {why}", partition.topic, partition.partition))
    })
}
