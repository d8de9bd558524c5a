//! The fetcher against real brokers; what it must deliver is what librdkafka reads.

use crate::support::*;
use hapax_kafka::{
    Client,
    fetch::{FetchError, Fetched, Fetcher, FetcherConfig, TopicPartition},
    record::RecordView,
};
use std::{collections::BTreeMap, time::Duration};
use xtask::judge::{Read, Record};

mod marker;
mod read;
mod trouble;
mod written;

const TIMEOUT: Duration = Duration::from_secs(60);

fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: topic.into(), partition }
}

fn rows(fetched: &Fetched) -> Vec<Read> {
    let records = &fetched.records;
    let row = |view: &RecordView| {
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        Read {
            offset: view.offset,
            key: records.key(view).map(<[u8]>::to_vec),
            value: records.value(view).map(<[u8]>::to_vec),
            headers: records
                .headers(view)
                .map(|(name, value)| (text(name), value.map(<[u8]>::to_vec)))
                .collect(),
            timestamp_ms: view.timestamp,
        }
    };
    records.views().iter().map(row).collect()
}

/// A fetcher and what it delivered, by partition.
struct Reader {
    fetcher: Fetcher,
    rows: BTreeMap<TopicPartition, Vec<Read>>,
    positions: BTreeMap<TopicPartition, i64>,
    last: Option<Fetched>,
}

impl Reader {
    fn start(client: &Client, config: FetcherConfig) -> Self {
        let fetcher = Fetcher::start(client.clone(), config);
        Self { fetcher, rows: BTreeMap::new(), positions: BTreeMap::new(), last: None }
    }

    fn assign(&mut self, tp: &TopicPartition, from: i64) {
        self.fetcher.assign(tp.clone(), None, from, None);
        self.positions.insert(tp.clone(), from);
    }

    /// One chunk more, checked for order.
    fn take(&mut self, fetched: Fetched) {
        let position = self.positions.get_mut(&fetched.tp).expect("an assigned partition");
        assert!(*position < fetched.next_offset, "a chunk moves the position");
        for row in rows(&fetched) {
            assert!(*position <= row.offset && row.offset < fetched.next_offset, "{}: {row:?}", fetched.tp);
            *position = row.offset + 1;
            self.rows.entry(fetched.tp.clone()).or_default().push(row);
        }
        *position = fetched.next_offset;
        self.last = Some(fetched);
    }

    async fn until(&mut self, client: &Client, ends: &[(TopicPartition, i64)]) {
        while ends.iter().any(|(tp, end)| self.positions[tp] < *end) {
            let next = client.host().timeout(TIMEOUT, self.fetcher.next()).await;
            let next = next.unwrap_or_else(|| panic!("no more after {:?}, wanted {ends:?}", self.positions));
            self.take(next.unwrap());
        }
    }

    fn of(&self, tp: &TopicPartition) -> &[Read] {
        self.rows.get(tp).map_or(&[], Vec::as_slice)
    }
}

fn made(bootstrap: &str, name: &str, partitions: u32) -> String {
    let topic = unique(name);
    Judge::shared().create_topic(bootstrap, &topic, partitions, &[]).unwrap();
    topic
}

fn values(count: usize) -> Vec<Record> {
    numbered(count).into_iter().map(|value| Record::value(value).to_partition(0)).collect()
}
