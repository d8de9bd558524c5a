//! What an engine's checkpoints have left, and what stands under an id of which nothing else is known.

use crate::{
    broker::{Broker, Item},
    fixture::{CLUSTER, handle, identity, job, lane},
};
use hapax_commit::{
    Epoch, Handle, HandlePartition, Identity, LaneId, TopicId, TransactionVersion, TransactionalId,
    evidence::{
        Described, EndTxnAnswer, LaneLook, Marker, PartitionLook, TransactionState as State, Witness,
    },
    inference::{IdOnly, Inference, Refusal, Seen, infer},
    recovery::handover::{CommitWith, Effect, Handover, HandoverFault, Input, Known, Settled, Standing},
};
use std::collections::BTreeSet;

const VERSIONS: [TransactionVersion; 2] = [TransactionVersion::V1, TransactionVersion::V2];

/// A broker, what the engine has stored, and what readers are to see in the end.
struct World {
    broker: Broker,
    stored: Vec<Known>,
    ids: Vec<String>,
    may_rewrite: bool,
    next_value: u64,
}

/// How a handover ended.
#[derive(Debug)]
enum End {
    Report(Box<Handover>, Vec<Settled>),
    Ready,
    /// The process died before its `n`th effect.
    Crash,
    Superseded,
}

impl World {
    fn new(version: TransactionVersion, lanes: u32) -> Self {
        let ids = (0..lanes).flat_map(|shard| lane(shard).transactional_ids(&job()));
        Self {
            broker: Broker::new(version, lanes as usize, 0),
            stored: Vec::new(),
            ids: ids.map(|id| id.to_string()).collect(),
            may_rewrite: true,
            next_value: 0,
        }
    }

    /// A transaction of two records, prepared and decided.
    fn decide(&mut self, shard: u32, epoch: u64) -> Handle {
        let lane = lane(shard);
        let id = lane.transactional_id(&job(), Epoch(epoch));
        let identity = self.broker.init(&id, None).unwrap();
        let offsets: Vec<i64> = (0..2)
            .map(|_| {
                self.next_value += 1;
                self.broker.produce(&id, identity, self.next_value).unwrap()
            })
            .collect();
        let handle = prepared(lane, epoch, id, identity, self.broker.version, &offsets);
        self.stored.push(Known::Handle(handle.clone()));
        handle
    }

    fn begin(&self) -> Handover {
        Handover::new(&job(), CLUSTER, self.stored.clone(), self.ids.clone(), self.may_rewrite).unwrap()
    }

    /// Runs until the report, the end, or the crash before effect `crash_at`.
    fn run(&mut self, handover: Handover, crash_at: &mut Option<usize>) -> End {
        let mut handover = Box::new(handover);
        loop {
            handover.check().unwrap();
            let Some(effect) = handover.poll_effect() else { panic!("the machine waits for nothing") };
            match effect {
                Effect::Report(report) => return End::Report(handover, report),
                Effect::Ready(_) => return End::Ready,
                Effect::Superseded => return End::Superseded,
                effect => {
                    match crash_at {
                        Some(0) => return End::Crash,
                        Some(left) => *left -= 1,
                        None => {}
                    }
                    let input = self.perform(effect);
                    handover.step(0, input);
                }
            }
        }
    }

    fn perform(&mut self, effect: Effect) -> Input {
        match effect {
            Effect::Clear { id } => {
                let identity = self.broker.init(&parsed(&id), None).unwrap();
                Input::Cleared { id, identity }
            }
            Effect::Look { item, handle, markers, .. } => {
                let described = self.broker.describe(&handle.transactional_id);
                let markers = markers.then(|| self.read_back(&handle));
                let level = self.broker.version;
                Input::Looked {
                    item,
                    look: LaneLook { by: Witness::Coordinator, described, level, markers, records: None },
                }
            }
            Effect::Describe { item, id, .. } => {
                let seen = match self.broker.describe(&parsed(&id)) {
                    Described::Known { state, identity } => {
                        Seen::Known { state, identity, start_ms: Some(5), partitions: Vec::new() }
                    }
                    Described::Forgotten => Seen::Forgotten,
                    Described::Unanswered(why) => Seen::Unanswered(why),
                };
                Input::Described { item, seen }
            }
            Effect::Commit { item, with } => {
                let (id, identity) = match with {
                    CommitWith::Handle(handle) => (handle.transactional_id, handle.identity),
                    CommitWith::Inferred { id, identity } => (parsed(&id), identity),
                };
                let (answer, _) = self.broker.end(&id, identity, true, false);
                Input::EndTxnAnswered { item, answer }
            }
            Effect::ReadBack { item, handle, .. } => {
                Input::ReadBack { item, partitions: self.read_back(&handle) }
            }
            Effect::Rewrite { item, handle, epoch, identity } => {
                let new = self.broker.write_again(&handle, epoch, identity).unwrap();
                Input::Rewritten { item, outcome: Ok(new) }
            }
            Effect::Tell { item, .. } => Input::Told { item },
            Effect::Report(_) | Effect::Ready(_) | Effect::Superseded => {
                unreachable!("the caller ends on these")
            }
        }
    }

    fn read_back(&self, handle: &Handle) -> Vec<PartitionLook> {
        let look = |part: &HandlePartition| PartitionLook {
            topic: part.topic.clone(),
            partition: part.partition,
            end: self.broker.first_control(
                part.partition as usize,
                handle.identity.producer_id,
                part.first_offset,
            ),
        };
        handle.partitions.iter().map(look).collect()
    }

    /// The engine's side: stores what a report says.
    fn store(&mut self, report: &[Settled]) {
        self.stored = report.iter().filter_map(left).collect();
    }

    /// Hands over until everything is settled, as an engine does.
    fn settle(&mut self, crash_at: &mut Option<usize>) -> Result<(), Vec<Settled>> {
        for _ in 0..20 {
            match self.run(self.begin(), crash_at) {
                End::Report(mut handover, report) => {
                    self.store(&report);
                    if handover.is_settled() {
                        handover.recorded();
                        match self.run(*handover, crash_at) {
                            End::Ready => return Ok(()),
                            End::Crash => {
                                *crash_at = None;
                                continue;
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    if !report.iter().any(|settled| matches!(settled.standing, Standing::Rewritten(_))) {
                        return Err(report);
                    }
                }
                End::Crash => *crash_at = None,
                other => panic!("{other:?}"),
            }
        }
        panic!("never settled")
    }
}

/// What stays in the engine's store of a transaction.
fn left(settled: &Settled) -> Option<Known> {
    match &settled.standing {
        Standing::Committed => None,
        Standing::Rewritten(new) => Some(Known::Handle(new.clone())),
        Standing::Aborted(_) | Standing::Open(_) | Standing::Incomplete(_) | Standing::Unknown(_) => {
            Some(settled.known.clone())
        }
    }
}

fn parsed(id: &str) -> TransactionalId {
    TransactionalId::parse(id).unwrap()
}

fn prepared(
    lane: LaneId,
    epoch: u64,
    id: TransactionalId,
    identity: Identity,
    version: TransactionVersion,
    offsets: &[i64],
) -> Handle {
    let partition = lane.shard.0 as i32;
    Handle {
        cluster_id: CLUSTER.into(),
        brokers: "b:9092".into(),
        lane,
        transactional_id: id,
        identity,
        version,
        epoch: Epoch(epoch),
        started_ms: 0,
        deadline_ms: 1_000_000,
        partitions: vec![HandlePartition {
            topic: "out".into(),
            topic_id: TopicId([7; 16]),
            partition,
            first_offset: offsets[0],
            last_offset: offsets[offsets.len() - 1],
            count: offsets.len() as u64,
            digest: None,
        }],
    }
}

fn standings(report: &[Settled]) -> Vec<&Standing> {
    report.iter().map(|settled| &settled.standing).collect()
}

fn report_of(world: &mut World) -> (Box<Handover>, Vec<Settled>) {
    match world.run(world.begin(), &mut None) {
        End::Report(handover, report) => (handover, report),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_open_is_committed_and_its_id_is_cleared_only_when_the_engine_has_recorded_it() {
    for version in VERSIONS {
        let mut world = World::new(version, 2);
        let handles = [world.decide(0, 1), world.decide(1, 1)];
        let (mut handover, report) = report_of(&mut world);
        assert_eq!(standings(&report), [&Standing::Committed; 2]);
        assert_eq!([world.broker.committed(0), world.broker.committed(1)], [vec![1, 2], vec![3, 4]]);
        let state = |world: &World| world.broker.ids[&handles[0].transactional_id].state;
        assert_eq!(state(&world), State::CompleteCommit);
        handover.recorded();
        assert!(matches!(world.run(*handover, &mut None), End::Ready));
        assert_eq!(state(&world), State::Empty);
    }
}

#[test]
fn what_no_checkpoint_names_is_aborted_before_anything_is_committed() {
    let mut world = World::new(TransactionVersion::V2, 1);
    let decided = world.decide(0, 1);
    let undecided = world.decide(0, 2);
    world.stored.truncate(1);
    let mut handover = world.begin();
    let Some(Effect::Clear { id }) = handover.poll_effect() else { panic!("clearing comes first") };
    assert_ne!(id, decided.transactional_id.to_string());
    let (_, report) = report_of(&mut world);
    assert_eq!(standings(&report), [&Standing::Committed]);
    assert_eq!(world.broker.committed(0), [1, 2]);
    assert_eq!(world.broker.ids[&undecided.transactional_id].state, State::Empty);
}

#[test]
fn several_decided_epochs_of_a_lane_are_committed_in_order() {
    let mut world = World::new(TransactionVersion::V2, 1);
    let (first, second) = (world.decide(0, 1), world.decide(0, 2));
    world.stored.reverse();
    let mut order = Vec::new();
    let mut handover = world.begin();
    while let Some(effect) = handover.poll_effect() {
        handover.check().unwrap();
        if let Effect::Report(report) = &effect {
            assert_eq!(standings(report), [&Standing::Committed; 2]);
            break;
        }
        if let Effect::Commit { with: CommitWith::Handle(handle), .. } = &effect {
            order.push(handle.epoch);
        }
        let input = world.perform(effect);
        handover.step(0, input);
    }
    assert_eq!(order, [first.epoch, second.epoch]);
}

#[test]
fn one_aborted_lane_leaves_the_open_ones_to_the_engine_while_there_is_a_way_back() {
    let mut world = World::new(TransactionVersion::V2, 2);
    let lost = world.decide(0, 1);
    world.decide(1, 1);
    world.broker.time_out(&lost.transactional_id);
    world.may_rewrite = false;
    let (handover, report) = report_of(&mut world);
    assert!(!handover.is_settled());
    assert!(matches!(standings(&report)[..], [Standing::Aborted(_), Standing::Open(_)]), "{report:?}");
    assert_eq!(world.broker.committed(1), [0; 0]);
}

#[test]
fn with_one_lane_committed_the_others_go_forward_and_what_is_lost_is_said() {
    let mut world = World::new(TransactionVersion::V2, 3);
    let (done, lost) = (world.decide(0, 1), world.decide(1, 1));
    world.decide(2, 1);
    world.broker.end(&done.transactional_id, done.identity, true, false);
    world.broker.time_out(&lost.transactional_id);
    world.may_rewrite = false;
    let (_, report) = report_of(&mut world);
    let expected =
        matches!(standings(&report)[..], [Standing::Committed, Standing::Aborted(_), Standing::Committed]);
    assert!(expected, "{report:?}");
}

#[test]
fn what_is_written_again_is_committed_only_after_the_engine_has_stored_it() {
    for version in VERSIONS {
        let mut world = World::new(version, 2);
        let lost = world.decide(0, 1);
        world.decide(1, 1);
        world.broker.time_out(&lost.transactional_id);
        let (_, report) = report_of(&mut world);
        let [Standing::Rewritten(new), Standing::Open(_)] = standings(&report)[..] else {
            panic!("{report:?}")
        };
        assert!(new.epoch > lost.epoch && new.transactional_id != lost.transactional_id);
        assert_eq!(world.broker.committed(0), [0; 0]);
        world.store(&report);
        world.settle(&mut None).unwrap();
        assert_eq!([world.broker.committed(0), world.broker.committed(1)], [vec![1, 2], vec![3, 4]]);
    }
}

#[test]
fn an_aborted_epoch_before_a_decided_one_is_not_written_behind_it() {
    let mut world = World::new(TransactionVersion::V2, 1);
    let lost = world.decide(0, 1);
    world.decide(0, 2);
    world.broker.time_out(&lost.transactional_id);
    let (_, report) = report_of(&mut world);
    let [Standing::Aborted(why), Standing::Open(_)] = standings(&report)[..] else { panic!("{report:?}") };
    assert!(why.contains("wrong order"), "{why}");
    assert_eq!(world.broker.committed(0), [0; 0]);
}

/// The engine dies before each effect in turn, once; what it had stored is all that it has afterwards.
#[test]
fn a_crash_before_any_effect_ends_in_the_same_place() {
    for version in VERSIONS {
        let mut crashes = 0;
        for (lost, committed) in [(None, None), (Some(0), None), (Some(0), Some(1)), (Some(1), Some(0))] {
            for crash_at in 0.. {
                let mut world = World::new(version, 2);
                let handles = [world.decide(0, 1), world.decide(1, 1)];
                if let Some(shard) = lost {
                    world.broker.time_out(&handles[shard as usize].transactional_id);
                }
                if let Some(shard) = committed {
                    let handle: &Handle = &handles[shard as usize];
                    world.broker.end(&handle.transactional_id, handle.identity, true, false);
                }
                let mut left = Some(crash_at);
                world.settle(&mut left).unwrap();
                assert_eq!([world.broker.committed(0), world.broker.committed(1)], [vec![1, 2], vec![3, 4]]);
                if left.is_some() {
                    break;
                }
                crashes += 1;
            }
        }
        assert!(crashes > 40, "{crashes} crashes");
    }
}

#[test]
fn a_lost_claim_ends_the_handover_before_anything_else_is_touched() {
    let mut world = World::new(TransactionVersion::V2, 1);
    let handle = world.decide(0, 1);
    let mut handover = world.begin();
    assert!(matches!(handover.poll_effect(), Some(Effect::Clear { .. })));
    handover.step(0, Input::ClaimLost);
    assert_eq!(handover.poll_effect(), Some(Effect::Superseded));
    assert_eq!(handover.poll_effect(), None);
    assert_eq!(world.broker.ids[&handle.transactional_id].state, State::Ongoing);
}

#[test]
fn what_nobody_tells_is_unknown_and_neither_committed_nor_given_up() {
    let mut world = World::new(TransactionVersion::V2, 1);
    world.decide(0, 1);
    let mut handover = world.begin();
    let silent = || LaneLook {
        by: Witness::Coordinator,
        described: Described::Unanswered("nobody answers".into()),
        level: TransactionVersion::V2,
        markers: None,
        records: None,
    };
    while let Some(effect) = handover.poll_effect() {
        match effect {
            Effect::Clear { .. } => {
                let input = world.perform(effect);
                handover.step(0, input);
            }
            Effect::Look { item, attempt: 0..=2, .. } => {
                handover.step(0, Input::Looked { item, look: silent() })
            }
            Effect::Look { .. } => handover.step(0, Input::PatienceOver),
            Effect::Report(report) => {
                assert!(matches!(standings(&report)[..], [Standing::Unknown(_)]), "{report:?}");
                assert!(!handover.is_settled());
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("no report");
}

/// An admin's abort marker stands in the partition before the coordinator's own commit marker: readers see no record.
#[test]
fn what_a_partition_has_marked_aborted_is_never_called_committed_however_often_it_is_recovered() {
    for version in VERSIONS {
        let mut world = World::new(version, 2);
        let (marked, _) = (world.decide(0, 1), world.decide(1, 1));
        world.broker.logs[0].push(Item::Control { identity: marked.identity, marker: Marker::Abort });
        world.broker.end(&marked.transactional_id, marked.identity, true, false);
        for _ in 0..3 {
            let (handover, report) = report_of(&mut world);
            let [Standing::Unknown(why), Standing::Committed] = standings(&report)[..] else {
                panic!("{report:?}")
            };
            assert!(why.contains("the coordinator says committed, the data aborted"), "{why}");
            assert!(!handover.is_settled());
        }
    }
}

/// Its deadline does not wait until the partitions of the one before it were read.
#[test]
fn a_transaction_near_its_deadline_is_committed_while_the_one_before_it_is_looked_at_again() {
    for version in VERSIONS {
        let mut world = World::new(version, 1);
        let (first, second) = (world.decide(0, 1), world.decide(0, 2));
        world.broker.end(&first.transactional_id, first.identity, true, false);
        let mut handover = world.begin();
        let looks_again = |effect: &Effect| matches!(effect, Effect::Look { item: 0, markers: true, .. });
        while let Some(effect) = handover.poll_effect().filter(|effect| !looks_again(effect)) {
            let input = world.perform(effect);
            handover.step(0, input);
        }
        handover.step(second.deadline_ms - 1, Input::Tick);
        let effect = handover.poll_effect().expect("its deadline is near");
        assert_eq!(effect, Effect::Commit { item: 1, with: CommitWith::Handle(second) });
        handover.check().unwrap();
    }
}

/// The coordinator's word alone is not taken for the end, at whatever moment the patience is over.
#[test]
fn without_a_look_at_its_control_batches_a_committed_transaction_is_unknown() {
    for version in VERSIONS {
        for over_at in 0..8 {
            let mut world = World::new(version, 1);
            let handle = world.decide(0, 1);
            world.broker.end(&handle.transactional_id, handle.identity, true, false);
            let (mut handover, mut has_seen_markers) = (world.begin(), false);
            for step in 0.. {
                if step == over_at {
                    handover.step(0, Input::PatienceOver);
                }
                match handover.poll_effect().expect("it does not wait for nothing") {
                    Effect::Report(report) => {
                        let is_committed = standings(&report) == [&Standing::Committed];
                        assert_eq!(is_committed, handover.is_settled(), "{report:?}");
                        assert!(has_seen_markers || !is_committed, "{report:?}");
                        break;
                    }
                    effect => {
                        has_seen_markers |= matches!(effect, Effect::Look { markers: true, .. });
                        let input = world.perform(effect);
                        handover.step(0, input);
                    }
                }
            }
        }
    }
}

#[test]
fn patience_that_ends_while_ids_are_cleared_takes_no_look_away() {
    let mut world = World::new(TransactionVersion::V2, 1);
    world.decide(0, 1);
    let mut handover = world.begin();
    let clear = handover.poll_effect().unwrap();
    assert!(matches!(clear, Effect::Clear { .. }));
    handover.step(0, Input::PatienceOver);
    let input = world.perform(clear);
    handover.step(0, input);
    let End::Report(handover, report) = world.run(handover, &mut None) else { panic!("no report") };
    assert_eq!(standings(&report), [&Standing::Committed]);
    assert!(handover.is_settled());
}

#[test]
fn a_commit_that_partitions_are_not_known_to_know_in_time_is_unknown_and_settled_by_the_next_recovery() {
    let mut world = World::new(TransactionVersion::V2, 1);
    world.decide(0, 1);
    let mut handover = world.begin();
    let report = loop {
        match handover.poll_effect().expect("it does not wait for nothing") {
            Effect::Tell { .. } => handover.step(0, Input::PatienceOver),
            Effect::Report(report) => break report,
            effect => {
                let input = world.perform(effect);
                handover.step(0, input);
            }
        }
    };
    assert!(matches!(standings(&report)[..], [Standing::Unknown(_)]), "{report:?}");
    assert!(!handover.is_settled());
    world.settle(&mut None).unwrap();
    assert_eq!(world.broker.committed(0), [1, 2]);
}

#[test]
fn a_commit_that_is_refused_again_and_again_is_unknown() {
    let handle = handle(0, 1);
    let mut handover = Handover::of_one(handle.clone());
    let open = LaneLook {
        by: Witness::Coordinator,
        described: Described::Known { state: State::Ongoing, identity: handle.identity },
        level: TransactionVersion::V2,
        markers: None,
        records: None,
    };
    let mut commits = 0;
    while let Some(effect) = handover.poll_effect() {
        match effect {
            Effect::Look { item, .. } => handover.step(0, Input::Looked { item, look: open.clone() }),
            Effect::Commit { item, .. } => {
                commits += 1;
                let answer = EndTxnAnswer::Refused("TRANSACTIONAL_ID_AUTHORIZATION_FAILED".into());
                handover.step(0, Input::EndTxnAnswered { item, answer });
            }
            Effect::Report(report) => {
                assert!(matches!(standings(&report)[..], [Standing::Unknown(_)]), "{report:?}");
                assert!(commits > 1);
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("no report after {commits} commits");
}

#[test]
fn what_is_not_this_jobs_to_end_is_refused_before_anything_is_touched() {
    let fault = |handles: &[Handle]| {
        let known = handles.iter().cloned().map(Known::Handle).collect();
        Handover::new(&job(), CLUSTER, known, Vec::new(), true).unwrap_err()
    };
    let mut other = handle(0, 1);
    other.transactional_id.job = hapax_commit::Name::new("payments").unwrap();
    assert!(matches!(fault(&[other]), HandoverFault::OtherJob(_)));
    let elsewhere = Handle { cluster_id: "D".into(), ..handle(0, 1) };
    assert!(matches!(fault(&[elsewhere]), HandoverFault::OtherCluster(..)));
    assert!(matches!(fault(&[handle(0, 1), handle(0, 4)]), HandoverFault::SameId(_)));
    let empty = Handle { partitions: Vec::new(), ..handle(0, 1) };
    assert!(matches!(fault(&[empty]), HandoverFault::Handle(..)));
}

#[test]
fn an_id_without_a_handle_is_committed_with_what_stands_under_it() {
    for version in VERSIONS {
        let mut world = World::new(version, 1);
        let handle = world.decide(0, 1);
        world.stored = vec![Known::IdOnly(IdOnly::new(handle.transactional_id.to_string(), 10))];
        world.settle(&mut None).unwrap();
        assert_eq!(world.broker.committed(0), [1, 2]);
    }
}

#[test]
fn an_id_whose_transaction_was_aborted_is_said_to_be() {
    let mut world = World::new(TransactionVersion::V2, 1);
    let handle = world.decide(0, 1);
    world.broker.time_out(&handle.transactional_id);
    world.stored = vec![Known::IdOnly(IdOnly::new(handle.transactional_id.to_string(), 10))];
    let report = world.settle(&mut None).unwrap_err();
    assert!(matches!(standings(&report)[..], [Standing::Aborted(_)]), "{report:?}");
}

fn ongoing(start_ms: Option<i64>, partitions: &[(&str, &[i32])]) -> Seen {
    Seen::Known {
        state: State::Ongoing,
        identity: identity(7, 3),
        start_ms,
        partitions: partitions.iter().map(|(topic, all)| ((*topic).to_owned(), all.to_vec())).collect(),
    }
}

fn in_state(state: State) -> Seen {
    Seen::Known { state, identity: identity(7, 4), start_ms: Some(5), partitions: Vec::new() }
}

fn id_only() -> IdOnly {
    IdOnly::new("any shape / 3", 10)
}

#[test]
fn a_later_transaction_of_the_id_is_not_taken_for_the_checkpoints() {
    let seen = ongoing(Some(11), &[]);
    assert_eq!(
        infer(&id_only(), &seen),
        Inference::Refused(Refusal::BeganLater { start_ms: 11, decided_ms: 10 })
    );
    assert_eq!(infer(&id_only(), &ongoing(Some(10), &[])), Inference::Open(identity(7, 3)));
}

#[test]
fn an_older_transaction_of_the_id_is_not_taken_for_the_checkpoints() {
    let known = IdOnly { started_after_ms: Some(4), ..id_only() };
    let refused = Inference::Refused(Refusal::BeganEarlier { start_ms: 3, started_after_ms: 4 });
    assert_eq!(infer(&known, &ongoing(Some(3), &[])), refused);
    assert_eq!(infer(&known, &ongoing(None, &[])), Inference::Refused(Refusal::NoStart));
}

#[test]
fn a_transaction_with_other_partitions_is_refused() {
    let partitions = BTreeSet::from([("out".to_owned(), 0), ("out".to_owned(), 2)]);
    let known = IdOnly { partitions: Some(partitions), ..id_only() };
    let is_open = |seen: &Seen| matches!(infer(&known, seen), Inference::Open(_));
    assert!(is_open(&ongoing(Some(5), &[("out", &[2, 0])])));
    for other in [&[0][..], &[0, 1], &[0, 1, 2]] {
        assert!(!is_open(&ongoing(Some(5), &[("out", other)])), "{other:?}");
    }
    let of_topics = IdOnly { topics: Some(["out".to_owned()].into()), ..id_only() };
    assert!(matches!(infer(&of_topics, &ongoing(Some(5), &[("out", &[9])])), Inference::Open(_)));
    let refused = infer(&of_topics, &ongoing(Some(5), &[("in", &[0])]));
    assert!(matches!(refused, Inference::Refused(Refusal::OtherPartitions { .. })));
}

#[test]
fn a_commit_under_way_is_waited_for_and_what_is_forgotten_is_refused() {
    assert_eq!(infer(&id_only(), &in_state(State::PrepareCommit)), Inference::Ending(State::PrepareCommit));
    assert_eq!(infer(&id_only(), &in_state(State::CompleteCommit)), Inference::Committed);
    assert_eq!(infer(&id_only(), &in_state(State::CompleteAbort)), Inference::Aborted);
    assert_eq!(infer(&id_only(), &in_state(State::Empty)), Inference::Refused(Refusal::NothingBegun));
    assert_eq!(infer(&id_only(), &Seen::Forgotten), Inference::Refused(Refusal::Forgotten));
    let partitions = BTreeSet::from([("out".to_owned(), 0), ("out".to_owned(), 2)]);
    let known = IdOnly { partitions: Some(partitions), ..id_only() };
    let told = Seen::Known {
        state: State::PrepareCommit,
        identity: identity(7, 4),
        start_ms: Some(5),
        partitions: vec![("out".to_owned(), vec![2])],
    };
    assert_eq!(infer(&known, &told), Inference::Ending(State::PrepareCommit));
}
