//! `--fresh`: the end of a job's life, and the next one.
//!
//! Owns that no run of the former life can put a slot any more before the next one has its record, and what the first claim
//! of that one takes over. Refuses nothing that is damaged or missing: both are reasons to begin anew.

use super::Begin;
use crate::{
    decider::Brokers,
    error::{Code, JobError},
    limits,
};
use hapax_commit::{
    Generation, JobRecord, Naming, RunNonce, Slot, SlotBody, SlotNumber, TransactionalId, chain::ChainView,
};
use hapax_store::{Chain, Incarnation, PutOutcome};
use std::collections::{BTreeMap, BTreeSet};

impl Begin<'_> {
    /// `--fresh`: fences what may still run on the old chain, then begins the next incarnation.
    ///
    /// A life that `--fresh` has begun is never the first one, also in a store that is empty: the brokers may know a life
    /// before it by the job's ids, and each later start has to know that what they call committed is no newer store's.
    pub(super) async fn anew(&self) -> Result<(Incarnation, JobRecord), JobError> {
        self.probe().await?;
        let (old, record) = match self.newest_incarnation().await? {
            Some(old) => {
                // Where no record is, no run can put a slot any more.
                if let Some(stored) = self.newest_record().await? {
                    self.close(stored).await?;
                }
                (old, self.record().await?)
            }
            None => {
                let record = self.record().await?;
                self.stand_in_for_the_first(&record).await?;
                (Incarnation::FIRST, record)
            }
        };
        let created = self.store.begin_again(&record, old).await;
        tracing::warn!(job = %self.plan.name, "begins anew: positions of the former job are not used");
        Self::created(record, created.map_err(|error| self.store_error("creating the job record", error))?)
    }

    /// A first life that never runs. Another start may be making it just now, so its chain is closed like any other.
    async fn stand_in_for_the_first(&self, record: &JobRecord) -> Result<(), JobError> {
        let created = self.store.create_job(record).await;
        created.map_err(|error| self.store_error("creating the job record", error))?;
        self.close(Incarnation::FIRST).await
    }

    /// The newest life of the job that has a record, also one that cannot be read.
    async fn newest_record(&self) -> Result<Option<Incarnation>, JobError> {
        match self.store.job(&self.plan.name).await {
            Ok(stored) => Ok(stored.map(|stored| stored.incarnation)),
            Err(error) if error.is_damage() => {
                tracing::warn!(job = %self.plan.name, "{error}; begins anew without it");
                self.newest_incarnation().await
            }
            Err(error) => Err(self.store_error("reading the job record", error)),
        }
    }

    /// Puts a claim behind the end of a chain that will not be used again.
    async fn close(&self, old: Incarnation) -> Result<(), JobError> {
        let chain = self.store.chain(&self.plan.name, old, 0);
        let last = async || {
            let last = chain.last_number().await;
            last.map_err(|error| self.store_error("finding the chain's end", error))
        };
        for _ in 0..limits::CLAIM_TRIES {
            let number = last().await?.map_or(SlotNumber::FIRST, SlotNumber::next);
            let claim = hapax_commit::Claim {
                ids: BTreeMap::new(),
                layout: 0,
                naming: Naming::Rotating,
                by: "--fresh".into(),
            };
            let slot = Slot {
                number,
                run: RunNonce(self.host.random_u128()),
                generation: Generation(number.0),
                written_ms: self.host.wall_ms(),
                body: SlotBody::Claim(claim),
            };
            match chain.put(&slot).await {
                // A number that was filled and pruned meanwhile keeps nobody from writing behind it.
                PutOutcome::Stored if last().await? > Some(number) => {}
                PutOutcome::Stored => return Ok(()),
                PutOutcome::Taken(_) => {}
                PutOutcome::Unknown(error) => return Err(self.store_error("closing the old chain", error)),
            }
        }
        Err(JobError::Run {
            code: Code::Disturbed,
            message: format!(
                "job {}: the old chain could not be closed, other runs keep writing to it",
                self.plan.name
            ),
        })
    }

    /// What a chain that has no claim yet takes over: without it, transactions that the life before left open under ids
    /// of shards or clusters that the job has no more would keep readers waiting for the transaction timeout.
    pub(super) async fn inherited(
        &self,
        incarnation: Incarnation,
        chain: &Chain,
        brokers: &Brokers,
    ) -> Result<BTreeMap<String, BTreeSet<TransactionalId>>, JobError> {
        let last = chain.last_number().await;
        let claimed = last.map_err(|error| self.store_error("finding the chain's end", error))?.is_some();
        let Some(former) = incarnation.former().filter(|_| !claimed) else { return Ok(BTreeMap::new()) };
        // A damaged chain is a reason to begin anew, so it is none to stop here.
        let slots =
            self.store.chain(&self.plan.name, former, 0).read().await.map_err(|error| error.to_string());
        let view = slots.and_then(|slots| ChainView::read(&slots).map_err(|fault| fault.to_string()));
        let mut ids = match view {
            Ok(view) => view.ids(),
            Err(why) => {
                tracing::warn!(job = %self.plan.name, "the chain of the former job cannot be read ({why}): what it left open ends with its transaction timeout");
                return Ok(BTreeMap::new());
            }
        };
        for cluster_id in ids.keys().cloned().collect::<Vec<_>>() {
            match brokers.client(&cluster_id, "what the former job left").await {
                Ok(_) => {}
                Err(error @ JobError::Configuration { .. }) => {
                    tracing::warn!(job = %self.plan.name, "what the former job left open ends with its transaction timeout: {error}");
                    ids.remove(&cluster_id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ids)
    }
}
