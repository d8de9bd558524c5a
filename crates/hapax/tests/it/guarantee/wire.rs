//! A network that remembers every request, and can hold back those of one kind.

use hapax_host::{BoxStream, ConnectFuture, Net, RealNet};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) const INIT_PRODUCER_ID: i16 = 22;
pub(super) const END_TXN: i16 = 26;

type Observe = Box<dyn Fn(&Request) + Send + Sync>;

/// A request as it went out: without its length.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) api: i16,
    bytes: Vec<u8>,
}

impl Request {
    /// Does it name this text as a whole string? Kafka writes a string's length before it: in two bytes, or in a
    /// varint of one more.
    pub(super) fn names(&self, text: &str) -> bool {
        let classic = [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat();
        let compact = [&[text.len() as u8 + 1], text.as_bytes()].concat();
        let has = |wanted: &[u8]| self.bytes.windows(wanted.len()).any(|window| window == wanted);
        has(&classic) || has(&compact)
    }
}

/// What goes over the wire of one run.
pub(super) struct Wire {
    observe: Observe,
    held_back: Option<i16>,
    requests: Mutex<Vec<Request>>,
    holds: AtomicBool,
}

impl Wire {
    /// Tells of every request that went out.
    pub(super) fn observed(observe: impl Fn(&Request) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            observe: Box::new(observe),
            held_back: None,
            requests: Mutex::default(),
            holds: AtomicBool::new(false),
        })
    }

    /// Lets no request of this kind out: its first bytes at most.
    pub(super) fn holding_back(api: i16) -> Arc<Self> {
        Arc::new(Self {
            observe: Box::new(|_| {}),
            held_back: Some(api),
            requests: Mutex::default(),
            holds: AtomicBool::new(false),
        })
    }

    /// A request is being held back.
    pub(super) fn holds(&self) -> bool {
        self.holds.load(Ordering::SeqCst)
    }

    pub(super) fn requests(&self, api: i16) -> Vec<Request> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.api == api).cloned().collect()
    }
}

/// The real network, seen through a [`Wire`].
pub(super) struct Through(pub(super) Arc<Wire>);

impl Net for Through {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> ConnectFuture<'a> {
        Box::pin(async move {
            let inner = RealNet.connect(host, port).await?;
            Ok(Box::new(Seen { inner, wire: self.0.clone(), frame: Vec::new() }) as BoxStream)
        })
    }
}

const LENGTH: usize = 4;
/// Length and kind.
const HEAD: usize = LENGTH + 2;

struct Seen {
    inner: BoxStream,
    wire: Arc<Wire>,
    /// What has gone out of the request that is being written, with its length.
    frame: Vec<u8>,
}

impl Seen {
    fn size(&self) -> usize {
        let length: [u8; LENGTH] = self.frame[..LENGTH].try_into().unwrap();
        LENGTH + u32::from_be_bytes(length) as usize
    }

    fn api(&self) -> i16 {
        i16::from_be_bytes([self.frame[LENGTH], self.frame[LENGTH + 1]])
    }

    /// Bytes up to the next place where something is to be decided.
    fn wanted(&self) -> usize {
        if self.frame.len() < HEAD { HEAD - self.frame.len() } else { self.size() - self.frame.len() }
    }

    fn went_out(&mut self, bytes: &[u8]) {
        self.frame.extend_from_slice(bytes);
        if self.frame.len() < HEAD || self.frame.len() < self.size() {
            return;
        }
        let request = Request { api: self.api(), bytes: self.frame.split_off(LENGTH) };
        self.frame.clear();
        (self.wire.observe)(&request);
        self.wire.requests.lock().unwrap().push(request);
    }
}

impl AsyncWrite for Seen {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.frame.len() == HEAD && this.wire.held_back == Some(this.api()) {
            this.wire.holds.store(true, Ordering::SeqCst);
            return Poll::Pending;
        }
        let taken = &buf[..buf.len().min(this.wanted())];
        let written = Pin::new(&mut this.inner).poll_write(cx, taken);
        if let Poll::Ready(Ok(count)) = written {
            this.went_out(&taken[..count]);
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

impl AsyncRead for Seen {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}
