//! One partition's log from an offset on, read uncommitted, in bounded steps.
//!
//! Owns finding the leader, asking again, and telling a log that no longer reaches back from one that is late. What
//! the batches mean is the caller's.

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
    record::{Batches, RawBatch, RecordError},
    retry::{Retry, within},
    wire::Request,
};
use bytes::Bytes;
use hapax_commit::TopicId;
use hapax_host::{Deadline, Instant};
use kafka_protocol::messages::FetchRequest;
use std::time::Duration;

/// Bytes of one step: much for one exchange, little for a connection that others use too.
const STEP_BYTES: i32 = 4 << 20;

/// A walk through a log, up to the high watermark of its first answer.
pub(crate) struct Walk<'a> {
    client: &'a Client,
    pub(super) tp: TopicPartition,
    topic_id: Option<TopicId>,
    from_offset: i64,
    position: i64,
    /// High watermark of the first answer: what counts is below it.
    end: Option<i64>,
    max_bytes: i32,
    /// Since when metadata says that the partition is not there.
    missing_since: Option<Instant>,
    why: String,
    deadline: Deadline,
}

/// What a step found.
pub(crate) enum Walked {
    /// Whole batches, in order; none of them was looked into.
    Batches(Vec<RawBatch>),
    /// The walk is over.
    End {
        /// Where it ends.
        high_watermark: i64,
    },
    /// The log can never be read from the wanted offset on.
    Gone(String),
}

impl<'a> Walk<'a> {
    /// `why` is for messages: "looking for the marker of ..".
    pub(crate) fn new(
        client: &'a Client,
        tp: TopicPartition,
        topic_id: TopicId,
        from_offset: i64,
        why: &str,
        deadline: Deadline,
    ) -> Self {
        Self {
            client,
            tp,
            topic_id: Some(topic_id).filter(|id| id.0 != [0; 16]),
            from_offset,
            position: from_offset,
            end: None,
            max_bytes: STEP_BYTES,
            missing_since: None,
            why: why.to_owned(),
            deadline,
        }
    }

    /// The next batches.
    ///
    /// # Errors
    /// No definite answer until the deadline, a missing right, or damaged data.
    pub(crate) async fn next(&mut self) -> Result<Walked, FetchError> {
        let client = self.client;
        let subject = format!("{}, {}", self.tp, self.why);
        let mut retry = Retry::new(client, RequestKind::Fetch, &subject, self.deadline);
        loop {
            match self.step().await {
                Ok(Some(walked)) => return Ok(walked),
                Ok(None) => {}
                Err(FetchError::Client(error)) => {
                    retry.again(error).await?;
                    if let Err(error) = client.refresh(&[&*self.tp.topic]).await {
                        // Without fresh metadata nothing is known to be missing.
                        self.missing_since = None;
                        retry.again(error).await?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `None`: the same again, with more room.
    async fn step(&mut self) -> Result<Option<Walked>, FetchError> {
        let leader = match self.leader().await? {
            Ok(leader) => leader,
            Err(reason) => return Ok(Some(Walked::Gone(reason))),
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
            Some(data) if data.log_start_offset > self.from_offset => {
                Ok(Some(self.cut_off(data.log_start_offset)))
            }
            Some(data) => {
                let end = *self.end.get_or_insert(data.high_watermark);
                self.whole(data.records.unwrap_or_default(), end)
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

    fn cut_off(&self, start: i64) -> Walked {
        Walked::Gone(format!("the log of {} starts at {start}, behind offset {}", self.tp, self.from_offset))
    }

    async fn refused(&mut self, code: KafkaCode) -> Result<Option<Walked>, FetchError> {
        if classify(RequestKind::Fetch, code) != Class::OutOfRange {
            return Err(self.broker(code));
        }
        let (start, end) = log_range(self.client, &self.tp, self.deadline).await?;
        if start > self.from_offset {
            return Ok(Some(self.cut_off(start)));
        }
        if end < self.position {
            let Self { tp, position, .. } = self;
            let reason = format!("the log of {tp} ends at {end}, before offset {position}");
            return Ok(Some(Walked::Gone(reason)));
        }
        // In range by now: a leader that has just been elected may be behind for a moment.
        Err(self.broker(KafkaCode::OFFSET_NOT_AVAILABLE))
    }

    /// The batches that are there in whole.
    fn whole(&mut self, records: Bytes, end: i64) -> Result<Option<Walked>, FetchError> {
        let mut batches = Batches::new(records);
        let mut whole = Vec::new();
        for batch in &mut batches {
            let batch = batch.map_err(|source| self.damaged(source))?;
            if batch.header().base_offset >= end {
                self.position = end;
                break;
            }
            if batch.header().next_offset() > self.position {
                self.position = batch.header().next_offset();
                whole.push(batch);
            }
        }
        if !whole.is_empty() {
            return Ok(Some(Walked::Batches(whole)));
        }
        if self.position >= end {
            return Ok(Some(Walked::End { high_watermark: end }));
        }
        match batches.cut_batch_bytes().and_then(|needed| i32::try_from(needed).ok()) {
            Some(needed) => {
                self.max_bytes = self.max_bytes.max(needed);
                Ok(None)
            }
            None => Err(self.broker(KafkaCode::OFFSET_NOT_AVAILABLE)),
        }
    }

    /// The next step may take until then.
    pub(super) fn allow(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Goes on from where it is to the high watermark of the next answer.
    pub(super) async fn wait(&mut self, pause: Duration) {
        self.client.host().sleep(pause).await;
        self.end = None;
    }

    pub(super) fn now(&self) -> Instant {
        self.client.host().now()
    }

    /// The error of a batch that cannot be read.
    pub(super) fn damaged(&self, source: RecordError) -> FetchError {
        FetchError::Data { tp: self.tp.clone(), source }
    }
}
