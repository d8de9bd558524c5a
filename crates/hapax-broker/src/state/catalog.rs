//! The topics of the cluster: ids, partitions with their leaders and logs, configurations.
//!
//! A topic that is deleted and created again has a new id and new logs. Leaders are spread over the nodes; a partition's
//! log is one, whoever leads it.

use super::{Code, NodeId, Settings, config::Configs, digest::feed, log::Log};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The topic that transaction coordinators write.
pub(crate) const TRANSACTION_STATE: &str = "__transaction_state";
/// The topic that group coordinators write.
pub(crate) const CONSUMER_OFFSETS: &str = "__consumer_offsets";

const LONGEST_NAME: usize = 249;

/// A partition.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pub(crate) leader: NodeId,
    pub(crate) leader_epoch: i32,
    pub(crate) replicas: Vec<NodeId>,
    pub(crate) log: Log,
}

feed!(Partition { leader, leader_epoch, replicas, log });

impl Partition {
    fn new(replicas: Vec<NodeId>, sync_always: bool) -> Self {
        let mut log = Log::default();
        log.begin_epoch(0);
        log.sync_always(sync_always);
        Self { leader: replicas.first().copied().unwrap_or(NodeId(1)), leader_epoch: 0, replicas, log }
    }

    /// Another node leads, or the same one again.
    pub(crate) fn lead(&mut self, leader: NodeId) {
        // A node without a replica takes the old leader's over, as a reassignment moves it.
        if !self.replicas.contains(&leader) {
            self.replicas.iter_mut().filter(|node| **node == self.leader).for_each(|node| *node = leader);
        }
        self.leader = leader;
        self.leader_epoch += 1;
        self.log.begin_epoch(self.leader_epoch);
    }

    /// Whether a request that came in by `node` and knows a leader epoch may go on
    /// (`Partition.checkCurrentLeaderEpoch`).
    pub(crate) fn admit(&self, node: NodeId, known_epoch: i32) -> Result<(), Code> {
        match known_epoch {
            0.. if known_epoch < self.leader_epoch => Err(Code::FENCED_LEADER_EPOCH),
            0.. if known_epoch > self.leader_epoch => Err(Code::UNKNOWN_LEADER_EPOCH),
            _ if node != self.leader => Err(Code::NOT_LEADER_OR_FOLLOWER),
            _ => Ok(()),
        }
    }
}

/// A topic.
#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) id: Uuid,
    pub(crate) configs: Configs,
    pub(crate) replication_factor: i16,
    pub(crate) partitions: Vec<Partition>,
}

feed!(Topic { id, configs, replication_factor, partitions });

/// All topics.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    settings: Settings,
    random: fastrand::Rng,
    topics: BTreeMap<String, Topic>,
    names: BTreeMap<Uuid, String>,
    /// Names as metrics write them: two topics may not be written alike.
    unified: BTreeMap<String, String>,
    sync_always: bool,
    /// Shifts the first leader from topic to topic.
    created: i32,
}

feed!(Catalog { random, topics, names, unified, sync_always, created } without { settings });

impl Catalog {
    /// No topics yet.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            random: fastrand::Rng::with_seed(settings.seed ^ 0x746f_7069_6373),
            topics: BTreeMap::new(),
            names: BTreeMap::new(),
            unified: BTreeMap::new(),
            sync_always: true,
            created: 0,
        }
    }

    /// The topics by name.
    pub(crate) fn topics(&self) -> impl Iterator<Item = (&str, &Topic)> {
        self.topics.iter().map(|(name, topic)| (name.as_str(), topic))
    }

    /// A topic.
    pub(crate) fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name)
    }

    /// A topic, to change it.
    pub(crate) fn topic_mut(&mut self, name: &str) -> Option<&mut Topic> {
        self.topics.get_mut(name)
    }

    /// The name of a topic id.
    pub(crate) fn name(&self, id: Uuid) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// The other topic that metrics write like this one.
    pub(crate) fn colliding(&self, name: &str) -> Option<&str> {
        self.unified.get(&unified(name)).map(String::as_str).filter(|other| *other != name)
    }

    /// A partition.
    pub(crate) fn partition(&self, topic: &str, index: i32) -> Option<&Partition> {
        self.topics.get(topic)?.partitions.get(usize::try_from(index).ok()?)
    }

    /// A partition, to change it.
    pub(crate) fn partition_mut(&mut self, topic: &str, index: i32) -> Option<&mut Partition> {
        self.topics.get_mut(topic)?.partitions.get_mut(usize::try_from(index).ok()?)
    }

    /// All partitions, to change them.
    pub(crate) fn partitions_mut(&mut self) -> impl Iterator<Item = (&str, i32, &mut Partition)> {
        self.topics.iter_mut().flat_map(|(name, topic)| {
            topic
                .partitions
                .iter_mut()
                .enumerate()
                .map(|(at, partition)| (name.as_str(), at as i32, partition))
        })
    }

    /// Creates a topic that is not there.
    pub(crate) fn create(&mut self, name: &str, replicas: Vec<Vec<NodeId>>, configs: Configs) -> Uuid {
        assert!(!self.topics.contains_key(name), "a topic is created once");
        let id = self.new_id();
        let replication_factor = replicas.first().map_or(1, Vec::len) as i16;
        let partitions =
            replicas.into_iter().map(|replicas| Partition::new(replicas, self.sync_always)).collect();
        self.topics.insert(name.to_owned(), Topic { id, configs, replication_factor, partitions });
        self.names.insert(id, name.to_owned());
        self.unified.insert(unified(name), name.to_owned());
        self.created += 1;
        id
    }

    /// An id that no topic has.
    pub(crate) fn new_id(&mut self) -> Uuid {
        // Kafka does not give out ids that a command line would take for an option (`Uuid.randomUuid`).
        loop {
            let id = uuid::Builder::from_random_bytes(self.random.u128(..).to_be_bytes()).into_uuid();
            if !super::encode_id(id.as_bytes()).starts_with('-') && !self.names.contains_key(&id) {
                return id;
            }
        }
    }

    /// Creates a topic of coordinators if it is missing.
    pub(crate) fn internal(&mut self, name: &str, partitions: i32) {
        if self.topics.contains_key(name) {
            return;
        }
        let given =
            [("cleanup.policy", "compact"), ("compression.type", "producer"), ("segment.bytes", "104857600")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        if let Ok(configs) = Configs::new(&self.settings, given) {
            let replicas = self.spread(0, partitions, 1);
            self.create(name, replicas, configs);
        }
    }

    /// Replicas for partitions from `first` on.
    pub(crate) fn spread(&self, first: i32, count: i32, replication_factor: i16) -> Vec<Vec<NodeId>> {
        let nodes = self.settings.nodes.max(1);
        let node = |at: i32| NodeId((self.created.wrapping_add(at)).rem_euclid(nodes) + 1);
        let replicas =
            |partition| (0..i32::from(replication_factor)).map(|at| node(partition + at)).collect();
        (first..first.saturating_add(count)).map(replicas).collect()
    }

    /// Adds partitions to a topic.
    pub(crate) fn grow(&mut self, name: &str, replicas: Vec<Vec<NodeId>>) {
        let sync_always = self.sync_always;
        if let Some(topic) = self.topics.get_mut(name) {
            topic
                .partitions
                .extend(replicas.into_iter().map(|replicas| Partition::new(replicas, sync_always)));
        }
    }

    /// Deletes a topic with its logs.
    pub(crate) fn delete(&mut self, name: &str) -> Option<Topic> {
        let topic = self.topics.remove(name)?;
        self.names.remove(&topic.id);
        self.unified.remove(&unified(name));
        Some(topic)
    }

    /// Whether appends are synced at once, in all logs and those to come. Says whether that changes what a crash takes.
    pub(crate) fn sync_always(&mut self, always: bool) -> bool {
        let was = std::mem::replace(&mut self.sync_always, always);
        let mut at_risk = false;
        for (_, _, partition) in self.partitions_mut() {
            at_risk |= partition.log.is_at_risk();
            partition.log.sync_always(always);
        }
        was != always || at_risk
    }
}

/// Whether only coordinators write it.
pub(crate) fn is_internal(topic: &str) -> bool {
    topic == TRANSACTION_STATE || topic == CONSUMER_OFFSETS
}

/// What is wrong with a name (`Topic.validate`).
pub(crate) fn name_fault(name: &str) -> Option<String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || [b'.', b'_', b'-'].contains(&byte);
    match name {
        "" => Some("Topic name is invalid: the empty string is not allowed".to_owned()),
        "." | ".." => Some(format!("Topic name is invalid: '{name}' is not allowed")),
        _ if name.len() > LONGEST_NAME => Some(format!(
            "Topic name is invalid: the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
        )),
        _ if !name.bytes().all(legal) => Some(format!(
            "Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )),
        _ => None,
    }
}

/// A name as metrics write it (`Topic.unifyCollisionChars`).
fn unified(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(nodes: i32) -> Catalog {
        Catalog::new(&Settings { nodes, ..Settings::default() })
    }

    #[test]
    fn a_topic_that_is_created_again_has_another_id_and_an_empty_log() {
        let mut catalog = catalog(1);
        catalog.internal("t", 1);
        let first = catalog.topic("t").unwrap().id;
        catalog.delete("t");
        assert_eq!(catalog.name(first), None);
        catalog.internal("t", 1);
        assert_ne!(catalog.topic("t").unwrap().id, first);
    }

    #[test]
    fn leaders_are_spread_over_the_nodes() {
        let mut catalog = catalog(3);
        catalog.internal("t", 3);
        let leaders: Vec<_> =
            catalog.topic("t").unwrap().partitions.iter().map(|partition| partition.leader).collect();
        assert_eq!(leaders, [NodeId(1), NodeId(2), NodeId(3)]);
    }

    #[test]
    fn names_that_kafka_refuses_are_refused() {
        assert!(["", ".", "..", "a b", "ä"].iter().all(|name| name_fault(name).is_some()));
        assert!(name_fault(&"x".repeat(250)).is_some());
        assert_eq!(name_fault("orders.v-1_x"), None);
    }

    #[test]
    fn names_that_metrics_write_alike_collide_while_the_topic_is_there() {
        let mut catalog = catalog(1);
        catalog.internal("a.b_c", 1);
        assert_eq!(catalog.colliding("a_b.c"), Some("a.b_c"));
        assert_eq!(catalog.colliding("a.b_c"), None, "itself");
        catalog.delete("a.b_c");
        assert_eq!(catalog.colliding("a_b.c"), None);
    }
}
