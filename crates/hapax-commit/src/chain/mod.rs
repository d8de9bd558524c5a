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

mod fault;
mod ids;
mod outcome;

pub use fault::ChainFault;

use crate::{
    handle::Handle,
    id::{Epoch, Generation, IdAt, RunNonce, SlotNumber, TransactionalId},
    revision::Shape,
    slot::{JobRecord, Manifest, Slot, SlotBody},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use ids::{LaneAt, NewestClaim};

/// What a chain says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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

/// A decided epoch whose outcome is not in the chain yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unresolved {
    /// The slot of its manifest.
    pub slot: SlotNumber,
    /// The run that decided it.
    pub run: RunNonce,
    /// What was decided, with amended handles in place of those that they replace.
    pub manifest: Manifest,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Settled {
    slot: SlotNumber,
    manifest: Manifest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kept {
    number: SlotNumber,
    kind: KeptKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KeptKind {
    Claim,
    Manifest,
    Revision,
    Other,
}

impl ChainView {
    /// The chain of a job that never ran.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Reads a whole chain, in ascending order. A claim whose put came so late that its number had been filled and pruned by
    /// then is none.
    ///
    /// # Errors
    /// Whatever no run of this protocol writes, and slots that are missing without having been pruned.
    pub fn read<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> Result<Self, ChainFault> {
        let mut view = Self::empty();
        without_late_claims(slots.into_iter().collect()).into_iter().try_for_each(|slot| view.apply(slot))?;
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
}

/// Without claims that were put into the hole which a pruned slot has left. The run at work goes on behind such a one, and
/// it does not behind a claim that came in its turn: its put of that very number has met it.
fn without_late_claims(slots: Vec<&Slot>) -> Vec<&Slot> {
    // Of the next slot behind that is no claim.
    let mut written_by = None;
    let mut counting: Vec<&Slot> = Vec::with_capacity(slots.len());
    for slot in slots.into_iter().rev() {
        let is_claim = matches!(slot.body, SlotBody::Claim(_));
        let is_late = is_claim && written_by.is_some_and(|generation| generation < slot.generation);
        if !is_claim {
            written_by = Some(slot.generation);
        }
        if !is_late {
            counting.push(slot);
        }
    }
    counting.reverse();
    counting
}
