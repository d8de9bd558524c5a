//! The broker of a world: the production state machine of `hapax-broker`, asked with requests as a client sends them.
//!
//! Owns the requests and how their answers read. An answer that would come later is none: whoever asks comes again, as
//! clients do with every answer that is retriable, so a request that is not answered for good leaves only what the broker
//! made of it. Time stands still but for [`Kafka::time_out`]; markers wait for [`Kafka::write_markers`].

mod offsets;

pub(super) use offsets::Offset;
use offsets::Standing;

use bytes::{Bytes, BytesMut};
use hapax_broker::{
    Machine, NodeId, Settings, Step,
    state::{Call, Input, Outcome, Reply, Ticket},
    wire::{Request, Response},
};
use hapax_commit::{
    HandlePartition, Identity, ProducerEpoch, ProducerId, TopicId, TransactionVersion, TransactionalId,
    evidence::{Described, EndTxnAnswer, Marker, PartitionEnd, TransactionState},
};
use kafka_protocol::{
    messages::{
        AddPartitionsToTxnRequest, BrokerId, CreateTopicsRequest, DescribeTransactionsRequest, EndTxnRequest,
        FetchRequest, FindCoordinatorRequest, InitProducerIdRequest, ProduceRequest, TopicName,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        create_topics_request::CreatableTopic,
        fetch_request::{FetchPartition, FetchTopic},
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::StrBytes,
    records::{
        Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
};

/// The topic that every lane writes, lane n to partition n.
pub(super) const TOPIC: &str = "out";

/// When a world begins, in milliseconds since 1970.
pub(super) const START_MS: i64 = 1_700_000_000_000;

/// The transaction timeout of lane 0; lane n has n + 1 times as much, so that they can time out one after the other.
const TIMEOUT_MS: i32 = 50_000;

/// What passes at a time-out: the timeout of one lane more.
const PASSES_MS: i64 = 60_001;

/// Two producer epochs before the last one, 32,766.
const LAST_BUT_TWO: i16 = 32_764;

const NODE: NodeId = NodeId(1);

/// Kafka's codes that are told apart here.
mod code {
    pub(super) const NONE: i16 = 0;
    pub(super) const INVALID_PRODUCER_EPOCH: i16 = 47;
    pub(super) const INVALID_TXN_STATE: i16 = 48;
    pub(super) const INVALID_PRODUCER_ID_MAPPING: i16 = 49;
    pub(super) const PRODUCER_FENCED: i16 = 90;
    pub(super) const TRANSACTIONAL_ID_NOT_FOUND: i16 = 105;
    /// 14, 15, 16 and 51: loading, not available, not coordinator, concurrent transactions.
    pub(super) const COME_AGAIN: [i16; 4] = [14, 15, 16, 51];
}

/// What a log has at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Record { offset: i64, value: u64, writer: Identity },
    Control { offset: i64, marker: Marker, writer: Identity },
}

impl Item {
    fn offset(&self) -> i64 {
        match *self {
            Self::Record { offset, .. } | Self::Control { offset, .. } => offset,
        }
    }
}

/// The answer to a request that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told<T> {
    /// For good.
    Definite(T),
    /// Asked again, the same.
    ComeAgain,
}

/// The broker has refused a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) i16);

#[derive(Clone)]
pub(super) struct Kafka {
    machine: Machine,
    now: i64,
    version: TransactionVersion,
    /// The machine's digest, until something may have changed it.
    digest: Cell<Option<u64>>,
    /// What each partition's log has.
    logs: Vec<Rc<Vec<Item>>>,
    /// How the offsets of the job's group stand, as far as it was asked since then.
    standing: RefCell<Option<Rc<Standing>>>,
}

impl Kafka {
    pub(super) fn new(version: TransactionVersion, partitions: usize) -> Self {
        let settings = Settings {
            transaction_version: match version {
                TransactionVersion::V1 => 0,
                TransactionVersion::V2 => 2,
            },
            timeout_interval_ms: 10_000,
            expiry_interval_ms: 365 * 24 * 3_600_000,
            marker_delay_ms: 0,
            load_ms: 0,
            transaction_partitions: 1,
            offsets_partitions: 1,
            ..Settings::default()
        };
        let mut kafka = Self {
            machine: Machine::new(settings, START_MS),
            now: START_MS,
            version,
            digest: Cell::new(None),
            logs: Vec::new(),
            standing: RefCell::new(None),
        };
        kafka.create_topic(TOPIC, partitions);
        // Whoever looks for a coordinator makes the topic that it works with.
        let find =
            FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text("any")]);
        let _ = kafka.ask(4, find);
        kafka.step(Input::Tick);
        kafka.act(Step::HoldMarkers(true));
        kafka.logs = vec![Rc::default(); partitions];
        kafka
    }

    fn create_topic(&mut self, name: &str, partitions: usize) {
        let topic = CreatableTopic::default()
            .with_name(text(name).into())
            .with_num_partitions(i32::try_from(partitions).expect("a few"))
            .with_replication_factor(1);
        let created = self.ask(5, CreateTopicsRequest::default().with_topics(vec![topic]));
        let Some(Response::CreateTopics(created)) = created else { unreachable!("answered in kind") };
        assert_eq!(created.topics[0].error_code, code::NONE, "the topic is made");
    }

    /// Uses up the producer epochs of an id, but for the few that a start and a transaction need. What the coordinator has
    /// written of it is compacted.
    pub(super) fn use_up_epochs(&mut self, id: &TransactionalId) {
        while !matches!(self.init(id, None), Told::Definite(Ok(at)) if at.producer_epoch.0 == LAST_BUT_TWO) {}
        self.act(Step::Compact { topic: "__transaction_state".to_owned(), partition: 0 });
    }

    pub(super) fn version(&self) -> TransactionVersion {
        self.version
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.now
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let digest = self.digest.get().unwrap_or_else(|| self.machine.digest());
        self.digest.set(Some(digest));
        digest ^ self.now.unsigned_abs().rotate_left(17)
    }

    fn ask(&mut self, version: i16, request: impl Into<Request>) -> Option<Response> {
        answer(self.step(Input::Request(call(version), request.into())))
    }

    fn act(&mut self, step: Step) {
        self.step(Input::Step(step));
    }

    fn step(&mut self, input: Input) -> Vec<Reply> {
        self.digest.set(None);
        *self.standing.borrow_mut() = None;
        let replies = self.machine.step(self.now, input);
        (0..self.logs.len()).for_each(|partition| self.read_on(partition));
        replies
    }

    /// What was decided reaches its partitions, and transactions complete.
    pub(super) fn write_markers(&mut self) {
        self.act(Step::HoldMarkers(false));
        self.step(Input::Tick);
        self.act(Step::HoldMarkers(true));
    }

    /// So much time passes that what lane 0 has open is aborted; after as much again also what lane 1 has.
    pub(super) fn time_out(&mut self) {
        self.now += PASSES_MS;
        self.step(Input::Tick);
    }

    /// Another coordinator loads what is in the log.
    pub(super) fn move_coordinator(&mut self, id: &str) {
        self.act(Step::MoveCoordinator { transactional_id: id.to_owned() });
        self.step(Input::Tick);
    }

    /// InitProducerId.
    pub(super) fn init(
        &mut self,
        id: &TransactionalId,
        own: Option<Identity>,
    ) -> Told<Result<Identity, Refused>> {
        let lane = i32::try_from(id.lane.shard.0).expect("a few");
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(text(&id.to_string()).into()))
            .with_transaction_timeout_ms(TIMEOUT_MS * (lane + 1))
            .with_producer_id(own.map_or(-1, |own| own.producer_id.0).into())
            .with_producer_epoch(own.map_or(-1, |own| own.producer_epoch.0));
        let Some(Response::InitProducerId(told)) = self.ask(4, request) else {
            unreachable!("answered in kind")
        };
        match told.error_code {
            code::NONE => Told::Definite(Ok(identity(told.producer_id.0, told.producer_epoch))),
            again if code::COME_AGAIN.contains(&again) => Told::ComeAgain,
            refused => Told::Definite(Err(Refused(refused))),
        }
    }

    /// Produce of one record; on V1 its partition is added before. The offset that it got.
    pub(super) fn produce(
        &mut self,
        id: &TransactionalId,
        writer: Identity,
        sequence: i32,
        value: u64,
    ) -> Told<Result<i64, Refused>> {
        let partition = i32::try_from(id.lane.shard.0).expect("a few");
        if self.version == TransactionVersion::V1 && sequence == 0 {
            match self.add_partition(id, writer, partition) {
                Told::Definite(Ok(())) => {}
                Told::Definite(Err(refused)) => return Told::Definite(Err(refused)),
                Told::ComeAgain => return Told::ComeAgain,
            }
        }
        let data = PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(batch(writer, sequence, value)));
        let topic = TopicProduceData::default().with_name(name()).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(1_000)
            .with_transactional_id(Some(text(&id.to_string()).into()))
            .with_topic_data(vec![topic]);
        let version = match self.version {
            TransactionVersion::V1 => 11,
            TransactionVersion::V2 => 12,
        };
        let Some(Response::Produce(told)) = self.ask(version, request) else { return Told::ComeAgain };
        let told = &told.responses[0].partition_responses[0];
        match told.error_code {
            code::NONE => Told::Definite(Ok(told.base_offset)),
            again if code::COME_AGAIN.contains(&again) => Told::ComeAgain,
            refused => Told::Definite(Err(Refused(refused))),
        }
    }

    fn add_partition(
        &mut self,
        id: &TransactionalId,
        writer: Identity,
        partition: i32,
    ) -> Told<Result<(), Refused>> {
        let topic = AddPartitionsToTxnTopic::default().with_name(name()).with_partitions(vec![partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(text(&id.to_string()).into())
            .with_v3_and_below_producer_id(writer.producer_id.0.into())
            .with_v3_and_below_producer_epoch(writer.producer_epoch.0)
            .with_v3_and_below_topics(vec![topic]);
        let Some(Response::AddPartitionsToTxn(told)) = self.ask(3, request) else {
            unreachable!("answered in kind")
        };
        let results = &told.results_by_topic_v3_and_below[0].results_by_partition;
        match results[0].partition_error_code {
            code::NONE => Told::Definite(Ok(())),
            again if code::COME_AGAIN.contains(&again) => Told::ComeAgain,
            refused => Told::Definite(Err(Refused(refused))),
        }
    }

    /// EndTxn; with its answer, the identity for what follows.
    pub(super) fn end(
        &mut self,
        id: &TransactionalId,
        writer: Identity,
        version: TransactionVersion,
        commit: bool,
    ) -> Told<(EndTxnAnswer, Identity)> {
        let request = EndTxnRequest::default()
            .with_transactional_id(text(&id.to_string()).into())
            .with_producer_id(writer.producer_id.0.into())
            .with_producer_epoch(writer.producer_epoch.0)
            .with_committed(commit);
        let (number, bumps) = match version {
            TransactionVersion::V1 => (4, false),
            TransactionVersion::V2 => (5, true),
        };
        let Some(Response::EndTxn(told)) = self.ask(number, request) else {
            unreachable!("answered in kind")
        };
        let next = match bumps {
            true => identity(told.producer_id.0, told.producer_epoch),
            false => writer,
        };
        let answer = match told.error_code {
            code::NONE if commit => EndTxnAnswer::Committed,
            code::NONE => EndTxnAnswer::Aborted,
            code::INVALID_TXN_STATE => EndTxnAnswer::NotThisState,
            code::INVALID_PRODUCER_EPOCH | code::PRODUCER_FENCED => EndTxnAnswer::Superseded,
            code::INVALID_PRODUCER_ID_MAPPING => EndTxnAnswer::Forgotten,
            again if code::COME_AGAIN.contains(&again) => return Told::ComeAgain,
            refused => EndTxnAnswer::Refused(refused.to_string()),
        };
        Told::Definite((answer, next))
    }

    /// DescribeTransactions.
    pub(super) fn describe(&self, id: &TransactionalId) -> Described {
        let request =
            DescribeTransactionsRequest::default().with_transactional_ids(vec![text(&id.to_string()).into()]);
        let replies = self.machine.clone().step(self.now, Input::Request(call(0), request.into()));
        let Some(Response::DescribeTransactions(told)) = answer(replies) else {
            unreachable!("answered in kind")
        };
        let told = &told.transaction_states[0];
        match told.error_code {
            code::NONE => Described::Known {
                state: TransactionState::parse(&told.transaction_state).expect("one of Kafka's states"),
                identity: identity(told.producer_id.0, told.producer_epoch),
            },
            code::TRANSACTIONAL_ID_NOT_FOUND => Described::Forgotten,
            other => Described::Unanswered(format!("code {other}")),
        }
    }

    /// What a partition's log has, as a reader gets it that sees everything.
    pub(super) fn log(&self, partition: usize) -> &[Item] {
        &self.logs[partition]
    }

    /// Reads what a partition's log has got since it was read; logs only grow here.
    fn read_on(&mut self, partition: usize) {
        let next = self.logs[partition].last().map_or(0, |item| item.offset() + 1);
        let wanted = FetchPartition::default()
            .with_partition(i32::try_from(partition).expect("a few"))
            .with_fetch_offset(next)
            .with_partition_max_bytes(i32::MAX);
        let topic = FetchTopic::default().with_topic(name()).with_partitions(vec![wanted]);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(0)
            .with_max_bytes(i32::MAX)
            .with_topics(vec![topic]);
        let replies = self.machine.step(self.now, Input::Request(call(11), request.into()));
        let Some(Response::Fetch(told)) = answer(replies) else { unreachable!("answered in kind") };
        let data = &told.responses[0].partitions[0];
        assert_eq!(data.error_code, code::NONE, "the log is read");
        let mut bytes = data.records.clone().unwrap_or_default();
        if !bytes.is_empty() {
            let decoded = RecordBatchDecoder::decode_all(&mut bytes).expect("the broker's batches are whole");
            let items = decoded.into_iter().flat_map(|set| set.records).map(|record| item(&record));
            Rc::make_mut(&mut self.logs[partition]).extend(items);
        }
    }

    /// The first control batch of a producer at or behind an offset.
    pub(super) fn first_control(&self, part: &HandlePartition, producer: ProducerId) -> PartitionEnd {
        let log = self.log(usize::try_from(part.partition).expect("a few"));
        let found = log.iter().find_map(|item| match *item {
            Item::Control { offset, marker, writer }
                if offset >= part.first_offset && writer.producer_id == producer =>
            {
                Some(PartitionEnd::Marker { marker, producer_epoch: writer.producer_epoch })
            }
            Item::Control { .. } | Item::Record { .. } => None,
        });
        found.unwrap_or(PartitionEnd::NoneYet)
    }

    /// What a writer has written in a handle's part.
    pub(super) fn written(&self, part: &HandlePartition, by: Identity) -> Vec<u64> {
        let range = part.first_offset..=part.last_offset;
        let log = self.log(usize::try_from(part.partition).expect("a few"));
        let values = log.iter().filter_map(|item| match *item {
            Item::Record { offset, value, writer } if writer == by && range.contains(&offset) => Some(value),
            Item::Record { .. } | Item::Control { .. } => None,
        });
        values.collect()
    }

    /// Values of a partition that are committed, in the order of the log.
    pub(super) fn committed(&self, partition: usize) -> Vec<u64> {
        let mut open: Vec<(ProducerId, i64, u64)> = Vec::new();
        let mut committed = Vec::new();
        for item in self.log(partition).iter() {
            match *item {
                Item::Record { offset, value, writer } => open.push((writer.producer_id, offset, value)),
                Item::Control { marker, writer, .. } => {
                    let ended = open.extract_if(.., |(producer, ..)| *producer == writer.producer_id);
                    let ended = ended.map(|(_, offset, value)| (offset, value)).collect::<Vec<_>>();
                    if marker == Marker::Commit {
                        committed.extend(ended);
                    }
                }
            }
        }
        committed.sort_unstable();
        committed.into_iter().map(|(_, value)| value).collect()
    }

    /// Who has records in a partition, of a transaction that has not ended.
    pub(super) fn open_in(&self, partition: usize) -> BTreeSet<Identity> {
        let mut open = BTreeSet::new();
        for item in self.log(partition).iter() {
            match *item {
                Item::Record { writer, .. } => {
                    open.insert(writer);
                }
                Item::Control { writer, .. } => open.retain(|by| by.producer_id != writer.producer_id),
            }
        }
        open
    }
}

/// The topic's id in handles: nobody makes it anew in these worlds.
pub(super) const TOPIC_ID: TopicId = TopicId([1; 16]);

const TICKET: Ticket = Ticket(0);

fn call(version: i16) -> Call {
    Call { ticket: TICKET, node: NODE, version, client_id: None }
}

fn answer(replies: Vec<Reply>) -> Option<Response> {
    replies.into_iter().find(|reply| reply.ticket == TICKET).map(|reply| match reply.outcome {
        Outcome::Answer(response) => response,
        Outcome::Silence | Outcome::HangUp => unreachable!("every request here is answered"),
    })
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn name() -> TopicName {
    TopicName(text(TOPIC))
}

fn identity(id: i64, epoch: i16) -> Identity {
    Identity { producer_id: ProducerId(id), producer_epoch: ProducerEpoch(epoch) }
}

fn batch(writer: Identity, sequence: i32, value: u64) -> Bytes {
    let record = Record {
        transactional: true,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: writer.producer_id.0,
        producer_epoch: writer.producer_epoch.0,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        sequence,
        timestamp: START_MS,
        key: None,
        value: Some(Bytes::copy_from_slice(&value.to_be_bytes())),
        headers: Default::default(),
    };
    let mut bytes = BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    RecordBatchEncoder::encode(&mut bytes, [&record], &options).expect("one small record");
    bytes.freeze()
}

fn item(record: &Record) -> Item {
    let writer = identity(record.producer_id, record.producer_epoch);
    let offset = record.offset;
    if record.control {
        // The key of a control record: its version, then 0 for an abort and 1 for a commit. (`ControlRecordType`)
        let key = record.key.as_ref().expect("a control record has a key");
        let marker = if key[3] == 1 { Marker::Commit } else { Marker::Abort };
        return Item::Control { offset, marker, writer };
    }
    let value = record.value.as_ref().expect("these records have a value");
    Item::Record { offset, value: u64::from_be_bytes(value[..].try_into().expect("eight bytes")), writer }
}
