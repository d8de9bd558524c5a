//! What the sender does about answers. What a code means is decided by the crate's one table.

use super::{Event, Link, Sender, Sent};
use crate::{
    CallError, Class, ClientError, Connection, KafkaCode, NodeId, RequestKind, classify, limits,
    producer::{
        error::ProduceError,
        partition_queue::{Effect, Verdict},
        request::{self, Answer},
        state::State,
    },
};
use bytes::Bytes;
use hapax_commit::Identity;
use hapax_host::Instant;
use std::{collections::BTreeMap, sync::Arc};

impl Sender {
    pub(super) fn handle(&mut self, event: Event) {
        let shared = Arc::clone(&self.shared);
        let now = shared.host.now();
        let mut state = shared.state();
        match event {
            Event::Answered { node, version, sent, result } => {
                self.links.entry(node).or_default().in_flight -= 1;
                self.answered(&mut state, (node, version), &sent, result, now);
            }
            Event::Connected { node, result } => self.connected(&mut state, node, result, now),
            Event::Refreshed(result) => self.refreshed(&mut state, result),
            Event::Added { opening, indexes, result } if opening == state.opening => {
                added(&mut state, &indexes, result);
            }
            Event::Identified { opening, index, result } if opening == state.opening => {
                identified(&mut state, index, result);
            }
            // Of an epoch that is no longer open.
            Event::Added { .. } | Event::Identified { .. } => {}
        }
    }

    fn answered(
        &mut self,
        state: &mut State,
        (node, version): (NodeId, i16),
        sent: &[Sent],
        result: Result<Bytes, CallError>,
        now: Instant,
    ) {
        let decoded = result.and_then(|body| {
            request::decode(version, body).map_err(|why| CallError::Malformed {
                api: "Produce",
                node,
                reason: why.to_string().into(),
            })
        });
        let answers = match decoded {
            Ok(answers) => answers,
            Err(error) => return self.not_answered(state, sent, &error, now),
        };
        let answers: BTreeMap<(&str, i32), &Answer> =
            answers.iter().map(|answer| ((&*answer.topic, answer.partition), answer)).collect();
        for one in sent {
            let writer = &state.partitions[one.index];
            match answers.get(&(writer.topic.name(), writer.partition)) {
                Some(answer) => self.partition_answered(state, one, answer, now),
                None => {
                    let reason = format!("no entry for {}", writer.place()).into();
                    let error = CallError::Malformed { api: "Produce", node, reason };
                    self.not_answered(state, std::slice::from_ref(one), &error, now);
                }
            }
        }
    }

    /// A request without an answer that can be trusted.
    pub(super) fn not_answered(&mut self, state: &mut State, sent: &[Sent], error: &CallError, now: Instant) {
        let text: Arc<str> = error.to_string().into();
        // The broker may be gone for good; its partitions have other leaders then.
        self.wants_metadata = true;
        for one in sent {
            let writer = &mut state.partitions[one.index];
            writer.last_failure = Some(Arc::clone(&text));
            let place = writer.place();
            let verdict = if error.is_retriable() {
                let at = now + self.pause(writer.queue.failures());
                Verdict::TryAgain { at, outcome_unknown: error.may_have_had_effect() }
            } else {
                Verdict::Refused
            };
            let reason = ProduceError::Call { place, epoch: state.epoch_number(), reason: error.clone() };
            self.conclude(state, one, verdict, reason);
        }
    }

    fn partition_answered(&mut self, state: &mut State, one: &Sent, answer: &Answer, now: Instant) {
        let code = answer.code;
        let failures = state.partitions[one.index].queue.failures();
        let again = |at: Instant| Verdict::TryAgain { at, outcome_unknown: false };
        let at = if code == KafkaCode::CONCURRENT_TRANSACTIONS {
            now + limits::CONCURRENT_TRANSACTIONS_BACKOFF
        } else {
            now + self.pause(failures)
        };
        let verdict = match classify(RequestKind::Produce, code) {
            Class::Success => Verdict::Appended { base_offset: answer.base_offset },
            Class::Duplicate => Verdict::Appended { base_offset: None },
            Class::Retry | Class::RefreshCoordinator => again(at),
            Class::RefreshMetadata => {
                self.await_metadata(state, one.index);
                again(at)
            }
            Class::UnknownTopic => {
                self.await_metadata(state, one.index);
                let since = *state.partitions[one.index].unknown_since.get_or_insert(now);
                let is_gone = now.saturating_duration_since(since) >= limits::UNKNOWN_TOPIC_PATIENCE;
                if is_gone { Verdict::Refused } else { again(at) }
            }
            Class::UnknownOutcome => Verdict::TryAgain { at, outcome_unknown: true },
            Class::Split => Verdict::TooLarge,
            Class::OutOfSequence => Verdict::OutOfSequence { at },
            Class::Abortable
            | Class::FatalForLane
            | Class::Disturbed(_)
            | Class::Refused(_)
            | Class::OutOfRange
            | Class::NotFound
            | Class::AlreadyThere => Verdict::Refused,
        };
        let epoch = state.epoch_number();
        let writer = &mut state.partitions[one.index];
        if !matches!(verdict, Verdict::Appended { .. }) {
            writer.last_failure = Some(code.to_string().into());
        }
        let place = writer.place();
        let error = match verdict {
            Verdict::TooLarge => ProduceError::RecordTooLarge { place, epoch, bytes: 0 },
            _ => ProduceError::Refused { place, epoch, records: 0, code, message: answer.message.clone() },
        };
        self.conclude(state, one, verdict, error);
    }

    fn await_metadata(&mut self, state: &mut State, index: usize) {
        state.partitions[index].awaits_metadata = true;
        self.wants_metadata = true;
    }

    /// Carries a verdict out; `error` is what it means if the batch is given up.
    fn conclude(&mut self, state: &mut State, one: &Sent, verdict: Verdict, error: ProduceError) {
        match state.answered(one.index, one.ticket, verdict) {
            Effect::Stale | Effect::Acknowledged { .. } | Effect::Again | Effect::Split { .. } => {}
            Effect::GivenUp { records, bytes } => {
                state.give_up(u64::from(records), with_size(error, records, bytes));
            }
            Effect::OutOfSequence { sequence } => self.out_of_sequence(state, one.index, sequence),
        }
    }

    /// The partition does not know what we had acknowledged. Outside transactions that is what becomes of an idle
    /// producer; the refused batch was not written, so it may be written under another identity, unless an earlier
    /// attempt of something may have been.
    fn out_of_sequence(&mut self, state: &mut State, index: usize, sequence: i32) {
        let writer = &state.partitions[index];
        let (place, epoch) = (writer.place(), state.epoch_number());
        let is_safe = state.config.best_effort || !writer.queue.has_unknown_outcome();
        if !state.config.transactional && is_safe && sequence != 0 {
            tracing::info!(%place, sequence, "the partition forgot this producer, going on under a new identity");
            return;
        }
        state.drop_oldest(index, ProduceError::OutOfSequence { place, epoch, sequence });
    }

    fn connected(
        &mut self,
        state: &mut State,
        node: NodeId,
        result: Result<Connection, CallError>,
        now: Instant,
    ) {
        let pause = self.pause(self.links.get(&node).map_or(0, |link| link.failures));
        let link = self.links.entry(node).or_default();
        link.is_opening = false;
        match result {
            Ok(connection) => {
                *link = Link { connection: Some(connection), in_flight: link.in_flight, ..Link::default() }
            }
            Err(error) => {
                link.failures = link.failures.saturating_add(1);
                link.retry_at = Some(now + pause);
                self.wants_metadata = true;
                let text: Arc<str> = error.to_string().into();
                for &index in &state.busy {
                    let writer = &mut state.partitions[index];
                    let leader = self.client.cached_leader(&writer.topic.0.name, writer.partition);
                    if leader.is_some_and(|leader| leader.node == node) {
                        writer.last_failure = Some(Arc::clone(&text));
                    }
                }
            }
        }
    }

    fn refreshed(&mut self, state: &mut State, result: Result<(), ClientError>) {
        self.is_refreshing = false;
        for &index in &state.busy {
            let writer = &mut state.partitions[index];
            writer.awaits_metadata = false;
            if let Err(error) = &result {
                writer.last_failure = Some(error.to_string().into());
            }
        }
    }
}

fn added(state: &mut State, indexes: &[usize], result: Result<(), ClientError>) {
    for &index in indexes {
        state.partitions[index].is_pending = false;
        state.partitions[index].is_added = result.is_ok();
    }
    if let Err(error) = result {
        state.fail(error.into());
    }
}

fn identified(state: &mut State, index: usize, result: Result<Identity, ClientError>) {
    let writer = &mut state.partitions[index];
    writer.is_pending = false;
    match result {
        Ok(identity) if writer.queue.needs_identity() => writer.queue.renew(identity),
        Ok(_) => {}
        Err(error) => state.drop_oldest(index, error.into()),
    }
}

/// Completes an error with what only the queue knew.
fn with_size(error: ProduceError, records: u32, bytes: usize) -> ProduceError {
    match error {
        ProduceError::RecordTooLarge { place, epoch, .. } => {
            ProduceError::RecordTooLarge { place, epoch, bytes }
        }
        ProduceError::Refused { place, epoch, code, message, .. } => {
            ProduceError::Refused { place, epoch, records, code, message }
        }
        other => other,
    }
}
