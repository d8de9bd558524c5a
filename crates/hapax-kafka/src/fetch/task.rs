//! The fetcher's task: finds leaders, asks each of them, and queues what they answer.
//!
//! One task multiplexes everything, so that there are no races between partitions that change their leader:
//!
//! ```text
//!  slot without leader ─► refresh of metadata ─► leader ─► fetch (one at a time for each leader) ─► queue
//!        ▲                                                    │ stale leader, lost connection
//!        └────────────────────────────────────────────────────┘ out of range ─► probe of the range ─► error
//! ```

use super::{
    FetchError, FetcherConfig, TopicPartition,
    aborted::AbortedFilter,
    completed::{Bounds, Completed, Load},
    request::{Answer, Asked, Terms, ask},
    slot::{Phase, Queued, Shared, Slot, State, note_trouble},
};
use crate::{
    Client, ClientError, Connection, Isolation, KafkaCode, Leader, NodeId, TopicMetadata,
    admin::{OffsetSpec, list_offsets},
    client::backoff,
    error::{CallError, Class, RequestKind, classify},
    limits,
    record::Batches,
};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hapax_commit::TopicId;
use hapax_host::{Deadline, Instant};
use kafka_protocol::messages::fetch_response::PartitionData;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Something that was waited for.
enum Done {
    Fetched { node: NodeId, asked: Vec<Asked>, result: Result<(Connection, Answer), CallError> },
    Refreshed(Result<(), ClientError>),
    Probed { tp: TopicPartition, generation: u64, offset: i64, result: Result<(i64, i64), ClientError> },
}

type Work = FuturesUnordered<BoxFuture<'static, Done>>;

/// One leader.
#[derive(Default)]
struct Broker {
    connection: Option<Connection>,
    busy: bool,
    not_before: Option<Instant>,
    /// Its answers that are not read yet.
    unread: Arc<AtomicUsize>,
}

struct Task {
    shared: Arc<Shared>,
    client: Client,
    config: FetcherConfig,
    brokers: BTreeMap<NodeId, Broker>,
    refreshing: bool,
    next_report: Option<Instant>,
}

/// Nobody may wait for a task that is gone.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.state().end(FetchError::Stopped);
        self.0.readable.notify_one();
    }
}

pub(super) async fn run(shared: Arc<Shared>, client: Client, config: FetcherConfig) {
    let _guard = EndOnDrop(Arc::clone(&shared));
    let mut task =
        Task { shared, client, config, brokers: BTreeMap::new(), refreshing: false, next_report: None };
    let shared = Arc::clone(&task.shared);
    let host = task.client.host().clone();
    let mut work = Work::new();
    loop {
        let wait = task.start(&mut work);
        tokio::select! {
            Some(done) = work.next() => task.finish(done, &mut work),
            () = shared.work.notified() => {}
            () = host.sleep(wait) => {}
        }
        if shared.state().has_ended() {
            return;
        }
    }
}

impl Task {
    /// Starts all that can be started; how long nothing more will come by itself.
    fn start(&mut self, work: &mut Work) -> Duration {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let now = self.client.host().now();
        self.start_refresh(&mut state, now, work);
        self.start_fetches(&mut state, now, work);
        self.report(&state, now);
        let held = self.brokers.values().filter_map(|broker| broker.not_before).filter(|&at| at > now);
        let next = state.next_retry().filter(|&at| at > now).into_iter().chain(held).chain(self.next_report);
        let next = next.min().map(|at| at.saturating_duration_since(now));
        next.unwrap_or(limits::STILL_WAITING_REPORT)
    }

    fn start_refresh(&mut self, state: &mut State, now: Instant, work: &mut Work) {
        let mut topics = BTreeSet::new();
        for (tp, slot) in &mut state.slots {
            if slot.leader.is_some() || !slot.is_wanted(now) {
                continue;
            }
            let known = self.client.cached_topic(&tp.topic).filter(|_| !slot.stale);
            match known.and_then(|topic| locate(tp, &mut slot.topic_id, &topic).ok()) {
                Some(leader) => slot.leader = Some(leader),
                None => {
                    topics.insert(Arc::clone(&tp.topic));
                }
            }
        }
        if topics.is_empty() || self.refreshing {
            return;
        }
        self.refreshing = true;
        let client = self.client.clone();
        work.push(
            async move {
                let topics: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
                Done::Refreshed(client.refresh(&topics).await)
            }
            .boxed(),
        );
    }

    fn start_fetches(&mut self, state: &mut State, now: Instant, work: &mut Work) {
        let mut wanted: BTreeMap<NodeId, Vec<(u64, Asked)>> = BTreeMap::new();
        let mut led = BTreeSet::new();
        for (tp, slot) in &state.slots {
            let Some(leader) = slot.leader else { continue };
            led.insert(leader.node);
            if slot.is_wanted(now) {
                let asked = self.asked(tp, slot, leader);
                wanted.entry(leader.node).or_default().push((slot.turn, asked));
            }
        }
        self.brokers.retain(|node, broker| broker.busy || led.contains(node));
        for (node, mut wanted) in wanted {
            let broker = self.brokers.entry(node).or_default();
            let has_room = broker.unread.load(Ordering::Relaxed) < limits::FETCH_ANSWERS_PER_LEADER
                && self.shared.buffered.load(Ordering::Relaxed) < self.config.buffer_bytes;
            if broker.busy || !has_room || broker.not_before.is_some_and(|at| at > now) {
                continue;
            }
            wanted.sort_by_key(|(turn, _)| *turn);
            let asked = wanted.into_iter().map(|(_, asked)| asked).collect();
            broker.busy = true;
            let connection = broker.connection.take();
            work.push(fetch(self.client.clone(), node, connection, asked, self.terms()).boxed());
        }
    }

    fn asked(&self, tp: &TopicPartition, slot: &Slot, leader: Leader) -> Asked {
        Asked {
            tp: tp.clone(),
            generation: slot.generation,
            topic_id: slot.topic_id,
            offset: slot.fetch_from,
            leader_epoch: leader.leader_epoch,
            max_bytes: slot.max_bytes.unwrap_or(self.config.partition_max_bytes),
        }
    }

    fn terms(&self) -> Terms {
        Terms {
            isolation: self.config.isolation,
            max_wait: self.config.max_wait,
            min_bytes: self.config.min_bytes,
            max_bytes: self.config.max_bytes,
            timeout: self.client.config().request_timeout + self.config.max_wait,
        }
    }

    fn finish(&mut self, done: Done, work: &mut Work) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        match done {
            Done::Fetched { node, asked, result } => self.fetched(&mut state, node, &asked, result, work),
            Done::Refreshed(result) => self.refreshed(&mut state, result),
            Done::Probed { tp, generation, offset, result } => {
                self.probed(&mut state, &tp, generation, offset, result);
            }
        }
        drop(state);
        shared.readable.notify_one();
    }

    fn fetched(
        &mut self,
        state: &mut State,
        node: NodeId,
        asked: &[Asked],
        result: Result<(Connection, Answer), CallError>,
        work: &mut Work,
    ) {
        let now = self.client.host().now();
        let broker = self.brokers.entry(node).or_default();
        broker.busy = false;
        let (connection, mut answer) = match result {
            Ok(answered) => answered,
            Err(error) if error.is_retriable() => {
                let last: Arc<str> = error.to_string().into();
                for one in asked {
                    if let Some(slot) = state.slot(&one.tp, one.generation) {
                        lose_leader(slot);
                        self.trouble(slot, now, Arc::clone(&last));
                    }
                }
                return;
            }
            Err(error) => return state.end(FetchError::Client(error.into())),
        };
        broker.connection = Some(connection);
        broker.not_before = (!answer.throttle.is_zero()).then(|| now + answer.throttle);
        let unread = Arc::clone(&broker.unread);
        let bytes = answer.partitions.iter().flatten().filter_map(|data| Some(data.records.as_ref()?.len()));
        let load = Arc::new(Load::new(&unread, &self.shared, bytes.sum()));
        let turn = state.next_turn();
        for (one, data) in asked.iter().zip(answer.partitions.drain(..)) {
            let code = match &data {
                _ if answer.code != KafkaCode::NONE => answer.code,
                Some(data) => KafkaCode(data.error_code),
                // A broker leaves nothing out; if one does, it is asked again.
                None => KafkaCode::UNKNOWN_SERVER_ERROR,
            };
            match data.filter(|_| code == KafkaCode::NONE) {
                Some(data) => self.accept(state, one, data, turn, &load),
                None => self.refuse(state, one, code, now, work),
            }
        }
    }

    fn accept(&self, state: &mut State, one: &Asked, mut data: PartitionData, turn: u64, load: &Arc<Load>) {
        let Some(slot) = state.slot(&one.tp, one.generation) else { return };
        slot.trouble = None;
        let records = data.records.take().unwrap_or_default();
        if records.is_empty() {
            return;
        }
        match walk(&records, slot.fetch_from) {
            Walked::To(next) => slot.fetch_from = next,
            Walked::Nothing { needed } => {
                slot.max_bytes = i32::try_from(needed).ok().or(slot.max_bytes);
                return;
            }
            // The reader meets the damage in its place; nothing is fetched behind it.
            Walked::Damaged => slot.phase = Phase::Failed,
        }
        slot.turn = turn;
        let aborted = data.aborted_transactions.take().unwrap_or_default();
        let aborted = (self.config.isolation == Isolation::ReadCommitted)
            .then(|| AbortedFilter::new(aborted.iter().map(|one| (one.producer_id.0, one.first_offset))));
        let completed = Completed {
            tp: one.tp.clone(),
            generation: one.generation,
            position: one.offset,
            leader_epoch: None,
            bounds: Bounds {
                high_watermark: data.high_watermark,
                last_stable_offset: data.last_stable_offset,
                log_start: data.log_start_offset,
            },
            batches: Batches::new(records),
            aborted,
            _load: Arc::clone(load),
        };
        state.queue.push_back(Queued::Read(completed));
    }

    fn refuse(&self, state: &mut State, one: &Asked, code: KafkaCode, now: Instant, work: &mut Work) {
        let Some(slot) = state.slot(&one.tp, one.generation) else { return };
        let kind = RequestKind::Fetch;
        let error = ClientError::broker(kind, one.tp.to_string(), code);
        match classify(kind, code) {
            Class::Success | Class::Retry => self.trouble(slot, now, error.to_string().into()),
            Class::RefreshMetadata | Class::UnknownTopic => {
                lose_leader(slot);
                self.trouble(slot, now, error.to_string().into());
            }
            Class::OutOfRange => {
                slot.phase = Phase::Probing;
                let Asked { tp, generation, offset, .. } = one.clone();
                work.push(probe(self.client.clone(), tp, generation, offset).boxed());
            }
            Class::Duplicate
            | Class::RefreshCoordinator
            | Class::Split
            | Class::OutOfSequence
            | Class::Abortable
            | Class::FatalForLane
            | Class::Disturbed(_)
            | Class::UnknownOutcome
            | Class::NotFound
            | Class::AlreadyThere
            | Class::Refused(_) => state.queue_failure(&one.tp, one.generation, error.into()),
        }
    }

    fn refreshed(&mut self, state: &mut State, result: Result<(), ClientError>) {
        self.refreshing = false;
        let now = self.client.host().now();
        if let Err(error) = result {
            if !error.is_retriable() {
                return state.end(error.into());
            }
            let last: Arc<str> = error.to_string().into();
            for slot in state.slots.values_mut().filter(|slot| slot.leader.is_none() && slot.is_wanted(now)) {
                self.trouble(slot, now, Arc::clone(&last));
            }
            return;
        }
        let mut gone = Vec::new();
        for (tp, slot) in &mut state.slots {
            if slot.leader.is_some() || !slot.is_wanted(now) {
                continue;
            }
            // Assigned while the refresh ran: the next one asks for it.
            let Some(topic) = self.client.cached_topic(&tp.topic) else { continue };
            match locate(tp, &mut slot.topic_id, &topic) {
                Ok(leader) => {
                    slot.leader = Some(leader);
                    slot.stale = false;
                    if let Some(trouble) = &mut slot.trouble {
                        trouble.unknown_since = None;
                    }
                }
                Err(missing) => {
                    if let Some(error) = self.missing(tp, slot, missing, now) {
                        gone.push((tp.clone(), slot.generation, error));
                    }
                }
            }
        }
        for (tp, generation, error) in gone {
            state.queue_failure(&tp, generation, error);
        }
    }

    /// Notes that fresh metadata has no leader for a partition; the error, if that is for good.
    fn missing(
        &self,
        tp: &TopicPartition,
        slot: &mut Slot,
        missing: Missing,
        now: Instant,
    ) -> Option<FetchError> {
        slot.stale = true;
        let reason = match missing {
            Missing::Refused(error) => return Some(error.into()),
            Missing::Leader(reason) => {
                self.trouble(slot, now, reason.into());
                if let Some(trouble) = &mut slot.trouble {
                    trouble.unknown_since = None;
                }
                return None;
            }
            Missing::Partition(reason) => reason,
        };
        self.trouble(slot, now, reason.as_str().into());
        let trouble = slot.trouble.as_mut()?;
        trouble.unknown_since.get_or_insert(now);
        trouble.is_gone(now).then(|| FetchError::Gone { tp: tp.clone(), reason })
    }

    fn probed(
        &self,
        state: &mut State,
        tp: &TopicPartition,
        generation: u64,
        offset: i64,
        result: Result<(i64, i64), ClientError>,
    ) {
        let Some(slot) = state.slot(tp, generation) else { return };
        let now = self.client.host().now();
        slot.phase = Phase::Open;
        match result {
            Ok((start, end)) if offset < start || offset > end => {
                let error = FetchError::OutOfRange { tp: tp.clone(), offset, start, end };
                state.queue_failure(tp, generation, error);
            }
            // In range by now: a leader that has just been elected may be behind for a moment.
            Ok((start, end)) => {
                let last = format!("offset {offset} was called out of range, but is in {start} to {end}");
                self.trouble(slot, now, last.into());
            }
            Err(error) if error.is_retriable() => {
                lose_leader(slot);
                self.trouble(slot, now, error.to_string().into());
            }
            Err(error) => state.queue_failure(tp, generation, error.into()),
        }
    }

    fn trouble(&self, slot: &mut Slot, now: Instant, last: Arc<str>) {
        let host = self.client.host();
        note_trouble(slot, now, |failures| host.jitter(backoff(self.client.config(), failures)), last);
    }

    fn report(&mut self, state: &State, now: Instant) {
        let Some((partitions, tp, trouble)) = state.worst_trouble() else {
            self.next_report = None;
            return;
        };
        let at = *self.next_report.get_or_insert(trouble.since + limits::FETCH_TROUBLE_REPORT);
        if at <= now {
            let waited = now.saturating_duration_since(trouble.since);
            let (failures, last) = (trouble.failures, &*trouble.last);
            tracing::warn!(partitions, %tp, ?waited, failures, last, "cannot fetch, trying on");
            self.next_report = Some(now + limits::STILL_WAITING_REPORT);
        }
    }
}

fn lose_leader(slot: &mut Slot) {
    slot.leader = None;
    slot.stale = true;
}

/// Why metadata names no leader for a partition.
pub(super) enum Missing {
    /// There is an election, or the broker is not ready to say.
    Leader(String),
    /// The topic or partition is not there, or the topic is another one.
    Partition(String),
    /// The broker refuses to say.
    Refused(ClientError),
}

/// The leader of a partition by this metadata. Pins the topic's id if none is known yet.
pub(super) fn locate(
    tp: &TopicPartition,
    topic_id: &mut Option<TopicId>,
    topic: &TopicMetadata,
) -> Result<Leader, Missing> {
    if let Err(error) = topic.usable() {
        return Err(match error.code().map(|code| classify(RequestKind::Metadata, code)) {
            Some(Class::UnknownTopic) => Missing::Partition(error.to_string()),
            _ if error.is_retriable() => Missing::Leader(error.to_string()),
            _ => Missing::Refused(error),
        });
    }
    if topic.id.0 != [0; 16] {
        let known = *topic_id.get_or_insert(topic.id);
        if known != topic.id {
            return Err(Missing::Partition(format!(
                "the topic was deleted and made again (id {known} then, {} now)",
                topic.id
            )));
        }
    }
    let Some(partition) = topic.partition(tp.partition) else {
        let count = topic.partitions.len();
        return Err(Missing::Partition(format!("the topic has only {count} partitions")));
    };
    partition.leader.ok_or_else(|| Missing::Leader("the partition has no leader".to_owned()))
}

/// What the headers of an answer's batches say.
enum Walked {
    /// All is well up to this offset.
    To(i64),
    /// There is not one whole batch; the next one takes this many bytes.
    Nothing {
        needed: usize,
    },
    Damaged,
}

fn walk(records: &Bytes, from: i64) -> Walked {
    let mut batches = Batches::new(records.clone());
    let mut next = None;
    for batch in &mut batches {
        match batch {
            Ok(batch) => next = Some(batch.header().next_offset()),
            Err(_) => return Walked::Damaged,
        }
    }
    match next {
        Some(next) => Walked::To(next.max(from)),
        None => Walked::Nothing { needed: batches.cut_batch_bytes().unwrap_or(0) },
    }
}

async fn fetch(
    client: Client,
    node: NodeId,
    connection: Option<Connection>,
    asked: Vec<Asked>,
    terms: Terms,
) -> Done {
    let exchange = async {
        let connection = match connection.filter(|connection| !connection.is_closed()) {
            Some(connection) => connection,
            None => client.dedicated_connection(node).await?,
        };
        let answer = ask(&connection, &asked, &terms).await?;
        Ok((connection, answer))
    };
    let result = exchange.await;
    Done::Fetched { node, asked, result }
}

/// Which offsets the log has.
async fn probe(client: Client, tp: TopicPartition, generation: u64, offset: i64) -> Done {
    let result =
        log_range(&client, &tp, Deadline::after(client.host().now(), Some(limits::LOOKUP_TIMEOUT))).await;
    Done::Probed { tp, generation, offset, result }
}

/// Start and end (the high watermark) of a partition's log.
pub(super) async fn log_range(
    client: &Client,
    tp: &TopicPartition,
    deadline: Deadline,
) -> Result<(i64, i64), ClientError> {
    let asked = [(&*tp.topic, tp.partition)];
    let isolation = Isolation::ReadUncommitted;
    let start = list_offsets(client, &asked, OffsetSpec::Earliest, isolation, deadline).await?;
    let end = list_offsets(client, &asked, OffsetSpec::Latest, isolation, deadline).await?;
    let found = |listed: &[crate::admin::ListedOffset]| listed.first().and_then(|one| one.offset);
    match (found(&start), found(&end)) {
        (Some(start), Some(end)) => Ok((start, end)),
        _ => Err(CallError::Malformed {
            api: "ListOffsets",
            node: NodeId::BOOTSTRAP,
            reason: format!("no offset for {tp}").into(),
        }
        .into()),
    }
}
