//! Carries out what the recovery machine asks for: looks, clears, ends, records.
//!
//! Owns no judgement. Effects that do not depend on each other run at once; a put runs alone.

use super::{
    checkpoint::CheckpointDecider,
    repair::{self, Rewrite},
};
use crate::{
    crash::Point,
    error::{Code, JobError, with_causes},
    incident, limits,
    source::SourceError,
};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hapax_commit::{
    Epoch, Handle, Identity, Slot, SlotBody, SlotNumber, Strategy,
    evidence::{Described, TransactionState, may_hide_commits},
    id::IdAt,
    recovery::{Done, Effect, Input, Recovery},
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
    let mut recovery = Recovery::new(&decider.view, decider.run, &start.record.genesis, &start.allowed);
    let mut pending = FuturesUnordered::<Performing>::new();
    let mut crash = RecoveryPoints::of(decider);
    crash.reach(Point::R0Claimed);
    loop {
        while let Some(effect) = recovery.poll_effect() {
            crash.before(&effect);
            match effect {
                Effect::Done(done) => return Ok(done),
                Effect::Fenced => return Err(decider.fenced().await),
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
                "{}: gone on without records of the epoch, as the job's list allows; the incident names them", Code::RecordsGivenUp
            );
        }
        SlotBody::Claim(_) | SlotBody::Manifest(_) => {}
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
                            tracing::warn!(job = %plan.name, "passed over: rewind: {}", with_causes(&error));
                            probed = Err(with_causes(&error));
                        }
                        // A broker that does not answer now has lost nothing: the next run asks again.
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(Performed::Input(Input::SourcesProbed(probed)))
            })
        }
        Effect::Repair { handle, strategy, epoch, identity } => {
            again(decider, handle, strategy, epoch, identity)
        }
        Effect::GiveUp { committed, lanes, strategy } => give_up(decider, committed, lanes, strategy),
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
        let mut described = brokers.describe(&client, &at.id.to_string()).await;
        let mut beyond = None;
        if may_hide_commits(&handle, &described) {
            match brokers.commit_beyond(&client, &handle).await {
                Ok(found) => beyond = found,
                Err(error) if attempt < limits::BEYOND_TRIES => {
                    described = Described::Unanswered(error.to_string());
                }
                Err(error) => {
                    tracing::warn!(id = %at.id, "whether the store is an old copy cannot be told, going on: {error}");
                }
            }
        }
        Ok(Performed::Input(Input::Surveyed { at, described, beyond }))
    })
}

/// A job that has decided nothing has committed nothing: a coordinator that knows of a commit under one of its ids
/// shows that the chain is a copy from before its first manifest. Asked behind the claim, when no older run can
/// decide any more. A job that was begun anew has the ids of its life before.
pub(super) async fn refuse_commits_of_undecided(decider: &mut CheckpointDecider) -> Result<(), JobError> {
    if decider.start.begun_anew || decider.view.last_epoch() != Epoch::GENESIS {
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
                 checkpoint yet, and {} is {} there; nothing was cleared; bring the newest store back, or begin anew \
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
fn chain_moved(
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

fn again(
    decider: &CheckpointDecider,
    handle: Handle,
    strategy: Strategy,
    epoch: Epoch,
    identity: Identity,
) -> Performing {
    let (host, brokers) = (decider.start.host.clone(), decider.start.brokers.clone());
    let (job, timeout) = (decider.start.plan.name.clone(), decider.start.transaction_timeout);
    Box::pin(async move {
        let client = brokers.client(&handle.cluster_id, &handle_name(&handle)).await?;
        let rewrite = Rewrite { host: &host, client: &client, handle: &handle, epoch, identity, timeout };
        let outcome = match strategy {
            Strategy::Rewrite => rewrite.out_of_log().await?,
            Strategy::Replay => Err("the epoch has no journal".to_owned()),
            Strategy::Resume | Strategy::Rewind | Strategy::Abandon | Strategy::SetAside => {
                return Err(JobError::Bug { what: format!("{} writes nothing again", strategy.name()) });
            }
        };
        if let Err(why) = &outcome {
            let (id, epoch, strategy) = (&handle.transactional_id, handle.epoch, strategy.name());
            tracing::warn!(%job, %id, %epoch, "passed over: {strategy}: {why}");
        }
        Ok(Performed::Input(Input::Repaired { at: handle.at(), strategy, outcome }))
    })
}

/// Writes the incident before the slot that names it.
fn give_up(
    decider: &CheckpointDecider,
    committed: Vec<Handle>,
    lanes: Vec<Handle>,
    strategy: Strategy,
) -> Performing {
    let (host, brokers) = (decider.start.host.clone(), decider.start.brokers.clone());
    let (plan, generation) = (decider.start.plan.clone(), decider.generation);
    Box::pin(async move {
        for handle in &committed {
            let client = brokers.client(&handle.cluster_id, &handle_name(handle)).await?;
            brokers.complete(&plan.name, &client, handle).await?;
        }
        let mut kept_in = None;
        if strategy == Strategy::SetAside {
            let mut clients = Vec::new();
            for handle in &lanes {
                let client = brokers.client(&handle.cluster_id, &handle_name(handle)).await?;
                clients.push((client, handle.clone()));
            }
            let epoch = lanes.first().map_or(Epoch::GENESIS, |handle| handle.epoch);
            let path = incident::aside(&host, &plan, epoch);
            match repair::set_aside(&host, &clients, &path).await? {
                Ok(()) => kept_in = Some(path),
                Err(why) => {
                    tracing::warn!(job = %plan.name, "passed over: {}: {why}", strategy.name());
                    return Ok(Performed::Input(Input::GivenUp(Err(why))));
                }
            }
        }
        let noted = incident::given_up(&host, &plan, generation, &lanes, kept_in.as_deref())?;
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
