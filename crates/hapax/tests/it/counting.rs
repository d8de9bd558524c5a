//! A source that counts and a sink that remembers: the smallest implementations of the public traits.

use hapax::{
    Batch, Guarantee, Name, RecordRef,
    batch::{Headers, Origin},
    cluster::Clusters,
    sink::{Prepared, Sink, SinkError, SinkWriter, WriterContext},
    source::{BoxFuture, Chunk, Reader, Source, SourceContext, SourceError, SourceTopic},
};
use hapax_commit::{Epoch, Identity, Position, Positions, SplitId};
use hapax_host::Host;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Counts from 0 to `count` in each of `splits` splits, one number each `pace`.
#[derive(Debug)]
pub(crate) struct Counting {
    pub(crate) splits: u32,
    pub(crate) count: u64,
    pub(crate) pace: Duration,
}

impl Source for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn replayable(&self) -> bool {
        true
    }

    fn topics<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Vec<SourceTopic>, SourceError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn genesis<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Positions, SourceError>> {
        let position =
            Position { next: 0, leader_epoch: None, topic_id: None, file: None, end: Some(self.count) };
        let splits = (0..self.splits).map(|n| (SplitId(format!("counting/{n}")), position.clone())).collect();
        Box::pin(async move { Ok(splits) })
    }

    fn serves<'a>(
        &'a self,
        _: &'a SourceContext,
        _: &'a Positions,
    ) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    fn reader<'a>(
        &'a self,
        cx: &'a SourceContext,
        positions: Positions,
    ) -> BoxFuture<'a, Result<Box<dyn Reader>, SourceError>> {
        let reader = CountingReader { host: cx.host.clone(), positions, pace: self.pace };
        Box::pin(async move { Ok(Box::new(reader) as Box<dyn Reader>) })
    }
}

struct CountingReader {
    host: Host,
    positions: Positions,
    pace: Duration,
}

impl Reader for CountingReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Chunk, SourceError>> {
        Box::pin(async move {
            self.host.sleep(self.pace).await;
            let open = self.positions.iter_mut().filter(|(_, position)| !position.at_end());
            let Some((split, position)) = open.min_by_key(|(_, position)| position.next) else {
                return std::future::pending().await;
            };
            let origin =
                Origin { split: split.clone(), topic: "counting".into(), partition: 0, partitions: None };
            let mut batch = Batch::builder(Arc::new(origin));
            let text = format!("{}:{}", split.0, position.next);
            batch.push(RecordRef {
                key: None,
                value: Some(text.as_bytes()),
                headers: Headers::default(),
                timestamp: self.host.wall_ms(),
                offset: position.next as i64,
                topic: None,
                partition: None,
            });
            position.next += 1;
            Ok(Chunk { batch: batch.build(), position: position.clone(), lag: None, skipped: 0 })
        })
    }
}

/// What sinks have seen, and what epochs were prepared.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) values: Vec<String>,
    pub(crate) prepared: BTreeMap<u64, u64>,
    /// Writes fail from here on, once.
    pub(crate) fail_at: Option<usize>,
}

/// Remembers what it is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembering(pub(crate) Arc<Mutex<Seen>>);

impl Sink for Remembering {
    fn name(&self) -> &str {
        "remembering"
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    fn transactional_cluster(&self) -> Option<&Name> {
        None
    }

    fn topics<'a>(&'a self, _: &'a Clusters) -> BoxFuture<'a, Result<Vec<SourceTopic>, SinkError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn writer<'a>(&'a self, _: WriterContext) -> BoxFuture<'a, Result<Box<dyn SinkWriter>, SinkError>> {
        let writer = RememberingWriter { seen: self.0.clone(), written: 0 };
        Box::pin(async move { Ok(Box::new(writer) as Box<dyn SinkWriter>) })
    }
}

struct RememberingWriter {
    seen: Arc<Mutex<Seen>>,
    written: u64,
}

impl SinkWriter for RememberingWriter {
    fn begin(&mut self, _: Epoch) {
        self.written = 0;
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> BoxFuture<'a, Result<(), SinkError>> {
        let mut seen = self.seen.lock().unwrap();
        let failed = seen.fail_at.is_some_and(|at| seen.values.len() >= at);
        if failed {
            seen.fail_at = None;
        } else {
            self.written += batch.len() as u64;
            seen.values.extend(batch.iter().map(|r| String::from_utf8(r.value.unwrap().to_vec()).unwrap()));
        }
        Box::pin(async move {
            if failed {
                let source = std::io::Error::other("the disk is on fire");
                return Err(SinkError::File { sink: "remembering".into(), path: "memory".into(), source });
            }
            Ok(())
        })
    }

    fn prepare(&mut self, epoch: Epoch) -> BoxFuture<'_, Result<Prepared, SinkError>> {
        *self.seen.lock().unwrap().prepared.entry(epoch.0).or_default() += self.written;
        let records = self.written;
        Box::pin(async move { Ok(Prepared { records, ..Prepared::default() }) })
    }

    fn recorded(&mut self, _: Epoch, _: Option<Identity>) {}

    fn wants_barrier(&self) -> bool {
        false
    }

    fn failed(&mut self) -> BoxFuture<'_, SinkError> {
        Box::pin(std::future::pending())
    }
}
