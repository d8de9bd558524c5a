//! A shard at work: reads its splits, applies the operators, writes to the sinks, and ends epochs at barriers.
//!
//! Owns the order inside a shard: a record handed over after a barrier belongs to the next epoch, and positions in
//! a share cover exactly the records before it. Refuses to decide anything.
//!
//! ```text
//! read -> operators -> write ... barrier e: prepare every writer -> share(e) to the coordinator -> epoch e+1
//! ```

use crate::{
    batch::{Batch, RecordRef},
    cluster::Clusters,
    crash::{CrashPoints, Point},
    error::JobError,
    job::Plan,
    operator::{Operator, Skipped},
    progress::Counters,
    sink::{JournalPlace, SinkError, SinkWriter, WriterContext, each},
    source::{Chunk, Reader, SourceContext, SourceError},
};
use futures::future::select_all;
use hapax_commit::{
    Epoch, Identity, LaneId, Naming, Positions, ShardId,
    cohort::{PreparedHandle, Share},
    ledger::Carrier,
};
use hapax_host::{Host, Instant};
use std::{collections::BTreeMap, future, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// What the coordinator tells a shard.
#[derive(Clone, Debug)]
pub(crate) enum ToShard {
    /// End the open epoch; after the last one read no more.
    /// `recommit`: its transaction carries the positions also where none has moved (decider `transaction`).
    Barrier { epoch: Epoch, last: bool, recommit: bool },
    /// The outcome of an epoch is in the chain; identities that ending it answered, by lane.
    Recorded { epoch: Epoch, next: Arc<BTreeMap<LaneId, Identity>> },
}

/// What a shard tells the coordinator.
#[derive(Debug)]
pub(crate) enum FromShard {
    /// The first record since the last barrier.
    Touched { shard: ShardId, epoch: Epoch },
    /// The open epoch would outgrow its transaction.
    BarrierWanted { shard: ShardId, epoch: Epoch },
    /// Every writer is prepared.
    Prepared { shard: ShardId, epoch: Epoch, share: Share, carrier: Option<Carrier> },
    /// Every split is at its end.
    Drained { shard: ShardId },
    /// The shard cannot go on; sticky for the run.
    Failed { shard: ShardId, error: JobError },
}

/// What a shard is started with.
pub(crate) struct ShardStart {
    pub(crate) shard: ShardId,
    pub(crate) run: u64,
    pub(crate) positions: Positions,
    /// Epoch of the first record.
    pub(crate) epoch: Epoch,
    /// How transactional ids are named.
    pub(crate) naming: Naming,
    /// Identities of the lane's ids, by lane.
    pub(crate) identities: BTreeMap<LaneId, [Identity; 3]>,
    pub(crate) transaction_timeout: Duration,
    /// Its transactions carry its positions.
    pub(crate) carries: bool,
    /// Zero of the coordinator's monotonic milliseconds.
    pub(crate) zero: Instant,
    pub(crate) commands: mpsc::Receiver<ToShard>,
    pub(crate) events: mpsc::Sender<FromShard>,
}

/// What the shards of a process share.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) plan: Arc<Plan>,
    pub(crate) host: Host,
    pub(crate) clusters: Clusters,
    pub(crate) counters: Arc<Counters>,
    pub(crate) crash: Arc<dyn CrashPoints>,
    pub(crate) journal: Option<JournalPlace>,
}

/// Runs a shard to its last barrier; a failure is told to the coordinator.
pub(crate) async fn run_shard(around: Surroundings, start: ShardStart) {
    let (shard, events) = (start.shard, start.events.clone());
    let worked = async { Shard::open(around, start).await?.work().await }.await;
    if let Err(error) = worked {
        // A coordinator that is gone has ended the run already.
        let _ = events.send(FromShard::Failed { shard, error }).await;
    }
}

struct Shard {
    around: Surroundings,
    shard: ShardId,
    run: u64,
    zero: Instant,
    positions: Positions,
    epoch: Epoch,
    readers: Vec<Box<dyn Reader>>,
    operators: Vec<Box<dyn Operator>>,
    writers: Vec<Box<dyn SinkWriter>>,
    /// Cluster of each writer's lane, where it has one.
    lanes: Vec<Option<LaneId>>,
    commands: mpsc::Receiver<ToShard>,
    events: mpsc::Sender<FromShard>,
    touched: bool,
    carries: bool,
    barrier_wanted: bool,
    drained: bool,
}

enum Next {
    Command(Option<ToShard>),
    Failed(SinkError),
    Chunk(Result<Chunk, SourceError>),
}

impl Shard {
    async fn open(around: Surroundings, start: ShardStart) -> Result<Self, JobError> {
        let cx = SourceContext { host: around.host.clone(), clusters: around.clusters.clone() };
        let mut readers = Vec::new();
        for source in &around.plan.sources {
            let prefix = format!("{}/", source.name());
            let own: Positions = start
                .positions
                .iter()
                .filter(|(split, _)| split.0.starts_with(&prefix))
                .map(|(split, position)| (split.clone(), position.clone()))
                .collect();
            if !own.is_empty() {
                readers.push(source.reader(&cx, own).await?);
            }
        }
        let (mut writers, mut lanes) = (Vec::new(), Vec::new());
        for sink in &around.plan.sinks {
            let lane = sink
                .transactional_cluster()
                .map(|cluster| LaneId { cluster: cluster.clone(), shard: start.shard });
            let cx = WriterContext {
                host: around.host.clone(),
                clusters: around.clusters.clone(),
                job: around.plan.name.clone(),
                shard: start.shard,
                identities: lane.as_ref().map(|lane| start.identities[lane]),
                naming: start.naming,
                first: start.epoch,
                transaction_timeout: start.transaction_timeout,
                journal: around.journal.clone(),
                carries: start.carries,
            };
            let mut writer = sink.writer(cx).await?;
            writer.begin(start.epoch);
            writers.push(writer);
            lanes.push(lane);
        }
        let operators = around.plan.operators.iter().map(|factory| factory()).collect();
        Ok(Self {
            shard: start.shard,
            run: start.run,
            zero: start.zero,
            positions: start.positions,
            epoch: start.epoch,
            readers,
            operators,
            writers,
            lanes,
            commands: start.commands,
            events: start.events,
            touched: false,
            carries: start.carries,
            barrier_wanted: false,
            drained: false,
            around,
        })
    }

    async fn work(mut self) -> Result<(), JobError> {
        self.tell_if_drained().await;
        loop {
            match self.next().await {
                Next::Command(None) => return Ok(()),
                Next::Command(Some(ToShard::Barrier { epoch, last, recommit })) => {
                    self.end_epoch(epoch, recommit).await?;
                    if last {
                        return Ok(());
                    }
                }
                Next::Command(Some(ToShard::Recorded { epoch, next })) => self.recorded(epoch, &next),
                Next::Failed(error) => return Err(error.into()),
                Next::Chunk(chunk) => self.pass_on(chunk?).await?,
            }
        }
    }

    /// Commands first, then failures, then records.
    async fn next(&mut self) -> Next {
        let Self { commands, writers, readers, drained, barrier_wanted, .. } = self;
        let failed = async {
            if writers.is_empty() {
                future::pending().await
            } else {
                select_all(writers.iter_mut().map(|writer| writer.failed())).await.0
            }
        };
        let chunk = async {
            if readers.is_empty() || *drained || *barrier_wanted {
                future::pending().await
            } else {
                select_all(readers.iter_mut().map(|reader| reader.next())).await.0
            }
        };
        tokio::select! { biased;
            command = commands.recv() => Next::Command(command),
            error = failed => Next::Failed(error),
            chunk = chunk => Next::Chunk(chunk),
        }
    }

    async fn pass_on(&mut self, chunk: Chunk) -> Result<(), JobError> {
        if !self.touched {
            self.touched = true;
            self.tell(FromShard::Touched { shard: self.shard, epoch: self.epoch }).await;
        }
        // Whoever was first goes last, so that a reader with a backlog does not keep the others from being asked.
        self.readers.rotate_left(1);
        let Chunk { batch, position, lag, skipped } = chunk;
        let split = batch.origin().split.clone();
        Counters::add(&self.around.counters.records_in, batch.len() as u64);
        Counters::add(&self.around.counters.skipped, skipped);
        let again = self.read_again(&batch);
        let batch = self.operate(batch)?;
        each(&mut self.writers, &batch, |writer, batch| writer.write(batch)).await?;
        Counters::add(&self.around.counters.repeated, again);
        self.around.counters.set_written(&split, position.next);
        if let Some(lag) = lag {
            self.around.counters.set_lag(&split, lag);
        }
        self.positions.insert(split, position);
        if !self.barrier_wanted && self.writers.iter().any(|writer| writer.wants_barrier()) {
            self.barrier_wanted = true;
            self.tell(FromShard::BarrierWanted { shard: self.shard, epoch: self.epoch }).await;
        }
        self.tell_if_drained().await;
        Ok(())
    }

    /// Records of the batch that this process has written before, or an epoch had that it has given up.
    fn read_again(&self, batch: &Batch) -> u64 {
        let split = &batch.origin().split;
        let written = self.around.counters.written_to(split);
        if self.positions.get(split).is_none_or(|position| position.next >= written) {
            return 0;
        }
        let is_again = |record: &RecordRef<'_>| u64::try_from(record.offset).is_ok_and(|at| at < written);
        batch.iter().filter(is_again).count() as u64
    }

    fn operate(&mut self, mut batch: Batch) -> Result<Batch, JobError> {
        let mut skipped = Skipped::default();
        for operator in &mut self.operators {
            batch = operator.apply(batch, &mut skipped)?;
        }
        if let Some(first) = &skipped.first {
            Counters::add(&self.around.counters.skipped, skipped.count);
            tracing::warn!(shard = %self.shard, skipped = skipped.count, "records were skipped, the first: {first}");
        }
        Ok(batch)
    }

    /// The barrier: prepares every writer, hands the share over, opens the next epoch.
    async fn end_epoch(&mut self, epoch: Epoch, recommit: bool) -> Result<(), JobError> {
        assert_eq!(epoch, self.epoch, "a barrier ends the epoch that the shard writes");
        self.around.crash.reach(Point::K0BeforeFlush, epoch);
        if self.carries && (self.touched || recommit) {
            each(&mut self.writers, &(), |writer, ()| writer.open_carrier()).await?;
        }
        let (mut handles, mut journals) = (Vec::new(), Vec::new());
        let prepared = each(&mut self.writers, &epoch, |writer, epoch| writer.prepare(*epoch)).await?;
        for (index, (writer, prepared)) in self.writers.iter_mut().zip(prepared).enumerate() {
            Counters::add(&self.around.counters.records_out, prepared.records);
            Counters::add(&self.around.counters.skipped, writer.take_skipped());
            self.around.counters.set_dropped(self.run, self.shard, index, writer.dropped());
            journals.extend(prepared.journal);
            if let Some(handle) = prepared.handle {
                let after = |deadline: Instant| deadline.saturating_duration_since(self.zero).as_millis();
                let deadline_ms = prepared.deadline.map_or(u64::MAX, |deadline| after(deadline) as u64);
                handles.push(PreparedHandle { handle, deadline_ms });
            }
        }
        let share = Share { positions: self.positions.clone(), handles, journals, drained: self.drained };
        let carrier = self.writers.iter_mut().find_map(|writer| writer.take_carrier());
        self.touched = false;
        self.barrier_wanted = false;
        self.epoch = epoch.next();
        for writer in &mut self.writers {
            writer.begin(self.epoch);
        }
        self.tell(FromShard::Prepared { shard: self.shard, epoch, share, carrier }).await;
        Ok(())
    }

    fn recorded(&mut self, epoch: Epoch, next: &BTreeMap<LaneId, Identity>) {
        for (writer, lane) in self.writers.iter_mut().zip(&self.lanes) {
            writer.recorded(epoch, lane.as_ref().and_then(|lane| next.get(lane)).copied());
        }
    }

    async fn tell_if_drained(&mut self) {
        if !self.drained && self.positions.values().all(hapax_commit::Position::at_end) {
            self.drained = true;
            self.tell(FromShard::Drained { shard: self.shard }).await;
        }
    }

    /// Borrows nothing of the shard, whose readers and writers are not shared between threads.
    fn tell(&self, event: FromShard) -> impl Future<Output = ()> + Send + use<> {
        let events = self.events.clone();
        async move {
            // A coordinator that is gone has ended the run; its end cancels this shard at the next await.
            let _ = events.send(event).await;
        }
    }
}
