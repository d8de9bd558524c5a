//! Partitions that an admin has marked aborted behind the coordinator's back (`kafka-transactions.sh abort`).

use crate::world::{World, on_each, recover};
use hapax::engine::{Handle, KafkaSink, Known, Outcome, Standing};
use hapax_broker::{Afterwards, ApiKey, Rule};
use std::time::Duration;

/// Writes an abort marker into one partition of a prepared transaction.
async fn mark(world: &World, handle: &Handle, partition: i32) {
    let client = world.client().await;
    let marker = hapax_kafka::transaction::EndMarker {
        identity: handle.identity,
        commit: false,
        coordinator_epoch: 0,
    };
    let deadline = hapax_host::Deadline::after(client.host().now(), Some(Duration::from_secs(30)));
    let unanswered = std::sync::atomic::AtomicUsize::new(0);
    let written = hapax_kafka::transaction::write_end_marker(
        &client,
        &world.topic,
        partition,
        marker,
        deadline,
        &unanswered,
    );
    written.await.unwrap();
}

fn assert_not_committed(report: &hapax::engine::Recovered, handle: &Handle) {
    let [one] = report.transactions() else { panic!("{report:?}") };
    assert!(!matches!(one.standing, Standing::Committed), "{report:?}");
    assert!(!report.is_settled());
    assert_eq!(report.left(), [Known::from(handle.clone())]);
}

async fn of_patience(world: &World, patience: Duration) -> KafkaSink {
    let sink = world.builder().patience(patience).exactly_once().unwrap();
    recover::<Known>(&sink, &[]).await.recorded().await.unwrap();
    sink
}

/// The coordinator was told to commit all the same, by a run that could not look.
#[test]
fn a_lane_with_a_marked_partition_is_never_called_committed_however_often_it_is_recovered() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 4).await;
        mark(&world, &handle, 1).await;
        world.end(&handle, true).await;
        for _ in 0..3 {
            let report = recover(&world.sink(), std::slice::from_ref(&handle)).await;
            assert_not_committed(&report, &handle);
            let Standing::Unknown(why) = &report.transactions()[0].standing else { panic!("{report:?}") };
            assert!(
                why.contains("some partitions are committed") || why.contains("the data aborted"),
                "{why}"
            );
        }
        assert_eq!(world.seen().await, [0, 2], "the other partition's records are there");
    });
}

/// Wherever the patience ends, what was not looked at is not called committed.
#[test]
fn patience_that_ends_calls_no_lane_with_a_marked_partition_committed() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 4).await;
        mark(&world, &handle, 0).await;
        world.end(&handle, true).await;
        for patience_ms in [0, 1, 5, 20, 100, 1_500] {
            let patience = Duration::from_millis(patience_ms);
            let sink = world.builder().patience(patience).exactly_once().unwrap();
            let slow = Rule::on(ApiKey::Fetch).always().delay(Duration::from_millis(700));
            let slow = world.broker().faults().guard(slow).unwrap();
            let report = recover(&sink, std::slice::from_ref(&handle)).await;
            assert!(slow.fired() > 0, "nobody has read a control batch");
            assert_not_committed(&report, &handle);
        }
    });
}

/// The first try ended without an outcome; the second one's answer is "committed", whatever the partitions have.
#[test]
fn a_commit_that_is_tried_again_looks_at_the_control_batches() {
    on_each(|world| async move {
        let sink = of_patience(&world, Duration::from_secs(2)).await;
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 4).await;
        let unheard = |api| Rule::on(api).always().drop_request(Afterwards::Close);
        let commits = world.broker().faults().guard(unheard(ApiKey::EndTxn)).unwrap();
        let looks = world.broker().faults().guard(unheard(ApiKey::DescribeTransactions)).unwrap();
        assert!(matches!(lane.commit(&handle).await.unwrap(), Outcome::Unknown(_)));
        assert!(commits.fired() > 0 && looks.fired() > 0);
        drop((commits, looks));
        mark(&world, &handle, 0).await;
        world.end(&handle, true).await;
        let outcome = lane.commit(&handle).await.unwrap();
        let Outcome::Unknown(why) = &outcome else { panic!("{outcome:?}") };
        assert!(why.contains("committed"), "{why}");
    });
}

/// What this crate says of it: a live commit that is answered at once is believed.
#[test]
fn a_live_commit_that_is_answered_at_once_does_not_see_a_marked_partition() {
    on_each(|world| async move {
        let sink = world.begun().await;
        let mut lane = sink.lane(0).await.unwrap();
        let handle = world.prepared(&mut lane, 1, 0, 4).await;
        mark(&world, &handle, 1).await;
        let outcome = lane.commit(&handle).await.unwrap();
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        assert_eq!(world.seen().await, [0, 2], "readers do not see the marked half");
    });
}
