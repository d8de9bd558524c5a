//! The broker at a glance. Asked as a client would ask, so that it says what a client would see.

use crate::{
    server::Core,
    state::NodeId,
    wire::{Request, Response},
};
use kafka_protocol::messages::{
    DescribeTransactionsRequest, ListOffsetsRequest, ListTransactionsRequest, MetadataRequest,
    MetadataResponse, TopicName, TransactionalId,
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Versions that have what is asked for.
const METADATA: i16 = 12;
const LIST_OFFSETS: i16 = 7;

const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// Topics with their partitions, transactional ids with their states, and how many rules are in force.
pub(crate) fn state(core: &Core) -> Value {
    let (now, nodes) = core.look(|machine| (machine.now(), machine.settings().nodes));
    let metadata = metadata(core);
    let brokers: Vec<_> = metadata
        .brokers
        .iter()
        .map(|broker| json!({ "node": broker.node_id.0, "host": broker.host.as_str(), "port": broker.port }))
        .collect();
    let rules = core.faults.list();
    json!({
        "cluster_id": metadata.cluster_id.as_ref().map(ToString::to_string),
        "now_ms": now,
        "nodes": brokers,
        "topics": topics(core, &metadata),
        "transactions": (1..=nodes).flat_map(|node| transactions(core, NodeId(node))).collect::<Vec<_>>(),
        "rules": { "in_force": rules.len(), "unfired": rules.iter().filter(|rule| rule.fired == 0).count() },
    })
}

fn metadata(core: &Core) -> MetadataResponse {
    let all = MetadataRequest::default().with_topics(None).with_allow_auto_topic_creation(false);
    match core.ask(NodeId(1), METADATA, all.into()) {
        Some(Response::Metadata(answer)) => answer,
        _ => MetadataResponse::default(),
    }
}

fn topics(core: &Core, metadata: &MetadataResponse) -> Vec<Value> {
    let mut offsets = BTreeMap::new();
    for timestamp in [EARLIEST, LATEST] {
        for isolation in [0, 1] {
            list_offsets(core, metadata, timestamp, isolation, &mut offsets);
        }
    }
    let partition = |topic: &str, index: i32| {
        let at =
            |timestamp, isolation| offsets.get(&(topic.to_owned(), index, timestamp, isolation)).copied();
        json!({
            "partition": index,
            "start": at(EARLIEST, 0),
            "end": at(LATEST, 0),
            "last_stable": at(LATEST, 1),
        })
    };
    let mut shown = Vec::new();
    for topic in &metadata.topics {
        let name = topic.name.as_ref().map(|name| name.to_string()).unwrap_or_default();
        let partitions = topic.partitions.iter().map(|it| {
            let mut shown = partition(&name, it.partition_index);
            shown["leader"] = it.leader_id.0.into();
            shown["leader_epoch"] = it.leader_epoch.into();
            shown
        });
        let partitions: Vec<_> = partitions.collect();
        shown.push(json!({
            "name": name,
            "id": topic.topic_id.to_string(),
            "internal": topic.is_internal,
            "partitions": partitions,
        }));
    }
    shown
}

fn list_offsets(
    core: &Core,
    metadata: &MetadataResponse,
    timestamp: i64,
    isolation: i8,
    into: &mut BTreeMap<(String, i32, i64, i8), i64>,
) {
    for broker in &metadata.brokers {
        let topics = metadata.topics.iter().map(|topic| {
            let led = topic.partitions.iter().filter(|it| it.leader_id == broker.node_id).map(|it| {
                ListOffsetsPartition::default()
                    .with_partition_index(it.partition_index)
                    .with_current_leader_epoch(-1)
                    .with_timestamp(timestamp)
            });
            ListOffsetsTopic::default()
                .with_name(topic.name.clone().unwrap_or_default())
                .with_partitions(led.collect())
        });
        let topics: Vec<_> = topics.filter(|topic| !topic.partitions.is_empty()).collect();
        let request = ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_isolation_level(isolation)
            .with_topics(topics);
        let answer = core.ask(NodeId(broker.node_id.0), LIST_OFFSETS, request.into());
        let Some(Response::ListOffsets(answer)) = answer else { continue };
        for topic in &answer.topics {
            for partition in topic.partitions.iter().filter(|partition| partition.error_code == 0) {
                let key = (topic.name.to_string(), partition.partition_index, timestamp, isolation);
                into.insert(key, partition.offset);
            }
        }
    }
}

fn transactions(core: &Core, node: NodeId) -> Vec<Value> {
    let all = ListTransactionsRequest::default().with_duration_filter(-1);
    let Some(Response::ListTransactions(list)) = core.ask(node, 1, all.into()) else { return Vec::new() };
    let ids: Vec<TransactionalId> =
        list.transaction_states.iter().map(|state| state.transactional_id.clone()).collect();
    let details = DescribeTransactionsRequest::default().with_transactional_ids(ids);
    let Some(Response::DescribeTransactions(details)) = core.ask(node, 0, Request::from(details)) else {
        return Vec::new();
    };
    let topic =
        |topic: &TopicName, partitions: &[i32]| json!({ "name": topic.as_str(), "partitions": partitions });
    let shown = details.transaction_states.iter().map(|state| {
        let topics: Vec<_> = state.topics.iter().map(|it| topic(&it.topic, &it.partitions)).collect();
        json!({
            "transactional_id": state.transactional_id.as_str(),
            "coordinator": node.0,
            "state": state.transaction_state.as_str(),
            "producer_id": state.producer_id.0,
            "producer_epoch": state.producer_epoch,
            "timeout_ms": state.transaction_timeout_ms,
            "started_ms": state.transaction_start_time_ms,
            "topics": topics,
        })
    });
    shown.collect()
}
