//! What a caller holds while a request is on its way.

use super::Owner;
use crate::{
    NodeId,
    error::{CallError, Cause},
    wire::WireError,
};
use bytes::Bytes;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::sync::oneshot;

pub(super) type Answer = Result<Bytes, CallError>;

/// The answer to come. Dropping it forgets the answer, not the request.
#[must_use = "the request is sent all the same, but its outcome is lost"]
pub struct PendingResponse<T> {
    pub(super) api: &'static str,
    pub(super) node: NodeId,
    pub(super) version: i16,
    pub(super) decode: fn(i16, Bytes) -> Result<T, WireError>,
    pub(super) answer: oneshot::Receiver<Answer>,
    pub(super) written: oneshot::Receiver<Result<(), CallError>>,
    /// The connection lives as long as somebody waits for its answer.
    pub(super) _owner: Arc<Owner>,
}

impl<T> PendingResponse<T> {
    /// Resolves when all bytes of the request were handed to the socket. Call it at most once.
    ///
    /// # Errors
    /// The connection ended before; the error is the one that the response will give too.
    pub async fn written(&mut self) -> Result<(), CallError> {
        match (&mut self.written).await {
            Ok(result) => result,
            Err(_) => Err(self.abandoned()),
        }
    }

    fn abandoned(&self) -> CallError {
        CallError::Unknown { api: self.api, node: self.node, cause: Cause::Lost("its runtime ended".into()) }
    }
}

impl<T> Future for PendingResponse<T> {
    type Output = Result<T, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let body = match ready!(Pin::new(&mut self.answer).poll(cx)) {
            Ok(answer) => answer?,
            Err(_) => return Poll::Ready(Err(self.abandoned())),
        };
        Poll::Ready((self.decode)(self.version, body).map_err(|why| CallError::Malformed {
            api: self.api,
            node: self.node,
            reason: why.to_string().into(),
        }))
    }
}
