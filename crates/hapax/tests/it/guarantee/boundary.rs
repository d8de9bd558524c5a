//! One cut for source and sinks: what lies between gate and manifest, and two guarantees behind one manifest.

use super::{
    case::{Case, audit, covered_by, everywhere, unique},
    eventually,
    running::{OnReach, Running, die},
    scripted::Scripted,
};
use hapax::{Guarantee, SinkTopic, crash::Point};
use hapax_commit::{Handle, Manifest};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};
use xtask::{
    judge::Judge,
    kafka::{Version, shared},
};

const BEFORE: u64 = 96;
const ALL: u64 = 100;

fn written(manifest: &Manifest) -> u64 {
    manifest.handles.iter().map(Handle::records).sum()
}

/// Hands records over while the epoch's manifest is on its way.
fn handed_over_at(point: Point, version: Version, guarantee: Guarantee) -> Case {
    let bootstrap = &shared(version).bootstrap;
    let name = format!("gate-{point}-{guarantee:?}").to_lowercase();
    let case = Case::new(&name, bootstrap, guarantee, Scripted::new(1, ALL));
    case.source.allow(BEFORE);
    let source = case.source.clone();
    let gated = Arc::new(OnceLock::new());
    let at_point = gated.clone();
    let crash = OnReach::new(move |reached, epoch| {
        if reached == point && at_point.get().is_none() {
            assert_eq!(source.handed(), BEFORE);
            source.allow(ALL);
            eventually("the shard takes the records", || (source.handed() == ALL).then_some(()));
            at_point.set(epoch).unwrap();
        }
    });
    Running::start(case.plan(), crash).ended().finished();
    let epoch = *gated.get().expect("the point was reached");
    let manifests = case.manifests();
    let index = manifests.iter().position(|manifest| manifest.epoch == epoch).unwrap();
    let (gated, next) = (&manifests[index], &manifests[index + 1]);
    assert_eq!((covered_by(gated), covered_by(next)), (BEFORE, ALL), "{name}: {manifests:?}");
    if guarantee == Guarantee::ExactlyOnce {
        assert_eq!((written(gated), written(next)), (BEFORE, ALL - BEFORE), "{name}");
    }
    case
}

#[test]
fn a_record_handed_over_between_gate_and_manifest_belongs_to_the_next_epoch() {
    for point in [Point::K1Prepared, Point::K1bUnstored] {
        for (version, guarantee) in everywhere() {
            handed_over_at(point, version, guarantee).assert_complete();
        }
    }
}

/// The manifest of one epoch stands for both sinks; between its gate and its manifest the job dies.
#[test]
fn a_crash_between_gate_and_manifest_is_exact_in_one_sink_and_without_gaps_in_the_other() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let once = Case::new("mixed-once", bootstrap, Guarantee::ExactlyOnce, Scripted::new(2, 150).steady());
    let least = unique("mixed-least");
    Judge::shared().create_topic(bootstrap, &least, 2, &[]).unwrap();
    let sink = SinkTopic::new("main", &least).guarantee(Guarantee::AtLeastOnce);
    let plan = || once.job().sink(sink.clone()).plan().unwrap();
    let prepared = Arc::new(AtomicU64::new(0));
    let count = prepared.clone();
    let crash = OnReach::new(move |point, _| {
        if point == Point::K1Prepared && count.fetch_add(1, Ordering::SeqCst) == 2 {
            die();
        }
    });
    assert!(Running::start(plan(), crash).ended().is_killed());
    assert_eq!(prepared.load(Ordering::SeqCst), 3, "it died with its third epoch prepared");
    Running::start(plan(), OnReach::nothing()).ended().finished();
    once.assert_complete();
    let report = audit(bootstrap, &least, &once.source);
    assert_eq!((report.lost, report.unexpected), (0, 0), "{report:?}");
    assert!(report.duplicated > 0, "what was acknowledged and not decided is written again: {report:?}");
}
