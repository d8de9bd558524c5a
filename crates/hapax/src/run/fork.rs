//! Where a job begins that goes on from another one's: at a checkpoint that is kept in a store, or, where the other one's
//! transactions carry its positions, at the offsets that they have committed.
//!
//! The other job's store or offsets are read and nothing else of it: neither its chain nor its transactions are touched,
//! whatever state they are in. Refuses what is not proven, since records of it may come out of the other job yet. Either job
//! may have either decider: a fork is how a job gets another one.

use crate::{
    decider::{bookmarked_by, group, resolved},
    error::{Code, JobError},
    job::{Fork, MAX_SHARDS, Plan},
    limits,
    source::SourceContext,
};
use hapax_commit::{
    DeciderKind, Epoch, JobRecord, Manifest, Marked, Name, Positions, Present, Shape, Slot,
    chain::ChainView,
    history::{self, Standing},
};
use hapax_host::Deadline;
use hapax_kafka::{Client, admin};
use hapax_store::{PositionObjects, Store};
use std::collections::{BTreeMap, BTreeSet};

/// Gives the splits of a new job the positions that another job's checkpoint has for them. Those that the other one does
/// not have begin where they would.
pub(super) async fn begin(
    plan: &Plan,
    cx: &SourceContext,
    store: &Store,
    fork: &Fork,
    genesis: &mut Positions,
) -> Result<(), JobError> {
    let of = Name::new(&fork.of).map_err(|error| refused(plan, format!("--fork-of: {error}")))?;
    let Origin { positions, behind } = origin(plan, cx, store, fork, &of).await?;
    let mut taken = 0;
    for (split, own) in genesis.iter_mut() {
        match positions.get(split) {
            Some(other) => {
                *own = hapax_commit::Position { end: own.end, ..other.clone() };
                taken += 1;
            }
            None => {
                tracing::info!(job = %plan.name, "{of} does not read {}: this job reads it from its start", split.0);
            }
        }
    }
    if taken == 0 {
        let reads: Vec<&str> = positions.keys().take(8).map(|split| split.0.as_str()).collect();
        return Err(refused(
            plan,
            format!(
                "nothing that this job reads has a position in {behind} of job {of}, which reads {}; sources must have the \
                 same names in both",
                reads.join(", ")
            ),
        ));
    }
    for source in &plan.sources {
        source.serves(cx, genesis).await?;
    }
    tracing::warn!(job = %plan.name, "begins as a fork of job {of}, behind {behind}: {taken} splits");
    Ok(())
}

/// Where the other job stands.
struct Origin {
    positions: Positions,
    /// Behind what, in words.
    behind: String,
}

async fn origin(
    plan: &Plan,
    cx: &SourceContext,
    store: &Store,
    fork: &Fork,
    of: &Name,
) -> Result<Origin, JobError> {
    let failed = |what: &str, error| JobError::store(format!("job {}: {what} of job {of}", plan.name), error);
    let stored = store.job(of).await.map_err(|error| failed("reading the record", error))?;
    // The chain of a job whose transactions carry its positions has no checkpoint: read as one, it says "the beginning".
    match &stored {
        Some(stored) if stored.record.decider == DeciderKind::Checkpoint => {
            let slots = store.chain(of, stored.incarnation, 0).read().await;
            let slots = slots.map_err(|error| failed("reading the checkpoints", error))?;
            let shape = shape(plan, of, &stored.record, &slots)?;
            let checkpoint = chosen(plan, fork, &slots)?;
            let epoch = checkpoint.as_ref().map_or(Epoch::GENESIS, |manifest| manifest.epoch);
            let behind = format!("checkpoint {epoch}");
            return Ok(Origin { positions: shape.positions(checkpoint.as_ref()), behind });
        }
        Some(_) | None => {}
    }
    let objects = stored.as_ref().map(|stored| store.positions(of, stored.incarnation));
    if let Some(origin) = carried(plan, cx, fork, of, objects.as_ref()).await? {
        return Ok(origin);
    }
    let survey = store.survey().await.map_err(|error| failed("looking for the folder", error))?;
    let jobs: Vec<String> = survey.jobs.iter().map(Name::to_string).collect();
    Err(refused(
        plan,
        format!(
            "--fork-of {of}: the store has no checkpoint of such a job (it has {}), and no cluster of the pipeline file has \
             committed offsets of it in group {of}; name its store with --fork-store URL, or put the cluster of its sinks \
             into the file",
            if jobs.is_empty() { "no job".to_owned() } else { format!("jobs {}", jobs.join(", ")) }
        ),
    ))
}

/// What the other job's transactions have committed.
async fn carried(
    plan: &Plan,
    cx: &SourceContext,
    fork: &Fork,
    of: &Name,
    objects: Option<&PositionObjects>,
) -> Result<Option<Origin>, JobError> {
    let mut found = BTreeMap::new();
    for name in plan.clusters.keys() {
        let client = cx.clusters.connected(name).await?;
        let marks = settled_marks(plan, cx, of, name, &client).await?;
        if !marks.is_empty() {
            found.insert(client.cluster_id().to_owned(), (name, marks));
        }
    }
    let mut found = found.into_values();
    let (Some((name, marks)), more) = (found.next(), found.next()) else { return Ok(None) };
    if let Some((other, _)) = more {
        return Err(refused(
            plan,
            format!(
                "--fork-of {of}: clusters {name} and {other} both have offsets of it, of which one is an earlier life's; delete \
                 group {of} where the job does not run any more"
            ),
        ));
    }
    let marks = match resolved(of, marks, objects).await {
        Err(JobError::NeedsPerson { message, .. }) if objects.is_none() => {
            return Err(refused(
                plan,
                format!("--fork-of {of}: {message}; its store is named with --fork-store URL"),
            ));
        }
        resolved => resolved?,
    };
    let Some(present) = Present::of(&marks, MAX_SHARDS) else { return Ok(None) };
    if !present.whole {
        let known = present.positions.len();
        return Err(refused(
            plan,
            format!(
                "--fork-of {of}: the committed offsets of group {of} are not those of one layout in whole ({known} splits are \
                 told of); start job {of} once, which says what is missing"
            ),
        ));
    }
    if let Some(epoch) = fork.epoch {
        return Err(refused(
            plan,
            format!(
                "--fork-of {of}@{epoch}: job {of} has decider \"transaction\", which keeps no checkpoint but the newest; leave \
                 @{epoch} out"
            ),
        ));
    }
    let behind = format!("the committed offsets of group {of} on cluster {name}");
    Ok(Some(Origin { positions: present.positions, behind }))
}

/// Bookmarks that nothing is about to change: what the other job has committed is not taken for what it had before.
async fn settled_marks(
    plan: &Plan,
    cx: &SourceContext,
    of: &Name,
    name: &Name,
    client: &Client,
) -> Result<Vec<Marked>, JobError> {
    let began = cx.host.now();
    loop {
        let patience = Deadline::after(cx.host.now(), Some(limits::REPORT_EVERY * 3));
        let attempted = || format!("reading the offsets of job {of} on cluster {name}");
        let failed = |error| JobError::kafka(attempted(), error);
        let seen = bookmarked_by(client, of, patience).await.map_err(failed)?;
        let places: BTreeSet<_> = seen.iter().map(|one| (one.topic.clone(), one.partition)).collect();
        let unstable =
            admin::unstable_offsets(client, &group(of), &places, patience).await.map_err(failed)?;
        let marks = bookmarked_by(client, of, patience).await.map_err(failed)?;
        if unstable.is_empty() && marks == seen {
            return Ok(marks);
        }
        if cx.host.now().saturating_duration_since(began) >= limits::REPORT_EVERY {
            return Err(refused(
                plan,
                format!(
                    "--fork-of {of}: its offsets on cluster {name} are about to change ({} of them): stop job {of} and begin \
                     then; if it is stopped, start it once, which ends what it has left",
                    unstable.len()
                ),
            ));
        }
        cx.host.sleep(limits::UNTOLD_OFFSETS).await;
    }
}

fn shape(plan: &Plan, of: &Name, record: &JobRecord, slots: &[Slot]) -> Result<Shape, JobError> {
    match ChainView::read(slots) {
        Ok(view) => Ok(view.shape(record)),
        Err(fault) => Err(JobError::NeedsPerson {
            code: Code::StoreDamaged,
            message: format!(
                "job {}: the checkpoints of job {of} cannot be read: {fault}; nothing was changed",
                plan.name
            ),
            incident: None,
        }),
    }
}

/// The wanted checkpoint, or the newest proven one; none is the beginning.
fn chosen(plan: &Plan, fork: &Fork, slots: &[Slot]) -> Result<Option<Manifest>, JobError> {
    let mut checkpoints = history::checkpoints(slots);
    if let Some(doubt) = checkpoints.iter().find(|one| one.standing == Standing::InDoubt) {
        tracing::warn!(
            job = %plan.name,
            "epoch {} of job {} is decided and in doubt: its {} records stay that job's, and this one writes its own of \
             the same input",
            doubt.manifest.epoch,
            fork.of,
            doubt.records()
        );
    }
    checkpoints.retain(|one| one.standing == Standing::Proven);
    let Some(wanted) = fork.epoch else {
        return Ok(checkpoints.pop().map(|newest| newest.manifest));
    };
    if Epoch(wanted) == Epoch::GENESIS {
        return Ok(None);
    }
    let names: Vec<String> = checkpoints.iter().map(|one| one.manifest.epoch.to_string()).collect();
    let found = checkpoints.into_iter().find(|one| one.manifest.epoch == Epoch(wanted));
    found.map(|one| Some(one.manifest)).ok_or_else(|| {
        refused(
            plan,
            format!(
                "--fork-of {}@{wanted}: that checkpoint is not kept, or not proven; there are 0 (the beginning) and {}",
                fork.of,
                if names.is_empty() { "no other".to_owned() } else { names.join(", ") }
            ),
        )
    })
}

fn refused(plan: &Plan, why: String) -> JobError {
    JobError::Configuration { code: Code::Usage, message: format!("job {}: {why}", plan.name) }
}
