//! One shard's epochs, one after another.
//!
//! ```text
//! write .. write -> prepare(e) -> handle -> (the engine decides) -> commit -> proof -> (the engine stores it) -> recorded
//!                      |
//!                      +-- the next epoch is written at once, on the next of the lane's three ids
//! ```
//!
//! Owns: when a transaction begins (with the epoch's first record), and that an id gets nothing new before its proof is
//! recorded. Refuses to write where that would happen: with two epochs decided and not recorded there is no id for a
//! third. Every future may be dropped; what was written stays written, and the call may be made again.

use super::{
    commit::{Committer, Outcome, Proof},
    error::EngineError,
    record::Record,
};
use crate::{
    decider::needs_person,
    error::{Code, JobError},
    lane::{ProducerSettings, identify, written},
};
use hapax_commit::{
    Epoch, Handle, Identity, ProducerEpoch, ProducerId, TransactionalId,
    lane::{NotYet, OpenWith, Outcome as Ended},
};
use hapax_kafka::{
    producer::{Destination, LaneProducer, ProducerConfig, TopicHandle},
    record,
    transaction::{self, LeftOpen},
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

/// One shard's transactional writer. See the [module](super).
pub struct Lane {
    machine: hapax_commit::Lane,
    producer: LaneProducer,
    topics: HashMap<String, TopicHandle>,
    committer: Committer,
    /// The producers that the ids had when they were cleared, each with the epoch that clearing answered.
    cleared: BTreeMap<ProducerId, (String, ProducerEpoch)>,
    /// The number of the transaction that is written, or would be next.
    number: Epoch,
    stage: Stage,
    /// The engine's number of the epoch that was prepared last.
    prepared: Option<u64>,
}

/// How far the epoch is.
#[derive(Clone, Debug)]
enum Stage {
    /// Nothing was written.
    Idle,
    /// Its identity is asked for.
    Opening(OpenWith),
    /// Records are written.
    Open,
    /// Its records are waited for.
    Flushing,
}

/// What a lane is made of.
pub(super) struct LaneParts {
    pub(super) machine: hapax_commit::Lane,
    pub(super) producer: ProducerSettings,
    pub(super) committer: Committer,
    pub(super) next: Epoch,
}

impl Lane {
    pub(super) fn new(parts: LaneParts) -> Self {
        let LaneParts { machine, producer, committer, next } = parts;
        let config = ProducerConfig { transactional: true, ..producer.config(machine.config().version) };
        let producer = LaneProducer::start(committer.connected.client.clone(), config);
        let ids = committer.lane.transactional_ids(&machine.config().job);
        let cleared = |(identity, id): (Identity, &TransactionalId)| {
            (identity.producer_id, (id.to_string(), identity.producer_epoch))
        };
        let identities = machine.states().iter().map(|state| state.identity());
        Self {
            cleared: identities.zip(&ids).map(cleared).collect(),
            topics: HashMap::new(),
            machine,
            producer,
            committer,
            number: next,
            stage: Stage::Idle,
            prepared: None,
        }
    }

    /// Writes a record of the open epoch as soon as there is room for it; the epoch begins with its first one. Dropping
    /// the future writes nothing and loses nothing that was written before.
    ///
    /// # Errors
    /// [`EngineError::Usage`]: the proof of an earlier epoch is not recorded; record it, then write again. A topic or
    /// partition that does not exist, a record that is too large or brokers that refuse; the lane is done for then.
    pub async fn write(&mut self, record: Record<'_>) -> Result<(), EngineError> {
        let topic = self.topic(record.topic).await?;
        self.open().await?;
        let encoded = record::RecordRef {
            key: record.key,
            value: record.value,
            headers: record::Headers::List(&record.headers),
            timestamp: record.timestamp.unwrap_or_else(|| self.committer.connected.host.wall_ms()),
        };
        let to = Destination { topic: &topic, partition: record.partition };
        self.producer.write(to, encoded).await?;
        Ok(())
    }

    /// Ends the epoch: returns when every record is acknowledged by the brokers, and the transaction is still open. None:
    /// nothing was written, so there is nothing to commit. `epoch` is the engine's number of its checkpoint, higher than
    /// the one before; the handle has a number of its own, because a transaction begins before a barrier has a number.
    ///
    /// The handle goes into the checkpoint. Records that are written from here on are the next epoch's.
    ///
    /// # Errors
    /// [`EngineError::Usage`]: `epoch` is not higher than the one before. Else records could not be written: the epoch is
    /// lost, and the lane done for.
    pub async fn prepare(&mut self, epoch: u64) -> Result<Option<Handle>, EngineError> {
        if let Some(before) = self.prepared.filter(|before| *before >= epoch) {
            return Err(EngineError::usage(format!(
                "preparing epoch {epoch} of lane {}: epoch {before} is prepared already, and epochs go up",
                self.machine.config().lane
            )));
        }
        match self.stage {
            Stage::Idle => {
                self.prepared = Some(epoch);
                return Ok(None);
            }
            Stage::Opening(_) => self.open().await?,
            Stage::Open | Stage::Flushing => {}
        }
        if !matches!(self.stage, Stage::Flushing) {
            self.machine.flushing(self.number);
            self.stage = Stage::Flushing;
        }
        let flushed = self.producer.flush().await?;
        let (written, _) = written(flushed, self.committer.connected.lifetime);
        let handle = self.machine.flushed(self.number, written).map_err(|fault| EngineError::Bug {
            what: format!("epoch {epoch} was acknowledged with offsets that cannot be ({fault:?})"),
        })?;
        if let Some(handle) = &handle {
            self.committer.unproven.prepared(handle.epoch);
        }
        self.stage = Stage::Idle;
        self.prepared = Some(epoch);
        self.number = self.number.next();
        Ok(handle)
    }

    /// Commits a transaction that this lane has prepared, when the engine has decided it: see [`Committer::commit`].
    ///
    /// # Errors
    /// As [`Committer::commit`].
    pub async fn commit(&self, handle: &Handle) -> Result<Outcome, EngineError> {
        self.committer.commit(handle).await
    }

    /// Commits beside the lane, from another task.
    pub fn committer(&self) -> Committer {
        self.committer.clone()
    }

    /// Is the proof of a transaction of this lane?
    pub fn owns(&self, proof: &Proof) -> bool {
        let config = self.machine.config();
        config.lane.transactional_id(&config.job, proof.epoch).to_string() == proof.transactional_id
    }

    /// The engine has stored the proof: no checkpoint that it could start from names the transaction any more. Its id may
    /// be used again.
    ///
    /// # Panics
    /// The proof is another lane's, or was recorded before.
    pub fn recorded(&mut self, proof: Proof) {
        assert!(self.owns(&proof), "{} is another lane's", proof.transactional_id);
        self.machine.committing(proof.epoch);
        self.machine.ended(proof.epoch, Ended::Committed { next: proof.next });
        self.machine.recorded(proof.epoch);
    }

    /// Waits until the lane has failed; pending while it has not. For an engine that has nothing to write just now.
    pub async fn failed(&self) -> EngineError {
        self.producer.failed().await.into()
    }

    /// Bytes that are written and not acknowledged.
    pub fn buffered(&self) -> usize {
        self.producer.buffered()
    }

    async fn topic(&mut self, name: &str) -> Result<TopicHandle, EngineError> {
        if let Some(topic) = self.topics.get(name) {
            return Ok(topic.clone());
        }
        let topic = self.producer.topic(name).await?;
        self.end_left_open(&topic).await?;
        self.topics.insert(name.to_owned(), topic.clone());
        Ok(topic)
    }

    /// Before the lane's first record in a topic: what its partitions still hold open of the lane's producers is an earlier
    /// run's, and is ended, because the next commit there would make those records visible (KAFKA-20734).
    async fn end_left_open(&self, topic: &TopicHandle) -> Result<(), EngineError> {
        let client = &self.committer.connected.client;
        let looks = (0..topic.partitions()).map(|partition| {
            transaction::end_left_open(client, topic.name(), partition, |open| {
                let (id, cleared) = self.cleared.get(&open.producer_id)?;
                (open.producer_epoch < *cleared).then(|| id.clone())
            })
        });
        for look in futures::future::join_all(looks).await {
            look.map_err(|error| match error {
                LeftOpen::Refused(refused) => needs_person(&self.committer.connected.job, &refused),
                LeftOpen::Unanswered(error) => JobError::kafka(
                    format!("asking whether {} holds an old transaction of the job open", topic.name()),
                    error,
                ),
            })?;
        }
        Ok(())
    }

    /// Begins the epoch, unless it has begun.
    async fn open(&mut self) -> Result<(), EngineError> {
        if matches!(self.stage, Stage::Idle) {
            let with = self.machine.open(self.number).map_err(|not_yet| self.not_yet(not_yet))?;
            self.stage = Stage::Opening(with);
        }
        let Stage::Opening(with) = &self.stage else { return Ok(()) };
        let (connected, with) = (&self.committer.connected, with.clone());
        let lifetime = connected.lifetime;
        let open_as = identify(&connected.client, &mut self.machine, self.number, &with, lifetime).await?;
        self.producer.open(self.number, open_as);
        self.stage = Stage::Open;
        Ok(())
    }

    fn not_yet(&self, not_yet: NotYet) -> EngineError {
        EngineError::Usage {
            code: Code::Usage,
            message: format!(
                "writing to lane {}: {not_yet}, and the id for the next epoch is the one of that transaction; commit it, \
                 store the proof and call recorded first",
                self.machine.config().lane
            ),
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("lane", &self.machine.config().lane)
            .field("number", &self.number)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
