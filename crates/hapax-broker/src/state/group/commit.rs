//! OffsetCommit and TxnOffsetCommit. The offsets of a transaction go into the log as part of it, and are seen when its
//! marker is written.
//!
//! Errors are per partition: a topic that is unknown does not keep the others from being committed, and an error of the
//! group is told for each partition that would have been.

use super::{member::Group, offset::Committed, record};
use crate::state::{
    Admission, Admit, Answer, Call, Code, Machine, NodeId, TopicPartition, catalog::CONSUMER_OFFSETS,
};
use bytes::Bytes;
use kafka_protocol::{
    messages::{
        OffsetCommitRequest, OffsetCommitResponse, TopicName, TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
        offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
        txn_offset_commit_response::{TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic},
    },
    protocol::StrBytes,
};

/// `offset.metadata.max.bytes`, counted in UTF-16 units.
const LONGEST_METADATA: usize = 4_096;

/// One offset of a request, in the order of the request, and what became of it.
struct Asked {
    at: TopicPartition,
    committed: Committed,
    code: Code,
}

impl Asked {
    fn new(topic: &TopicName, partition: i32, offset: i64, epoch: i32, metadata: Option<StrBytes>) -> Self {
        let metadata = metadata.unwrap_or_default().to_string();
        let too_long = metadata.encode_utf16().count() > LONGEST_METADATA;
        Self {
            at: TopicPartition::new(topic.as_str(), partition),
            committed: Committed {
                offset,
                leader_epoch: epoch.max(-1),
                metadata,
                at: 0,
                expires: None,
                record_offset: -1,
            },
            code: if too_long { Code::OFFSET_METADATA_TOO_LARGE } else { Code::NONE },
        }
    }
}

/// Who commits, and in which transaction.
struct Committer<'a> {
    node: NodeId,
    version: i16,
    group: &'a str,
    member: &'a str,
    instance: Option<&'a str>,
    generation: i32,
    /// Transactional id, producer id and epoch.
    transaction: Option<(&'a str, i64, i16)>,
}

impl Machine {
    pub(crate) fn offset_commit(&mut self, call: &Call, request: OffsetCommitRequest) -> Answer {
        let expires =
            (request.retention_time_ms != -1).then(|| self.now.saturating_add(request.retention_time_ms));
        let mut asked = Vec::new();
        for topic in &request.topics {
            for partition in &topic.partitions {
                let mut one = Asked::new(
                    &topic.name,
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata.clone(),
                );
                one.committed.expires = expires;
                asked.push(one);
            }
        }
        let committer = Committer {
            node: call.node,
            version: call.version,
            group: &request.group_id,
            member: &request.member_id,
            instance: request.group_instance_id.as_deref(),
            generation: request.generation_id_or_member_epoch,
            transaction: None,
        };
        self.commit(&committer, &mut asked);
        let mut codes = asked.into_iter().map(|asked| asked.code);
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| {
                OffsetCommitResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(codes.next().unwrap_or(Code::NONE).0)
            });
            OffsetCommitResponseTopic::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        Answer::Now(OffsetCommitResponse::default().with_topics(topics.collect()).into())
    }

    pub(crate) fn txn_offset_commit(&mut self, call: &Call, request: TxnOffsetCommitRequest) -> Answer {
        let mut asked = Vec::new();
        for topic in &request.topics {
            for partition in &topic.partitions {
                asked.push(Asked::new(
                    &topic.name,
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata.clone(),
                ));
            }
        }
        let committer = Committer {
            node: call.node,
            version: call.version,
            group: &request.group_id,
            member: &request.member_id,
            instance: request.group_instance_id.as_deref(),
            generation: request.generation_id,
            transaction: Some((&request.transactional_id, request.producer_id.0, request.producer_epoch)),
        };
        self.commit(&committer, &mut asked);
        let mut codes = asked.into_iter().map(|asked| asked.code);
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| {
                TxnOffsetCommitResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(codes.next().unwrap_or(Code::NONE).0)
            });
            TxnOffsetCommitResponseTopic::default()
                .with_partitions(partitions.collect())
                .with_name(topic.name)
        });
        Answer::Now(TxnOffsetCommitResponse::default().with_topics(topics.collect()).into())
    }

    fn commit(&mut self, committer: &Committer<'_>, asked: &mut [Asked]) {
        let mut known = false;
        for one in &mut *asked {
            if self.catalog.partition(&one.at.topic, one.at.partition).is_none() {
                one.code = Code::UNKNOWN_TOPIC_OR_PARTITION;
            } else {
                known = true;
            }
        }
        let outcome = if known { self.commit_known(committer, asked) } else { Ok(()) };
        if let Err(code) = outcome {
            let code = code_for(committer, code);
            let untold = asked.iter_mut().filter(|one| one.code != Code::UNKNOWN_TOPIC_OR_PARTITION);
            untold.for_each(|one| one.code = code);
        }
    }

    fn commit_known(&mut self, committer: &Committer<'_>, asked: &mut [Asked]) -> Result<(), Code> {
        if let Some(transaction) = committer.transaction {
            if committer.group.is_empty() {
                return Err(Code::INVALID_GROUP_ID);
            }
            self.group_shard(committer.group, committer.node)?;
            self.join_transaction(committer, transaction)?;
        }
        self.check_committer(committer)?;
        self.write_offsets(committer, asked)
    }

    /// The offsets partition joins the transaction, or must have: TxnOffsetCommit 5 is an implicit AddOffsetsToTxn, an
    /// older one is checked. Not where the transaction is known to have begun in this partition.
    fn join_transaction(&mut self, committer: &Committer<'_>, of: (&str, i64, i16)) -> Result<(), Code> {
        let (transactional_id, producer_id, epoch) = of;
        let partition = self.offsets_partition(committer.group);
        let place = self.catalog.partition(CONSUMER_OFFSETS, partition).ok_or(Code::NOT_COORDINATOR)?;
        let of_epoch = self.settings.compares_epochs();
        if of_epoch && place.log.producers.is_stale(producer_id, epoch) {
            return Err(Code::INVALID_PRODUCER_EPOCH);
        }
        if place.log.producers.is_open(producer_id, of_epoch.then_some(epoch)) {
            return Ok(());
        }
        let how = if committer.version >= 5 { Admit::AddImplicitly } else { Admit::Verify };
        let partitions = [TopicPartition::new(CONSUMER_OFFSETS, partition)];
        match self.admit(transactional_id, producer_id, epoch, &partitions, how) {
            Admission::Granted => Ok(()),
            Admission::Busy => Err(Code::CONCURRENT_TRANSACTIONS),
            Admission::Refused(code) => Err(code),
        }
    }

    fn check_committer(&mut self, committer: &Committer<'_>) -> Result<(), Code> {
        let Committer { node, version, group, member, instance, generation, transaction } = *committer;
        let transactional = transaction.is_some();
        if transactional && self.settings.has_old_groups() {
            // Kafka 3.9 makes the group before it looks who commits.
            self.group_or_new(group);
        }
        match self.group(group, node)? {
            Some(held) => held.check_commit(member, instance, generation, transactional)?,
            // Offsets of nobody: an operator, or a consumer that manages its partitions itself.
            None if generation < 0 => drop(self.group_or_new(group)),
            None if version >= 9 && !transactional => return Err(Code::GROUP_ID_NOT_FOUND),
            None => return Err(Code::ILLEGAL_GENERATION),
        }
        if !transactional {
            self.change_group(group, |group, turn| group.heard_of(turn, member));
        }
        Ok(())
    }

    /// One batch for the whole request, as Kafka writes it.
    fn write_offsets(&mut self, committer: &Committer<'_>, asked: &mut [Asked]) -> Result<(), Code> {
        let now = self.now;
        let good: Vec<&mut Asked> = asked.iter_mut().filter(|one| one.code == Code::NONE).collect();
        if good.is_empty() {
            return Ok(());
        }
        let mut offsets: Vec<(TopicPartition, Committed)> = Vec::with_capacity(good.len());
        for one in good {
            offsets.push((one.at.clone(), Committed { at: now, ..one.committed.clone() }));
        }
        let records: Vec<(Bytes, Option<Bytes>)> = offsets
            .iter()
            .map(|(at, offset)| (record::offset_key(committer.group, at), Some(record::offset_value(offset))))
            .collect();
        let partition = self.offsets_partition(committer.group);
        let producer = committer.transaction.map(|(_, id, epoch)| (id, epoch));
        let appended = self.append_records(CONSUMER_OFFSETS, partition, producer, &records);
        let base = appended.inspect_err(|_| self.not_appended(committer, &offsets))?;
        let group: &mut Group = self.group_or_new(committer.group).ok_or(Code::NOT_COORDINATOR)?;
        for ((at, offset), delta) in offsets.into_iter().zip(0..) {
            let committed = Committed { record_offset: base + delta, ..offset };
            match producer {
                Some((id, _)) => group.offsets.put_pending(id, at, committed),
                None => drop(group.offsets.committed.insert(at, committed)),
            }
        }
        self.wake_offset_expiry();
        Ok(())
    }

    /// Kafka 3.9 takes back what it had noted before it appended, by producer id and partition: what the same producer
    /// id has committed there in its open transaction is lost with it, even if it was of another epoch
    /// (`GroupMetadata.failPendingTxnOffsetCommit`).
    fn not_appended(&mut self, committer: &Committer<'_>, offsets: &[(TopicPartition, Committed)]) {
        let Some((_, producer_id, _)) = committer.transaction.filter(|_| self.settings.has_old_groups())
        else {
            return;
        };
        if let Some(group) = self.group_mut(committer.group) {
            offsets.iter().for_each(|(at, _)| group.offsets.take_back(producer_id, at));
        }
    }
}

/// The error that a client of the version is told.
fn code_for(committer: &Committer<'_>, code: Code) -> Code {
    let transactional = committer.transaction.is_some();
    match code {
        // Partitions know of no fencing but by epoch.
        Code::PRODUCER_FENCED if transactional => Code::INVALID_PRODUCER_EPOCH,
        Code::TRANSACTION_ABORTABLE if committer.version < 4 => Code::INVALID_TXN_STATE,
        // The first producers crash on it.
        Code::COORDINATOR_LOAD_IN_PROGRESS if transactional && committer.version < 2 => {
            Code::COORDINATOR_NOT_AVAILABLE
        }
        Code::UNKNOWN_TOPIC_OR_PARTITION | Code::NOT_ENOUGH_REPLICAS | Code::REQUEST_TIMED_OUT => {
            Code::COORDINATOR_NOT_AVAILABLE
        }
        Code::NOT_LEADER_OR_FOLLOWER | Code::KAFKA_STORAGE_ERROR => Code::NOT_COORDINATOR,
        Code::NETWORK_EXCEPTION => Code::COORDINATOR_LOAD_IN_PROGRESS,
        code => code,
    }
}
