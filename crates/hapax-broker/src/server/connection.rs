//! One connection: a request at a time, in order, as Kafka serves them; the rules in between.

use super::core::{Core, Halted, Pending};
use crate::{
    fault::{Act, Afterwards, Plan, Subject, Turn, Verdict, rebuff},
    state::{NodeId, Outcome, Step, partition_for},
    wire::{
        Request, Response,
        frame::{self, Head, Incoming},
    },
};
use bytes::Bytes;
use kafka_protocol::messages::ApiVersionsRequest;
use std::{io, sync::Arc, time::Duration};
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
    let crashing = Arc::clone(&core);
    let before = core.crashes.count();
    let (read, write) = split(stream);
    let read = BufReader::with_capacity(READ_AHEAD, read);
    let mut connection = Connection { core, node, crashes: before, read, write };
    tokio::select! {
        biased;
        () = crashing.crashes.after(before) => {}
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
    /// How often the broker had crashed when the connection began: nothing of it is applied after another time.
    crashes: u64,
    read: BufReader<ReadHalf<S>>,
    write: WriteHalf<S>,
}

/// A request that came.
struct Asked {
    head: Head,
    request: Request,
    answered_by: AnsweredBy,
}

/// Who answers a request.
enum AnsweredBy {
    /// The machine, which gets it with its body as it came.
    Machine(Bytes),
    /// Its reader did: it is of a version that nobody knows.
    Reader(Response),
}

impl From<Incoming> for Asked {
    fn from(incoming: Incoming) -> Self {
        match incoming {
            Incoming::Request { head, request, body } => {
                Self { head, request, answered_by: AnsweredBy::Machine(body) }
            }
            Incoming::TooNew { head, answer } => Self {
                head,
                request: ApiVersionsRequest::default().into(),
                answered_by: AnsweredBy::Reader(answer.into()),
            },
        }
    }
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

/// What comes of a request's fate.
enum Met {
    /// An outcome, which is told as any other.
    Outcome(Outcome),
    /// All that goes back.
    Back(Back),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn talk(&mut self) -> io::Result<()> {
        while let Some(frame) = frame::read(&mut self.read, frame::LARGEST_FRAME).await? {
            let incoming = frame::decode(frame, self.core.unstable)
                .map_err(|refused| io::Error::new(io::ErrorKind::InvalidData, refused))?;
            let back = self.request(incoming.into()).await?;
            if matches!(back, Back::Frame(_) | Back::Part(_)) {
                // It may have been stalled since the request was taken.
                self.core.awake(self.node).await;
            }
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

    async fn request(&mut self, asked: Asked) -> io::Result<Back> {
        let names = |id| self.core.look(|machine| machine.catalog.name(id).map(str::to_owned));
        let judged = self.core.faults.judge(&asked.head, Some(&asked.request), self.node.0, &names);
        let head = asked.head.clone();
        let Some((subject, plan)) = judged else {
            self.core.awake(self.node).await;
            let outcome = self.apply(asked).await?;
            return encode(&head, outcome);
        };
        for act in &plan.acts {
            self.act(act, &subject).await?;
        }
        self.core.awake(self.node).await;
        let outcome = match &plan.fate {
            None => changed(self.apply(asked).await?, &plan),
            Some(fate) => match self.meet(fate, asked, &plan).await? {
                Met::Outcome(outcome) => outcome,
                Met::Back(back) => return Ok(back),
            },
        };
        if matches!(outcome, Outcome::Answer(_)) {
            plan.delay_answer().await;
        }
        Ok(match (encode(&head, outcome)?, plan.ends_answers()) {
            (Back::Frame(frame), _) => plan.cut(&frame).map_or(Back::Frame(frame), Back::Part),
            (_, Some(then)) => {
                plan.met();
                without_answer(then)
            }
            (back, None) => back,
        })
    }

    /// Lets a request meet its fate.
    async fn meet(&mut self, fate: &Act, asked: Asked, plan: &Plan) -> io::Result<Met> {
        let Act { turn, verdict } = fate;
        match verdict {
            Verdict::Drop(then) => {
                turn.acted();
                Ok(Met::Back(without_answer(*then)))
            }
            Verdict::Crash => self.crash(turn),
            Verdict::CrashAfter => {
                self.apply(asked).await?;
                self.crash(turn)
            }
            Verdict::LoseAnswer(then) => {
                self.apply(asked).await?;
                turn.acted();
                Ok(Met::Back(without_answer(*then)))
            }
            Verdict::Error { code, applied } => {
                let answer = rebuff(&asked.request, asked.head.version, *code);
                let silent = is_silent(&asked.request);
                if *applied {
                    self.apply(asked).await?;
                }
                turn.acted();
                // Kafka closes a connection whose client wants no answer and there is an error to tell.
                Ok(Met::Outcome(if silent { Outcome::HangUp } else { Outcome::Answer(answer) }))
            }
            Verdict::CutAnswer { .. }
            | Verdict::Delay { .. }
            | Verdict::DelayAnswer { .. }
            | Verdict::StallNode { .. }
            | Verdict::MoveLeader { .. }
            | Verdict::MoveCoordinator
            | Verdict::JumpClock { .. }
            | Verdict::OldApiVersions { .. }
            | Verdict::Step(_) => Ok(Met::Outcome(changed(self.apply(asked).await?, plan))),
        }
    }

    fn crash(&self, turn: &Turn) -> io::Result<Met> {
        self.core.step_of(Step::Crash, turn).map_err(io::Error::other)?;
        Ok(Met::Back(Back::Close))
    }

    /// What a plan does before the request is applied.
    async fn act(&self, act: &Act, subject: &Subject) -> io::Result<()> {
        let Act { turn, verdict } = act;
        let done = match verdict {
            Verdict::Delay { ms } => {
                turn.acted();
                sleep(Duration::from_millis(*ms)).await;
                Ok(())
            }
            Verdict::StallNode { ms, node } => {
                let stalled = self.core.stall(node.unwrap_or(self.node), Duration::from_millis(*ms));
                stalled.inspect(|()| turn.acted())
            }
            Verdict::JumpClock { ms } => self.core.jump(*ms).inspect(|()| turn.acted()),
            Verdict::Step(step) => self.core.step_of(step.clone(), turn),
            Verdict::MoveLeader { topic, partition, to } => {
                self.step(move_leader(subject, topic.as_ref(), *partition, *to), turn)
            }
            Verdict::MoveCoordinator => self.step(self.move_coordinator(subject), turn),
            Verdict::DelayAnswer { .. }
            | Verdict::OldApiVersions { .. }
            | Verdict::Drop(_)
            | Verdict::LoseAnswer(_)
            | Verdict::CutAnswer { .. }
            | Verdict::Error { .. }
            | Verdict::Crash
            | Verdict::CrashAfter => Ok(()),
        };
        match done {
            Err(Halted::Impossible(why)) => turn.idle(&why),
            done => done.map_err(io::Error::other)?,
        }
        Ok(())
    }

    fn step(&self, step: Option<Step>, turn: &Turn) -> Result<(), Halted> {
        step.map_or(Err(Halted::Impossible(NAMES_NOTHING.into())), |step| self.core.step_of(step, turn))
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

    fn hand_in(&self, head: &Head, request: Request, body: &Bytes) -> io::Result<Pending> {
        self.core
            .submit(self.crashes, self.node, head.version, head.client_id.clone(), request, body)
            .inspect_err(|error| match error {
                Halted::Crashed => tracing::debug!(%error, "request refused"),
                Halted::Stopped | Halted::Impossible(_) | Halted::Journal(_) => {
                    tracing::error!(%error, "request refused");
                }
            })
            .map_err(io::Error::other)
    }

    /// Hands a request in and waits for its end, or for the client's.
    async fn apply(&mut self, asked: Asked) -> io::Result<Outcome> {
        let Asked { head, request, answered_by } = asked;
        let body = match answered_by {
            AnsweredBy::Machine(body) => body,
            AnsweredBy::Reader(answer) => return Ok(Outcome::Answer(answer)),
        };
        let mut pending = self.hand_in(&head, request, &body)?;
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
fn changed(mut outcome: Outcome, plan: &Plan) -> Outcome {
    if let Outcome::Answer(response) = &mut outcome {
        plan.change(response);
    }
    outcome
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
