//! Which ids a chain names: those that a run clears, and those that it may prepare a transaction under.
//!
//! Owns the two ways of naming. With three ids in turn, whatever a claim has ever named may be open. With an id for each
//! epoch, the lanes are remembered, and which of their ids may be open follows from the newest number. Refuses to forget
//! an id that is in doubt.

use super::ChainView;
use crate::{
    handle::Handle,
    id::{EPOCHS_AHEAD, Generation, IdAt, LaneId, Name, Naming, RunNonce, SlotNumber, TransactionalId},
    slot::{Claim, Slot},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NewestClaim {
    pub(super) generation: Generation,
    pub(super) run: RunNonce,
    naming: Naming,
    ids: BTreeMap<String, BTreeSet<TransactionalId>>,
}

/// A lane of a job whose ids are named per epoch, at the coordinator of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LaneAt {
    cluster_id: String,
    job: Name,
    lane: LaneId,
}

impl ChainView {
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

    pub(super) fn apply_claim(&mut self, slot: &Slot, claim: &Claim) {
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
}

impl NewestClaim {
    /// May the run prepare a transaction under this id?
    pub(super) fn covers(&self, handle: &Handle) -> bool {
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
