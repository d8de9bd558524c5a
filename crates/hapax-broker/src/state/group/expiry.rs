//! Offsets that nobody needs expire, each by itself: `offsets.retention.minutes` after the group lost its last member,
//! or after the commit where the group never had any, or where its members no longer want the topic. A group without
//! members and offsets goes with its last offset. (KIP-211)
//!
//! An offset that an open transaction is about to replace stays.

use super::{
    member::{Group, Phase},
    offset::Committed,
};
use crate::state::{Code, Machine, Millis, Timer, TopicPartition};

/// `offsets.retention.check.interval.ms`.
const LOOK_MS: Millis = 600_000;

/// From when on the retention of a group's offsets counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// The group is in use: never.
    Never,
    /// Each offset's commit.
    Commit,
    /// A time, for all of them.
    Fixed(Millis),
}

impl Since {
    fn of(group: &Group) -> Self {
        match group.phase {
            _ if group.protocol_type.is_none() => Self::Commit,
            Phase::Empty => Self::Fixed(group.since),
            Phase::Stable if group.subscribed().is_some() => Self::Commit,
            Phase::Stable | Phase::PreparingRebalance | Phase::CompletingRebalance => Self::Never,
        }
    }

    /// When an offset expires.
    fn expiry(self, committed: &Committed, retention: Millis) -> Option<Millis> {
        let kept = |since: Millis| committed.expires.unwrap_or_else(|| since.saturating_add(retention));
        match self {
            Self::Never => None,
            Self::Commit => Some(kept(committed.at)),
            Self::Fixed(since) => Some(kept(since)),
        }
    }
}

impl Machine {
    /// When each offset of a group expires; not those that members want or a transaction is about to replace.
    fn offset_expiries(&self, group: &Group) -> Vec<(TopicPartition, Millis)> {
        let since = Since::of(group);
        let wanted = group.subscribed().unwrap_or_default();
        let retention = self.settings.offsets_retention_ms;
        let offsets = group.offsets.committed.iter();
        offsets
            .filter(|(at, _)| !wanted.contains(&at.topic) && !group.offsets.is_unstable(at))
            .filter_map(|(at, committed)| Some((at.clone(), since.expiry(committed, retention)?)))
            .collect()
    }

    /// Sets the next look if there is none: every so often, as long as there are offsets.
    pub(super) fn wake_offset_expiry(&mut self) {
        if self.groups.expiry_due.is_none() {
            let at = self.now.saturating_add(LOOK_MS - self.now.rem_euclid(LOOK_MS));
            self.groups.expiry_due = Some(at);
            self.timers.at(at, Timer::ExpireOffsets);
        }
    }

    /// Forgets what has expired; at once, whatever nobody needs.
    pub(crate) fn expire_offsets(&mut self, at_once: bool) {
        if self.groups.expiry_due.is_some_and(|due| due <= self.now) {
            self.groups.expiry_due = None;
        }
        let loaded = self.groups.shards.values().filter(|shard| !shard.loading);
        let mut expired = Vec::new();
        for (id, group) in loaded.flat_map(|shard| &shard.groups) {
            let at_once = at_once && group.phase == Phase::Empty;
            let offsets = self.offset_expiries(group).into_iter();
            let offsets = offsets.filter(|(_, at)| at_once || *at <= self.now).map(|(at, _)| at);
            expired.push((id.clone(), offsets.collect::<Vec<_>>()));
        }
        for (id, offsets) in expired {
            let done = self.delete_offsets(&id, &offsets).and_then(|()| self.forget_if_free(&id));
            if let Err(code) = done {
                tracing::error!(group = id, code = code.0, "expired offsets stay");
            }
        }
        if self.groups.shards.values().any(|shard| !shard.groups.is_empty()) {
            self.wake_offset_expiry();
        }
    }

    /// Forgets a group that has neither members nor offsets.
    pub(super) fn forget_if_free(&mut self, id: &str) -> Result<(), Code> {
        let is_free = |group: &&mut Group| {
            let pending = group.offsets.pending.values().any(|pending| !pending.is_empty());
            group.phase == Phase::Empty && group.offsets.committed.is_empty() && !pending
        };
        if self.group_mut(id).filter(is_free).is_some() {
            self.forget_group(id)?;
        }
        Ok(())
    }
}
