//! What a request is about, as far as rules ask.

use crate::wire::Request;
use kafka_protocol::messages::{TopicName, TransactionalId};
use uuid::Uuid;

/// Finds the name of a topic id: newer requests name topics by their ids only.
type Names<'a> = &'a dyn Fn(Uuid) -> Option<String>;

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The key of the request.
    pub(crate) key: i16,
    /// The node that was asked.
    pub(crate) node: i32,
    /// What the client calls itself.
    pub(crate) client_id: Option<String>,
    /// Topics with the partitions that are named; none where whole topics are meant.
    pub(crate) topics: Vec<(String, Vec<i32>)>,
    /// Transactional ids.
    pub(crate) transactional_ids: Vec<String>,
    /// Consumer groups.
    pub(crate) groups: Vec<String>,
    /// Of EndTxn: does it commit?
    pub(crate) commit: Option<bool>,
}

impl Subject {
    /// Of a request that is not decoded.
    pub(crate) fn opaque(key: i16, node: i32, client_id: Option<String>) -> Self {
        Self { key, node, client_id, ..Self::default() }
    }

    /// Of a request.
    pub(crate) fn of(request: &Request, node: i32, client_id: Option<String>, names: Names<'_>) -> Self {
        let mut subject = Self::opaque(request.key() as i16, node, client_id);
        subject.read(request, names);
        subject
    }

    fn read(&mut self, request: &Request, names: Names<'_>) {
        match request {
            Request::Produce(request) => {
                self.id(request.transactional_id.as_ref());
                for topic in &request.topic_data {
                    let partitions = topic.partition_data.iter().map(|it| it.index);
                    self.topic(named(names, &topic.name, topic.topic_id), partitions);
                }
            }
            Request::Fetch(request) => {
                for topic in &request.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition);
                    self.topic(named(names, &topic.topic, topic.topic_id), partitions);
                }
            }
            Request::ListOffsets(request) => {
                for topic in &request.topics {
                    self.topic(
                        Some(topic.name.to_string()),
                        topic.partitions.iter().map(|it| it.partition_index),
                    );
                }
            }
            Request::Metadata(request) => {
                for topic in request.topics.iter().flatten() {
                    let name = topic.name.clone().unwrap_or_default();
                    self.topic(named(names, &name, topic.topic_id), []);
                }
            }
            Request::OffsetCommit(request) => {
                self.group(&request.group_id);
                for topic in &request.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    self.topic(named(names, &topic.name, topic.topic_id), partitions);
                }
            }
            Request::OffsetFetch(request) => {
                self.group(&request.group_id);
                for topic in request.topics.iter().flatten() {
                    self.topic(Some(topic.name.to_string()), topic.partition_indexes.iter().copied());
                }
                for group in &request.groups {
                    self.group(&group.group_id);
                    for topic in group.topics.iter().flatten() {
                        let partitions = topic.partition_indexes.iter().copied();
                        self.topic(named(names, &topic.name, topic.topic_id), partitions);
                    }
                }
            }
            Request::FindCoordinator(request) => {
                let keys = std::iter::once(&request.key).chain(&request.coordinator_keys);
                let keys = keys.filter(|key| !key.is_empty()).map(ToString::to_string);
                match request.key_type {
                    0 => self.groups.extend(keys),
                    1 => self.transactional_ids.extend(keys),
                    _ => {}
                }
            }
            Request::JoinGroup(request) => self.group(&request.group_id),
            Request::Heartbeat(request) => self.group(&request.group_id),
            Request::LeaveGroup(request) => self.group(&request.group_id),
            Request::SyncGroup(request) => self.group(&request.group_id),
            Request::DescribeGroups(request) => request.groups.iter().for_each(|group| self.group(group)),
            Request::DeleteGroups(request) => request.groups_names.iter().for_each(|group| self.group(group)),
            Request::ListGroups(_) | Request::ApiVersions(_) | Request::DescribeCluster(_) => {}
            Request::CreateTopics(request) => {
                for topic in &request.topics {
                    self.topic(Some(topic.name.to_string()), []);
                }
            }
            Request::DeleteTopics(request) => {
                for topic in &request.topics {
                    let name = topic.name.clone().unwrap_or_default();
                    self.topic(named(names, &name, topic.topic_id), []);
                }
                for name in &request.topic_names {
                    self.topic(Some(name.to_string()), []);
                }
            }
            Request::DeleteRecords(request) => {
                for topic in &request.topics {
                    self.topic(
                        Some(topic.name.to_string()),
                        topic.partitions.iter().map(|it| it.partition_index),
                    );
                }
            }
            Request::OffsetForLeaderEpoch(request) => {
                for topic in &request.topics {
                    self.topic(Some(topic.topic.to_string()), topic.partitions.iter().map(|it| it.partition));
                }
            }
            Request::CreatePartitions(request) => {
                for topic in &request.topics {
                    self.topic(Some(topic.name.to_string()), []);
                }
            }
            Request::DescribeConfigs(request) => {
                /// `ConfigResource.Type.TOPIC`.
                const TOPIC: i8 = 2;
                for resource in request.resources.iter().filter(|resource| resource.resource_type == TOPIC) {
                    self.topic(Some(resource.resource_name.to_string()), []);
                }
            }
            Request::DescribeProducers(request) => {
                for topic in &request.topics {
                    self.topic(Some(topic.name.to_string()), topic.partition_indexes.iter().copied());
                }
            }
            Request::OffsetDelete(request) => {
                self.group(&request.group_id);
                for topic in &request.topics {
                    self.topic(
                        Some(topic.name.to_string()),
                        topic.partitions.iter().map(|it| it.partition_index),
                    );
                }
            }
            Request::InitProducerId(_)
            | Request::AddPartitionsToTxn(_)
            | Request::AddOffsetsToTxn(_)
            | Request::EndTxn(_)
            | Request::WriteTxnMarkers(_)
            | Request::TxnOffsetCommit(_)
            | Request::DescribeTransactions(_)
            | Request::ListTransactions(_) => self.read_transaction(request),
        }
    }

    fn read_transaction(&mut self, request: &Request) {
        match request {
            Request::InitProducerId(request) => self.id(request.transactional_id.as_ref()),
            Request::AddPartitionsToTxn(request) => {
                self.id(Some(&request.v3_and_below_transactional_id));
                let batched = request.transactions.iter().flat_map(|it| &it.topics);
                for topic in request.v3_and_below_topics.iter().chain(batched) {
                    self.topic(Some(topic.name.to_string()), topic.partitions.iter().copied());
                }
                request.transactions.iter().for_each(|it| self.id(Some(&it.transactional_id)));
            }
            Request::AddOffsetsToTxn(request) => {
                self.id(Some(&request.transactional_id));
                self.group(&request.group_id);
            }
            Request::EndTxn(request) => {
                self.id(Some(&request.transactional_id));
                self.commit = Some(request.committed);
            }
            Request::WriteTxnMarkers(request) => {
                for topic in request.markers.iter().flat_map(|marker| &marker.topics) {
                    self.topic(Some(topic.name.to_string()), topic.partition_indexes.iter().copied());
                }
            }
            Request::TxnOffsetCommit(request) => {
                self.id(Some(&request.transactional_id));
                self.group(&request.group_id);
                for topic in &request.topics {
                    self.topic(
                        Some(topic.name.to_string()),
                        topic.partitions.iter().map(|it| it.partition_index),
                    );
                }
            }
            Request::DescribeTransactions(request) => {
                request.transactional_ids.iter().for_each(|id| self.id(Some(id)));
            }
            _ => {}
        }
    }

    fn topic(&mut self, name: Option<String>, partitions: impl IntoIterator<Item = i32>) {
        if let Some(name) = name {
            self.topics.push((name, partitions.into_iter().collect()));
        }
    }

    fn id(&mut self, id: Option<&TransactionalId>) {
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            self.transactional_ids.push(id.to_string());
        }
    }

    fn group(&mut self, group: &str) {
        if !group.is_empty() {
            self.groups.push(group.to_owned());
        }
    }
}

fn named(names: Names<'_>, name: &TopicName, id: Uuid) -> Option<String> {
    if name.is_empty() { names(id) } else { Some(name.to_string()) }
}
