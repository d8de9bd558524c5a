//! A sink on whose cluster no time-out ends a transaction (KIP-939), on the broker of this repository.

use crate::world::{PARTITIONS, PROTOCOLS, World, block_on, recover};
use hapax::{
    Code,
    cluster::Cluster,
    engine::{EngineError, KafkaSink, Known, Standing},
};
use hapax_broker::{Broker, ServerOptions, Settings};
use hapax_host::Deadline;
use hapax_kafka::transaction::{ListFilter, list_transactions};
use std::{future::Future, time::Duration};

/// Longer than any transaction timeout that a broker takes.
const A_MONTH_MS: i64 = 31 * 24 * 3_600 * 1_000;

fn on_each<F: Future<Output = ()>>(two_phase_commit: bool, scenario: impl Fn(World) -> F) {
    for transaction_version in PROTOCOLS {
        block_on(async {
            let settings = Settings { transaction_version, two_phase_commit, ..Settings::default() };
            let broker = Broker::start(settings, ServerOptions::default()).await.unwrap();
            broker.create_topic("out", PARTITIONS).await.unwrap();
            let bootstrap = broker.bootstrap();
            scenario(World { broker: Some(broker), bootstrap, topic: "out".into(), job: "orders".into() })
                .await;
        });
    }
}

fn lasting(world: &World) -> KafkaSink {
    let cluster = Cluster { two_phase: true, ..Cluster::named("main", &world.bootstrap).unwrap() };
    KafkaSink::builder(cluster).job(&world.job).exactly_once().unwrap()
}

#[test]
fn a_cluster_that_has_not_the_whole_of_it_is_refused_before_an_id_of_the_job_is_touched() {
    on_each(false, |world| async move {
        let sink = lasting(&world);
        let none: [Known; 0] = [];
        let error = sink.recover(&none, &sink.ids(0..1), 1).await.unwrap_err();
        assert!(matches!(error, EngineError::Usage { code: Code::TwoPhase, .. }), "{error}");
        assert!(error.to_string().contains("two_phase"), "{error}");
        let (client, filter) = (world.client().await, ListFilter::default());
        let deadline = Deadline::after(client.host().now(), Some(Duration::from_secs(30)));
        let listed = list_transactions(&client, &filter, deadline).await.unwrap();
        let ids = sink.ids(0..1);
        assert!(listed.iter().all(|one| !ids.contains(&one.transactional_id)), "{listed:?}");
    });
}

#[test]
fn neither_what_is_prepared_nor_what_is_written_again_has_a_deadline() {
    on_each(true, |world| async move {
        let sink = lasting(&world);
        recover::<Known>(&sink, &[]).await.recorded().await.unwrap();
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 4).await;
        assert_eq!(handle.deadline_ms, i64::MAX);
        world.broker().jump_clock(A_MONTH_MS).unwrap();
        world.abort(&handle).await;
        let report = recover(&lasting(&world), &[handle]).await;
        let [one] = report.transactions() else { panic!("{report:?}") };
        let Standing::Rewritten(again) = &one.standing else { panic!("{report:?}") };
        assert_eq!(again.deadline_ms, i64::MAX);
        world.broker().jump_clock(A_MONTH_MS).unwrap();
        let report = recover(&lasting(&world), &report.left()).await;
        assert!(report.is_settled(), "{report:?}");
        assert_eq!(world.seen().await, (0..4).collect::<Vec<_>>());
    });
}
