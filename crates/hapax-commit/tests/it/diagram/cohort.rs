//! An epoch under decider `checkpoint`, as its coordinator leads it.

use super::{Diagram, EDGE, Node};
use crate::fixture::{handle, lane, positions};
use hapax_commit::{
    Cohort, CohortConfig, CohortStart, Epoch, Positions, ShardId, SlotBody, SlotNumber,
    cohort::{Effect, End, Input, LaneEnd, PreparedHandle, Share},
};
use std::collections::{BTreeMap, BTreeSet};

const WRITTEN: Node = Node(1, "Written");
const COLLECTING: Node = Node(2, "Collecting");
const OFFERED: Node = Node(3, "Offered");
const DECIDED: Node = Node(4, "Decided");
const PROVEN: Node = Node(5, "Proven");
const RECORDED: Node = Node(6, "Recorded");
const CLEARED: Node = Node(7, "ClearedAndReadAgain");
const RESOLVED: Node = Node(8, "ResolvedByRecovery");

/// Epochs of a walk: one decided, one offered behind it, one written.
const EPOCHS: u64 = 3;
const LIFETIME_MS: u64 = 100;

/// Two shards, of which the first one may write.
#[derive(Clone, Debug)]
struct World {
    cohort: Cohort,
    now_ms: u64,
    slot: u64,
    offered: Option<Offer>,
    missing: BTreeSet<u32>,
    drained: bool,
    epochs: BTreeMap<Epoch, Node>,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Manifest(Epoch),
    Proven,
}

impl World {
    fn new() -> Self {
        let config = CohortConfig { shards: [ShardId(0), ShardId(1)].into(), lifetime_ms: Some(LIFETIME_MS) };
        let start = CohortStart {
            last_epoch: Epoch::GENESIS,
            settled: Epoch::GENESIS,
            positions: positions(0),
            next_slot: SlotNumber(2),
        };
        Self {
            cohort: Cohort::new(config, start),
            now_ms: 0,
            slot: 2,
            offered: None,
            missing: BTreeSet::new(),
            drained: false,
            epochs: [(Epoch(1), WRITTEN)].into(),
            ended: false,
        }
    }

    fn inputs(&self) -> Vec<Input> {
        let epoch = self.cohort.writing();
        let (zero, number) = (ShardId(0), SlotNumber(self.slot));
        let mut inputs = vec![
            Input::Tick,
            Input::Touched { shard: zero, epoch },
            Input::BarrierWanted { shard: zero, epoch },
            Input::StopWanted,
            Input::Failed { why: String::new() },
        ];
        if !self.drained {
            inputs.push(Input::Drained { shard: zero });
        }
        if self.offered.is_some() {
            inputs.extend([Input::SlotStored { number }, Input::SlotTaken { number }]);
        }
        for &shard in &self.missing {
            let epoch = Epoch(epoch.0 - 1);
            for (read, wrote) in [(true, true), (true, false), (false, false)] {
                let share = self.share(shard, epoch, read && shard == 0, wrote && shard == 0);
                inputs.push(Input::ShardPrepared { shard: ShardId(shard), epoch, share });
            }
        }
        let decided = self.epochs.iter().filter(|(_, node)| **node == DECIDED);
        for (&epoch, _) in decided {
            for ended in [LaneEnd::Committed, LaneEnd::NotCommitted(String::new())] {
                inputs.push(Input::LaneEnded { lane: lane(0), epoch, ended });
            }
        }
        inputs
    }

    /// A shard may have read something of which every record was filtered out, or nothing.
    fn share(&self, shard: u32, epoch: Epoch, read: bool, wrote: bool) -> Share {
        let prepared =
            PreparedHandle { handle: handle(shard, epoch.0), deadline_ms: self.now_ms + LIFETIME_MS };
        let behind = positions(10 * epoch.0).into_iter().take(1);
        Share {
            positions: if read { behind.collect() } else { Positions::new() },
            handles: wrote.then_some(prepared).into_iter().collect(),
            drained: self.drained,
            ..Share::default()
        }
    }

    fn take(&mut self, input: &Input, diagram: &mut Diagram) {
        match input {
            Input::ShardPrepared { shard, .. } => drop(self.missing.remove(&shard.0)),
            Input::LaneEnded { epoch, ended: LaneEnd::Committed, .. } => {
                self.go(*epoch, PROVEN, "every lane committed", diagram);
            }
            _ => {}
        }
        let stored = match input {
            Input::SlotStored { .. } => self.offered.take(),
            _ => None,
        };
        self.slot += u64::from(stored.is_some());
        self.step(input.clone());
        if matches!(input, Input::Drained { .. }) {
            self.step(Input::Drained { shard: ShardId(1) });
            self.drained = true;
        }
        while let Some(effect) = self.cohort.poll_effect() {
            self.effect(effect, input, stored, diagram);
        }
    }

    fn step(&mut self, input: Input) {
        self.cohort.step(self.now_ms, input);
        self.cohort.check().unwrap();
    }

    fn effect(&mut self, effect: Effect, input: &Input, stored: Option<Offer>, diagram: &mut Diagram) {
        match effect {
            Effect::SendBarrier { epoch, .. } => {
                self.go(epoch, COLLECTING, "barrier", diagram);
                self.epochs.insert(epoch.next(), WRITTEN);
                self.missing = [0, 1].into();
            }
            Effect::PutSlot { body: SlotBody::Manifest(manifest), .. } => {
                let label = match input {
                    Input::ShardPrepared { .. } => "every shard has prepared",
                    _ => "the epoch before is proven",
                };
                self.go(manifest.epoch, OFFERED, label, diagram);
                self.offered = Some(Offer::Manifest(manifest.epoch));
            }
            Effect::PutSlot { .. } => self.offered = Some(Offer::Proven),
            Effect::Commit { handles } => self.go(handles[0].epoch, DECIDED, "manifest stored", diagram),
            Effect::Recorded { epoch } => {
                let label = match stored {
                    Some(Offer::Manifest(own)) if own == epoch => "manifest without transactions stored",
                    Some(Offer::Manifest(_)) => "next manifest stored",
                    _ => "proven stored",
                };
                self.go(epoch, RECORDED, label, diagram);
            }
            Effect::End(end) => self.end(&end, input, stored, diagram),
        }
    }

    /// What is left is the next run's; of a run that ends well nothing is.
    fn end(&mut self, end: &End, input: &Input, stored: Option<Offer>, diagram: &mut Diagram) {
        self.ended = true;
        let offered = self.offered.or(stored);
        let open = self.epochs.clone().into_iter().filter(|(_, node)| *node != RECORDED);
        for (epoch, node) in open {
            match end {
                End::Finished | End::Stopped => {
                    assert!(node == WRITTEN || node == COLLECTING, "{node:?} is left by {end:?}");
                    if node == COLLECTING {
                        self.go(epoch, EDGE, "nothing was read since", diagram);
                    }
                }
                End::Fenced => {
                    assert!(matches!(input, Input::SlotTaken { .. }));
                    let to = if node == DECIDED || node == PROVEN { RESOLVED } else { CLEARED };
                    self.go(epoch, to, "a newer claim", diagram);
                }
                End::Failed(_) => {
                    let may_be_stored = offered == Some(Offer::Manifest(epoch));
                    let is_decided = node == DECIDED || node == PROVEN || may_be_stored;
                    self.go(epoch, if is_decided { RESOLVED } else { CLEARED }, "the run fails", diagram);
                }
            }
        }
    }

    fn go(&mut self, epoch: Epoch, to: Node, label: &str, diagram: &mut Diagram) {
        let from = self.epochs.insert(epoch, to).expect("an epoch is written before anything else");
        diagram.arrow(from, to, label);
    }
}

#[test]
fn an_epoch_of_decider_checkpoint_is_as_the_page_draws_it() {
    let mut diagram = Diagram::default();
    diagram.arrow(EDGE, WRITTEN, "");
    let (mut seen, mut ahead) = (BTreeSet::new(), vec![World::new()]);
    while let Some(world) = ahead.pop() {
        let later = (world.now_ms < LIFETIME_MS).then(|| {
            let mut later = world.clone();
            later.now_ms += LIFETIME_MS / 2;
            (later, Input::Tick)
        });
        let inputs = world.inputs().into_iter().map(|input| (world.clone(), input));
        for (mut after, input) in inputs.chain(later) {
            after.take(&input, &mut diagram);
            let goes_on = !after.ended && after.cohort.writing() <= Epoch(EPOCHS);
            if goes_on && seen.insert(format!("{after:?}")) {
                ahead.push(after);
            }
        }
    }
    diagram.is_on_page("an epoch of decider checkpoint");
}
