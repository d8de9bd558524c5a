//! What unit tests ask a machine with: requests by their shortest names, and batches as a producer makes them.

use super::{Call, Input, Machine, NodeId, Outcome, Reply, Settings, Step, Ticket};
use crate::{
    batch::{self, Header, Writer},
    wire::{Request, Response},
};
use bytes::{Bytes, BytesMut};
use kafka_protocol::{
    messages::{
        CreateTopicsRequest, DeleteTopicsRequest, FetchRequest, FetchResponse, ProduceRequest,
        ProduceResponse, TopicName,
        create_topics_request::{CreatableTopic, CreatableTopicConfig},
        fetch_request::{FetchPartition, FetchTopic},
        fetch_response::PartitionData,
        produce_request::{PartitionProduceData, TopicProduceData},
        produce_response::PartitionProduceResponse,
    },
    protocol::StrBytes,
};

/// When tests begin.
pub(crate) const START: i64 = 1_700_000_000_000;

/// A machine, its clock and the tickets that it was given.
pub(crate) struct Probe {
    pub(crate) machine: Machine,
    pub(crate) now: i64,
    pub(crate) node: NodeId,
    tickets: u64,
}

/// A producer's batch.
#[derive(Clone, Copy)]
pub(crate) struct Produced {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
    pub(crate) count: i32,
    pub(crate) transactional: bool,
    pub(crate) timestamp: i64,
}

impl Produced {
    /// Without a producer id.
    pub(crate) fn plain(count: i32) -> Self {
        Self { id: -1, epoch: -1, sequence: -1, count, transactional: false, timestamp: START }
    }

    /// With sequences.
    pub(crate) fn idempotent(id: i64, epoch: i16, sequence: i32, count: i32) -> Self {
        Self { id, epoch, sequence, count, transactional: false, timestamp: START }
    }

    /// The batch; keys are `k0`, `k1` and so on.
    pub(crate) fn bytes(self) -> Bytes {
        let records: Vec<_> =
            (0..self.count).map(|at| (Bytes::from(format!("k{at}")), Some(Bytes::from("v")))).collect();
        self.with(&records)
    }

    /// The batch with these records.
    pub(crate) fn with(self, records: &[(Bytes, Option<Bytes>)]) -> Bytes {
        let writer = Writer { base_offset: 0, leader_epoch: -1, timestamp: self.timestamp, producer: None };
        let batch = writer.records(records);
        let mut bytes = BytesMut::from(&batch.head[..]);
        bytes.extend_from_slice(&batch.records);
        if self.transactional {
            bytes[22] |= 1 << 4;
        }
        bytes[43..51].copy_from_slice(&self.id.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.sequence.to_be_bytes());
        sealed(bytes)
    }
}

/// The batch with the checksum that it should have.
pub(crate) fn sealed(mut bytes: BytesMut) -> Bytes {
    let crc = batch::checksum(&bytes);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.freeze()
}

/// The batches of a fetched blob; a cut one at the end is left out.
pub(crate) fn headers(records: &Bytes) -> Vec<Header> {
    let mut rest = &records[..];
    let mut all = Vec::new();
    while let Ok(header) = Header::read(rest) {
        rest = &rest[header.size..];
        all.push(header);
    }
    all
}

/// A name on the wire.
pub(crate) fn name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

impl Probe {
    /// One node, nothing in it.
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    /// With these settings.
    pub(crate) fn with(settings: Settings) -> Self {
        Self { machine: Machine::new(settings, START), now: START, node: NodeId(1), tickets: 0 }
    }

    /// Hands a request in; what comes back at once, for whomever.
    pub(crate) fn send(&mut self, version: i16, request: impl Into<Request>) -> (Ticket, Vec<Reply>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let call = Call { ticket, node: self.node, version, client_id: Some("test".to_owned()) };
        (ticket, self.machine.step(self.now, Input::Request(call, request.into())))
    }

    /// The answer to a request that is answered at once.
    pub(crate) fn ask(&mut self, version: i16, request: impl Into<Request>) -> Response {
        let (ticket, replies) = self.send(version, request);
        answer_of(ticket, &replies).expect("answered at once")
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, millis: i64) -> Vec<Reply> {
        self.now += millis;
        self.machine.step(self.now, Input::Tick)
    }

    /// Somebody acts on the broker.
    pub(crate) fn act(&mut self, step: Step) -> Vec<Reply> {
        self.machine.step(self.now, Input::Step(step))
    }

    /// A topic with configurations.
    pub(crate) fn topic(&mut self, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
        let configs = configs.iter().map(|(key, value)| {
            CreatableTopicConfig::default()
                .with_name(StrBytes::from_string((*key).to_owned()))
                .with_value(Some(StrBytes::from_string((*value).to_owned())))
        });
        let topic = CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs.collect());
        let Response::CreateTopics(response) =
            self.ask(7, CreateTopicsRequest::default().with_topics(vec![topic]))
        else {
            panic!("not CreateTopics")
        };
        assert_eq!(response.topics[0].error_code, 0, "{:?}", response.topics[0].error_message);
    }

    /// A topic goes.
    pub(crate) fn delete(&mut self, topic: &str) -> Vec<Reply> {
        let request = DeleteTopicsRequest::default().with_topic_names(vec![name(topic)]);
        let (ticket, replies) = self.send(5, request);
        let Some(Response::DeleteTopics(response)) = answer_of(ticket, &replies) else {
            panic!("not DeleteTopics")
        };
        assert_eq!(response.responses[0].error_code, 0);
        replies
    }

    /// The answer for one batch in partition 0.
    pub(crate) fn produce(&mut self, version: i16, topic: &str, records: Bytes) -> PartitionProduceResponse {
        only(self.ask(version, produce_request(topic, records, None)))
    }

    /// The answer for one batch of a transaction in partition 0.
    pub(crate) fn produce_in(
        &mut self,
        version: i16,
        topic: &str,
        transactional_id: &str,
        records: Bytes,
    ) -> PartitionProduceResponse {
        only(self.ask(version, produce_request(topic, records, Some(transactional_id))))
    }

    /// What a reader of partition 0 gets without waiting.
    pub(crate) fn fetch(&mut self, topic: &str, from: i64, committed: bool) -> PartitionData {
        let Response::Fetch(response) = self.ask(12, fetch_request(topic, from, committed, 0)) else {
            panic!("not Fetch")
        };
        response.responses[0].partitions[0].clone()
    }
}

/// The answer to a ticket.
pub(crate) fn answer_of(ticket: Ticket, replies: &[Reply]) -> Option<Response> {
    replies.iter().find(|reply| reply.ticket == ticket).map(|reply| match &reply.outcome {
        Outcome::Answer(response) => response.clone(),
        other => panic!("{other:?}"),
    })
}

/// The only partition of an answer to Produce.
pub(crate) fn only(response: Response) -> PartitionProduceResponse {
    let Response::Produce(ProduceResponse { responses, .. }) = response else { panic!("not Produce") };
    responses[0].partition_responses[0].clone()
}

/// The partition of an answer to Fetch.
pub(crate) fn fetched(response: Response) -> PartitionData {
    let Response::Fetch(FetchResponse { responses, .. }) = response else { panic!("not Fetch") };
    responses[0].partitions[0].clone()
}

/// One batch for partition 0.
pub(crate) fn produce_request(topic: &str, records: Bytes, transactional_id: Option<&str>) -> ProduceRequest {
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(records));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![partition]);
    ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(1_000)
        .with_transactional_id(transactional_id.map(|id| StrBytes::from_string(id.to_owned()).into()))
        .with_topic_data(vec![topic])
}

/// A read of partition 0.
pub(crate) fn fetch_request(topic: &str, from: i64, committed: bool, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(-1)
        .with_fetch_offset(from)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_isolation_level(i8::from(committed))
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}
