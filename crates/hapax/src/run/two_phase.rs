//! Whether the clusters of a plan that are to give transactions without a time-out can.

use crate::{cluster::Clusters, decider::Brokers, error::JobError, job::Plan, two_phase};
use hapax_host::Host;

/// Asks every cluster of the plan's transactions on which no time-out is to end them.
///
/// # Errors
/// A cluster has not the whole of two-phase commit, or does not answer.
pub(super) async fn check(
    plan: &Plan,
    host: &Host,
    clusters: &Clusters,
    brokers: &Brokers,
) -> Result<(), JobError> {
    for (name, client) in brokers.transactional() {
        if clusters.cluster(name).two_phase {
            two_phase::check(&plan.name, host, name, client).await?;
        }
    }
    Ok(())
}
