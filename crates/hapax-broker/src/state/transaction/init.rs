//! InitProducerId: a producer id and an epoch that fence whoever had the transactional id before.
//!
//! Destructive on purpose: an open transaction is aborted, also on behalf of a client whose epoch is stale, and the
//! answer is CONCURRENT_TRANSACTIONS until that is done. (KIP-98; with the client's own producer id and epoch, KIP-360)

use super::{
    metadata::{Identity, NEVER, NO_EPOCH, NO_PRODUCER_ID, Transaction},
    without_fencing,
};
use crate::state::{Answer, Call, Code, Machine, NodeId};
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Initialized {
    producer: Identity,
    /// The open transaction that it takes over, if it asked for that. (KIP-939)
    kept: Identity,
}

impl Machine {
    pub(crate) fn init_producer_id(&mut self, call: &Call, request: InitProducerIdRequest) -> Answer {
        let outcome = self.initialize(call.node, &request);
        let (code, told) = match outcome {
            Ok(told) => (Code::NONE, told),
            Err(code) => (code, Initialized { producer: Identity::NONE, kept: Identity::NONE }),
        };
        // PRODUCER_FENCED is new in version 4.
        let code = if call.version < 4 { without_fencing(code) } else { code };
        let response = InitProducerIdResponse::default()
            .with_error_code(code.0)
            .with_producer_id(told.producer.id.into())
            .with_producer_epoch(told.producer.epoch)
            .with_ongoing_txn_producer_id(told.kept.id.into())
            .with_ongoing_txn_producer_epoch(told.kept.epoch);
        Answer::Now(response.into())
    }

    fn initialize(&mut self, node: NodeId, request: &InitProducerIdRequest) -> Result<Initialized, Code> {
        let had = match (request.producer_id.0, request.producer_epoch) {
            (NO_PRODUCER_ID, NO_EPOCH) => None,
            (NO_PRODUCER_ID, _) | (_, NO_EPOCH) => return Err(Code::INVALID_REQUEST),
            (id, epoch) => Some(Identity { id, epoch }),
        };
        let Some(id) = &request.transactional_id else {
            let producer = Identity { id: self.new_producer_id(node), epoch: 0 };
            return Ok(Initialized { producer, kept: Identity::NONE });
        };
        if id.is_empty() {
            return Err(Code::INVALID_REQUEST);
        }
        let timeout_ms = self.checked_timeout(request)?;
        if self.stored(id, Some(node))?.is_none() {
            let new = Transaction::new(self.new_producer_id(node), timeout_ms, self.now);
            self.remember_new(id, new);
        }
        self.initialize_stored(node, id, timeout_ms, had, request.keep_prepared_txn)
    }

    fn checked_timeout(&self, request: &InitProducerIdRequest) -> Result<i32, Code> {
        if request.enable_2_pc && !self.settings.two_phase_commit {
            return Err(Code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
        }
        if request.keep_prepared_txn && !self.settings.two_phase_commit {
            return Err(Code::UNSUPPORTED_VERSION);
        }
        let asked = request.transaction_timeout_ms;
        if request.enable_2_pc {
            Ok(NEVER)
        } else if asked <= 0 || asked > self.settings.max_timeout_ms {
            Err(Code::INVALID_TRANSACTION_TIMEOUT)
        } else {
            Ok(asked)
        }
    }

    fn remember_new(&mut self, id: &str, new: Transaction) {
        let partition = self.state_partition(id);
        if let Some(shard) = self.transactions.shards.get_mut(&partition) {
            shard.transactions.insert(id.to_owned(), new);
        }
    }

    fn initialize_stored(
        &mut self,
        node: NodeId,
        id: &str,
        timeout_ms: i32,
        had: Option<Identity>,
        keep: bool,
    ) -> Result<Initialized, Code> {
        let stored = self.stored(id, Some(node))?.cloned().ok_or(Code::UNKNOWN_SERVER_ERROR)?;
        if stored.pending.is_some() || stored.phase.is_prepared() {
            return Err(Code::CONCURRENT_TRANSACTIONS);
        }
        if had.is_some_and(|had| !names_this_producer(&stored, had)) {
            return Err(Code::PRODUCER_FENCED);
        }
        if !stored.phase.may_expire() {
            return if keep { self.take_over(node, id, &stored) } else { self.abort_for_client(id) };
        }
        let next = if stored.producer.is_exhausted() {
            if had.is_some_and(|had| had.epoch != stored.producer.epoch) {
                // Kafka throws an IllegalStateException here instead of fencing.
                return Err(Code::UNKNOWN_SERVER_ERROR);
            }
            stored.with_producer_id(self.new_producer_id(node), timeout_ms, had.is_some(), self.now)
        } else {
            stored.with_next_epoch(timeout_ms, had.map(|had| had.epoch), self.now)?
        };
        let producer = next.producer;
        self.write_transaction(id, next)?;
        Ok(Initialized { producer, kept: Identity::NONE })
    }

    /// The client comes again until the abort is done, and then gets one epoch more than the abort took.
    fn abort_for_client(&mut self, id: &str) -> Result<Initialized, Code> {
        self.abort_by_broker(id)?;
        Err(Code::CONCURRENT_TRANSACTIONS)
    }

    /// The open transaction stays, and from now on only the new client may end it.
    fn take_over(&mut self, node: NodeId, id: &str, stored: &Transaction) -> Result<Initialized, Code> {
        let held = stored.client();
        let successor = if held.is_exhausted() {
            Identity { id: self.new_producer_id(node), epoch: 0 }
        } else {
            Identity { epoch: held.epoch + 1, ..held }
        };
        let next = Transaction { successor: Some(successor), updated: self.now, ..stored.clone() };
        self.write_transaction(id, next)?;
        Ok(Initialized { producer: successor, kept: stored.producer })
    }
}

/// Whether the producer that a client says it had is this one: the same id, or the one before if its epochs are used
/// up, which is a retry after the producer id changed.
fn names_this_producer(stored: &Transaction, had: Identity) -> bool {
    stored.producer.epoch == NO_EPOCH
        || had.id == stored.client().id
        || (had.id == stored.previous_id && had.is_exhausted())
}
