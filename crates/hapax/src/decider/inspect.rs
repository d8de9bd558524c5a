//! What a person on call sees of a job's transactions, and may end of them one by one.
//!
//! Owns the view that chain, coordinator and data give together. Refuses to end anything before it has claimed the job
//! (H41: a run that is alive would be in the way), to commit what no checkpoint decided, to abort what one did unless
//! that is said in so many words, and to end anything where brokers and store contradict each other.
//!
//! A claim ends a run that is alive, so whatever can be refused is refused before it, and asked again behind it: the
//! chain may have moved.
//!
//! ```text
//! read the chain - may it end so? - claim - may it still? - does the chain end with our claim? - end
//! ```

use super::{checkpoint::CheckpointDecider, recover::chain_moved};
use crate::{
    error::{Code, JobError, with_causes},
    limits,
    source::SourceError,
};
use futures::{StreamExt, future, stream};
use hapax_commit::{
    Epoch, Handle, Positions,
    evidence::{
        Described, EndTxnAnswer, LaneFate, LaneLook, TransactionState, Witness, judge_described, judge_lane,
        may_be_aborted, may_hide_commits,
    },
    id::IdAt,
};
use hapax_host::Deadline;
use hapax_kafka::Client;
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// Ids that are asked after at once: a broker that does not answer holds up its own ids only, and a job with hundreds
/// of them floods none.
const LOOKS_AT_ONCE: usize = 16;

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
    /// Decider `transaction`: the committed positions of its shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positions: Option<Positions>,
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
    /// Decider `transaction`: the newest committed epoch of its shard. What is open on it is written again.
    Carried {
        /// The epoch.
        epoch: Epoch,
    },
    /// No kept checkpoint names a transaction on it; what is open on it is nobody's.
    Undecided,
}

/// What a person wants ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The transactional id.
    pub id: String,
    /// Kafka's id of its cluster, where the same id stands at two: a cluster was replaced.
    pub cluster_id: Option<String>,
    /// How it is to end.
    pub ending: Ending,
}

/// How a transaction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Committed, which only a checkpoint can have decided.
    Commit {
        /// Also as the first of its checkpoint beside one that is not open: the job cannot go back before it then.
        no_way_back: bool,
    },
    /// Aborted.
    Abort {
        /// Also what a checkpoint has decided.
        decided: bool,
    },
}

/// What is left to do where nothing forbids it.
enum Step {
    /// Nothing: it has ended so already.
    Nothing(String),
    /// Nobody's: end what is open and fence its writer.
    Clear(IdAt),
    /// A checkpoint's: end it with its own identity.
    End { handle: Handle, commit: bool },
}

impl CheckpointDecider {
    /// Ids of the job, without changing anything: all, or those of one name. A cluster that does not answer is told
    /// with each of its ids.
    pub(crate) async fn transactions(
        &mut self,
        id: Option<&str>,
        records: bool,
    ) -> Result<Vec<Transaction>, JobError> {
        self.read_chain().await?;
        let wanted = self.every_id().filter(|at| id.is_none_or(|id| at.id.to_string() == id));
        let wanted: Vec<IdAt> = wanted.collect();
        let mut clients = BTreeMap::new();
        for at in &wanted {
            if !clients.contains_key(&at.cluster_id) {
                let client = self.client(at).await.map_err(|error| with_causes(&error));
                clients.insert(at.cluster_id.clone(), client);
            }
        }
        let looks: Vec<_> =
            wanted.iter().map(|at| self.transaction(at, &clients[&at.cluster_id], records)).collect();
        Ok(stream::iter(looks).buffered(LOOKS_AT_ONCE).collect().await)
    }

    async fn transaction(&self, at: &IdAt, client: &Result<Client, String>, records: bool) -> Transaction {
        let handle = self.in_doubt(at).cloned();
        let newest = self.view.newest_handles().find(|handle| handle.at() == *at);
        let chain = match (&handle, newest) {
            (Some(handle), _) => Standing::InDoubt { epoch: handle.epoch },
            (None, Some(newest)) => Standing::Settled { epoch: newest.epoch },
            (None, None) => Standing::Undecided,
        };
        let (coordinator, outcome) = match client {
            Err(why) => {
                let unseen = LaneFate::Unanswered("its cluster is not reachable".into());
                let outcome = handle.as_ref().map(|_| unseen.to_string());
                (format!("cluster not reachable: {why}"), outcome)
            }
            Ok(client) => {
                let described = self.start.brokers.describe(client, &at.id.to_string()).await;
                let coordinator = told(&described);
                let outcome = match &handle {
                    None => None,
                    Some(handle) => Some(self.outcome(client, handle, described, records).await),
                };
                (coordinator, outcome)
            }
        };
        Transaction {
            id: at.id.to_string(),
            cluster_id: at.cluster_id.clone(),
            chain,
            coordinator,
            outcome,
            handle,
            positions: None,
        }
    }

    /// What coordinator and data say together, in words. Comparing the records reads all of them, which may take longer
    /// than a person waits: what else is known is told all the same.
    async fn outcome(&self, client: &Client, handle: &Handle, described: Described, records: bool) -> String {
        let mut note = String::new();
        if records {
            match self.fate_at(client, handle).await {
                Ok(fate) => return fate.to_string(),
                Err(error) => note = format!("; its records were not compared: {}", with_causes(&error)),
            }
        }
        let markers = async {
            let level = client.transaction_version().await?;
            let markers = Some(self.start.brokers.read_back(client, handle).await);
            Ok::<_, hapax_kafka::ClientError>(LaneLook {
                by: Witness::Coordinator,
                described,
                level,
                markers,
                records: None,
            })
        };
        let patience = limits::RESUME_PATIENCE;
        let fate = match self.start.host.timeout(patience, markers).await {
            Some(Ok(look)) => judge_lane(handle, &look),
            Some(Err(error)) => LaneFate::Unanswered(with_causes(&error)),
            None => LaneFate::Unanswered(format!("its partitions were not read within {patience:?}")),
        };
        format!("{fate}{note}")
    }

    /// Ends what is open under an id; says what was done. The job is claimed only for what is allowed and left to do.
    pub(crate) async fn end_one(&mut self, wanted: &Wanted) -> Result<String, JobError> {
        self.read_chain().await?;
        if let Step::Nothing(said) = self.allowed(wanted).await? {
            return Ok(said);
        }
        self.claim().await?;
        match self.allowed(wanted).await? {
            Step::Nothing(said) => Ok(format!("{said}; {}", self.untouched())),
            Step::Clear(at) => {
                let client = self.client(&at).await?;
                // Last before the request: whoever slept until here may have been overtaken.
                self.check_claim().await?;
                let id = at.id.to_string();
                self.start.brokers.clear(&client, &id, self.start.transaction_timeout).await?;
                Ok(format!("{id}: what was open is aborted, and its writer fenced"))
            }
            Step::End { handle, commit } => self.end_decided(&handle, commit).await,
        }
    }

    /// Finds what is to be done, or why it may not be.
    async fn allowed(&self, wanted: &Wanted) -> Result<Step, JobError> {
        let (at, id) = (self.named(wanted)?, &wanted.id);
        match (self.in_doubt(&at), wanted.ending) {
            (None, Ending::Commit { .. }) => Err(self.refused(format!(
                "no checkpoint decided what is open under {id}: committing it would show records that the job writes again"
            ))),
            (Some(handle), Ending::Abort { decided: false }) => Err(self.refused(format!(
                "checkpoint {} decided the transaction of {id}: aborting it leaves its records to the strategies of the \
                 job; say --decided if that is meant",
                handle.epoch
            ))),
            (None, Ending::Abort { .. }) => {
                self.survey(&at).await?;
                Ok(Step::Clear(at))
            }
            (Some(handle), Ending::Abort { decided: true }) => self.may_abort(handle).await,
            (Some(handle), Ending::Commit { no_way_back }) => self.may_commit(handle, no_way_back).await,
        }
    }

    /// The id that a person means: of two that bear the same name, the one in doubt.
    fn named(&self, wanted: &Wanted) -> Result<IdAt, JobError> {
        let (id, cluster_id) = (&wanted.id, wanted.cluster_id.as_ref());
        let mut named: Vec<IdAt> = self
            .every_id()
            .filter(|at| at.id.to_string() == *id && cluster_id.is_none_or(|wanted| *wanted == at.cluster_id))
            .collect();
        if named.len() > 1 && named.iter().any(|at| self.in_doubt(at).is_some()) {
            named.retain(|at| self.in_doubt(at).is_some());
        }
        match (named.as_slice(), cluster_id) {
            ([at], _) => Ok(at.clone()),
            ([], None) => {
                Err(self.refused(format!("{id} is no id of the job: hapax txn describe names them")))
            }
            ([], Some(cluster_id)) => Err(self.refused(format!(
                "{id} is no id of the job at cluster {cluster_id}: hapax txn describe names them"
            ))),
            (several, _) => {
                let at: Vec<&str> = several.iter().map(|at| at.cluster_id.as_str()).collect();
                Err(self.refused(format!(
                    "{id} stands at the clusters {}: say which one is meant with --cluster-id",
                    at.join(" and ")
                )))
            }
        }
    }

    /// Whatever was committed under an id was decided by a slot of the chain. A commit that the chain does not know of
    /// shows an old copy of the store, and what is open there may be decided in the newest one.
    async fn survey(&self, at: &IdAt) -> Result<(), JobError> {
        let client = self.client(at).await?;
        let described = self.start.brokers.describe(&client, &at.id.to_string()).await;
        let fate = match self.view.newest_handles().find(|handle| handle.at() == *at) {
            Some(handle) => match self.beyond(&client, handle, &described).await? {
                Some(beyond) => LaneFate::BrokersAhead(beyond),
                None => judge_described(handle, &described),
            },
            None => self.judge_unnamed(at, &described),
        };
        match fate {
            fate @ (LaneFate::BrokersAhead(_) | LaneFate::BrokersBehind(_)) => Err(self.out_of_step(&fate)),
            LaneFate::Unanswered(why) => Err(self.unanswered(format!("asking after {at}: {why}"))),
            LaneFate::Committed
            | LaneFate::Aborted
            | LaneFate::Open
            | LaneFate::Incomplete(_)
            | LaneFate::InFlight(_)
            | LaneFate::Undetermined(_)
            | LaneFate::Unknown(_)
            | LaneFate::Contradiction(_)
            | LaneFate::Torn(_) => Ok(()),
        }
    }

    async fn beyond(
        &self,
        client: &Client,
        handle: &Handle,
        described: &Described,
    ) -> Result<Option<String>, JobError> {
        if !may_hide_commits(handle, described) {
            return Ok(None);
        }
        let patience = self.reading_patience();
        let beyond = self.start.brokers.commit_beyond(client, handle);
        match self.start.host.timeout(patience, beyond).await {
            Some(found) => found.map_err(|error| SourceError::Fetch(error).into()),
            None => Err(self.unanswered(format!(
                "whether {} was committed again was not found out within {patience:?}",
                handle.transactional_id
            ))),
        }
    }

    /// An id that no kept checkpoint names. A job that has decided nothing has committed nothing; one that was begun
    /// anew has the ids of its life before.
    fn judge_unnamed(&self, at: &IdAt, described: &Described) -> LaneFate {
        let has_decided = self.start.begun_anew || self.view.last_epoch() != Epoch::GENESIS;
        match described {
            Described::Known {
                state: state @ (TransactionState::PrepareCommit | TransactionState::CompleteCommit),
                ..
            } if !has_decided => LaneFate::BrokersAhead(format!(
                "{at} is {}, and the store has no checkpoint yet",
                state.name()
            )),
            Described::Known { .. } | Described::Forgotten => {
                LaneFate::Undetermined("no checkpoint names it".into())
            }
            Described::Unanswered(why) => LaneFate::Unanswered(why.clone()),
        }
    }

    async fn may_abort(&self, handle: &Handle) -> Result<Step, JobError> {
        let id = &handle.transactional_id;
        let look = self.look(&self.client(&handle.at()).await?, handle).await?;
        match judge_lane(handle, &look) {
            LaneFate::Open | LaneFate::Incomplete(_) => {
                Ok(Step::End { handle: handle.clone(), commit: false })
            }
            LaneFate::Aborted => Ok(Step::Nothing(format!("{id}: it is aborted already"))),
            LaneFate::Contradiction(_) if may_be_aborted(handle, &look) => {
                Ok(Step::End { handle: handle.clone(), commit: false })
            }
            fate => Err(self.cannot_end(handle, &fate)),
        }
    }

    /// The first commit of a checkpoint takes the way back to the one before it. That is what a checkpoint is for while
    /// all its transactions are open; beside one that is not, going back may be the better end.
    async fn may_commit(&self, handle: &Handle, no_way_back: bool) -> Result<Step, JobError> {
        let id = &handle.transactional_id;
        match self.fate(handle).await? {
            LaneFate::Open => {}
            LaneFate::Committed => return Ok(Step::Nothing(format!("{id}: it is committed already"))),
            fate => return Err(self.cannot_end(handle, &fate)),
        }
        let others = self.lanes_in_doubt().iter().filter(|other| other.at() != handle.at());
        let fates = future::join_all(others.map(|other| async move {
            let fate = self.fate(other).await;
            (other, fate.unwrap_or_else(|error| LaneFate::Unanswered(with_causes(&error))))
        }));
        let fates = fates.await;
        let is_out_of_step =
            |fate: &LaneFate| matches!(fate, LaneFate::BrokersAhead(_) | LaneFate::BrokersBehind(_));
        if let Some((_, fate)) = fates.iter().find(|(_, fate)| is_out_of_step(fate)) {
            return Err(self.out_of_step(fate));
        }
        let has_way_back = fates.iter().all(|(_, fate)| *fate != LaneFate::Committed);
        let not_open = fates.iter().find(|(_, fate)| *fate != LaneFate::Open);
        match not_open {
            Some((other, fate)) if has_way_back && !no_way_back => Err(self.refused(format!(
                "no transaction of checkpoint {} is committed, and {} is not open: it is {fate}; committing {id} takes \
                 the way back (rewind): records that are gone from the other can then only be written again (rewrite) \
                 or given up; start the job instead, or say --no-way-back if that is meant",
                handle.epoch, other.transactional_id
            ))),
            _ => Ok(Step::End { handle: handle.clone(), commit: true }),
        }
    }

    async fn end_decided(&mut self, handle: &Handle, commit: bool) -> Result<String, JobError> {
        let id = handle.transactional_id.to_string();
        let client = self.client(&handle.at()).await?;
        self.check_claim().await?;
        let brokers = &self.start.brokers;
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

    /// Does the chain still end with our claim? A run that came behind it may have decided on what is to be ended.
    pub(crate) async fn check_claim(&mut self) -> Result<(), JobError> {
        match chain_moved(self, "going on").await? {
            true => Err(self.fenced().await),
            false => Ok(()),
        }
    }

    async fn fate(&self, handle: &Handle) -> Result<LaneFate, JobError> {
        self.fate_at(&self.client(&handle.at()).await?, handle).await
    }

    async fn fate_at(&self, client: &Client, handle: &Handle) -> Result<LaneFate, JobError> {
        Ok(judge_lane(handle, &self.look(client, handle).await?))
    }

    /// Looks at coordinator, control batches and, where it is open, at all records.
    async fn look(&self, client: &Client, handle: &Handle) -> Result<LaneLook, JobError> {
        let (id, patience) = (&handle.transactional_id, self.reading_patience());
        let look = self.start.brokers.look(client, handle, true);
        match self.start.host.timeout(patience, look).await {
            Some(Ok(look)) => Ok(look),
            Some(Err(error)) => Err(JobError::kafka(format!("looking at {id}"), error)),
            None => Err(self.unanswered(format!("{id} was not read within {patience:?}"))),
        }
    }

    async fn client(&self, at: &IdAt) -> Result<Client, JobError> {
        let patience = limits::REPORT_EVERY;
        let client = self.start.brokers.client(&at.cluster_id, "a transactional id of the job");
        let client = self.start.host.timeout(patience, client).await;
        client.unwrap_or_else(|| {
            Err(self
                .unanswered(format!("cluster {} was not connected to within {patience:?}", at.cluster_id)))
        })
    }

    /// Reading all records of a transaction takes its time, and the job says what it has.
    fn reading_patience(&self) -> Duration {
        self.start.plan.settings.start_timeout.max(limits::RESUME_PATIENCE)
    }

    fn every_id(&self) -> impl Iterator<Item = IdAt> + use<> {
        self.view.ids().into_iter().flat_map(|(cluster_id, ids)| {
            ids.into_iter().map(move |id| IdAt { cluster_id: cluster_id.clone(), id })
        })
    }

    fn lanes_in_doubt(&self) -> &[Handle] {
        self.view.unresolved().map_or(&[][..], |unresolved| &unresolved.manifest.handles)
    }

    fn in_doubt(&self, at: &IdAt) -> Option<&Handle> {
        self.lanes_in_doubt().iter().find(|handle| handle.at() == *at)
    }

    /// A refusal behind the claim is no longer without effect.
    fn untouched(&self) -> &'static str {
        match self.generation {
            None => "nothing was ended",
            Some(_) => {
                "no transaction was ended, but the job was claimed, so a run that was alive has ended: start it again"
            }
        }
    }

    fn refused(&self, why: String) -> JobError {
        JobError::Configuration {
            code: Code::Usage,
            message: format!("job {}: {why}; {}", self.start.plan.name, self.untouched()),
        }
    }

    fn cannot_end(&self, handle: &Handle, fate: &LaneFate) -> JobError {
        if matches!(fate, LaneFate::BrokersAhead(_) | LaneFate::BrokersBehind(_)) {
            return self.out_of_step(fate);
        }
        self.refused(format!("{} cannot be ended so: it is {fate}", handle.transactional_id))
    }

    fn unanswered(&self, why: String) -> JobError {
        JobError::Run {
            code: Code::Unreachable,
            message: format!("job {}: {why}; {}", self.start.plan.name, self.untouched()),
        }
    }

    fn out_of_step(&self, fate: &LaneFate) -> JobError {
        let (code, what) = match fate {
            LaneFate::BrokersBehind(_) => (Code::BrokersStale, "the brokers or the checkpoint store look"),
            _ => (Code::StoreStale, "the checkpoint store looks"),
        };
        JobError::NeedsPerson {
            code,
            message: format!(
                "job {}: {fate}; {what} like an old copy, in whose place another one may have decided what is open; {}; \
                 bring the newest one back",
                self.start.plan.name,
                self.untouched()
            ),
            incident: None,
        }
    }
}

pub(super) fn told(described: &Described) -> String {
    match described {
        Described::Known { state, identity } => format!("{} {identity}", state.name()),
        Described::Forgotten => "not known".to_owned(),
        Described::Unanswered(why) => format!("no answer: {why}"),
    }
}
