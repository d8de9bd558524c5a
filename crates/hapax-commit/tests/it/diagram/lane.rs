//! One id of a lane.

use super::{Diagram, EDGE, Node};
use crate::fixture::{handle, identity, named_lane};
use hapax_commit::{
    Epoch, Lane, Naming, ProducerEpoch, TransactionVersion,
    handle::LAST_PRODUCER_EPOCH,
    lane::{IdState, Outcome, Written},
};
use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

#[derive(Clone, Copy, Debug)]
enum Input {
    Open,
    Identified { at_the_last: bool },
    Flushing,
    Flushed { wrote: bool },
    Carrying,
    Committing,
    Ended(End),
    Recorded,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Committed,
    Aborted,
    Unknown,
}

const INPUTS: [Input; 12] = [
    Input::Open,
    Input::Identified { at_the_last: false },
    Input::Identified { at_the_last: true },
    Input::Flushing,
    Input::Flushed { wrote: true },
    Input::Flushed { wrote: false },
    Input::Carrying,
    Input::Committing,
    Input::Ended(End::Committed),
    Input::Ended(End::Aborted),
    Input::Ended(End::Unknown),
    Input::Recorded,
];

fn node(id: &IdState) -> Node {
    match id {
        IdState::Free { .. } => Node(1, "Free"),
        IdState::Identifying { .. } => Node(2, "Identifying"),
        IdState::Open { .. } => Node(3, "Open"),
        IdState::Flushing { .. } => Node(4, "Flushing"),
        IdState::Prepared { .. } => Node(5, "Prepared"),
        IdState::Committing { .. } => Node(6, "Committing"),
        IdState::Committed { .. } => Node(7, "Committed"),
        IdState::Aborted { .. } => Node(8, "Aborted"),
        IdState::Unknown { .. } => Node(9, "Unknown"),
    }
}

/// A lane, and the number of the epoch that it opens next.
#[derive(Clone)]
struct World {
    lane: Lane,
    next: Epoch,
}

impl World {
    fn new(version: TransactionVersion, naming: Naming, at: ProducerEpoch) -> Self {
        Self { lane: named_lane(version, at.0, naming), next: Epoch(1) }
    }

    /// Epochs that an input may be about.
    fn epochs(&self, input: Input) -> BTreeSet<Epoch> {
        match input {
            Input::Open => [self.next].into(),
            _ => self.lane.states().iter().filter_map(IdState::epoch).collect(),
        }
    }

    /// What follows, unless the lane refuses the input or wants to wait.
    fn taken(&self, input: Input, epoch: Epoch) -> Option<Self> {
        let take = || {
            let mut world = self.clone();
            world.take(input, epoch).then_some(world)
        };
        catch_unwind(AssertUnwindSafe(take)).ok().flatten()
    }

    fn take(&mut self, input: Input, epoch: Epoch) -> bool {
        match input {
            Input::Open => {
                self.next = epoch.next();
                return self.lane.open(epoch).is_ok();
            }
            Input::Identified { at_the_last } => {
                let at = if at_the_last { LAST_PRODUCER_EPOCH.0 } else { 0 };
                self.lane.identified(epoch, identity(1_000 + epoch.0 as i64, at));
            }
            Input::Flushing => self.lane.flushing(epoch),
            Input::Flushed { wrote } => {
                let partitions = handle(0, 1).partitions;
                let written = Written { started_ms: 1, deadline_ms: 2, partitions };
                self.lane.flushed(epoch, wrote.then_some(written)).unwrap();
            }
            Input::Carrying => drop(self.lane.carrying(epoch, Vec::new())),
            Input::Committing => self.lane.committing(epoch),
            Input::Ended(end) => self.lane.ended(epoch, self.outcome(epoch, end)),
            Input::Recorded => self.lane.recorded(epoch),
        }
        true
    }

    fn id(&self, epoch: Epoch) -> &IdState {
        &self.lane.states()[usize::from(epoch.id_index())]
    }

    fn outcome(&self, epoch: Epoch, end: End) -> Outcome {
        match end {
            End::Committed => {
                let mut next = self.id(epoch).identity();
                if self.lane.config().version == TransactionVersion::V2 {
                    next.producer_epoch.0 += 1;
                }
                Outcome::Committed { next }
            }
            End::Aborted => Outcome::Aborted,
            End::Unknown => Outcome::Unknown,
        }
    }

    /// What tells two worlds apart, whatever the numbers are.
    fn key(&self) -> String {
        let states = (0..3).map(|behind| {
            let id = &self.lane.states()[((self.next.0 + behind) % 3) as usize];
            let spent = matches!(id, IdState::Free { spent: true, .. });
            let last = id.identity().producer_epoch >= LAST_PRODUCER_EPOCH;
            (node(id), spent, last, id.epoch().map(|epoch| self.next.0 - epoch.0))
        });
        format!("{:?} {}", states.collect::<Vec<_>>(), self.next > Epoch(3))
    }

    fn label(&self, input: Input, before: &IdState) -> &'static str {
        match (input, before) {
            (Input::Open, IdState::Free { spent: true, .. }) => "open on V1 with a used identity",
            (Input::Open, IdState::Free { identity, .. })
                if identity.producer_epoch >= LAST_PRODUCER_EPOCH =>
            {
                "open at the last producer epoch"
            }
            (Input::Open, _) if self.lane.config().naming == Naming::PerEpoch && self.next > Epoch(3) => {
                "open of an id per epoch"
            }
            (Input::Open, _) => "open",
            (Input::Identified { at_the_last: false }, _) => "identified",
            (Input::Identified { at_the_last: true }, _) => "identified at the last producer epoch",
            (Input::Flushing, _) => "flushing",
            (Input::Flushed { wrote: true }, _) => "flushed",
            (Input::Flushed { wrote: false }, _) => "flushed without a record",
            (Input::Carrying, _) => "carrying",
            (Input::Committing, _) => "committing",
            (Input::Ended(End::Committed), _) => "ended as committed",
            (Input::Ended(End::Aborted), _) => "ended as aborted",
            (Input::Ended(End::Unknown), _) => "ended as unknown",
            (Input::Recorded, _) => "recorded",
        }
    }
}

/// Everything that one lane comes to from here. `refused` are inputs that an id in this state was seen to refuse: each is
/// tried once.
fn walk(from: World, refused: &mut BTreeSet<(Node, &'static str)>, diagram: &mut Diagram) {
    let (mut seen, mut ahead) = (BTreeSet::from([from.key()]), vec![from]);
    while let Some(world) = ahead.pop() {
        for input in INPUTS {
            for epoch in world.epochs(input) {
                let about = world.id(epoch);
                let refusal = (node(about), world.label(input, about));
                if refused.contains(&refusal) {
                    continue;
                }
                let Some(after) = world.taken(input, epoch) else {
                    // A lane that wants to wait may be asked again.
                    if !matches!(input, Input::Open) {
                        refused.insert(refusal);
                    }
                    continue;
                };
                after.lane.check().unwrap();
                for (before, now) in world.lane.states().iter().zip(after.lane.states()) {
                    if before != now {
                        diagram.arrow(node(before), node(now), world.label(input, before));
                    }
                }
                if seen.insert(after.key()) {
                    ahead.push(after);
                }
            }
        }
    }
}

#[test]
fn an_id_of_a_lane_is_as_the_page_draws_it() {
    let mut diagram = Diagram::default();
    diagram.arrow(EDGE, Node(1, "Free"), "cleared");
    let mut refused = BTreeSet::new();
    let last_but_one = ProducerEpoch(LAST_PRODUCER_EPOCH.0 - 1);
    for version in [TransactionVersion::V1, TransactionVersion::V2] {
        for at in [ProducerEpoch(0), last_but_one] {
            walk(World::new(version, Naming::Rotating, at), &mut refused, &mut diagram);
        }
        walk(World::new(version, Naming::PerEpoch, ProducerEpoch(0)), &mut refused, &mut diagram);
    }
    diagram.is_on_page("an id of a lane");
}
