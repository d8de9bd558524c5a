//! Taking a job over whose positions are carried by its transactions (decider `transaction`).
//!
//! Owns where the job's record comes from: the checkpoint store, where the job has one; else the bookmarks beside its
//! offsets; else, for a job that is new, the sources. Refuses to take a job for new: the decider asks the coordinators.

use super::{Life, Started, start, surroundings, two_phase, worker};
use crate::{
    cluster::Clusters,
    decider::{Brokers, Decider, RecordAt, TransactionDecider, TransactionStart, bookmarked_by},
    error::{Code, JobError},
    job::Plan,
    limits,
    source::SourceContext,
};
use hapax_commit::{
    AssignmentKind, Bookmark, DeciderKind, JobRecord, Layout, Name, Naming, Positions, Reading, ShardId,
    SplitId, TopicRecord,
};
use hapax_host::Deadline;
use hapax_store::Store;
use std::{collections::BTreeMap, sync::atomic::Ordering};

impl Life {
    pub(super) async fn take_over_by_offsets(&mut self) -> Result<Started, JobError> {
        let clusters = Clusters::new(self.host.clone(), &self.plan.clusters);
        let store = self.opened()?;
        // An earlier start of this process may have failed behind genesis: a second one would take back what another
        // process has committed since.
        self.fresh &= !self.begun.load(Ordering::Relaxed);
        let (plan, host) = (self.plan.clone(), self.host.clone());
        let brokers = Brokers::connect(&host, &clusters, &plan).await?;
        two_phase::check(&plan, &host, &clusters, &brokers).await?;
        let timeout = start::transaction_timeout(&plan, &host, &clusters, &store, &brokers).await?;
        let (record, record_at) = self.found(&clusters, &store, &brokers).await?;
        check_shape(&plan, &record)?;
        let sources = SourceContext { host: host.clone(), clusters: clusters.clone() };
        // Where offsets are gone, their splits look like new ones: the decider says which they are.
        if !matches!(record_at, RecordAt::Offsets { whole: false }) {
            match unknown_splits(&plan, &sources, &record).await {
                Ok(unknown) => check_known(&plan, &unknown)?,
                // A job that has finished needs no source; one that has not asks again before it reads.
                Err(error) => {
                    tracing::info!(job = %plan.name, "what its sources have cannot be asked: {}", error.chain());
                }
            }
        }
        let layout = record.layout.clone();
        let start = TransactionStart {
            plan: plan.clone(),
            host: host.clone(),
            sources: sources.clone(),
            brokers,
            record: record.clone(),
            record_at,
            transaction_timeout: timeout,
            crash: self.options.crash.clone(),
            counters: self.counters.clone(),
            progress: self.options.progress.clone(),
            own: self.own_identities.clone(),
            begun: self.begun.clone(),
        };
        let mut decider = TransactionDecider::new(start).await?;
        let takeover = decider.take_over().await?;
        // From here on the offsets are those of the life that was begun.
        self.fresh = false;
        // Also where nothing is left to do: what was committed last may not be told to every partition yet.
        match decider.end_left_open().await {
            Err(JobError::Configuration { message, .. }) if takeover.finished => {
                tracing::info!(job = %plan.name, "the job has finished, and a topic that it wrote to is gone: {message}");
            }
            told => told?,
        }
        if takeover.finished {
            decider.recommit().await;
        } else {
            surroundings::check(&plan, &host, &clusters, &record).await?;
            check_known(&plan, &unknown_splits(&plan, &sources, &record).await?)?;
            self.look_at_durability(&clusters).await?;
        }
        let setting = worker::Setting {
            plan,
            host,
            counters: self.counters.clone(),
            crash: self.options.crash.clone(),
            run: self.runs,
            layout,
            transaction_timeout: timeout,
            naming: record.naming,
            journal: None,
            carries: true,
        };
        Ok((Box::new(decider), takeover, setting))
    }

    async fn found(
        &mut self,
        clusters: &Clusters,
        store: &Store,
        brokers: &Brokers,
    ) -> Result<(JobRecord, RecordAt), JobError> {
        let (plan, host, fresh) = (&self.plan, &self.host, self.fresh);
        if plan.settings.store.is_some() {
            let stored = start::find_stored(plan, host, clusters, store, brokers, fresh).await?;
            let anew = plan.settings.fresh && !self.begun.load(Ordering::Relaxed);
            // A second record of the same new life would be a third life.
            self.fresh = false;
            return Ok((
                stored.record,
                RecordAt::Store { chain: stored.chain, overwrites: stored.begun_anew || anew },
            ));
        }
        let marks = if fresh { Vec::new() } else { self.bookmarks(brokers).await? };
        if marks.is_empty() {
            let record = start::new_record(plan, host, clusters, store).await?;
            return Ok((record, RecordAt::Nowhere { overwrites: fresh }));
        }
        let record = recorded(plan, &marks);
        let splits = marks.iter().map(|mark| mark.splits as usize).max();
        let whole = splits == Some(record.genesis.len());
        Ok((record, RecordAt::Offsets { whole }))
    }

    async fn bookmarks(&self, brokers: &Brokers) -> Result<Vec<Bookmark>, JobError> {
        let mut marks = Vec::new();
        for (name, client) in brokers.transactional() {
            let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY * 3));
            let found = bookmarked_by(client, &self.plan.name, patience).await;
            marks.extend(found.map_err(|error| {
                JobError::kafka(format!("reading the job's offsets on cluster {name}"), error)
            })?);
        }
        Ok(marks)
    }
}

/// A job of this decider has the shards and splits that it was created with.
fn check_shape(plan: &Plan, record: &JobRecord) -> Result<(), JobError> {
    let changed = |why: String| {
        Err(JobError::Configuration { code: Code::JobChanged, message: format!("job {}: {why}", plan.name) })
    };
    let known = record.layout.shards.len();
    if let Some(wanted) = plan.settings.shards.filter(|wanted| *wanted as usize != known) {
        return changed(format!(
            "shards = {wanted}, and the job was created with {known}; with decider \"transaction\" the number is fixed: put \
             shards = {known}, or begin anew with --fresh"
        ));
    }
    let is_gone = |split: &&SplitId| !plan.sources.iter().any(|source| source.has(split));
    match record.genesis.keys().find(is_gone) {
        Some(split) => changed(format!(
            "it has a position in {}, which no source of the pipeline reads any more; put it back, or begin anew with \
             --fresh",
            split.0
        )),
        None => Ok(()),
    }
}

/// What the sources have beside the splits that the job was created with.
async fn unknown_splits(
    plan: &Plan,
    cx: &SourceContext,
    record: &JobRecord,
) -> Result<Vec<SplitId>, JobError> {
    let mut unknown = Vec::new();
    for source in &plan.sources {
        unknown.extend(source.added(cx, &record.genesis).await?.into_keys());
    }
    Ok(unknown)
}

/// Nothing may be there that would silently not be read.
fn check_known(plan: &Plan, unknown: &[SplitId]) -> Result<(), JobError> {
    if unknown.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = unknown.iter().take(8).map(|split| split.0.as_str()).collect();
    let more = if unknown.len() > names.len() { ", .." } else { "" };
    Err(JobError::Configuration {
        code: Code::JobChanged,
        message: format!(
            "job {}: its sources have {}{more}, which it does not know; with decider \"transaction\" what a job reads is \
             fixed when it is created: take that out, begin anew with --fresh, which may write records a second time, or \
             let a job with decider = \"checkpoint\" read it",
            plan.name,
            names.join(", ")
        ),
    })
}

/// The record that bookmarks amount to. Whether they are whole is judged when every id is cleared.
fn recorded(plan: &Plan, marks: &[Bookmark]) -> JobRecord {
    let shards = marks.iter().map(|mark| mark.shards).max().unwrap_or(0).min(crate::job::MAX_SHARDS);
    let mut layout: BTreeMap<ShardId, Vec<SplitId>> = (0..shards).map(|n| (ShardId(n), Vec::new())).collect();
    let mut genesis = Positions::new();
    for mark in marks {
        let Reading::Positions(positions) = &mark.at else { continue };
        layout.entry(mark.shard).or_default().extend(positions.keys().cloned());
        genesis.extend(positions.clone());
    }
    JobRecord {
        job: plan.name.clone(),
        created_ms: 0,
        decider: DeciderKind::Transaction,
        assignment: AssignmentKind::All,
        clusters: BTreeMap::new(),
        topics: topics(plan, &genesis),
        layout: Layout { number: marks.iter().map(|mark| mark.layout).max().unwrap_or(1), shards: layout },
        genesis,
        pipeline: plan.pipeline.clone(),
        naming: Naming::Rotating,
    }
}

/// The topics that positions tell of, with as many partitions as there are positions.
fn topics(plan: &Plan, positions: &Positions) -> BTreeMap<String, TopicRecord> {
    let mut topics: BTreeMap<String, TopicRecord> = BTreeMap::new();
    for (split, position) in positions {
        let place = plan.sources.iter().find_map(|source| {
            let cluster: &Name = source.kafka_cluster()?;
            split.0.strip_prefix(source.name())?.strip_prefix('/')?;
            Some((cluster, source.kafka_partition(split)?.0))
        });
        if let (Some((cluster, topic)), Some(topic_id)) = (place, position.topic_id) {
            let known = topics.entry(format!("{cluster}/{topic}"));
            known.or_insert(TopicRecord { topic_id, partitions: 0 }).partitions += 1;
        }
    }
    topics
}
