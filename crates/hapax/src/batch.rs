//! Records on their way from a source to the sinks: a slab of bytes and an index of views into it.
//!
//! A batch holds records of one split, in order. Operators drop views, or write a new slab; nothing on this path
//! allocates per record. Headers stay in Kafka's encoding (ordered, duplicate keys and nulls kept).

use bytes::{Bytes, BytesMut};
use hapax_commit::SplitId;
use std::{ops::Range, sync::Arc};

/// Where the records of a batch come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The split.
    pub split: SplitId,
    /// The source topic, or the file's path.
    pub topic: Arc<str>,
    /// The source partition, 0 for a file.
    pub partition: i32,
    /// Number of partitions of the source topic, where there are partitions.
    pub partitions: Option<i32>,
}

/// One record of a batch, as ranges of the slab.
#[derive(Clone, Debug)]
struct View {
    offset: i64,
    timestamp: i64,
    key: Option<Range<u32>>,
    value: Option<Range<u32>>,
    headers: Range<u32>,
    header_count: u32,
    topic: Option<u32>,
    partition: Option<i32>,
}

/// Records of one split, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    origin: Arc<Origin>,
    slab: Bytes,
    views: Vec<View>,
    topics: Vec<Arc<str>>,
}

/// Headers in Kafka's encoding: for each a varint-prefixed key and a varint-prefixed value (-1 is null).
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    /// The encoded headers, without their count.
    pub encoded: &'a [u8],
    /// How many.
    pub count: u32,
}

/// A record, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// Key, or null.
    pub key: Option<&'a [u8]>,
    /// Value, or null (a tombstone).
    pub value: Option<&'a [u8]>,
    /// Headers.
    pub headers: Headers<'a>,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Offset in the split that it came from.
    pub offset: i64,
    /// Topic that an operator chose; none means the sink's.
    pub topic: Option<&'a str>,
    /// Partition that an operator chose.
    pub partition: Option<i32>,
}

impl<'a> RecordRef<'a> {
    /// The same record with another value.
    #[must_use]
    pub fn with_value(self, value: Option<&'a [u8]>) -> Self {
        Self { value, ..self }
    }

    /// The same record with another key.
    #[must_use]
    pub fn with_key(self, key: Option<&'a [u8]>) -> Self {
        Self { key, ..self }
    }

    /// The same record, to `topic`.
    #[must_use]
    pub fn to_topic(self, topic: &'a str) -> Self {
        Self { topic: Some(topic), ..self }
    }
}

impl Batch {
    /// A batch over a slab that a source has filled.
    pub fn builder(origin: Arc<Origin>) -> BatchBuilder {
        BatchBuilder { origin, slab: BytesMut::new(), views: Vec::new(), topics: Vec::new() }
    }

    /// A batch over records that lie in one slab already (a decoded Kafka batch).
    pub(crate) fn of_decoded(origin: Arc<Origin>, records: &hapax_kafka::record::Records) -> Self {
        let views = records
            .views()
            .iter()
            .map(|view| View {
                offset: view.offset,
                timestamp: view.timestamp,
                key: view.key.clone(),
                value: view.value.clone(),
                headers: view.headers.clone(),
                header_count: view.header_count,
                topic: None,
                partition: None,
            })
            .collect();
        Self { origin, slab: records.slab().clone(), views, topics: Vec::new() }
    }

    /// Where the records come from.
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// No records?
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// The records, in order.
    pub fn iter(&self) -> impl Iterator<Item = RecordRef<'_>> {
        self.views.iter().map(|view| record_of(&self.slab, &self.topics, view))
    }

    /// Keeps the records that `keep` accepts, without copying any.
    ///
    /// # Errors
    /// The first error of `keep`.
    pub fn retain<E>(&mut self, mut keep: impl FnMut(RecordRef<'_>) -> Result<bool, E>) -> Result<(), E> {
        let (slab, topics) = (&self.slab, &self.topics);
        let mut first = None;
        self.views.retain(|view| {
            first.is_none()
                && keep(record_of(slab, topics, view)).unwrap_or_else(|error| {
                    first = Some(error);
                    false
                })
        });
        first.map_or(Ok(()), Err)
    }

    /// Sets the topic of every record to what `route` says; none keeps what was chosen before.
    pub fn route(&mut self, mut route: impl FnMut(RecordRef<'_>) -> Option<Arc<str>>) {
        let mut views = std::mem::take(&mut self.views);
        for view in &mut views {
            if let Some(topic) = route(record_of(&self.slab, &self.topics, view)) {
                view.topic = Some(intern(&mut self.topics, &topic));
            }
        }
        self.views = views;
    }
}

fn record_of<'a>(slab: &'a [u8], topics: &'a [Arc<str>], view: &View) -> RecordRef<'a> {
    let bytes = |range: &Range<u32>| &slab[range.start as usize..range.end as usize];
    RecordRef {
        key: view.key.as_ref().map(bytes),
        value: view.value.as_ref().map(bytes),
        headers: Headers { encoded: bytes(&view.headers), count: view.header_count },
        timestamp: view.timestamp,
        offset: view.offset,
        topic: view.topic.map(|topic| &*topics[topic as usize]),
        partition: view.partition,
    }
}

fn intern(topics: &mut Vec<Arc<str>>, topic: &str) -> u32 {
    let found = topics.iter().position(|known| &**known == topic);
    let index = found.unwrap_or_else(|| {
        topics.push(Arc::from(topic));
        topics.len() - 1
    });
    u32::try_from(index).expect("a batch has fewer than four billion records")
}

/// Fills a new slab.
#[derive(Debug)]
pub struct BatchBuilder {
    origin: Arc<Origin>,
    slab: BytesMut,
    views: Vec<View>,
    topics: Vec<Arc<str>>,
}

impl BatchBuilder {
    /// Appends a record; its bytes are copied into the slab.
    pub fn push(&mut self, record: RecordRef<'_>) {
        let key = record.key.map(|bytes| append(&mut self.slab, bytes));
        let value = record.value.map(|bytes| append(&mut self.slab, bytes));
        let headers = append(&mut self.slab, record.headers.encoded);
        let topic = record.topic.map(|topic| intern(&mut self.topics, topic));
        self.views.push(View {
            offset: record.offset,
            timestamp: record.timestamp,
            key,
            value,
            headers,
            header_count: record.headers.count,
            topic,
            partition: record.partition,
        });
    }

    /// Number of records so far.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// No records yet?
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Drops the records behind the first `count`: what an operator emitted of a record before it failed on it.
    pub fn truncate(&mut self, count: usize) {
        self.views.truncate(count);
    }

    /// Bytes in the slab so far.
    pub fn bytes(&self) -> usize {
        self.slab.len()
    }

    /// The batch.
    pub fn build(self) -> Batch {
        Batch { origin: self.origin, slab: self.slab.freeze(), views: self.views, topics: self.topics }
    }
}

fn append(slab: &mut BytesMut, bytes: &[u8]) -> Range<u32> {
    let at = |slab: &BytesMut| {
        u32::try_from(slab.len()).expect("a source's batch is bounded far below four gigabytes")
    };
    let start = at(slab);
    slab.extend_from_slice(bytes);
    start..at(slab)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let origin =
            Origin { split: SplitId("s/t/0".into()), topic: "t".into(), partition: 0, partitions: Some(1) };
        let mut builder = Batch::builder(Arc::new(origin));
        for offset in 0..10 {
            let value = offset.to_string();
            builder.push(RecordRef {
                key: (offset % 2 == 0).then_some(b"k".as_slice()),
                value: Some(value.as_bytes()),
                headers: Headers::default(),
                timestamp: 7,
                offset,
                topic: None,
                partition: None,
            });
        }
        builder.build()
    }

    #[test]
    fn filtering_keeps_order_and_copies_nothing() {
        let mut batch = batch();
        batch.retain(|record| Ok::<_, ()>(record.key.is_some())).unwrap();
        assert_eq!(batch.iter().map(|record| record.offset).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
        assert_eq!(batch.iter().map(|record| record.value.unwrap()[0]).collect::<Vec<_>>(), b"02468");
    }

    #[test]
    fn a_failing_filter_says_so() {
        assert_eq!(batch().retain(|record| if record.offset == 3 { Err(3) } else { Ok(true) }), Err(3));
    }

    #[test]
    fn routing_sets_the_topic_of_each_record() {
        let mut batch = batch();
        let topics: [Arc<str>; 2] = ["a".into(), "b".into()];
        batch.route(|record| Some(topics[usize::from(record.offset > 4)].clone()));
        assert_eq!(batch.iter().filter(|record| record.topic == Some("a")).count(), 5);
        assert_eq!(batch.iter().filter(|record| record.topic == Some("b")).count(), 5);
    }
}
