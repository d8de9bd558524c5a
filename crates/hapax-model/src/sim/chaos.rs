//! What goes wrong outside of processes, by time and by chance, until a world is healed.

use super::{
    cluster::Cluster,
    fault::Kind,
    network::Host,
    process,
    scenario::Scenario,
    trace::{stream, waiting},
    world::{Phase, World},
};
use hapax_broker::{Afterwards, ApiKey, NodeId, Rule, Step, Verdict, fault::RuleId, state::AppendFault};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::sleep;

/// Errors that a request may meet in a healthy cluster, by request; with those that it may meet although it was applied.
const ERRORS: [(ApiKey, &[i16], &[i16]); 10] = [
    (ApiKey::Produce, &[6, 7, 19], &[7, 20]),
    (ApiKey::EndTxn, &[14, 15, 16, 51], &[15, 16]),
    (ApiKey::InitProducerId, &[14, 15, 16, 51], &[15, 16]),
    (ApiKey::AddPartitionsToTxn, &[14, 15, 16, 51], &[15, 16]),
    (ApiKey::AddOffsetsToTxn, &[14, 15, 16, 51], &[15, 16]),
    (ApiKey::TxnOffsetCommit, &[14, 15, 16], &[15]),
    (ApiKey::OffsetFetch, &[14, 16], &[]),
    (ApiKey::Fetch, &[6], &[]),
    (ApiKey::ListOffsets, &[6], &[]),
    (ApiKey::DescribeTransactions, &[14, 15, 16], &[]),
];

/// The rules that are in force for a world, with what they are counted as.
#[derive(Clone)]
pub(super) struct Chaos {
    world: World,
    rules: Arc<Mutex<Vec<(Cluster, RuleId, Kind)>>>,
}

impl Chaos {
    /// Begins all that the scenario has.
    pub(super) fn begin(world: &World) -> Self {
        let chaos = Self { world: world.clone(), rules: Arc::default() };
        for cluster in world.clusters() {
            chaos.stand(cluster);
        }
        for (kind, every) in world.scenario().kinds.clone() {
            if is_by_time(kind) {
                let random = stream(world.scenario().seed, kind.name());
                process::spawn(chaos.clone().go_on(kind, every, random));
            }
        }
        chaos
    }

    /// Nothing goes wrong any more. What was done is counted.
    pub(super) fn heal(&self) {
        for (cluster, id, kind) in self.rules.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let fired = cluster.broker.faults().remove(id).map_or(0, |report| report.fired);
            self.world.trace().count(kind, fired);
        }
        for cluster in self.world.clusters() {
            cluster.broker.step(Step::HoldMarkers(false)).expect("the broker goes on");
        }
        self.world.network().heal();
        self.world.disk().heal();
    }

    fn add(&self, cluster: &Cluster, kind: Kind, rule: Rule) {
        let id = cluster.broker.faults().add(rule).expect("a rule that makes sense");
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push((cluster.clone(), id, kind));
    }

    /// Rules that act by chance.
    fn stand(&self, cluster: &Cluster) {
        let scenario: &Scenario = self.world.scenario();
        let mut random = stream(scenario.seed, &format!("rules of {}", cluster.name));
        for (api, codes, applied) in ERRORS {
            for (kind, codes) in [(Kind::Error, codes), (Kind::ErrorApplied, applied)] {
                let (chance, seed, is_taken) = (random.f64() * 0.1 + 0.001, random.u64(..), random.bool());
                if scenario.every(kind).is_none() || codes.is_empty() || !is_taken {
                    continue;
                }
                let code = codes[random.usize(..codes.len())];
                let verdict = Verdict::Error { code, applied: kind == Kind::ErrorApplied };
                self.add(cluster, kind, Rule::on(api).probability(chance, seed).always().then(verdict));
            }
        }
        for kind in [Kind::LostAnswer, Kind::LostRequest, Kind::LateRequest] {
            let (chance, seed) = (random.f64() * 0.02 + 0.001, random.u64(..));
            let late = Duration::from_millis(random.u64(100..=15_000));
            let then = if random.bool() { Afterwards::Close } else { Afterwards::Hang };
            let rule = match random.u8(..4) {
                0 => Rule::on(ApiKey::EndTxn),
                1 => Rule::on(ApiKey::InitProducerId),
                _ => Rule::on_any(),
            };
            let rule = rule.probability(chance, seed).always();
            let rule = match kind {
                Kind::LostAnswer => rule.lose_answer(then),
                Kind::LostRequest => rule.drop_request(then),
                _ => rule.delay(late),
            };
            if scenario.every(kind).is_some() {
                self.add(cluster, kind, rule);
            }
        }
    }

    async fn go_on(self, kind: Kind, every: Duration, mut random: fastrand::Rng) {
        loop {
            sleep(waiting(&mut random, every) + Duration::from_millis(1)).await;
            if self.world.phase() != Phase::Trouble {
                return;
            }
            self.strike(kind, &mut random).await;
        }
    }

    async fn strike(&self, kind: Kind, random: &mut fastrand::Rng) {
        let world = &self.world;
        let nodes = world.scenario().nodes;
        let clusters = world.clusters();
        let cluster = &clusters[random.usize(..clusters.len())];
        let for_a_while = waiting(random, Duration::from_secs(8)) + Duration::from_millis(50);
        match kind {
            Kind::Partition => {
                let process = world.processes().saturating_sub(random.u32(..3)).max(1);
                let host = Host::new(cluster, random.i32(1..=nodes));
                world.trace().event(format_args!("process {process} and {host} part for {for_a_while:?}"));
                world.network().part(process, host, for_a_while);
            }
            Kind::MoveLeader => {
                let topics = world.topics_of(cluster);
                let topic = topics[random.usize(..topics.len())].to_owned();
                let partition = random.i32(0..world.scenario().partitions);
                self.step(cluster, kind, Step::MoveLeader { topic, partition, to: None });
            }
            Kind::MoveCoordinator => {
                let ids = cluster.transactional_ids();
                let step = match random.bool() && !ids.is_empty() {
                    true => {
                        Step::MoveCoordinator { transactional_id: ids[random.usize(..ids.len())].clone() }
                    }
                    false => Step::MoveLeader {
                        topic: "__consumer_offsets".to_owned(),
                        partition: random.i32(0..4),
                        to: None,
                    },
                };
                self.step(cluster, kind, step);
            }
            Kind::BrokerCrash => self.step(cluster, kind, Step::Crash),
            Kind::HoldMarkers => {
                self.step(cluster, kind, Step::HoldMarkers(true));
                sleep(for_a_while).await;
                if world.phase() == Phase::Trouble {
                    cluster.broker.step(Step::HoldMarkers(false)).expect("the broker goes on");
                }
            }
            Kind::ClockJump => {
                let by = world.scenario().transaction_timeout.mul_f64(random.f64() * 2.0);
                let by = by.as_millis() as i64 + 1;
                if cluster.broker.jump_clock(by).is_ok() {
                    world.trace().fired(kind, format_args!("by {by} ms"));
                }
            }
            Kind::FailAppend => {
                let ids = cluster.transactional_ids();
                if ids.is_empty() {
                    return;
                }
                let id = ids[random.usize(..ids.len())].clone();
                let fault = AppendFault { written: random.bool(), code: [15, 16, -1][random.usize(..3)] };
                let step = Step::FailAppend { transactional_id: id.clone(), fault };
                self.add(
                    cluster,
                    kind,
                    Rule::on(ApiKey::EndTxn).transactional_id(id).then(Verdict::Step(step)),
                );
            }
            Kind::ForgetProducers => self.step(cluster, kind, Step::ExpireProducers),
            Kind::Stall => {
                let node = random.i32(1..=nodes);
                let ms = for_a_while.as_millis() as u64;
                let verdict = Verdict::StallNode { ms, node: Some(NodeId(node)) };
                self.add(cluster, kind, Rule::on_any().node(node).then(verdict));
            }
            Kind::StoreFull => world.disk().fill(for_a_while),
            _ => unreachable!("{kind:?} does not happen by time"),
        }
    }

    fn step(&self, cluster: &Cluster, kind: Kind, step: Step) {
        let broker = &cluster.broker;
        let (before, what) = (broker.digest(), format!("{step:?}"));
        // What it names may not be there yet.
        if broker.step(step).is_ok() && (broker.digest() != before || kind == Kind::BrokerCrash) {
            self.world.trace().fired(kind, format_args!("{what} on {}", cluster.name));
        }
    }
}

fn is_by_time(kind: Kind) -> bool {
    match kind {
        Kind::Partition
        | Kind::MoveLeader
        | Kind::MoveCoordinator
        | Kind::BrokerCrash
        | Kind::HoldMarkers
        | Kind::ClockJump
        | Kind::FailAppend
        | Kind::ForgetProducers
        | Kind::Stall
        | Kind::StoreFull => true,
        Kind::Kill
        | Kind::Freeze
        | Kind::Zombie
        | Kind::Rival
        | Kind::Stop
        | Kind::Cut
        | Kind::Refused
        | Kind::SlowLink
        | Kind::Error
        | Kind::ErrorApplied
        | Kind::LostAnswer
        | Kind::LostRequest
        | Kind::LateRequest
        | Kind::SlowStore
        | Kind::StoreFails
        | Kind::StoreAnswerLost => false,
    }
}
