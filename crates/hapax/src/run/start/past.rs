//! Whether a job that its store does not know has run before.
//!
//! Owns what brokers tell of a job: its transactional ids, its committed positions, the topic of its own. Refuses to begin
//! one anew that any of them knows, and one whose coordinators do not answer: no answer is not "no".

use super::Begin;
use crate::{
    decider::{Brokers, bookmarked_by, own_topic},
    error::{Code, JobError},
    limits,
    source::UNKNOWN_TOPIC,
};
use hapax_commit::{DeciderKind, Name, Naming, TransactionalId, evidence::Described, id::IDS_PER_LANE};
use hapax_host::Deadline;
use hapax_kafka::{
    KafkaCode,
    transaction::{self, ListFilter},
};

impl Begin<'_> {
    /// A store without this job, although there is one somewhere.
    pub(super) async fn refuse_lost_store(&self, brokers: &Brokers, used: bool) -> Result<(), JobError> {
        let survey =
            self.store.survey().await.map_err(|error| self.store_error("looking at what is", error))?;
        if !survey.jobs.is_empty() && self.plan.settings.fork.is_none() {
            let jobs: Vec<String> = survey.jobs.iter().map(Name::to_string).collect();
            return Err(self.needs_person(
                Code::StoreForeign,
                format!(
                    "the checkpoint store {} belongs to job {}; give this job a store of its own, or correct the name; if \
                     the job was renamed, stop it under its old name and go on from its newest checkpoint with hapax run \
                     FILE --fork-of {}; --fresh begins a new job beside it",
                    self.url(),
                    jobs.join(", "),
                    jobs[0]
                ),
            ));
        }
        let known = self.known_ids(brokers).await?.first().map(|id| format!("the brokers know {id}"));
        let known = match known {
            None => self.remembered(brokers).await?.map(|topic| format!("{topic} is its own")),
            known => known,
        };
        if used || known.is_some() {
            return Err(self.needs_person(
                Code::StoreLost,
                format!(
                    "the checkpoint store {} is empty, but the job has run before ({}); is a volume not mounted? nothing \
                     was cleared and nothing was read; with the store back it goes on, where it ran without a store it goes \
                     on without one, and --fresh begins anew, which may write records a second time",
                    self.url(),
                    known.unwrap_or_else(|| "the brokers know nothing of it any more".to_owned())
                ),
            ));
        }
        Ok(())
    }

    /// A job that the brokers know and the store does not, since it has committed positions with its transactions. Asked
    /// only then: a cluster on which nobody uses groups need not have a coordinator of any.
    pub(super) async fn refuse_carried(&self, brokers: &Brokers) -> Result<(), JobError> {
        for (name, client) in brokers.transactional() {
            let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY));
            match bookmarked_by(client, &self.plan.name, patience).await {
                Ok(marks) if marks.is_empty() => {}
                Ok(_) => {
                    let how = format!("its offsets on cluster {name} say that it runs with");
                    return Err(self.other_decider(DeciderKind::Transaction, &how));
                }
                // Nothing that this decider needs: a principal may have no right to look at the group.
                Err(error) if error.is_refusal() => {
                    tracing::info!(job = %self.plan.name, "whether the job has committed offsets cannot be asked: {error}");
                }
                Err(error) => {
                    return Err(JobError::kafka(
                        format!("reading the offsets of group {}", self.plan.name),
                        error,
                    ));
                }
            }
        }
        match self.remembered(brokers).await? {
            Some(topic) => {
                Err(self.other_decider(DeciderKind::Transaction, &format!("{topic} says that it runs with")))
            }
            None => Ok(()),
        }
    }

    /// Ids of this job that the brokers know: by listing, and those of shard 0 by name where listing shows nothing.
    async fn known_ids(&self, brokers: &Brokers) -> Result<Vec<TransactionalId>, JobError> {
        let mut known = Vec::new();
        for (name, client) in brokers.transactional() {
            let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY * 3));
            let listed =
                transaction::list_transactions(client, &ListFilter::default(), patience).await.map_err(
                    |error| JobError::kafka(format!("listing the transactions of cluster {name}"), error),
                )?;
            let ours = listed.iter().filter_map(|listed| TransactionalId::parse(&listed.transactional_id));
            let is_named_so = |id: &TransactionalId| match self.plan.settings.naming.unwrap_or_default() {
                Naming::Rotating => id.index < IDS_PER_LANE,
                Naming::PerEpoch => true,
            };
            known.extend(ours.filter(|id| id.job == self.plan.name && is_named_so(id)));
            let lane = hapax_commit::LaneId { cluster: name.clone(), shard: hapax_commit::ShardId(0) };
            for id in lane.transactional_ids(&self.plan.name) {
                match brokers.describe(client, &id.to_string()).await {
                    Described::Known { .. } => known.push(id),
                    Described::Forgotten => {}
                    // A coordinator that does not answer may know the id: no answer is not "no".
                    Described::Unanswered(why) => {
                        return Err(JobError::Run {
                            code: Code::Unreachable,
                            message: format!(
                                "job {}: asking whether cluster {name} knows {id}: {why}",
                                self.plan.name
                            ),
                        });
                    }
                }
            }
        }
        Ok(known)
    }

    /// The topic of its own that a job of decider `transaction` makes, where it is there: brokers forget offsets and ids
    /// of a job that is stopped for long, and no topic.
    async fn remembered(&self, brokers: &Brokers) -> Result<Option<String>, JobError> {
        let topic = own_topic(&self.plan.name);
        for (name, client) in brokers.transactional() {
            let failed =
                |error| JobError::kafka(format!("looking at topic {topic} of cluster {name}"), error);
            let found = client.topics(&[&topic]).await.map_err(failed)?;
            let Some(found) = found.first() else { continue };
            match found.error {
                None => return Ok(Some(format!("topic {topic} on cluster {name}"))),
                // What the job may not see it has not made.
                Some(UNKNOWN_TOPIC | KafkaCode::TOPIC_AUTHORIZATION_FAILED) => {}
                Some(_) => {
                    found.usable().map_err(failed)?;
                }
            }
        }
        Ok(None)
    }
}
