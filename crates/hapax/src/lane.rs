//! What every transactional writer does around its lane: settings of the producer, the identity that an epoch is opened
//! with, and what a flushed epoch tells the lane.
//!
//! Shared by the pipeline's sink and by the sink of somebody else's engine, so that both write the same way. Refuses to
//! end a transaction.

use crate::limits;
use hapax_commit::{
    Epoch, HandlePartition, Identity, TransactionVersion,
    lane::{Lane, OpenWith, Written},
};
use hapax_host::{Deadline, Instant};
use hapax_kafka::{
    Client,
    producer::{Flushed, OpenAs, ProducerConfig},
    transaction::{self, InitError, Lifetime},
};
use std::time::Duration;

/// Producer settings of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerSettings {
    /// Compression of batches.
    pub compression: hapax_kafka::record::Compression,
    /// How long a record may wait for others.
    pub linger: Duration,
    /// Size at which a batch is closed, in bytes before compression.
    pub batch: usize,
    /// Bytes that may wait for acknowledgement, per lane.
    pub buffer: usize,
    /// How long a record may wait for its acknowledgement; none waits for ever.
    pub delivery_timeout: Option<Duration>,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        Self {
            compression: hapax_kafka::record::Compression::Lz4,
            linger: Duration::from_millis(5),
            batch: 256 * 1024,
            buffer: 32 * 1024 * 1024,
            delivery_timeout: Some(Duration::from_secs(120)),
        }
    }
}

impl ProducerSettings {
    /// What the client's producer is started with. Without a transaction unless the caller says so.
    pub(crate) fn config(&self, transaction_version: TransactionVersion) -> ProducerConfig {
        let Self { compression, linger, batch, buffer, delivery_timeout } = *self;
        ProducerConfig {
            compression,
            linger,
            batch_bytes: batch,
            buffer_bytes: buffer,
            delivery_timeout,
            request_timeout: request_timeout(linger, delivery_timeout),
            transaction_version,
            ..ProducerConfig::default()
        }
    }
}

/// A record's first attempt ends, one way or the other, before the record may be given up.
fn request_timeout(linger: Duration, delivery_timeout: Option<Duration>) -> Duration {
    let left = delivery_timeout.map_or(limits::REQUEST_TIMEOUT, |limit| limit.saturating_sub(linger));
    left.clamp(limits::MIN_REQUEST_TIMEOUT, limits::REQUEST_TIMEOUT)
}

/// How long one attempt to get an identity may take before the run is given up and begun again.
pub(crate) fn identity_patience(client: &Client) -> Deadline {
    Deadline::after(client.host().now(), Some(limits::REPORT_EVERY * 3))
}

/// The identity that a lane writes its epoch under. Asked for again, with the lane's own, until there was an answer: it
/// may be called anew after its future was dropped.
pub(crate) async fn identify(
    client: &Client,
    lane: &mut Lane,
    epoch: Epoch,
    with: &OpenWith,
    lifetime: Lifetime,
) -> Result<OpenAs, InitError> {
    let identity = match with.init {
        false => with.identity,
        true => {
            let id = with.transactional_id.to_string();
            let (own, patience) = ((!with.is_fresh).then_some(with.identity), identity_patience(client));
            let identity = transaction::init_producer_id(client, &id, lifetime, own, patience).await?;
            lane.identified(epoch, identity);
            identity
        }
    };
    Ok(OpenAs::Transaction { transactional_id: with.transactional_id.clone(), identity })
}

/// What the lane needs to know of a flushed epoch, and when its transaction ends.
pub(crate) fn written(flushed: Flushed, lifetime: Lifetime) -> (Option<Written>, Option<Instant>) {
    let Some((started_ms, started)) = flushed.started else {
        return (None, None);
    };
    let partitions = flushed
        .partitions
        .into_iter()
        .map(|part| HandlePartition {
            topic: part.topic,
            topic_id: part.topic_id,
            partition: part.partition,
            first_offset: part.first_offset,
            last_offset: part.last_offset,
            count: part.count,
            digest: Some(part.digest),
        })
        .collect();
    let deadline = match lifetime {
        Lifetime::Unbounded => None,
        Lifetime::Millis(timeout) => Some(started + Duration::from_millis(timeout.unsigned_abs().into())),
    };
    let deadline_ms = deadline_ms(started_ms, lifetime);
    (Some(Written { started_ms, deadline_ms, partitions }), deadline)
}

/// When the broker may abort a transaction, in a handle's words.
pub(crate) fn deadline_ms(started_ms: i64, lifetime: Lifetime) -> i64 {
    match lifetime {
        Lifetime::Unbounded => i64::MAX,
        Lifetime::Millis(timeout) => started_ms.saturating_add(timeout.into()),
    }
}

/// One identity of a lane, by the index of its id.
pub(crate) type Identities = [Identity; hapax_commit::id::IDS_PER_LANE as usize];
