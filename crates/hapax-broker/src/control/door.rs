//! Who may use the control port: programs of this machine or this network, and no web page that somebody there looks
//! at. A page may send requests anywhere, but not with a JSON body unless the port agreed, and not without telling its
//! origin; one whose name was made to lead here still gives that name as host.

use super::Refusal;
use crate::server::Bound;
use axum::{
    http::{HeaderMap, Method, StatusCode, header},
    serve::Listener,
};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
    time::sleep,
};

/// As in the server's listener.
const OUT_OF_BREATH: Duration = Duration::from_millis(10);

/// Why a request may not come in, if it may not. `advertised` is a name that clients are told.
pub(super) fn refusal(method: &Method, headers: &HeaderMap, advertised: Option<&str>) -> Option<Refusal> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(header::HOST);
    // What a page sends always names a host.
    if let Some(host) = host.filter(|host| !is_here(host, advertised)) {
        let why = format!("the host is {host:?}: ask the control port by its address or as localhost");
        return Some(Refusal(StatusCode::FORBIDDEN, why));
    }
    let own = host.map(|host| format!("http://{host}"));
    if let Some(origin) = text(header::ORIGIN).filter(|origin| Some(*origin) != own.as_deref()) {
        let why =
            format!("the request comes from a page of {origin:?}: the control port takes none from others");
        return Some(Refusal(StatusCode::FORBIDDEN, why));
    }
    let given = text(header::CONTENT_TYPE).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    if method == Method::POST && !kind.eq_ignore_ascii_case("application/json") {
        let why = format!("the content type is {given:?}: send JSON with \"Content-Type: application/json\"");
        return Some(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    None
}

fn is_here(host: &str, advertised: Option<&str>) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok()
        || advertised.is_some_and(|advertised| name.eq_ignore_ascii_case(advertised))
}

/// A listener whose connections end when everything is told to stop, also those that are kept alive.
pub(super) struct Door {
    pub(super) bound: Bound,
    pub(super) stop: watch::Receiver<bool>,
}

impl Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        loop {
            match self.bound.listener.accept().await {
                Ok((stream, from)) => return (Visit::new(stream, self.stop.clone()), from),
                Err(error) => {
                    tracing::warn!(%error, "a connection to the control port could not be taken");
                    sleep(OUT_OF_BREATH).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.bound.address())
    }
}

/// A connection until everything is told to stop: then there is nothing more to read, and nothing can be written. Who
/// stops everything waits until it is dropped.
pub(super) struct Visit {
    #[allow(
        clippy::disallowed_types,
        reason = "the broker stands beside the system under test, with sockets of its own"
    )]
    stream: tokio::net::TcpStream,
    stopped: Pin<Box<dyn Future<Output = watch::Receiver<bool>> + Send>>,
    over: Option<watch::Receiver<bool>>,
}

impl Visit {
    #[allow(
        clippy::disallowed_types,
        reason = "the broker stands beside the system under test, with sockets of its own"
    )]
    fn new(stream: tokio::net::TcpStream, mut stop: watch::Receiver<bool>) -> Self {
        let stopped = Box::pin(async move {
            let _ = stop.wait_for(|stop| *stop).await;
            stop
        });
        Self { stream, stopped, over: None }
    }

    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.over.is_none()
            && let Poll::Ready(stop) = self.stopped.as_mut().poll(cx)
        {
            self.over = Some(stop);
        }
        self.over.is_some()
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(cx) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Visit {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_the_advertised_name_are_here() {
        for host in ["localhost", "LocalHost:80", "127.0.0.1:4", "[::1]:80", "[::1]", "10.0.0.7", "broker:80"]
        {
            assert!(is_here(host, Some("broker")), "{host}");
        }
        for host in
            ["", ":80", "evil.example", "evil.example:80", "localhost.evil.example", "broker", "127.0.0.1.a"]
        {
            assert!(!is_here(host, None), "{host}");
        }
    }
}
