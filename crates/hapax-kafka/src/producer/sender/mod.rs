//! The sender: one task that takes batches to the leaders of their partitions.
//!
//! A pass under the lock collects what may be sent and hands the requests to the connections, which only enqueue them;
//! everything that takes time (connecting, metadata, AddPartitionsToTxn, answers) is a future beside it, so one slow
//! broker holds up nobody else.

mod answer;

use super::{
    error::ProduceError,
    lane::Shared,
    partition_queue::{Ticket, backoff},
    request::{self, Part},
    state::State,
};
use crate::{CallError, Client, ClientError, Connection, NodeId, limits, transaction};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hapax_commit::{Identity, TransactionVersion};
use hapax_host::{Deadline, Instant};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Runs until it is aborted.
pub(super) async fn run(client: Client, shared: Arc<Shared>) {
    let _end = EndGuard(Arc::clone(&shared));
    let mut sender = Sender {
        next_report: shared.host.now() + limits::STILL_UNDELIVERED_REPORT,
        client,
        shared,
        links: BTreeMap::new(),
        tasks: FuturesUnordered::new(),
        is_refreshing: false,
        wants_metadata: false,
        turn: 0,
    };
    loop {
        let next = sender.pass();
        sender.shared.progress.notify_waiters();
        sender.wait(next).await;
    }
}

/// A sender that ends while its producer is in use must not leave anybody waiting.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.state().fail(ProduceError::SenderEnded);
        self.0.progress.notify_waiters();
    }
}

/// The way to one broker.
#[derive(Default)]
struct Link {
    connection: Option<Connection>,
    is_opening: bool,
    retry_at: Option<Instant>,
    failures: u32,
    in_flight: usize,
}

/// One batch of a request that is on its way.
struct Sent {
    index: usize,
    ticket: Ticket,
}

/// Something that took time and is over.
enum Event {
    Answered { node: NodeId, version: i16, sent: Vec<Sent>, result: Result<Bytes, CallError> },
    Connected { node: NodeId, result: Result<Connection, CallError> },
    Refreshed(Result<(), ClientError>),
    Added { opening: u64, indexes: Vec<usize>, result: Result<(), ClientError> },
    Identified { opening: u64, index: usize, result: Result<Identity, ClientError> },
}

struct Sender {
    client: Client,
    shared: Arc<Shared>,
    links: BTreeMap<NodeId, Link>,
    tasks: FuturesUnordered<BoxFuture<'static, Event>>,
    is_refreshing: bool,
    wants_metadata: bool,
    /// Which partition comes first in the next pass, so that a small window is shared fairly.
    turn: usize,
    next_report: Instant,
}

/// Requests of one pass: for each broker the batches, one for each partition.
type Plan = BTreeMap<NodeId, Vec<(usize, Part)>>;

impl Sender {
    async fn wait(&mut self, next: Option<Instant>) {
        let shared = Arc::clone(&self.shared);
        let timer = async {
            match next {
                Some(at) => shared.host.sleep(at.saturating_duration_since(shared.host.now())).await,
                None => std::future::pending().await,
            }
        };
        // In this order always, so that a simulated run can be repeated.
        let event = tokio::select! {
            biased;
            event = self.tasks.next(), if !self.tasks.is_empty() => event,
            () = shared.wake.notified() => None,
            () = timer => None,
        };
        if let Some(event) = event {
            self.handle(event);
        }
        while let Some(Some(event)) = self.tasks.next().now_or_never() {
            self.handle(event);
        }
    }

    /// One look at everything; answers when to look again at the latest.
    fn pass(&mut self) -> Option<Instant> {
        let shared = Arc::clone(&self.shared);
        let now = shared.host.now();
        let mut state = shared.state();
        if state.failure().is_some() || state.epoch.is_none() {
            return None;
        }
        self.expire(&mut state, now);
        if state.failure().is_some() {
            return None;
        }
        seal_due(&mut state, now);
        self.send(&mut state, now);
        if self.wants_metadata && !self.is_refreshing {
            self.refresh(&state);
        }
        let State { partitions, busy, .. } = &mut *state;
        busy.retain(|&index| {
            partitions[index].is_listed = !partitions[index].is_idle();
            partitions[index].is_listed
        });
        self.next_look(&state, now)
    }

    fn expire(&mut self, state: &mut State, now: Instant) {
        for index in state.busy.clone() {
            while let Some(error) = state.expired(index, now) {
                state.drop_oldest(index, error);
                if state.failure().is_some() {
                    return;
                }
            }
        }
        if now >= self.next_report {
            self.next_report = now + limits::STILL_UNDELIVERED_REPORT;
            state.report(now);
        }
    }

    /// Sends until no broker or no partition takes more.
    fn send(&mut self, state: &mut State, now: Instant) {
        let mut to_add = Vec::new();
        loop {
            let plan = self.plan(state, now, &mut to_add);
            if plan.is_empty() {
                break;
            }
            for (node, parts) in plan {
                self.dispatch(state, node, parts, now);
            }
        }
        if !to_add.is_empty() {
            self.add_partitions(state, to_add, now);
        }
    }

    fn plan(&mut self, state: &mut State, now: Instant, to_add: &mut Vec<usize>) -> Plan {
        let mut plan = Plan::new();
        let mut sizes: BTreeMap<NodeId, usize> = BTreeMap::new();
        let count = state.busy.len();
        self.turn = self.turn.wrapping_add(1);
        for place in 0..count {
            let index = state.busy[(place + self.turn) % count];
            let Some(node) = self.route(state, index, now, to_add) else { continue };
            let size = sizes.entry(node).or_default();
            if *size >= limits::MAX_PRODUCE_REQUEST {
                continue;
            }
            let writer = &mut state.partitions[index];
            let Some(sending) = writer.queue.send(now) else { continue };
            *size += sending.batch.len();
            let topic = Arc::clone(&writer.topic.0.name);
            plan.entry(node).or_default().push((index, Part { topic, partition: writer.partition, sending }));
        }
        plan
    }

    /// The broker that a batch of the partition can be sent to now.
    fn route(
        &mut self,
        state: &mut State,
        index: usize,
        now: Instant,
        to_add: &mut Vec<usize>,
    ) -> Option<NodeId> {
        let writer = &mut state.partitions[index];
        if writer.is_pending {
            return None;
        }
        if writer.queue.needs_identity() {
            self.renew_identity(state, index, now);
            return None;
        }
        if writer.queue.sendable_at(now)? > now {
            return None;
        }
        let is_v1 = state.config.transaction_version == TransactionVersion::V1;
        if state.config.transactional && is_v1 && !writer.is_added {
            writer.is_pending = true;
            to_add.push(index);
            return None;
        }
        let leader = self.client.cached_leader(&writer.topic.0.name, writer.partition);
        let Some(leader) = leader.filter(|_| !writer.awaits_metadata) else {
            self.wants_metadata = true;
            return None;
        };
        let most = state.config.max_in_flight;
        self.is_open(leader.node, now, most).then_some(leader.node)
    }

    /// Does the broker take a request now? Connects to it where need be.
    fn is_open(&mut self, node: NodeId, now: Instant, most: usize) -> bool {
        let link = self.links.entry(node).or_default();
        if link.connection.as_ref().is_some_and(|connection| !connection.is_closed()) {
            return link.in_flight < most;
        }
        link.connection = None;
        if !link.is_opening && link.retry_at.is_none_or(|at| at <= now) {
            link.is_opening = true;
            let client = self.client.clone();
            let open = async move { Event::Connected { node, result: client.connection(node).await } };
            self.tasks.push(open.boxed());
        }
        false
    }

    fn dispatch(&mut self, state: &mut State, node: NodeId, mut parts: Vec<(usize, Part)>, now: Instant) {
        let wall_ms = self.shared.host.wall_ms();
        if let Some(epoch) = &mut state.epoch {
            epoch.started.get_or_insert((wall_ms, now));
        }
        parts.sort_by(|(_, a), (_, b)| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        let (indexes, parts): (Vec<usize>, Vec<Part>) = parts.into_iter().unzip();
        let sent = indexes.iter().zip(&parts);
        let sent: Vec<Sent> =
            sent.map(|(&index, part)| Sent { index, ticket: part.sending.ticket }).collect();
        let link = self.links.entry(node).or_default();
        let connection = link.connection.clone().expect("a batch is routed to an open connection");
        let versions = request::versions(state.config.transactional, state.config.transaction_version);
        let version = match connection.choose(request::API_KEY, versions) {
            Ok(version) => version,
            Err(error) => return self.not_answered(state, &sent, &error, now),
        };
        let transaction = state.transaction();
        let id = transaction.as_ref().map(|(id, _)| id.as_str());
        let timeout = state.config.request_timeout;
        let body = request::encode(id, broker_timeout(timeout), &parts);
        link.in_flight += 1;
        let answer = connection.send_raw(request::API_KEY, version, body, timeout);
        self.tasks.push(async move { Event::Answered { node, version, sent, result: answer.await } }.boxed());
    }

    /// V1: partitions belong to the transaction before anything is produced to them.
    fn add_partitions(&mut self, state: &mut State, indexes: Vec<usize>, now: Instant) {
        let (id, identity) = state.transaction().expect("partitions are added to a transaction");
        if let Some(epoch) = &mut state.epoch {
            epoch.started.get_or_insert((self.shared.host.wall_ms(), now));
        }
        let mut topics: BTreeMap<Arc<str>, Vec<i32>> = BTreeMap::new();
        for &index in &indexes {
            let writer = &state.partitions[index];
            topics.entry(Arc::clone(&writer.topic.0.name)).or_default().push(writer.partition);
        }
        let (client, opening) = (self.client.clone(), state.opening);
        let deadline = Deadline::after(now, state.config.delivery_timeout);
        let add = async move {
            let topics: Vec<(&str, &[i32])> = topics.iter().map(|(name, list)| (&**name, &**list)).collect();
            let result = transaction::add_partitions(&client, &id, identity, &topics, deadline).await;
            Event::Added { opening, indexes, result }
        };
        self.tasks.push(add.boxed());
    }

    /// Outside transactions: the partition's batches go on under an identity of their own.
    fn renew_identity(&mut self, state: &mut State, index: usize, now: Instant) {
        assert!(!state.config.transactional, "a transaction has one identity");
        state.partitions[index].is_pending = true;
        let (client, opening) = (self.client.clone(), state.opening);
        let deadline = Deadline::after(now, state.config.delivery_timeout);
        let init = async move {
            let result = transaction::init_idempotent(&client, deadline).await;
            Event::Identified { opening, index, result }
        };
        self.tasks.push(init.boxed());
    }

    fn refresh(&mut self, state: &State) {
        self.is_refreshing = true;
        self.wants_metadata = false;
        let topics: std::collections::BTreeSet<Arc<str>> =
            state.busy.iter().map(|&index| Arc::clone(&state.partitions[index].topic.0.name)).collect();
        let client = self.client.clone();
        let refresh = async move {
            let topics: Vec<&str> = topics.iter().map(|name| &**name).collect();
            Event::Refreshed(client.refresh(&topics).await)
        };
        self.tasks.push(refresh.boxed());
    }

    fn next_look(&self, state: &State, now: Instant) -> Option<Instant> {
        let config = &state.config;
        let partitions = state.busy.iter().flat_map(|&index| {
            let writer = &state.partitions[index];
            let linger = writer.open_since().filter(|_| writer.queue.has_room()).map(|at| at + config.linger);
            let retry = writer.queue.sendable_at(now).filter(|at| *at > now);
            let expiry = config.delivery_timeout.and_then(|limit| Some(writer.oldest()?.since + limit));
            [linger, retry, expiry]
        });
        let links = self.links.values().map(|link| link.retry_at.filter(|at| *at > now));
        let report =
            (config.delivery_timeout.is_none() && !state.busy.is_empty()).then_some(self.next_report);
        partitions.chain(links).chain([report]).flatten().min()
    }

    /// The wait before another attempt.
    fn pause(&self, failures: u32) -> Duration {
        let config = self.client.config();
        self.shared.host.jitter(backoff(config.retry_backoff, config.retry_backoff_max, failures))
    }
}

/// Seals open batches whose linger is over, or for which nobody should wait. A batch that could not be sent anyway
/// stays open for more records.
fn seal_due(state: &mut State, now: Instant) {
    let hurry = state.is_flushing || state.is_full;
    for place in 0..state.busy.len() {
        let index = state.busy[place];
        let writer = &state.partitions[index];
        let due = writer.open_since().is_some_and(|since| hurry || since + state.config.linger <= now);
        if due && writer.queue.has_room() {
            state.seal(index);
        }
    }
    state.is_full = false;
}

/// How long a broker may wait for its replicas: less than we wait for the broker, so that it answers before we give
/// the connection up.
fn broker_timeout(request_timeout: Duration) -> Duration {
    request_timeout * 3 / 4
}
