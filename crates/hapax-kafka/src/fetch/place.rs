//! Where a partition is, or whether it is there at all, by metadata.

use super::TopicPartition;
use crate::{
    ClientError, Leader, TopicMetadata,
    error::{Class, RequestKind, classify},
};
use hapax_commit::TopicId;

/// Why metadata names no leader for a partition.
pub(super) enum Missing {
    /// There is an election, or the broker is not ready to say.
    Leader(String),
    /// The topic or partition is not there, or the topic is another one.
    Partition(String),
    /// The broker refuses to say.
    Refused(ClientError),
}

/// The leader of a partition by this metadata. Pins the topic's id if none is known yet.
pub(super) fn locate(
    tp: &TopicPartition,
    topic_id: &mut Option<TopicId>,
    topic: &TopicMetadata,
) -> Result<Leader, Missing> {
    if let Err(error) = topic.usable() {
        return Err(match error.code().map(|code| classify(RequestKind::Metadata, code)) {
            Some(Class::UnknownTopic) => Missing::Partition(error.to_string()),
            _ if error.is_retriable() => Missing::Leader(error.to_string()),
            _ => Missing::Refused(error),
        });
    }
    if topic.id.0 != [0; 16] {
        let known = *topic_id.get_or_insert(topic.id);
        if known != topic.id {
            return Err(Missing::Partition(format!(
                "the topic was deleted and made again (id {known} then, {} now)",
                topic.id
            )));
        }
    }
    let Some(partition) = topic.partition(tp.partition) else {
        let count = topic.partitions.len();
        return Err(Missing::Partition(format!("the topic has only {count} partitions")));
    };
    partition.leader.ok_or_else(|| Missing::Leader("the partition has no leader".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KafkaCode, NodeId, PartitionMetadata};

    const LEADER: Leader = Leader { node: NodeId(1), leader_epoch: 3 };

    fn topic(id: u8, error: Option<KafkaCode>, leader: Option<Leader>) -> TopicMetadata {
        let partition = PartitionMetadata { partition: 0, leader, replicas: vec![], in_sync: vec![] };
        TopicMetadata { name: "t".into(), id: TopicId([id; 16]), error, partitions: vec![partition] }
    }

    fn place(partition: i32, known: &mut Option<TopicId>, topic: &TopicMetadata) -> Result<Leader, Missing> {
        locate(&TopicPartition { topic: "t".into(), partition }, known, topic)
    }

    #[test]
    fn the_first_id_is_pinned_and_another_one_is_another_topic() {
        let mut known = None;
        assert_eq!(place(0, &mut known, &topic(1, None, Some(LEADER))).ok(), Some(LEADER));
        assert_eq!(known, Some(TopicId([1; 16])));
        let again = place(0, &mut known, &topic(2, None, Some(LEADER)));
        assert!(matches!(again, Err(Missing::Partition(reason)) if reason.contains("made again")));
        assert_eq!(known, Some(TopicId([1; 16])));
    }

    #[test]
    fn a_cluster_without_topic_ids_is_read_by_name() {
        let mut known = None;
        assert!(place(0, &mut known, &topic(0, None, Some(LEADER))).is_ok());
        assert_eq!(known, None);
    }

    #[test]
    fn only_what_metadata_calls_unknown_counts_as_missing() {
        let unknown = topic(0, Some(KafkaCode::UNKNOWN_TOPIC_OR_PARTITION), None);
        assert!(matches!(place(0, &mut None, &unknown), Err(Missing::Partition(_))));
        assert!(matches!(place(1, &mut None, &topic(1, None, Some(LEADER))), Err(Missing::Partition(_))));
        assert!(matches!(place(0, &mut None, &topic(1, None, None)), Err(Missing::Leader(_))));
        let electing = topic(1, Some(KafkaCode::LEADER_NOT_AVAILABLE), None);
        assert!(matches!(place(0, &mut None, &electing), Err(Missing::Leader(_))));
        let denied = topic(1, Some(KafkaCode::TOPIC_AUTHORIZATION_FAILED), None);
        assert!(matches!(place(0, &mut None, &denied), Err(Missing::Refused(_))));
    }
}
