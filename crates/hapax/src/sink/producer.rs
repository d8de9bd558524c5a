//! From a sink's settings to a producer's.

use crate::{job::ProducerSettings, limits, sink::Guarantee};
use hapax_commit::TransactionVersion;
use hapax_kafka::producer::ProducerConfig;
use std::time::Duration;

/// How a writer with this guarantee is to write.
pub(crate) fn producer_config(
    settings: &ProducerSettings,
    guarantee: Guarantee,
    version: TransactionVersion,
) -> ProducerConfig {
    let ProducerSettings { compression, linger, batch, buffer, delivery_timeout } = *settings;
    ProducerConfig {
        compression,
        linger,
        batch_bytes: batch,
        buffer_bytes: buffer,
        delivery_timeout,
        request_timeout: request_timeout(linger, delivery_timeout),
        transaction_version: version,
        transactional: guarantee == Guarantee::ExactlyOnce,
        best_effort: guarantee == Guarantee::None,
        ..ProducerConfig::default()
    }
}

/// A record's first attempt ends, one way or the other, before the record may be given up.
fn request_timeout(linger: Duration, delivery_timeout: Option<Duration>) -> Duration {
    let left = delivery_timeout.map_or(limits::REQUEST_TIMEOUT, |limit| limit.saturating_sub(linger));
    left.clamp(limits::MIN_REQUEST_TIMEOUT, limits::REQUEST_TIMEOUT)
}
