//! The checkpoint coordinator of a cohort: barriers, manifests, commits, in that order.
//!
//! Owns: when an epoch ends, when it is decided, when it is proven and recorded, and how a run ends. Refuses to
//! decide an epoch while an earlier one is in doubt, or one of which a transaction has used half of its time, and does not
//! wait beyond that. Everything that goes wrong ends the run: recovery, not this machine, deals with what is then in doubt.
//!
//! ```text
//!  e:    written -> barrier -> collecting (prepared) -> manifest put = decided -> Commit -> proven -> recorded
//!  e+1:             written .............................. barrier -> ..           by manifest e+1 or `proven`
//! ```
//!
//! Invariants ([`Cohort::check`]): one epoch is collected and one decided epoch is in doubt at a time; manifest e+1 is
//! offered only when e is proven on every lane, barrier e+1 sent only when manifest e is stored, so at most three
//! epochs are begun and not recorded, one per id of a lane; nothing is offered, committed or recorded after the end.

use crate::{
    handle::Handle,
    id::{Epoch, LaneId, ShardId, SlotNumber},
    invariant::{Broken, holds},
    journal::Journal,
    limits::WINDOW,
    position::Positions,
    slot::{Manifest, SlotBody},
};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    format,
    string::String,
    vec::Vec,
};
use core::fmt;

/// What does not change in a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CohortConfig {
    /// The shards.
    pub shards: BTreeSet<ShardId>,
    /// How long a transaction lives. An epoch that is not offered at half of that is given up: readers wait behind it, and
    /// what is left is for its put, its commit and a recovery. None: no time-out ends any.
    pub lifetime_ms: Option<u64>,
}

/// Where a run goes on, as recovery left it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CohortStart {
    /// The highest epoch number ever used.
    pub last_epoch: Epoch,
    /// The epoch that the positions belong to.
    pub settled: Epoch,
    /// Positions of every split of every shard.
    pub positions: Positions,
    /// The next slot.
    pub next_slot: SlotNumber,
}

/// What a shard hands over at a barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Share {
    /// Positions behind the epoch's last record, of every split of the shard.
    pub positions: Positions,
    /// What its lanes prepared.
    pub handles: Vec<PreparedHandle>,
    /// The journals of those lanes that keep one: every part is stored.
    pub journals: Vec<Journal>,
    /// Every split of the shard has been read to its end.
    pub drained: bool,
}

/// A prepared transaction and how long it may stay open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PreparedHandle {
    /// The handle.
    pub handle: Handle,
    /// When the broker may abort it, on the clock of [`Cohort::step`], counted from before its first Produce; the highest
    /// number where no time-out ends it.
    pub deadline_ms: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The checkpoint interval has passed.
    Tick,
    /// A shard has read its first record of the epoch.
    Touched {
        /// The shard.
        shard: ShardId,
        /// The epoch that the record belongs to.
        epoch: Epoch,
    },
    /// A shard's epoch is about to outgrow its transaction.
    BarrierWanted {
        /// The shard.
        shard: ShardId,
        /// The epoch that it writes.
        epoch: Epoch,
    },
    /// A shard has prepared the epoch on all its lanes.
    ShardPrepared {
        /// The shard.
        shard: ShardId,
        /// The epoch.
        epoch: Epoch,
        /// What it hands over.
        share: Share,
    },
    /// The slot holds what was offered.
    SlotStored {
        /// The slot.
        number: SlotNumber,
    },
    /// The slot holds another run's claim.
    SlotTaken {
        /// The slot.
        number: SlotNumber,
    },
    /// EndTxn of a lane has ended one way or the other.
    LaneEnded {
        /// The lane.
        lane: LaneId,
        /// The epoch.
        epoch: Epoch,
        /// How.
        ended: LaneEnd,
    },
    /// Take a last checkpoint and stop.
    StopWanted,
    /// A shard has read all its bounded splits.
    Drained {
        /// The shard.
        shard: ShardId,
    },
    /// Something in the run has failed.
    Failed {
        /// What.
        why: String,
    },
}

/// How EndTxn(commit) of a lane ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LaneEnd {
    /// Committed.
    Committed,
    /// Aborted or unknown: recovery must find out.
    NotCommitted(String),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Put the barrier that ends the epoch into every shard's stream.
    SendBarrier {
        /// The epoch that ends.
        epoch: Epoch,
        /// Nothing is read behind it.
        last: bool,
    },
    /// Offer a slot; answer with `SlotStored`, `SlotTaken`, or `Failed` where its outcome stays unknown.
    PutSlot {
        /// Where.
        number: SlotNumber,
        /// What.
        body: SlotBody,
    },
    /// Send EndTxn(commit) with each handle.
    Commit {
        /// The handles.
        handles: Vec<Handle>,
    },
    /// The outcomes of the epoch and of all before it are in the chain: their ids are free, old slots can go.
    Recorded {
        /// The epoch.
        epoch: Epoch,
    },
    /// The run is over. Comes once, and nothing after it.
    End(End),
}

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// A bounded job is done, and the chain says so.
    Finished,
    /// Stopped as wanted, every outcome in the chain.
    Stopped,
    /// Another run has claimed the job.
    Fenced,
    /// Something failed; the next run recovers.
    Failed(Failure),
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// A prepared transaction has used half of its time, or all of it by when its epoch was decided.
    DeadlineNear {
        /// The epoch.
        epoch: Epoch,
        /// The lane.
        lane: LaneId,
        /// What is left, in milliseconds.
        left_ms: u64,
    },
    /// Half of the time that transactions live has passed since the epoch's first record was read, and shards have not
    /// prepared it: given up before it was decided.
    Unprepared {
        /// The epoch.
        epoch: Epoch,
        /// The shards.
        shards: BTreeSet<ShardId>,
        /// How old the epoch is, in milliseconds.
        age_ms: u64,
    },
    /// A decided transaction was not committed, as far as is known.
    CommitFailed {
        /// The epoch.
        epoch: Epoch,
        /// The lane.
        lane: LaneId,
        /// What the broker said.
        why: String,
    },
    /// Reported by the run.
    Run(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeadlineNear { epoch, lane, left_ms: 0 } => {
                write!(f, "the transaction of lane {lane} was at its end before epoch {epoch} was decided")
            }
            Self::DeadlineNear { epoch, lane, left_ms } => write!(
                f,
                "epoch {epoch} was given up before it was decided: the transaction of lane {lane} has only {left_ms} ms left, \
                 and readers wait behind it"
            ),
            Self::Unprepared { epoch, shards, age_ms } => {
                let shards: Vec<_> = shards.iter().map(|shard| format!("{shard}")).collect();
                write!(
                    f,
                    "epoch {epoch} was given up before it was decided: shards {} have not prepared it {age_ms} ms after its \
                     first record, and readers wait behind its transactions",
                    shards.join(", ")
                )
            }
            Self::CommitFailed { epoch, lane, why } => {
                write!(f, "the commit of epoch {epoch} on lane {lane} did not succeed: {why}")
            }
            Self::Run(why) => f.write_str(why),
        }
    }
}

/// The coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cohort {
    config: CohortConfig,
    writing: Epoch,
    settled: Epoch,
    positions: Positions,
    next_slot: SlotNumber,
    touched: BTreeSet<ShardId>,
    /// When the first record of the epoch that is written was read.
    touched_ms: Option<u64>,
    due: bool,
    stopping: bool,
    drained: BTreeSet<ShardId>,
    collecting: Option<Collecting>,
    decided: Option<Decided>,
    putting: Option<Putting>,
    closing: Option<Closing>,
    ended: bool,
    effects: VecDeque<Effect>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Collecting {
    epoch: Epoch,
    last: bool,
    /// No transaction of the epoch is older: when its first record was read, or else when its barrier was sent.
    since_ms: u64,
    shares: BTreeMap<ShardId, Share>,
}

/// Its manifest is stored, its outcome is not in the chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Decided {
    epoch: Epoch,
    uncommitted: BTreeSet<LaneId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Putting {
    Manifest,
    Proven,
}

/// The last barrier's epoch needs no manifest any more: only the proof is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Closing {
    Stop,
    Finish,
    FinishRecorded,
}

impl Cohort {
    /// A coordinator that goes on where recovery ended.
    pub fn new(config: CohortConfig, start: CohortStart) -> Self {
        assert!(start.settled <= start.last_epoch, "positions of an epoch that was never used");
        Self {
            config,
            writing: start.last_epoch.next(),
            settled: start.settled,
            positions: start.positions,
            next_slot: start.next_slot,
            touched: BTreeSet::new(),
            touched_ms: None,
            due: false,
            stopping: false,
            drained: BTreeSet::new(),
            collecting: None,
            decided: None,
            putting: None,
            closing: None,
            ended: false,
            effects: VecDeque::new(),
        }
    }

    /// The epoch that the shards write now.
    pub fn writing(&self) -> Epoch {
        self.writing
    }

    /// The decided epoch whose outcome is not in the chain yet.
    pub fn in_doubt(&self) -> Option<Epoch> {
        self.decided.as_ref().map(|decided| decided.epoch)
    }

    /// Takes an input. `now_ms` is a monotonic clock.
    pub fn step(&mut self, now_ms: u64, input: Input) {
        if self.ended {
            return;
        }
        match input {
            Input::Tick => self.tick(),
            Input::Touched { shard, epoch } => self.touch(shard, epoch, now_ms),
            Input::BarrierWanted { shard, epoch } => {
                self.touch(shard, epoch, now_ms);
                self.due |= epoch == self.writing;
            }
            Input::ShardPrepared { shard, epoch, share } => self.prepared(shard, epoch, share),
            Input::SlotStored { number } => self.stored(number, now_ms),
            Input::SlotTaken { .. } => self.end(End::Fenced),
            Input::LaneEnded { lane, epoch, ended } => self.lane_ended(lane, epoch, ended),
            Input::StopWanted => self.stopping = true,
            Input::Drained { shard } => {
                self.drained.insert(shard);
            }
            Input::Failed { why } => self.end(End::Failed(Failure::Run(why))),
        }
        self.advance(now_ms);
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
        let decided = self.decided.as_ref();
        let oldest = decided.map(|decided| decided.epoch).or(self.collecting.as_ref().map(|some| some.epoch));
        let begun = oldest.map_or(1, |oldest| self.writing.0.saturating_sub(oldest.0) + 1);
        holds(begun <= WINDOW, "at most one epoch per id of a lane is begun and not recorded")?;
        let later = |some: &Collecting| decided.is_none_or(|decided| decided.epoch < some.epoch);
        holds(self.collecting.as_ref().is_none_or(later), "epochs are decided in order")?;
        let proven = decided.is_none_or(|decided| decided.uncommitted.is_empty());
        holds(self.putting.is_none() || proven, "nothing is offered while a decided epoch is in doubt")?;
        let complete =
            self.collecting.as_ref().is_some_and(|some| some.shares.len() == self.config.shards.len());
        let whole = self.putting != Some(Putting::Manifest) || complete;
        holds(whole, "a manifest has the share of every shard")?;
        let quiet = |effect: &Effect| matches!(effect, Effect::Recorded { .. } | Effect::End(_));
        let over = !self.ended || self.effects.iter().all(quiet);
        holds(over, "nothing is done after the end")
    }

    fn touch(&mut self, shard: ShardId, epoch: Epoch, now_ms: u64) {
        assert!(epoch <= self.writing, "a shard is ahead of the barriers");
        if epoch == self.writing {
            self.touched.insert(shard);
            self.touched_ms.get_or_insert(now_ms);
        }
    }

    /// An idle cohort has nothing to put a manifest for, but its last outcome must not be forgotten: the brokers
    /// drop their own record of it in days.
    fn tick(&mut self) {
        self.due = true;
        let idle = self.touched.is_empty() && self.collecting.is_none() && self.closing.is_none();
        if let Some(decided) = self.proven().filter(|_| idle && self.putting.is_none()) {
            let epoch = decided.epoch;
            self.put(Putting::Proven, SlotBody::Proven { epoch, finished: false });
        }
    }

    fn prepared(&mut self, shard: ShardId, epoch: Epoch, share: Share) {
        let collecting = self.collecting.as_mut().expect("a shard prepares only behind a barrier");
        assert!(collecting.epoch == epoch, "a shard prepares the epoch whose barrier it met");
        assert!(self.config.shards.contains(&shard), "only shards of the cohort prepare");
        let own = |prepared: &PreparedHandle| {
            prepared.handle.epoch == epoch
                && prepared.handle.lane.shard == shard
                && prepared.handle.check().is_ok()
        };
        assert!(share.handles.iter().all(own), "a shard hands over its own lanes' handles of the epoch");
        let kept = |journal: &Journal| {
            let fits = |prepared: &PreparedHandle| journal.fits(&prepared.handle);
            journal.epoch == epoch && share.handles.iter().any(fits)
        };
        assert!(share.journals.iter().all(kept), "a journal has the records of a handle beside it");
        let before = collecting.shares.insert(shard, share);
        assert!(before.is_none(), "a shard prepares an epoch once");
    }

    fn stored(&mut self, number: SlotNumber, now_ms: u64) {
        assert!(number == self.next_slot, "one slot is offered at a time");
        let putting = self.putting.take().expect("a slot was offered");
        self.next_slot = number.next();
        let before = self.decided.take().map(|decided| decided.epoch);
        let at_once = match putting {
            Putting::Proven => {
                if self.closing == Some(Closing::Finish) {
                    self.closing = Some(Closing::FinishRecorded);
                }
                None
            }
            Putting::Manifest => self.decide(now_ms),
        };
        if !self.ended {
            before.into_iter().chain(at_once).for_each(|epoch| self.settle(epoch));
        }
    }

    /// Commits what was decided, before anything else is done. Answers the epoch where nothing has to be committed.
    ///
    /// A put may have taken longer than a transaction lives. Then nothing is sent: ending some lanes while others are
    /// aborted would make going back impossible, and recovery looks at all of them first.
    fn decide(&mut self, now_ms: u64) -> Option<Epoch> {
        let collected = self.collecting.take().expect("a manifest was collected");
        self.positions = self.merged(&collected);
        if collected.last {
            self.close(&collected);
        }
        let prepared: Vec<_> = collected.shares.into_values().flat_map(|share| share.handles).collect();
        if let Some(dead) = prepared.iter().find(|some| some.deadline_ms <= now_ms) {
            let lane = dead.handle.lane.clone();
            self.end(End::Failed(Failure::DeadlineNear { epoch: collected.epoch, lane, left_ms: 0 }));
            return None;
        }
        let handles: Vec<_> = prepared.into_iter().map(|some| some.handle).collect();
        if handles.is_empty() {
            return Some(collected.epoch);
        }
        let uncommitted = handles.iter().map(|handle| handle.lane.clone()).collect();
        self.decided = Some(Decided { epoch: collected.epoch, uncommitted });
        self.effects.push_back(Effect::Commit { handles });
        None
    }

    fn settle(&mut self, epoch: Epoch) {
        self.settled = epoch;
        self.effects.push_back(Effect::Recorded { epoch });
    }

    fn close(&mut self, collected: &Collecting) {
        let finished = collected.shares.values().all(|share| share.drained);
        self.closing = Some(if finished { Closing::Finish } else { Closing::Stop });
    }

    fn lane_ended(&mut self, lane: LaneId, epoch: Epoch, ended: LaneEnd) {
        let decided = self.decided.as_mut().filter(|decided| decided.epoch == epoch);
        let known = decided.is_some_and(|decided| decided.uncommitted.remove(&lane));
        assert!(known, "a lane ends what it was told to commit, once");
        if let LaneEnd::NotCommitted(why) = ended {
            self.end(End::Failed(Failure::CommitFailed { epoch, lane, why }));
        }
    }

    fn advance(&mut self, now_ms: u64) {
        if self.ended {
            return;
        }
        if let Some(failure) = self.too_late(now_ms) {
            self.end(End::Failed(failure));
            return;
        }
        if self.putting.is_none() {
            self.offer();
        }
        if !self.ended {
            self.maybe_send_barrier(now_ms);
        }
    }

    /// The put is the point of no return, so the look at the clock comes before it. It only hurries: if a clock is
    /// wrong, recovery finds what the broker did.
    fn too_late(&self, now_ms: u64) -> Option<Failure> {
        let half_ms = self.config.lifetime_ms? / 2;
        let collecting = self.collecting.as_ref().filter(|_| self.putting != Some(Putting::Manifest))?;
        self.unprepared(collecting, now_ms, half_ms).or_else(|| near_deadline(collecting, now_ms, half_ms))
    }

    /// A shard that hangs shows no deadline, and none of what it has prepared on other lanes.
    fn unprepared(&self, collecting: &Collecting, now_ms: u64, half_ms: u64) -> Option<Failure> {
        let missing = |shard: &&ShardId| !collecting.shares.contains_key(*shard);
        let shards: BTreeSet<_> = self.config.shards.iter().filter(missing).copied().collect();
        let age_ms = now_ms.saturating_sub(collecting.since_ms);
        let late = !shards.is_empty() && age_ms >= half_ms;
        late.then_some(Failure::Unprepared { epoch: collecting.epoch, shards, age_ms })
    }

    /// Offers the slot that is due, if the epoch before is out of doubt.
    fn offer(&mut self) {
        let complete = |some: &Collecting| some.shares.len() == self.config.shards.len();
        if let Some(collected) = self.collecting.take_if(|some| complete(some)) {
            let positions = self.merged(&collected);
            let wrote = collected.shares.values().any(|share| !share.handles.is_empty());
            if collected.last && !wrote && positions == self.positions {
                self.close(&collected);
            } else {
                let manifest = manifest(&collected, positions);
                self.collecting = Some(collected);
                if self.decided.is_none() || self.proven().is_some() {
                    self.put(Putting::Manifest, SlotBody::Manifest(manifest));
                }
                return;
            }
        }
        let finished = match self.closing {
            None => return,
            Some(Closing::FinishRecorded) => return self.end(End::Finished),
            Some(Closing::Finish) => true,
            Some(Closing::Stop) => false,
        };
        match &self.decided {
            Some(decided) if decided.uncommitted.is_empty() => {
                let epoch = decided.epoch;
                self.put(Putting::Proven, SlotBody::Proven { epoch, finished });
            }
            Some(_) => {}
            None if finished => {
                self.put(Putting::Proven, SlotBody::Proven { epoch: self.settled, finished });
            }
            None => self.end(End::Stopped),
        }
    }

    fn maybe_send_barrier(&mut self, now_ms: u64) {
        if self.collecting.is_some() || self.closing.is_some() {
            self.due &= !self.touched.is_empty();
            return;
        }
        let last = self.stopping || self.config.shards.is_subset(&self.drained);
        if last || (self.due && !self.touched.is_empty()) {
            let epoch = self.writing;
            let since_ms = self.touched_ms.take().unwrap_or(now_ms);
            self.collecting = Some(Collecting { epoch, last, since_ms, shares: BTreeMap::new() });
            self.writing = epoch.next();
            self.touched.clear();
            self.effects.push_back(Effect::SendBarrier { epoch, last });
        }
        self.due = false;
    }

    fn put(&mut self, putting: Putting, body: SlotBody) {
        self.putting = Some(putting);
        self.effects.push_back(Effect::PutSlot { number: self.next_slot, body });
    }

    /// What was not done yet is not done any more; a decided epoch is the next run's to resolve.
    fn end(&mut self, end: End) {
        if !matches!(end, End::Finished | End::Stopped) {
            self.effects.clear();
        }
        self.ended = true;
        self.effects.push_back(Effect::End(end));
    }

    fn proven(&self) -> Option<&Decided> {
        self.decided.as_ref().filter(|decided| decided.uncommitted.is_empty())
    }

    fn merged(&self, collected: &Collecting) -> Positions {
        let mut positions = self.positions.clone();
        for share in collected.shares.values() {
            positions.extend(share.positions.iter().map(|(split, at)| (split.clone(), at.clone())));
        }
        positions
    }
}

fn manifest(collected: &Collecting, positions: Positions) -> Manifest {
    let handles = collected.shares.values().flat_map(|share| &share.handles);
    let handles = handles.map(|prepared| prepared.handle.clone()).collect();
    let journals = collected.shares.values().flat_map(|share| share.journals.iter().cloned()).collect();
    Manifest { epoch: collected.epoch, positions, handles, journals }
}

fn near_deadline(collecting: &Collecting, now_ms: u64, half_ms: u64) -> Option<Failure> {
    let handles = collecting.shares.values().flat_map(|share| &share.handles);
    let nearest = handles.min_by_key(|some| some.deadline_ms)?;
    let left_ms = nearest.deadline_ms.saturating_sub(now_ms);
    let lane = || nearest.handle.lane.clone();
    (left_ms <= half_ms).then(|| Failure::DeadlineNear { epoch: collecting.epoch, lane: lane(), left_ms })
}
