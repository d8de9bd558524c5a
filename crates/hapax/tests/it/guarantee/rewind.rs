//! A job that was down for longer than its transactions live: the broker has aborted what was decided.

use super::{
    case::Case,
    eventually,
    running::{OnReach, Running, die},
    scripted::Scripted,
};
use hapax::{Guarantee, JobError, crash::Point};
use hapax_commit::{Epoch, Handle, Manifest, SlotBody, Strategy};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use xtask::kafka::{Version, shared};

const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(3);

/// A job whose transactions time out soon, with a lane for each split.
fn short_lived(name: &str, version: Version, lanes: u32) -> Case {
    let source = Scripted::new(lanes, 100).steady();
    let name = format!("{name}-{lanes}");
    let mut case = Case::new(&name, &shared(version).bootstrap, Guarantee::ExactlyOnce, source);
    case.settings.transaction_timeout = Some(TRANSACTION_TIMEOUT);
    case
}

/// Runs until an epoch in which every lane wrote is at the point; the manifest of that epoch.
fn die_at(point: Point, case: &Case) -> Manifest {
    let (looking, lanes) = (case.clone(), case.source.splits as usize);
    let fired = Arc::new(AtomicBool::new(false));
    let fire = fired.clone();
    let crash = OnReach::new(move |reached, epoch| {
        if reached == point && newest(&looking, epoch).handles.len() == lanes {
            fire.store(true, Ordering::SeqCst);
            die();
        }
    });
    assert!(Running::start(case.plan(), crash.one_lane_at_a_time()).ended().is_killed());
    assert!(fired.load(Ordering::SeqCst), "{point} was reached");
    case.manifests().pop().unwrap()
}

fn newest(case: &Case, epoch: Epoch) -> Manifest {
    let manifest = case.manifests().pop().expect("a decided epoch has a manifest");
    assert_eq!(manifest.epoch, epoch);
    manifest
}

/// Waits until the broker has aborted what the job left open.
fn outlive_the_transactions(case: &Case) {
    assert!(!case.open_transactions().is_empty(), "{}: something was left open", case.name);
    eventually("the broker aborts", || case.open_transactions().is_empty().then_some(()));
}

fn bodies_behind(case: &Case, epoch: Epoch) -> Vec<SlotBody> {
    let bodies = case.chain().into_iter().map(|slot| slot.body);
    let is_it = |body: &SlotBody| matches!(body, SlotBody::Manifest(manifest) if manifest.epoch == epoch);
    bodies.skip_while(|body| !is_it(body)).skip(1).collect()
}

fn rewinds(version: Version, lanes: u32) {
    let case = short_lived("rewound", version, lanes);
    let decided = die_at(Point::K2Decided, &case);
    outlive_the_transactions(&case);
    case.finish();
    let behind = bodies_behind(&case, decided.epoch);
    assert!(matches!(behind[0], SlotBody::Claim(_)), "{behind:?}");
    assert_eq!(behind[1], SlotBody::Void { epoch: decided.epoch });
    case.assert_complete();
}

/// Side by side, because most of the time is waiting.
fn rewinds_one_lane_and_several(version: Version) {
    thread::scope(|scope| {
        for lanes in [1, 3] {
            scope.spawn(move || rewinds(version, lanes));
        }
    });
}

#[test]
fn an_epoch_that_the_broker_aborted_on_every_lane_is_read_again_on_v2() {
    rewinds_one_lane_and_several(Version::V4_4);
}

#[test]
fn an_epoch_that_the_broker_aborted_on_every_lane_is_read_again_on_v1() {
    rewinds_one_lane_and_several(Version::V3_9);
}

/// The error of a start that stops for a person, with what its incident says checked against the manifest.
fn needs_person(case: &Case, decided: &Manifest) {
    let error = case.start().ended().error();
    assert_eq!(error.exit_code(), 4, "{error:?}");
    let JobError::NeedsPerson { incident: Some(path), .. } = &error else { panic!("{error:?}") };
    let incident = fs::read_to_string(path).unwrap();
    for handle in &decided.handles {
        let producer = format!(r#""producer_id":{}"#, handle.identity.producer_id);
        for wanted in [handle.transactional_id.to_string(), producer] {
            assert!(incident.contains(&wanted), "{wanted} is not in {incident}");
        }
    }
    let only_claims = |body: &SlotBody| matches!(body, SlotBody::Claim(_));
    let behind = bodies_behind(case, decided.epoch);
    assert!(behind.iter().all(only_claims), "nothing is concluded: {behind:?}");
    assert_eq!(case.manifests().last(), Some(decided), "the chain still holds the epoch");
}

/// One lane's commit was answered, the other lane's transaction timed out: without a strategy that writes it again a
/// person is called and nothing is touched; with one, the aborted lane alone is written again.
fn half_an_epoch(version: Version) {
    let mut case = short_lived("halved", version, 2);
    let decided = die_at(Point::K2bBetweenLanes, &case);
    let in_log = case.in_log();
    outlive_the_transactions(&case);
    let default = std::mem::replace(&mut case.settings.recovery, vec![Strategy::Resume, Strategy::Rewind]);
    for _ in 0..2 {
        needs_person(&case, &decided);
        assert_eq!(case.in_log(), in_log, "the log still holds every record, and no new one");
    }
    case.settings.recovery = default;
    case.finish();
    let behind = bodies_behind(&case, decided.epoch);
    let amended = behind.iter().find_map(|body| match body {
        SlotBody::Amend { epoch, handles } => Some((*epoch, handles.clone())),
        _ => None,
    });
    let (epoch, handles) = amended.expect("an amendment");
    assert_eq!((epoch, handles.len()), (decided.epoch, 1), "only the aborted lane");
    let old = decided.handles.iter().find(|old| old.lane == handles[0].lane).expect("of the same lane");
    let written = |handle: &Handle| -> Vec<_> {
        handle
            .partitions
            .iter()
            .map(|part| (part.topic.clone(), part.partition, part.count, part.digest))
            .collect()
    };
    assert_eq!(written(&handles[0]), written(old));
    assert!(behind.contains(&SlotBody::Proven { epoch: decided.epoch, finished: false }), "{behind:?}");
    case.assert_complete();
}

#[test]
fn half_an_epoch_committed_and_half_aborted_is_a_persons_or_the_aborted_half_is_written_again_on_v2() {
    half_an_epoch(Version::V4_4);
}

#[test]
fn half_an_epoch_committed_and_half_aborted_is_a_persons_or_the_aborted_half_is_written_again_on_v1() {
    half_an_epoch(Version::V3_9);
}
