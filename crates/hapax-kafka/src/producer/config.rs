//! Settings of a producer, and as whom it writes an epoch.

use crate::{limits, record::Compression};
use hapax_commit::{Identity, TransactionVersion};
use std::time::Duration;

/// How a producer batches, waits and gives up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerConfig {
    /// How batches are compressed (lz4).
    pub compression: Compression,
    /// How long a batch that is not full waits for more records (5 ms).
    pub linger: Duration,
    /// A batch is full at this many bytes before compression (256 KiB).
    pub batch_bytes: usize,
    /// Bytes that are written and not acknowledged, at most; then writing waits (32 MiB).
    pub buffer_bytes: usize,
    /// From the writing of a record until it must be acknowledged (2 min); `None` waits for ever and says so.
    pub delivery_timeout: Option<Duration>,
    /// How long one request may take (30 s).
    pub request_timeout: Duration,
    /// Produce requests without an answer, for each broker (5, which is also the most: a partition's leader recognises
    /// the last five batches of a producer).
    pub max_in_flight: usize,
    /// The transaction protocol of the cluster.
    pub transaction_version: TransactionVersion,
    /// Every epoch is a transaction.
    pub transactional: bool,
    /// Guarantee `none`: records that cannot be delivered are counted and logged instead of being a failure.
    pub best_effort: bool,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            compression: Compression::Lz4,
            linger: Duration::from_millis(5),
            batch_bytes: 256 << 10,
            buffer_bytes: 32 << 20,
            delivery_timeout: Some(Duration::from_secs(120)),
            request_timeout: Duration::from_secs(30),
            max_in_flight: limits::MAX_PRODUCE_IN_FLIGHT,
            transaction_version: TransactionVersion::V2,
            transactional: false,
            best_effort: false,
        }
    }
}

/// As whom an epoch is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenAs {
    /// In a transaction: one identity is one transaction, and every partition begins at sequence 0.
    Transaction {
        /// The id.
        transactional_id: hapax_commit::TransactionalId,
        /// The identity that nothing was written under yet.
        identity: Identity,
    },
    /// Without a transaction. The same identity as before continues its sequences.
    Idempotent {
        /// The identity.
        identity: Identity,
    },
}

impl OpenAs {
    pub(super) fn identity(&self) -> Identity {
        match self {
            Self::Transaction { identity, .. } | Self::Idempotent { identity } => *identity,
        }
    }
}
