//! What ends a command from outside: signals, and the end of the process that started it.

use hapax::{Code, Host, JobError};
use std::{
    future,
    io::{self, Read},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// SIGTERM and SIGINT, where the operating system lets us listen.
pub(crate) struct Signals {
    term: Option<Signal>,
    interrupt: Option<Signal>,
}

impl Signals {
    pub(crate) fn listen() -> Self {
        let listen = |kind: SignalKind| {
            signal(kind).map_err(|error| tracing::warn!("signals cannot be listened to: {error}")).ok()
        };
        Self { term: listen(SignalKind::terminate()), interrupt: listen(SignalKind::interrupt()) }
    }

    /// Name and number of the next one.
    pub(crate) async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            () = received(&mut self.term) => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            () = received(&mut self.interrupt) => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    let received = match signal {
        Some(signal) => signal.recv().await.is_some(),
        None => false,
    };
    if !received {
        future::pending::<()>().await;
    }
}

/// Ready when standard input closes, which the parent's end does, however it ends; never where that is not `asked`.
///
/// # Errors
/// The machine gives no thread to read with.
pub(crate) fn parent_gone(host: &Host, asked: bool) -> Result<impl Future<Output = ()> + use<>, JobError> {
    let (gone, told) = oneshot::channel::<()>();
    let worker = if asked {
        let read = async move {
            let mut ignored = [0; 1024];
            let mut input = io::stdin().lock();
            loop {
                match input.read(&mut ignored) {
                    Ok(0) => break,
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
                    Ok(_) | Err(_) => {}
                }
            }
            drop(gone);
        };
        let started = host.start_worker("parent", Box::pin(read));
        Some(started.map_err(|error| JobError::Run {
            code: Code::Machine,
            message: format!("standard input gets no thread: {error}"),
        })?)
    } else {
        None
    };
    Ok(async move {
        match worker {
            Some(worker) => {
                let _ = told.await;
                drop(worker);
            }
            None => future::pending().await,
        }
    })
}
