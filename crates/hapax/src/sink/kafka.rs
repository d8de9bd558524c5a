//! The Kafka sink: a lane for each shard and cluster (exactly once), or an idempotent writer behind the same gate.
//!
//! Owns: which topic and partition a record goes to, when a lane needs a new identity, and what a handle says.
//! Where a journal is asked for, every record that is in a batch is in the journal before the next one is taken.
//! Refuses: ending transactions; that is the decider's, live and in recovery alike.

use super::{BoxFuture, Guarantee, Prepared, Sink, SinkError, SinkWriter, WriterContext, oversize::Oversize};
use crate::{
    batch::{Batch, Origin, RecordRef},
    cluster::Clusters,
    journal::Recorder,
    lane::{ProducerSettings, identify, identity_patience, written},
    limits,
    operator::OnError,
    source::{SourceTopic, UNKNOWN_TOPIC, described_topics},
};
use futures::future::try_join;
use hapax_commit::{
    Epoch, Identity, Journal, LaneId, Name, TransactionVersion,
    lane::{Lane, LaneConfig, Outcome},
    ledger::Carrier,
};
use hapax_kafka::{
    Client,
    producer::{Destination, LaneProducer, OpenAs, ProduceError, ProducerConfig, TopicHandle},
    record,
    transaction::{self, Lifetime},
};
use std::collections::HashMap;

/// How a record that names no partition finds one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partitioning {
    /// The source's partition where both topics have as many, else by key.
    #[default]
    Auto,
    /// The source's partition.
    Keep,
    /// Kafka's murmur2 of the key; records without a key go where the current batch goes.
    Key,
}

/// Where one declared sink sends records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Topic of every record; none sends each record to the topic that an operator chose.
    pub topic: Option<String>,
    /// How partitions are chosen.
    pub partitioning: Partitioning,
    /// What to do with a record larger than the topic allows. Guarantee `none` drops and counts it anyway.
    pub on_error: OnError,
}

impl Route {
    /// Every record to one topic.
    pub fn topic(topic: &str) -> Self {
        Self {
            topic: Some(topic.to_owned()),
            partitioning: Partitioning::default(),
            on_error: OnError::default(),
        }
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        self.topic.as_deref().unwrap_or("(topic by record)")
    }
}

/// All Kafka sinks of a job on one cluster with one guarantee.
#[derive(Clone, Debug)]
pub struct KafkaSinks {
    cluster: Name,
    name: String,
    guarantee: Guarantee,
    producer: ProducerSettings,
    /// What it writes is kept in a journal, too.
    journal: bool,
    routes: Vec<Route>,
}

impl KafkaSinks {
    pub(crate) fn new(
        cluster: Name,
        guarantee: Guarantee,
        producer: ProducerSettings,
        journal: bool,
    ) -> Self {
        let name = cluster.to_string();
        Self { cluster, name, guarantee, producer, journal, routes: Vec::new() }
    }

    pub(crate) fn add(&mut self, route: Route) {
        self.routes.push(route);
    }

    pub(crate) fn settings(&self) -> (&ProducerSettings, bool) {
        (&self.producer, self.journal)
    }

    async fn start(&self, cx: WriterContext) -> Result<KafkaWriter, SinkError> {
        let client = cx.clusters.client(&self.cluster).await?;
        let version = client.transaction_version().await?;
        let mode = match self.guarantee {
            Guarantee::ExactlyOnce => Mode::Lane(Box::new(self.lane(&cx, &client, version))),
            Guarantee::AtLeastOnce | Guarantee::None => {
                Mode::Idempotent(transaction::init_idempotent(&client, identity_patience(&client)).await?)
            }
        };
        let producer = LaneProducer::start(client.clone(), self.producer_config(version));
        Ok(KafkaWriter {
            sink: self.clone(),
            cx,
            client,
            mode,
            producer,
            recorder: None,
            topics: HashMap::new(),
            oversize: Oversize::new(self.producer.compression),
            skipped: 0,
            epoch: Epoch::GENESIS,
            is_open: false,
            carrier: None,
        })
    }

    fn lane_id(&self, cx: &WriterContext) -> LaneId {
        LaneId { cluster: self.cluster.clone(), shard: cx.shard }
    }

    fn lane(&self, cx: &WriterContext, client: &Client, version: TransactionVersion) -> Lane {
        let config = LaneConfig {
            job: cx.job.clone(),
            lane: self.lane_id(cx),
            cluster_id: client.cluster_id().to_owned(),
            brokers: cx.clusters.cluster(&self.cluster).brokers.clone(),
            version,
            naming: cx.naming,
            first: cx.first,
        };
        Lane::new(config, cx.identities.expect("a transactional sink is started after its ids are cleared"))
    }

    fn producer_config(&self, version: TransactionVersion) -> ProducerConfig {
        ProducerConfig {
            transactional: self.guarantee == Guarantee::ExactlyOnce,
            best_effort: self.guarantee == Guarantee::None,
            ..self.producer.config(version)
        }
    }
}

impl Sink for KafkaSinks {
    fn name(&self) -> &str {
        &self.name
    }

    fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    fn transactional_cluster(&self) -> Option<&Name> {
        (self.guarantee == Guarantee::ExactlyOnce).then_some(&self.cluster)
    }

    fn producer(&self) -> Option<&ProducerSettings> {
        Some(&self.producer)
    }

    fn chooses_topics(&self) -> bool {
        self.routes.iter().any(|route| route.topic.is_none())
    }

    fn topics<'a>(&'a self, clusters: &'a Clusters) -> BoxFuture<'a, Result<Vec<SourceTopic>, SinkError>> {
        Box::pin(async move {
            let names: Vec<&str> = self.routes.iter().filter_map(|route| route.topic.as_deref()).collect();
            let client = clusters.client(&self.cluster).await?;
            let found = described_topics(&client, &names).await?;
            if let Some(refused) =
                found.iter().find(|topic| topic.error.is_some_and(|code| code != UNKNOWN_TOPIC))
            {
                refused.usable()?;
            }
            let topics = found.iter().map(|topic| {
                SourceTopic::of(&self.cluster, topic).map_err(|code| SinkError::Configuration {
                    sink: format!("{}/{}", self.cluster, topic.name),
                    reason: format!(
                        "the broker does not serve this topic: {code}; create it, or correct the name"
                    ),
                })
            });
            topics.collect()
        })
    }

    fn writer<'a>(&'a self, cx: WriterContext) -> BoxFuture<'a, Result<Box<dyn SinkWriter>, SinkError>> {
        Box::pin(async move { Ok(Box::new(self.start(cx).await?) as Box<dyn SinkWriter>) })
    }
}

enum Mode {
    /// One transaction per epoch.
    Lane(Box<Lane>),
    /// One identity for the run.
    Idempotent(Identity),
}

struct KafkaWriter {
    sink: KafkaSinks,
    cx: WriterContext,
    client: Client,
    mode: Mode,
    producer: LaneProducer,
    /// The journal of the open epoch, where one is kept.
    recorder: Option<Recorder>,
    topics: HashMap<String, TopicHandle>,
    oversize: Oversize,
    /// Records left out because of their size, since they were last asked for.
    skipped: u64,
    epoch: Epoch,
    /// The producer is open for `epoch`: something is, or is about to be, written in it.
    is_open: bool,
    /// The transaction of the epoch that was prepared last, where it carries positions.
    carrier: Option<Carrier>,
}

impl KafkaWriter {
    fn lifetime(&self) -> Lifetime {
        self.cx.clusters.cluster(&self.sink.cluster).lifetime(self.cx.transaction_timeout)
    }

    /// Opens the epoch at the producer with its first record: an epoch without records has no transaction.
    async fn open(&mut self) -> Result<(), SinkError> {
        let lifetime = self.lifetime();
        let open_as = match &mut self.mode {
            Mode::Idempotent(identity) => OpenAs::Idempotent { identity: *identity },
            Mode::Lane(lane) => {
                let with = lane.open(self.epoch).unwrap_or_else(|not_yet| {
                    panic!("epoch {} was begun before its id was free: {not_yet:?}", self.epoch)
                });
                identify(&self.client, lane, self.epoch, &with, lifetime).await?
            }
        };
        self.producer.open(self.epoch, open_as);
        if self.sink.journal {
            let place = self.cx.journal.as_ref().expect("a run that keeps journals says where");
            let lane = self.sink.lane_id(&self.cx);
            self.recorder = Some(Recorder::begin(&self.cx.host, place, lane, self.epoch));
        }
        self.is_open = true;
        Ok(())
    }

    async fn send(&mut self, batch: &Batch) -> Result<(), SinkError> {
        if batch.is_empty() {
            return Ok(());
        }
        if !self.is_open {
            self.open().await?;
        }
        for index in 0..self.sink.routes.len() {
            let route = self.sink.routes[index].clone();
            let fixed = match &route.topic {
                Some(name) => Some(self.topic(name).await?),
                None => None,
            };
            for record in batch.iter() {
                let topic = match &fixed {
                    Some(topic) => topic.clone(),
                    None => self.routed(batch.origin(), &record).await?,
                };
                let partition = self.partition(&route, batch.origin(), &record, &topic)?;
                self.push(&route, batch.origin(), &topic, partition, &record).await?;
            }
        }
        Ok(())
    }

    async fn push(
        &mut self,
        route: &Route,
        origin: &Origin,
        topic: &TopicHandle,
        partition: Option<i32>,
        record: &RecordRef<'_>,
    ) -> Result<(), SinkError> {
        let encoded = record::RecordRef {
            key: record.key,
            value: record.value,
            headers: self.headers(record)?,
            timestamp: record.timestamp,
        };
        if self.is_left_out(route, origin, topic.name(), record, &encoded)? {
            return Ok(());
        }
        let to = Destination { topic, partition };
        let placed = match self.producer.try_write(to, encoded) {
            Ok(None) => self.producer.write(to, encoded).await,
            Ok(Some(placed)) => Ok(placed),
            Err(error) => Err(error),
        };
        let placed = placed.map_err(|error| self.unwritten(error))?;
        match &mut self.recorder {
            Some(recorder) => recorder.append(topic.name(), placed, &encoded).await,
            None => Ok(()),
        }
    }

    /// Too large for the topic, and the sink's policy says to go on without it?
    fn is_left_out(
        &mut self,
        route: &Route,
        origin: &Origin,
        topic: &str,
        record: &RecordRef<'_>,
        encoded: &record::RecordRef<'_>,
    ) -> Result<bool, SinkError> {
        let Some((size, limit)) = self.oversize.find(topic, encoded) else { return Ok(false) };
        let reason = format!(
            "as a batch of its own it has {size} bytes, and topic {topic} allows {limit} (max.message.bytes)"
        );
        match route.on_error {
            OnError::Stop => Err(self.bad(
                origin,
                record,
                format!("{reason}; raise that, or set on_error = \"skip\" on the sink"),
            )),
            OnError::Skip => {
                self.skipped += 1;
                tracing::warn!("{}", self.bad(origin, record, format!("{reason}: skipped")));
                Ok(true)
            }
        }
    }

    fn headers<'a>(&self, record: &RecordRef<'a>) -> Result<record::Headers<'a>, SinkError> {
        if record.headers.count == 0 {
            return Ok(record::Headers::NONE);
        }
        let encoded = record::EncodedHeaders::parse(record.headers.count, record.headers.encoded);
        encoded.map(record::Headers::Encoded).map_err(|error| SinkError::BadRecord {
            sink: self.sink.name.clone(),
            reason: format!("the record at offset {}: {error}", record.offset),
        })
    }

    async fn topic(&mut self, name: &str) -> Result<TopicHandle, SinkError> {
        if let Some(topic) = self.topics.get(name) {
            return Ok(topic.clone());
        }
        let topic = self.producer.topic(name).await?;
        if self.sink.guarantee != Guarantee::None {
            self.oversize.learn(&self.client, name).await;
        }
        self.topics.insert(name.to_owned(), topic.clone());
        Ok(topic)
    }

    async fn routed(&mut self, origin: &Origin, record: &RecordRef<'_>) -> Result<TopicHandle, SinkError> {
        let Some(name) = record.topic else {
            return Err(self.bad(
                origin,
                record,
                "no operator chose a topic for it and the sink has none".into(),
            ));
        };
        self.topic(name).await
    }

    /// The partition of a record, or none for the producer's choice: by key, and without one where its batch goes.
    fn partition(
        &self,
        route: &Route,
        origin: &Origin,
        record: &RecordRef<'_>,
        topic: &TopicHandle,
    ) -> Result<Option<i32>, SinkError> {
        let count = topic.partitions();
        let keeps = match route.partitioning {
            Partitioning::Keep => true,
            Partitioning::Key => false,
            Partitioning::Auto => origin.partitions == Some(count),
        };
        let chosen = record.partition.or_else(|| keeps.then_some(origin.partition));
        match chosen {
            Some(partition) if partition < 0 || partition >= count => {
                let reason =
                    format!("partition {partition} of topic {} does not exist: it has {count}", topic.name());
                Err(self.bad(origin, record, reason))
            }
            Some(partition) => Ok(Some(partition)),
            None => Ok(None),
        }
    }

    /// A failure of the producer, with the id where a broker knows a newer identity of it.
    fn unwritten(&self, error: ProduceError) -> SinkError {
        match &self.mode {
            Mode::Lane(_) if error.is_superseded() => {
                let id = self.sink.lane_id(&self.cx).id_of(&self.cx.job, self.cx.naming, self.epoch);
                SinkError::Taken { id: id.to_string(), source: Box::new(error) }
            }
            Mode::Lane(_) | Mode::Idempotent(_) => SinkError::Produce(error),
        }
    }

    fn bad(&self, origin: &Origin, record: &RecordRef<'_>, reason: String) -> SinkError {
        SinkError::BadRecord {
            sink: self.sink.name.clone(),
            reason: format!(
                "the record at {}-{} offset {}: {reason}",
                origin.topic, origin.partition, record.offset
            ),
        }
    }

    async fn settle(&mut self, epoch: Epoch) -> Result<Prepared, SinkError> {
        assert_eq!(epoch, self.epoch, "a barrier ends the open epoch");
        if !self.is_open {
            return Ok(Prepared::default());
        }
        if let Mode::Lane(lane) = &mut self.mode {
            lane.flushing(epoch);
        }
        let kept = keep(self.recorder.take());
        let flushed = async { self.producer.flush().await.map_err(Unflushed::Written) };
        let kept = async { kept.await.map_err(Unflushed::Kept) };
        let (flushed, journal) = match try_join(flushed, kept).await {
            Ok(both) => both,
            Err(Unflushed::Written(error)) => return Err(self.unwritten(error)),
            Err(Unflushed::Kept(error)) => return Err(error),
        };
        self.is_open = false;
        let records = flushed.partitions.iter().map(|part| part.count).sum();
        let lifetime = self.lifetime();
        let Mode::Lane(lane) = &mut self.mode else {
            return Ok(Prepared { records, ..Prepared::default() });
        };
        if self.cx.carries {
            let partitions = flushed.partitions.into_iter();
            let partitions = partitions.map(|part| (part.topic, part.partition, part.last_offset)).collect();
            self.carrier = Some(lane.carrying(epoch, partitions));
            return Ok(Prepared { records, ..Prepared::default() });
        }
        let (written, deadline) = written(flushed, lifetime);
        let handle = lane.flushed(epoch, written).map_err(|fault| SinkError::BadRecord {
            sink: self.sink.name.clone(),
            reason: format!("epoch {epoch} was acknowledged with offsets that cannot be ({fault:?})"),
        })?;
        let fits = |journal: &Journal| handle.as_ref().is_some_and(|handle| journal.fits(handle));
        let journal = journal.filter(|journal| !journal.parts.is_empty() || handle.is_some());
        assert!(journal.as_ref().is_none_or(fits), "a journal has every record of its epoch");
        Ok(Prepared { handle, deadline, journal, records })
    }
}

/// Why an epoch is not flushed.
enum Unflushed {
    Written(ProduceError),
    Kept(SinkError),
}

async fn keep(recorder: Option<Recorder>) -> Result<Option<Journal>, SinkError> {
    match recorder {
        Some(recorder) => recorder.finish().await.map(Some),
        None => Ok(None),
    }
}

impl SinkWriter for KafkaWriter {
    fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(self.send(batch))
    }

    fn prepare(&mut self, epoch: Epoch) -> BoxFuture<'_, Result<Prepared, SinkError>> {
        Box::pin(self.settle(epoch))
    }

    fn open_carrier(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            match &self.mode {
                Mode::Lane(_) if self.cx.carries && !self.is_open => self.open().await,
                Mode::Lane(_) | Mode::Idempotent(_) => Ok(()),
            }
        })
    }

    fn take_carrier(&mut self) -> Option<Carrier> {
        self.carrier.take()
    }

    fn recorded(&mut self, epoch: Epoch, next: Option<Identity>) {
        if let Mode::Lane(lane) = &mut self.mode {
            if let Some(next) = next {
                lane.committing(epoch);
                lane.ended(epoch, Outcome::Committed { next });
            }
            lane.recorded(epoch);
        }
    }

    fn wants_barrier(&self) -> bool {
        let old = self.producer.started().is_some_and(|started| {
            let age = self.cx.host.now().saturating_duration_since(started);
            self.lifetime() != Lifetime::Unbounded
                && age > self.cx.transaction_timeout / limits::EPOCH_SHARE_OF_TIMEOUT
        });
        self.is_open && (old || self.producer.bytes_of_epoch() > limits::EPOCH_BYTES)
    }

    fn failed(&mut self) -> BoxFuture<'_, SinkError> {
        Box::pin(async move {
            let error = self.producer.failed().await;
            self.unwritten(error)
        })
    }

    fn dropped(&self) -> u64 {
        self.producer.dropped()
    }

    fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped)
    }
}
