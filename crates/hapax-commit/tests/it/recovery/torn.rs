//! A transaction that has ended one way here and the other way there, and what is told of the ways that were not taken.

use super::{
    Brokers, NO_REPAIR, aborted, committed, count, done, in_doubt, incident, marker, open, recover,
    recover_with, two,
};
use crate::fixture::{Slots, handle, manifest, positions};
use hapax_commit::{
    Epoch, Handle, HandlePartition, Recovery, Strategy,
    evidence::{LaneFate, Marker},
    recovery::{Effect, IncidentKind, LaneLoss, Resolution},
};

/// A handle of two partitions, decided on one lane, and the slots behind it.
fn of_two_partitions() -> (Handle, Slots) {
    let mut wide = handle(0, 1);
    wide.partitions.push(HandlePartition {
        partition: 9,
        first_offset: 40,
        last_offset: 49,
        ..wide.partitions[0].clone()
    });
    let slots = Slots::claimed().put(manifest(1, vec![wide.clone()])).claim(2);
    (wide, slots)
}

/// H30: whoever comes after the run that was told so must not take the coordinator's word for it.
#[test]
fn a_commit_that_is_only_the_coordinators_word_is_not_recorded_however_often_it_is_looked_at() {
    let (wide, slots) = of_two_partitions();
    for allowed in [&Strategy::DEFAULT[..], &NO_REPAIR] {
        let mut brokers = Brokers::default().say(&wide, [committed(0)]).end(&wide, marker(Marker::Commit));
        brokers.marked.insert(9, marker(Marker::Abort));
        let effects = recover_with(&slots, &mut brokers, allowed);
        assert_eq!(incident(&effects).kind, IncidentKind::Unresolved(Epoch(1)));
        assert!(matches!(incident(&effects).lanes[0].fate, LaneFate::Torn(_)), "{}", incident(&effects));
        assert_eq!(count(&effects, |effect| matches!(effect, Effect::PutSlot { .. })), 0);
    }
}

/// A person's way out of it: the list of what readers do not see, and on.
#[test]
fn of_a_torn_transaction_what_readers_do_not_see_is_given_up_where_the_list_says_so() {
    let (wide, slots) = of_two_partitions();
    let mut brokers = Brokers::default().say(&wide, [open(0)]).end(&wide, marker(Marker::Commit));
    brokers.marked.insert(9, marker(Marker::Abort));
    brokers.described.insert(wide.at(), [open(0), open(0), committed(0)].into());
    let effects = recover_with(&slots, &mut brokers, &[Strategy::Resume, Strategy::Abandon]);
    let lost = effects.iter().find_map(|effect| match effect {
        Effect::GiveUp { committed, lost, .. } => Some((committed.len(), lost.clone())),
        _ => None,
    });
    let (0, lost) = lost.expect("it is given up") else { panic!("no other lane is committed") };
    let [LaneLoss { lane, missing }] = &lost[..] else { panic!("{lost:?}") };
    assert_eq!((&lane.handle, matches!(lane.fate, LaneFate::Torn(_))), (&wide, true), "{lane}");
    let evidence = [
        "EndTxn(commit): done, committed",
        "DescribeTransactions: CompleteCommit 100:6",
        "out-0: a control batch, commit, producer epoch 6",
        "out-9: a control batch, abort, producer epoch 6",
    ];
    assert_eq!(lane.evidence, evidence);
    assert!(lane.to_string().ends_with("20 records: out-0 10..19, out-9 40..49"), "{lane}");
    assert_eq!(missing.partitions, [wide.partitions[1].clone()]);
    assert_eq!(done(&effects).resolved, Some((Epoch(1), Resolution::Abandoned)));
}

/// Beside a torn lane an aborted one is still written again.
#[test]
fn beside_a_torn_lane_an_aborted_one_is_written_again_before_anything_is_given_up() {
    let torn = || two(committed(0), aborted(1)).end(&handle(0, 2), marker(Marker::Abort));
    let stopped = recover(&in_doubt(), &mut torn());
    assert!(matches!(incident(&stopped).lanes[0].fate, LaneFate::Torn(_)));
    let allowed = [Strategy::Resume, Strategy::Rewrite, Strategy::Abandon];
    let effects = recover_with(&in_doubt(), &mut torn(), &allowed);
    for effects in [&stopped, &effects] {
        assert_eq!(count(effects, |effect| matches!(effect, Effect::Repair { .. })), 1);
    }
    let lost = effects.iter().find_map(|effect| match effect {
        Effect::GiveUp { lost, .. } => {
            Some(lost.iter().map(|loss| loss.lane.handle.clone()).collect::<Vec<_>>())
        }
        _ => None,
    });
    assert_eq!(lost, Some(vec![handle(0, 2)]));
}

/// Whoever reads the log sees why a way that the list has was not taken, once.
#[test]
fn a_strategy_that_is_passed_over_is_told_once_with_its_reason() {
    let told = |mut brokers: Brokers, allowed: &[Strategy]| {
        let mut machine = Recovery::new(&in_doubt().view(), in_doubt().run(), &positions(0), allowed);
        let mut told = Vec::new();
        while let Some(input) = machine.poll_effect().and_then(|effect| brokers.input(&effect)) {
            machine.step(0, input);
            told.extend(std::iter::from_fn(|| machine.poll_passed_over()).map(|passed| passed.to_string()));
        }
        told
    };
    const RESUME: &str = "resume: no lane that it may commit is open";
    let resumed = (0..2)
        .fold(two(open(0), open(1)), |brokers, shard| brokers.end(&handle(shard, 2), marker(Marker::Commit)));
    assert!(told(resumed, &Strategy::DEFAULT).is_empty(), "the first of the list was taken");
    assert_eq!(told(two(aborted(0), aborted(1)), &Strategy::DEFAULT), [RESUME]);
    let mixed = || two(committed(0), aborted(1));
    assert_eq!(told(mixed(), &Strategy::DEFAULT), [RESUME, "rewind: some lane is committed"]);
    let mut gone = two(aborted(0), aborted(1));
    gone.sources = Some("in-0 begins at 12".into());
    let expected = [RESUME, "rewind: a source cannot be read again: in-0 begins at 12"];
    assert_eq!(told(gone, &Strategy::DEFAULT), expected);
    let mut hole = mixed();
    hole.repairs.insert(Strategy::Rewrite, "the log has a hole at 12".into());
    let of = format!("rewrite: {}: the log has a hole at 12", handle(1, 2).at());
    let listed = [Strategy::Rewrite, Strategy::Abandon];
    assert_eq!(told(hole, &listed), [of]);
    let refused = told(mixed(), &[Strategy::Resume, Strategy::Rewind]);
    assert_eq!(refused, [RESUME, "rewind: some lane is committed"], "before a person is called, too");
}
