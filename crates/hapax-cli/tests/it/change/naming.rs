//! An id for each epoch: the same guarantees under ids that go by.

use super::scene::{On, PATIENCE, Scene};
use hapax::crash::Point;
use hapax_broker::{ApiKey, Rule, Verdict};
use std::{collections::BTreeSet, fs, time::Duration};
use xtask::judge::Judge;

const PARTITIONS: u32 = 4;
const PER_EPOCH: &str = "naming = \"per-epoch\"\n";
const TIMED_OUT_MS: i64 = 61_000;

/// Numbers that a claim names behind the newest checkpoint.
const EPOCHS_AHEAD: u64 = 6;

fn numbers(scene: &Scene) -> BTreeSet<u64> {
    scene.transactions().iter().map(|one| one.id.rsplit('.').next().unwrap().parse().unwrap()).collect()
}

/// Dead at each point of an epoch's life, with the broker's patience and without.
#[test]
fn per_epoch_every_record_comes_once_wherever_a_run_dies() {
    for (on, times_out) in On::OURS.into_iter().flat_map(|on| [false, true].map(|times_out| (on, times_out)))
    {
        let mut scene = Scene::with_top(&format!("per-epoch-{times_out}"), on, PARTITIONS, PER_EPOCH);
        let lists = ["recovery=[\"resume\", \"rewind\"]", "recovery=[\"resume\", \"rewrite\"]"];
        for (number, point) in Point::COMMIT.into_iter().enumerate() {
            scene.feed("in", 20);
            scene.die(&format!("{point}:{}", if point == Point::K0BeforeFlush { 2 } else { 1 }), &[]);
            if times_out {
                scene.broker().jump_clock(TIMED_OUT_MS).unwrap();
            }
            // A part of the lanes may be committed there, and then the rest can only be written again.
            let is_mixed = matches!(point, Point::K2bBetweenLanes | Point::K3EndTxnSent);
            let list = if is_mixed { lists[1] } else { lists[number % 2] };
            scene.catch_up(&["in"], &["--set", list]);
            scene.assert_copied("out", &["in"]);
        }
        assert!(numbers(&scene).len() > 9, "an id an epoch: {:?}", numbers(&scene));
    }
}

/// Twice at each point that a second recovery reaches for sure: all lanes may have ended with the first one's end, and behind
/// the last point there is no doubt any more.
#[test]
fn per_epoch_recovery_that_dies_at_any_of_its_points_ends_in_the_same_place() {
    for on in On::OURS {
        let mut scene = Scene::with_top("per-epoch-recovery", on, PARTITIONS, PER_EPOCH);
        let list = ["--set", "recovery=[\"resume\", \"rewrite\"]"];
        for point in Point::RECOVERY {
            scene.feed("in", 20);
            scene.die("K2:1", &[]);
            scene.broker().jump_clock(TIMED_OUT_MS).unwrap();
            scene.die(point.name(), &list);
            if !matches!(point, Point::R3LaneEnded | Point::R6IdsCleared) {
                scene.die(point.name(), &list);
            }
            scene.catch_up(&["in"], &list);
            scene.assert_copied("out", &["in"]);
        }
    }
}

#[test]
fn per_epoch_shards_go_from_4_to_7_to_2() {
    for on in On::OURS {
        let mut scene = Scene::with_top("per-epoch-shards", on, 8, PER_EPOCH);
        scene.feed("in", 20);
        scene.die("K2:1", &["--set", "run.shards=4"]);
        assert_eq!(scene.shards(7, &[]).code, Some(0));
        scene.assert_settled();
        scene.feed("in", 20);
        scene.die("K1:1", &[]);
        assert!(!scene.open().is_empty());
        assert_eq!(scene.shards(2, &[]).code, Some(0));
        scene.assert_settled();
        scene.feed("in", 20);
        scene.catch_up(&["in"], &[]);
        scene.assert_copied("out", &["in"]);
    }
}

/// A run that slept takes ids of its successor, which have no identity of their own yet: that costs time and no records.
#[test]
fn per_epoch_a_run_that_slept_changes_nothing() {
    for on in On::OURS {
        for point in Point::COMMIT {
            let mut scene = Scene::with_top(
                &format!("per-epoch-{}", point.name().to_lowercase()),
                on,
                PARTITIONS,
                PER_EPOCH,
            );
            scene.feed("in", 20);
            let reach = if matches!(point, Point::K0BeforeFlush | Point::K3EndTxnSent) { 2 } else { 1 };
            let mut asleep = scene.start("asleep", &["--crash-at", &format!("{point}:{reach}:stop")]);
            asleep.until("sleeps", PATIENCE, |run| Ok(run.crash_point(point.name())?.is_some())).unwrap();
            let mut newer = scene.start("newer", &[]);
            scene.until_copied(&mut newer, "out", &["in"]);
            scene.feed("in", 20);
            asleep.process().signal("CONT").unwrap();
            asleep.demand_exit(5, PATIENCE).unwrap();
            scene.feed("in", 20);
            scene.until_copied(&mut newer, "out", &["in"]);
            newer.process().signal("TERM").unwrap();
            newer.demand_exit(0, PATIENCE).unwrap();
            // What it began under a number that the newer run was past is nobody's, and ends with its timeout.
            scene.broker().jump_clock(TIMED_OUT_MS).unwrap();
            scene.assert_copied("out", &["in"]);
        }
    }
}

/// The ids behind an old copy's newest checkpoint are committed at the brokers.
#[test]
fn per_epoch_an_old_copy_of_the_store_is_found_out_before_anything_is_cleared() {
    for on in On::OURS {
        let mut scene = Scene::with_top("per-epoch-copy", on, PARTITIONS, PER_EPOCH);
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        let copy = scene.copy_of_the_store();
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        let at_copy = format!("checkpoint.store=\"file://{}\"", copy.display());
        scene.bench.run(&["--set", &at_copy]).says(4, "E0402");
        scene.catch_up(&["in"], &[]);
        scene.assert_copied("out", &["in"]);
    }
}

/// The brokers know ids that were committed before the store was lost, by numbers that the life behind it counts up to
/// once more: no start after `--fresh` may take them for those of a newer store.
#[test]
fn per_epoch_a_job_begun_anew_in_an_empty_store_goes_on_by_plain_starts() {
    for on in On::OURS {
        let mut scene = Scene::with_top("per-epoch-lost", on, PARTITIONS, PER_EPOCH);
        // More numbers than the claims of the next life name, and so clear, until its second start.
        while numbers(&scene).last().is_none_or(|last| *last <= 2 * EPOCHS_AHEAD) {
            scene.feed("in", 10);
            scene.catch_up(&["in"], &[]);
        }
        let written = scene.read("out").concat().len();
        fs::remove_dir_all(scene.bench.path("store")).unwrap();
        scene.bench.run(&[]).says(4, "E0401");
        // Twice dead while its numbers are still among those of the life before.
        scene.die("K2:1", &["--fresh"]);
        scene.feed("in", 10);
        scene.die("K2:1", &[]);
        let mut run = scene.start("plain", &[]);
        let wanted = 2 * written + 10 * PARTITIONS as usize;
        run.until("has read all again", PATIENCE, |_| Ok(scene.read("out").concat().len() >= wanted))
            .unwrap();
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, PATIENCE).unwrap();
        assert_eq!(scene.read("out").concat().len(), wanted);
    }
}

/// Each time that it is to be committed, the decided epoch has just timed out: each time it takes a number more.
#[test]
fn per_epoch_an_epoch_that_is_written_again_too_often_ends_the_run_with_the_reason_and_the_next_one_goes_on()
{
    for on in On::OURS {
        let mut scene = Scene::with_top("per-epoch-again", on, PARTITIONS, PER_EPOCH);
        scene.feed("in", 20);
        scene.die("K2:1", &[]);
        let late = Verdict::JumpClock { ms: TIMED_OUT_MS };
        let late = Rule::on(ApiKey::EndTxn).commit(true).always().then(late);
        let late = scene.broker().faults().guard(late).unwrap();
        let mut run = scene.start("again", &["--set", "recovery=[\"resume\", \"rewrite\"]"]);
        run.until("has used its numbers up", PATIENCE, |run| match run.process().try_wait()? {
            Some(status) => Err(std::io::Error::other(format!("ended: {status}; {}", run.output()?))),
            None => Ok(run.output()?.contains("have used them up")),
        })
        .unwrap();
        assert!(late.fired() > 3, "it was aborted {} times", late.fired());
        drop(late);
        scene.until_copied(&mut run, "out", &["in"]);
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, PATIENCE).unwrap();
        assert!(!run.output().unwrap().contains("panicked"), "{}", run.output().unwrap());
        scene.assert_copied("out", &["in"]);
    }
}

#[test]
fn the_naming_of_a_job_is_fixed() {
    let mut scene = Scene::with_top("per-epoch-fixed", On::Ours(2), PARTITIONS, PER_EPOCH);
    scene.feed("in", 10);
    scene.catch_up(&["in"], &[]);
    scene.bench.run(&["--set", "naming=rotating"]).says(2, "naming is fixed");
    scene.bench.run(&["--set", "naming=random"]).says(2, "neither \"rotating\" nor \"per-epoch\"");
    // Left out of the file, the record says it.
    scene.top = "";
    scene.write(&scene.pipeline(&["in"], ""));
    scene.feed("in", 10);
    scene.catch_up(&["in"], &[]);
    scene.assert_copied("out", &["in"]);
    // Going back spends numbers, which are ids here.
    let before = numbers(&scene).last().copied();
    let mut run = scene.start("from", &["--from", "0"]);
    run.until("again", PATIENCE, |_| Ok(scene.read("out").concat().len() >= 40 * PARTITIONS as usize))
        .unwrap();
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, PATIENCE).unwrap();
    assert!(numbers(&scene).last().copied() > before);
}

/// What a naming costs the coordinators: ids that they keep, and records in their log.
#[test]
#[ignore = "a measurement of some minutes: the figures stand in ADR 12"]
fn what_a_thousand_epochs_cost_the_coordinators() {
    const EPOCHS: u64 = 1_000;
    for top in ["naming = \"rotating\"\n", PER_EPOCH] {
        let on = On::Kafka(xtask::kafka::Version::V4_4);
        let scene = Scene::with_top(&format!("cost-{}", top.len()), on, PARTITIONS, top);
        let text = scene.pipeline(&["in"], "");
        let topics = text.lines().find(|line| line.starts_with("topics")).unwrap().to_owned();
        scene.write(
            &text.replace(&topics, &format!("generator = {{ rate = 400, partitions = {PARTITIONS} }}")),
        );
        let written = || -> i64 {
            let bounds = Judge::shared().end_offsets(&scene.bootstrap, "__transaction_state").unwrap();
            bounds.iter().map(|one| one.end).sum()
        };
        let before = written();
        let mut run = scene.start("cost", &["--progress"]);
        let epoch = |log: &str| {
            let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            lines.filter_map(|one| one["epoch"].as_u64()).max().unwrap_or(0)
        };
        run.until("has its epochs", Duration::from_secs(500), |run| Ok(epoch(&run.output()?) >= EPOCHS))
            .unwrap();
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, PATIENCE).unwrap();
        let epochs = epoch(&run.output().unwrap());
        let (ids, records) = (scene.transactions().len(), written() - before);
        println!(
            "{}: {epochs} epochs of {PARTITIONS} lanes: {ids} ids, {records} records in __transaction_state",
            top.trim()
        );
        assert_eq!(ids == 3 * PARTITIONS as usize, top != PER_EPOCH);
    }
}
