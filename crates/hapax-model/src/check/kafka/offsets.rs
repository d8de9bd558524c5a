//! Offsets of a group: as a part of a transaction, and read back.

use super::{Kafka, Refused, Told, code, text};
use hapax_broker::wire::Response;
use hapax_commit::{Identity, TransactionVersion, TransactionalId, bookmark::FoundOffset};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, FindCoordinatorRequest, GroupId, OffsetFetchRequest, TxnOffsetCommitRequest,
    offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics},
    offset_fetch_response::OffsetFetchResponsePartitions,
    txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
};
use std::rc::Rc;

/// The topic beside whose partitions offsets stand.
const SOURCE: &str = "in";

/// An offset of the group that transactions have open is told so, and not by its value. (KIP-447)
const UNSTABLE_OFFSET_COMMIT: i16 = 88;

/// An offset to be committed, of a partition of the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::check) struct Offset {
    pub(in crate::check) partition: i32,
    pub(in crate::check) offset: i64,
    pub(in crate::check) metadata: String,
}

/// How a group's offsets stand.
#[derive(Debug)]
pub(in crate::check) struct Standing {
    /// Partitions of which an open transaction has an offset.
    unstable: Vec<i32>,
    /// What is committed.
    pub(in crate::check) found: Vec<FoundOffset>,
}

impl Kafka {
    /// Makes the source's topic, and the one that keeps offsets.
    pub(in crate::check) fn keep_offsets(&mut self, partitions: usize) {
        self.create_topic(SOURCE, partitions);
        let find = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("any")]);
        let _ = self.ask(4, find);
    }

    /// TxnOffsetCommit, every partition of it; on V1 AddOffsetsToTxn comes first.
    pub(in crate::check) fn send_offsets(
        &mut self,
        id: &TransactionalId,
        writer: Identity,
        offsets: &[Offset],
    ) -> Told<Result<(), Refused>> {
        if self.version == TransactionVersion::V1 {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(text(&id.to_string()).into())
                .with_producer_id(writer.producer_id.0.into())
                .with_producer_epoch(writer.producer_epoch.0)
                .with_group_id(group(id));
            let Some(Response::AddOffsetsToTxn(told)) = self.ask(3, request) else {
                unreachable!("answered in kind")
            };
            match told_by(told.error_code) {
                Told::Definite(Ok(())) => {}
                not_yet => return not_yet,
            }
        }
        let partition = |offset: &Offset| {
            TxnOffsetCommitRequestPartition::default()
                .with_partition_index(offset.partition)
                .with_committed_offset(offset.offset)
                .with_committed_metadata(Some(text(&offset.metadata)))
        };
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(text(SOURCE).into())
            .with_partitions(offsets.iter().map(partition).collect());
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(text(&id.to_string()).into())
            .with_group_id(group(id))
            .with_producer_id(writer.producer_id.0.into())
            .with_producer_epoch(writer.producer_epoch.0)
            .with_topics(vec![topic]);
        let version = match self.version {
            TransactionVersion::V1 => 4,
            TransactionVersion::V2 => 5,
        };
        let Some(Response::TxnOffsetCommit(told)) = self.ask(version, request) else {
            unreachable!("answered in kind")
        };
        let codes = told.topics.iter().flat_map(|topic| &topic.partitions).map(|part| part.error_code);
        codes.map(told_by).find(|told| *told != Told::Definite(Ok(()))).unwrap_or(Told::Definite(Ok(())))
    }

    /// Is an offset of one of these partitions part of a transaction that has not ended?
    pub(in crate::check) fn is_unstable(&self, job: &str, partitions: &[i32]) -> bool {
        let standing = self.standing(job);
        partitions.iter().any(|partition| standing.unstable.contains(partition))
    }

    /// What a group has committed, whatever a transaction may change of it.
    pub(in crate::check) fn committed_offsets(&self, job: &str) -> Rc<Standing> {
        self.standing(job)
    }

    fn standing(&self, job: &str) -> Rc<Standing> {
        if let Some(known) = &*self.standing.borrow() {
            return Rc::clone(known);
        }
        let all = (0..self.logs.len()).map(|partition| i32::try_from(partition).expect("a few"));
        let topic = OffsetFetchRequestTopics::default()
            .with_name(text(SOURCE).into())
            .with_partition_indexes(all.collect());
        let open = self.offsets(job, Some(vec![topic]), true).into_iter();
        let found = |part: OffsetFetchResponsePartitions| FoundOffset {
            place: format!("{SOURCE}-{}", part.partition_index),
            offset: part.committed_offset,
            metadata: part.metadata.unwrap_or_default().to_string(),
        };
        let standing = Rc::new(Standing {
            unstable: open
                .filter(|part| part.error_code == UNSTABLE_OFFSET_COMMIT)
                .map(|part| part.partition_index)
                .collect(),
            found: self.offsets(job, None, false).into_iter().map(found).collect(),
        });
        *self.standing.borrow_mut() = Some(Rc::clone(&standing));
        standing
    }

    fn offsets(
        &self,
        job: &str,
        topics: Option<Vec<OffsetFetchRequestTopics>>,
        stable: bool,
    ) -> Vec<OffsetFetchResponsePartitions> {
        let mut asker = self.clone();
        let wanted = OffsetFetchRequestGroup::default()
            .with_group_id(text(job).into())
            .with_topics(topics.map(|topics| topics.into_iter().collect()));
        let request = OffsetFetchRequest::default().with_groups(vec![wanted]).with_require_stable(stable);
        let Some(Response::OffsetFetch(mut told)) = asker.ask(8, request) else {
            unreachable!("answered in kind")
        };
        let group = told.groups.remove(0);
        assert_eq!(group.error_code, code::NONE, "the group's coordinator answers");
        group.topics.into_iter().flat_map(|topic| topic.partitions).collect()
    }
}

/// The group of a job is called as the job.
fn group(id: &TransactionalId) -> GroupId {
    text(id.job.as_str()).into()
}

fn told_by(error_code: i16) -> Told<Result<(), Refused>> {
    match error_code {
        code::NONE => Told::Definite(Ok(())),
        again if code::COME_AGAIN.contains(&again) => Told::ComeAgain,
        refused => Told::Definite(Err(Refused(refused))),
    }
}
