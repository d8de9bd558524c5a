//! A group coordinator takes a partition of `__consumer_offsets` over. Meanwhile it answers
//! COORDINATOR_LOAD_IN_PROGRESS, and any other node NOT_COORDINATOR.

use super::{
    Shard,
    join::{Effect, Turn},
    member::Group,
    record::{self, Key},
};
use crate::state::{Code, Machine, Timer, catalog::CONSUMER_OFFSETS, log::Entry};
use bytes::Bytes;
use kafka_protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use std::collections::BTreeMap;

impl Machine {
    /// Lets coordinators be where the leaders of `__consumer_offsets` are, and none where the partition is gone. After a
    /// crash none of them knows anything.
    pub(crate) fn groups_follow(&mut self, crashed: bool) {
        if crashed {
            self.groups.shards.clear();
        }
        for partition in 0..self.settings.offsets_partitions {
            let Some(place) = self.catalog.partition(CONSUMER_OFFSETS, partition) else {
                if let Some(old) = self.groups.shards.remove(&partition) {
                    self.send_away(old);
                }
                continue;
            };
            let (node, epoch) = (place.leader, place.leader_epoch);
            let is_new = place.log.end() == 0;
            let shard = self.groups.shards.get(&partition);
            if shard.is_some_and(|shard| shard.node == node && shard.epoch == epoch) {
                continue;
            }
            let shard = Shard { node, epoch, loading: true, groups: BTreeMap::new() };
            if let Some(old) = self.groups.shards.insert(partition, shard) {
                self.send_away(old);
            }
            if is_new || self.settings.load_ms == 0 {
                self.load_groups(partition, epoch);
            } else {
                let due = self.now.saturating_add(self.settings.load_ms);
                self.timers.at(due, Timer::LoadGroups { partition, epoch });
            }
        }
    }

    /// Who waits at a coordinator that is none any more looks for the new one.
    fn send_away(&mut self, shard: Shard) {
        let code = Code::NOT_COORDINATOR.0;
        for (id, member) in shard.groups.into_values().flat_map(|group| group.members) {
            if let Some(waiting) = member.joining {
                let response = JoinGroupResponse::default()
                    .with_error_code(code)
                    .with_generation_id(-1)
                    .with_protocol_name(None)
                    .with_member_id(super::join::text(&id));
                self.apply_effect("", Effect::Joined(waiting, response));
            }
            if let Some(waiting) = member.syncing {
                let response = SyncGroupResponse::default().with_error_code(code);
                self.apply_effect("", Effect::Synced(waiting, response));
            }
        }
    }

    /// Ends the loading that began for this leadership, if it still is the leadership.
    pub(crate) fn load_groups(&mut self, partition: i32, epoch: i32) {
        let Some(place) = self.catalog.partition(CONSUMER_OFFSETS, partition) else { return };
        let loaded = replay(place.log.entries());
        let Some(shard) = self.groups.shards.get_mut(&partition) else { return };
        if !shard.loading || shard.epoch != epoch {
            return;
        }
        shard.loading = false;
        shard.groups = loaded;
        let names: Vec<String> = shard.groups.keys().cloned().collect();
        for name in names {
            self.change_group(&name, watch_all);
        }
        self.wake_offset_expiry();
    }
}

/// The sessions of members that were loaded begin.
fn watch_all(group: &mut Group, turn: &mut Turn) {
    let ids: Vec<String> = group.members.keys().cloned().collect();
    ids.iter().for_each(|id| group.heard_of(turn, id));
}

/// What the records of a partition say. A record that cannot be read is left out.
fn replay(entries: impl Iterator<Item = Entry>) -> BTreeMap<String, Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Marker { producer_id, commit } => {
                groups.values_mut().for_each(|group| group.offsets.end(producer_id, commit));
            }
            Entry::Record { offset, producer, key, value } => match key.and_then(record::read_key) {
                Some(Key::Group(name)) => replay_group(&mut groups, name, value),
                Some(Key::Offset { group, at }) => {
                    match value.map(|value| record::read_offset(value, offset)) {
                        Some(Ok(committed)) => {
                            let offsets = &mut groups.entry(group).or_default().offsets;
                            match producer {
                                Some((id, _)) => offsets.put_pending(id, at, committed),
                                None => drop(offsets.committed.insert(at, committed)),
                            }
                        }
                        None => {
                            if let Some(group) = groups.get_mut(&group) {
                                group.offsets.remove(&at);
                            }
                        }
                        Some(Err(_)) => tracing::warn!(group, "a record of an offset cannot be read"),
                    }
                }
                None => {}
            },
        }
    }
    groups
}

fn replay_group(groups: &mut BTreeMap<String, Group>, name: String, value: Option<Bytes>) {
    match value.map(record::read_group) {
        Some(Ok(group)) => {
            let offsets = groups.remove(&name).map(|held| held.offsets).unwrap_or_default();
            groups.insert(name, Group { offsets, ..group });
        }
        Some(Err(_)) => tracing::warn!(group = name, "a record of a group cannot be read"),
        None => drop(groups.remove(&name)),
    }
}
