//! One record, as an engine hands it over: borrowed, so that writing copies it once, into its batch.

use hapax_kafka::record::Header;

/// A record on its way to a topic.
#[derive(Clone, Debug, Default)]
pub struct Record<'a> {
    pub(super) topic: &'a str,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: Vec<Header<'a>>,
    pub(super) timestamp: Option<i64>,
    pub(super) partition: Option<i32>,
}

impl<'a> Record<'a> {
    /// A record without key and value (a null value is a tombstone in a compacted topic).
    pub fn to(topic: &'a str) -> Self {
        Self { topic, ..Self::default() }
    }

    /// Sets the key. It chooses the partition, by Kafka's murmur2, unless one is named.
    #[must_use]
    pub fn key(self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: Some(key.as_ref()), ..self }
    }

    /// Sets the value.
    #[must_use]
    pub fn value(self, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { value: Some(value.as_ref()), ..self }
    }

    /// Adds a header; the order is kept, and a name may stand several times.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.headers.push((name.as_bytes(), Some(value.as_ref())));
        self
    }

    /// Sets the timestamp, in milliseconds since 1970; by default the time of writing.
    #[must_use]
    pub fn timestamp(self, milliseconds: i64) -> Self {
        Self { timestamp: Some(milliseconds), ..self }
    }

    /// Names the partition.
    #[must_use]
    pub fn partition(self, partition: i32) -> Self {
        Self { partition: Some(partition), ..self }
    }
}
