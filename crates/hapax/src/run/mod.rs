//! The life of a job in a process: run after run, until it is done, stopped, superseded, or needs a person.
//!
//! A run goes from a claim to its end. Whatever ends it, a failure in live operation, a restart in process or a
//! restart after kill -9, the next run begins the same way: claim, clear, resolve, read progress, write.

mod awake;
mod carried;
mod durability;
mod fork;
pub(crate) mod shard;
mod start;
mod surroundings;
mod taken;
mod two_phase;
mod worker;

use crate::{
    cluster::Clusters,
    crash::{CrashPoints, Undisturbed},
    decider::{CheckpointDecider, CheckpointStart, Decider, Intent, OwnIdentities, RunEnd, Takeover},
    error::{Code, JobError},
    incident,
    job::Plan,
    progress::{Counters, Progress, Summary},
    source::SourceContext,
    stop::StopSignal,
};
use awake::Awake;
use hapax_commit::{DeciderKind, Epoch, Generation, RunNonce, Strategy};
use hapax_host::Host;
use hapax_store::{Incarnation, Store};
pub(crate) use start::Reach;
use start::StoreWaits;
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::watch;

/// What a process gives a job to run with.
#[derive(Debug)]
pub struct RunOptions {
    /// Told of every crash point.
    pub crash: Arc<dyn CrashPoints>,
    /// Asks the job to stop.
    pub stop: StopSignal,
    /// Where progress is shown.
    pub progress: watch::Sender<Progress>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { crash: Arc::new(Undisturbed), stop: StopSignal::never(), progress: watch::Sender::default() }
    }
}

/// Runs a job until it is finished or stopped.
///
/// # Errors
/// Only what another run cannot mend; see [`JobError::exit_code`]. Runs that fail otherwise are followed by
/// others, with a wait between them and without end, once one has worked: then Kafka and the store may also refuse for
/// a while. Runs that lose their ids to another writer are not, when nothing is committed in between.
pub async fn run(plan: Plan, host: Host, options: RunOptions) -> Result<Summary, JobError> {
    Life::new(plan, host, options).live().await
}

/// A run that has taken over.
type Started = (Box<dyn Decider>, Takeover, worker::Setting);

struct Life {
    plan: Arc<Plan>,
    host: Host,
    options: RunOptions,
    counters: Arc<Counters>,
    awake: Awake,
    /// The present run has begun to read and write.
    works: bool,
    /// A run of this process has.
    has_worked: bool,
    /// A run of this process has recorded an epoch: rights and addresses were right once.
    has_recorded: bool,
    /// Why the last run ended, while none has worked.
    last: Option<JobError>,
    runs: u64,
    /// Those that have lost ids to another writer.
    taken: taken::Taken,
    /// The newest claim of this process.
    previous: Option<Generation>,
    /// Which of the job's lives this process has claimed.
    incarnation: Option<Incarnation>,
    /// Every run of this process.
    own_runs: Vec<RunNonce>,
    /// The identities that they had, under decider `transaction`.
    own_identities: OwnIdentities,
    /// Start positions were committed by this process, under decider `transaction`.
    begun: Arc<AtomicBool>,
    /// `fresh` was asked for and is not done yet.
    fresh: bool,
    /// The checkpoint store, once it is opened.
    store: Option<Store>,
    store_waits: StoreWaits,
    /// What the sinks' topics keep when a broker is lost has been looked at.
    durability_known: bool,
}

impl Life {
    fn new(plan: Plan, host: Host, options: RunOptions) -> Self {
        let (awake, fresh) = (Awake::begin(&host), plan.settings.fresh);
        let counters = Counters::shared();
        Self {
            plan: Arc::new(plan),
            host,
            options,
            counters,
            awake,
            works: false,
            has_worked: false,
            has_recorded: false,
            last: None,
            runs: 0,
            taken: taken::Taken::default(),
            previous: None,
            incarnation: None,
            own_runs: Vec::new(),
            own_identities: OwnIdentities::default(),
            begun: Arc::default(),
            fresh,
            store: None,
            store_waits: StoreWaits::default(),
            durability_known: false,
        }
    }

    async fn live(mut self) -> Result<Summary, JobError> {
        let (first, longest) = self.plan.settings.run_backoff;
        let mut backoff = first;
        loop {
            self.works = false;
            let error = match self.one_run().await {
                Ok(end) => return Ok(self.summary(end)),
                Err(error) => error,
            };
            self.give_up(&error)?;
            let once_worked = self.has_recorded && error.is_environment();
            if !error.is_retriable() && !once_worked {
                return Err(incident::noted(&self.host, &self.plan, self.previous, error));
            }
            if self.works {
                backoff = first;
            }
            let wait = self.host.jitter(backoff);
            tracing::warn!(job = %self.plan.name, run = self.runs, "{}; the run ended, the next begins in {wait:?}", error.chain());
            if !self.wait(wait).await {
                return Err(self.unfinished(&error));
            }
            backoff = (backoff * 2).min(longest);
            self.out_of_time(error)?;
        }
    }

    /// Waits between two runs; false when the job was asked to stop.
    async fn wait(&mut self, wait: Duration) -> bool {
        let awake = self.awake.clone();
        tokio::select! { biased;
            () = awake.sleep(wait) => !self.options.stop.is_set(),
            () = self.options.stop.wait() => false,
        }
    }

    /// A job that was asked to stop does not try again.
    fn give_up(&self, error: &JobError) -> Result<(), JobError> {
        if self.options.stop.is_set() && error.is_retriable() { Err(self.unfinished(error)) } else { Ok(()) }
    }

    fn unfinished(&self, error: &JobError) -> JobError {
        if let JobError::Run { code: Code::StopUnfinished, message } = error {
            return JobError::Run { code: Code::StopUnfinished, message: message.clone() };
        }
        JobError::Run {
            code: Code::StopUnfinished,
            message: format!(
                "job {}: asked to stop, and the last run had failed: {}; nothing is lost, the next run resolves it",
                self.plan.name,
                error.chain()
            ),
        }
    }

    /// Before the first run has worked, patience ends with `start_timeout`.
    fn out_of_time(&mut self, error: JobError) -> Result<(), JobError> {
        if self.has_worked {
            return Ok(());
        }
        if !self.patience().is_zero() {
            self.last = Some(error);
            return Ok(());
        }
        let patience = self.plan.settings.start_timeout;
        tracing::error!(job = %self.plan.name, "{}: no run has worked within start_timeout ({patience:?})", error.code());
        Err(error)
    }

    /// How long taking over may take: `start_timeout`, which all runs before the first that works share. What this process
    /// has slept does not count.
    fn patience(&self) -> Duration {
        let patience = self.plan.settings.start_timeout;
        if self.has_worked {
            return patience;
        }
        patience.saturating_sub(self.awake.elapsed())
    }

    fn summary(&self, end: RunEnd) -> Summary {
        let mut progress = self.options.progress.borrow().clone();
        self.counters.fill(&mut progress);
        Summary { job: self.plan.name.to_string(), finished: end == RunEnd::Finished, progress }
    }

    async fn one_run(&mut self) -> Result<RunEnd, JobError> {
        self.runs += 1;
        let runs = self.runs;
        self.options.progress.send_modify(|progress| progress.runs = runs);
        let (mut decider, takeover, setting) = self.started().await?;
        if takeover.finished {
            tracing::info!(job = %self.plan.name, "the job has finished already: nothing to do");
            return Ok(RunEnd::Finished);
        }
        self.has_worked = true;
        self.last = None;
        self.taken.goes_on(&self.plan.name, &takeover.positions)?;
        let committed = |progress: &Progress| (progress.epoch, progress.committed_ms);
        let before = committed(&self.options.progress.borrow());
        let began = self.host.now();
        let workers = worker::start(&setting, &takeover)?;
        let ended = workers.drive(decider.as_mut(), self.options.stop.clone()).await;
        self.works = committed(&self.options.progress.borrow()) != before;
        self.has_recorded |= self.works;
        if self.works {
            self.taken.moved_on();
        }
        if let Err(error) = &ended {
            let lived = self.host.now().saturating_duration_since(began);
            self.taken.ended(error, lived, setting.transaction_timeout);
        }
        ended
    }

    /// Takes over, for as long as patience and a wanted stop allow.
    async fn started(&mut self) -> Result<Started, JobError> {
        let (host, awake, stop) = (self.host.clone(), self.awake.clone(), self.options.stop.clone());
        let (patience, budget) = (self.patience(), self.plan.settings.stop_budget);
        let waits = self.store_waits.clone();
        // Whether the store is waited for is asked while the attempt is still there.
        let impatient = async {
            awake.sleep(patience).await;
            (patience, waits.any())
        };
        let stopped = async {
            stop_overdue(&host, stop, budget).await;
            (budget, waits.any())
        };
        let started = tokio::select! { biased;
            started = self.take_over() => Ok(started),
            stuck = impatient => Err(stuck),
            stuck = stopped => Err(stuck),
        };
        // A request that was slept through ends before the beat that it was slept through in.
        self.awake.notice();
        started.unwrap_or_else(|(waited, on_store)| Err(self.stuck(waited, on_store)))
    }

    /// What the run before this one met says more than that this one took too long.
    fn stuck(&mut self, waited: Duration, on_store: bool) -> JobError {
        if let Some(error) = self.last.take() {
            return error;
        }
        let (code, why) = if on_store {
            let why = "the checkpoint store has not done what it was asked; look whether it is reachable, \
                       writable and not full";
            (Code::Store, why)
        } else {
            (Code::Unreachable, "a broker is not answering, or a transaction stays in its last phase")
        };
        JobError::Run {
            code,
            message: format!(
                "job {}: taking over (claim, clear, resolve) did not end within {waited:?}: {why}; see the log above",
                self.plan.name
            ),
        }
    }

    async fn take_over(&mut self) -> Result<Started, JobError> {
        match self.plan.decider() {
            DeciderKind::Checkpoint => self.take_over_by_chain().await,
            DeciderKind::Transaction => self.take_over_by_offsets().await,
        }
    }

    fn opened(&mut self) -> Result<Store, JobError> {
        match &self.store {
            Some(store) => Ok(store.clone()),
            None => Ok(self.store.insert(start::open(&self.plan, &self.host, &self.store_waits)?).clone()),
        }
    }

    async fn take_over_by_chain(&mut self) -> Result<Started, JobError> {
        let clusters = Clusters::new(self.host.clone(), &self.plan.clusters);
        let store = self.opened()?;
        let found = start::find(&self.plan, &self.host, &clusters, &store, self.fresh, self.previous).await?;
        self.check_incarnation(found.incarnation)?;
        self.fresh = false;
        let transaction_timeout = found.transaction_timeout;
        let mut decider = self.decider(&clusters, &store, found, self.intent());
        self.own_runs.push(decider.run());
        let takeover = decider.take_over().await;
        self.previous = decider.claimed().or(self.previous);
        let mut takeover = takeover?;
        let from = self.from();
        if !takeover.finished || from.is_some() {
            let shape = surroundings::shape(&self.plan, &self.host, &clusters, decider.shape()).await?;
            decider.revise(shape, &mut takeover).await?;
            if let Some(from) = from {
                decider.restore(from, &mut takeover).await?;
            }
            decider.end_left_open().await?;
            self.look_at_durability(&clusters).await?;
            // Whoever slept until here has cleared ids behind a newer run's back, and would write under them.
            decider.check_claim().await?;
        }
        let setting = worker::Setting {
            plan: self.plan.clone(),
            host: self.host.clone(),
            counters: self.counters.clone(),
            crash: self.options.crash.clone(),
            run: self.runs,
            layout: decider.shape().layout.clone(),
            naming: decider.naming(),
            transaction_timeout,
            journal: Some(decider.journal_place()),
            carries: false,
        };
        Ok((Box::new(decider), takeover, setting))
    }

    fn decider(
        &self,
        clusters: &Clusters,
        store: &Store,
        found: start::Found,
        intent: Intent,
    ) -> CheckpointDecider {
        CheckpointDecider::new(CheckpointStart {
            plan: self.plan.clone(),
            host: self.host.clone(),
            sources: SourceContext { host: self.host.clone(), clusters: clusters.clone() },
            brokers: found.brokers,
            intent,
            record: found.record,
            chain: found.chain,
            journals: store.journals(&self.plan.name, found.incarnation, 0),
            begun_anew: found.begun_anew || self.plan.settings.fresh,
            allowed: self.allowed(),
            inherited: found.inherited,
            transaction_timeout: found.transaction_timeout,
            crash: self.options.crash.clone(),
            counters: self.counters.clone(),
            progress: self.options.progress.clone(),
            previous: self.previous,
            own_runs: self.own_runs.clone(),
        })
    }

    /// What a person has said beside the pipeline counts until a run of this process has worked.
    fn intent(&self) -> Intent {
        Intent::Run { drop: self.dropped(), from: self.from() }
    }

    fn dropped(&self) -> Vec<String> {
        if self.has_worked { Vec::new() } else { self.plan.settings.drop.clone() }
    }

    fn from(&self) -> Option<Epoch> {
        self.plan.settings.from.filter(|_| !self.has_worked).map(Epoch)
    }

    /// Strategies for this run's takeover.
    fn allowed(&self) -> Vec<Strategy> {
        let settings = &self.plan.settings;
        let once = settings.recover_once.iter().filter(|_| !self.has_worked);
        let once = once.filter(|strategy| !settings.recovery.contains(strategy));
        settings.recovery.iter().chain(once).copied().collect()
    }

    async fn existing(self, reach: Reach) -> Result<CheckpointDecider, JobError> {
        let clusters = Clusters::new(self.host.clone(), &self.plan.clusters);
        let store = start::open(&self.plan, &self.host, &self.store_waits)?;
        let found = start::existing(&self.plan, &self.host, &clusters, &store, reach).await?;
        Ok(self.decider(&clusters, &store, found, Intent::Tool))
    }

    /// Somebody has begun the job anew since this process claimed it: that life is not this process's, whatever its
    /// pipeline says.
    fn check_incarnation(&mut self, found: Incarnation) -> Result<(), JobError> {
        match (self.incarnation, self.previous) {
            (Some(ours), Some(mine)) if ours != found && !self.fresh => Err(JobError::Superseded {
                job: self.plan.name.clone(),
                mine,
                newer: Generation(1),
                by: format!("--fresh, which began life {found} of the job"),
            }),
            _ => {
                self.incarnation = Some(found);
                Ok(())
            }
        }
    }

    async fn look_at_durability(&mut self, clusters: &Clusters) -> Result<(), JobError> {
        if !self.durability_known {
            durability::warn_of_thin_topics(&self.plan, &self.host, clusters).await?;
            self.durability_known = true;
        }
        Ok(())
    }
}

/// A decider of a job that is there, which has neither claimed nor read anything.
///
/// # Errors
/// The store has no such job, or store or brokers do not answer within `start_timeout`.
pub(crate) async fn existing(
    plan: Plan,
    host: Host,
    reach: Reach,
    crash: Arc<dyn CrashPoints>,
) -> Result<CheckpointDecider, JobError> {
    let patience = plan.settings.start_timeout;
    let life = Life::new(plan, host.clone(), RunOptions { crash, ..RunOptions::default() });
    host.timeout(patience, life.existing(reach)).await.unwrap_or_else(|| {
        let message = format!("brokers or checkpoint store have not answered within {patience:?}");
        Err(JobError::Run { code: Code::Unreachable, message })
    })
}

/// Gives a job whose transactions carry its positions another number of shards.
///
/// # Errors
/// There is no such job, another run takes it over, or brokers do not answer within `start_timeout`.
pub(crate) async fn reshape_carried(
    plan: Plan,
    host: Host,
    shards: u32,
    crash: Arc<dyn CrashPoints>,
) -> Result<String, JobError> {
    let patience = plan.settings.start_timeout;
    let life = Life::new(plan, host.clone(), RunOptions { crash, ..RunOptions::default() });
    host.timeout(patience, life.reshape_by_offsets(shards)).await.unwrap_or_else(|| {
        let message = format!(
            "the layout was not changed within {patience:?}, as far as is known: a broker or the checkpoint store does not \
             answer, or runs of the job keep taking it over; see the log above, and say it again"
        );
        Err(JobError::Run { code: Code::Unreachable, message })
    })
}

/// Ends when a stop has been asked for and its budget has passed.
async fn stop_overdue(host: &Host, mut stop: StopSignal, budget: Duration) {
    stop.wait().await;
    host.sleep(budget).await;
}
