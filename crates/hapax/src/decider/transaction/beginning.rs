//! The one transaction that a layout begins with: a bookmark in every place of every shard, and no record.
//!
//! Owns what genesis and each change of the layout have in common. It stands on the id that is the job's lock, so there is
//! one of it, whoever else begins or changes the job at the same time; and it is one transaction, so that a death at any
//! point leaves what was before or what comes after, whole.

use super::{
    TransactionDecider,
    home::{Carried, Home},
};
use crate::{
    crash::Point,
    error::{Code, JobError},
    limits,
    source::UNKNOWN_TOPIC,
};
use hapax_commit::{Bookmark, Epoch, Identity, Layout, Positions, ledger::Carrier};
use hapax_host::Deadline;
use hapax_kafka::{
    admin::{self, NewTopic},
    transaction::{EndTxnAnswer, OffsetToCommit},
};
use std::collections::BTreeSet;

/// What a layout begins with.
pub(super) struct Beginning<'a> {
    pub(super) layout: &'a Layout,
    /// Where each split goes on, or begins.
    pub(super) positions: &'a Positions,
    pub(super) home: &'a Home,
    /// Offsets in places that have a bookmark and are none any more.
    pub(super) given_up: Vec<OffsetToCommit>,
}

impl TransactionDecider {
    /// Commits it under the identity that the lock was cleared with. `committed` is called when it cannot be undone.
    pub(super) async fn commit_beginning(
        &self,
        identity: Identity,
        beginning: Beginning<'_>,
        reach: impl Fn(Point) + Send + Sync,
        committed: impl FnOnce() + Send,
    ) -> Result<(), JobError> {
        let Beginning { layout, positions, home, given_up } = beginning;
        let (transactional_id, version) = (self.ids().lock, self.version);
        let carrier = Carrier { transactional_id, identity, version, partitions: Vec::new() };
        let mut places: BTreeSet<(String, i32)> = home.places().into_iter().cloned().collect();
        places.extend(given_up.iter().map(|offset| (offset.topic.clone(), offset.partition)));
        let mut objects = Vec::new();
        let mut offsets = given_up;
        for (&shard, splits) in &layout.shards {
            let at = splits.iter().filter_map(|split| Some((split.clone(), positions.get(split)?.clone())));
            let carried = home.offsets(shard, Epoch::GENESIS, identity, &at.collect(), self.room);
            offsets.extend(carried.offsets);
            objects.extend(carried.object);
        }
        let ending = self.ending();
        for object in objects {
            ending.put(&object).await?;
        }
        ending.carry(&carrier, &Carried::in_place(offsets), || {}).await?;
        reach(Point::L0Unstored);
        self.start.own.ending(&carrier.transactional_id, identity, version);
        match ending.commit(&carrier, || reach(Point::K3EndTxnSent)).await {
            EndTxnAnswer::Committed { next } => self.start.own.add(&carrier.transactional_id, next),
            answer => return Err(ending.not_committed(Epoch::GENESIS, &carrier, &answer)),
        }
        committed();
        reach(Point::L1Stored);
        // Told while its coordinator still knows how it ended: clearing the id makes it forget.
        ending.tell(&carrier, &places).await
    }

    /// Offsets where the job has bookmarks and this home has none, with nothing beside them: bookmarks of two layouts
    /// together are nobody's progress.
    pub(super) async fn given_up(&self, home: &Home) -> Result<Vec<OffsetToCommit>, JobError> {
        let offsets = self.group_offsets().await?;
        let places = home.places();
        let is_given_up = |offset: &admin::CommittedOffset| {
            let is_marked =
                Bookmark::parse(&offset.metadata).is_ok_and(|mark| mark.job == self.start.plan.name);
            is_marked && !places.contains(&(offset.topic.clone(), offset.partition))
        };
        let unmarked = |offset: admin::CommittedOffset| OffsetToCommit {
            topic: offset.topic,
            partition: offset.partition,
            offset: offset.offset,
            leader_epoch: None,
            metadata: String::new(),
        };
        Ok(offsets.committed.into_iter().filter(is_given_up).map(unmarked).collect())
    }

    /// Sees to it that the job has its topic: with a partition for each shard, where that carries positions. Also beside a
    /// store, which the job may lose while brokers forget it.
    pub(super) async fn make_own_topic(&self, home: &Home) -> Result<(), JobError> {
        let (topic, partitions) = home.own_topic();
        if self.partitions_of(&topic).await? >= partitions {
            return Ok(());
        }
        let patience = Deadline::after(self.start.host.now(), Some(limits::REPORT_EVERY * 3));
        let made =
            admin::create_topics(&self.client, &[NewTopic::new(topic.clone(), partitions)], patience).await;
        made.map_err(|error| {
            let what =
                format!("making topic {topic}, which has no records and remembers the job (CREATE on it)");
            JobError::kafka(what, error)
        })?;
        if self.partitions_of(&topic).await? < partitions {
            let grown = admin::add_partitions(&self.client, &topic, partitions, patience).await;
            grown.map_err(|error| {
                JobError::kafka(format!("adding partitions to topic {topic}, which carries positions"), error)
            })?;
        }
        let began = self.start.host.now();
        loop {
            let there = self.partitions_of(&topic).await?;
            if there >= partitions {
                return Ok(());
            }
            // Brokers learn of partitions a moment after they are made.
            if self.start.host.now().saturating_duration_since(began) >= limits::REPORT_EVERY {
                return Err(self.carrier_too_small(&topic, there, partitions));
            }
            self.start.host.sleep(limits::UNKNOWN_TOPIC_PAUSE).await;
        }
    }

    /// 0 where there is no such topic.
    pub(super) async fn partitions_of(&self, topic: &str) -> Result<i32, JobError> {
        let found = self.client.topics(&[topic]).await;
        let found = found.map_err(|error| JobError::kafka(format!("looking at topic {topic}"), error))?;
        let Some(found) = found.first().filter(|topic| topic.error != Some(UNKNOWN_TOPIC)) else {
            return Ok(0);
        };
        found.usable().map_err(|error| JobError::kafka(format!("looking at topic {topic}"), error))?;
        Ok(i32::try_from(found.partitions.len()).unwrap_or(i32::MAX))
    }

    fn carrier_too_small(&self, topic: &str, there: i32, partitions: i32) -> JobError {
        JobError::NeedsPerson {
            code: Code::TopicChanged,
            message: format!(
                "job {}: topic {topic} has {there} partitions, and needs one for each of {partitions} shards; add \
                 partitions to it; it holds nothing but offsets of this job",
                self.start.plan.name
            ),
            incident: None,
        }
    }
}
