//! Produce on the wire: requests straight from sealed batches, which are not copied, and their answers.
//!
//! Only flexible versions (9 and later) that name topics (up to 12). One batch for each partition, acks = all.

use super::partition_queue::Sending;
use crate::{
    KafkaCode,
    record::{BATCH_HEADER_BYTES, StampedBatch},
    wire::{self, WireError},
};
use bytes::{BufMut, Bytes, BytesMut};
use hapax_commit::TransactionVersion;
use kafka_protocol::messages::ProduceRequest;
use std::{ops::RangeInclusive, sync::Arc, time::Duration};

/// Produce.
pub(super) const API_KEY: i16 = 0;
/// All replicas in sync.
const ACKS_ALL: i16 = -1;

/// Versions that may carry a batch. From 12 on a transactional batch adds its partition to the transaction by itself;
/// up to 11 it never does. Outside transactions 11 is enough, and lets a partition that forgot an idle producer take
/// its next sequence.
pub(super) fn versions(transactional: bool, version: TransactionVersion) -> RangeInclusive<i16> {
    match (transactional, version) {
        (true, TransactionVersion::V2) => 12..=12,
        (true, TransactionVersion::V1) | (false, _) => 9..=11,
    }
}

/// A batch for one partition.
pub(super) struct Part {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) sending: Sending,
}

/// The body of a request, in chunks: those between the payloads, and the payloads themselves.
pub(super) fn encode(transactional_id: Option<&str>, timeout: Duration, parts: &[Part]) -> Vec<Bytes> {
    let mut body = Body { chunks: Vec::with_capacity(2 * parts.len() + 1), open: BytesMut::new() };
    body.nullable_text(transactional_id);
    body.open.put_i16(ACKS_ALL);
    body.open.put_i32(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    let topics: Vec<&[Part]> = parts.chunk_by(|a, b| a.topic == b.topic).collect();
    body.length(topics.len());
    for topic in topics {
        body.nullable_text(Some(&topic[0].topic));
        body.length(topic.len());
        for part in topic {
            body.open.put_i32(part.partition);
            body.batch(part.sending.batch.stamp(part.sending.stamp));
            body.no_tags();
        }
        body.no_tags();
    }
    body.no_tags();
    body.finish()
}

struct Body {
    chunks: Vec<Bytes>,
    open: BytesMut,
}

impl Body {
    /// An unsigned varint of one more than a length, as compact arrays, strings and bytes have it.
    fn length(&mut self, length: usize) {
        let mut rest = length as u64 + 1;
        while rest >= 0x80 {
            self.open.put_u8(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.open.put_u8(rest as u8);
    }

    fn nullable_text(&mut self, text: Option<&str>) {
        match text {
            None => self.open.put_u8(0),
            Some(text) => {
                self.length(text.len());
                self.open.put_slice(text.as_bytes());
            }
        }
    }

    fn batch(&mut self, batch: StampedBatch) {
        self.length(batch.payload.len() + BATCH_HEADER_BYTES);
        self.open.put_slice(&batch.header);
        self.chunks.push(self.open.split().freeze());
        self.chunks.push(batch.payload);
    }

    fn no_tags(&mut self) {
        self.open.put_u8(0);
    }

    fn finish(mut self) -> Vec<Bytes> {
        self.chunks.push(self.open.freeze());
        self.chunks
    }
}

/// What a broker says of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) code: KafkaCode,
    pub(super) base_offset: Option<i64>,
    pub(super) message: Option<Arc<str>>,
}

pub(super) fn decode(version: i16, body: Bytes) -> Result<Vec<Answer>, WireError> {
    let response = wire::decode_body::<ProduceRequest>(version, body)?;
    let mut answers = Vec::new();
    for topic in response.responses {
        let name: Arc<str> = topic.name.as_str().into();
        answers.extend(topic.partition_responses.into_iter().map(|partition| Answer {
            topic: Arc::clone(&name),
            partition: partition.index,
            code: KafkaCode(partition.error_code),
            base_offset: (partition.base_offset >= 0).then_some(partition.base_offset),
            message: partition.error_message.map(|text| text.as_str().into()),
        }));
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;
    use crate::{
        producer::partition_queue::PartitionQueue,
        record::{BatchBuilder, Compression, Compressor, RecordRef},
    };
    use hapax_commit::{Identity, ProducerEpoch, ProducerId};
    use hapax_host::Host;
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};

    fn sending(records: usize) -> Sending {
        let mut builder = BatchBuilder::new();
        for _ in 0..records {
            builder.push(&RecordRef { value: Some(b"value"), ..RecordRef::default() }).unwrap();
        }
        let now = Host::real().now();
        let mut queue = PartitionQueue::new(5);
        let identity = Identity { producer_id: ProducerId(9), producer_epoch: ProducerEpoch(3) };
        queue.open(identity, true);
        queue.push(builder.seal(Compression::Lz4, &mut Compressor::new()).unwrap(), now);
        queue.send(now).unwrap()
    }

    /// The same request by the message codec.
    fn by_codec(transactional_id: Option<&str>, parts: &[Part]) -> ProduceRequest {
        let partition = |part: &Part| {
            let batch = part.sending.batch.stamp(part.sending.stamp).to_bytes();
            PartitionProduceData::default().with_index(part.partition).with_records(Some(batch))
        };
        let topics = parts.chunk_by(|a, b| a.topic == b.topic).map(|topic| {
            TopicProduceData::default()
                .with_name(wire::text(&topic[0].topic).into())
                .with_partition_data(topic.iter().map(partition).collect())
        });
        ProduceRequest::default()
            .with_transactional_id(transactional_id.map(|id| wire::text(id).into()))
            .with_acks(-1)
            .with_timeout_ms(3000)
            .with_topic_data(topics.collect())
    }

    #[test]
    fn a_request_is_what_the_message_codec_writes() {
        let part = |topic: &str, partition, records| Part {
            topic: topic.into(),
            partition,
            sending: sending(records),
        };
        let long = "long-topic-name".repeat(12);
        let parts = [part("a", 0, 3), part("a", 7, 5000), part(&long, 1, 1)];
        for (id, parts) in [(Some("job.c.0.1"), &parts[..]), (None, &parts[..1])] {
            for version in 9..=12 {
                let ours = encode(id, Duration::from_secs(3), parts).concat();
                let theirs = by_codec(id, parts).body(version).unwrap();
                assert!(ours == theirs, "version {version}");
            }
        }
    }

    #[test]
    fn payloads_are_not_copied() {
        let part = Part { topic: "t".into(), partition: 0, sending: sending(100) };
        let payload = part.sending.batch.stamp(part.sending.stamp).payload;
        let chunks = encode(None, Duration::ZERO, std::slice::from_ref(&part));
        assert_eq!(chunks[1].as_ptr(), payload.as_ptr());
    }

    #[test]
    fn the_version_decides_who_adds_the_partition() {
        assert_eq!(versions(true, TransactionVersion::V2), 12..=12);
        assert!(!versions(true, TransactionVersion::V1).contains(&12));
        assert!(!versions(false, TransactionVersion::V2).contains(&12));
    }
}
