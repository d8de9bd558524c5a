//! The cluster of a world, asked from inside: topics, input, and what stands in its logs.
//!
//! Writes and reads batches with the `kafka-protocol` crate, which neither the client under test nor the broker's log uses.

use super::oracle::Record;
use bytes::{Bytes, BytesMut};
use hapax_broker::{
    Broker, NodeId, ServerOptions, Settings,
    wire::{Request, Response},
};
use kafka_protocol::{
    indexmap::IndexMap,
    messages::{
        CreateTopicsRequest, DeleteTopicsRequest, ProduceRequest, TopicName,
        create_topics_request::CreatableTopic,
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::StrBytes,
    records::{
        self, Compression, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
    },
};
use std::sync::Arc;

/// When every world begins, in milliseconds since 1970.
pub(super) const START_MS: i64 = 1_700_000_000_000;

const PRODUCE: i16 = 9;
const CREATE_TOPICS: i16 = 7;
const DELETE_TOPICS: i16 = 5;

/// A cluster. Cheap to clone.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) name: &'static str,
    pub(super) broker: Arc<Broker>,
    nodes: i32,
}

impl Cluster {
    pub(super) async fn start(name: &'static str, settings: Settings) -> Self {
        let options = ServerOptions {
            listen: None,
            advertise: Some(name.to_owned()),
            start_ms: Some(START_MS),
            ..ServerOptions::default()
        };
        let nodes = settings.nodes;
        let broker = Broker::start(settings, options).await.expect("nothing outside is needed");
        Self { name, broker: Arc::new(broker), nodes }
    }

    /// The node that an address of this cluster is.
    pub(super) fn node(&self, host: &str) -> Option<NodeId> {
        let number = host.strip_prefix(self.name)?.strip_prefix('-')?;
        number.parse().ok().map(NodeId)
    }

    pub(super) async fn create(&self, topic: &str, partitions: i32) {
        let topic = CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000);
        let Response::CreateTopics(answer) = self.ask(1, CREATE_TOPICS, request.into()).await else {
            unreachable!("an answer is of its request's kind")
        };
        assert_eq!(answer.topics[0].error_code, 0, "{:?}", answer.topics[0].error_message);
    }

    pub(super) async fn delete(&self, topic: &str) {
        let request =
            DeleteTopicsRequest::default().with_topic_names(vec![name(topic)]).with_timeout_ms(1_000);
        let Response::DeleteTopics(answer) = self.ask(1, DELETE_TOPICS, request.into()).await else {
            unreachable!("an answer is of its request's kind")
        };
        assert_eq!(answer.responses[0].error_code, 0, "{:?}", answer.responses[0].error_message);
    }

    /// Appends records, whoever leads the partition.
    pub(super) async fn append(&self, topic: &str, partition: i32, records: &[Record], timestamp: i64) {
        let mut bytes = BytesMut::new();
        let encoded: Vec<records::Record> =
            records.iter().zip(0..).map(|(record, at)| encoded(record, at, timestamp)).collect();
        let options = RecordEncodeOptions { version: 2, compression: Compression::None };
        RecordBatchEncoder::encode(&mut bytes, &encoded, &options).expect("plain records can be encoded");
        let bytes = bytes.freeze();
        for node in 1..=self.nodes {
            let data =
                PartitionProduceData::default().with_index(partition).with_records(Some(bytes.clone()));
            let data = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
            let request =
                ProduceRequest::default().with_acks(-1).with_timeout_ms(1_000).with_topic_data(vec![data]);
            let Response::Produce(answer) = self.ask(node, PRODUCE, request.into()).await else {
                unreachable!("an answer is of its request's kind")
            };
            match answer.responses[0].partition_responses[0].error_code {
                0 => return,
                6 => {}
                code => panic!("input refused with code {code}"),
            }
        }
        panic!("no node leads partition {partition} of {topic}");
    }

    /// Every record of a partition's log, with those of transactions and their markers.
    pub(super) fn log(&self, topic: &str, partition: i32) -> Vec<records::Record> {
        let mut bytes = self.broker.log(topic, partition).unwrap_or_default();
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let plain = |payload: &mut Bytes, codec| Ok(decompressed(payload, codec));
            let batch = RecordBatchDecoder::decode_with_custom_compression(&mut bytes, Some(plain));
            records.extend(batch.expect("the log has whole batches").records);
        }
        records
    }

    /// Transactional ids whose transaction has not come to its end.
    pub(super) fn open_transactions(&self) -> Vec<String> {
        let state = self.broker.state();
        let transactions = state["transactions"].as_array().cloned().unwrap_or_default();
        let open = transactions.iter().filter(|one| {
            !matches!(one["state"].as_str(), Some("Empty" | "CompleteCommit" | "CompleteAbort" | "Dead"))
        });
        open.map(|one| format!("{} ({})", one["transactional_id"], one["state"])).collect()
    }

    /// Every transactional id that the coordinators know.
    pub(super) fn transactional_ids(&self) -> Vec<String> {
        let state = self.broker.state();
        let transactions = state["transactions"].as_array().cloned().unwrap_or_default();
        transactions.iter().filter_map(|one| one["transactional_id"].as_str().map(str::to_owned)).collect()
    }

    async fn ask(&self, node: i32, version: i16, request: Request) -> Response {
        self.broker.request(NodeId(node), version, request).await.expect("a broker of a world goes on")
    }
}

/// By the broker's decoder, which the client under test does not share.
fn decompressed(payload: &mut Bytes, codec: Compression) -> Bytes {
    let plain = hapax_broker::decompressed(codec as u8, payload);
    plain.expect("what the broker took it can read").into()
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn encoded(record: &Record, at: i64, timestamp: i64) -> records::Record {
    records::Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: records::NO_PARTITION_LEADER_EPOCH,
        producer_id: records::NO_PRODUCER_ID,
        producer_epoch: records::NO_PRODUCER_EPOCH,
        timestamp_type: TimestampType::Creation,
        offset: at,
        // One batch has all: the sequence that it says is the first one's, none.
        sequence: records::NO_SEQUENCE + at as i32,
        timestamp,
        key: Some(record.key.clone()),
        value: Some(record.value.clone()),
        headers: IndexMap::new(),
    }
}
