//! The handle: what another process needs to end a prepared transaction.
//!
//! Invariants (checked by [`Handle::check`]): at least one partition, because an epoch without records has no
//! transaction at the broker and EndTxn would be refused (KIP-98; `TransactionCoordinator`); counts and offsets
//! fit; the id is the one that the epoch is written on; no identity at the last producer epoch, which would end on
//! another producer id (`TransactionMetadata`, epoch overflow).

use crate::{
    envelope::{self, DamagedBytes, Kind},
    id::{
        Epoch, IdAt, Identity, LaneId, Naming, ProducerEpoch, TopicId, TransactionVersion, TransactionalId,
    },
};
use alloc::{format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// No transaction is begun at this producer epoch or above: ending it would roll over to a new producer id.
pub const LAST_PRODUCER_EPOCH: ProducerEpoch = ProducerEpoch(32_766);

/// Partitions that a message names.
const PARTS_IN_WORDS: usize = 16;

/// A prepared transaction of one lane and one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Handle {
    /// Kafka's id of the cluster that coordinates the transaction.
    pub cluster_id: String,
    /// Bootstrap addresses at the time of writing: advice for tools.
    pub brokers: String,
    /// The lane.
    pub lane: LaneId,
    /// The id that the transaction runs under.
    pub transactional_id: TransactionalId,
    /// The identity that wrote it: one identity is one transaction.
    pub identity: Identity,
    /// The protocol that began it and that alone may end it.
    pub version: TransactionVersion,
    /// The epoch.
    pub epoch: Epoch,
    /// Wall time before the first record was sent, in milliseconds since 1970. Advice.
    pub started_ms: i64,
    /// Wall time at which the broker may abort it, in milliseconds since 1970; the highest number where no time-out ends
    /// it. Advice.
    pub deadline_ms: i64,
    /// What was written, per partition.
    pub partitions: Vec<HandlePartition>,
}

/// What a transaction wrote to one partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HandlePartition {
    /// The topic's name.
    pub topic: String,
    /// The topic's id, so that a topic made again is not taken for the old one.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: i32,
    /// Offset of the first record.
    pub first_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Number of records; their sequences are 0 to count - 1.
    pub count: u64,
    /// CRC-32C over the records in order, each from its key length to its end; none where records were relayed
    /// without decoding.
    pub digest: Option<u32>,
}

/// Which invariant a handle breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandleFault {
    /// A transaction without records does not exist at the broker.
    Empty,
    /// A partition without records, or with offsets that cannot hold its count.
    Offsets,
    /// The id is not the one of this lane and epoch.
    WrongId,
    /// The identity is at the last producer epoch.
    LastProducerEpoch,
}

impl Handle {
    /// Checks the invariants; called before a handle is stored and after one is loaded.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn check(&self) -> Result<(), HandleFault> {
        if self.partitions.is_empty() {
            return Err(HandleFault::Empty);
        }
        // Which of the namings is the job's, its claims say.
        let job = &self.transactional_id.job;
        let id = |naming| self.lane.id_of(job, naming, self.epoch);
        if ![Naming::Rotating, Naming::PerEpoch].map(id).contains(&self.transactional_id) {
            return Err(HandleFault::WrongId);
        }
        if self.identity.producer_epoch >= LAST_PRODUCER_EPOCH {
            return Err(HandleFault::LastProducerEpoch);
        }
        let fits = |part: &HandlePartition| {
            let span = part.last_offset.checked_sub(part.first_offset).and_then(|gap| gap.checked_add(1));
            part.count > 0
                && part.first_offset >= 0
                && span.and_then(|span| u64::try_from(span).ok()).is_some_and(|span| span >= part.count)
        };
        if self.partitions.iter().all(fits) { Ok(()) } else { Err(HandleFault::Offsets) }
    }

    /// The id that the transaction runs under, and at which cluster.
    pub fn at(&self) -> IdAt {
        IdAt { cluster_id: self.cluster_id.clone(), id: self.transactional_id.clone() }
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.partitions.iter().map(|part| part.count).sum()
    }

    /// Their number, and topic, partition, first and last offset of the first parts.
    pub fn records_in_words(&self) -> String {
        let part = |part: &HandlePartition| {
            format!("{}-{} {}..{}", part.topic, part.partition, part.first_offset, part.last_offset)
        };
        let parts: Vec<_> = self.partitions.iter().take(PARTS_IN_WORDS).map(part).collect();
        let more = match self.partitions.len().saturating_sub(PARTS_IN_WORDS) {
            0 => String::new(),
            more => format!(" and {more} more partitions"),
        };
        format!("{} records: {}{more}", self.records(), parts.join(", "))
    }

    /// Durable bytes, read by every later release: magic, version, length, checksum, body.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(Kind::Handle, self)
    }

    /// Reads what [`Handle::to_bytes`] wrote.
    ///
    /// # Errors
    /// Damaged bytes, a newer version, or an invariant that does not hold.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DamagedBytes> {
        let handle: Self = envelope::open(Kind::Handle, bytes)?;
        handle.check().map_err(DamagedBytes::Handle)?;
        Ok(handle)
    }
}
