//! Ending a transaction, ours or another process's.
//!
//! The answer `NONE` is given when the decision is in the coordinator's log; markers follow. Every other answer but
//! the ones named in [`EndTxnAnswer`] leaves the outcome open, and the same decision is sent again: a contradictory
//! one is never sent. The version of the transaction is kept whatever the cluster has finalized meanwhile: version 5
//! after version 4 answers `INVALID_TXN_STATE` for what was committed.

use super::{Ask, leaves_the_coordinator_in_doubt};
use crate::{
    Client, ClientError, CoordinatorKind, KafkaCode,
    error::{CallError, Class, Disturbance, RequestKind, classify},
    limits,
    retry::{Retry, within},
    wire::{self, Request},
};
use hapax_commit::{Identity, ProducerEpoch, ProducerId, TransactionVersion};
use hapax_host::Deadline;
use kafka_protocol::messages::{self, EndTxnRequest, EndTxnResponse};
use std::ops::RangeInclusive;

/// What the coordinator made of EndTxn.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EndTxnAnswer {
    /// Committed: now, or by an earlier EndTxn of this identity. On V2 `next` is the identity after it; on V1 the
    /// identity stays.
    Committed {
        /// What the id's owner may go on with.
        next: Identity,
    },
    /// Aborted: now, or by an earlier EndTxn of this identity.
    Aborted {
        /// What the id's owner may go on with.
        next: Identity,
    },
    /// `INVALID_TXN_STATE`: nothing is open under this identity and it was not ended the way that was asked for. For a
    /// commit: aborted, or never begun.
    NotThisState {
        /// The answer.
        code: KafkaCode,
    },
    /// `INVALID_PRODUCER_EPOCH`, `PRODUCER_FENCED`: the id has another producer epoch. The outcome does not follow
    /// from this: time-out, abort, commit and a later transaction all look alike.
    Superseded {
        /// The answer.
        code: KafkaCode,
    },
    /// `INVALID_PRODUCER_ID_MAPPING`: the id is unknown, expired, or has another producer id.
    Forgotten {
        /// The answer.
        code: KafkaCode,
    },
    /// `TRANSACTION_ABORTABLE`: it cannot be committed; it is still open.
    Abortable {
        /// The answer.
        code: KafkaCode,
    },
    /// It will not be done, however often it is asked: rights, version, request. Earlier tries had no effect that was
    /// answered.
    Refused {
        /// The answer.
        code: KafkaCode,
    },
    /// No definite answer until the deadline.
    Unknown(Unanswered),
}

/// Why there is no definite answer to EndTxn.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unanswered {
    /// Nothing was sent: the cluster's finalized `transaction.version` is below the transaction's. The broker would
    /// hang the id. Raise the feature again.
    #[error(
        "EndTxn for {transactional_id} was not sent: the transaction is {version}, the cluster is at {cluster}; raise transaction.version again"
    )]
    VersionLowered {
        /// The id.
        transactional_id: String,
        /// The transaction's version.
        version: TransactionVersion,
        /// What the cluster has finalized.
        cluster: TransactionVersion,
    },
    /// No EndTxn left this process.
    #[error("EndTxn was not sent: {0}")]
    NotSent(ClientError),
    /// EndTxn was sent at least once and may have been executed.
    #[error("EndTxn was sent, its outcome is unknown: {0}")]
    Sent(ClientError),
}

impl Unanswered {
    /// May the coordinator have executed the decision?
    pub fn may_have_had_effect(&self) -> bool {
        matches!(self, Self::Sent(_))
    }
}

/// Ends the transaction `identity` of `transactional_id` by commit or abort, repeating the same decision until the
/// answer is definite or the deadline has passed. `on_written` is called each time that a request was handed to the
/// socket, before its answer.
///
/// Reports each 30 s that it still waits. [`Deadline::NEVER`] never gives up.
pub async fn end_txn(
    client: &Client,
    transactional_id: &str,
    identity: Identity,
    version: TransactionVersion,
    commit: bool,
    deadline: Deadline,
    mut on_written: impl FnMut() + Send,
) -> EndTxnAnswer {
    let request = EndTxnRequest::default()
        .with_transactional_id(wire::text(transactional_id).into())
        .with_producer_id(messages::ProducerId(identity.producer_id.0))
        .with_producer_epoch(identity.producer_epoch.0)
        .with_committed(commit);
    let ask = Ask {
        transactional_id,
        kind: RequestKind::EndTxn(version),
        versions: versions_of(version),
        timeout: limits::END_TXN_REQUEST_TIMEOUT,
        request: &request,
        code: |response| KafkaCode(response.error_code),
    };
    let mut retry = Retry::new(client, ask.kind, transactional_id, deadline);
    let mut sent = false;
    loop {
        if let Some(lowered) = version_lowered(client, &ask, version, &mut retry, sent).await {
            return EndTxnAnswer::Unknown(lowered);
        }
        let error = match ask.end_once(client, &retry, &mut sent, &mut on_written).await {
            Ok(response) => return ended(&response, identity, version, commit),
            Err(error) => error,
        };
        if let Some(answer) = definite(&error, ask.kind) {
            return answer;
        }
        // Unsupported: another coordinator of a cluster that is being upgraded may know the version.
        if let Err(error) = retry.pause(error).await {
            return EndTxnAnswer::Unknown(if sent {
                Unanswered::Sent(error)
            } else {
                Unanswered::NotSent(error)
            });
        }
    }
}

fn versions_of(version: TransactionVersion) -> RangeInclusive<i16> {
    match version {
        TransactionVersion::V1 => 1..=4,
        TransactionVersion::V2 => 5..=5,
    }
}

/// A broker accepts version 5 below the finalized level 2 and then hangs the id, so we look before each try.
async fn version_lowered(
    client: &Client,
    ask: &Ask<'_, EndTxnRequest>,
    version: TransactionVersion,
    retry: &mut Retry<'_>,
    sent: bool,
) -> Option<Unanswered> {
    if version == TransactionVersion::V1 {
        return None;
    }
    loop {
        let error = match retry.bounded(client.transaction_version()).await {
            Ok(TransactionVersion::V2) => return None,
            Ok(cluster) if !sent => {
                let transactional_id = ask.transactional_id.to_owned();
                return Some(Unanswered::VersionLowered { transactional_id, version, cluster });
            }
            Ok(cluster) => ClientError::Config(format!("the cluster went back to {cluster} meanwhile")),
            Err(error) => error,
        };
        if let Err(error) = retry.pause(error).await {
            return Some(if sent { Unanswered::Sent(error) } else { Unanswered::NotSent(error) });
        }
    }
}

impl Ask<'_, EndTxnRequest> {
    /// One try; `sent` becomes true when a byte of it may have left.
    async fn end_once(
        &self,
        client: &Client,
        retry: &Retry<'_>,
        sent: &mut bool,
        on_written: &mut (impl FnMut() + Send),
    ) -> Result<EndTxnResponse, ClientError> {
        let coordinator = client.coordinator(CoordinatorKind::Transaction, self.transactional_id);
        let connection = retry.bounded(coordinator).await?;
        let result = async {
            let version = connection.choose(EndTxnRequest::KEY, self.versions.clone())?;
            let mut answer = connection.call(version, self.request, self.timeout);
            let node = connection.node();
            let answer = async {
                if answer.written().await.is_ok() {
                    on_written();
                }
                answer.await
            };
            within(client, retry.deadline(), EndTxnRequest::NAME, node, answer).await
        }
        .await;
        *sent |= result.as_ref().map_or_else(CallError::may_have_had_effect, |_| true);
        let result = result.map_err(ClientError::from).and_then(|response| match (self.code)(&response) {
            KafkaCode::NONE => Ok(response),
            code => Err(ClientError::broker(self.kind, self.transactional_id, code)),
        });
        if result.as_ref().is_err_and(leaves_the_coordinator_in_doubt) {
            client.forget_coordinator(CoordinatorKind::Transaction, self.transactional_id);
        }
        result
    }
}

fn ended(
    response: &EndTxnResponse,
    identity: Identity,
    version: TransactionVersion,
    commit: bool,
) -> EndTxnAnswer {
    let next = match version {
        TransactionVersion::V1 => identity,
        TransactionVersion::V2 => Identity {
            producer_id: ProducerId(response.producer_id.0),
            producer_epoch: ProducerEpoch(response.producer_epoch),
        },
    };
    if commit { EndTxnAnswer::Committed { next } } else { EndTxnAnswer::Aborted { next } }
}

/// The error as a final answer; `None` where the same decision has to be sent again.
fn definite(error: &ClientError, kind: RequestKind) -> Option<EndTxnAnswer> {
    let ClientError::Broker { request, code, .. } = error else { return None };
    let code = *code;
    if *request != kind {
        // The look-up of the coordinator answered: only a missing right is final.
        let refused = matches!(classify(*request, code), Class::Refused(_));
        return refused.then_some(EndTxnAnswer::Refused { code });
    }
    match classify(kind, code) {
        Class::Disturbed(Disturbance::NotThisState) => Some(EndTxnAnswer::NotThisState { code }),
        Class::Disturbed(Disturbance::Superseded) => Some(EndTxnAnswer::Superseded { code }),
        Class::Disturbed(Disturbance::Forgotten) => Some(EndTxnAnswer::Forgotten { code }),
        Class::Abortable => Some(EndTxnAnswer::Abortable { code }),
        Class::Refused(_) | Class::FatalForLane | Class::NotFound | Class::AlreadyThere => {
            Some(EndTxnAnswer::Refused { code })
        }
        Class::Success
        | Class::Duplicate
        | Class::Retry
        | Class::RefreshMetadata
        | Class::RefreshCoordinator
        | Class::Split
        | Class::OutOfSequence
        | Class::OutOfRange
        | Class::UnknownTopic
        | Class::UnknownOutcome => None,
    }
}
