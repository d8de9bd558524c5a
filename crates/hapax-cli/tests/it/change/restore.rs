//! Going back to an older checkpoint on purpose (H40): what came out since comes out twice, and nothing is lost.

use super::scene::{On, Scene};
use crate::command_line::hapax;
use std::{collections::BTreeMap, fs};

const PARTITIONS: u32 = 4;

/// A job with checkpoints, fed between each two of some; the epochs behind each feed.
fn fed(name: &str, on: On, feeds: usize) -> (Scene, Vec<u64>) {
    let mut scene = Scene::new(name, on, PARTITIONS);
    let mut epochs = Vec::new();
    for _ in 0..feeds {
        scene.feed("in", 10);
        scene.catch_up(&["in"], &["--set", "checkpoint.keep=200"]);
        epochs.push(newest(&scene));
    }
    (scene, epochs)
}

fn list(scene: &Scene) -> Vec<serde_json::Value> {
    let ended = hapax(&["checkpoint", "list", scene.file(), "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn newest(scene: &Scene) -> u64 {
    list(scene).last().unwrap()["epoch"].as_u64().unwrap()
}

/// How often each record is out.
fn counts(scene: &Scene) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for text in scene.read("out").concat() {
        *counts.entry(text).or_default() += 1;
    }
    counts
}

/// Records of `from..to` of each partition are out `times` times.
fn assert_times(scene: &Scene, range: std::ops::Range<usize>, times: usize) {
    let counts = counts(scene);
    for partition in 0..PARTITIONS {
        for n in range.clone() {
            let text = format!("in-{partition}-{n}");
            assert_eq!(counts.get(&text).copied().unwrap_or(0), times, "{text}");
        }
    }
}

const KEEP: [&str; 2] = ["--set", "checkpoint.keep=200"];

fn run_from(scene: &Scene, from: u64, wanted: usize) -> String {
    let from = from.to_string();
    let mut run = scene
        .start(&format!("from-{}", crate::harness::unique("n")), &[&KEEP[..], &["--from", &from]].concat());
    run.until("comes out again", super::scene::PATIENCE, |run| match run.process().try_wait()? {
        Some(_) => Err(std::io::Error::other(run.output()?)),
        None => Ok(scene.read("out").concat().len() >= wanted),
    })
    .unwrap();
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, super::scene::PATIENCE).unwrap();
    run.output().unwrap()
}

#[test]
fn what_came_out_behind_a_checkpoint_comes_out_again_and_that_is_said_beforehand() {
    for on in On::OURS {
        let (scene, epochs) = fed("restore", on, 3);
        let per_feed = 10 * PARTITIONS as usize;
        let log = run_from(&scene, epochs[1], 4 * per_feed);
        assert!(
            log.contains(&format!("goes back to checkpoint {} on purpose", epochs[1]))
                && log.contains(&format!("with {per_feed} records in transactions"))
                && log.contains(&format!("({per_feed} positions of the input are read again)")),
            "{log}"
        );
        assert_times(&scene, 0..20, 1);
        assert_times(&scene, 20..30, 2);
        let copy = list(&scene).into_iter().find(|one| one["restored"] == epochs[1]).unwrap();
        assert!(copy["epoch"].as_u64() > Some(epochs[2]), "under a fresh number: {copy}");

        // Twice, and from the copy's own past.
        run_from(&scene, epochs[0], 6 * per_feed);
        assert_times(&scene, 0..10, 1);
        assert_times(&scene, 10..20, 2);
        assert_times(&scene, 20..30, 3);
        // The beginning is always there.
        run_from(&scene, 0, 9 * per_feed);
        assert_times(&scene, 0..10, 2);
        // And without the argument it goes on.
        scene.catch_up(&["in"], &KEEP);
        assert_times(&scene, 0..10, 2);
        scene.assert_settled();
    }
}

/// The transactions of the checkpoint that is left are resolved before, those of the one that is restored never again.
#[test]
fn what_is_in_doubt_is_resolved_before_the_way_back() {
    for on in On::OURS {
        let (mut scene, epochs) = fed("restore-doubt", on, 2);
        scene.feed("in", 10);
        scene.die("K2:1", &KEEP);
        let doubt = list(&scene).pop().unwrap();
        assert_eq!(doubt["standing"], "in-doubt", "{doubt}");
        for point in ["R0:1", "R5:1", "L0:1"] {
            let from = epochs[0].to_string();
            scene.die(point, &[&KEEP[..], &["--from", &from]].concat());
        }
        let mut run = scene.start("from", &[&KEEP[..], &["--from", &epochs[0].to_string()]].concat());
        until_times(&scene, &mut run, 10..20, 2);
        until_times(&scene, &mut run, 20..30, 1);
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, super::scene::PATIENCE).unwrap();
        assert!(!run.output().unwrap().contains("written again"));
        assert_times(&scene, 0..10, 1);
        assert_times(&scene, 10..20, 2);
        // What was decided of the last feed is out twice, the rest of it once.
        let before = counts(&scene);
        let last: usize = before.values().sum::<usize>() - (10 + 20) * PARTITIONS as usize;
        assert!(last > 10 * PARTITIONS as usize && last <= 20 * PARTITIONS as usize, "{last}");
        scene.assert_settled();

        // It dies right behind the put: that start has gone back, and the next one goes on from there.
        scene.die("L1:1", &[&KEEP[..], &["--from", &epochs[1].to_string()]].concat());
        let mut run = scene.start("after-l1", &KEEP);
        // The epoch that was decided had the last record of some partitions, and of others not.
        run.until("comes out once more", super::scene::PATIENCE, |_| {
            let (now, last) = (counts(&scene), |partition: u32| format!("in-{partition}-29"));
            Ok((0..PARTITIONS).map(last).all(|id| now[&id] > before[&id]))
        })
        .unwrap();
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, super::scene::PATIENCE).unwrap();
        assert_times(&scene, 10..20, 2);
    }
}

/// Waits until each record of a range is out so often at least.
fn until_times(scene: &Scene, run: &mut xtask::hapax::Run, range: std::ops::Range<usize>, times: usize) {
    run.until("comes out", super::scene::PATIENCE, |_| {
        let counts = counts(scene);
        let is_out = |n: usize, partition: u32| {
            counts.get(&format!("in-{partition}-{n}")).copied().unwrap_or(0) >= times
        };
        Ok(range.clone().all(|n| (0..PARTITIONS).all(|partition| is_out(n, partition))))
    })
    .unwrap();
}

#[test]
fn a_checkpoint_that_is_not_kept_or_was_given_up_is_refused_with_those_that_are() {
    let mut scene = Scene::new("restore-refused", On::Ours(2), PARTITIONS);
    for _ in 0..12 {
        scene.feed("in", 2);
        scene.catch_up(&["in"], &[]);
    }
    let kept: Vec<u64> = list(&scene).iter().map(|one| one["epoch"].as_u64().unwrap()).collect();
    assert!(kept.len() >= 7 && kept[0] == 0 && kept[1] > 1, "{kept:?}");
    let before = scene.chain();
    let refused = scene.bench.run(&["--from", "1"]);
    refused.says(2, "checkpoint 1 is not kept");
    refused.says(2, &kept.last().unwrap().to_string());
    scene.bench.run(&["--from", "1", "--fresh"]).says(2, "cannot be used with");
    assert_eq!(scene.chain(), before, "nothing was claimed");

    // Aborted by hand and read again: that checkpoint's records are not there.
    scene.feed("in", 5);
    scene.die("K2:1", &[]);
    let void = newest(&scene);
    scene.broker().jump_clock(16 * 60 * 1_000).unwrap();
    let log = scene.catch_up(&["in"], &[]);
    assert!(log.contains("rewound"), "{log}");
    scene.assert_copied("out", &["in"]);
    scene.bench.run(&["--from", &void.to_string()]).says(2, "was given up");

    // What the source has lost cannot be read again.
    for partition in 0..PARTITIONS as i32 {
        xtask::judge::Judge::shared()
            .delete_records(&scene.bootstrap, &scene.topic("in"), partition, 20)
            .unwrap();
    }
    scene.bench.run(&["--from", "0"]).says(4, "E0405");
    let log = scene.catch_up(&["in"], &[]);
    assert!(!log.contains("on purpose"), "{log}");
    scene.assert_copied("out", &["in"]);
}

/// A bounded job that is done has something to do again.
#[test]
fn a_job_that_has_finished_goes_back_too() {
    for on in On::OURS {
        let mut scene = Scene::new("restore-finished", on, PARTITIONS);
        scene.feed("in", 10);
        scene.write(&scene.pipeline(&["in"], "").replace("[[sink]]", "end = \"latest\"\n[[sink]]"));
        for _ in 0..2 {
            assert_eq!(scene.bench.run(&[]).code, Some(0));
            scene.assert_copied("out", &["in"]);
        }
        assert_eq!(scene.bench.run(&["--from", "0"]).code, Some(0));
        assert_times(&scene, 0..10, 2);
        assert_eq!(scene.bench.run(&[]).code, Some(0));
        assert_times(&scene, 0..10, 2);
    }
}

#[test]
fn checkpoints_are_listed_for_a_person_and_nothing_is_touched() {
    let (mut scene, epochs) = fed("list", On::Ours(2), 2);
    scene.feed("in", 10);
    let mut alive = scene.start("alive", &[&KEEP[..], &["--crash-at", "K2:1:stop"]].concat());
    alive.until("stops", super::scene::PATIENCE, |run| Ok(run.crash_point("K2")?.is_some())).unwrap();
    let before = scene.chain();
    let ended = hapax(&["checkpoint", "list", scene.file(), "--set", "cluster.main.brokers=\"127.0.0.1:1\""]);
    assert_eq!(ended.code, Some(0), "no broker is needed: {}", ended.err);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert!(lines[0].starts_with("0  the beginning"), "{}", ended.out);
    assert!(lines.last().unwrap().contains("in doubt; "), "{}", ended.out);
    assert!(ended.out.contains(&format!("{} ", epochs[1])) && ended.out.contains("proven"), "{}", ended.out);
    let of = list(&scene);
    let records: u64 = of.iter().map(|one| one["records"].as_u64().unwrap()).sum();
    assert!(records > 20 * u64::from(PARTITIONS), "{of:?}");
    assert!(of.iter().all(|one| one["positions"] == PARTITIONS));
    assert_eq!(scene.chain(), before);
    alive.process().signal("CONT").unwrap();
    scene.until_copied(&mut alive, "out", &["in"]);
    alive.process().signal("TERM").unwrap();
    alive.demand_exit(0, super::scene::PATIENCE).unwrap();
    hapax(&["checkpoint", "list", scene.file(), "--set", "job=other"]).says(2, "has no such job");
}

/// Going back by mistake, and too early in a job's life for anybody to tell: the copy has a transaction of one id of three,
/// and what was committed since stands under another one.
#[test]
fn an_old_copy_of_the_store_of_a_job_in_its_first_epochs_is_gone_on_from() {
    const ONE_EPOCH: [&str; 2] = ["--set", "checkpoint.interval=5s"];
    for on in On::OURS {
        let mut scene = Scene::new("young-copy", on, PARTITIONS);
        scene.feed("in", 10);
        scene.catch_up(&["in"], &ONE_EPOCH);
        let (store, copy) = (scene.bench.path("store"), scene.copy_of_the_store());
        scene.feed("in", 10);
        scene.catch_up(&["in"], &ONE_EPOCH);
        scene.assert_copied("out", &["in"]);
        fs::remove_dir_all(&store).unwrap();
        fs::rename(&copy, &store).unwrap();
        let mut run = scene.start("from-the-copy", &[]);
        until_times(&scene, &mut run, 10..20, 2);
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, super::scene::PATIENCE).unwrap();
        assert_times(&scene, 0..10, 1);
        assert_times(&scene, 10..20, 2);
    }
}
