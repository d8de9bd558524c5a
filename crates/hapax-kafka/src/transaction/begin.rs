//! Identities, and the partitions of a V1 transaction.

use super::{
    Ask,
    two_phase::{Lifetime, TwoPhaseInit},
};
use crate::{
    Client, ClientError, KafkaCode, NodeId,
    error::{Class, Disturbance, RequestKind, classify},
    limits,
    retry::{Retry, within},
    wire::{self, Request},
};
use hapax_commit::{Identity, ProducerEpoch, ProducerId, handle::LAST_PRODUCER_EPOCH};
use hapax_host::Deadline;
use kafka_protocol::messages::{
    self, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, InitProducerIdRequest,
    InitProducerIdResponse, add_partitions_to_txn_request::AddPartitionsToTxnTopic,
};
use std::ops::RangeInclusive;

/// From 3 on a running producer can say which identity it has (KIP-360).
const INIT_VERSIONS: RangeInclusive<i16> = 3..=5;

/// From 4 on the request is between brokers and needs their rights.
const ADD_PARTITIONS_VERSIONS: RangeInclusive<i16> = 1..=3;

/// An identity could not be had.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The id is not ours under this identity any more: a newer run, a time-out, an expiry. Ask the chain.
    #[error(
        "InitProducerId for {transactional_id} as {own}: the broker answered {code}; another writer or a time-out took the identity"
    )]
    Disturbed {
        /// The id.
        transactional_id: String,
        /// The identity that was passed.
        own: Identity,
        /// The answer.
        code: KafkaCode,
        /// In which way.
        how: Disturbance,
    },
    /// The broker allows no transaction timeout that long.
    #[error(
        "InitProducerId for {transactional_id}: the transaction timeout of {asked_ms} ms is above the broker's transaction.max.timeout.ms; lower the timeout or raise the maximum"
    )]
    TimeoutTooLong {
        /// The id.
        transactional_id: String,
        /// What was asked for.
        asked_ms: i32,
    },
    /// Anything else.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl InitError {
    /// Can it succeed later without a change?
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Client(error) => error.is_retriable(),
            Self::Disturbed { .. } | Self::TimeoutTooLong { .. } => false,
        }
    }
}

/// Gets an identity for a transactional id. **Ends (aborts) whatever is open under the id and fences its owner.**
///
/// `own` is the identity that a running lane has: the broker refuses it if another writer took over. `None` only at
/// the start of a run, before anything is read or written; it always succeeds and always bumps. The answered identity
/// is never at the last producer epoch: a transaction there would end on another producer id. An unbounded lifetime needs
/// a cluster that has two-phase commit, see [`super::probe_two_phase`].
///
/// # Errors
/// [`InitError::Disturbed`] only with `own`; [`InitError::TimeoutTooLong`]; or the client's reason, at the latest at
/// the deadline.
pub async fn init_producer_id(
    client: &Client,
    transactional_id: &str,
    lifetime: Lifetime,
    own: Option<Identity>,
    deadline: Deadline,
) -> Result<Identity, InitError> {
    let mut retry = Retry::new(client, RequestKind::InitProducerId, transactional_id, deadline);
    let identity = init(client, transactional_id, lifetime, own, &mut retry).await?;
    if identity.producer_epoch < LAST_PRODUCER_EPOCH {
        return Ok(identity);
    }
    let own = own.map(|_| identity);
    init(client, transactional_id, lifetime, own, &mut retry).await
}

async fn init(
    client: &Client,
    transactional_id: &str,
    lifetime: Lifetime,
    own: Option<Identity>,
    retry: &mut Retry<'_>,
) -> Result<Identity, InitError> {
    let answer = match lifetime {
        Lifetime::Unbounded => {
            TwoPhaseInit::new(transactional_id, own).ask().until_settled(client, retry).await
        }
        Lifetime::Millis(timeout_ms) => {
            let request = init_request(Some(transactional_id), timeout_ms, own);
            let ask = Ask {
                transactional_id,
                kind: RequestKind::InitProducerId,
                versions: INIT_VERSIONS,
                timeout: limits::INIT_PRODUCER_ID_REQUEST_TIMEOUT,
                request: &request,
                code: |response| KafkaCode(response.error_code),
            };
            ask.until_settled(client, retry).await
        }
    };
    match answer {
        Ok(response) => Ok(identity_of(&response)),
        Err(error) => Err(explain(error, transactional_id, lifetime, own)),
    }
}

fn explain(
    error: ClientError,
    transactional_id: &str,
    lifetime: Lifetime,
    own: Option<Identity>,
) -> InitError {
    let transactional_id = transactional_id.to_owned();
    let ClientError::Broker { code, .. } = error else { return error.into() };
    match (classify(RequestKind::InitProducerId, code), own, lifetime) {
        (Class::Disturbed(how), Some(own), _) => InitError::Disturbed { transactional_id, own, code, how },
        (_, _, Lifetime::Millis(asked_ms)) if code == KafkaCode::INVALID_TRANSACTION_TIMEOUT => {
            InitError::TimeoutTooLong { transactional_id, asked_ms }
        }
        _ => error.into(),
    }
}

pub(super) fn init_request(
    transactional_id: Option<&str>,
    timeout_ms: i32,
    own: Option<Identity>,
) -> InitProducerIdRequest {
    let (id, epoch) = own.map_or((-1, -1), |own| (own.producer_id.0, own.producer_epoch.0));
    InitProducerIdRequest::default()
        .with_transactional_id(transactional_id.map(|id| wire::text(id).into()))
        .with_transaction_timeout_ms(timeout_ms)
        .with_producer_id(messages::ProducerId(id))
        .with_producer_epoch(epoch)
}

fn identity_of(response: &InitProducerIdResponse) -> Identity {
    Identity {
        producer_id: ProducerId(response.producer_id.0),
        producer_epoch: ProducerEpoch(response.producer_epoch),
    }
}

/// Gets an identity for an idempotent producer without transactions, from any broker.
///
/// # Errors
/// The client's reason, at the latest at the deadline.
pub async fn init_idempotent(client: &Client, deadline: Deadline) -> Result<Identity, ClientError> {
    let request = init_request(None, i32::MAX, None);
    let mut retry = Retry::new(client, RequestKind::InitProducerId, "an idempotent producer", deadline);
    let mut tries = client.host().random_u64() % 1024;
    loop {
        let nodes = client.nodes();
        let node =
            usize::try_from(tries).ok().and_then(|tries| nodes.get(tries % nodes.len().max(1)).copied());
        match init_idempotent_at(client, node, &request, &retry).await {
            Ok(identity) => return Ok(identity),
            Err(error) => retry.again(error).await?,
        }
        tries += 1;
        // A broker that is gone stands in old metadata; this asks the others.
        let _ = retry.bounded(client.refresh(&[])).await;
    }
}

async fn init_idempotent_at(
    client: &Client,
    node: Option<NodeId>,
    request: &InitProducerIdRequest,
    retry: &Retry<'_>,
) -> Result<Identity, ClientError> {
    let connection = retry.bounded(client.control_connection(node.unwrap_or(NodeId::BOOTSTRAP))).await?;
    let version = connection.choose(InitProducerIdRequest::KEY, INIT_VERSIONS)?;
    let answer = connection.call(version, request, limits::INIT_PRODUCER_ID_REQUEST_TIMEOUT);
    let response =
        within(client, retry.deadline(), InitProducerIdRequest::NAME, connection.node(), answer).await?;
    match KafkaCode(response.error_code) {
        KafkaCode::NONE => Ok(identity_of(&response)),
        code => Err(ClientError::broker(RequestKind::InitProducerId, "an idempotent producer", code)),
    }
}

/// Adds partitions to a V1 transaction, before anything is produced to them. The first call of a transaction may have
/// to wait for the markers of the one before. Adding a partition twice is no error.
///
/// # Errors
/// The code of the first partition that was refused (the others are not added then), or the client's reason.
pub async fn add_partitions(
    client: &Client,
    transactional_id: &str,
    identity: Identity,
    partitions: &[(&str, &[i32])],
    deadline: Deadline,
) -> Result<(), ClientError> {
    let topic = |&(name, partitions): &(&str, &[i32])| {
        AddPartitionsToTxnTopic::default()
            .with_name(wire::text(name).into())
            .with_partitions(partitions.to_vec())
    };
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(wire::text(transactional_id).into())
        .with_v3_and_below_producer_id(messages::ProducerId(identity.producer_id.0))
        .with_v3_and_below_producer_epoch(identity.producer_epoch.0)
        .with_v3_and_below_topics(partitions.iter().map(topic).collect());
    let ask = Ask {
        transactional_id,
        kind: RequestKind::AddPartitionsToTxn,
        versions: ADD_PARTITIONS_VERSIONS,
        timeout: limits::END_TXN_REQUEST_TIMEOUT,
        request: &request,
        code: refused_partition,
    };
    let mut retry = Retry::new(client, RequestKind::AddPartitionsToTxn, transactional_id, deadline);
    ask.until_settled(client, &mut retry).await.map(|_| ())
}

/// The code that decides: one refused partition leaves the others `OPERATION_NOT_ATTEMPTED`.
fn refused_partition(response: &AddPartitionsToTxnResponse) -> KafkaCode {
    let topics = response.results_by_topic_v3_and_below.iter();
    let codes =
        topics.flat_map(|topic| &topic.results_by_partition).map(|partition| partition.partition_error_code);
    let mut codes = codes.map(KafkaCode).filter(|code| *code != KafkaCode::NONE);
    let first = codes.next().unwrap_or(KafkaCode::NONE);
    if first == KafkaCode::OPERATION_NOT_ATTEMPTED {
        return codes.find(|code| *code != first).unwrap_or(first);
    }
    first
}
