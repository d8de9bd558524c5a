//! Partitions join a transaction: by AddPartitionsToTxn and AddOffsetsToTxn from clients of the first protocol, by
//! AddPartitionsToTxn 4 and above from brokers, and by what Produce and TxnOffsetCommit of V2 add without being asked.
//!
//! The level of the cluster decides one order: a coordinator of 4.x looks at a pending transition before it looks who
//! asks, because the producer id may be about to change; one of 3.9 looks at it afterwards.

use super::{
    metadata::{Identity, Level, Transaction},
    partition_for,
    phase::Phase,
    without_fencing,
};
use crate::state::{
    Answer, Call, Code, Machine, NodeId, TopicPartition,
    catalog::{CONSUMER_OFFSETS, is_internal},
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    TopicName,
    add_partitions_to_txn_request::AddPartitionsToTxnTopic,
    add_partitions_to_txn_response::{
        AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
    },
};
use std::collections::BTreeMap;

/// What a partition's leader asks before it appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admit {
    /// Add the partitions, as V2 does for the client.
    AddImplicitly,
    /// Say whether the client has added them. (KIP-890 part 1)
    Verify,
}

/// What it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Append.
    Granted,
    /// Markers are still being written: ask again.
    Busy,
    /// The coordinator's error, as it is: the leader maps it for its client.
    Refused(Code),
}

type Refusals = BTreeMap<TopicPartition, Code>;

impl Machine {
    /// Asks the coordinator, wherever it is, on behalf of a partition's leader.
    pub(crate) fn admit(
        &mut self,
        transactional_id: &str,
        producer_id: i64,
        producer_epoch: i16,
        partitions: &[TopicPartition],
        how: Admit,
    ) -> Admission {
        let producer = Identity { id: producer_id, epoch: producer_epoch };
        let outcome = match how {
            Admit::AddImplicitly => {
                self.add_partitions(None, transactional_id, producer, partitions, Level::BUMPING)
            }
            Admit::Verify => {
                self.verify_partitions(None, transactional_id, producer, partitions).and_then(|missing| {
                    if missing.is_empty() { Ok(()) } else { Err(Code::TRANSACTION_ABORTABLE) }
                })
            }
        };
        match outcome {
            Ok(()) => Admission::Granted,
            Err(Code::CONCURRENT_TRANSACTIONS) => Admission::Busy,
            Err(code) => Admission::Refused(code),
        }
    }

    fn add_partitions(
        &mut self,
        node: Option<NodeId>,
        id: &str,
        producer: Identity,
        added: &[TopicPartition],
        level: Level,
    ) -> Result<(), Code> {
        if id.is_empty() {
            return Err(Code::INVALID_REQUEST);
        }
        let pending_first = self.cluster_level().bumps();
        let stored = self.stored(id, node)?.ok_or(Code::INVALID_PRODUCER_ID_MAPPING)?;
        if pending_first && stored.pending.is_some() {
            return Err(Code::CONCURRENT_TRANSACTIONS);
        }
        check_producer(stored, producer)?;
        if stored.pending.is_some() || stored.phase.is_prepared() {
            return Err(Code::CONCURRENT_TRANSACTIONS);
        }
        if stored.phase == Phase::Ongoing && added.iter().all(|new| stored.partitions.contains(new)) {
            return Ok(());
        }
        if stored.successor.is_some() {
            return Err(Code::INVALID_TXN_STATE);
        }
        let next = stored.with_partitions(added, level, self.now);
        self.write_transaction(id, next)
    }

    /// The partitions that the transaction does not have. A pending transition does not matter: the append looks again.
    fn verify_partitions(
        &self,
        node: Option<NodeId>,
        id: &str,
        producer: Identity,
        partitions: &[TopicPartition],
    ) -> Result<Refusals, Code> {
        if id.is_empty() {
            return Err(Code::INVALID_REQUEST);
        }
        let stored = self.stored(id, node)?.ok_or(Code::INVALID_PRODUCER_ID_MAPPING)?;
        check_producer(stored, producer)?;
        if stored.phase.is_prepared() {
            return Err(Code::CONCURRENT_TRANSACTIONS);
        }
        let missing = partitions.iter().filter(|partition| !stored.partitions.contains(partition));
        Ok(missing.map(|partition| (partition.clone(), Code::TRANSACTION_ABORTABLE)).collect())
    }

    pub(crate) fn add_partitions_to_txn(
        &mut self,
        call: &Call,
        request: AddPartitionsToTxnRequest,
    ) -> Answer {
        let response = AddPartitionsToTxnResponse::default();
        if call.version < 4 {
            let id = request.v3_and_below_transactional_id.to_string();
            let producer = Identity {
                id: request.v3_and_below_producer_id.0,
                epoch: request.v3_and_below_producer_epoch,
            };
            let topics = request.v3_and_below_topics;
            let results = self.add_for(call, &id, producer, &topics, false);
            return Answer::Now(response.with_results_by_topic_v3_and_below(results).into());
        }
        let mut results = Vec::with_capacity(request.transactions.len());
        for asked in request.transactions {
            let producer = Identity { id: asked.producer_id.0, epoch: asked.producer_epoch };
            let topics =
                self.add_for(call, &asked.transactional_id, producer, &asked.topics, asked.verify_only);
            results.push(
                AddPartitionsToTxnResult::default()
                    .with_transactional_id(asked.transactional_id)
                    .with_topic_results(topics),
            );
        }
        Answer::Now(response.with_results_by_transaction(results).into())
    }

    /// Adds or verifies the partitions of one transaction: all of them or none.
    fn add_for(
        &mut self,
        call: &Call,
        id: &str,
        producer: Identity,
        topics: &[AddPartitionsToTxnTopic],
        verify_only: bool,
    ) -> Vec<AddPartitionsToTxnTopicResult> {
        let partitions = named_partitions(topics);
        let refusals = self.unusable(call.version, &partitions);
        if !refusals.is_empty() {
            return results(topics, |partition| {
                refusals.get(partition).copied().unwrap_or(Code::OPERATION_NOT_ATTEMPTED)
            });
        }
        let node = Some(call.node);
        if verify_only {
            return match self.verify_partitions(node, id, producer, &partitions) {
                Ok(missing) => {
                    results(topics, |partition| missing.get(partition).copied().unwrap_or(Code::NONE))
                }
                Err(code) => results(topics, |_| code),
            };
        }
        // To Kafka 3.9 the batched form is another way to say the same.
        let old = self.cluster_level() == Level::CLASSIC;
        let level = if old { Level::CLASSIC } else { Level::of_add(call.version) };
        let added = self.add_partitions(node, id, producer, &partitions, level);
        let code = added.err().unwrap_or(Code::NONE);
        // PRODUCER_FENCED is new in version 2.
        let code = if call.version < 2 { without_fencing(code) } else { code };
        results(topics, |_| code)
    }

    /// Partitions that nobody can add: unknown ones, and from clients those of internal topics.
    fn unusable(&self, version: i16, partitions: &[TopicPartition]) -> Refusals {
        let mut refusals = Refusals::new();
        for named in partitions {
            if version < 4 && is_internal(&named.topic) {
                refusals.insert(named.clone(), Code::TOPIC_AUTHORIZATION_FAILED);
            } else if self.catalog.partition(&named.topic, named.partition).is_none() {
                refusals.insert(named.clone(), Code::UNKNOWN_TOPIC_OR_PARTITION);
            }
        }
        refusals
    }

    pub(crate) fn add_offsets_to_txn(&mut self, call: &Call, request: AddOffsetsToTxnRequest) -> Answer {
        let producer = Identity { id: request.producer_id.0, epoch: request.producer_epoch };
        let partition = partition_for(&request.group_id, self.settings.offsets_partitions);
        let offsets = [TopicPartition::new(CONSUMER_OFFSETS, partition)];
        let id = request.transactional_id.to_string();
        let added = self.add_partitions(Some(call.node), &id, producer, &offsets, Level::CLASSIC);
        let code = added.err().unwrap_or(Code::NONE);
        // PRODUCER_FENCED is new in version 2.
        let code = if call.version < 2 { without_fencing(code) } else { code };
        Answer::Now(AddOffsetsToTxnResponse::default().with_error_code(code.0).into())
    }
}

fn check_producer(stored: &Transaction, asked: Identity) -> Result<(), Code> {
    let held = stored.client();
    if held.id != asked.id {
        Err(Code::INVALID_PRODUCER_ID_MAPPING)
    } else if held.epoch != asked.epoch {
        Err(Code::PRODUCER_FENCED)
    } else {
        Ok(())
    }
}

fn named_partitions(topics: &[AddPartitionsToTxnTopic]) -> Vec<TopicPartition> {
    let of_topic = |topic: &AddPartitionsToTxnTopic| {
        let name: TopicName = topic.name.clone();
        topic.partitions.clone().into_iter().map(move |index| TopicPartition::new(name.as_str(), index))
    };
    topics.iter().flat_map(of_topic).collect()
}

fn results(
    topics: &[AddPartitionsToTxnTopic],
    code: impl Fn(&TopicPartition) -> Code,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let of_topic = |topic: &AddPartitionsToTxnTopic| {
        let of_partition = |index: &i32| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*index)
                .with_partition_error_code(code(&TopicPartition::new(topic.name.as_str(), *index)).0)
        };
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(topic.partitions.iter().map(of_partition).collect())
    };
    topics.iter().map(of_topic).collect()
}
