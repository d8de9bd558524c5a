//! What a seed says: the job, its settings, what goes wrong and how often.
//!
//! A swarm: each seed leaves most kinds of faults out, so that those that are left meet each other often.

use super::{fault::Kind, trace::stream};
use hapax::{Compression, Strategy};
use hapax_commit::DeciderKind;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

/// What the jobs of a world do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// One topic is copied.
    Copy,
    /// Each record becomes none, one or two.
    Transform,
    /// Each record goes to one of two topics.
    Route,
    /// A topic is copied by a job whose number of shards is changed again and again.
    Rescale,
    /// What one job writes, another reads.
    TwoJobs,
    /// The topic that is copied is deleted and made again, and the job begun anew.
    Recreate,
    /// A topic is copied while leaders and coordinators move often.
    Moves,
    /// A topic is copied while the store is slow, fails and is full often.
    Store,
    /// A topic is copied to its own cluster and to another one.
    Clusters,
}

impl Workload {
    /// Every workload.
    pub const ALL: [Self; 9] = [
        Self::Copy,
        Self::Transform,
        Self::Route,
        Self::Rescale,
        Self::TwoJobs,
        Self::Recreate,
        Self::Moves,
        Self::Store,
        Self::Clusters,
    ];

    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Transform => "transform",
            Self::Route => "route",
            Self::Rescale => "rescale",
            Self::TwoJobs => "two-jobs",
            Self::Recreate => "recreate",
            Self::Moves => "moves",
            Self::Store => "store",
            Self::Clusters => "clusters",
        }
    }
}

/// How links are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Of a chunk, on average.
    pub(super) latency: Duration,
    /// How likely a link ends at a chunk.
    pub(super) cut: f64,
    /// How likely a connection is refused.
    pub(super) refused: f64,
    /// How likely a chunk is late, and by how much on average.
    pub(super) slow: f64,
    pub(super) slow_by: Duration,
}

/// How the checkpoint store is.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskTrouble {
    /// Of a request, on average.
    pub(super) latency: Duration,
    /// How likely a request is late, and by how much on average.
    pub(super) slow: f64,
    pub(super) slow_by: Duration,
    /// How likely it fails and nothing was done.
    pub(super) fails: f64,
    /// How likely a put is done and says that it was not.
    pub(super) answer_lost: f64,
}

/// One seed, read.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// What the jobs do.
    pub workload: Workload,
    /// `transaction.version` of the cluster.
    pub transaction_version: i16,
    /// What makes an epoch final.
    pub decider: DeciderKind,
    /// Strategies for what is decided and not committed.
    pub recovery: Vec<Strategy>,
    /// Sinks keep journals.
    pub journal: bool,
    /// Of what sinks write.
    pub compression: Compression,
    /// No time-out ends the job's transactions.
    pub two_phase: bool,
    /// Nodes of the cluster.
    pub nodes: i32,
    /// Partitions of every topic.
    pub partitions: i32,
    /// Shards of every job.
    pub shards: u32,
    /// Between barriers.
    pub interval: Duration,
    /// Of the job's transactions.
    pub transaction_timeout: Duration,
    /// Records of each input partition.
    pub records: u64,
    /// How long things go wrong.
    pub trouble: Duration,
    /// Kinds that happen, and how far apart on average where they happen by time.
    pub kinds: BTreeMap<Kind, Duration>,
    pub(super) weather: Weather,
    pub(super) disk: DiskTrouble,
}

impl Scenario {
    /// What a seed says.
    pub fn of(seed: u64) -> Self {
        let mut random = stream(seed, "scenario");
        let workload = Workload::ALL[random.usize(..Workload::ALL.len())];
        Self::drawn(seed, workload, &mut random)
    }

    /// The same for a workload of choice.
    pub fn with_workload(seed: u64, workload: Workload) -> Self {
        Self::drawn(seed, workload, &mut stream(seed, workload.name()))
    }

    fn drawn(seed: u64, workload: Workload, random: &mut fastrand::Rng) -> Self {
        let by_chain = matches!(workload, Workload::Store | Workload::Clusters) || random.bool();
        let decider = if by_chain { DeciderKind::Checkpoint } else { DeciderKind::Transaction };
        let (recovery, journal) = recovery(workload, random);
        let transaction_version = if random.u8(..3) == 0 { 0 } else { 2 };
        let interval = Duration::from_millis(random.u64(100..=3_000));
        let kinds = kinds(workload, by_chain, random);
        let chance = |random: &mut fastrand::Rng, kind, most: f64| {
            let drawn = random.f64() * most;
            if kinds.contains_key(&kind) { drawn } else { 0.0 }
        };
        Self {
            seed,
            workload,
            transaction_version,
            decider,
            recovery,
            journal: journal && by_chain,
            compression: Compression::ALL[random.usize(..Compression::ALL.len())],
            two_phase: transaction_version == 2 && random.u8(..5) == 0,
            nodes: random.i32(1..=3),
            partitions: random.i32(1..=4),
            shards: random.u32(1..=3),
            interval,
            transaction_timeout: interval * 4 + Duration::from_millis(random.u64(2_000..=40_000)),
            records: random.u64(20..=200),
            trouble: Duration::from_secs(random.u64(20..=120)),
            weather: Weather {
                latency: Duration::from_micros(random.u64(100..=8_000)),
                cut: chance(random, Kind::Cut, 0.02),
                refused: chance(random, Kind::Refused, 0.2),
                slow: chance(random, Kind::SlowLink, 0.02),
                slow_by: Duration::from_millis(random.u64(500..=8_000)),
            },
            disk: DiskTrouble {
                latency: Duration::from_micros(random.u64(500..=30_000)),
                slow: chance(random, Kind::SlowStore, 0.1),
                slow_by: Duration::from_millis(random.u64(500..=15_000)),
                fails: chance(random, Kind::StoreFails, 0.1),
                answer_lost: chance(random, Kind::StoreAnswerLost, 0.1),
            },
            kinds,
        }
    }

    /// The same without faults.
    #[must_use]
    pub fn calm(mut self) -> Self {
        self.kinds.clear();
        (self.weather.cut, self.weather.refused, self.weather.slow) = (0.0, 0.0, 0.0);
        (self.disk.slow, self.disk.fails, self.disk.answer_lost) = (0.0, 0.0, 0.0);
        self
    }

    /// How far apart a kind happens on average, where it happens.
    pub(super) fn every(&self, kind: Kind) -> Option<Duration> {
        self.kinds.get(&kind).copied()
    }

    /// Is a person asked what is to become of a commit that is in doubt?
    pub(super) fn asks(&self) -> bool {
        self.recovery == [Strategy::Resume]
    }

    /// May records be given up?
    pub(super) fn gives_up(&self) -> bool {
        self.recovery.iter().any(|strategy| strategy.gives_up())
    }

    /// Does the store do what it should not?
    pub(super) fn store_fails(&self) -> bool {
        self.kinds.keys().any(|kind| kind.is_of_store())
    }
}

/// With most of these, every commit that is in doubt can be settled as long as no log loses what it has acknowledged; with the
/// first a person is asked, and with the last ones records are given up.
fn recovery(workload: Workload, random: &mut fastrand::Rng) -> (Vec<Strategy>, bool) {
    use Strategy::{Abandon, Replay, Resume, Rewind, Rewrite, SetAside};
    // What is given up is told by offsets of the topic that the job writes, which must be the one that is judged.
    let gives_up = !matches!(workload, Workload::TwoJobs | Workload::Recreate);
    match random.u8(..10) {
        5 => (vec![Resume], false),
        6 if gives_up => (vec![Resume, Abandon], random.bool()),
        7 if gives_up => (vec![Resume, SetAside], random.bool()),
        8 if gives_up => (vec![Resume, Rewind, SetAside], random.bool()),
        0 => (vec![Resume, Rewrite], false),
        1 => (vec![Resume, Rewrite, Rewind], false),
        2 => (vec![Resume, Replay], true),
        3 => (vec![Resume, Rewind, Replay, Rewrite], true),
        _ => (vec![Resume, Rewind, Rewrite, Replay], false),
    }
}

fn kinds(workload: Workload, by_chain: bool, random: &mut fastrand::Rng) -> BTreeMap<Kind, Duration> {
    let always: &[Kind] = match workload {
        Workload::Moves => &[Kind::MoveLeader, Kind::MoveCoordinator, Kind::Stall],
        Workload::Store => &[Kind::SlowStore, Kind::StoreFails, Kind::StoreAnswerLost, Kind::StoreFull],
        Workload::Copy
        | Workload::Transform
        | Workload::Route
        | Workload::Rescale
        | Workload::TwoJobs
        | Workload::Recreate
        | Workload::Clusters => &[],
    };
    let always: BTreeSet<Kind> = always.iter().copied().collect();
    let mut kinds = BTreeMap::new();
    for kind in Kind::ALL {
        let drawn = random.f64() < 0.3;
        let apart = Duration::from_millis(match always.contains(&kind) {
            true => random.u64(1_000..=8_000),
            false => random.u64(3_000..=40_000),
        });
        if always.contains(&kind) || drawn && (by_chain || !kind.is_of_store()) {
            kinds.insert(kind, apart);
        }
    }
    kinds
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recovery: Vec<&str> = self.recovery.iter().map(|strategy| strategy.name()).collect();
        let kinds: Vec<&str> = self.kinds.keys().map(|kind| kind.name()).collect();
        write!(
            f,
            "{} by {:?} on version {}, {} partitions on {} nodes, {} shards, interval {:?}, timeout {}, {}, {} for {:?}; \
             faults {}",
            self.workload.name(),
            self.decider,
            self.transaction_version,
            self.partitions,
            self.nodes,
            self.shards,
            self.interval,
            match self.two_phase {
                true => "none".to_owned(),
                false => format!("{:?}", self.transaction_timeout),
            },
            self.compression,
            recovery.join("+"),
            self.trouble,
            kinds.join(" "),
        )
    }
}
