//! From less than a handle: the checkpoint of an engine that knew only the id.

use crate::world::{World, commit, on_each, recover, wall_ms};
use hapax::engine::{Handle, IdOnly, KafkaSink, Known, Lane, Standing};
use hapax_broker::Step;
use std::collections::BTreeSet;

/// What an engine without handles has of a transaction that it decides now.
fn forgotten(handle: &Handle) -> IdOnly {
    IdOnly::new(handle.transactional_id.to_string(), wall_ms())
}

async fn prepared(world: &World) -> (KafkaSink, Lane, Handle) {
    let sink = world.begun().await;
    let mut lane = sink.lane(0).await.unwrap();
    let handle = world.prepared(&mut lane, 1, 0, 4).await;
    (sink, lane, handle)
}

async fn standing(world: &World, known: &IdOnly) -> Standing {
    let report = recover(&world.sink(), std::slice::from_ref(known)).await;
    report.transactions()[0].standing.clone()
}

/// Not known, and the reason names this.
fn assert_refused(standing: &Standing, what: &str) {
    assert!(matches!(standing, Standing::Unknown(why) if why.contains(what)), "{standing:?}");
}

#[test]
fn an_open_transaction_is_found_by_its_id_and_committed() {
    on_each(|world| async move {
        let (_sink, _lane, handle) = prepared(&world).await;
        let partitions = handle.partitions.iter().map(|part| (part.topic.clone(), part.partition));
        let known = IdOnly {
            started_after_ms: Some(handle.started_ms - 60_000),
            topics: Some(["out".to_owned()].into()),
            partitions: Some(partitions.collect()),
            ..forgotten(&handle)
        };
        let sink = world.sink();
        let report = recover(&sink, &[known]).await;
        assert!(report.is_settled(), "{report:?}");
        report.recorded().await.unwrap();
        assert_eq!(world.seen().await, (0..4).collect::<Vec<_>>());
        assert!(sink.lane(0).await.is_ok());
    });
}

#[test]
fn handles_and_bare_ids_are_judged_together() {
    on_each(|world| async move {
        let (sink, _lane, handle) = prepared(&world).await;
        let mut other = sink.lane(1).await.unwrap();
        let second = world.prepared(&mut other, 1, 4, 4).await;
        let decided = [Known::from(forgotten(&handle)), Known::from(second)];
        assert!(recover(&world.sink(), &decided).await.is_settled());
        assert_eq!(world.seen().await, (0..8).collect::<Vec<_>>());
    });
}

#[test]
fn a_later_transaction_of_the_same_id_is_left_alone() {
    on_each(|world| async move {
        let (_sink, mut lane, handle) = prepared(&world).await;
        let known = forgotten(&handle);
        lane.recorded(commit(&lane, &handle).await);
        for epoch in 2..4 {
            let next = world.prepared(&mut lane, epoch, epoch * 4, 4).await;
            lane.recorded(commit(&lane, &next).await);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let later = world.prepared(&mut lane, 4, 100, 4).await;
        assert_eq!(later.transactional_id, handle.transactional_id);
        assert_refused(&standing(&world, &known).await, "later one");
        assert!(!world.seen().await.contains(&100), "it was not the checkpoint's to commit");
    });
}

#[test]
fn a_transaction_with_other_partitions_is_left_alone() {
    on_each(|world| async move {
        let (_sink, _lane, handle) = prepared(&world).await;
        let known =
            IdOnly { partitions: Some(BTreeSet::from([("out".to_owned(), 0)])), ..forgotten(&handle) };
        assert_refused(&standing(&world, &known).await, "out-0, out-1");
        let known = IdOnly { topics: Some(["in".to_owned()].into()), ..forgotten(&handle) };
        assert_refused(&standing(&world, &known).await, "out-0, out-1");
        let known = IdOnly { started_after_ms: Some(wall_ms() + 1_000), ..forgotten(&handle) };
        let known = IdOnly { decided_ms: wall_ms() + 2_000, ..known };
        assert_refused(&standing(&world, &known).await, "older one");
        assert!(world.seen().await.is_empty());
    });
}

#[test]
fn an_id_that_the_coordinator_does_not_know_is_said_to_be_forgotten() {
    on_each(|world| async move {
        let known = IdOnly::new("orders-of-long-ago", wall_ms());
        assert_refused(&standing(&world, &known).await, "does not know the id");
    });
}

#[test]
fn an_id_that_was_initialised_since_says_nothing() {
    on_each(|world| async move {
        let (_sink, _lane, handle) = prepared(&world).await;
        let known = forgotten(&handle);
        let _cleared = world.begun().await;
        assert_refused(&standing(&world, &known).await, "initialised since");
    });
}

#[test]
fn a_commit_that_is_under_way_is_waited_for() {
    on_each(|world| async move {
        let (_sink, lane, handle) = prepared(&world).await;
        let known = forgotten(&handle);
        world.broker().step(Step::HoldMarkers(true)).unwrap();
        let commit = lane.commit(&handle);
        let held = tokio::time::timeout(std::time::Duration::from_millis(500), commit).await;
        assert!(held.is_err(), "its partitions do not know it yet");
        let recovered = async { standing(&world, &known).await };
        let released = async {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            world.broker().step(Step::HoldMarkers(false)).unwrap();
        };
        let (standing, ()) = tokio::join!(recovered, released);
        assert_eq!(standing, Standing::Committed);
        assert_eq!(world.seen().await, (0..4).collect::<Vec<_>>());
    });
}

#[test]
fn a_transaction_that_was_aborted_is_said_to_be() {
    on_each(|world| async move {
        let (_sink, _lane, handle) = prepared(&world).await;
        world.abort(&handle).await;
        let report = recover(&world.sink(), &[forgotten(&handle)]).await;
        assert!(matches!(report.transactions()[0].standing, Standing::Aborted(_)), "{report:?}");
        assert_eq!(report.lost().len(), 1);
    });
}

/// The right to describe is missing: the coordinators' log tells the same.
#[test]
fn where_coordinators_may_not_be_asked_their_log_tells() {
    on_each(|world| async move {
        let (_sink, _lane, handle) = prepared(&world).await;
        let denied = 53; // TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        let rule = hapax_broker::Rule::on(hapax_broker::ApiKey::DescribeTransactions).always().error(denied);
        let refused = world.broker().faults().guard(rule).unwrap();
        let report = recover(&world.sink(), &[forgotten(&handle)]).await;
        assert!(refused.fired() > 0);
        assert!(report.is_settled(), "{report:?}");
        drop(refused);
        assert_eq!(world.seen().await, (0..4).collect::<Vec<_>>());
    });
}
