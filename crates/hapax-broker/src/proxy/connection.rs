//! One client's connection and its own one to the node behind: requests go through as they come, answers come back in
//! their order, as on a connection without a proxy.

use super::address::{Local, Routes, has_addresses};
use crate::{
    fault::{Act, Afterwards, Plan, Verdict, rebuff},
    server::{grow_old, is_silent},
    wire::{
        ADVERTISED, Request, Response,
        frame::{self, Head},
    },
};
use bytes::{Buf, Bytes};
use kafka_protocol::messages::ApiKey;
use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, split},
    sync::mpsc,
    time::sleep,
};

/// Answers that a client may wait for on one connection; a client that asks more waits with its next request.
const MOST_IN_FLIGHT: usize = 1_000;

/// The longest answer. A broker's are bounded by what is fetched.
const LARGEST_ANSWER: usize = 1 << 30;

const READ_AHEAD: usize = 16 * 1024;

/// What is to come back next.
enum Expected {
    /// The node's answer.
    Answer { head: Head, plan: Plan, instead: Option<Bytes> },
    /// An answer of our own.
    Local(Bytes),
    /// No answer at all any more.
    Nothing(Afterwards),
}

/// Serves a client's connection until its end, or the node's.
#[allow(
    clippy::disallowed_types,
    reason = "the proxy stands beside the system under test, with sockets of its own"
)]
pub(crate) async fn serve<S>(routes: Arc<Routes>, local: Arc<Local>, client: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (host, port) = &local.upstream;
    let node = match tokio::net::TcpStream::connect((host.as_str(), *port)).await {
        Ok(node) => node,
        Err(error) => {
            tracing::warn!(host, port, %error, "the cluster behind the proxy does not take a connection");
            return;
        }
    };
    let _ = node.set_nodelay(true);
    let (from_client, to_client) = split(client);
    let (from_node, to_node) = split(node);
    let (expected, due) = mpsc::channel(MOST_IN_FLIGHT);
    let forth = Forth {
        routes: &routes,
        local: &local,
        from: BufReader::with_capacity(READ_AHEAD, from_client),
        to: to_node,
        expected,
    };
    let back =
        Back { routes: &routes, from: BufReader::with_capacity(READ_AHEAD, from_node), to: to_client, due };
    let forth = async {
        let ended = forth.run().await;
        if let Err(error) = &ended {
            tracing::debug!(%error, "client's side closed");
        }
        ended
    };
    // The client's end is also the end of what it waits for; the node's end, or a fault, is the client's.
    tokio::select! {
        Err(_) = forth => {}
        ended = back.run() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "node's side closed");
            }
        }
    }
}

struct Forth<'a, R, W> {
    routes: &'a Arc<Routes>,
    local: &'a Arc<Local>,
    from: BufReader<R>,
    to: W,
    expected: mpsc::Sender<Expected>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Forth<'_, R, W> {
    async fn run(mut self) -> io::Result<()> {
        while let Some(frame) = frame::read(&mut self.from, frame::LARGEST_FRAME).await? {
            if !self.request(frame).await? {
                // Nothing is asked any more; what was is still answered.
                drop(self.expected);
                let mut ignored = [0; 4096];
                while self.from.read(&mut ignored).await? > 0 {}
                break;
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Passes a request on; says whether more may follow.
    async fn request(&mut self, frame: Bytes) -> io::Result<bool> {
        let mut body = frame.clone();
        let head = match frame::head(&mut body) {
            Ok(head) => head,
            // A newer request than any we know of: nothing of it is read here.
            Err(frame::Refused::Unsupported { .. }) if frame.len() >= 8 => {
                let mut head = frame.clone();
                let (key, version) = (head.get_i16(), head.get_i16());
                Head { key, version, correlation: head.get_i32(), client_id: None }
            }
            Err(refused) => return Err(io::Error::new(io::ErrorKind::InvalidData, refused)),
        };
        let known = ApiKey::try_from(head.key).ok();
        if known == Some(ApiKey::ApiVersions) && !is_ours(ApiKey::ApiVersions, head.version) {
            // Its answer could not be held down; the client asks again in an older version.
            if let Ok(frame::Incoming::TooNew { answer }) = frame::decode(frame, false) {
                self.expect(Expected::Local(answer)).await?;
            }
            return Ok(true);
        }
        let request = known.and_then(|key| frame::body_of(key, head.version, body.clone()).ok());
        let node = self.local.node.load(Ordering::Relaxed);
        let (_, plan) = self.routes.faults.judge(&head, request.as_ref(), node).unwrap_or_default();
        for Act { verdict, .. } in &plan.acts {
            match verdict {
                Verdict::Delay { ms } => sleep(Duration::from_millis(*ms)).await,
                Verdict::StallNode { ms, node: at } => {
                    self.routes.stall(at.map_or(node, |at| at.0), Duration::from_millis(*ms));
                }
                // Refused where a rule is added, or said of the answer, or a fate.
                _ => {}
            }
        }
        self.local.awake().await;
        let mut instead = None;
        match (&plan.fate, &request) {
            (Some(Verdict::Drop(then)), _) => {
                self.expect(Expected::Nothing(*then)).await?;
                return Ok(false);
            }
            (Some(Verdict::Error { code, applied }), Some(request)) => {
                let answer = rebuff(request, head.version, *code);
                let answer = frame::answer(head.correlation, head.version, &answer)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                if is_silent(request) {
                    self.expect(Expected::Nothing(Afterwards::Close)).await?;
                    return Ok(false);
                }
                if !applied {
                    self.expect(Expected::Local(answer)).await?;
                    return Ok(true);
                }
                instead = Some(answer);
            }
            (Some(Verdict::Error { .. }), None) => {
                tracing::warn!(
                    key = head.key,
                    version = head.version,
                    "an error for a request that is not known"
                );
                self.expect(Expected::Nothing(Afterwards::Close)).await?;
                return Ok(false);
            }
            _ => {}
        }
        if !wants_no_answer(&head, request.as_ref(), &body) {
            self.expect(Expected::Answer { head, plan, instead }).await?;
        }
        self.to.write_all(&i32::try_from(frame.len()).unwrap_or(i32::MAX).to_be_bytes()).await?;
        self.to.write_all(&frame).await?;
        Ok(true)
    }

    async fn expect(&self, expected: Expected) -> io::Result<()> {
        self.expected.send(expected).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

struct Back<'a, R, W> {
    routes: &'a Arc<Routes>,
    from: BufReader<R>,
    to: W,
    due: mpsc::Receiver<Expected>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Back<'_, R, W> {
    async fn run(mut self) -> io::Result<()> {
        loop {
            let expected = tokio::select! {
                biased;
                expected = self.due.recv() => expected,
                // A node says nothing unasked: what comes here is its end.
                ended = self.from.read_u8() => return ended.map(drop),
            };
            let (head, plan, instead) = match expected {
                None => return std::future::pending().await,
                Some(Expected::Local(frame)) => {
                    self.to.write_all(&frame).await?;
                    continue;
                }
                Some(Expected::Nothing(then)) => return self.fall_silent(then).await,
                Some(Expected::Answer { head, plan, instead }) => (head, plan, instead),
            };
            let Some(frame) = frame::read(&mut self.from, LARGEST_ANSWER).await? else {
                return self.to.shutdown().await;
            };
            if let Some(Verdict::LoseAnswer(then)) = plan.fate {
                return self.fall_silent(then).await;
            }
            for Act { verdict, .. } in &plan.acts {
                if let Verdict::DelayAnswer { ms } = verdict {
                    sleep(Duration::from_millis(*ms)).await;
                }
            }
            let frame = match instead {
                Some(frame) => frame,
                None => self.rewrite(&head, &plan, frame)?,
            };
            if let Some(Verdict::CutAnswer { after }) = plan.fate {
                let end = after.unwrap_or(frame.len() / 2).min(frame.len().saturating_sub(1));
                self.to.write_all(&frame[..end]).await?;
                return self.to.shutdown().await;
            }
            self.to.write_all(&frame).await?;
        }
    }

    async fn fall_silent(&mut self, then: Afterwards) -> io::Result<()> {
        match then {
            Afterwards::Close => self.to.shutdown().await,
            Afterwards::Hang => std::future::pending().await,
        }
    }

    /// An answer's whole frame as the client gets it.
    fn rewrite(&self, head: &Head, plan: &Plan, frame: Bytes) -> io::Result<Bytes> {
        let whole = |frame: &Bytes| {
            let length = i32::try_from(frame.len()).unwrap_or(i32::MAX).to_be_bytes();
            Bytes::from([length.as_slice(), frame].concat())
        };
        let learns = head.key == ApiKey::CreateTopics as i16;
        let key = ApiKey::try_from(head.key).ok();
        let Some(key) = key.filter(|key| learns || has_addresses(*key, head.version)) else {
            return Ok(whole(&frame));
        };
        let Some(mut response) = decode(key, head.version, frame.clone()) else {
            tracing::warn!(
                ?key,
                version = head.version,
                "an answer went through as it is: it cannot be read here"
            );
            return Ok(whole(&frame));
        };
        self.routes.faults.learn(&response);
        let mut changed = self.routes.rewrite(&mut response)?;
        for Act { verdict, .. } in &plan.acts {
            if let (Verdict::OldApiVersions { highest, transaction_version }, Response::ApiVersions(answer)) =
                (verdict, &mut response)
            {
                grow_old(answer, highest, *transaction_version);
                changed = true;
            }
        }
        if !changed {
            return Ok(whole(&frame));
        }
        frame::answer(head.correlation, head.version, &response)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

fn is_ours(key: ApiKey, version: i16) -> bool {
    ADVERTISED.iter().any(|(ours, range)| *ours == key && (range.min..=range.max).contains(&version))
}

fn decode(key: ApiKey, version: i16, frame: Bytes) -> Option<Response> {
    let mut body = frame;
    body.try_get_i32().ok()?;
    if key.response_header_version(version) >= 1 && body.try_get_u8().ok()? != 0 {
        return None;
    }
    Response::decode(key, version, &mut body)?.ok()
}

/// Is it a Produce with `acks=0`? The oldest versions, which are not decoded here, begin with that field.
fn wants_no_answer(head: &Head, request: Option<&Request>, body: &Bytes) -> bool {
    match request {
        Some(request) => is_silent(request),
        None => head.key == ApiKey::Produce as i16 && head.version < 3 && body.starts_with(&[0, 0]),
    }
}
