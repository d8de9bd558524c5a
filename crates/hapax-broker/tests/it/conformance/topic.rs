//! Topics: making, growing, removing and describing them, and what an id means after its topic is gone.

use super::{
    Protocol, Scenario, all,
    answer::At,
    record::{read, topic_id, topic_name},
    world::{Batch, World, text},
};
use hapax_broker::wire::Response;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, FetchRequest,
    MetadataRequest, ProduceRequest,
    create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic},
    create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig},
    delete_topics_request::DeleteTopicState,
    describe_configs_request::DescribeConfigsResource,
    fetch_request::{FetchPartition, FetchTopic},
    metadata_request::MetadataRequestTopic,
    produce_request::{PartitionProduceData, TopicProduceData},
};
use std::{
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

pub(super) fn scenarios() -> Vec<Scenario> {
    all![
        create_in_every_version,
        create_what_is_refused,
        grow,
        delete_in_every_version,
        created_again_with_another_id,
        deleted_within_a_transaction,
        configurations,
        metadata_in_every_version,
    ]
}

fn creatable(world: &World, short: &str, partitions: i32, replicas: i16) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(topic_name(world, short))
        .with_num_partitions(partitions)
        .with_replication_factor(replicas)
}

fn create(world: &mut World, version: i16, what: &str, topics: Vec<CreatableTopic>, only_validate: bool) {
    let request = CreateTopicsRequest::default()
        .with_timeout_ms(20_000)
        .with_validate_only(only_validate)
        .with_topics(topics);
    let Some(Response::CreateTopics(mut created)) =
        world.quietly(|world| world.tell("create", At::Any, version, request))
    else {
        panic!("no answer")
    };
    // The list of all settings grows with every release.
    for topic in &mut created.topics {
        topic.configs = None;
    }
    let line = world.shown(created.into());
    world.note(format!("create {what} v{version} -> {line}"));
}

fn create_in_every_version(world: &mut World, _: Protocol) {
    for version in 2..=7 {
        let name = format!("t{version}");
        let topic = creatable(world, &name, 2, 1);
        create(world, version, "one to look", vec![topic.clone()], true);
        create(world, version, "one", vec![topic.clone()], false);
        let short = world.name(&name);
        world.leader(&short, 1);
        create(world, version, "one again", vec![topic.clone()], false);
        create(world, version, "one again to look", vec![topic], true);
        if version >= 4 {
            let usual = creatable(world, &format!("usual{version}"), -1, -1);
            create(world, version, "with defaults", vec![usual], false);
        }
        let manual = |broker: i32| {
            CreatableReplicaAssignment::default().with_partition_index(0).with_broker_ids(vec![broker.into()])
        };
        for broker in [1, 77] {
            let topic = creatable(world, &format!("manual{version}-{broker}"), -1, -1)
                .with_assignments(vec![manual(broker)]);
            create(world, version, "by hand", vec![topic], false);
        }
    }
}

fn create_what_is_refused(world: &mut World, _: Protocol) {
    let long = "n".repeat(250);
    for short in ["with space", "a/b", long.as_str(), "ünï"] {
        let topic = creatable(world, short, 1, 1);
        create(world, 5, "a bad name", vec![topic], false);
    }
    for name in [".", "..", ""] {
        let topic = creatable(world, "x", 1, 1).with_name(text(name).into());
        create(world, 5, "a bad name", vec![topic], false);
    }
    for (partitions, replicas) in [(0, 1), (-2, 1), (1, 0), (1, 2), (1, -2)] {
        let topic = creatable(world, "counts", partitions, replicas);
        create(world, 5, &format!("{partitions} partitions {replicas} replicas"), vec![topic], false);
    }
    for (setting, value) in [
        ("no.such.setting", Some("1")),
        ("retention.ms", Some("soon")),
        ("retention.ms", None),
        ("cleanup.policy", Some("keep")),
        ("max.message.bytes", Some("-1")),
        ("min.insync.replicas", Some("0")),
    ] {
        let config = CreatableTopicConfig::default().with_name(text(setting)).with_value(value.map(text));
        let topic = creatable(world, "settings", 1, 1).with_configs(vec![config]);
        create(world, 5, &format!("{setting}={value:?}"), vec![topic], false);
    }
    let twice = vec![creatable(world, "twice", 1, 1), creatable(world, "twice", 1, 1)];
    create(world, 5, "one twice", twice, false);
    create(world, 5, "nothing", Vec::new(), false);
    let collides = creatable(world, "a.b", 1, 1);
    create(world, 5, "a dot", vec![collides], false);
    let collides = creatable(world, "a_b", 1, 1);
    create(world, 5, "what collides with it", vec![collides], false);
}

fn grow(world: &mut World, _: Protocol) {
    for version in 0..=3 {
        let topic = format!("t{version}");
        world.create_topic(&topic, 2, &[]);
        let ask =
            |world: &mut World, what: &str, topic: &str, count: i32, hosts: Option<Vec<i32>>, look: bool| {
                let assignments = hosts.map(|hosts| {
                    let one =
                        |host: i32| CreatePartitionsAssignment::default().with_broker_ids(vec![host.into()]);
                    hosts.into_iter().map(one).collect()
                });
                let wanted = CreatePartitionsTopic::default()
                    .with_name(topic_name(world, topic))
                    .with_count(count)
                    .with_assignments(assignments);
                let request = CreatePartitionsRequest::default()
                    .with_timeout_ms(20_000)
                    .with_validate_only(look)
                    .with_topics(vec![wanted]);
                world.tell_settled(&[], &format!("grow {topic} {what}"), At::Any, version, request);
            };
        for count in [0, -1, 1, 2] {
            ask(world, "too few", &topic, count, None, false);
        }
        ask(world, "by hand wrongly", &topic, 4, Some(vec![1]), false);
        ask(world, "on no node", &topic, 3, Some(vec![9]), false);
        ask(world, "to look", &topic, 3, None, true);
        ask(world, "well", &topic, 3, None, false);
        ask(world, "by hand", &topic, 4, Some(vec![1]), false);
        ask(world, "well", "nowhere", 3, None, false);
        let name = world.name(&topic);
        world.leader(&name, 3);
        world.produce(9, &Batch { partition: 3, ..Batch::plain(&topic, &["in a new one"]) });
    }
}

fn delete(world: &mut World, version: i16, what: &str, topic: &str, id: Option<Uuid>) {
    let mut request = DeleteTopicsRequest::default().with_timeout_ms(20_000);
    if version >= 6 {
        let topic = match id {
            Some(id) => DeleteTopicState::default().with_name(None).with_topic_id(id),
            None => DeleteTopicState::default().with_name(Some(topic_name(world, topic))),
        };
        request = request.with_topics(vec![topic]);
    } else {
        request = request.with_topic_names(vec![topic_name(world, topic)]);
    }
    world.tell_settled(&[], &format!("delete {topic} {what}"), At::Any, version, request);
}

/// Waits until no node tells of a topic.
fn gone(world: &mut World, topic: &str) {
    let begin = Instant::now();
    loop {
        let wanted = MetadataRequestTopic::default().with_name(Some(topic_name(world, topic)));
        let request =
            MetadataRequest::default().with_topics(Some(vec![wanted])).with_allow_auto_topic_creation(false);
        let bootstrap = world.peer().bootstrap();
        let Response::Metadata(found) = world.peer().ask(&bootstrap, 7, request) else { unreachable!() };
        if found.topics[0].error_code == 3 {
            thread::sleep(Duration::from_millis(100));
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{topic} stays");
        thread::sleep(Duration::from_millis(20));
    }
}

fn delete_in_every_version(world: &mut World, _: Protocol) {
    for version in 1..=6 {
        world.create_topic("t", 1, &[]);
        let id = topic_id(world, "t");
        delete(world, version, "well", "t", (version >= 6).then_some(id));
        gone(world, "t");
        delete(world, version, "again", "t", (version >= 6).then_some(id));
        delete(world, version, "well", "nowhere", None);
    }
    delete(world, 6, "by the nil id", "t", Some(Uuid::nil()));
}

/// One batch and one fetch by id.
fn use_id(world: &mut World, protocol: Protocol, what: &str, id: Uuid) {
    if protocol == Protocol::V2 {
        let batch = Batch::plain("t", &["by id"]).encoded(world.zero());
        let data = PartitionProduceData::default().with_index(0).with_records(Some(batch));
        let topic = TopicProduceData::default().with_topic_id(id).with_partition_data(vec![data]);
        let request =
            ProduceRequest::default().with_acks(-1).with_timeout_ms(20_000).with_topic_data(vec![topic]);
        world.tell_settled(&[5, 6], &format!("produce {what}"), At::Any, 13, request);
    }
    for version in [13, 17] {
        let partition = FetchPartition::default()
            .with_partition(0)
            .with_current_leader_epoch(-1)
            .with_log_start_offset(-1)
            .with_partition_max_bytes(10_000);
        let topic = FetchTopic::default().with_topic_id(id).with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_max_wait_ms(10)
            .with_min_bytes(1)
            .with_max_bytes(10_000)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        world.tell_settled(&[5, 6], &format!("fetch {what}"), At::Any, version, request);
    }
    for version in [10, 12] {
        let wanted = MetadataRequestTopic::default().with_topic_id(id).with_name(None);
        metadata(world, version, &format!("of {what}"), Some(vec![wanted]));
    }
}

fn created_again_with_another_id(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let old = topic_id(world, "t");
    world.produce(9, &Batch::plain("t", &["old"]));
    use_id(world, protocol, "the id", old);
    delete(world, 5, "well", "t", None);
    gone(world, "t");
    use_id(world, protocol, "an id that is gone", old);
    world.create_topic("t", 1, &[]);
    use_id(world, protocol, "the old id", old);
    let new = topic_id(world, "t");
    use_id(world, protocol, "the new id", new);
    use_id(world, protocol, "no id", Uuid::nil());
    read(world, "t", 0, 11);
}

fn deleted_within_a_transaction(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    world.create_topic("u", 1, &[]);
    for commit in [true, false] {
        let id = format!("tx-{commit}");
        let own = world.init(&id, 4, None).unwrap();
        for topic in ["t", "u"] {
            if protocol == Protocol::V1 {
                world.add(&id, 3, own, topic, &[0]);
            }
            world.produce(protocol.produce(), &Batch::first(topic, &id, own, &["a"]));
        }
        delete(world, 5, "well", "u", None);
        gone(world, "u");
        world.describe(&id);
        world.create_topic("u", 1, &[]);
        // The new topic knows nothing of the transaction, whose coordinator knows its name.
        world.produce(protocol.produce(), &Batch { sequence: 1, ..Batch::first("u", &id, own, &["b"]) });
        world.produce(protocol.produce(), &Batch::first("u", &id, own, &["c"]));
        world.end(&id, protocol.end(), own, commit);
        world.describe(&id);
        for topic in ["t", "u"] {
            world.fetch(topic, 0, 0, true);
            world.producers(topic, 0);
        }
        delete(world, 5, "well", "u", None);
        gone(world, "u");
        world.create_topic("u", 1, &[]);
    }
}

fn configurations(world: &mut World, _: Protocol) {
    world.create_topic(
        "t",
        1,
        &[
            ("cleanup.policy", "compact"),
            ("retention.ms", "5000"),
            ("max.message.bytes", "4000"),
            ("min.insync.replicas", "1"),
            ("message.timestamp.type", "LogAppendTime"),
        ],
    );
    world.create_topic("plain", 1, &[]);
    let of_topics = [
        "cleanup.policy",
        "max.message.bytes",
        "message.timestamp.type",
        "min.insync.replicas",
        "retention.ms",
    ];
    let of_brokers = ["transaction.max.timeout.ms", "min.insync.replicas", "message.max.bytes"];
    for version in 1..=4 {
        for (kind, name, keys) in [
            (2, world.name("t"), &of_topics[..]),
            // Retention is a setting of these brokers.
            (2, world.name("plain"), &of_topics[..4]),
            (2, world.name("nowhere"), &of_topics[..]),
            (4, "1".to_owned(), &of_brokers[..]),
            (4, "99".to_owned(), &of_brokers[..]),
            (4, "none".to_owned(), &of_brokers[..]),
            (2, world.name("t"), &["no.such.setting"][..]),
            (2, world.name("a b"), &[][..]),
            (9, "x".to_owned(), &[][..]),
        ] {
            for key in keys.iter().copied().map(Some).chain([None]) {
                if key.is_none() && !keys.is_empty() {
                    continue;
                }
                let resource = DescribeConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(&name))
                    .with_configuration_keys(Some(key.into_iter().map(text).collect()));
                let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
                let answer = world.quietly(|world| world.tell("configs", At::Any, version, request));
                let Some(Response::DescribeConfigs(mut found)) = answer else {
                    world.note(format!("configs {name} {key:?} v{version} -> hung up"));
                    continue;
                };
                // A name and its value is what clients read.
                for result in &mut found.results {
                    for config in &mut result.configs {
                        config.documentation = None;
                        config.config_type = 0;
                        config.config_source = 0;
                    }
                }
                let line = world.shown(found.into());
                world.note(format!("configs {name} {key:?} v{version} -> {line}"));
            }
        }
    }
}

fn metadata(world: &mut World, version: i16, what: &str, topics: Option<Vec<MetadataRequestTopic>>) {
    let request = MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(version < 4);
    world.tell_settled(&[5], &format!("metadata {what}"), At::Any, version, request);
}

fn metadata_in_every_version(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 2, &[]);
    let last = if protocol == Protocol::V2 { 13 } else { 12 };
    for version in 0..=last {
        for name in ["t", "nowhere", "a b"] {
            let wanted = MetadataRequestTopic::default().with_name(Some(topic_name(world, name)));
            metadata(world, version, name, Some(vec![wanted]));
        }
        if version >= 1 {
            metadata(world, version, "of nothing", Some(Vec::new()));
        }
    }
}
