//! Looking at transactions without changing them (KIP-664).

use super::Ask;
use crate::{
    Client, ClientError, KafkaCode, NodeId, admin,
    error::{CallError, RequestKind},
    limits,
    retry::{Retry, within},
    wire::{self, Request},
};
use hapax_commit::{Identity, ProducerEpoch, ProducerId};
use hapax_host::Deadline;
use kafka_protocol::messages::{
    self, DescribeProducersRequest, DescribeTransactionsRequest, DescribeTransactionsResponse,
    ListTransactionsRequest, describe_producers_request::TopicRequest, describe_producers_response,
    list_transactions_response,
};
use std::{fmt, time::Duration};

/// A coordinator's state of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionState {
    /// Initialised, nothing begun.
    Empty,
    /// Open.
    Ongoing,
    /// The commit is decided, markers are being written.
    PrepareCommit,
    /// The abort is decided, markers are being written.
    PrepareAbort,
    /// Committed; final.
    CompleteCommit,
    /// Aborted; final.
    CompleteAbort,
    /// Being aborted because of a time-out or a new owner.
    PrepareEpochFence,
    /// About to be forgotten.
    Dead,
    /// A name of a later broker.
    Other(String),
}

impl TransactionState {
    /// Kafka's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
            Self::PrepareEpochFence => "PrepareEpochFence",
            Self::Dead => "Dead",
            Self::Other(name) => name,
        }
    }

    /// Reads Kafka's name.
    pub fn from_name(name: &str) -> Self {
        let known = [
            Self::Empty,
            Self::Ongoing,
            Self::PrepareCommit,
            Self::PrepareAbort,
            Self::CompleteCommit,
            Self::CompleteAbort,
            Self::PrepareEpochFence,
            Self::Dead,
        ];
        known.into_iter().find(|state| state.name() == name).unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

impl fmt::Display for TransactionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a coordinator knows of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Described {
    /// The id is there.
    Known {
        /// Its state. *Ongoing* may come from a coordinator that was deposed and does not know it; *Complete…* is final.
        state: TransactionState,
        /// The identity now: on V2 one producer epoch further once an end is decided.
        identity: Identity,
        /// Its transaction timeout, in milliseconds.
        timeout_ms: i32,
        /// When the (last) transaction began, in milliseconds since 1970; none where there was none yet.
        start_ms: Option<i64>,
        /// Partitions of an open transaction; while an end is decided, those without a marker yet.
        partitions: Vec<(String, Vec<i32>)>,
    },
    /// The id never existed or has expired.
    Unknown,
}

/// Asks the coordinator of a transactional id what it knows.
///
/// # Errors
/// The client's reason, at the latest at the deadline.
pub async fn describe_transaction(
    client: &Client,
    transactional_id: &str,
    deadline: Deadline,
) -> Result<Described, ClientError> {
    let request = DescribeTransactionsRequest::default()
        .with_transactional_ids(vec![wire::text(transactional_id).into()]);
    let ask = Ask {
        transactional_id,
        kind: RequestKind::DescribeTransactions,
        versions: 0..=0,
        timeout: limits::LOOKUP_TIMEOUT,
        request: &request,
        code: only_code,
    };
    let mut retry = Retry::new(client, RequestKind::DescribeTransactions, transactional_id, deadline);
    let response = match ask.until_settled(client, &mut retry).await {
        Ok(response) => response,
        Err(error) if error.code() == Some(KafkaCode::TRANSACTIONAL_ID_NOT_FOUND) => {
            return Ok(Described::Unknown);
        }
        Err(error) => return Err(error),
    };
    let found = response.transaction_states.into_iter().next();
    let found = found.filter(|found| found.transactional_id.as_str() == transactional_id);
    let found = found.ok_or_else(|| CallError::Malformed {
        api: DescribeTransactionsRequest::NAME,
        node: NodeId::BOOTSTRAP,
        reason: format!("no entry for {transactional_id}").into(),
    })?;
    let partitions = found.topics.into_iter().map(|topic| (topic.topic.to_string(), topic.partitions));
    Ok(Described::Known {
        state: TransactionState::from_name(&found.transaction_state),
        identity: Identity {
            producer_id: ProducerId(found.producer_id.0),
            producer_epoch: ProducerEpoch(found.producer_epoch),
        },
        timeout_ms: found.transaction_timeout_ms,
        start_ms: Some(found.transaction_start_time_ms).filter(|start| *start >= 0),
        partitions: partitions.collect(),
    })
}

fn only_code(response: &DescribeTransactionsResponse) -> KafkaCode {
    response.transaction_states.first().map_or(KafkaCode::NONE, |state| KafkaCode(state.error_code))
}

/// Which transactions to list; an empty filter lets everything pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Only these states.
    pub states: Vec<TransactionState>,
    /// Only these producer ids.
    pub producer_ids: Vec<ProducerId>,
    /// Only open transactions that are older (Kafka 3.8 and later).
    pub open_longer_than: Option<Duration>,
    /// Only ids that match this RE2 pattern wholly (Kafka 4.1 and later).
    pub pattern: Option<String>,
}

/// One listed id. Neither its producer epoch nor its times are in the list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedTransaction {
    /// The id.
    pub transactional_id: String,
    /// Its producer id.
    pub producer_id: ProducerId,
    /// Its state.
    pub state: TransactionState,
    /// Its coordinator.
    pub coordinator: NodeId,
}

/// Asks every broker for the transactional ids that it coordinates, in the order of the ids. Ids that the principal
/// may not describe are left out by the broker, silently.
///
/// # Errors
/// One broker did not answer until the deadline (a partial list is never returned), or a filter is not supported.
pub async fn list_transactions(
    client: &Client,
    filter: &ListFilter,
    deadline: Deadline,
) -> Result<Vec<ListedTransaction>, ClientError> {
    let mut retry = Retry::new(client, RequestKind::ListTransactions, "all brokers", deadline);
    while let Err(error) = retry.bounded(client.refresh(&[])).await {
        retry.again(error).await?;
    }
    let mut listed = Vec::new();
    for node in client.nodes() {
        let mut retry = Retry::new(client, RequestKind::ListTransactions, &node.to_string(), deadline);
        loop {
            match list_at(client, node, filter, &retry).await {
                Ok(found) => break listed.extend(found),
                Err(error) => retry.again(error).await?,
            }
        }
    }
    listed.sort();
    listed.dedup_by(|a, b| a.transactional_id == b.transactional_id);
    Ok(listed)
}

async fn list_at(
    client: &Client,
    node: NodeId,
    filter: &ListFilter,
    retry: &Retry<'_>,
) -> Result<Vec<ListedTransaction>, ClientError> {
    let needed = if filter.pattern.is_some() { 2 } else { i16::from(filter.open_longer_than.is_some()) };
    let connection = retry.bounded(client.control_connection(node)).await?;
    let version = connection.choose(ListTransactionsRequest::KEY, needed..=2)?;
    let answer = connection.call(version, &list_request(filter), limits::LOOKUP_TIMEOUT);
    let response = within(client, retry.deadline(), ListTransactionsRequest::NAME, node, answer).await?;
    match KafkaCode(response.error_code) {
        KafkaCode::NONE => {
            Ok(response.transaction_states.into_iter().map(|state| listed(state, node)).collect())
        }
        code => Err(ClientError::broker(RequestKind::ListTransactions, node.to_string(), code)),
    }
}

fn list_request(filter: &ListFilter) -> ListTransactionsRequest {
    let mut states: Vec<_> = filter.states.iter().map(|state| wire::text(state.name())).collect();
    let older = filter.open_longer_than.map_or(-1, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    // Ids without a transaction have no start time and would pass every duration.
    if filter.open_longer_than.is_some() && states.is_empty() {
        states.push(wire::text(TransactionState::Ongoing.name()));
    }
    let producer_ids = filter.producer_ids.iter().map(|id| messages::ProducerId(id.0)).collect();
    ListTransactionsRequest::default()
        .with_state_filters(states)
        .with_producer_id_filters(producer_ids)
        .with_duration_filter(older)
        .with_transactional_id_pattern(filter.pattern.as_deref().map(wire::text))
}

fn listed(state: list_transactions_response::TransactionState, coordinator: NodeId) -> ListedTransaction {
    ListedTransaction {
        transactional_id: state.transactional_id.to_string(),
        producer_id: ProducerId(state.producer_id.0),
        state: TransactionState::from_name(&state.transaction_state),
        coordinator,
    }
}

/// What a partition knows of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionProducer {
    /// Its producer id.
    pub producer_id: ProducerId,
    /// Its producer epoch (the answer has more bits than an epoch).
    pub producer_epoch: i32,
    /// Its newest sequence; none after a marker only.
    pub last_sequence: Option<i32>,
    /// When it last wrote, in milliseconds since 1970.
    pub last_timestamp_ms: i64,
    /// Epoch of the coordinator that wrote the last marker, if there was one.
    pub coordinator_epoch: Option<i32>,
    /// Where its open transaction begins in this partition, if one is open.
    pub open_from: Option<i64>,
}

impl PartitionProducer {
    /// Who it is.
    pub fn identity(&self) -> Identity {
        let producer_epoch = i16::try_from(self.producer_epoch).unwrap_or(i16::MAX);
        Identity { producer_id: self.producer_id, producer_epoch: ProducerEpoch(producer_epoch) }
    }
}

/// Asks the leader of a partition for its active producers.
///
/// # Errors
/// The client's reason, at the latest at the deadline.
pub async fn describe_producers(
    client: &Client,
    topic: &str,
    partition: i32,
    deadline: Deadline,
) -> Result<Vec<PartitionProducer>, ClientError> {
    let wanted =
        TopicRequest::default().with_name(wire::text(topic).into()).with_partition_indexes(vec![partition]);
    let request = DescribeProducersRequest::default().with_topics(vec![wanted]);
    let code = |response: &messages::DescribeProducersResponse| {
        let partition = response.topics.first().and_then(|topic| topic.partitions.first());
        partition.map(|partition| KafkaCode(partition.error_code))
    };
    let kind = RequestKind::DescribeProducers;
    let ask = admin::AskLeader {
        topic,
        partition,
        kind,
        versions: 0..=0,
        request: &|_| request.clone(),
        code,
        unanswered: None,
    };
    let response = ask.until_settled(client, deadline).await?;
    let partitions = response.topics.into_iter().flat_map(|topic| topic.partitions);
    let producers = partitions.flat_map(|partition| partition.active_producers);
    Ok(producers.map(partition_producer).collect())
}

fn partition_producer(state: describe_producers_response::ProducerState) -> PartitionProducer {
    PartitionProducer {
        producer_id: ProducerId(state.producer_id.0),
        producer_epoch: state.producer_epoch,
        last_sequence: Some(state.last_sequence).filter(|sequence| *sequence >= 0),
        last_timestamp_ms: state.last_timestamp,
        coordinator_epoch: Some(state.coordinator_epoch).filter(|epoch| *epoch >= 0),
        open_from: Some(state.current_txn_start_offset).filter(|offset| *offset >= 0),
    }
}
