//! A source's partition that loses records which were read, and gets others in their place (H37).

use super::scene::{On, PATIENCE, Scene};
use crate::{
    command_line::Bench,
    harness::{self, unique},
};
use hapax_broker::{ApiKey, Rule, Step};
use std::thread;
use xtask::{
    hapax::Run,
    judge::{Isolation, Judge, Record},
    kafka::{Cluster, Version, shared},
};

/// Longer than the transaction timeout of the job.
const TIMED_OUT_MS: i64 = 61_000;

const LEADER_NOT_AVAILABLE: i16 = 5;

/// All partitions are of one reader.
const ONE_SHARD: [&str; 2] = ["--set", "run.shards=1"];

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

/// A partition that nobody can answer for is not read, and the others of the same reader are; what its leader says when
/// there is one counts.
#[test]
fn a_partition_without_a_leader_is_waited_for_while_the_others_flow() {
    for (on, top) in On::OURS.into_iter().flat_map(|on| DECIDERS.map(|top| (on, top))) {
        for is_lost in [false, true] {
            let mut scene = Scene::with_top("leaderless", on, 3, top);
            scene.feed("in", 10);
            scene.catch_up(&["in"], &ONE_SHARD);
            let rule = Rule::on(ApiKey::OffsetForLeaderEpoch).topic(scene.topic("in")).partition(1);
            let rule = scene.broker().faults().guard(rule.error(LEADER_NOT_AVAILABLE).always()).unwrap();
            scene.feed("in", 10);
            let mut run = scene.start("run-leaderless", &ONE_SHARD);
            let counts = |scene: &Scene| scene.read("out").iter().map(Vec::len).collect::<Vec<_>>();
            run.until("has not copied the others", PATIENCE, |_| Ok(counts(&scene) == [20, 10, 20])).unwrap();
            // More than a round.
            run.until("says nothing", PATIENCE, |run| Ok(run.output()?.contains("not read yet"))).unwrap();
            assert!(rule.fired() > 2);
            assert_eq!(counts(&scene), [20, 10, 20]);
            if is_lost {
                let step = Step::Truncate { topic: scene.topic("in"), partition: 1, from: 5 };
                scene.broker().step(step).unwrap();
                drop(rule);
                run.demand_exit(4, PATIENCE).unwrap();
                let told = run.output().unwrap();
                assert!(
                    told.contains("E0405") && told.contains("partition 1 was read up to there"),
                    "{told}"
                );
                assert_eq!(counts(&scene), [20, 10, 20], "nothing was written behind it");
            } else {
                drop(rule);
                scene.until_copied(&mut run, "out", &["in"]);
                scene.assert_copied("out", &["in"]);
                run.process().signal("TERM").unwrap();
                run.demand_exit(0, PATIENCE).unwrap();
                let log = run.output().unwrap();
                let starts = ["claimed the job", "took the job over"].map(|start| log.matches(start).count());
                assert_eq!(starts.iter().sum::<usize>(), 1, "one run has done it: {log}");
            }
        }
    }
}

/// Nobody will ever answer for it then.
#[test]
fn a_topic_that_is_deleted_while_it_has_no_leader_is_told() {
    for on in On::OURS {
        let mut scene = Scene::new("deleted-leaderless", on, 1);
        scene.feed("in", 10);
        scene.catch_up(&["in"], &ONE_SHARD);
        let rule = Rule::on(ApiKey::OffsetForLeaderEpoch).topic(scene.topic("in"));
        let rule = scene.broker().faults().guard(rule.error(LEADER_NOT_AVAILABLE).always()).unwrap();
        let mut run = scene.start("run-deleted", &ONE_SHARD);
        run.until("has not asked", PATIENCE, |_| Ok(rule.fired() > 2)).unwrap();
        Judge::shared().delete_topic(&scene.bootstrap, &scene.topic("in")).unwrap();
        run.demand_exit(4, PATIENCE).unwrap();
        let told = run.output().unwrap();
        assert!(told.contains("E0405") && told.contains("is not there any more"), "{told}");
    }
}

/// Apache Kafka: each partition of the source has one replica, and one of those nodes is down when the run begins.
#[test]
fn on_apache_kafka_a_partition_whose_node_is_down_is_waited_for_while_the_others_flow() {
    thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || node_down(version));
        }
    });
}

fn node_down(version: Version) {
    let far = Far::start("node-down", version, "1,2", 2);
    far.feed(0, 0, 10);
    far.feed(1, 0, 10);
    far.copy(&[10, 10]);
    far.feed(0, 10, 20);
    far.feed(1, 10, 20);
    far.cluster.kill(2).unwrap();
    let mut run = far.run();
    far.until_copied(&mut run, &[20, 10]);
    far.cluster.restart(2).unwrap();
    far.until_copied(&mut run, &[20, 20]);
    run.process().signal("TERM").unwrap();
    run.demand_exit(0, PATIENCE).unwrap();
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
        truncate(&mut scene);
        let ended = scene.bench.run(&[]);
        ended.says(4, "E0405");
        for told in ["passed over: rewind: ", "truncated", "written again"] {
            assert!(ended.err.contains(told), "{told} is not in {}", ended.err);
        }
        let position = ended.err.rsplit(": position ").next().and_then(|rest| rest.split(' ').next());
        let decided: usize = position.expect("it says where it stands").parse().unwrap();
        assert!(decided > 20, "an epoch was in doubt: {}", ended.err);
        let wanted: Vec<_> = (0..decided).map(|n| format!("in-0-{n}")).collect();
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
    let far = Far::start("unclean", version, "1:2", 1);
    far.feed(0, 0, 10);
    far.cluster.kill(2).unwrap();
    far.feed(0, 10, 20);
    far.copy(&[20]);

    far.cluster.kill(1).unwrap();
    far.cluster.restart(2).unwrap();
    far.feed(0, 100, 130);
    let end = Judge::shared().end_offsets(&far.bootstrap, "in").unwrap()[0].end;
    assert_eq!(end, 40, "ten records were lost, and thirty came in their place");
    let ended = far.bench.run(&[]);
    ended.says(4, "E0405");
    assert!(ended.err.contains("ends at offset 10 by now"), "{}", ended.err);
    assert_eq!(far.written(), [20], "nothing was written behind it");
}

/// A job whose source is on three nodes of its own.
struct Far {
    cluster: Cluster,
    bootstrap: String,
    sinks: String,
    out: String,
    bench: Bench,
}

impl Far {
    fn start(name: &str, version: Version, replicas: &str, partitions: u32) -> Self {
        let cluster = Cluster::builder(version).nodes(3).start().unwrap();
        let (bootstrap, sinks) = (cluster.bootstrap(), shared(version).bootstrap.clone());
        let out = unique(&format!("{name}-{}", version.number().replace('.', "-")));
        let arguments = [
            &[
                "--bootstrap-server",
                &bootstrap,
                "--create",
                "--topic",
                "in",
                "--replica-assignment",
                replicas,
            ][..],
            &["--config", "min.insync.replicas=1", "--config", "unclean.leader.election.enable=true"],
        ];
        let created = cluster.run_tool("org.apache.kafka.tools.TopicCommand", &arguments.concat()).unwrap();
        assert!(created.status.success(), "{created:?}");
        Judge::shared().create_topic(&sinks, &out, partitions, &[]).unwrap();
        let text = format!(
            "job = \"{out}\"\n[checkpoint]\nstore = \"file://PATH/store\"\n[cluster.far]\nbrokers = \"{bootstrap}\"\n\
             [cluster.main]\nbrokers = \"{sinks}\"\n[[source]]\ncluster = \"far\"\ntopics = [\"in\"]\n\
             [[sink]]\ncluster = \"main\"\ntopic = \"{out}\"\npartition = \"keep\"\n"
        );
        let bench = Bench::new(&out, &text);
        Self { cluster, bootstrap, sinks, out, bench }
    }

    fn feed(&self, partition: i32, from: usize, to: usize) {
        let records: Vec<Record> =
            (from..to).map(|n| Record::value(n.to_string()).to_partition(partition)).collect();
        Judge::shared().produce(&self.bootstrap, "in", &records).unwrap();
    }

    fn run(&self) -> Run {
        harness::run(&self.bench.file, &ONE_SHARD, &self.bench.path(&unique("run.log"))).unwrap()
    }

    /// Records of the output, by partition.
    fn written(&self) -> Vec<usize> {
        let read = Judge::shared().read_all(&self.sinks, &self.out, Isolation::ReadCommitted).unwrap();
        read.iter().map(|partition| partition.records.len()).collect()
    }

    fn until_copied(&self, run: &mut Run, wanted: &[usize]) {
        let what = format!("has not copied {wanted:?} records");
        run.until(&what, PATIENCE, |_| Ok(self.written() == wanted)).unwrap();
    }

    fn copy(&self, wanted: &[usize]) {
        let mut run = self.run();
        self.until_copied(&mut run, wanted);
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, PATIENCE).unwrap();
    }
}
