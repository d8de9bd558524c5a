//! What a slot does to the epochs of a chain: decides one, settles it, or stands behind what is settled.
//!
//! Owns which slot may stand where. Refuses what no run writes there: a number that was used before, a second epoch in
//! doubt, a handle on an id that was not claimed.

use super::{ChainFault, ChainView, Settled, Unresolved};
use crate::{
    handle::Handle,
    id::Epoch,
    journal::Journal,
    position::Position,
    revision::Revision,
    slot::{Manifest, Slot},
};

impl ChainView {
    pub(super) fn apply_manifest(&mut self, slot: &Slot, manifest: &Manifest) -> Result<(), ChainFault> {
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

    pub(super) fn apply_amend(
        &mut self,
        slot: &Slot,
        epoch: Epoch,
        handles: &[Handle],
    ) -> Result<(), ChainFault> {
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

    pub(super) fn apply_proven(
        &mut self,
        slot: &Slot,
        epoch: Epoch,
        finished: bool,
    ) -> Result<(), ChainFault> {
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
    pub(super) fn apply_revision(&mut self, slot: &Slot, revision: &Revision) -> Result<(), ChainFault> {
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

    pub(super) fn apply_restored(
        &mut self,
        slot: &Slot,
        from: Epoch,
        manifest: &Manifest,
    ) -> Result<(), ChainFault> {
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
    pub(super) fn take_in_doubt(
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

impl From<Unresolved> for Settled {
    fn from(unresolved: Unresolved) -> Self {
        Self { slot: unresolved.slot, manifest: unresolved.manifest }
    }
}
