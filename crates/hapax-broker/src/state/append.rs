//! What the broker appends by itself: records of coordinators, and the markers that end transactions.

use super::{Code, Machine, TopicPartition, catalog, producers::Origin};
use crate::batch::Writer;
use bytes::Bytes;

/// The end of a transaction, for a partition that is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) coordinator_epoch: i32,
    pub(crate) commit: bool,
    /// 2 and above: every transaction has its own epoch, and its marker the next one (KIP-890 part 2, KIP-1228).
    pub(crate) transaction_version: i16,
}

impl Machine {
    /// Appends one plain record of a coordinator in a batch of its own. Where the partition is gone, so is the
    /// coordinator, and the client looks for the next one.
    pub(crate) fn append_internal(
        &mut self,
        topic: &str,
        partition: i32,
        key: Bytes,
        value: Option<Bytes>,
    ) -> Result<(), Code> {
        let appended = self.append_records(topic, partition, None, &[(key, value)]);
        appended.map(drop).map_err(|code| match code {
            Code::UNKNOWN_TOPIC_OR_PARTITION => Code::COORDINATOR_NOT_AVAILABLE,
            code => code,
        })
    }

    /// Appends records in one batch, as part of a transaction where a producer is named; the offset of the first.
    /// Sequences are not checked and no coordinator is asked, as for `AppendOrigin.COORDINATOR`.
    pub(crate) fn append_records(
        &mut self,
        topic: &str,
        partition: i32,
        producer: Option<(i64, i16)>,
        records: &[(Bytes, Option<Bytes>)],
    ) -> Result<i64, Code> {
        let timestamp = self.now;
        let place = self.catalog.partition_mut(topic, partition).ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        let (base_offset, leader_epoch) = (place.log.end(), place.leader_epoch);
        let batch = Writer { base_offset, leader_epoch, timestamp, producer }.records(records);
        if producer.is_some() {
            place.log.producers.check(&batch.header, Origin::Coordinator)?;
        }
        place.log.push_records(batch);
        self.touch(topic, partition);
        Ok(base_offset)
    }

    /// Ends a transaction in a partition. A partition that is gone needs no marker: the coordinator skips it
    /// (`TransactionMarkerChannelManager`).
    pub(crate) fn write_marker(&mut self, topic: &str, partition: i32, marker: Marker) -> Result<(), Code> {
        let timestamp = self.now;
        let Marker { producer_id, producer_epoch, coordinator_epoch, commit, transaction_version } = marker;
        let Some(place) = self.catalog.partition_mut(topic, partition) else { return Ok(()) };
        let producers = &place.log.producers;
        producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)?;
        let (base_offset, leader_epoch) = (place.log.end(), place.leader_epoch);
        let producer = Some((producer_id, producer_epoch));
        let batch =
            Writer { base_offset, leader_epoch, timestamp, producer }.marker(commit, coordinator_epoch);
        place.log.push_marker(batch);
        self.touch(topic, partition);
        if topic == catalog::CONSUMER_OFFSETS {
            self.groups_marker(partition, producer_id, commit);
        }
        Ok(())
    }

    /// A reader that waits for this partition is looked at before the step ends.
    pub(crate) fn touch(&mut self, topic: &str, partition: i32) {
        self.touched.insert(TopicPartition { topic: topic.to_owned(), partition });
    }
}
