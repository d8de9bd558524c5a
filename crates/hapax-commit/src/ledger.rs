//! Decider `transaction`, one shard: barriers, offsets, commits, in that order.
//!
//! Owns: when an epoch ends, when its transaction gets its positions and when it is ended, and when its id is free. There
//! is no chain and nothing in doubt: the transaction that has the records has the positions, too, so it is the decision.
//! Everything that goes wrong ends the run, and the next one goes on from what is committed.
//!
//! ```text
//!  e:   written -> barrier -> flushed -> SendOffsets -> EndTxn -> Tell -> recorded (its id is free)
//!  e+1:            written -> barrier -> flushed ...................... -> SendOffsets -> ..
//! ```
//!
//! A shard that has read everything goes on until all have, or a stop is wanted: its offsets expire like any other's.
//!
//! An epoch in which positions moved has a transaction, also where it wrote no record; one in which nothing moved has
//! none, and is recorded in its turn.
//!
//! Invariants ([`Ledger::check`]): one epoch is ended at a time, the oldest that is not recorded; EndTxn comes after its
//! offsets were taken; an epoch is begun only when the one that stood on its id before is recorded, so at most three are
//! begun and not recorded; nothing is asked for after the end.

use crate::{
    id::{Epoch, Identity, TransactionVersion, TransactionalId},
    invariant::{Broken, holds},
    limits::WINDOW,
    position::Positions,
};
use alloc::{collections::VecDeque, string::String, vec::Vec};

/// An open transaction whose records are all acknowledged, ready to carry the epoch's positions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Carrier {
    /// The id.
    pub transactional_id: TransactionalId,
    /// What writes it.
    pub identity: Identity,
    /// The protocol that it was begun with, by which it is ended, whatever the cluster says by then.
    pub version: TransactionVersion,
    /// Where its records are: topic, partition, offset of the last one.
    pub partitions: Vec<(String, i32, i64)>,
}

/// An epoch that a shard has flushed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flushed {
    /// Its transaction; none where nothing moved.
    pub carrier: Option<Carrier>,
    /// Positions behind it, of every split of the shard.
    pub positions: Positions,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The interval has passed.
    Tick,
    /// Offsets that did not move must be committed again, before the broker forgets them.
    RecommitDue,
    /// The shard has read something of the epoch.
    Touched {
        /// The epoch.
        epoch: Epoch,
    },
    /// The open epoch is about to outgrow its transaction.
    BarrierWanted {
        /// The epoch.
        epoch: Epoch,
    },
    /// The shard has flushed the epoch.
    Flushed {
        /// The epoch.
        epoch: Epoch,
        /// What it hands over.
        flushed: Flushed,
    },
    /// The offsets of the epoch are part of its transaction, every one of them.
    OffsetsTaken {
        /// The epoch.
        epoch: Epoch,
    },
    /// EndTxn(commit) was answered so.
    Committed {
        /// The epoch.
        epoch: Epoch,
    },
    /// Every partition knows of the commit.
    Told {
        /// The epoch.
        epoch: Epoch,
    },
    /// Commit what was read and stop.
    StopWanted,
    /// Every split of the shard is at its end. Its offsets are committed again all the same while other shards read.
    Drained,
    /// Every split of every shard is at its end: commit what was read and finish.
    AllDrained,
    /// Something has failed.
    Failed {
        /// What.
        why: String,
    },
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Put the barrier that ends the epoch into the shard's stream.
    SendBarrier {
        /// The epoch that ends.
        epoch: Epoch,
        /// Nothing is read behind it.
        last: bool,
        /// It has a transaction although nothing moved.
        recommit: bool,
    },
    /// Make the positions part of the transaction.
    SendOffsets {
        /// The epoch.
        epoch: Epoch,
        /// The transaction.
        carrier: Carrier,
        /// The positions.
        positions: Positions,
    },
    /// Commit the transaction.
    EndTxn {
        /// The epoch.
        epoch: Epoch,
        /// The transaction.
        carrier: Carrier,
    },
    /// Wait until every partition knows of the commit.
    Tell {
        /// The epoch.
        epoch: Epoch,
        /// The transaction.
        carrier: Carrier,
    },
    /// The epoch is committed, or had nothing to commit: its id is free.
    Recorded {
        /// The epoch.
        epoch: Epoch,
        /// It had a transaction.
        committed: bool,
    },
    /// The shard's run is over. Comes once, and nothing after it.
    End(End),
}

/// How a shard's run ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Everything is read and committed.
    Finished,
    /// Stopped as wanted, everything read is committed.
    Stopped,
    /// Something failed.
    Failed(String),
}

/// One shard's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    writing: Epoch,
    /// Everything up to here is recorded.
    recorded: Epoch,
    touched: bool,
    due: bool,
    recommit: bool,
    stopping: bool,
    drained: bool,
    finishing: bool,
    /// The last barrier is sent.
    closing: bool,
    /// The barrier that the shard has not answered.
    collecting: Option<Epoch>,
    /// Flushed, in order; the first one is being ended.
    flushed: VecDeque<(Epoch, Flushed)>,
    phase: Phase,
    ended: bool,
    effects: VecDeque<Effect>,
}

/// How far the first flushed epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Offsets,
    Ending,
    Telling,
}

impl Ledger {
    /// The ledger of a shard whose newest committed epoch is `last`.
    pub fn new(last: Epoch) -> Self {
        Self {
            writing: last.next(),
            recorded: last,
            touched: false,
            due: false,
            recommit: false,
            stopping: false,
            drained: false,
            finishing: false,
            closing: false,
            collecting: None,
            flushed: VecDeque::new(),
            phase: Phase::Idle,
            ended: false,
            effects: VecDeque::new(),
        }
    }

    /// The epoch that the shard writes now.
    pub fn writing(&self) -> Epoch {
        self.writing
    }

    /// The run of the shard is over.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Takes an input.
    pub fn step(&mut self, input: Input) {
        if self.ended {
            return;
        }
        match input {
            Input::Tick => self.due = true,
            Input::RecommitDue => self.recommit = true,
            Input::Touched { epoch } => self.touch(epoch),
            Input::BarrierWanted { epoch } => {
                self.touch(epoch);
                self.due |= epoch == self.writing;
            }
            Input::Flushed { epoch, flushed } => {
                assert!(self.collecting == Some(epoch), "a shard flushes the epoch whose barrier it met");
                self.collecting = None;
                self.flushed.push_back((epoch, flushed));
            }
            Input::OffsetsTaken { epoch } => self.advance(epoch, Phase::Offsets, Phase::Ending),
            Input::Committed { epoch } => self.advance(epoch, Phase::Ending, Phase::Telling),
            Input::Told { epoch } => self.told(epoch),
            Input::StopWanted => self.stopping = true,
            Input::Drained => self.drained = true,
            Input::AllDrained => self.finishing = true,
            Input::Failed { why } => self.end(End::Failed(why)),
        }
        self.go_on();
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The invariants.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        let begun = self.writing.0.saturating_sub(self.recorded.0);
        holds(begun <= WINDOW, "at most one epoch per id of a lane is begun and not recorded")?;
        let waiting = self.flushed.iter().map(|(epoch, _)| *epoch).chain(self.collecting);
        let in_turn = waiting.zip(self.recorded.0 + 1..).all(|(epoch, turn)| epoch.0 == turn);
        holds(in_turn, "epochs are flushed and ended in order, none left out")?;
        let idle = self.phase == Phase::Idle;
        holds(idle || !self.flushed.is_empty(), "only what is flushed is ended")?;
        let quiet = |effect: &Effect| matches!(effect, Effect::Recorded { .. } | Effect::End(_));
        holds(!self.ended || self.effects.iter().all(quiet), "nothing is asked for after the end")
    }

    fn touch(&mut self, epoch: Epoch) {
        assert!(epoch <= self.writing, "a shard is ahead of its barriers");
        self.touched |= epoch == self.writing;
    }

    fn advance(&mut self, epoch: Epoch, from: Phase, to: Phase) {
        let (first, carrier) = self.first();
        assert!(first == epoch && self.phase == from, "an answer comes to what was asked");
        self.phase = to;
        self.effects.push_back(match to {
            Phase::Ending => Effect::EndTxn { epoch, carrier },
            Phase::Telling => Effect::Tell { epoch, carrier },
            Phase::Idle | Phase::Offsets => unreachable!("an epoch advances towards its end"),
        });
    }

    fn first(&self) -> (Epoch, Carrier) {
        let (epoch, flushed) = self.flushed.front().expect("something is being ended");
        (*epoch, flushed.carrier.clone().expect("what is ended has a transaction"))
    }

    fn told(&mut self, epoch: Epoch) {
        assert!(self.first().0 == epoch && self.phase == Phase::Telling, "an answer comes to what was asked");
        self.phase = Phase::Idle;
        self.record(true);
    }

    fn record(&mut self, committed: bool) {
        let (epoch, _) = self.flushed.pop_front().expect("what is recorded was flushed");
        self.recorded = epoch;
        self.effects.push_back(Effect::Recorded { epoch, committed });
    }

    fn go_on(&mut self) {
        if self.ended {
            return;
        }
        while self.phase == Phase::Idle {
            let Some((epoch, flushed)) = self.flushed.front() else { break };
            match &flushed.carrier {
                None => self.record(false),
                Some(carrier) => {
                    let (epoch, carrier) = (*epoch, carrier.clone());
                    let positions = flushed.positions.clone();
                    self.phase = Phase::Offsets;
                    self.effects.push_back(Effect::SendOffsets { epoch, carrier, positions });
                }
            }
        }
        if self.closing {
            if self.flushed.is_empty() && self.collecting.is_none() {
                self.end(if self.drained { End::Finished } else { End::Stopped });
            }
            return;
        }
        self.maybe_send_barrier();
    }

    fn maybe_send_barrier(&mut self) {
        if self.collecting.is_some() {
            self.due &= self.touched;
            return;
        }
        let last = self.stopping || self.finishing;
        let wanted = last || (self.due && (self.touched || self.recommit));
        // Behind the barrier the shard begins the next epoch, on the id of the one three before it.
        let has_id = self.writing.0 + 1 - self.recorded.0 <= WINDOW;
        if wanted && !has_id {
            return;
        }
        if wanted {
            let epoch = self.writing;
            let recommit = core::mem::take(&mut self.recommit);
            self.collecting = Some(epoch);
            self.writing = epoch.next();
            self.touched = false;
            self.closing = last;
            self.effects.push_back(Effect::SendBarrier { epoch, last, recommit });
        }
        self.due = false;
    }

    /// What was not done yet is not done any more.
    fn end(&mut self, end: End) {
        if matches!(end, End::Failed(_)) {
            self.effects.clear();
        }
        self.ended = true;
        self.effects.push_back(Effect::End(end));
    }
}
