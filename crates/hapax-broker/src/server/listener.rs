//! Sockets that take connections.

use super::{connection, core::Core};
use crate::state::NodeId;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};

/// How long a listener waits after it could not take a connection: the process may be out of file descriptors.
const OUT_OF_BREATH: Duration = Duration::from_millis(10);

/// A bound socket.
#[allow(
    clippy::disallowed_types,
    reason = "the broker stands beside the system under test, with sockets of its own"
)]
pub(crate) struct Bound {
    pub(crate) listener: tokio::net::TcpListener,
    address: SocketAddr,
}

/// Binds an address.
#[allow(
    clippy::disallowed_types,
    reason = "the broker stands beside the system under test, with sockets of its own"
)]
pub(crate) fn bind(address: SocketAddr) -> io::Result<Bound> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok(Bound { listener: tokio::net::TcpListener::from_std(listener)?, address })
}

impl Bound {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Takes connections for a node.
pub(crate) fn accept(bound: Bound, node: NodeId, core: Arc<Core>, stop: &watch::Sender<bool>) {
    let of_connections = stop.subscribe();
    spawn_with(stop.subscribe(), async move {
        loop {
            match bound.listener.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    spawn_with(of_connections.clone(), connection::serve(Arc::clone(&core), node, stream));
                }
                Err(error) => {
                    tracing::warn!(node = node.0, %error, "a connection could not be taken");
                    sleep(OUT_OF_BREATH).await;
                }
            }
        }
    });
}

/// Runs a task until it ends or is told to stop. The receiver lives as long as the task: whoever stops them waits for
/// that.
#[allow(clippy::disallowed_methods, reason = "a broker is no process of a job")]
pub(crate) fn spawn_with(mut stop: watch::Receiver<bool>, task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        {
            let mut task = Box::pin(task);
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {}
                () = &mut task => {}
            }
        }
        drop(stop);
    });
}
