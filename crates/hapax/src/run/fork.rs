//! Where a job begins that goes on from another one's checkpoint.
//!
//! The other job's store is read and nothing else of it: neither its chain nor its transactions are touched, whatever
//! state they are in. Refuses a checkpoint that is not proven, since records of it may come out of the other job yet, and
//! a job that has none, since its transactions carry its positions.

use crate::{
    error::{Code, JobError},
    job::{Fork, Plan},
    source::SourceContext,
};
use hapax_commit::{
    DeciderKind, Epoch, JobRecord, Manifest, Name, Positions, Shape, Slot,
    chain::ChainView,
    history::{self, Standing},
};
use hapax_store::Store;

/// Gives the splits of a new job the positions that another job's checkpoint has for them. Those that the other one does
/// not have begin where they would.
pub(super) async fn begin(
    plan: &Plan,
    cx: &SourceContext,
    store: &Store,
    fork: &Fork,
    genesis: &mut Positions,
) -> Result<(), JobError> {
    let (of, shape, slots) = original(plan, store, fork).await?;
    let checkpoint = chosen(plan, fork, &slots)?;
    let positions = shape.positions(checkpoint.as_ref());
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
                "nothing that this job reads has a position in a checkpoint of {of}, which reads {}; sources must have the \
                 same names in both",
                reads.join(", ")
            ),
        ));
    }
    for source in &plan.sources {
        source.serves(cx, genesis).await?;
    }
    let epoch = checkpoint.map_or(Epoch::GENESIS, |manifest| manifest.epoch);
    tracing::warn!(job = %plan.name, "begins as a fork of job {of}, behind its checkpoint {epoch}: {taken} splits");
    Ok(())
}

async fn original(plan: &Plan, store: &Store, fork: &Fork) -> Result<(Name, Shape, Vec<Slot>), JobError> {
    let of = Name::new(&fork.of).map_err(|error| refused(plan, format!("--fork-of: {error}")))?;
    let failed = |what: &str, error| JobError::store(format!("job {}: {what} of job {of}", plan.name), error);
    let stored = store.job(&of).await.map_err(|error| failed("reading the record", error))?;
    let Some(stored) = stored else {
        let survey = store.survey().await.map_err(|error| failed("looking for the folder", error))?;
        let jobs: Vec<String> = survey.jobs.iter().map(Name::to_string).collect();
        return Err(refused(
            plan,
            format!(
                "--fork-of {of}: the store has no such job, it has {}; name its store with --fork-store URL",
                if jobs.is_empty() { "none".to_owned() } else { jobs.join(", ") }
            ),
        ));
    };
    check_decider(plan, &of, &stored.record)?;
    let slots = store.chain(&of, stored.incarnation, 0).read().await;
    let slots = slots.map_err(|error| failed("reading the checkpoints", error))?;
    let shape = shape(plan, &of, &stored.record, &slots)?;
    Ok((of, shape, slots))
}

/// The chain of a job whose transactions carry its positions has no checkpoint: read as one, it says "the beginning".
fn check_decider(plan: &Plan, of: &Name, record: &JobRecord) -> Result<(), JobError> {
    match record.decider {
        DeciderKind::Checkpoint => Ok(()),
        DeciderKind::Transaction => Err(refused(
            plan,
            format!(
                "--fork-of {of}: that job has decider \"transaction\", whose positions are the committed offsets of the \
                 group {of} and in no checkpoint; begin without --fork-of, with these offsets as the start of the sources"
            ),
        )),
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
