//! A stopped job gets another number of shards (H17, H19): nothing is lost, nothing twice, nothing stays open.

use super::scene::{On, PATIENCE, Scene};
use crate::command_line::hapax;
use std::{fs, thread};
use xtask::{
    judge::{Judge, Outcome, Record},
    kafka::Version,
};

/// Input partitions: each of seven shards has one.
const PARTITIONS: u32 = 8;

/// How a run is left before the next change.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// An epoch is decided, and its transactions are prepared in every shard.
    Prepared,
    /// Some of its transactions are committed.
    Mixed,
    /// Transactions are open in every shard, and nothing is decided.
    Undecided,
}

impl Left {
    const ALL: [Self; 3] = [Self::Prepared, Self::Mixed, Self::Undecided];

    fn crash_at(self) -> &'static str {
        match self {
            Self::Prepared => "K2:1",
            Self::Mixed => "K2b:1",
            Self::Undecided => "K1:1",
        }
    }
}

fn four_to_seven_to_two(on: On, left: Left) {
    let mut scene = Scene::new(&format!("472-{left:?}").to_lowercase(), on, PARTITIONS);
    let text = fs::read_to_string(&scene.bench.file).unwrap();
    scene.feed("in", 20);
    scene.die(left.crash_at(), &["--set", "run.shards=4"]);
    assert!(!scene.open().is_empty(), "the crash leaves transactions open");

    let ended = scene.shards(7, &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("has 7 shards (it had 4): layout 2"), "{}", ended.out);
    scene.assert_settled();

    // The first run of the new layout dies before its first manifest, with transactions open in shards 4 to 6.
    scene.feed("in", 20);
    let of_vanishing = |id: &String| {
        let shard: u32 = id.rsplit('.').nth(1).unwrap().parse().unwrap();
        shard >= 2
    };
    scene.die_undecided(of_vanishing);
    assert!(scene.open().iter().any(of_vanishing), "{:?}", scene.open());

    let ended = scene.shards(2, &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    scene.assert_settled();
    scene.feed("in", 20);
    let log = scene.catch_up(&["in"], &["--set", "run.shards=2"]);
    assert!(!log.contains("E0"), "{log}");
    scene.assert_copied("out", &["in"]);
    assert_eq!(fs::read_to_string(&scene.bench.file).unwrap(), text, "the file is the person's");
}

#[test]
fn shards_go_from_4_to_7_to_2_with_transactions_open_in_those_that_vanish() {
    for (on, left) in On::OURS.into_iter().flat_map(|on| Left::ALL.map(|left| (on, left))) {
        four_to_seven_to_two(on, left);
    }
}

#[test]
fn on_apache_kafka_too_shards_go_from_4_to_7_to_2() {
    thread::scope(|scope| {
        for version in Version::ALL {
            for left in Left::ALL {
                scope.spawn(move || four_to_seven_to_two(On::Kafka(version), left));
            }
        }
    });
}

/// The claim, the proof of what was in doubt, and the revision itself: before and behind each.
#[test]
fn the_command_that_dies_at_any_of_its_puts_is_said_again_and_ends_in_the_same_place() {
    for on in On::OURS {
        for (point, is_done) in [
            ("R0", false),
            ("R1", false),
            ("R2", false),
            ("R3", false),
            ("R5", false),
            ("R6", false),
            ("L0", false),
            ("L1", true),
        ] {
            let mut scene = Scene::new(&format!("dies-{}", point.to_lowercase()), on, PARTITIONS);
            scene.feed("in", 20);
            scene.die("K2:1", &["--set", "run.shards=4"]);
            let ended = scene.shards(7, &["--crash-at", point]);
            assert_eq!(ended.code, None, "{point}: {}", ended.err);
            assert!(ended.err.contains(&format!("crash point {point} reached")), "{}", ended.err);
            assert_eq!((scene.has_shards(4), scene.has_shards(7)), (!is_done, is_done), "{point}");

            // A job that is started in between goes on under whichever layout counts.
            scene.feed("in", 10);
            scene.catch_up(&["in"], &[]);
            scene.assert_copied("out", &["in"]);

            let ended = scene.shards(7, &[]);
            assert_eq!(ended.code, Some(0), "{point}: {}", ended.err);
            assert!(scene.has_shards(7));
            scene.feed("in", 10);
            scene.catch_up(&["in"], &[]);
            scene.assert_copied("out", &["in"]);
        }
    }
}

/// A job is begun anew and its first run dies before its claim: the command that claims it then takes over what the life
/// before has left open, also on shards that the job has no more.
#[test]
fn the_command_that_is_the_first_to_claim_a_life_ends_what_the_one_before_left_open() {
    for on in On::OURS {
        let mut scene = Scene::new("first-claim", on, PARTITIONS);
        scene.feed("in", 20);
        scene.die("K2:1", &["--set", "run.shards=4"]);
        scene.die("K2:1", &["--fresh", "--set", "run.shards=1"]);
        fs::remove_dir_all(scene.bench.path("store").join(&scene.job).join("2").join("chain")).unwrap();
        let (id, records) = (format!("{}.main.3.0", scene.job), [Record::value("nobody's")]);
        let topic = scene.topic("out");
        let judge = Judge::shared();
        judge
            .produce_transactional(&scene.bootstrap, &topic, &records, &id, PATIENCE, Outcome::Open)
            .unwrap();
        assert!(scene.open().contains(&id), "{:?}", scene.open());
        let ended = scene.shards(2, &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(!scene.open().contains(&id), "{:?}", scene.open());
    }
}

#[test]
fn of_two_commands_at_once_each_is_done_or_finds_itself_superseded() {
    let mut superseded = 0;
    for round in 0..4 {
        let mut scene = Scene::new(&format!("two-{round}"), On::OURS[round % 2], PARTITIONS);
        scene.feed("in", 20);
        scene.die("K2:1", &["--set", "run.shards=4"]);
        let ended = thread::scope(|scope| {
            [7, 2]
                .map(|count| {
                    scope.spawn({
                        let scene = &scene;
                        move || scene.shards(count, &[])
                    })
                })
                .map(|one| one.join().unwrap())
        });
        for one in &ended {
            match one.code {
                Some(0) => {}
                Some(5) => superseded += 1,
                other => panic!("{other:?}: {}", one.err),
            }
        }
        assert!(ended.iter().any(|one| one.code == Some(0)), "one of them was last");
        assert!(scene.has_shards(7) != scene.has_shards(2), "and what it said counts");
        scene.feed("in", 10);
        scene.catch_up(&["in"], &[]);
        scene.assert_copied("out", &["in"]);
    }
    println!("{superseded} of 8 commands were superseded");
}

/// A command that sleeps right before its slot, while another one is done: it must not change anything when it wakes.
#[test]
fn a_command_that_slept_before_its_slot_finds_itself_superseded() {
    for on in On::OURS {
        let mut scene = Scene::new("slept", on, PARTITIONS);
        scene.feed("in", 20);
        scene.die("K2:1", &["--set", "run.shards=4"]);
        let mut command = std::process::Command::new(crate::harness::binary());
        command.args(["job", "shards", scene.file(), "7", "--crash-at", "L0:1:stop"]);
        let mut asleep = xtask::hapax::Run::of(command, &scene.bench.path("asleep.log")).unwrap();
        asleep.until("it sleeps", PATIENCE, |run| Ok(run.crash_point("L0")?.is_some())).unwrap();
        let ended = scene.shards(2, &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        asleep.process().signal("CONT").unwrap();
        asleep.demand_exit(5, PATIENCE).unwrap();
        assert!(scene.has_shards(2));
        scene.catch_up(&["in"], &[]);
        scene.assert_copied("out", &["in"]);
    }
}

/// The command claims the job: the run ends, and what it had decided is committed by the command.
#[test]
fn a_run_that_is_alive_ends_and_its_epoch_is_resolved() {
    for on in On::OURS {
        let mut scene = Scene::new("alive", on, PARTITIONS);
        scene.feed("in", 20);
        let mut alive = scene.start("alive", &["--set", "run.shards=4", "--crash-at", "K2:1:stop"]);
        alive.until("it stops", PATIENCE, |run| Ok(run.crash_point("K2")?.is_some())).unwrap();
        let ended = scene.shards(7, &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("resumed"), "{}", ended.err);
        scene.assert_settled();
        let decided = scene.read("out").concat().len();
        assert!(decided > 0, "what was decided is visible");
        alive.process().signal("CONT").unwrap();
        alive.demand_exit(5, PATIENCE).unwrap();
        assert_eq!(scene.read("out").concat().len(), decided, "the woken run changes nothing");
        scene.catch_up(&["in"], &[]);
        scene.assert_copied("out", &["in"]);
    }
}

/// A run that works, not one that sleeps.
#[test]
fn a_run_that_works_ends_with_exit_code_5() {
    let mut scene = Scene::new("works", On::Ours(2), PARTITIONS);
    scene.feed("in", 20);
    let mut alive = scene.start("alive", &["--set", "run.shards=4"]);
    scene.until_copied(&mut alive, "out", &["in"]);
    let ended = scene.shards(3, &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    alive.demand_exit(5, PATIENCE).unwrap();
    scene.feed("in", 10);
    scene.catch_up(&["in"], &[]);
    scene.assert_copied("out", &["in"]);
}

#[test]
fn another_number_in_the_file_alone_is_refused_with_the_command() {
    let mut scene = Scene::new("refused", On::Ours(2), PARTITIONS);
    scene.feed("in", 20);
    scene.catch_up(&["in"], &["--set", "run.shards=4"]);
    let before = scene.chain();
    scene.bench.run(&["--set", "run.shards=7"]).says(2, "hapax job shards FILE 7");
    scene.shards(0, &[]).says(2, "E0202");
    scene.shards(10_001, &[]).says(2, "E0202");
    let ended = scene.shards(4, &[]);
    assert!(ended.code == Some(0) && ended.out.contains("nothing was changed"), "{}", ended.err);
    hapax(&["job", "shards", scene.file(), "7", "--set", "job=other"]).says(2, "has no such job");
    assert_eq!(scene.chain(), before, "nothing was claimed");
}
