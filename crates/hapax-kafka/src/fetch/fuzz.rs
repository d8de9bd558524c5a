//! A Fetch answer, or one partition's part of it, without a connection, for fuzz targets alone.

use super::{
    TopicPartition,
    aborted::AbortedFilter,
    completed::{Bounds, Completed, Load, Walked, walk},
    request::{self, Asked},
};
use crate::{
    Isolation,
    record::{Batches, Decompressor, RecordError, Records},
    wire::{self, Request, WireError},
};
use bytes::Bytes;
use hapax_commit::TopicId;
use kafka_protocol::messages::FetchRequest;
use std::sync::Arc;

/// A partition that is asked for from an offset on: topic, its id, partition, offset.
pub type Wanted = (&'static str, [u8; 16], i32, i64);

/// Code of the whole, and code and records for each partition that was asked for.
pub type Answered = (i16, Vec<Option<(i16, Answer)>>);

/// What the fetcher makes of a frame that answers such a request, its length removed.
///
/// # Errors
/// It is not such an answer.
pub fn response(
    version: i16,
    wanted: &[Wanted],
    isolation: Isolation,
    mut frame: Bytes,
) -> Result<Answered, WireError> {
    let cut = || WireError("an answer without correlation id".to_owned());
    let (_, header) = wire::header_versions(FetchRequest::KEY, version).ok_or_else(cut)?;
    wire::take_correlation_id(&mut frame).ok_or_else(cut)?;
    wire::skip_response_tags(header, &mut frame)?;
    let asked = wanted.iter().map(|(topic, id, partition, offset)| Asked {
        tp: TopicPartition { topic: (*topic).into(), partition: *partition },
        generation: 1,
        topic_id: Some(TopicId(*id)),
        offset: *offset,
        leader_epoch: 0,
        max_bytes: 0,
    });
    let asked: Vec<Asked> = asked.collect();
    let answer = request::Answer::of(wire::decode_body::<FetchRequest>(version, frame)?, &asked, version);
    let load = Arc::new(Load::new(&Arc::default(), &Arc::default(), 0));
    let parts = asked.iter().zip(answer.partitions).map(|(one, data)| {
        data.map(|data| (data.error_code, Answer(Completed::of(one, data, isolation, &load))))
    });
    Ok((answer.code.0, parts.collect()))
}

/// What the fetcher makes of a record set.
pub struct Answer(Completed);

impl Answer {
    /// Asked for from an offset on. `aborted` has (producer id, first offset) of the aborted transactions that a broker
    /// lists; none where all records are wanted.
    pub fn new(from: i64, aborted: Option<&[(i64, i64)]>, records: Bytes) -> Self {
        Self(Completed {
            tp: TopicPartition { topic: "t".into(), partition: 0 },
            generation: 1,
            position: from,
            leader_epoch: None,
            bounds: Bounds { high_watermark: 0, last_stable_offset: 0, log_start: 0 },
            batches: Batches::new(records),
            aborted: aborted.map(|listed| AbortedFilter::new(listed.iter().copied())),
            _load: Arc::new(Load::new(&Arc::default(), &Arc::default(), 0)),
        })
    }

    /// Records of the next batch that has wanted ones; none at the end.
    ///
    /// # Errors
    /// The record set is damaged.
    pub fn read(&mut self, decompressor: &mut Decompressor) -> Result<Records, RecordError> {
        self.0.read(decompressor, true)
    }

    /// The next offset to deliver.
    pub fn position(&self) -> i64 {
        self.0.position
    }
}

/// Up to where the headers of a record set are well; none where it is damaged, or has not one whole batch.
pub fn well_up_to(records: &Bytes, from: i64) -> Option<i64> {
    match walk(records, from) {
        Walked::To(offset) => Some(offset),
        Walked::Nothing { .. } | Walked::Damaged => None,
    }
}
