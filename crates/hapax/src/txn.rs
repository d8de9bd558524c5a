//! A job's transactions as a person on call needs them: to be seen, and to be ended one by one.
//!
//! Running the job does all of this by itself, and better: it looks at all transactions of a checkpoint before it ends
//! one. This is for what a person has decided.

pub use crate::decider::inspect::{Ending, Standing, Transaction, Wanted};

use crate::{
    JobError, Plan,
    crash::Undisturbed,
    decider::{carried_transactions, nothing_to_end},
    run::{self, Reach},
};
use hapax_commit::DeciderKind;
use hapax_host::Host;
use std::sync::Arc;

/// Every transactional id of a job, or those of one name, with what chain, coordinator and data say. Changes nothing.
/// What a cluster that does not answer would say is missing, and that is told with each of its ids. `records` also
/// reads what is in doubt and open, and compares it with what was acknowledged.
///
/// # Errors
/// The store has no such job, or does not answer.
pub async fn transactions(
    plan: Plan,
    host: Host,
    id: Option<&str>,
    records: bool,
) -> Result<Vec<Transaction>, JobError> {
    if plan.decider() == DeciderKind::Transaction {
        return carried_transactions(plan, host, id).await;
    }
    run::existing(plan, host, Reach::Answering, Arc::new(Undisturbed)).await?.transactions(id, records).await
}

/// Ends what is open under an id. Claims the job where nothing forbids it: a run that is alive then ends with exit
/// code 5.
///
/// # Errors
/// The chain or the transaction's state forbid it: nothing was ended, and the text says whether the job was claimed. Or
/// store or brokers do not answer.
pub async fn end(plan: Plan, host: Host, wanted: &Wanted) -> Result<String, JobError> {
    if plan.decider() == DeciderKind::Transaction {
        return Err(nothing_to_end(&plan));
    }
    run::existing(plan, host, Reach::All, Arc::new(Undisturbed)).await?.end_one(wanted).await
}
