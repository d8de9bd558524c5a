//! What changes a job between two of its epochs: other shards, other splits, or a way back to an older checkpoint.
//!
//! Owns the order of a change and its refusals. Refuses to change anything before what is in doubt was resolved under the
//! old shape, and whatever can be refused is refused before the job is claimed, which would end a run that is alive.
//!
//! ```text
//! read the chain - may it? - claim, which names the ids of both shapes - resolve, clear - put the slot - go on
//!                                                                                   L0 ^ L1
//! ```

use super::{
    Takeover,
    checkpoint::{CheckpointDecider, Intent},
    fit,
};
use crate::error::{Code, JobError};
use hapax_commit::{
    Epoch, Manifest, Name, Positions, Revision, Shape, ShardId, Slot, SlotBody, SplitId,
    history::{self, Checkpoint, Standing},
};
use hapax_store::PutOutcome;
use serde::Serialize;
use std::collections::BTreeSet;

/// A kept checkpoint, for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointLine {
    /// Its number: what `hapax run FILE --from` takes.
    pub epoch: u64,
    /// Wall time in milliseconds since 1970; none for the beginning.
    pub written_ms: Option<i64>,
    /// Splits that it has positions of.
    pub positions: usize,
    /// Records in its transactions.
    pub records: u64,
    /// What became of it.
    pub standing: CheckpointStanding,
    /// The older checkpoint that it is a copy of.
    pub restored: Option<u64>,
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointStanding {
    /// Its transactions are committed, or it had none.
    Proven,
    /// It is decided, and whether its transactions are committed is not recorded.
    InDoubt,
    /// Given up: its input was read again.
    Void,
    /// Gone on from without records that it counts.
    Abandoned,
}

impl CheckpointLine {
    fn of(one: &Checkpoint) -> Self {
        Self {
            epoch: one.manifest.epoch.0,
            written_ms: Some(one.written_ms),
            positions: one.manifest.positions.len(),
            records: one.records(),
            standing: match one.standing {
                Standing::Proven => CheckpointStanding::Proven,
                Standing::InDoubt => CheckpointStanding::InDoubt,
                Standing::Void => CheckpointStanding::Void,
                Standing::Abandoned => CheckpointStanding::Abandoned,
            },
            restored: one.restored.map(|epoch| epoch.0),
        }
    }
}

impl CheckpointDecider {
    /// What the job is, as job record and chain say.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Refuses, before the claim, a pipeline that does not fit the job.
    pub(super) async fn check_change(&mut self, slots: &[Slot]) -> Result<(), JobError> {
        let Intent::Run { drop, from } = self.start.intent.clone() else { return Ok(()) };
        self.check_clusters()?;
        self.check_naming()?;
        fit::check_shards(&self.start.plan, &self.shape)?;
        fit::check_splits(&self.start.plan, &self.shape, &drop)?;
        self.check_left(&drop).await?;
        match from {
            Some(from) => self.kept(slots, from).map(|_| ()),
            None => Ok(()),
        }
    }

    /// A cluster's name stays the name of one cluster.
    fn check_clusters(&self) -> Result<(), JobError> {
        for (name, client) in self.start.brokers.transactional() {
            match self.shape.clusters.get(name) {
                Some(known) if known.cluster_id != client.cluster_id() => {
                    return Err(foreign_cluster(
                        &self.start.plan.name,
                        name,
                        client.cluster_id(),
                        &known.cluster_id,
                    ));
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Which ids may be open follows from how they are named.
    fn check_naming(&self) -> Result<(), JobError> {
        match self.start.plan.settings.naming {
            Some(wanted) if wanted != self.naming() => Err(self.changed(
                "naming is fixed when a job is created; put back what it was, or begin another job at a checkpoint of this \
                 one: hapax run FILE --fork-of JOB"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Ids at a cluster that the file knows no more can be neither resolved nor cleared (H38).
    async fn check_left(&mut self, drop: &[String]) -> Result<(), JobError> {
        for cluster_id in self.view.ids().into_keys() {
            let refused = match self.start.brokers.client(&cluster_id, "a transaction of the job").await {
                Err(error @ JobError::Configuration { .. }) => error,
                // Whoever cannot be reached now is asked again by recovery.
                Ok(_) | Err(_) => continue,
            };
            let named = self.shape.clusters.iter().find(|(_, known)| known.cluster_id == cluster_id);
            let name = named.map_or(cluster_id.as_str(), |(name, _)| name.as_str());
            let handles = self.view.unresolved().map_or(&[][..], |unresolved| &unresolved.manifest.handles);
            let in_doubt = handles.iter().filter(|handle| handle.cluster_id == cluster_id).count();
            let is_dropped = drop.iter().any(|dropped| dropped == name || *dropped == cluster_id);
            match (in_doubt, is_dropped) {
                (0, true) => self.view.leave(&cluster_id),
                (0, false) => {
                    return Err(self.changed(format!(
                        "cluster {name} (id {cluster_id}) has transactional ids of the job, and the pipeline does not know \
                         it any more; put [cluster.{name}] back for one start, which ends what is open there, or say that \
                         it is left to time out: hapax run FILE --drop {name}"
                    )));
                }
                (count, _) => {
                    return Err(self.changed(format!(
                        "{count} prepared transactions of epoch {} are in doubt at cluster {name} (id {cluster_id}), which \
                         the pipeline does not know any more: {}; put [cluster.{name}] back for one start, which resolves \
                         them, and take it out afterwards",
                        self.view.last_epoch(),
                        refused.chain()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Gives the job another number of shards.
    pub(crate) async fn reshape(&mut self, shards: u32) -> Result<String, JobError> {
        self.start.plan.check_shard_count(shards)?;
        self.read_chain().await?;
        let known = self.shape.layout.shards.len();
        let job = self.start.plan.name.clone();
        if known == shards as usize {
            return Ok(format!("job {job} has {known} shards; nothing was changed"));
        }
        self.coming = (0..shards).map(ShardId).collect();
        self.taken_over().await?;
        let shape = self.shape.with_shards(shards);
        let number = shape.layout.number;
        self.put_revision(shape).await?;
        let said = format!(
            "job {job} has {shards} shards (it had {known}): layout {number}, behind epoch {}; start it again",
            self.view.settled_epoch()
        );
        Ok(match self.start.plan.settings.shards {
            Some(in_file) if in_file != shards => {
                format!("{said}, with shards = {shards} in the pipeline file, which says {in_file}")
            }
            _ => said,
        })
    }

    /// Records what the job is from here on, where that is something else than before.
    pub(crate) async fn revise(&mut self, shape: Shape, takeover: &mut Takeover) -> Result<(), JobError> {
        if shape != self.shape || !self.left().is_empty() {
            self.tell(&shape);
            self.put_revision(shape).await?;
            self.rebase(takeover)?;
        }
        Ok(())
    }

    /// Clusters whose ids were all cleared by this run, and that the job has no lane on. What a life of the job before this
    /// one had stays in sight until the first run of this one has ended.
    fn left(&self) -> Vec<String> {
        let has_lanes: BTreeSet<&str> =
            self.start.brokers.transactional().map(|(_, client)| client.cluster_id()).collect();
        let stays = |id: &String| has_lanes.contains(id.as_str()) || self.start.inherited.contains_key(id);
        let named = self.view.ids().into_keys().chain(self.view.dropped().cloned());
        named.filter(|cluster_id| !stays(cluster_id)).collect()
    }

    fn tell(&self, shape: &Shape) {
        let (job, behind) = (&self.start.plan.name, self.view.settled_epoch());
        let (added, dropped) = fit::moved(&self.shape, shape);
        if !added.is_empty() {
            let splits = added.join(", ");
            tracing::info!(%job, %behind, "reads from here on, from the first record: {splits}");
        }
        if !dropped.is_empty() {
            let splits = dropped.join(", ");
            tracing::warn!(%job, %behind, "does not read any more, and has forgotten the positions of: {splits}");
        }
        if shape.pipeline != self.shape.pipeline {
            tracing::info!(%job, %behind, "the pipeline file has changed: records behind this epoch pass through it as it is");
        }
        for cluster_id in self.left() {
            tracing::info!(%job, cluster_id, "writes no transaction there any more: its ids are cleared for the last time");
        }
    }

    async fn put_revision(&mut self, shape: Shape) -> Result<(), JobError> {
        shape.check().map_err(|broken| JobError::Bug { what: format!("a revision: {broken}") })?;
        let revision = Revision { behind: self.view.settled_epoch(), shape, left: self.left() };
        self.put_change(SlotBody::Revision(revision)).await
    }

    async fn put_change(&mut self, body: SlotBody) -> Result<(), JobError> {
        let number = self.view.next_slot();
        let (slot, outcome) = self.put(number, body).await;
        match outcome {
            PutOutcome::Stored => self.apply(&slot),
            PutOutcome::Taken(_) => Err(self.fenced().await),
            PutOutcome::Unknown(error) => Err(JobError::store(
                format!("job {}: changing the job in slot {number}", self.start.plan.name),
                error,
            )),
        }
    }

    /// Goes back to a kept checkpoint, unless this process has done so: what came out since comes out twice.
    pub(crate) async fn restore(&mut self, from: Epoch, takeover: &mut Takeover) -> Result<(), JobError> {
        let job = self.start.plan.name.clone();
        let slots = self.start.chain.read().await;
        let slots = slots
            .map_err(|error| JobError::store(format!("job {job}: reading the checkpoints it has"), error))?;
        let is_done = |slot: &Slot| {
            matches!(&slot.body, SlotBody::Restored { from: done, .. } if *done == from)
                && self.start.own_runs.contains(&slot.run)
        };
        if slots.iter().any(is_done) {
            return Ok(());
        }
        let checkpoint = self.kept(&slots, from)?.map(|checkpoint| checkpoint.manifest);
        let positions = self.shape.positions(checkpoint.as_ref());
        for source in &self.start.plan.sources {
            source.serves(&self.start.sources, &positions).await?;
        }
        let (epochs, records) = again(&slots, from);
        let input = behind(&positions, &takeover.positions);
        let epoch = self.view.last_epoch().next();
        let manifest = Manifest { epoch, positions, handles: Vec::new(), journals: Vec::new() };
        self.put_change(SlotBody::Restored { from, manifest }).await?;
        tracing::warn!(
            %job, %epoch,
            "goes back to checkpoint {from} on purpose: {epochs} epochs behind it, with {records} records in transactions, \
             come out a second time ({input} positions of the input are read again)"
        );
        self.rebase(takeover)
    }

    /// A checkpoint that a person may go back to; none is genesis.
    fn kept(&self, slots: &[Slot], from: Epoch) -> Result<Option<Checkpoint>, JobError> {
        if from == Epoch::GENESIS {
            return Ok(None);
        }
        let checkpoints = history::checkpoints(slots);
        let found = checkpoints.iter().find(|one| one.manifest.epoch == from);
        match found {
            Some(found) if found.standing != Standing::Void => Ok(Some(found.clone())),
            Some(_) => Err(self.unusable(format!(
                "checkpoint {from} was given up: its records were aborted and its input read again, so going on behind it \
                 would lose them"
            ))),
            None => {
                let kept: Vec<String> =
                    checkpoints.iter().map(|one| one.manifest.epoch.to_string()).collect();
                Err(self.unusable(format!(
                    "checkpoint {from} is not kept; there are 0 (the beginning) and {}: hapax checkpoint list FILE",
                    if kept.is_empty() { "no other".to_owned() } else { kept.join(", ") }
                )))
            }
        }
    }

    /// The run goes on behind what was put.
    fn rebase(&mut self, takeover: &mut Takeover) -> Result<(), JobError> {
        let shards = self.shards();
        let start = self.cohort.as_mut().expect("the job is taken over before it is changed");
        start.next_slot = self.view.next_slot();
        start.last_epoch = self.view.last_epoch();
        start.settled = self.view.settled_epoch();
        start.positions = self.shape.positions(self.view.progress());
        let last = start.last_epoch;
        takeover.epochs = shards.into_iter().map(|shard| (shard, last.next())).collect();
        takeover.positions.clone_from(&start.positions);
        takeover.finished = self.view.finished();
        takeover.identities = self.identities(last)?;
        Ok(())
    }

    /// What the chain has, without changing anything; first the beginning, which is always kept.
    pub(crate) async fn checkpoint_lines(&mut self) -> Result<Vec<CheckpointLine>, JobError> {
        let slots = self.read_chain().await?;
        let beginning = CheckpointLine {
            epoch: Epoch::GENESIS.0,
            written_ms: None,
            positions: self.shape.genesis.len(),
            records: 0,
            standing: CheckpointStanding::Proven,
            restored: None,
        };
        let kept = history::checkpoints(&slots);
        Ok([beginning].into_iter().chain(kept.iter().map(CheckpointLine::of)).collect())
    }

    fn changed(&self, why: String) -> JobError {
        fit::changed(&self.start.plan.name, &why)
    }

    fn unusable(&self, why: String) -> JobError {
        let message = format!("job {}: {why}", self.start.plan.name);
        JobError::Configuration { code: Code::Usage, message }
    }
}

/// Epochs that are out and stand behind a checkpoint, and the records in their transactions.
fn again(slots: &[Slot], from: Epoch) -> (usize, u64) {
    let out: Vec<Checkpoint> = history::checkpoints(slots)
        .into_iter()
        .filter(|one| one.manifest.epoch > from && one.restored.is_none() && one.standing != Standing::Void)
        .collect();
    (out.len(), out.iter().map(Checkpoint::records).sum())
}

/// How much input lies between two sets of positions.
fn behind(from: &Positions, to: &Positions) -> u64 {
    let distance = |(split, to): (&SplitId, &hapax_commit::Position)| {
        from.get(split).map_or(0, |from| to.next.saturating_sub(from.next))
    };
    to.iter().map(distance).sum()
}

/// The error of a cluster that is another one than the checkpoints know.
pub(crate) fn foreign_cluster(job: &Name, name: &Name, id: &str, known: &str) -> JobError {
    JobError::NeedsPerson {
        code: Code::StoreForeign,
        message: format!(
            "job {job}: cluster {name} has id {id}, and its checkpoints were written with id {known}; put the right \
             addresses into [cluster.{name}] (for an embedded broker, its journal back in its place), or use a store of \
             its own"
        ),
        incident: None,
    }
}
