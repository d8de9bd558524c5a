//! The meaning of a chain: a fold over its slots.
//!
//! Owns: which run has the newest claim, which decided epoch is in doubt, from which positions to go on, which ids
//! a run must clear, and which slots are no longer needed. Refuses, as damage, what no run of this protocol writes.
//!
//! ```text
//!  claim -> manifest e -> manifest e+1 -> proven e+1 -> claim -> manifest e+2 -> claim -> void e+2 -> ..
//!                         proves e                               in doubt                 given up
//! ```
//!
//! Invariants:
//! - Slots ascend. Only a prefix is ever pruned, and claims never are, so a gap means that everything before it is
//!   settled, and a settled manifest follows behind it.
//! - A slot that is not a claim carries generation and run of the newest claim: a run that has not read a newer
//!   claim meets it as a taken slot, so anything else is a damaged store.
//! - Epoch numbers are never used twice, voided ones included: a lane's id is a function of the number.
//! - A revision, and a checkpoint that is restored, stand behind no epoch in doubt.
//! - At most one decided epoch is in doubt. The next manifest of the same run proves it; behind a claim only
//!   `proven`, `void` and `abandoned` settle it.

use crate::{
    handle::Handle,
    id::{
        EPOCHS_AHEAD, Epoch, Generation, IdAt, LaneId, Name, Naming, RunNonce, SlotNumber, TransactionalId,
    },
    journal::Journal,
    position::Position,
    revision::{Revision, Shape},
    slot::{Claim, JobRecord, Manifest, Slot, SlotBody},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use core::fmt;

/// What a chain says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainView {
    end: Option<SlotNumber>,
    claim: Option<NewestClaim>,
    last_epoch: Option<Epoch>,
    unresolved: Option<Unresolved>,
    settled: Option<Settled>,
    finished: bool,
    ids: BTreeMap<String, BTreeSet<TransactionalId>>,
    /// Lanes that claims name whose ids follow from the epoch: which may be open follows from the chain's end.
    lanes: BTreeSet<LaneAt>,
    newest_handles: BTreeMap<IdAt, Handle>,
    kept: Vec<Kept>,
    gap: Option<SlotNumber>,
    /// The newest epoch that a manifest or an outcome names. An amendment's handles have higher numbers than the epoch
    /// that they belong to, whose outcome comes behind them.
    newest_named: Option<Epoch>,
    /// What the newest revision says.
    shape: Option<Shape>,
    /// Clusters that a person gives up before a revision says so.
    dropped: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NewestClaim {
    generation: Generation,
    run: RunNonce,
    naming: Naming,
    ids: BTreeMap<String, BTreeSet<TransactionalId>>,
}

/// A lane of a job whose ids are named per epoch, at the coordinator of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LaneAt {
    cluster_id: String,
    job: Name,
    lane: LaneId,
}

/// A decided epoch whose outcome is not in the chain yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The slot of its manifest.
    pub slot: SlotNumber,
    /// The run that decided it.
    pub run: RunNonce,
    /// What was decided, with amended handles in place of those that they replace.
    pub manifest: Manifest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Settled {
    slot: SlotNumber,
    manifest: Manifest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    number: SlotNumber,
    kind: KeptKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeptKind {
    Claim,
    Manifest,
    Revision,
    Other,
}

/// What no run of this protocol writes: the store is damaged, or something else writes into it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChainFault {
    /// A number that does not ascend.
    Order {
        /// The end of the chain before it.
        end: Option<SlotNumber>,
        /// The number found.
        found: SlotNumber,
    },
    /// The chain does not begin with a claim in slot 1.
    NoClaim {
        /// The first slot found.
        found: SlotNumber,
    },
    /// A claim that names another slot as its generation.
    ClaimGeneration {
        /// The slot.
        slot: SlotNumber,
    },
    /// Written behind a claim by a run that is not the claimant.
    Foreign {
        /// The slot.
        slot: SlotNumber,
        /// Who wrote it.
        run: RunNonce,
    },
    /// An epoch number that is used twice or does not rise.
    EpochRepeated {
        /// The slot.
        slot: SlotNumber,
        /// The epoch.
        epoch: Epoch,
    },
    /// An epoch was decided while an earlier one was in doubt.
    DecidedInDoubt {
        /// The slot.
        slot: SlotNumber,
        /// The epoch in doubt.
        unresolved: Epoch,
    },
    /// An outcome or amendment of an epoch that is not in doubt.
    NotInDoubt {
        /// The slot.
        slot: SlotNumber,
        /// The epoch that it names.
        epoch: Epoch,
    },
    /// The deciding run itself gave up or amended its epoch: that takes a new claim.
    WithoutClaim {
        /// The slot.
        slot: SlotNumber,
    },
    /// A handle that does not belong there: another epoch's, an unknown lane's, or on an id that was not claimed.
    Handle {
        /// The slot.
        slot: SlotNumber,
        /// The handle's id.
        id: TransactionalId,
    },
    /// A journal that does not belong there: another run's or epoch's, or without a handle whose records it could have.
    Journal {
        /// The slot.
        slot: SlotNumber,
        /// Its lane.
        lane: LaneId,
    },
    /// A revision, or a restored checkpoint, that does not belong there.
    Revision {
        /// The slot.
        slot: SlotNumber,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A job that has ended went on.
    Finished {
        /// The slot.
        slot: SlotNumber,
    },
    /// Slots are missing that are never pruned.
    Missing {
        /// The first one missing.
        slot: SlotNumber,
    },
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { end: Some(end), found } => write!(f, "slot {found} was read after slot {end}"),
            Self::Order { end: None, found } => write!(f, "slot {found} is not a slot number"),
            Self::NoClaim { found } => {
                write!(f, "the chain begins with slot {found}, not with a claim in slot 1")
            }
            Self::ClaimGeneration { slot } => {
                write!(f, "the claim in slot {slot} names another slot as its own")
            }
            Self::Foreign { slot, run } => {
                write!(f, "slot {slot} was written by run {run}, which has not the newest claim")
            }
            Self::EpochRepeated { slot, epoch } => write!(f, "slot {slot} uses epoch {epoch} again"),
            Self::DecidedInDoubt { slot, unresolved } => {
                write!(f, "slot {slot} decides an epoch while epoch {unresolved} is in doubt")
            }
            Self::NotInDoubt { slot, epoch } => {
                write!(f, "slot {slot} names epoch {epoch}, which is not in doubt")
            }
            Self::WithoutClaim { slot } => {
                write!(f, "slot {slot} gives up or amends an epoch without a claim before it")
            }
            Self::Handle { slot, id } => write!(f, "the handle of {id} does not belong into slot {slot}"),
            Self::Journal { slot, lane } => {
                write!(f, "the journal of lane {lane} does not belong into slot {slot}")
            }
            Self::Revision { slot, why } => write!(f, "slot {slot} changes the job where it may not: {why}"),
            Self::Finished { slot } => write!(f, "slot {slot} decides an epoch of a job that has ended"),
            Self::Missing { slot } => write!(f, "slot {slot} is missing and cannot have been pruned"),
        }
    }
}

impl core::error::Error for ChainFault {}

impl ChainView {
    /// The chain of a job that never ran.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Reads a whole chain, in ascending order.
    ///
    /// # Errors
    /// Whatever no run of this protocol writes, and slots that are missing without having been pruned.
    pub fn read<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> Result<Self, ChainFault> {
        let mut view = Self::empty();
        slots.into_iter().try_for_each(|slot| view.apply(slot))?;
        match view.gap {
            Some(slot) if view.settled.is_none() => Err(ChainFault::Missing { slot }),
            Some(_) | None => Ok(view),
        }
    }

    /// Adds the next slot.
    ///
    /// # Errors
    /// The slot is not one that a run of this protocol writes there; the view is then not to be used any more.
    pub fn apply(&mut self, slot: &Slot) -> Result<(), ChainFault> {
        self.check_place(slot)?;
        let kind = match &slot.body {
            SlotBody::Claim(claim) => {
                self.apply_claim(slot, claim);
                KeptKind::Claim
            }
            SlotBody::Manifest(manifest) => {
                self.apply_manifest(slot, manifest)?;
                KeptKind::Manifest
            }
            SlotBody::Amend { epoch, handles } => {
                self.apply_amend(slot, *epoch, handles)?;
                KeptKind::Other
            }
            SlotBody::Void { epoch } => {
                self.take_in_doubt(slot, *epoch, true)?;
                KeptKind::Other
            }
            SlotBody::Abandoned { epoch, .. } => {
                self.settled = self.take_in_doubt(slot, *epoch, true)?;
                KeptKind::Other
            }
            SlotBody::Proven { epoch, finished } => {
                self.apply_proven(slot, *epoch, *finished)?;
                KeptKind::Other
            }
            SlotBody::Revision(revision) => {
                self.apply_revision(slot, revision)?;
                KeptKind::Revision
            }
            SlotBody::Restored { from, manifest } => {
                self.apply_restored(slot, *from, manifest)?;
                KeptKind::Manifest
            }
        };
        self.end = Some(slot.number);
        self.kept.push(Kept { number: slot.number, kind });
        Ok(())
    }

    /// The last slot.
    pub fn end(&self) -> Option<SlotNumber> {
        self.end
    }

    /// The slot that a run fills next.
    pub fn next_slot(&self) -> SlotNumber {
        self.end.map_or(SlotNumber::FIRST, SlotNumber::next)
    }

    /// Who may write.
    pub fn newest_claim(&self) -> Option<(Generation, RunNonce)> {
        self.claim.as_ref().map(|claim| (claim.generation, claim.run))
    }

    /// Is the newest claim this run's?
    pub fn is_newest(&self, run: RunNonce) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.run == run)
    }

    /// The decided epoch that is in doubt.
    pub fn unresolved(&self) -> Option<&Unresolved> {
        self.unresolved.as_ref()
    }

    /// The newest manifest whose outcome is in the chain and that was not given up; `None` is genesis. While an
    /// epoch is in doubt this is the one before it: what `rewind` goes back to.
    pub fn progress(&self) -> Option<&Manifest> {
        self.settled.as_ref().map(|settled| &settled.manifest)
    }

    /// What the job is now: as the newest revision says, else as it was created.
    pub fn shape(&self, record: &JobRecord) -> Shape {
        self.shape.clone().unwrap_or_else(|| Shape::of(record))
    }

    /// Epoch of [`ChainView::progress`].
    pub fn settled_epoch(&self) -> Epoch {
        self.progress().map_or(Epoch::GENESIS, |manifest| manifest.epoch)
    }

    /// The highest epoch number ever used; the next epoch is the one after it.
    pub fn last_epoch(&self) -> Epoch {
        self.last_epoch.unwrap_or(Epoch::GENESIS)
    }

    /// Every id that may be open, by the Kafka id of its cluster: those that claims name. Of ids per epoch those of the
    /// newest checkpoint and of the numbers behind it, since whatever has an older number has ended.
    pub fn ids(&self) -> BTreeMap<String, BTreeSet<TransactionalId>> {
        let mut ids = self.ids.clone();
        let last = self.last_epoch();
        for LaneAt { cluster_id, job, lane } in &self.lanes {
            let of_lane = ids.entry(cluster_id.clone()).or_default();
            of_lane.extend(lane.ids_behind(job, Naming::PerEpoch, last));
        }
        for at in self.ids_in_doubt() {
            ids.entry(at.cluster_id).or_default().insert(at.id);
        }
        ids
    }

    /// How the newest claim names ids.
    pub fn naming(&self) -> Naming {
        self.claim.as_ref().map_or_else(Naming::default, |claim| claim.naming)
    }

    /// Ids that a handle of the epoch in doubt names: nothing may be sent to them but its own EndTxn.
    pub fn ids_in_doubt(&self) -> BTreeSet<IdAt> {
        self.unresolved.iter().flat_map(|unresolved| &unresolved.manifest.handles).map(Handle::at).collect()
    }

    /// The ids that a run clears before it looks: all but those in doubt.
    pub fn ids_to_clear(&self) -> BTreeSet<IdAt> {
        let in_doubt = self.ids_in_doubt();
        self.ids()
            .into_iter()
            .flat_map(|(cluster_id, ids)| {
                ids.into_iter().map(move |id| IdAt { cluster_id: cluster_id.clone(), id })
            })
            .filter(|at| !in_doubt.contains(at))
            .collect()
    }

    /// Forgets the ids of a cluster, which a person has said is not to be cleared any more; the next revision makes that
    /// last. Nothing may be in doubt there.
    pub fn leave(&mut self, cluster_id: &str) {
        let is_in_doubt = self.ids_in_doubt().iter().any(|at| at.cluster_id == cluster_id);
        assert!(!is_in_doubt, "what is in doubt at cluster {cluster_id} is not forgotten");
        self.ids.remove(cluster_id);
        self.lanes.retain(|at| at.cluster_id != cluster_id);
        self.newest_handles.retain(|at, _| at.cluster_id != *cluster_id);
        self.dropped.insert(cluster_id.into());
    }

    /// Clusters that [`ChainView::leave`] was told of since the newest revision.
    pub fn dropped(&self) -> impl Iterator<Item = &String> {
        self.dropped.iter()
    }

    /// The newest handle of each id, as far as the slots that are kept tell.
    pub fn newest_handles(&self) -> impl Iterator<Item = &Handle> {
        self.newest_handles.values()
    }

    /// A bounded job has ended: nothing is left to read.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Slots that nobody needs any more: all but claims and revisions before the oldest manifest to keep. Kept are the
    /// newest settled manifest, `keep` manifests at least, and all that follows them. To be removed in ascending order.
    pub fn prunable(&self, keep: usize) -> Vec<SlotNumber> {
        let Some(settled) = &self.settled else { return Vec::new() };
        let oldest_kept =
            self.kept.iter().rev().filter(|slot| slot.kind == KeptKind::Manifest).nth(keep.max(1) - 1);
        let Some(oldest_kept) = oldest_kept else { return Vec::new() };
        let cut = oldest_kept.number.min(settled.slot);
        let is_droppable = |kind| matches!(kind, KeptKind::Manifest | KeptKind::Other);
        let droppable = self.kept.iter().filter(|slot| slot.number < cut && is_droppable(slot.kind));
        droppable.map(|slot| slot.number).collect()
    }

    /// Forgets slots that were removed, so that [`ChainView::prunable`] does not name them again.
    pub fn pruned(&mut self, removed: &[SlotNumber]) {
        self.kept.retain(|slot| !removed.contains(&slot.number));
    }

    fn check_place(&mut self, slot: &Slot) -> Result<(), ChainFault> {
        if self.end.map_or(slot.number.0 == 0, |end| slot.number <= end) {
            return Err(ChainFault::Order { end: self.end, found: slot.number });
        }
        let is_claim = matches!(slot.body, SlotBody::Claim(_));
        match &self.claim {
            None if !is_claim || slot.number != SlotNumber::FIRST => {
                return Err(ChainFault::NoClaim { found: slot.number });
            }
            None | Some(_) if is_claim => {
                if slot.generation != Generation(slot.number.0) {
                    return Err(ChainFault::ClaimGeneration { slot: slot.number });
                }
            }
            Some(claim) if (claim.generation, claim.run) != (slot.generation, slot.run) => {
                return Err(ChainFault::Foreign { slot: slot.number, run: slot.run });
            }
            None | Some(_) => {}
        }
        if slot.number != self.next_slot() {
            self.forget_before_gap();
        }
        Ok(())
    }

    /// Whatever stands before a gap is settled. It need not even be all that once stood there: the late copy of a
    /// put can fill a slot again that was pruned since.
    fn forget_before_gap(&mut self) {
        self.gap = Some(self.next_slot());
        self.unresolved = None;
        self.settled = None;
        self.newest_handles.clear();
    }

    fn apply_claim(&mut self, slot: &Slot, claim: &Claim) {
        let ids: BTreeMap<String, BTreeSet<_>> =
            claim.ids.iter().map(|(cluster, ids)| (cluster.clone(), ids.iter().cloned().collect())).collect();
        match claim.naming {
            Naming::Rotating => {
                for (cluster, named) in &ids {
                    self.ids.entry(cluster.clone()).or_default().extend(named.iter().cloned());
                }
            }
            Naming::PerEpoch => {
                // The first claim takes over what a life of the job before this one had, under whatever numbers. Of a later
                // one's ids that cannot be told any more when what stood before it is pruned.
                let is_others = |id: &&TransactionalId| !(1..=EPOCHS_AHEAD).contains(&id.index);
                for (cluster, named) in ids.iter().filter(|_| slot.number == SlotNumber::FIRST) {
                    let others: Vec<_> = named.iter().filter(is_others).cloned().collect();
                    if !others.is_empty() {
                        self.ids.entry(cluster.clone()).or_default().extend(others);
                    }
                }
                let lanes = ids.iter().flat_map(|(cluster_id, ids)| {
                    ids.iter().map(|id| LaneAt {
                        cluster_id: cluster_id.clone(),
                        job: id.job.clone(),
                        lane: id.lane.clone(),
                    })
                });
                self.lanes.extend(lanes);
            }
        }
        let naming = claim.naming;
        self.claim = Some(NewestClaim { generation: slot.generation, run: slot.run, naming, ids });
    }

    fn apply_manifest(&mut self, slot: &Slot, manifest: &Manifest) -> Result<(), ChainFault> {
        if self.finished {
            return Err(ChainFault::Finished { slot: slot.number });
        }
        self.use_epoch(slot, manifest.epoch)?;
        if let Some(earlier) = &self.unresolved {
            if earlier.run != slot.run {
                let unresolved = earlier.manifest.epoch;
                return Err(ChainFault::DecidedInDoubt { slot: slot.number, unresolved });
            }
            self.settled = self.unresolved.take().map(Settled::from);
        }
        for handle in &manifest.handles {
            self.use_handle(slot, handle, handle.epoch == manifest.epoch)?;
        }
        let belongs = |journal: &Journal| {
            (journal.epoch, journal.generation) == (manifest.epoch, slot.generation)
                && manifest.handles.iter().any(|handle| journal.fits(handle))
        };
        if let Some(stray) = manifest.journals.iter().find(|journal| !belongs(journal)) {
            return Err(ChainFault::Journal { slot: slot.number, lane: stray.lane.clone() });
        }
        let decided = Unresolved { slot: slot.number, run: slot.run, manifest: manifest.clone() };
        if manifest.handles.is_empty() {
            self.settled = Some(decided.into());
        } else {
            self.unresolved = Some(decided);
        }
        Ok(())
    }

    fn apply_amend(&mut self, slot: &Slot, epoch: Epoch, handles: &[Handle]) -> Result<(), ChainFault> {
        let Some(mut amended) =
            self.unresolved.take().filter(|unresolved| unresolved.manifest.epoch == epoch)
        else {
            self.accept_orphan(slot, epoch)?;
            handles.iter().for_each(|handle| self.last_epoch = self.last_epoch.max(Some(handle.epoch)));
            return Ok(());
        };
        if amended.run == slot.run {
            return Err(ChainFault::WithoutClaim { slot: slot.number });
        }
        let last = self.last_epoch();
        for handle in handles {
            let old = amended.manifest.handles.iter_mut().find(|old| old.lane == handle.lane);
            self.use_handle(slot, handle, old.is_some() && handle.epoch > last)?;
            self.last_epoch = self.last_epoch.max(Some(handle.epoch));
            if let Some(old) = old {
                old.clone_from(handle);
            }
        }
        self.unresolved = Some(amended);
        Ok(())
    }

    fn apply_proven(&mut self, slot: &Slot, epoch: Epoch, finished: bool) -> Result<(), ChainFault> {
        let settled_already = self.unresolved.is_none() && self.settled_epoch() == epoch;
        if !(finished && settled_already && self.gap.is_none_or(|_| self.settled.is_some())) {
            let settled = self.take_in_doubt(slot, epoch, false)?;
            self.settled = settled.or(self.settled.take());
        }
        self.finished = finished;
        Ok(())
    }

    /// What is read from here on. A checkpoint before it keeps no position of a split that is dropped: the split may come
    /// back one day, and begins anew then.
    fn apply_revision(&mut self, slot: &Slot, revision: &Revision) -> Result<(), ChainFault> {
        let known = self.shape.as_ref().map_or(0, |shape| shape.layout.number);
        let is_dealt_anew = self.shape.as_ref().is_none_or(|shape| shape.layout != revision.shape.layout);
        let why = match () {
            () if self.unresolved.is_some() => Some("an epoch is in doubt"),
            () if self.gap.is_none() && revision.behind != self.settled_epoch() => {
                Some("it stands behind another epoch")
            }
            () if revision.shape.layout.number < known + u32::from(is_dealt_anew) => {
                Some("the layout's number does not rise")
            }
            () if revision.shape.check().is_err() => Some("its splits and their starts do not fit"),
            () => None,
        };
        if let Some(why) = why {
            return Err(ChainFault::Revision { slot: slot.number, why });
        }
        if let Some(settled) = &mut self.settled {
            settled.manifest.positions = revision.shape.positions(Some(&settled.manifest));
        }
        revision.left.iter().for_each(|cluster_id| self.leave(cluster_id));
        self.dropped.clear();
        let positions = revision.shape.positions(self.progress());
        self.finished &= positions.values().all(Position::at_end);
        self.shape = Some(revision.shape.clone());
        Ok(())
    }

    fn apply_restored(&mut self, slot: &Slot, from: Epoch, manifest: &Manifest) -> Result<(), ChainFault> {
        let why = match () {
            () if self.unresolved.is_some() => Some("an epoch is in doubt"),
            () if from >= manifest.epoch => Some("it is older than what it copies"),
            () if !manifest.handles.is_empty() => Some("what is restored has no transactions"),
            () => None,
        };
        if let Some(why) = why {
            return Err(ChainFault::Revision { slot: slot.number, why });
        }
        self.use_epoch(slot, manifest.epoch)?;
        self.settled = Some(Settled { slot: slot.number, manifest: manifest.clone() });
        self.finished = false;
        Ok(())
    }

    /// Takes the epoch in doubt out of doubt. `None` where its manifest was pruned.
    fn take_in_doubt(
        &mut self,
        slot: &Slot,
        epoch: Epoch,
        by_later_run: bool,
    ) -> Result<Option<Settled>, ChainFault> {
        let Some(unresolved) = self.unresolved.take().filter(|unresolved| unresolved.manifest.epoch == epoch)
        else {
            return self.accept_orphan(slot, epoch).map(|()| None);
        };
        if by_later_run && unresolved.run == slot.run {
            return Err(ChainFault::WithoutClaim { slot: slot.number });
        }
        Ok(Some(unresolved.into()))
    }

    /// A slot about an epoch whose manifest was pruned, by a run that ended before it had removed this one too.
    fn accept_orphan(&mut self, slot: &Slot, epoch: Epoch) -> Result<(), ChainFault> {
        let newest = self.newest_named.unwrap_or(Epoch::GENESIS);
        if self.gap.is_none() || self.settled.is_some() || epoch < newest {
            return Err(ChainFault::NotInDoubt { slot: slot.number, epoch });
        }
        self.newest_named = Some(epoch);
        self.last_epoch = self.last_epoch.max(Some(epoch));
        Ok(())
    }

    fn use_epoch(&mut self, slot: &Slot, epoch: Epoch) -> Result<(), ChainFault> {
        if epoch <= self.last_epoch() {
            return Err(ChainFault::EpochRepeated { slot: slot.number, epoch });
        }
        self.newest_named = Some(epoch);
        self.last_epoch = Some(epoch);
        Ok(())
    }

    fn use_handle(&mut self, slot: &Slot, handle: &Handle, fits: bool) -> Result<(), ChainFault> {
        if !fits || !self.claim.as_ref().is_some_and(|claim| claim.covers(handle)) {
            return Err(ChainFault::Handle { slot: slot.number, id: handle.transactional_id.clone() });
        }
        self.newest_handles.insert(handle.at(), handle.clone());
        Ok(())
    }
}

impl NewestClaim {
    /// May the run prepare a transaction under this id?
    fn covers(&self, handle: &Handle) -> bool {
        let Some(ids) = self.ids.get(&handle.cluster_id) else { return false };
        let id = &handle.transactional_id;
        match self.naming {
            Naming::Rotating => ids.contains(id),
            Naming::PerEpoch => {
                id.index == self.naming.index(handle.epoch)
                    && ids.iter().any(|named| (&named.job, &named.lane) == (&id.job, &id.lane))
            }
        }
    }
}

impl From<Unresolved> for Settled {
    fn from(unresolved: Unresolved) -> Self {
        Self { slot: unresolved.slot, manifest: unresolved.manifest }
    }
}
