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
    /// Who cleared each id of the shard last; the first is the lock.
    owners: [usize; 3],
    /// 0 before genesis.
    layout: u32,
    epoch: u64,
    /// The next record to read.
    next: u64,
    /// Records that this life of the job has out.
    out: u64,
    /// The offsets' partition knows of the newest commit on the lock (KAFKA-20734).
    is_told: bool,
    agents: Vec<Agent>,
}

/// What an agent does next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Clears these ids, in any order.
    Clear(Vec<usize>),
    /// A start without a store: is anything committed that can be read, or known of the job?
    Look,
    /// Behind the clearing of the lock: the same once more.
    LookAgain,
    /// Tells the offsets' partition how a transaction ended on an id that was cleared.
    Tell,
    /// Commits the first positions of a life; true where they take the place of whatever is there.
    Genesis(bool),
    Read,
    Change,
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Agent {
    steps: Vec<Step>,
    /// Layout, epoch and next record, as they were read.
    read: Option<(u32, u64, u64)>,
    /// Looks that may still find another start at work, and begin again.
    looks: u32,
}

const LOCK: usize = 0;

fn lane() -> [TransactionalId; 3] {
    LaneId { cluster: name("main"), shard: ShardId(0) }.transactional_ids(&name("orders"))
}

fn clearing(steps: &[Vec<TransactionalId>; 2]) -> Vec<Step> {
    let index = |id: &TransactionalId| lane().iter().position(|own| own == id).unwrap();
    steps.iter().map(|step| Step::Clear(step.iter().map(index).collect())).collect()
}

fn agent(steps: Vec<Step>) -> Agent {
    Agent { steps, read: None, looks: 2 }
}

/// The steps of those that start a job, change it, or begin it anew.
#[derive(Clone, Debug)]
struct Orders {
    start: [Vec<TransactionalId>; 2],
    change: [Vec<TransactionalId>; 2],
    anew: [Vec<TransactionalId>; 2],
}

impl Orders {
    fn right() -> Self {
        let ids = Ids::of(&name("orders"), &name("main"), 1);
        let (start, change) = (ids.steps_of_start(), ids.steps_of_change());
        Self { start, anew: change.clone(), change }
    }

    fn run(&self) -> Vec<Step> {
        [clearing(&self.start), vec![Step::Read, Step::Write, Step::Write]].concat()
    }

    fn start(&self) -> Agent {
        agent(self.run())
    }

    fn change(&self) -> Agent {
        agent([clearing(&self.change), vec![Step::Read, Step::Change]].concat())
    }

    /// `--fresh`.
    fn anew(&self) -> Agent {
        agent([clearing(&self.anew), vec![Step::Genesis(true), Step::Tell], self.run()].concat())
    }

    /// A start without a store, of a job that nobody has begun as far as it knows.
    fn first(&self) -> Agent {
        agent([vec![Step::Look], self.begin()].concat())
    }

    fn begin(&self) -> Vec<Step> {
        let begin = vec![Step::Clear(vec![LOCK]), Step::LookAgain, Step::Genesis(false), Step::Tell];
        [begin, self.run()].concat()
    }
}

impl World {
    fn new(layout: u32, epoch: u64, agents: Vec<Agent>) -> Self {
        Self { owners: [usize::MAX; 3], layout, epoch, next: 0, out: 0, is_told: true, agents }
    }

    /// Every world that one thing more leads to.
    fn next(&self, orders: &Orders) -> Vec<Self> {
        (0..self.agents.len()).flat_map(|who| self.step(who, orders)).collect()
    }

    fn step(&self, who: usize, orders: &Orders) -> Vec<Self> {
        let mut world = self.clone();
        let steps = &mut world.agents[who].steps;
        if steps.is_empty() {
            return Vec::new();
        }
        match steps.remove(0) {
            Step::Clear(ids) => return (0..ids.len()).map(|index| self.cleared(who, &ids, index)).collect(),
            Step::Look => world.look(who, orders),
            Step::LookAgain => world.look_again(who, orders),
            Step::Tell => world.is_told = true,
            Step::Genesis(overwrites) => return world.genesis(who, overwrites),
            // It waits until they are stable, or sees to it.
            Step::Read => {
                world.is_told = true;
                world.agents[who].read = Some((world.layout, world.epoch, world.next));
            }
            Step::Change => world.change(who),
            Step::Write => world.write(who),
        }
        vec![world]
    }

    /// What stands in one step is cleared in any order.
    fn cleared(&self, who: usize, ids: &[usize], index: usize) -> Self {
        let mut world = self.clone();
        world.owners[ids[index]] = who;
        let left: Vec<usize> = ids.iter().copied().filter(|id| *id != ids[index]).collect();
        match left.is_empty() {
            true => drop(world.agents[who].steps.remove(0)),
            false => world.agents[who].steps[0] = Step::Clear(left),
        }
        world
    }

    fn end(&mut self, who: usize) {
        self.agents[who].steps.clear();
    }

    /// Coordinators know what was committed before the partition that is not told shows it.
    fn look(&mut self, who: usize, orders: &Orders) {
        let is_listed = self.owners[1..].iter().any(|owner| *owner != usize::MAX);
        let agent = &mut self.agents[who];
        match (self.layout > 0, self.is_told) {
            (true, true) => agent.steps = orders.run(),
            (true, false) if agent.looks == 0 => agent.steps.clear(),
            (true, false) => {
                agent.looks -= 1;
                let tell = vec![Step::Clear(vec![LOCK]), Step::Tell];
                let tell = if is_listed { Vec::new() } else { tell };
                agent.steps = [tell, vec![Step::Look], orders.begin()].concat();
            }
            (false, _) => {}
        }
    }

    /// The offsets are read stable.
    fn look_again(&mut self, who: usize, orders: &Orders) {
        if self.layout > 0 {
            self.is_told = true;
            self.agents[who].steps = orders.run();
        }
    }

    /// It may stay untold, whoever commits it.
    fn genesis(mut self, who: usize, overwrites: bool) -> Vec<Self> {
        if self.owners[LOCK] != who {
            self.end(who);
            return vec![self];
        }
        (self.layout, self.epoch, self.next) = (1, 0, 0);
        if overwrites {
            self.out = 0;
        }
        [true, false].map(|is_told| Self { is_told, ..self.clone() }).into()
    }

    fn change(&mut self, who: usize) {
        match self.agents[who].read {
            Some((1, _, next)) if self.owners[LOCK] == who => {
                (self.layout, self.epoch, self.next) = (2, 0, next);
            }
            _ => self.end(who),
        }
    }

    fn write(&mut self, who: usize) {
        let Some((layout @ 1, epoch, next)) = self.agents[who].read else { return self.end(who) };
        let epoch = epoch + 1;
        if self.owners[(epoch % 3) as usize] != who {
            return self.end(who);
        }
        // Its bookmark takes the place of whatever is there.
        (self.layout, self.epoch, self.next) = (layout, epoch, next + 1);
        self.out += 1;
        self.agents[who].read = Some((layout, epoch, next + 1));
    }
}

/// Walks every interleaving; the first world whose progress is not what is out.
fn explore(orders: &Orders, first: World) -> (usize, Option<World>) {
    let (mut seen, mut open) = (BTreeSet::new(), vec![first]);
    while let Some(world) = open.pop() {
        if world.next != world.out {
            return (seen.len(), Some(world));
        }
        if seen.insert(world.clone()) {
            open.extend(world.next(orders));
        }
    }
    (seen.len(), None)
}

fn assert_nothing_is_taken_back(layout: u32, epoch: u64, agents: Vec<Agent>) {
    let (worlds, wrong) = explore(&Orders::right(), World::new(layout, epoch, agents));
    assert!(worlds > 100, "{worlds} worlds");
    assert_eq!(wrong, None, "from epoch {epoch}");
}

#[test]
fn no_interleaving_of_a_change_with_starts_and_changes_takes_a_committed_epoch_back() {
    let orders = Orders::right();
    let (start, change) = (orders.start(), orders.change());
    for epoch in 0..3 {
        for agents in [
            vec![start.clone(), change.clone()],
            vec![start.clone(), start.clone(), change.clone()],
            vec![start.clone(), change.clone(), change.clone()],
        ] {
            assert_nothing_is_taken_back(1, epoch, agents);
        }
    }
}

/// What a run of the former life commits behind the genesis of the next one would be nobody's progress.
#[test]
fn no_interleaving_of_fresh_with_starts_changes_and_fresh_mixes_two_lives() {
    let orders = Orders::right();
    let (start, change, anew) = (orders.start(), orders.change(), orders.anew());
    for epoch in 0..3 {
        for agents in [
            vec![start.clone(), anew.clone()],
            vec![start.clone(), start.clone(), anew.clone()],
            vec![start.clone(), change.clone(), anew.clone()],
            vec![start.clone(), anew.clone(), anew.clone()],
        ] {
            assert_nothing_is_taken_back(1, epoch, agents);
        }
    }
}

/// Whoever finds genesis committed and not told fences the one that is at work, tells, and looks again.
#[test]
fn of_several_first_starts_one_begins_the_job_also_where_its_genesis_is_not_told() {
    let orders = Orders::right();
    let (first, anew) = (orders.first(), orders.anew());
    for agents in [
        vec![first.clone(), first.clone()],
        vec![first.clone(), first.clone(), first.clone()],
        vec![first.clone(), first.clone(), anew.clone()],
    ] {
        assert_nothing_is_taken_back(0, 0, agents);
    }
}

/// Either order alone is not enough.
#[test]
fn in_any_other_order_an_epoch_can_be_taken_back() {
    let right = Orders::right();
    let (start, change) = (&right.start, &right.change);
    for (start, change) in [(start, start), (change, change), (change, start)] {
        let orders = Orders { start: start.clone(), change: change.clone(), ..right.clone() };
        let agents = vec![orders.start(), orders.change()];
        assert!(is_found(&orders, 1, &agents), "the walk finds it");
    }
    let orders = Orders { anew: start.clone(), ..right.clone() };
    assert!(is_found(&orders, 1, &[orders.start(), orders.anew()]), "fresh that clears the lock last");
}

#[test]
fn a_genesis_that_leaves_an_id_or_a_look_out_is_found() {
    let orders = Orders::right();
    let mut anew = orders.anew();
    anew.steps.remove(1);
    assert!(is_found(&orders, 1, &[orders.start(), anew]), "fresh that clears the lock alone");
    let mut first = orders.first();
    first.steps.retain(|step| *step != Step::LookAgain);
    assert!(is_found(&orders, 0, &[orders.first(), first]), "a first start that does not look again");
}

fn is_found(orders: &Orders, layout: u32, agents: &[Agent]) -> bool {
    (0..3).any(|epoch| explore(orders, World::new(layout, epoch, agents.to_vec())).1.is_some())
}
