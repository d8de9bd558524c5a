//! What the cluster looks like: brokers, topics, leaders with their epochs, topic ids.
//!
//! Owns the cache and how a newer answer is merged into it. Invariant: from one good answer about a topic id to the
//! next the leader epoch of a partition never goes back, so a broker that lags behind does not undo what a newer one
//! said (KIP-320).

use crate::{
    ClientError, KafkaCode, NodeId,
    error::{CallError, RequestKind},
    wire,
};
use hapax_commit::TopicId;
use kafka_protocol::messages::{
    MetadataRequest, MetadataResponse,
    metadata_request::MetadataRequestTopic,
    metadata_response::{MetadataResponsePartition, MetadataResponseTopic},
};
use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

/// Topic ids came with version 10; 13 only adds a code for the whole answer.
pub(crate) const VERSIONS: RangeInclusive<i16> = 10..=12;

/// Host and port.
pub(crate) type Address = (String, u16);

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The broker.
    pub node: NodeId,
    /// Counts the leaders of the partition.
    pub leader_epoch: i32,
}

/// One partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// The partition's number.
    pub partition: i32,
    /// Its leader; none while there is an election.
    pub leader: Option<Leader>,
    /// Brokers that hold a copy.
    pub replicas: Vec<NodeId>,
    /// Brokers whose copy is complete.
    pub in_sync: Vec<NodeId>,
}

/// One topic, or why it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Its name.
    pub name: Arc<str>,
    /// Its id: a topic that was deleted and made again has another. All zeroes on a cluster without topic ids.
    pub id: TopicId,
    /// The broker's code for the topic: `UNKNOWN_TOPIC_OR_PARTITION`, a missing right, or nothing.
    pub error: Option<KafkaCode>,
    /// Its partitions in order of their numbers; none where `error` is set.
    pub partitions: Vec<PartitionMetadata>,
}

impl TopicMetadata {
    /// The topic, or its code as an error.
    ///
    /// # Errors
    /// [`ClientError::Broker`] with the code of the topic.
    pub fn usable(&self) -> Result<&Self, ClientError> {
        match self.error {
            None => Ok(self),
            Some(code) => {
                Err(ClientError::broker(RequestKind::Metadata, format!("topic {}", self.name), code))
            }
        }
    }

    /// A partition by its number.
    pub fn partition(&self, partition: i32) -> Option<&PartitionMetadata> {
        self.partitions.iter().find(|known| known.partition == partition)
    }
}

/// One Metadata answer.
pub(crate) struct Snapshot {
    pub(crate) cluster_id: Option<String>,
    pub(crate) controller: Option<NodeId>,
    pub(crate) nodes: BTreeMap<NodeId, Address>,
    pub(crate) topics: Vec<TopicMetadata>,
}

/// Asks about every topic that the client may see.
pub(crate) fn request_all() -> MetadataRequest {
    MetadataRequest::default().with_topics(None).with_allow_auto_topic_creation(false)
}

/// Asks about some topics (none: only about brokers), never creating any.
pub(crate) fn request<'a>(topics: impl Iterator<Item = &'a str>) -> MetadataRequest {
    let topic = |name: &str| MetadataRequestTopic::default().with_name(Some(wire::text(name).into()));
    MetadataRequest::default()
        .with_topics(Some(topics.map(topic).collect()))
        .with_allow_auto_topic_creation(false)
}

impl Snapshot {
    pub(crate) fn of(response: MetadataResponse, from: NodeId) -> Result<Self, CallError> {
        let malformed =
            |reason: String| CallError::Malformed { api: "Metadata", node: from, reason: reason.into() };
        let mut nodes = BTreeMap::new();
        for broker in response.brokers {
            let node = NodeId(broker.node_id.0);
            let port = u16::try_from(broker.port)
                .map_err(|_| malformed(format!("{node} has port {}", broker.port)))?;
            nodes.insert(node, (broker.host.to_string(), port));
        }
        let controller = Some(NodeId(response.controller_id.0)).filter(|node| nodes.contains_key(node));
        let topics = response.topics.into_iter().filter_map(topic).collect();
        Ok(Self { cluster_id: response.cluster_id.map(|id| id.to_string()), controller, nodes, topics })
    }
}

fn topic(topic: MetadataResponseTopic) -> Option<TopicMetadata> {
    let code = KafkaCode(topic.error_code);
    let mut partitions: Vec<_> = topic.partitions.into_iter().map(partition).collect();
    partitions.sort_by_key(|partition| partition.partition);
    Some(TopicMetadata {
        name: topic.name?.0.as_str().into(),
        id: TopicId(topic.topic_id.into_bytes()),
        error: (code != KafkaCode::NONE).then_some(code),
        partitions,
    })
}

fn partition(partition: MetadataResponsePartition) -> PartitionMetadata {
    let nodes =
        |ids: Vec<kafka_protocol::messages::BrokerId>| ids.into_iter().map(|id| NodeId(id.0)).collect();
    let leader = Leader { node: NodeId(partition.leader_id.0), leader_epoch: partition.leader_epoch };
    PartitionMetadata {
        partition: partition.partition_index,
        leader: (partition.leader_id.0 >= 0).then_some(leader),
        replicas: nodes(partition.replica_nodes),
        in_sync: nodes(partition.isr_nodes),
    }
}

/// The newest known state of what was ever asked about.
#[derive(Default)]
pub(crate) struct MetadataCache {
    nodes: BTreeMap<NodeId, Address>,
    controller: Option<NodeId>,
    topics: BTreeMap<Arc<str>, Arc<TopicMetadata>>,
}

impl MetadataCache {
    pub(crate) fn merge(&mut self, snapshot: Snapshot) -> Vec<Arc<TopicMetadata>> {
        if !snapshot.nodes.is_empty() {
            self.nodes = snapshot.nodes;
            self.controller = snapshot.controller;
        }
        snapshot.topics.into_iter().map(|topic| self.merge_topic(topic)).collect()
    }

    fn merge_topic(&mut self, mut topic: TopicMetadata) -> Arc<TopicMetadata> {
        if let Some(known) = self.topics.get(&topic.name).filter(|known| known.id == topic.id) {
            for partition in &mut topic.partitions {
                keep_newer_leader(partition, known.partition(partition.partition));
            }
        }
        let topic = Arc::new(topic);
        self.topics.insert(Arc::clone(&topic.name), Arc::clone(&topic));
        topic
    }

    pub(crate) fn topic(&self, name: &str) -> Option<Arc<TopicMetadata>> {
        self.topics.get(name).cloned()
    }

    pub(crate) fn topic_names(&self) -> Vec<Arc<str>> {
        self.topics.keys().cloned().collect()
    }

    pub(crate) fn leader(&self, topic: &str, partition: i32) -> Option<Leader> {
        self.topics.get(topic)?.partition(partition)?.leader
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<Address> {
        self.nodes.get(&node).cloned()
    }

    pub(crate) fn controller(&self) -> Option<NodeId> {
        self.controller
    }

    pub(crate) fn learn_node(&mut self, node: NodeId, address: Address) {
        self.nodes.insert(node, address);
    }
}

fn keep_newer_leader(partition: &mut PartitionMetadata, known: Option<&PartitionMetadata>) {
    let known = known.and_then(|known| known.leader);
    if let (Some(known), Some(new)) = (known, partition.leader)
        && known.leader_epoch > new.leader_epoch
    {
        partition.leader = Some(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(id: u8, leader: Option<(i32, i32)>) -> Snapshot {
        let leader = leader.map(|(node, leader_epoch)| Leader { node: NodeId(node), leader_epoch });
        let partition = PartitionMetadata { partition: 0, leader, replicas: vec![], in_sync: vec![] };
        let topic = TopicMetadata {
            name: "t".into(),
            id: TopicId([id; 16]),
            error: None,
            partitions: vec![partition],
        };
        Snapshot { cluster_id: None, controller: None, nodes: BTreeMap::new(), topics: vec![topic] }
    }

    fn leader_of(cache: &MetadataCache) -> Option<(i32, i32)> {
        cache.leader("t", 0).map(|leader| (leader.node.0, leader.leader_epoch))
    }

    #[test]
    fn a_broker_that_lags_does_not_bring_an_old_leader_back() {
        let mut cache = MetadataCache::default();
        cache.merge(snapshot(1, Some((2, 5))));
        cache.merge(snapshot(1, Some((1, 4))));
        assert_eq!(leader_of(&cache), Some((2, 5)));
        cache.merge(snapshot(1, Some((1, 6))));
        assert_eq!(leader_of(&cache), Some((1, 6)));
    }

    #[test]
    fn a_topic_made_again_starts_over() {
        let mut cache = MetadataCache::default();
        cache.merge(snapshot(1, Some((2, 5))));
        cache.merge(snapshot(2, Some((1, 0))));
        assert_eq!(leader_of(&cache), Some((1, 0)));
    }

    #[test]
    fn an_answer_without_brokers_does_not_forget_those_that_are_known() {
        let mut cache = MetadataCache::default();
        cache.learn_node(NodeId(1), ("h".to_owned(), 1));
        cache.merge(snapshot(1, None));
        assert_eq!(cache.nodes().collect::<Vec<_>>(), [NodeId(1)]);
    }
}
