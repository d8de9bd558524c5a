//! What a recovery whose time is over says.

use crate::world::{World, on_each, recover};
use hapax::engine::{Handle, Known, Standing};
use hapax_broker::{Afterwards, ApiKey, Rule};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);

async fn decided(world: &World) -> Handle {
    let sink = world.begun().await;
    let mut lane = sink.lane(0).await.unwrap();
    world.prepared(&mut lane, 1, 0, 4).await
}

#[test]
fn a_recovery_that_was_long_about_clearing_looks_and_commits_all_the_same() {
    on_each(|world| async move {
        let handle = decided(&world).await;
        let slow = Rule::on(ApiKey::InitProducerId).times(2).delay(PATIENCE * 2);
        let slow = world.broker().faults().guard(slow).unwrap();
        let sink = world.builder().patience(PATIENCE / 2).exactly_once().unwrap();
        let report = recover(&sink, &[handle]).await;
        assert_eq!(slow.fired(), 2);
        assert!(report.is_settled(), "{report:?}");
        assert_eq!(world.seen().await, (0..4).collect::<Vec<_>>());
    });
}

/// Nobody tells whether readers see it: the coordinator has committed, and its partitions do not answer.
#[test]
fn partitions_that_do_not_tell_hold_a_recovery_up_for_its_patience_and_no_longer() {
    on_each(|world| async move {
        let handle = decided(&world).await;
        world.end(&handle, true).await;
        let silent = Rule::on(ApiKey::ListOffsets).always().drop_request(Afterwards::Close);
        let silent = world.broker().faults().guard(silent).unwrap();
        let sink = world.builder().patience(PATIENCE).exactly_once().unwrap();
        let report = tokio::time::timeout(Duration::from_secs(120), recover(&sink, &[handle])).await;
        let report = report.expect("a recovery ends");
        assert!(matches!(report.transactions()[0].standing, Standing::Unknown(_)), "{report:?}");
        assert!(silent.fired() > 0, "the partitions were not asked");
        drop(silent);
        let left: Vec<Known> = report.left();
        let report = recover(&world.sink(), &left).await;
        assert!(report.is_settled(), "{report:?}");
        report.recorded().await.unwrap();
        assert_eq!(world.seen().await, (0..4).collect::<Vec<_>>());
    });
}
