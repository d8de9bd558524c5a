//! The broker as a pure machine: decoded requests, test steps and `now` go in, answers come out. No socket, no clock,
//! no randomness but a seed, so that a TCP server, a simulator and a model checker run the same code.
//!
//! ```text
//! step(now, input):  timers due up to `now` fire in the order of their times, each at its own time
//!                    -> the input is applied at `now` -> readers that wait are looked at -> answers
//! ```
//!
//! Equal inputs at equal times from an equal seed give equal answers, so a journal of the inputs that change something
//! is a whole backup. Timers fire at their own time and not at that of the step that finds them due, so of the passing
//! of time a journal needs only how far timers have fired, where no input that it has says so.

mod admin;
mod append;
mod catalog;
mod clean;
mod cluster;
mod code;
mod config;
mod describe;
mod digest;
mod fetch;
mod field;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod group;
mod list_offsets;
mod log;
#[cfg(test)]
mod probe;
mod produce;
mod producers;
mod step;
mod timer;
mod transaction;
mod validate;

pub use code::Code;

pub(crate) use catalog::CONSUMER_OFFSETS;
pub use step::Step;
pub use timer::Timer;
pub use transaction::AppendFault;
pub(crate) use transaction::{Admission, Admit, partition_for};

use crate::wire::{Request, Response};
use digest::Feed as _;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds since 1970.
pub type Millis = i64;

/// No period, wait or jump is longer: 100 years. So no sum of times leaves its range.
pub(crate) const LONGEST_MS: Millis = 100 * 365 * 24 * 3_600_000;

/// A request that is not answered yet, named by whoever hands it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A listener that poses as a broker of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub i32);

/// A partition by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicPartition {
    pub(crate) topic: String,
    pub(crate) partition: i32,
}

impl TopicPartition {
    pub(crate) fn new(topic: impl Into<String>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

/// What a request says beside its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Names the answer.
    pub ticket: Ticket,
    /// The listener that it came in by.
    pub node: NodeId,
    /// The version of request and answer.
    pub version: i16,
    /// What the client calls itself.
    pub client_id: Option<String>,
}

/// What happens to the broker.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "handed in once and taken apart: a box would be one more allocation"
)]
pub enum Input {
    /// A client asks.
    Request(Call, Request),
    /// Whoever handed these requests in is gone: nobody waits for the answers. What the requests do goes on.
    Gone(Vec<Ticket>),
    /// Somebody acts on the broker itself.
    Step(Step),
    /// Time passes.
    Tick,
}

/// What becomes of a request at once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Answered.
    Now(Response),
    /// Answered by [`Machine::reply`], when something happens or time passes.
    Later,
    /// Not answered by design (`acks=0`).
    Never,
    /// Not what the protocol allows: the connection is closed.
    HangUp,
}

/// What goes back.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Which request.
    pub ticket: Ticket,
    /// The answer.
    pub outcome: Outcome,
}

/// How a request ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With this answer.
    Answer(Response),
    /// Without one, and the connection goes on.
    Silence,
    /// With the end of its connection.
    HangUp,
}

/// What the cluster is like. `Default` is what a test wants: Kafka's defaults with short periods.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Every random choice comes from it: cluster id, topic ids.
    pub seed: u64,
    /// How many listeners pose as nodes, from id 1 on.
    pub nodes: i32,
    /// `transaction.version`: 0, 1 or 2 (KIP-890).
    pub transaction_version: i16,
    /// Time between the answer to EndTxn and its markers.
    pub marker_delay_ms: Millis,
    /// `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
    pub timeout_interval_ms: Millis,
    /// `transaction.max.timeout.ms`.
    pub max_timeout_ms: i32,
    /// `transactional.id.expiration.ms`.
    pub id_expiration_ms: Millis,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`.
    pub expiry_interval_ms: Millis,
    /// `producer.id.expiration.ms`.
    pub producer_expiration_ms: Millis,
    /// How long a coordinator that takes over answers COORDINATOR_LOAD_IN_PROGRESS.
    pub load_ms: Millis,
    /// `transaction.state.log.num.partitions`.
    pub transaction_partitions: i32,
    /// `offsets.topic.num.partitions`.
    pub offsets_partitions: i32,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: Millis,
    /// `group.initial.rebalance.delay.ms`.
    pub rebalance_delay_ms: Millis,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `num.partitions`.
    pub default_partitions: i32,
    /// `message.max.bytes`.
    pub max_message_bytes: i32,
    /// The half of KIP-939 that no released broker answers: InitProducerId v6 with Enable2Pc and KeepPreparedTxn.
    pub two_phase_commit: bool,
}

impl Settings {
    /// Whether they make a cluster.
    ///
    /// # Errors
    /// Which one does not, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        /// Topics with more partitions than this are nobody's test.
        const MOST_PARTITIONS: i64 = 10_000;
        let Self {
            seed: _,
            nodes,
            transaction_version,
            marker_delay_ms,
            timeout_interval_ms,
            max_timeout_ms,
            id_expiration_ms,
            expiry_interval_ms,
            producer_expiration_ms,
            load_ms,
            transaction_partitions,
            offsets_partitions,
            offsets_retention_ms,
            rebalance_delay_ms,
            auto_create_topics: _,
            default_partitions,
            max_message_bytes,
            two_phase_commit: _,
        } = self;
        let ranges = [
            ("nodes", i64::from(*nodes), 1, 1_000),
            ("transaction_version", i64::from(*transaction_version), 0, 2),
            ("marker_delay_ms", *marker_delay_ms, 0, LONGEST_MS),
            ("timeout_interval_ms", *timeout_interval_ms, 1, LONGEST_MS),
            ("max_timeout_ms", i64::from(*max_timeout_ms), 1, i64::from(i32::MAX)),
            ("id_expiration_ms", *id_expiration_ms, 1, LONGEST_MS),
            ("expiry_interval_ms", *expiry_interval_ms, 1, LONGEST_MS),
            ("producer_expiration_ms", *producer_expiration_ms, 1, LONGEST_MS),
            ("load_ms", *load_ms, 0, LONGEST_MS),
            ("transaction_partitions", i64::from(*transaction_partitions), 1, MOST_PARTITIONS),
            ("offsets_partitions", i64::from(*offsets_partitions), 1, MOST_PARTITIONS),
            ("offsets_retention_ms", *offsets_retention_ms, 1, LONGEST_MS),
            ("rebalance_delay_ms", *rebalance_delay_ms, 0, LONGEST_MS),
            ("default_partitions", i64::from(*default_partitions), 1, MOST_PARTITIONS),
            ("max_message_bytes", i64::from(*max_message_bytes), 0, i64::from(i32::MAX)),
        ];
        match ranges.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value)) {
            Some((name, value, least, most)) => {
                Err(format!("{name} is {value}; it may be {least} to {most}"))
            }
            None => Ok(()),
        }
    }

    /// Clusters below level 2 answer as Kafka 3.9 does, which asks only whether a producer has any transaction open.
    pub(crate) fn compares_epochs(&self) -> bool {
        self.transaction_version >= 2
    }

    /// So does their group coordinator, which is the one before KIP-848.
    pub(crate) fn has_old_groups(&self) -> bool {
        self.transaction_version < 2
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            nodes: 1,
            transaction_version: 2,
            marker_delay_ms: 3,
            timeout_interval_ms: 200,
            max_timeout_ms: 900_000,
            id_expiration_ms: 7 * 24 * 3_600_000,
            expiry_interval_ms: 1_000,
            producer_expiration_ms: 24 * 3_600_000,
            load_ms: 20,
            transaction_partitions: 4,
            offsets_partitions: 4,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            rebalance_delay_ms: 0,
            auto_create_topics: true,
            default_partitions: 1,
            max_message_bytes: 1_048_588,
            two_phase_commit: false,
        }
    }
}

/// The broker.
#[derive(Clone, Debug)]
pub struct Machine {
    settings: Settings,
    now: Millis,
    random: fastrand::Rng,
    timers: timer::Timers,
    /// Calls that are answered later, until they are.
    parked: BTreeMap<Ticket, Call>,
    replies: Vec<Reply>,
    pub(crate) catalog: catalog::Catalog,
    /// Partitions that changed since readers were looked at.
    touched: BTreeSet<TopicPartition>,
    /// Fetches that wait for more.
    readers: fetch::Readers,
    /// Produce requests that wait for the coordinator of their transaction, also those of clients that have left: what
    /// comes of the coordinator's answer does not ask for the socket.
    productions: BTreeMap<Ticket, produce::Production>,
    pub(crate) transactions: transaction::Coordinator,
    pub(crate) groups: group::Groups,
    /// Did the last input, a step, change anything?
    changed: bool,
    /// Ids whose next append was to fail, and did with the last input.
    pub(crate) spent: Vec<String>,
    /// Where clients reach each node. Not state: told by whoever listens, and not part of a replay.
    pub(crate) addresses: BTreeMap<NodeId, (String, u16)>,
}

impl Machine {
    /// A cluster that nobody has used yet.
    pub fn new(settings: Settings, now: Millis) -> Self {
        let random = fastrand::Rng::with_seed(settings.seed);
        let catalog = catalog::Catalog::new(&settings);
        Self {
            catalog,
            touched: BTreeSet::new(),
            readers: fetch::Readers::default(),
            productions: BTreeMap::new(),
            settings,
            now,
            random,
            timers: timer::Timers::default(),
            parked: BTreeMap::new(),
            replies: Vec::new(),
            transactions: transaction::Coordinator::default(),
            groups: group::Groups::default(),
            changed: false,
            spent: Vec::new(),
            addresses: BTreeMap::new(),
        }
    }

    /// Applies an input; answers also those that waited for it. A time before the last one counts as the last one.
    pub fn step(&mut self, now: Millis, input: Input) -> Vec<Reply> {
        self.changed = false;
        self.spent.clear();
        self.advance(now.max(self.now));
        match input {
            Input::Request(call, request) => self.request(call, request),
            Input::Gone(tickets) => tickets.into_iter().for_each(|ticket| self.forget(ticket)),
            Input::Step(step) => self.changed = self.act(step),
            Input::Tick => {}
        }
        self.wake_readers();
        std::mem::take(&mut self.replies)
    }

    /// Tells what Metadata, FindCoordinator and DescribeCluster say about where the nodes are.
    pub fn set_addresses(&mut self, addresses: BTreeMap<NodeId, (String, u16)>) {
        self.addresses = addresses;
    }

    /// What the cluster is like.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The time of the last step.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Did the last input, if it was a step, change anything?
    pub fn changed(&self) -> bool {
        self.changed
    }

    /// Requests that wait for their answer.
    pub fn waiting(&self) -> Vec<Ticket> {
        self.parked.keys().copied().collect()
    }

    /// When the machine wants a step although nothing comes in.
    pub fn next_wake(&self) -> Option<Millis> {
        self.timers.next()
    }

    /// Does the passing of time until then change more than who waits? Then it is as much of an input as a request is.
    pub fn changes_by(&self, now: Millis) -> bool {
        self.timers.change_by(now)
    }

    /// What the machine keeps, as one number. Machines that took the same inputs have the same one, whatever else
    /// they were asked; see [`Self::only_looks`].
    pub fn digest(&self) -> u64 {
        let mut digest = digest::Digest::default();
        self.feed(&mut digest);
        digest.done()
    }

    fn advance(&mut self, now: Millis) {
        while let Some((at, timer)) = self.timers.due(now) {
            self.now = at.max(self.now);
            self.fire(timer);
            self.wake_readers();
        }
        self.now = now;
    }

    fn request(&mut self, call: Call, request: Request) {
        let ticket = call.ticket;
        self.parked.insert(ticket, call.clone());
        match self.answer(&call, request) {
            Answer::Now(response) => self.reply(ticket, response),
            Answer::Later => {}
            Answer::Never => self.end(ticket, Outcome::Silence),
            Answer::HangUp => self.end(ticket, Outcome::HangUp),
        }
    }

    /// Answers a request that waits; does nothing where nobody waits any more.
    pub(crate) fn reply(&mut self, ticket: Ticket, response: Response) {
        self.end(ticket, Outcome::Answer(response));
    }

    fn end(&mut self, ticket: Ticket, outcome: Outcome) {
        if self.parked.remove(&ticket).is_some() {
            self.replies.push(Reply { ticket, outcome });
        }
    }

    fn forget(&mut self, ticket: Ticket) {
        self.parked.remove(&ticket);
        self.fetch_gone(ticket);
    }

    /// Does the request change nothing, so that a replay can do without it? Those that are answered by `&self` cannot;
    /// of the others, Fetch only waits, and Metadata changes something where it creates a topic.
    pub fn only_looks(&self, version: i16, request: &Request) -> bool {
        match request {
            Request::Fetch(_)
            | Request::ListOffsets(_)
            | Request::OffsetForLeaderEpoch(_)
            | Request::OffsetFetch(_)
            | Request::ApiVersions(_)
            | Request::DescribeCluster(_)
            | Request::DescribeConfigs(_)
            | Request::DescribeGroups(_)
            | Request::DescribeProducers(_)
            | Request::DescribeTransactions(_)
            | Request::ListGroups(_)
            | Request::ListTransactions(_) => true,
            Request::Metadata(request) => {
                let asked = request.topics.iter().flatten().filter_map(|topic| topic.name.as_ref());
                !self.may_create(version, request)
                    || asked.into_iter().all(|name| self.catalog.topic(name).is_some())
            }
            Request::Produce(_)
            | Request::OffsetCommit(_)
            | Request::FindCoordinator(_)
            | Request::JoinGroup(_)
            | Request::Heartbeat(_)
            | Request::LeaveGroup(_)
            | Request::SyncGroup(_)
            | Request::CreateTopics(_)
            | Request::DeleteTopics(_)
            | Request::DeleteRecords(_)
            | Request::InitProducerId(_)
            | Request::AddPartitionsToTxn(_)
            | Request::AddOffsetsToTxn(_)
            | Request::EndTxn(_)
            | Request::WriteTxnMarkers(_)
            | Request::TxnOffsetCommit(_)
            | Request::CreatePartitions(_)
            | Request::DeleteGroups(_)
            | Request::OffsetDelete(_) => false,
        }
    }

    fn answer(&mut self, call: &Call, request: Request) -> Answer {
        match request {
            Request::Produce(request) => self.produce(call, request),
            Request::Fetch(request) => self.fetch(call, request),
            Request::ListOffsets(request) => self.list_offsets(call, request),
            Request::OffsetForLeaderEpoch(request) => self.offset_for_leader_epoch(call, request),
            Request::Metadata(request) => self.metadata(call, request),
            Request::ApiVersions(request) => self.api_versions(call, request),
            Request::DescribeCluster(request) => self.describe_cluster(call, request),
            Request::CreateTopics(request) => self.create_topics(call, request),
            Request::CreatePartitions(request) => self.create_partitions(call, request),
            Request::DeleteTopics(request) => self.delete_topics(call, request),
            Request::DeleteRecords(request) => self.delete_records(call, request),
            Request::DescribeConfigs(request) => self.describe_configs(call, request),
            Request::DescribeProducers(request) => self.describe_producers(call, request),
            Request::InitProducerId(request) => self.init_producer_id(call, request),
            Request::AddPartitionsToTxn(request) => self.add_partitions_to_txn(call, request),
            Request::AddOffsetsToTxn(request) => self.add_offsets_to_txn(call, request),
            Request::EndTxn(request) => self.end_txn(call, request),
            Request::WriteTxnMarkers(request) => self.write_txn_markers(call, request),
            Request::DescribeTransactions(request) => self.describe_transactions(call, request),
            Request::ListTransactions(request) => self.list_transactions(call, request),
            Request::FindCoordinator(request) => self.find_coordinator(call, request),
            Request::OffsetCommit(request) => self.offset_commit(call, request),
            Request::TxnOffsetCommit(request) => self.txn_offset_commit(call, request),
            Request::OffsetFetch(request) => self.offset_fetch(call, request),
            Request::OffsetDelete(request) => self.offset_delete(call, request),
            Request::JoinGroup(request) => self.join_group(call, request),
            Request::SyncGroup(request) => self.sync_group(call, request),
            Request::Heartbeat(request) => self.heartbeat(call, request),
            Request::LeaveGroup(request) => self.leave_group(call, request),
            Request::DescribeGroups(request) => self.describe_groups(call, request),
            Request::ListGroups(request) => self.list_groups(call, request),
            Request::DeleteGroups(request) => self.delete_groups(call, request),
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Produce(ticket) => self.produce_again(ticket),
            Timer::Fetch(ticket) => self.fetch_over(ticket),
            Timer::WriteMarkers { transactional_id, coordinator_epoch } => {
                self.markers_due(&transactional_id, coordinator_epoch);
            }
            Timer::AbortTimedOut => self.abort_timed_out(),
            Timer::ExpireTransactionalIds => {
                self.expire_transactional_ids(false);
            }
            Timer::LoadTransactions { partition, epoch } => self.load_transactions(partition, epoch),
            Timer::LoadGroups { partition, epoch } => self.load_groups(partition, epoch),
            Timer::LookAtMember { group, member } => self.look_at_member(&group, &member),
            Timer::EndJoin { group, wait } => self.end_join(&group, wait),
            Timer::EndFirstJoin { group, wait, delay, remaining } => {
                self.end_first_join(&group, wait, delay, remaining);
            }
            Timer::EndSync { group, wait } => self.end_sync(&group, wait),
            Timer::ExpireOffsets => {
                self.expire_offsets(false);
            }
        }
    }
}

digest::feed!(Call { ticket, node, version, client_id });

digest::feed!(Machine { random, timers, catalog, productions, transactions, groups } without {
    settings, now, parked, replies, touched, readers, changed, spent, addresses
});

/// An id of 16 bytes as Kafka prints it: base64 for URLs, without padding (`Uuid.toString`).
fn encode_id(id: &[u8; 16]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u128::from_be_bytes(*id);
    let sextet = |at: u32| match at {
        21 => (bits << 4) & 63,
        _ => (bits >> (122 - 6 * at)) & 63,
    };
    (0..22).map(|at| char::from(ALPHABET[sextet(at) as usize])).collect()
}
