//! A source's partition that loses records which were read, and gets others in their place (H37).

use super::scene::{On, PATIENCE, Scene};
use crate::{
    command_line::Bench,
    harness::{self, unique},
};
use hapax_broker::Step;
use std::thread;
use xtask::{
    judge::{Isolation, Judge, Record},
    kafka::{Cluster, Version, shared},
};

/// Longer than the transaction timeout of the job.
const TIMED_OUT_MS: i64 = 61_000;

const DECIDERS: [&str; 2] = ["", "decider = \"transaction\"\n"];

/// Two batches were read; the second one is lost, and more records than that come behind the first.
fn truncate(scene: &mut Scene) {
    let end =
        |scene: &Scene| Judge::shared().end_offsets(&scene.bootstrap, &scene.topic("in")).unwrap()[0].end;
    let before = end(scene);
    let step = Step::Truncate { topic: scene.topic("in"), partition: 0, from: 15 };
    scene.broker().step(step).unwrap();
    assert!(end(scene) < before, "records are lost");
    // The producer of the lost records would miss their sequence numbers.
    scene.feed_with("in", 30, &[("client.id", "after-the-loss")]);
    assert!(end(scene) > before, "others are there in their place");
}

fn read_two_batches(name: &str, on: On, top: &'static str) -> Scene {
    let mut scene = Scene::with_top(name, on, 1, top);
    scene.feed("in", 10);
    scene.catch_up(&["in"], &[]);
    scene.feed("in", 10);
    scene.catch_up(&["in"], &[]);
    scene
}

#[test]
fn a_partition_that_was_truncated_and_filled_again_is_not_read_on_from() {
    for (on, top) in On::OURS.into_iter().flat_map(|on| DECIDERS.map(|top| (on, top))) {
        let mut scene = read_two_batches("truncated", on, top);
        let written = scene.read("out");
        truncate(&mut scene);
        let ended = scene.bench.run(&[]);
        ended.says(4, "E0405");
        for told in ["under leader epoch 0", "ends at offset", "truncated", "position 20", "--fresh"] {
            assert!(ended.err.contains(told), "{told} is not in {}", ended.err);
        }
        assert_eq!(scene.read("out"), written, "nothing was written behind it");
    }
}

/// A leader that changes and has every record is none of that.
#[test]
fn a_partition_whose_leader_changed_is_read_on() {
    for (on, top) in On::OURS.into_iter().flat_map(|on| DECIDERS.map(|top| (on, top))) {
        let mut scene = read_two_batches("moved", on, top);
        let step = Step::MoveLeader { topic: scene.topic("in"), partition: 0, to: None };
        scene.broker().step(step).unwrap();
        scene.catch_up(&["in"], &[]);
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        scene.assert_copied("out", &["in"]);
    }
}

/// All transactions of an epoch are aborted, so that its input could be read again, if it were there: its records are
/// written again from the log of the sink instead.
#[test]
fn rewind_is_passed_over_where_the_source_was_truncated() {
    for on in On::OURS {
        let mut scene = read_two_batches("no-rewind", on, "");
        scene.feed("in", 10);
        scene.die("K2:1", &[]);
        scene.broker().jump_clock(TIMED_OUT_MS).unwrap();
        let mut wanted = scene.read("out").concat();
        wanted.extend((20..30).map(|n| format!("in-0-{n}")));
        truncate(&mut scene);
        let ended = scene.bench.run(&[]);
        ended.says(4, "E0405");
        for told in ["passed over: rewind: ", "truncated", "written again"] {
            assert!(ended.err.contains(told), "{told} is not in {}", ended.err);
        }
        assert_eq!(scene.read("out").concat(), wanted, "the decided records, and none behind them");
    }
}

/// Apache Kafka: the source's partition is led by a node that was down while the last records were written.
#[test]
fn on_apache_kafka_an_unclean_election_behind_a_position_is_noticed() {
    thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || unclean_election(version));
        }
    });
}

fn unclean_election(version: Version) {
    let cluster = Cluster::builder(version).nodes(3).start().unwrap();
    let (sources, sinks) = (cluster.bootstrap(), &shared(version).bootstrap);
    let job = unique(&format!("unclean-{}", version.number().replace('.', "-")));
    let arguments = [
        &["--bootstrap-server", &sources, "--create", "--topic", "in", "--replica-assignment", "1:2"][..],
        &["--config", "min.insync.replicas=1", "--config", "unclean.leader.election.enable=true"],
    ];
    let created = cluster.run_tool("org.apache.kafka.tools.TopicCommand", &arguments.concat()).unwrap();
    assert!(created.status.success(), "{created:?}");
    Judge::shared().create_topic(sinks, &job, 1, &[]).unwrap();
    let text = format!(
        "job = \"{job}\"\n[checkpoint]\nstore = \"file://PATH/store\"\n[cluster.far]\nbrokers = \"{sources}\"\n\
         [cluster.main]\nbrokers = \"{sinks}\"\n[[source]]\ncluster = \"far\"\ntopics = [\"in\"]\n\
         [[sink]]\ncluster = \"main\"\ntopic = \"{job}\"\n"
    );
    let bench = Bench::new(&job, &text);
    let feed = |from: usize, to: usize| {
        let records: Vec<Record> = (from..to).map(|n| Record::value(n.to_string())).collect();
        Judge::shared().produce(&sources, "in", &records).unwrap();
    };
    feed(0, 10);
    cluster.kill(2).unwrap();
    feed(10, 20);
    let mut run = harness::run(&bench.file, &[], &bench.path("run.log")).unwrap();
    let written = || {
        let read = Judge::shared().read_all(sinks, &job, Isolation::ReadCommitted).unwrap();
        read.iter().map(|partition| partition.records.len()).sum::<usize>()
    };
    run.until("has not copied 20 records", PATIENCE, |_| Ok(written() == 20)).unwrap();
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, PATIENCE).unwrap();

    cluster.kill(1).unwrap();
    cluster.restart(2).unwrap();
    feed(100, 130);
    let end = Judge::shared().end_offsets(&sources, "in").unwrap()[0].end;
    assert_eq!(end, 40, "ten records were lost, and thirty came in their place");
    let ended = bench.run(&[]);
    ended.says(4, "E0405");
    assert!(ended.err.contains("ends at offset 10 by now"), "{}", ended.err);
    assert_eq!(written(), 20, "nothing was written behind it");
}
