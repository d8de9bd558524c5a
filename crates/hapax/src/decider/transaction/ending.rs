//! The three requests that end an epoch: its offsets, EndTxn, and the look whether everybody was told.

use super::{TransactionDecider, home::Carried, identity::marker_of};
use crate::{
    decider::told,
    error::{Code, JobError, with_causes},
    limits,
};
use hapax_commit::{CarriedPositions, Epoch, Name, ledger::Carrier};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client, ClientError, KafkaCode,
    admin::{self, OFFSETS_TOPIC, offsets_partition},
    transaction::{self, CarryingTransaction, EndTxnAnswer, EndedTransaction, OffsetToCommit},
};
use hapax_store::PositionObjects;
use std::{collections::BTreeSet, sync::atomic::AtomicUsize, time::Duration};

/// Ends epochs on one cluster, each by the protocol that its transaction was begun with. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    host: Host,
    client: Client,
    job: Name,
    group: String,
    timeout: Duration,
    objects: Option<PositionObjects>,
}

impl TransactionDecider {
    pub(super) fn ending(&self) -> Ending {
        Ending {
            host: self.start.host.clone(),
            client: self.client.clone(),
            job: self.start.plan.name.clone(),
            group: self.home.group(),
            timeout: self.start.transaction_timeout,
            objects: self.start.objects.clone(),
        }
    }
}

impl Ending {
    /// Puts what has no room beside an offset, and then makes offsets a part of the transaction: a pointer is never committed
    /// whose object is not durable. `put` is called in between.
    pub(super) async fn carry(
        &self,
        carrier: &Carrier,
        carried: &Carried,
        put: impl FnOnce() + Send,
    ) -> Result<(), JobError> {
        if let Some(object) = &carried.object {
            self.put(object).await?;
            put();
        }
        self.send_offsets(carrier, &carried.offsets).await
    }

    /// Puts positions that an offset will point to.
    pub(super) async fn put(&self, object: &CarriedPositions) -> Result<(), JobError> {
        let Some(objects) = &self.objects else {
            return Err(JobError::Bug { what: "positions without room, and no store".to_owned() });
        };
        let name = object.name().to_text();
        let stored = objects.put(&name, object.to_bytes()).await;
        stored.map_err(|error| {
            let label = objects.label(&name);
            JobError::store(format!("job {}: putting positions into {label}", self.job), error)
        })
    }

    /// Makes offsets a part of the transaction, every one of them. Longer than the transaction lives it is not tried.
    async fn send_offsets(&self, carrier: &Carrier, offsets: &[OffsetToCommit]) -> Result<(), JobError> {
        let id = carrier.transactional_id.to_string();
        let transaction = CarryingTransaction {
            transactional_id: &id,
            identity: carrier.identity,
            version: carrier.version,
        };
        let deadline = Deadline::after(self.host.now(), Some(self.timeout));
        let sent =
            transaction::commit_offsets(&self.client, transaction, &self.group, offsets, deadline).await;
        sent.map_err(|error| self.refused_offsets(&id, error))
    }

    fn refused_offsets(&self, id: &str, error: ClientError) -> JobError {
        let with_members = [
            KafkaCode::UNKNOWN_MEMBER_ID,
            KafkaCode::ILLEGAL_GENERATION,
            KafkaCode::REBALANCE_IN_PROGRESS,
            KafkaCode::FENCED_INSTANCE_ID,
            KafkaCode::FENCED_MEMBER_EPOCH,
            KafkaCode::STALE_MEMBER_EPOCH,
        ];
        let hint = match error.code() {
            Some(code) if with_members.contains(&code) => format!(
                ": consumers are members of a group of this name, and a job's group is its own; stop them, or name them \
                 or the job otherwise (group {})",
                self.group
            ),
            Some(KafkaCode::GROUP_AUTHORIZATION_FAILED) => {
                ": grant READ on the group to the job's principal".to_owned()
            }
            Some(KafkaCode::TOPIC_AUTHORIZATION_FAILED) => {
                ": grant READ on the topics whose offsets are committed to the job's principal".to_owned()
            }
            Some(_) | None => String::new(),
        };
        let attempted = format!("committing the offsets of group {} in transaction {id}{hint}", self.group);
        if error.is_superseded() {
            let message = format!("job {}: {attempted}: {}", self.job, with_causes(&error));
            return JobError::IdTaken { id: id.to_owned(), message };
        }
        JobError::kafka(attempted, error)
    }

    /// EndTxn(commit), until the answer is definite.
    pub(super) async fn commit(&self, carrier: &Carrier, on_written: impl FnMut() + Send) -> EndTxnAnswer {
        let id = carrier.transactional_id.to_string();
        let (identity, version, never) = (carrier.identity, carrier.version, Deadline::NEVER);
        transaction::end_txn(&self.client, &id, identity, version, true, never, on_written).await
    }

    /// Nothing is lost: what is not committed is read and written again.
    pub(super) fn not_committed(&self, epoch: Epoch, carrier: &Carrier, answer: &EndTxnAnswer) -> JobError {
        let message = format!(
            "job {}: the transaction {} of epoch {epoch} was not committed as far as is known ({answer:?}): timed out, \
             or taken over; the next run reads what is committed and goes on from there",
            self.job, carrier.transactional_id
        );
        if let EndTxnAnswer::Superseded { .. } = answer {
            return JobError::IdTaken { id: carrier.transactional_id.to_string(), message };
        }
        JobError::Run { code: Code::Disturbed, message }
    }

    /// Waits until every partition knows of the commit: those with records, and that of the offsets.
    pub(super) async fn tell(
        &self,
        carrier: &Carrier,
        offsets: &BTreeSet<(String, i32)>,
    ) -> Result<(), JobError> {
        let partitions: Vec<_> =
            carrier.partitions.iter().map(|(topic, number, last)| (topic.as_str(), *number, *last)).collect();
        self.complete(carrier, &partitions).await?;
        if self.offsets_are_stable(offsets).await? {
            return Ok(());
        }
        let topic = self.client.topics(&[OFFSETS_TOPIC]).await;
        let topic =
            topic.map_err(|error| JobError::kafka(format!("asking for topic {OFFSETS_TOPIC}"), error))?;
        let count = topic.first().map_or(0, |topic| topic.partitions.len());
        let partition = offsets_partition(&self.group, i32::try_from(count).unwrap_or(i32::MAX));
        self.complete(carrier, &[(OFFSETS_TOPIC, partition, i64::MAX)]).await
    }

    async fn complete(&self, carrier: &Carrier, partitions: &[(&str, i32, i64)]) -> Result<(), JobError> {
        let ended = EndedTransaction {
            transactional_id: &carrier.transactional_id.to_string(),
            identity: marker_of(carrier.identity, carrier.version),
            commit: true,
            partitions,
        };
        told::complete(&self.job, &self.client, &ended, &AtomicUsize::new(0)).await
    }

    /// Are these offsets beyond change, within the time that markers take?
    async fn offsets_are_stable(&self, places: &BTreeSet<(String, i32)>) -> Result<bool, JobError> {
        let began = self.host.now();
        let mut pause = limits::UNSTABLE_PAUSE;
        loop {
            let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY * 3));
            let unstable = admin::unstable_offsets(&self.client, &self.group, places, patience).await;
            let unstable = unstable.map_err(|error| {
                JobError::kafka(format!("reading the offsets of group {}", self.group), error)
            })?;
            if unstable.is_empty() {
                return Ok(true);
            }
            if self.host.now().saturating_duration_since(began) >= limits::UNTOLD_OFFSETS {
                return Ok(false);
            }
            self.host.sleep(self.host.jitter(pause)).await;
            pause = (pause * 2).min(limits::UNSTABLE_PAUSE_MAX);
        }
    }
}
