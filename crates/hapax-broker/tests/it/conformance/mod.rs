//! One suite of scenarios against our broker and against real Apache Kafka: their transcripts must be equal.
//!
//! Owns the comparison. A difference is a bug of the broker, or an entry of `docs/broker-fidelity.md`. A play that a
//! slow machine spoiled is neither compared nor passed: it is played again with more time. Spoiled is one whose acts came
//! too late for its time-outs, and one that differs while the real broker has written markers more than once.

mod answer;
mod group;
mod long;
mod member;
mod peer;
mod record;
mod schedule;
mod topic;
mod transaction;
mod world;

use hapax_broker::{Broker, ServerOptions, Settings};
use peer::Tally;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use world::{TooSlow, World};
use xtask::kafka::{Version, shared};

/// Random schedules of an ordinary run.
const SCHEDULES: u64 = 30;
/// Scenarios that are played at the same time.
const AT_ONCE: usize = 4;
/// Time-outs of the transactions that shall end by themselves, from one play of a scenario to the next.
const SHORT: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_millis(900),
    Duration::from_millis(2_700),
    Duration::from_millis(8_100),
];
/// Lines before the first difference, and differences, that a failure shows.
const CONTEXT: usize = 12;
const SHOWN: usize = 6;

/// Functions as scenarios of their names.
macro_rules! all {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::conformance::Scenario { name: stringify!($name).to_owned(), play: Box::new($name) }),*]
    };
}
use all;

/// What a scenario does.
type Play = Box<dyn Fn(&mut World, Protocol) + Send + Sync>;

/// A scenario: the same acts on every cluster.
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) play: Play,
}

/// Which transactions a cluster runs, and so which request versions a client of it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    V1,
    V2,
}

impl Protocol {
    /// EndTxn of the protocol.
    pub(crate) fn end(self) -> i16 {
        match self {
            Self::V1 => 4,
            Self::V2 => 5,
        }
    }

    /// Produce of the protocol.
    pub(crate) fn produce(self) -> i16 {
        match self {
            Self::V1 => 11,
            Self::V2 => 12,
        }
    }
}

/// What a play has left.
struct Played {
    world: World,
    /// The scenario could not go on: its last line says why.
    broken: bool,
}

/// Plays once; `None` where the play does not count, because the machine was too slow for its time-outs.
fn play(scenario: &Scenario, mut world: World, protocol: Protocol) -> Option<Played> {
    let played = catch_unwind(AssertUnwindSafe(|| (scenario.play)(&mut world, protocol)));
    let broken = played.is_err();
    if let Err(panic) = played {
        if panic.is::<TooSlow>() {
            return None;
        }
        let constant = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
        let why = panic.downcast_ref::<String>().cloned().or(constant).unwrap_or_default();
        world.note(format!("the scenario could not go on: {why}"));
    }
    Some(Played { world, broken })
}

/// Whether the real broker has written a marker again that ours has written once. Its coordinator sends all markers of a
/// request again when it has lost the answer or has waited too long for it (TransactionMarkerChannelManager, by
/// TransactionMarkerRequestCompletionHandler), and partitions take them again: readers see nothing of it, but what comes
/// later has other offsets.
fn is_spoiled(real: &mut Played, ours: &mut Played) -> bool {
    real.world.lines() != ours.world.lines() && real.world.repeated_markers() > ours.world.repeated_markers()
}

/// Plays on both, with more time as long as the machine is too slow for less; what the last play of all says counts,
/// spoiled or not. The names are the same on both: of a name depends which partition of an internal topic has what is
/// stored under it.
fn play_both(scenario: &Scenario, real: &str, ours: &str, protocol: Protocol) -> Option<(Played, Played)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    SHORT.into_iter().find_map(|short| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{}-{}-{number}", scenario.name, std::process::id());
        let play = |bootstrap| play(scenario, World::new(bootstrap, &prefix, short), protocol);
        let (mut expected, mut found) = (play(real)?, play(ours)?);
        let is_last = short == SHORT[SHORT.len() - 1];
        (is_last || !is_spoiled(&mut expected, &mut found)).then_some((expected, found))
    })
}

/// The lines that differ, with what led to the first of them.
fn difference(real: &[String], ours: &[String]) -> Option<String> {
    let length = real.len().max(ours.len());
    let line = |lines: &[String], index: usize| lines.get(index).cloned().unwrap_or_else(|| "(ended)".into());
    let differing: Vec<usize> = (0..length).filter(|&index| line(real, index) != line(ours, index)).collect();
    let first = *differing.first()?;
    let before = real[first.saturating_sub(CONTEXT)..first.min(real.len())].join("\n    ");
    let mut text = format!("    {before}");
    for index in differing.iter().take(SHOWN) {
        text += &format!("\n  real: {}\n  ours: {}", line(real, *index), line(ours, *index));
    }
    Some(format!("{text}\n  ({} lines differ)", differing.len()))
}

/// What a comparison found.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) equal: usize,
    pub(crate) different: Vec<String>,
    pub(crate) real: Tally,
    pub(crate) ours: Tally,
}

impl Outcome {
    fn merge(&mut self, scenario: &Scenario, played: Option<(Played, Played)>) {
        let name = &scenario.name;
        let Some((real, ours)) = played else {
            let longest = SHORT[SHORT.len() - 1];
            let why = format!("{name}: not compared: the machine was too slow for time-outs of {longest:?}");
            return self.different.push(why);
        };
        match difference(real.world.lines(), ours.world.lines()) {
            Some(difference) => self.different.push(format!("{name}:\n{difference}")),
            None if real.broken => {
                self.different.push(format!("{name}: {:?} on both", real.world.lines().last()));
            }
            None => self.equal += 1,
        }
        for (sum, played) in [(&mut self.real, real), (&mut self.ours, ours)] {
            played.world.close().into_iter().for_each(|(what, times)| *sum.entry(what).or_default() += times);
        }
    }
}

/// Plays scenarios on both, a few at a time: most of their time they wait.
fn compare(scenarios: &[Scenario], version: Version, protocol: Protocol, ours: &str) -> Outcome {
    let real = &shared(version).bootstrap;
    let (next, outcome) = (AtomicU32::new(0), Mutex::new(Outcome::default()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let played = play_both(scenario, real, ours, protocol);
                    outcome.lock().unwrap().merge(scenario, played);
                }
            });
        }
    });
    outcome.into_inner().unwrap()
}

/// Our broker with the periods of the real ones that tests use.
fn ours(level: i16) -> Settings {
    Settings { transaction_version: level, auto_create_topics: false, ..Settings::default() }
}

/// Plays on a broker of ours that lives as long as the comparison.
pub(crate) fn against(scenarios: &[Scenario], release: Release) -> Outcome {
    on_ours(release, |bootstrap| compare(scenarios, release.version(), release.protocol(), bootstrap))
}

/// A broker of ours for as long as something is done with it.
fn on_ours<T>(release: Release, act: impl FnOnce(&str) -> T) -> T {
    let (tell, told) = mpsc::channel();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let broker = Broker::start(ours(release.level()), ServerOptions::default()).await.unwrap();
            tell.send(broker.bootstrap()).unwrap();
            let _ = ended.await;
            broker.stop().await;
        });
    });
    let result = act(&told.recv().unwrap());
    drop(end);
    serving.join().unwrap();
    result
}

/// The differences, and how one is played again.
fn shown(different: &[String]) -> String {
    let again = "a schedule alone: cargo xtask conformance --short --schedules 1 --seed NUMBER";
    format!("{}\n{again}", different.join("\n"))
}

/// All equal, or the differences as the failure of the test.
fn demand_equal(scenarios: &[Scenario], release: Release) {
    let different = against(scenarios, release).different;
    let (count, of) = (different.len(), scenarios.len());
    assert!(
        different.is_empty(),
        "{count} of {of} scenarios differ from {release:?}:\n{}",
        shown(&different)
    );
}

/// The releases of Apache Kafka that ours is compared with, each with the level at which ours is like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    Kafka3_9,
    Kafka4_4,
}

impl Release {
    fn version(self) -> Version {
        match self {
            Self::Kafka3_9 => Version::V3_9,
            Self::Kafka4_4 => Version::V4_4,
        }
    }

    fn protocol(self) -> Protocol {
        match self {
            Self::Kafka3_9 => Protocol::V1,
            Self::Kafka4_4 => Protocol::V2,
        }
    }

    fn level(self) -> i16 {
        match self {
            Self::Kafka3_9 => 0,
            Self::Kafka4_4 => 2,
        }
    }
}

/// What an operator writes twice is such a marker; what coordinators write, asked twice or not, is none.
#[test]
fn a_marker_that_is_written_again_is_found_and_no_other() {
    for release in [Release::Kafka3_9, Release::Kafka4_4] {
        on_ours(release, |bootstrap| {
            let played =
                ["markers_of_an_operator", "begin_with_an_identity", "end_in_every_state", "fencing"];
            for scenario in transaction::scenarios() {
                if !played.contains(&scenario.name.as_str()) {
                    continue;
                }
                let world = World::new(bootstrap, &scenario.name, SHORT[2]);
                let mut played = play(&scenario, world, release.protocol()).expect("nothing hurries");
                let (name, repeated) = (&scenario.name, played.world.repeated_markers());
                assert_eq!(repeated > 0, name == "markers_of_an_operator", "{release:?} {name}: {repeated}");
            }
        });
    }
}

#[test]
fn transactions_of_v2_are_those_of_kafka_4_4() {
    demand_equal(&transaction::scenarios(), Release::Kafka4_4);
}

#[test]
fn transactions_of_v1_are_those_of_kafka_3_9() {
    demand_equal(&transaction::scenarios(), Release::Kafka3_9);
}

#[test]
fn records_are_taken_and_given_as_kafka_4_4_does() {
    demand_equal(&record::scenarios(), Release::Kafka4_4);
}

#[test]
fn records_are_taken_and_given_as_kafka_3_9_does() {
    demand_equal(&record::scenarios(), Release::Kafka3_9);
}

#[test]
fn offsets_of_groups_are_those_of_kafka_4_4() {
    demand_equal(&group::scenarios(), Release::Kafka4_4);
}

#[test]
fn offsets_of_groups_are_those_of_kafka_3_9() {
    demand_equal(&group::scenarios(), Release::Kafka3_9);
}

#[test]
fn random_schedules_go_as_on_kafka_4_4() {
    demand_equal(&schedule::scenarios(0..SCHEDULES), Release::Kafka4_4);
}

#[test]
fn random_schedules_go_as_on_kafka_3_9() {
    demand_equal(&schedule::scenarios(0..SCHEDULES), Release::Kafka3_9);
}

#[test]
fn topics_are_those_of_kafka_4_4() {
    demand_equal(&topic::scenarios(), Release::Kafka4_4);
}

#[test]
fn topics_are_those_of_kafka_3_9() {
    demand_equal(&topic::scenarios(), Release::Kafka3_9);
}

#[test]
fn members_of_groups_are_those_of_kafka_4_4() {
    demand_equal(&member::scenarios(), Release::Kafka4_4);
}

#[test]
fn members_of_groups_are_those_of_kafka_3_9() {
    demand_equal(&member::scenarios(), Release::Kafka3_9);
}

/// Everything, and as many schedules as `cargo xtask conformance` wants: too long for an ordinary run. Its parameters
/// and the file for its report come in the environment.
#[test]
#[ignore = "minutes to hours: cargo xtask conformance"]
fn at_length() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
    };
    let (first, count) = (number("HAPAX_CONFORMANCE_SEED", 0), number("HAPAX_CONFORMANCE_SCHEDULES", 100));
    let long = number("HAPAX_CONFORMANCE_LONG", 1) == 1;
    let mut different = Vec::new();
    for release in [Release::Kafka4_4, Release::Kafka3_9] {
        let mut scenarios = [
            transaction::scenarios(),
            record::scenarios(),
            topic::scenarios(),
            group::scenarios(),
            member::scenarios(),
        ];
        if long {
            scenarios[0].extend(long::scenarios());
        }
        let scenarios: Vec<Scenario> = scenarios.into_iter().flatten().collect();
        let schedules = schedule::scenarios(first..first + count);
        let (fixed, random) = (against(&scenarios, release), against(&schedules, release));
        report(release, (scenarios.len(), &fixed), (schedules.len(), &random));
        different.extend(fixed.different.into_iter().chain(random.different));
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), shown(&different));
}

/// One line of JSON in the file that the environment names.
fn report(release: Release, fixed: (usize, &Outcome), random: (usize, &Outcome)) {
    use std::io::Write as _;
    let Some(path) = std::env::var_os("HAPAX_CONFORMANCE_REPORT") else { return };
    let sum = |of: fn(&Outcome) -> &Tally| {
        let mut sum = of(fixed.1).clone();
        of(random.1).iter().for_each(|(what, times)| *sum.entry(what.clone()).or_default() += times);
        sum
    };
    let line = serde_json::json!({
        "release": release.version().number(),
        "scenarios": fixed.0,
        "scenarios_equal": fixed.1.equal,
        "schedules": random.0,
        "schedules_equal": random.1.equal,
        "real": sum(|outcome| &outcome.real),
        "ours": sum(|outcome| &outcome.ours),
    });
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}
