//! The core on Apache Kafka 4.4.0 (V2) and 3.9.1 (V1).

use crate::world::{PARTITIONS, World, block_on, commit, recover, settle, unique, wall_ms};
use hapax::engine::{IdOnly, Known, Standing};
use std::future::Future;
use xtask::{
    judge::Judge,
    kafka::{Version, shared},
};

fn on_kafka<F: Future<Output = ()>>(name: &str, scenario: impl Fn(World) -> F) {
    for version in Version::ALL {
        let bootstrap = shared(version).bootstrap.clone();
        let topic = unique(name);
        Judge::shared().create_topic(&bootstrap, &topic, PARTITIONS as u32, &[]).unwrap();
        block_on(scenario(World { broker: None, bootstrap, job: topic.clone(), topic }));
    }
}

#[test]
fn epochs_are_written_prepared_and_committed_on_apache_kafka() {
    on_kafka("engine-epochs", |world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        for epoch in 1..=7 {
            let handle = world.prepared(&mut lane, epoch, (epoch - 1) * 10, 10).await;
            lane.recorded(commit(&lane, &handle).await);
        }
        let _undecided = world.prepared(&mut lane, 8, 70, 10).await;
        let _next = world.begun().await;
        assert_eq!(world.seen().await, (0..70).collect::<Vec<_>>());
    });
}

#[test]
fn a_decided_epoch_is_resumed_or_written_again_on_apache_kafka() {
    on_kafka("engine-recover", |world| async move {
        let sink = world.begun().await;
        let mut lanes = [sink.lane(0).await.unwrap(), sink.lane(1).await.unwrap()];
        let lost = world.prepared(&mut lanes[0], 1, 0, 10).await;
        let open = world.prepared(&mut lanes[1], 1, 10, 10).await;
        world.abort(&lost).await;
        assert_eq!(settle(&world.sink(), &[lost, open]).await, 2);
        assert_eq!(world.seen().await, (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn a_bare_id_is_enough_on_apache_kafka_where_what_stands_there_fits() {
    on_kafka("engine-id", |world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 10).await;
        let partitions = handle.partitions.iter().map(|part| (part.topic.clone(), part.partition));
        let known = IdOnly {
            partitions: Some(partitions.collect()),
            ..IdOnly::new(handle.transactional_id.to_string(), wall_ms() + 1_000)
        };
        let early = IdOnly { decided_ms: handle.started_ms - 60_000, ..known.clone() };
        let report = recover(&world.sink(), &[early]).await;
        assert!(matches!(report.transactions()[0].standing, Standing::Unknown(_)), "{report:?}");
        let sink = world.sink();
        let report = recover(&sink, std::slice::from_ref(&known)).await;
        assert!(report.is_settled(), "{report:?}");
        // Before it is recorded, the next one finds it committed.
        assert!(recover(&world.sink(), &[Known::from(known)]).await.is_settled());
        report.recorded().await.unwrap();
        assert_eq!(world.seen().await, (0..10).collect::<Vec<_>>());
    });
}
