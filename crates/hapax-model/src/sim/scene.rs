//! What seeds have found, each as a scene of its own that no draw can change.

use super::{
    cluster::START_MS,
    process::Process,
    scenario::{Scenario, Workload},
    trace::Trace,
    workload::{INPUT, Stage, Wiring},
    world::World,
};
use hapax::{Host, JobError, RunOptions, Stopper, Summary};
use hapax_broker::{
    NodeId,
    wire::{Request, Response},
};
use hapax_commit::DeciderKind;
use kafka_protocol::{
    messages::{
        AddPartitionsToTxnRequest, ProducerId, TopicName, TransactionalId,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
    },
    protocol::StrBytes,
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::oneshot, time::sleep};

/// Longer than any scene waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn played(scene: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    tokio::task::LocalSet::new().block_on(&runtime.unwrap(), scene);
}

async fn world(change: impl FnOnce(&mut Scenario)) -> World {
    let mut scenario = Scenario::with_workload(1, Workload::Copy).calm();
    (scenario.partitions, scenario.shards, scenario.two_phase) = (2, 2, false);
    (scenario.interval, scenario.transaction_timeout) = (Duration::from_secs(1), Duration::from_secs(20));
    change(&mut scenario);
    World::begin(&scenario, Trace::begin(false)).await
}

/// A process of the world's job.
struct Running {
    process: Process,
    stopper: Stopper,
    ended: oneshot::Receiver<Result<Summary, JobError>>,
}

impl Running {
    fn start(world: &World) -> Self {
        let process = world.process();
        let net = world.network().sockets_of(process.clone());
        let host = Host::seeded(7, START_MS, net, Arc::new(world.files().clone()));
        let host = host.with_tasks(Arc::new(process.clone()));
        let stage = Stage::of(world.scenario().workload).remove(0);
        let wiring = Wiring {
            clusters: world.clusters(),
            store: world.disk().seen_by(&process, stage.job),
            shards: Some(world.scenario().shards),
            fresh: false,
            once: Vec::new(),
        };
        let plan = stage.plan(world.scenario(), wiring).unwrap();
        let (stopper, stop) = Stopper::new();
        let (tell, ended) = oneshot::channel();
        process.run(async move {
            let options = RunOptions { stop, ..RunOptions::default() };
            let _ = tell.send(hapax::run(plan, host, options).await);
        });
        Self { process, stopper, ended }
    }

    async fn stop(self) {
        self.stopper.stop();
        let summary = self.ended.await.unwrap().unwrap_or_else(|error| panic!("{}", error.chain()));
        assert!(!summary.finished);
    }
}

/// Everything that was fed is in the output, once.
async fn complete(world: &World) {
    let mut waited = Duration::ZERO;
    while world.judge().unwrap().missing > 0 {
        assert!(waited < PATIENCE, "{} records have not come", world.judge().unwrap().missing);
        sleep(Duration::from_millis(500)).await;
        waited += Duration::from_millis(500);
    }
}

/// Seed 1068: a process that slept beyond `start_timeout` while it took over ended when it woke, with a message that broker or
/// store had not answered. They had; it had not been there.
#[test]
fn a_process_that_slept_through_its_start_goes_on_when_it_wakes() {
    for decider in [DeciderKind::Checkpoint, DeciderKind::Transaction] {
        for awake_for in [1, 50, 400, 900] {
            played(async {
                let world = world(|scenario| {
                    scenario.decider = decider;
                    scenario.disk.latency = Duration::from_millis(200);
                    scenario.weather.latency = Duration::from_millis(50);
                })
                .await;
                world.feed(0, 5, START_MS).await;
                let running = Running::start(&world);
                sleep(Duration::from_millis(awake_for)).await;
                running.process.freeze(0);
                sleep(Duration::from_secs(90)).await;
                assert_eq!(world.judge().unwrap().missing, 5, "it had not come to work before it slept");
                running.process.thaw();
                complete(&world).await;
                running.stop().await;
            });
        }
    }
}

/// A request of the transaction that has ended, once more: a copy that the network held back.
async fn add_again(world: &World, transaction: &serde_json::Value) -> i16 {
    // With KIP-890 the end of a transaction gives its producer the next epoch.
    let bumped = i64::from(world.scenario().transaction_version == 2);
    let epoch = transaction["producer_epoch"].as_i64().unwrap() - bumped;
    let text = |name: &str| StrBytes::from_string(transaction[name].as_str().unwrap().to_owned());
    let topic = AddPartitionsToTxnTopic::default()
        .with_name(TopicName(StrBytes::from_string("out".to_owned())))
        .with_partitions(vec![0]);
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(TransactionalId(text("transactional_id")))
        .with_v3_and_below_producer_id(ProducerId(transaction["producer_id"].as_i64().unwrap()))
        .with_v3_and_below_producer_epoch(epoch as i16)
        .with_v3_and_below_topics(vec![topic]);
    let node = NodeId(transaction["coordinator"].as_i64().unwrap() as i32);
    let answer = world.cluster().broker.request(node, 3, Request::from(request)).await.unwrap();
    let Response::AddPartitionsToTxn(answer) = answer else {
        unreachable!("an answer is of its request's kind")
    };
    answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
}

/// Seed 1349: before KIP-890 a request that comes late may begin a transaction again that has ended, since it has its identity
/// still. It holds no record, the job goes on beside it, and its time-out ends it; until then readers of its partition wait.
#[test]
fn on_v1_a_late_request_begins_a_transaction_that_holds_nothing_and_times_out() {
    for version in [0, 2] {
        played(async {
            let world = world(|scenario| {
                (scenario.transaction_version, scenario.decider) = (version, DeciderKind::Transaction);
            })
            .await;
            let running = Running::start(&world);
            world.feed(0, 5, START_MS).await;
            complete(&world).await;
            assert_eq!(world.open_transactions(), Vec::<String>::new(), "an idle job has nothing open");
            let ended = world.cluster().broker.state()["transactions"].as_array().unwrap().clone();
            let used = ended.iter().find(|one| one["state"] == "CompleteCommit").unwrap();
            let code = add_again(&world, used).await;
            if version == 2 {
                assert_ne!(code, 0, "an identity of KIP-890 ends with its transaction");
                return running.stop().await;
            }
            assert_eq!(code, 0);
            assert_eq!(world.open_transactions().len(), 1);
            for partition in [0, 1] {
                world.feed(partition, 5, START_MS).await;
            }
            complete(&world).await;
            running.stop().await;
            sleep(world.scenario().transaction_timeout + Duration::from_secs(5)).await;
            assert_eq!(world.open_transactions(), Vec::<String>::new());
            assert_eq!(world.judge().unwrap().missing, 0);
            assert_eq!(world.committed(INPUT, 0).len(), 10);
        });
    }
}
