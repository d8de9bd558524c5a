//! What a client asks first: ApiVersions, Metadata, DescribeCluster.
//!
//! A topic that Metadata creates by itself is there at the next request; this one still says that it is unknown, as
//! Kafka does while the controller creates it (`AutoTopicCreationManager`).

use super::{
    Answer, Call, Code, Machine, NodeId,
    catalog::{self, CONSUMER_OFFSETS, TRANSACTION_STATE, Topic},
    config::Configs,
    encode_id,
};
use crate::wire::{ADVERTISED, highest};
use kafka_protocol::{
    messages::{
        ApiVersionsRequest, ApiVersionsResponse, BrokerId, DescribeClusterRequest, DescribeClusterResponse,
        MetadataRequest, MetadataResponse, TopicName,
        api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey},
        describe_cluster_response::DescribeClusterBroker,
        metadata_request::MetadataRequestTopic,
        metadata_response::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic},
    },
    protocol::StrBytes,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

const FEATURE: &str = "transaction.version";
/// `transaction.version` up to which this broker speaks.
const NEWEST_FEATURE: i16 = 2;
/// Without an authorizer everything is allowed: the bits of `AclOperation` that apply to topics and to the cluster.
const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;
const NOT_ASKED: i32 = i32::MIN;
/// The last Metadata that lists all topics for an empty list.
const EMPTY_MEANS_ALL: i16 = 0;
/// The first Metadata that finds topics by their ids.
const FINDS_IDS: i16 = 12;
const BROKERS: i8 = 1;

impl Machine {
    /// Answers ApiVersions. A version that is not known is answered by the server, in version 0.
    pub(crate) fn api_versions(&self, call: &Call, request: ApiVersionsRequest) -> Answer {
        let response = ApiVersionsResponse::default().with_api_keys(
            ADVERTISED
                .iter()
                .map(|(key, versions)| {
                    // librdkafka takes a broker without Produce 0 for one that it cannot talk to (KAFKA-18659).
                    let min =
                        if *key == kafka_protocol::messages::ApiKey::Produce { 0 } else { versions.min };
                    ApiVersion::default()
                        .with_api_key(*key as i16)
                        .with_min_version(min)
                        .with_max_version(highest(*key, versions, self.settings.two_phase_commit))
                })
                .collect(),
        );
        if call.version >= 3 && !is_software_name(&request) {
            return Answer::Now(
                response.with_api_keys(Vec::new()).with_error_code(Code::INVALID_REQUEST.0).into(),
            );
        }
        if call.version < 3 {
            return Answer::Now(response.into());
        }
        let mut response = response.with_finalized_features_epoch(1);
        // Before version 4 a feature whose lowest version is 0 is left out: clients took it for an error (KAFKA-17011).
        if call.version >= 4 {
            response.supported_features.push(
                SupportedFeatureKey::default()
                    .with_name(StrBytes::from_static_str(FEATURE))
                    .with_min_version(0)
                    .with_max_version(NEWEST_FEATURE),
            );
        }
        let level = self.settings.transaction_version;
        if level > 0 {
            response.finalized_features.push(
                FinalizedFeatureKey::default()
                    .with_name(StrBytes::from_static_str(FEATURE))
                    .with_max_version_level(level)
                    .with_min_version_level(level),
            );
        }
        Answer::Now(response.into())
    }

    /// Answers DescribeCluster.
    pub(crate) fn describe_cluster(&self, call: &Call, request: DescribeClusterRequest) -> Answer {
        let response = DescribeClusterResponse::default().with_error_message(None);
        if call.version >= 1 && request.endpoint_type != BROKERS {
            let message = "Cannot use this listener to describe the controllers of the cluster.";
            return Answer::Now(
                response
                    .with_error_code(Code::MISMATCHED_ENDPOINT_TYPE.0)
                    .with_error_message(Some(StrBytes::from_static_str(message)))
                    .with_endpoint_type(request.endpoint_type)
                    .with_cluster_authorized_operations(NOT_ASKED)
                    .into(),
            );
        }
        let operations =
            if request.include_cluster_authorized_operations { CLUSTER_OPERATIONS } else { NOT_ASKED };
        let brokers = self.nodes().map(|(node, host, port)| {
            DescribeClusterBroker::default()
                .with_broker_id(node)
                .with_host(StrBytes::from_string(host))
                .with_port(port)
                .with_rack(None)
        });
        let response = response
            .with_cluster_id(StrBytes::from_string(self.cluster_id()))
            .with_controller_id(BrokerId(1))
            .with_brokers(brokers.collect())
            .with_cluster_authorized_operations(operations);
        Answer::Now(response.into())
    }

    /// Answers Metadata.
    pub(crate) fn metadata(&mut self, call: &Call, request: MetadataRequest) -> Answer {
        if let Some(code) = names_missing(call.version, &request) {
            return Answer::Now(refused(request, code).into());
        }
        let operations =
            if request.include_topic_authorized_operations { TOPIC_OPERATIONS } else { NOT_ASKED };
        let all = match &request.topics {
            None => true,
            Some(topics) => call.version <= EMPTY_MEANS_ALL && topics.is_empty(),
        };
        let topics = if all {
            self.catalog.topics().map(|(name, topic)| describe(name, topic)).collect()
        } else {
            let creates = self.may_create(call.version, &request);
            // What is named twice is told once, as from Kafka's set of names.
            let mut seen = BTreeSet::new();
            let mut asked = request.topics.unwrap_or_default();
            asked.retain(|topic| seen.insert((topic.name.clone(), topic.topic_id)));
            asked.into_iter().map(|asked| self.metadata_topic(call, asked, creates)).collect()
        };
        let topics: Vec<MetadataResponseTopic> = topics;
        let brokers = self.nodes().map(|(node, host, port)| {
            MetadataResponseBroker::default()
                .with_node_id(node)
                .with_host(StrBytes::from_string(host))
                .with_port(port)
                .with_rack(None)
        });
        let mut response = MetadataResponse::default()
            .with_brokers(brokers.collect())
            .with_cluster_id(Some(StrBytes::from_string(self.cluster_id())))
            .with_controller_id(BrokerId(1))
            .with_topics(
                topics.into_iter().map(|topic| topic.with_topic_authorized_operations(operations)).collect(),
            );
        if request.include_cluster_authorized_operations {
            response.cluster_authorized_operations = CLUSTER_OPERATIONS;
        }
        Answer::Now(response.into())
    }

    /// Does the request create topics that are not there? Before version 4 there was no choice.
    pub(crate) fn may_create(&self, version: i16, request: &MetadataRequest) -> bool {
        self.settings.auto_create_topics && (version < 4 || request.allow_auto_topic_creation)
    }

    fn metadata_topic(
        &mut self,
        call: &Call,
        asked: MetadataRequestTopic,
        creates: bool,
    ) -> MetadataResponseTopic {
        let unknown = |code: Code| {
            MetadataResponseTopic::default().with_error_code(code.0).with_name(asked.name.clone())
        };
        if call.version >= FINDS_IDS && !asked.topic_id.is_nil() {
            let found = self.catalog.name(asked.topic_id).map(str::to_owned);
            return match found.as_deref().and_then(|name| Some((name, self.catalog.topic(name)?))) {
                Some((name, topic)) => describe(name, topic),
                None => unknown(Code::UNKNOWN_TOPIC_ID).with_topic_id(asked.topic_id).with_name(None),
            };
        }
        let name = asked.name.as_ref().expect("a topic without name and id was refused").to_string();
        if let Some(topic) = self.catalog.topic(&name) {
            return describe(&name, topic);
        }
        let code = match catalog::name_fault(&name) {
            Some(_) => Code::INVALID_TOPIC_EXCEPTION,
            None => Code::UNKNOWN_TOPIC_OR_PARTITION,
        };
        if creates && code == Code::UNKNOWN_TOPIC_OR_PARTITION {
            self.create_by_itself(&name);
        }
        unknown(code).with_is_internal(catalog::is_internal(&name))
    }

    fn create_by_itself(&mut self, name: &str) {
        match name {
            TRANSACTION_STATE => self.catalog.internal(name, self.settings.transaction_partitions),
            CONSUMER_OFFSETS => self.catalog.internal(name, self.settings.offsets_partitions),
            _ if self.catalog.colliding(name).is_some() => {}
            _ => {
                let replicas = self.catalog.spread(0, self.settings.default_partitions.max(1), 1);
                if let Ok(configs) = Configs::new(&self.settings, BTreeMap::new()) {
                    self.catalog.create(name, replicas, configs);
                }
            }
        }
        self.coordinators_follow();
    }

    /// Every node with its address.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (BrokerId, String, i32)> {
        (1..=self.settings.nodes.max(1)).map(|node| {
            let address = self.addresses.get(&NodeId(node)).cloned();
            let (host, port) = address.unwrap_or_else(|| ("localhost".to_owned(), 0));
            (BrokerId(node), host, i32::from(port))
        })
    }

    /// The cluster's id, as the seed makes it.
    pub(crate) fn cluster_id(&self) -> String {
        let mut random = fastrand::Rng::with_seed(self.settings.seed ^ 0x63_6c75_7374_6572);
        encode_id(&random.u128(..).to_be_bytes())
    }
}

/// What a request as a whole is refused with. Versions 10 and 11 have a place for ids and no use of them; the later ones
/// stumble over a topic with neither.
fn names_missing(version: i16, request: &MetadataRequest) -> Option<Code> {
    let mut asked = request.topics.iter().flatten();
    if version >= FINDS_IDS {
        let neither = asked.any(|topic| topic.name.is_none() && topic.topic_id.is_nil());
        neither.then_some(Code::UNKNOWN_SERVER_ERROR)
    } else {
        let by_id = asked.any(|topic| topic.name.is_none() || !topic.topic_id.is_nil());
        by_id.then_some(Code::INVALID_REQUEST)
    }
}

/// The answer that names no cluster, only the topics of the request.
fn refused(request: MetadataRequest, code: Code) -> MetadataResponse {
    let topics = request.topics.unwrap_or_default().into_iter().map(|topic| {
        MetadataResponseTopic::default()
            .with_error_code(code.0)
            .with_name(Some(topic.name.unwrap_or_default()))
            .with_topic_id(topic.topic_id)
    });
    let response = MetadataResponse::default().with_topics(topics.collect());
    response.with_cluster_id(None).with_controller_id(BrokerId(-1))
}

fn describe(name: &str, topic: &Topic) -> MetadataResponseTopic {
    let id = topic.id;
    debug_assert_ne!(id, Uuid::nil(), "a topic has an id");
    let partitions = topic.partitions.iter().enumerate().map(|(at, partition)| {
        let replicas: Vec<BrokerId> = partition.replicas.iter().map(|node| BrokerId(node.0)).collect();
        MetadataResponsePartition::default()
            .with_partition_index(at as i32)
            .with_leader_id(BrokerId(partition.leader.0))
            .with_leader_epoch(partition.leader_epoch)
            .with_replica_nodes(replicas.clone())
            .with_isr_nodes(replicas)
    });
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
        .with_topic_id(id)
        .with_is_internal(catalog::is_internal(name))
        .with_partitions(partitions.collect())
}

/// `ApiVersionsRequest.isValid`: letters and digits at the ends, dots and dashes between.
fn is_software_name(request: &ApiVersionsRequest) -> bool {
    [&request.client_software_name, &request.client_software_version].into_iter().all(|text| {
        let ends = [text.bytes().next(), text.bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::super::probe::{Probe, Produced, fetch_request, name, produce_request};
    use super::*;
    use crate::{state::Settings, wire::Response};

    fn metadata(probe: &mut Probe, version: i16, request: MetadataRequest) -> MetadataResponse {
        let Response::Metadata(response) = probe.ask(version, request) else { panic!("not Metadata") };
        response
    }

    fn named(topic: &str, creates: bool) -> MetadataRequest {
        let topic = MetadataRequestTopic::default().with_name(Some(name(topic)));
        MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(creates)
    }

    #[test]
    fn a_topic_that_is_asked_for_is_there_at_the_next_request() {
        let mut probe = Probe::new();
        let code = |response: MetadataResponse| Code(response.topics[0].error_code);
        assert_eq!(code(metadata(&mut probe, 9, named("t", false))), Code::UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(code(metadata(&mut probe, 9, named("t", true))), Code::UNKNOWN_TOPIC_OR_PARTITION);
        let there = metadata(&mut probe, 12, named("t", true));
        assert_eq!((there.topics[0].error_code, there.topics[0].partitions.len()), (0, 1));
        assert_eq!(code(metadata(&mut probe, 9, named("no name", true))), Code::INVALID_TOPIC_EXCEPTION);

        let by_id = MetadataRequestTopic::default().with_name(None).with_topic_id(there.topics[0].topic_id);
        let found =
            metadata(&mut probe, 12, MetadataRequest::default().with_topics(Some(vec![by_id.clone()])));
        assert_eq!(found.topics[0].name, Some(name("t")));
        let unknown = by_id.with_topic_id(Uuid::from_u128(9));
        let missing = metadata(&mut probe, 12, MetadataRequest::default().with_topics(Some(vec![unknown])));
        assert_eq!(code(missing), Code::UNKNOWN_TOPIC_ID);
    }

    /// A topic of many partitions that is named as often as a small request can would be gigabytes.
    #[test]
    fn a_topic_that_is_named_many_times_is_told_once() {
        let mut probe = Probe::new();
        probe.topic("t", 3, &[]);
        let twice =
            |topic: &str| named(topic, false).topics.unwrap_or_default().into_iter().cycle().take(5_000);
        let asked = twice("t").chain(twice("u")).collect();
        let told = metadata(&mut probe, 9, MetadataRequest::default().with_topics(Some(asked))).topics;
        let told: Vec<_> =
            told.iter().map(|topic| (topic.name.clone().unwrap(), topic.partitions.len())).collect();
        assert_eq!(told, [(name("t"), 3), (name("u"), 0)]);
    }

    #[test]
    fn versions_with_a_place_for_ids_but_no_use_of_them_refuse_all_topics() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        let by_id = MetadataRequestTopic::default().with_name(None).with_topic_id(Uuid::from_u128(9));
        let mut both = named("t", false);
        both.topics.as_mut().unwrap().push(by_id);
        for version in [10, 11] {
            let refused = metadata(&mut probe, version, both.clone());
            let codes: Vec<Code> = refused.topics.iter().map(|topic| Code(topic.error_code)).collect();
            assert_eq!(codes, [Code::INVALID_REQUEST; 2]);
            assert!(refused.brokers.is_empty());
        }
        let neither = MetadataRequestTopic::default().with_name(None);
        let stumbled = metadata(&mut probe, 12, MetadataRequest::default().with_topics(Some(vec![neither])));
        assert_eq!(Code(stumbled.topics[0].error_code), Code::UNKNOWN_SERVER_ERROR);
    }

    #[test]
    fn every_answer_can_be_encoded_in_every_version_that_is_advertised() {
        let mut probe = Probe::with(Settings { nodes: 2, ..Settings::default() });
        probe.topic("t", 2, &[]);
        for version in 0..=13 {
            for request in
                [named("t", false), named("nowhere", false), MetadataRequest::default().with_topics(None)]
            {
                let response = Response::from(metadata(&mut probe, version, request));
                let mut bytes = bytes::BytesMut::new();
                response
                    .encode(version, &mut bytes)
                    .unwrap_or_else(|error| panic!("version {version}: {error}"));
            }
        }
        for version in 0..=4 {
            let request = ApiVersionsRequest::default()
                .with_client_software_name(StrBytes::from_static_str("test"))
                .with_client_software_version(StrBytes::from_static_str("1.0"));
            let response = probe.ask(version, request);
            response.encode(version, &mut bytes::BytesMut::new()).unwrap();
        }
        for version in 3..=13 {
            let request = produce_request("t", Produced::plain(1).bytes(), None);
            probe.ask(version, request).encode(version, &mut bytes::BytesMut::new()).unwrap();
        }
        for version in 4..=18 {
            for from in [0, 99] {
                let request = fetch_request("t", from, true, 0);
                probe.ask(version, request).encode(version, &mut bytes::BytesMut::new()).unwrap();
            }
        }
        for version in 0..=2 {
            let request = DescribeClusterRequest::default().with_endpoint_type(BROKERS);
            probe.ask(version, request).encode(version, &mut bytes::BytesMut::new()).unwrap();
        }
    }

    #[test]
    fn the_level_of_transactions_is_a_finalized_feature() {
        for (level, finalized) in [(2, 1), (1, 1), (0, 0)] {
            let mut probe = Probe::with(Settings { transaction_version: level, ..Settings::default() });
            let request = ApiVersionsRequest::default()
                .with_client_software_name(StrBytes::from_static_str("test"))
                .with_client_software_version(StrBytes::from_static_str("1"));
            let Response::ApiVersions(response) = probe.ask(4, request) else { panic!("not ApiVersions") };
            assert_eq!(response.finalized_features.len(), finalized);
            assert!(response.finalized_features.iter().all(|feature| feature.max_version_level == level));
        }
    }

    #[test]
    fn one_seed_makes_one_cluster_id() {
        let id = |seed| Probe::with(Settings { seed, ..Settings::default() }).machine.cluster_id();
        assert_eq!(id(1), id(1));
        assert_ne!(id(1), id(2));
        assert_eq!(id(1).len(), 22);
    }
}
