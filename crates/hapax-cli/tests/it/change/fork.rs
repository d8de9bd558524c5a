//! Another job begun at a job's checkpoint, a job under another name, and ids that only look like a job's own.

use super::scene::{On, PATIENCE, Scene};
use crate::command_line::{Ended, hapax};
use std::{
    fs,
    path::{Path, PathBuf},
};
use xtask::{
    judge::{Isolation, Judge, Outcome, Record},
    kafka::transactions,
};

const PARTITIONS: u32 = 4;

/// A file beside the scene's, for a job of another name that copies into another topic.
fn other(scene: &mut Scene, name: &str, out: &str) -> PathBuf {
    if out != "out" {
        scene.create(out, PARTITIONS);
    }
    let text = scene.pipeline(&["in"], "").replacen(
        &format!("job = \"{}\"", scene.job),
        &format!("job = \"{name}\""),
        1,
    );
    let text = text.replace(
        &format!("topic = \"{}\"", scene.topic("out")),
        &format!("topic = \"{}\"", scene.topic(out)),
    );
    let path = scene.bench.path(&format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path
}

fn run(file: &Path, more: &[&str]) -> Ended {
    hapax(&[&["run", file.to_str().unwrap()], more].concat())
}

fn run_until(scene: &Scene, file: &Path, more: &[&str], out: &str, wanted: usize) -> String {
    let log = scene.bench.path(&format!("{}.log", crate::harness::unique("fork")));
    let mut run = crate::harness::run(file, more, &log).unwrap();
    run.until(&format!("has not {wanted} records in {out}"), PATIENCE, |run| {
        match run.process().try_wait()? {
            Some(_) => Err(std::io::Error::other(run.output()?)),
            None => Ok(scene.read(out).concat().len() >= wanted),
        }
    })
    .unwrap();
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, PATIENCE).unwrap();
    run.output().unwrap()
}

/// The original has a prepared transaction open, which it resumes afterwards as if nothing had been.
#[test]
fn a_fork_begins_behind_a_proven_checkpoint_and_touches_nothing_of_the_original() {
    for on in On::OURS {
        let mut scene = Scene::new("fork", on, PARTITIONS);
        scene.feed("in", 20);
        scene.catch_up(&["in"], &[]);
        scene.feed("in", 10);
        scene.die("K2:1", &[]);
        let (open, chain) = (scene.open(), scene.chain());
        assert!(!open.is_empty());

        let name = format!("{}-fork", scene.job);
        let file = other(&mut scene, &name, "forked");
        run(&file, &["--fork-of", "nobody"]).says(2, &scene.job);
        run(&file, &["--fork-of", &format!("{}@77777", scene.job)]).says(2, "not kept, or not proven");
        run(&file, &["--fork-of", "UPPER"]).says(2, "is not a name");
        let of = scene.job.clone();
        let log = run_until(&scene, &file, &["--fork-of", &of], "forked", 10 * PARTITIONS as usize);
        assert!(log.contains(&format!("begins as a fork of job {of}")) && log.contains("in doubt"), "{log}");
        assert_eq!((scene.open(), scene.chain()), (open, chain), "the original is as it was");
        let forked = scene.read("forked").concat();
        assert_eq!(forked.len(), 10 * PARTITIONS as usize, "what stands behind the proven checkpoint");

        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("resumed"), "{log}");
        scene.assert_copied("out", &["in"]);

        // Both go on, each by itself; a supervisor says the same arguments again.
        scene.feed("in", 5);
        scene.catch_up(&["in"], &[]);
        let log = run_until(&scene, &file, &["--fork-of", &of], "forked", 15 * PARTITIONS as usize);
        assert!(log.contains("counts for a new job only"), "{log}");
        scene.assert_copied("out", &["in"]);
        assert_eq!(scene.read("forked").concat().len(), 15 * PARTITIONS as usize);
    }
}

#[test]
fn a_fork_may_begin_at_an_older_checkpoint_and_out_of_another_store() {
    let mut scene = Scene::new("fork-at", On::Ours(2), PARTITIONS);
    scene.feed("in", 10);
    scene.catch_up(&["in"], &[]);
    let list = hapax(&["checkpoint", "list", scene.file(), "--json"]);
    let last: serde_json::Value = serde_json::from_str(list.out.lines().last().unwrap()).unwrap();
    scene.feed("in", 10);
    scene.catch_up(&["in"], &[]);
    let name = format!("{}-at", scene.job);
    let file = other(&mut scene, &name, "at");
    let elsewhere = format!("checkpoint.store=\"file://{}\"", scene.bench.path("elsewhere").display());
    let of = format!("{}@{}", scene.job, last["epoch"]);
    run(&file, &["--fork-of", &of, "--set", &elsewhere]).says(2, "--fork-store URL");
    let store = format!("file://{}", scene.bench.path("store").display());
    let arguments = ["--fork-of", &of, "--set", &elsewhere, "--fork-store", &store];
    run_until(&scene, &file, &arguments, "at", 10 * PARTITIONS as usize);
    assert_eq!(scene.read("at").concat().len(), 10 * PARTITIONS as usize);
    scene.assert_copied("out", &["in"]);
}

/// The store names its job, and the message the way to go on.
#[test]
fn a_renamed_job_is_refused_with_the_command_that_goes_on_from_the_old_ones_checkpoint() {
    let mut scene = Scene::new("renamed", On::Ours(2), PARTITIONS);
    scene.feed("in", 20);
    scene.catch_up(&["in"], &[]);
    let name = format!("{}-renamed", scene.job);
    let file = other(&mut scene, &name, "out");
    run(&file, &[]).says(4, &format!("--fork-of {}", scene.job));
    scene.feed("in", 10);
    run_until(&scene, &file, &["--fork-of", &scene.job], "out", 30 * PARTITIONS as usize);
    scene.assert_copied("out", &["in"]);
}

/// H20: names that begin alike, and ids of any shape, prepared or open, are somebody else's.
#[test]
fn ids_that_only_look_like_the_jobs_are_never_touched() {
    for on in On::OURS {
        let mut scene = Scene::new("foreign", on, PARTITIONS);
        Judge::shared().create_topic(&scene.bootstrap, "foreign", 1, &[]).unwrap();
        let job = scene.job.clone();
        let foreign: Vec<String> = [
            "{}",
            "{}.",
            "{}.main",
            "{}.main.0",
            "{}.main.0.0.x",
            "{}.main.0.0.0",
            "{}.main.0.3",
            "{}.main.00.1",
            "{}.main.+0.1",
            "{}..0.0",
            "{}.main..0",
            "{}.main.0.",
            ".{}.main.0.0",
            "{}x.main.0.0",
            "x{}.main.0.0",
            "{}.Main.0.0",
            "{}.mäin.0.0",
            "{}.main.٠.0",
            "{} .main.0.0",
            "{}-main-0-0",
        ]
        .iter()
        .map(|shape| shape.replace("{}", &job))
        .collect();
        for id in &foreign {
            let records = [Record::value("foreign")];
            Judge::shared()
                .produce_transactional(&scene.bootstrap, "foreign", &records, id, PATIENCE, Outcome::Open)
                .unwrap();
        }
        // A second job whose name is a prefix of the first, with a prepared transaction.
        let prefix = job[..job.len() - 1].to_owned();
        scene.feed("in", 10);
        let file = other(&mut scene, &prefix, "second");
        let elsewhere = format!("checkpoint.store=\"file://{}\"", scene.bench.path("elsewhere").display());
        let ended = run(&file, &["--set", &elsewhere, "--crash-at", "K2:1"]);
        assert_eq!(ended.code, None, "{}", ended.err);
        let others = || {
            let mut open = transactions(&scene.bootstrap).unwrap();
            open.retain(|one| {
                one.is_open() && (foreign.contains(&one.id) || one.id.starts_with(&format!("{prefix}.")))
            });
            open
        };
        let before = others();
        assert!(before.len() > foreign.len(), "{before:?}");

        scene.die("K2:1", &[]);
        let ended = scene.shards(2, &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        scene.die("K1:1", &["--from", "0"]);
        scene.catch_up(&["in"], &["--fresh"]);
        assert_eq!(others(), before, "each is as it was");
        assert!(scene.transactions().iter().all(|one| foreign.contains(&one.id) || !one.is_open()));

        for id in &foreign {
            Judge::shared().end_transaction(id, Outcome::Commit).unwrap();
        }
        let read = Judge::shared().read_all(&scene.bootstrap, "foreign", Isolation::ReadCommitted).unwrap();
        assert_eq!(read[0].records.len(), foreign.len(), "all of them could still be committed");
        let resumed = run_until(&scene, &file, &["--set", &elsewhere], "second", 10 * PARTITIONS as usize);
        assert!(resumed.contains("resumed"), "{resumed}");
    }
}

/// A job keeps its decider; under another name it goes on with another one, there and back, without a record lost or
/// written twice.
#[test]
fn a_fork_may_have_the_other_decider_and_goes_on_where_the_original_has_committed() {
    for on in On::OURS {
        let mut scene = Scene::new("fork-decider", on, PARTITIONS);
        scene.feed("in", 20);
        scene.catch_up(&["in"], &[]);
        let store = format!("file://{}", scene.bench.path("store").display());

        // From a checkpoint to offsets, without a store.
        let carried = format!("{}-carried", scene.job);
        let file = other(&mut scene, &carried, "out");
        let text = fs::read_to_string(&file).unwrap();
        let incidents = format!("incidents = \"{}\"", scene.bench.path("carried.incidents").display());
        let text: Vec<String> = text
            .lines()
            .map(|line| if line.starts_with("store =") { incidents.clone() } else { line.to_owned() })
            .collect();
        fs::write(&file, format!("decider = \"transaction\"\n{}\n", text.join("\n"))).unwrap();
        scene.feed("in", 10);
        run(&file, &["--fork-of", &scene.job]).says(2, "name its store with --fork-store URL");
        let from = ["--fork-of", &scene.job.clone(), "--fork-store", &store];
        let log = run_until(&scene, &file, &from, "out", 30 * PARTITIONS as usize);
        assert!(log.contains(&format!("begins as a fork of job {}, behind checkpoint", scene.job)), "{log}");
        scene.assert_copied("out", &["in"]);
        // A supervisor says the same arguments again.
        scene.feed("in", 5);
        let log = run_until(&scene, &file, &from, "out", 35 * PARTITIONS as usize);
        assert!(log.contains("counts for a new job only"), "{log}");
        scene.assert_copied("out", &["in"]);

        // And from offsets to a checkpoint.
        let checked = format!("{}-checked", scene.job);
        let file = other(&mut scene, &checked, "out");
        scene.feed("in", 10);
        run(&file, &["--fork-of", &format!("{carried}@3")]).says(2, "keeps no checkpoint but the newest");
        let log = run_until(&scene, &file, &["--fork-of", &carried], "out", 45 * PARTITIONS as usize);
        assert!(log.contains(&format!("fork of job {carried}, behind the committed offsets")), "{log}");
        scene.assert_copied("out", &["in"]);
    }
}
