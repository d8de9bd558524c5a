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
    source::{BoxFuture, SourceContext},
    stop::StopSignal,
};
use hapax_commit::{
    Claim, DeciderKind, Generation, Identity, JobRecord, LaneId, RunNonce, ShardId, Slot, SlotBody,
    SlotNumber, chain::ChainView, cohort::CohortStart, id::IdAt,
};
use hapax_host::Host;
use hapax_store::{Chain, PutOutcome};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::watch;

/// What a run's decider starts from.
pub(crate) struct CheckpointStart {
    pub(crate) plan: Arc<Plan>,
    pub(crate) host: Host,
    pub(crate) sources: SourceContext,
    pub(crate) brokers: Brokers,
    pub(crate) record: JobRecord,
    pub(crate) chain: Chain,
    /// The job had a life before this one, or is begun anew by this process.
    pub(crate) begun_anew: bool,
    pub(crate) shards: Vec<ShardId>,
    pub(crate) transaction_timeout: Duration,
    pub(crate) crash: Arc<dyn CrashPoints>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) progress: watch::Sender<crate::progress::Progress>,
    /// The newest claim of this process, and every run that it has begun: a claim whose answer was lost may stand in
    /// the chain all the same.
    pub(crate) previous: Option<Generation>,
    /// Every run of this process so far.
    pub(crate) own_runs: Vec<RunNonce>,
}

/// Decides by manifests.
pub(crate) struct CheckpointDecider {
    pub(super) start: CheckpointStart,
    pub(super) run: RunNonce,
    pub(super) view: ChainView,
    /// The claim, once it is put.
    pub(super) generation: Option<Generation>,
    /// Who put the newest claim, when the chain was last read.
    claimed_by: String,
    /// Where the cohort goes on, once the job is taken over.
    pub(super) cohort: Option<CohortStart>,
}

impl CheckpointDecider {
    /// A decider that has not claimed anything.
    pub(crate) fn new(start: CheckpointStart) -> Self {
        let run = RunNonce(start.host.random_u128());
        let chain = start.chain.clone().with_hooks(
            manifest_hook(start.crash.clone(), Point::K1bUnstored),
            manifest_hook(start.crash.clone(), Point::K1bStored),
        );
        let start = CheckpointStart { chain, ..start };
        Self {
            start,
            run,
            view: ChainView::empty(),
            generation: None,
            claimed_by: String::new(),
            cohort: None,
        }
    }

    /// This run's claim.
    pub(crate) fn claimed(&self) -> Option<Generation> {
        self.generation
    }

    /// This run.
    pub(crate) fn run(&self) -> RunNonce {
        self.run
    }

    /// Reads the chain to its end and puts the claim there.
    async fn claim(&mut self) -> Result<(), JobError> {
        for _ in 0..limits::CLAIM_TRIES {
            self.read_chain().await?;
            self.check_superseded()?;
            let number = self.view.next_slot();
            let slot = self.slot(number, Generation(number.0), SlotBody::Claim(self.ids()));
            match self.start.chain.put(&slot).await {
                PutOutcome::Stored => {
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

    async fn read_chain(&mut self) -> Result<(), JobError> {
        let attempted = || format!("job {}: reading the chain", self.start.plan.name);
        let slots = self.start.chain.read().await.map_err(|error| JobError::store(attempted(), error))?;
        let by = slots.iter().rev().find_map(|slot| match &slot.body {
            SlotBody::Claim(claim) => Some(claim.by.clone()),
            _ => None,
        });
        self.claimed_by = by.unwrap_or_default();
        self.view = ChainView::read(&slots).map_err(|fault| JobError::NeedsPerson {
            code: Code::StoreDamaged,
            message: format!(
                "{}: {fault}; nothing was changed, restore the store from where it is whole",
                attempted()
            ),
            incident: None,
        })?;
        Ok(())
    }

    /// A claim newer than this process's last one is somebody else's.
    fn check_superseded(&self) -> Result<(), JobError> {
        match (self.start.previous, self.view.newest_claim()) {
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
        })
    }

    /// Every lane that this run may write.
    fn lanes(&self) -> Vec<LaneId> {
        let clusters = self.start.plan.sinks.iter().filter_map(|sink| sink.transactional_cluster());
        let lane = |cluster: &hapax_commit::Name, shard: ShardId| LaneId { cluster: cluster.clone(), shard };
        clusters
            .flat_map(|cluster| self.start.shards.iter().map(move |&shard| lane(cluster, shard)))
            .collect()
    }

    fn ids(&self) -> Claim {
        let mut ids: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for lane in self.lanes() {
            let cluster_id = self.start.brokers.cluster_id(&lane.cluster).to_owned();
            ids.entry(cluster_id).or_default().extend(lane.transactional_ids(&self.start.plan.name));
        }
        let by = format!("process {}", std::process::id());
        Claim { ids, layout: self.start.record.layout.number, by }
    }

    /// The identities of this run's lanes among those that clearing answered.
    fn identities(&self, done: &hapax_commit::recovery::Done) -> BTreeMap<LaneId, [Identity; 3]> {
        let of = |lane: &LaneId| {
            lane.transactional_ids(&self.start.plan.name).map(|id| {
                let cluster_id = self.start.brokers.cluster_id(&lane.cluster).to_owned();
                let at = IdAt { cluster_id, id };
                done.identities.get(&at).copied().expect("recovery clears every id that the claim names")
            })
        };
        self.lanes().into_iter().map(|lane| (lane.clone(), of(&lane))).collect()
    }

    async fn taken_over(&mut self) -> Result<Takeover, JobError> {
        self.claim().await?;
        recover::refuse_commits_of_undecided(self).await?;
        let done = recover::resolve(self).await?;
        let identities = self.identities(&done);
        let start = done.start;
        self.cohort = Some(start.clone());
        Ok(Takeover {
            epoch: start.last_epoch.next(),
            positions: start.positions,
            identities,
            finished: done.finished,
        })
    }
}

/// Tells the crash points when a manifest passes.
fn manifest_hook(crash: Arc<dyn CrashPoints>, point: Point) -> hapax_store::Hook {
    Arc::new(move |slot: &Slot| {
        if let SlotBody::Manifest(manifest) = &slot.body {
            crash.reach(point, manifest.epoch);
        }
        Box::pin(std::future::ready(()))
    })
}

impl Decider for CheckpointDecider {
    fn kind(&self) -> DeciderKind {
        DeciderKind::Checkpoint
    }

    fn take_over(&mut self) -> BoxFuture<'_, Result<Takeover, JobError>> {
        Box::pin(self.taken_over())
    }

    fn drive<'a>(
        &'a mut self,
        shards: ShardLinks,
        stop: StopSignal,
    ) -> BoxFuture<'a, Result<RunEnd, JobError>> {
        Box::pin(coordinate::drive(self, shards, stop))
    }
}
