//! The checkpoint store of Hapax: the job record, the chain of create-only slots, and journals, on an object store.
//!
//! Owns: where durable objects lie ([`layout`]), that each is created once and never written over, and what an
//! answer of the store means. Refuses: what a chain *says* (that is `hapax_commit`), clocks (the wait between two
//! tries is handed in as [`Sleep`]), and any use of damaged or newer bytes.
//!
//! Invariants:
//! - every durable object is put create-only; any answer to a put but success is *unknown* and settled by reading
//!   the object ([`PutOutcome`]). What was offered once is offered again with the same bytes or given up for ever;
//! - a claim is never removed, so the number that an old run fills next is always taken by its successor's claim;
//! - nothing of a chain is used unless all of it was read and understood.
//!
//! ```text
//! Store ── job record      create_job, begin_again, job
//!   ├──── Chain ── slots   read, get, put, remove
//!   └──── Journals ─ parts put, get, remove; what stands in one: PartWriter, PartReader (feature `journal`)
//!           └──── objects  one create-only put, bounded, settled by reading
//! ```
//! Sources: object_store's `PutMode::Create`, `LocalFileSystem::with_fsync`; POSIX `link(2)`, `fsync(2)`.

mod chain;
mod error;
pub mod journal;
pub mod layout;
mod limits;
mod local;
mod object;
mod positions;
mod store;

pub use chain::{Chain, Hook, PutOutcome};
pub use error::{Fault, StoreError};
pub use journal::Journals;
pub use layout::Incarnation;
pub use limits::Patience;
pub use object::Sleep;
pub use object_store::ObjectStore;
pub use positions::PositionObjects;
pub use store::{Created, Store, StoredJob, Survey};
