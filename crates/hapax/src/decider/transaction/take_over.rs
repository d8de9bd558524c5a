//! From whatever ran before to the first new record.
//!
//! Carries out what the take-over asks for: its order, and why, is `hapax_commit::takeover`'s. Judges what is read.

use super::{Cleared, RecordAt, TransactionDecider};
use crate::{
    crash::Point,
    decider::{Takeover, told::written},
    error::{Code, JobError},
    limits,
};
use futures::{StreamExt, stream};
use hapax_commit::{
    Epoch, Identity, ShardId, TakeOver, TransactionalId,
    bookmark::{self, FoundOffset, Progress, ProgressFault},
    evidence::{Described, TransactionState},
    present,
    takeover::{self, Effect, Goal, Input},
};
use hapax_host::Deadline;
use hapax_kafka::transaction::{self, EndTxnAnswer};
use std::collections::{BTreeMap, BTreeSet};

/// Ids that are asked after, or cleared, at once.
pub(super) const AT_ONCE: usize = 16;

impl TransactionDecider {
    pub(super) async fn taken_over(&mut self) -> Result<Takeover, JobError> {
        self.carry_out(Goal::Write).await?;
        let progress = self.progress();
        self.make_own_topic(&self.home).await?;
        let identities = self.shards().map(|shard| (self.lane(shard), self.identities(shard)));
        let takeover = Takeover {
            epochs: self.shards().map(|shard| (shard, progress.epoch(shard).next())).collect(),
            positions: progress.positions(),
            identities: identities.collect(),
            finished: present::is_finished(&progress.positions()),
        };
        tracing::info!(job = %self.start.plan.name, shards = progress.count, "took the job over");
        Ok(takeover)
    }

    /// Takes the job over; what is cleared and its progress are kept.
    pub(super) async fn carry_out(&mut self, goal: Goal) -> Result<(), JobError> {
        self.looks = Vec::new();
        let mut machine = TakeOver::new(goal, self.overwrites(), self.ids());
        loop {
            machine.check().map_err(|broken| JobError::Bug { what: format!("a take-over: {broken}") })?;
            let effect = machine.poll_effect().expect("a take-over asks for something until it is done");
            let input = match effect {
                Effect::Look { ids } => {
                    let is_first = self.looks.is_empty();
                    self.look_at(&ids).await;
                    if is_first {
                        self.check_taken_over()?;
                    }
                    Input::Looked
                }
                Effect::AskBegun => Input::AskedBegun(self.is_begun().await?),
                Effect::JudgePast => self.refuse_past().await.map(|()| Input::MayBegin)?,
                Effect::Clear { ids } => Input::Cleared(self.clear(&ids).await?.0),
                Effect::FindFormerIds => Input::FormerIds(self.former_ids().await?),
                Effect::EndLeftOpen { cleared } => {
                    self.end_former_life(Cleared(cleared)).await?;
                    Input::LeftOpenEnded
                }
                Effect::SeekGenesis { cleared } => {
                    let found = self.stable_offsets(&Cleared(cleared)).await?;
                    Input::Sought(self.sought(&found).await?)
                }
                Effect::AwaitStable { cleared } => {
                    self.stable_offsets(&Cleared(cleared)).await.map(|_| Input::Stable)?
                }
                Effect::ReadProgress { cleared } => {
                    if goal == Goal::Change {
                        self.start.crash.reach(Point::R1Cleared, Epoch::GENESIS);
                    }
                    let found = self.stable_offsets(&Cleared(cleared)).await?;
                    self.progress = Some(self.judge(&found).await?);
                    Input::ProgressRead
                }
                Effect::CommitGenesis { identity } => {
                    self.commit_genesis(identity).await?;
                    Input::GenesisCommitted
                }
                Effect::Record => self.record_genesis().await.map(|()| Input::Recorded)?,
                Effect::Refuse => return Err(self.store_is_not_its_own()),
                Effect::Done { cleared } => {
                    self.cleared = Some(Cleared(cleared));
                    return Ok(());
                }
            };
            machine.step(input);
        }
    }

    /// How far the job is, behind a take-over.
    pub(super) fn progress(&self) -> &Progress {
        self.progress.as_ref().expect("a job that was taken over has progress")
    }

    /// What coordinators say of every id.
    async fn look(&mut self) {
        self.looks = Vec::new();
        self.look_at(&self.ids().all()).await;
    }

    /// What coordinators say of these ids, beside those that were looked at.
    async fn look_at(&mut self, ids: &[TransactionalId]) {
        let brokers = &self.start.brokers;
        let look = async |id: TransactionalId| {
            let described = brokers.describe(&self.client, &id.to_string()).await;
            (id, described)
        };
        let is_known = |id: &&TransactionalId| self.looks.iter().any(|(known, _)| known == *id);
        let looks: Vec<_> = ids.iter().filter(|id| !is_known(id)).cloned().map(look).collect();
        let looks: Vec<_> = stream::iter(looks).buffered(AT_ONCE).collect().await;
        looks.iter().for_each(|(id, described)| self.start.own.looked(id, described));
        self.looks.extend(looks);
    }

    /// Ends a run whose process has lost the job to another one, before anything else is said about it.
    pub(crate) async fn refuse_taken_over(&mut self) -> Result<(), JobError> {
        if self.start.own.all().is_empty() {
            return Ok(());
        }
        self.look().await;
        self.check_taken_over()
    }

    fn check_taken_over(&self) -> Result<(), JobError> {
        if !bookmark::is_taken_over(&self.start.own.all(), &self.looks) {
            return Ok(());
        }
        Err(JobError::TakenOver {
            job: self.start.plan.name.clone(),
            by: "its coordinators know every id of the job under an identity that is not of this process"
                .into(),
        })
    }

    /// Ends what is open under ids and fences them.
    pub(super) async fn clear(&mut self, ids: &[TransactionalId]) -> Result<Cleared, JobError> {
        self.abort_open(ids).await;
        let (start, client) = (&self.start, &self.client);
        let clear = |id: TransactionalId| async move {
            start.own.asking(&id);
            let identity = start.brokers.clear(client, &id.to_string(), start.transaction_timeout).await?;
            start.own.answered(&id, identity);
            Ok::<_, JobError>((id, identity))
        };
        let clearing: Vec<_> = ids.iter().cloned().map(clear).collect();
        let cleared: Vec<Result<_, JobError>> = stream::iter(clearing).buffered(AT_ONCE).collect().await;
        Ok(Cleared(cleared.into_iter().collect::<Result<_, _>>()?))
    }

    /// Aborts what is to be aborted before it is cleared, and keeps the answer as what coordinators say of the id.
    async fn abort_open(&mut self, ids: &[TransactionalId]) {
        let open = takeover::to_abort(self.version, &self.looks, ids);
        let this = &*self;
        let ends: Vec<_> = open
            .into_iter()
            .map(|(id, identity)| async move {
                let described = this.aborted(&id, identity).await;
                (id, described)
            })
            .collect();
        let ended: BTreeMap<_, _> = stream::iter(ends).buffered(AT_ONCE).collect().await;
        for (id, described) in &mut self.looks {
            if let Some(Some(answer)) = ended.get(id) {
                self.start.own.looked(id, answer);
                described.clone_from(answer);
            }
        }
    }

    /// What is known of an id after an abort of what was open under it; `None` where nothing is.
    async fn aborted(&self, id: &TransactionalId, open: Identity) -> Option<Described> {
        let patience = Deadline::after(self.start.host.now(), Some(limits::REPORT_EVERY * 3));
        let (name, version) = (id.to_string(), self.version);
        let answer = transaction::end_txn(&self.client, &name, open, version, false, patience, || {}).await;
        match answer {
            EndTxnAnswer::Aborted { next } => {
                self.start.own.add(id, next);
                Some(Described::Known { state: TransactionState::CompleteAbort, identity: next })
            }
            // Ended since the look, one way or the other.
            EndTxnAnswer::NotThisState { .. }
            | EndTxnAnswer::Superseded { .. }
            | EndTxnAnswer::Forgotten { .. } => Some(self.start.brokers.describe(&self.client, &name).await),
            other => {
                tracing::info!(%id, "what is open could not be aborted before the id is cleared: {other:?}");
                None
            }
        }
    }

    fn identities(&self, shard: ShardId) -> [Identity; 3] {
        let cleared = self.cleared.as_ref().expect("a job that was taken over has its ids cleared");
        self.lane(shard).transactional_ids(&self.start.plan.name).map(|id| cleared.0[&id])
    }

    pub(super) async fn judge(&self, found: &[FoundOffset]) -> Result<Progress, JobError> {
        let mut progress = match bookmark::read_progress(&self.start.plan.name, self.home.kind, found) {
            Ok(progress) => progress,
            Err(fault) => return Err(self.progress_lost(&self.told(&fault, found).await)),
        };
        self.read_objects(&mut progress).await?;
        let layout = &self.start.record.layout;
        if (progress.layout, progress.count as usize) != (layout.number, layout.shards.len()) {
            return Err(JobError::Run {
                code: Code::Disturbed,
                message: format!(
                    "job {}: its offsets are those of layout {} with {} shards, and it was {} with {} a moment ago",
                    self.start.plan.name,
                    progress.layout,
                    progress.count,
                    layout.number,
                    layout.shards.len()
                ),
            });
        }
        for (shard, splits) in &layout.shards {
            let known =
                progress.shards.get(shard).map(|shard| shard.positions.keys().collect::<BTreeSet<_>>());
            if known.unwrap_or_default() != splits.iter().collect() {
                let what = format!("the offsets of shard {shard} are not those of the splits that it owns");
                return Err(self.progress_lost(&what));
            }
        }
        Ok(progress)
    }

    /// The fault, with the partitions that have no offset: where bookmarks are all that is known of the job, they cannot
    /// tell of those that are gone, so the topics are asked.
    async fn told(&self, fault: &ProgressFault, found: &[FoundOffset]) -> String {
        let there: BTreeSet<&str> = found.iter().map(|found| found.place.as_str()).collect();
        let topics: Vec<&str> = self.home.topics().into_iter().collect();
        let topics = self.client.topics(&topics).await.unwrap_or_default();
        let places = topics.iter().flat_map(|topic| {
            (0..topic.partitions.len()).map(move |partition| format!("{}-{partition}", topic.name))
        });
        let missing: Vec<String> = places.filter(|place| !there.contains(place.as_str())).collect();
        match missing.as_slice() {
            [] => fault.to_string(),
            _ => format!("{fault}; without a committed offset: {}", missing.join(", ")),
        }
    }

    /// Is something committed that this life of the job goes on from? What is committed of it may not be whole.
    pub(crate) async fn is_begun(&self) -> Result<bool, JobError> {
        match &self.start.record_at {
            RecordAt::Offsets { .. } => Ok(true),
            RecordAt::Nowhere { .. } => Ok(false),
            RecordAt::Store { chain, .. } => {
                let last = chain.last_number().await;
                let last = last.map_err(|error| {
                    JobError::store(format!("job {}: looking at the chain", self.start.plan.name), error)
                })?;
                Ok(last.is_some())
            }
        }
    }

    /// Does a job that is new take the place of whatever is committed?
    pub(super) fn overwrites(&self) -> bool {
        match self.start.record_at {
            RecordAt::Store { overwrites, .. } | RecordAt::Nowhere { overwrites } => overwrites,
            RecordAt::Offsets { .. } => false,
        }
    }

    /// Tells partitions of the sinks how transactions of the job ended that they hold open from before its ids were
    /// cleared. What is open from after that is a newer run's, which took the job over while this one slept.
    pub(super) async fn left_open_ended(&self, committed: &BTreeSet<Identity>) -> Result<(), JobError> {
        let cleared = self.cleared.as_ref().expect("a partition is told after the job was taken over");
        for (topic, partition) in self.sink_partitions().await? {
            let place = (topic.as_str(), partition);
            self.tell_partition(place, cleared, Some(committed)).await?.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// What is known to be committed, by the progress that was read.
    pub(super) fn committed(&self) -> BTreeSet<Identity> {
        self.progress.as_ref().map(Progress::committed).unwrap_or_default()
    }

    async fn sink_partitions(&self) -> Result<Vec<(String, i32)>, JobError> {
        let place = (&self.cluster, &self.client);
        Ok(written(&self.start.plan, &self.start.sources.clusters, place).await?.into_iter().collect())
    }
}
