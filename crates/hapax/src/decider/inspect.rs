//! What a person on call sees of a job's transactions, and may end of them one by one.
//!
//! Owns the view that chain, coordinator and data give together. Refuses to end anything before it has claimed the job
//! (H41: a run that is alive would be in the way), to commit what no checkpoint decided, and to abort what one did
//! unless that is said in so many words.

use super::checkpoint::CheckpointDecider;
use crate::{
    error::{Code, JobError},
    limits,
};
use hapax_commit::{
    Epoch, Handle,
    evidence::{Described, EndTxnAnswer, LaneFate, judge_lane},
    id::IdAt,
};
use hapax_host::Deadline;
use serde::Serialize;

/// One transactional id of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Transaction {
    /// The id.
    pub id: String,
    /// Kafka's id of the cluster.
    pub cluster_id: String,
    /// What the chain says.
    pub chain: Standing,
    /// What the coordinator says, in Kafka's words, with the identity.
    pub coordinator: String,
    /// What coordinator and data say together of the transaction that the chain has in doubt.
    pub outcome: Option<String>,
    /// The prepared transaction that the chain has in doubt: partitions, offsets, count, digest.
    pub handle: Option<Handle>,
}

/// What the chain says of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// A checkpoint decided a transaction on it, whose outcome is not recorded.
    InDoubt {
        /// The epoch.
        epoch: Epoch,
    },
    /// The last transaction that a kept checkpoint names on it is settled; what is open on it is nobody's.
    Settled {
        /// The epoch.
        epoch: Epoch,
    },
    /// No kept checkpoint names a transaction on it; what is open on it is nobody's.
    Undecided,
}

impl CheckpointDecider {
    /// Every id of the job, without changing anything.
    pub(crate) async fn transactions(&mut self) -> Result<Vec<Transaction>, JobError> {
        self.read_chain().await?;
        let mut found = Vec::new();
        for (cluster_id, ids) in self.view.ids().clone() {
            for id in ids {
                found.push(self.transaction(&IdAt { cluster_id: cluster_id.clone(), id }).await?);
            }
        }
        Ok(found)
    }

    async fn transaction(&self, at: &IdAt) -> Result<Transaction, JobError> {
        let brokers = &self.start.brokers;
        let client = brokers.client(&at.cluster_id, &format!("transactional id {}", at.id)).await?;
        let handle = self.in_doubt(at).cloned();
        let newest = self.view.newest_handles().find(|handle| handle.at() == *at);
        let chain = match (&handle, newest) {
            (Some(handle), _) => Standing::InDoubt { epoch: handle.epoch },
            (None, Some(newest)) => Standing::Settled { epoch: newest.epoch },
            (None, None) => Standing::Undecided,
        };
        let described = brokers.describe(&client, &at.id.to_string()).await;
        let outcome = match &handle {
            None => None,
            Some(handle) => Some(self.fate(handle).await?.to_string()),
        };
        Ok(Transaction {
            id: at.id.to_string(),
            cluster_id: at.cluster_id.clone(),
            chain,
            coordinator: told(&described),
            outcome,
            handle,
        })
    }

    /// Ends what is open under an id, after claiming the job; says what was done.
    pub(crate) async fn end_one(
        &mut self,
        id: &str,
        commit: bool,
        decided: bool,
    ) -> Result<String, JobError> {
        self.claim().await?;
        let all = self.view.ids().iter();
        let mut named = all.flat_map(|(cluster_id, ids)| {
            ids.iter().map(|id| IdAt { cluster_id: cluster_id.clone(), id: id.clone() })
        });
        let Some(at) = named.find(|at| at.id.to_string() == id) else {
            return Err(self.refused(format!("{id} is no id of the job: hapax txn describe names them")));
        };
        match (self.in_doubt(&at).cloned(), commit) {
            (None, true) => Err(self.refused(format!(
                "no checkpoint decided what is open under {id}: committing it would show records that the job writes again"
            ))),
            (Some(handle), false) if !decided => Err(self.refused(format!(
                "checkpoint {} decided the transaction of {id}: aborting it leaves its records to the strategies of the \
                 job; say --decided if that is meant",
                handle.epoch
            ))),
            (None, false) => {
                let client = self.start.brokers.client(&at.cluster_id, id).await?;
                self.start.brokers.clear(&client, id, self.start.transaction_timeout).await?;
                Ok(format!("{id}: what was open is aborted, and its writer fenced"))
            }
            (Some(handle), _) => self.end_decided(&handle, commit).await,
        }
    }

    async fn end_decided(&self, handle: &Handle, commit: bool) -> Result<String, JobError> {
        let id = handle.transactional_id.to_string();
        let fate = self.fate(handle).await?;
        let may_end = match &fate {
            LaneFate::Open => true,
            LaneFate::Incomplete(_) => !commit,
            LaneFate::Committed if commit => return Ok(format!("{id}: it is committed already")),
            LaneFate::Aborted if !commit => return Ok(format!("{id}: it is aborted already")),
            _ => false,
        };
        if !may_end {
            return Err(self.refused(format!("{id} cannot be ended so: it is {fate}")));
        }
        let brokers = &self.start.brokers;
        let client = brokers.client(&handle.cluster_id, &id).await?;
        let deadline = Deadline::after(self.start.host.now(), Some(limits::RESUME_PATIENCE));
        let (answer, _) = brokers.end(&client, handle, commit, deadline, || {}).await;
        let done = match answer {
            EndTxnAnswer::Committed if commit => "committed",
            EndTxnAnswer::Aborted if !commit => "aborted",
            answer => {
                return Err(JobError::Run {
                    code: Code::Disturbed,
                    message: format!(
                        "{id}: EndTxn was answered {answer:?}; look with hapax txn describe, then try again"
                    ),
                });
            }
        };
        Ok(format!("{id}: the transaction of epoch {} is {done}", handle.epoch))
    }

    async fn fate(&self, handle: &Handle) -> Result<LaneFate, JobError> {
        let id = handle.transactional_id.to_string();
        let client = self.start.brokers.client(&handle.cluster_id, &id).await?;
        let look = self.start.brokers.look(&client, handle, true).await;
        let look = look.map_err(|error| JobError::kafka(format!("looking at {id}"), error))?;
        Ok(judge_lane(handle, &look))
    }

    fn in_doubt(&self, at: &IdAt) -> Option<&Handle> {
        let handles = self.view.unresolved().map_or(&[][..], |unresolved| &unresolved.manifest.handles);
        handles.iter().find(|handle| handle.at() == *at)
    }

    fn refused(&self, why: String) -> JobError {
        JobError::Configuration {
            code: Code::Usage,
            message: format!("job {}: {why}; nothing was ended", self.start.plan.name),
        }
    }
}

fn told(described: &Described) -> String {
    match described {
        Described::Known { state, identity } => format!("{} {identity}", state.name()),
        Described::Forgotten => "not known".to_owned(),
        Described::Unanswered(why) => format!("no answer: {why}"),
    }
}
