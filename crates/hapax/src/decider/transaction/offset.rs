//! Reading a job's committed offsets, and seeing to it that they can be read.
//!
//! Offsets that an open transaction may change are waited for. Every id of the job is cleared by then, so what is still
//! open is a stranger's, or one whose end the offsets' partition was not told (KAFKA-20734): the latter is told, by what
//! its coordinator said before the id was cleared, or by what the log of the coordinators still has.

use super::{Cleared, TransactionDecider, identity::marker_of};
use crate::{
    decider::told::left_open,
    error::{Code, JobError},
    limits,
};
use hapax_commit::{
    Bookmark, Identity, ProducerId, TransactionVersion, TransactionalId,
    bookmark::{self, FoundOffset},
};
use hapax_host::Deadline;
use hapax_kafka::{
    admin::{self, GroupOffsets, OFFSETS_TOPIC, offsets_partition},
    transaction::{self, LeftOpenEnd, PartitionProducer},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

impl TransactionDecider {
    /// The job's committed offsets, stable. `after` is what was cleared before.
    pub(super) async fn stable_offsets(&self, after: &Cleared) -> Result<Vec<FoundOffset>, JobError> {
        let began = self.start.host.now();
        let (mut pause, mut next_report) = (limits::UNSTABLE_PAUSE, limits::UNSTABLE_REPORT);
        let mut tries = 0;
        let mut next_try = limits::UNTOLD_OFFSETS;
        loop {
            // First those that may change, then all: what was stable for the first look is there for the second.
            let unstable = self.unstable().await?;
            let offsets = self.group_offsets().await?;
            if unstable.is_empty() {
                return Ok(self.of_job(offsets));
            }
            let waited = self.start.host.now().saturating_duration_since(began);
            if waited >= next_try {
                next_try = waited + limits::UNSTABLE_REPORT;
                tries += 1;
                if let Some(unexplained) = self.tell_offsets_partition(after).await?
                    && tries == limits::UNTOLD_TRIES
                {
                    return Err(unexplained);
                }
            }
            if waited >= next_report {
                next_report = waited + limits::UNSTABLE_REPORT;
                self.report_unstable(&unstable, waited).await;
            }
            self.start.host.sleep(self.start.host.jitter(pause)).await;
            pause = (pause * 2).min(limits::UNSTABLE_PAUSE_MAX);
        }
    }

    /// What is committed, also where an open transaction may change it.
    pub(super) async fn group_offsets(&self) -> Result<GroupOffsets, JobError> {
        let patience = Deadline::after(self.start.host.now(), Some(limits::REPORT_EVERY * 3));
        let group = self.home.group();
        let offsets = admin::committed_offsets(&self.client, &group, false, patience).await;
        offsets.map_err(|error| JobError::kafka(format!("reading the offsets of group {group}"), error))
    }

    /// Places of the job that an open transaction has an offset for.
    pub(super) async fn unstable(&self) -> Result<Vec<(String, i32)>, JobError> {
        let patience = Deadline::after(self.start.host.now(), Some(limits::REPORT_EVERY * 3));
        let group = self.home.group();
        let unstable = admin::unstable_offsets(&self.client, &group, self.home.places(), patience).await;
        unstable.map_err(|error| JobError::kafka(format!("reading the offsets of group {group}"), error))
    }

    /// Offsets of the job's topics, and others that it has a bookmark on: those of a topic that it does not read any more.
    fn of_job(&self, offsets: GroupOffsets) -> Vec<FoundOffset> {
        let topics = self.home.topics();
        let ours = |offset: &admin::CommittedOffset| {
            topics.contains(offset.topic.as_str())
                || Bookmark::parse(&offset.metadata).is_ok_and(|mark| mark.job == self.start.plan.name)
        };
        let found = |offset: admin::CommittedOffset| FoundOffset {
            place: format!("{}-{}", offset.topic, offset.partition),
            offset: offset.offset,
            metadata: offset.metadata,
        };
        offsets.committed.into_iter().filter(ours).map(found).collect()
    }

    /// Which partition keeps the group's offsets.
    async fn offsets_place(&self) -> Result<i32, JobError> {
        let topic = self.client.topics(&[OFFSETS_TOPIC]).await;
        let topic =
            topic.map_err(|error| JobError::kafka(format!("asking for topic {OFFSETS_TOPIC}"), error))?;
        let count = topic.first().map_or(0, |topic| topic.partitions.len());
        Ok(offsets_partition(&self.home.group(), i32::try_from(count).unwrap_or(i32::MAX)))
    }

    /// Tells the offsets' partition, before progress is known.
    pub(super) async fn tell_offsets_partition(&self, after: &Cleared) -> Result<Option<JobError>, JobError> {
        self.tell_partition((OFFSETS_TOPIC, self.offsets_place().await?), after, None).await
    }

    /// Ends in a partition what a coordinator has ended without telling it: of ids that are cleared, what was open before
    /// that. `committed` are transactions that are known to be, where progress is known. Returns the error of one of which
    /// nobody says how it ended.
    pub(super) async fn tell_partition(
        &self,
        (topic, partition): (&str, i32),
        after: &Cleared,
        committed: Option<&BTreeSet<Identity>>,
    ) -> Result<Option<JobError>, JobError> {
        let untold = |error| left_open(&self.start.plan.name, (topic, partition), error);
        let mut producers = self.producers();
        producers.extend(after.0.iter().map(|(id, identity)| (identity.producer_id, id.clone())));
        let (mut ends, mut unexplained) = (BTreeMap::new(), None);
        let open = transaction::open_producers(&self.client, topic, partition).await.map_err(untold)?;
        for open in open.iter().map(PartitionProducer::identity) {
            let Some(id) = producers.get(&open.producer_id) else { continue };
            if !after.0.get(id).is_some_and(|cleared| bookmark::is_behind(open, *cleared)) {
                continue;
            }
            match self.ended(id, open, committed).await {
                Ok(end) => drop(ends.insert(open, end)),
                Err(why) => unexplained = Some(self.unexplained(id, open, (topic, partition), &why)),
            }
        }
        let end = |open: Identity| ends.get(&open).cloned();
        let ended = transaction::end_left_open_as(&self.client, topic, partition, end).await;
        ended.map_err(untold)?;
        Ok(unexplained)
    }

    /// How a transaction of a cleared id ended.
    async fn ended(
        &self,
        id: &TransactionalId,
        open: Identity,
        committed: Option<&BTreeSet<Identity>>,
    ) -> Result<LeftOpenEnd, String> {
        let own = &self.start.own;
        let by_progress = committed.is_some_and(|committed| committed.contains(&open)).then_some(true);
        let (commit, version) = match by_progress.or_else(|| own.ended(id, open, self.version)) {
            Some(commit) => (commit, self.version),
            None => match self.ended_in_log(id, open).await {
                // Clearing aborts what it finds open; had somebody committed it in between, progress would name it.
                Err(_) if committed.is_some() && own.saw_open(id, open) => (false, self.version),
                ended => ended?,
            },
        };
        let marker = if commit { marker_of(open, version) } else { open };
        Ok(LeftOpenEnd { transactional_id: id.to_string(), marker, commit })
    }

    /// The log has what clearing the id made its coordinator forget, until compaction takes it. An id is not used again
    /// before its partitions are told, so the last end of the identity is that of the open transaction.
    async fn ended_in_log(
        &self,
        id: &TransactionalId,
        open: Identity,
    ) -> Result<(bool, TransactionVersion), String> {
        let history = self.start.brokers.history(&self.client, &id.to_string()).await?;
        let mut ends = history.iter().rev().filter_map(|(described, version)| {
            Some((bookmark::ended_before(described, open, *version)?, *version))
        });
        ends.next().ok_or_else(|| "the topic __transaction_state has no end of it".to_owned())
    }

    fn unexplained(
        &self,
        id: &TransactionalId,
        open: Identity,
        (topic, partition): (&str, i32),
        why: &str,
    ) -> JobError {
        JobError::NeedsPerson {
            code: Code::MarkerMissing,
            message: format!(
                "job {}: {topic}-{partition} holds transaction {id} (producer {open}) open, which its \
                 coordinator has ended without telling the partition (KAFKA-20734), and how it ended is not known: {why}; \
                 with READ on __transaction_state the next start reads it there. Do not abort the transaction with \
                 another tool: its records may be committed",
                self.start.plan.name
            ),
            incident: None,
        }
    }

    /// Names who holds the offsets back.
    async fn report_unstable(&self, unstable: &[(String, i32)], waited: Duration) {
        let places: Vec<String> =
            unstable.iter().map(|(topic, partition)| format!("{topic}-{partition}")).collect();
        let holders = match self.open_at_offsets().await {
            Ok(producers) if producers.is_empty() => "nobody that can be seen".to_owned(),
            Ok(producers) => {
                let named: Vec<String> = producers.iter().map(|producer| self.named(producer)).collect();
                named.join(", ")
            }
            Err(error) => format!("whoever it is ({})", error.chain()),
        };
        tracing::warn!(
            job = %self.start.plan.name,
            "the offsets of group {} cannot be read for {waited:?}: an open transaction may change those of {}; open in \
             its partition of {OFFSETS_TOPIC}: {holders}; it ends with its transaction timeout, or by hand \
             (kafka-transactions.sh abort)",
            self.home.group(),
            places.join(", ")
        );
    }

    async fn open_at_offsets(&self) -> Result<Vec<PartitionProducer>, JobError> {
        let place = (OFFSETS_TOPIC, self.offsets_place().await?);
        let open = transaction::open_producers(&self.client, place.0, place.1).await;
        open.map_err(|error| left_open(&self.start.plan.name, place, error))
    }

    fn named(&self, producer: &PartitionProducer) -> String {
        let PartitionProducer { producer_id, producer_epoch, open_from, .. } = producer;
        let whose = self
            .producers()
            .get(producer_id)
            .map_or_else(|| "not of this job".to_owned(), TransactionalId::to_string);
        format!(
            "producer {producer_id} epoch {producer_epoch} ({whose}) from offset {}",
            open_from.unwrap_or_default()
        )
    }

    /// Ids by producer, before and after they were cleared.
    pub(super) fn producers(&self) -> BTreeMap<ProducerId, TransactionalId> {
        let before = self.looks.iter().filter_map(|(id, described)| match described {
            hapax_commit::evidence::Described::Known { identity, .. } => {
                Some((identity.producer_id, id.clone()))
            }
            hapax_commit::evidence::Described::Forgotten
            | hapax_commit::evidence::Described::Unanswered(_) => None,
        });
        let after = self.cleared.iter().flat_map(|cleared| &cleared.0);
        before.chain(after.map(|(id, identity)| (identity.producer_id, id.clone()))).collect()
    }

    /// Missing offsets, or what is not ours among them.
    pub(super) fn progress_lost(&self, what: &str) -> JobError {
        JobError::NeedsPerson {
            code: Code::ProgressLost,
            message: format!(
                "job {}: {what}; the offsets of group {} are the job's progress, and without all of them it would read \
                 records again that it has written; were they reset or deleted, or have they expired? bring them back \
                 as they were, or begin anew with --fresh, which may write records a second time",
                self.start.plan.name,
                self.home.group()
            ),
            incident: None,
        }
    }
}
