//! Produce: a client's batches to the logs, each once.
//!
//! ```text
//! request -> parts (topic there? one batch?) -> the coordinator's word on transactions that begin here
//!         -> per partition: leader? batch good? producer in order? -> log -> answer
//! ```
//!
//! The coordinator is asked once per transaction and partition; while it is busy with the markers of the last
//! transaction, the broker itself asks again (KIP-890). Part of a request may fail and the rest be appended.
//!
//! Sources: `KafkaApis.handleProduceRequest`, `ReplicaManager.handleProduceAppend`, `AddPartitionsToTxnManager`.

use super::{
    Answer, Call, Code, Machine, Millis, NodeId, Outcome, Ticket, Timer, TopicPartition, catalog,
    digest::feed,
    producers::{Origin, Verdict},
    transaction::{Admission, Admit},
    validate::{self, Refusal},
};
use crate::batch::{Batch, Header, Stamp};
use bytes::Bytes;
use kafka_protocol::{
    messages::{
        ProduceRequest, ProduceResponse, TopicName,
        produce_response::{
            BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
            TopicProduceResponse,
        },
    },
    protocol::StrBytes,
};
use std::collections::BTreeSet;
use uuid::Uuid;

/// The first version whose transactional batches add their partitions by themselves.
const ADDS_PARTITIONS: i16 = 12;
/// The first version that knows TRANSACTION_ABORTABLE.
const KNOWS_ABORTABLE: i16 = 11;
/// The first version that names topics by id.
const TOPIC_IDS: i16 = 13;
/// The first version that is told the new leader.
const TELLS_LEADER: i16 = 10;
/// `add.partitions.to.txn.retry.backoff.ms`.
const ASK_AGAIN_MS: Millis = 20;
/// `add.partitions.to.txn.retry.backoff.max.ms`.
const ASK_UNTIL_MS: Millis = 100;
/// Batches from this size on are not copied.
const SHARED_FROM: usize = 16 << 10;
/// A client id that may write to internal topics (`AuthHelper`, `KafkaApis`).
const ADMIN_CLIENT: &str = "__admin_client";

/// A request on its way through.
#[derive(Clone, Debug)]
pub(crate) struct Production {
    call: Call,
    acks: i16,
    transactional_id: Option<String>,
    topics: Vec<(TopicName, Uuid)>,
    parts: Vec<Part>,
    began: Millis,
}

feed!(Production { call, acks, transactional_id, parts, began } without { topics });

/// What a request brings for a partition.
#[derive(Clone, Debug)]
struct Part {
    /// Place of its topic in the request.
    topic: usize,
    place: TopicPartition,
    records: Bytes,
    /// Whether the coordinator has confirmed that the partition is part of the transaction.
    verified: bool,
    outcome: Result<Header, Refusal>,
}

// What was refused follows from the request and from when it came.
feed!(Part { topic, place, records, verified } without { outcome });

/// What a client is told of a batch.
struct Placed {
    base_offset: i64,
    time: Millis,
    start: i64,
}

impl Machine {
    /// Answers Produce.
    pub(crate) fn produce(&mut self, call: &Call, request: ProduceRequest) -> Answer {
        let mut production = self.production(call, request);
        let transactional = production.parts.iter().any(|part| validate::begins_transactional(&part.records));
        if transactional && production.transactional_id.is_none() {
            // Nobody may write as part of a transaction that has no name.
            refuse_all(&mut production.parts, Code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
            return self.answered(&production, Vec::new());
        }
        if producers(&production.parts).len() > 1 {
            // "Transactional records contained more than one producer ID".
            refuse_all(&mut production.parts, Code::INVALID_PRODUCER_ID_MAPPING);
            return self.answered(&production, Vec::new());
        }
        if self.confirm(&mut production) {
            return self.append_parts(production);
        }
        self.timers.at(self.now.saturating_add(ASK_AGAIN_MS), Timer::Produce(call.ticket));
        self.productions.insert(call.ticket, production);
        Answer::Later
    }

    /// Asks the coordinator again for a request that waits.
    pub(crate) fn produce_again(&mut self, ticket: Ticket) {
        let Some(mut production) = self.productions.remove(&ticket) else { return };
        if !self.confirm(&mut production) {
            self.timers.at(self.now.saturating_add(ASK_AGAIN_MS), Timer::Produce(ticket));
            self.productions.insert(ticket, production);
            return;
        }
        match self.append_parts(production) {
            Answer::Now(response) => self.reply(ticket, response),
            Answer::Never => self.end(ticket, Outcome::Silence),
            Answer::HangUp => self.end(ticket, Outcome::HangUp),
            Answer::Later => {}
        }
    }

    fn production(&self, call: &Call, request: ProduceRequest) -> Production {
        let mut topics = Vec::with_capacity(request.topic_data.len());
        let mut parts = Vec::new();
        for (at, data) in request.topic_data.into_iter().enumerate() {
            let (name, missing) = match call.version {
                TOPIC_IDS.. => (self.catalog.name(data.topic_id).map(str::to_owned), Code::UNKNOWN_TOPIC_ID),
                _ => (Some(data.name.to_string()), Code::UNKNOWN_TOPIC_OR_PARTITION),
            };
            topics.push((data.name, data.topic_id));
            for partition in data.partition_data {
                let place =
                    TopicPartition { topic: name.clone().unwrap_or_default(), partition: partition.index };
                let known = if name.is_none() { Err(missing) } else { self.known(&place) };
                let records = partition.records.unwrap_or_default();
                let outcome = known.and_then(|()| validate::only_batch(&records, call.version));
                parts.push(Part {
                    topic: at,
                    place,
                    records,
                    verified: false,
                    outcome: outcome.map_err(silent),
                });
            }
        }
        let transactional_id = request.transactional_id.map(|id| id.to_string());
        Production {
            call: call.clone(),
            acks: request.acks,
            transactional_id,
            topics,
            parts,
            began: self.now,
        }
    }

    fn known(&self, place: &TopicPartition) -> Result<(), Code> {
        let partition = self.catalog.partition(&place.topic, place.partition);
        partition.map(|_| ()).ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION)
    }

    /// Has the coordinator confirm the partitions that a transaction reaches first; `false` to be called again later.
    fn confirm(&mut self, production: &mut Production) -> bool {
        let Some(transactional_id) = production.transactional_id.clone() else { return true };
        let Some((producer_id, epoch)) = producers(&production.parts).first().copied() else { return true };
        let (node, adds, now) = (production.call.node, production.call.version >= ADDS_PARTITIONS, self.now);
        let of_epoch = self.settings.compares_epochs();
        let mut begin = Vec::new();
        for (at, part) in production.parts.iter_mut().enumerate() {
            let Some(header) = part.transactional() else { continue };
            let Some(partition) = self.catalog.partition_mut(&part.place.topic, part.place.partition) else {
                continue;
            };
            if partition.leader != node {
                part.outcome = Err(Code::NOT_LEADER_OR_FOLLOWER.into());
            } else if of_epoch && partition.log.producers.is_stale(producer_id, epoch) {
                // Nothing is asked, and nothing remembered that later batches would be measured by (KAFKA-19690).
                part.outcome = Err(silent(Code::INVALID_PRODUCER_EPOCH));
            } else if !partition.log.producers.is_open(producer_id, of_epoch.then_some(epoch)) {
                partition.log.producers.ask(&header, adds, now);
                begin.push(at);
            } else {
                part.verified = true;
            }
        }
        if begin.is_empty() {
            return true;
        }
        let places: Vec<_> = begin.iter().map(|at| production.parts[*at].place.clone()).collect();
        let admissions = if adds {
            let admission = self.admit(&transactional_id, producer_id, epoch, &places, Admit::AddImplicitly);
            vec![admission; places.len()]
        } else {
            let mut verify = |place| {
                self.admit(&transactional_id, producer_id, epoch, std::slice::from_ref(place), Admit::Verify)
            };
            places.iter().map(&mut verify).collect()
        };
        let waits = adds && self.now.saturating_sub(production.began) < ASK_UNTIL_MS;
        if waits && admissions.contains(&Admission::Busy) {
            return false;
        }
        for (at, admission) in begin.into_iter().zip(admissions) {
            production.parts[at].admitted(admission, production.call.version);
        }
        true
    }

    fn append_parts(&mut self, mut production: Production) -> Answer {
        let placed = (0..production.parts.len()).map(|at| self.append_part(&mut production, at)).collect();
        self.answered(&production, placed)
    }

    fn append_part(&mut self, production: &mut Production, at: usize) -> Option<Placed> {
        let (acks, call) = (production.acks, &production.call);
        let part = &mut production.parts[at];
        let header = part.outcome.clone().ok()?;
        let internal =
            catalog::is_internal(&part.place.topic) && call.client_id.as_deref() != Some(ADMIN_CLIENT);
        let placed = match acks {
            _ if !(-1..=1).contains(&acks) => Err(silent(Code::INVALID_REQUIRED_ACKS)),
            _ if internal => Err(silent(Code::INVALID_TOPIC_EXCEPTION)),
            _ => self.append_batch(call, part, header),
        };
        placed.map_err(|refusal| part.outcome = Err(refusal)).ok()
    }

    fn append_batch(&mut self, call: &Call, part: &Part, header: Header) -> Result<Placed, Refusal> {
        let now = self.now;
        let TopicPartition { topic, partition } = &part.place;
        let topic_of = self.catalog.topic_mut(topic).ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        let at = usize::try_from(*partition).map_err(|_| Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        let place = topic_of.partitions.get_mut(at).ok_or(Code::UNKNOWN_TOPIC_OR_PARTITION)?;
        if place.leader != call.node {
            return Err(Code::NOT_LEADER_OR_FOLLOWER.into());
        }
        let latest = validate::check(&part.records, &header, &topic_of.configs, now)?;
        place.log.producers.expire_due(now, self.settings.producer_expiration_ms);
        let log_append_time = topic_of.configs.log_append_time.then_some(now);
        if header.has_producer() {
            let origin = Origin::Client { verified: part.verified };
            if let Verdict::Duplicate(first) = place.log.producers.check(&header, origin)? {
                let (base_offset, time) = (first.first_offset, first.timestamp);
                return Ok(Placed { base_offset, time, start: place.log.start() });
            }
        }
        let base_offset = place.log.end();
        let stamp =
            Stamp { base_offset, leader_epoch: place.leader_epoch, log_append_time, max_timestamp: latest };
        let batch = own(&part.records, &header)?.stamp(stamp);
        place.log.push_records(batch);
        let start = place.log.start();
        self.touch(topic, *partition);
        Ok(Placed { base_offset, time: log_append_time.unwrap_or(-1), start })
    }

    fn answered(&self, production: &Production, placed: Vec<Option<Placed>>) -> Answer {
        let failed = production.parts.iter().any(|part| part.outcome.is_err());
        if production.acks == 0 {
            // There is no answer that could say it: the end of the connection does.
            return if failed { Answer::HangUp } else { Answer::Never };
        }
        let mut placed = placed.into_iter();
        let mut leaders = BTreeSet::new();
        let topics = production.topics.iter().map(|(name, id)| match production.call.version {
            TOPIC_IDS.. => TopicProduceResponse::default().with_topic_id(*id),
            _ => TopicProduceResponse::default().with_name(name.clone()),
        });
        let mut topics: Vec<TopicProduceResponse> = topics.collect();
        for part in &production.parts {
            let mut answer = self.part_answer(part, placed.next().flatten());
            if production.call.version >= TELLS_LEADER {
                leaders.extend(self.tell_leader(part, &mut answer));
            }
            topics[part.topic].partition_responses.push(answer);
        }
        let endpoints = self.nodes().filter(|(node, ..)| leaders.contains(&NodeId(node.0)));
        let endpoints = endpoints.map(|(node, host, port)| {
            NodeEndpoint::default().with_node_id(node).with_host(StrBytes::from_string(host)).with_port(port)
        });
        let response =
            ProduceResponse::default().with_responses(topics).with_node_endpoints(endpoints.collect());
        Answer::Now(response.into())
    }

    fn tell_leader(&self, part: &Part, answer: &mut PartitionProduceResponse) -> Option<NodeId> {
        if answer.error_code != Code::NOT_LEADER_OR_FOLLOWER.0 {
            return None;
        }
        let place = self.catalog.partition(&part.place.topic, part.place.partition)?;
        answer.current_leader = LeaderIdAndEpoch::default()
            .with_leader_id(place.leader.0.into())
            .with_leader_epoch(place.leader_epoch);
        Some(place.leader)
    }

    fn part_answer(&self, part: &Part, placed: Option<Placed>) -> PartitionProduceResponse {
        let answer =
            PartitionProduceResponse::default().with_index(part.place.partition).with_error_message(None);
        let refusal = match (&part.outcome, placed) {
            (Err(refusal), _) => refusal,
            (Ok(_), Some(placed)) => {
                return answer
                    .with_base_offset(placed.base_offset)
                    .with_log_append_time_ms(placed.time)
                    .with_log_start_offset(placed.start);
            }
            (Ok(_), None) => {
                return answer.with_error_code(Code::UNKNOWN_SERVER_ERROR.0).with_base_offset(-1);
            }
        };
        let start =
            self.catalog.partition(&part.place.topic, part.place.partition).map(|place| place.log.start());
        let record_errors = refusal.records.iter().map(|(at, fault)| {
            BatchIndexAndErrorMessage::default()
                .with_batch_index(*at)
                .with_batch_index_error_message(Some(StrBytes::from_string(fault.clone())))
        });
        answer
            .with_error_code(refusal.code)
            .with_base_offset(-1)
            .with_log_append_time_ms(-1)
            .with_log_start_offset(start.filter(|_| !refusal.silent).unwrap_or(-1))
            .with_record_errors(record_errors.collect())
            .with_error_message(refusal.message.clone().map(StrBytes::from_string))
    }
}

impl Part {
    fn transactional(&self) -> Option<Header> {
        let header = self.outcome.as_ref().ok()?;
        (header.has_producer() && header.is_transactional()).then_some(*header)
    }

    /// Takes the coordinator's word, in words that a producer of that version reads rightly: what would make it look
    /// for another leader, or give up, becomes NOT_ENOUGH_REPLICAS, which it only retries.
    fn admitted(&mut self, admission: Admission, version: i16) {
        let code = match admission {
            Admission::Granted => {
                self.verified = true;
                return;
            }
            Admission::Busy => Code::CONCURRENT_TRANSACTIONS,
            Admission::Refused(code) => code,
        };
        let told = match code {
            Code::PRODUCER_FENCED => Code::INVALID_PRODUCER_EPOCH,
            Code::TRANSACTION_ABORTABLE if version < KNOWS_ABORTABLE => Code::INVALID_TXN_STATE,
            Code::CONCURRENT_TRANSACTIONS if version < ADDS_PARTITIONS => Code::NOT_ENOUGH_REPLICAS,
            Code::COORDINATOR_LOAD_IN_PROGRESS
            | Code::COORDINATOR_NOT_AVAILABLE
            | Code::NOT_COORDINATOR
            | Code::NETWORK_EXCEPTION => Code::NOT_ENOUGH_REPLICAS,
            _ => code,
        };
        let message = match told {
            Code::INVALID_TXN_STATE => Some("Partition was not added to the transaction".to_owned()),
            Code::NOT_ENOUGH_REPLICAS => Some(format!(
                "Unable to verify the partition has been added to the transaction. Underlying error: {}",
                code.name().unwrap_or("UNKNOWN_SERVER_ERROR")
            )),
            _ => None,
        };
        self.outcome = Err(Refusal { message, ..silent(told) });
    }
}

/// The batch for the log: a large one goes on to live in the bytes of its request, a small one must not keep them.
fn own(records: &Bytes, header: &Header) -> Result<Batch, Refusal> {
    let bytes = match header.size {
        ..SHARED_FROM => Bytes::copy_from_slice(&records[..header.size]),
        _ => records.clone(),
    };
    Batch::read(&bytes).map_err(|_| Code::UNKNOWN_SERVER_ERROR.into())
}

/// The producers of the transactional batches.
fn producers(parts: &[Part]) -> BTreeSet<(i64, i16)> {
    parts
        .iter()
        .filter_map(Part::transactional)
        .map(|header| (header.producer_id, header.producer_epoch))
        .collect()
}

fn refuse_all(parts: &mut [Part], code: Code) {
    parts.iter_mut().for_each(|part| part.outcome = Err(silent(code)));
}

fn silent(code: Code) -> Refusal {
    Refusal { silent: true, ..code.into() }
}

#[cfg(test)]
mod tests {
    use super::super::probe::{Probe, Produced, START, answer_of, headers, only, produce_request, sealed};
    use super::*;
    use crate::{
        batch,
        state::{Input, Settings, Step},
        wire::Response,
    };
    use bytes::BytesMut;
    use kafka_protocol::messages::{EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest};

    fn code(answer: &PartitionProduceResponse) -> Code {
        Code(answer.error_code)
    }

    #[test]
    fn a_repeated_batch_is_answered_with_its_first_offset_and_written_once() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        for sequence in [0, 2, 4] {
            let answer = probe.produce(9, "t", Produced::idempotent(7, 0, sequence, 2).bytes());
            assert_eq!((code(&answer), answer.base_offset), (Code::NONE, i64::from(sequence)));
        }
        let again = probe.produce(9, "t", Produced::idempotent(7, 0, 2, 2).bytes());
        assert_eq!((code(&again), again.base_offset, again.log_append_time_ms), (Code::NONE, 2, START));
        assert_eq!(probe.fetch("t", 0, false).high_watermark, 6);
    }

    #[test]
    fn a_batch_older_than_the_window_of_five_is_out_of_order() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        (0..6).for_each(|sequence| {
            probe.produce(9, "t", Produced::idempotent(7, 0, sequence, 1).bytes());
        });
        assert_eq!(code(&probe.produce(9, "t", Produced::idempotent(7, 0, 1, 1).bytes())), Code::NONE);
        let old = probe.produce(9, "t", Produced::idempotent(7, 0, 0, 1).bytes());
        assert_eq!(code(&old), Code::OUT_OF_ORDER_SEQUENCE_NUMBER);
    }

    #[test]
    fn sequences_follow_each_other_and_a_new_epoch_begins_at_zero() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        let mut send = |epoch, sequence| {
            code(&probe.produce(9, "t", Produced::idempotent(7, epoch, sequence, 1).bytes()))
        };
        assert_eq!(send(3, 10), Code::NONE, "nothing is known: any sequence");
        assert_eq!(send(3, 12), Code::OUT_OF_ORDER_SEQUENCE_NUMBER);
        assert_eq!(send(2, 11), Code::INVALID_PRODUCER_EPOCH);
        assert_eq!(send(4, 11), Code::OUT_OF_ORDER_SEQUENCE_NUMBER);
        assert_eq!(send(4, 0), Code::NONE);
    }

    #[test]
    fn batches_that_kafka_refuses_are_refused_with_its_codes() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[("max.message.bytes", "200")]);
        probe.topic("compact", 1, &[("cleanup.policy", "compact")]);
        let good = Produced::plain(1).bytes();
        let broken = |at: usize, to: u8| {
            let mut bytes = BytesMut::from(&good[..]);
            bytes[at] = to;
            bytes
        };
        let large = Produced::plain(1).with(&[(Bytes::from(vec![0; 300]), None)]);
        let refused = [
            (Bytes::new(), Code::INVALID_RECORD),
            (broken(70, 9).freeze(), Code::CORRUPT_MESSAGE),
            (broken(16, 1).freeze(), Code::INVALID_RECORD),
            (broken(16, 9).freeze(), Code::CORRUPT_MESSAGE),
            (sealed(broken(7, 1)), Code::INVALID_RECORD),
            (sealed(broken(26, 4)), Code::INVALID_RECORD),
            (sealed(broken(60, 4)), Code::INVALID_RECORD),
            (sealed(broken(22, 1 << 5)), Code::INVALID_RECORD),
            (Bytes::from([&good[..], &good[..]].concat()), Code::INVALID_RECORD),
            (large, Code::MESSAGE_TOO_LARGE),
        ];
        for (records, expected) in refused {
            assert_eq!(code(&probe.produce(9, "t", records)), expected);
        }
        let keyless = BytesMut::from(&good[..]);
        assert_eq!(code(&probe.produce(9, "compact", keyless.freeze())), Code::NONE);
        assert_eq!(code(&probe.produce(9, "nowhere", good.clone())), Code::UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(code(&probe.produce(9, "t", good)), Code::NONE);
        assert_eq!(probe.fetch("t", 0, false).high_watermark, 1, "only what was accepted is there");
    }

    #[test]
    fn an_unknown_topic_id_and_a_leader_elsewhere_are_told() {
        let mut probe = Probe::with(Settings { nodes: 2, ..Settings::default() });
        probe.topic("t", 1, &[]);
        let by_id = produce_request("", Produced::plain(1).bytes(), None);
        assert_eq!(code(&only(probe.ask(13, by_id))), Code::UNKNOWN_TOPIC_ID);
        probe.act(Step::MoveLeader { topic: "t".to_owned(), partition: 0, to: Some(NodeId(2)) });
        let answer = probe.produce(10, "t", Produced::plain(1).bytes());
        assert_eq!(code(&answer), Code::NOT_LEADER_OR_FOLLOWER);
        assert_eq!((answer.current_leader.leader_id.0, answer.current_leader.leader_epoch), (2, 1));
    }

    #[test]
    fn a_topic_of_log_append_time_carries_the_brokers_clock() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[("message.timestamp.type", "LogAppendTime")]);
        let old = Produced { timestamp: 5, ..Produced::plain(2) };
        assert_eq!(probe.produce(9, "t", old.bytes()).log_append_time_ms, START);
        let stored = probe.fetch("t", 0, false).records.unwrap();
        let header = headers(&stored)[0];
        assert!(header.is_log_append_time());
        assert_eq!((header.max_timestamp, header.crc), (START, batch::checksum(&stored)));
    }

    #[test]
    fn a_record_from_the_future_is_refused_by_its_place() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        let late = Produced { timestamp: START + 3_600_001, ..Produced::plain(1) };
        let answer = probe.produce(9, "t", late.bytes());
        assert_eq!((code(&answer), answer.record_errors.len()), (Code::INVALID_TIMESTAMP, 1));
    }

    #[test]
    fn without_acks_there_is_no_answer_and_an_error_ends_the_connection() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        let silent = |topic| produce_request(topic, Produced::plain(1).bytes(), None).with_acks(0);
        let (_, replies) = probe.send(9, silent("t"));
        assert_eq!(replies[0].outcome, Outcome::Silence);
        let (_, replies) = probe.send(9, silent("nowhere"));
        assert_eq!(replies[0].outcome, Outcome::HangUp);
        let odd = produce_request("t", Produced::plain(1).bytes(), None).with_acks(2);
        assert_eq!(code(&only(probe.ask(9, odd))), Code::INVALID_REQUIRED_ACKS);
    }

    #[test]
    fn a_transactional_batch_without_a_transactional_id_costs_the_whole_request() {
        let mut probe = Probe::new();
        probe.topic("t", 2, &[]);
        let good = Produced { transactional: true, ..Produced::idempotent(7, 0, 0, 1) }.bytes();
        let nobodys = Produced { transactional: true, ..Produced::plain(1) }.bytes();
        let mut broken = BytesMut::from(&good[..]);
        *broken.last_mut().unwrap() ^= 1;
        for (topic, batch) in [("t", good), ("t", nobodys), ("t", broken.freeze()), ("nowhere", batch_of(0))]
        {
            let mut request = produce_request(topic, batch, None);
            request.topic_data.extend(produce_request("t", Produced::plain(1).bytes(), None).topic_data);
            let Response::Produce(answer) = probe.ask(9, request) else { panic!() };
            for topic in answer.responses {
                let refused = &topic.partition_responses[0];
                assert_eq!(code(refused), Code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
                assert_eq!((refused.base_offset, refused.log_start_offset), (-1, -1));
            }
        }
        assert_eq!(probe.fetch("t", 0, false).high_watermark, 0);
    }

    #[test]
    fn what_is_wrong_before_the_log_is_reached_says_nothing_of_the_log() {
        let mut probe = Probe::new();
        probe.topic("t", 1, &[]);
        let good = Produced::plain(1).bytes();
        let two = Bytes::from([&good[..], &good[..]].concat());
        assert_eq!(probe.produce(9, "t", two).log_start_offset, -1);
        let mut uncounted = BytesMut::from(&good[..]);
        uncounted[60] = 4;
        assert_eq!(probe.produce(9, "t", sealed(uncounted)).log_start_offset, 0, "the log has seen this one");
        let mut unknown = BytesMut::from(&good[..]);
        unknown[22] = 5;
        let refused = probe.produce(9, "t", sealed(unknown));
        assert_eq!(
            (code(&refused), refused.log_start_offset),
            (Code::UNKNOWN_SERVER_ERROR, 0),
            "no such codec"
        );
    }

    #[test]
    fn clients_do_not_write_to_the_topics_of_coordinators() {
        let mut probe = Probe::new();
        probe.machine.catalog.internal(catalog::TRANSACTION_STATE, 1);
        let answer = probe.produce(9, catalog::TRANSACTION_STATE, Produced::plain(1).bytes());
        assert_eq!(code(&answer), Code::INVALID_TOPIC_EXCEPTION);
    }

    #[test]
    fn a_producer_is_forgotten_only_when_it_is_old() {
        let mut probe = Probe::with(Settings { producer_expiration_ms: 1_000, ..Settings::default() });
        probe.topic("t", 1, &[]);
        probe.produce(9, "t", Produced::idempotent(7, 0, 0, 1).bytes());
        let skipping = Produced::idempotent(7, 0, 5, 1).bytes();
        assert_eq!(code(&probe.produce(9, "t", skipping.clone())), Code::OUT_OF_ORDER_SEQUENCE_NUMBER);
        probe.pass(3_000);
        assert_eq!(code(&probe.produce(9, "t", skipping)), Code::NONE);
    }

    /// A producer of `x` whose transaction is decided and whose markers wait for `marker_delay_ms`.
    fn decided(marker_delay_ms: Millis) -> Probe {
        let mut probe = Probe::with(Settings { marker_delay_ms, ..Settings::default() });
        probe.topic("t", 1, &[]);
        let x = || StrBytes::from_static_str("x");
        let find = || FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![x()]);
        probe.ask(4, find());
        probe.ask(4, find());
        let init = InitProducerIdRequest::default().with_transactional_id(Some(x().into()));
        let init =
            init.with_transaction_timeout_ms(1_000).with_producer_id((-1).into()).with_producer_epoch(-1);
        probe.ask(5, init);
        assert_eq!(code(&probe.produce_in(12, "t", "x", batch_of(0))), Code::NONE);
        let end = EndTxnRequest::default().with_transactional_id(x().into()).with_committed(true);
        probe.ask(5, end);
        probe
    }

    fn batch_of(epoch: i16) -> Bytes {
        Produced { transactional: true, ..Produced::idempotent(0, epoch, 0, 1) }.bytes()
    }

    #[test]
    fn the_first_batch_of_a_transaction_waits_for_the_markers_of_the_last() {
        let mut probe = decided(50);
        let (ticket, replies) = probe.send(12, produce_request("t", batch_of(1), Some("x")));
        assert_eq!(answer_of(ticket, &replies), None);
        assert_eq!(answer_of(ticket, &probe.pass(59)), None, "it is asked again every 20 ms");
        let answer = only(answer_of(ticket, &probe.pass(1)).unwrap());
        assert_eq!((code(&answer), answer.base_offset), (Code::NONE, 2));
    }

    #[test]
    fn what_waits_is_produced_and_begins_its_transaction_although_its_client_left() {
        // A replay has no ticks, and comes to the same.
        for tick in [20, 200] {
            let mut probe = decided(50);
            let (ticket, _) = probe.send(12, produce_request("t", batch_of(1), Some("x")));
            probe.machine.step(probe.now, Input::Gone(vec![ticket]));
            let replies: Vec<_> = (0..200 / tick).flat_map(|_| probe.pass(tick)).collect();
            assert_eq!((replies, probe.machine.waiting()), (vec![], vec![]));
            let read = probe.fetch("t", 0, false);
            assert_eq!((read.high_watermark, read.last_stable_offset), (3, 2), "a batch, a marker, a batch");
        }
    }

    #[test]
    fn what_waits_when_the_broker_crashes_is_never_produced() {
        let mut probe = decided(50);
        probe.send(12, produce_request("t", batch_of(1), Some("x")));
        probe.act(Step::Crash);
        probe.pass(1_000);
        assert_eq!(probe.fetch("t", 0, false).high_watermark, 2, "a batch, a marker");
    }

    #[test]
    fn a_stale_epoch_leaves_nothing_behind_that_the_next_batch_is_measured_by() {
        let mut probe = decided(0);
        probe.pass(100);
        let batch = |epoch, sequence| {
            let batch = Produced { transactional: true, ..Produced::idempotent(0, epoch, sequence, 1) };
            batch.bytes()
        };
        assert_eq!(code(&probe.produce_in(12, "t", "x", batch(1, 0))), Code::NONE);
        assert_eq!(code(&probe.produce_in(12, "t", "x", batch(0, 0))), Code::INVALID_PRODUCER_EPOCH);
        assert_eq!(code(&probe.produce_in(12, "t", "x", batch(1, 1))), Code::NONE);
    }

    #[test]
    fn who_has_waited_long_enough_is_told_in_the_words_of_its_version() {
        let mut probe = decided(1_000);
        let (ticket, _) = probe.send(12, produce_request("t", batch_of(1), Some("x")));
        assert_eq!(answer_of(ticket, &probe.pass(99)), None);
        let answer = only(answer_of(ticket, &probe.pass(1)).unwrap());
        assert_eq!(code(&answer), Code::CONCURRENT_TRANSACTIONS);
        assert_eq!(code(&probe.produce_in(11, "t", "x", batch_of(1))), Code::NOT_ENOUGH_REPLICAS);
    }

    #[test]
    fn a_partition_that_nobody_added_is_told_in_the_words_of_its_version() {
        let mut probe = decided(0);
        probe.pass(0);
        assert_eq!(code(&probe.produce_in(11, "t", "x", batch_of(1))), Code::TRANSACTION_ABORTABLE);
        assert_eq!(code(&probe.produce_in(10, "t", "x", batch_of(1))), Code::INVALID_TXN_STATE);
        assert_eq!(code(&probe.produce_in(12, "t", "x", batch_of(0))), Code::INVALID_PRODUCER_EPOCH);
        assert_eq!(code(&probe.produce_in(12, "t", "x", batch_of(1))), Code::NONE);
    }
}
