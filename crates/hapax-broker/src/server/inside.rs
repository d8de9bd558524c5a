//! What whoever owns a broker may ask of it without a connection: requests beside the wire and the rules, and the logs.

use super::{Broker, Halted};
use crate::{
    state::{NodeId, Outcome},
    wire::{Request, Response},
};
use bytes::{Bytes, BytesMut};

/// Why a request from inside has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The broker does not take it.
    #[error(transparent)]
    Halted(#[from] Halted),
    /// It cannot be written in this version, or its answer is none.
    #[error("{0}")]
    Impossible(String),
}

impl Broker {
    /// Asks a node as a client would: no rule sees the request, and no connection is needed.
    ///
    /// # Errors
    /// The broker takes nothing any more, or the request is none of this version.
    pub async fn request(
        &self,
        node: NodeId,
        version: i16,
        request: Request,
    ) -> Result<Response, Unanswered> {
        let mut body = BytesMut::new();
        request.encode(version, &mut body).map_err(|error| Unanswered::Impossible(error.to_string()))?;
        let crashes = self.core.crashes.count();
        let mut pending = self.core.submit(crashes, node, version, None, request, &body.freeze())?;
        match pending.outcome().await.ok_or(Halted::Stopped)? {
            Outcome::Answer(response) => Ok(response),
            Outcome::Silence | Outcome::HangUp => Err(Unanswered::Impossible("no answer".to_owned())),
        }
    }

    /// All batches that a partition's log has, control batches among them, as they are on disk; none where there is no
    /// such partition.
    pub fn log(&self, topic: &str, partition: i32) -> Option<Bytes> {
        self.core.look(|machine| {
            let log = &machine.catalog.partition(topic, partition)?.log;
            let mut all = BytesMut::new();
            for stored in log.batches(log.start()) {
                all.extend_from_slice(&stored.batch.head);
                all.extend_from_slice(&stored.batch.records);
            }
            Some(all.freeze())
        })
    }

    /// All that the broker keeps, as one number: see [`Machine::digest`](crate::Machine::digest).
    pub fn digest(&self) -> u64 {
        self.core.look(crate::Machine::digest)
    }
}
