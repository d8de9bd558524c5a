//! The commit protocol of Hapax as pure state machines.
//!
//! No clock, no IO, no threads, no randomness: time and answers come in as inputs, what is to be done goes out as
//! effects. The same code runs in the product and under a model checker.
//!
//! - [`id`]: names and numbers
//! - [`handle`], [`journal`], [`position`], [`slot`]: what is durable
//! - [`envelope`]: the frame around durable bytes
//! - [`chain`]: what a chain of slots means
//! - [`revision`]: what a job is from one place of its chain on
//! - [`history`]: the checkpoints that a chain still has
//! - [`lane`]: one lane's three ids
//! - [`cohort`]: the coordinator of a live run
//! - [`ledger`], [`bookmark`]: the same where the transaction carries the positions: one shard's run, and what is durable
//! - [`takeover`], [`present`]: the way there, from whatever ran before
//! - [`evidence`]: what the brokers say about a prepared transaction
//! - [`decision`]: what may be done about an epoch in doubt
//! - [`recovery`]: from a claim to the first new record; [`recovery::handover`] the same for somebody else's engine
//! - [`inference`]: what stands under an id that a checkpoint knows without a handle
//! - [`invariant`], [`limits`]: what must hold, and every bound

#![no_std]

extern crate alloc;

pub mod bookmark;
pub mod carried;
pub mod chain;
pub mod cohort;
pub mod decision;
pub mod envelope;
pub mod evidence;
pub mod handle;
pub mod history;
pub mod id;
pub mod inference;
pub mod invariant;
pub mod journal;
pub mod lane;
pub mod ledger;
pub mod limits;
pub mod position;
pub mod present;
pub mod recovery;
pub mod revision;
pub mod slot;
pub mod takeover;

pub use bookmark::{Bookmark, Reading};
pub use carried::CarriedPositions;
pub use chain::{ChainFault, ChainView, Unresolved};
pub use cohort::{Cohort, CohortConfig, CohortStart};
pub use decision::Strategy;
pub use envelope::DamagedBytes;
pub use handle::{Handle, HandleFault, HandlePartition};
pub use id::{
    Epoch, Generation, IdAt, Identity, LaneId, Name, Naming, ProducerEpoch, ProducerId, RunNonce, ShardId,
    SlotNumber, TopicId, TransactionVersion, TransactionalId,
};
pub use invariant::Broken;
pub use journal::{Journal, JournalPart};
pub use lane::{Lane, LaneConfig};
pub use ledger::Ledger;
pub use position::{Position, Positions, SplitId};
pub use present::{Marked, Present};
pub use recovery::Recovery;
pub use revision::{Revision, Shape};
pub use slot::{
    AssignmentKind, Claim, ClusterRecord, DeciderKind, JobRecord, Layout, Manifest, Slot, SlotBody,
    TopicRecord,
};
pub use takeover::TakeOver;
