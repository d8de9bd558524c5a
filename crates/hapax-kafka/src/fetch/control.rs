//! How a transaction ended, as the data partition itself says: the first control batch of its producer id.
//!
//! Reads uncommitted from the transaction's first offset up to the high watermark at the start of the search. Only
//! what is certain is an answer: where the log no longer reaches back, or batches of a later transaction come first,
//! the marker is gone, and a later transaction's marker is not taken for it.
//!
//! Sources: KIP-98, KIP-664, KIP-890 (the marker's epoch is one higher under V2); `ControlRecordType`.

use super::{
    FetchError, TopicPartition,
    place::{Missing, locate},
    range::log_range,
    request::{Asked, Terms, ask},
};
use crate::{
    Client, ClientError, Isolation, KafkaCode, Leader,
    error::{Class, RequestKind, classify},
    limits,
    record::{Batches, ControlKind, RawBatch, RecordError},
    retry::{Retry, within},
    wire::Request,
};
use bytes::Bytes;
use hapax_commit::{ProducerEpoch, ProducerId, TopicId};
use hapax_host::{Deadline, Instant};
use kafka_protocol::messages::FetchRequest;
use std::{sync::Arc, time::Duration};

/// How a producer's transaction ended in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlSeen {
    /// Committed: the marker, with the producer epoch that it carries (V2: one higher than that of the records).
    Commit {
        /// Of the marker.
        epoch: ProducerEpoch,
        /// Of the marker.
        offset: i64,
    },
    /// Aborted: as above.
    Abort {
        /// Of the marker.
        epoch: ProducerEpoch,
        /// Of the marker.
        offset: i64,
    },
    /// There is no marker yet.
    NoneBelow {
        /// Up to where was searched.
        high_watermark: i64,
    },
    /// The log cannot tell any more.
    Gone {
        /// What was found instead.
        reason: String,
    },
}

/// Looks for the first control batch of a producer id at or behind an offset.
///
/// `from_offset` is the offset of the transaction's first record in the partition.
///
/// # Errors
/// No definite answer until the deadline, a missing right, or damaged data.
pub async fn first_control_batch(
    client: &Client,
    topic: &str,
    topic_id: TopicId,
    partition: i32,
    producer_id: ProducerId,
    from_offset: i64,
    deadline: Deadline,
) -> Result<ControlSeen, FetchError> {
    let tp = TopicPartition { topic: Arc::from(topic), partition };
    let subject = format!("{tp}, looking for the marker of producer id {}", producer_id.0);
    let mut retry = Retry::new(client, RequestKind::Fetch, &subject, deadline);
    let mut search = Search {
        client,
        tp,
        topic_id: Some(topic_id).filter(|id| id.0 != [0; 16]),
        producer_id: producer_id.0,
        from_offset,
        position: from_offset,
        end: None,
        epoch: None,
        max_bytes: SEARCH_BYTES,
        missing_since: None,
        deadline,
    };
    loop {
        match search.step().await {
            Ok(Step::Seen(seen)) => return Ok(seen),
            Ok(Step::Further) => {}
            Err(FetchError::Client(error)) => {
                retry.again(error).await?;
                if let Err(error) = client.refresh(&[topic]).await {
                    // Without fresh metadata nothing is known to be missing.
                    search.missing_since = None;
                    retry.again(error).await?;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Bytes of one step: much for one exchange, little for a connection that others use too.
const SEARCH_BYTES: i32 = 4 << 20;

struct Search<'a> {
    client: &'a Client,
    tp: TopicPartition,
    topic_id: Option<TopicId>,
    producer_id: i64,
    from_offset: i64,
    position: i64,
    /// High watermark of the first answer: a marker that counts is below it.
    end: Option<i64>,
    /// Producer epoch of the transaction's records, once one was seen.
    epoch: Option<i16>,
    max_bytes: i32,
    /// Since when metadata says that the partition is not there.
    missing_since: Option<Instant>,
    deadline: Deadline,
}

enum Step {
    Seen(ControlSeen),
    Further,
}

impl Search<'_> {
    async fn step(&mut self) -> Result<Step, FetchError> {
        let leader = match self.leader().await? {
            Ok(leader) => leader,
            Err(reason) => return Ok(gone(reason)),
        };
        let connection = self.client.connection(leader.node).await.map_err(ClientError::from)?;
        let asked = [Asked {
            tp: self.tp.clone(),
            generation: 0,
            topic_id: self.topic_id,
            offset: self.position,
            leader_epoch: leader.leader_epoch,
            max_bytes: self.max_bytes,
        }];
        let terms = Terms {
            isolation: Isolation::ReadUncommitted,
            max_wait: Duration::ZERO,
            min_bytes: 0,
            max_bytes: self.max_bytes,
            timeout: self.client.config().request_timeout,
        };
        let exchange = ask(&connection, &asked, &terms);
        let answer = within(self.client, self.deadline, FetchRequest::NAME, leader.node, exchange).await;
        let answer = answer.map_err(ClientError::from)?;
        self.client.host().sleep(answer.throttle).await;
        let data = answer.partitions.into_iter().next().flatten();
        let code = match &data {
            _ if answer.code != KafkaCode::NONE => answer.code,
            Some(data) => KafkaCode(data.error_code),
            None => KafkaCode::UNKNOWN_SERVER_ERROR,
        };
        match data.filter(|_| code == KafkaCode::NONE) {
            Some(data) if data.log_start_offset > self.from_offset => Ok(self.cut_off(data.log_start_offset)),
            Some(data) => {
                let end = *self.end.get_or_insert(data.high_watermark);
                self.look_through(data.records.unwrap_or_default(), end)
            }
            None => self.refused(code).await,
        }
    }

    /// Who leads the partition; or, for good, why it is not there any more.
    async fn leader(&mut self) -> Result<Result<Leader, String>, FetchError> {
        if self.client.cached_topic(&self.tp.topic).is_none() {
            self.client.refresh(&[&self.tp.topic]).await?;
        }
        let missing = match self.client.cached_topic(&self.tp.topic) {
            Some(topic) => locate(&self.tp, &mut self.topic_id, &topic),
            None => Err(Missing::Leader("the topic was not asked about".to_owned())),
        };
        let code = match missing {
            Ok(leader) => {
                self.missing_since = None;
                return Ok(Ok(leader));
            }
            Err(Missing::Refused(error)) => return Err(error.into()),
            Err(Missing::Leader(_)) => KafkaCode::LEADER_NOT_AVAILABLE,
            Err(Missing::Partition(reason)) => {
                let now = self.client.host().now();
                let since = *self.missing_since.get_or_insert(now);
                if now.saturating_duration_since(since) >= limits::GONE_TOPIC_PATIENCE {
                    return Ok(Err(reason));
                }
                KafkaCode::UNKNOWN_TOPIC_OR_PARTITION
            }
        };
        Err(self.broker(code))
    }

    fn broker(&self, code: KafkaCode) -> FetchError {
        ClientError::broker(RequestKind::Fetch, self.tp.to_string(), code).into()
    }

    fn cut_off(&self, start: i64) -> Step {
        gone(format!("the log of {} starts at {start}, behind offset {}", self.tp, self.from_offset))
    }

    async fn refused(&mut self, code: KafkaCode) -> Result<Step, FetchError> {
        if classify(RequestKind::Fetch, code) != Class::OutOfRange {
            return Err(self.broker(code));
        }
        let (start, end) = log_range(self.client, &self.tp, self.deadline).await?;
        if start > self.from_offset {
            return Ok(self.cut_off(start));
        }
        if end < self.position {
            let Self { tp, position, .. } = self;
            return Ok(gone(format!("the log of {tp} ends at {end}, before offset {position}")));
        }
        // In range by now: a leader that has just been elected may be behind for a moment.
        Err(self.broker(KafkaCode::OFFSET_NOT_AVAILABLE))
    }

    fn look_through(&mut self, records: Bytes, end: i64) -> Result<Step, FetchError> {
        let mut batches = Batches::new(records);
        let mut moved = false;
        for batch in &mut batches {
            let batch = batch.map_err(|source| self.damaged(source))?;
            let header = batch.header();
            if header.base_offset >= end {
                self.position = end;
                break;
            }
            if header.next_offset() <= self.position {
                continue;
            }
            if header.producer_id == self.producer_id
                && let Some(seen) = self.look_at(&batch)?
            {
                return Ok(Step::Seen(seen));
            }
            self.position = header.next_offset();
            moved = true;
        }
        if self.position >= end {
            return Ok(Step::Seen(ControlSeen::NoneBelow { high_watermark: end }));
        }
        if moved {
            return Ok(Step::Further);
        }
        match batches.cut_batch_bytes().and_then(|needed| i32::try_from(needed).ok()) {
            Some(needed) => {
                self.max_bytes = self.max_bytes.max(needed);
                Ok(Step::Further)
            }
            None => Err(self.broker(KafkaCode::OFFSET_NOT_AVAILABLE)),
        }
    }

    /// A batch of the producer.
    fn look_at(&mut self, batch: &RawBatch) -> Result<Option<ControlSeen>, FetchError> {
        batch.verify_crc().map_err(|source| self.damaged(source))?;
        let header = batch.header();
        let offset = header.base_offset;
        if !header.attributes.is_control() {
            let known = *self.epoch.get_or_insert(header.producer_epoch);
            let later = known != header.producer_epoch;
            return Ok(later.then(|| ControlSeen::Gone {
                reason: format!(
                    "a later transaction (producer epoch {} after {known}) begins at offset {offset} of {}, and no \
                     marker is before it",
                    header.producer_epoch, self.tp
                ),
            }));
        }
        let epoch = ProducerEpoch(header.producer_epoch);
        let marker = batch.control().map_err(|source| self.damaged(source))?;
        Ok(match marker.map(|marker| marker.kind) {
            Some(ControlKind::Commit) => Some(ControlSeen::Commit { epoch, offset }),
            Some(ControlKind::Abort) => Some(ControlSeen::Abort { epoch, offset }),
            Some(ControlKind::Other(_)) => None,
            None => Some(ControlSeen::Gone {
                reason: format!("the marker at offset {offset} of {} was cleaned away", self.tp),
            }),
        })
    }

    fn damaged(&self, source: RecordError) -> FetchError {
        FetchError::Data { tp: self.tp.clone(), source }
    }
}

fn gone(reason: String) -> Step {
    Step::Seen(ControlSeen::Gone { reason })
}
