//! Reads partitions: each one from when it is known that its log still has what was read of it.
//!
//! ```text
//!  nothing was read yet ─────────────────────────► assigned to the fetcher ─► chunks ─► unassigned at a bounded end
//!  records were read ─► asked (truncation.rs) ─kept─┘
//!                          └─truncated─► the reader fails
//! ```
//!
//! A partition that nobody can answer for waits by itself; the others flow.

use super::{KafkaSource, unsigned};
use crate::{
    batch::{Batch, Origin},
    limits,
    source::{BoxFuture, Chunk, Reader, SourceError, SourceTopic},
};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use hapax_commit::{Position, Positions, SplitId};
use hapax_kafka::{
    Client,
    fetch::{Fetcher, FetcherConfig, TopicPartition},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

pub(super) struct KafkaReader {
    fetcher: Fetcher,
    splits: HashMap<TopicPartition, (Arc<Origin>, Position)>,
    /// Partitions that are not assigned yet.
    asking: FuturesUnordered<BoxFuture<'static, Result<TopicPartition, SourceError>>>,
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
        let asking = FuturesUnordered::new();
        let mut asked: BTreeSet<SplitId> = BTreeSet::new();
        for question in source.questions(topics, &positions) {
            let tp = TopicPartition { topic: question.topic.as_str().into(), partition: question.partition };
            asked.insert(question.split.clone());
            let client = client.clone();
            asking.push(async move { question.whenever(&client).await.map(|()| tp) }.boxed());
        }
        let config = FetcherConfig { isolation: source.isolation, ..FetcherConfig::default() };
        let mut reader = Self { fetcher: Fetcher::start(client, config), splits: HashMap::new(), asking };
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
        while let Some(kept) = self.asking.next().await {
            self.assign(&kept?);
        }
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
                Some(kept) = self.asking.next() => {
                    self.assign(&kept?);
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
