//! A request about one partition, to whoever leads it.

use crate::{
    Client, ClientError, Connection, KafkaCode, Leader,
    error::{CallError, Class, RequestKind, classify},
    limits,
    retry::{Retry, within},
    wire::Request,
};
use hapax_host::Deadline;
use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicUsize, Ordering},
};

pub(crate) struct AskLeader<'a, R: Request> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) kind: RequestKind,
    pub(crate) versions: RangeInclusive<i16>,
    /// What is asked of a leader.
    pub(crate) request: &'a (dyn Fn(Leader) -> R + Sync),
    /// The partition's code; none where the answer has no entry for it.
    pub(crate) code: fn(&R::Response) -> Option<KafkaCode>,
    /// Counts requests that are on their way and may be done later: also those whose answer was lost, and of a future that
    /// was dropped.
    pub(crate) unanswered: Option<&'a AtomicUsize>,
}

impl<R: Request> AskLeader<'_, R> {
    pub(crate) async fn until_settled(
        &self,
        client: &Client,
        deadline: Deadline,
    ) -> Result<R::Response, ClientError> {
        let subject = format!("{}-{}", self.topic, self.partition);
        let mut retry = Retry::new(client, self.kind, &subject, deadline);
        loop {
            let error = match self.once(client, &retry, &subject).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let stale = moves_the_leader(&error);
            retry.again(error).await?;
            if stale && let Err(error) = retry.bounded(client.refresh(&[self.topic])).await {
                retry.again(error).await?;
            }
        }
    }

    async fn once(
        &self,
        client: &Client,
        retry: &Retry<'_>,
        subject: &str,
    ) -> Result<R::Response, ClientError> {
        let connection = leader_connection(client, self.topic, self.partition, self.kind);
        let (leader, connection) = retry.bounded(connection).await?;
        let version = connection.choose(R::KEY, self.versions.clone())?;
        if let Some(unanswered) = self.unanswered {
            unanswered.fetch_add(1, Ordering::Relaxed);
        }
        let answer = connection.call(version, &(self.request)(leader), limits::LOOKUP_TIMEOUT);
        let response = within(client, retry.deadline(), R::NAME, connection.node(), answer).await?;
        if let Some(unanswered) = self.unanswered {
            unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        match (self.code)(&response) {
            Some(KafkaCode::NONE) => Ok(response),
            Some(code) => Err(ClientError::broker(self.kind, subject, code)),
            None => Err(CallError::Malformed {
                api: R::NAME,
                node: connection.node(),
                reason: format!("no entry for {subject}").into(),
            }
            .into()),
        }
    }
}

/// The leader of a partition, and the control connection to it; asks for metadata if the leader is not known.
async fn leader_connection(
    client: &Client,
    topic: &str,
    partition: i32,
    kind: RequestKind,
) -> Result<(Leader, Connection), ClientError> {
    if client.cached_leader(topic, partition).is_none() {
        client.refresh(&[topic]).await?;
    }
    if let Some(known) = client.cached_topic(topic) {
        known.usable()?;
        if known.partition(partition).is_none() {
            let code = KafkaCode::UNKNOWN_TOPIC_OR_PARTITION;
            return Err(ClientError::broker(RequestKind::Metadata, format!("{topic}-{partition}"), code));
        }
    }
    let leader = client.cached_leader(topic, partition).ok_or_else(|| {
        ClientError::broker(kind, format!("{topic}-{partition}"), KafkaCode::LEADER_NOT_AVAILABLE)
    })?;
    Ok((leader, client.control_connection(leader.node).await?))
}

/// After this, another broker may lead the partition.
pub(crate) fn moves_the_leader(error: &ClientError) -> bool {
    match error {
        ClientError::Call(_) => true,
        ClientError::Broker { request, code, .. } => {
            matches!(classify(*request, *code), Class::RefreshMetadata | Class::UnknownTopic)
        }
        ClientError::Config(_)
        | ClientError::Unreachable { .. }
        | ClientError::TooOld { .. }
        | ClientError::OtherCluster { .. }
        | ClientError::Deadline { .. } => false,
    }
}
