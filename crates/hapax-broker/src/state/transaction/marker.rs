//! Markers: what a decision becomes in the partitions, some time after it was answered. Until the last one is written
//! the transaction is prepared, readers of committed records wait, and everybody who asks is told to come again.
//!
//! Kafka's marker channel has two unhappy ends, both kept here. A partition that is gone is skipped, and the
//! transaction completes without it. A partition that refuses the marker because it has seen a later epoch ends the
//! sending without a retry, and the transaction stays prepared until its coordinator is loaded again (KAFKA-19999). A
//! third one happens when it is asked for: a partition without a leader counts as gone (KAFKA-20734).

use super::phase::Phase;
use crate::state::{Answer, Call, Code, Machine, TopicPartition, append::Marker};
use kafka_protocol::messages::{
    WriteTxnMarkersRequest, WriteTxnMarkersResponse,
    write_txn_markers_request::WritableTxnMarker,
    write_txn_markers_response::{
        WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
    },
};

impl Machine {
    /// Holds the markers of decisions from now on, or writes all that were held. Says whether it was otherwise before.
    pub(crate) fn hold_markers(&mut self, hold: bool) -> bool {
        let held = std::mem::replace(&mut self.transactions.hold_markers, hold);
        if !hold {
            for (id, coordinator_epoch) in std::mem::take(&mut self.transactions.held) {
                self.write_markers(&id, coordinator_epoch);
            }
        }
        held != hold
    }

    /// Leaves a partition out from now on, or does so no more. Says whether it was otherwise before.
    pub(crate) fn leave_out_markers(&mut self, topic: &str, partition: i32, leave_out: bool) -> bool {
        let left_out = &mut self.transactions.left_out;
        let partition = TopicPartition { topic: topic.into(), partition };
        if leave_out { left_out.insert(partition) } else { left_out.remove(&partition) }
    }

    /// The time of an id's markers has come.
    pub(crate) fn markers_due(&mut self, id: &str, coordinator_epoch: i32) {
        if self.transactions.hold_markers {
            self.transactions.held.insert((id.to_owned(), coordinator_epoch));
        } else {
            self.write_markers(id, coordinator_epoch);
        }
    }

    fn write_markers(&mut self, id: &str, coordinator_epoch: i32) {
        let Some((phase, marker, partitions)) = self.markers_of(id, coordinator_epoch) else { return };
        let mut refused = false;
        for partition in partitions {
            if self.transactions.left_out.contains(&partition) {
                self.marked(id, &partition);
                continue;
            }
            match self.write_marker(&partition.topic, partition.partition, marker) {
                Ok(()) => self.marked(id, &partition),
                Err(code) => {
                    let (topic, partition) = (&partition.topic, partition.partition);
                    tracing::debug!(transactional_id = id, %topic, partition, code = code.0, "a marker was refused");
                    refused = true;
                }
            }
        }
        if !refused && phase.is_prepared() {
            self.complete_transaction(id);
        }
    }

    /// What is to be written, if the decision still stands where it was taken.
    fn markers_of(&self, id: &str, coordinator_epoch: i32) -> Option<(Phase, Marker, Vec<TopicPartition>)> {
        let shard = self.shard(id, None).ok().filter(|shard| shard.epoch == coordinator_epoch)?;
        let stored = shard.transactions.get(id)?;
        let (commit, _) = stored.phase.completion()?;
        let marker = Marker {
            producer_id: stored.producer.id,
            producer_epoch: stored.producer.epoch,
            coordinator_epoch,
            commit,
            transaction_version: stored.level.0,
        };
        Some((stored.phase, marker, stored.partitions.iter().cloned().collect()))
    }

    fn marked(&mut self, id: &str, partition: &TopicPartition) {
        if let Some(stored) = self.stored_mut(id) {
            stored.partitions.remove(partition);
        }
    }

    /// Writes that all markers are written.
    pub(super) fn complete_transaction(&mut self, id: &str) {
        let now = self.now;
        let Some(complete) = self.stored_mut(id).and_then(|stored| stored.completed(now)) else { return };
        if let Err(code) = self.write_transaction(id, complete) {
            tracing::debug!(transactional_id = id, code = code.0, "the completion could not be written");
            // Kafka keeps it in a queue and tries again.
            self.schedule_markers(id);
        }
    }

    /// WriteTxnMarkers: markers that somebody else decided on, to the leaders of their partitions. The coordinator is
    /// not asked and not told.
    pub(crate) fn write_txn_markers(&mut self, call: &Call, request: WriteTxnMarkersRequest) -> Answer {
        let results = request.markers.into_iter().map(|asked| self.write_asked_marker(call, asked)).collect();
        Answer::Now(WriteTxnMarkersResponse::default().with_markers(results).into())
    }

    fn write_asked_marker(&mut self, call: &Call, asked: WritableTxnMarker) -> WritableTxnMarkerResult {
        let marker = Marker {
            producer_id: asked.producer_id.0,
            producer_epoch: asked.producer_epoch,
            coordinator_epoch: asked.coordinator_epoch,
            commit: asked.transaction_result,
            // Version 2 of the request says the level of the transaction; this is version 1.
            transaction_version: 0,
        };
        let mut topics = Vec::with_capacity(asked.topics.len());
        for topic in asked.topics {
            let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
            for index in topic.partition_indexes {
                let code =
                    self.write_marker_here(call, &topic.name, index, marker).err().unwrap_or(Code::NONE);
                partitions.push(
                    WritableTxnMarkerPartitionResult::default()
                        .with_partition_index(index)
                        .with_error_code(code.0),
                );
            }
            topics.push(
                WritableTxnMarkerTopicResult::default().with_name(topic.name).with_partitions(partitions),
            );
        }
        WritableTxnMarkerResult::default().with_producer_id(asked.producer_id).with_topics(topics)
    }

    fn write_marker_here(
        &mut self,
        call: &Call,
        topic: &str,
        index: i32,
        marker: Marker,
    ) -> Result<(), Code> {
        let partition = self.catalog.partition(topic, index).ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        if partition.leader != call.node {
            // A node that has no replica has no log to look into.
            let has_replica = partition.replicas.contains(&call.node);
            let code =
                if has_replica { Code::NOT_LEADER_OR_FOLLOWER } else { Code::UNKNOWN_TOPIC_OR_PARTITION };
            return Err(code);
        }
        if marker.producer_epoch < 0 {
            // No batch can be made of it.
            return Err(Code::UNKNOWN_SERVER_ERROR);
        }
        self.write_marker(topic, index, marker)
    }
}
