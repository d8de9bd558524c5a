//! One connection to one broker: pipelined requests, matched to their answers by correlation id.
//!
//! Owns the socket's task, request deadlines, the idle time-out and the ApiVersions exchange. Refuses to decide
//! anything about what is asked.
//!
//! ```text
//!  call() -> [exchange: queued] -> writer -> socket -> reader -> [exchange: awaiting] -> PendingResponse
//! ```
//!
//! Invariants: requests leave in the order of the calls; a request that was late closes the connection, because
//! answers behind it cannot be trusted to come in time; what was handed to the socket and not answered fails as
//! *unknown*. Requests without an answer (Produce with acks 0) cannot be sent.
//!
//! Sources: KIP-35, KIP-511, KIP-584; `NetworkClient`, `SocketServer`.

mod exchange;
mod handshake;
mod io;
mod pending;
mod versions;

pub use pending::PendingResponse;
pub use versions::BrokerVersions;

pub(crate) use handshake::{OpenError, Opening, ask_versions, open};

use crate::{
    NodeId,
    error::{CallError, Cause},
    limits,
    wire::{self, Request, WireError},
};
use bytes::Bytes;
use exchange::{Enqueued, Exchange, Ticket};
use hapax_host::Host;
use std::{
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, oneshot};

/// A shared connection. Clones use the same socket; when the last clone and the last [`PendingResponse`] are gone it
/// is closed.
#[derive(Clone)]
pub struct Connection {
    owner: Arc<Owner>,
}

/// Closes the connection when nobody can use it any more.
pub(super) struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close(Cause::Closed);
    }
}

/// What callers and the socket's task share.
struct Shared {
    host: Host,
    node: NodeId,
    client_id: String,
    idle_timeout: Duration,
    versions: OnceLock<BrokerVersions>,
    exchange: Mutex<Exchange>,
    wake_writer: Notify,
    wake_watch: Notify,
    wake_close: Notify,
}

impl Shared {
    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, cause: Cause) {
        self.exchange().close(self.host.now(), cause);
        self.wake_close.notify_one();
    }
}

impl Connection {
    /// The broker.
    pub fn node(&self) -> NodeId {
        self.owner.0.node
    }

    /// Has the connection ended? Requests fail as *not sent* then.
    pub fn is_closed(&self) -> bool {
        self.owner.0.exchange().is_closed()
    }

    /// Everything that the broker said in the ApiVersions exchange of this connection.
    pub fn broker_versions(&self) -> &BrokerVersions {
        self.owner.0.versions.get().expect("a connection is handed out after its ApiVersions exchange")
    }

    /// Versions of an API that the broker advertises.
    pub fn versions(&self, api_key: i16) -> Option<RangeInclusive<i16>> {
        self.broker_versions().range(api_key)
    }

    /// The highest version of `ours` that the broker advertises.
    ///
    /// # Errors
    /// [`CallError::Unsupported`]; nothing was sent.
    pub fn choose(&self, api_key: i16, ours: RangeInclusive<i16>) -> Result<i16, CallError> {
        let offered = self.versions(api_key);
        let common = offered.as_ref().and_then(|offered| {
            let version = *ours.end().min(offered.end());
            (version >= *ours.start() && version >= *offered.start()).then_some(version)
        });
        common.ok_or_else(|| CallError::Unsupported {
            api: wire::api_name(api_key),
            node: self.node(),
            wanted: ours,
            offered,
        })
    }

    /// Sends a request behind all earlier ones of this connection; enqueued when this returns.
    ///
    /// `timeout` counts from now. An answer that is later closes the connection.
    pub fn call<R: Request>(
        &self,
        version: i16,
        request: &R,
        timeout: Duration,
    ) -> PendingResponse<R::Response> {
        match request.body(version) {
            Ok(body) => self.enqueue(R::KEY, version, vec![body], timeout, wire::decode_body::<R>),
            Err(why) => {
                let cause = Cause::Refused(why.to_string().into());
                self.refused(R::KEY, version, cause, wire::decode_body::<R>)
            }
        }
    }

    /// Sends an encoded body (without header); the answer is the body after the response header.
    pub fn send_raw(
        &self,
        api_key: i16,
        version: i16,
        body: Vec<Bytes>,
        timeout: Duration,
    ) -> PendingResponse<Bytes> {
        self.enqueue(api_key, version, body, timeout, |_, body| Ok(body))
    }

    fn enqueue<T>(
        &self,
        api_key: i16,
        version: i16,
        body: Vec<Bytes>,
        timeout: Duration,
        decode: fn(i16, Bytes) -> Result<T, WireError>,
    ) -> PendingResponse<T> {
        let shared = &self.owner.0;
        let length = body.iter().map(Bytes::len).sum::<usize>();
        let Some((request_header, response_header)) = wire::header_versions(api_key, version) else {
            let cause = Cause::Refused(format!("unknown API key {api_key}").into());
            return self.refused(api_key, version, cause, decode);
        };
        if length > limits::MAX_REQUEST_FRAME {
            let cause = Cause::Refused(format!("a request of {length} bytes is too large").into());
            return self.refused(api_key, version, cause, decode);
        }
        let now = shared.host.now();
        let (ticket, pending) = self.ticket(api_key, version, response_header, now, timeout, decode);
        let enqueued = shared.exchange().enqueue(now, ticket, body, |correlation_id| {
            wire::request_head((api_key, version, request_header), correlation_id, &shared.client_id, length)
        });
        match enqueued {
            Enqueued::Waiting { wake_watch } => {
                shared.wake_writer.notify_one();
                if wake_watch {
                    shared.wake_watch.notify_one();
                }
            }
            Enqueued::Refused => {}
        }
        pending
    }

    fn refused<T>(
        &self,
        api_key: i16,
        version: i16,
        cause: Cause,
        decode: fn(i16, Bytes) -> Result<T, WireError>,
    ) -> PendingResponse<T> {
        let (ticket, pending) =
            self.ticket(api_key, version, 0, self.owner.0.host.now(), Duration::ZERO, decode);
        ticket.fail(CallError::NotSent { api: pending.api, node: pending.node, cause });
        pending
    }

    fn ticket<T>(
        &self,
        api_key: i16,
        version: i16,
        response_header: i16,
        now: hapax_host::Instant,
        timeout: Duration,
        decode: fn(i16, Bytes) -> Result<T, WireError>,
    ) -> (Ticket, PendingResponse<T>) {
        let (answer_to, answer) = oneshot::channel();
        let (written_to, written) = oneshot::channel();
        let api = wire::api_name(api_key);
        let deadline = now + timeout;
        let ticket =
            Ticket { api, response_header, deadline, timeout, answer: answer_to, written: Some(written_to) };
        let owner = Arc::clone(&self.owner);
        let pending =
            PendingResponse { api, node: self.node(), version, decode, answer, written, _owner: owner };
        (ticket, pending)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.node())
    }
}

#[cfg(test)]
mod tests;
