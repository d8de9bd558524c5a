//! Drives a cohort from barrier to barrier: carries out what the cohort machine asks for.
//!
//! Owns the timing of barriers and the tasks of puts and commits. Decides nothing: the machine does.

use super::{RunEnd, ShardLinks, checkpoint::CheckpointDecider, tidy::Tidy};
use crate::{
    crash::Point,
    error::{Code, JobError},
    limits,
    run::shard::{FromShard, ToShard},
    stop::StopSignal,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hapax_commit::{
    Epoch, Handle, Identity, LaneId, ShardId, Slot, SlotBody, TransactionalId,
    cohort::{Cohort, CohortConfig, Effect, End, Failure, Input, LaneEnd, Share},
    evidence::EndTxnAnswer,
};
use hapax_host::{Deadline, Instant};
use hapax_store::PutOutcome;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::mpsc;

/// One lane's end of one epoch.
struct Ended {
    lane: LaneId,
    id: TransactionalId,
    epoch: Epoch,
    answer: EndTxnAnswer,
    next: Option<Identity>,
    /// Every partition knows of a commit.
    told: Result<(), JobError>,
}

/// Drives the shards to the end of the run.
pub(super) async fn drive(
    decider: &mut CheckpointDecider,
    links: ShardLinks,
    stop: StopSignal,
) -> Result<RunEnd, JobError> {
    let shards = decider.shards();
    let lifetime_ms = decider.lifetime_ms();
    let start = decider.cohort.clone().expect("a cohort is driven after the job was taken over");
    let cohort = Cohort::new(CohortConfig { shards, lifetime_ms }, start);
    let now = decider.start.host.now();
    let drive = Drive {
        cohort,
        commands: links.commands,
        events: links.events,
        zero: links.zero,
        put: None,
        ending: FuturesUnordered::new(),
        waiting: Vec::new(),
        ended: BTreeMap::new(),
        error: None,
        chain_checked: now,
        stop_by: None,
        last_barrier: false,
        shards_gone: false,
        tidy: Tidy::new(decider.start.plan.name.clone(), decider.journal_place()),
        decider,
    };
    drive.run(stop).await
}

struct Drive<'a> {
    decider: &'a mut CheckpointDecider,
    cohort: Cohort,
    commands: BTreeMap<ShardId, mpsc::Sender<ToShard>>,
    events: mpsc::Receiver<FromShard>,
    zero: Instant,
    put: Option<BoxFuture<'static, (Slot, PutOutcome)>>,
    ending: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// Handles that wait for the one before them, where lanes are ended one after the other.
    waiting: Vec<Handle>,
    /// Identities that ending an epoch's lanes answered, until the outcome is in the chain.
    ended: BTreeMap<Epoch, BTreeMap<LaneId, Identity>>,
    /// The error behind a failure that the machine was told of.
    error: Option<JobError>,
    chain_checked: Instant,
    stop_by: Option<Instant>,
    /// The last barrier is sent: shards end behind it.
    last_barrier: bool,
    /// Every shard has ended.
    shards_gone: bool,
    tidy: Tidy,
}

enum Event {
    Tick,
    Shard(Option<FromShard>),
    Put(Slot, PutOutcome),
    Ended(Ended),
    StopWanted,
    StopOverdue,
    /// Journals were removed.
    Tidied,
}

impl Drive<'_> {
    async fn run(mut self, mut stop: StopSignal) -> Result<RunEnd, JobError> {
        let interval = self.decider.start.plan.settings.interval;
        let mut due = self.decider.start.host.now() + interval;
        loop {
            if let Some(end) = self.effects().await? {
                return self.end(end).await;
            }
            let event = self.next(&mut stop, due).await;
            if matches!(event, Event::Tick) {
                due = self.decider.start.host.now() + interval;
                self.idle_check().await?;
            }
            let input = self.input(event)?;
            if let Some(input) = input {
                let now = self.now_ms();
                self.cohort.step(now, input);
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.decider.start.host.now().saturating_duration_since(self.zero).as_millis() as u64
    }

    async fn next(&mut self, stop: &mut StopSignal, due: Instant) -> Event {
        let host = self.decider.start.host.clone();
        let now = host.now();
        let stop_by = self.stop_by;
        let overdue = async {
            match stop_by {
                Some(at) => host.sleep(at.saturating_duration_since(now)).await,
                None => std::future::pending().await,
            }
        };
        let stop_wanted =
            async { if stop_by.is_some() { std::future::pending().await } else { stop.wait().await } };
        let put = async {
            match &mut self.put {
                Some(put) => put.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { biased;
            () = stop_wanted => Event::StopWanted,
            (slot, outcome) = put => Event::Put(slot, outcome),
            Some(ended) = self.ending.next(), if !self.ending.is_empty() => Event::Ended(ended),
            event = self.events.recv(), if !self.shards_gone => Event::Shard(event),
            () = overdue => Event::StopOverdue,
            () = self.tidy.step() => Event::Tidied,
            () = host.sleep(due.saturating_duration_since(now)) => Event::Tick,
        }
    }

    fn input(&mut self, event: Event) -> Result<Option<Input>, JobError> {
        Ok(Some(match event {
            Event::Tick => {
                self.tell_progress();
                Input::Tick
            }
            Event::StopWanted => {
                let budget = self.decider.start.plan.settings.stop_budget;
                self.stop_by = Some(self.decider.start.host.now() + budget);
                Input::StopWanted
            }
            Event::StopOverdue => return Err(self.overdue()),
            Event::Tidied => return Ok(None),
            Event::Put(slot, outcome) => {
                self.put = None;
                self.settled(&slot, outcome)?
            }
            Event::Ended(ended) => self.lane_ended(ended),
            Event::Shard(None) if self.last_barrier => {
                self.shards_gone = true;
                return Ok(None);
            }
            Event::Shard(None) => {
                return Err(JobError::Bug { what: "every shard ended without its last barrier".into() });
            }
            Event::Shard(Some(event)) => self.shard_said(event),
        }))
    }

    fn shard_said(&mut self, event: FromShard) -> Input {
        match event {
            FromShard::Touched { shard, epoch } => Input::Touched { shard, epoch },
            FromShard::BarrierWanted { shard, epoch } => Input::BarrierWanted { shard, epoch },
            FromShard::Prepared { shard, epoch, share, carrier: _ } => match self.other_topic(&share) {
                None => Input::ShardPrepared { shard, epoch, share },
                Some(error) => self.failed_with(shard, error),
            },
            FromShard::Drained { shard } => Input::Drained { shard },
            FromShard::Failed { shard, error } => self.failed_with(shard, error),
        }
    }

    fn failed_with(&mut self, shard: ShardId, error: JobError) -> Input {
        let why = format!("shard {shard}: {}", error.chain());
        self.error.get_or_insert(error);
        Input::Failed { why }
    }

    /// Records that went into a topic that was made again since the job was created. The next start stops for a person.
    fn other_topic(&self, share: &Share) -> Option<JobError> {
        let topics = &self.decider.shape.topics;
        let handles = share.handles.iter().map(|prepared| &prepared.handle);
        let written = handles.flat_map(|handle| {
            handle
                .partitions
                .iter()
                .map(move |part| (format!("{}/{}", handle.lane.cluster, part.topic), part))
        });
        let (name, known) = written
            .filter_map(|(name, part)| topics.get(&name).map(|known| (name, known, part)))
            .find_map(|(name, known, part)| (known.topic_id != part.topic_id).then_some((name, known)))?;
        Some(JobError::Run {
            code: Code::TopicChanged,
            message: format!(
                "job {}: topic {name} was deleted and made again while the job wrote to it (its id was {})",
                self.decider.start.plan.name, known.topic_id
            ),
        })
    }

    fn settled(&mut self, slot: &Slot, outcome: PutOutcome) -> Result<Input, JobError> {
        self.chain_checked = self.decider.start.host.now();
        match outcome {
            PutOutcome::Stored => {
                self.decider.apply(slot)?;
                self.tidy.stored();
                if let SlotBody::Manifest(manifest) = &slot.body {
                    self.tidy.decided(manifest);
                    self.decider.start.crash.reach(Point::K2Decided, manifest.epoch);
                }
                Ok(Input::SlotStored { number: slot.number })
            }
            PutOutcome::Taken(_) => Ok(Input::SlotTaken { number: slot.number }),
            PutOutcome::Unknown(error) => {
                let attempted = format!("job {}: putting slot {}", self.decider.start.plan.name, slot.number);
                let error = JobError::store(attempted, error);
                let why = error.chain();
                self.error.get_or_insert(error);
                Ok(Input::Failed { why })
            }
        }
    }

    fn lane_ended(&mut self, ended: Ended) -> Input {
        let Ended { lane, id, epoch, answer, next, told } = ended;
        if let Some(next) = next {
            self.ended.entry(epoch).or_default().insert(lane.clone(), next);
        }
        if !self.waiting.is_empty() {
            self.decider.start.crash.reach(Point::K2bBetweenLanes, epoch);
            let handle = self.waiting.remove(0);
            self.send_end(handle);
        } else if self.ending.is_empty() {
            self.decider.start.crash.reach(Point::K4Ended, epoch);
        }
        let ended = match (answer, told) {
            (EndTxnAnswer::Committed, Ok(())) => LaneEnd::Committed,
            (EndTxnAnswer::Committed, Err(error)) => {
                let why = error.chain();
                self.error.get_or_insert(error);
                LaneEnd::NotCommitted(why)
            }
            (other, _) => {
                let why = format!("{other:?}");
                if other == EndTxnAnswer::Superseded {
                    self.error.get_or_insert(self.taken(&id, epoch));
                }
                LaneEnd::NotCommitted(why)
            }
        };
        Input::LaneEnded { lane, epoch, ended }
    }

    /// The outcome of the epoch does not follow from it: the next run finds it out.
    fn taken(&self, id: &TransactionalId, epoch: Epoch) -> JobError {
        JobError::IdTaken {
            id: id.to_string(),
            message: format!(
                "job {}: the commit of epoch {epoch} under {id} met a newer identity: another writer has taken the id, or its \
                 transaction has timed out",
                self.decider.start.plan.name
            ),
        }
    }

    /// Carries out what the machine asks for; the end of the run, when it asks for that.
    async fn effects(&mut self) -> Result<Option<End>, JobError> {
        while let Some(effect) = self.cohort.poll_effect() {
            match effect {
                Effect::SendBarrier { epoch, last } => {
                    self.last_barrier |= last;
                    self.tell_shards(&ToShard::Barrier { epoch, last, recommit: false }).await;
                }
                Effect::PutSlot { number, body } => {
                    if let SlotBody::Manifest(manifest) = &body {
                        self.decider.start.crash.reach(Point::K1Prepared, manifest.epoch);
                    }
                    self.put = Some(self.decider.put(number, body).boxed());
                }
                Effect::Commit { handles } => self.commit(handles),
                Effect::Recorded { epoch } => self.recorded(epoch).await,
                Effect::End(end) => return Ok(Some(end)),
            }
        }
        Ok(None)
    }

    async fn tell_shards(&mut self, command: &ToShard) {
        for sender in self.commands.values() {
            // A shard that is gone has told why, or has had its last barrier.
            let _ = sender.send(command.clone()).await;
        }
    }

    fn commit(&mut self, mut handles: Vec<Handle>) {
        if self.decider.start.crash.one_lane_at_a_time() {
            self.waiting = handles.split_off(1.min(handles.len()));
        }
        for handle in handles {
            self.send_end(handle);
        }
    }

    fn send_end(&mut self, handle: Handle) {
        let brokers = self.decider.start.brokers.clone();
        let crash = self.decider.start.crash.clone();
        let job = self.decider.start.plan.name.clone();
        let lane = brokers.transactional().find(|(name, _)| **name == handle.lane.cluster);
        let (_, client) = lane.expect("this run wrote the handle on a cluster of its plan");
        let client = client.clone();
        self.ending.push(Box::pin(async move {
            let epoch = handle.epoch;
            let written = || crash.reach(Point::K3EndTxnSent, epoch);
            let (answer, next) = brokers.end(&client, &handle, true, Deadline::NEVER, written).await;
            let told = match answer {
                EndTxnAnswer::Committed => brokers.complete(&job, &client, &handle).await,
                _ => Ok(()),
            };
            Ended { lane: handle.lane, id: handle.transactional_id, epoch, answer, next, told }
        }));
    }

    /// The outcome of an epoch is in the chain: its ids are free, old checkpoints go.
    async fn recorded(&mut self, epoch: Epoch) {
        self.decider.start.crash.reach(Point::K5Proven, epoch);
        self.tidy.recorded(epoch);
        let next = Arc::new(self.ended.remove(&epoch).unwrap_or_default());
        self.tell_shards(&ToShard::Recorded { epoch, next }).await;
        let committed_ms = self.decider.start.host.wall_ms();
        self.decider.start.progress.send_modify(|progress| {
            progress.epoch = epoch.0;
            progress.committed_ms = committed_ms;
        });
        self.tell_progress();
        let old = self.decider.view.prunable(self.decider.start.plan.settings.keep);
        if !old.is_empty() {
            match self.decider.start.chain.remove(&old).await {
                Ok(_) => self.decider.view.pruned(&old),
                Err(error) => tracing::warn!("removing {} old slots: {error}; tried again later", old.len()),
            }
        }
    }

    fn tell_progress(&self) {
        let counters = &self.decider.start.counters;
        self.decider.start.progress.send_modify(|progress| counters.fill(progress));
    }

    /// A run that puts nothing would never meet its successor's claim: it looks for one now and then.
    async fn idle_check(&mut self) -> Result<(), JobError> {
        let now = self.decider.start.host.now();
        if self.put.is_some() || now.saturating_duration_since(self.chain_checked) < limits::IDLE_CHAIN_CHECK
        {
            return Ok(());
        }
        self.chain_checked = now;
        let next = self.decider.next_slot();
        match self.decider.start.chain.get(next).await {
            Ok(Some(_)) => Err(self.decider.fenced().await),
            Ok(None) => Ok(()),
            Err(error) if error.is_retriable() => {
                tracing::warn!("looking whether a newer run has claimed slot {next}: {error}; tried again");
                Ok(())
            }
            Err(error) => Err(JobError::store(
                format!("job {}: looking at slot {next}", self.decider.start.plan.name),
                error,
            )),
        }
    }

    fn overdue(&mut self) -> JobError {
        JobError::Run {
            code: Code::StopUnfinished,
            message: format!(
                "job {}: asked to stop, the last epoch was not committed within {:?} ({}); nothing is lost, the next \
                 run resolves it",
                self.decider.start.plan.name,
                self.decider.start.plan.settings.stop_budget,
                self.error
                    .as_ref()
                    .map_or_else(|| "a broker or the store is slow".to_owned(), JobError::chain),
            ),
        }
    }

    async fn end(mut self, end: End) -> Result<RunEnd, JobError> {
        self.tell_progress();
        if matches!(end, End::Finished | End::Stopped) {
            self.tidy.finish().await;
        }
        match end {
            End::Finished => Ok(RunEnd::Finished),
            End::Stopped => Ok(RunEnd::Stopped),
            End::Fenced => Err(self.decider.fenced().await),
            End::Failed(failure) => Err(self.error.take().unwrap_or_else(|| self.failed(&failure))),
        }
    }

    fn failed(&self, failure: &Failure) -> JobError {
        let job = &self.decider.start.plan.name;
        let code = match failure {
            Failure::CommitFailed { .. } => Code::Disturbed,
            Failure::DeadlineNear { .. } | Failure::Unprepared { .. } | Failure::Run(_) => Code::EpochGivenUp,
        };
        JobError::Run { code, message: format!("job {job}: {failure}") }
    }
}
