//! EndTxn, and the aborts that the broker decides by itself. The decision is one record; the answer goes out when it
//! is written, and the markers follow.

use super::{
    judge::{EndRequest, Verdict, judge_end_v1, judge_end_v2},
    metadata::{Identity, Level, NO_PRODUCER_ID, Transaction},
    without_fencing,
};
use crate::state::{Answer, Call, Code, Machine, NodeId};
use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse};

impl Machine {
    pub(crate) fn end_txn(&mut self, call: &Call, request: EndTxnRequest) -> Answer {
        let level = Level::of_end(call.version);
        let ask = EndRequest {
            producer: Identity { id: request.producer_id.0, epoch: request.producer_epoch },
            commit: request.committed,
        };
        let (code, told) = match self.end_asked(call.node, &request.transactional_id, ask, level) {
            Ok(told) => (Code::NONE, if level.bumps() { told } else { Identity::NONE }),
            Err(code) => (code, Identity::NONE),
        };
        // PRODUCER_FENCED is new in version 2.
        let code = if call.version < 2 { without_fencing(code) } else { code };
        let response = EndTxnResponse::default()
            .with_error_code(code.0)
            .with_producer_id(told.id.into())
            .with_producer_epoch(told.epoch);
        Answer::Now(response.into())
    }

    fn end_asked(&mut self, node: NodeId, id: &str, ask: EndRequest, level: Level) -> Result<Identity, Code> {
        if id.is_empty() {
            return Err(Code::INVALID_REQUEST);
        }
        let stored = self.stored(id, Some(node))?.cloned().ok_or(Code::INVALID_PRODUCER_ID_MAPPING)?;
        let verdict = if level.bumps() { judge_end_v2(&stored, ask) } else { judge_end_v1(&stored, ask) };
        match verdict {
            Verdict::Refuse(code) => Err(code),
            Verdict::Done => Ok(stored.producer),
            Verdict::Prepare => self.decide(id, &stored, ask.commit, level),
        }
    }

    /// Writes the decision. The answer names what the client goes on with, before the markers are written.
    fn decide(
        &mut self,
        id: &str,
        stored: &Transaction,
        commit: bool,
        level: Level,
    ) -> Result<Identity, Code> {
        let next_id = if level.bumps() && stored.client().is_exhausted() {
            let node = self.shard(id, None)?.node;
            self.new_producer_id(node)
        } else {
            NO_PRODUCER_ID
        };
        let next = stored.prepared(commit, level, next_id, self.now);
        let told = next.after_completion();
        self.write_transaction(id, next)?;
        Ok(told)
    }

    /// Aborts an open transaction on the broker's own behalf: its time is up, or its id is wanted by another client.
    ///
    /// With V2 this is the same step that a client's abort takes, one epoch further and with the old one remembered, so
    /// nobody can tell them apart later. With V1 it is one epoch further and the old one is forgotten, so that whatever
    /// the old client asks is answered with PRODUCER_FENCED.
    pub(super) fn abort_by_broker(&mut self, id: &str) -> Result<(), Code> {
        let stored = self.stored(id, None)?.cloned().ok_or(Code::INVALID_PRODUCER_ID_MAPPING)?;
        let level = self.cluster_level();
        let fenced = if level.bumps() { stored } else { stored.fenced() };
        match self.decide(id, &fenced, false, level) {
            Ok(_) => Ok(()),
            Err(code) => {
                if let Some(stored) = self.stored_mut(id).filter(|_| !level.bumps()) {
                    // The raised epoch stays although nobody was told, and the next fence does not raise it again.
                    stored.producer = fenced.producer;
                    stored.last_epoch = fenced.last_epoch;
                    stored.fence_failed = true;
                }
                Err(code)
            }
        }
    }
}
