//! Writes the records of an aborted transaction again: `rewrite` from the log, `replay` from the journal.
//!
//! Owns the two passes: first every record is read and compared with the handle, then they are read once more and
//! written. What was written is compared with the handle, too, before it is handed out as prepared. Refuses to write a
//! byte of what is not there in whole, and never ends a transaction.
//!
//! ```text
//!  handle (aborted) --> compare all partitions --> read again, write under the fresh number --> compare --> handle
//!                         | a hole, a digest                                                      | differs
//!                         v                                                                       v
//!                       refused, nothing written                                 refused; the id is cleared again
//! ```

use super::records::{Missing, Origin, RecordReader};
use crate::{
    error::{JobError, with_causes},
    lane::{ProducerSettings, deadline_ms},
};
use hapax_commit::{Epoch, Handle, HandlePartition, Identity, Naming, TransactionVersion, TransactionalId};
use hapax_host::Host;
use hapax_kafka::{
    Client,
    producer::{Destination, LaneProducer, OpenAs, ProduceError, ProducerConfig, TopicHandle},
    transaction::{self, LeftOpen, Lifetime},
};
use std::{collections::BTreeMap, time::Duration};

/// What a strategy came to: what it was to make, or why it never can.
pub(super) type Outcome<T> = Result<Result<T, String>, JobError>;

/// What is written again, and as whom.
pub(super) struct Again<'a> {
    pub(super) host: &'a Host,
    pub(super) client: &'a Client,
    /// The aborted transaction.
    pub(super) handle: &'a Handle,
    /// Where its records are.
    pub(super) origin: &'a Origin,
    /// How ids are named.
    pub(super) naming: Naming,
    /// The number that they are written under now.
    pub(super) epoch: Epoch,
    /// The identity of the id that belongs to that number.
    pub(super) identity: Identity,
    /// How long the brokers may leave a record unacknowledged.
    pub(super) timeout: Duration,
    /// How long its transaction may stay open.
    pub(super) lifetime: Lifetime,
    /// How the lane writes.
    pub(super) settings: &'a ProducerSettings,
}

impl Again<'_> {
    /// Writes everything and prepares it.
    ///
    /// # Errors
    /// Brokers or store do not answer now, or refuse: nothing is known then, and another run may try.
    pub(super) async fn write(&self) -> Outcome<Handle> {
        if let Err(missing) = self.reader().compare().await {
            return unread(missing);
        }
        if let Some(why) = self.end_left_open().await? {
            return Ok(Err(why));
        }
        let version = self.client.transaction_version().await;
        let version = version.map_err(|error| JobError::kafka(self.attempted(), error))?;
        let mut producer = self.producer(version);
        let topics = match self.topics(&producer).await? {
            Ok(topics) => topics,
            Err(why) => return Ok(Err(why)),
        };
        let mut reader = self.reader();
        loop {
            let chunk = match reader.next().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return self.prepared(producer, version).await,
                Err(missing) => return unread(missing),
            };
            for record in chunk.records() {
                let partition = Some(self.handle.partitions[record.part].partition);
                let to = Destination { topic: &topics[record.part], partition };
                if let Err(error) = producer.write(to, record.as_it_was()).await {
                    return unwritten(error);
                }
            }
        }
    }

    fn reader(&self) -> RecordReader<'_> {
        RecordReader::new(self.host, self.client, self.handle, self.origin)
    }

    /// The topic of each partition of the handle, which must be the one that was written then.
    async fn topics(&self, producer: &LaneProducer) -> Outcome<Vec<TopicHandle>> {
        let mut topics = Vec::new();
        for part in &self.handle.partitions {
            let topic = match producer.topic(&part.topic).await {
                Ok(topic) => topic,
                Err(error) => return unwritten(error),
            };
            if topic.topic_id() != part.topic_id {
                return Ok(Err(format!(
                    "topic {} was deleted and made again since: {} then, {} now",
                    part.topic,
                    part.topic_id,
                    topic.topic_id()
                )));
            }
            topics.push(topic);
        }
        Ok(Ok(topics))
    }

    /// Before anything is written under the fresh identity, what partitions still hold open of its producer is ended: its
    /// next commit there would make those records visible (KAFKA-20734). A reason, where that may not be done.
    async fn end_left_open(&self) -> Result<Option<String>, JobError> {
        let id = self.id().to_string();
        for part in &self.handle.partitions {
            let own = |open: Identity| {
                let Identity { producer_id, producer_epoch } = self.identity;
                (open.producer_id == producer_id && open.producer_epoch < producer_epoch).then(|| id.clone())
            };
            match transaction::end_left_open(self.client, &part.topic, part.partition, own).await {
                Ok(()) => {}
                Err(LeftOpen::Refused(refused)) => return Ok(Some(refused.to_string())),
                Err(LeftOpen::Unanswered(error)) => return Err(JobError::kafka(self.attempted(), error)),
            }
        }
        Ok(None)
    }

    /// As the lane writes, but that nobody waits longer for a record than a transaction lives that has a time-out.
    fn producer(&self, version: TransactionVersion) -> LaneProducer {
        let config = ProducerConfig {
            delivery_timeout: Some(self.timeout),
            transactional: true,
            ..self.settings.config(version)
        };
        let mut producer = LaneProducer::start(self.client.clone(), config);
        let open_as = OpenAs::Transaction { transactional_id: self.id(), identity: self.identity };
        producer.open(self.epoch, open_as);
        producer
    }

    /// Waits for every acknowledgement, and compares what was written with what was aborted.
    async fn prepared(&self, mut producer: LaneProducer, version: TransactionVersion) -> Outcome<Handle> {
        let flushed = match producer.flush().await {
            Ok(flushed) => flushed,
            Err(error) => return unwritten(error),
        };
        let (started_ms, _) = flushed.started.expect("a handle has records");
        let old: BTreeMap<_, _> = self.handle.partitions.iter().map(|part| (place(part), part)).collect();
        let mut partitions = Vec::new();
        for part in flushed.partitions {
            let part = HandlePartition {
                topic: part.topic,
                topic_id: part.topic_id,
                partition: part.partition,
                first_offset: part.first_offset,
                last_offset: part.last_offset,
                count: part.count,
                digest: Some(part.digest),
            };
            let same = old.get(&place(&part)).is_some_and(|old| {
                old.count == part.count && old.digest.is_none_or(|digest| Some(digest) == part.digest)
            });
            if !same {
                return Ok(Err(format!(
                    "what was written to {}-{} again differs",
                    part.topic, part.partition
                )));
            }
            partitions.push(part);
        }
        if partitions.len() != old.len() {
            return Ok(Err("not every partition was written again".into()));
        }
        Ok(Ok(Handle {
            transactional_id: self.id(),
            identity: self.identity,
            version,
            epoch: self.epoch,
            started_ms,
            deadline_ms: deadline_ms(started_ms, self.lifetime),
            partitions,
            ..self.handle.clone()
        }))
    }

    /// The id that the records are written under.
    fn id(&self) -> TransactionalId {
        self.handle.lane.id_of(&self.handle.transactional_id.job, self.naming, self.epoch)
    }

    fn attempted(&self) -> String {
        format!("writing {} of epoch {} again", self.handle.transactional_id, self.handle.epoch)
    }
}

/// What is not there for good is a reason to pass a strategy over; the rest ends the run.
fn unread<T>(missing: Missing) -> Outcome<T> {
    match missing {
        Missing::ForGood(why) => Ok(Err(why)),
        Missing::Now(error) => Err(error),
    }
}

/// What a topic refuses it refuses the next time, too; the rest ends the run.
fn unwritten<T>(error: ProduceError) -> Outcome<T> {
    if error.is_bad_record() || error.is_refusal() || matches!(error, ProduceError::UnknownTopic { .. }) {
        return Ok(Err(with_causes(&error)));
    }
    Err(JobError::writing(error))
}

fn place(part: &HandlePartition) -> (String, i32) {
    (part.topic.clone(), part.partition)
}
