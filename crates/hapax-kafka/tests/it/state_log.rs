//! The coordinators' log beside their own answers.

use crate::support::*;
use hapax_kafka::{
    Client, CoordinatorKind,
    admin::{self, NewTopic},
    transaction::{self, Described, LogState, TransactionState},
};
use std::time::Duration;
use xtask::kafka::Cluster;

const LONG: Duration = Duration::from_secs(120);

/// What coordinator and log say, once the coordinator is in a state. The log is asked last, so it is not behind.
async fn both(client: &Client, id: &str, wanted: &TransactionState) -> (Described, LogState) {
    let described = eventually(client, wanted.name(), || async {
        let described = transaction::describe_transaction(client, id, soon(client)).await.unwrap();
        matches!(&described, Described::Known { state, .. } if state == wanted).then_some(described)
    })
    .await;
    (described, transaction::read_state(client, id, soon(client)).await.unwrap())
}

#[test]
fn the_log_says_of_every_settled_state_what_the_coordinator_says() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let topic = unique("logged");
        Judge::shared().create_topic(bootstrap, &topic, 1, &[]).unwrap();
        block_on(async {
            let client = connect(bootstrap).await;
            let begin = async |id: &str| Prepared::begin(&client, id, LONG, &topic, &numbered(2)).await;
            // Names of more than one byte, and of more than one UTF-16 unit, hash as in Java.
            let id = |name: &str| unique(&format!("{name}-\u{e4}\u{1f600}"));
            let (empty, open, committed, aborted) = (id("empty"), id("open"), id("committed"), id("aborted"));
            transaction::init_producer_id(
                &client,
                &empty,
                transaction::Lifetime::Millis(60_000),
                None,
                soon(&client),
            )
            .await
            .unwrap();
            begin(&open).await;
            begin(&committed).await.end(&client, true).await;
            begin(&aborted).await.end(&client, false).await;
            let cases = [
                (&empty, TransactionState::Empty),
                (&open, TransactionState::Ongoing),
                (&committed, TransactionState::CompleteCommit),
                (&aborted, TransactionState::CompleteAbort),
            ];
            for (id, state) in cases {
                let (described, logged) = both(&client, id, &state).await;
                assert_eq!(logged.described(), described, "{version}: {id}: {logged:?}");
                // A broker learns the client's protocol from the first partition of a transaction.
                let is_v2 = version.knows_v2() && state != TransactionState::Empty;
                assert_eq!(logged.transaction.unwrap().client_version, if is_v2 { 2 } else { 0 }, "{id}");
                assert!(logged.offset.is_some_and(|offset| offset < logged.end));
            }
            let unknown = id("unknown");
            let described =
                transaction::describe_transaction(&client, &unknown, soon(&client)).await.unwrap();
            let logged = transaction::read_state(&client, &unknown, soon(&client)).await.unwrap();
            assert_eq!((described, logged.described()), (Described::Unknown, Described::Unknown));
            assert_eq!((logged.offset, logged.transaction), (None, None));
            transaction::init_producer_id(
                &client,
                &open,
                transaction::Lifetime::Millis(60_000),
                None,
                soon(&client),
            )
            .await
            .unwrap();
        });
    }
}

/// A decided end stays under way while the leader of a partition does not answer. The coordinator's own log has one
/// copy, so that it does not wait for that broker too.
#[test]
fn an_end_that_is_decided_is_in_flight_in_the_log_too_with_the_coordinators_epoch() {
    for version in Version::ALL {
        let cluster = Cluster::builder(version)
            .nodes(3)
            .property("transaction.state.log.replication.factor", "1")
            .property("transaction.state.log.min.isr", "1")
            .property("broker.session.timeout.ms", "120000")
            .start()
            .unwrap();
        let topic = unique("in-flight");
        block_on(async {
            let client = connect(&cluster.bootstrap()).await;
            let single =
                NewTopic { replication: 1, ..NewTopic::new(&topic, 1) }.with("min.insync.replicas", "1");
            admin::create_topics(&client, &[single], soon(&client)).await.unwrap();
            let prepared = begin_elsewhere(&client, &topic).await;
            let leader = client.cached_leader(&topic, 0).unwrap().node;
            cluster.pause(u32::try_from(leader.0).unwrap()).unwrap();
            prepared.end(&client, true).await;
            let id = &prepared.transactional_id;
            let (described, logged) = both(&client, id, &TransactionState::PrepareCommit).await;
            assert_eq!(logged.described(), described, "{version}: {logged:?}");
            let Described::Known { identity, partitions, .. } = described else { panic!("{described:?}") };
            let bumped = i16::from(version.knows_v2());
            assert_eq!(identity.producer_epoch.0, prepared.identity.producer_epoch.0 + bumped, "{version}");
            assert_eq!(partitions, [(topic.clone(), vec![0])]);
            cluster.resume(u32::try_from(leader.0).unwrap()).unwrap();
            let (described, logged) = both(&client, id, &TransactionState::CompleteCommit).await;
            assert_eq!(logged.described(), described, "{version}: {logged:?}");
        });
    }
}

/// A transaction whose coordinator is not the leader of the partition that it is written to.
async fn begin_elsewhere(client: &Client, topic: &str) -> Prepared {
    loop {
        let prepared = Prepared::begin(client, &unique("in-flight"), LONG, topic, &numbered(1)).await;
        let kind = CoordinatorKind::Transaction;
        let coordinator = client.coordinator(kind, &prepared.transactional_id).await.unwrap().node();
        if coordinator != client.cached_leader(topic, 0).unwrap().node {
            return prepared;
        }
    }
}

/// Apache Kafka's own authorizer: the log needs no right but READ on its topic, and no other one helps.
#[test]
fn the_log_tells_what_an_acl_forbids_to_ask_for_and_needs_read_on_its_topic() {
    let cluster = Cluster::builder(Version::V4_4)
        .property("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
        .property("allow.everyone.if.no.acl.found", "true")
        .start()
        .unwrap();
    let (bootstrap, topic, id) = (cluster.bootstrap(), unique("denied"), unique("denied"));
    Judge::shared().create_topic(&bootstrap, &topic, 1, &[]).unwrap();
    let deny = |operation: &str, resource: &[&str]| {
        let common = ["--bootstrap-server", &*bootstrap, "--add", "--deny-principal", "User:*"];
        let arguments = [&common[..], &["--operation", operation], resource].concat();
        let output = cluster.run_tool("org.apache.kafka.tools.AclCommand", &arguments).unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let client = async || connect(&bootstrap).await;
    block_on(async { Prepared::begin(&client().await, &id, LONG, &topic, &numbered(1)).await });
    deny("Describe", &["--transactional-id", &id]);
    block_on(async {
        let client = client().await;
        let refused = eventually(&client, "the refusal", || async {
            transaction::describe_transaction(&client, &id, soon(&client)).await.err()
        })
        .await;
        assert!(refused.is_withheld(), "{refused}");
        let logged = transaction::read_state(&client, &id, soon(&client)).await.unwrap();
        assert_eq!(logged.transaction.unwrap().state, TransactionState::Ongoing);
    });
    deny("Read", &["--topic", "__transaction_state"]);
    block_on(async {
        let client = client().await;
        let refused = eventually(&client, "the refusal", || async {
            transaction::read_state(&client, &id, soon(&client)).await.err()
        })
        .await;
        assert!(refused.to_string().contains("TOPIC_AUTHORIZATION_FAILED"), "{refused}");
    });
}
