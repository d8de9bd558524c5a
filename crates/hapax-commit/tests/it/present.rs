//! What bookmarks say of the present, and that no change of the layout takes anything back, in every interleaving.

use hapax_commit::{
    Bookmark, Epoch, Identity, LaneId, Marked, Name, Position, Positions, Present, ProducerEpoch, ProducerId,
    Reading, ShardId, SplitId, TransactionalId, bookmark::Home, present::Ids,
};
use std::collections::BTreeSet;

const MOST: u32 = 10_000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn position(next: u64, end: Option<u64>) -> Position {
    Position { next, leader_epoch: None, topic_id: None, file: None, end }
}

/// A bookmark of a job with two shards and so many splits.
fn mark(shard: u32, splits: u32, positions: Positions) -> Bookmark {
    Bookmark {
        job: name("orders"),
        cluster: Some(Name::new("main").unwrap()),
        layout: 3,
        shards: 2,
        most: 7,
        splits,
        shard: ShardId(shard),
        epoch: Epoch(4),
        by: Identity { producer_id: ProducerId(1), producer_epoch: ProducerEpoch(0) },
        at: Reading::Positions(positions),
    }
}

fn in_group(shard: u32, partition: i32) -> Marked {
    let split = SplitId(format!("main/in/{partition}"));
    let mark = mark(shard, 3, [(split, position(5, None))].into());
    Marked { topic: "in".into(), partition, mark }
}

fn on_carrier(shard: u32, splits: &[u32]) -> Marked {
    let at = |split: &u32| (SplitId(format!("main/in/{split}")), position(5, Some(5)));
    let mark = mark(shard, 3, splits.iter().map(at).collect());
    Marked { topic: "orders.progress".into(), partition: shard as i32, mark }
}

#[test]
fn bookmarks_tell_the_layout_where_they_stand_and_how_many_shards_there_ever_were() {
    let group = [in_group(0, 0), in_group(1, 1), in_group(0, 2)];
    let present = Present::of(&group, MOST).unwrap();
    assert_eq!((present.home, present.whole, present.ever), (Home::Group, true, 7));
    assert_eq!((present.layout.number, present.layout.shards[&ShardId(0)].len()), (3, 2));
    assert_eq!(present.splits[&SplitId("main/in/1".into())], ("in".to_owned(), 1));
    assert!(!present.is_finished());
    let carrier = [on_carrier(0, &[0, 2]), on_carrier(1, &[1])];
    let present = Present::of(&carrier, MOST).unwrap();
    assert_eq!((present.home, present.whole), (Home::Carrier, true));
    assert_eq!(present.shards[&ShardId(1)], ("orders.progress".to_owned(), 1));
    assert!(present.is_finished());
}

#[test]
fn what_is_missing_or_of_another_layout_is_not_whole() {
    assert_eq!(Present::of(&[], MOST), None);
    assert!(!Present::of(&[in_group(0, 0), in_group(1, 1)], MOST).unwrap().whole);
    assert!(
        !Present::of(&[on_carrier(0, &[0, 1, 2])], MOST).unwrap().whole,
        "a shard without splits has one"
    );
    let mut former = in_group(1, 9);
    former.mark.layout = 2;
    let both = [in_group(0, 0), in_group(1, 1), in_group(0, 2), former];
    let present = Present::of(&both, MOST).unwrap();
    assert!(!present.whole && present.layout.number == 3);
}

#[test]
fn a_damaged_number_asks_for_no_more_ids_than_a_job_may_have() {
    let mut one = in_group(0, 0);
    (one.mark.shards, one.mark.most) = (u32::MAX, u32::MAX);
    let present = Present::of(&[one], 16).unwrap();
    assert_eq!((present.layout.shards.len(), present.ever), (16, 16));
}

/// A topic that is named like a carrier is still the source's own.
#[test]
fn a_place_is_a_carrier_by_what_stands_there_and_not_by_its_name() {
    let split = SplitId("main/orders.progress/1".into());
    let mark = mark(0, 1, [(split, position(5, None))].into());
    let one = Marked { topic: "orders.progress".into(), partition: 1, mark };
    assert_eq!(Present::of(&[one], MOST).unwrap().home, Home::Group);
}

#[test]
fn every_id_of_every_shard_there_ever_was_is_cleared_once() {
    let ids = Ids::of(&name("orders"), &name("main"), 7);
    let all: BTreeSet<_> = ids.all().into_iter().collect();
    assert_eq!((all.len(), ids.all().len()), (21, 21));
    for steps in [ids.steps_of_start(), ids.steps_of_change()] {
        assert_eq!(steps.concat().into_iter().collect::<BTreeSet<_>>(), all);
    }
}

/// Whoever clears an id owns it; a run commits an epoch on the id of its number while it owns that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    /// Who cleared each id of the shard last.
    owners: [usize; 3],
    layout: u32,
    epoch: u64,
    /// The next record to read.
    next: u64,
    /// Records that are out.
    out: u64,
    agents: Vec<Agent>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Agent {
    is_change: bool,
    /// Ids still to be cleared, step by step.
    steps: Vec<Vec<usize>>,
    /// Layout, epoch and next record, as they were read.
    read: Option<(u32, u64, u64)>,
    /// Commits that it will try.
    left: u32,
}

fn lane() -> [TransactionalId; 3] {
    LaneId { cluster: name("main"), shard: ShardId(0) }.transactional_ids(&name("orders"))
}

fn agent(is_change: bool, steps: &[Vec<TransactionalId>; 2]) -> Agent {
    let index = |id: &TransactionalId| lane().iter().position(|own| own == id).unwrap();
    let steps = steps.iter().map(|step| step.iter().map(index).collect()).collect();
    Agent { is_change, steps, read: None, left: if is_change { 1 } else { 2 } }
}

impl World {
    /// Every world that one thing more leads to.
    fn next(&self) -> Vec<Self> {
        (0..self.agents.len()).flat_map(|who| self.step(who)).collect()
    }

    fn step(&self, who: usize) -> Vec<Self> {
        let agent = &self.agents[who];
        if let Some(step) = agent.steps.first() {
            return (0..step.len()).map(|index| self.cleared(who, index)).collect();
        }
        let mut world = self.clone();
        match agent.read {
            None => world.agents[who].read = Some((self.layout, self.epoch, self.next)),
            Some(_) if agent.left == 0 => return Vec::new(),
            Some((layout, ..)) if layout != 1 => world.agents[who].left = 0,
            Some(read) if agent.is_change => world.change(who, read),
            Some(read) => world.write(who, read),
        }
        vec![world]
    }

    /// What stands in one step is cleared in any order.
    fn cleared(&self, who: usize, index: usize) -> Self {
        let mut world = self.clone();
        let steps = &mut world.agents[who].steps;
        world.owners[steps[0].remove(index)] = who;
        if steps[0].is_empty() {
            steps.remove(0);
        }
        world
    }

    fn change(&mut self, who: usize, (_, _, next): (u32, u64, u64)) {
        self.agents[who].left = 0;
        if self.owners[0] == who {
            (self.layout, self.epoch, self.next) = (2, 0, next);
        }
    }

    fn write(&mut self, who: usize, (layout, epoch, next): (u32, u64, u64)) {
        let epoch = epoch + 1;
        let id = epoch % 3;
        if self.owners[id as usize] != who {
            self.agents[who].left = 0;
            return;
        }
        // Its bookmark takes the place of whatever is there.
        (self.layout, self.epoch, self.next) = (layout, epoch, next + 1);
        self.out += 1;
        self.agents[who].read = Some((layout, epoch, next + 1));
        self.agents[who].left -= 1;
    }
}

/// Walks every interleaving; the first world whose progress is not what is out.
fn explore(agents: &[Agent], epoch: u64) -> (usize, Option<World>) {
    let nobody = usize::MAX;
    let first = World { owners: [nobody; 3], layout: 1, epoch, next: 0, out: 0, agents: agents.to_vec() };
    let (mut seen, mut open) = (BTreeSet::new(), vec![first]);
    while let Some(world) = open.pop() {
        if world.next != world.out {
            return (seen.len(), Some(world));
        }
        if seen.insert(world.clone()) {
            open.extend(world.next());
        }
    }
    (seen.len(), None)
}

#[test]
fn no_interleaving_of_a_change_with_starts_and_changes_takes_a_committed_epoch_back() {
    let ids = Ids::of(&name("orders"), &name("main"), 1);
    let (start, change) = (agent(false, &ids.steps_of_start()), agent(true, &ids.steps_of_change()));
    for epoch in 0..3 {
        for agents in [
            vec![start.clone(), change.clone()],
            vec![start.clone(), start.clone(), change.clone()],
            vec![start.clone(), change.clone(), change.clone()],
        ] {
            let (worlds, wrong) = explore(&agents, epoch);
            assert!(worlds > 100, "{worlds} worlds");
            assert_eq!(wrong, None, "from epoch {epoch}");
        }
    }
}

/// Either order alone is not enough.
#[test]
fn in_any_other_order_an_epoch_can_be_taken_back() {
    let ids = Ids::of(&name("orders"), &name("main"), 1);
    let (start, change) = (ids.steps_of_start(), ids.steps_of_change());
    for (start, change) in [(&start, &start), (&change, &change), (&change, &start)] {
        let agents = [agent(false, start), agent(true, change)];
        assert!((0..3).any(|epoch| explore(&agents, epoch).1.is_some()), "the walk finds it");
    }
}
