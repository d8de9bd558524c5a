//! Positions that have no room beside an offset: reading them back, and removing those of older epochs.
//!
//! Owns when an object may go: behind a later epoch of its shard that is committed and told. Refuses to go on without one
//! that a committed offset points to. A removal that fails is left to a later run, since nothing depends on it.

use super::TransactionDecider;
use crate::error::{Code, JobError};
use futures::{FutureExt, future::BoxFuture};
use hapax_commit::{
    CarriedPositions, Identity, Marked, Name, Positions, ProducerId, Reading, ShardId,
    bookmark::{Home, Progress},
    carried,
};
use hapax_store::PositionObjects;
use std::collections::{BTreeMap, BTreeSet};

impl TransactionDecider {
    /// Fills in the positions that offsets point to.
    pub(super) async fn read_objects(&self, progress: &mut Progress) -> Result<(), JobError> {
        for shard in progress.shards.values_mut() {
            if let Some(name) = &shard.object {
                shard.positions = read(&self.start.plan.name, self.start.objects.as_ref(), name).await?;
            }
        }
        Ok(())
    }
}

/// Bookmarks with their positions, wherever these are kept.
///
/// # Errors
/// An object is missing or damaged, or the store does not answer.
pub(crate) async fn resolved(
    job: &Name,
    mut marks: Vec<Marked>,
    objects: Option<&PositionObjects>,
) -> Result<Vec<Marked>, JobError> {
    for one in &mut marks {
        if let Reading::Object(name) = &one.mark.at {
            one.mark.at = Reading::Positions(read(job, objects, name).await?);
        }
    }
    Ok(marks)
}

async fn read(job: &Name, objects: Option<&PositionObjects>, name: &str) -> Result<Positions, JobError> {
    let lost = |what: String| JobError::NeedsPerson {
        code: Code::ProgressLost,
        message: format!(
            "job {job}: a committed offset points to {what}; that is the job's progress, and without it the job would read \
             records again that it has written; bring it back from where it is whole, or begin anew with --fresh, which \
             may write records a second time"
        ),
        incident: None,
    };
    let Some(objects) = objects else {
        return Err(lost(format!(
            "object {name} of its checkpoint store, and the file names no store any more"
        )));
    };
    let label = objects.label(name);
    let bytes = objects.get(name).await;
    let bytes = bytes
        .map_err(|error| JobError::store(format!("job {job}: reading positions from {label}"), error))?;
    let Some(bytes) = bytes else { return Err(lost(format!("{label}, which is not there"))) };
    let found = CarriedPositions::from_bytes(&bytes).map_err(|damage| lost(format!("{label}: {damage}")))?;
    carried::check_object(&found, job, name).map_err(|why| lost(format!("{label}: {why}")))?;
    Ok(found.positions)
}

/// Which objects may go.
pub(super) struct Tidy {
    objects: Option<PositionObjects>,
    layout: BTreeSet<ShardId>,
    cleared: BTreeMap<ProducerId, Identity>,
    /// What each shard's newest committed epoch points to.
    committed: BTreeMap<ShardId, String>,
    /// What the epoch points to that is being committed.
    pending: BTreeMap<ShardId, String>,
    /// Shards whose objects of former runs are removed.
    swept: BTreeSet<ShardId>,
}

impl Tidy {
    /// Of a run that has taken the job over. On the group's own offsets there are none.
    pub(super) fn of(decider: &TransactionDecider) -> Self {
        let cleared = decider.cleared.iter().flat_map(|cleared| cleared.0.values());
        let shards = decider.progress.iter().flat_map(|progress| &progress.shards);
        Self {
            objects: decider.start.objects.clone().filter(|_| decider.home.kind == Home::Carrier),
            layout: decider.shards().collect(),
            cleared: cleared.map(|identity| (identity.producer_id, *identity)).collect(),
            committed: shards.filter_map(|(shard, at)| Some((*shard, at.object.clone()?))).collect(),
            pending: BTreeMap::new(),
            swept: BTreeSet::new(),
        }
    }

    /// The epoch of the shard that is being committed points to this.
    pub(super) fn carries(&mut self, shard: ShardId, object: Option<&CarriedPositions>) {
        match object {
            Some(object) => self.pending.insert(shard, object.name().to_text()),
            None => self.pending.remove(&shard),
        };
    }

    /// That epoch is committed and told: what is to be removed behind it, if anything.
    pub(super) fn after(&mut self, shard: ShardId) -> Option<BoxFuture<'static, ()>> {
        let objects = self.objects.clone()?;
        let former = self.committed.remove(&shard);
        if let Some(object) = self.pending.remove(&shard) {
            self.committed.insert(shard, object);
        }
        if !self.swept.insert(shard) {
            let former = former?;
            return Some(removed(objects, vec![former]).boxed());
        }
        let (layout, cleared) = (self.layout.clone(), self.cleared.clone());
        let sweep = async move {
            match objects.names().await {
                Ok(names) => {
                    let is_due = |of: ShardId| of == shard || !layout.contains(&of);
                    removed(objects, carried::older(names, is_due, &cleared)).await;
                }
                Err(error) => tracing::info!("objects with positions of former runs stay for now: {error}"),
            }
        };
        Some(sweep.boxed())
    }
}

pub(super) async fn removed(objects: PositionObjects, names: Vec<String>) {
    if let Err(error) = objects.remove(&names).await {
        tracing::info!("objects with positions of older epochs stay for now: {error}");
    }
}
