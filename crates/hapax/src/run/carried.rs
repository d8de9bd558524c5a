//! Taking a job over whose positions are carried by its transactions (decider `transaction`).
//!
//! Owns where the job's record comes from: its bookmarks tell what it is at present; what they do not tell is in the
//! checkpoint store, where the job has one; and a job that is new has what its sources have. Refuses to take a job for new:
//! the decider asks the coordinators.

use super::{Life, Started, start, surroundings, two_phase, worker};
use crate::{
    cluster::Clusters,
    decider::{
        Brokers, Decider, RecordAt, TransactionDecider, TransactionStart, bookmarked_by, changed_meanwhile,
        not_begun, resolved,
    },
    error::{Code, JobError},
    job::{MAX_SHARDS, Plan},
    limits,
    source::SourceContext,
};
use hapax_commit::{
    AssignmentKind, DeciderKind, JobRecord, Marked, Name, Naming, Positions, Present, TopicRecord, present,
};
use hapax_host::Deadline;
use hapax_store::{PositionObjects, Store};
use std::{collections::BTreeMap, sync::atomic::Ordering};

/// What is found of a job.
struct Found {
    record: JobRecord,
    record_at: RecordAt,
    /// What its bookmarks say, where they are whole.
    present: Option<Present>,
    /// Where positions go that have no room beside an offset.
    objects: Option<PositionObjects>,
}

impl Life {
    pub(super) async fn take_over_by_offsets(&mut self) -> Result<Started, JobError> {
        let clusters = Clusters::new(self.host.clone(), &self.plan.clusters);
        let store = self.opened()?;
        let (mut decider, naming) = self.at_offsets(&clusters, &store).await?;
        decider.refuse_taken_over().await?;
        if decider.is_present() {
            self.change_by_file(&clusters, &mut decider).await?;
        }
        let takeover = decider.take_over().await?;
        // From here on the offsets are those of the life that was begun.
        self.fresh = false;
        // Also where nothing is left to do: what was committed last may not be told to every partition yet.
        let told = match decider.end_left_open().await {
            // Its offsets still name the transaction that a partition may have to be told of.
            Err(JobError::Configuration { message, .. }) if takeover.finished => {
                let job = &self.plan.name;
                tracing::warn!(%job, "the job has finished, and a topic that it wrote to is gone: {message}");
                false
            }
            told => told.map(|()| true)?,
        };
        if takeover.finished && told {
            decider.recommit().await;
        }
        if !takeover.finished {
            self.check_surroundings(&clusters, &decider).await?;
            self.look_at_durability(&clusters).await?;
        }
        let setting = worker::Setting {
            plan: self.plan.clone(),
            host: self.host.clone(),
            counters: self.counters.clone(),
            crash: self.options.crash.clone(),
            run: self.runs,
            layout: decider.shape().layout,
            transaction_timeout: decider.transaction_timeout(),
            naming,
            journal: None,
            carries: true,
        };
        Ok((Box::new(decider), takeover, setting))
    }

    /// A decider of what is there, which has touched nothing of it.
    async fn at_offsets(
        &mut self,
        clusters: &Clusters,
        store: &Store,
    ) -> Result<(TransactionDecider, Naming), JobError> {
        // An earlier start of this process may have failed behind genesis: a second one would take back what another
        // process has committed since.
        self.fresh &= !self.begun.load(Ordering::Relaxed);
        let (plan, host) = (self.plan.clone(), self.host.clone());
        let brokers = Brokers::connect(&host, clusters, &plan).await?;
        two_phase::check(&plan, &host, clusters, &brokers).await?;
        let timeout = start::transaction_timeout(&plan, &host, clusters, store, &brokers).await?;
        let Found { record, record_at, present, objects } = self.found(clusters, store, &brokers).await?;
        let naming = record.naming;
        let start = TransactionStart {
            sources: SourceContext { host: host.clone(), clusters: clusters.clone() },
            plan,
            host,
            brokers,
            record,
            record_at,
            present,
            objects,
            transaction_timeout: timeout,
            crash: self.options.crash.clone(),
            counters: self.counters.clone(),
            progress: self.options.progress.clone(),
            own: self.own_identities.clone(),
            begun: self.begun.clone(),
        };
        Ok((TransactionDecider::new(start).await?, naming))
    }

    /// What the pipeline has and the job does not know is taken in, before the job is taken over as it is from there on.
    async fn change_by_file(
        &self,
        clusters: &Clusters,
        decider: &mut TransactionDecider,
    ) -> Result<(), JobError> {
        decider.check_fit(&self.dropped())?;
        let known = decider.shape();
        // A job that has finished needs no source, and is not begun again by what came later.
        if present::is_finished(&known.genesis) {
            return Ok(());
        }
        match surroundings::shape(&self.plan, &self.host, clusters, &known).await {
            Ok(shape) => decider.revise(shape).await,
            // Nothing of the job stays open for that: it is said again when its ids are cleared.
            Err(error) => {
                let job = &self.plan.name;
                tracing::info!(%job, "what its sources have cannot be asked: {}", error.chain());
                Ok(())
            }
        }
    }

    /// Nothing may be there that would silently not be read.
    async fn check_surroundings(
        &self,
        clusters: &Clusters,
        decider: &TransactionDecider,
    ) -> Result<(), JobError> {
        let known = decider.shape();
        let shape = surroundings::shape(&self.plan, &self.host, clusters, &known).await?;
        if shape.layout == known.layout {
            return Ok(());
        }
        Err(JobError::Run {
            code: Code::Disturbed,
            message: format!(
                "job {}: its sources have other topics, partitions or files than it knows; the next run takes them in",
                self.plan.name
            ),
        })
    }

    /// Gives the job another number of shards; says what was done.
    pub(super) async fn reshape_by_offsets(mut self, shards: u32) -> Result<String, JobError> {
        self.plan.check_shard_count(shards)?;
        let (job, mut before) = (self.plan.name.clone(), None);
        loop {
            let clusters = Clusters::new(self.host.clone(), &self.plan.clusters);
            let store = self.opened()?;
            start::require(&self.plan, &self.host, &clusters, &store).await?;
            let (mut decider, _) = self.at_offsets(&clusters, &store).await?;
            if !decider.is_begun().await? {
                return Err(not_begun(&job));
            }
            let layout = decider.shape().layout;
            let (known, number) = (layout.shards.len(), layout.number);
            let (had, then) = *before.get_or_insert((known, number));
            if known == shards as usize {
                let is_done = number != then;
                return Ok(if is_done { self.reshaped(shards, had, number) } else { unchanged(&job, known) });
            }
            if number != then {
                return Err(changed_meanwhile(&job, number));
            }
            match decider.reshape(shards).await {
                Ok(shape) => return Ok(self.reshaped(shards, had, shape.layout.number)),
                // Fenced by a run that was just starting: it finds itself out when every id is cleared once more.
                Err(error) if error.is_retriable() => {
                    let wait = self.host.jitter(limits::CHANGE_PAUSE);
                    tracing::warn!(%job, "{}; tried again in {wait:?}", error.chain());
                    self.host.sleep(wait).await;
                    self.own_identities.forget();
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn reshaped(&self, shards: u32, had: usize, number: u32) -> String {
        let said = format!(
            "job {} has {shards} shards (it had {had}): layout {number}; start it again",
            self.plan.name
        );
        match self.plan.settings.shards {
            Some(in_file) if in_file != shards => {
                format!("{said}, with shards = {shards} in the pipeline file, which says {in_file}")
            }
            Some(_) | None => said,
        }
    }

    async fn found(
        &mut self,
        clusters: &Clusters,
        store: &Store,
        brokers: &Brokers,
    ) -> Result<Found, JobError> {
        let (plan, host, fresh) = (&self.plan, &self.host, self.fresh);
        if plan.settings.store.is_some() {
            let stored = start::find_stored(plan, host, clusters, store, brokers, fresh).await?;
            let anew = plan.settings.fresh && !self.begun.load(Ordering::Relaxed);
            // A second record of the same new life would be a third life.
            self.fresh = false;
            // Until that is recorded, what is committed may be the former life's.
            let has_begun = start::has_begun(&self.plan, &stored.chain).await?;
            let objects = Some(stored.objects);
            let present = if has_begun { self.present(brokers, objects.as_ref()).await? } else { None };
            let record = match &present {
                Some(present) if present.whole => known_by(&self.plan, stored.record, present),
                Some(_) | None => stored.record,
            };
            let overwrites = stored.begun_anew || anew;
            let record_at = RecordAt::Store { chain: stored.chain, overwrites };
            let present = present.filter(|present| present.whole);
            return Ok(Found { record, record_at, present, objects });
        }
        let present = if fresh { None } else { self.present(brokers, None).await? };
        let Some(present) = present else {
            let record = start::new_record(&self.plan, &self.host, clusters, store).await?;
            let record_at = RecordAt::Nowhere { overwrites: fresh };
            return Ok(Found { record, record_at, present: None, objects: None });
        };
        if let Some(fork) = &self.plan.settings.fork {
            let job = &self.plan.name;
            tracing::warn!(%job, "goes on from its own offsets: --fork-of {} counts for a new job only", fork.of);
        }
        let record = known_by(&self.plan, unrecorded(&self.plan), &present);
        let whole = present.whole;
        let present = Some(present).filter(|_| whole);
        Ok(Found { record, record_at: RecordAt::Offsets { whole }, present, objects: None })
    }

    async fn present(
        &self,
        brokers: &Brokers,
        objects: Option<&PositionObjects>,
    ) -> Result<Option<Present>, JobError> {
        let mut looks = 0;
        loop {
            let marks = self.marks(brokers).await?;
            match resolved(&self.plan.name, marks, objects).await {
                Ok(marks) => return Ok(Present::of(&marks, MAX_SHARDS)),
                // A run that is at work removes what its newest epoch does not need.
                Err(_) if looks < limits::RECORD_LOOKS => looks += 1,
                Err(error) => return Err(error),
            }
            self.host.sleep(limits::RECORD_PAUSE).await;
        }
    }

    async fn marks(&self, brokers: &Brokers) -> Result<Vec<Marked>, JobError> {
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

fn unchanged(job: &Name, known: usize) -> String {
    format!("job {job} has {known} shards; nothing was changed")
}

/// A record, with what bookmarks say of the present. Whether they are whole is judged when every id is cleared.
fn known_by(plan: &Plan, mut record: JobRecord, present: &Present) -> JobRecord {
    record.layout = present.layout.clone();
    record.genesis = present.positions.clone();
    record.topics.extend(topics(plan, &present.positions));
    record
}

/// What is known of a job without a record.
fn unrecorded(plan: &Plan) -> JobRecord {
    JobRecord {
        job: plan.name.clone(),
        created_ms: 0,
        decider: DeciderKind::Transaction,
        assignment: AssignmentKind::All,
        clusters: BTreeMap::new(),
        topics: BTreeMap::new(),
        layout: hapax_commit::Layout { number: 1, shards: BTreeMap::new() },
        genesis: Positions::new(),
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
