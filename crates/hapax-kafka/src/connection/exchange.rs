//! The book of one connection: which requests wait, which were handed to the socket, which are unanswered.
//!
//! ```text
//! enqueue -> queued -> take (writer) -> awaiting -> answer (reader)
//! ```
//!
//! Invariants: answers come in the order of requests (a broker handles one request of a connection at a time); a
//! request leaves the book exactly once, with an answer or with an error; a request fails as *not sent* only if no
//! byte of it was handed to the socket.

use super::pending::Answer;
use crate::{
    NodeId,
    error::{CallError, Cause},
    limits, wire,
};
use bytes::Bytes;
use hapax_host::Instant;
use std::{collections::VecDeque, time::Duration};
use tokio::sync::oneshot;

/// A request and who waits for it.
pub(super) struct Ticket {
    pub(super) api: &'static str,
    pub(super) response_header: i16,
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) written: Option<oneshot::Sender<Result<(), CallError>>>,
}

struct Queued {
    correlation_id: i32,
    ticket: Ticket,
    chunks: Vec<Bytes>,
    length: u64,
}

struct Awaiting {
    correlation_id: i32,
    ticket: Ticket,
    /// Where the request's bytes begin and end in the stream of all bytes that the writer took.
    begin: u64,
    end: u64,
}

pub(super) struct Exchange {
    node: NodeId,
    next_correlation_id: i32,
    queued: VecDeque<Queued>,
    awaiting: VecDeque<Awaiting>,
    taken: u64,
    handed: u64,
    closed: Option<Cause>,
    last_use: Instant,
    /// Until when the watch sleeps; an earlier deadline has to wake it.
    pub(super) watched_until: Option<Instant>,
}

/// What [`Exchange::enqueue`] did.
pub(super) enum Enqueued {
    /// It waits for the writer; `wake_watch`: its deadline is before the watch's next look.
    Waiting { wake_watch: bool },
    /// It was refused and the ticket holder knows.
    Refused,
}

impl Exchange {
    pub(super) fn new(node: NodeId, now: Instant) -> Self {
        Self {
            node,
            next_correlation_id: 0,
            queued: VecDeque::new(),
            awaiting: VecDeque::new(),
            taken: 0,
            handed: 0,
            closed: None,
            last_use: now,
            watched_until: None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Puts a request behind all others. `head` makes frame length and header for a correlation id.
    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        ticket: Ticket,
        body: Vec<Bytes>,
        head: impl FnOnce(i32) -> Option<Bytes>,
    ) -> Enqueued {
        if let Some(cause) = self.closed.clone() {
            return self.refuse(ticket, cause);
        }
        if self.queued.len() + self.awaiting.len() >= limits::MAX_CONNECTION_REQUESTS {
            return self.refuse(ticket, Cause::Full(limits::MAX_CONNECTION_REQUESTS));
        }
        let correlation_id = self.next_correlation_id;
        let Some(head) = head(correlation_id) else {
            return self.refuse(ticket, Cause::Refused("client id or request is too long".into()));
        };
        self.next_correlation_id = correlation_id.wrapping_add(1) & i32::MAX;
        self.last_use = now;
        let wake_watch = self.watched_until.is_none_or(|until| ticket.deadline < until);
        let mut chunks = Vec::with_capacity(body.len() + 1);
        chunks.push(head);
        chunks.extend(body.into_iter().filter(|chunk| !chunk.is_empty()));
        let length = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        self.queued.push_back(Queued { correlation_id, ticket, chunks, length });
        Enqueued::Waiting { wake_watch }
    }

    fn refuse(&self, ticket: Ticket, cause: Cause) -> Enqueued {
        let api = ticket.api;
        ticket.fail(CallError::NotSent { api, node: self.node, cause });
        Enqueued::Refused
    }

    /// Moves waiting requests to the writer: as many as one vectored write takes, at least one if any waits.
    pub(super) fn take(&mut self, chunks: &mut VecDeque<Bytes>) {
        while let Some(next) = self.queued.front() {
            if !chunks.is_empty() && chunks.len() + next.chunks.len() > limits::MAX_WRITE_CHUNKS {
                return;
            }
            let Some(next) = self.queued.pop_front() else { return };
            chunks.extend(next.chunks);
            let begin = self.taken;
            self.taken += next.length;
            let (correlation_id, ticket) = (next.correlation_id, next.ticket);
            self.awaiting.push_back(Awaiting { correlation_id, ticket, begin, end: self.taken });
        }
    }

    /// The socket took `count` more bytes.
    pub(super) fn handed(&mut self, count: u64) {
        self.handed += count;
        let handed = self.handed;
        for request in self.awaiting.iter_mut().rev().skip_while(|request| request.end > handed) {
            let Some(written) = request.ticket.written.take() else { break };
            let _ = written.send(Ok(()));
        }
    }

    /// An answer frame came, its length prefix removed.
    ///
    /// # Errors
    /// It answers nothing that was asked, so the connection cannot be trusted any more.
    pub(super) fn answered(&mut self, now: Instant, mut frame: Bytes) -> Result<(), Cause> {
        let garbage = |what: String| Cause::Lost(what.into());
        let correlation_id = wire::take_correlation_id(&mut frame)
            .ok_or_else(|| garbage("an answer without correlation id".to_owned()))?;
        let expected = self.awaiting.front().filter(|request| request.end <= self.handed);
        match expected.map(|request| request.correlation_id) {
            Some(id) if id == correlation_id => {}
            expected => {
                return Err(garbage(format!("an answer to request {correlation_id}, expected {expected:?}")));
            }
        }
        let Some(Awaiting { ticket, .. }) = self.awaiting.pop_front() else { return Ok(()) };
        self.last_use = now;
        let answer = match wire::skip_response_tags(ticket.response_header, &mut frame) {
            Ok(()) => Ok(frame),
            Err(why) => {
                Err(CallError::Malformed { api: ticket.api, node: self.node, reason: why.to_string().into() })
            }
        };
        let _ = ticket.answer.send(answer);
        Ok(())
    }

    /// The earliest moment at which something has to be done: a request's deadline, or the end of the idle time.
    pub(super) fn next_look(&self, idle_timeout: Duration) -> Instant {
        let queued = self.queued.iter().map(|request| request.ticket.deadline);
        let awaiting = self.awaiting.iter().map(|request| request.ticket.deadline);
        queued.chain(awaiting).min().unwrap_or(self.last_use + idle_timeout)
    }

    /// Why the connection has to be given up at `now`, if it has to.
    pub(super) fn overdue(&self, now: Instant, idle_timeout: Duration) -> Option<Cause> {
        let queued = self.queued.iter().map(|request| &request.ticket);
        let awaiting = self.awaiting.iter().map(|request| &request.ticket);
        if let Some(late) = queued.chain(awaiting).find(|ticket| ticket.deadline <= now) {
            return Some(Cause::TimedOut(late.timeout));
        }
        let idle = self.queued.is_empty() && self.awaiting.is_empty();
        (idle && self.last_use + idle_timeout <= now).then_some(Cause::Idle)
    }

    /// Ends the book: whoever waits learns whether the request was perhaps executed. Only the first cause counts.
    pub(super) fn close(&mut self, now: Instant, cause: Cause) {
        if self.closed.is_some() {
            return;
        }
        let node = self.node;
        let handed = self.handed;
        for request in self.awaiting.drain(..) {
            let cause = cause_for(&request.ticket, now, &cause);
            let api = request.ticket.api;
            request.ticket.fail(if request.begin < handed {
                CallError::Unknown { api, node, cause }
            } else {
                CallError::NotSent { api, node, cause }
            });
        }
        for request in self.queued.drain(..) {
            let cause = cause_for(&request.ticket, now, &cause);
            let api = request.ticket.api;
            request.ticket.fail(CallError::NotSent { api, node, cause });
        }
        self.closed = Some(cause);
    }
}

impl Ticket {
    pub(super) fn fail(self, error: CallError) {
        if let Some(written) = self.written {
            let _ = written.send(Err(error.clone()));
        }
        let _ = self.answer.send(Err(error));
    }
}

/// A time-out is the reason only for the requests that were late; the others lost their connection.
fn cause_for(ticket: &Ticket, now: Instant, cause: &Cause) -> Cause {
    match cause {
        Cause::TimedOut(_) if ticket.deadline <= now => Cause::TimedOut(ticket.timeout),
        Cause::TimedOut(after) => Cause::Lost(
            format!("given up because another request on it had no answer within {after:?}").into(),
        ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
