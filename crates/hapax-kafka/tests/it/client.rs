//! Connections, metadata and admin calls against real brokers.

use crate::support::*;
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client, ClientConfig, ClientError, CoordinatorKind, Isolation, KafkaCode,
    admin::{self, ConfigResource, Created, NewTopic, OffsetSpec},
};

#[test]
fn topics_are_made_described_and_found() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let name = unique("made");
        block_on(async {
            let client = connect(bootstrap).await;
            let new = NewTopic::new(&name, 3).with("max.message.bytes", "2000");
            let made =
                admin::create_topics(&client, std::slice::from_ref(&new), soon(&client)).await.unwrap();
            assert_eq!(made, [Created::Now]);
            let made = admin::create_topics(&client, &[new], soon(&client)).await.unwrap();
            assert_eq!(made, [Created::AlreadyThere]);
            let topic = eventually(&client, "a leader of each partition", || async {
                let topic = client.topics(&[&name]).await.unwrap().remove(0);
                let led = topic.partitions.iter().filter(|partition| partition.leader.is_some()).count();
                (led == 3).then_some(topic)
            })
            .await;
            assert_ne!(topic.id.0, [0; 16]);
            assert_eq!(client.topic_id(&name), Some(topic.id));
            assert_eq!(client.cached_leader(&name, 2), topic.partition(2).unwrap().leader);
            let resource = ConfigResource::Topic(&name);
            let configs = admin::describe_configs(&client, resource, &["max.message.bytes"], soon(&client));
            assert_eq!(configs.await.unwrap()["max.message.bytes"].as_deref(), Some("2000"));
        });
    }
}

#[test]
fn an_unknown_topic_is_an_entry_with_an_error_and_is_not_made() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let name = unique("nowhere");
    block_on(async {
        let client = connect(bootstrap).await;
        for _ in 0..2 {
            let topic = client.topics(&[&name]).await.unwrap().remove(0);
            let error = topic.usable().unwrap_err();
            assert_eq!(error.code(), Some(KafkaCode::UNKNOWN_TOPIC_OR_PARTITION));
            assert!(error.to_string().contains(&name));
        }
        let deadline = Deadline::after(client.host().now(), Some(std::time::Duration::from_secs(5)));
        let offsets = [(name.as_str(), 0)];
        let offsets =
            admin::list_offsets(&client, &offsets, OffsetSpec::Earliest, Isolation::ReadCommitted, deadline);
        let error = offsets.await.unwrap_err();
        assert_eq!(error.code(), Some(KafkaCode::UNKNOWN_TOPIC_OR_PARTITION));
    });
}

#[test]
fn offsets_are_found_by_start_end_and_time() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let topic = unique("offsets");
        let judge = Judge::shared();
        judge.create_topic(bootstrap, &topic, 1, &[("message.timestamp.type", "CreateTime")]).unwrap();
        let now = Host::real().wall_ms();
        let records: Vec<_> = (0..10)
            .map(|n| xtask::judge::Record {
                timestamp_ms: Some(now - 1000 + n),
                ..xtask::judge::Record::value("v")
            })
            .collect();
        judge.produce(bootstrap, &topic, &records).unwrap();
        block_on(async {
            let client = connect(bootstrap).await;
            let offset = async |spec, isolation| {
                let partitions = [(topic.as_str(), 0)];
                let listed = admin::list_offsets(&client, &partitions, spec, isolation, soon(&client));
                listed.await.unwrap().remove(0)
            };
            assert_eq!(offset(OffsetSpec::Earliest, Isolation::ReadCommitted).await.offset, Some(0));
            assert_eq!(offset(OffsetSpec::Latest, Isolation::ReadCommitted).await.offset, Some(10));
            let by_time = offset(OffsetSpec::Timestamp(now - 997), Isolation::ReadCommitted).await;
            assert_eq!((by_time.offset, by_time.timestamp_ms), (Some(3), Some(now - 997)));
            assert!(by_time.leader_epoch.is_some());
            let after = offset(OffsetSpec::Timestamp(now + 10_000), Isolation::ReadCommitted).await;
            assert_eq!(after.offset, None);
            // An open transaction moves the end only for who reads uncommitted.
            let long = std::time::Duration::from_secs(60);
            let open = Prepared::begin(&client, &unique("offsets"), long, &topic, &numbered(5)).await;
            assert_eq!(offset(OffsetSpec::Latest, Isolation::ReadCommitted).await.offset, Some(10));
            assert_eq!(offset(OffsetSpec::Latest, Isolation::ReadUncommitted).await.offset, Some(15));
            open.end(&client, false).await;
        });
    }
}

#[test]
fn nobody_at_the_address_is_said_with_the_address() {
    block_on(async {
        let config = ClientConfig::new(vec![("127.0.0.1".to_owned(), 1)]);
        let error = Client::connect(Host::real(), config).await.unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
        assert!(error.is_retriable());
    });
}

#[test]
fn pipelined_requests_are_answered_each_by_its_own() {
    use hapax_kafka::wire::Request;
    use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest};
    let bootstrap = &shared(Version::V4_4).bootstrap;
    block_on(async {
        let client = connect(bootstrap).await;
        let connection = client.coordinator(CoordinatorKind::Transaction, "pipelined").await.unwrap();
        let timeout = std::time::Duration::from_secs(20);
        let mut pending = Vec::new();
        for n in 0..200 {
            let key = hapax_kafka::wire::text(&format!("pipelined-{n}"));
            let request = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![key]);
            let version = connection.choose(FindCoordinatorRequest::KEY, 4..=4).unwrap();
            pending.push(connection.call(version, &request, timeout));
            drop(connection.call(12, &MetadataRequest::default(), timeout));
        }
        for (n, answer) in pending.into_iter().enumerate() {
            let answer = answer.await.unwrap();
            assert_eq!(answer.coordinators[0].key.as_str(), format!("pipelined-{n}"));
        }
        assert!(!connection.is_closed());
    });
}
