//! A broker that goes silent for good while records wait for its acknowledgement (FLINK-33545), with nobody writing
//! meanwhile (FLINK-35749).
//!
//! A broker of its own of each version plays the scene once for many jobs; each test asserts one promise of what was
//! seen.
//!
//! ```text
//! 1..96 in the log -> silence -> 97..100 handed over, barrier -> what jobs do -> some are killed -> the broker is back
//! ```

use super::{
    case::{Case, GUARANTEED, Outcome},
    eventually,
    running::{OnReach, Running},
    scripted::Scripted,
};
use hapax::{Guarantee, ProducerSettings, Progress, Summary, crash::Point};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use xtask::kafka::{Cluster, Version};

const READ_BEFORE: u64 = 96;
const ALL: u64 = 100;
/// What separates a delivery timeout from the moment that the log tells of it, on a loaded machine.
const SLACK: Duration = Duration::from_secs(20);

/// How records wait when the silence begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// Sent within the linger of 5 ms, and not answered; the barrier comes right behind.
    Unanswered,
    /// In an open batch with a long linger when the barrier comes; the silence begins at the barrier.
    Batched,
    /// Sent and not answered; no barrier, no write and no flush follows.
    Idle,
    /// As `Unanswered`, with `delivery_timeout = "never"`.
    ForEver,
}

/// One job of the scene and what was seen of it.
struct Actor {
    waiting: Waiting,
    case: Case,
    /// Barriers that reached the shard with all records handed over.
    barriers: Arc<AtomicU64>,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    /// The line that tells how the first run ended, and how long after the last record.
    first_end: Option<(String, Duration)>,
    barriers_before_end: u64,
    /// Records that the newest manifest covered when the broker was still silent.
    covered: u64,
    /// How the job stood then.
    progress: Progress,
    /// How it ended.
    end: Option<(Summary, Outcome)>,
}

impl Actor {
    fn end(&self) -> &(Summary, Outcome) {
        self.seen.end.as_ref().expect("every job of the scene has ended")
    }

    /// Notes that the first run has ended, if the log says so by now.
    fn notice_end(&mut self, began: Instant) -> bool {
        if self.seen.first_end.is_none() {
            self.seen.barriers_before_end = self.barriers.load(Ordering::SeqCst);
            let line = self.case.log("the run ended").into_iter().next();
            self.seen.first_end = line.map(|line| (line, began.elapsed()));
        }
        self.seen.first_end.is_some()
    }
}

struct Scene {
    actors: Vec<Actor>,
    /// The job without a guarantee, which ended while the broker was silent.
    none: Summary,
}

impl Scene {
    fn of(&self, waiting: Waiting) -> impl Iterator<Item = &Actor> {
        self.actors.iter().filter(move |actor| actor.waiting == waiting)
    }
}

/// The scene on each version, played once. A failure in it fails every test here, once.
fn scenes() -> &'static [Scene] {
    static SCENES: OnceLock<Option<Vec<Scene>>> = OnceLock::new();
    let played = SCENES.get_or_init(|| {
        let playing = Version::ALL.map(|version| thread::spawn(move || play(version)));
        playing.into_iter().map(|scene| scene.join().ok()).collect()
    });
    played.as_ref().expect("the scenes could be played; their own panic is printed above")
}

fn actors(waiting: Waiting) -> impl Iterator<Item = &'static Actor> {
    scenes().iter().flat_map(move |scene| scene.of(waiting))
}

fn producer(waiting: Waiting) -> ProducerSettings {
    let (linger_ms, delivery_timeout) = match waiting {
        Waiting::Unanswered | Waiting::Idle => (5, Some(4)),
        Waiting::Batched => (6_000, Some(8)),
        Waiting::ForEver => (5, None),
    };
    ProducerSettings {
        linger: Duration::from_millis(linger_ms),
        delivery_timeout: delivery_timeout.map(Duration::from_secs),
        ..ProducerSettings::default()
    }
}

fn actor(bootstrap: &str, waiting: Waiting, guarantee: Guarantee) -> Actor {
    // An idle job has records to come, so that its end brings no barrier.
    let end = if waiting == Waiting::Idle { ALL + 10 } else { ALL };
    let source = Scripted::new(1, end);
    let name = format!("silence-{waiting:?}-{guarantee:?}").to_lowercase();
    let mut case = Case::new(&name, bootstrap, guarantee, source);
    case.producer = producer(waiting);
    if waiting == Waiting::Idle {
        case.settings.interval = Duration::from_secs(120);
    }
    Actor { waiting, case, barriers: Arc::default(), seen: Seen::default() }
}

/// Counts barriers behind the last record; under `Batched` the first of them silences the broker.
fn at_the_barrier(actor: &Actor, cluster: &Arc<Cluster>, silent: &Arc<AtomicBool>) -> OnReach {
    let (source, barriers) = (actor.case.source.clone(), actor.barriers.clone());
    let (cluster, silent) = (cluster.clone(), silent.clone());
    let silences = actor.waiting == Waiting::Batched;
    OnReach::new(move |point, _| {
        if point != Point::K0BeforeFlush || source.handed() < ALL {
            return;
        }
        if silences && !silent.load(Ordering::SeqCst) {
            cluster.pause(1).unwrap();
            silent.store(true, Ordering::SeqCst);
        }
        barriers.fetch_add(1, Ordering::SeqCst);
    })
}

fn play(version: Version) -> Scene {
    let cluster = Arc::new(Cluster::builder(version).start().unwrap());
    let bootstrap = cluster.bootstrap();
    let silent = Arc::new(AtomicBool::new(false));
    let every = [Waiting::Unanswered, Waiting::Batched, Waiting::Idle, Waiting::ForEver];
    let pairs = every.into_iter().flat_map(|waiting| GUARANTEED.map(|guarantee| (waiting, guarantee)));
    let mut actors: Vec<Actor> =
        pairs.map(|(waiting, guarantee)| actor(&bootstrap, waiting, guarantee)).collect();
    let mut none = Case::new("silence-none", &bootstrap, Guarantee::None, Scripted::new(1, ALL));
    none.producer = producer(Waiting::Unanswered);

    let start = |actor: &Actor| Running::start(actor.case.plan(), at_the_barrier(actor, &cluster, &silent));
    let running: Vec<Running> = actors.iter().map(start).collect();
    let none_running = none.start();
    let cases = || actors.iter().map(|actor| &actor.case).chain([&none]);
    cases().for_each(|case| case.source.allow(READ_BEFORE));
    cases().for_each(|case| case.await_in_log(READ_BEFORE));

    let (batched, others): (Vec<_>, Vec<_>) =
        actors.iter().partition(|actor| actor.waiting == Waiting::Batched);
    batched.iter().for_each(|actor| actor.case.source.allow(ALL));
    eventually("the silence begins at a barrier", || silent.load(Ordering::SeqCst).then_some(()));
    let began = Instant::now();
    others.iter().map(|actor| &actor.case).chain([&none]).for_each(|case| case.source.allow(ALL));

    observe(&mut actors, began);
    let none = none_running.ended().finished();
    for (actor, running) in actors.iter_mut().zip(&running) {
        actor.seen.covered = actor.case.covered();
        actor.seen.progress = running.progress();
    }
    come_back(&cluster, &mut actors, running);
    Scene { actors, none }
}

/// Waits until every job has done what it does about the silence.
fn observe(actors: &mut [Actor], began: Instant) {
    eventually("every job ends its run, or says that it waits", || {
        let mut all = true;
        for actor in actors.iter_mut() {
            all &= match actor.waiting {
                Waiting::ForEver => !actor.case.log("records not acknowledged yet, waiting on").is_empty(),
                Waiting::Unanswered | Waiting::Batched | Waiting::Idle => actor.notice_end(began),
            };
        }
        all.then_some(())
    });
}

/// Some jobs are killed and started again on the broker that is back; the others have to go on by themselves.
fn come_back(cluster: &Cluster, actors: &mut [Actor], running: Vec<Running>) {
    let pairs = actors.iter().zip(running);
    let kept: Vec<Option<Running>> = pairs
        .map(|(actor, running)| {
            if actor.waiting == Waiting::Unanswered {
                running.kill();
                return None;
            }
            Some(running)
        })
        .collect();
    cluster.resume(1).unwrap();
    actors.iter().for_each(|actor| actor.case.source.allow(actor.case.source.end));
    let again: Vec<Running> = actors
        .iter()
        .zip(kept)
        .map(|(actor, running)| running.unwrap_or_else(|| actor.case.start()))
        .collect();
    for (actor, running) in actors.iter_mut().zip(again) {
        let summary = running.ended().finished();
        actor.seen.end = Some((summary, actor.case.outcome()));
    }
}

/// Seconds behind `not acknowledged after`.
fn age(line: &str) -> f64 {
    let (_, behind) = line.split_once("not acknowledged after ").unwrap();
    behind.split_once("s,").unwrap().0.parse().unwrap()
}

#[test]
fn a_checkpoint_over_unacknowledged_records_does_not_complete_when_the_broker_goes_silent() {
    for waiting in [Waiting::Unanswered, Waiting::Batched] {
        for actor in actors(waiting) {
            assert!(actor.seen.barriers_before_end > 0, "{}: the barrier came", actor.case.name);
            assert!(actor.seen.covered <= READ_BEFORE, "{}: {}", actor.case.name, actor.seen.covered);
        }
    }
}

#[test]
fn silence_ends_the_run_in_time_and_the_error_names_partition_count_and_age() {
    for waiting in [Waiting::Unanswered, Waiting::Batched, Waiting::Idle] {
        for actor in actors(waiting) {
            let (line, after) = actor.seen.first_end.as_ref().unwrap();
            let limit = actor.case.producer.delivery_timeout.unwrap();
            let wanted = format!("writing 4 records to {}-0 in epoch", actor.case.name);
            assert!(line.contains(&wanted), "{line}");
            let age = age(line);
            assert!(age >= limit.as_secs_f64() && age < (limit + SLACK).as_secs_f64(), "{line}");
            assert!(*after < limit + SLACK, "{after:?}: {line}");
        }
    }
}

#[test]
fn after_the_silence_every_record_is_there() {
    for actor in scenes().iter().flat_map(|scene| &scene.actors) {
        let (summary, outcome) = actor.end();
        outcome.assert_complete();
        match actor.waiting {
            // A process of its own, on a healthy broker.
            Waiting::Unanswered => {}
            // The same process, by another run.
            Waiting::Batched | Waiting::Idle => assert!(summary.progress.runs > 1, "{summary:?}"),
            Waiting::ForEver => assert_eq!(summary.progress.runs, 1, "{summary:?}"),
        }
    }
}

#[test]
fn without_a_delivery_timeout_a_run_waits_for_the_broker_and_says_so() {
    for actor in actors(Waiting::ForEver) {
        let name = &actor.case.name;
        assert!(actor.barriers.load(Ordering::SeqCst) > 0, "{name}: the barrier came");
        assert!(actor.seen.covered <= READ_BEFORE, "{name}: {}", actor.seen.covered);
        assert_eq!(actor.seen.progress.runs, 1, "{name}: no run was given up");
        let said = actor.case.log("records not acknowledged yet, waiting on");
        let whole = |line: &String| line.contains(&format!("{name}-0")) && line.contains("records=4");
        assert!(said.iter().all(whole), "{said:?}");
    }
}

/// FLINK-35749: the error was put where only the next write or flush would have looked.
#[test]
fn an_error_that_arrives_while_nothing_is_written_ends_the_run() {
    for actor in actors(Waiting::Idle) {
        let (line, _) = actor.seen.first_end.as_ref().unwrap();
        assert_eq!(actor.seen.barriers_before_end, 0, "no flush found the error: {line}");
        assert_eq!(actor.seen.covered, 0, "{}", actor.case.name);
    }
}

#[test]
fn without_a_guarantee_what_a_silent_broker_does_not_take_is_counted_and_the_job_goes_on() {
    for scene in scenes() {
        let progress = &scene.none.progress;
        assert_eq!(
            (progress.dropped, progress.records_out, progress.runs),
            (4, READ_BEFORE, 1),
            "{progress:?}"
        );
    }
}
