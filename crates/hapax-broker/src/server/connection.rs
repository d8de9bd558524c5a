//! One connection: a request at a time, in order, as Kafka serves them; the rules in between.

use super::core::{Core, Halted, Pending};
use crate::{
    fault::{Act, Afterwards, Api, Plan, Subject, Verdict, rebuff},
    state::{NodeId, Outcome, Step, partition_for},
    wire::{
        Request, Response,
        frame::{self, Head, Incoming},
    },
};
use bytes::Bytes;
use kafka_protocol::{messages::ApiVersionsResponse, protocol::StrBytes};
use std::{collections::BTreeMap, io, sync::Arc, time::Duration};
use tokio::{
    io::{
        AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf,
        split,
    },
    time::sleep,
};

/// What is read ahead: several small requests come in one go. The body of a large one does not pass through it.
const READ_AHEAD: usize = 16 * 1024;

/// Of a rule that moves what its request names, where it names none.
const NAMES_NOTHING: &str = "the request names nothing of the kind";

/// Serves a connection until its end.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(core: Arc<Core>, node: NodeId, stream: S) {
    let mut crashes = core.crashes();
    let (read, write) = split(stream);
    let mut connection = Connection { core, node, read: BufReader::with_capacity(READ_AHEAD, read), write };
    tokio::select! {
        biased;
        _ = crashes.changed() => {}
        ended = connection.talk() => {
            if let Err(error) = ended {
                tracing::debug!(node = node.0, %error, "connection closed");
            }
        }
    }
}

struct Connection<S> {
    core: Arc<Core>,
    node: NodeId,
    read: BufReader<ReadHalf<S>>,
    write: WriteHalf<S>,
}

/// What goes back to the client.
enum Back {
    /// A frame.
    Frame(Bytes),
    /// A frame up to here, then the end of the connection.
    Part(Bytes),
    /// Nothing, and the connection goes on.
    Nothing,
    /// Nothing ever again.
    Hang,
    /// The end of the connection.
    Close,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn talk(&mut self) -> io::Result<()> {
        while let Some(frame) = frame::read(&mut self.read, frame::LARGEST_FRAME).await? {
            let incoming = frame::decode(frame, self.core.unstable)
                .map_err(|refused| io::Error::new(io::ErrorKind::InvalidData, refused))?;
            let back = match incoming {
                Incoming::TooNew { answer } => Back::Frame(answer),
                Incoming::Request { head, request, body } => self.request(head, request, body).await?,
            };
            match back {
                Back::Frame(frame) => self.write.write_all(&frame).await?,
                Back::Part(frame) => {
                    self.write.write_all(&frame).await?;
                    return self.write.shutdown().await;
                }
                Back::Nothing => {}
                Back::Hang => return self.hang().await,
                Back::Close => return self.write.shutdown().await,
            }
        }
        Ok(())
    }

    async fn request(&mut self, head: Head, request: Request, body: Bytes) -> io::Result<Back> {
        let Some((subject, plan)) = self.core.faults.judge(&head, Some(&request), self.node.0) else {
            self.core.awake(self.node).await;
            let outcome = self.apply(&head, request, &body).await?;
            return encode(&head, outcome);
        };
        self.act(&plan, &subject).await?;
        self.core.awake(self.node).await;
        let outcome = match &plan.fate {
            Some(Verdict::Drop(then)) => return Ok(without_answer(*then)),
            Some(Verdict::Crash) => {
                self.step(Step::Crash)?;
                return Ok(Back::Close);
            }
            Some(Verdict::CrashAfter) => {
                self.hand_in(&head, request, &body)?;
                self.step(Step::Crash)?;
                return Ok(Back::Close);
            }
            Some(Verdict::LoseAnswer(then)) => {
                self.apply(&head, request, &body).await?;
                return Ok(without_answer(*then));
            }
            Some(Verdict::Error { code, applied }) => {
                let answer = rebuff(&request, head.version, *code);
                let silent = is_silent(&request);
                if *applied {
                    self.apply(&head, request, &body).await?;
                }
                match silent {
                    // Kafka closes a connection whose client wants no answer and there is an error to tell.
                    true => Outcome::HangUp,
                    false => Outcome::Answer(answer),
                }
            }
            _ => self.apply(&head, request, &body).await?,
        };
        let outcome = changed(outcome, &plan);
        for Act { verdict, .. } in &plan.acts {
            if let Verdict::DelayAnswer { ms } = verdict {
                sleep(Duration::from_millis(*ms)).await;
            }
        }
        let back = encode(&head, outcome)?;
        Ok(match (&plan.fate, back) {
            (Some(Verdict::CutAnswer { after }), Back::Frame(frame)) => {
                let end = after.unwrap_or(frame.len() / 2).min(frame.len().saturating_sub(1));
                Back::Part(frame.slice(..end))
            }
            (Some(Verdict::CutAnswer { .. }), _) => Back::Close,
            (_, back) => back,
        })
    }

    /// What a plan does before the request is applied.
    async fn act(&self, plan: &Plan, subject: &Subject) -> io::Result<()> {
        for Act { rule, verdict } in &plan.acts {
            let step = match verdict {
                Verdict::Delay { ms } => {
                    sleep(Duration::from_millis(*ms)).await;
                    continue;
                }
                Verdict::StallNode { ms, node } => {
                    self.core.stall(node.unwrap_or(self.node), Duration::from_millis(*ms));
                    continue;
                }
                Verdict::JumpClock { ms } => {
                    self.core.jump(*ms).map_err(io::Error::other)?;
                    continue;
                }
                Verdict::Step(step) => Some(step.clone()),
                Verdict::MoveLeader { topic, partition, to } => {
                    move_leader(subject, topic.as_ref(), *partition, *to)
                }
                Verdict::MoveCoordinator => self.move_coordinator(subject),
                Verdict::DelayAnswer { .. }
                | Verdict::OldApiVersions { .. }
                | Verdict::Drop(_)
                | Verdict::LoseAnswer(_)
                | Verdict::CutAnswer { .. }
                | Verdict::Error { .. }
                | Verdict::Crash
                | Verdict::CrashAfter => continue,
            };
            let done =
                step.map_or(Err(Halted::Impossible(NAMES_NOTHING.into())), |step| self.core.step(step));
            match done {
                Ok(()) => {}
                Err(Halted::Impossible(why)) => self.core.faults.did_nothing(*rule, &why),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(())
    }

    fn move_coordinator(&self, subject: &Subject) -> Option<Step> {
        if let Some(id) = subject.transactional_ids.first() {
            return Some(Step::MoveCoordinator { transactional_id: id.clone() });
        }
        let partitions = self.core.look(|machine| machine.settings().offsets_partitions);
        let group = subject.groups.first()?;
        Some(Step::MoveLeader {
            topic: crate::state::CONSUMER_OFFSETS.into(),
            partition: partition_for(group, partitions),
            to: None,
        })
    }

    fn step(&self, step: Step) -> io::Result<()> {
        self.core.step(step).map_err(io::Error::other)
    }

    fn hand_in(&self, head: &Head, request: Request, body: &Bytes) -> io::Result<Pending> {
        self.core
            .submit(self.node, head.version, head.client_id.clone(), request, body)
            .inspect_err(|error| tracing::error!(%error, "request refused"))
            .map_err(io::Error::other)
    }

    /// Hands a request in and waits for its end, or for the client's.
    async fn apply(&mut self, head: &Head, request: Request, body: &Bytes) -> io::Result<Outcome> {
        let mut pending = self.hand_in(head, request, body)?;
        let aborted = || io::Error::from(io::ErrorKind::ConnectionAborted);
        tokio::select! {
            biased;
            outcome = pending.outcome() => return outcome.ok_or_else(aborted),
            ahead = self.read.fill_buf() => {
                if ahead?.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        // More requests are in line, so the end of the connection cannot be seen before their turn.
        pending.outcome().await.ok_or_else(aborted)
    }

    /// Takes what comes and says nothing, until the client has enough.
    async fn hang(&mut self) -> io::Result<()> {
        let mut ignored = [0; 4096];
        while self.read.read(&mut ignored).await? > 0 {}
        Ok(())
    }
}

/// Does the client want no answer (`acks=0`)?
pub(crate) fn is_silent(request: &Request) -> bool {
    matches!(request, Request::Produce(produce) if produce.acks == 0)
}

fn without_answer(then: Afterwards) -> Back {
    match then {
        Afterwards::Close => Back::Close,
        Afterwards::Hang => Back::Hang,
    }
}

fn encode(head: &Head, outcome: Outcome) -> io::Result<Back> {
    match outcome {
        Outcome::Silence => Ok(Back::Nothing),
        Outcome::HangUp => Ok(Back::Close),
        Outcome::Answer(response) => {
            let frame = frame::answer(head.correlation, head.version, &response);
            let frame = frame.inspect_err(|error| {
                tracing::error!(key = head.key, version = head.version, %error, "an answer cannot be encoded");
            });
            Ok(Back::Frame(frame.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?))
        }
    }
}

/// An answer as the plan wants it.
fn changed(outcome: Outcome, plan: &Plan) -> Outcome {
    let Outcome::Answer(mut response) = outcome else { return outcome };
    for Act { verdict, .. } in &plan.acts {
        if let (Verdict::OldApiVersions { highest, transaction_version }, Response::ApiVersions(answer)) =
            (verdict, &mut response)
        {
            grow_old(answer, highest, *transaction_version);
        }
    }
    Outcome::Answer(response)
}

/// Makes an ApiVersions answer an older broker's.
pub(crate) fn grow_old(
    answer: &mut ApiVersionsResponse,
    highest: &BTreeMap<Api, i16>,
    transaction_version: Option<i16>,
) {
    for (api, highest) in highest {
        for range in answer.api_keys.iter_mut().filter(|range| range.api_key == api.key()) {
            range.max_version = range.max_version.min(*highest);
        }
    }
    answer.api_keys.retain(|range| range.min_version <= range.max_version);
    if let Some(level) = transaction_version {
        let name = StrBytes::from_static_str("transaction.version");
        for feature in answer.finalized_features.iter_mut().filter(|feature| feature.name == name) {
            feature.max_version_level = level;
            feature.min_version_level = feature.min_version_level.min(level);
        }
        // A feature at level 0 is not finalized.
        answer.finalized_features.retain(|feature| feature.max_version_level > 0);
    }
}

fn move_leader(
    subject: &Subject,
    topic: Option<&String>,
    partition: Option<i32>,
    to: Option<NodeId>,
) -> Option<Step> {
    let named = subject.topics.iter().find(|(name, _)| topic.is_none_or(|topic| topic == name));
    let topic = topic.or(named.map(|(name, _)| name))?.clone();
    let first = named.and_then(|(_, partitions)| partitions.first().copied());
    Some(Step::MoveLeader { topic, partition: partition.or(first).unwrap_or(0), to })
}
