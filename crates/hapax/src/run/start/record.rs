//! The job's record in the checkpoint store: read, or made where there was never one.
//!
//! Owns what a record of a new job holds, and whether a record that is there fits the job that is to run. Refuses a chain
//! without its record, another decider than the one that the job was created with, and another cluster under a known name.

use super::{
    Begin,
    store::{StoreWaits, open_at},
};
use crate::{
    assignment::{All, Assignment},
    decider::Brokers,
    error::{Code, JobError},
    limits,
    run::{fork, surroundings},
    source::SourceContext,
};
use hapax_commit::{DeciderKind, JobRecord, Name, Positions, RunNonce};
use hapax_kafka::Client;
use hapax_store::{Created, Incarnation, StoredJob};

impl Begin<'_> {
    /// The job's record, which is made where there was never one.
    pub(super) async fn found_or_made(
        &self,
        brokers: &Brokers,
        used: bool,
    ) -> Result<(Incarnation, JobRecord), JobError> {
        let mut stored = self.stored().await?;
        // A store that this process has used and that is empty now was unmounted or removed.
        if stored.is_none()
            && self.plan.settings.store.is_some()
            && let Err(lost) = self.refuse_lost_store(brokers, used).await
        {
            // Another first start may have made the record since, and begun with the ids.
            stored = self.stored().await?;
            if stored.is_none() {
                if self.plan.decider() == DeciderKind::Checkpoint {
                    self.refuse_carried(brokers).await?;
                }
                return Err(lost);
            }
        }
        match stored {
            Some(stored) => {
                self.tell_not_forked();
                Ok((stored.incarnation, stored.record))
            }
            None => self.create().await,
        }
    }

    /// The record of a job that must be there.
    pub(super) async fn required(&self) -> Result<StoredJob, JobError> {
        self.stored().await?.ok_or_else(|| JobError::Configuration {
            code: Code::Usage,
            message: format!("job {}: the checkpoint store {} has no such job", self.plan.name, self.url()),
        })
    }

    /// The record of a new job: concrete positions before the first record is read.
    pub(super) async fn record(&self) -> Result<JobRecord, JobError> {
        let cx = SourceContext { host: self.host.clone(), clusters: self.clusters.clone() };
        let mut genesis = Positions::new();
        for source in &self.plan.sources {
            genesis.extend(source.genesis(&cx).await?);
        }
        if let Some(fork) = &self.plan.settings.fork {
            let store = match &fork.store {
                Some(url) => open_at(url, self.plan, self.host, &StoreWaits::default())?,
                None => self.store.clone(),
            };
            fork::begin(self.plan, &cx, &store, fork, &mut genesis).await?;
        }
        let shards = self.plan.settings.shards.unwrap_or_else(|| default_shards(genesis.len()));
        Ok(JobRecord {
            job: self.plan.name.clone(),
            created_ms: self.host.wall_ms(),
            decider: self.plan.decider(),
            assignment: All.kind(),
            naming: self.plan.settings.naming.unwrap_or_default(),
            clusters: surroundings::clusters_now(self.clusters).await?,
            topics: surroundings::records(&surroundings::topics(self.plan, &cx).await?),
            layout: All.layout(&genesis, shards),
            genesis,
            pipeline: self.plan.pipeline.clone(),
        })
    }

    /// What makes epochs final is fixed with the job: the positions of one decider mean nothing to the other.
    pub(super) fn check_decider(&self, known: DeciderKind) -> Result<(), JobError> {
        let wanted = self.plan.decider();
        if known == wanted {
            return Ok(());
        }
        Err(self.other_decider(known, "the checkpoint store says that the job was created with"))
    }

    pub(super) fn other_decider(&self, known: DeciderKind, how: &str) -> JobError {
        let (known, wanted) = (known.name(), self.plan.decider().name());
        JobError::Configuration {
            code: Code::JobChanged,
            message: format!(
                "job {}: {how} decider \"{known}\", and it would run with \"{wanted}\"{}; set decider = \"{known}\" at \
                 the top of the file, or begin anew with --fresh",
                self.plan.name,
                match self.plan.settings.decider {
                    Some(_) => ", as the file says",
                    None => ", which is the default for its present sources and sinks",
                }
            ),
        }
    }

    pub(super) fn check_cluster(
        &self,
        record: &JobRecord,
        name: &Name,
        client: &Client,
    ) -> Result<(), JobError> {
        let id = client.cluster_id();
        match record.clusters.get(name) {
            Some(known) if known.cluster_id != id => Err(self.needs_person(
                Code::StoreForeign,
                format!(
                    "cluster {name} has id {id}, and the checkpoint store {} was written with id {}; put the right \
                     addresses into [cluster.{name}] (for an embedded broker, its journal back in its place), or use a \
                     store of its own",
                    self.url(),
                    known.cluster_id
                ),
            )),
            _ => Ok(()),
        }
    }

    pub(super) async fn newest_incarnation(&self) -> Result<Option<Incarnation>, JobError> {
        let newest = self.store.newest_incarnation(&self.plan.name).await;
        newest.map_err(|error| self.store_error("looking for former lives of the job", error))
    }

    pub(super) async fn probe(&self) -> Result<(), JobError> {
        let run = RunNonce(self.host.random_u128());
        self.store
            .probe(run)
            .await
            .map_err(|error| self.store_error("probing that a slot is created only once", error))
    }

    pub(super) fn created(record: JobRecord, created: Created) -> Result<(Incarnation, JobRecord), JobError> {
        Ok(match created {
            Created::Mine(incarnation) => (incarnation, record),
            Created::Existed(stored) => (stored.incarnation, stored.record),
        })
    }

    /// The job's record. A folder without one may be another start's that is putting it just now.
    async fn stored(&self) -> Result<Option<StoredJob>, JobError> {
        for _ in 0..limits::RECORD_LOOKS {
            let stored = self.store.job(&self.plan.name).await;
            let stored = stored.map_err(|error| self.store_error("reading the job record", error))?;
            if stored.is_some() || self.newest_incarnation().await?.is_none() {
                return Ok(stored);
            }
            self.host.sleep(limits::RECORD_PAUSE).await;
        }
        Err(JobError::NeedsPerson {
            code: Code::StoreDamaged,
            message: format!(
                "job {}: the checkpoint store {} has a chain of this job and not its record; nothing was changed, bring \
                 the record back from where it is whole, or begin anew with --fresh",
                self.plan.name,
                self.url()
            ),
            incident: None,
        })
    }

    async fn create(&self) -> Result<(Incarnation, JobRecord), JobError> {
        self.probe().await?;
        let record = self.record().await?;
        let created = self.store.create_job(&record).await;
        Self::created(record, created.map_err(|error| self.store_error("creating the job record", error))?)
    }

    /// A supervisor starts a job again with the arguments that it was created with.
    fn tell_not_forked(&self) {
        if let Some(fork) = &self.plan.settings.fork {
            tracing::warn!(job = %self.plan.name, "goes on from its own checkpoint: --fork-of {} counts for a new job only", fork.of);
        }
    }
}

fn default_shards(splits: usize) -> u32 {
    u32::try_from(splits.clamp(1, limits::DEFAULT_SHARDS)).expect("the default is small")
}
