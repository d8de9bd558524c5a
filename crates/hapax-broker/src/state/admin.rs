//! What changes topics: CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords.
//!
//! Done at once, so that no answer waits for a controller. Sources: `ReplicationControlManager`,
//! `ReplicaManager.deleteRecords`.

use super::{
    Answer, Call, Code, Machine, NodeId,
    catalog::{self, Topic},
    config::{Configs, DEFINITIONS},
};
use kafka_protocol::{
    messages::{
        BrokerId, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
        CreateTopicsResponse, DeleteRecordsRequest, DeleteRecordsResponse, DeleteTopicsRequest,
        DeleteTopicsResponse, TopicName,
        create_partitions_request::CreatePartitionsTopic,
        create_partitions_response::CreatePartitionsTopicResult,
        create_topics_request::CreatableTopic,
        create_topics_response::{CreatableTopicConfigs, CreatableTopicResult},
        delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult},
        delete_topics_request::DeleteTopicState,
        delete_topics_response::DeletableTopicResult,
    },
    protocol::StrBytes,
};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The broker's default, which a count of -1 asks for.
const DEFAULT: i32 = -1;
/// More than this in one request is a mistake, and would be memory.
const MOST_PARTITIONS: i32 = 10_000;
/// The first DeleteTopics that finds topics by their ids.
const FINDS_IDS: i16 = 6;
/// "Up to the high watermark."
const HIGH_WATERMARK: i64 = -1;

/// An error with Kafka's sentence on it.
type Fault = (Code, String);

impl Machine {
    /// Answers CreateTopics.
    pub(crate) fn create_topics(&mut self, call: &Call, request: CreateTopicsRequest) -> Answer {
        let mut count = BTreeMap::new();
        request.topics.iter().for_each(|topic| *count.entry(topic.name.clone()).or_insert(0) += 1);
        let too_many = self.partitions_of(&request.topics) > i64::from(MOST_PARTITIONS);
        let mut response = CreateTopicsResponse::default();
        for asked in request.topics {
            // What is named twice is refused once.
            let Some(times) = count.remove(&asked.name) else { continue };
            let name = asked.name.clone();
            let created = match times {
                _ if too_many => {
                    let message = "Excessively large number of partitions per request.";
                    Err((Code::POLICY_VIOLATION, message.to_owned()))
                }
                1 => self.create_topic(call, asked, request.validate_only),
                _ => Err((Code::INVALID_REQUEST, "Duplicate topic name.".to_owned())),
            };
            let result = created.unwrap_or_else(|(code, message)| {
                CreatableTopicResult::default()
                    .with_error_code(code.0)
                    .with_error_message(Some(StrBytes::from_string(message)))
                    .with_configs(Some(Vec::new()))
            });
            response.topics.push(result.with_name(name));
        }
        Answer::Now(response.into())
    }

    /// How many partitions a request would make (`ReplicationControlManager.validateTotalNumberOfPartitions`).
    fn partitions_of(&self, topics: &[CreatableTopic]) -> i64 {
        let of = |topic: &CreatableTopic| match topic.num_partitions {
            _ if !topic.assignments.is_empty() => topic.assignments.len() as i64,
            DEFAULT => i64::from(self.settings.default_partitions.max(1)),
            number => i64::from(number.max(0)),
        };
        topics.iter().map(of).sum()
    }

    fn create_topic(
        &mut self,
        call: &Call,
        asked: CreatableTopic,
        validate_only: bool,
    ) -> Result<CreatableTopicResult, Fault> {
        let name = asked.name.to_string();
        if self.catalog.topic(&name).is_some() {
            return Err((Code::TOPIC_ALREADY_EXISTS, format!("Topic '{name}' already exists.")));
        }
        if let Some(fault) = catalog::name_fault(&name) {
            return Err((Code::INVALID_TOPIC_EXCEPTION, fault));
        }
        if let Some(other) = self.catalog.colliding(&name) {
            let message = format!("Topic '{name}' collides with existing topic: {other}");
            return Err((Code::INVALID_TOPIC_EXCEPTION, message));
        }
        let given = given_configs(&asked)?;
        let configs = Configs::new(&self.settings, given).map_err(|fault| (Code::INVALID_CONFIG, fault))?;
        let replicas = self.replicas_of(call, &asked)?;
        let result = CreatableTopicResult::default()
            .with_error_message(None)
            .with_num_partitions(replicas.len() as i32)
            .with_replication_factor(replicas.first().map_or(1, Vec::len) as i16)
            .with_configs(Some(described(&configs)));
        if validate_only {
            // An id that nothing will have: Kafka's controller draws one before it drops what it made.
            return Ok(result.with_topic_id(self.catalog.new_id()));
        }
        let id = self.catalog.create(&name, replicas, configs);
        self.coordinators_follow();
        Ok(result.with_topic_id(id))
    }

    fn replicas_of(&self, call: &Call, asked: &CreatableTopic) -> Result<Vec<Vec<NodeId>>, Fault> {
        if !asked.assignments.is_empty() {
            return self.assigned(asked);
        }
        // A default count may be asked for from version 4 on (KIP-464).
        let default = |number: i32| number == DEFAULT && call.version >= 4;
        let partitions = match asked.num_partitions {
            number if default(number) => self.settings.default_partitions.max(1),
            number @ 1.. => number,
            _ => {
                let message = "Number of partitions was set to an invalid non-positive value.";
                return Err((Code::INVALID_PARTITIONS, message.to_owned()));
            }
        };
        let factor = match asked.replication_factor {
            number if default(i32::from(number)) => 1,
            number if number < 1 => {
                let message = "Replication factor must be larger than 0, or -1 to use the default value.";
                return Err((Code::INVALID_REPLICATION_FACTOR, message.to_owned()));
            }
            number => number,
        };
        let nodes = self.settings.nodes.max(1);
        if i32::from(factor) > nodes {
            let message = format!(
                "Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot \
                 be reached because only {nodes} broker(s) are registered."
            );
            return Err((Code::INVALID_REPLICATION_FACTOR, message));
        }
        Ok(self.catalog.spread(0, partitions, factor))
    }

    fn assigned(&self, asked: &CreatableTopic) -> Result<Vec<Vec<NodeId>>, Fault> {
        if asked.num_partitions != DEFAULT || asked.replication_factor != DEFAULT as i16 {
            let message = "A manual partition assignment was specified, but numPartitions or replicationFactor was not \
                           set to -1.";
            return Err((Code::INVALID_REQUEST, message.to_owned()));
        }
        let by_partition: BTreeMap<i32, &[BrokerId]> = asked
            .assignments
            .iter()
            .map(|assigned| (assigned.partition_index, assigned.broker_ids.as_slice()))
            .collect();
        let expected = 0..asked.assignments.len() as i32;
        if !by_partition.keys().copied().eq(expected) {
            let message = "partitions should be a consecutive 0-based integer sequence";
            return Err((Code::INVALID_REPLICA_ASSIGNMENT, message.to_owned()));
        }
        by_partition.values().map(|nodes| self.known_nodes(nodes)).collect()
    }

    fn known_nodes(&self, nodes: &[BrokerId]) -> Result<Vec<NodeId>, Fault> {
        let known = |node: &BrokerId| (1..=self.settings.nodes.max(1)).contains(&node.0);
        let fault = |message: String| Err((Code::INVALID_REPLICA_ASSIGNMENT, message));
        match nodes.iter().find(|node| !known(node)) {
            Some(node) => fault(format!(
                "The manual partition assignment includes broker {}, but no such broker is registered.",
                node.0
            )),
            None if nodes.is_empty() => {
                fault("The manual partition assignment includes an empty replica list.".to_owned())
            }
            None => Ok(nodes.iter().map(|node| NodeId(node.0)).collect()),
        }
    }

    /// Answers CreatePartitions.
    pub(crate) fn create_partitions(&mut self, _call: &Call, request: CreatePartitionsRequest) -> Answer {
        let mut count = BTreeMap::new();
        request.topics.iter().for_each(|topic| *count.entry(topic.name.clone()).or_insert(0) += 1);
        let mut response = CreatePartitionsResponse::default();
        for asked in request.topics {
            // What is named twice is refused once.
            let Some(times) = count.remove(&asked.name) else { continue };
            let grown = match times > 1 {
                true => Err((Code::INVALID_REQUEST, "Duplicate topic name.".to_owned())),
                false => self.grow_topic(&asked, request.validate_only),
            };
            let (code, message) = match grown {
                Ok(()) => (Code::NONE, None),
                Err((code, message)) => (code, Some(StrBytes::from_string(message))),
            };
            response.results.push(
                CreatePartitionsTopicResult::default()
                    .with_name(asked.name)
                    .with_error_code(code.0)
                    .with_error_message(message),
            );
        }
        Answer::Now(response.into())
    }

    fn grow_topic(&mut self, asked: &CreatePartitionsTopic, validate_only: bool) -> Result<(), Fault> {
        let name = asked.name.to_string();
        let Some(topic) = self.catalog.topic(&name) else {
            return Err((
                Code::UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.".to_owned(),
            ));
        };
        let now = topic.partitions.len() as i32;
        let factor = topic.replication_factor;
        match asked.count {
            count if count == now => {
                return Err((Code::INVALID_PARTITIONS, format!("Topic already has {now} partition(s).")));
            }
            count if count < now => {
                let message = format!(
                    "The topic {name} currently has {now} partition(s); {count} would not be an increase."
                );
                return Err((Code::INVALID_PARTITIONS, message));
            }
            count if count > MOST_PARTITIONS => {
                let message = format!("Excessively large number of partitions per request: {count}");
                return Err((Code::POLICY_VIOLATION, message));
            }
            _ => {}
        }
        let added = asked.count - now;
        let replicas = match &asked.assignments {
            None => self.catalog.spread(now, added, factor),
            Some(assigned) if assigned.len() as i32 != added => {
                let message = format!(
                    "Attempted to add {added} additional partition(s), but only {} assignment(s) were specified.",
                    assigned.len()
                );
                return Err((Code::INVALID_REPLICA_ASSIGNMENT, message));
            }
            Some(assigned) => assigned
                .iter()
                .map(|assigned| self.known_nodes(&assigned.broker_ids))
                .collect::<Result<_, _>>()?,
        };
        if !validate_only {
            self.catalog.grow(&name, replicas);
        }
        Ok(())
    }

    /// Answers DeleteTopics.
    pub(crate) fn delete_topics(&mut self, call: &Call, request: DeleteTopicsRequest) -> Answer {
        let by_name = |name: TopicName| DeleteTopicState::default().with_name(Some(name));
        let asked: Vec<DeleteTopicState> = match call.version {
            FINDS_IDS.. => request.topics,
            _ => request.topic_names.into_iter().map(by_name).collect(),
        };
        let mut count: BTreeMap<(Option<TopicName>, Uuid), usize> = BTreeMap::new();
        for topic in &asked {
            *count.entry((topic.name.clone(), topic.topic_id)).or_default() += 1;
        }
        let mut response = DeleteTopicsResponse::default();
        for topic in asked {
            let Some(times) = count.remove(&(topic.name.clone(), topic.topic_id)) else { continue };
            let deleted = if times > 1 {
                Err((Code::INVALID_REQUEST, "Duplicate topic name or id.".to_owned()))
            } else {
                self.delete_topic(&topic)
            };
            let result = DeletableTopicResult::default().with_error_message(None);
            response.responses.push(match deleted {
                Ok((name, id)) => {
                    result.with_name(Some(TopicName(StrBytes::from_string(name)))).with_topic_id(id)
                }
                Err((code, message)) => result
                    .with_name(topic.name)
                    .with_topic_id(topic.topic_id)
                    .with_error_code(code.0)
                    .with_error_message((call.version >= 5).then(|| StrBytes::from_string(message))),
            });
        }
        Answer::Now(response.into())
    }

    fn delete_topic(&mut self, asked: &DeleteTopicState) -> Result<(String, Uuid), Fault> {
        let name = match &asked.name {
            Some(_) if !asked.topic_id.is_nil() => {
                let message = "You may not specify both topic name and topic id.";
                return Err((Code::INVALID_REQUEST, message.to_owned()));
            }
            Some(name) if self.catalog.topic(name).is_some() => name.to_string(),
            Some(_) => {
                let message = "This server does not host this topic-partition.";
                return Err((Code::UNKNOWN_TOPIC_OR_PARTITION, message.to_owned()));
            }
            None if asked.topic_id.is_nil() => {
                let message = "Neither topic name nor id were specified.";
                return Err((Code::INVALID_REQUEST, message.to_owned()));
            }
            None => match self.catalog.name(asked.topic_id) {
                Some(name) => name.to_owned(),
                None => {
                    let message = "This server does not host this topic ID.";
                    return Err((Code::UNKNOWN_TOPIC_ID, message.to_owned()));
                }
            },
        };
        let Topic { id, partitions, .. } = match self.catalog.delete(&name) {
            Some(topic) => topic,
            None => return Err((Code::UNKNOWN_TOPIC_OR_PARTITION, String::new())),
        };
        for partition in 0..partitions.len() as i32 {
            self.touch(&name, partition);
        }
        self.coordinators_follow();
        self.groups_topic_deleted(&name);
        Ok((name, id))
    }

    /// Answers DeleteRecords.
    pub(crate) fn delete_records(&mut self, call: &Call, request: DeleteRecordsRequest) -> Answer {
        let mut response = DeleteRecordsResponse::default();
        for topic in request.topics {
            let mut result = DeleteRecordsTopicResult::default().with_name(topic.name.clone());
            for asked in topic.partitions {
                let deleted = self.delete_before(call, &topic.name, asked.partition_index, asked.offset);
                let (code, low) = match deleted {
                    Ok(low) => (Code::NONE, low),
                    Err(code) => (code, -1),
                };
                result.partitions.push(
                    DeleteRecordsPartitionResult::default()
                        .with_partition_index(asked.partition_index)
                        .with_error_code(code.0)
                        .with_low_watermark(low),
                );
            }
            response.topics.push(result);
        }
        Answer::Now(response.into())
    }

    fn delete_before(&mut self, call: &Call, name: &str, partition: i32, offset: i64) -> Result<i64, Code> {
        let topic = self.catalog.topic_mut(name).ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        let deletes = topic.configs.deletes;
        let at = usize::try_from(partition).map_err(|_| Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        let place = topic.partitions.get_mut(at).ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        if catalog::is_internal(name) {
            return Err(Code::INVALID_TOPIC_EXCEPTION);
        }
        if place.leader != call.node {
            return Err(Code::NOT_LEADER_OR_FOLLOWER);
        }
        if !deletes {
            return Err(Code::POLICY_VIOLATION);
        }
        let to = if offset == HIGH_WATERMARK { place.log.end() } else { offset };
        if to < 0 || to > place.log.end() {
            return Err(Code::OFFSET_OUT_OF_RANGE);
        }
        place.log.advance_start(to);
        let low = place.log.start();
        self.touch(name, partition);
        Ok(low)
    }
}

fn given_configs(asked: &CreatableTopic) -> Result<BTreeMap<String, String>, Fault> {
    let mut given = BTreeMap::new();
    for config in &asked.configs {
        let Some(value) = &config.value else {
            let message = format!("Null value not supported for topic configs: {}", config.name.as_str());
            return Err((Code::INVALID_CONFIG, message));
        };
        given.insert(config.name.to_string(), value.to_string());
    }
    Ok(given)
}

fn described(configs: &Configs) -> Vec<CreatableTopicConfigs> {
    /// `ConfigSource.DYNAMIC_TOPIC_CONFIG` and `DEFAULT_CONFIG`.
    const GIVEN: i8 = 1;
    const DEFAULT: i8 = 5;
    let describe = |name: &'static str| {
        let (value, given) = configs.value(name);
        CreatableTopicConfigs::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(Some(StrBytes::from_string(value)))
            .with_config_source(if given { GIVEN } else { DEFAULT })
    };
    DEFINITIONS.iter().map(|definition| describe(definition.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::probe::{Probe, Produced, name};
    use super::*;
    use crate::{
        state::{Settings, catalog::TRANSACTION_STATE},
        wire::Response,
    };
    use kafka_protocol::messages::{
        create_topics_request::CreatableTopicConfig,
        delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
    };

    fn create(probe: &mut Probe, topics: Vec<CreatableTopic>) -> Vec<CreatableTopicResult> {
        let Response::CreateTopics(response) =
            probe.ask(7, CreateTopicsRequest::default().with_topics(topics))
        else {
            panic!("not CreateTopics")
        };
        response.topics
    }

    fn topic(topic: &str, partitions: i32, factor: i16) -> CreatableTopic {
        CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(factor)
    }

    #[test]
    fn a_request_for_more_partitions_than_one_may_make_makes_none() {
        let mut probe = Probe::new();
        let codes = |results: Vec<CreatableTopicResult>| -> Vec<_> {
            results.iter().map(|result| Code(result.error_code)).collect()
        };
        let too_many = create(&mut probe, vec![topic("a", 9_999, 1), topic("b", 2, 1), topic("c", -1, 1)]);
        assert_eq!(codes(too_many), [Code::POLICY_VIOLATION; 3]);
        assert_eq!(codes(create(&mut probe, vec![topic("a", 9_998, 1), topic("b", 2, 1)])), [Code::NONE; 2]);
    }

    fn delete(probe: &mut Probe, asked: DeleteTopicState) -> DeletableTopicResult {
        let request = DeleteTopicsRequest::default().with_topics(vec![asked]);
        let Response::DeleteTopics(response) = probe.ask(6, request) else { panic!("not DeleteTopics") };
        response.responses[0].clone()
    }

    #[test]
    fn topics_that_cannot_be_are_refused_each_by_its_own_error() {
        let mut probe = Probe::with(Settings { nodes: 2, ..Settings::default() });
        let config = CreatableTopicConfig::default()
            .with_name(StrBytes::from_static_str("no.such"))
            .with_value(Some(StrBytes::from_static_str("1")));
        let results = create(
            &mut probe,
            vec![
                topic("good", -1, -1),
                topic("bad name", 1, 1),
                topic("none", 0, 1),
                topic("many", 1, 3),
                topic("twice", 1, 1),
                topic("twice", 1, 1),
                topic("config", 1, 1).with_configs(vec![config]),
            ],
        );
        let codes: Vec<_> = results.iter().map(|result| Code(result.error_code)).collect();
        assert_eq!(
            codes,
            [
                Code::NONE,
                Code::INVALID_TOPIC_EXCEPTION,
                Code::INVALID_PARTITIONS,
                Code::INVALID_REPLICATION_FACTOR,
                Code::INVALID_REQUEST,
                Code::INVALID_CONFIG,
            ],
            "what is named twice is refused once"
        );
        assert_eq!(
            Code(create(&mut probe, vec![topic("good", 1, 1)])[0].error_code),
            Code::TOPIC_ALREADY_EXISTS
        );
    }

    #[test]
    fn a_topic_that_is_only_looked_at_has_an_id_that_nothing_gets() {
        let mut probe = Probe::new();
        let look =
            CreateTopicsRequest::default().with_topics(vec![topic("t", 1, 1)]).with_validate_only(true);
        let Response::CreateTopics(looked) = probe.ask(7, look) else { panic!("not CreateTopics") };
        let made = create(&mut probe, vec![topic("t", 1, 1)]);
        assert!(!looked.topics[0].topic_id.is_nil());
        assert_ne!(looked.topics[0].topic_id, made[0].topic_id);
    }

    #[test]
    fn a_topic_without_name_and_id_is_no_topic_to_delete() {
        let mut probe = Probe::new();
        let deleted = delete(&mut probe, DeleteTopicState::default().with_name(None));
        assert_eq!(Code(deleted.error_code), Code::INVALID_REQUEST);
    }

    #[test]
    fn a_deleted_topic_comes_back_with_another_id_and_without_its_records() {
        let mut probe = Probe::new();
        let first = create(&mut probe, vec![topic("t", 1, 1)])[0].topic_id;
        probe.produce(9, "t", Produced::plain(3).bytes());
        let deleted = delete(&mut probe, DeleteTopicState::default().with_name(None).with_topic_id(first));
        assert_eq!((deleted.error_code, deleted.name), (0, Some(name("t"))));
        let again = delete(&mut probe, DeleteTopicState::default().with_name(None).with_topic_id(first));
        assert_eq!(Code(again.error_code), Code::UNKNOWN_TOPIC_ID);
        let by_name = delete(&mut probe, DeleteTopicState::default().with_name(Some(name("t"))));
        assert_eq!(Code(by_name.error_code), Code::UNKNOWN_TOPIC_OR_PARTITION);
        let second = create(&mut probe, vec![topic("t", 1, 1)])[0].topic_id;
        assert_ne!(first, second);
        assert_eq!(probe.fetch("t", 0, false).high_watermark, 0);
    }

    #[test]
    fn partitions_are_only_added() {
        let mut probe = Probe::new();
        probe.topic("t", 2, &[]);
        let mut grow = |topic: &str, count| {
            let asked = CreatePartitionsTopic::default()
                .with_name(name(topic))
                .with_count(count)
                .with_assignments(None);
            let request = CreatePartitionsRequest::default().with_topics(vec![asked]);
            let Response::CreatePartitions(response) = probe.ask(3, request) else {
                panic!("not CreatePartitions")
            };
            Code(response.results[0].error_code)
        };
        assert_eq!(grow("nowhere", 3), Code::UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(
            [1, 2, 4, 4].map(|count| grow("t", count)),
            [Code::INVALID_PARTITIONS, Code::INVALID_PARTITIONS, Code::NONE, Code::INVALID_PARTITIONS]
        );
        assert!(probe.machine.catalog.partition("t", 3).is_some());
    }

    #[test]
    fn records_are_deleted_up_to_an_offset_that_is_there() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        probe.topic("compact", 1, &[("cleanup.policy", "compact")]);
        probe.machine.catalog.internal(TRANSACTION_STATE, 1);
        probe.produce(9, "t", Produced::plain(5).bytes());
        let mut delete = |topic: &str, offset| {
            let asked = DeleteRecordsPartition::default().with_offset(offset);
            let topic = DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![asked]);
            let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
            let Response::DeleteRecords(response) = probe.ask(2, request) else {
                panic!("not DeleteRecords")
            };
            let result = &response.topics[0].partitions[0];
            (Code(result.error_code), result.low_watermark)
        };
        assert_eq!(delete("t", 3), (Code::NONE, 3));
        assert_eq!(delete("t", 1), (Code::NONE, 3));
        assert_eq!(delete("t", 6), (Code::OFFSET_OUT_OF_RANGE, -1));
        assert_eq!(delete("t", -1), (Code::NONE, 5));
        assert_eq!(delete("compact", 0), (Code::POLICY_VIOLATION, -1));
        assert_eq!(delete(TRANSACTION_STATE, 0), (Code::INVALID_TOPIC_EXCEPTION, -1));
        assert_eq!(delete("nowhere", 0), (Code::UNKNOWN_TOPIC_OR_PARTITION, -1));
    }
}
