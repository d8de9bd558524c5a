//! Trying again: how long to wait, and until when.

use crate::{
    Client, ClientError, KafkaCode, NodeId,
    client::backoff,
    error::{CallError, Cause, RequestKind},
    limits,
};
use hapax_host::{Deadline, Instant};
use std::{future::Future, time::Duration};

/// The waits between the tries of one operation.
pub(crate) struct Retry<'a> {
    client: &'a Client,
    request: RequestKind,
    subject: String,
    deadline: Deadline,
    began: Instant,
    next_report: Duration,
    failures: u32,
    /// The newest failure that a broker told of.
    answered: Option<ClientError>,
}

impl<'a> Retry<'a> {
    pub(crate) fn new(client: &'a Client, request: RequestKind, subject: &str, deadline: Deadline) -> Self {
        let began = client.host().now();
        let next_report = limits::STILL_WAITING_REPORT;
        let subject = subject.to_owned();
        Self { client, request, subject, deadline, began, next_report, failures: 0, answered: None }
    }

    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Waits before the next try.
    ///
    /// # Errors
    /// `last` itself where another try cannot help; [`ClientError::Deadline`] with it when the time is over.
    pub(crate) async fn again(&mut self, last: ClientError) -> Result<(), ClientError> {
        if !last.is_retriable() {
            return Err(last);
        }
        self.pause(last).await
    }

    /// As [`Retry::again`], where the caller knows that another try is right whatever the error says.
    pub(crate) async fn pause(&mut self, last: ClientError) -> Result<(), ClientError> {
        let host = self.client.host();
        let wait = host.jitter(self.wait_after(&last));
        self.failures = self.failures.saturating_add(1);
        let remaining = self.deadline.remaining(host.now());
        if remaining.is_some_and(|remaining| remaining <= wait) {
            host.sleep(remaining.unwrap_or_default()).await;
            let waited = host.now().saturating_duration_since(self.began);
            let (request, subject) = (self.request, self.subject.clone());
            let last = Box::new(self.telling(last));
            return Err(ClientError::Deadline { request, subject, waited, last });
        }
        self.report(&last);
        if last.code().is_some() {
            self.answered = Some(last);
        }
        host.sleep(wait).await;
        Ok(())
    }

    /// A try that the deadline cut short says only that; what a broker answered to one before says why.
    fn telling(&mut self, last: ClientError) -> ClientError {
        match last.code() {
            Some(_) => last,
            None => self.answered.take().unwrap_or(last),
        }
    }

    /// One step of a try, given up when the operation's time is over. Only for steps without effect: look-ups,
    /// connecting.
    pub(crate) async fn bounded<T, E: Into<ClientError>>(
        &self,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ClientError> {
        let host = self.client.host();
        let Some(remaining) = self.deadline.remaining(host.now()) else {
            return step.await.map_err(Into::into);
        };
        match host.timeout(remaining, step).await {
            Some(result) => result.map_err(Into::into),
            None => {
                let cause = Cause::TimedOut(remaining);
                Err(CallError::NotSent { api: "look-up", node: NodeId::BOOTSTRAP, cause }.into())
            }
        }
    }

    fn wait_after(&self, last: &ClientError) -> Duration {
        if last.code() == Some(KafkaCode::CONCURRENT_TRANSACTIONS) {
            let doubled =
                limits::CONCURRENT_TRANSACTIONS_BACKOFF * 2_u32.saturating_pow(self.failures.min(3));
            return doubled.min(limits::CONCURRENT_TRANSACTIONS_BACKOFF_MAX);
        }
        backoff(self.client.config(), self.failures)
    }

    fn report(&mut self, last: &ClientError) {
        let waited = self.client.host().now().saturating_duration_since(self.began);
        if waited >= self.next_report {
            self.next_report = waited + limits::STILL_WAITING_REPORT;
            let (request, subject) = (self.request, &self.subject);
            tracing::warn!(%request, %subject, ?waited, tries = self.failures, %last, "no definite answer yet, trying on");
        }
    }
}

/// Waits for an answer, but not longer than the operation may take. The request itself keeps its own time-out, so
/// that an impatient operation does not cost others their connection.
pub(crate) async fn within<T>(
    client: &Client,
    deadline: Deadline,
    api: &'static str,
    node: NodeId,
    answer: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let Some(remaining) = deadline.remaining(client.host().now()) else { return answer.await };
    match client.host().timeout(remaining, answer).await {
        Some(answer) => answer,
        None => Err(CallError::Unknown { api, node, cause: Cause::TimedOut(remaining) }),
    }
}
