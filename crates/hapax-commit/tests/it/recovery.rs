//! From a claim to the first new record.

mod torn;

use crate::fixture::{Slots, at, finished, handle, identity, job, lane, positions, proven, void};
use hapax_commit::{
    Epoch, Handle, IdAt, Identity, ProducerEpoch, Recovery, SlotBody, SlotNumber, Strategy,
    TransactionVersion,
    evidence::{
        Described, EndTxnAnswer, LaneFate, LaneLook, Marker, PartitionEnd, PartitionLook,
        TransactionState as State, Witness,
    },
    limits::{LOOKS_BEFORE_INCIDENT, REFUSALS_BEFORE_INCIDENT},
    recovery::{Done, Effect, Incident, IncidentKind, Input, LaneLoss, Resolution},
};
use std::collections::{BTreeMap, VecDeque};

/// The brokers as a test wants them: what is said about each id, in turn; the last answer stays.
#[derive(Default)]
struct Brokers {
    described: BTreeMap<IdAt, VecDeque<Described>>,
    markers: BTreeMap<IdAt, PartitionEnd>,
    /// In single partitions.
    marked: BTreeMap<i32, PartitionEnd>,
    answers: BTreeMap<IdAt, VecDeque<EndTxnAnswer>>,
    sources: Option<String>,
    /// Of these handles, records are not in the log.
    missing: BTreeMap<IdAt, String>,
    /// Why a strategy cannot.
    repairs: BTreeMap<Strategy, String>,
    beyond: BTreeMap<IdAt, String>,
}

/// A handle's records, prepared again.
fn again(handle: &Handle, epoch: Epoch, identity: Identity) -> Handle {
    let transactional_id = handle.lane.transactional_id(&job(), epoch);
    Handle { transactional_id, identity, epoch, ..handle.clone() }
}

fn next<T: Clone>(answers: &mut VecDeque<T>) -> Option<T> {
    if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
}

fn known(state: State, producer: i64, epoch: i16) -> Described {
    Described::Known { state, identity: identity(producer, epoch) }
}

fn open(shard: u32) -> Described {
    known(State::Ongoing, 100 + i64::from(shard), 5)
}

fn committed(shard: u32) -> Described {
    known(State::CompleteCommit, 100 + i64::from(shard), 6)
}

fn aborted(shard: u32) -> Described {
    known(State::CompleteAbort, 100 + i64::from(shard), 6)
}

fn marker(marker: Marker) -> PartitionEnd {
    PartitionEnd::Marker { marker, producer_epoch: ProducerEpoch(6) }
}

impl Brokers {
    fn say(mut self, handle: &Handle, described: impl IntoIterator<Item = Described>) -> Self {
        self.described.insert(handle.at(), described.into_iter().collect());
        self
    }

    fn answer(mut self, handle: &Handle, answers: impl IntoIterator<Item = EndTxnAnswer>) -> Self {
        self.answers.insert(handle.at(), answers.into_iter().collect());
        self
    }

    fn end(mut self, handle: &Handle, end: PartitionEnd) -> Self {
        self.markers.insert(handle.at(), end);
        self
    }

    fn partitions(&self, handle: &Handle) -> Vec<PartitionLook> {
        let end = self.markers.get(&handle.at()).cloned().unwrap_or(PartitionEnd::NoneYet);
        let look = |part: &hapax_commit::HandlePartition| PartitionLook {
            topic: part.topic.clone(),
            partition: part.partition,
            end: self.marked.get(&part.partition).unwrap_or(&end).clone(),
        };
        handle.partitions.iter().map(look).collect()
    }

    fn input(&mut self, effect: &Effect) -> Option<Input> {
        let silent = || Described::Unanswered("nobody".into());
        Some(match effect {
            Effect::Survey { at, .. } => {
                let described = self.described.get_mut(at).and_then(next).unwrap_or(Described::Forgotten);
                Input::Surveyed {
                    at: at.clone(),
                    by: Witness::Coordinator,
                    described,
                    beyond: self.beyond.get(at).cloned(),
                }
            }
            Effect::ClearId { at } => Input::Cleared { at: at.clone(), identity: identity(900, 0) },
            Effect::Look { handle, markers, .. } => {
                let described = self.described.get_mut(&handle.at()).and_then(next).unwrap_or_else(silent);
                let markers = markers.then(|| self.partitions(handle));
                let records = self.missing.get(&handle.at()).cloned().map(Err);
                let look = LaneLook {
                    by: Witness::Coordinator,
                    described,
                    level: TransactionVersion::V2,
                    markers,
                    records,
                };
                Input::Looked { at: handle.at(), look }
            }
            Effect::EndTxn { handle, commit } => {
                let done = if *commit { EndTxnAnswer::Committed } else { EndTxnAnswer::Aborted };
                let answer = self.answers.get_mut(&handle.at()).and_then(next).unwrap_or(done);
                Input::EndTxnAnswered { at: handle.at(), answer }
            }
            Effect::ReadBack { handle, .. } => {
                Input::ReadBack { at: handle.at(), partitions: self.partitions(handle) }
            }
            Effect::ProbeSources { .. } => Input::SourcesProbed(self.sources.clone().map_or(Ok(()), Err)),
            Effect::Repair { handle, strategy, epoch, identity, .. } => {
                let new = again(handle, *epoch, *identity);
                let producer_epoch = ProducerEpoch(identity.producer_epoch.0 + 1);
                self.markers
                    .insert(new.at(), PartitionEnd::Marker { marker: Marker::Commit, producer_epoch });
                let outcome = self.repairs.get(strategy).cloned().map_or(Ok(new), Err);
                Input::Repaired { at: handle.at(), strategy: *strategy, outcome }
            }
            Effect::GiveUp { strategy, .. } => {
                Input::GivenUp(self.repairs.get(strategy).cloned().map_or(Ok("incident".into()), Err))
            }
            Effect::CheckClaim => Input::ClaimHolds,
            Effect::PutSlot { number, .. } => Input::SlotStored { number: *number },
            Effect::Done(_) | Effect::Fenced | Effect::Stop(_) => return None,
        })
    }
}

/// Every effect in the order in which it was carried out; the last one is terminal.
fn recover_with(slots: &Slots, brokers: &mut Brokers, allowed: &[Strategy]) -> Vec<Effect> {
    let mut machine = Recovery::new(&slots.view(), slots.run(), &positions(0), allowed);
    let mut done = Vec::new();
    for _ in 0..1_000 {
        machine.check().unwrap();
        let effect = machine.poll_effect().expect("something is always to be done");
        let input = brokers.input(&effect);
        done.push(effect);
        let Some(input) = input else { return done };
        machine.step(0, input);
    }
    panic!("no end in sight: {:?}", done.last());
}

fn recover(slots: &Slots, brokers: &mut Brokers) -> Vec<Effect> {
    recover_with(slots, brokers, &Strategy::DEFAULT)
}

fn done(effects: &[Effect]) -> &Done {
    match effects.last() {
        Some(Effect::Done(done)) => done,
        other => panic!("not done: {other:?}"),
    }
}

fn incident(effects: &[Effect]) -> &Incident {
    match effects.last() {
        Some(Effect::Stop(incident)) => incident,
        other => panic!("not stopped: {other:?}"),
    }
}

fn count(effects: &[Effect], which: impl Fn(&Effect) -> bool) -> usize {
    effects.iter().filter(|effect| which(effect)).count()
}

fn position(effects: &[Effect], which: impl Fn(&Effect) -> bool) -> usize {
    effects.iter().position(which).expect("it was done")
}

fn is_end(effect: &Effect) -> bool {
    matches!(effect, Effect::EndTxn { .. })
}

fn put(body: SlotBody) -> impl Fn(&Effect) -> bool {
    move |effect| matches!(effect, Effect::PutSlot { body: offered, .. } if *offered == body)
}

fn clears(handle: &Handle) -> impl Fn(&Effect) -> bool {
    let id = handle.at();
    move |effect| matches!(effect, Effect::ClearId { at } if *at == id)
}

/// Epoch 1 proven, epoch 2 decided on two lanes, then a new run.
fn in_doubt() -> Slots {
    Slots::claimed().decide(1).decide(2).claim(2)
}

fn two(first: Described, second: Described) -> Brokers {
    Brokers::default().say(&handle(0, 2), [first]).say(&handle(1, 2), [second])
}

#[test]
fn a_new_job_clears_its_ids_and_begins_at_genesis() {
    let effects = recover(&Slots::claimed(), &mut Brokers::default());
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::ClearId { .. })), 6);
    let done = done(&effects);
    assert_eq!((done.start.last_epoch, done.start.next_slot), (Epoch::GENESIS, SlotNumber(2)));
    assert_eq!((&done.start.positions, done.resolved, done.identities.len()), (&positions(0), None, 6));
}

#[test]
fn a_finished_job_is_told_apart() {
    let effects = recover(&Slots::claimed().decide(1).put(finished(1)).claim(2), &mut Brokers::default());
    assert!(done(&effects).finished);
}

#[test]
fn open_lanes_are_committed_read_back_and_proven() {
    let mut brokers = two(open(0), open(1));
    brokers.markers = [handle(0, 2), handle(1, 2)].map(|handle| (handle.at(), marker(Marker::Commit))).into();
    let effects = recover(&in_doubt(), &mut brokers);
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::EndTxn { commit: true, .. })), 2);
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::ReadBack { .. })), 2);
    assert_eq!(count(&effects, put(proven(2))), 1);
    let done = done(&effects);
    assert_eq!(done.resolved, Some((Epoch(2), Resolution::Resumed)));
    assert_eq!((done.start.settled, &done.start.positions), (Epoch(2), &positions(20)));
    assert_eq!(done.start.next_slot, SlotNumber(6));
}

#[test]
fn a_lane_that_was_committed_before_is_not_ended_again() {
    let mut brokers = two(committed(0), committed(1));
    let effects = recover(&in_doubt(), &mut brokers);
    assert_eq!(count(&effects, is_end), 0);
    assert_eq!(done(&effects).resolved, Some((Epoch(2), Resolution::FoundCommitted)));
}

#[test]
fn lanes_seen_aborted_are_given_up_and_their_input_is_read_again() {
    let effects = recover(&in_doubt(), &mut two(aborted(0), aborted(1)));
    assert_eq!(count(&effects, is_end), 0);
    assert_eq!(count(&effects, put(void(2))), 1);
    let done = done(&effects);
    assert_eq!(done.resolved, Some((Epoch(2), Resolution::Rewound)));
    assert_eq!((done.start.settled, &done.start.positions), (Epoch(1), &positions(10)));
    assert_eq!(done.start.last_epoch, Epoch(2), "its number is spent");
}

/// H16: an aborted first epoch goes back to the job record's positions.
#[test]
fn an_aborted_first_epoch_goes_back_to_genesis() {
    let slots = Slots::claimed().decide(1).claim(2);
    let mut brokers = Brokers::default().say(&handle(0, 1), [aborted(0)]).say(&handle(1, 1), [aborted(1)]);
    let effects = recover(&slots, &mut brokers);
    assert_eq!(
        (&done(&effects).start.positions, done(&effects).start.settled),
        (&positions(0), Epoch::GENESIS)
    );
}

/// H6: between the first look and the abort a delayed commit can arrive, so only the look after it counts.
#[test]
fn an_epoch_is_not_given_up_when_a_delayed_commit_came_between() {
    let mut brokers = Brokers::default()
        .say(&handle(0, 2), [aborted(0)])
        .say(&handle(1, 2), [open(1), open(1), committed(1)])
        .answer(&handle(1, 2), [EndTxnAnswer::NotThisState]);
    let effects = recover_with(&in_doubt(), &mut brokers, &NO_REPAIR);
    assert_eq!(count(&effects, put(void(2))), 0);
    assert_eq!(incident(&effects).kind, IncidentKind::Unresolved(Epoch(2)));
}

/// H6: the look that an epoch is given up on comes after the last act, and reads the control batches.
#[test]
fn every_lane_is_looked_at_again_with_its_control_batches_before_void() {
    let mut brokers = two(aborted(0), open(1));
    brokers.described.insert(handle(1, 2).at(), [open(1), open(1), aborted(1)].into());
    let effects = recover(&in_doubt(), &mut brokers);
    let void_at = position(&effects, put(void(2)));
    let end = position(&effects, is_end);
    for shard in 0..2 {
        let again = |effect: &Effect| matches!(effect, Effect::Look { handle: looked, markers: true, .. } if *looked == handle(shard, 2));
        let at = effects.iter().rposition(again).expect("looked at again");
        assert!(end < at && at < void_at, "shard {shard}");
    }
}

/// A zombie's InitProducerId after the commit can leave an abort of its own: the control batch outranks it.
#[test]
fn an_abort_that_only_the_coordinator_shows_is_checked_against_the_data() {
    let mut brokers = two(aborted(0), aborted(1)).end(&handle(1, 2), marker(Marker::Commit));
    let effects = recover(&in_doubt(), &mut brokers);
    assert_eq!(count(&effects, put(void(2))), 0);
    assert!(incident(&effects).lanes.iter().any(|lane| matches!(lane.fate, LaneFate::Torn(_))));
}

/// H10: resuming first and looking later would have taken the way back.
#[test]
fn no_lane_is_ended_before_all_were_looked_at() {
    for mut brokers in [two(open(0), aborted(1)), two(open(0), open(1)), two(aborted(0), open(1))] {
        for shard in 0..2 {
            brokers = brokers.end(&handle(shard, 2), marker(Marker::Commit));
        }
        let effects = recover(&in_doubt(), &mut brokers);
        let first_end = position(&effects, is_end);
        for shard in 0..2 {
            let looked = |effect: &Effect| matches!(effect, Effect::Look { handle: at, .. } if *at == handle(shard, 2));
            assert!(position(&effects, looked) < first_end);
        }
    }
}

/// Nothing that writes aborted records again.
const NO_REPAIR: [Strategy; 2] = [Strategy::Resume, Strategy::Rewind];

/// H10: with one lane committed there is no way back; what cannot be written again needs a person.
#[test]
fn mixed_lanes_stop_with_the_handle_where_nothing_can_write_it_again() {
    let slots = Slots::claimed().decide(1).decide(2).claim(2);
    let mut brokers = two(committed(0), aborted(1));
    brokers.repairs.insert(Strategy::Rewrite, "the log has a hole at 12".into());
    brokers.repairs.insert(Strategy::Replay, "no journal was written".into());
    let effects = recover(&slots, &mut brokers);
    let incident = incident(&effects);
    assert_eq!(incident.kind, IncidentKind::Unresolved(Epoch(2)));
    assert!(incident.lanes.iter().any(|lane| lane.handle == handle(1, 2) && lane.fate == LaneFate::Aborted));
    let text = incident.to_string();
    assert!(text.contains("the log has a hole at 12") && text.contains("orders.main.1.2"), "{text}");
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::PutSlot { .. })), 0);
}

/// Only the aborted lane is written again: looked at with its control batches first, amended before it is committed.
#[test]
fn an_aborted_lane_beside_a_committed_one_is_written_again_and_amended_before_it_is_committed() {
    let effects = recover(&in_doubt(), &mut two(committed(0), aborted(1)));
    let new = again(&handle(1, 2), Epoch(3), identity(900, 0));
    let amend = SlotBody::Amend { epoch: Epoch(2), handles: vec![new.clone()] };
    let order = [
        position(
            &effects,
            |effect| matches!(effect, Effect::Look { handle: looked, markers: true, .. } if *looked == handle(1, 2)),
        ),
        position(&effects, |effect| matches!(effect, Effect::Repair { .. })),
        position(&effects, put(amend)),
        position(&effects, |effect| *effect == Effect::EndTxn { handle: new.clone(), commit: true }),
        position(&effects, put(proven(2))),
        effects.iter().rposition(clears(&new)).expect("it is cleared"),
    ];
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::Repair { .. })), 1);
    assert!(position(&effects, clears(&handle(1, 2))) > order[2], "the void handle's id is free then");
    let done = done(&effects);
    assert_eq!(done.resolved, Some((Epoch(2), Resolution::Repaired)));
    assert_eq!((done.start.last_epoch, done.start.settled), (Epoch(3), Epoch(2)));
    assert_eq!(done.start.positions, positions(20));
    assert_eq!(done.identities.len(), 6, "every id can be written on");
}

/// What a strategy has begun to write before it saw that it cannot is ended before the next one writes.
#[test]
fn the_next_strategy_writes_on_an_id_that_was_cleared_again() {
    let mut brokers = two(committed(0), aborted(1));
    brokers.repairs.insert(Strategy::Rewrite, "its digest differs".into());
    let effects = recover(&in_doubt(), &mut brokers);
    let by = |wanted| {
        let is =
            move |effect: &Effect| matches!(effect, Effect::Repair { strategy, .. } if *strategy == wanted);
        position(&effects, is)
    };
    let (first, second) = (by(Strategy::Rewrite), by(Strategy::Replay));
    let fresh = again(&handle(1, 2), Epoch(3), identity(900, 0));
    assert_eq!(effects[first..second].iter().filter(|effect| clears(&fresh)(effect)).count(), 1);
    assert_eq!(done(&effects).resolved, Some((Epoch(2), Resolution::Repaired)));
}

/// A rewritten transaction can time out before it is committed, like any other.
#[test]
fn what_was_written_again_and_aborted_again_is_written_once_more() {
    let again_aborted = again(&handle(1, 2), Epoch(3), identity(900, 0));
    let mut brokers = two(committed(0), aborted(1))
        .say(&again_aborted, [known(State::CompleteAbort, 900, 1)])
        .answer(&again_aborted, [EndTxnAnswer::NotThisState]);
    let slots = in_doubt();
    let mut machine = Recovery::new(&slots.view(), slots.run(), &positions(0), &Strategy::DEFAULT);
    let mut repairs = Vec::new();
    for _ in 0..1_000 {
        let effect = machine.poll_effect().expect("something is always to be done");
        if let Effect::Repair { handle, epoch, .. } = &effect {
            repairs.push((handle.epoch, *epoch));
        }
        let input = brokers.input(&effect);
        brokers.markers.insert(
            again_aborted.at(),
            PartitionEnd::Marker { marker: Marker::Abort, producer_epoch: ProducerEpoch(1) },
        );
        let Some(input) = input else {
            let Effect::Done(done) = effect else { panic!("{effect:?}") };
            assert_eq!(done.resolved, Some((Epoch(2), Resolution::Repaired)));
            assert_eq!(done.start.last_epoch, Epoch(4));
            assert_eq!(repairs, [(Epoch(2), Epoch(3)), (Epoch(3), Epoch(4))]);
            return;
        };
        machine.step(0, input);
        machine.check().unwrap();
    }
    panic!("no end in sight");
}

/// A cluster that lost acknowledged records would commit the rest: that transaction is aborted instead, and the input read
/// again while nothing is committed.
#[test]
fn an_open_transaction_that_lost_records_is_never_committed() {
    let lost = || "in out-0 sequence 4 is missing".to_owned();
    let mut brokers = two(open(0), open(1));
    // It is looked at several times before that is believed.
    let looks = 2 + LOOKS_BEFORE_INCIDENT as usize;
    let then_aborted = std::iter::repeat_n(open(0), looks).chain([aborted(0)]).collect();
    brokers.described.insert(handle(0, 2).at(), then_aborted);
    brokers.described.insert(handle(1, 2).at(), [open(1), open(1), aborted(1)].into());
    brokers.missing.insert(handle(0, 2).at(), lost());
    let effects = recover(&in_doubt(), &mut brokers);
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::EndTxn { commit: true, .. })), 0);
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::EndTxn { commit: false, .. })), 2);
    assert_eq!(done(&effects).resolved, Some((Epoch(2), Resolution::Rewound)));

    // No way back: nobody ends it, and a person is told what is missing.
    for allowed in [Strategy::DEFAULT.as_slice(), &[Strategy::Resume, Strategy::Abandon]] {
        let mut brokers = two(open(0), committed(1));
        brokers.missing.insert(handle(0, 2).at(), lost());
        let effects = recover_with(&in_doubt(), &mut brokers, allowed);
        assert_eq!(count(&effects, is_end), 0);
        assert!(incident(&effects).to_string().contains("sequence 4 is missing"), "{}", incident(&effects));
    }
}

/// A coordinator that once answered the handle's identity and now has an earlier one has lost what it knew.
#[test]
fn brokers_that_know_less_than_they_once_answered_stop_the_start_before_anything_is_cleared() {
    for described in [[known(State::CompleteCommit, 100, 4)], [known(State::Ongoing, 100, 3)]] {
        let mut brokers = two(open(0), open(1)).say(&handle(0, 2), described.clone());
        let effects = recover(&in_doubt(), &mut brokers);
        assert_eq!(incident(&effects).kind, IncidentKind::BrokersBehind);
        assert_eq!(count(&effects, is_end), 0);
        // Of an id whose outcome is in the chain, too: what was committed may be gone.
        let mut brokers = two(open(0), open(1)).say(&handle(0, 1), described);
        let effects = recover(&in_doubt(), &mut brokers);
        assert_eq!(incident(&effects).kind, IncidentKind::BrokersBehind);
        assert_eq!(count(&effects, |effect| matches!(effect, Effect::ClearId { .. })), 0);
    }
}

/// The incident is written before the slot that names it.
#[test]
fn records_are_given_up_by_a_slot_that_names_the_incident() {
    let allowed = [Strategy::Resume, Strategy::Rewrite, Strategy::SetAside, Strategy::Abandon];
    let mut brokers = two(open(0), aborted(1)).end(&handle(0, 2), marker(Marker::Commit));
    brokers.repairs.insert(Strategy::Rewrite, "the log has a hole at 12".into());
    brokers.repairs.insert(Strategy::SetAside, "neither log nor journal has them".into());
    let effects = recover_with(&in_doubt(), &mut brokers, &allowed);
    let given_up = effects.iter().filter_map(|effect| match effect {
        Effect::GiveUp { committed, lost, strategy, .. } => {
            assert_eq!(committed, &[handle(0, 2)]);
            let [LaneLoss { lane, missing }] = &lost[..] else { panic!("{lost:?}") };
            assert_eq!(
                (&lane.handle, &lane.fate, missing),
                (&handle(1, 2), &LaneFate::Aborted, &lane.handle)
            );
            Some(*strategy)
        }
        _ => None,
    });
    assert_eq!(given_up.collect::<Vec<_>>(), [Strategy::SetAside, Strategy::Abandon]);
    let abandoned = SlotBody::Abandoned { epoch: Epoch(2), incident: "incident".into() };
    assert_eq!(count(&effects, put(abandoned)), 1);
    let done = done(&effects);
    assert_eq!(done.resolved, Some((Epoch(2), Resolution::Abandoned)));
    assert_eq!((done.start.settled, &done.start.positions), (Epoch(2), &positions(20)));
}

/// The rule, H9, H12: nothing but its own EndTxn reaches an id in doubt before the outcome is in the chain.
#[test]
fn no_id_in_doubt_is_cleared_before_its_outcome_is_in_the_chain() {
    for (mut brokers, outcome) in
        [(two(aborted(0), aborted(1)), void(2)), (two(committed(0), committed(1)), proven(2))]
    {
        let effects = recover(&in_doubt(), &mut brokers);
        let stored = position(&effects, put(outcome));
        for shard in 0..2 {
            assert!(position(&effects, clears(&handle(shard, 2))) > stored);
            assert!(position(&effects, clears(&handle(shard, 1))) < stored);
        }
        assert_eq!(done(&effects).identities.len(), 6);
    }
    let effects = recover_with(&in_doubt(), &mut two(committed(0), aborted(1)), &NO_REPAIR);
    assert!((0..2).all(|shard| count(&effects, clears(&handle(shard, 2))) == 0), "not even at a stop");
}

/// H24: readers must not wait behind undecided transactions for as long as a commit takes to be resolved.
#[test]
fn undecided_ids_are_cleared_before_the_first_look() {
    let effects = recover(&in_doubt(), &mut two(committed(0), committed(1)));
    let look = position(&effects, |effect| matches!(effect, Effect::Look { .. }));
    let cleared = effects[..look].iter().filter(|effect| matches!(effect, Effect::ClearId { .. }));
    assert_eq!(cleared.count(), 4);
}

/// H38: a sink that left the pipeline file is still resolved, because the manifest names it.
#[test]
fn lanes_are_taken_from_the_manifest_alone() {
    let slots = Slots::claimed().decide(1).claim(1);
    let mut brokers = Brokers::default()
        .say(&handle(0, 1), [committed(0)])
        .say(&handle(1, 1), [open(1)])
        .end(&handle(1, 1), marker(Marker::Commit));
    let effects = recover(&slots, &mut brokers);
    assert!(effects.contains(&Effect::EndTxn { handle: handle(1, 1), commit: true }));
}

/// T2, H11: 90 after a lost answer means committed as well as aborted; it is looked up, never concluded.
#[test]
fn a_commit_that_is_answered_superseded_is_looked_up() {
    for (after, resolution) in [
        (committed(0), Resolution::FoundCommitted),
        (known(State::Empty, 100, 8), Resolution::FoundCommitted),
    ] {
        let slots = Slots::claimed().decide(1).claim(2);
        let mut brokers = Brokers::default()
            .say(&handle(0, 1), [open(0), open(0), after])
            .say(&handle(1, 1), [committed(1)])
            .answer(&handle(0, 1), [EndTxnAnswer::Superseded])
            .end(&handle(0, 1), marker(Marker::Commit));
        let effects = recover(&slots, &mut brokers);
        assert_eq!(done(&effects).resolved, Some((Epoch(1), resolution)));
        assert_eq!(count(&effects, is_end), 1);
    }
}

#[test]
fn a_lost_commit_answer_is_looked_up_and_the_same_handle_sent_again() {
    let mut brokers = two(open(0), committed(1))
        .answer(&handle(0, 2), [EndTxnAnswer::Unknown("lost".into()), EndTxnAnswer::Committed])
        .end(&handle(0, 2), marker(Marker::Commit));
    let effects = recover(&in_doubt(), &mut brokers);
    let again = Effect::EndTxn { handle: handle(0, 2), commit: true };
    assert_eq!(count(&effects, |effect| *effect == again), 2);
    assert_eq!(done(&effects).resolved, Some((Epoch(2), Resolution::Resumed)));
}

#[test]
fn a_coordinator_that_refuses_what_it_shows_open_calls_a_person_in_the_end() {
    let mut brokers = two(open(0), committed(1)).answer(&handle(0, 2), [EndTxnAnswer::NotThisState]);
    let effects = recover(&in_doubt(), &mut brokers);
    assert_eq!(count(&effects, is_end), REFUSALS_BEFORE_INCIDENT as usize);
    assert!(incident(&effects).lanes.iter().any(|lane| matches!(lane.fate, LaneFate::Contradiction(_))));
}

/// H30: the coordinator answers committed, yet a partition was aborted by hand.
#[test]
fn a_resumed_commit_is_read_back_from_the_data() {
    let mut brokers = two(open(0), committed(1)).end(&handle(0, 2), marker(Marker::Abort));
    let effects = recover(&in_doubt(), &mut brokers);
    assert_eq!(count(&effects, put(proven(2))), 0);
    assert!(incident(&effects).to_string().contains("the data says aborted"));
}

#[test]
fn a_partition_that_was_deleted_does_not_take_a_commit_back() {
    let mut brokers = two(open(0), committed(1)).end(&handle(0, 2), PartitionEnd::Gone("deleted".into()));
    let effects = recover(&in_doubt(), &mut brokers);
    assert_eq!(done(&effects).resolved, Some((Epoch(2), Resolution::Resumed)));
}

/// H43: the *Ongoing* of a deposed coordinator is not final; one more look and it has found out.
#[test]
fn one_contradiction_is_looked_at_again() {
    let mut brokers = two(known(State::Empty, 100, 7), committed(1));
    brokers
        .described
        .insert(handle(0, 2).at(), [known(State::Empty, 100, 7), known(State::Empty, 100, 7)].into());
    let effects = recover(&in_doubt(), &mut brokers);
    let looks =
        count(&effects, |effect| matches!(effect, Effect::Look { handle: at, .. } if *at == handle(0, 2)));
    assert_eq!(looks, 2 + LOOKS_BEFORE_INCIDENT as usize, "without control batches, with them, and again");
    assert!(matches!(incident(&effects).kind, IncidentKind::Unresolved(_)));

    let mut brokers = two(open(0), committed(1)).end(&handle(0, 2), marker(Marker::Commit));
    let forgotten = known(State::Empty, 100, 7);
    brokers.described.insert(handle(0, 2).at(), [forgotten.clone(), forgotten, open(0), committed(0)].into());
    let effects = recover(&in_doubt(), &mut brokers);
    assert_eq!(done(&effects).resolved.map(|(_, how)| how), Some(Resolution::FoundCommitted));
}

/// H40 b: yesterday's copy of the store. Clearing would abort what a job elsewhere has decided since.
#[test]
fn an_old_copy_of_the_store_is_noticed_before_anything_is_cleared() {
    let slots = Slots::claimed().decide(1).put(proven(1)).claim(2);
    let mut brokers = Brokers::default()
        .say(&handle(0, 1), [known(State::CompleteCommit, 100, 44)])
        .say(&handle(1, 1), [committed(1)]);
    let effects = recover(&slots, &mut brokers);
    assert_eq!(incident(&effects).kind, IncidentKind::BrokersAhead);
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::ClearId { .. })), 0);
}

/// H40 b, with a start in between that cleared the ids and wrote nothing: only the data tells.
#[test]
fn an_old_copy_of_the_store_is_noticed_by_commits_in_the_data() {
    let slots = Slots::claimed().decide(1).put(proven(1)).claim(2);
    let mut brokers = Brokers::default()
        .say(&handle(0, 1), [known(State::Empty, 100, 9)])
        .say(&handle(1, 1), [committed(1)]);
    brokers.beyond.insert(handle(0, 1).at(), "a commit marker of producer 100 at offset 77".into());
    let effects = recover(&slots, &mut brokers);
    assert_eq!(incident(&effects).kind, IncidentKind::BrokersAhead);
    assert!(incident(&effects).to_string().contains("at offset 77"));
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::ClearId { .. })), 0);
}

/// What an old copy does not show: epochs 2 and 3 were committed since, under ids of which it has no transaction.
#[test]
fn ids_of_which_the_chain_has_no_transaction_are_cleared_without_a_look() {
    let slots = Slots::claimed().decide(1).put(proven(1)).claim(2);
    let mut brokers = Brokers::default();
    for (shard, epoch) in [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)] {
        brokers = brokers.say(&handle(shard, epoch), [committed(shard)]);
    }
    let effects = recover(&slots, &mut brokers);
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::Survey { .. })), 2, "those of epoch 1");
    assert_eq!(count(&effects, |effect| matches!(effect, Effect::ClearId { .. })), 6);
    assert_eq!(done(&effects).start.settled, Epoch(1), "it goes on behind epoch 1");
}

/// H11: what an old run sees at the brokers is what a newer one did, so the chain is asked before a person is called.
#[test]
fn an_old_run_that_sees_a_newer_ones_commits_is_fenced_and_calls_nobody() {
    let slots = Slots::claimed().decide(1).put(proven(1)).claim(2);
    let mut machine = Recovery::new(&slots.view(), slots.run(), &positions(0), &Strategy::DEFAULT);
    let described = known(State::CompleteCommit, 100, 44);
    machine.step(
        0,
        Input::Surveyed { at: handle(0, 1).at(), by: Witness::Coordinator, described, beyond: None },
    );
    assert_eq!(machine.poll_effect(), Some(Effect::CheckClaim));
    let late = Input::Surveyed {
        at: handle(1, 1).at(),
        by: Witness::Coordinator,
        described: Described::Forgotten,
        beyond: None,
    };
    machine.step(0, late);
    machine.step(0, Input::ChainMoved);
    assert_eq!((machine.poll_effect(), machine.poll_effect()), (Some(Effect::Fenced), None));
}

#[test]
fn a_newer_claim_ends_recovery_at_any_point() {
    let slots = in_doubt();
    for moved in [Input::ChainMoved, Input::SlotTaken { number: SlotNumber(5) }] {
        let mut machine = Recovery::new(&slots.view(), slots.run(), &positions(0), &Strategy::DEFAULT);
        machine.step(0, moved);
        assert_eq!((machine.poll_effect(), machine.poll_effect()), (Some(Effect::Fenced), None));
        machine.step(0, Input::Tick);
        assert_eq!(machine.poll_effect(), None);
    }
}

/// H37: a source that lost the input of e-1 makes `rewind` a loss.
#[test]
fn an_epoch_is_not_given_up_when_a_source_has_lost_its_input() {
    let mut brokers = two(aborted(0), aborted(1));
    brokers.sources = Some("in-0 starts at 70, wanted is 10".into());
    let effects = recover_with(&in_doubt(), &mut brokers, &NO_REPAIR);
    assert_eq!(count(&effects, put(void(2))), 0);
    assert!(incident(&effects).to_string().contains("in-0 starts at 70"));
    let probed = effects.contains(&Effect::ProbeSources { positions: positions(10) });
    assert!(probed, "asked for the positions of the epoch before");
}

/// H10: a cluster that is down is waited for, unless what is open elsewhere would time out meanwhile.
#[test]
fn a_silent_cluster_is_waited_for_until_a_deadline_is_near() {
    let far = Handle { cluster_id: "D".into(), ..handle(1, 1) };
    let mut slots = Slots::claimed();
    if let SlotBody::Claim(claim) = &mut slots.all[0].body {
        claim.ids.insert("D".into(), crate::fixture::ids(2));
    }
    let slots = slots.put(crate::fixture::manifest(1, vec![handle(0, 1), far.clone()])).claim(2);
    let mut machine = Recovery::new(&slots.view(), slots.run(), &positions(0), &Strategy::DEFAULT);
    let mut brokers = Brokers::default().say(&handle(0, 1), [open(0)]);
    let step = |machine: &mut Recovery, brokers: &mut Brokers, wall_ms: i64| {
        let mut ended = Vec::new();
        while let Some(effect) = machine.poll_effect() {
            let silent =
                matches!(&effect, Effect::Survey { at, .. } | Effect::ClearId { at } if at.cluster_id == "D");
            if !silent {
                ended.extend(is_end(&effect).then(|| effect.clone()));
                machine.step(wall_ms, brokers.input(&effect).expect("not the end"));
                machine.check().unwrap();
            }
        }
        ended
    };
    assert_eq!(step(&mut machine, &mut brokers, 0), []);
    machine.step(handle(0, 1).deadline_ms - 20_000, Input::Tick);
    brokers = brokers.end(&handle(0, 1), marker(Marker::Commit));
    let ended = step(&mut machine, &mut brokers, 0);
    assert_eq!(ended, [Effect::EndTxn { handle: handle(0, 1), commit: true }]);
}

#[test]
fn ids_of_shards_that_are_gone_are_cleared_too() {
    let slots = Slots::default().claim(4).claim(1);
    let effects = recover(&slots, &mut Brokers::default());
    let gone = at(lane(3).transactional_id(&job(), Epoch(2)));
    assert_eq!(count(&effects, |effect| *effect == Effect::ClearId { at: gone.clone() }), 1);
    assert_eq!(done(&effects).identities.len(), 12);
}
