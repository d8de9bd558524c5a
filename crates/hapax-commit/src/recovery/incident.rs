//! An incident: what a person must know when recovery cannot go on by itself.

use crate::{decision::PassedOver, evidence::LaneFate, handle::Handle, id::Epoch};
use alloc::{string::String, vec::Vec};
use core::fmt;

/// What stopped recovery. Nothing was given up and nothing that is in doubt was touched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Incident {
    /// The kind.
    pub kind: IncidentKind,
    /// The lanes that it is about, with their handles.
    pub lanes: Vec<LaneReport>,
    /// Why no strategy was taken.
    pub passed_over: Vec<PassedOver>,
}

/// The kinds of incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IncidentKind {
    /// Something was committed that the chain does not know: the store is an old copy.
    BrokersAhead,
    /// The brokers do not know any more what they once answered: they are an old copy, or lost acknowledged writes.
    BrokersBehind,
    /// A decided epoch that can neither be proven nor given up.
    Unresolved(Epoch),
}

/// One lane of an incident.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneReport {
    /// Its handle.
    pub handle: Handle,
    /// What is known about it.
    pub fate: LaneFate,
    /// By whom: each witness in words.
    pub evidence: Vec<String>,
}

/// Lanes that a message names; a file names all.
const LANES_IN_WORDS: usize = 8;

impl fmt::Display for LaneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handle, fate, evidence } = self;
        write!(f, "lane {}, {} ({}): {fate}", handle.lane, handle.at(), handle.identity)?;
        if let Some((first, rest)) = evidence.split_first() {
            write!(f, " [{first}")?;
            rest.iter().try_for_each(|line| write!(f, ", {line}"))?;
            f.write_str("]")?;
        }
        write!(f, ", {}", handle.records_in_words())
    }
}

/// What is given up of one lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneLoss {
    /// The lane, and what is known about it.
    pub lane: LaneReport,
    /// The handle with those partitions alone whose records readers do not see.
    pub missing: Handle,
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            IncidentKind::BrokersAhead => f.write_str(
                "the brokers are ahead of the checkpoint store, which looks like an old copy: nothing was cleared; \
                 bring the newest store back, or begin anew knowing that output repeats",
            )?,
            IncidentKind::BrokersBehind => f.write_str(
                "the brokers are behind the checkpoint store, which looks as if they were an old copy or had lost \
                 acknowledged writes: nothing was cleared; bring the newest state of the cluster back (of an embedded \
                 broker, its journal), or begin anew knowing that output is missing or repeats",
            )?,
            IncidentKind::Unresolved(epoch) => write!(
                f,
                "epoch {epoch} is decided but can neither be proven committed nor be given up; keep the store and \
                 the topics as they are"
            )?,
        }
        self.lanes.iter().take(LANES_IN_WORDS).try_for_each(|lane| write!(f, "; {lane}"))?;
        if let Some(more) = self.lanes.len().checked_sub(LANES_IN_WORDS).filter(|more| *more > 0) {
            write!(f, "; and {more} more lanes")?;
        }
        self.passed_over.iter().try_for_each(|passed| write!(f, "; {passed}"))
    }
}
