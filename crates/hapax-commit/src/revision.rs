//! What a job is from one place of its chain on: a slot that replaces what the job record said of it.
//!
//! Owns: the job's *shape* (layout, start positions, clusters, topics, the pipeline's text), which positions a checkpoint
//! gives to a shape, and how splits are dealt out when shards or splits change. Refuses: finding out what a cluster has.
//!
//! ```text
//!  job record ----> revision ----> revision ----> ..        the newest one counts
//!   shape 1          shape 2        shape 3
//! ```
//!
//! Invariants:
//! - A revision stands behind a claim and behind no epoch in doubt: what was decided under the old shape is resolved
//!   under it.
//! - A split's start position is durable before its first record is read (H16).
//! - The number of a layout rises with every change of it.

use crate::{
    id::{Epoch, Name, ShardId},
    invariant::{Broken, holds},
    position::{Positions, SplitId},
    slot::{ClusterRecord, JobRecord, Layout, Manifest, TopicRecord},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use serde::{Deserialize, Serialize};

/// What a job reads and writes, and how its input is dealt out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Number of shards, and the splits that each owns.
    pub layout: Layout,
    /// Start (and, where bounded, end) positions of every split: where one begins that no checkpoint names.
    pub genesis: Positions,
    /// Clusters by their name in the pipeline file.
    pub clusters: BTreeMap<Name, ClusterRecord>,
    /// Topics of sources and sinks, by `cluster/topic`.
    pub topics: BTreeMap<String, TopicRecord>,
    /// The pipeline file's text as it was given, before variables were expanded.
    pub pipeline: String,
}

/// A slot's word about the shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Revision {
    /// The settled epoch that it stands behind.
    pub behind: Epoch,
    /// The shape from here on.
    pub shape: Shape,
    /// Kafka's ids of clusters that the job has left: every id of it there was cleared behind the newest claim, or is
    /// given up as a person said. They are not cleared again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl Shape {
    /// The shape that a job was created with.
    pub fn of(record: &JobRecord) -> Self {
        Self {
            layout: record.layout.clone(),
            genesis: record.genesis.clone(),
            clusters: record.clusters.clone(),
            topics: record.topics.clone(),
            pipeline: record.pipeline.clone(),
        }
    }

    /// Where each split of the layout goes on behind a checkpoint: a split that the checkpoint does not name begins at
    /// its start, one that the layout does not name is left out.
    pub fn positions(&self, checkpoint: Option<&Manifest>) -> Positions {
        let at = |split: &SplitId| {
            let named = checkpoint.and_then(|manifest| manifest.positions.get(split));
            let position = named.or_else(|| self.genesis.get(split))?;
            Some((split.clone(), position.clone()))
        };
        self.layout.shards.values().flatten().filter_map(at).collect()
    }

    /// The splits that the layout has.
    pub fn splits(&self) -> impl Iterator<Item = &SplitId> {
        self.layout.shards.values().flatten()
    }

    /// The invariants of what becomes durable.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        let mut seen = BTreeSet::new();
        holds(self.splits().all(|split| seen.insert(split)), "every split stands in one shard")?;
        holds(
            seen.into_iter().eq(self.genesis.keys()),
            "every split of the layout has a start, no other has",
        )?;
        holds(!self.layout.shards.is_empty(), "a layout has a shard")
    }

    /// The shape with other splits: what is new begins where it is said and goes to the shards with the least, what is
    /// not to be read any more loses its positions. The shards stay.
    #[must_use]
    pub fn with_splits(&self, added: &Positions, dropped: &BTreeSet<SplitId>) -> Self {
        let mut shape = self.clone();
        if added.is_empty() && dropped.is_empty() {
            return shape;
        }
        shape.layout.number += 1;
        shape.genesis.retain(|split, _| !dropped.contains(split));
        for splits in shape.layout.shards.values_mut() {
            splits.retain(|split| !dropped.contains(split));
        }
        for (split, position) in added {
            shape.genesis.insert(split.clone(), position.clone());
            let least = shape.layout.shards.iter_mut().min_by_key(|(shard, splits)| (splits.len(), **shard));
            least.expect("a layout has a shard").1.push(split.clone());
        }
        shape
    }

    /// The shape with another number of shards: the splits are dealt out anew, their positions stay.
    #[must_use]
    pub fn with_shards(&self, shards: u32) -> Self {
        let layout = Layout::dealt(self.layout.number + 1, self.genesis.keys(), shards);
        Self { layout, ..self.clone() }
    }
}

impl Layout {
    /// Round robin over the splits in order, so that partitions of one topic spread.
    pub fn dealt<'a>(number: u32, splits: impl IntoIterator<Item = &'a SplitId>, shards: u32) -> Self {
        let mut dealt: BTreeMap<ShardId, Vec<SplitId>> =
            (0..shards).map(|n| (ShardId(n), Vec::new())).collect();
        for (split, shard) in splits.into_iter().zip((0..shards).cycle()) {
            dealt.entry(ShardId(shard)).or_default().push(split.clone());
        }
        Self { number, shards: dealt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Position;

    fn split(n: u64) -> SplitId {
        SplitId(alloc::format!("in/t/{n}"))
    }

    fn positions(splits: impl IntoIterator<Item = u64>, next: u64) -> Positions {
        let at = |n| {
            let position = Position { next, leader_epoch: None, topic_id: None, file: None, end: None };
            (split(n), position)
        };
        splits.into_iter().map(at).collect()
    }

    fn shape(splits: u64, shards: u32) -> Shape {
        let genesis = positions(0..splits, 0);
        Shape {
            layout: Layout::dealt(1, genesis.keys(), shards),
            genesis,
            clusters: BTreeMap::new(),
            topics: BTreeMap::new(),
            pipeline: String::new(),
        }
    }

    #[test]
    fn every_split_keeps_its_position_through_any_number_of_shards() {
        let mut shape = shape(5, 4);
        let manifest = Manifest {
            epoch: Epoch(3),
            positions: positions(0..5, 30),
            handles: Vec::new(),
            journals: Vec::new(),
        };
        for (number, shards) in [(2, 7), (3, 2), (4, 1)] {
            shape = shape.with_shards(shards);
            assert_eq!((shape.layout.number, shape.layout.shards.len()), (number, shards as usize));
            assert_eq!(shape.check(), Ok(()));
            assert_eq!(shape.positions(Some(&manifest)), positions(0..5, 30));
        }
    }

    #[test]
    fn a_split_that_no_checkpoint_names_begins_at_its_start() {
        let shape = shape(3, 2).with_splits(&positions([7], 4), &BTreeSet::new());
        assert_eq!(shape.check(), Ok(()));
        let manifest = Manifest {
            epoch: Epoch(1),
            positions: positions(0..3, 10),
            handles: Vec::new(),
            journals: Vec::new(),
        };
        let wanted: Positions = positions(0..3, 10).into_iter().chain(positions([7], 4)).collect();
        assert_eq!(shape.positions(Some(&manifest)), wanted);
        assert_eq!(shape.layout.shards[&ShardId(1)].len(), 2, "it goes where the least is");
    }

    #[test]
    fn a_split_that_is_dropped_loses_its_position_for_good() {
        let dropped = shape(3, 2).with_splits(&Positions::new(), &[split(1)].into());
        assert_eq!(dropped.check(), Ok(()));
        assert_eq!(dropped.layout.number, 2);
        assert_eq!(dropped.positions(None), positions([0, 2], 0));
    }

    #[test]
    fn a_shape_whose_splits_have_no_start_or_two_shards_is_refused() {
        let mut twice = shape(2, 2);
        twice.layout.shards.values_mut().for_each(|splits| splits.push(split(9)));
        assert!(twice.check().is_err());
        let mut without = shape(2, 2);
        without.genesis.clear();
        assert!(without.check().is_err());
    }
}
