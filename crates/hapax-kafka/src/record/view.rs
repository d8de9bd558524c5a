//! Decoded records: views into a slab that is not copied out of the fetch where that can be avoided.

use std::ops::Range;

use bytes::Bytes;

use super::headers::{EncodedHeaders, HeaderIter};

/// Where one record's parts stand in the slab of its [`Records`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordView {
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// The key, or null.
    pub key: Option<Range<u32>>,
    /// The value, or null: a tombstone.
    pub value: Option<Range<u32>>,
    /// The encoded headers, without their count.
    pub headers: Range<u32>,
    /// Number of headers.
    pub header_count: u32,
    /// Where the key's length stands; the record ends where its headers end.
    pub(super) body: u32,
}

/// A record as it is digested: from its key length to its end, well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordBody<'a>(&'a [u8]);

impl<'a> RecordBody<'a> {
    /// Only for bytes that were encoded here or walked by the decoder.
    pub(super) fn trusted(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes as on the wire.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// The records of one batch: a slab of bytes and one view for each record, in offset order.
///
/// The methods that take a view take one of the same `Records`; with another's they may panic or answer nonsense.
#[derive(Debug, Clone, Default)]
pub struct Records {
    slab: Bytes,
    views: Vec<RecordView>,
}

impl Records {
    pub(super) fn new(slab: Bytes, views: Vec<RecordView>) -> Self {
        Self { slab, views }
    }

    /// The bytes that the views point into. Of an uncompressed batch they are shared with the fetched buffer.
    pub fn slab(&self) -> &Bytes {
        &self.slab
    }

    /// The records, in offset order.
    pub fn views(&self) -> &[RecordView] {
        &self.views
    }

    /// Gives the slab and the views away; the views' memory can serve the next batch.
    pub fn into_parts(self) -> (Bytes, Vec<RecordView>) {
        (self.slab, self.views)
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// There is no record.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Drops the records before an offset.
    pub fn drop_before(&mut self, offset: i64) {
        let kept = self.views.partition_point(|view| view.offset < offset);
        self.views.drain(..kept);
    }

    /// The record's key, or null.
    pub fn key(&self, view: &RecordView) -> Option<&[u8]> {
        view.key.as_ref().map(|range| self.part(range))
    }

    /// The record's value, or null.
    pub fn value(&self, view: &RecordView) -> Option<&[u8]> {
        view.value.as_ref().map(|range| self.part(range))
    }

    /// The record's headers in order.
    pub fn headers(&self, view: &RecordView) -> HeaderIter<'_> {
        self.encoded_headers(view).iter()
    }

    /// The record's headers as they are, to be passed on.
    pub fn encoded_headers(&self, view: &RecordView) -> EncodedHeaders<'_> {
        EncodedHeaders::trusted(view.header_count, self.part(&view.headers))
    }

    /// The whole record but what is relative to its batch: to be digested, or written again as it is.
    pub fn body(&self, view: &RecordView) -> RecordBody<'_> {
        RecordBody::trusted(self.part(&(view.body..view.headers.end)))
    }

    fn part(&self, range: &Range<u32>) -> &[u8] {
        &self.slab[range.start as usize..range.end as usize]
    }
}
