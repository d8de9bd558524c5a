//! The first transaction of a job: start and end positions of every split of every shard, before a record is read.
//!
//! One transaction on one id, so that there is one genesis, whoever else begins the job at the same time: an id has one
//! owner, the offsets are read after it is taken, and the first commit is found by every later reader. Until then no
//! other id of the job is touched, which is how a start that died here is told from offsets that were lost.

use super::{Cleared, RecordAt, TransactionDecider, beginning::Beginning};
use crate::{
    error::{Code, JobError},
    limits,
};
use hapax_commit::{
    Bookmark, Claim, Epoch, Generation, Identity, RunNonce, Slot, SlotBody, SlotNumber, TransactionalId,
    bookmark::{self, FoundOffset, Past},
    evidence::Described,
    present::Ids,
    takeover::Sought,
};
use hapax_host::Deadline;
use hapax_kafka::transaction::{self, ListFilter};
use hapax_store::PutOutcome;
use std::{collections::BTreeSet, sync::atomic::Ordering};

impl TransactionDecider {
    /// Refuses to begin a job that has run.
    pub(super) async fn refuse_past(&mut self) -> Result<(), JobError> {
        match &self.start.record_at {
            RecordAt::Nowhere { overwrites: false } => self.refuse_past_without_store().await,
            // A store that the job has got since, or an empty one in place of its own.
            RecordAt::Store { overwrites: false, .. }
                if bookmark::judge_past(&self.ids().lock, &self.looks) == Past::None =>
            {
                self.refuse_remembered().await
            }
            RecordAt::Nowhere { .. } | RecordAt::Store { .. } | RecordAt::Offsets { .. } => Ok(()),
        }
    }

    /// The ids of the job with those that its former life may have used.
    pub(super) async fn former_ids(&mut self) -> Result<Ids, JobError> {
        self.home = self.home.clone().ever(self.shards_of_former_life().await?);
        Ok(self.ids())
    }

    /// Tells partitions how the former life's transactions ended. What it has committed last is named by the bookmarks that
    /// genesis will replace.
    pub(super) async fn end_former_life(&mut self, cleared: Cleared) -> Result<(), JobError> {
        let committed = self.committed_by_former_life().await?;
        self.cleared = Some(cleared);
        self.left_open_ended(&committed).await?;
        self.cleared = None;
        Ok(())
    }

    /// How many shards bookmarks of the former life tell of.
    async fn shards_of_former_life(&self) -> Result<u32, JobError> {
        let offsets = self.group_offsets().await?;
        let marks = offsets.committed.iter().filter_map(|offset| Bookmark::parse(&offset.metadata).ok());
        let ever = marks.filter(|mark| mark.job == self.start.plan.name).map(|mark| mark.ever()).max();
        Ok(ever.unwrap_or(0).min(crate::job::MAX_SHARDS))
    }

    async fn committed_by_former_life(&self) -> Result<BTreeSet<Identity>, JobError> {
        let offsets = self.group_offsets().await?;
        let marks = offsets.committed.iter().filter_map(|offset| Bookmark::parse(&offset.metadata).ok());
        Ok(marks.filter(|mark| mark.job == self.start.plan.name).map(|mark| mark.by).collect())
    }

    /// A job without offsets that coordinators know has lost them.
    async fn refuse_past_without_store(&mut self) -> Result<(), JobError> {
        let mut past = bookmark::judge_past(&self.ids().lock, &self.looks);
        if matches!(past, Past::None | Past::Interrupted)
            && let Some(listed) = self.listed().await?
        {
            past = Past::Known(listed);
        }
        match past {
            Past::None => self.refuse_remembered().await,
            Past::Interrupted => Ok(()),
            Past::Known(_) if self.is_bookmarked().await? => {
                self.tell_of_genesis().await?;
                Err(self.begun_meanwhile())
            }
            Past::Known(id) => Err(self.known(&id)),
            Past::Unanswered(id, why) => Err(self.unanswered(&id, &why)),
        }
    }

    fn known(&self, id: &TransactionalId) -> JobError {
        self.progress_lost(&format!(
            "no offset of it is committed, but it has run before: the brokers know {id} (where it ran with decider \
             \"checkpoint\", set that, with its store)"
        ))
    }

    fn unanswered(&self, id: &TransactionalId, why: &str) -> JobError {
        JobError::Run {
            code: Code::Unreachable,
            message: format!(
                "job {}: asking whether {id} is known: {why}; a job whose past is not known is not begun",
                self.start.plan.name
            ),
        }
    }

    fn begun_meanwhile(&self) -> JobError {
        JobError::Run {
            code: Code::Disturbed,
            message: format!("job {}: another run has begun it meanwhile", self.start.plan.name),
        }
    }

    /// A start that died behind the commit of genesis may have left the offsets' partition without its marker
    /// (KAFKA-20734); the next run finds the job only when it has it. Whoever is at work still is fenced, and starts again.
    async fn tell_of_genesis(&mut self) -> Result<(), JobError> {
        self.start.host.sleep(limits::UNTOLD_OFFSETS).await;
        if self.unstable().await?.is_empty() || self.listed().await?.is_some() {
            return Ok(());
        }
        let cleared = self.clear(&[self.ids().lock]).await?;
        match self.tell_offsets_partition(&cleared).await? {
            None => Ok(()),
            Some(unexplained) => Err(unexplained),
        }
    }

    /// Brokers have forgotten the offsets and ids of a job that was stopped for as long as they keep them; its topic is
    /// still there. A start that died behind making it has left the id of genesis, too, for as long.
    async fn refuse_remembered(&self) -> Result<(), JobError> {
        let (topic, _) = self.home.own_topic();
        if self.partitions_of(&topic).await? == 0 {
            return Ok(());
        }
        // Whoever begins the job takes the id of genesis before it makes the topic.
        let id = self.ids().lock.to_string();
        match self.start.brokers.describe(&self.client, &id).await {
            Described::Forgotten => {}
            Described::Known { .. } | Described::Unanswered(_) => return Err(self.begun_meanwhile()),
        }
        Err(self.progress_lost(&format!(
            "no offset of it is committed, and topic {topic} says that it has run before (if it never has, delete that topic)"
        )))
    }

    /// Whoever begins the job commits genesis before it touches any other id: asked after the ids, this tells the two
    /// apart.
    async fn is_bookmarked(&self) -> Result<bool, JobError> {
        let is_under_way = !self.unstable().await?.is_empty();
        let offsets = self.group_offsets().await?;
        let mut marks = offsets.committed.iter().filter_map(|offset| Bookmark::parse(&offset.metadata).ok());
        Ok(is_under_way || marks.any(|mark| mark.job == self.start.plan.name))
    }

    /// An id of the job beside that of genesis, also of shards that the present file does not have.
    async fn listed(&self) -> Result<Option<TransactionalId>, JobError> {
        let patience = Deadline::after(self.start.host.now(), Some(limits::REPORT_EVERY * 3));
        let listed = transaction::list_transactions(&self.client, &ListFilter::default(), patience).await;
        let listed =
            listed.map_err(|error| JobError::kafka("listing the transactions of the cluster", error))?;
        let ids = listed.iter().filter_map(|listed| TransactionalId::parse(&listed.transactional_id));
        let lock = self.ids().lock;
        let mut ours = ids.filter(|id| id.job == self.start.plan.name && *id != lock);
        Ok(ours.next())
    }

    /// Is genesis committed already, by another start or by one that died behind it? Without a store there is nothing but the
    /// offsets, and whoever finds some goes on from them.
    pub(super) async fn sought(&self, found: &[FoundOffset]) -> Result<Sought, JobError> {
        if found.is_empty() {
            // A start that died before that has used this id alone, and committed nothing.
            return match bookmark::judge_past(&self.ids().lock, &self.looks) {
                Past::None | Past::Interrupted => Ok(Sought::Nothing),
                Past::Known(id) => Err(self.known(&id)),
                Past::Unanswered(id, why) => Err(self.unanswered(&id, &why)),
            };
        }
        let progress = self.judge(found).await?;
        let at_genesis = progress.shards.values().all(|shard| {
            let same =
                shard.positions.iter().all(|(split, at)| self.start.record.genesis.get(split) == Some(at));
            shard.epoch == Epoch::GENESIS && same
        });
        Ok(match self.start.record_at {
            RecordAt::Store { .. } if !at_genesis => Sought::Beyond,
            RecordAt::Store { .. } | RecordAt::Nowhere { .. } | RecordAt::Offsets { .. } => Sought::Genesis,
        })
    }

    pub(super) fn store_is_not_its_own(&self) -> JobError {
        JobError::NeedsPerson {
            code: Code::StoreLost,
            message: format!(
                "job {}: the checkpoint store has a new record of the job, and the offsets of group {} say that it \
                 has run before; with the former store back it goes on, take the store out of the file if it ran \
                 without one, or begin anew with --fresh, which may write records a second time",
                self.start.plan.name,
                self.home.group()
            ),
            incident: None,
        }
    }

    /// Commits it under the identity that the lock was cleared with.
    pub(super) async fn commit_genesis(&self, identity: Identity) -> Result<(), JobError> {
        self.make_own_topic(&self.home).await?;
        let given_up = if self.overwrites() { self.given_up(&self.home).await? } else { Vec::new() };
        let beginning = Beginning {
            layout: &self.start.record.layout,
            positions: &self.start.record.genesis,
            home: &self.home,
            given_up,
        };
        self.commit_beginning(
            identity,
            beginning,
            |_| {},
            || self.start.begun.store(true, Ordering::Relaxed),
        )
        .await?;
        tracing::info!(job = %self.start.plan.name, "start positions are committed");
        Ok(())
    }

    /// The one slot of the chain: behind it records are read, so that without offsets the job has lost them.
    pub(super) async fn record_genesis(&self) -> Result<(), JobError> {
        let RecordAt::Store { chain, .. } = &self.start.record_at else { return Ok(()) };
        let ids = [(self.client.cluster_id().to_owned(), self.ids().all())].into();
        let by = format!("process {}", self.start.host.process_id());
        let slot = Slot {
            number: SlotNumber::FIRST,
            run: RunNonce(self.start.host.random_u128()),
            generation: Generation(SlotNumber::FIRST.0),
            written_ms: self.start.host.wall_ms(),
            body: SlotBody::Claim(Claim {
                ids,
                layout: self.start.record.layout.number,
                naming: self.start.record.naming,
                by,
            }),
        };
        match chain.put(&slot).await {
            PutOutcome::Stored | PutOutcome::Taken(_) => Ok(()),
            PutOutcome::Unknown(error) => {
                let attempted = format!("job {}: recording that it has begun", self.start.plan.name);
                Err(JobError::store(attempted, error))
            }
        }
    }
}
