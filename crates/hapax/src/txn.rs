//! A job's transactions as a person on call needs them: to be seen, and to be ended one by one.
//!
//! Running the job does all of this by itself, and better: it looks at all transactions of a checkpoint before it ends
//! one. This is for what a person has decided.

pub use crate::decider::inspect::{Standing, Transaction};

use crate::{JobError, Plan, run};
use hapax_host::Host;

/// Every transactional id of a job, with what chain, coordinator and data say. Changes nothing.
///
/// # Errors
/// The store has no such job, or store or brokers do not answer.
pub async fn transactions(plan: Plan, host: Host) -> Result<Vec<Transaction>, JobError> {
    run::existing(plan, host).await?.transactions().await
}

/// Ends what is open under an id. Claims the job first: a run that is alive ends with exit code 5. `decided` allows to
/// abort what a checkpoint has decided.
///
/// # Errors
/// The chain or the transaction's state forbid it: nothing was ended. Or store or brokers do not answer.
pub async fn end(plan: Plan, host: Host, id: &str, commit: bool, decided: bool) -> Result<String, JobError> {
    run::existing(plan, host).await?.end_one(id, commit, decided).await
}
