//! What the topic `__transaction_state` says of a transactional id, where its coordinator may not be asked.
//!
//! Owns the partition that an id belongs to and the walk over it: from the start of its log to the high watermark, the
//! last record of the id counts. Compaction takes earlier ones, which changes nothing. Refuses to answer past a key or a
//! record of the id that it does not understand.
//!
//! The topic is what coordinators load from, so the answer is theirs with two differences: the partitions of an end that
//! is decided are all of them, not those without a marker yet; and a record may be there a moment before its coordinator
//! says so. It needs READ on the topic, and reads a whole partition for one id.
//!
//! ```text
//!  id ─ hash, modulo the partitions of the topic ─► partition ─ log start .. high watermark ─► last record ─► LogState
//! ```
//!
//! Sources: `TransactionStateManager.partitionFor`, `TransactionLog`, `Utils.abs`; KIP-98, KIP-890.

#[cfg(feature = "fuzz")]
pub mod fuzz;
mod record;

pub use record::{LoggedTransaction, StateRecordError};

use super::{Described, TransactionState};
use crate::{
    Client, ClientError, KafkaCode, TopicMetadata,
    error::{CallError, RequestKind},
    fetch::{FetchError, TopicPartition, Walk, Walked, log_range},
    node::NodeId,
    record::{DEFAULT_DECOMPRESSED_LIMIT, Decompressor, RawBatch},
    retry::Retry,
};
use bytes::Bytes;
use hapax_host::Deadline;
use std::sync::Arc;

/// Kafka's name of the topic; no setting changes it.
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";
const TOPIC: &str = TRANSACTION_STATE_TOPIC;

/// What the log says of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    /// The partition of the topic that the id belongs to.
    pub partition: i32,
    /// Up to where it was read: its high watermark.
    pub end: i64,
    /// Offset of the id's last record; none where the log has no record of it.
    pub offset: Option<i64>,
    /// What that record says; none where there is none or it says that the id has expired.
    pub transaction: Option<LoggedTransaction>,
}

impl LogState {
    /// The same as the id's coordinator would tell it.
    pub fn described(&self) -> Described {
        self.transaction.as_ref().map_or(Described::Unknown, LoggedTransaction::described)
    }
}

impl LoggedTransaction {
    /// The same as the id's coordinator would have told it then.
    pub fn described(&self) -> Described {
        match &self.state {
            // Coordinators answer for these as for ids that they do not know.
            TransactionState::Dead => Described::Unknown,
            state => Described::Known {
                state: state.clone(),
                identity: self.identity,
                timeout_ms: self.timeout_ms,
                start_ms: self.start_ms,
                partitions: self.partitions.clone(),
            },
        }
    }
}

/// Why the log does not tell.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateLogError {
    /// Data: a record cannot be understood, so what it says of the id is not known.
    #[error(
        "reading {tp}: the record at offset {offset} is not understood: {source}; use a release that knows it"
    )]
    Record {
        /// The partition.
        tp: TopicPartition,
        /// The record's offset.
        offset: i64,
        /// What is wrong.
        source: StateRecordError,
    },
    /// Data: the log lost its start while it was read.
    #[error("reading {tp}: {reason}; read it again")]
    Moved {
        /// The partition.
        tp: TopicPartition,
        /// What was found instead.
        reason: String,
    },
    /// It could not be read: READ on the topic is missing, or there was no answer in time.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl From<ClientError> for StateLogError {
    fn from(error: ClientError) -> Self {
        Self::Fetch(error.into())
    }
}

/// Reads what the log of the coordinators says of a transactional id. Changes nothing.
///
/// # Errors
/// No READ on `__transaction_state`, no end of its partition until the deadline, damaged data, or records of a later
/// release.
pub async fn read_state(
    client: &Client,
    transactional_id: &str,
    deadline: Deadline,
) -> Result<LogState, StateLogError> {
    let (search, end) = searched(client, transactional_id, deadline).await?;
    search.found(end)
}

/// Reads every state of a transactional id that the log of the coordinators still has, oldest first: what a coordinator
/// does not tell any more, as far as compaction has not taken it. Changes nothing.
///
/// # Errors
/// As [`read_state`].
pub async fn read_history(
    client: &Client,
    transactional_id: &str,
    deadline: Deadline,
) -> Result<Vec<LoggedTransaction>, StateLogError> {
    searched(client, transactional_id, deadline).await?.0.history()
}

/// The records of an id, and up to where they were looked for.
async fn searched<'a>(
    client: &Client,
    transactional_id: &'a str,
    deadline: Deadline,
) -> Result<(Search<'a>, i64), StateLogError> {
    let topic = topic(client, deadline).await?;
    let partition = partition_of(transactional_id, count(&topic)?);
    let tp = TopicPartition { topic: Arc::from(TOPIC), partition };
    let (start, end) = log_range(client, &tp, deadline).await?;
    let why = format!("reading the state of {transactional_id}");
    let mut retry = Retry::new(client, RequestKind::Fetch, &format!("{tp}, {why}"), deadline);
    loop {
        let walk = Walk::new(client, tp.clone(), topic.id, start, &why, deadline);
        let (found, read_to) = read(walk, Search::new(tp.clone(), transactional_id)).await?;
        if read_to >= end {
            return Ok((found, read_to));
        }
        // A leader that was elected meanwhile does not know yet how much of its log is replicated, and hands out less.
        // The end itself is never such a one: ListOffsets is refused until the leader knows.
        let code = KafkaCode::OFFSET_NOT_AVAILABLE;
        retry.again(ClientError::broker(RequestKind::Fetch, tp.to_string(), code)).await?;
    }
}

async fn read<'a>(mut walk: Walk<'_>, mut search: Search<'a>) -> Result<(Search<'a>, i64), StateLogError> {
    loop {
        match walk.next().await? {
            Walked::Batches(batches) => batches.iter().try_for_each(|batch| search.look_at(batch))?,
            Walked::End { high_watermark } => return Ok((search, high_watermark)),
            Walked::Gone(reason) => return Err(StateLogError::Moved { tp: search.tp, reason }),
        }
    }
}

async fn topic(client: &Client, deadline: Deadline) -> Result<Arc<TopicMetadata>, ClientError> {
    let mut retry = Retry::new(client, RequestKind::Metadata, TOPIC, deadline);
    loop {
        let error = match retry.bounded(client.topics(&[TOPIC])).await {
            Ok(found) => match found.into_iter().next().map(|topic| topic.usable().map(|_| topic.clone())) {
                Some(Ok(topic)) => return Ok(topic),
                Some(Err(error)) => error,
                None => malformed("no entry for it"),
            },
            Err(error) => error,
        };
        retry.again(error).await?;
    }
}

/// How many partitions the topic has: all of them, or the id's would be another one.
fn count(topic: &TopicMetadata) -> Result<i32, ClientError> {
    let numbers = topic.partitions.iter().map(|partition| partition.partition);
    match i32::try_from(topic.partitions.len()) {
        Ok(count) if count > 0 && numbers.eq(0..count) => Ok(count),
        _ => Err(malformed("its partitions are not all there")),
    }
}

fn malformed(what: &str) -> ClientError {
    let reason = format!("topic {TOPIC}: {what}").into();
    CallError::Malformed { api: "Metadata", node: NodeId::BOOTSTRAP, reason }.into()
}

/// Which of so many partitions of a coordinators' topic a name belongs to: Java's `String.hashCode`, over UTF-16 code units,
/// without its sign (`Utils.abs`).
pub(crate) fn partition_of(name: &str, partitions: i32) -> i32 {
    let hash =
        name.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    hash.checked_abs().unwrap_or(0) % partitions
}

/// The records of one id, so far: a few for each of its transactions, until compaction.
struct Search<'a> {
    tp: TopicPartition,
    transactional_id: &'a str,
    decompressor: Decompressor,
    /// Offset and value; no value is a tombstone.
    records: Vec<(i64, Option<Bytes>)>,
}

impl<'a> Search<'a> {
    fn new(tp: TopicPartition, transactional_id: &'a str) -> Self {
        Self {
            tp,
            transactional_id,
            decompressor: Decompressor::new(DEFAULT_DECOMPRESSED_LIMIT),
            records: Vec::new(),
        }
    }

    fn look_at(&mut self, batch: &RawBatch) -> Result<(), StateLogError> {
        batch.verify_crc().map_err(|source| FetchError::Data { tp: self.tp.clone(), source })?;
        if batch.header().attributes.is_control() {
            return Ok(());
        }
        let records = batch.decode(&mut self.decompressor);
        let records = records.map_err(|source| FetchError::Data { tp: self.tp.clone(), source })?;
        for view in records.views() {
            let key = records.key(view).ok_or(StateRecordError::Malformed("it has no key"));
            let id = key.and_then(record::read_key).map_err(|source| self.record(view.offset, source))?;
            if id == self.transactional_id {
                // A copy of its own, so that one record does not keep a whole answer in memory.
                self.records.push((view.offset, records.value(view).map(Bytes::copy_from_slice)));
            }
        }
        Ok(())
    }

    fn found(self, end: i64) -> Result<LogState, StateLogError> {
        let last = self.records.last();
        let transaction = match last {
            Some((offset, Some(value))) => Some(self.transaction(*offset, value)?),
            Some((_, None)) | None => None,
        };
        let offset = last.map(|(offset, _)| *offset);
        Ok(LogState { partition: self.tp.partition, end, offset, transaction })
    }

    fn history(self) -> Result<Vec<LoggedTransaction>, StateLogError> {
        let values =
            self.records.iter().filter_map(|(offset, value)| value.as_ref().map(|value| (*offset, value)));
        values.map(|(offset, value)| self.transaction(offset, value)).collect()
    }

    fn transaction(&self, offset: i64, value: &[u8]) -> Result<LoggedTransaction, StateLogError> {
        record::read_value(value).map_err(|source| self.record(offset, source))
    }

    fn record(&self, offset: i64, source: StateRecordError) -> StateLogError {
        StateLogError::Record { tp: self.tp.clone(), offset, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BatchBuilder, Compression, Compressor, RecordRef, Stamp};

    /// Key and value.
    type Pair<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

    const KEY: &[u8] = &[0, 0, 0, 1, b'x'];

    fn search() -> Search<'static> {
        let tp = TopicPartition { topic: Arc::from(TOPIC), partition: 7 };
        Search::new(tp, "x")
    }

    fn batch(records: &[Pair<'_>], compression: Compression) -> RawBatch {
        let mut builder = BatchBuilder::new();
        for (key, value) in records {
            builder.push(&RecordRef { key: *key, value: *value, ..RecordRef::default() }).unwrap();
        }
        let stamp = Stamp { producer_id: -1, producer_epoch: -1, base_sequence: -1, transactional: false };
        let sealed = builder.seal(compression, &mut Compressor::new()).unwrap();
        RawBatch::parse(sealed.stamp(stamp).to_bytes()).unwrap()
    }

    fn empty(epoch: u8) -> Vec<u8> {
        let mut value = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, epoch, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff];
        value.extend([78_i64.to_be_bytes(), (-1_i64).to_be_bytes()].concat());
        value
    }

    #[test]
    fn ids_belong_to_the_partitions_that_java_computes() {
        // "polygenelubricants" hashes to i32::MIN, whose absolute value does not fit.
        for (id, partition) in
            [("", 0), ("a", 47), ("hello", 22), ("polygenelubricants", 0), ("\u{1f600}", 49)]
        {
            assert_eq!(partition_of(id, 50), partition, "{id:?}");
        }
        assert_eq!(partition_of("hello", 1), 0);
    }

    #[test]
    fn the_last_record_of_the_id_counts_in_every_codec() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let mut search = search();
            let (first, second) = (empty(1), empty(2));
            let other: &[u8] = &[0, 0, 0, 1, b'y'];
            let records =
                [(Some(KEY), Some(&*first)), (Some(KEY), Some(&*second)), (Some(other), Some(&[0, 99][..]))];
            search.look_at(&batch(&records, compression)).unwrap();
            let found = search.found(3).unwrap();
            assert_eq!((found.partition, found.end, found.offset), (7, 3, Some(1)));
            let Described::Known { identity, .. } = found.described() else { panic!("{found:?}") };
            assert_eq!((identity.producer_id.0, identity.producer_epoch.0), (9, 2));
            let mut search = self::search();
            search.look_at(&batch(&records, compression)).unwrap();
            let epochs: Vec<i16> =
                search.history().unwrap().iter().map(|logged| logged.identity.producer_epoch.0).collect();
            assert_eq!(epochs, [1, 2]);
        }
    }

    #[test]
    fn an_expired_id_and_one_that_never_was_are_unknown() {
        let value = empty(1);
        let mut expired = search();
        let records = [(Some(KEY), Some(&*value)), (Some(KEY), None)];
        expired.look_at(&batch(&records, Compression::None)).unwrap();
        let expired = expired.found(2).unwrap();
        assert_eq!((expired.offset, expired.described()), (Some(1), Described::Unknown));
        let never = search().found(2).unwrap();
        assert_eq!((never.offset, never.described()), (None, Described::Unknown));
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_place() {
        let mut later = search();
        later.look_at(&batch(&[(Some(KEY), Some(&[0, 7]))], Compression::None)).unwrap();
        let said = later.found(1).unwrap_err().to_string();
        assert!(said.contains("__transaction_state-7") && said.contains("offset 0"), "{said}");
        assert!(said.contains("version 7"), "{said}");
        // A key of a later version may be the id's own.
        let error = search().look_at(&batch(&[(Some(&[0, 1, 0, 0]), None)], Compression::None)).unwrap_err();
        assert!(error.to_string().contains("version 1"), "{error}");
        assert!(search().look_at(&batch(&[(None, None)], Compression::None)).is_err());
    }

    #[test]
    fn a_topic_of_which_a_partition_is_missing_is_not_read() {
        let partition = |partition| crate::PartitionMetadata {
            partition,
            leader: None,
            replicas: Vec::new(),
            in_sync: Vec::new(),
        };
        let topic = |numbers: &[i32]| TopicMetadata {
            name: TOPIC.into(),
            id: hapax_commit::TopicId([1; 16]),
            error: None,
            partitions: numbers.iter().copied().map(partition).collect(),
        };
        assert_eq!(count(&topic(&[0, 1, 2])).ok(), Some(3));
        for broken in [&[][..], &[0, 2], &[1, 2]] {
            assert!(count(&topic(broken)).is_err(), "{broken:?}");
        }
    }
}
