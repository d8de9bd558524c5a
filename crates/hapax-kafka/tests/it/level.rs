//! A cluster whose `transaction.version` is below 2, and one that goes back: why the client looks before each V2
//! request, and why a transaction keeps the version that it began with.

use crate::support::*;
use hapax_commit::{Identity, TransactionVersion};
use hapax_kafka::{
    Client, CoordinatorKind, KafkaCode,
    transaction::{EndTxnAnswer, Unanswered},
    wire,
};
use kafka_protocol::messages::{EndTxnRequest, ProducerId};
use std::time::Duration;
use xtask::kafka::Cluster;

const LONG: Duration = Duration::from_secs(300);

struct World {
    cluster: Cluster,
    bootstrap: String,
    topic: String,
}

#[test]
fn v2_requests_are_never_sent_below_level_two() {
    let cluster = Cluster::builder(Version::V4_4).transaction_version(0).start().unwrap();
    let (bootstrap, topic) = (cluster.bootstrap(), unique("level"));
    Judge::shared().create_topic(&bootstrap, &topic, 1, &[]).unwrap();
    let world = World { cluster, bootstrap, topic };
    the_guard_answers_instead_of_the_broker(&world);
    the_broker_itself_hangs_the_id(&world);
    a_transaction_keeps_its_version(&world);
}

impl World {
    /// A new client each time: it has to see what the cluster has finalized now.
    fn client<T>(&self, work: impl AsyncFnOnce(&Client) -> T) -> T {
        block_on(async { work(&connect(&self.bootstrap).await).await })
    }

    fn begin(&self, id: &str) -> Prepared {
        self.client(async |client| Prepared::begin(client, id, LONG, &self.topic, &numbered(1)).await)
    }

    fn commit(&self, prepared: &Prepared) -> EndTxnAnswer {
        self.client(async |client| prepared.end(client, true).await)
    }
}

fn was_not_sent(answer: &EndTxnAnswer) -> bool {
    matches!(answer, EndTxnAnswer::Unknown(why @ Unanswered::VersionLowered { .. }) if !why.may_have_had_effect())
}

fn the_guard_answers_instead_of_the_broker(world: &World) {
    let prepared = world.begin("guarded");
    assert_eq!(prepared.version, TransactionVersion::V1);
    let as_v2 = Prepared { version: TransactionVersion::V2, ..prepared.clone() };
    let answer = world.commit(&as_v2);
    assert!(was_not_sent(&answer), "{answer:?}");
    let answer = world.commit(&prepared);
    assert!(matches!(answer, EndTxnAnswer::Committed { .. }), "{answer:?}");
}

/// Below level 2 the coordinator cannot write what version 5 wants written, and the id stays busy until another
/// coordinator loads it.
fn the_broker_itself_hangs_the_id(world: &World) {
    let prepared = world.begin("hanging");
    let raw_end =
        |version| world.client(async |client| raw_end(client, "hanging", prepared.identity, version).await);
    assert_eq!(raw_end(5), KafkaCode::UNSUPPORTED_VERSION);
    assert_eq!(raw_end(5), KafkaCode::CONCURRENT_TRANSACTIONS);
    assert_eq!(raw_end(4), KafkaCode::CONCURRENT_TRANSACTIONS);
    world.cluster.stop(1).unwrap();
    world.cluster.restart(1).unwrap();
    let answer = world.commit(&prepared);
    assert!(matches!(answer, EndTxnAnswer::Committed { .. }), "{answer:?}");
}

async fn raw_end(client: &Client, id: &str, identity: Identity, version: i16) -> KafkaCode {
    let connection = client.coordinator(CoordinatorKind::Transaction, id).await.unwrap();
    let request = EndTxnRequest::default()
        .with_transactional_id(wire::text(id).into())
        .with_producer_id(ProducerId(identity.producer_id.0))
        .with_producer_epoch(identity.producer_epoch.0)
        .with_committed(true);
    let answer = connection.call(version, &request, Duration::from_secs(20)).await.unwrap();
    KafkaCode(answer.error_code)
}

fn a_transaction_keeps_its_version(world: &World) {
    let old = world.begin("raised");
    world.cluster.set_transaction_version(2).unwrap();
    let new = world.begin("lowered");
    assert_eq!((old.version, new.version), (TransactionVersion::V1, TransactionVersion::V2));
    let answer = world.commit(&old);
    assert!(matches!(answer, EndTxnAnswer::Committed { next } if next == old.identity), "{answer:?}");

    world.cluster.set_transaction_version(1).unwrap();
    let answer = world.commit(&new);
    assert!(was_not_sent(&answer), "{answer:?}");
    world.cluster.set_transaction_version(2).unwrap();
    let answer = world.commit(&new);
    assert!(matches!(answer, EndTxnAnswer::Committed { .. }), "{answer:?}");
}
