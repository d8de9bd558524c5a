//! How long transactions may stay open.
//!
//! Owns the choice between what the file wants and what every cluster allows. Refuses more than a cluster's maximum.

use super::Begin;
use crate::{
    decider::Brokers,
    error::{Code, JobError},
    limits,
    sink::Guarantee,
};
use hapax_host::Deadline;
use hapax_kafka::admin;
use std::time::Duration;

impl Begin<'_> {
    /// The wanted timeout where every sink cluster allows it, else both numbers.
    pub(super) async fn transaction_timeout(&self, brokers: &Brokers) -> Result<Duration, JobError> {
        let mut timeout = self.plan.settings.transaction_timeout.unwrap_or(limits::TRANSACTION_TIMEOUT);
        for (name, client) in brokers.transactional() {
            if self.clusters.cluster(name).two_phase {
                continue;
            }
            let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY * 3));
            let maximum = match admin::broker_config(client, "transaction.max.timeout.ms", patience).await {
                Ok(value) => {
                    value.and_then(|value| value.parse().ok()).map_or(timeout, Duration::from_millis)
                }
                Err(error) => {
                    tracing::warn!(cluster = %name, "the broker's transaction.max.timeout.ms could not be read ({error}); {timeout:?} is tried");
                    continue;
                }
            };
            match self.plan.settings.transaction_timeout {
                Some(wanted) if wanted > maximum => {
                    return Err(JobError::Configuration {
                        code: Code::TransactionTimeout,
                        message: format!(
                            "job {}: transaction_timeout is {} ms, and cluster {name} allows at most {} ms \
                             (transaction.max.timeout.ms); lower the one or raise the other",
                            self.plan.name,
                            wanted.as_millis(),
                            maximum.as_millis()
                        ),
                    });
                }
                Some(_) => {}
                None => timeout = timeout.min(maximum),
            }
        }
        if self.plan.guarantee() == Guarantee::ExactlyOnce {
            self.plan.check_timeout(timeout)?;
        }
        let (_, longest_wait) = self.plan.settings.run_backoff;
        if timeout < longest_wait && self.plan.guarantee() == Guarantee::ExactlyOnce {
            tracing::warn!(
                job = %self.plan.name,
                "transaction_timeout {timeout:?} is shorter than the longest wait before a restart ({longest_wait:?}): \
                 after such a restart the last epoch is read again instead of being committed"
            );
        }
        Ok(timeout)
    }
}
