//! The commit protocol of Hapax as pure state machines.
//!
//! No clock, no IO, no threads, no randomness: time and answers come in as inputs, what is to be done goes out as
//! effects. The same code runs in the product and under a model checker.
//!
//! - [`id`]: names and numbers
//! - [`handle`], [`position`], [`slot`]: what is durable
//! - [`envelope`]: the frame around durable bytes

#![no_std]

extern crate alloc;

pub mod envelope;
pub mod handle;
pub mod id;
pub mod position;
pub mod slot;

pub use envelope::DamagedBytes;
pub use handle::{Handle, HandleFault, HandlePartition};
pub use id::{
    Epoch, Generation, Identity, LaneId, Name, ProducerEpoch, ProducerId, RunNonce, ShardId, SlotNumber,
    TopicId, TransactionVersion, TransactionalId,
};
pub use position::{Position, Positions, SplitId};
pub use slot::{
    AssignmentKind, Claim, ClusterRecord, DeciderKind, JobRecord, Layout, Manifest, Slot, SlotBody,
    TopicRecord,
};
