//! A generator of lifelike orders, for demonstrations and tests.
//!
//! Record `i` of split `s` is a function of (seed, s, i) and of nothing else, so a position can be read again: key
//! and value are the same. Only the record's timestamp is that of the moment, because brokers delete by it.
//! Ids run through all splits: split `s` of `n` has the ids `s`, `s + n`, `s + 2n`...

use super::{BoxFuture, Chunk, Reader, Source, SourceContext, SourceError, SourceTopic};
use crate::{
    batch::{Batch, Headers, Origin, RecordRef},
    limits,
};
use hapax_commit::{Position, Positions, SplitId};
use hapax_host::{Host, Instant};
use std::{io::Write, sync::Arc, time::Duration};

/// Value of a record where the pipeline does not say.
pub const ORDER: &str =
    r#"{"id":$id,"customer":"$customer","amount":$amount,"currency":"$currency","ts":$ts}"#;

/// 2026-01-01, in milliseconds since 1970: `$ts` of the first record.
const FIRST_TS: u64 = 1_767_225_600_000;

/// Milliseconds between two ids.
const TS_STEP: u64 = 250;

const CURRENCIES: [&str; 4] = ["EUR", "USD", "GBP", "JPY"];

/// What a template may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Id,
    Customer,
    Amount,
    Currency,
    Ts,
    Split,
}

impl Field {
    const ALL: [(&'static str, Self); 6] = [
        ("id", Self::Id),
        ("customer", Self::Customer),
        ("amount", Self::Amount),
        ("currency", Self::Currency),
        ("ts", Self::Ts),
        ("split", Self::Split),
    ];
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field(Field),
}

/// The text of a value with `$id`, `$customer`, `$amount`, `$currency`, `$ts` and `$split`; `$$` is a `$`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// A `$` that is followed by no known name; the text says which there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut parts = text.split('$');
        pieces.extend(parts.next().map(|text| Piece::Text(text.to_owned())));
        while let Some(part) = parts.next() {
            if part.is_empty() {
                let after = parts.next().unwrap_or_default();
                pieces.push(Piece::Text(format!("${after}")));
                continue;
            }
            let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            let (_, field) = Field::ALL.iter().find(|(known, _)| *known == name).ok_or_else(|| {
                let known = Field::ALL.map(|(name, _)| format!("${name}")).join(", ");
                format!("there is no ${name}: a template knows {known}, and $$ for a $")
            })?;
            pieces.extend([Piece::Field(*field), Piece::Text(rest.to_owned())]);
        }
        Ok(Self(pieces))
    }

    fn write(&self, out: &mut Vec<u8>, order: &Order) {
        for piece in &self.0 {
            let written = match piece {
                Piece::Text(text) => out.write_all(text.as_bytes()),
                Piece::Field(Field::Id) => write!(out, "{}", order.id),
                Piece::Field(Field::Customer) => write!(out, "{}", order.customer()),
                Piece::Field(Field::Amount) => {
                    write!(out, "{}.{:02}", order.cents() / 100, order.cents() % 100)
                }
                Piece::Field(Field::Currency) => write!(out, "{}", order.currency()),
                Piece::Field(Field::Ts) => write!(out, "{}", order.ts()),
                Piece::Field(Field::Split) => write!(out, "{}", order.split),
            };
            written.expect("a vector takes whatever is written");
        }
    }
}

/// One generated order.
struct Order {
    id: u64,
    split: u32,
    random: u64,
}

impl Order {
    fn new(seed: u64, id: u64, split: u32) -> Self {
        Self { id, split, random: mixed(seed ^ mixed(id)) }
    }

    fn customer(&self) -> String {
        format!("c{:04}", self.random % 10_000)
    }

    /// 0.01 to 500.00.
    fn cents(&self) -> u64 {
        1 + (self.random >> 16) % 50_000
    }

    fn currency(&self) -> &'static str {
        CURRENCIES[(self.random >> 40) as usize % CURRENCIES.len()]
    }

    fn ts(&self) -> u64 {
        FIRST_TS.wrapping_add(self.id.wrapping_mul(TS_STEP)).wrapping_add((self.random >> 48) % TS_STEP)
    }
}

/// The finaliser of SplitMix64: every bit of the input moves every bit of the output.
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Generates orders.
#[derive(Clone, Debug)]
pub struct GeneratorSource {
    /// Its name: prefix of its splits.
    pub name: String,
    /// What the records follow from.
    pub seed: u64,
    /// Number of splits; 0 counts as 1.
    pub splits: u32,
    /// Records of all splits together; none is without end.
    pub count: Option<u64>,
    /// Records per second of all splits together; none is as fast as the sinks take them.
    pub rate: Option<f64>,
    /// The values.
    pub value: Template,
}

impl GeneratorSource {
    /// Orders from one split, as fast as they are taken.
    pub fn new(name: &str, count: Option<u64>) -> Self {
        let value = Template::parse(ORDER).expect("the template of orders names only known fields");
        Self { name: name.to_owned(), seed: 0, splits: 1, count, rate: None, value }
    }

    fn split_count(&self) -> u32 {
        self.splits.max(1)
    }

    fn positions(&self) -> Positions {
        let splits = u64::from(self.split_count());
        let position = |split: u32| {
            let end = self.count.map(|count| count.saturating_sub(u64::from(split)).div_ceil(splits));
            let position = Position { next: 0, leader_epoch: None, topic_id: None, file: None, end };
            (SplitId(format!("{}/{split}", self.name)), position)
        };
        (0..self.split_count()).map(position).collect()
    }

    fn place(&self, split: &SplitId) -> Option<u32> {
        split.0.strip_prefix(&self.name)?.strip_prefix('/')?.parse().ok()
    }

    fn open(&self, cx: &SourceContext, positions: Positions) -> GeneratorReader {
        let own = positions.into_iter().filter_map(|(split, position)| {
            let number = self.place(&split)?;
            let origin = Origin {
                split,
                topic: self.name.as_str().into(),
                partition: i32::try_from(number).unwrap_or(i32::MAX),
                partitions: i32::try_from(self.split_count()).ok(),
            };
            Some(Part { number, origin: Arc::new(origin), position })
        });
        let parts: Vec<Part> = own.collect();
        let share = parts.len() as f64 / f64::from(self.split_count());
        GeneratorReader {
            source: self.clone(),
            host: cx.host.clone(),
            rate: self.rate.map(|rate| rate * share),
            began: cx.host.now(),
            made: 0,
            turn: 0,
            parts,
        }
    }
}

impl Source for GeneratorSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn replayable(&self) -> bool {
        true
    }

    fn topics<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Vec<SourceTopic>, SourceError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn genesis<'a>(&'a self, _: &'a SourceContext) -> BoxFuture<'a, Result<Positions, SourceError>> {
        Box::pin(async { Ok(self.positions()) })
    }

    /// Which records a split has follows from how many there are.
    fn added<'a>(
        &'a self,
        _: &'a SourceContext,
        known: &'a Positions,
    ) -> BoxFuture<'a, Result<Positions, SourceError>> {
        Box::pin(async move {
            let own = known.keys().filter(|split| self.has(split)).count();
            if own == 0 {
                return Ok(self.positions());
            }
            if own == self.split_count() as usize {
                return Ok(Positions::new());
            }
            Err(SourceError::Configuration {
                source_name: self.name.clone(),
                reason: format!(
                    "partitions = {}, and the job was created with {own}: every record would be another one; put {own}, \
                     or give the generator another name",
                    self.split_count()
                ),
            })
        })
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
        Box::pin(async move { Ok(Box::new(self.open(cx, positions)) as Box<dyn Reader>) })
    }
}

/// One split of a reader.
struct Part {
    number: u32,
    origin: Arc<Origin>,
    position: Position,
}

struct GeneratorReader {
    source: GeneratorSource,
    host: Host,
    /// Records per second of this reader's splits.
    rate: Option<f64>,
    began: Instant,
    made: u64,
    turn: usize,
    parts: Vec<Part>,
}

impl GeneratorReader {
    /// Nothing is awaited after a record is made, so a dropped future loses nothing.
    async fn read(&mut self) -> Chunk {
        // A generator is always ready: others on this worker get their turn here.
        tokio::task::yield_now().await;
        loop {
            let Some(turn) = self.next_turn() else { return std::future::pending().await };
            match self.due() {
                Ok(count) => return self.make(turn, count),
                Err(wait) => self.host.sleep(wait).await,
            }
        }
    }

    /// The next split that is not at its end.
    fn next_turn(&self) -> Option<usize> {
        let count = self.parts.len();
        (0..count).map(|step| (self.turn + step) % count).find(|&index| !self.parts[index].position.at_end())
    }

    /// How many records may be made now, or how long to wait for one.
    fn due(&self) -> Result<u64, Duration> {
        let Some(rate) = self.rate else { return Ok(limits::GENERATOR_BATCH) };
        let passed = self.host.now().saturating_duration_since(self.began).as_secs_f64();
        let due = (passed * rate) as u64;
        match due.saturating_sub(self.made) {
            0 => {
                let next = (self.made + 1) as f64 / rate - passed;
                Err(Duration::from_secs_f64(next.clamp(0.0, 3600.0)).max(limits::GENERATOR_PAUSE))
            }
            ready => Ok(ready.min(limits::GENERATOR_BATCH)),
        }
    }

    fn make(&mut self, turn: usize, count: u64) -> Chunk {
        let part = &mut self.parts[turn];
        let first = part.position.next;
        let end = part.position.end.unwrap_or(u64::MAX).min(first.saturating_add(count));
        let timestamp = self.host.wall_ms();
        let mut batch = Batch::builder(part.origin.clone());
        let mut value = Vec::new();
        for number in first..end {
            let id = number
                .wrapping_mul(u64::from(self.source.split_count()))
                .wrapping_add(u64::from(part.number));
            let order = Order::new(self.source.seed, id, part.number);
            value.clear();
            self.source.value.write(&mut value, &order);
            batch.push(RecordRef {
                key: Some(order.customer().as_bytes()),
                value: Some(&value),
                headers: Headers::default(),
                timestamp,
                offset: i64::try_from(number).unwrap_or(i64::MAX),
                topic: None,
                partition: None,
            });
        }
        part.position.next = end;
        self.made += end - first;
        self.turn = turn + 1;
        let lag = part.position.end.map(|last| last - end);
        Chunk { batch: batch.build(), position: part.position.clone(), lag, skipped: 0 }
    }
}

impl Reader for GeneratorReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Chunk, SourceError>> {
        Box::pin(async { Ok(self.read().await) })
    }
}

#[cfg(test)]
#[path = "generator_tests.rs"]
mod tests;
