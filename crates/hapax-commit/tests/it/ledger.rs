//! One shard's ledger: the order of offsets, ends and barriers.

use hapax_commit::{
    Epoch, Identity, LaneId, Ledger, Name, Positions, ProducerEpoch, ProducerId, ShardId, TransactionVersion,
    ledger::{Carrier, Effect, End, Flushed, Input},
};

fn carrier(epoch: u64) -> Carrier {
    let lane = LaneId { cluster: Name::new("main").unwrap(), shard: ShardId(0) };
    Carrier {
        transactional_id: lane.transactional_id(&Name::new("orders").unwrap(), Epoch(epoch)),
        identity: Identity { producer_id: ProducerId(epoch as i64), producer_epoch: ProducerEpoch(0) },
        version: TransactionVersion::V2,
        partitions: vec![("out".into(), 0, 9)],
    }
}

fn effects(ledger: &mut Ledger) -> Vec<Effect> {
    ledger.check().unwrap();
    std::iter::from_fn(|| ledger.poll_effect()).collect()
}

fn flush(ledger: &mut Ledger, epoch: u64, wrote: bool) -> Vec<Effect> {
    let flushed = Flushed { carrier: wrote.then(|| carrier(epoch)), positions: Positions::new() };
    ledger.step(Input::Flushed { epoch: Epoch(epoch), flushed });
    effects(ledger)
}

/// What answers to offsets, end and telling of an epoch bring, in this order.
fn ended(ledger: &mut Ledger, epoch: u64) -> Vec<Effect> {
    let epoch = Epoch(epoch);
    let answers = [Input::OffsetsTaken { epoch }, Input::Committed { epoch }, Input::Told { epoch }];
    answers
        .into_iter()
        .flat_map(|answer| {
            ledger.step(answer);
            effects(ledger)
        })
        .collect()
}

/// Touches the open epoch and lets the interval pass.
fn tick(ledger: &mut Ledger) -> Vec<Effect> {
    let epoch = ledger.writing();
    ledger.step(Input::Touched { epoch });
    ledger.step(Input::Tick);
    effects(ledger)
}

fn barrier(epoch: u64) -> Effect {
    Effect::SendBarrier { epoch: Epoch(epoch), last: false, recommit: false }
}

fn offsets(epoch: u64) -> Effect {
    Effect::SendOffsets { epoch: Epoch(epoch), carrier: carrier(epoch), positions: Positions::new() }
}

#[test]
fn an_epoch_gets_its_offsets_then_its_end_then_everybody_is_told() {
    let mut ledger = Ledger::new(Epoch(6));
    assert_eq!(tick(&mut ledger), [barrier(7)]);
    assert_eq!(flush(&mut ledger, 7, true), [offsets(7)]);
    ledger.step(Input::OffsetsTaken { epoch: Epoch(7) });
    assert_eq!(effects(&mut ledger), [Effect::EndTxn { epoch: Epoch(7), carrier: carrier(7) }]);
    ledger.step(Input::Committed { epoch: Epoch(7) });
    assert_eq!(effects(&mut ledger), [Effect::Tell { epoch: Epoch(7), carrier: carrier(7) }]);
    ledger.step(Input::Told { epoch: Epoch(7) });
    assert_eq!(effects(&mut ledger), [Effect::Recorded { epoch: Epoch(7), committed: true }]);
}

#[test]
fn the_next_epoch_waits_for_the_one_before_it_and_the_fourth_for_its_id() {
    let mut ledger = Ledger::new(Epoch(0));
    tick(&mut ledger);
    assert_eq!(flush(&mut ledger, 1, true), [offsets(1)]);
    assert_eq!(tick(&mut ledger), [barrier(2)]);
    assert_eq!(flush(&mut ledger, 2, true), [], "epoch 1 is not ended");
    assert_eq!(tick(&mut ledger), [], "epoch 4 would stand on the id of epoch 1");
    let seen = ended(&mut ledger, 1);
    let recorded = Effect::Recorded { epoch: Epoch(1), committed: true };
    assert_eq!(seen[2..], [recorded, offsets(2), barrier(3)], "the id is free before the barrier needs it");
}

#[test]
fn an_epoch_in_which_nothing_moved_has_no_transaction_and_keeps_its_turn() {
    let mut ledger = Ledger::new(Epoch(0));
    tick(&mut ledger);
    flush(&mut ledger, 1, true);
    ledger.step(Input::StopWanted);
    assert_eq!(effects(&mut ledger), [Effect::SendBarrier { epoch: Epoch(2), last: true, recommit: false }]);
    assert_eq!(flush(&mut ledger, 2, false), [], "it is recorded behind epoch 1");
    let seen = ended(&mut ledger, 1);
    assert_eq!(seen[3], Effect::Recorded { epoch: Epoch(2), committed: false });
    assert_eq!(seen[4], Effect::End(End::Stopped));
}

#[test]
fn an_idle_shard_commits_its_offsets_again_before_they_are_forgotten() {
    let mut ledger = Ledger::new(Epoch(3));
    ledger.step(Input::Tick);
    assert_eq!(effects(&mut ledger), [], "nothing moved");
    ledger.step(Input::RecommitDue);
    ledger.step(Input::Tick);
    let again = Effect::SendBarrier { epoch: Epoch(4), last: false, recommit: true };
    assert_eq!(effects(&mut ledger), [again]);
    flush(&mut ledger, 4, true);
    ledger.step(Input::Tick);
    assert_eq!(effects(&mut ledger), [], "once");
}

#[test]
fn a_shard_that_has_read_all_ends_when_all_have_and_all_is_committed() {
    let mut ledger = Ledger::new(Epoch(0));
    ledger.step(Input::Touched { epoch: Epoch(1) });
    ledger.step(Input::Drained);
    assert_eq!(effects(&mut ledger), [], "others read");
    ledger.step(Input::AllDrained);
    assert_eq!(effects(&mut ledger), [Effect::SendBarrier { epoch: Epoch(1), last: true, recommit: false }]);
    flush(&mut ledger, 1, true);
    assert!(!ledger.has_ended());
    assert_eq!(ended(&mut ledger, 1).last(), Some(&Effect::End(End::Finished)));
}

#[test]
fn nothing_is_asked_for_after_a_failure() {
    let mut ledger = Ledger::new(Epoch(0));
    tick(&mut ledger);
    flush(&mut ledger, 1, true);
    ledger.step(Input::OffsetsTaken { epoch: Epoch(1) });
    ledger.step(Input::Failed { why: "a lane was disturbed".into() });
    assert_eq!(effects(&mut ledger), [Effect::End(End::Failed("a lane was disturbed".into()))]);
    ledger.step(Input::Committed { epoch: Epoch(1) });
    assert_eq!(effects(&mut ledger), []);
}

/// Another shard may read for weeks, and the broker forgets offsets of a week.
#[test]
fn a_shard_that_has_read_all_commits_its_offsets_again_until_the_others_have() {
    let mut ledger = Ledger::new(Epoch(0));
    ledger.step(Input::Touched { epoch: Epoch(1) });
    ledger.step(Input::Drained);
    ledger.step(Input::Tick);
    assert_eq!(effects(&mut ledger), [barrier(1)], "what it has read does not wait for the others");
    flush(&mut ledger, 1, true);
    ended(&mut ledger, 1);
    ledger.step(Input::RecommitDue);
    ledger.step(Input::Tick);
    assert_eq!(effects(&mut ledger), [Effect::SendBarrier { epoch: Epoch(2), last: false, recommit: true }]);
    flush(&mut ledger, 2, true);
    assert!(!ended(&mut ledger, 2).iter().any(|effect| matches!(effect, Effect::End(_))));
    ledger.step(Input::StopWanted);
    assert_eq!(effects(&mut ledger), [Effect::SendBarrier { epoch: Epoch(3), last: true, recommit: false }]);
    assert_eq!(flush(&mut ledger, 3, false)[1], Effect::End(End::Finished));
}
