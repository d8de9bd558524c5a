//! The lane producer: one epoch after another into one cluster, each record counted until it is acknowledged.
//!
//! Owns sequences, batches, the buffer, resending, and the gate that an epoch passes: *written == acknowledged*. It does
//! not own identities (they are given with [`LaneProducer::open`]) and never ends a transaction.
//!
//! ```text
//!  write ─► state ── partition_writer ── partition_queue     one lock, no waiting, no IO
//!              ▲                               │ batches
//!              │ verdicts                      ▼
//!           sender: one task; metadata, connections, AddPartitionsToTxn (V1), Produce, answers
//! ```
//!
//! Invariants
//! * `sent == acked + failed + inflight`, by record, for each partition and epoch, through retry, split, expiry and
//!   moves of leaders ([`Counters`]).
//! * The first failure stays for the producer's life; it is set under the lock that every write and flush takes, so no
//!   queue has to be drained to see it.
//! * A partition's batches of one identity are appended in order, each once: a batch is resent under the sequences that
//!   it got first, whoever leads the partition.
//! * An epoch is opened when the one before is flushed, so in no partition anything of a later epoch can overtake.
//!
//! Sources: KIP-98, KIP-360, KIP-480, KIP-890; `Sender`, `RecordAccumulator`, `TransactionManager` of the Java client.

mod account;
mod config;
mod error;
mod flushed;
mod lane;
mod partition_queue;
mod partition_writer;
mod request;
mod sender;
mod state;
#[cfg(test)]
mod tests;
mod topic;

pub use account::Counters;
pub use config::{OpenAs, ProducerConfig};
pub use error::{Place, ProduceError};
pub use flushed::{Flushed, FlushedPartition};
pub use lane::LaneProducer;
pub use topic::{Destination, TopicHandle};
