//! Outgoing byte streams. Owns the only use of an operating-system socket.

use std::{future::Future, io, pin::Pin};
use tokio::io::{AsyncRead, AsyncWrite};

/// A connected, ordered byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A stream of any transport.
pub type BoxStream = Box<dyn Stream>;

/// The future of [`Net::connect`].
pub type ConnectFuture<'a> = Pin<Box<dyn Future<Output = io::Result<BoxStream>> + Send + 'a>>;

/// Opens connections.
pub trait Net: Send + Sync {
    /// Connects to `host:port`.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> ConnectFuture<'a>;
}

/// TCP with Nagle's algorithm off.
#[derive(Clone, Copy, Debug)]
pub struct RealNet;

impl Net for RealNet {
    #[allow(clippy::disallowed_types, reason = "this module is the socket of the seam")]
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> ConnectFuture<'a> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxStream)
        })
    }
}
