//! Three brokers; the coordinator of a transaction is silent, then dies.

use crate::support::*;
use hapax_host::Deadline;
use hapax_kafka::{
    Client, CoordinatorKind, NodeId,
    transaction::{self, Described, EndTxnAnswer, InitError, TransactionState, Unanswered},
};
use std::time::Duration;
use xtask::kafka::Cluster;

const LONG: Duration = Duration::from_secs(300);

async fn coordinator(client: &Client, id: &str) -> NodeId {
    eventually(client, "a coordinator", || async {
        let found = client.coordinator(CoordinatorKind::Transaction, id).await;
        found.ok().map(|connection| connection.node())
    })
    .await
}

fn node(node: NodeId) -> u32 {
    u32::try_from(node.0).unwrap()
}

#[test]
fn a_decision_survives_a_silent_and_a_dead_coordinator() {
    let cluster = Cluster::builder(Version::V4_4).nodes(3).start().unwrap();
    let bootstrap = cluster.bootstrap();
    let topic = unique("failover");
    Judge::shared().create_topic(&bootstrap, &topic, 3, &[]).unwrap();
    block_on(async {
        let client = connect(&bootstrap).await;
        let silent = Prepared::begin(&client, "silent", LONG, &topic, &numbered(10)).await;
        unanswered_is_unknown(&cluster, &client, &silent).await;
        a_dead_coordinator_is_replaced(&cluster, &client, &topic).await;
    });
    let expected = [numbered(10), numbered(10)].concat();
    assert_eq!(judged(&bootstrap, &topic, Reading::ReadCommitted), expected);
}

/// The request reaches the broker's socket and stays there: neither committed nor aborted may be concluded.
async fn unanswered_is_unknown(cluster: &Cluster, client: &Client, prepared: &Prepared) {
    let Prepared { transactional_id: id, identity, version, .. } = prepared;
    // The look at the finalized features is fresh, so that nothing but EndTxn waits for the silent broker.
    assert_eq!(client.transaction_version().await.unwrap(), *version);
    let silent = node(coordinator(client, id).await);
    cluster.pause(silent).unwrap();
    let mut written = 0;
    let deadline = Deadline::after(client.host().now(), Some(Duration::from_secs(2)));
    let answer = transaction::end_txn(client, id, *identity, *version, true, deadline, || written += 1).await;
    cluster.resume(silent).unwrap();
    assert!(matches!(answer, EndTxnAnswer::Unknown(Unanswered::Sent(_))), "{answer:?}");
    assert_eq!(written, 1);
    let answer = prepared.end(client, true).await;
    assert!(matches!(answer, EndTxnAnswer::Committed { .. }), "{answer:?}");
}

async fn a_dead_coordinator_is_replaced(cluster: &Cluster, client: &Client, topic: &str) {
    let id = "dead";
    let prepared = Prepared::begin(client, id, LONG, topic, &numbered(10)).await;
    let before = client.cached_leader(topic, 0).unwrap();
    // Two answers to one question, before and after another coordinator has loaded the id.
    let twice = async |own| {
        let deadline = soon(client);
        transaction::init_producer_id(
            client,
            "asked-twice",
            transaction::Lifetime::Millis(60_000),
            own,
            deadline,
        )
        .await
    };
    let first = twice(None).await.unwrap();
    let second = twice(Some(first)).await.unwrap();
    assert_eq!(twice(Some(first)).await.unwrap(), second);

    let dead = coordinator(client, id).await;
    let of_twice = coordinator(client, "asked-twice").await;
    cluster.kill(node(dead)).unwrap();
    let answer = prepared.end(client, true).await;
    assert!(matches!(answer, EndTxnAnswer::Committed { .. }), "{answer:?}");
    assert_ne!(coordinator(client, id).await, dead);
    eventually(client, "the markers", || async {
        let described = transaction::describe_transaction(client, id, soon(client)).await.unwrap();
        let complete = TransactionState::CompleteCommit;
        matches!(described, Described::Known { state, .. } if state == complete).then_some(())
    })
    .await;
    client.refresh(&[]).await.unwrap();
    let after = client.cached_leader(topic, 0).unwrap();
    assert_eq!(before.node == dead, after.leader_epoch > before.leader_epoch, "{before:?} {after:?}");

    if of_twice != dead {
        cluster.restart(node(dead)).unwrap();
        cluster.kill(node(of_twice)).unwrap();
    }
    let third = twice(Some(first)).await;
    // The new coordinator does not know which epoch was the last one: it cannot tell a retry from a zombie.
    assert!(matches!(&third, Err(InitError::Disturbed { .. })), "{third:?}");
}
