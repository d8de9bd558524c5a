//! A source whose records come when a test lets them.

use hapax::{
    Batch, RecordRef,
    batch::{Headers, Origin},
    source::{BoxFuture, Chunk, Reader, Source, SourceContext, SourceError, SourceTopic},
};
use hapax_commit::{Position, Positions, SplitId};
use hapax_host::Host;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;

/// Record n of split k of `splits` is `{"id": n * splits + k}`, for partition k.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    pub(super) splits: u32,
    /// Records of each split.
    pub(super) end: u64,
    /// Records handed over at a time, at most.
    pub(super) chunk: u64,
    /// Wait before each of these.
    pub(super) pace: Duration,
    /// Bytes of padding in the record with this number in its split.
    pub(super) padding: fn(u64) -> usize,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    allowed: watch::Sender<u64>,
    /// By split: the record behind the last one that was handed over.
    handed: Mutex<BTreeMap<SplitId, u64>>,
}

impl Scripted {
    /// Records come as soon as they are allowed, all at once.
    pub(super) fn new(splits: u32, end: u64) -> Self {
        let gate = Gate { allowed: watch::Sender::new(0), handed: Mutex::default() };
        Self { splits, end, chunk: u64::MAX, pace: Duration::ZERO, padding: |_| 0, gate: Arc::new(gate) }
    }

    /// A few records at a time, so that every epoch of every shard has some.
    pub(super) fn steady(self) -> Self {
        self.allow(self.end);
        Self { chunk: 5, pace: Duration::from_millis(50), ..self }
    }

    /// Lets each split hand over its first `count` records.
    pub(super) fn allow(&self, count: u64) {
        self.gate.allowed.send_replace(count);
    }

    /// Records of all splits that are handed over. A shard writes them before it looks at a barrier.
    pub(super) fn handed(&self) -> u64 {
        self.gate.handed.lock().unwrap().values().sum()
    }

    /// Records of all splits.
    pub(super) fn total(&self) -> u64 {
        self.end * u64::from(self.splits)
    }
}

impl Source for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn replayable(&self) -> bool {
        true
    }

    fn topics<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Vec<SourceTopic>, SourceError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn genesis<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Positions, SourceError>> {
        let position =
            Position { next: 0, leader_epoch: None, topic_id: None, file: None, end: Some(self.end) };
        let splits = (0..self.splits).map(|k| (SplitId(format!("scripted/{k}")), position.clone())).collect();
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
        let allowed = self.gate.allowed.subscribe();
        let reader = ScriptedReader { host: cx.host.clone(), source: self.clone(), allowed, positions };
        Box::pin(async move { Ok(Box::new(reader) as Box<dyn Reader>) })
    }
}

struct ScriptedReader {
    host: Host,
    source: Scripted,
    allowed: watch::Receiver<u64>,
    positions: Positions,
}

impl Reader for ScriptedReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Chunk, SourceError>> {
        Box::pin(async move {
            self.host.sleep(self.source.pace).await;
            let positions = &mut self.positions;
            let behind = |position: &Position, allowed: u64| position.next < allowed.min(self.source.end);
            let waits = |allowed: &u64| positions.values().any(|position| behind(position, *allowed));
            let Ok(allowed) = self.allowed.wait_for(waits).await.map(|allowed| *allowed) else {
                return std::future::pending().await;
            };
            let some = positions.iter_mut().filter(|(_, position)| behind(position, allowed));
            let (split, position) = some.min_by_key(|(_, position)| position.next).expect("waited for it");
            let until = allowed.min(self.source.end).min(position.next.saturating_add(self.source.chunk));
            let batch = self.source.batch(split, position.next..until, self.host.wall_ms());
            position.next = until;
            self.source.gate.handed.lock().unwrap().insert(split.clone(), until);
            Ok(Chunk { batch, position: position.clone(), lag: None, skipped: 0 })
        })
    }
}

impl Scripted {
    fn batch(&self, split: &SplitId, records: std::ops::Range<u64>, timestamp: i64) -> Batch {
        let partition: i32 = split.0.rsplit('/').next().unwrap().parse().unwrap();
        let origin = Origin {
            split: split.clone(),
            topic: "scripted".into(),
            partition,
            partitions: Some(self.splits as i32),
        };
        let mut batch = Batch::builder(Arc::new(origin));
        for n in records {
            let id = n * u64::from(self.splits) + partition as u64;
            let padding = "x".repeat((self.padding)(n));
            let value = format!(r#"{{"id":{id},"padding":"{padding}"}}"#);
            batch.push(RecordRef {
                key: None,
                value: Some(value.as_bytes()),
                headers: Headers::default(),
                timestamp,
                offset: n as i64,
                topic: None,
                partition: None,
            });
        }
        batch.build()
    }
}
