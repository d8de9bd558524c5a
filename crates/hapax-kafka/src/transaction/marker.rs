//! Writing a control batch oneself, where the coordinator has left one out.

use crate::{Client, ClientError, KafkaCode, admin, error::RequestKind, wire};
use hapax_commit::{Identity, ProducerEpoch};
use hapax_host::Deadline;
use kafka_protocol::messages::{
    self, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
    write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
};
use std::sync::atomic::AtomicUsize;

/// The end of a producer's transaction, as one partition is to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// The producer, with the epoch of the marker: on V2 one more than that of the records (KIP-890).
    pub identity: Identity,
    /// Committed, or aborted.
    pub commit: bool,
    /// Not below the epoch of any coordinator that the partition has heard of
    /// ([`super::PartitionProducer::coordinator_epoch`]).
    pub coordinator_epoch: i32,
}

/// Has the leader of a partition write a marker (WriteTxnMarkers, KIP-98). The coordinator knows nothing of it: this is
/// only for a transaction that the coordinator calls complete and that the partition holds open all the same.
/// Needs the right *ClusterAction*, or from Kafka 3.8 on *Alter*, on the cluster.
///
/// `unanswered` counts requests that are on their way, and those whose answer was lost or whose future was dropped: their
/// marker may be written later, and on V2 it has the producer epoch of the id's next transaction, unless
/// InitProducerId comes first.
///
/// # Errors
/// The client's reason, at the latest at the deadline. Written twice while nothing else is open, a marker does no harm.
pub async fn write_end_marker(
    client: &Client,
    topic: &str,
    partition: i32,
    marker: EndMarker,
    deadline: Deadline,
    unanswered: &AtomicUsize,
) -> Result<(), ClientError> {
    let ProducerEpoch(epoch) = marker.identity.producer_epoch;
    let wanted = WritableTxnMarkerTopic::default()
        .with_name(wire::text(topic).into())
        .with_partition_indexes(vec![partition]);
    let written = WritableTxnMarker::default()
        .with_producer_id(messages::ProducerId(marker.identity.producer_id.0))
        .with_producer_epoch(epoch)
        .with_transaction_result(marker.commit)
        .with_topics(vec![wanted])
        .with_coordinator_epoch(marker.coordinator_epoch);
    let request = WriteTxnMarkersRequest::default().with_markers(vec![written]);
    let code = |response: &WriteTxnMarkersResponse| {
        let topic = response.markers.first().and_then(|marker| marker.topics.first());
        topic.and_then(|topic| topic.partitions.first()).map(|partition| KafkaCode(partition.error_code))
    };
    let kind = RequestKind::WriteTxnMarkers;
    let unanswered = Some(unanswered);
    let request = &|_| request.clone();
    let ask = admin::AskLeader { topic, partition, kind, versions: 1..=1, request, code, unanswered };
    ask.until_settled(client, deadline).await.map(drop)
}
