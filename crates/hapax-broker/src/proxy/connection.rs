//! One client's connection and its own one to the node behind: requests go through as they come, answers come back in
//! their order, as on a connection without a proxy.

use super::{
    address::{Local, Routes, UNKNOWN, has_addresses},
    identity::identify,
};
use crate::{
    fault::{Act, Afterwards, Plan, Verdict, rebuff},
    server::is_silent,
    wire::{
        ADVERTISED, Request, Response,
        frame::{self, Head},
    },
};
use bytes::{Buf, Bytes};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest};
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
#[allow(clippy::large_enum_variant, reason = "almost all are answers, and a queue of them is short")]
enum Expected {
    /// An answer, as its plan wants it.
    Answer { head: Head, plan: Plan, from: Source },
    /// No answer at all any more.
    Nothing(Afterwards),
}

/// Where an answer comes from.
enum Source {
    /// The node.
    Node,
    /// The node answers, and the client gets another one.
    Instead(Response),
    /// Only we know of the request.
    Here(Response),
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
    if local.node.load(Ordering::Relaxed) == UNKNOWN
        && let Some(node) = identify(&local.upstream).await
    {
        local.node.store(node, Ordering::Relaxed);
    }
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
    let back = Back {
        routes: &routes,
        local: &local,
        from: BufReader::with_capacity(READ_AHEAD, from_node),
        to: to_client,
        due,
    };
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

/// A request, as far as it is known here.
struct Asked {
    head: Head,
    request: Option<Request>,
    /// An answer without the node's.
    told: Option<Response>,
    /// Does the client want no answer?
    silent: bool,
}

impl Asked {
    fn read(frame: &Bytes) -> io::Result<Self> {
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
            let Ok(frame::Incoming::TooNew { head, answer }) = frame::decode(frame.clone(), false) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            let request = Some(ApiVersionsRequest::default().into());
            return Ok(Self { head, request, told: Some(answer.into()), silent: false });
        }
        let request = known.and_then(|key| frame::body_of(key, head.version, body.clone()).ok());
        let silent = wants_no_answer(&head, request.as_ref(), &body);
        Ok(Self { head, request, told: None, silent })
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
        let Asked { head, request, told, silent } = Asked::read(&frame)?;
        let node = self.local.node.load(Ordering::Relaxed);
        let judged =
            self.routes.faults.judge(&head, request.as_ref(), node, &|id| self.routes.names().get(id));
        let (_, plan) = judged.unwrap_or_default();
        for act in &plan.acts {
            self.act(act).await;
        }
        self.local.awake().await;
        let mut from = told.map_or(Source::Node, Source::Here);
        match (plan.fate(), &request) {
            (Some(Verdict::Drop(then)), _) => {
                plan.met();
                self.expect(Expected::Nothing(*then)).await?;
                return Ok(false);
            }
            (Some(Verdict::Error { .. }), None) => {
                tracing::warn!(
                    key = head.key,
                    version = head.version,
                    "an error for a request that is not known"
                );
                plan.met();
                self.expect(Expected::Nothing(Afterwards::Close)).await?;
                return Ok(false);
            }
            (Some(Verdict::Error { code, applied }), Some(request)) => {
                let answer = rebuff(request, head.version, *code);
                from = if *applied && matches!(from, Source::Node) {
                    Source::Instead(answer)
                } else {
                    Source::Here(answer)
                };
            }
            _ => {}
        }
        let passes = !matches!(from, Source::Here(_));
        let ends = plan.ends_answers();
        if silent {
            if passes {
                self.pass_on(&frame).await?;
            }
            // Kafka closes a connection whose client wants no answer and there is an error to tell.
            let error = matches!(plan.fate(), Some(Verdict::Error { .. }));
            let Some(then) = ends.or(error.then_some(Afterwards::Close)) else { return Ok(true) };
            plan.met();
            self.expect(Expected::Nothing(then)).await?;
            return Ok(false);
        }
        // Before it is passed on: an answer that nobody expects would be the node's end.
        self.expect(Expected::Answer { head, plan, from }).await?;
        if passes {
            self.pass_on(&frame).await?;
        }
        // Behind an answer that ends all answers nothing is applied, as by a broker that serves one at a time.
        Ok(ends.is_none())
    }

    async fn act(&self, act: &Act) {
        let Act { turn, verdict } = act;
        match verdict {
            Verdict::Delay { ms } => {
                turn.acted();
                sleep(Duration::from_millis(*ms)).await;
            }
            Verdict::StallNode { ms, node } => {
                let wait = Duration::from_millis(*ms);
                let found = node.map_or_else(
                    || {
                        self.local.stall(wait);
                        true
                    },
                    |node| self.routes.stall(node.0, wait),
                );
                match found {
                    true => turn.acted(),
                    false => turn.idle("no answer has told of such a node"),
                }
            }
            // Refused where a rule is added, or said of the answer, or a fate.
            Verdict::DelayAnswer { .. }
            | Verdict::OldApiVersions { .. }
            | Verdict::Drop(_)
            | Verdict::LoseAnswer(_)
            | Verdict::CutAnswer { .. }
            | Verdict::Error { .. }
            | Verdict::MoveLeader { .. }
            | Verdict::MoveCoordinator
            | Verdict::Crash
            | Verdict::CrashAfter
            | Verdict::JumpClock { .. }
            | Verdict::Step(_) => {}
        }
    }

    async fn pass_on(&mut self, frame: &Bytes) -> io::Result<()> {
        self.to.write_all(&i32::try_from(frame.len()).unwrap_or(i32::MAX).to_be_bytes()).await?;
        self.to.write_all(frame).await
    }

    async fn expect(&self, expected: Expected) -> io::Result<()> {
        self.expected.send(expected).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

struct Back<'a, R, W> {
    routes: &'a Arc<Routes>,
    local: &'a Arc<Local>,
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
            let (head, plan, from) = match expected {
                None => return std::future::pending().await,
                Some(Expected::Nothing(then)) => return self.fall_silent(then).await,
                Some(Expected::Answer { head, plan, from }) => (head, plan, from),
            };
            let mut node_said = None;
            if !matches!(from, Source::Here(_)) {
                let Some(frame) = frame::read(&mut self.from, LARGEST_ANSWER).await? else {
                    return self.to.shutdown().await;
                };
                node_said = Some(frame);
            }
            if let Some(Verdict::LoseAnswer(then)) = plan.fate() {
                plan.met();
                return self.fall_silent(*then).await;
            }
            let frame = match (from, node_said) {
                (Source::Here(response) | Source::Instead(response), _) => ours(&head, &plan, response)?,
                (Source::Node, node_said) => self.rewrite(&head, &plan, node_said.unwrap_or_default())?,
            };
            plan.delay_answer().await;
            self.local.awake().await;
            if let Some(part) = plan.cut(&frame) {
                self.to.write_all(&part).await?;
                return self.to.shutdown().await;
            }
            // A turn that did nothing is given back before the client can ask again.
            drop(plan);
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
        self.routes.names().learn(&response);
        let mut changed = self.routes.rewrite(&mut response)?;
        changed |= plan.change(&mut response);
        if changed { encode(head, &response) } else { Ok(whole(&frame)) }
    }
}

/// The frame of an answer that no node gave.
fn ours(head: &Head, plan: &Plan, mut response: Response) -> io::Result<Bytes> {
    match plan.fate() {
        Some(Verdict::Error { .. }) => plan.met(),
        _ => drop(plan.change(&mut response)),
    }
    encode(head, &response)
}

fn encode(head: &Head, response: &Response) -> io::Result<Bytes> {
    frame::answer(head.correlation, head.version, response)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
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
