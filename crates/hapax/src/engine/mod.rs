//! The sink for somebody else's engine: it writes, prepares at a barrier, hands out a handle, and commits when told.
//!
//! The engine decides. It keeps the handles in its own checkpoint, and hands back what it kept when it starts again.
//!
//! ```no_run
//! use hapax::engine::{KafkaSink, Outcome, Record};
//! use hapax::engine::{Handle, Known};
//!
//! # async fn example(saved: Vec<Known>, ids: Vec<String>, generation: u64) -> Result<(), hapax::engine::EngineError> {
//! # fn save(_: &[Known]) {}
//! let cluster = hapax::cluster::Cluster::named("main", "kafka-1:9092")?;
//! let sink = KafkaSink::builder(cluster).job("orders").exactly_once()?;
//! let report = sink.recover(&saved, &ids, generation).await?; // all lanes at once: clear, look, judge, commit
//! save(&report.left()); // what is still to be resolved; the engine's record that the rest is committed
//! report.recorded().await?;
//!
//! let mut lane = sink.lane(0).await?;
//! lane.write(Record::to("out").key("k").value("v")).await?; // waits for room; dropping the future loses nothing
//! if let Some(handle) = lane.prepare(1).await? {
//!     save(&[handle.clone().into()]); // the engine decides here
//!     match lane.commit(&handle).await? {
//!         Outcome::Committed(proof) => {
//!             save(&[]); // in the next checkpoint, in practice
//!             lane.recorded(proof);
//!         }
//!         Outcome::Aborted(lost) => panic!("{lost}"),
//!         Outcome::Unknown(why) => panic!("{why}"),
//!         _ => unreachable!("a later release"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What the engine owes is in `docs/embedding.md`: one atomic checkpoint; every handle
//! of the newest one and every id that it ever used handed back; never two owners of a shard without a higher
//! generation; epochs committed in order; proofs stored. A checkpoint store can be held against that: feature
//! `conformance`.
//!
//! - [`KafkaSink`]: one job's writer into one cluster
//! - [`Recovered`]: what became of the transactions that earlier runs had decided
//! - [`Lane`], [`Record`]: one shard's epochs, one after another
//! - [`Committer`], [`Outcome`]: the end of a decided transaction
//! - [`Owner`]: whether this run is still the one that may act
//! - [`EngineError`]: what went wrong, whose fault it is, what may be done

/// The code of the page for engines compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/embedding.md")]
struct Embedding;

mod commit;
mod error;
mod lane;
mod owner;
mod record;
mod recover;
mod resolve;
mod sink;

pub use commit::{Committer, Lost, LostPartition, Outcome, Proof};
pub use error::EngineError;
pub use hapax_commit::{
    Handle, HandlePartition,
    inference::{IdOnly, Refusal},
    recovery::handover::{Known, Settled, Standing},
};
pub use lane::Lane;
pub use owner::{Owner, OwnerError};
pub use record::Record;
pub use recover::Recovered;
pub use sink::{KafkaSink, KafkaSinkBuilder};
