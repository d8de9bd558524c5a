//! An engine that counts: it writes the numbers from 0 on into a topic, through two lanes, and decides in SQLite.
//!
//! Kill it at any moment and start it again: every number is in the topic once, and in order.
//!
//! ```text
//! engine-sqlite BROKERS TOPIC FILE COUNT [TRANSACTION_TIMEOUT_MS]
//! ```

mod store;

use hapax::{
    cluster::Cluster,
    engine::{Handle, KafkaSink, Known, Lane, Outcome, Proof, Record},
};
use std::{env, path::Path, time::Duration};
use store::{Saved, Store};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Shards: the even numbers, and the odd ones.
const SHARDS: u32 = 2;

/// Numbers in an epoch.
const EPOCH: u64 = 50;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [brokers, topic, file, count, timeout @ ..] = &arguments[..] else {
        return Err("engine-sqlite BROKERS TOPIC FILE COUNT [TRANSACTION_TIMEOUT_MS]".into());
    };
    let mut builder = KafkaSink::builder(Cluster::named("main", brokers)?).job(topic);
    if let [timeout] = timeout {
        builder = builder.transaction_timeout(Duration::from_millis(timeout.parse()?));
    }
    let sink = builder.exactly_once()?;
    let file = Path::new(file);
    let store = Store::begin(file)?;
    let mut saved = Store::newest(file)?.unwrap_or_default();
    saved.generation = store.generation;
    saved
        .ids
        .extend(sink.ids(0..SHARDS).into_iter().filter(|id| !saved.ids.contains(id)).collect::<Vec<_>>());
    let mut engine = Engine { sink, store, saved, topic };
    // The ids are known to every later run before the first of them is used.
    engine.save(&[])?;
    engine.recover().await?;
    engine.run(count.parse()?).await
}

struct Engine<'a> {
    sink: KafkaSink,
    store: Store,
    saved: Saved,
    topic: &'a str,
}

impl Engine<'_> {
    /// Stores what the engine knows, unless a newer run has begun. `more`: handles beside those of before.
    fn save(&mut self, more: &[Handle]) -> Result<(), Failure> {
        self.saved.handles.extend(more.iter().map(Handle::to_bytes));
        match self.store.put(&self.saved)? {
            true => Ok(()),
            false => Err("a newer run has taken over".into()),
        }
    }

    fn position(&self) -> Result<u64, Failure> {
        let text = std::str::from_utf8(&self.saved.state)?;
        Ok(if text.is_empty() { 0 } else { text.parse()? })
    }

    /// Commits what earlier runs have decided, or says why that cannot be.
    async fn recover(&mut self) -> Result<(), Failure> {
        for _ in 0..2 {
            let decided = self.saved.handles.iter().map(|bytes| Handle::from_bytes(bytes).map(Known::from));
            let decided: Vec<Known> = decided.collect::<Result<_, _>>()?;
            let report = self.sink.recover(&decided, &self.saved.ids, self.store.run()).await?;
            // What was written again stands in the place of what was aborted, before it is committed.
            let left: Vec<Handle> = report.left().into_iter().filter_map(handle_of).collect();
            self.saved.handles.clear();
            self.save(&left)?;
            if report.is_settled() {
                return Ok(report.recorded().await?);
            }
        }
        Err("a decided transaction is not committed: its handle is in the file, a person must look".into())
    }

    async fn run(&mut self, count: u64) -> Result<(), Failure> {
        let mut lanes = Vec::new();
        for shard in 0..SHARDS {
            lanes.push(self.sink.lane(shard).await?);
        }
        let mut proofs: Vec<Proof> = Vec::new();
        while self.position()? < count {
            let (from, to) = (self.position()?, count.min(self.position()? + EPOCH));
            for number in from..to {
                self.write(&mut lanes[usize::from(number % 2 == 1)], number).await?;
            }
            self.saved.epoch += 1;
            let mut handles = Vec::new();
            for lane in &mut lanes {
                handles.push(lane.prepare(self.saved.epoch).await?);
            }
            self.saved.state = to.to_string().into_bytes();
            self.saved.handles.clear();
            // Decided: the handles of this epoch are in, those of the one before are out.
            self.save(&handles.iter().flatten().cloned().collect::<Vec<_>>())?;
            for proof in proofs.drain(..) {
                let lane = lanes.iter_mut().find(|lane| lane.owns(&proof));
                lane.ok_or("each proof is of a lane")?.recorded(proof);
            }
            for (lane, handle) in lanes.iter().zip(&handles) {
                if let Some(handle) = handle {
                    match lane.commit(handle).await? {
                        Outcome::Committed(proof) => proofs.push(proof),
                        // The next run looks, and writes again what was aborted.
                        other => return Err(format!("{other:?}").into()),
                    }
                }
            }
        }
        self.saved.handles.clear();
        self.save(&[])
    }

    async fn write(&self, lane: &mut Lane, number: u64) -> Result<(), Failure> {
        let (key, value) = (number.to_string(), format!("{{\"id\":{number}}}"));
        let record = Record::to(self.topic).key(&key).value(&value).partition(i32::from(number % 2 == 1));
        Ok(lane.write(record).await?)
    }
}

fn handle_of(known: Known) -> Option<Handle> {
    match known {
        Known::Handle(handle) => Some(handle),
        Known::IdOnly(_) => None,
    }
}
