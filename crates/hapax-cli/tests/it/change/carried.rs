//! Changes of a job whose transactions carry its positions: other shards and other topics, each as one transaction.
//!
//! On the group's own offsets, or on a carrier topic where the sources are elsewhere.

use super::scene::{Hosted, On, PATIENCE, Scene};
use crate::command_line::Ended;
use std::{fs, thread};
use xtask::{
    hapax::Run,
    judge::{GroupOffset, Judge},
    kafka::Version,
};

const PARTITIONS: u32 = 8;
const DECIDER: &str = "decider = \"transaction\"\n";
/// Where a change can die: cleared; its offsets sent; EndTxn sent; committed and not told.
const POINTS: [&str; 4] = ["R1", "L0", "K3", "L1"];

fn scene(name: &str, on: On) -> Scene {
    let mut scene = Scene::with_top(&format!("carried-{name}"), on, PARTITIONS, DECIDER);
    scene.feed("in", 20);
    scene
}

impl Scene {
    fn marks(&self) -> Vec<GroupOffset> {
        let mut offsets = Judge::shared().group_offsets(&self.bootstrap, &self.job).unwrap();
        offsets.retain(|offset| !offset.metadata.is_empty());
        offsets
    }

    /// The number of shards that all bookmarks tell of.
    fn shards_now(&self) -> u64 {
        let of = |mark: &GroupOffset| {
            let body = mark.metadata.strip_prefix("hapax 1 ").unwrap();
            serde_json::from_str::<serde_json::Value>(body).unwrap()["shards"].as_u64().unwrap()
        };
        let mut found: Vec<u64> = self.marks().iter().map(of).collect();
        found.dedup();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0]
    }

    fn has_been_given(&self, ended: &Ended, shards: u32) {
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.out.contains(&format!("has {shards} shards (it had")), "{}", ended.out);
        assert_eq!(self.shards_now(), u64::from(shards));
    }

    /// Dies until a transaction of one of the shards from this one on is open: which is the first is up to the threads.
    fn die_with_open_shards(&mut self, from: u32) {
        let shard = |id: &String| id.rsplit('.').nth(1).unwrap().parse::<u32>().unwrap();
        for reach in 3..13 {
            self.die(&format!("K1o:{}", 3 + reach % 5), &[]);
            if self.open().iter().any(|id| shard(id) >= from) {
                return;
            }
            self.feed("in", 5);
        }
        panic!("nothing is open in shards from {from} on: {:?}", self.open());
    }

    fn go_on(&mut self) {
        self.feed("in", 10);
        let log = self.catch_up(&["in"], &[]);
        assert!(!log.contains("E04"), "{log}");
        self.assert_copied("out", &["in"]);
    }
}

/// The point's first reach in the change, not in an epoch that came before it.
fn dies(scene: &Scene, shards: u32, point: &str) {
    let ended = scene.shards(shards, &["--crash-at", point]);
    assert_eq!(ended.code, None, "{point}: {}", ended.err);
    assert!(ended.err.contains(&format!("crash point {point} reached")), "{}", ended.err);
}

fn four_to_seven_to_two(on: On, left: &str) {
    let mut scene = scene(&format!("472-{left}").to_lowercase(), on);
    scene.die(&format!("{left}:2"), &["--set", "run.shards=4"]);
    scene.has_been_given(&scene.shards(7, &[]), 7);
    scene.assert_settled();

    // The first run of the layout dies before it has committed anything, with transactions open in shards 4 to 6.
    scene.feed("in", 20);
    scene.die_with_open_shards(2);
    scene.has_been_given(&scene.shards(2, &[]), 2);
    scene.assert_settled();
    scene.go_on();
    scene.go_on();
}

#[test]
fn shards_go_from_4_to_7_to_2_with_transactions_open_in_those_that_vanish() {
    for on in On::OURS {
        for left in ["K0", "K1o", "K4"] {
            four_to_seven_to_two(on, left);
        }
    }
}

#[test]
fn on_apache_kafka_too_shards_go_from_4_to_7_to_2() {
    thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || four_to_seven_to_two(On::Kafka(version), "K1o"));
        }
    });
}

/// The layout is the old one or the next one, whole, wherever the command dies; and a job that is started then goes on.
#[test]
fn the_command_that_dies_at_any_point_leaves_one_layout_or_the_other() {
    for (on, point) in On::OURS.into_iter().flat_map(|on| POINTS.map(|point| (on, point))) {
        let mut scene = scene(&format!("dies-{point}").to_lowercase(), on);
        scene.die("K1o:3", &["--set", "run.shards=4"]);
        dies(&scene, 7, point);
        scene.assert_settled_or_taken();
        scene.go_on();
        let now = scene.shards_now();
        match point {
            "R1" | "L0" => assert_eq!(now, 4, "{point}"),
            "L1" => assert_eq!(now, 7, "{point}"),
            _ => assert!(now == 4 || now == 7, "{point}: {now}"),
        }
        let ended = scene.shards(7, &[]);
        assert_eq!((ended.code, scene.shards_now()), (Some(0), 7), "{point}: {}", ended.err);
        scene.go_on();
    }
}

impl Scene {
    /// Whatever the dead command has left open, the next start ends: here only that the broker can be asked.
    fn assert_settled_or_taken(&self) {
        let open = self.open();
        assert!(open.len() <= 1, "a change opens one transaction: {open:?}");
    }
}

/// A run that slept in its epoch across the change is another layout's.
#[test]
fn a_run_that_slept_across_a_change_commits_nothing_of_its_layout() {
    for on in On::OURS {
        for point in ["K0", "K1", "K1o", "K3"] {
            let mut scene = scene(&format!("across-{point}").to_lowercase(), on);
            let at = format!("{point}:3:stop");
            let mut asleep = scene.start("asleep", &["--set", "run.shards=4", "--crash-at", &at]);
            asleep.until("it sleeps", PATIENCE, |run| Ok(run.crash_point(point)?.is_some())).unwrap();
            scene.has_been_given(&scene.shards(2, &[]), 2);
            scene.go_on();
            asleep.process().signal("CONT").unwrap();
            let status = asleep.wait(PATIENCE).unwrap();
            assert_eq!(status.code(), Some(5), "{}", asleep.failure("another end"));
            scene.go_on();
        }
    }
}

/// A start that sleeps between its clearing and its first look at progress, and one that sleeps in a change of its own.
#[test]
fn a_change_that_slept_behind_its_clearing_or_its_offsets_is_fenced_by_another() {
    for on in On::OURS {
        for point in ["R1", "L0"] {
            let mut scene = scene(&format!("slept-{point}").to_lowercase(), on);
            scene.die("K1o:3", &["--set", "run.shards=4"]);
            let mut asleep = command(&scene, 7, &format!("{point}:1:stop"));
            asleep.until("it sleeps", PATIENCE, |run| Ok(run.crash_point(point)?.is_some())).unwrap();
            scene.has_been_given(&scene.shards(2, &[]), 2);
            scene.go_on();
            asleep.process().signal("CONT").unwrap();
            let status = asleep.wait(PATIENCE).unwrap();
            assert_eq!(status.code(), Some(5), "{}", asleep.failure("another end"));
            assert_eq!(scene.shards_now(), 2, "what was said later counts");
            scene.go_on();
        }
    }
}

/// The same while the job goes on under the layout that it was to leave: the command says itself again.
#[test]
fn a_change_that_slept_while_the_job_was_started_is_done_when_it_wakes_and_ends_that_run() {
    for on in On::OURS {
        let mut scene = scene("woken", on);
        scene.die("K1o:3", &["--set", "run.shards=4"]);
        let mut asleep = command(&scene, 7, "L0:1:stop");
        asleep.until("it sleeps", PATIENCE, |run| Ok(run.crash_point("L0")?.is_some())).unwrap();
        let mut alive = scene.start("alive", &[]);
        scene.until_copied(&mut alive, "out", &["in"]);
        asleep.process().signal("CONT").unwrap();
        asleep.demand_exit(0, PATIENCE).unwrap();
        alive.demand_exit(5, PATIENCE).unwrap();
        assert_eq!(scene.shards_now(), 7);
        scene.go_on();
    }
}

fn command(scene: &Scene, shards: u32, crash_at: &str) -> Run {
    let mut command = std::process::Command::new(crate::harness::binary());
    command.args(["job", "shards", scene.file(), &shards.to_string(), "--crash-at", crash_at]);
    Run::of(command, &scene.bench.path("asleep.log")).unwrap()
}

#[test]
fn of_two_commands_at_once_the_last_one_counts_and_none_is_half_done() {
    for round in 0..4 {
        let mut scene = scene(&format!("two-{round}"), On::OURS[round % 2]);
        scene.die("K1o:3", &["--set", "run.shards=4"]);
        let ended = thread::scope(|scope| {
            let scene = &scene;
            [7, 2].map(|count| scope.spawn(move || scene.shards(count, &[]))).map(|one| one.join().unwrap())
        });
        assert!(ended.iter().all(|one| matches!(one.code, Some(0 | 5))), "{}{}", ended[0].err, ended[1].err);
        assert!(ended.iter().any(|one| one.code == Some(0)), "one of them was last");
        assert!([2, 7].contains(&scene.shards_now()));
        scene.go_on();
    }
}

#[test]
fn a_run_that_works_ends_with_exit_code_5() {
    for on in On::OURS {
        let mut scene = scene("works", on);
        let mut alive = scene.start("alive", &["--set", "run.shards=4"]);
        scene.until_copied(&mut alive, "out", &["in"]);
        scene.has_been_given(&scene.shards(3, &[]), 3);
        alive.demand_exit(5, PATIENCE).unwrap();
        scene.go_on();
    }
}

#[test]
fn another_number_in_the_file_alone_is_refused_with_the_command() {
    let scene = scene("refused", On::Ours(2));
    scene.shards(4, &[]).says(2, "no such job");
    scene.catch_up(&["in"], &["--set", "run.shards=4"]);
    let before = scene.marks();
    scene.bench.run(&["--set", "run.shards=7"]).says(2, "hapax job shards FILE 7");
    scene.shards(0, &[]).says(2, "E0202");
    let ended = scene.shards(4, &[]);
    assert!(ended.code == Some(0) && ended.out.contains("nothing was changed"), "{}", ended.err);
    assert_eq!(scene.marks(), before, "nothing was committed");
}

/// What the bookmarks tell is all that there is of a job without a store.
#[test]
fn without_a_store_shards_and_topics_change_alike() {
    for on in On::OURS {
        let mut scene = scene("storeless", on);
        scene.forget_store();
        scene.die("K1o:3", &["--set", "run.shards=4"]);
        scene.has_been_given(&scene.shards(7, &[]), 7);
        scene.create("more", PARTITIONS);
        scene.feed("more", 10);
        scene.write(&scene.pipeline(&["in", "more"], ""));
        scene.forget_store();
        let log = scene.catch_up(&["in", "more"], &[]);
        assert!(log.contains("reads from here on, from the first record"), "{log}");
        assert_eq!(scene.shards_now(), 7);
        scene.has_been_given(&scene.shards(2, &[]), 2);
        scene.feed("more", 10);
        scene.catch_up(&["in", "more"], &[]);
        scene.assert_copied("out", &["in", "more"]);
    }
}

impl Scene {
    fn forget_store(&self) {
        let text = fs::read_to_string(&self.bench.file).unwrap();
        let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("store =")).collect();
        self.write(&without.join("\n"));
    }
}

#[test]
fn a_topic_that_is_added_is_read_from_its_start_wherever_the_start_dies_that_takes_it_in() {
    for (on, point) in On::OURS.into_iter().flat_map(|on| POINTS.map(|point| (on, point))) {
        let mut scene = scene(&format!("added-{point}").to_lowercase(), on);
        scene.catch_up(&["in"], &[]);
        scene.create("more", PARTITIONS);
        scene.feed("more", 20);
        let text = scene.pipeline(&["in", "more"], "").replace("[[sink]]", "start = \"latest\"\n[[sink]]");
        scene.write(&text);
        scene.die(&format!("{point}:1"), &[]);
        scene.feed("more", 20);
        let log = scene.catch_up(&["in", "more"], &[]);
        let is_taken_in = log.contains("reads from here on, from the first record");
        match point {
            "R1" | "L0" => assert!(is_taken_in, "{point}: nothing was committed: {log}"),
            "L1" => assert!(!is_taken_in, "{point}: it was committed: {log}"),
            _ => {}
        }
        scene.assert_copied("out", &["in", "more"]);
        scene.feed("more", 5);
        scene.catch_up(&["in", "more"], &[]);
        scene.assert_copied("out", &["in", "more"]);
    }
}

#[test]
fn partitions_added_to_a_source_topic_are_read_from_their_start() {
    for on in On::OURS {
        let mut scene = scene("partitions", on);
        scene.die("K1o:6", &[]);
        scene.add_partitions("in", 11);
        Judge::shared().add_partitions(&scene.bootstrap, &scene.topic("out"), 11).unwrap();
        scene.feed("in", 10);
        let log = scene.catch_up(&["in"], &[]);
        assert!(log.contains("is read from the first record of each new one on"), "{log}");
        scene.assert_copied("out", &["in"]);
        assert_eq!(scene.marks().len(), 11);
    }
}

#[test]
fn a_topic_that_is_taken_out_is_refused_until_it_is_dropped_and_comes_back_from_its_start() {
    for on in On::OURS {
        let mut scene = scene("removed", on);
        scene.create("old", PARTITIONS);
        scene.write(&scene.pipeline(&["in", "old"], ""));
        scene.feed("old", 20);
        scene.catch_up(&["in", "old"], &[]);
        scene.write(&scene.pipeline(&["in"], ""));
        let (before, old) = (scene.marks(), scene.topic("old"));
        scene.bench.run(&[]).says(2, &format!("hapax run FILE --drop {old}"));
        scene.bench.run(&["--drop", &scene.topic("in"), "--drop", &old]).says(2, "still reads it");
        assert_eq!(scene.marks(), before, "nothing was committed");

        scene.feed("in", 10);
        let log = scene.catch_up(&["in"], &["--drop", &old]);
        assert!(log.contains("has forgotten the positions of"), "{log}");
        assert_eq!(scene.marks().len(), PARTITIONS as usize, "its bookmarks are taken off");
        scene.feed("in", 10);
        let log = scene.catch_up(&["in"], &["--drop", &old]);
        assert!(!log.contains("forgotten"), "said twice it does nothing: {log}");

        // It has no position any more, so it comes whole.
        scene.write(&scene.pipeline(&["in", "old"], ""));
        let mut run = scene.start("back", &[]);
        let wanted = (40 + 20 + 20) * PARTITIONS as usize;
        run.until("comes back", PATIENCE, |_| Ok(scene.read("out").concat().len() >= wanted)).unwrap();
        run.process().signal("TERM").unwrap();
        run.demand_exit(0, PATIENCE).unwrap();
        assert_eq!(scene.read("out").concat().len(), wanted);
    }
}

/// Positions move from the group's own offsets to a carrier topic and back, with what the sources need.
#[test]
fn a_source_that_is_elsewhere_takes_positions_to_a_carrier_topic_and_back() {
    for level in [0, 2] {
        let mut scene = scene("elsewhere", On::Ours(level));
        scene.catch_up(&["in"], &["--set", "run.shards=4"]);
        let plain = scene.pipeline(&["in"], "");
        let generated =
            "[[source]]\nname = \"made\"\ngenerator = { rate = 50, value = 'made-0-$id' }\n[[sink]]";
        scene.write(&plain.replace("[[sink]]", generated));
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        let carrier = format!("{}.progress", scene.job);
        let marks = scene.marks();
        assert!(marks.len() == 4 && marks.iter().all(|mark| mark.topic == carrier), "{marks:?}");
        scene.has_been_given(&scene.shards(9, &[]), 9);
        assert_eq!(scene.marks().len(), 9);
        scene.has_been_given(&scene.shards(3, &[]), 3);
        assert_eq!(scene.marks().len(), 3, "former places are given up");
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        scene.write(&plain);
        scene.bench.run(&[]).says(2, "--drop made");
        scene.feed("in", 10);
        scene.catch_up(&["in"], &["--drop", "made"]);
        let marks = scene.marks();
        assert!(marks.iter().all(|mark| mark.topic == scene.topic("in")), "{marks:?}");
        scene.assert_settled();
        let of_input = scene.count("out", &["in"]);
        assert_eq!(of_input, 50 * PARTITIONS as usize, "each once");
    }
}

/// On a carrier topic the source is on another cluster than the offsets.
#[test]
fn on_a_carrier_topic_shards_go_from_4_to_7_to_2_too() {
    for on in On::OURS {
        let mut scene = scene("carrier", on);
        let text = scene.pipeline(&["in"], "");
        let generated =
            "[[source]]\nname = \"made\"\ngenerator = { rate = 20, value = 'made-0-$id' }\n[[sink]]";
        scene.write(&text.replace("[[sink]]", generated));
        scene.die("K1o:3", &["--set", "run.shards=4"]);
        for point in POINTS {
            dies(&scene, 7, point);
            let ended = scene.shards(4, &[]);
            assert_eq!((ended.code, scene.shards_now()), (Some(0), 4), "{point}: {}", ended.err);
            let (is_done, is_unchanged) =
                (ended.out.contains("(it had 7)"), ended.out.contains("nothing was changed"));
            match point {
                "R1" | "L0" => assert!(is_unchanged, "{point}: {}", ended.out),
                "L1" => assert!(is_done, "{point}: {}", ended.out),
                _ => assert!(is_done || is_unchanged, "{point}: {}", ended.out),
            }
        }
        scene.has_been_given(&scene.shards(7, &[]), 7);
        scene.feed("in", 10);
        scene.die("K1o:6", &[]);
        scene.has_been_given(&scene.shards(2, &[]), 2);
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        scene.assert_settled();
        assert_eq!(scene.count("out", &["in"]), 40 * PARTITIONS as usize, "each once");
    }
}

/// Another cluster under the name is another job's offsets.
#[test]
fn another_cluster_has_no_layout_to_change() {
    let scene = scene("foreign", On::Ours(2));
    scene.forget_store();
    scene.catch_up(&["in"], &[]);
    let other = Hosted::start(2, 9);
    let text = fs::read_to_string(&scene.bench.file).unwrap();
    scene.write(&text.replace(&scene.bootstrap, &other.broker.bootstrap()));
    for what in ["in", "out"] {
        Judge::shared().create_topic(&other.broker.bootstrap(), &scene.topic(what), PARTITIONS, &[]).unwrap();
    }
    scene.shards(3, &[]).says(2, "no such job");
}
