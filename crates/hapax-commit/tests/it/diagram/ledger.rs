//! An epoch of one shard under decider `transaction`.

use super::{Diagram, EDGE, Node};
use hapax_commit::{
    Epoch, Identity, LaneId, Ledger, Name, Positions, ProducerEpoch, ProducerId, ShardId, TransactionVersion,
    ledger::{Carrier, Effect, Flushed, Input},
};
use std::collections::{BTreeMap, BTreeSet};

const WRITTEN: Node = Node(1, "Written");
const FLUSHING: Node = Node(2, "Flushing");
const FLUSHED: Node = Node(3, "Flushed");
const OFFSETS: Node = Node(4, "SendingOffsets");
const ENDING: Node = Node(5, "Ending");
const TELLING: Node = Node(6, "Telling");
const RECORDED: Node = Node(7, "Recorded");
const NEXT_RUN: Node = Node(8, "NextRun");

/// Epochs of a walk: the first one stands on the id that the fourth one needs.
const EPOCHS: u64 = 4;

#[derive(Clone, Debug)]
struct World {
    ledger: Ledger,
    epochs: BTreeMap<Epoch, Node>,
    ended: bool,
}

fn carrier(epoch: Epoch) -> Carrier {
    let lane = LaneId { cluster: Name::new("main").unwrap(), shard: ShardId(0) };
    Carrier {
        transactional_id: lane.transactional_id(&Name::new("orders").unwrap(), epoch),
        identity: Identity { producer_id: ProducerId(1), producer_epoch: ProducerEpoch(0) },
        version: TransactionVersion::V2,
        partitions: Vec::new(),
    }
}

impl World {
    fn new() -> Self {
        Self { ledger: Ledger::new(Epoch::GENESIS), epochs: [(Epoch(1), WRITTEN)].into(), ended: false }
    }

    /// What may come now, by the name that it has on an arrow.
    fn inputs(&self) -> Vec<(&'static str, Input)> {
        let epoch = self.ledger.writing();
        let mut inputs = vec![
            ("interval", Input::Tick),
            ("interval", Input::RecommitDue),
            ("interval", Input::Touched { epoch }),
            ("about to outgrow", Input::BarrierWanted { epoch }),
            ("stop", Input::StopWanted),
            ("all is read", Input::Drained),
            ("all is read", Input::AllDrained),
            ("the run fails", Input::Failed { why: String::new() }),
        ];
        for (&epoch, &node) in &self.epochs {
            match node {
                FLUSHING => {
                    let flushed = |carrier| Flushed { carrier, positions: Positions::new() };
                    let (with, without) = (flushed(Some(carrier(epoch))), flushed(None));
                    inputs.push(("flushed", Input::Flushed { epoch, flushed: with }));
                    inputs.push(("nothing moved", Input::Flushed { epoch, flushed: without }));
                }
                OFFSETS => inputs.push(("offsets taken", Input::OffsetsTaken { epoch })),
                ENDING => inputs.push(("EndTxn answered", Input::Committed { epoch })),
                TELLING => inputs.push(("every partition told", Input::Told { epoch })),
                _ => {}
            }
        }
        inputs
    }

    fn take(&mut self, name: &str, input: Input, diagram: &mut Diagram) {
        let flushed = match &input {
            Input::Flushed { epoch, .. } => Some(*epoch),
            _ => None,
        };
        self.ledger.step(input);
        self.ledger.check().unwrap();
        if let Some(epoch) = flushed {
            self.go(epoch, FLUSHED, name, diagram);
        }
        while let Some(effect) = self.ledger.poll_effect() {
            match effect {
                Effect::SendBarrier { epoch, .. } => {
                    self.go(epoch, FLUSHING, "barrier", diagram);
                    self.epochs.insert(epoch.next(), WRITTEN);
                }
                Effect::SendOffsets { epoch, .. } => self.go(epoch, OFFSETS, "its turn", diagram),
                Effect::EndTxn { epoch, .. } => self.go(epoch, ENDING, name, diagram),
                Effect::Tell { epoch, .. } => self.go(epoch, TELLING, name, diagram),
                Effect::Recorded { epoch, committed: true } => self.go(epoch, RECORDED, name, diagram),
                Effect::Recorded { epoch, committed: false } => {
                    self.go(epoch, RECORDED, "its turn without a transaction", diagram);
                }
                Effect::End(end) => {
                    self.ended = true;
                    let open = self.epochs.clone().into_iter().filter(|(_, node)| *node != RECORDED);
                    for (epoch, node) in open {
                        match end {
                            hapax_commit::ledger::End::Failed(_) => {
                                self.go(epoch, NEXT_RUN, "the run fails", diagram);
                            }
                            _ => assert_eq!(node, WRITTEN, "nothing is left behind"),
                        }
                    }
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
fn an_epoch_of_decider_transaction_is_as_the_page_draws_it() {
    let mut diagram = Diagram::default();
    diagram.arrow(EDGE, WRITTEN, "");
    let (mut seen, mut ahead) = (BTreeSet::new(), vec![World::new()]);
    while let Some(world) = ahead.pop() {
        for (name, input) in world.inputs() {
            let mut after = world.clone();
            after.take(name, input, &mut diagram);
            let goes_on = !after.ended && after.ledger.writing() <= Epoch(EPOCHS);
            if goes_on && seen.insert(format!("{after:?}")) {
                ahead.push(after);
            }
        }
    }
    diagram.is_on_page("an epoch of decider transaction");
}
