//! The clusters behind a decider's handles, by Kafka's id of the cluster: what recovery asks and what a commit ends.
//!
//! Every answer is turned into the protocol's own words here; nothing is judged.

use super::{
    records::{self, Origin},
    repair::Again,
    told::marker_of,
};
use crate::{
    cluster::Clusters,
    error::{Code, JobError, with_causes},
    lane::ProducerSettings,
    limits,
};
use futures::future::join_all;
use hapax_commit::{
    Epoch, Handle, HandlePartition, Identity, Name, Naming, TransactionVersion,
    evidence::{
        Described, EndTxnAnswer, LaneFate, LaneLook, Marker, PartitionEnd, PartitionLook, TransactionState,
        Witness, judge_described, judge_lane,
    },
    inference::Seen,
};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Client, ClientError,
    fetch::{ControlSeen, FetchError, WrittenError, first_control_batch},
    transaction::{self, Described as Answer, InitError, Lifetime},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;

/// The clusters of a plan. Those that its transactions live on are connected from the start; another one is asked
/// only for what an earlier pipeline file has left there.
#[derive(Clone, Debug)]
pub(crate) struct Brokers {
    host: Host,
    clusters: Clusters,
    transactional: Arc<BTreeMap<Name, Client>>,
    /// Transactions whose records were all read, as they were acknowledged.
    whole: Arc<Mutex<BTreeSet<(String, Identity)>>>,
    /// Kafka's ids of the clusters of which it was said that states are inferred there.
    inferred: Arc<Mutex<BTreeSet<String>>>,
    /// Turns of those who walk through logs to a control batch.
    walks: Arc<Semaphore>,
}

impl Brokers {
    /// Connects to the clusters that a plan's transactions live on. The others may be down: what was decided is
    /// resolved without them.
    #[cfg(feature = "pipeline")]
    pub(crate) async fn connect(
        host: &Host,
        clusters: &Clusters,
        plan: &crate::job::Plan,
    ) -> Result<Self, JobError> {
        let names = plan.sinks.iter().filter_map(|sink| sink.transactional_cluster());
        Self::of(host, clusters, names).await
    }

    /// Connects to the named clusters.
    pub(crate) async fn of(
        host: &Host,
        clusters: &Clusters,
        names: impl IntoIterator<Item = &Name>,
    ) -> Result<Self, JobError> {
        let mut transactional = BTreeMap::new();
        for name in names {
            transactional.insert(name.clone(), clusters.connected(name).await?);
        }
        Ok(Self {
            host: host.clone(),
            clusters: clusters.clone(),
            transactional: Arc::new(transactional),
            whole: Arc::default(),
            inferred: Arc::default(),
            walks: Arc::new(Semaphore::new(limits::WALKS)),
        })
    }

    /// Kafka's id of a cluster that transactions of the plan live on.
    pub(crate) fn cluster_id(&self, name: &Name) -> &str {
        self.transactional.get(name).expect("a lane's cluster is connected from the start").cluster_id()
    }

    /// The clusters that transactions of the plan live on.
    pub(crate) fn transactional(&self) -> impl Iterator<Item = (&Name, &Client)> {
        self.transactional.iter()
    }

    /// The client of the cluster that a handle or an id lives on.
    ///
    /// # Errors
    /// No cluster of the plan has this id, or one that may have it cannot be reached.
    pub(crate) async fn client(&self, cluster_id: &str, what: &str) -> Result<Client, JobError> {
        if let Some(found) = self.transactional.values().find(|client| client.cluster_id() == cluster_id) {
            return Ok(found.clone());
        }
        for name in self.clusters.names().filter(|name| !self.transactional.contains_key(*name)) {
            let client = self.clusters.connected(name).await?;
            if client.cluster_id() == cluster_id {
                return Ok(client);
            }
        }
        Err(JobError::Configuration {
            code: Code::JobChanged,
            message: format!(
                "{what} lives on the cluster with id {cluster_id}, which no [cluster] of the pipeline file reaches; \
                 put that cluster back, or begin anew with --fresh once nothing of the job is in doubt there"
            ),
        })
    }

    /// Writes the records of an aborted transaction again and prepares them, or says why it never can.
    pub(crate) async fn rewrite(
        &self,
        client: &Client,
        handle: &Handle,
        epoch: Epoch,
        identity: Identity,
        timeout: Duration,
        settings: &ProducerSettings,
    ) -> Result<Result<Handle, String>, JobError> {
        let again = Again {
            host: &self.host,
            client,
            handle,
            origin: &Origin::Log,
            naming: Naming::Rotating,
            epoch,
            identity,
            timeout,
            lifetime: self.lifetime(client, timeout),
            settings,
        };
        again.write().await
    }

    fn patience(&self) -> Deadline {
        Deadline::after(self.host.now(), Some(limits::REPORT_EVERY))
    }

    /// What is known of one id: by its coordinator, or by the coordinators' log where the coordinator is not to be asked.
    pub(crate) async fn describe(&self, client: &Client, id: &str) -> Described {
        self.witnessed(client, id).await.1
    }

    /// The same, and who told it.
    pub(crate) async fn witnessed(&self, client: &Client, id: &str) -> (Witness, Described) {
        match self.told(client, id).await {
            Ok((by, answer)) => (by, described(answer)),
            Err(why) => (Witness::Coordinator, Described::Unanswered(why)),
        }
    }

    /// The same with all that is known there, for an id that no handle is kept of.
    pub(crate) async fn seen(&self, client: &Client, id: &str) -> Seen {
        self.told(client, id).await.map_or_else(Seen::Unanswered, |(_, answer)| seen(answer))
    }

    /// How the transactions of an id stood, oldest first, each with its protocol: what the log of the coordinators still
    /// has of what a coordinator does not tell any more.
    pub(crate) async fn history(
        &self,
        client: &Client,
        id: &str,
    ) -> Result<Vec<(Described, TransactionVersion)>, String> {
        let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY * 3));
        let history = transaction::read_history(client, id, patience).await;
        let history = history.map_err(|error| with_causes(&error))?;
        let version = |level: i16| match level {
            ..=1 => TransactionVersion::V1,
            _ => TransactionVersion::V2,
        };
        let logged =
            history.iter().map(|logged| (described(logged.described()), version(logged.client_version)));
        Ok(logged.collect())
    }

    /// By the coordinator or its log; else why neither tells.
    async fn told(&self, client: &Client, id: &str) -> Result<(Witness, Answer), String> {
        match transaction::describe_transaction(client, id, self.patience()).await {
            Ok(answer) => Ok((Witness::Coordinator, answer)),
            Err(error) if error.is_withheld() => {
                Ok((Witness::CoordinatorLog, self.infer(client, id, &error).await?))
            }
            Err(error) => {
                tracing::warn!(id, "DescribeTransactions has no answer: {error}");
                Err(error.to_string())
            }
        }
    }

    /// The coordinators write each state to their log before they tell it, so what is final there is final.
    async fn infer(&self, client: &Client, id: &str, refused: &ClientError) -> Result<Answer, String> {
        // A whole partition of the log is read for one id.
        let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY * 3));
        match transaction::read_state(client, id, patience).await {
            Ok(state) => {
                self.tell_inferred(client, refused);
                Ok(state.described())
            }
            Err(error) => {
                let why = format!("{refused}; and its log does not tell: {}", with_causes(&error));
                tracing::warn!(id, "DescribeTransactions has no answer: {why}");
                Err(why)
            }
        }
    }

    /// Once for a cluster: there are many ids, and each may be looked at many times.
    fn tell_inferred(&self, client: &Client, refused: &ClientError) {
        let mut told = self.inferred.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(client.cluster_id().to_owned()) {
            tracing::warn!(
                cluster_id = client.cluster_id(),
                "coordinators do not tell the states of transactions ({refused}): they are inferred from the topic \
                 __transaction_state; grant DESCRIBE on the transactional ids to ask the coordinators again"
            );
        }
    }

    /// Ends what is open under an id and fences it.
    pub(crate) async fn clear(
        &self,
        client: &Client,
        id: &str,
        timeout: Duration,
    ) -> Result<Identity, JobError> {
        let lifetime = self.lifetime(client, timeout);
        let patience = Deadline::after(self.host.now(), Some(limits::REPORT_EVERY * 3));
        let cleared = transaction::init_producer_id(client, id, lifetime, None, patience).await;
        cleared.map_err(|error| match error {
            InitError::TimeoutTooLong { .. } => {
                JobError::Configuration { code: Code::TransactionTimeout, message: error.to_string() }
            }
            error => JobError::Kafka {
                code: if matches!(&error, InitError::Client(client) if client.is_refusal()) {
                    Code::Refused
                } else {
                    Code::Unreachable
                },
                attempted: format!("clearing transactional id {id}"),
                source: Box::new(error),
            },
        })
    }

    /// How long transactions of the job may stay open on a client's cluster.
    pub(super) fn lifetime(&self, client: &Client, timeout: Duration) -> Lifetime {
        let here = self.transactional().find(|(_, known)| known.cluster_id() == client.cluster_id());
        let bounded = || Lifetime::Millis(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
        here.map_or_else(bounded, |(name, _)| self.clusters.cluster(name).lifetime(timeout))
    }

    /// Looks at a prepared transaction without touching it.
    pub(crate) async fn look(
        &self,
        client: &Client,
        handle: &Handle,
        markers: bool,
    ) -> Result<LaneLook, ClientError> {
        let (by, described) = self.witnessed(client, &handle.transactional_id.to_string()).await;
        let level = client.transaction_version().await?;
        let markers = if markers { Some(self.read_back(client, handle).await) } else { None };
        let records = self.records(client, handle, &described).await?;
        let mut look = LaneLook { by, described, level, markers, records };
        // Somebody else's markers: they are weighed against the coordinator before anything is ended.
        if look.markers.is_none()
            && judge_lane(handle, &look) == LaneFate::Open
            && !self.is_held(client, handle).await
        {
            look.markers = Some(self.read_back(client, handle).await);
        }
        Ok(look)
    }

    /// Does every partition of a handle hold its transaction open, as far as partitions tell? Whoever may not ask them
    /// does not know better than the coordinator.
    async fn is_held(&self, client: &Client, handle: &Handle) -> bool {
        for part in &handle.partitions {
            let asked =
                transaction::describe_producers(client, &part.topic, part.partition, self.patience()).await;
            let producer = handle.identity.producer_id;
            match asked {
                Ok(producers) => {
                    let own = producers.iter().find(|known| known.producer_id == producer);
                    if own.is_none_or(|own| own.open_from.is_none()) {
                        return false;
                    }
                }
                Err(error) => {
                    tracing::warn!(id = %handle.transactional_id, "whether {}-{} holds it open cannot be told: {error}", part.topic, part.partition);
                }
            }
        }
        true
    }

    /// Reads the records of a transaction that is open, as its coordinator says, and compares them with the handle.
    async fn records(
        &self,
        client: &Client,
        handle: &Handle,
        described: &Described,
    ) -> Result<Option<Result<(), String>>, ClientError> {
        let identity = (handle.cluster_id.clone(), handle.identity);
        if judge_described(handle, described) != LaneFate::Open {
            return Ok(None);
        }
        // What was there once stays there; a look that is repeated does not read it all again.
        if self.whole.lock().unwrap_or_else(PoisonError::into_inner).contains(&identity) {
            return Ok(Some(Ok(())));
        }
        match records::compare_log(&self.host, client, handle).await {
            Ok(()) => {
                self.whole.lock().unwrap_or_else(PoisonError::into_inner).insert(identity);
                Ok(Some(Ok(())))
            }
            Err(error @ WrittenError::Incomplete { .. }) => Ok(Some(Err(with_causes(&error)))),
            Err(WrittenError::Fetch(FetchError::Client(error))) if error.is_retriable() => Err(error),
            // What cannot be read says nothing: retention takes committed records, too, and a principal that only
            // writes has no right to read.
            Err(error) => {
                let id = &handle.transactional_id;
                tracing::warn!(%id, "whether its records are all there cannot be told: {}", with_causes(&error));
                Ok(None)
            }
        }
    }

    /// The first control batch of the handle's producer in each of its partitions.
    pub(crate) async fn read_back(&self, client: &Client, handle: &Handle) -> Vec<PartitionLook> {
        // A partition whose leader is away keeps no other one waiting.
        let looks: Vec<_> =
            handle.partitions.iter().map(|part| self.read_back_one(client, handle, part)).collect();
        join_all(looks).await
    }

    async fn read_back_one(&self, client: &Client, handle: &Handle, part: &HandlePartition) -> PartitionLook {
        let (topic, number, from) = (&part.topic, part.partition, part.first_offset);
        let (producer, silence) = (handle.identity.producer_id, limits::REPORT_EVERY);
        // The bound on silence begins with the walk; requests of one connection wait for each other.
        let turn = self.walks.acquire().await;
        let seen = first_control_batch(client, topic, part.topic_id, number, producer, from, silence).await;
        drop(turn);
        let end = match seen {
            Ok(ControlSeen::Commit { epoch, .. }) => {
                PartitionEnd::Marker { marker: Marker::Commit, producer_epoch: epoch }
            }
            Ok(ControlSeen::Abort { epoch, .. }) => {
                PartitionEnd::Marker { marker: Marker::Abort, producer_epoch: epoch }
            }
            Ok(ControlSeen::NoneBelow { .. }) => PartitionEnd::NoneYet,
            Ok(ControlSeen::Gone { reason }) => PartitionEnd::Gone(reason),
            Err(error) if !error.is_retriable() => PartitionEnd::Gone(error.to_string()),
            Err(error) => {
                tracing::warn!(id = %handle.transactional_id, "reading back {topic}-{number}: {error}");
                PartitionEnd::Unread(error.to_string())
            }
        };
        PartitionLook { topic: topic.clone(), partition: number, end }
    }

    /// A commit of the handle's producer id that is not the handle's own, behind its records, in words: the first one
    /// found. One identity is one transaction, so the epoch tells them apart; the own marker may stand there twice, as a
    /// coordinator that starts again does not know which it has written.
    ///
    /// # Errors
    /// A partition could not be read now. One whose log does not reach back any more tells nothing.
    pub(crate) async fn commit_beyond(
        &self,
        client: &Client,
        handle: &Handle,
    ) -> Result<Option<String>, FetchError> {
        let (producer, own) = (handle.identity.producer_id, marker_of(handle).producer_epoch);
        for part in &handle.partitions {
            let (topic, topic_id, number) = (&part.topic, part.topic_id, part.partition);
            let silence = limits::REPORT_EVERY;
            let mut from = part.last_offset + 1;
            loop {
                let seen = first_control_batch(client, topic, topic_id, number, producer, from, silence);
                from = match seen.await? {
                    ControlSeen::Commit { epoch, offset } if epoch > own => {
                        return Ok(Some(format!(
                            "{topic}-{number} has a commit of producer {producer} epoch {epoch} at offset {offset}, \
                             behind the transaction {} of epoch {}, the newest that the store knows of this id",
                            handle.transactional_id, handle.epoch
                        )));
                    }
                    ControlSeen::Commit { offset, .. } | ControlSeen::Abort { offset, .. } => offset + 1,
                    ControlSeen::NoneBelow { .. } | ControlSeen::Gone { .. } => break,
                };
            }
        }
        Ok(None)
    }

    /// EndTxn with the handle's own identity and version, until the answer is definite or the deadline passes.
    pub(crate) async fn end(
        &self,
        client: &Client,
        handle: &Handle,
        commit: bool,
        deadline: Deadline,
        on_written: impl FnMut() + Send,
    ) -> (EndTxnAnswer, Option<Identity>) {
        let id = handle.transactional_id.to_string();
        let (identity, version) = (handle.identity, handle.version);
        answered(transaction::end_txn(client, &id, identity, version, commit, deadline, on_written).await)
    }

    /// EndTxn(commit) of what stands under an id.
    pub(crate) async fn end_as(
        &self,
        client: &Client,
        id: &str,
        identity: Identity,
        version: TransactionVersion,
        deadline: Deadline,
    ) -> EndTxnAnswer {
        answered(transaction::end_txn(client, id, identity, version, true, deadline, || {}).await).0
    }
}

/// The answer to EndTxn in the protocol's own words, and the identity for what follows.
fn answered(answer: transaction::EndTxnAnswer) -> (EndTxnAnswer, Option<Identity>) {
    match answer {
        transaction::EndTxnAnswer::Committed { next } => (EndTxnAnswer::Committed, Some(next)),
        transaction::EndTxnAnswer::Aborted { next } => (EndTxnAnswer::Aborted, Some(next)),
        transaction::EndTxnAnswer::NotThisState { .. } => (EndTxnAnswer::NotThisState, None),
        transaction::EndTxnAnswer::Superseded { .. } => (EndTxnAnswer::Superseded, None),
        transaction::EndTxnAnswer::Forgotten { .. } => (EndTxnAnswer::Forgotten, None),
        transaction::EndTxnAnswer::Abortable { code } | transaction::EndTxnAnswer::Refused { code } => {
            (EndTxnAnswer::Refused(code.to_string()), None)
        }
        transaction::EndTxnAnswer::Unknown(why) => (EndTxnAnswer::Unknown(why.to_string()), None),
        other => {
            (EndTxnAnswer::Unknown(format!("an answer that this release does not know: {other:?}")), None)
        }
    }
}

/// A coordinator's words in the protocol's own.
fn described(answer: Answer) -> Described {
    match answer {
        Answer::Known { state, identity, .. } => match TransactionState::parse(&state.to_string()) {
            Some(state) => Described::Known { state, identity },
            None => Described::Unanswered(format!("state {state} is not known to this release")),
        },
        Answer::Unknown => Described::Forgotten,
    }
}

/// The same, for the comparison with what a checkpoint knows of an id.
fn seen(answer: Answer) -> Seen {
    match answer {
        Answer::Known { state, identity, start_ms, partitions, .. } => {
            match TransactionState::parse(&state.to_string()) {
                Some(state) => Seen::Known { state, identity, start_ms, partitions },
                None => Seen::Unanswered(format!("state {state} is not known to this release")),
            }
        }
        Answer::Unknown => Seen::Forgotten,
    }
}
