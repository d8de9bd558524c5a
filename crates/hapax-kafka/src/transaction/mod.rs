//! Requests to transaction coordinators, each repeated by the error table until its answer is definite or its
//! deadline has passed.
//!
//! - [`init_producer_id`], [`init_idempotent`]: get an identity. **Destructive** for what is open under the id.
//! - [`probe_two_phase`]: whether transactions without a time-out can be had
//! - [`add_partitions`]: V1 only; V2 adds them with Produce
//! - [`commit_offsets`]: a group's offsets as a part of the transaction
//! - [`end_txn`]: commit or abort, also for another process's transaction
//! - [`complete`], [`end_left_open`]: make sure that partitions know what the coordinator has ended
//! - [`write_end_marker`]: tells a partition in the coordinator's place
//! - [`describe_transaction`], [`list_transactions`], [`describe_producers`]: look, change nothing
//! - [`read_state`], [`read_history`]: the same from the coordinators' own log
//!
//! Refuses: to conclude from an answer what happened to the records; that is the commit machine's.
//!
//! Sources: KIP-98, KIP-360, KIP-664, KIP-890; `TransactionCoordinator`, `TransactionManager`.

mod begin;
mod complete;
mod describe;
mod end;
mod marker;
mod offset;
mod state_log;
mod two_phase;

pub use begin::{InitError, add_partitions, init_idempotent, init_producer_id};
pub use complete::{
    EndedTransaction, LeftOpen, LeftOpenEnd, MarkerRefused, complete, end_left_open, end_left_open_as,
    open_producers,
};
pub use describe::{
    Described, ListFilter, ListedTransaction, PartitionProducer, TransactionState, describe_producers,
    describe_transaction, list_transactions,
};
pub use end::{EndTxnAnswer, Unanswered, end_txn};
pub use marker::{EndMarker, write_end_marker};
pub(crate) use offset::may_have_moved;
pub use offset::{CarryingTransaction, OffsetToCommit, commit_offsets};
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use state_log::fuzz;
pub(crate) use state_log::partition_of;
pub use state_log::{
    LogState, LoggedTransaction, StateLogError, StateRecordError, TRANSACTION_STATE_TOPIC, read_history,
    read_state,
};
pub use two_phase::{Lifetime, TwoPhaseRefused, probe_two_phase};

use crate::{
    Client, ClientError, Connection, CoordinatorKind, KafkaCode,
    error::{Class, RequestKind, classify},
    retry::{Retry, within},
    wire::Request,
};
use std::{ops::RangeInclusive, time::Duration};

/// A request to the coordinator of one transactional id, and how its answer is read.
struct Ask<'a, R: Request> {
    transactional_id: &'a str,
    kind: RequestKind,
    versions: RangeInclusive<i16>,
    timeout: Duration,
    request: &'a R,
    code: fn(&R::Response) -> KafkaCode,
}

impl<R: Request + Sync> Ask<'_, R> {
    /// Repeats the request until it succeeds, is refused, or the deadline has passed.
    async fn until_settled(
        &self,
        client: &Client,
        retry: &mut Retry<'_>,
    ) -> Result<R::Response, ClientError> {
        loop {
            match self.once(client, retry).await {
                Ok(response) => return Ok(response),
                Err(error) => retry.again(error).await?,
            }
        }
    }

    async fn once(&self, client: &Client, retry: &Retry<'_>) -> Result<R::Response, ClientError> {
        let id = self.transactional_id;
        let connection = retry.bounded(client.coordinator(CoordinatorKind::Transaction, id)).await?;
        let result = self.call(client, &connection, retry).await;
        if result.as_ref().is_err_and(leaves_the_coordinator_in_doubt) {
            client.forget_coordinator(CoordinatorKind::Transaction, id);
        }
        result
    }

    async fn call(
        &self,
        client: &Client,
        connection: &Connection,
        retry: &Retry<'_>,
    ) -> Result<R::Response, ClientError> {
        let version = connection.choose(R::KEY, self.versions.clone())?;
        let answer = connection.call(version, self.request, self.timeout);
        let response = within(client, retry.deadline(), R::NAME, connection.node(), answer).await?;
        match (self.code)(&response) {
            KafkaCode::NONE => Ok(response),
            code => Err(ClientError::broker(self.kind, self.transactional_id, code)),
        }
    }
}

/// After this, another broker may be the coordinator.
fn leaves_the_coordinator_in_doubt(error: &ClientError) -> bool {
    match error {
        ClientError::Call(_) => true,
        ClientError::Broker { request, code, .. } => classify(*request, *code) == Class::RefreshCoordinator,
        ClientError::Config(_)
        | ClientError::Unreachable { .. }
        | ClientError::TooOld { .. }
        | ClientError::OtherCluster { .. }
        | ClientError::Deadline { .. } => false,
    }
}
