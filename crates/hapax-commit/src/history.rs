//! The checkpoints that a chain still has, for a person who wants to go back to one, or to begin another job at one.
//!
//! Refuses to call proven what the chain does not prove: of the newest one it may not be known yet.

use crate::{
    id::{Epoch, SlotNumber},
    slot::{Manifest, Slot, SlotBody},
};
use alloc::vec::Vec;
use core::fmt;

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Its transactions are committed, or it had none.
    Proven,
    /// It is decided, and its outcome is not in the chain.
    InDoubt,
    /// Given up: its input was read again.
    Void,
    /// Gone on from without records that it counts.
    Abandoned,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proven => "proven",
            Self::InDoubt => "in doubt",
            Self::Void => "void",
            Self::Abandoned => "abandoned",
        })
    }
}

/// One kept checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// Its slot.
    pub slot: SlotNumber,
    /// Wall time of the slot in milliseconds since 1970. Advice.
    pub written_ms: i64,
    /// What it holds, with amended handles in place of those that they replace.
    pub manifest: Manifest,
    /// What became of it.
    pub standing: Standing,
    /// The older checkpoint that it is a copy of.
    pub restored: Option<Epoch>,
}

impl Checkpoint {
    /// Records in its transactions.
    pub fn records(&self) -> u64 {
        self.manifest.handles.iter().map(crate::handle::Handle::records).sum()
    }
}

/// The checkpoints of a whole chain, oldest first. What it means was checked by [`crate::ChainView::read`].
pub fn checkpoints<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> Vec<Checkpoint> {
    let mut found: Vec<Checkpoint> = Vec::new();
    for slot in slots {
        match &slot.body {
            SlotBody::Manifest(manifest) => {
                settle(&mut found);
                found.push(checkpoint(slot, manifest, None));
            }
            SlotBody::Restored { from, manifest } => found.push(checkpoint(slot, manifest, Some(*from))),
            SlotBody::Proven { epoch, .. } => became(&mut found, *epoch, Standing::Proven),
            SlotBody::Void { epoch } => became(&mut found, *epoch, Standing::Void),
            SlotBody::Abandoned { epoch, .. } => became(&mut found, *epoch, Standing::Abandoned),
            SlotBody::Amend { epoch, handles } => {
                let amended = found.iter_mut().filter(|one| one.manifest.epoch == *epoch);
                for handle in amended.flat_map(|one| &mut one.manifest.handles) {
                    if let Some(new) = handles.iter().find(|new| new.lane == handle.lane) {
                        handle.clone_from(new);
                    }
                }
            }
            SlotBody::Claim(_) | SlotBody::Revision(_) => {}
        }
    }
    found
}

fn checkpoint(slot: &Slot, manifest: &Manifest, restored: Option<Epoch>) -> Checkpoint {
    let standing = if manifest.handles.is_empty() { Standing::Proven } else { Standing::InDoubt };
    Checkpoint {
        slot: slot.number,
        written_ms: slot.written_ms,
        manifest: manifest.clone(),
        standing,
        restored,
    }
}

/// The next manifest of a run proves the one before.
fn settle(found: &mut [Checkpoint]) {
    if let Some(last) = found.last_mut().filter(|last| last.standing == Standing::InDoubt) {
        last.standing = Standing::Proven;
    }
}

fn became(found: &mut [Checkpoint], epoch: Epoch, standing: Standing) {
    let of_epoch = found.iter_mut().filter(|one| one.manifest.epoch == epoch);
    of_epoch.for_each(|one| one.standing = standing);
}
