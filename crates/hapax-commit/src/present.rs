//! What a job of decider `transaction` is at present, by the bookmarks that are found, and which of its ids a start clears.
//!
//! Owns what bookmarks tell before anything is cleared: layout, home, where each place is; and the order of clearing, on
//! which a change of the layout rests. Refuses to judge progress: what is found here may be outdated the next moment.
//!
//! A change of the layout replaces the bookmarks of all shards by one transaction, on the *lock*, the id of genesis. What it
//! replaces must not move between its look and its commit, although other runs may start at the same time:
//!
//! ```text
//!  a change:   clear the lock -> clear all others -> read -> commit on the lock
//!  any start:                    clear all others -> clear the lock -> read -> write
//! ```
//!
//! Invariant: whose change is committed has been the last to clear the lock. A run that writes has cleared the lock after
//! all others, so it did all of that before, and the change has fenced each of its ids behind that.

use crate::{
    bookmark::{Bookmark, Home, Reading},
    id::{Epoch, LaneId, Name, ShardId, TransactionalId},
    position::{Positions, SplitId},
    slot::Layout,
};
use alloc::{collections::BTreeMap, string::String, vec::Vec};

/// A bookmark and where it was found. Its positions are there, wherever they are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marked {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// What stands there.
    pub mark: Bookmark,
}

impl Marked {
    /// One split's bookmark stands beside the offset of that split's partition.
    fn home(&self) -> Home {
        let Reading::Positions(positions) = &self.mark.at else { return Home::Carrier };
        let place = alloc::format!("/{}/{}", self.topic, self.partition);
        let is_own = |split: &SplitId| split.0.ends_with(&place);
        if positions.len() == 1 && positions.keys().all(is_own) { Home::Group } else { Home::Carrier }
    }
}

/// What bookmarks say that a job is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Present {
    /// Where they stand.
    pub home: Home,
    /// What the cluster was called, after which its ids are named, as far as the newest ones tell.
    pub cluster: Option<Name>,
    /// Which shard reads what.
    pub layout: Layout,
    /// Where every split goes on.
    pub positions: Positions,
    /// How many shards the job has ever had.
    pub ever: u32,
    /// None is missing, as far as they tell.
    pub whole: bool,
    /// Where each split's bookmark stands, on the group's own offsets.
    pub splits: BTreeMap<SplitId, (String, i32)>,
    /// Where each shard's stands, on a carrier topic.
    pub shards: BTreeMap<ShardId, (String, i32)>,
}

impl Present {
    /// Of bookmarks of one job; none where there is none. `most` bounds what a damaged one can ask for.
    pub fn of(marks: &[Marked], most: u32) -> Option<Self> {
        let newest = marks.iter().map(|one| &one.mark).max_by_key(|mark| mark.layout)?;
        let (number, count, wanted) = (newest.layout, newest.shards.min(most), newest.splits as usize);
        let of_newest: Vec<&Marked> = marks.iter().filter(|one| one.mark.layout == number).collect();
        let is_carrier = |one: &&Marked| one.home() == Home::Carrier;
        let home = if of_newest.iter().any(is_carrier) { Home::Carrier } else { Home::Group };
        let mut present = Self {
            home,
            cluster: newest.cluster.clone(),
            layout: Layout { number, shards: (0..count).map(|n| (ShardId(n), Vec::new())).collect() },
            positions: Positions::new(),
            ever: marks.iter().map(|one| one.mark.ever()).max().unwrap_or(count).min(most),
            whole: false,
            splits: BTreeMap::new(),
            shards: BTreeMap::new(),
        };
        for one in &of_newest {
            present.add(one);
        }
        let there = present.positions.len();
        let has_all = home == Home::Group || present.shards.len() == count as usize;
        present.whole = of_newest.len() == marks.len() && there == wanted && has_all;
        Some(present)
    }

    fn add(&mut self, one: &Marked) {
        let (place, shard) = ((one.topic.clone(), one.partition), one.mark.shard);
        let Reading::Positions(positions) = &one.mark.at else { return };
        self.layout.shards.entry(shard).or_default().extend(positions.keys().cloned());
        self.positions.extend(positions.clone());
        match self.home {
            Home::Group => self.splits.extend(positions.keys().map(|split| (split.clone(), place.clone()))),
            Home::Carrier => drop(self.shards.insert(shard, place)),
        }
    }

    /// A bounded job whose every split is read to its end: each position was committed with what it stands behind.
    pub fn is_finished(&self) -> bool {
        is_finished(&self.positions)
    }
}

/// Is every split at its end?
pub fn is_finished(positions: &Positions) -> bool {
    !positions.is_empty() && positions.values().all(crate::position::Position::at_end)
}

/// The ids of a job that has ever had so many shards, each once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ids {
    /// The one that genesis and every change of the layout stand on.
    pub lock: TransactionalId,
    /// All others.
    pub others: Vec<TransactionalId>,
}

impl Ids {
    /// Of the shards of every layout: those that are gone may have a transaction open (H17), and somebody may sleep who
    /// would write under them.
    pub fn of(job: &Name, cluster: &Name, ever: u32) -> Self {
        let lane = |shard| LaneId { cluster: cluster.clone(), shard: ShardId(shard) };
        let lock = lane(0).transactional_id(job, Epoch::GENESIS);
        let all = (0..ever.max(1)).flat_map(|shard| lane(shard).transactional_ids(job));
        let others = all.filter(|id| *id != lock).collect();
        Self { lock, others }
    }

    /// All of them.
    pub fn all(&self) -> Vec<TransactionalId> {
        self.others.iter().chain([&self.lock]).cloned().collect()
    }

    /// In which order a start clears them: what stands in one step in any order, one step after the other.
    pub fn steps_of_start(&self) -> [Vec<TransactionalId>; 2] {
        [self.others.clone(), [self.lock.clone()].into()]
    }

    /// In which order a change of the layout clears them. It keeps the identity that it gets of the lock.
    pub fn steps_of_change(&self) -> [Vec<TransactionalId>; 2] {
        [[self.lock.clone()].into(), self.others.clone()]
    }
}
