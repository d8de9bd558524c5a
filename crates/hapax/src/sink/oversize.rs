//! Records that a topic would refuse for their size, found while it is still known where they came from.
//!
//! The broker counts a batch as it is sent, compressed. A record that might be too large is sealed alone, as the
//! producer would send it in the end, and held against the topic's `max.message.bytes`. Where that cannot be read
//! (no right to describe the topic) the broker's own refusal stands, which names the topic and not the record.

use crate::limits;
use hapax_host::Deadline;
use hapax_kafka::{
    Client,
    admin::{self, ConfigResource},
    record::{BATCH_HEADER_BYTES, BatchBuilder, Compression, Compressor, RecordRef},
};
use std::collections::HashMap;

const SETTING: &str = "max.message.bytes";

/// Limits of the topics of one writer.
pub(super) struct Oversize {
    compression: Compression,
    compressor: Compressor,
    batch: BatchBuilder,
    limits: HashMap<String, usize>,
}

impl Oversize {
    pub(super) fn new(compression: Compression) -> Self {
        let (compressor, batch) = (Compressor::new(), BatchBuilder::new());
        Self { compression, compressor, batch, limits: HashMap::new() }
    }

    /// Reads what a topic allows.
    pub(super) async fn learn(&mut self, client: &Client, topic: &str) {
        let patience = Deadline::after(client.host().now(), Some(limits::REPORT_EVERY));
        match admin::describe_configs(client, ConfigResource::Topic(topic), &[SETTING], patience).await {
            Ok(settings) => {
                let limit =
                    settings.get(SETTING).and_then(Option::as_ref).and_then(|value| value.parse().ok());
                self.limits.extend(limit.map(|limit| (topic.to_owned(), limit)));
            }
            Err(error) => {
                tracing::debug!(topic, "{SETTING} cannot be read, the broker itself will refuse: {error}");
            }
        }
    }

    /// Size of the record's batch and what the topic allows, where the one is above the other.
    pub(super) fn find(&mut self, topic: &str, record: &RecordRef<'_>) -> Option<(usize, usize)> {
        let limit = *self.limits.get(topic)?;
        if record.size_bound() + BATCH_HEADER_BYTES <= limit {
            return None;
        }
        self.batch.clear();
        // What cannot be encoded at all is the producer's to refuse.
        self.batch.push(record).ok()?;
        let size = self.batch.seal(self.compression, &mut self.compressor)?.len();
        (size > limit).then_some((size, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(compression: Compression, limit: usize, value: &[u8]) -> Option<(usize, usize)> {
        let mut oversize = Oversize::new(compression);
        oversize.limits.insert("t".to_owned(), limit);
        oversize.find("t", &RecordRef { value: Some(value), ..RecordRef::default() })
    }

    #[test]
    fn the_compressed_batch_counts() {
        let value = [b'x'; 5_000];
        let (size, limit) = find(Compression::None, 2_000, &value).expect("too large as it is");
        assert!(size > 5_000 && limit == 2_000, "{size} {limit}");
        assert_eq!(find(Compression::Lz4, 2_000, &value), None);
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        let value = [b'x'; 500];
        let (size, _) = find(Compression::None, 100, &value).expect("too large");
        assert_eq!(find(Compression::None, size, &value), None);
        assert_eq!(find(Compression::None, size - 1, &value), Some((size, size - 1)));
    }

    #[test]
    fn nothing_is_refused_where_the_limit_is_not_known() {
        assert_eq!(Oversize::new(Compression::None).find("t", &RecordRef::default()), None);
    }
}
