//! One seed from its beginning to its verdict.

use super::{
    chaos::Chaos,
    cluster::START_MS,
    fault::Kind,
    keeper::Keeper,
    panics,
    scenario::Scenario,
    trace::{Trace, stream, waiting},
    workload::Stage,
    world::{Phase, World},
};
use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// Within this time after the last fault everything has come: transactions that a dead process left have timed out, and a
/// run has begun behind the longest wait between two.
const HEALED_WITHIN: Duration = Duration::from_secs(900);

/// Within this time, what is fed to a healthy job comes out.
const FLOWS_WITHIN: Duration = Duration::from_secs(120);

/// Within this time, all but one of a job's processes have found out that there is another.
const ALONE_WITHIN: Duration = Duration::from_secs(300);

/// Within this time, a job that is asked to stop has.
const STOPS_WITHIN: Duration = Duration::from_secs(120);

/// Within this time behind its time-out, a transaction is aborted.
const TIMED_OUT_WITHIN: Duration = Duration::from_secs(5);

/// How often the output is looked at while things go wrong.
const LOOK_EVERY: Duration = Duration::from_secs(7);

/// Records of each partition that are fed to a healed job.
const MORE: u64 = 20;

/// What a world shows of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    /// Prints every event.
    pub shown: bool,
    /// Something is done to the output that no job did.
    pub planted: Option<Planted>,
}

/// A wrong output, by which the oracle shows that it sees one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The first record of an output partition stands there once more.
    Duplicate,
    /// A record that nothing makes.
    Stranger,
}

/// What came of a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What was wrong first, if anything was.
    pub violation: Option<String>,
    /// Faults that changed something, by kind.
    pub faults: BTreeMap<Kind, u64>,
    /// Virtual time that passed.
    pub virtual_time: Duration,
    /// Every event, as one number.
    pub digest: u64,
    /// Everything that the broker keeps at the end, its logs among it, as one number.
    pub log_digest: u64,
}

/// Plays a scenario, on the calling thread.
///
/// # Panics
/// The thread is inside of a runtime already.
pub fn run(scenario: &Scenario, watched: Watched) -> Report {
    let _panics = panics::Watch::begin();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without sockets needs nothing");
    let thread = tokio::task::LocalSet::new();
    let played = AssertUnwindSafe(|| thread.block_on(&runtime, whole(scenario, watched)));
    panic::catch_unwind(played).unwrap_or_else(|_| Report {
        seed: scenario.seed,
        violation: panics::Watch::first().map(|panic| format!("a panic: {panic}")),
        faults: BTreeMap::new(),
        virtual_time: Duration::ZERO,
        digest: 0,
        log_digest: 0,
    })
}

async fn whole(scenario: &Scenario, watched: Watched) -> Report {
    let trace = Trace::begin(watched.shown);
    trace.event(format_args!("{scenario}"));
    let world = World::begin(scenario, trace.clone()).await;
    let found = tokio::select! {
        biased;
        found = trace.failed() => Some(found),
        played = play(&world, watched.planted) => played.err(),
    };
    let panicked = panics::Watch::first().map(|panic| format!("a panic: {panic}"));
    Report {
        seed: scenario.seed,
        violation: panicked.or(found),
        faults: trace.faults(),
        virtual_time: trace.elapsed(),
        digest: trace.digest(),
        log_digest: world.clusters().iter().fold(0, |digest, cluster| digest ^ cluster.broker.digest()),
    }
}

async fn play(world: &World, planted: Option<Planted>) -> Result<(), String> {
    let keepers: Vec<_> = Stage::of(world.scenario().workload)
        .into_iter()
        .map(|stage| tokio::task::spawn_local(Keeper::new(world, stage).keep()))
        .collect();
    let chaos = Chaos::begin(world);
    trouble(world).await?;
    chaos.heal();
    world.enter(Phase::Healed);
    until_complete(world, HEALED_WITHIN, "after the last fault").await?;
    if let Some(planted) = planted {
        plant(world, planted).await;
    }
    let mut random = stream(world.scenario().seed, "more");
    for partition in 0..world.scenario().partitions {
        feed(world, partition, MORE, &mut random).await;
    }
    until_complete(world, FLOWS_WITHIN, "after it was fed to a healthy job").await?;
    until_alone(world).await?;
    world.enter(Phase::Ending);
    for keeper in keepers {
        match timeout(STOPS_WITHIN, keeper).await {
            Ok(ended) => ended.map_err(|error| format!("the simulator itself: {error}"))?,
            Err(_) => {
                return Err(format!("a job that was asked to stop has not ended within {STOPS_WITHIN:?}"));
            }
        }
    }
    at_rest(world).await
}

/// Feeds the input and looks at the output while things go wrong.
async fn trouble(world: &World) -> Result<(), String> {
    let scenario = world.scenario();
    let feeding = async {
        let mut random = stream(scenario.seed, "feed");
        let mut left = vec![scenario.records; scenario.partitions as usize];
        let bursts = 40.min(scenario.records as u32) * scenario.partitions as u32;
        while left.iter().any(|left| *left > 0) {
            sleep(waiting(&mut random, scenario.trouble / bursts)).await;
            let partition = random.usize(..left.len());
            let count = random.u64(1..=scenario.records.div_ceil(20)).min(left[partition]);
            if count > 0 {
                left[partition] -= count;
                feed(world, partition as i32, count, &mut random).await;
            }
        }
    };
    let looking = async {
        loop {
            sleep(LOOK_EVERY).await;
            look(world)?;
        }
    };
    let both = async { tokio::join!(feeding, sleep(scenario.trouble)) };
    tokio::select! {
        biased;
        wrong = looking => wrong,
        _ = both => Ok(()),
    }
}

async fn feed(world: &World, partition: i32, count: u64, random: &mut fastrand::Rng) {
    let now = START_MS + world.trace().elapsed().as_millis() as i64;
    world.feed(partition, count, now - random.i64(0..1_000)).await;
}

/// What is missing, where nothing is wrong.
fn look(world: &World) -> Result<usize, String> {
    match panics::Watch::first() {
        Some(panic) => Err(format!("a panic: {panic}")),
        None => world.judge().map(|standing| standing.missing),
    }
}

async fn until_complete(world: &World, limit: Duration, since: &str) -> Result<(), String> {
    let began = world.trace().elapsed();
    loop {
        let missing = look(world)?;
        if missing == 0 {
            return Ok(());
        }
        if world.trace().elapsed() - began > limit {
            let open = world.open_transactions().join(", ");
            return Err(format!("{missing} records have not come within {limit:?} {since}; open: {open}"));
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Whoever was superseded finds that out and ends.
async fn until_alone(world: &World) -> Result<(), String> {
    let began = world.trace().elapsed();
    while world.most_live() > 1 {
        if world.trace().elapsed() - began > ALONE_WITHIN {
            return Err(format!("{} processes of one job go on beside each other", world.most_live()));
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Everything is there and nothing is open. Before KIP-890 a request that was late may begin a transaction again that has
/// ended: it holds nothing, and its time-out ends it.
async fn at_rest(world: &World) -> Result<(), String> {
    if world.scenario().transaction_version < 2 && !world.open_transactions().is_empty() {
        sleep(world.scenario().transaction_timeout + TIMED_OUT_WITHIN).await;
    }
    let missing = look(world)?;
    let open = world.open_transactions();
    match (missing, open.is_empty()) {
        (0, true) => world.judge_incidents(),
        (0, false) => Err(format!("the jobs have ended, and transactions are open: {}", open.join(", "))),
        (missing, _) => Err(format!("{missing} records that were there are not any more")),
    }
}

async fn plant(world: &World, planted: Planted) {
    let topic = *world.topics().last().expect("a world has an output");
    let first = world.committed(topic, 0).into_iter().next();
    let record = match planted {
        Planted::Duplicate => first.expect("something has come out"),
        Planted::Stranger => super::oracle::Record::new("k", "stranger"),
    };
    world.cluster_of(topic).append(topic, 0, &[record], START_MS).await;
}
