//! The coordinator of a live run: what it does, in which order, and what it never does.

use crate::fixture::{handle, lane, positions};
use hapax_commit::{
    Cohort, CohortConfig, CohortStart, Epoch, Handle, Manifest, ShardId, SlotBody, SlotNumber,
    cohort::{Effect, End, Failure, Input, LaneEnd, PreparedHandle, Share},
};

const LIFETIME_MS: u64 = 60_000;
const HALF_MS: u64 = LIFETIME_MS / 2;

/// Two shards, fresh job; checks every invariant after every step.
struct Driver {
    cohort: Cohort,
    now_ms: u64,
    slot: u64,
}

impl Driver {
    fn new() -> Self {
        Self::of_lifetime(Some(LIFETIME_MS))
    }

    fn of_lifetime(lifetime_ms: Option<u64>) -> Self {
        let config = CohortConfig { shards: [ShardId(0), ShardId(1)].into(), lifetime_ms };
        let start = CohortStart {
            last_epoch: Epoch::GENESIS,
            settled: Epoch::GENESIS,
            positions: positions(0),
            next_slot: SlotNumber(2),
        };
        Self { cohort: Cohort::new(config, start), now_ms: 0, slot: 2 }
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        self.cohort.step(self.now_ms, input);
        self.cohort.check().unwrap();
        let effects: Vec<_> = std::iter::from_fn(|| self.cohort.poll_effect()).collect();
        self.cohort.check().unwrap();
        effects
    }

    fn touch(&mut self) {
        let epoch = self.cohort.writing();
        assert_eq!(self.step(Input::Touched { shard: ShardId(0), epoch }), []);
    }

    /// Both shards prepare; shard 0 alone wrote, unless told otherwise.
    fn prepare(&mut self, epoch: u64, handles: Vec<Handle>, drained: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        for shard in 0..2 {
            let own = handles.iter().filter(|handle| handle.lane == lane(shard)).cloned();
            let handles = own.map(|handle| PreparedHandle { handle, deadline_ms: LIFETIME_MS }).collect();
            let positions = positions(10 * epoch).into_iter().skip(shard as usize).take(1).collect();
            let share = Share { positions, handles, drained, ..Share::default() };
            effects = self.step(Input::ShardPrepared { shard: ShardId(shard), epoch: Epoch(epoch), share });
        }
        effects
    }

    fn stored(&mut self) -> Vec<Effect> {
        let number = SlotNumber(self.slot);
        self.slot += 1;
        self.step(Input::SlotStored { number })
    }

    fn ended(&mut self, shard: u32, epoch: u64) -> Vec<Effect> {
        let ended = LaneEnd::Committed;
        self.step(Input::LaneEnded { lane: lane(shard), epoch: Epoch(epoch), ended })
    }

    fn nothing_more_happens(&mut self) {
        for input in [Input::Tick, Input::StopWanted, Input::SlotStored { number: SlotNumber(self.slot) }] {
            assert_eq!(self.step(input), []);
        }
    }

    /// Up to a stored manifest, whose commits are under way.
    fn decide(&mut self, epoch: u64) {
        self.touch();
        assert_eq!(self.step(Input::Tick), [barrier(epoch)]);
        let offered = self.prepare(epoch, both(epoch), false);
        assert!(matches!(&offered[..], [Effect::PutSlot { body: SlotBody::Manifest(_), .. }]), "{offered:?}");
        let committed = Effect::Commit { handles: both(epoch) };
        assert_eq!(self.stored().last(), Some(&committed));
    }
}

fn both(epoch: u64) -> Vec<Handle> {
    vec![handle(0, epoch), handle(1, epoch)]
}

fn barrier(epoch: u64) -> Effect {
    Effect::SendBarrier { epoch: Epoch(epoch), last: false }
}

fn last_barrier(epoch: u64) -> Effect {
    Effect::SendBarrier { epoch: Epoch(epoch), last: true }
}

fn recorded(epoch: u64) -> Effect {
    Effect::Recorded { epoch: Epoch(epoch) }
}

fn manifest(slot: u64, epoch: u64, handles: Vec<Handle>) -> Effect {
    let body = SlotBody::Manifest(Manifest {
        epoch: Epoch(epoch),
        positions: positions(10 * epoch),
        handles,
        journals: Vec::new(),
    });
    Effect::PutSlot { number: SlotNumber(slot), body }
}

fn proven(slot: u64, epoch: u64, finished: bool) -> Effect {
    Effect::PutSlot { number: SlotNumber(slot), body: SlotBody::Proven { epoch: Epoch(epoch), finished } }
}

#[test]
fn an_epoch_goes_from_barrier_to_proof_in_order() {
    let mut run = Driver::new();
    run.touch();
    assert_eq!(run.step(Input::Tick), [barrier(1)]);
    assert_eq!(run.prepare(1, both(1), false), [manifest(2, 1, both(1))]);
    assert_eq!(run.stored(), [Effect::Commit { handles: both(1) }]);
    run.touch();
    assert_eq!(run.step(Input::Tick), [barrier(2)], "the next epoch ends while the commit is under way");
    assert_eq!(run.ended(0, 1), []);
    assert_eq!(run.ended(1, 1), []);
    assert_eq!(run.prepare(2, both(2), false), [manifest(3, 2, both(2))]);
    assert_eq!(run.stored(), [Effect::Commit { handles: both(2) }, recorded(1)]);
}

/// H1: e aborted behind a committed e+1 could only come back in the wrong order.
#[test]
fn no_manifest_is_offered_while_the_epoch_before_is_in_doubt() {
    let mut run = Driver::new();
    run.decide(1);
    run.touch();
    run.step(Input::Tick);
    assert_eq!(run.prepare(2, both(2), false), []);
    assert_eq!(run.ended(1, 1), []);
    assert_eq!(run.step(Input::Tick), []);
    assert_eq!(run.ended(0, 1), [manifest(3, 2, both(2))]);
}

/// H9: barrier e+1 opens the id of e-1, whose outcome is in the chain once manifest e is.
#[test]
fn a_barrier_waits_for_the_manifest_of_the_epoch_before() {
    let mut run = Driver::new();
    run.touch();
    run.step(Input::Tick);
    run.touch();
    assert_eq!(run.step(Input::Tick), [], "epoch 1 is being collected");
    run.prepare(1, both(1), false);
    assert_eq!(run.step(Input::Tick), [], "its manifest is offered");
    assert_eq!(run.stored(), [Effect::Commit { handles: both(1) }, barrier(2)]);
}

#[test]
fn an_idle_interval_costs_nothing() {
    let mut run = Driver::new();
    for _ in 0..3 {
        assert_eq!(run.step(Input::Tick), []);
    }
    run.touch();
    assert_eq!(run.step(Input::Tick), [barrier(1)]);
    let late = run.step(Input::Touched { shard: ShardId(1), epoch: Epoch(1) });
    assert_eq!(late, [], "a record of the epoch that has ended");
    run.prepare(1, both(1), false);
    run.stored();
    assert_eq!(run.step(Input::Tick), []);
}

#[test]
fn an_idle_tick_does_not_make_the_next_record_an_epoch_of_its_own() {
    let mut run = Driver::new();
    run.step(Input::Tick);
    run.touch();
    assert_eq!(run.step(Input::Tick), [barrier(1)]);
}

/// H25: a week later the brokers have forgotten how the last epoch before the pause ended.
#[test]
fn an_idle_job_records_its_last_outcome() {
    let mut run = Driver::new();
    run.decide(1);
    assert_eq!(run.step(Input::Tick), [], "still in doubt");
    run.ended(0, 1);
    run.ended(1, 1);
    assert_eq!(run.step(Input::Tick), [proven(3, 1, false)]);
    assert_eq!(run.step(Input::Tick), [], "it is offered once");
    assert_eq!(run.stored(), [recorded(1)]);
    assert_eq!(run.step(Input::Tick), []);
}

/// H27: records that are all filtered out move positions, which must not be read again for ever.
#[test]
fn an_epoch_without_output_is_decided_and_settled_at_once() {
    let mut run = Driver::new();
    run.touch();
    run.step(Input::Tick);
    assert_eq!(run.prepare(1, Vec::new(), false), [manifest(2, 1, Vec::new())]);
    assert_eq!(run.stored(), [recorded(1)]);
}

#[test]
fn an_idle_shard_keeps_its_last_position() {
    let mut run = Driver::new();
    run.decide(1);
    run.ended(0, 1);
    run.ended(1, 1);
    run.touch();
    run.step(Input::Tick);
    let share = Share { positions: positions(20).into_iter().take(1).collect(), ..Share::default() };
    run.step(Input::ShardPrepared { shard: ShardId(0), epoch: Epoch(2), share });
    let idle = Input::ShardPrepared { shard: ShardId(1), epoch: Epoch(2), share: Share::default() };
    let offered = run.step(idle);
    let [Effect::PutSlot { body: SlotBody::Manifest(manifest), .. }] = &offered[..] else {
        panic!("{offered:?}")
    };
    let next: Vec<_> = manifest.positions.values().map(|at| at.next).collect();
    assert_eq!(next, [20, 10]);
}

/// A transaction that would grow too large or too old ends early, unless its epoch has ended already.
#[test]
fn a_shard_can_end_its_epoch_early() {
    let mut run = Driver::new();
    let wanted = |epoch| Input::BarrierWanted { shard: ShardId(1), epoch: Epoch(epoch) };
    assert_eq!(run.step(wanted(1)), [barrier(1)]);
    assert_eq!(run.step(wanted(1)), [], "stale");
    run.prepare(1, both(1), false);
    assert_eq!(run.stored(), [Effect::Commit { handles: both(1) }]);
}

/// H22: deciding an epoch that the broker is about to abort makes an incident of an everyday outage, and readers wait
/// behind what is prepared.
#[test]
fn a_prepared_epoch_is_given_up_at_half_of_its_time_and_not_before() {
    let mut run = Driver::new();
    run.decide(1);
    run.touch();
    run.step(Input::Tick);
    assert_eq!(run.prepare(2, both(2), false), [], "epoch 1 is in doubt");
    run.now_ms = HALF_MS - 1;
    assert_eq!(run.step(Input::Tick), []);
    run.now_ms = HALF_MS;
    let failure = Failure::DeadlineNear { epoch: Epoch(2), lane: lane(0), left_ms: HALF_MS };
    assert_eq!(run.step(Input::Tick), [Effect::End(End::Failed(failure))]);
    assert_eq!(run.ended(0, 1), []);
    assert_eq!(run.ended(1, 1), []);
}

/// H22: the share that was missing comes too late.
#[test]
fn an_epoch_that_is_complete_at_half_of_its_time_is_not_offered() {
    let mut run = Driver::new();
    run.touch();
    run.step(Input::Tick);
    let idle = Input::ShardPrepared { shard: ShardId(1), epoch: Epoch(1), share: Share::default() };
    assert_eq!(run.step(idle), []);
    run.now_ms = HALF_MS;
    let prepared = PreparedHandle { handle: handle(0, 1), deadline_ms: LIFETIME_MS };
    let share = Share { handles: vec![prepared], ..Share::default() };
    let late = Input::ShardPrepared { shard: ShardId(0), epoch: Epoch(1), share };
    let failure = Failure::DeadlineNear { epoch: Epoch(1), lane: lane(0), left_ms: HALF_MS };
    assert_eq!(run.step(late), [Effect::End(End::Failed(failure))]);
    run.nothing_more_happens();
}

/// H22: one shard's flush hangs. It shows no deadline, and the others' transactions hold readers back.
#[test]
fn an_epoch_that_a_shard_does_not_prepare_is_given_up_at_half_of_its_time() {
    let mut run = Driver::new();
    run.now_ms = 1_000;
    run.touch();
    run.now_ms = 5_000;
    run.step(Input::Tick);
    let idle = Input::ShardPrepared { shard: ShardId(1), epoch: Epoch(1), share: Share::default() };
    assert_eq!(run.step(idle), []);
    run.now_ms = 1_000 + HALF_MS - 1;
    assert_eq!(run.step(Input::Tick), [], "counted from its first record, which is before its first request");
    run.now_ms += 1;
    let failure = Failure::Unprepared { epoch: Epoch(1), shards: [ShardId(0)].into(), age_ms: HALF_MS };
    assert_eq!(run.step(Input::Tick), [Effect::End(End::Failed(failure))]);
    run.nothing_more_happens();
}

/// The age of an epoch is its own: a job may run for longer than a transaction lives.
#[test]
fn the_age_of_an_epoch_is_not_that_of_the_one_before() {
    let mut run = Driver::new();
    run.decide(1);
    run.ended(0, 1);
    run.ended(1, 1);
    run.now_ms = 10 * LIFETIME_MS;
    run.touch();
    assert_eq!(run.step(Input::Tick), [barrier(2)]);
    run.now_ms += HALF_MS - 1;
    assert_eq!(run.step(Input::Tick), []);
}

/// Where no time-out ends a transaction, none has to be hurried.
#[test]
fn an_epoch_without_a_deadline_is_waited_for() {
    let mut run = Driver::of_lifetime(None);
    run.touch();
    run.step(Input::Tick);
    run.now_ms = 1_000 * LIFETIME_MS;
    assert_eq!(run.step(Input::Tick), []);
    let idle = Input::ShardPrepared { shard: ShardId(1), epoch: Epoch(1), share: Share::default() };
    assert_eq!(run.step(idle), []);
    let share = Share { positions: positions(10), ..Share::default() };
    let offered = run.step(Input::ShardPrepared { shard: ShardId(0), epoch: Epoch(1), share });
    assert_eq!(offered, [manifest(2, 1, Vec::new())]);
}

/// H2: what was offered may have been stored, so a clock does not take it back.
#[test]
fn an_offered_epoch_is_not_given_up_for_its_deadline() {
    let mut run = Driver::new();
    run.touch();
    run.step(Input::Tick);
    run.prepare(1, both(1), false);
    run.now_ms = LIFETIME_MS - 1;
    assert_eq!(run.step(Input::Tick), []);
    assert_eq!(run.stored(), [Effect::Commit { handles: both(1) }]);
}

/// H22: a put took longer than a transaction lives. Committing what is left of the epoch would forbid going back.
#[test]
fn an_epoch_decided_behind_its_deadline_is_left_to_recovery() {
    let mut run = Driver::new();
    run.touch();
    run.step(Input::Tick);
    run.prepare(1, both(1), false);
    run.now_ms = LIFETIME_MS;
    assert_eq!(run.step(Input::Tick), [], "what is offered is not taken back");
    let failure = Failure::DeadlineNear { epoch: Epoch(1), lane: lane(0), left_ms: 0 };
    assert_eq!(run.stored(), [Effect::End(End::Failed(failure))]);
    run.nothing_more_happens();
}

/// H2: the slot holds a newer run's claim, so nothing of ours was decided and nothing may be committed.
#[test]
fn a_taken_slot_ends_the_run_as_fenced() {
    let mut run = Driver::new();
    run.touch();
    run.step(Input::Tick);
    run.prepare(1, both(1), false);
    assert_eq!(run.step(Input::SlotTaken { number: SlotNumber(2) }), [Effect::End(End::Fenced)]);
    run.nothing_more_happens();
}

/// H11, H28: time-outs and older runs answer 47, 48 and 90 too; the chain, not the broker, says who is fenced.
#[test]
fn a_commit_that_was_refused_ends_the_run_but_does_not_mean_fenced() {
    let mut run = Driver::new();
    run.decide(1);
    let ended = LaneEnd::NotCommitted("PRODUCER_FENCED".into());
    let effects = run.step(Input::LaneEnded { lane: lane(0), epoch: Epoch(1), ended });
    let why = "PRODUCER_FENCED".into();
    let failure = Failure::CommitFailed { epoch: Epoch(1), lane: lane(0), why };
    assert_eq!(effects, [Effect::End(End::Failed(failure))]);
    run.nothing_more_happens();
}

/// The first failure is sticky: nothing is decided, committed or recorded behind it.
#[test]
fn nothing_is_decided_after_a_failure() {
    let mut run = Driver::new();
    run.touch();
    run.step(Input::Tick);
    let failed = run.step(Input::Failed { why: "a record was given up".into() });
    assert_eq!(failed, [Effect::End(End::Failed(Failure::Run("a record was given up".into())))]);
    assert_eq!(run.prepare(1, both(1), false), []);
    run.nothing_more_happens();
}

#[test]
fn effects_that_were_not_taken_before_a_failure_are_not_done_after_it() {
    let mut run = Driver::new();
    run.touch();
    run.step(Input::Tick);
    run.prepare(1, both(1), false);
    run.cohort.step(0, Input::SlotStored { number: SlotNumber(2) });
    let effects = run.step(Input::Failed { why: "stop".into() });
    assert_eq!(effects, [Effect::End(End::Failed(Failure::Run("stop".into())))]);
}

#[test]
fn a_stop_takes_a_last_checkpoint_and_records_it() {
    let mut run = Driver::new();
    run.decide(1);
    run.touch();
    assert_eq!(run.step(Input::StopWanted), [last_barrier(2)]);
    assert_eq!(run.prepare(2, both(2), false), []);
    run.ended(0, 1);
    assert_eq!(run.ended(1, 1), [manifest(3, 2, both(2))]);
    assert_eq!(run.stored(), [Effect::Commit { handles: both(2) }, recorded(1)]);
    run.ended(0, 2);
    assert_eq!(run.ended(1, 2), [proven(4, 2, false)]);
    assert_eq!(run.stored(), [recorded(2), Effect::End(End::Stopped)]);
}

#[test]
fn a_stop_of_an_idle_job_costs_no_slot() {
    let mut run = Driver::new();
    assert_eq!(run.step(Input::StopWanted), [last_barrier(1)]);
    let share = Share::default;
    run.step(Input::ShardPrepared { shard: ShardId(0), epoch: Epoch(1), share: share() });
    let effects = run.step(Input::ShardPrepared { shard: ShardId(1), epoch: Epoch(1), share: share() });
    assert_eq!(effects, [Effect::End(End::Stopped)]);
}

/// Exit code 0 never with an unknown commit.
#[test]
fn a_stop_waits_for_the_epoch_in_doubt() {
    let mut run = Driver::new();
    run.decide(1);
    run.step(Input::StopWanted);
    let idle = || Share { positions: positions(10), ..Share::default() };
    run.step(Input::ShardPrepared { shard: ShardId(0), epoch: Epoch(2), share: idle() });
    let waits = run.step(Input::ShardPrepared { shard: ShardId(1), epoch: Epoch(2), share: idle() });
    assert_eq!(waits, []);
    run.ended(0, 1);
    assert_eq!(run.ended(1, 1), [proven(3, 1, false)]);
    assert_eq!(run.stored(), [recorded(1), Effect::End(End::Stopped)]);
}

#[test]
fn a_bounded_job_commits_its_tail_and_says_that_it_has_finished() {
    let mut run = Driver::new();
    run.touch();
    assert_eq!(run.step(Input::Drained { shard: ShardId(0) }), []);
    assert_eq!(run.step(Input::Drained { shard: ShardId(1) }), [last_barrier(1)]);
    assert_eq!(run.prepare(1, both(1), true), [manifest(2, 1, both(1))]);
    run.stored();
    run.ended(0, 1);
    assert_eq!(run.ended(1, 1), [proven(3, 1, true)]);
    assert_eq!(run.stored(), [recorded(1), Effect::End(End::Finished)]);
}

#[test]
fn a_bounded_job_without_anything_new_finishes_on_what_is_settled() {
    let mut run = Driver::new();
    run.step(Input::Drained { shard: ShardId(0) });
    assert_eq!(run.step(Input::Drained { shard: ShardId(1) }), [last_barrier(1)]);
    let share = || Share { drained: true, ..Share::default() };
    run.step(Input::ShardPrepared { shard: ShardId(0), epoch: Epoch(1), share: share() });
    let effects = run.step(Input::ShardPrepared { shard: ShardId(1), epoch: Epoch(1), share: share() });
    assert_eq!(effects, [proven(2, 0, true)]);
    assert_eq!(run.stored(), [Effect::End(End::Finished)]);
}

#[test]
fn a_stop_at_the_very_end_of_a_bounded_job_finishes_it() {
    let mut run = Driver::new();
    run.touch();
    run.step(Input::StopWanted);
    run.prepare(1, Vec::new(), true);
    assert_eq!(run.stored(), [recorded(1), proven(3, 1, true)]);
    assert_eq!(run.stored(), [Effect::End(End::Finished)]);
}
