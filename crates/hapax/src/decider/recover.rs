//! Carries out what the recovery machine asks for: looks, clears, ends, records.
//!
//! Owns no judgement. Effects that do not depend on each other run at once; a put runs alone.

use super::{
    aside::{Aside, Lost},
    checkpoint::CheckpointDecider,
    records::Origin,
    repair::Again,
};
use crate::{
    crash::Point,
    error::{Code, JobError, with_causes},
    incident,
    job::Plan,
    lane::ProducerSettings,
    limits,
    source::SourceError,
};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hapax_commit::{
    Epoch, Handle, HandlePartition, Identity, Journal, LaneId, Naming, Slot, SlotBody, SlotNumber, Strategy,
    evidence::{Described, LaneFate, TransactionState, judge_described, may_hide_commits},
    id::IdAt,
    recovery::{Done, Effect, Input, LaneLoss, LaneReport, Recovery},
};
use hapax_host::Deadline;
use hapax_store::PutOutcome;

/// What became of an effect.
enum Performed {
    Input(Input),
    Put(Box<Slot>, PutOutcome),
}

type Performing = BoxFuture<'static, Result<Performed, JobError>>;

/// Resolves what earlier runs left, and clears every id.
pub(super) async fn resolve(decider: &mut CheckpointDecider) -> Result<Done, JobError> {
    let start = &decider.start;
    let mut recovery = Recovery::new(&decider.view, decider.run, &decider.shape.genesis, &start.allowed);
    let mut pending = FuturesUnordered::<Performing>::new();
    let mut crash = RecoveryPoints::of(decider);
    crash.reach(Point::R0Claimed);
    loop {
        while let Some(effect) = recovery.poll_effect() {
            crash.before(&effect);
            match effect {
                Effect::Done(done) => return Ok(done),
                Effect::Fenced => return Err(decider.fenced().await),
                Effect::Repair { epoch, .. } if !decider.may_begin_behind(epoch) => {
                    return Err(decider.numbers_used_up(epoch));
                }
                Effect::Stop(stop) => return Err(incident::commit_phase(&decider.report(), &stop)),
                effect => pending.push(perform(decider, effect)),
            }
        }
        let host = decider.start.host.clone();
        let input = tokio::select! { biased;
            performed = pending.next() => match performed {
                Some(performed) => match performed? {
                    Performed::Input(input) => input,
                    Performed::Put(slot, outcome) => settle(decider, &slot, outcome)?,
                },
                None => return Err(JobError::Bug { what: "recovery waits for nothing".into() }),
            },
            () = host.sleep(limits::RECOVERY_TICK) => Input::Tick,
        };
        crash.after(&input);
        recovery.step(host.wall_ms(), input);
        while let Some(passed) = recovery.poll_passed_over() {
            tracing::warn!(job = %decider.start.plan.name, "passed over: {passed}");
            decider.start.counters.pass_over(&passed);
        }
    }
}

/// The crash points of a recovery that has an epoch in doubt.
struct RecoveryPoints {
    crash: std::sync::Arc<dyn crate::crash::CrashPoints>,
    epoch: Option<Epoch>,
    has_looked: bool,
    has_acted: bool,
}

impl RecoveryPoints {
    fn of(decider: &CheckpointDecider) -> Self {
        let epoch = decider.view.unresolved().map(|unresolved| unresolved.manifest.epoch);
        Self { crash: decider.start.crash.clone(), epoch, has_looked: false, has_acted: false }
    }

    fn reach(&self, point: Point) {
        if let Some(epoch) = self.epoch {
            self.crash.reach(point, epoch);
        }
    }

    fn before(&mut self, effect: &Effect) {
        match effect {
            Effect::Look { .. } if !std::mem::replace(&mut self.has_looked, true) => {
                self.reach(Point::R1Cleared);
            }
            Effect::EndTxn { .. }
            | Effect::Repair { .. }
            | Effect::GiveUp { .. }
            | Effect::PutSlot { .. }
                if !std::mem::replace(&mut self.has_acted, true) =>
            {
                self.reach(Point::R2Looked);
            }
            Effect::Done(_) => self.reach(Point::R6IdsCleared),
            Effect::Survey { .. }
            | Effect::ClearId { .. }
            | Effect::Look { .. }
            | Effect::EndTxn { .. }
            | Effect::ReadBack { .. }
            | Effect::ProbeSources { .. }
            | Effect::Repair { .. }
            | Effect::GiveUp { .. }
            | Effect::CheckClaim
            | Effect::PutSlot { .. }
            | Effect::Fenced
            | Effect::Stop(_) => {}
        }
    }

    fn after(&self, input: &Input) {
        match input {
            Input::EndTxnAnswered { .. } => self.reach(Point::R3LaneEnded),
            Input::Repaired { outcome: Ok(_), .. } => self.reach(Point::R4Rewritten),
            Input::SlotStored { .. } => self.reach(Point::R5Recorded),
            Input::Tick
            | Input::Surveyed { .. }
            | Input::Cleared { .. }
            | Input::ClaimHolds
            | Input::ChainMoved
            | Input::Looked { .. }
            | Input::ReadBack { .. }
            | Input::SourcesProbed(_)
            | Input::Repaired { .. }
            | Input::GivenUp(_)
            | Input::SlotTaken { .. } => {}
        }
    }
}

fn settle(decider: &mut CheckpointDecider, slot: &Slot, outcome: PutOutcome) -> Result<Input, JobError> {
    match outcome {
        PutOutcome::Stored => {
            decider.apply(slot)?;
            log_resolution(decider, &slot.body);
            Ok(Input::SlotStored { number: slot.number })
        }
        PutOutcome::Taken(_) => Ok(Input::SlotTaken { number: slot.number }),
        PutOutcome::Unknown(error) => {
            let attempted = format!("job {}: recording slot {}", decider.start.plan.name, slot.number);
            Err(JobError::store(attempted, error))
        }
    }
}

fn log_resolution(decider: &CheckpointDecider, body: &SlotBody) {
    let job = &decider.start.plan.name;
    match body {
        SlotBody::Proven { epoch, .. } => {
            tracing::info!(%job, %epoch, "resumed: the decided epoch is committed")
        }
        SlotBody::Void { epoch } => {
            tracing::warn!(%job, %epoch, "rewound: every transaction of the epoch was aborted, its input is read again");
        }
        SlotBody::Amend { epoch, handles } => {
            for handle in handles {
                tracing::warn!(
                    %job, %epoch, id = %handle.transactional_id, records = handle.records(),
                    "written again: the broker had aborted the transaction, its records are prepared once more"
                );
            }
        }
        SlotBody::Abandoned { epoch, incident } => {
            tracing::error!(
                %job, %epoch, incident,
                "{}: gone on without records of the epoch, which the incident names", Code::RecordsGivenUp
            );
        }
        SlotBody::Claim(_) | SlotBody::Manifest(_) | SlotBody::Revision(_) | SlotBody::Restored { .. } => {}
    }
}

fn perform(decider: &CheckpointDecider, effect: Effect) -> Performing {
    match effect {
        Effect::Survey { at, attempt } => survey(decider, at, attempt),
        Effect::ClearId { at } => clear(decider, at),
        Effect::Look { handle, markers, attempt } => look(decider, handle, markers, attempt),
        Effect::EndTxn { handle, commit } => end(decider, handle, commit),
        Effect::ReadBack { handle, attempt } => read_back(decider, handle, attempt),
        Effect::ProbeSources { positions } => {
            let (plan, cx) = (decider.start.plan.clone(), decider.start.sources.clone());
            Box::pin(async move {
                let mut probed = Ok(());
                for source in &plan.sources {
                    match source.serves(&cx, &positions).await {
                        Ok(()) => {}
                        Err(error @ SourceError::Gone { .. }) => {
                            probed = Err(with_causes(&error));
                        }
                        // A broker that does not answer now has lost nothing: the next run asks again.
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(Performed::Input(Input::SourcesProbed(probed)))
            })
        }
        Effect::Repair { handle, strategy, journal, epoch, identity } => {
            again(decider, Aborted { handle, journal }, strategy, epoch, identity)
        }
        Effect::GiveUp { committed, lost, strategy, journals } => {
            give_up(decider, committed, lost, strategy, journals)
        }
        Effect::CheckClaim => {
            let moved = chain_moved(decider, "stopping for a person");
            Box::pin(async move {
                Ok(Performed::Input(if moved.await? { Input::ChainMoved } else { Input::ClaimHolds }))
            })
        }
        Effect::PutSlot { number, body } => {
            let proves = matches!(body, SlotBody::Proven { .. });
            let (told, put) = (decider.complete_unresolved(), decider.put(number, body));
            Box::pin(async move {
                if proves {
                    told.await?;
                }
                let (slot, outcome) = put.await;
                Ok(Performed::Put(Box::new(slot), outcome))
            })
        }
        Effect::Done(_) | Effect::Fenced | Effect::Stop(_) => unreachable!("the caller ends on these"),
    }
}

fn survey(decider: &CheckpointDecider, at: IdAt, attempt: u32) -> Performing {
    let (host, brokers) = (decider.start.host.clone(), decider.start.brokers.clone());
    let newest = decider.view.newest_handles().find(|handle| handle.at() == at);
    let handle = newest.expect("recovery surveys ids that have a handle").clone();
    Box::pin(async move {
        host.sleep(limits::look_pause(attempt)).await;
        let client = brokers.client(&at.cluster_id, &id_name(&at)).await?;
        let (by, mut described) = brokers.witnessed(&client, &at.id.to_string()).await;
        let mut beyond = None;
        if may_hide_commits(&handle, &described) {
            // It must not hold a healthy job up, however much stands behind the handle.
            let patience = limits::REPORT_EVERY;
            let told = match host.timeout(patience, brokers.commit_beyond(&client, &handle)).await {
                Some(told) => told.map_err(|error| error.to_string()),
                None => Err(format!("the logs behind it were not read within {patience:?}")),
            };
            match told {
                Ok(found) => beyond = found,
                Err(error) if attempt < limits::BEYOND_TRIES => {
                    described = Described::Unanswered(error);
                }
                Err(error) => {
                    tracing::warn!(id = %at.id, "whether the store is an old copy cannot be told, going on: {error}");
                }
            }
        }
        Ok(Performed::Input(Input::Surveyed { at, by, described, beyond }))
    })
}

/// A job that has decided nothing has committed nothing: a coordinator that knows of a commit under one of its ids
/// shows that the chain is a copy from before its first manifest. Asked behind the claim, when no older run can
/// decide any more. A job that was begun anew has the ids of its life before.
pub(super) async fn refuse_commits_of_undecided(decider: &mut CheckpointDecider) -> Result<(), JobError> {
    // An id of its own for each epoch: those behind the newest checkpoint have committed nothing in any case.
    let may_tell = decider.naming() == Naming::PerEpoch || decider.view.last_epoch() == Epoch::GENESIS;
    if decider.start.begun_anew || !may_tell {
        return Ok(());
    }
    let (host, brokers) = (decider.start.host.clone(), decider.start.brokers.clone());
    for at in decider.view.ids_to_clear() {
        let client = brokers.client(&at.cluster_id, &id_name(&at)).await?;
        let mut attempt = 0;
        let state = loop {
            match brokers.describe(&client, &at.id.to_string()).await {
                Described::Known { state, .. } => break state,
                Described::Forgotten => break TransactionState::Empty,
                Described::Unanswered(_) => attempt += 1,
            }
            host.sleep(limits::look_pause(attempt)).await;
        };
        if !matches!(state, TransactionState::PrepareCommit | TransactionState::CompleteCommit) {
            continue;
        }
        if chain_moved(decider, "stopping for a person").await? {
            return Err(decider.fenced().await);
        }
        return Err(JobError::NeedsPerson {
            code: Code::StoreStale,
            message: format!(
                "job {}: the brokers are ahead of the checkpoint store, which looks like an old copy: it has no \
                 checkpoint for it yet, and {} is {} there; nothing was cleared; bring the newest store back, or begin anew \
                 with --fresh knowing that output repeats",
                decider.start.plan.name,
                at.id,
                state.name()
            ),
            incident: None,
        });
    }
    Ok(())
}

/// Does the chain go on behind what this run knows, with another run's slot? Its own proof may just be landing there.
pub(super) fn chain_moved(
    decider: &CheckpointDecider,
    before: &str,
) -> impl Future<Output = Result<bool, JobError>> + Send + use<> {
    let (chain, next) = (decider.start.chain.clone(), decider.view.next_slot());
    let attempted = format!("job {}: looking at slot {next} before {before}", decider.start.plan.name);
    let run = decider.run;
    async move {
        let slot = chain.get(next).await.map_err(|error| JobError::store(attempted, error))?;
        Ok(slot.is_some_and(|slot| slot.run != run))
    }
}

/// Makes sure that the chain still ends with our claim, then ends and fences.
fn clear(decider: &CheckpointDecider, at: IdAt) -> Performing {
    let brokers = decider.start.brokers.clone();
    let timeout = decider.start.transaction_timeout;
    let moved = chain_moved(decider, &format!("clearing {}", at.id));
    Box::pin(async move {
        if moved.await? {
            return Ok(Performed::Input(Input::ChainMoved));
        }
        let client = brokers.client(&at.cluster_id, &id_name(&at)).await?;
        let identity = brokers.clear(&client, &at.id.to_string(), timeout).await?;
        Ok(Performed::Input(Input::Cleared { at, identity }))
    })
}

fn look(decider: &CheckpointDecider, handle: Handle, markers: bool, attempt: u32) -> Performing {
    let brokers = decider.start.brokers.clone();
    let (host, at) = (decider.start.host.clone(), handle.at());
    Box::pin(async move {
        host.sleep(limits::look_pause(attempt)).await;
        let client = brokers.client(&handle.cluster_id, &handle_name(&handle)).await?;
        let look = brokers.look(&client, &handle, markers).await;
        let look =
            look.map_err(|error| JobError::kafka(format!("looking at {}", handle_name(&handle)), error))?;
        Ok(Performed::Input(Input::Looked { at, look }))
    })
}

fn end(decider: &CheckpointDecider, handle: Handle, commit: bool) -> Performing {
    let brokers = decider.start.brokers.clone();
    let deadline = Deadline::after(decider.start.host.now(), Some(limits::RESUME_PATIENCE));
    Box::pin(async move {
        let client = brokers.client(&handle.cluster_id, &handle_name(&handle)).await?;
        let (answer, _) = brokers.end(&client, &handle, commit, deadline, || {}).await;
        Ok(Performed::Input(Input::EndTxnAnswered { at: handle.at(), answer }))
    })
}

/// An aborted transaction, and the journal of its records where one was kept.
struct Aborted {
    handle: Handle,
    journal: Option<Journal>,
}

fn again(
    decider: &CheckpointDecider,
    aborted: Aborted,
    strategy: Strategy,
    epoch: Epoch,
    identity: Identity,
) -> Performing {
    let (host, brokers) = (decider.start.host.clone(), decider.start.brokers.clone());
    let (plan, timeout) = (decider.start.plan.clone(), decider.start.transaction_timeout);
    let (naming, journals) = (decider.naming(), decider.start.journals.clone());
    Box::pin(async move {
        let Aborted { handle, journal } = &aborted;
        let client = brokers.client(&handle.cluster_id, &handle_name(handle)).await?;
        let settings = settings_of(&plan, &handle.lane);
        let write = async |origin: &Origin| {
            let again = Again {
                host: &host,
                client: &client,
                handle,
                origin,
                naming,
                epoch,
                identity,
                timeout,
                lifetime: brokers.lifetime(&client, timeout),
                settings: &settings,
            };
            again.write().await
        };
        let outcome = match (strategy, journal) {
            (Strategy::Rewrite, _) => write(&Origin::Log).await?,
            (Strategy::Replay, Some(journal)) => {
                write(&Origin::Journal { journals, journal: journal.clone() }).await?
            }
            (Strategy::Replay, None) => Err("no journal was kept (journal = true on the sink)".to_owned()),
            (Strategy::Resume | Strategy::Rewind | Strategy::Abandon | Strategy::SetAside, _) => {
                return Err(JobError::Bug { what: format!("{} writes nothing again", strategy.name()) });
            }
        };
        let (job, id, of, name) = (&plan.name, &handle.transactional_id, handle.epoch, strategy.name());
        if outcome.is_ok() {
            let from = if strategy == Strategy::Replay { "the journal" } else { "the log" };
            tracing::info!(%job, %id, epoch = %of, "{name}: its records are prepared once more, from {from}");
        }
        Ok(Performed::Input(Input::Repaired { at: handle.at(), strategy, outcome }))
    })
}

/// How a lane writes; a lane that the plan has no more writes as one without settings.
fn settings_of(plan: &Plan, lane: &LaneId) -> ProducerSettings {
    let of_lane = plan.sinks.iter().find(|sink| sink.transactional_cluster() == Some(&lane.cluster));
    of_lane.and_then(|sink| sink.producer()).cloned().unwrap_or_default()
}

/// Writes the incident before the slot that names it.
fn give_up(
    decider: &CheckpointDecider,
    committed: Vec<Handle>,
    mut lost: Vec<LaneLoss>,
    strategy: Strategy,
    kept: Vec<Journal>,
) -> Performing {
    let (host, brokers) = (decider.start.host.clone(), decider.start.brokers.clone());
    let (plan, generation) = (decider.start.plan.clone(), decider.generation);
    let journals = decider.start.journals.clone();
    let epoch = decider.view.unresolved().map_or(Epoch::GENESIS, |unresolved| unresolved.manifest.epoch);
    Box::pin(async move {
        for handle in &committed {
            let client = brokers.client(&handle.cluster_id, &handle_name(handle)).await?;
            brokers.complete(&plan.name, &client, handle).await?;
        }
        for LaneLoss { lane: LaneReport { handle, fate, .. }, missing } in &mut lost {
            if !matches!(fate, LaneFate::Torn(_)) {
                continue;
            }
            let client = brokers.client(&handle.cluster_id, &handle_name(handle)).await?;
            let id = handle.transactional_id.to_string();
            let mut attempt = 0;
            let described = loop {
                match brokers.describe(&client, &id).await {
                    Described::Unanswered(_) => host.sleep(limits::look_pause(attempt)).await,
                    described => break described,
                }
                attempt += 1;
            };
            if judge_described(handle, &described) != LaneFate::Committed {
                continue;
            }
            // A partition that was not told at all is told what its coordinator has decided, and is not missing then.
            brokers.complete(&plan.name, &client, handle).await?;
            loop {
                let looks = brokers.read_back(&client, handle).await;
                missing.partitions.retain(|part| !looks.iter().any(|look| look.is_committed(part)));
                let is_open = |part: &HandlePartition| looks.iter().any(|look| look.is_to_come(part));
                if !missing.partitions.iter().any(is_open) {
                    break;
                }
                host.sleep(limits::look_pause(attempt)).await;
                attempt += 1;
            }
        }
        let mut kept_in = None;
        if strategy == Strategy::SetAside {
            let mut losses = Vec::new();
            for LaneLoss { lane: LaneReport { handle, .. }, missing } in &lost {
                let client = brokers.client(&handle.cluster_id, &handle_name(handle)).await?;
                let journal = kept.iter().find(|journal| journal.lane == handle.lane).cloned();
                losses.push(Lost { client, handle: handle.clone(), missing: missing.clone(), journal });
            }
            let path = incident::aside(&host, &plan, epoch);
            let aside = Aside { host: &host, journals: &journals, lost: &losses, path: &path };
            match aside.keep().await? {
                Ok(()) => kept_in = Some(path),
                Err(why) => {
                    return Ok(Performed::Input(Input::GivenUp(Err(why))));
                }
            }
        }
        let loss = incident::Loss { strategy, epoch, lanes: &lost, kept_in: kept_in.as_deref() };
        let noted = incident::given_up(&host, &plan, generation, &loss)?;
        Ok(Performed::Input(Input::GivenUp(Ok(noted))))
    })
}

fn read_back(decider: &CheckpointDecider, handle: Handle, attempt: u32) -> Performing {
    let brokers = decider.start.brokers.clone();
    let (host, at) = (decider.start.host.clone(), handle.at());
    Box::pin(async move {
        host.sleep(limits::look_pause(attempt)).await;
        let client = brokers.client(&handle.cluster_id, &handle_name(&handle)).await?;
        let partitions = brokers.read_back(&client, &handle).await;
        Ok(Performed::Input(Input::ReadBack { at, partitions }))
    })
}

fn id_name(at: &IdAt) -> String {
    format!("transactional id {}", at.id)
}

fn handle_name(handle: &Handle) -> String {
    format!("the prepared transaction {} of epoch {}", handle.transactional_id, handle.epoch)
}

impl CheckpointDecider {
    /// What an incident says about this run.
    fn report(&self) -> incident::Reporter<'_> {
        incident::Reporter {
            host: &self.start.host,
            plan: &self.start.plan,
            generation: self.generation,
            unresolved: self.view.unresolved(),
        }
    }

    /// The slot that the next put goes to.
    pub(super) fn next_slot(&self) -> SlotNumber {
        self.view.next_slot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compression, Guarantee, Job, SinkTopic, source::GeneratorSource};
    use hapax_commit::{Name, ShardId};

    #[test]
    fn what_is_written_again_is_written_as_the_lane_writes() {
        let producer = ProducerSettings { compression: Compression::Zstd, batch: 7, ..Default::default() };
        let loose = ProducerSettings { compression: Compression::Gzip, ..Default::default() };
        let sink = |producer: &ProducerSettings| SinkTopic {
            producer: producer.clone(),
            ..SinkTopic::new("main", "out")
        };
        let job = Job::new("orders").store("memory://").cluster("main", "b:9092").unwrap();
        let plan = job
            .source(GeneratorSource::new("made", Some(1)))
            .sink(sink(&producer))
            .sink(sink(&loose).guarantee(Guarantee::AtLeastOnce))
            .plan()
            .unwrap();
        let lane = |cluster: &str| LaneId { cluster: Name::new(cluster).unwrap(), shard: ShardId(0) };
        assert_eq!(settings_of(&plan, &lane("main")), producer);
        assert_eq!(settings_of(&plan, &lane("gone")), ProducerSettings::default());
    }
}
