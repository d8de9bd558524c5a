//! The socket's task: reads, writes and watches until the first of them ends.

use super::Shared;
use crate::{error::Cause, limits};
use bytes::{Buf, Bytes, BytesMut};
use hapax_host::BoxStream;
use std::{collections::VecDeque, io::IoSlice, sync::Arc};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(super) async fn run(shared: Arc<Shared>, stream: BoxStream) {
    let _guard = CloseOnDrop(Arc::clone(&shared));
    let (reader, writer) = tokio::io::split(stream);
    // In this order always, so that a simulated run can be repeated: what was answered counts before what cannot be asked.
    let cause = tokio::select! {
        biased;
        cause = read(&shared, reader) => cause,
        cause = write(&shared, writer) => cause,
        cause = watch(&shared) => cause,
        () = shared.wake_close.notified() => Cause::Closed,
    };
    if !matches!(cause, Cause::Closed | Cause::Idle) {
        tracing::debug!(node = %shared.node, %cause, "connection ended");
    }
    shared.close(cause);
}

/// Nobody may wait for a task that is gone, for example because its runtime was.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close(Cause::Lost("its runtime ended".into()));
    }
}

fn lost(error: &std::io::Error) -> Cause {
    Cause::Lost(error.to_string().into())
}

async fn read(shared: &Shared, mut reader: impl AsyncRead + Unpin) -> Cause {
    let mut buffer = BytesMut::new();
    loop {
        match take_frame(&mut buffer) {
            Ok(Some(frame)) => {
                if let Err(cause) = shared.exchange().answered(shared.host.now(), frame) {
                    return cause;
                }
            }
            Ok(None) => match reader.read_buf(&mut buffer).await {
                Ok(0) => return Cause::Lost("closed by the broker".into()),
                Ok(_) => {}
                Err(error) => return lost(&error),
            },
            Err(cause) => return cause,
        }
    }
}

/// The next whole frame without its length; else makes room for the rest of it.
fn take_frame(buffer: &mut BytesMut) -> Result<Option<Bytes>, Cause> {
    let Some(prefix) = buffer.first_chunk::<4>() else {
        buffer.reserve(limits::MIN_READ);
        return Ok(None);
    };
    let length = i32::from_be_bytes(*prefix);
    let limit = limits::MAX_RESPONSE_FRAME;
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= limit)
        .ok_or_else(|| Cause::Lost(format!("an answer of {length} bytes, the limit is {limit}").into()))?;
    let missing = (4 + length).saturating_sub(buffer.len());
    if missing > 0 {
        buffer.reserve(missing.max(limits::MIN_READ));
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

async fn write(shared: &Shared, mut writer: impl AsyncWrite + Unpin) -> Cause {
    let mut chunks = VecDeque::new();
    loop {
        shared.exchange().take(&mut chunks);
        if chunks.is_empty() {
            if let Err(error) = writer.flush().await {
                return lost(&error);
            }
            shared.wake_writer.notified().await;
            continue;
        }
        let slices: Vec<_> =
            chunks.iter().take(limits::MAX_WRITE_CHUNKS).map(|chunk| IoSlice::new(chunk)).collect();
        match writer.write_vectored(&slices).await {
            Ok(0) => return Cause::Lost("the socket takes no more bytes".into()),
            Ok(count) => {
                drop(slices);
                advance(&mut chunks, count);
                shared.exchange().handed(count as u64);
            }
            Err(error) => return lost(&error),
        }
    }
}

fn advance(chunks: &mut VecDeque<Bytes>, mut count: usize) {
    while let Some(chunk) = chunks.front_mut() {
        if count < chunk.len() {
            chunk.advance(count);
            return;
        }
        count -= chunk.len();
        chunks.pop_front();
    }
}

async fn watch(shared: &Shared) -> Cause {
    loop {
        let now = shared.host.now();
        let until = {
            let mut exchange = shared.exchange();
            if let Some(cause) = exchange.overdue(now, shared.idle_timeout) {
                return cause;
            }
            let until = exchange.next_look(shared.idle_timeout);
            exchange.watched_until = Some(until);
            until
        };
        tokio::select! {
            biased;
            () = shared.host.sleep(until.saturating_duration_since(now)) => {}
            () = shared.wake_watch.notified() => {}
        }
    }
}
