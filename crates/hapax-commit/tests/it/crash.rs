//! Recovery that dies after each of its effects, against the model coordinator: the next run ends in the same place.

use crate::{
    broker::Broker,
    fixture::{CLUSTER, Slots, handle, job, lane, manifest, positions},
};
use hapax_commit::{
    CohortStart, Epoch, Handle, HandlePartition, Recovery, Strategy, TransactionVersion,
    evidence::{EndTxnAnswer, LaneLook, PartitionLook, Witness},
    recovery::{Effect, Input, Resolution},
};

/// How the transaction of a lane stands when the deciding run is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Open,
    Committed,
    TimedOut,
}

const LEFT: [Left; 3] = [Left::Open, Left::Committed, Left::TimedOut];

/// What can be seen from outside when recovery has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Done(CohortStart, Option<(Epoch, Resolution)>),
    Stopped,
    Crashed,
}

/// What a job may allow beside `resume`.
const LISTS: [&[Strategy]; 5] = [
    &Strategy::DEFAULT,
    &[Strategy::Resume, Strategy::Rewrite],
    &[Strategy::Resume, Strategy::Replay],
    &[Strategy::Resume, Strategy::Abandon],
    &[Strategy::Resume],
];

struct World {
    broker: Broker,
    slots: Slots,
    allowed: &'static [Strategy],
}

impl World {
    /// Epoch 1 is decided on both lanes, three records each.
    fn new(version: TransactionVersion, left: [Left; 2], allowed: &'static [Strategy]) -> Self {
        let mut broker = Broker::new(version, 2, 0);
        let mut write = |shard: u32| {
            let id = lane(shard).transactional_id(&job(), Epoch(1));
            let identity = broker.init(&id, None).unwrap();
            (0..3).for_each(|value| assert!(broker.produce(&id, identity, value).is_ok()));
            let part = HandlePartition {
                first_offset: 0,
                last_offset: 2,
                count: 3,
                ..handle(shard, 1).partitions[0].clone()
            };
            Handle { identity, version, partitions: vec![part], ..handle(shard, 1) }
        };
        let handles = vec![write(0), write(1)];
        for (handle, left) in handles.iter().zip(left) {
            match left {
                Left::Open => {}
                Left::Committed => drop(broker.end(&handle.transactional_id, handle.identity, true, false)),
                Left::TimedOut => assert!(broker.time_out(&handle.transactional_id)),
            }
        }
        Self { broker, slots: Slots::claimed().put(manifest(1, handles)), allowed }
    }

    fn partitions(&self, handle: &Handle) -> Vec<PartitionLook> {
        let part = &handle.partitions[0];
        let shard = part.partition as usize;
        let end = self.broker.first_control(shard, handle.identity.producer_id, part.first_offset);
        vec![PartitionLook { topic: part.topic.clone(), partition: part.partition, end }]
    }

    fn carry_out(&mut self, effect: &Effect) -> Input {
        match effect {
            Effect::Survey { at, .. } => Input::Surveyed {
                at: at.clone(),
                by: Witness::Coordinator,
                described: self.broker.describe(&at.id),
                beyond: None,
            },
            Effect::ClearId { at } => {
                assert_eq!(at.cluster_id, CLUSTER);
                Input::Cleared { at: at.clone(), identity: self.broker.init(&at.id, None).unwrap() }
            }
            Effect::Look { handle, markers, .. } => {
                let described = self.broker.describe(&handle.transactional_id);
                let markers = markers.then(|| self.partitions(handle));
                Input::Looked {
                    at: handle.at(),
                    look: LaneLook {
                        by: Witness::Coordinator,
                        described,
                        level: self.broker.version,
                        markers,
                        records: None,
                    },
                }
            }
            Effect::EndTxn { handle, commit } => {
                let (answer, _) = self.broker.end(&handle.transactional_id, handle.identity, *commit, false);
                assert!(!matches!(answer, EndTxnAnswer::Unknown(_)));
                Input::EndTxnAnswered { at: handle.at(), answer }
            }
            Effect::ReadBack { handle, .. } => {
                Input::ReadBack { at: handle.at(), partitions: self.partitions(handle) }
            }
            Effect::ProbeSources { .. } => Input::SourcesProbed(Ok(())),
            Effect::Repair { handle, strategy, epoch, identity, .. } => {
                let outcome = Ok(self.broker.write_again(handle, *epoch, *identity).unwrap());
                Input::Repaired { at: handle.at(), strategy: *strategy, outcome }
            }
            Effect::GiveUp { .. } => Input::GivenUp(Ok("incident".into())),
            Effect::CheckClaim => Input::ClaimHolds,
            Effect::PutSlot { number, body } => {
                self.slots = std::mem::take(&mut self.slots).put(body.clone());
                Input::SlotStored { number: *number }
            }
            Effect::Done(_) | Effect::Fenced | Effect::Stop(_) => panic!("terminal"),
        }
    }

    /// A new run; it dies when it has carried out so many effects, before the last one's answer.
    fn recover(&mut self, dies_after: Option<usize>) -> (Outcome, usize) {
        self.slots = std::mem::take(&mut self.slots).claim(2);
        let mut machine = Recovery::new(&self.slots.view(), self.slots.run(), &positions(0), self.allowed);
        for count in 0..200 {
            if dies_after == Some(count) {
                return (Outcome::Crashed, count);
            }
            match machine.poll_effect().expect("something is always to be done") {
                Effect::Done(done) => {
                    let start = CohortStart { next_slot: hapax_commit::SlotNumber(0), ..done.start };
                    return (Outcome::Done(start, done.resolved), count);
                }
                Effect::Stop(_) => return (Outcome::Stopped, count),
                effect => {
                    let input = self.carry_out(&effect);
                    if dies_after != Some(count + 1) {
                        machine.step(0, input);
                        machine.check().unwrap();
                    }
                }
            }
        }
        panic!("no end in sight");
    }

    /// Where everything has come to rest, whoever has resolved it.
    fn rest(&self, outcome: Outcome) -> (Option<CohortStart>, [Vec<u64>; 2]) {
        let start = match outcome {
            Outcome::Done(start, _) => Some(start),
            Outcome::Stopped => None,
            Outcome::Crashed => panic!("the last run lives"),
        };
        (start, [0, 1].map(|shard| self.broker.committed(shard)))
    }
}

type Case = (TransactionVersion, [Left; 2], &'static [Strategy]);

fn worlds() -> impl Iterator<Item = Case> {
    let pairs = || LEFT.into_iter().flat_map(|first| LEFT.map(|second| [first, second]));
    [TransactionVersion::V1, TransactionVersion::V2]
        .into_iter()
        .flat_map(move |version| pairs().flat_map(move |left| LISTS.map(|allowed| (version, left, allowed))))
}

/// How a world is resolved; `None`: a person has to decide.
fn expected(left: [Left; 2], allowed: &[Strategy]) -> Option<Resolution> {
    if !left.contains(&Left::TimedOut) {
        return Some(if left.contains(&Left::Open) {
            Resolution::Resumed
        } else {
            Resolution::FoundCommitted
        });
    }
    if allowed.contains(&Strategy::Rewind) && !left.contains(&Left::Committed) {
        return Some(Resolution::Rewound);
    }
    match allowed.get(1)? {
        Strategy::Abandon => Some(Resolution::Abandoned),
        _ => Some(Resolution::Repaired),
    }
}

#[test]
fn each_way_to_leave_two_lanes_is_resolved_as_the_table_says() {
    for (version, left, allowed) in worlds() {
        let mut world = World::new(version, left, allowed);
        let (outcome, _) = world.recover(None);
        let (start, committed) = world.rest(outcome.clone());
        let resolved = match &outcome {
            Outcome::Done(_, resolved) => resolved.map(|(_, how)| how),
            Outcome::Stopped | Outcome::Crashed => None,
        };
        let expected = expected(left, allowed);
        assert_eq!(resolved, expected, "{version} {left:?} {allowed:?}");
        let all = || vec![0, 1, 2];
        let Some(expected) = expected else {
            assert_eq!(start, None);
            continue;
        };
        match expected {
            Resolution::Rewound => {
                assert_eq!(committed, [Vec::<u64>::new(), Vec::new()]);
                assert_eq!(start.expect("done").positions, positions(0));
            }
            Resolution::Resumed | Resolution::FoundCommitted | Resolution::Repaired => {
                assert_eq!(committed, [all(), all()]);
                assert_eq!(start.expect("done").positions, positions(10));
            }
            Resolution::Abandoned => {
                let kept = left.map(|left| if left == Left::TimedOut { Vec::new() } else { all() });
                assert_eq!(committed, kept, "only what was aborted is given up");
                assert_eq!(start.expect("done").positions, positions(10));
            }
        }
    }
}

/// The way back is a person's to allow next, so nothing that would take it is done.
#[test]
fn with_resume_alone_an_open_lane_beside_an_aborted_one_stays_open() {
    let mut world = World::new(TransactionVersion::V2, [Left::TimedOut, Left::Open], &[Strategy::Resume]);
    assert_eq!(world.recover(None).0, Outcome::Stopped);
    world.allowed = &Strategy::DEFAULT;
    let (outcome, _) = world.recover(None);
    assert!(matches!(outcome, Outcome::Done(_, Some((_, Resolution::Rewound)))), "{outcome:?}");
}

#[test]
fn a_crash_after_any_effect_of_recovery_ends_in_the_same_place() {
    for (version, left, allowed) in worlds() {
        let mut undisturbed = World::new(version, left, allowed);
        let (outcome, effects) = undisturbed.recover(None);
        let rest = undisturbed.rest(outcome);
        assert!(effects > 5, "too short to crash in");
        for dies_after in 0..=effects {
            let mut world = World::new(version, left, allowed);
            world.recover(Some(dies_after));
            let (outcome, _) = world.recover(None);
            assert_eq!(world.rest(outcome), rest, "{version} {left:?} {allowed:?} dies after {dies_after}");
        }
    }
}

#[test]
fn two_crashes_in_a_row_end_in_the_same_place() {
    for (left, allowed) in [
        ([Left::TimedOut, Left::Open], LISTS[0]),
        ([Left::Open, Left::Open], LISTS[0]),
        ([Left::TimedOut, Left::Committed], LISTS[0]),
        ([Left::TimedOut, Left::Open], LISTS[1]),
        ([Left::TimedOut, Left::Committed], LISTS[3]),
    ] {
        let mut undisturbed = World::new(TransactionVersion::V2, left, allowed);
        let (outcome, effects) = undisturbed.recover(None);
        let rest = undisturbed.rest(outcome);
        for (first, second) in
            (0..=effects).flat_map(|first| (0..=effects).map(move |second| (first, second)))
        {
            let mut world = World::new(TransactionVersion::V2, left, allowed);
            world.recover(Some(first));
            world.recover(Some(second));
            let (outcome, _) = world.recover(None);
            let when = format!("{left:?} {allowed:?} dies after {first}, then after {second}");
            assert_eq!(world.rest(outcome), rest, "{when}");
        }
    }
}

/// The delayed EndTxn of a run that is gone: it can only do what was decided and not given up.
#[test]
fn a_delayed_commit_of_an_old_run_changes_nothing_after_recovery() {
    for (version, left, allowed) in worlds() {
        let mut world = World::new(version, left, allowed);
        let handles = world.slots.view().unresolved().expect("decided").manifest.handles.clone();
        let (outcome, _) = world.recover(None);
        if outcome == Outcome::Stopped {
            // What is open then is decided, and may be committed.
            continue;
        }
        let rest = world.rest(outcome.clone());
        for handle in &handles {
            let (answer, _) = world.broker.end(&handle.transactional_id, handle.identity, true, false);
            let harmless = !matches!(answer, EndTxnAnswer::Aborted);
            assert!(harmless, "{version} {left:?} {allowed:?} {answer:?}");
        }
        assert_eq!(world.rest(outcome), rest, "{version} {left:?} {allowed:?}");
    }
}
