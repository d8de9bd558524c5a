//! How a transaction ended, as the data partition itself says: the first control batch of its producer id.
//!
//! Reads uncommitted from the transaction's first offset up to the high watermark at the start of the search. Only
//! what is certain is an answer: where the log no longer reaches back, or batches of a later transaction come first,
//! the marker is gone, and a later transaction's marker is not taken for it.
//!
//! Sources: KIP-98, KIP-664, KIP-890 (the marker's epoch is one higher under V2); `ControlRecordType`.

use super::{
    FetchError, TopicPartition,
    walk::{Walk, Walked},
};
use crate::{
    Client,
    record::{ControlKind, RawBatch},
};
use hapax_commit::{ProducerEpoch, ProducerId, TopicId};
use hapax_host::Deadline;
use std::{sync::Arc, time::Duration};

/// How a producer's transaction ended in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlSeen {
    /// Committed: the marker, with the producer epoch that it carries (V2: one higher than that of the records).
    Commit {
        /// Of the marker.
        epoch: ProducerEpoch,
        /// Of the marker.
        offset: i64,
    },
    /// Aborted: as above.
    Abort {
        /// Of the marker.
        epoch: ProducerEpoch,
        /// Of the marker.
        offset: i64,
    },
    /// There is no marker yet.
    NoneBelow {
        /// Up to where was searched.
        high_watermark: i64,
    },
    /// The log cannot tell any more.
    Gone {
        /// What was found instead.
        reason: String,
    },
}

/// Looks for the first control batch of a producer id at or behind an offset.
///
/// `from_offset` is the offset of the transaction's first record in the partition. `silence` bounds the wait for each
/// step and not the whole, which takes as long as reading what stands between: any writer's records.
///
/// # Errors
/// A step without a definite answer, a missing right, or damaged data.
pub async fn first_control_batch(
    client: &Client,
    topic: &str,
    topic_id: TopicId,
    partition: i32,
    producer_id: ProducerId,
    from_offset: i64,
    silence: Duration,
) -> Result<ControlSeen, FetchError> {
    let tp = TopicPartition { topic: Arc::from(topic), partition };
    let why = format!("looking for the marker of producer id {}", producer_id.0);
    let soon = || Deadline::after(client.host().now(), Some(silence));
    let mut walk = Walk::new(client, tp, topic_id, from_offset, &why, soon());
    // Producer epoch of the transaction's records, once one was seen.
    let mut epoch = None;
    loop {
        walk.allow(soon());
        match walk.next().await? {
            Walked::End { high_watermark } => return Ok(ControlSeen::NoneBelow { high_watermark }),
            Walked::Gone(reason) => return Ok(ControlSeen::Gone { reason }),
            Walked::Batches(batches) => {
                for batch in batches.iter().filter(|batch| batch.header().producer_id == producer_id.0) {
                    if let Some(seen) = look_at(&walk, &mut epoch, batch)? {
                        return Ok(seen);
                    }
                }
            }
        }
    }
}

/// A batch of the producer.
fn look_at(
    walk: &Walk<'_>,
    known: &mut Option<i16>,
    batch: &RawBatch,
) -> Result<Option<ControlSeen>, FetchError> {
    batch.verify_crc().map_err(|source| walk.damaged(source))?;
    let header = batch.header();
    let offset = header.base_offset;
    if !header.attributes.is_control() {
        let known = *known.get_or_insert(header.producer_epoch);
        let later = known != header.producer_epoch;
        return Ok(later.then(|| ControlSeen::Gone {
                reason: format!(
                    "a later transaction (producer epoch {} after {known}) begins at offset {offset} of {}, and no \
                     marker is before it",
                    header.producer_epoch, walk.tp
                ),
            }));
    }
    let epoch = ProducerEpoch(header.producer_epoch);
    let marker = batch.control().map_err(|source| walk.damaged(source))?;
    Ok(match marker.map(|marker| marker.kind) {
        Some(ControlKind::Commit) => Some(ControlSeen::Commit { epoch, offset }),
        Some(ControlKind::Abort) => Some(ControlSeen::Abort { epoch, offset }),
        Some(ControlKind::Other(_)) => None,
        None => Some(ControlSeen::Gone {
            reason: format!("the marker at offset {offset} of {} was cleaned away", walk.tp),
        }),
    })
}
