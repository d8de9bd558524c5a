//! Which process has which shards, and which shards share a decision.

use hapax_commit::{AssignmentKind, Layout, Positions, ShardId};

/// Gives shards to processes and to cohorts.
pub trait Assignment: Send + Sync {
    /// What stands in the job record.
    fn kind(&self) -> AssignmentKind;

    /// Deals the splits out to `shards` shards, for a new job.
    fn layout(&self, splits: &Positions, shards: u32) -> Layout;

    /// The cohorts that this process runs: for each, its number and its shards.
    fn cohorts(&self, layout: &Layout) -> Vec<(u32, Vec<ShardId>)>;
}

/// One process has all shards, and they share one decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct All;

impl Assignment for All {
    fn kind(&self) -> AssignmentKind {
        AssignmentKind::All
    }

    /// Round robin over the splits in order, so that partitions of one topic spread.
    fn layout(&self, splits: &Positions, shards: u32) -> Layout {
        Layout::dealt(1, splits.keys(), shards)
    }

    fn cohorts(&self, layout: &Layout) -> Vec<(u32, Vec<ShardId>)> {
        vec![(0, layout.shards.keys().copied().collect())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_commit::{Position, SplitId};

    #[test]
    fn every_split_has_one_shard_and_every_shard_stands_in_the_layout() {
        let position = Position { next: 0, leader_epoch: None, topic_id: None, file: None, end: None };
        let splits: Positions = (0..5).map(|n| (SplitId(format!("s/t/{n}")), position.clone())).collect();
        for shards in 1..8 {
            let layout = All.layout(&splits, shards);
            assert_eq!(layout.shards.len(), shards as usize);
            assert_eq!(layout.shards.values().map(Vec::len).sum::<usize>(), 5);
            assert_eq!(All.cohorts(&layout)[0].1.len(), shards as usize);
        }
    }
}
