//! What an answer, a refresh or a probe means for the slots.

use super::{Done, Task, Work, probe};
use crate::{
    ClientError, Connection, KafkaCode, NodeId,
    error::{CallError, Class, RequestKind, classify},
    fetch::{
        FetchError, TopicPartition,
        completed::{Completed, Load, Walked, walk},
        place::{Missing, locate},
        request::{Answer, Asked},
        slot::{Phase, Queued, Slot, State},
    },
};
use futures::FutureExt;
use hapax_host::Instant;
use kafka_protocol::messages::fetch_response::PartitionData;
use std::sync::Arc;

impl Task {
    pub(super) fn finish(&mut self, done: Done, work: &mut Work) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        match done {
            Done::Fetched { node, asked, result } => self.fetched(&mut state, node, &asked, result, work),
            Done::Refreshed(result) => self.refreshed(&mut state, result),
            Done::Probed { tp, generation, offset, result } => {
                self.probed(&mut state, &tp, generation, offset, result);
            }
        }
        drop(state);
        shared.readable.notify_one();
    }

    fn fetched(
        &mut self,
        state: &mut State,
        node: NodeId,
        asked: &[Asked],
        result: Result<(Connection, Answer), CallError>,
        work: &mut Work,
    ) {
        let now = self.client.host().now();
        let broker = self.brokers.entry(node).or_default();
        broker.busy = false;
        let (connection, mut answer) = match result {
            Ok(answered) => answered,
            Err(error) if error.is_retriable() => {
                let last: Arc<str> = error.to_string().into();
                for one in asked {
                    if let Some(slot) = state.slot(&one.tp, one.generation) {
                        lose_leader(slot);
                        self.trouble(slot, now, Arc::clone(&last));
                    }
                }
                return;
            }
            Err(error) => return state.end(FetchError::Client(error.into())),
        };
        broker.connection = Some(connection);
        broker.not_before = (!answer.throttle.is_zero()).then(|| now + answer.throttle);
        let unread = Arc::clone(&broker.unread);
        let bytes = answer.partitions.iter().flatten().filter_map(|data| Some(data.records.as_ref()?.len()));
        let load = Arc::new(Load::new(&unread, &self.shared, bytes.sum()));
        let turn = state.next_turn();
        for (one, data) in asked.iter().zip(answer.partitions.drain(..)) {
            let code = match &data {
                _ if answer.code != KafkaCode::NONE => answer.code,
                Some(data) => KafkaCode(data.error_code),
                // A broker leaves nothing out; if one does, it is asked again.
                None => KafkaCode::UNKNOWN_SERVER_ERROR,
            };
            match data.filter(|_| code == KafkaCode::NONE) {
                Some(data) => self.accept(state, one, data, turn, &load),
                None => self.refuse(state, one, code, now, work),
            }
        }
    }

    fn accept(&self, state: &mut State, one: &Asked, data: PartitionData, turn: u64, load: &Arc<Load>) {
        let Some(slot) = state.slot(&one.tp, one.generation) else { return };
        slot.trouble = None;
        let Some(records) = data.records.as_ref().filter(|records| !records.is_empty()) else { return };
        match walk(records, slot.fetch_from) {
            Walked::To(next) => slot.fetch_from = next,
            Walked::Nothing { needed } => {
                slot.max_bytes = i32::try_from(needed).ok().or(slot.max_bytes);
                return;
            }
            // The reader meets the damage in its place; nothing is fetched behind it.
            Walked::Damaged => slot.phase = Phase::Failed,
        }
        slot.turn = turn;
        let completed = Completed::of(one, data, self.config.isolation, load);
        state.queue.push_back(Queued::Read(completed));
    }

    fn refuse(&self, state: &mut State, one: &Asked, code: KafkaCode, now: Instant, work: &mut Work) {
        let Some(slot) = state.slot(&one.tp, one.generation) else { return };
        let kind = RequestKind::Fetch;
        let error = ClientError::broker(kind, one.tp.to_string(), code);
        match classify(kind, code) {
            Class::Success | Class::Retry => self.trouble(slot, now, error.to_string().into()),
            Class::RefreshMetadata | Class::UnknownTopic => {
                lose_leader(slot);
                self.trouble(slot, now, error.to_string().into());
            }
            Class::OutOfRange => {
                slot.phase = Phase::Probing;
                let Asked { tp, generation, offset, .. } = one.clone();
                work.push(probe(self.client.clone(), tp, generation, offset).boxed());
            }
            Class::Duplicate
            | Class::RefreshCoordinator
            | Class::Split
            | Class::OutOfSequence
            | Class::Abortable
            | Class::FatalForLane
            | Class::Disturbed(_)
            | Class::UnknownOutcome
            | Class::NotFound
            | Class::AlreadyThere
            | Class::Refused(_) => state.queue_failure(&one.tp, one.generation, error.into()),
        }
    }

    fn refreshed(&mut self, state: &mut State, result: Result<(), ClientError>) {
        self.refreshing = false;
        let now = self.client.host().now();
        if let Err(error) = result {
            if !error.is_retriable() {
                return state.end(error.into());
            }
            let last: Arc<str> = error.to_string().into();
            for slot in state.slots.values_mut().filter(|slot| slot.leader.is_none() && slot.is_wanted(now)) {
                self.trouble(slot, now, Arc::clone(&last));
            }
            return;
        }
        let mut gone = Vec::new();
        for (tp, slot) in &mut state.slots {
            if slot.leader.is_some() || !slot.is_wanted(now) {
                continue;
            }
            // Assigned while the refresh ran: the next one asks for it.
            let Some(topic) = self.client.cached_topic(&tp.topic) else { continue };
            match locate(tp, &mut slot.topic_id, &topic) {
                Ok(leader) => {
                    slot.leader = Some(leader);
                    slot.stale = false;
                    if let Some(trouble) = &mut slot.trouble {
                        trouble.unknown_since = None;
                    }
                }
                Err(missing) => {
                    if let Some(error) = self.missing(tp, slot, missing, now) {
                        gone.push((tp.clone(), slot.generation, error));
                    }
                }
            }
        }
        for (tp, generation, error) in gone {
            state.queue_failure(&tp, generation, error);
        }
    }

    /// Notes that fresh metadata has no leader for a partition; the error, if that is for good.
    fn missing(
        &self,
        tp: &TopicPartition,
        slot: &mut Slot,
        missing: Missing,
        now: Instant,
    ) -> Option<FetchError> {
        slot.stale = true;
        let reason = match missing {
            Missing::Refused(error) => return Some(error.into()),
            Missing::Leader(reason) => {
                self.trouble(slot, now, reason.into());
                if let Some(trouble) = &mut slot.trouble {
                    trouble.unknown_since = None;
                }
                return None;
            }
            Missing::Partition(reason) => reason,
        };
        self.trouble(slot, now, reason.as_str().into());
        let trouble = slot.trouble.as_mut()?;
        trouble.unknown_since.get_or_insert(now);
        trouble.is_gone(now).then(|| FetchError::Gone { tp: tp.clone(), reason })
    }

    fn probed(
        &self,
        state: &mut State,
        tp: &TopicPartition,
        generation: u64,
        offset: i64,
        result: Result<(i64, i64), ClientError>,
    ) {
        let Some(slot) = state.slot(tp, generation) else { return };
        let now = self.client.host().now();
        slot.phase = Phase::Open;
        match result {
            Ok((start, end)) if offset < start || offset > end => {
                let error = FetchError::OutOfRange { tp: tp.clone(), offset, start, end };
                state.queue_failure(tp, generation, error);
            }
            // In range by now: a leader that has just been elected may be behind for a moment.
            Ok((start, end)) => {
                let last = format!("offset {offset} was called out of range, but is in {start} to {end}");
                self.trouble(slot, now, last.into());
            }
            Err(error) if error.is_retriable() => {
                lose_leader(slot);
                self.trouble(slot, now, error.to_string().into());
            }
            Err(error) => state.queue_failure(tp, generation, error.into()),
        }
    }
}

fn lose_leader(slot: &mut Slot) {
    slot.leader = None;
    slot.stale = true;
}
