//! What operators ask: ListTransactions, which each node answers for the ids that it coordinates, and
//! DescribeTransactions, which only the coordinator of an id answers. (KIP-664)

use super::{metadata::Transaction, pattern::Pattern, phase::Phase};
use crate::state::{Answer, Call, Code, Machine, Millis};
use kafka_protocol::{
    messages::{
        DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
        ListTransactionsResponse, TransactionalId,
        describe_transactions_response::{TopicData, TransactionState as Described},
        list_transactions_response::TransactionState as Listed,
    },
    protocol::StrBytes,
};
use std::collections::BTreeMap;

/// What is asked for. An empty list asks for everything.
struct Filter {
    states: Vec<StrBytes>,
    producer_ids: Vec<i64>,
    /// Only what began longer ago; negative asks for everything.
    longer_than_ms: Millis,
    pattern: Option<Pattern>,
}

impl Filter {
    fn of(request: &ListTransactionsRequest) -> Result<Self, Code> {
        let pattern = request.transactional_id_pattern.as_deref().filter(|pattern| !pattern.is_empty());
        Ok(Self {
            states: request.state_filters.clone(),
            producer_ids: request.producer_id_filters.iter().map(|id| id.0).collect(),
            longer_than_ms: request.duration_filter,
            pattern: pattern.map(Pattern::new).transpose()?,
        })
    }

    /// An id in Empty began at -1, so it passes any duration.
    fn takes(&self, id: &str, stored: &Transaction, now: Millis) -> bool {
        let state = stored.phase.name();
        (self.producer_ids.is_empty() || self.producer_ids.contains(&stored.producer.id))
            && (self.states.is_empty() || self.states.iter().any(|name| name.as_str() == state))
            && (self.longer_than_ms < 0 || now.saturating_sub(stored.start) > self.longer_than_ms)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(id))
    }
}

impl Machine {
    pub(crate) fn list_transactions(&self, call: &Call, request: ListTransactionsRequest) -> Answer {
        let filter = self.loads_transactions(call.node).and_then(|()| Filter::of(&request));
        let filter = match filter {
            Ok(filter) => filter,
            Err(code) => {
                return Answer::Now(ListTransactionsResponse::default().with_error_code(code.0).into());
            }
        };
        let unknown = request.state_filters.into_iter().filter(|name| !Phase::knows(name)).collect();
        let led = self.transactions.shards.values().filter(|shard| shard.node == call.node);
        let taken = led
            .flat_map(|shard| &shard.transactions)
            .filter(|(id, stored)| stored.producer.epoch >= 0 && filter.takes(id, stored, self.now))
            .map(|(id, stored)| {
                Listed::default()
                    .with_transactional_id(transactional_id(id))
                    .with_producer_id(stored.producer.id.into())
                    .with_transaction_state(StrBytes::from_static_str(stored.phase.name()))
            });
        let response = ListTransactionsResponse::default()
            .with_unknown_state_filters(unknown)
            .with_transaction_states(taken.collect());
        Answer::Now(response.into())
    }

    pub(crate) fn describe_transactions(&self, call: &Call, request: DescribeTransactionsRequest) -> Answer {
        let describe = |id: &TransactionalId| {
            let described = self.describe_transaction(call, id);
            described
                .unwrap_or_else(|code| Described::default().with_error_code(code.0))
                .with_transactional_id(id.clone())
        };
        let states = request.transactional_ids.iter().map(describe).collect();
        Answer::Now(DescribeTransactionsResponse::default().with_transaction_states(states).into())
    }

    fn describe_transaction(&self, call: &Call, id: &str) -> Result<Described, Code> {
        if id.is_empty() {
            return Err(Code::INVALID_REQUEST);
        }
        let stored = self.stored(id, Some(call.node))?.ok_or(Code::TRANSACTIONAL_ID_NOT_FOUND)?;
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for added in &stored.partitions {
            topics.entry(&added.topic).or_default().push(added.partition);
        }
        let topics = topics.into_iter().map(|(topic, partitions)| {
            TopicData::default()
                .with_topic(StrBytes::from_string(topic.to_owned()).into())
                .with_partitions(partitions)
        });
        Ok(Described::default()
            .with_transaction_state(StrBytes::from_static_str(stored.phase.name()))
            .with_transaction_timeout_ms(stored.timeout_ms)
            .with_transaction_start_time_ms(stored.start)
            .with_producer_id(stored.producer.id.into())
            .with_producer_epoch(stored.producer.epoch)
            .with_topics(topics.collect()))
    }
}

fn transactional_id(id: &str) -> TransactionalId {
    StrBytes::from_string(id.to_owned()).into()
}
