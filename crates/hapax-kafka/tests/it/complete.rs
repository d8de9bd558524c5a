//! Transactions whose coordinator has ended them without telling a partition, and how the partition is told.
//!
//! A broker that does not verify partitions lets a V1 producer write where the coordinator knows nothing of it: the state
//! that KAFKA-20734 leaves behind when a partition has no leader for a moment.

use crate::support::*;
use hapax_commit::{Identity, TransactionVersion};
use hapax_kafka::{
    Client, KafkaCode,
    transaction::{self, EndTxnAnswer, EndedTransaction},
};
use std::{sync::atomic::AtomicUsize, time::Duration};
use xtask::kafka::Cluster;

const V1: TransactionVersion = TransactionVersion::V1;

/// A transaction on partition 0, with records also on partition 1, of which only the leader there knows.
struct World {
    client: Client,
    bootstrap: String,
    topic: String,
    id: String,
}

fn on_both<F: Future<Output = ()>>(scenario: impl Fn(World) -> F) {
    for version in Version::ALL {
        let cluster = Cluster::builder(version)
            .property("transaction.partition.verification.enable", "false")
            .start()
            .unwrap();
        let (bootstrap, topic, id) = (cluster.bootstrap(), unique("complete"), unique("complete"));
        Judge::shared().create_topic(&bootstrap, &topic, 2, &[]).unwrap();
        block_on(async {
            let client = connect(&bootstrap).await;
            scenario(World { client, bootstrap: bootstrap.clone(), topic, id }).await;
        });
    }
}

impl World {
    async fn init(&self) -> Identity {
        transaction::init_producer_id(
            &self.client,
            &self.id,
            transaction::Lifetime::Millis(60_000),
            None,
            soon(&self.client),
        )
        .await
        .unwrap()
    }

    async fn write(&self, identity: Identity, partition: i32, values: &[&str]) {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let batch = Batch { topic: &self.topic, partition, values: &values, base_sequence: 0 };
        eventually(&self.client, "room for the records", || async {
            let (code, _) = batch.produce(&self.client, &self.id, identity, V1).await;
            (code == KafkaCode::NONE).then_some(())
        })
        .await;
    }

    async fn add(&self, identity: Identity, partitions: &[i32]) {
        let partitions: &[(&str, &[i32])] = &[(&self.topic, partitions)];
        let added =
            transaction::add_partitions(&self.client, &self.id, identity, partitions, soon(&self.client));
        added.await.unwrap();
    }

    async fn end(&self, identity: Identity, commit: bool) {
        let deadline = soon(&self.client);
        let answer =
            transaction::end_txn(&self.client, &self.id, identity, V1, commit, deadline, || {}).await;
        assert!(
            matches!(answer, EndTxnAnswer::Committed { .. } | EndTxnAnswer::Aborted { .. }),
            "{answer:?}"
        );
    }

    /// Begins on partition 0, writes also to partition 1, ends: partition 1 is not told.
    async fn left_out(&self, values: &[&str], commit: bool) -> Identity {
        let identity = self.init().await;
        self.add(identity, &[0]).await;
        self.write(identity, 0, values).await;
        self.write(identity, 1, values).await;
        self.end(identity, commit).await;
        identity
    }

    async fn complete(&self, identity: Identity, commit: bool) {
        let partitions = [(&*self.topic, 0, 1), (&*self.topic, 1, 1)];
        let ended =
            EndedTransaction { transactional_id: &self.id, identity, commit, partitions: &partitions };
        transaction::complete(&self.client, &ended, &AtomicUsize::new(0)).await.unwrap();
    }

    fn visible(&self) -> [Vec<String>; 2] {
        let read = Judge::shared().read_all(&self.bootstrap, &self.topic, Reading::ReadCommitted).unwrap();
        [0, 1].map(|partition| read[partition].records.iter().map(|record| record.text()).collect())
    }

    fn stable(&self) -> bool {
        let bounds = Judge::shared().end_offsets(&self.bootstrap, &self.topic).unwrap();
        bounds.iter().all(|bounds| bounds.stable_end == bounds.end)
    }
}

#[test]
fn records_of_a_commit_that_a_partition_was_not_told_of_become_visible() {
    on_both(async |world| {
        let identity = world.left_out(&["a", "b"], true).await;
        eventually(&world.client, "the marker on partition 0", || async {
            (world.visible()[0].len() == 2).then_some(())
        })
        .await;
        assert_eq!(world.visible()[1], [""; 0], "partition 1 was not told");
        world.complete(identity, true).await;
        assert_eq!(world.visible(), [["a", "b"], ["a", "b"]]);
        assert!(world.stable());
        // Asked again, nothing is to be done.
        world.complete(identity, true).await;
    });
}

#[test]
fn records_of_an_abort_that_a_partition_was_not_told_of_stay_invisible_when_the_producer_commits_again() {
    on_both(async |world| {
        world.left_out(&["a", "b"], false).await;
        let next = world.init().await;
        assert!(!world.stable(), "partition 1 was not told");
        let ours = |open: Identity| {
            (open.producer_id == next.producer_id && open.producer_epoch < next.producer_epoch)
                .then(|| world.id.clone())
        };
        for partition in [0, 1] {
            transaction::end_left_open(&world.client, &world.topic, partition, ours).await.unwrap();
        }
        assert!(world.stable());
        world.add(next, &[0, 1]).await;
        world.write(next, 0, &["c"]).await;
        world.write(next, 1, &["c"]).await;
        world.end(next, true).await;
        let partitions = [(&*world.topic, 0, 3), (&*world.topic, 1, 3)];
        let ended = EndedTransaction {
            transactional_id: &world.id,
            identity: next,
            commit: true,
            partitions: &partitions,
        };
        transaction::complete(&world.client, &ended, &AtomicUsize::new(0)).await.unwrap();
        assert_eq!(world.visible(), [["c"], ["c"]]);
    });
}

#[test]
fn an_open_transaction_of_another_producer_does_not_keep_a_commit_from_being_complete() {
    on_both(async |world| {
        let other = format!("{}-other", world.id);
        let open =
            Prepared::begin(&world.client, &other, Duration::from_secs(60), &world.topic, &numbered(1)).await;
        assert_eq!(open.first_offset, 0);
        let identity = world.init().await;
        world.add(identity, &[0]).await;
        world.write(identity, 0, &["a"]).await;
        world.end(identity, true).await;
        let began = world.client.host().now();
        let partitions = [(&*world.topic, 0, 1)];
        let ended =
            EndedTransaction { transactional_id: &world.id, identity, commit: true, partitions: &partitions };
        transaction::complete(&world.client, &ended, &AtomicUsize::new(0)).await.unwrap();
        let took = world.client.host().now().saturating_duration_since(began);
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert_eq!(world.visible()[0], [""; 0], "the other one is in front");
    });
}

/// Why it matters: what a broker does by itself.
#[test]
fn without_help_the_next_commit_of_the_producer_shows_what_was_aborted() {
    on_both(async |world| {
        world.left_out(&["a", "b"], false).await;
        let next = world.init().await;
        world.add(next, &[1]).await;
        world.write(next, 1, &["c"]).await;
        world.end(next, true).await;
        eventually(&world.client, "the next commit", || async {
            world.visible()[1].contains(&"c".to_owned()).then_some(())
        })
        .await;
        assert_eq!(world.visible()[1], ["a", "b", "c"]);
    });
}
