//! The pipeline file changed under a checkpoint: what each change does, and what it refuses.

use super::scene::{Hosted, On, Scene};
use std::fs;
use xtask::judge::Judge;

const PARTITIONS: u32 = 4;

/// A job that has an epoch decided and prepared.
fn prepared(name: &str, on: On) -> Scene {
    let mut scene = Scene::new(name, on, PARTITIONS);
    scene.feed("in", 20);
    scene.catch_up(&["in"], &[]);
    scene.feed("in", 20);
    scene.die("K2:1", &[]);
    assert!(!scene.open().is_empty(), "something is prepared");
    scene
}

/// Its records from before the job read it come too, and its start is durable before its first record is read: a run that
/// dies right behind that reads it from there, whatever the topic has lost meanwhile.
#[test]
fn a_topic_that_is_added_is_read_from_its_start() {
    for on in On::OURS {
        for start in ["", "start = \"latest\"\n"] {
            let mut scene = prepared("topic-added", on);
            scene.create("more", 6);
            scene.feed("more", 20);
            // Six partitions into four: by key, so the output has six.
            Judge::shared().add_partitions(&scene.bootstrap, &scene.topic("out"), 6).unwrap();
            let text = scene.pipeline(&["in", "more"], "").replace("[[sink]]", &format!("{start}[[sink]]"));
            scene.write(&text);
            scene.die("L0:1", &[]);
            scene.die("L1:1", &[]);
            scene.feed("more", 20);
            let log = scene.catch_up(&["in", "more"], &[]);
            assert!(!log.contains("reads from here on"), "it is recorded already: {log}");
            scene.assert_copied("out", &["in", "more"]);
            scene.feed("more", 5);
            scene.catch_up(&["in", "more"], &[]);
            scene.assert_copied("out", &["in", "more"]);
        }
    }
}

#[test]
fn a_topic_that_is_taken_out_is_refused_until_it_is_dropped_and_comes_back_from_its_start() {
    for on in On::OURS {
        let mut scene = Scene::new("topic-removed", on, PARTITIONS);
        scene.create("old", PARTITIONS);
        scene.write(&scene.pipeline(&["in", "old"], ""));
        scene.feed("in", 20);
        scene.feed("old", 20);
        scene.catch_up(&["in", "old"], &[]);
        scene.feed("in", 5);
        scene.die("K2:1", &[]);

        scene.write(&scene.pipeline(&["in"], ""));
        let before = scene.chain();
        let old = scene.topic("old");
        scene.bench.run(&[]).says(2, &format!("hapax run FILE --drop {old}"));
        scene.bench.run(&["--drop", &old[..old.len() - 1]]).says(2, &format!("--drop {old}"));
        scene.bench.run(&["--drop", &scene.topic("in"), "--drop", &old]).says(2, "still reads it");
        assert_eq!(scene.chain(), before, "nothing was claimed");

        scene.feed("old", 5);
        let log = scene.catch_up(&["in"], &["--drop", &old]);
        assert!(log.contains("has forgotten the positions of"), "{log}");
        // The records that came before are still there, those that came behind it are not read.
        let count = |scene: &Scene, what: &str| {
            scene.read("out").concat().iter().filter(|text| text.starts_with(what)).count()
        };
        assert_eq!(count(&scene, "old-"), 20 * PARTITIONS as usize);
        scene.feed("in", 5);
        let log = scene.catch_up(&["in"], &["--drop", &old]);
        assert!(!log.contains("forgotten"), "said twice it does nothing: {log}");
        assert_eq!(count(&scene, "in-"), 30 * PARTITIONS as usize);

        // It has no position any more, so it comes whole.
        scene.write(&scene.pipeline(&["in", "old"], ""));
        let mut run = scene.start("back", &[]);
        let wanted = (30 + 20 + 25) * PARTITIONS as usize;
        run.until("comes back", super::scene::PATIENCE, |_| Ok(scene.read("out").concat().len() >= wanted))
            .unwrap();
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, super::scene::PATIENCE).unwrap();
        assert_eq!(count(&scene, "old-"), 45 * PARTITIONS as usize);
    }
}

#[test]
fn partitions_added_to_a_source_topic_are_read_from_their_start() {
    for on in On::OURS {
        let mut scene = prepared("partitions", on);
        scene.add_partitions("in", 7);
        Judge::shared().add_partitions(&scene.bootstrap, &scene.topic("out"), 7).unwrap();
        scene.feed("in", 10);
        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("is read from the first record of each new one on"), "{log}");
        scene.assert_copied("out", &["in"]);
    }
}

#[test]
fn partitions_added_to_the_sinks_topic_move_keys_and_that_is_said_once() {
    for on in On::OURS {
        let mut scene = prepared("sink-partitions", on);
        Judge::shared().add_partitions(&scene.bootstrap, &scene.topic("out"), 9).unwrap();
        scene.feed("in", 10);
        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("records of one key go to another partition"), "{log}");
        scene.assert_copied("out", &["in"]);
        let log = scene.catch_up(&["in"], &[]);
        assert!(!log.contains("records of one key go to another partition"), "{log}");
    }
}

#[test]
fn a_sink_that_is_added_gets_what_comes_from_there_on() {
    for on in On::OURS {
        let mut scene = prepared("sink-added", on);
        scene.create("second", PARTITIONS);
        let second = format!("[[sink]]\ntopic = {:?}\npartition = \"keep\"\n", scene.topic("second"));
        scene.write(&scene.pipeline(&["in"], &second));
        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("resumed") && log.contains("the pipeline file has changed"), "{log}");
        scene.assert_settled();
        let before = scene.read("second").concat().len();
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        scene.assert_copied("out", &["in"]);
        assert_eq!(scene.read("second").concat().len(), before + 10 * PARTITIONS as usize);
    }
}

/// A run knows a topic by what it was when it first wrote there, and writes to it by name.
#[test]
fn a_sinks_topic_that_is_made_again_under_a_run_is_written_on_and_refused_by_the_next_start() {
    for (on, top) in
        On::OURS.into_iter().flat_map(|on| ["", "decider = \"transaction\"\n"].map(|top| (on, top)))
    {
        let mut scene = Scene::with_top("sink-made-again", on, PARTITIONS, top);
        scene.feed("in", 10);
        let mut run = scene.start("run", &[]);
        scene.until_copied(&mut run, "out", &["in"]);
        let out = scene.topic("out");
        Judge::shared().delete_topic(&scene.bootstrap, &out).unwrap();
        Judge::shared().create_topic(&scene.bootstrap, &out, PARTITIONS, &[]).unwrap();
        scene.feed("in", 10);
        let wanted = 10 * PARTITIONS as usize;
        let goes_on = |_: &mut xtask::hapax::Run| Ok(scene.read("out").concat().len() >= wanted);
        run.until("writes on", super::scene::PATIENCE, goes_on).unwrap();
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, super::scene::PATIENCE).unwrap();
        scene.bench.run(&[]).says(4, "E0407");
        assert_eq!(scene.read("out").concat().len(), wanted, "what stood in the old one is gone");
    }
}

/// What is prepared in it is decided: it is committed from the manifest, before the job goes on without the sink.
#[test]
fn a_sink_that_is_renamed_while_its_transaction_is_prepared_is_resolved_first() {
    for on in On::OURS {
        let mut scene = prepared("sink-renamed", on);
        scene.create("new", PARTITIONS);
        let text = scene.pipeline(&["in"], "");
        scene.write(&text.replace(&scene.topic("out"), &scene.topic("new")));
        scene.feed("in", 10);
        let mut run = scene.start("renamed", &[]);
        let both = || [scene.read("out").concat(), scene.read("new").concat()].concat();
        let wanted = 50 * PARTITIONS as usize;
        run.until("new", super::scene::PATIENCE, |_| Ok(both().len() >= wanted)).unwrap();
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, super::scene::PATIENCE).unwrap();
        assert!(run.output().unwrap().contains("resumed"));
        scene.assert_settled();
        let mut all = both();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), both().len()), (wanted, wanted), "each once, in the one or in the other");
        assert!(
            scene.read("out").concat().len() > 20 * PARTITIONS as usize,
            "what was decided is in the old one"
        );
    }
}

/// H38: a sink on a cluster of its own is taken out, with and without its cluster.
#[test]
fn a_sink_that_is_removed_while_its_transaction_is_prepared_needs_its_cluster_once_more() {
    for level in [0, 2] {
        let mut scene = Scene::new("sink-removed", On::Ours(level), PARTITIONS);
        let other = Hosted::start(level, 7);
        let away = other.broker.bootstrap();
        Judge::shared().create_topic(&away, "away", PARTITIONS, &[]).unwrap();
        let both = format!(
            "[cluster.away]\nbrokers = \"{away}\"\n[[sink]]\ncluster = \"away\"\ntopic = \"away\"\npartition = \"keep\"\n"
        );
        let with_cluster = |text: String| {
            text.replace("[[source]]\n", "[[source]]\ncluster = \"main\"\n")
                .replace("[[sink]]\ntopic", "[[sink]]\ncluster = \"main\"\ntopic")
        };
        scene.write(&with_cluster(scene.pipeline(&["in"], &both)));
        scene.feed("in", 20);
        scene.catch_up(&["in"], &[]);
        scene.feed("in", 20);
        scene.die("K2:1", &[]);
        let in_away = || {
            let read =
                Judge::shared().read_all(&away, "away", xtask::judge::Isolation::ReadCommitted).unwrap();
            read.iter().map(|one| one.records.len()).sum::<usize>()
        };
        assert_eq!(in_away(), 20 * PARTITIONS as usize);

        let alone = with_cluster(scene.pipeline(&["in"], ""));
        scene.write(&alone);
        let before = scene.chain();
        scene.bench.run(&[]).says(2, "put [cluster.away] back for one start");
        scene.bench.run(&["--drop", "away"]).says(2, "are in doubt at cluster away");
        assert_eq!(scene.chain(), before, "nothing was claimed");

        let cluster_only = format!("{alone}[cluster.away]\nbrokers = \"{away}\"\n");
        scene.write(&cluster_only);
        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("writes no transaction there any more"), "{log}");
        assert!(in_away() > 20 * PARTITIONS as usize, "what was decided is committed there");
        assert!(xtask::kafka::transactions(&away).unwrap().iter().all(|one| !one.is_open()));

        // From there on the cluster may go.
        scene.write(&alone);
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        scene.assert_copied("out", &["in"]);
    }
}

/// Nothing is in doubt there and the cluster is gone for good: a person says so.
#[test]
fn a_cluster_that_is_gone_is_dropped_by_name() {
    let mut scene = Scene::new("cluster-gone", On::Ours(2), PARTITIONS);
    let other = Hosted::start(2, 7);
    let away = other.broker.bootstrap();
    Judge::shared().create_topic(&away, "away", PARTITIONS, &[]).unwrap();
    let text = |more: &str| {
        let text = scene.pipeline(&["in"], more).replace("[[source]]\n", "[[source]]\ncluster = \"main\"\n");
        text.replace("[[sink]]\ntopic", "[[sink]]\ncluster = \"main\"\ntopic")
    };
    let both = format!(
        "[cluster.away]\nbrokers = \"{away}\"\n[[sink]]\ncluster = \"away\"\ntopic = \"away\"\npartition = \"keep\"\n"
    );
    let (with, without) = (text(&both), text(""));
    scene.write(&with);
    scene.feed("in", 20);
    scene.catch_up(&["in"], &[]);
    drop(other);
    scene.write(&without);
    scene.bench.run(&[]).says(2, "hapax run FILE --drop away");
    scene.feed("in", 10);
    scene.catch_up(&["in"], &["--drop", "away"]);
    scene.feed("in", 10);
    scene.catch_up(&["in"], &[]);
    scene.assert_copied("out", &["in"]);
}

/// Lowered, what is prepared is committed all the same; raised, what comes from there on is transactional.
#[test]
fn a_guarantee_is_lowered_and_raised_behind_what_was_decided() {
    for on in On::OURS {
        let mut scene = prepared("guarantee", on);
        let exactly = scene.pipeline(&["in"], "");
        let at_least = format!("{exactly}guarantee = \"at-least-once\"\n");
        scene.write(&at_least);
        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("resumed"), "{log}");
        scene.assert_copied("out", &["in"]);
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        scene.write(&exactly);
        scene.feed("in", 10);
        scene.die("K2:1", &[]);
        assert!(!scene.open().is_empty(), "it is transactional again");
        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("resumed"), "{log}");
        scene.assert_copied("out", &["in"]);
    }
}

/// Addresses are advice, the cluster's own id is not.
#[test]
fn other_addresses_of_the_same_cluster_are_fine_and_another_cluster_is_refused() {
    for on in On::OURS {
        let mut scene = prepared("addresses", on);
        let text = scene.pipeline(&["in"], "");
        let port = scene.bootstrap.rsplit(':').next().unwrap().to_owned();
        scene.write(&text.replace(&scene.bootstrap, &format!("127.0.0.1:1,localhost:{port}")));
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        scene.assert_copied("out", &["in"]);

        let other = Hosted::start(2, 9);
        let before = scene.chain();
        for what in ["in", "out"] {
            Judge::shared()
                .create_topic(&other.broker.bootstrap(), &scene.topic(what), PARTITIONS, &[])
                .unwrap();
        }
        scene.write(&text.replace(&scene.bootstrap, &other.broker.bootstrap()));
        scene.bench.run(&[]).says(4, "E0403");
        assert_eq!(scene.chain(), before, "nothing was claimed");
    }
}

#[test]
fn operators_may_change_and_that_is_logged_and_recorded_once() {
    for on in On::OURS {
        let mut scene = prepared("operators", on);
        let text = scene.pipeline(&["in"], "[[operator]]\njq = '.'\n");
        scene.write(
            &text
                .replace("[[source]]\n", "[[source]]\n# as before\n")
                .replace("[[operator]]\njq = '.'\n", ""),
        );
        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("the pipeline file has changed"), "{log}");
        let log = scene.catch_up(&["in"], &[]);
        assert!(!log.contains("the pipeline file has changed"), "{log}");
        scene.feed("in", 10);
        scene.write(&scene.pipeline(&["in"], "[[operator]]\njq = 'select(false)'\non_error = \"skip\"\n"));
        let mut run = scene.start("filtered", &["--progress"]);
        let reads = |log: &str| {
            log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()).any(|one| {
                one["records_in"].as_u64() >= Some(10 * u64::from(PARTITIONS))
                    && one["committed_ms"].as_u64() > Some(0)
            })
        };
        run.until("reads", super::scene::PATIENCE, |run| Ok(reads(&run.output()?))).unwrap();
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, super::scene::PATIENCE).unwrap();
        assert_eq!(scene.read("out").concat().len(), 40 * PARTITIONS as usize, "from here on nothing passes");
        let recorded = super::scene::files(&scene.bench.path("store"))
            .iter()
            .any(|file| String::from_utf8_lossy(&fs::read(file).unwrap()).contains("select(false)"));
        assert!(recorded, "the chain has the text");
    }
}

/// The number stands in the record; the file alone does not change it.
#[test]
fn shards_changed_in_the_file_are_refused_with_the_command() {
    let mut scene = prepared("file-shards", On::Ours(2));
    let text = scene.pipeline(&["in"], "[run]\nshards = 3\n");
    scene.write(&text);
    scene.bench.run(&[]).says(2, "hapax job shards FILE 3");
    let ended = scene.shards(3, &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    scene.feed("in", 10);
    scene.catch_up(&["in"], &[]);
    scene.assert_copied("out", &["in"]);
}

/// Which records a generator has follows from how many partitions it has.
#[test]
fn a_generator_keeps_its_partitions() {
    let scene = Scene::new("generator", On::Ours(2), PARTITIONS);
    let text = |partitions: u32| {
        let text = scene.pipeline(&["in"], "");
        let topics = text.lines().find(|line| line.starts_with("topics")).unwrap().to_owned();
        text.replace(&topics, &format!("generator = {{ count = 100, partitions = {partitions} }}"))
    };
    scene.write(&text(4));
    assert_eq!(scene.bench.run(&["--crash-at", "K2:1"]).code, None);
    for partitions in [3, 5] {
        scene.write(&text(partitions));
        scene.bench.run(&[]).says(2, "the job was created with 4");
    }
    scene.write(&text(4));
    assert_eq!(scene.bench.run(&[]).code, Some(0));
    assert_eq!(scene.read("out").concat().len(), 100);
}
