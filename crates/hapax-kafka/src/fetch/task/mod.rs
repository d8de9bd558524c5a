//! The fetcher's task: finds leaders, asks each of them, and queues what they answer.
//!
//! One task multiplexes everything, so that there are no races between partitions that change their leader:
//!
//! ```text
//!  slot without leader ─► refresh of metadata ─► leader ─► fetch (one at a time for each leader) ─► queue
//!        ▲                                                    │ stale leader, lost connection
//!        └────────────────────────────────────────────────────┘ out of range ─► probe of the range ─► error
//! ```

mod finish;

use super::{
    FetchError, FetcherConfig, TopicPartition,
    place::locate,
    range::log_range,
    request::{Answer, Asked, Terms, ask},
    slot::{Shared, Slot, State, note_trouble},
};
use crate::{Client, ClientError, Connection, Leader, NodeId, client::backoff, error::CallError, limits};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hapax_host::{Deadline, Instant};
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
        // In this order always, so that a simulated run can be repeated.
        tokio::select! {
            biased;
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

    fn trouble(&self, slot: &mut Slot, now: Instant, last: Arc<str>) {
        let host = self.client.host();
        note_trouble(slot, now, |failures| host.jitter(backoff(self.client.config(), failures)), last);
    }

    fn report(&mut self, state: &State, now: Instant) {
        let Some((partitions, tp, trouble)) = state.worst_trouble() else {
            self.next_report = None;
            return;
        };
        let patience = trouble.since + limits::FETCH_TROUBLE_REPORT;
        let at = self.next_report.map_or(patience, |at| at.max(patience));
        self.next_report = Some(at);
        if at <= now {
            let waited = now.saturating_duration_since(trouble.since);
            let (failures, last) = (trouble.failures, &*trouble.last);
            tracing::warn!(partitions, %tp, ?waited, failures, last, "cannot fetch, trying on");
            self.next_report = Some(now + limits::STILL_WAITING_REPORT);
        }
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
