//! The group coordinator: groups of the classic protocol, their offsets, and the offsets of transactions. Kept where
//! the leader of a group's partition of `__consumer_offsets` is, and rebuilt from that topic's bytes whenever the
//! leadership moves or the broker crashes.
//!
//! ```text
//! find    FindCoordinator, of groups and of transactional ids
//! member  what a group is      join, sync   what requests and time do to it, as effects     request  both put together
//! offset  what a group has     commit, fetch   OffsetCommit, TxnOffsetCommit, OffsetFetch   expiry   when it goes
//! admin   DescribeGroups, ListGroups, DeleteGroups, OffsetDelete                            load     all of it again
//! ```
//!
//! Non-obvious: an offset of a transaction is written when it is sent, invisibly, and becomes visible when the marker
//! is written into the offsets partition; nothing else may make it visible, a reload included.
//!
//! Sources: `GroupMetadataManager`, `OffsetMetadataManager`, `ClassicGroup`; KIP-98, KIP-345, KIP-394, KIP-447, KIP-890.

mod admin;
mod commit;
mod expiry;
mod fetch;
mod find;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod join;
mod load;
mod member;
mod offset;
mod record;
mod request;
#[cfg(test)]
mod scenario;
mod sync;

use super::{
    Code, Machine, Millis, NodeId, catalog::CONSUMER_OFFSETS, digest::feed, transaction::partition_for,
};
use member::Group;
use std::collections::BTreeMap;

/// Everybody who joins comes from this machine, or through a listener that poses as it.
const CLIENT_HOST: &str = "/127.0.0.1";

/// All group coordinators of the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// By partition of [`CONSUMER_OFFSETS`], for as long as the partition is there.
    shards: BTreeMap<i32, Shard>,
    /// How many waits of groups have begun: of all groups, because one that is loaded or made again knows nothing of
    /// the timers that were set for it before.
    waits: u64,
    expiry_due: Option<Millis>,
}

feed!(Groups { shards, waits, expiry_due });

/// The groups of one partition at the node that leads it.
#[derive(Clone, Debug)]
struct Shard {
    node: NodeId,
    epoch: i32,
    loading: bool,
    groups: BTreeMap<String, Group>,
}

feed!(Shard { node, epoch, loading, groups });

impl Machine {
    fn offsets_partition(&self, group: &str) -> i32 {
        partition_for(group, self.settings.offsets_partitions)
    }

    /// The groups of a group's partition, if the node coordinates them.
    fn group_shard(&self, group: &str, node: NodeId) -> Result<&Shard, Code> {
        let shard = self.groups.shards.get(&self.offsets_partition(group));
        let shard = shard.filter(|shard| shard.node == node).ok_or(Code::NOT_COORDINATOR)?;
        if shard.loading { Err(Code::COORDINATOR_LOAD_IN_PROGRESS) } else { Ok(shard) }
    }

    /// A group; `None` where there is none.
    fn group(&self, group: &str, node: NodeId) -> Result<Option<&Group>, Code> {
        self.group_shard(group, node).map(|shard| shard.groups.get(group))
    }

    fn group_mut(&mut self, group: &str) -> Option<&mut Group> {
        let partition = self.offsets_partition(group);
        self.groups.shards.get_mut(&partition)?.groups.get_mut(group)
    }

    /// A group, made if there is none: one without members, for offsets that nobody manages.
    fn group_or_new(&mut self, group: &str) -> Option<&mut Group> {
        let partition = self.offsets_partition(group);
        let now = self.now;
        let shard = self.groups.shards.get_mut(&partition)?;
        Some(shard.groups.entry(group.to_owned()).or_insert_with(|| Group { since: now, ..Group::default() }))
    }

    /// Writes a group to its topic.
    fn write_group(&mut self, group: &str) -> Result<(), Code> {
        let held = self.group_mut(group).ok_or(Code::NOT_COORDINATOR)?;
        let value = record::group_value(held);
        let partition = self.offsets_partition(group);
        self.append_internal(CONSUMER_OFFSETS, partition, record::group_key(group), Some(value))
    }

    /// A transaction ends in a partition of `__consumer_offsets`: its offsets become visible there, or are gone.
    pub(crate) fn groups_marker(&mut self, partition: i32, producer_id: i64, commit: bool) {
        // A partition that loads reads the marker from its log.
        let Some(shard) = self.groups.shards.get_mut(&partition).filter(|shard| !shard.loading) else {
            return;
        };
        shard.groups.values_mut().for_each(|group| group.offsets.end(producer_id, commit));
        self.wake_offset_expiry();
    }
}
