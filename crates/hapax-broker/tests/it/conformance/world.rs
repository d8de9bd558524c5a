//! What a scenario does to a cluster, and the transcript that two clusters are compared by.
//!
//! A line of the transcript is an act and its whole answer. Producer ids and topic ids differ from cluster to cluster,
//! so each is written as the n-th that the scenario has seen. What passes by itself (a coordinator that loads, a
//! leadership that is new, markers under way) is asked again and leaves no line.
//!
//! What shall end by itself ends after a time that a busy machine may need for the acts before the end. Such a play is
//! given up ([`TooSlow`]), to be played again with more time: it would compare two machines and not two brokers.

use super::peer::{Peer, Tally};
use bytes::{Bytes, BytesMut};
use hapax_broker::wire::Response;
use kafka_protocol::{
    messages::{
        AddPartitionsToTxnRequest, CreateTopicsRequest, DescribeProducersRequest,
        DescribeTransactionsRequest, EndTxnRequest, FetchRequest, FindCoordinatorRequest,
        InitProducerIdRequest, ListOffsetsRequest, ListTransactionsRequest, MetadataRequest, ProduceRequest,
        ProducerId,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        create_topics_request::{CreatableTopic, CreatableTopicConfig},
        describe_producers_request::TopicRequest,
        describe_transactions_response::TransactionState,
        fetch_request::{FetchPartition, FetchTopic},
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
        metadata_request::MetadataRequestTopic,
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::StrBytes,
    records::{
        Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    panic, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const LIMIT: Duration = Duration::from_secs(30);
/// Markers that are not written after this will never be: a broker sends again what was not answered for 30 seconds.
const FOREVER: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(15);

/// Answers that say nothing but "not yet".
const PASSING: [i16; 5] = [14, 15, 16, 5, 6];
const CONCURRENT_TRANSACTIONS: i16 = 51;
/// The same, and markers that are under way.
const PASSING_MARKERS: [i16; 6] = [14, 15, 16, 5, 6, CONCURRENT_TRANSACTIONS];

/// The time-out of a transaction that shall not end by itself, in milliseconds: no scenario is as long.
const LASTING: i32 = 600_000;

/// A play was given up: its acts took so long that a time-out may have come before them.
pub(crate) struct TooSlow;

/// A producer's identity, as a cluster gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

impl Identity {
    /// This many epochs on.
    pub(crate) fn later(self, by: i16) -> Self {
        Self { epoch: self.epoch + by, ..self }
    }

    /// A producer id that no cluster has given.
    pub(crate) fn stranger(self) -> Self {
        Self { id: self.id + 1_000_000, ..self }
    }
}

/// One scenario on one cluster.
pub(crate) struct World {
    peer: Peer,
    /// Prefix of all names, unique on a cluster that outlives the scenario.
    prefix: String,
    /// Zero of the timestamps of records: around now, as a broker begins another segment for records of another age,
    /// and a fetch reads one segment.
    zero: i64,
    producers: Vec<i64>,
    /// Ids of 16 bytes, of topics and members, as they were seen.
    ids: Vec<String>,
    lines: Vec<String>,
    /// Partitions of the topics that were created, by the name that the cluster knows.
    partitions: Vec<(String, i32)>,
    /// How long a transaction lives that shall end by itself.
    short: Duration,
    /// Since when something lives that ends by itself, and how long it does.
    hurry: Option<(Instant, Duration)>,
    /// Transactional ids, as the cluster knows them, whose markers are refused for ever: "come again" is their answer.
    stuck: BTreeSet<String>,
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

impl World {
    pub(crate) fn new(bootstrap: &str, prefix: &str, short: Duration) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self {
            peer: Peer::new(bootstrap),
            prefix: prefix.to_owned(),
            zero: since.as_millis() as i64 - 60_000,
            producers: Vec::new(),
            ids: Vec::new(),
            lines: Vec::new(),
            partitions: Vec::new(),
            short,
            hurry: None,
            stuck: BTreeSet::new(),
        }
    }

    pub(crate) fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    /// Acts without a line: to wait for something, or to repeat it.
    pub(crate) fn quietly<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let written = self.lines.len();
        let result = act(self);
        self.lines.truncate(written);
        result
    }

    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// What the answers said how often.
    pub(crate) fn close(self) -> Tally {
        self.peer.tally()
    }

    /// Zero of the timestamps of records.
    pub(crate) fn zero(&self) -> i64 {
        self.zero
    }

    /// How long a transaction lives that shall end by itself.
    pub(crate) fn short(&self) -> Duration {
        self.short
    }

    /// From now on something lives that ends by itself after a time.
    pub(crate) fn hurry(&mut self, time: Duration) {
        self.hurry = Some((Instant::now(), time));
    }

    /// The last act that has to come before that end was answered. The play is given up where it may have come later:
    /// half of the time is for what a broker needs to read its clock.
    pub(crate) fn in_time(&mut self) {
        let (since, time) = self.hurry.take().expect("something ends by itself");
        if since.elapsed() > time / 2 {
            panic::resume_unwind(Box::new(TooSlow));
        }
    }

    /// Codes that are "not yet" to who asks about a transactional id.
    pub(crate) fn passing_of(&self, id: &str) -> &'static [i16] {
        let stuck = self.stuck.contains(&self.name(id));
        if stuck { &PASSING } else { &PASSING_MARKERS }
    }

    /// An id of 16 bytes as the n-th one seen.
    pub(crate) fn mark(&mut self, id: &str) -> String {
        if id == "00000000-0000-0000-0000-000000000000" {
            return "no id".to_owned();
        }
        let known = self.ids.iter().position(|seen| seen == id);
        let index = known.unwrap_or_else(|| {
            self.ids.push(id.to_owned());
            self.ids.len() - 1
        });
        format!("U{index}")
    }

    /// A name as the cluster knows it.
    pub(crate) fn name(&self, short: &str) -> String {
        format!("{}-{short}", self.prefix)
    }

    pub(crate) fn note(&mut self, line: impl Into<String>) {
        let line = line.into().replace(&format!("{}-", self.prefix), "");
        self.lines.push(line);
    }

    /// The producer id as the n-th one seen.
    pub(crate) fn label(&mut self, id: i64) -> String {
        if id < 0 {
            return id.to_string();
        }
        let known = self.producers.iter().position(|seen| *seen == id);
        let index = known.unwrap_or_else(|| {
            self.producers.push(id);
            self.producers.len() - 1
        });
        format!("P{index}")
    }

    pub(crate) fn identity(&mut self, identity: Identity) -> String {
        format!("{}:{}", self.label(identity.id), identity.epoch)
    }

    /// Repeats until the code is none of those that pass.
    pub(crate) fn settled<T>(
        &mut self,
        passing: &[i16],
        mut ask: impl FnMut(&mut Self) -> (i16, T),
    ) -> (i16, T) {
        let begin = Instant::now();
        loop {
            let (code, answer) = ask(self);
            if !PASSING.contains(&code) && !passing.contains(&code) {
                return (code, answer);
            }
            assert!(begin.elapsed() < LIMIT, "error {code} does not pass");
            thread::sleep(PAUSE);
        }
    }

    /// As [`World::settled`], where markers of the id may be under way: until they are written, or will never be.
    fn settled_of<T>(
        &mut self,
        id: &str,
        passing: &[i16],
        mut ask: impl FnMut(&mut Self) -> (i16, T),
    ) -> (i16, T) {
        let begin = Instant::now();
        loop {
            let (code, answer) = self.settled(passing, &mut ask);
            if code != CONCURRENT_TRANSACTIONS || self.is_stuck(id, begin) {
                return (code, answer);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Whether the markers of an id will never be written, which is believed of those that are not in long enough.
    fn is_stuck(&mut self, id: &str, since: Instant) -> bool {
        if since.elapsed() > FOREVER {
            self.stuck.insert(id.to_owned());
        }
        self.stuck.contains(id)
    }

    // ---- where things are -------------------------------------------------------------------------------

    /// The address of a group's (0) or a transactional id's (1) coordinator.
    pub(crate) fn coordinator(&mut self, kind: i8, key: &str) -> String {
        let request = FindCoordinatorRequest::default().with_key_type(kind).with_key(text(key));
        let (code, address) = self.settled(&[], |world| {
            let bootstrap = world.peer.bootstrap();
            let Response::FindCoordinator(found) = world.peer.ask(&bootstrap, 1, request.clone()) else {
                unreachable!()
            };
            (found.error_code, format!("{}:{}", found.host, found.port))
        });
        assert_eq!(code, 0, "FindCoordinator for {key}");
        address
    }

    /// The address of a partition's leader.
    pub(crate) fn leader(&mut self, topic: &str, partition: i32) -> String {
        let begin = Instant::now();
        loop {
            if let Some(leader) = self.known_leader(topic, partition) {
                return leader;
            }
            assert!(begin.elapsed() < LIMIT, "{topic}-{partition} has no leader");
            thread::sleep(PAUSE);
        }
    }

    /// The same, where there is one.
    fn known_leader(&mut self, topic: &str, partition: i32) -> Option<String> {
        let wanted = MetadataRequestTopic::default().with_name(Some(text(topic).into()));
        let request =
            MetadataRequest::default().with_topics(Some(vec![wanted])).with_allow_auto_topic_creation(false);
        let bootstrap = self.peer.bootstrap();
        let Response::Metadata(metadata) = self.peer.ask(&bootstrap, 7, request) else { unreachable!() };
        let found = metadata.topics[0].partitions.iter().find(|found| found.partition_index == partition)?;
        let leader = metadata.brokers.iter().find(|broker| broker.node_id == found.leader_id)?;
        Some(format!("{}:{}", leader.host, leader.port))
    }

    pub(crate) fn create_topic(&mut self, short: &str, partitions: i32, config: &[(&str, &str)]) {
        let name = self.name(short);
        let config = config.iter().map(|(name, value)| {
            CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
        });
        let topic = CreatableTopic::default()
            .with_name(text(&name).into())
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(config.collect());
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(20_000);
        let bootstrap = self.peer.bootstrap();
        let Response::CreateTopics(created) = self.peer.ask(&bootstrap, 5, request) else { unreachable!() };
        assert_eq!(created.topics[0].error_code, 0, "{name}: {:?}", created.topics[0].error_message);
        (0..partitions).for_each(|partition| drop(self.leader(&name, partition)));
        self.partitions.extend((0..partitions).map(|partition| (name.clone(), partition)));
    }

    // ---- transactions -----------------------------------------------------------------------------------

    /// InitProducerId, again while the coordinator ends what was open.
    pub(crate) fn init(&mut self, id: &str, version: i16, own: Option<Identity>) -> Option<Identity> {
        self.init_with(id, version, own, LASTING)
    }

    /// The next transaction of the id ends by itself. It begins with its first partition: everything that has to come
    /// before its end is followed by [`World::in_time`].
    pub(crate) fn init_short(&mut self, id: &str) -> Option<Identity> {
        let short = self.short;
        let given = self.init_with(id, 4, None, short.as_millis() as i32);
        self.hurry(short);
        given
    }

    /// Waits until the coordinator has ended a transaction by itself. Kafka 3.9 raises the epoch a moment before it
    /// decides.
    pub(crate) fn ended(&mut self, id: &str, own: Identity) {
        let begin = Instant::now();
        loop {
            let found = self.described(id);
            if found.identity != own && found.state != "Ongoing" {
                return;
            }
            assert!(begin.elapsed() < FOREVER + LIMIT, "{id} does not time out");
            thread::sleep(PAUSE);
        }
    }

    pub(crate) fn init_with(
        &mut self,
        id: &str,
        version: i16,
        own: Option<Identity>,
        timeout_ms: i32,
    ) -> Option<Identity> {
        let name = self.name(id);
        let mut request = InitProducerIdRequest::default()
            .with_transactional_id(Some(text(&name).into()))
            .with_transaction_timeout_ms(timeout_ms);
        if let Some(own) = own {
            request = request.with_producer_id(ProducerId(own.id)).with_producer_epoch(own.epoch);
        }
        let (code, identity) = self.settled_of(&name, &[], |world| {
            let coordinator = world.coordinator(1, &name);
            let Response::InitProducerId(answer) = world.peer.ask(&coordinator, version, request.clone())
            else {
                unreachable!()
            };
            (answer.error_code, Identity { id: answer.producer_id.0, epoch: answer.producer_epoch })
        });
        let own = own.map(|own| format!(" as {}", self.identity(own))).unwrap_or_default();
        let given = self.identity(identity);
        self.note(format!("init {id} v{version}{own} -> {code} {given}"));
        (code == 0).then_some(identity)
    }

    pub(crate) fn add(
        &mut self,
        id: &str,
        version: i16,
        own: Identity,
        topic: &str,
        partitions: &[i32],
    ) -> i16 {
        let (name, topic_name) = (self.name(id), self.name(topic));
        let wanted = AddPartitionsToTxnTopic::default()
            .with_name(text(&topic_name).into())
            .with_partitions(partitions.to_vec());
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(text(&name).into())
            .with_v3_and_below_producer_id(ProducerId(own.id))
            .with_v3_and_below_producer_epoch(own.epoch)
            .with_v3_and_below_topics(vec![wanted]);
        let (code, codes) = self.settled_of(&name, &[], |world| {
            let coordinator = world.coordinator(1, &name);
            let Response::AddPartitionsToTxn(answer) = world.peer.ask(&coordinator, version, request.clone())
            else {
                unreachable!()
            };
            let topics = answer.results_by_topic_v3_and_below.iter();
            let mut codes: Vec<(i32, i16)> = topics
                .flat_map(|topic| &topic.results_by_partition)
                .map(|result| (result.partition_index, result.partition_error_code))
                .collect();
            codes.sort_unstable();
            (codes.first().map_or(-2, |(_, code)| *code), codes)
        });
        let own = self.identity(own);
        self.note(format!("add {id} v{version} {own} {topic}{partitions:?} -> {codes:?}"));
        code
    }

    /// EndTxn, again while markers are under way.
    pub(crate) fn end(&mut self, id: &str, version: i16, own: Identity, commit: bool) -> i16 {
        let name = self.name(id);
        let request = EndTxnRequest::default()
            .with_transactional_id(text(&name).into())
            .with_producer_id(ProducerId(own.id))
            .with_producer_epoch(own.epoch)
            .with_committed(commit);
        let (code, next) = self.settled_of(&name, &[], |world| {
            let coordinator = world.coordinator(1, &name);
            let Response::EndTxn(answer) = world.peer.ask(&coordinator, version, request.clone()) else {
                unreachable!()
            };
            (answer.error_code, Identity { id: answer.producer_id.0, epoch: answer.producer_epoch })
        });
        let (own, next) = (self.identity(own), self.identity(next));
        let what = if commit { "commit" } else { "abort" };
        self.note(format!("{what} {id} v{version} {own} -> {code} {next}"));
        code
    }

    /// EndTxn whose answer is lost with its connection.
    pub(crate) fn lose_end(&mut self, id: &str, version: i16, own: Identity, commit: bool) {
        let name = self.name(id);
        let request = EndTxnRequest::default()
            .with_transactional_id(text(&name).into())
            .with_producer_id(ProducerId(own.id))
            .with_producer_epoch(own.epoch)
            .with_committed(commit);
        let coordinator = self.coordinator(1, &name);
        self.peer.lose_answer(&coordinator, version, request);
        let own = self.identity(own);
        self.note(format!("end {id} v{version} {own} commit {commit} -> lost"));
    }

    /// Tells the coordinator's state of an id, once no markers are under way that will be written.
    pub(crate) fn describe(&mut self, id: &str) -> Option<Identity> {
        let found = self.described(id);
        // What an error names is no producer's.
        let known = found.code == 0;
        let label = if known { self.identity(found.identity) } else { format!("{:?}", found.identity) };
        self.note(format!("describe {id} -> {label} {}", found.line));
        known.then_some(found.identity)
    }

    fn described(&mut self, id: &str) -> Described {
        let name = self.name(id);
        let begin = Instant::now();
        loop {
            let coordinator = self.coordinator(1, &name);
            let request =
                DescribeTransactionsRequest::default().with_transactional_ids(vec![text(&name).into()]);
            let Response::DescribeTransactions(answer) = self.peer.ask(&coordinator, 0, request) else {
                unreachable!()
            };
            let found = &answer.transaction_states[0];
            let (code, state) = (found.error_code, found.transaction_state.to_string());
            let prepared = state.starts_with("Prepare");
            if !PASSING.contains(&code) && (!prepared || self.is_stuck(&name, begin)) {
                let identity = Identity { id: found.producer_id.0, epoch: found.producer_epoch };
                return Described { code, identity, line: line_of(found), state };
            }
            assert!(begin.elapsed() < FOREVER + LIMIT, "{name} stays {state}");
            thread::sleep(PAUSE);
        }
    }

    /// Ids of this scenario that every node lists, with their states: those in the given states, and begun longer ago
    /// than this.
    pub(crate) fn list(&mut self, version: i16, states: &[&str], milliseconds: i64) {
        let prefix = format!("{}-", self.prefix);
        let mut request = ListTransactionsRequest::default()
            .with_state_filters(states.iter().map(|state| text(state)).collect());
        if version >= 1 {
            request = request.with_duration_filter(milliseconds);
        }
        let (code, (mut listed, unknown)) = self.settled(&[], |world| {
            let bootstrap = world.peer.bootstrap();
            let Response::ListTransactions(answer) = world.peer.ask(&bootstrap, version, request.clone())
            else {
                unreachable!()
            };
            let listed: Vec<(String, i64, String)> = answer
                .transaction_states
                .iter()
                .map(|state| {
                    let id = state.transactional_id.to_string();
                    (id, state.producer_id.0, state.transaction_state.to_string())
                })
                .filter(|(id, ..)| id.starts_with(&prefix))
                .collect();
            let unknown: Vec<String> = answer.unknown_state_filters.iter().map(ToString::to_string).collect();
            (answer.error_code, (listed, unknown))
        });
        listed.sort();
        let mut line =
            format!("list {states:?} longer than {milliseconds} v{version} -> {code} unknown {unknown:?}");
        for (id, producer, state) in listed {
            let label = self.label(producer);
            let _ = write!(line, " {id} {label} {state};");
        }
        self.note(line);
    }

    // ---- records ----------------------------------------------------------------------------------------

    /// One batch of values to one partition; the error code.
    pub(crate) fn produce(&mut self, version: i16, batch: &Batch<'_>) -> i16 {
        let (topic, id) = (self.name(batch.topic), batch.id.map(|id| self.name(id)));
        let data = PartitionProduceData::default()
            .with_index(batch.partition)
            .with_records(Some(batch.encoded(self.zero)));
        let topic_data =
            TopicProduceData::default().with_name(text(&topic).into()).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(id.as_deref().map(|id| text(id).into()))
            .with_acks(-1)
            .with_timeout_ms(20_000)
            .with_topic_data(vec![topic_data]);
        // Trouble with the coordinator comes as 19, and a new topic may not be known for a moment.
        let id = id.unwrap_or_default();
        let (code, offset) = self.settled_of(&id, &[19], |world| {
            let leader = world.leader(&topic, batch.partition);
            let Response::Produce(answer) = world.peer.ask(&leader, version, request.clone()) else {
                unreachable!()
            };
            let partition = &answer.responses[0].partition_responses[0];
            (partition.error_code, partition.base_offset)
        });
        let own = batch.own.map(|own| self.identity(own)).unwrap_or_default();
        let (topic, partition, sequence) = (batch.topic, batch.partition, batch.sequence);
        let values = batch.values;
        self.note(format!(
            "produce v{version} {:?} {own} seq {sequence} {topic}-{partition} {values:?} -> {code} @{offset}",
            batch.id
        ));
        code
    }

    /// Everything that a reader sees from an offset on, and what the answer says beside.
    pub(crate) fn fetch(&mut self, topic: &str, partition: i32, from: i64, committed: bool) {
        let name = self.name(topic);
        let request = fetch_request(&name, partition, from, committed);
        let (code, answer) = self.settled(&[], |world| {
            let leader = world.leader(&name, partition);
            let Response::Fetch(answer) = world.peer.ask(&leader, 11, request.clone()) else {
                unreachable!()
            };
            let found = answer.responses[0].partitions[0].clone();
            (found.error_code, found)
        });
        let mut aborted: Vec<(i64, i64)> = answer
            .aborted_transactions
            .iter()
            .flatten()
            .map(|entry| (entry.first_offset, entry.producer_id.0))
            .collect();
        aborted.sort_unstable();
        let mut line = format!(
            "fetch {topic}-{partition} from {from} committed {committed} -> {code} high {} stable {} start {} aborted",
            answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
        );
        for (offset, producer) in aborted {
            let label = self.label(producer);
            let _ = write!(line, " {label}@{offset}");
        }
        for record in records(answer.records.unwrap_or_default()) {
            let label = self.label(record.producer_id);
            let (offset, epoch) = (record.offset, record.producer_epoch);
            let _ = match (record.control, &record.key) {
                (true, Some(key)) => write!(line, "; {offset} {label}:{epoch} control {:?}", &key[..]),
                _ => write!(line, "; {offset} {label}:{epoch} {}", shown(record.value.as_ref())),
            };
        }
        self.note(line);
    }

    /// Markers in the scenario's topics that end nothing: the batch before them of the same producer is the same marker.
    /// Only what is still there counts.
    pub(crate) fn repeated_markers(&mut self) -> usize {
        let partitions = self.partitions.clone();
        partitions.iter().map(|(topic, partition)| self.repeated_in(topic, *partition)).sum()
    }

    fn repeated_in(&mut self, topic: &str, partition: i32) -> usize {
        let Some(leader) = self.known_leader(topic, partition) else { return 0 };
        let (mut repeated, mut last, mut from) = (0, BTreeMap::new(), 0);
        loop {
            let request = fetch_request(topic, partition, from, false);
            let Response::Fetch(answer) = self.peer.ask(&leader, 11, request) else { unreachable!() };
            let found = records(answer.responses[0].partitions[0].records.clone().unwrap_or_default());
            let Some(newest) = found.last().map(|record| record.offset) else { return repeated };
            for record in found.into_iter().filter(|record| record.offset >= from && record.transactional) {
                let marker = record.control.then_some((record.producer_epoch, record.key));
                repeated += usize::from(marker.is_some() && last.get(&record.producer_id) == Some(&marker));
                last.insert(record.producer_id, marker);
            }
            from = newest + 1;
        }
    }

    /// ListOffsets: -1 latest, -2 earliest, or a time in milliseconds since that of the first value of a batch.
    pub(crate) fn list_offset(&mut self, topic: &str, partition: i32, time: i64, committed: bool) {
        let name = self.name(topic);
        let wanted = ListOffsetsPartition::default()
            .with_partition_index(partition)
            .with_timestamp(if time < 0 { time } else { self.zero + time })
            .with_current_leader_epoch(-1);
        let wanted = ListOffsetsTopic::default().with_name(text(&name).into()).with_partitions(vec![wanted]);
        let request = ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_isolation_level(i8::from(committed))
            .with_topics(vec![wanted]);
        let (code, (offset, at)) = self.settled(&[], |world| {
            let leader = world.leader(&name, partition);
            let Response::ListOffsets(answer) = world.peer.ask(&leader, 5, request.clone()) else {
                unreachable!()
            };
            let found = &answer.topics[0].partitions[0];
            (found.error_code, (found.offset, found.timestamp))
        });
        // A marker has the time of its broker, which is later than that of any record.
        let at = match at {
            ..0 => at.to_string(),
            _ if at - self.zero > 30_000 => "then".to_owned(),
            _ => (at - self.zero).to_string(),
        };
        self.note(format!(
            "list_offset {topic}-{partition} {time} committed {committed} -> {code} {offset} at {at}"
        ));
    }

    /// Producers that a partition knows.
    pub(crate) fn producers(&mut self, topic: &str, partition: i32) {
        let name = self.name(topic);
        let wanted =
            TopicRequest::default().with_name(text(&name).into()).with_partition_indexes(vec![partition]);
        let request = DescribeProducersRequest::default().with_topics(vec![wanted]);
        let (code, found) = self.settled(&[], |world| {
            let leader = world.leader(&name, partition);
            let Response::DescribeProducers(answer) = world.peer.ask(&leader, 0, request.clone()) else {
                unreachable!()
            };
            let found = answer.topics[0].partitions[0].clone();
            (found.error_code, found)
        });
        let mut line = format!("producers {topic}-{partition} -> {code}");
        let mut active = found.active_producers;
        active.sort_by_key(|producer| producer.producer_id.0);
        for producer in active {
            let label = self.label(producer.producer_id.0);
            let marked = producer.coordinator_epoch >= 0;
            let _ = write!(
                line,
                " {label}:{} last {} marked {marked} open {};",
                producer.producer_epoch, producer.last_sequence, producer.current_txn_start_offset
            );
        }
        self.note(line);
    }
}

fn fetch_request(topic: &str, partition: i32, from: i64, committed: bool) -> FetchRequest {
    let wanted = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(from)
        .with_current_leader_epoch(-1)
        .with_log_start_offset(-1)
        .with_partition_max_bytes(10_000_000);
    let wanted = FetchTopic::default().with_topic(text(topic).into()).with_partitions(vec![wanted]);
    FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_wait_ms(10)
        .with_min_bytes(1)
        .with_max_bytes(10_000_000)
        .with_isolation_level(i8::from(committed))
        .with_topics(vec![wanted])
}

/// A coordinator's state of an id.
struct Described {
    code: i16,
    identity: Identity,
    state: String,
    line: String,
}

/// What it says beside the producer.
fn line_of(found: &TransactionState) -> String {
    let mut places: Vec<String> = Vec::new();
    for topic in &found.topics {
        let name = topic.topic.to_string();
        places.extend(topic.partitions.iter().map(|partition| format!("{name}-{partition}")));
    }
    places.sort();
    let began = if found.transaction_start_time_ms < 0 { "never" } else { "once" };
    let (code, state) = (found.error_code, found.transaction_state.as_str());
    format!("{code} {state} timeout {} began {began} {places:?}", found.transaction_timeout_ms)
}

fn shown(value: Option<&Bytes>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| String::from_utf8_lossy(value).into_owned())
}

pub(crate) fn records(mut bytes: Bytes) -> Vec<Record> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        match RecordBatchDecoder::decode(&mut bytes) {
            Ok(set) => records.extend(set.records),
            Err(error) => panic!("a fetched batch: {error}"),
        }
    }
    records
}

/// A batch to be produced.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    /// The transactional id of the request.
    pub(crate) id: Option<&'a str>,
    pub(crate) own: Option<Identity>,
    pub(crate) sequence: i32,
    pub(crate) values: &'a [&'a str],
    pub(crate) transactional: bool,
}

impl<'a> Batch<'a> {
    /// The first batch of a transaction in partition 0.
    pub(crate) fn first(topic: &'a str, id: &'a str, own: Identity, values: &'a [&'a str]) -> Self {
        Self { topic, partition: 0, id: Some(id), own: Some(own), sequence: 0, values, transactional: true }
    }

    /// A batch without a producer.
    pub(crate) fn plain(topic: &'a str, values: &'a [&'a str]) -> Self {
        Self { topic, partition: 0, id: None, own: None, sequence: -1, values, transactional: false }
    }

    pub(crate) fn encoded(&self, zero: i64) -> Bytes {
        let own = self.own.unwrap_or(Identity { id: -1, epoch: -1 });
        let record = |(index, value): (usize, &&str)| Record {
            transactional: self.transactional,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: own.id,
            producer_epoch: own.epoch,
            timestamp_type: TimestampType::Creation,
            offset: index as i64,
            // The encoder begins another batch where sequences do not follow each other; -1 is said of the first one.
            sequence: self.sequence + index as i32,
            timestamp: zero + index as i64,
            key: None,
            value: Some(Bytes::from((*value).to_owned())),
            headers: Default::default(),
        };
        let records: Vec<Record> = self.values.iter().enumerate().map(record).collect();
        let options = RecordEncodeOptions { version: 2, compression: Compression::None };
        let mut encoded = BytesMut::new();
        RecordBatchEncoder::encode(&mut encoded, &records, &options).unwrap();
        encoded.freeze()
    }
}
