//! What one seed makes: a cluster, a network, a store, and what has been fed.

use super::{
    cluster::Cluster,
    disk::Disk,
    file::Memory,
    incident::{self, GivenUp},
    network::Network,
    oracle::{self, Content, Record, Standing},
    process::Process,
    scenario::{Scenario, Workload},
    signal::Signal,
    trace::{Trace, now, stream},
    workload::{self, FAR, INPUT, MAIN, Output, Stage},
};
use hapax::Strategy;
use hapax_broker::Settings;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Where a world stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Things go wrong.
    Trouble,
    /// Nothing goes wrong any more; what went wrong before may still be felt.
    Healed,
    /// Jobs are asked to stop.
    Ending,
}

/// A world. Cheap to clone.
#[derive(Clone)]
pub(super) struct World(Arc<Inner>);

struct Inner {
    scenario: Scenario,
    trace: Trace,
    clusters: Vec<Cluster>,
    network: Network,
    disk: Disk,
    files: Memory,
    turned: Signal,
    /// Held by whoever changes the input.
    input: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where the world stands; in trouble before it is said.
    phase: Option<Phase>,
    /// Since when nothing goes wrong any more.
    healed: Option<Instant>,
    processes: u32,
    /// Live processes, by job.
    live: BTreeMap<&'static str, usize>,
    /// Which time the input topic was made.
    generation: u32,
    /// What was fed, by generation.
    fed: Vec<Content>,
}

impl World {
    pub(super) async fn begin(scenario: &Scenario, trace: Trace) -> Self {
        let seed = scenario.seed;
        let stages = Stage::of(scenario.workload);
        let outputs: Vec<Output> = stages.iter().flat_map(Stage::outputs).collect();
        let mut clusters = Vec::new();
        for name in [MAIN, FAR] {
            if name == MAIN || outputs.iter().any(|output| output.cluster == name) {
                clusters.push(Cluster::start(name, settings(scenario, name)).await);
            }
        }
        let network =
            Network::new(clusters.clone(), trace.clone(), scenario.weather, stream(seed, "network"));
        let disk = Disk::new(trace.clone(), scenario.disk, stream(seed, "disk"));
        let world = Self(Arc::new(Inner {
            scenario: scenario.clone(),
            trace,
            clusters,
            network,
            disk,
            files: Memory::default(),
            turned: Signal::default(),
            input: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }));
        for output in outputs {
            world.cluster_of(output.topic).create(output.topic, scenario.partitions).await;
        }
        world.make_input().await;
        world
    }

    pub(super) fn scenario(&self) -> &Scenario {
        &self.0.scenario
    }

    pub(super) fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// The cluster that is fed.
    pub(super) fn cluster(&self) -> &Cluster {
        &self.0.clusters[0]
    }

    pub(super) fn clusters(&self) -> &[Cluster] {
        &self.0.clusters
    }

    /// The cluster that has a topic.
    pub(super) fn cluster_of(&self, topic: &str) -> &Cluster {
        let stages = Stage::of(self.scenario().workload);
        let output = stages.iter().flat_map(Stage::outputs).find(|output| output.topic == topic);
        let named = |output: Output| self.0.clusters.iter().find(|cluster| cluster.name == output.cluster);
        output.and_then(named).unwrap_or(self.cluster())
    }

    pub(super) fn network(&self) -> &Network {
        &self.0.network
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.0.disk
    }

    pub(super) fn files(&self) -> &Memory {
        &self.0.files
    }

    /// The topics of this world.
    pub(super) fn topics(&self) -> Vec<&'static str> {
        let stages = Stage::of(self.scenario().workload);
        let outputs = stages.iter().flat_map(Stage::outputs).map(|output| output.topic);
        std::iter::once(INPUT).chain(outputs).collect()
    }

    /// Those of them that a cluster has.
    pub(super) fn topics_of(&self, cluster: &Cluster) -> Vec<&'static str> {
        let mut topics = self.topics();
        topics.retain(|topic| self.cluster_of(topic).name == cluster.name);
        topics
    }

    /// What a `read_committed` reader gets of a partition.
    pub(super) fn committed(&self, topic: &str, partition: i32) -> Vec<Record> {
        oracle::committed(self.cluster_of(topic), topic, partition)
    }

    /// Transactional ids, on whatever cluster, whose transaction has not come to its end.
    pub(super) fn open_transactions(&self) -> Vec<String> {
        self.clusters().iter().flat_map(Cluster::open_transactions).collect()
    }

    /// A new process.
    pub(super) fn process(&self) -> Process {
        let number = {
            let mut state = self.state();
            state.processes += 1;
            state.processes
        };
        let random = stream(self.scenario().seed, &format!("process {number}"));
        Process::new(number, self.trace().clone(), random)
    }

    /// How many processes there have been.
    pub(super) fn processes(&self) -> u32 {
        self.state().processes
    }

    /// So many processes of a job are alive.
    pub(super) fn set_live(&self, job: &'static str, count: usize) {
        self.state().live.insert(job, count);
    }

    /// The most processes that a job has alive.
    pub(super) fn most_live(&self) -> usize {
        self.state().live.values().copied().max().unwrap_or(0)
    }

    pub(super) fn phase(&self) -> Phase {
        self.state().phase.unwrap_or(Phase::Trouble)
    }

    /// Returns when it is another than this.
    pub(super) async fn leaves(&self, phase: Phase) -> Phase {
        self.0.turned.until(|| Some(self.phase()).filter(|now| *now != phase)).await
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.trace().event(format_args!("phase {phase:?}"));
        let mut state = self.state();
        state.phase = Some(phase);
        if phase == Phase::Healed {
            state.healed = Some(now());
        }
        drop(state);
        self.0.turned.tell();
    }

    /// Do things go wrong, or did they a moment ago?
    pub(super) fn is_in_trouble(&self, felt_for: Duration) -> bool {
        self.state().healed.is_none_or(|since| now() < since + felt_for)
    }

    /// Deletes the input topic and makes it again.
    pub(super) async fn make_input_again(&self) {
        let _changing = self.0.input.lock().await;
        self.cluster().delete(INPUT).await;
        self.make_input().await;
    }

    async fn make_input(&self) {
        self.cluster().create(INPUT, self.scenario().partitions).await;
        let mut state = self.state();
        let fed =
            (0..self.scenario().partitions).map(|partition| ((INPUT.to_owned(), partition), Vec::new()));
        state.fed.push(fed.collect());
        state.generation = state.fed.len() as u32 - 1;
    }

    /// Appends so many records more to a partition of the input.
    pub(super) async fn feed(&self, partition: i32, count: u64, timestamp: i64) {
        let _changing = self.0.input.lock().await;
        let records: Vec<_> = {
            let mut state = self.state();
            let generation = state.generation;
            let fed = state.fed[generation as usize].get_mut(&(INPUT.to_owned(), partition));
            let fed = fed.expect("every input partition has an entry");
            let from = fed.len() as u64;
            let records: Vec<_> =
                (from..from + count).map(|n| workload::input(generation, partition, n)).collect();
            fed.extend(records.iter().cloned());
            records
        };
        self.trace().event(format_args!("{count} records for partition {partition}"));
        self.cluster().append(INPUT, partition, &records, timestamp).await;
    }

    /// What a reader sees, against what was fed.
    ///
    /// # Errors
    /// Something is there that may not be.
    pub(super) fn judge(&self) -> Result<Standing, String> {
        let given_up = self.given_up();
        oracle::judge(|topic, partition| self.committed(topic, partition), &self.expected(), &given_up)
    }

    /// Is what was given up what incidents say, and kept where that was promised?
    ///
    /// # Errors
    /// What is not so.
    pub(super) fn judge_incidents(&self) -> Result<(), String> {
        let given_up = self.given_up();
        for topic in self.topics() {
            for partition in 0..self.scenario().partitions {
                let seen = self.committed(topic, partition);
                if let Some(record) = seen.iter().find(|record| given_up.names(topic, record)) {
                    return Err(format!(
                        "an incident says that readers of {topic} do not see {:?}, and they do",
                        record.text()
                    ));
                }
            }
        }
        match self.scenario().recovery.contains(&Strategy::SetAside) {
            true => incident::judge_files(self.files(), &given_up),
            false => Ok(()),
        }
    }

    fn given_up(&self) -> GivenUp {
        if !self.scenario().gives_up() {
            return GivenUp::default();
        }
        let log = |topic: &str, partition| self.cluster_of(topic).log(topic, partition);
        incident::given_up(self.files(), log)
    }

    fn expected(&self) -> Content {
        let stages = Stage::of(self.scenario().workload);
        let fed = self.state().fed.clone();
        let mut contents = fed.iter().enumerate();
        let (_, first) = contents.next().expect("the input was made");
        let mut all = workload::expected(&stages, first);
        // A job that is begun anew goes on from the first record of the new topic, wherever it was in the old one.
        for (generation, again) in contents {
            for (place, records) in workload::expected(&stages, again) {
                let seen = self.committed(&place.0, place.1);
                let old =
                    seen.iter().take_while(|record| !workload::is_of(generation as u32, record)).count();
                let before = all.entry(place).or_default();
                if old < seen.len() || self.has_begun_anew() {
                    before.truncate(old);
                    before.extend(records);
                }
            }
        }
        all
    }

    /// Nobody reads the old topic any more, so that only records of the new one may come.
    fn has_begun_anew(&self) -> bool {
        self.scenario().workload == Workload::Recreate && !self.is_in_trouble(Duration::ZERO)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn settings(scenario: &Scenario, cluster: &str) -> Settings {
    let mut random = stream(scenario.seed, &format!("cluster {cluster}"));
    Settings {
        seed: random.u64(..),
        nodes: scenario.nodes,
        transaction_version: scenario.transaction_version,
        marker_delay_ms: random.i64(0..=50),
        load_ms: random.i64(0..=2_000),
        auto_create_topics: false,
        two_phase_commit: scenario.two_phase,
        ..Settings::default()
    }
}
