//! Workers: puts a run's shards on threads, and takes them down with the run.

use super::shard::{ShardStart, Surroundings, run_shard};
use crate::{
    cluster::Clusters,
    crash::CrashPoints,
    decider::{Decider, RunEnd, ShardLinks, Takeover},
    error::{Code, JobError},
    job::Plan,
    limits,
    progress::Counters,
    sink::JournalPlace,
    stop::StopSignal,
};
use futures::{
    FutureExt,
    future::{join_all, select_all},
};
use hapax_commit::{Layout, Naming, Positions, ShardId, SplitId};
use hapax_host::{Host, WorkerHandle, WorkerPanicked};
use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// What a worker gets to end in when the time of a wanted stop is over: it ends at its next await, or computes.
const STRAGGLER: Duration = Duration::from_secs(1);

/// What the shards of a run work with.
pub(super) struct Setting {
    pub(super) plan: Arc<Plan>,
    pub(super) host: Host,
    pub(super) counters: Arc<Counters>,
    pub(super) crash: Arc<dyn CrashPoints>,
    pub(super) run: u64,
    pub(super) layout: Layout,
    pub(super) naming: Naming,
    pub(super) transaction_timeout: Duration,
    /// Where journals are kept, if there can be any.
    pub(super) journal: Option<JournalPlace>,
    /// Transactions carry positions.
    pub(super) carries: bool,
}

/// The workers of a run and the channels to their shards.
pub(super) struct Workers {
    host: Host,
    handles: Vec<WorkerHandle>,
    links: ShardLinks,
    stop_budget: Duration,
}

/// Starts every shard of the layout, dealt out over the workers.
pub(super) fn start(setting: &Setting, takeover: &Takeover) -> Result<Workers, JobError> {
    let count = workers(setting);
    let (events, received) = mpsc::channel(setting.layout.shards.len() * limits::SHARD_COMMANDS);
    let zero = setting.host.now();
    let mut commands = BTreeMap::new();
    let mut starts: Vec<Vec<ShardStart>> = (0..count).map(|_| Vec::new()).collect();
    for (index, (&shard, splits)) in setting.layout.shards.iter().enumerate() {
        let (sender, receiver) = mpsc::channel(limits::SHARD_COMMANDS);
        commands.insert(shard, sender);
        starts[index % count].push(ShardStart {
            shard,
            run: setting.run,
            positions: positions_of(splits, &takeover.positions),
            epoch: takeover.epochs[&shard],
            naming: setting.naming,
            identities: identities_of(shard, takeover),
            transaction_timeout: setting.transaction_timeout,
            carries: setting.carries,
            zero,
            commands: receiver,
            events: events.clone(),
        });
    }
    drop(events);
    let mut handles = Vec::new();
    for (number, starts) in starts.into_iter().enumerate() {
        handles.push(start_one(setting, number, starts)?);
    }
    Ok(Workers {
        host: setting.host.clone(),
        handles,
        links: ShardLinks { commands, events: received, zero },
        stop_budget: setting.plan.settings.stop_budget,
    })
}

fn workers(setting: &Setting) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    setting.plan.settings.workers.unwrap_or(cores).clamp(1, setting.layout.shards.len().max(1))
}

fn positions_of(splits: &[SplitId], all: &Positions) -> Positions {
    let of = |split: &SplitId| all.get(split).map(|position| (split.clone(), position.clone()));
    splits.iter().filter_map(of).collect()
}

fn identities_of(
    shard: ShardId,
    takeover: &Takeover,
) -> BTreeMap<hapax_commit::LaneId, [hapax_commit::Identity; 3]> {
    let own = takeover.identities.iter().filter(|(lane, _)| lane.shard == shard);
    own.map(|(lane, identities)| (lane.clone(), *identities)).collect()
}

fn start_one(setting: &Setting, number: usize, starts: Vec<ShardStart>) -> Result<WorkerHandle, JobError> {
    let (plan, host) = (setting.plan.clone(), setting.host.clone());
    let (counters, crash) = (setting.counters.clone(), setting.crash.clone());
    let journal = setting.journal.clone();
    let job = async move {
        // Connections belong to the runtime that opened them, so each worker has its own.
        let clusters = Clusters::new(host.clone(), &plan.clusters);
        let around = Surroundings { plan, host, clusters, counters, crash, journal };
        join_all(starts.into_iter().map(|start| run_shard(around.clone(), start))).await;
    };
    let name = format!("hapax-worker-{number}");
    setting.host.start_worker(&name, Box::pin(job)).map_err(|error| JobError::Run {
        code: Code::Machine,
        message: format!(
            "job {}: starting thread {name}: {error}; raise the limit of threads, or lower run.workers",
            setting.plan.name
        ),
    })
}

impl Workers {
    /// Drives the shards to the run's end, then waits until every worker is gone: nothing of this run is sent
    /// after the next one begins. Where a stop was wanted there is no next one, and workers are waited for as long as
    /// its budget lasts.
    pub(super) async fn drive(
        mut self,
        decider: &mut dyn Decider,
        stop: StopSignal,
    ) -> Result<RunEnd, JobError> {
        let overdue = super::stop_overdue(&self.host, stop.clone(), self.stop_budget).shared();
        let panicked = panicked(&mut self.handles);
        let ended = tokio::select! { biased;
            ended = decider.drive(self.links, stop) => ended,
            // Never ends: the budget is counted from the moment of the stop.
            () = overdue.clone().then(|()| pending()) => unreachable!("what is pending has no end"),
            () = panicked => Err(JobError::Bug { what: "a worker panicked; the message is in the log above".into() }),
        };
        self.handles.iter_mut().for_each(WorkerHandle::cancel);
        let late = overdue.then(|()| self.host.sleep(STRAGGLER));
        tokio::select! { biased;
            () = joined_with_reports(&self.host, &mut self.handles) => {}
            () = late => tracing::warn!("a worker has not ended within stop_budget, and ends with the process: {STUCK}"),
        }
        ended
    }
}

/// Why a worker does not end.
const STUCK: &str = "it writes to something that does not take it, or an operator does not end";

/// Ends when every worker has ended; says so while that takes long.
async fn joined_with_reports(host: &Host, handles: &mut [WorkerHandle]) {
    let mut reports = 0;
    while host.timeout(limits::REPORT_EVERY, joined(handles)).await.is_none() {
        reports += 1;
        tracing::warn!("a worker has not ended after {:?}: {STUCK}", limits::REPORT_EVERY * reports);
    }
}

/// Ends when every worker has ended, one way or the other.
async fn joined(handles: &mut [WorkerHandle]) {
    for handle in handles {
        let _: Result<(), WorkerPanicked> = handle.join().await;
    }
}

/// Ends when a worker panics.
async fn panicked(handles: &mut [WorkerHandle]) {
    let mut waits: Vec<_> = handles.iter_mut().map(|handle| Box::pin(handle.join())).collect();
    while !waits.is_empty() {
        let (joined, _, rest) = select_all(waits).await;
        if joined.is_err() {
            return;
        }
        waits = rest;
    }
    std::future::pending().await
}
