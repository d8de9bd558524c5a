//! A stopped job's shards and its checkpoints, as a person sees and changes them.
//!
//! Everything else about a job changes with its pipeline file, at the next start.

pub use crate::decider::{CheckpointLine, CheckpointStanding};

use crate::{
    Code, JobError, Plan,
    crash::{CrashPoints, Undisturbed},
    run::{self, Reach},
};
use hapax_commit::DeciderKind;
use hapax_host::Host;
use std::sync::Arc;

/// Gives a job another number of shards; says what was done. Claims the job: a run that is alive ends with exit code 5.
/// What is in doubt is resolved first, so that nothing is left open under an id that the new layout lacks. Where
/// transactions carry the job's positions nothing ever is, and every id is cleared that the job has ever had.
///
/// # Errors
/// What is in doubt cannot be resolved, or store or brokers do not answer. The job has the old number then.
pub async fn reshape(
    plan: Plan,
    host: Host,
    shards: u32,
    crash: Arc<dyn CrashPoints>,
) -> Result<String, JobError> {
    match plan.decider() {
        DeciderKind::Transaction => return run::reshape_carried(plan, host, shards, crash).await,
        DeciderKind::Checkpoint => {}
    }
    run::existing(plan, host, Reach::All, crash).await?.reshape(shards).await
}

/// The checkpoints that are kept, oldest first. Changes nothing.
///
/// # Errors
/// The store has no such job, or does not answer.
pub async fn checkpoints(plan: Plan, host: Host) -> Result<Vec<CheckpointLine>, JobError> {
    refuse_carried(&plan)?;
    run::existing(plan, host, Reach::Store, Arc::new(Undisturbed)).await?.checkpoint_lines().await
}

/// A job whose transactions carry its positions has no chain.
fn refuse_carried(plan: &Plan) -> Result<(), JobError> {
    match plan.decider() {
        DeciderKind::Checkpoint => Ok(()),
        DeciderKind::Transaction => Err(JobError::Configuration {
            code: Code::Usage,
            message: format!(
                "job {}: with decider \"transaction\" it keeps no checkpoints; hapax txn describe shows its epochs and \
                 positions",
                plan.name
            ),
        }),
    }
}
