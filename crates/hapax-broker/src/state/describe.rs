//! What tells about topics and brokers without changing them: DescribeConfigs, DescribeProducers.

use super::{
    Answer, Call, Code, Machine, Settings,
    catalog::{self, Partition},
    config::{Configs, DEFINITIONS, Kind},
};
use kafka_protocol::{
    messages::{
        DescribeConfigsRequest, DescribeConfigsResponse, DescribeProducersRequest, DescribeProducersResponse,
        describe_configs_request::DescribeConfigsResource,
        describe_configs_response::{
            DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
        },
        describe_producers_response::{PartitionResponse, ProducerState, TopicResponse},
    },
    protocol::StrBytes,
};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// `ConfigSource`: given to a topic, in the broker's file, by default.
const DYNAMIC_TOPIC: i8 = 1;
const STATIC_BROKER: i8 = 4;
const DEFAULT: i8 = 5;

impl Machine {
    /// Answers DescribeConfigs.
    pub(crate) fn describe_configs(&mut self, call: &Call, request: DescribeConfigsRequest) -> Answer {
        let synonyms = request.include_synonyms;
        let results = request.resources.into_iter().map(|resource| {
            let result = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            match self.resource(call, &resource, synonyms) {
                Ok(configs) => result.with_error_message(None).with_configs(configs),
                Err((code, message)) => {
                    result.with_error_code(code.0).with_error_message(Some(StrBytes::from_string(message)))
                }
            }
        });
        Answer::Now(DescribeConfigsResponse::default().with_results(results.collect()).into())
    }

    fn resource(
        &self,
        call: &Call,
        resource: &DescribeConfigsResource,
        synonyms: bool,
    ) -> Result<Vec<DescribeConfigsResourceResult>, (Code, String)> {
        let name = resource.resource_name.as_str();
        let wanted = |config: &str| match &resource.configuration_keys {
            Some(keys) if !keys.is_empty() => keys.iter().any(|key| key.as_str() == config),
            _ => true,
        };
        match resource.resource_type {
            TOPIC => match (self.catalog.topic(name), catalog::name_fault(name)) {
                (Some(topic), _) => Ok(topic_configs(&topic.configs, wanted, synonyms)),
                (None, Some(fault)) => Err((Code::INVALID_TOPIC_EXCEPTION, fault)),
                (None, None) => {
                    let message = "This server does not host this topic-partition.";
                    Err((Code::UNKNOWN_TOPIC_OR_PARTITION, message.to_owned()))
                }
            },
            BROKER if name.is_empty() => Ok(Vec::new()),
            BROKER if name == call.node.0.to_string() => Ok(broker_configs(&self.settings, wanted, synonyms)),
            BROKER => Err((
                Code::INVALID_REQUEST,
                format!(
                    "Unexpected broker id, expected {} or empty string, but received {name}",
                    call.node.0
                ),
            )),
            other => Err((Code::INVALID_REQUEST, format!("Unsupported resource type: {other}"))),
        }
    }

    /// Answers DescribeProducers.
    pub(crate) fn describe_producers(&mut self, call: &Call, request: DescribeProducersRequest) -> Answer {
        let (now, expiration) = (self.now, self.settings.producer_expiration_ms);
        let mut response = DescribeProducersResponse::default();
        for topic in request.topics {
            let mut result = TopicResponse::default().with_name(topic.name.clone());
            for index in topic.partition_indexes {
                let answer =
                    PartitionResponse::default().with_partition_index(index).with_error_message(None);
                let fault = |code: Code| answer.clone().with_error_code(code.0);
                result.partitions.push(match self.catalog.partition_mut(&topic.name, index) {
                    None => fault(Code::UNKNOWN_TOPIC_OR_PARTITION),
                    Some(partition) if partition.leader != call.node => fault(Code::NOT_LEADER_OR_FOLLOWER),
                    Some(partition) => {
                        partition.log.producers.expire_due(now, expiration);
                        answer.with_active_producers(active(partition))
                    }
                });
            }
            response.topics.push(result);
        }
        Answer::Now(response.into())
    }
}

fn active(partition: &Partition) -> Vec<ProducerState> {
    let describe = |(id, producer): (i64, &super::producers::Producer)| {
        ProducerState::default()
            .with_producer_id(id.into())
            .with_producer_epoch(i32::from(producer.epoch))
            .with_last_sequence(producer.last_sequence())
            .with_last_timestamp(producer.last_timestamp)
            .with_coordinator_epoch(producer.coordinator_epoch)
            .with_current_txn_start_offset(producer.transaction_from.unwrap_or(-1))
    };
    partition.log.producers.iter().map(describe).collect()
}

fn topic_configs(
    configs: &Configs,
    wanted: impl Fn(&str) -> bool,
    synonyms: bool,
) -> Vec<DescribeConfigsResourceResult> {
    let describe = |definition: &super::config::Definition| {
        let (value, given) = configs.value(definition.name);
        let source = if given { DYNAMIC_TOPIC } else { DEFAULT };
        config(definition.name, value, definition.kind, source, synonyms).with_read_only(false)
    };
    DEFINITIONS.iter().filter(|definition| wanted(definition.name)).map(describe).collect()
}

/// The broker's own settings that clients ask for.
fn broker_configs(
    settings: &Settings,
    wanted: impl Fn(&str) -> bool,
    synonyms: bool,
) -> Vec<DescribeConfigsResourceResult> {
    let minutes = settings.offsets_retention_ms / 60_000;
    let all = [
        ("auto.create.topics.enable", settings.auto_create_topics.to_string(), Kind::Boolean),
        ("default.replication.factor", "1".to_owned(), Kind::Int),
        ("group.initial.rebalance.delay.ms", settings.rebalance_delay_ms.to_string(), Kind::Int),
        ("message.max.bytes", settings.max_message_bytes.to_string(), Kind::Int),
        ("min.insync.replicas", "1".to_owned(), Kind::Int),
        ("num.partitions", settings.default_partitions.to_string(), Kind::Int),
        ("offsets.retention.minutes", minutes.to_string(), Kind::Int),
        ("offsets.topic.num.partitions", settings.offsets_partitions.to_string(), Kind::Int),
        ("producer.id.expiration.ms", settings.producer_expiration_ms.to_string(), Kind::Int),
        (
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            settings.timeout_interval_ms.to_string(),
            Kind::Int,
        ),
        ("transaction.max.timeout.ms", settings.max_timeout_ms.to_string(), Kind::Int),
        ("transaction.partition.verification.enable", "true".to_owned(), Kind::Boolean),
        (
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            settings.expiry_interval_ms.to_string(),
            Kind::Int,
        ),
        ("transaction.state.log.num.partitions", settings.transaction_partitions.to_string(), Kind::Int),
        ("transaction.two.phase.commit.enable", settings.two_phase_commit.to_string(), Kind::Boolean),
        ("transactional.id.expiration.ms", settings.id_expiration_ms.to_string(), Kind::Int),
    ];
    // What a running broker could be told to change, if there were AlterConfigs.
    let changes = |name: &str| ["message.max.bytes", "min.insync.replicas"].contains(&name);
    let describe = |(name, value, kind)| {
        config(name, value, kind, STATIC_BROKER, synonyms).with_read_only(!changes(name))
    };
    all.into_iter().filter(|(name, ..)| wanted(name)).map(describe).collect()
}

fn config(
    name: &'static str,
    value: String,
    kind: Kind,
    source: i8,
    synonyms: bool,
) -> DescribeConfigsResourceResult {
    let value = Some(StrBytes::from_string(value));
    let synonym = DescribeConfigsSynonym::default()
        .with_name(StrBytes::from_static_str(name))
        .with_value(value.clone())
        .with_source(source);
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(name))
        .with_value(value)
        .with_config_source(source)
        .with_config_type(kind as i8)
        .with_synonyms(if synonyms { vec![synonym] } else { Vec::new() })
        .with_documentation(None)
}
