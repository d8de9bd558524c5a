//! Reads partitions: each one from when nothing says that its log has lost what was read of it.
//!
//! ```text
//!  nothing was read yet ─────────────────────────────► assigned to the fetcher ─► chunks ─► unassigned at a bounded end
//!  records were read ─► asked (truncation.rs) ─go on─┘
//!                          └─truncated─► the reader fails
//! ```
//!
//! A partition that nobody can answer for waits by itself; the others flow.

use super::{KafkaSource, asking::Asking, unsigned};
use crate::{
    batch::{Batch, Origin},
    limits,
    source::{BoxFuture, Chunk, Reader, SourceError, SourceTopic},
};
use hapax_commit::{Position, Positions, SplitId};
use hapax_kafka::{
    Client,
    fetch::{FetchError, Fetcher, FetcherConfig, TopicPartition},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

pub(super) struct KafkaReader {
    fetcher: Fetcher,
    splits: HashMap<TopicPartition, (Arc<Origin>, Position)>,
    /// Answers for those that are not assigned yet.
    asking: Asking,
    /// How many those are.
    unassigned: usize,
}

impl KafkaReader {
    /// Answers that come soon are waited for, so that a truncation ends the run before anything is written.
    pub(super) async fn begin(
        source: &KafkaSource,
        client: Client,
        topics: &[SourceTopic],
        positions: Positions,
    ) -> Result<Box<dyn Reader>, SourceError> {
        let host = client.host().clone();
        let counts: HashMap<&str, i32> =
            topics.iter().map(|topic| (topic.topic.as_str(), topic.record.partitions)).collect();
        let questions = source.questions(topics, &positions);
        let asked: BTreeSet<SplitId> = questions.iter().map(|question| question.split.clone()).collect();
        let config = FetcherConfig { isolation: source.isolation, ..FetcherConfig::default() };
        let mut reader = Self {
            fetcher: Fetcher::start(client.clone(), config),
            splits: HashMap::new(),
            asking: Asking::begin(client, source.name.clone(), questions),
            unassigned: asked.len(),
        };
        for (split, position) in positions.into_iter().filter(|(_, position)| !position.at_end()) {
            let Some((topic, partition)) = source.place(&split) else { continue };
            let tp = TopicPartition { topic: Arc::from(topic), partition };
            let partitions = counts.get(topic).copied();
            let is_asked = asked.contains(&split);
            let origin = Origin { split, topic: tp.topic.clone(), partition, partitions };
            reader.splits.insert(tp.clone(), (Arc::new(origin), position));
            if !is_asked {
                reader.assign(&tp);
            }
        }
        if let Some(told) = host.timeout(limits::LEADERS_PATIENCE, reader.answers()).await {
            told?;
        }
        Ok(Box::new(reader))
    }

    async fn answers(&mut self) -> Result<(), SourceError> {
        while self.unassigned > 0 {
            let answer = self.asking.next().await;
            self.take(answer)?;
        }
        Ok(())
    }

    fn take(&mut self, answer: Option<Result<TopicPartition, SourceError>>) -> Result<(), SourceError> {
        self.assign(&answer.unwrap_or(Err(FetchError::Stopped.into()))?);
        self.unassigned -= 1;
        Ok(())
    }

    fn assign(&mut self, tp: &TopicPartition) {
        let Some((_, position)) = self.splits.get(tp) else { return };
        let from = i64::try_from(position.next).unwrap_or(i64::MAX);
        self.fetcher.assign(tp.clone(), position.topic_id, from, position.leader_epoch);
    }

    async fn read(&mut self) -> Result<Chunk, SourceError> {
        loop {
            let fetched = tokio::select! {
                biased;
                answer = self.asking.next(), if self.unassigned > 0 => {
                    self.take(answer)?;
                    continue;
                }
                fetched = self.fetcher.next() => fetched?,
            };
            let Some((origin, position)) = self.splits.get_mut(&fetched.tp) else { continue };
            let mut batch = Batch::of_decoded(origin.clone(), &fetched.records);
            position.next = unsigned(fetched.next_offset);
            position.leader_epoch = fetched.leader_epoch.or(position.leader_epoch);
            if let Some(end) = position.end.filter(|&end| position.next >= end) {
                let end = i64::try_from(end).unwrap_or(i64::MAX);
                batch.retain(|record| Ok::<_, SourceError>(record.offset < end))?;
                position.next = unsigned(end);
                self.fetcher.unassign(&fetched.tp);
            }
            let lag = unsigned(fetched.high_watermark).saturating_sub(position.next);
            return Ok(Chunk { batch, position: position.clone(), lag: Some(lag), skipped: 0 });
        }
    }
}

impl Reader for KafkaReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Chunk, SourceError>> {
        Box::pin(self.read())
    }
}
