//! Positions that are too long to stand beside an offset: what is in the object that a bookmark names instead.
//!
//! Owns the object's name and its bytes, and which objects may go. The name is that of the transaction whose offsets carry the
//! pointer, of the shard and of its epoch; nobody else ever has these, so what a run that slept puts late takes the place
//! of nothing (H5).

use crate::{
    bookmark::is_behind,
    envelope::{self, DamagedBytes, Kind},
    id::{Epoch, Identity, Name, ProducerEpoch, ProducerId, ShardId},
    position::Positions,
};
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// What such an object holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CarriedPositions {
    /// The job.
    pub job: Name,
    /// The shard.
    pub shard: ShardId,
    /// The shard's epoch.
    pub epoch: Epoch,
    /// The transaction that carries the pointer.
    pub by: Identity,
    /// Where reading goes on.
    pub positions: Positions,
}

impl CarriedPositions {
    /// The name of its object.
    pub fn name(&self) -> ObjectName {
        ObjectName { by: self.by, shard: self.shard, epoch: self.epoch }
    }

    /// Durable bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(Kind::Positions, self)
    }

    /// Reads what [`CarriedPositions::to_bytes`] wrote.
    ///
    /// # Errors
    /// Damaged bytes or a newer version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DamagedBytes> {
        envelope::open(Kind::Positions, bytes)
    }
}

/// The name of an object with positions.
///
/// On transactions of version 1 a producer keeps its epoch from one transaction to the next, so the shard's epoch is a part
/// of it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectName {
    /// The transaction that carries the pointer.
    pub by: Identity,
    /// The shard.
    pub shard: ShardId,
    /// The shard's epoch.
    pub epoch: Epoch,
}

impl ObjectName {
    /// As text.
    pub fn to_text(self) -> String {
        let Identity { producer_id: ProducerId(id), producer_epoch: ProducerEpoch(epoch) } = self.by;
        format!("{id}.{epoch}.{}.{}", self.shard, self.epoch)
    }

    /// Reads what [`ObjectName::to_text`] wrote; `None` where it is not exactly that.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let by = Identity {
            producer_id: ProducerId(parts.next()?.parse().ok()?),
            producer_epoch: ProducerEpoch(parts.next()?.parse().ok()?),
        };
        let shard = ShardId(parts.next()?.parse().ok()?);
        let name = Self { by, shard, epoch: Epoch(parts.next()?.parse().ok()?) };
        (name.to_text() == text).then_some(name)
    }
}

/// Objects that may go, of shards that are due: a run has committed an epoch of the shard and told it, or the layout lacks
/// it. They stand under identities that are older than those that this run got of the job's ids; whatever it does not know
/// to be older stays, since it may be that of a run which has taken over.
pub fn older(
    names: Vec<String>,
    is_due: impl Fn(ShardId) -> bool,
    cleared: &BTreeMap<ProducerId, Identity>,
) -> Vec<String> {
    let is_older = |name: &String| {
        let Some(object) = ObjectName::parse(name) else { return false };
        let known = cleared.get(&object.by.producer_id);
        is_due(object.shard) && known.is_some_and(|cleared| is_behind(object.by, *cleared))
    };
    names.into_iter().filter(is_older).collect()
}

/// What the object of a bookmark must be.
///
/// # Errors
/// Why it is not the one that the bookmark names.
pub fn check_object(found: &CarriedPositions, job: &Name, name: &str) -> Result<(), String> {
    if found.job != *job {
        return Err(format!("it is that of job {}", found.job));
    }
    let own = found.name().to_text();
    if own == name { Ok(()) } else { Err(format!("it was written as {}", own)) }
}
