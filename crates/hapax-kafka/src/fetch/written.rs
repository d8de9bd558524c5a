//! The records that one transaction has left in a partition, committed or not.
//!
//! Read uncommitted at the offsets that its handle names. Owns the proof that they are all there and as they were
//! written: sequences from 0 without a gap, as many records as were counted, the same digest. Refuses to hand out the
//! end of a partition in which anything differs: what compaction, retention or a deletion has taken cannot be read
//! around.
//!
//! An aborted transaction's records stay readable until the log's cleaner or retention takes them.
//!
//! Sources: KIP-98 (sequences); `ProducerAppendInfo`, `LogCleaner`.

use super::{
    FetchError, TopicPartition,
    walk::{Walk, Walked},
};
use crate::{
    Client, limits,
    record::{DEFAULT_DECOMPRESSED_LIMIT, Decompressor, RawBatch, RecordDigest, Records},
};
use hapax_commit::{HandlePartition, Identity};
use hapax_host::{Deadline, Instant};
use std::{collections::VecDeque, sync::Arc};

/// Why the records of a transaction cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WrittenError {
    /// The log does not reach back to them any more, or the topic is not there: retention or somebody's hand.
    #[error("{tp}: {reason}")]
    Gone {
        /// The partition.
        tp: TopicPartition,
        /// What was found instead.
        reason: String,
    },
    /// They are not all there, or not as they were written; that does not change any more.
    #[error("{tp}: {reason}")]
    Incomplete {
        /// The partition.
        tp: TopicPartition,
        /// What is missing or differs.
        reason: String,
    },
    /// They could not be read now.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl WrittenError {
    /// Will it never be otherwise?
    pub fn is_final(&self) -> bool {
        match self {
            Self::Gone { .. } | Self::Incomplete { .. } => true,
            Self::Fetch(error) => !error.is_retriable(),
        }
    }
}

/// Reads what an identity has written to one partition.
pub struct WrittenReader<'a> {
    walk: Walk<'a>,
    identity: Identity,
    part: &'a HandlePartition,
    ahead: VecDeque<RawBatch>,
    decompressor: Decompressor,
    digest: RecordDigest,
    count: u64,
    is_over: bool,
    /// Since when the high watermark is below what was acknowledged.
    lags_since: Option<Instant>,
}

impl<'a> WrittenReader<'a> {
    /// Reads the records of `part`, written by `identity`.
    pub fn new(
        client: &'a Client,
        identity: Identity,
        part: &'a HandlePartition,
        deadline: Deadline,
    ) -> Self {
        let tp = TopicPartition { topic: Arc::from(part.topic.as_str()), partition: part.partition };
        let why = format!("reading what producer {identity} has written");
        Self {
            walk: Walk::new(client, tp, part.topic_id, part.first_offset, &why, deadline),
            identity,
            part,
            ahead: VecDeque::new(),
            decompressor: Decompressor::new(DEFAULT_DECOMPRESSED_LIMIT),
            digest: RecordDigest::new(),
            count: 0,
            is_over: false,
            lags_since: None,
        }
    }

    /// The next records, in order. `None`: these were all, and they are as they were written.
    ///
    /// # Errors
    /// They are not, or could not be read now.
    pub async fn next(&mut self) -> Result<Option<Records>, WrittenError> {
        loop {
            while let Some(batch) = self.ahead.pop_front() {
                let header = batch.header();
                if header.base_offset > self.part.last_offset {
                    self.is_over = true;
                } else if self.is_own(&batch) {
                    return self.take(&batch).map(Some);
                }
            }
            if self.is_over {
                return self.compare().map(|()| None);
            }
            match self.walk.next().await? {
                Walked::Batches(batches) => self.ahead.extend(batches),
                Walked::End { high_watermark }
                    if high_watermark <= self.part.last_offset && !self.lags_too_long() =>
                {
                    self.walk.wait(limits::LAGGING_WATERMARK_PAUSE).await;
                }
                Walked::End { .. } => self.is_over = true,
                Walked::Gone(reason) => {
                    return Err(WrittenError::Gone { tp: self.walk.tp.clone(), reason });
                }
            }
        }
    }

    fn lags_too_long(&mut self) -> bool {
        let now = self.walk.now();
        let since = *self.lags_since.get_or_insert(now);
        now.saturating_duration_since(since) >= limits::LAGGING_WATERMARK_PATIENCE
    }

    fn is_own(&self, batch: &RawBatch) -> bool {
        let header = batch.header();
        header.producer_id == self.identity.producer_id.0
            && header.producer_epoch == self.identity.producer_epoch.0
            && !header.attributes.is_control()
    }

    fn take(&mut self, batch: &RawBatch) -> Result<Records, WrittenError> {
        let header = *batch.header();
        batch.verify_crc().map_err(|source| self.walk.damaged(source))?;
        let records = batch.decode(&mut self.decompressor).map_err(|source| self.walk.damaged(source))?;
        // Sequences go round behind the largest one.
        let expected = i32::try_from(self.count % (1 << 31)).unwrap_or(i32::MAX);
        let written = i64::from(header.last_offset_delta) + 1;
        if header.base_sequence != expected {
            let found = header.base_sequence;
            return Err(self.incomplete(format!(
                "sequence {expected} is missing: the batch at offset {} begins with {found}",
                header.base_offset
            )));
        }
        if records.len() as i64 != written {
            return Err(self.incomplete(format!(
                "{} of {written} records of the batch at offset {} were cleaned away",
                written - records.len() as i64,
                header.base_offset
            )));
        }
        self.digest.update_all(&records);
        self.count += records.len() as u64;
        Ok(records)
    }

    fn compare(&self) -> Result<(), WrittenError> {
        let (count, digest) = (self.count, self.digest.value());
        if count != self.part.count {
            return Err(
                self.incomplete(format!("{count} records are there, {} were written", self.part.count))
            );
        }
        match self.part.digest {
            Some(written) if written != digest => Err(self.incomplete(format!(
                "the digest of its {count} records is {digest:08x}, and was {written:08x} when they were written"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    fn incomplete(&self, reason: String) -> WrittenError {
        WrittenError::Incomplete { tp: self.walk.tp.clone(), reason }
    }
}
