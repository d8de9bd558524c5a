//! Decider `checkpoint`: an epoch is final when its manifest is in the cohort's chain.
//!
//! Owns one run's hold on a chain: the claim, the view of what the chain says, every put. A put that meets another
//! run's claim ends this run; nothing else does (never an answer of a broker alone).

use super::{Decider, RunEnd, ShardLinks, Takeover, brokers::Brokers, coordinate, recover};
use crate::{
    crash::{CrashPoints, Point},
    error::{Code, JobError},
    job::Plan,
    limits,
    progress::Counters,
    sink::{Guarantee, JournalPlace},
    source::{BoxFuture, SourceContext},
    stop::StopSignal,
};
use hapax_commit::{
    Claim, DeciderKind, Epoch, Generation, Identity, JobRecord, Journal, LaneId, Naming, Position, Positions,
    RunNonce, Shape, ShardId, Slot, SlotBody, SlotNumber, Strategy, TransactionalId,
    chain::ChainView,
    cohort::CohortStart,
    id::{EPOCHS_AHEAD, IDS_PER_LANE, IdAt},
    recovery::Resolution,
};
use hapax_host::Host;
use hapax_store::{Chain, Journals, PutOutcome};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// What a run's decider starts from.
pub(crate) struct CheckpointStart {
    pub(crate) plan: Arc<Plan>,
    pub(crate) host: Host,
    pub(crate) sources: SourceContext,
    pub(crate) brokers: Brokers,
    pub(crate) record: JobRecord,
    pub(crate) chain: Chain,
    pub(crate) journals: Journals,
    /// The job had a life before this one, or is begun anew by this process.
    pub(crate) begun_anew: bool,
    /// Strategies for an epoch that an earlier run has left in doubt.
    pub(crate) allowed: Vec<Strategy>,
    /// Ids of the life before, which the first claim of this one takes over.
    pub(crate) inherited: BTreeMap<String, BTreeSet<TransactionalId>>,
    /// What this is done for.
    pub(crate) intent: Intent,
    pub(crate) transaction_timeout: Duration,
    pub(crate) crash: Arc<dyn CrashPoints>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) progress: watch::Sender<crate::progress::Progress>,
    /// The newest claim of this process that was answered.
    pub(crate) previous: Option<Generation>,
    /// Every run of this process so far: a claim whose answer was lost may stand in the chain all the same.
    pub(crate) own_runs: Vec<RunNonce>,
}

/// Why a job is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// To run it as its pipeline says; with what a person has said beside it, for one start.
    Run {
        /// Names of what the pipeline has no more and the job may forget.
        drop: Vec<String>,
        /// The checkpoint to go back to.
        from: Option<Epoch>,
    },
    /// To change one thing of it: what the pipeline says of shards and splits does not matter.
    Tool,
}

/// Decides by manifests.
pub(crate) struct CheckpointDecider {
    pub(super) start: CheckpointStart,
    pub(super) run: RunNonce,
    pub(super) view: ChainView,
    /// What the job is, as job record and chain say.
    pub(super) shape: Shape,
    /// Shards that the job is about to get, whose ids the claim names too.
    pub(super) coming: BTreeSet<ShardId>,
    /// The claim, once it is put.
    pub(super) generation: Option<Generation>,
    /// Who put the newest claim, when the chain was last read.
    claimed_by: String,
    /// The newest claim of this process in the chain, also one whose put had no answer.
    own_claim: Option<Generation>,
    /// The newest number when this run claimed: with an id for each epoch, its claim names a window behind that.
    named_behind: Epoch,
    /// Identities of the ids that this run has cleared.
    pub(super) cleared: BTreeMap<IdAt, Identity>,
    /// Where the cohort goes on, once the job is taken over.
    pub(super) cohort: Option<CohortStart>,
}

impl CheckpointDecider {
    /// A decider that has not claimed anything.
    pub(crate) fn new(start: CheckpointStart) -> Self {
        let run = RunNonce(start.host.random_u128());
        let chain = start
            .chain
            .clone()
            .with_hooks(put_hook(start.crash.clone(), unstored), put_hook(start.crash.clone(), stored));
        // A claim of this run that a newer one has overtaken is its own all the same.
        let own_runs = start.own_runs.iter().copied().chain([run]).collect();
        let start = CheckpointStart { chain, own_runs, ..start };
        Self {
            shape: Shape::of(&start.record),
            start,
            run,
            view: ChainView::empty(),
            coming: BTreeSet::new(),
            generation: None,
            claimed_by: String::new(),
            own_claim: None,
            named_behind: Epoch::GENESIS,
            cleared: BTreeMap::new(),
            cohort: None,
        }
    }

    /// This run's claim.
    pub(crate) fn claimed(&self) -> Option<Generation> {
        self.generation
    }

    /// Where this run keeps its journals.
    pub(crate) fn journal_place(&self) -> JournalPlace {
        let generation = self.generation.expect("a run keeps journals after its claim");
        JournalPlace { journals: self.start.journals.clone(), generation }
    }

    /// This run.
    pub(crate) fn run(&self) -> RunNonce {
        self.run
    }

    /// Reads the chain to its end and puts the claim there.
    pub(super) async fn claim(&mut self) -> Result<(), JobError> {
        for _ in 0..limits::CLAIM_TRIES {
            let slots = self.read_chain().await?;
            self.check_superseded()?;
            self.check_change(&slots).await?;
            let number = self.view.next_slot();
            let slot = self.slot(number, Generation(number.0), SlotBody::Claim(self.ids()));
            match self.start.chain.put(&slot).await {
                PutOutcome::Stored if self.is_behind(number).await? => {
                    tracing::warn!(
                        job = %self.start.plan.name, slot = number.0,
                        "slots stand behind the claim: a newer run's, or its number had been filled and pruned by then"
                    );
                }
                PutOutcome::Stored => {
                    self.named_behind = self.view.last_epoch();
                    self.apply(&slot)?;
                    self.generation = Some(Generation(number.0));
                    tracing::info!(job = %self.start.plan.name, generation = number.0, "claimed the job");
                    return Ok(());
                }
                PutOutcome::Taken(other) => {
                    tracing::info!(job = %self.start.plan.name, slot = number.0, run = %other.run, "another run was faster");
                }
                PutOutcome::Unknown(error) => {
                    return Err(JobError::store(
                        format!("job {}: claiming slot {number}", self.start.plan.name),
                        error,
                    ));
                }
            }
        }
        Err(JobError::Run {
            code: Code::Disturbed,
            message: format!(
                "job {}: {} claims in a row met other runs' slots; is somebody starting this job in a loop?",
                self.start.plan.name,
                limits::CLAIM_TRIES
            ),
        })
    }

    /// Are there slots behind this one? A number that is pruned can be put again.
    async fn is_behind(&self, number: SlotNumber) -> Result<bool, JobError> {
        let last = self.start.chain.last_number().await;
        let attempted = || format!("job {}: looking behind its claim in slot {number}", self.start.plan.name);
        Ok(last.map_err(|error| JobError::store(attempted(), error))?.is_some_and(|last| last > number))
    }

    /// Reads the chain to its end.
    pub(super) async fn read_chain(&mut self) -> Result<Vec<Slot>, JobError> {
        let attempted = || format!("job {}: reading the chain", self.start.plan.name);
        let slots = self.start.chain.read().await.map_err(|error| JobError::store(attempted(), error))?;
        self.own_claim = own_claim(&slots, &self.start.own_runs);
        self.view = ChainView::read(&slots).map_err(|fault| JobError::NeedsPerson {
            code: Code::StoreDamaged,
            message: format!(
                "{}: {fault}; nothing was changed, restore the store from where it is whole",
                attempted()
            ),
            incident: None,
        })?;
        let by = self.view.newest_claim().and_then(|newest| claimed_by(&slots, newest));
        self.claimed_by = by.unwrap_or_default();
        self.shape = self.view.shape(&self.start.record);
        Ok(slots)
    }

    /// A claim newer than this process's last one is somebody else's.
    fn check_superseded(&self) -> Result<(), JobError> {
        match (self.start.previous.max(self.own_claim), self.view.newest_claim()) {
            (Some(mine), Some((newest, other))) if newest > mine && !self.start.own_runs.contains(&other) => {
                Err(self.superseded(mine, newest))
            }
            _ => Ok(()),
        }
    }

    fn superseded(&self, mine: Generation, newer: Generation) -> JobError {
        JobError::Superseded { job: self.start.plan.name.clone(), mine, newer, by: self.claimed_by.clone() }
    }

    /// The error of a run whose slot was taken: names the newer run.
    pub(super) async fn fenced(&mut self) -> JobError {
        let mine = self.generation.expect("only a run with a claim is fenced");
        if let Err(error) = self.read_chain().await {
            return error;
        }
        let newest = self.view.newest_claim().map_or(mine, |(generation, _)| generation);
        self.superseded(mine, newest)
    }

    pub(super) fn slot(&self, number: SlotNumber, generation: Generation, body: SlotBody) -> Slot {
        Slot { number, run: self.run, generation, written_ms: self.start.host.wall_ms(), body }
    }

    /// Puts a slot of this run.
    pub(super) fn put(
        &self,
        number: SlotNumber,
        body: SlotBody,
    ) -> impl Future<Output = (Slot, PutOutcome)> + use<> {
        let slot = self.slot(number, self.generation.expect("a run puts slots after its claim"), body);
        let chain = self.start.chain.clone();
        async move {
            let outcome = chain.put(&slot).await;
            (slot, outcome)
        }
    }

    pub(super) fn apply(&mut self, slot: &Slot) -> Result<(), JobError> {
        self.view.apply(slot).map_err(|fault| JobError::Bug {
            what: format!("job {}: slot {}: {fault}", self.start.plan.name, slot.number),
        })?;
        if let SlotBody::Revision(revision) = &slot.body {
            self.shape.clone_from(&revision.shape);
        }
        Ok(())
    }

    /// The shards of the present layout.
    pub(super) fn shards(&self) -> BTreeSet<ShardId> {
        self.shape.layout.shards.keys().copied().collect()
    }

    /// How long the transactions of this run live, where a time-out ends any of them.
    pub(super) fn lifetime_ms(&self) -> Option<u64> {
        let plan = &self.start.plan;
        let mut clusters = plan.sinks.iter().filter_map(|sink| sink.transactional_cluster());
        let bounded = clusters.any(|cluster| !plan.clusters[cluster].two_phase);
        bounded.then_some(self.start.transaction_timeout.as_millis() as u64)
    }

    /// Every lane of these shards.
    fn lanes(&self, shards: &BTreeSet<ShardId>) -> Vec<LaneId> {
        let clusters = self.start.plan.sinks.iter().filter_map(|sink| sink.transactional_cluster());
        let lane = |cluster: &hapax_commit::Name, shard: ShardId| LaneId { cluster: cluster.clone(), shard };
        clusters.flat_map(|cluster| shards.iter().map(move |&shard| lane(cluster, shard))).collect()
    }

    fn ids(&self) -> Claim {
        let (naming, last) = (self.naming(), self.view.last_epoch());
        let mut ids = self.start.inherited.clone();
        for lane in self.lanes(&(&self.shards() | &self.coming)) {
            let cluster_id = self.start.brokers.cluster_id(&lane.cluster).to_owned();
            ids.entry(cluster_id).or_default().extend(lane.ids_behind(&self.start.plan.name, naming, last));
        }
        // A lane that the plan has no more may have to be written again.
        for handle in self.view.unresolved().iter().flat_map(|unresolved| &unresolved.manifest.handles) {
            let of_lane = handle.lane.ids_behind(&handle.transactional_id.job, naming, last);
            ids.entry(handle.cluster_id.clone()).or_default().extend(of_lane);
        }
        let ids = ids.into_iter().map(|(cluster, ids)| (cluster, ids.into_iter().collect())).collect();
        let by = format!("process {}", self.start.host.process_id());
        Claim { ids, layout: self.shape.layout.number, naming, by }
    }

    /// How the job names its ids.
    pub(crate) fn naming(&self) -> Naming {
        self.start.record.naming
    }

    /// May this run go on behind `last`, with three epochs on ids that its claim names? Where each epoch has an id of its
    /// own, every number that recovery takes brings the end of them nearer.
    pub(super) fn may_begin_behind(&self, last: Epoch) -> bool {
        match self.naming() {
            Naming::Rotating => true,
            Naming::PerEpoch => last.0 + IDS_PER_LANE <= self.named_behind.0 + EPOCHS_AHEAD,
        }
    }

    /// The error of a run that has none left.
    pub(super) fn numbers_used_up(&self, last: Epoch) -> JobError {
        JobError::Run {
            code: Code::Disturbed,
            message: format!(
                "job {}: going on behind number {last}: the claim of this run names the ids of {EPOCHS_AHEAD} epochs behind \
                 {}, and records that were aborted again and again have used them up; nothing is lost, the next start \
                 claims further ones; if this goes on, find out what ends the transactions (transaction_timeout, another \
                 tool)",
                self.start.plan.name, self.named_behind
            ),
        }
    }

    /// The identities of this run's lanes for the three epochs behind `last`, as clearing answered them, by place.
    pub(super) fn identities(&self, last: Epoch) -> Result<BTreeMap<LaneId, [Identity; 3]>, JobError> {
        if !self.may_begin_behind(last) {
            return Err(self.numbers_used_up(last));
        }
        let mut epochs = [last.next(), last.next().next(), last.next().next().next()];
        epochs.sort_by_key(|epoch| epoch.id_index());
        let of = |lane: &LaneId| {
            epochs.map(|epoch| {
                let cluster_id = self.start.brokers.cluster_id(&lane.cluster).to_owned();
                let at = IdAt { cluster_id, id: lane.id_of(&self.start.plan.name, self.naming(), epoch) };
                self.cleared.get(&at).copied().expect("recovery clears every id that the claim names")
            })
        };
        Ok(self.lanes(&self.shards()).into_iter().map(|lane| (lane.clone(), of(&lane))).collect())
    }

    /// Removes the journals of the epoch that was in doubt: its outcome is in the chain. A job that has ended needs no
    /// others either. What is not removed here, the first epoch of this run takes along.
    async fn tidy(&self, in_doubt: &[Journal], has_ended: bool) {
        let JournalPlace { journals, generation } = self.journal_place();
        let removed = match (journals.remove(in_doubt).await, has_ended) {
            (Ok(()), true) => journals.remove_older(generation).await.map(drop),
            (removed, _) => removed,
        };
        if let Err(error) = removed {
            tracing::warn!(job = %self.start.plan.name, "removing journals that are not needed any more: {error}");
        }
    }

    /// What a given up epoch had read is read again: sinks without a transaction have it already.
    fn read_again(&self, epoch: Epoch, from: &Positions, to: &Positions) {
        self.start.counters.given_up(from);
        let of = |split| to.get(split).map_or(0, |position: &Position| position.next);
        let offsets: u64 = from.iter().map(|(split, at)| at.next.saturating_sub(of(split))).sum();
        if self.start.plan.sinks.iter().any(|sink| sink.guarantee() == Guarantee::AtLeastOnce) {
            tracing::warn!(
                job = %self.start.plan.name, %epoch, offsets,
                "sinks of guarantee at-least-once have the records of these offsets, and get them again; progress counts the \
                 records (repeated)"
            );
        }
    }

    /// Claims the job, resolves what is in doubt, and clears every id.
    pub(super) async fn taken_over(&mut self) -> Result<Takeover, JobError> {
        self.claim().await?;
        recover::refuse_commits_of_undecided(self).await?;
        let in_doubt = self.view.unresolved().map(|some| some.manifest.clone());
        let done = recover::resolve(self).await?;
        if let (Some(manifest), Some((epoch, Resolution::Rewound))) = (&in_doubt, &done.resolved) {
            self.read_again(*epoch, &manifest.positions, &done.start.positions);
        }
        let journals = in_doubt.map_or_else(Vec::new, |manifest| manifest.journals);
        self.tidy(&journals, done.finished).await;
        self.cleared = done.identities;
        let start = done.start;
        let identities = self.identities(start.last_epoch)?;
        self.cohort = Some(start.clone());
        Ok(Takeover {
            epochs: self.shards().into_iter().map(|shard| (shard, start.last_epoch.next())).collect(),
            positions: start.positions,
            identities,
            finished: done.finished,
        })
    }
}

fn own_claim(slots: &[Slot], own_runs: &[RunNonce]) -> Option<Generation> {
    let own = |slot: &&Slot| matches!(slot.body, SlotBody::Claim(_)) && own_runs.contains(&slot.run);
    slots.iter().rev().find(own).map(|slot| slot.generation)
}

fn claimed_by(slots: &[Slot], (generation, run): (Generation, RunNonce)) -> Option<String> {
    slots.iter().rev().find_map(|slot| match &slot.body {
        SlotBody::Claim(claim) if (slot.generation, slot.run) == (generation, run) => Some(claim.by.clone()),
        _ => None,
    })
}

/// Tells the crash points when a slot passes that has one.
fn put_hook(
    crash: Arc<dyn CrashPoints>,
    passing: fn(&SlotBody) -> Option<(Point, Epoch)>,
) -> hapax_store::Hook {
    Arc::new(move |slot: &Slot| {
        if let Some((point, epoch)) = passing(&slot.body) {
            crash.reach(point, epoch);
        }
        Box::pin(std::future::ready(()))
    })
}

/// The point before a slot's put.
fn unstored(body: &SlotBody) -> Option<(Point, Epoch)> {
    match body {
        SlotBody::Manifest(decided) => Some((Point::K1bUnstored, decided.epoch)),
        SlotBody::Revision(revision) => Some((Point::L0Unstored, revision.behind)),
        SlotBody::Restored { manifest, .. } => Some((Point::L0Unstored, manifest.epoch)),
        SlotBody::Abandoned { epoch, .. } => Some((Point::R4nNoted, *epoch)),
        SlotBody::Claim(_) | SlotBody::Amend { .. } | SlotBody::Void { .. } | SlotBody::Proven { .. } => None,
    }
}

/// The point behind it.
fn stored(body: &SlotBody) -> Option<(Point, Epoch)> {
    match body {
        SlotBody::Manifest(decided) => Some((Point::K1bStored, decided.epoch)),
        SlotBody::Revision(revision) => Some((Point::L1Stored, revision.behind)),
        SlotBody::Restored { manifest, .. } => Some((Point::L1Stored, manifest.epoch)),
        SlotBody::Claim(_)
        | SlotBody::Amend { .. }
        | SlotBody::Void { .. }
        | SlotBody::Abandoned { .. }
        | SlotBody::Proven { .. } => None,
    }
}

impl Decider for CheckpointDecider {
    fn kind(&self) -> DeciderKind {
        DeciderKind::Checkpoint
    }

    fn take_over(&mut self) -> BoxFuture<'_, Result<Takeover, JobError>> {
        Box::pin(self.taken_over())
    }

    fn end_left_open(&self) -> BoxFuture<'_, Result<(), JobError>> {
        Box::pin(self.end_left_open())
    }

    fn drive<'a>(
        &'a mut self,
        shards: ShardLinks,
        stop: StopSignal,
    ) -> BoxFuture<'a, Result<RunEnd, JobError>> {
        Box::pin(coordinate::drive(self, shards, stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run whose first claim had no answer must not take a newer run's claim for the first one that it meets.
    #[test]
    fn a_claim_without_an_answer_is_known_as_our_own_when_the_chain_shows_it() {
        let (ours, newer) = (RunNonce(1), RunNonce(2));
        let slot = |number: u64, run: RunNonce, body: SlotBody| Slot {
            number: SlotNumber(number),
            run,
            generation: Generation(number),
            written_ms: 0,
            body,
        };
        let claim = || {
            SlotBody::Claim(Claim {
                ids: BTreeMap::new(),
                layout: 0,
                naming: Naming::Rotating,
                by: String::new(),
            })
        };
        let void = || SlotBody::Void { epoch: hapax_commit::Epoch(1) };
        let chain =
            [slot(1, newer, claim()), slot(2, ours, claim()), slot(3, ours, void()), slot(4, newer, claim())];
        assert_eq!(own_claim(&chain, &[ours]), Some(Generation(2)));
        assert_eq!(own_claim(&chain, &[RunNonce(3)]), None);
    }
}
