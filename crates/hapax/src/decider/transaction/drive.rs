//! Drives every shard's ledger from barrier to barrier: carries out what the ledgers ask for.
//!
//! Owns the timing of barriers and the tasks of requests. Decides nothing: the ledgers do, each for its own shard.

use super::{TransactionDecider, ending::Ending, object::Tidy};
use crate::{
    crash::Point,
    decider::{RunEnd, ShardLinks},
    error::{Code, JobError},
    limits,
    run::shard::{FromShard, ToShard},
    stop::StopSignal,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hapax_commit::{
    Epoch, Identity, LaneId, ShardId, TransactionalId, bookmark,
    evidence::Described,
    ledger::{Carrier, Effect, End, Flushed, Input, Ledger},
};
use hapax_host::Instant;
use hapax_kafka::transaction::EndTxnAnswer;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::sync::mpsc;

/// Something that took time and is over.
struct Done {
    shard: ShardId,
    epoch: Epoch,
    what: What,
}

enum What {
    Offsets(Result<(), JobError>),
    Ended(EndTxnAnswer, Carrier),
    Told(Result<(), JobError>),
    /// What a coordinator says of an id of an idle run.
    Looked(TransactionalId, Described),
    /// Objects with positions of older epochs were removed, or will be by a later run.
    Tidied,
}

/// Drives the shards to the end of the run.
pub(super) async fn drive(
    decider: &TransactionDecider,
    links: ShardLinks,
    stop: StopSignal,
) -> Result<RunEnd, JobError> {
    let progress = decider.progress.as_ref().expect("a run is driven after the job was taken over");
    let now = decider.start.host.now();
    let ledgers =
        decider.shards().map(|shard| (shard, decider.ledger(shard, progress.epoch(shard)))).collect();
    let drive = Drive {
        decider,
        ending: decider.ending(),
        ledgers,
        commands: links.commands,
        events: links.events,
        tasks: FuturesUnordered::new(),
        next: BTreeMap::new(),
        committed: decider.shards().map(|shard| (shard, now)).collect(),
        ends: BTreeMap::new(),
        drained: BTreeSet::new(),
        error: None,
        looked: now,
        stop_by: None,
        shards_gone: false,
        tidy: Tidy::of(decider),
    };
    drive.run(stop).await
}

impl TransactionDecider {
    /// How long ago its offsets were committed is not known, and a job that is started again and again may never come
    /// to where it would commit them: each run does so first.
    fn ledger(&self, shard: ShardId, last: Epoch) -> Ledger {
        let mut ledger = Ledger::new(last);
        if self.has_place(shard) {
            ledger.step(Input::RecommitDue);
        }
        ledger
    }

    /// A shard without a split has no offset among those of the source's group.
    pub(super) fn has_place(&self, shard: ShardId) -> bool {
        !self.home.places_of(&self.start.record.layout, shard).is_empty()
    }
}

struct Drive<'a> {
    decider: &'a TransactionDecider,
    ending: Ending,
    ledgers: BTreeMap<ShardId, Ledger>,
    commands: BTreeMap<ShardId, mpsc::Sender<ToShard>>,
    events: mpsc::Receiver<FromShard>,
    tasks: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The identity that ending a shard's epoch answered, until its id is free.
    next: BTreeMap<ShardId, Identity>,
    /// When a shard's offsets were committed last by this run, or else when it began: they are committed anew soon then.
    committed: BTreeMap<ShardId, Instant>,
    ends: BTreeMap<ShardId, End>,
    /// Shards that have read everything.
    drained: BTreeSet<ShardId>,
    /// The error behind a failure that a ledger was told of.
    error: Option<JobError>,
    /// When a coordinator was asked last, in one way or the other.
    looked: Instant,
    stop_by: Option<Instant>,
    /// Every shard has ended.
    shards_gone: bool,
    /// Objects with positions.
    tidy: Tidy,
}

enum Event {
    Tick,
    Shard(Option<FromShard>),
    Done(Done),
    StopWanted,
    StopOverdue,
}

impl Drive<'_> {
    async fn run(mut self, mut stop: StopSignal) -> Result<RunEnd, JobError> {
        let interval = self.decider.start.plan.settings.interval;
        let mut due = self.decider.start.host.now() + interval;
        loop {
            if let Some(end) = self.effects().await {
                self.tell_progress();
                return end;
            }
            let event = self.next_event(&mut stop, due).await;
            if matches!(event, Event::Tick) {
                due = self.decider.start.host.now() + interval;
            }
            self.take(event)?;
        }
    }

    async fn next_event(&mut self, stop: &mut StopSignal, due: Instant) -> Event {
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
        tokio::select! { biased;
            () = stop_wanted => Event::StopWanted,
            Some(done) = self.tasks.next(), if !self.tasks.is_empty() => Event::Done(done),
            event = self.events.recv(), if !self.shards_gone => Event::Shard(event),
            () = overdue => Event::StopOverdue,
            () = host.sleep(due.saturating_duration_since(now)) => Event::Tick,
        }
    }

    fn take(&mut self, event: Event) -> Result<(), JobError> {
        match event {
            Event::Tick => self.tick(),
            Event::StopWanted => {
                let budget = self.decider.start.plan.settings.stop_budget;
                self.stop_by = Some(self.decider.start.host.now() + budget);
                self.step_all(&Input::StopWanted);
            }
            Event::StopOverdue => return Err(self.overdue()),
            Event::Done(done) => self.done(done),
            Event::Shard(None) => self.shards_gone = true,
            Event::Shard(Some(event)) => self.shard_said(event),
        }
        Ok(())
    }

    fn tick(&mut self) {
        self.tell_progress();
        let (now, limit) = (self.decider.start.host.now(), self.decider.start.plan.settings.recommit);
        for (shard, ledger) in &mut self.ledgers {
            let since = now.saturating_duration_since(self.committed[shard]);
            if since >= limit && self.decider.has_place(*shard) {
                ledger.step(Input::RecommitDue);
            }
            ledger.step(Input::Tick);
        }
        self.look_when_idle(now);
    }

    /// A run that commits nothing would never find out that another one has taken the job over: it looks now and then.
    fn look_when_idle(&mut self, now: Instant) {
        if !self.tasks.is_empty() {
            self.looked = now;
        }
        if now.saturating_duration_since(self.looked) < limits::IDLE_CHAIN_CHECK {
            return;
        }
        self.looked = now;
        let Some((&shard, ledger)) = self.ledgers.iter().find(|(_, ledger)| !ledger.has_ended()) else {
            return;
        };
        // The id after next is the one that nothing is written on.
        let epoch = ledger.writing().next();
        let id = self.decider.lane(shard).transactional_id(&self.decider.start.plan.name, epoch);
        let (brokers, client) = (self.decider.start.brokers.clone(), self.decider.client.clone());
        let look = async move {
            let described = brokers.describe(&client, &id.to_string()).await;
            Done { shard, epoch, what: What::Looked(id, described) }
        };
        self.tasks.push(look.boxed());
    }

    fn looked(&mut self, shard: ShardId, id: &TransactionalId, described: &Described) {
        let own = self.decider.start.own.all();
        if own.get(id).is_some_and(|own| bookmark::is_anothers(own, described)) {
            let message = format!(
                "job {}: {id} has an identity that is not of this process ({described:?}): taken over, as it seems",
                self.decider.start.plan.name
            );
            self.failed(shard, JobError::IdTaken { id: id.to_string(), message });
        }
    }

    fn step_all(&mut self, input: &Input) {
        self.ledgers.values_mut().for_each(|ledger| ledger.step(input.clone()));
    }

    fn step(&mut self, shard: ShardId, input: Input) {
        let ledger = self.ledgers.get_mut(&shard).expect("only shards of the layout are at work");
        ledger.step(input);
        debug_assert_eq!(ledger.check(), Ok(()));
    }

    fn shard_said(&mut self, event: FromShard) {
        match event {
            FromShard::Touched { shard, epoch } => self.step(shard, Input::Touched { epoch }),
            FromShard::BarrierWanted { shard, epoch } => self.step(shard, Input::BarrierWanted { epoch }),
            FromShard::Prepared { shard, epoch, share, carrier } => {
                if let Some(carrier) = &carrier {
                    self.decider.start.own.add(&carrier.transactional_id, carrier.identity);
                }
                let flushed = Flushed { carrier, positions: share.positions };
                self.step(shard, Input::Flushed { epoch, flushed });
            }
            FromShard::Drained { shard } => {
                self.step(shard, Input::Drained);
                self.drained.insert(shard);
                if self.drained.len() == self.ledgers.len() {
                    self.step_all(&Input::AllDrained);
                }
            }
            FromShard::Failed { shard, error } => self.failed(shard, error),
        }
    }

    fn failed(&mut self, shard: ShardId, error: JobError) {
        let why = format!("shard {shard}: {}", error.chain());
        self.error.get_or_insert(error);
        self.step(shard, Input::Failed { why });
    }

    fn done(&mut self, done: Done) {
        let Done { shard, epoch, what } = done;
        let crash = self.decider.start.crash.clone();
        match what {
            What::Offsets(Ok(())) => {
                crash.reach(Point::K1oOffsetsTaken, epoch);
                self.step(shard, Input::OffsetsTaken { epoch });
            }
            What::Ended(EndTxnAnswer::Committed { next }, carrier) => {
                crash.reach(Point::K4Ended, epoch);
                self.decider.start.own.add(&carrier.transactional_id, next);
                self.next.insert(shard, next);
                self.step(shard, Input::Committed { epoch });
            }
            What::Ended(answer, carrier) => {
                let error = self.ending.not_committed(epoch, &carrier, &answer);
                self.failed(shard, error);
            }
            What::Looked(id, described) => self.looked(shard, &id, &described),
            What::Tidied => {}
            What::Told(Ok(())) => self.step(shard, Input::Told { epoch }),
            What::Offsets(Err(error)) | What::Told(Err(error)) => self.failed(shard, error),
        }
    }

    /// Carries out what the ledgers ask for; the end of the run, when it has come.
    async fn effects(&mut self) -> Option<Result<RunEnd, JobError>> {
        let shards: Vec<ShardId> = self.ledgers.keys().copied().collect();
        for shard in shards {
            while let Some(effect) = self.ledgers.get_mut(&shard).and_then(Ledger::poll_effect) {
                match effect {
                    Effect::SendBarrier { epoch, last, recommit } => {
                        self.tell_shard(shard, ToShard::Barrier { epoch, last, recommit }).await;
                    }
                    Effect::SendOffsets { epoch, carrier, positions } => {
                        self.send_offsets(shard, epoch, carrier, &positions);
                    }
                    Effect::EndTxn { epoch, carrier } => self.end_txn(shard, epoch, carrier),
                    Effect::Tell { epoch, carrier } => self.tell(shard, epoch, carrier),
                    Effect::Recorded { epoch, committed } => self.recorded(shard, epoch, committed).await,
                    Effect::End(End::Failed(why)) => return Some(Err(self.error_of(why))),
                    Effect::End(end) => drop(self.ends.insert(shard, end)),
                }
            }
        }
        if self.ends.len() < self.ledgers.len() {
            return None;
        }
        let finished = self.ends.values().all(|end| *end == End::Finished);
        Some(Ok(if finished { RunEnd::Finished } else { RunEnd::Stopped }))
    }

    /// Borrows nothing of the drive, whose tasks are not shared between threads.
    fn tell_shard(&self, shard: ShardId, command: ToShard) -> impl Future<Output = ()> + Send + use<> {
        let commands = self.commands[&shard].clone();
        async move {
            // A shard that is gone has told why, or has had its last barrier.
            let _ = commands.send(command).await;
        }
    }

    fn send_offsets(
        &mut self,
        shard: ShardId,
        epoch: Epoch,
        carrier: Carrier,
        positions: &hapax_commit::Positions,
    ) {
        self.decider.start.crash.reach(Point::K1Prepared, epoch);
        let decider = self.decider;
        let carried = decider.home.offsets(shard, epoch, carrier.identity, positions, decider.room);
        self.tidy.carries(shard, carried.object.as_ref());
        let (ending, crash) = (self.ending.clone(), decider.start.crash.clone());
        let send = async move {
            let put = || crash.reach(Point::K1pPositionsPut, epoch);
            let what = What::Offsets(ending.carry(&carrier, &carried, put).await);
            Done { shard, epoch, what }
        };
        self.tasks.push(send.boxed());
    }

    fn end_txn(&mut self, shard: ShardId, epoch: Epoch, carrier: Carrier) {
        let (ending, crash) = (self.ending.clone(), self.decider.start.crash.clone());
        self.decider.start.own.ending(&carrier.transactional_id, carrier.identity, carrier.version);
        let end = async move {
            let written = || crash.reach(Point::K3EndTxnSent, epoch);
            let answer = ending.commit(&carrier, written).await;
            Done { shard, epoch, what: What::Ended(answer, carrier) }
        };
        self.tasks.push(end.boxed());
    }

    fn tell(&mut self, shard: ShardId, epoch: Epoch, carrier: Carrier) {
        let (ending, places) = (self.ending.clone(), self.places(shard));
        let tell = async move {
            let what = What::Told(ending.tell(&carrier, &places).await);
            Done { shard, epoch, what }
        };
        self.tasks.push(tell.boxed());
    }

    /// Where the shard's offsets are.
    fn places(&self, shard: ShardId) -> BTreeSet<(String, i32)> {
        self.decider.home.places_of(&self.decider.start.record.layout, shard)
    }

    /// The epoch is committed: its id is free.
    async fn recorded(&mut self, shard: ShardId, epoch: Epoch, committed: bool) {
        if committed {
            self.decider.start.crash.reach(Point::K5Proven, epoch);
            let host = &self.decider.start.host;
            self.committed.insert(shard, host.now());
            let committed_ms = host.wall_ms();
            self.decider.start.progress.send_modify(|progress| {
                progress.epoch = progress.epoch.max(epoch.0);
                progress.committed_ms = committed_ms;
            });
            self.tell_progress();
            if let Some(tidied) = self.tidy.after(shard) {
                let done = tidied.map(move |()| Done { shard, epoch, what: What::Tidied });
                self.tasks.push(done.boxed());
            }
        }
        let lane = LaneId { cluster: self.decider.cluster.clone(), shard };
        let next = self.next.remove(&shard).map(|next| (lane, next)).into_iter().collect();
        self.tell_shard(shard, ToShard::Recorded { epoch, next: Arc::new(next) }).await;
    }

    fn tell_progress(&self) {
        let counters = &self.decider.start.counters;
        self.decider.start.progress.send_modify(|progress| counters.fill(progress));
    }

    fn error_of(&mut self, why: String) -> JobError {
        let job = &self.decider.start.plan.name;
        self.error.take().unwrap_or_else(|| JobError::Run {
            code: Code::EpochGivenUp,
            message: format!("job {job}: {why}"),
        })
    }

    fn overdue(&mut self) -> JobError {
        JobError::Run {
            code: Code::StopUnfinished,
            message: format!(
                "job {}: asked to stop, the last epoch was not committed within {:?} ({}); nothing is lost, the next \
                 run reads it again",
                self.decider.start.plan.name,
                self.decider.start.plan.settings.stop_budget,
                self.error.as_ref().map_or_else(|| "a broker is slow".to_owned(), JobError::chain),
            ),
        }
    }
}
