//! Journals of lanes: every record of an epoch, kept in the checkpoint store until the epoch has its outcome.
//!
//! Owns how records get into a journal while a lane writes ([`Recorder`]) and out of it again in recovery
//! ([`JournalReader`]). Refuses to hold more of an epoch in memory than two parts, and to count a part as kept before
//! it is stored. Where parts lie, and what stands in them, is `hapax_store`'s.
//!
//! ```text
//! a record is in a batch ─► Recorder ─ part full ─► put, while the next one fills ─► barrier: every part is stored
//!                                                                                     └─► Journal, into the share
//! ```
//!
//! Without the feature `journal` there is neither: a plan that asks for a journal is refused, and an epoch that has one
//! is passed over by `replay`.

#[cfg(not(feature = "journal"))]
mod absent;
#[cfg(feature = "journal")]
mod read;
#[cfg(feature = "journal")]
mod record;

#[cfg(not(feature = "journal"))]
pub(crate) use absent::{JournalReader, Recorder, Rows};
#[cfg(feature = "journal")]
pub(crate) use hapax_store::journal::Rows;
#[cfg(feature = "journal")]
pub(crate) use read::JournalReader;
#[cfg(feature = "journal")]
pub(crate) use record::Recorder;

use hapax_commit::Generation;
use hapax_store::Journals;

/// Where a run keeps its journals.
#[derive(Clone, Debug)]
pub struct JournalPlace {
    pub(crate) journals: Journals,
    pub(crate) generation: Generation,
}

/// Can this build keep journals?
pub(crate) const AVAILABLE: bool = cfg!(feature = "journal");
