//! Whether a cluster that is to give transactions without a time-out can: asked at each start, before a record or a
//! claim is written. Refuses to go on with a time-out that was not asked for.

use crate::{
    error::{Code, JobError},
    limits,
};
use hapax_commit::Name;
use hapax_host::{Deadline, Host};
use hapax_kafka::{Client, admin, transaction};

/// Last part of the id that is asked about: three parts, so no lane ever has it, and nothing is ever open under it.
const PROBE: &str = "two-phase";

/// Asks a cluster on which no time-out is to end the job's transactions.
///
/// # Errors
/// The cluster has not the whole of two-phase commit, or does not answer.
pub(crate) async fn check(job: &Name, host: &Host, name: &Name, client: &Client) -> Result<(), JobError> {
    let id = format!("{job}.{name}.{PROBE}");
    let patience = || Deadline::after(host.now(), Some(limits::REPORT_EVERY * 3));
    let probed = transaction::probe_two_phase(client, &id, patience()).await;
    let refused = match probed {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(refused)) => refused,
        Err(error) => {
            let attempted = format!("asking cluster {name} for two-phase commit with transactional id {id}");
            return Err(JobError::kafka(attempted, error));
        }
    };
    let maximum = admin::broker_config(client, "transaction.max.timeout.ms", patience()).await;
    let unlimited = maximum.is_ok_and(|value| value.is_some_and(|value| value == i32::MAX.to_string()));
    let instead = if unlimited {
        "; the cluster allows transaction_timeout = \"2147483647ms\", which Kafka since 4.1 takes for no time-out at all"
    } else {
        ""
    };
    Err(JobError::Configuration {
        code: Code::TwoPhase,
        message: format!(
            "job {job}: [cluster.{name}] two_phase = true, and {refused}; nothing was claimed or written, take two_phase \
             out{instead}"
        ),
    })
}
