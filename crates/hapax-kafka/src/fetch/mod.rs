//! The fetcher: reads assigned partitions in order, each from a wanted offset on.
//!
//! Owns fetch positions, the filter of aborted transactions, the buffer between brokers and reader, and the search
//! for the marker that ended a transaction ([`first_control_batch`]) and for the records that one has left
//! ([`WrittenReader`]). Refuses to choose a position: an offset that
//! the log does not have, or a topic that is not the one that was read before, is an error, never a reset.
//!
//! ```text
//!  assign ─► slots ─► task: one fetch at a time for each leader, on its own connection
//!                        │ responses, undecoded (bounded: one read, one ahead for each leader)
//!                        ▼
//!                      queue ─► next(): checksum, aborted filter, decompress, cut to the wanted offset ─► Fetched
//! ```
//!
//! Invariants: chunks of a partition come in offset order, and each begins where the one before ended; nothing of an
//! earlier assignment is delivered after [`Fetcher::assign`], [`Fetcher::unassign`] or [`Fetcher::pause`]; trouble
//! that can pass is never an error, however long it lasts; a failure is sticky until its partition is assigned anew,
//! unassigned or paused.
//!
//! Not done here: detection of a truncated log by leader epochs (KIP-320); the epochs are handed out with positions.
//! Fetch sessions (KIP-227) are not used.
//!
//! Sources: KIP-74, KIP-98, KIP-320, KIP-516; `Fetcher`, `CompletedFetch`, `ReplicaManager`.

mod aborted;
mod completed;
mod control;
mod error;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod place;
mod range;
mod request;
mod slot;
mod task;
mod walk;
mod written;

pub use control::{ControlSeen, first_control_batch};
pub use error::FetchError;
pub use written::{WrittenError, WrittenReader};

pub(crate) use range::log_range;
pub(crate) use walk::{Walk, Walked};

use crate::{
    Client, Isolation, limits,
    record::{Decompressor, Records},
};
use completed::Completed;
use hapax_commit::TopicId;
use slot::{Queued, Shared, State};
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number.
    pub partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// How to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetcherConfig {
    /// Which records of transactions are seen (`ReadCommitted`).
    pub isolation: Isolation,
    /// How long a broker may hold a fetch back while it has less than `min_bytes` (500 ms).
    pub max_wait: Duration,
    /// Bytes that make a broker answer at once (1).
    pub min_bytes: i32,
    /// Bytes of one answer (8 MiB); one larger batch still comes whole.
    pub max_bytes: i32,
    /// Bytes of one partition in an answer (1 MiB); one larger batch still comes whole.
    pub partition_max_bytes: i32,
    /// Nothing more is fetched while answers of this many bytes are not read yet (64 MiB). Answers on their way come
    /// on top: one of `max_bytes` for each leader at most.
    pub buffer_bytes: usize,
    /// Compare each batch's checksum with its bytes (yes).
    pub verify_crc: bool,
}

impl Default for FetcherConfig {
    fn default() -> Self {
        Self {
            isolation: Isolation::ReadCommitted,
            max_wait: Duration::from_millis(500),
            min_bytes: 1,
            max_bytes: 8 << 20,
            partition_max_bytes: 1 << 20,
            buffer_bytes: limits::FETCH_BUFFER_BYTES,
            verify_crc: true,
        }
    }
}

/// What comes next in a partition.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The partition.
    pub tp: TopicPartition,
    /// Records at or behind the wanted offset: no markers, none of aborted transactions (`ReadCommitted`). None at
    /// all where only the position moved. Uncompressed records share the memory of the whole answer.
    pub records: Records,
    /// The position after this chunk, behind markers, aborted records and compacted gaps.
    pub next_offset: i64,
    /// Leader epoch of the last batch that was read; of the assignment before the first one.
    pub leader_epoch: Option<i32>,
    /// Where the replicated log ended when this was fetched.
    pub high_watermark: i64,
    /// Up to where every transaction had ended, -1 where the broker did not say.
    pub last_stable_offset: i64,
    /// The first offset that the log still had, -1 where the broker did not say.
    pub log_start: i64,
}

/// Reads partitions of one cluster. It is stopped by dropping it.
pub struct Fetcher {
    shared: Arc<Shared>,
    task: tokio::task::AbortHandle,
    decompressor: Decompressor,
    verify_crc: bool,
    current: Option<Completed>,
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fetcher {
    /// Starts without partitions. Needs a tokio runtime around it.
    pub fn start(client: Client, config: FetcherConfig) -> Self {
        let shared = Arc::new(Shared::default());
        let verify_crc = config.verify_crc;
        let host = client.host().clone();
        let task = host.spawn(task::run(Arc::clone(&shared), client, config));
        Self { shared, task, decompressor: Decompressor::default(), verify_crc, current: None }
    }

    /// Reads a partition from offset `from` on; if it was assigned before, from there instead.
    ///
    /// With `topic_id`, a topic of that name that was deleted and made again is an error; without, the one that is
    /// found first is pinned. `leader_epoch` is that of the position, handed out until a batch was read.
    pub fn assign(
        &mut self,
        tp: TopicPartition,
        topic_id: Option<TopicId>,
        from: i64,
        leader_epoch: Option<i32>,
    ) {
        self.change(|state| state.assign(tp, topic_id, from, leader_epoch));
    }

    /// Reads a partition no longer.
    pub fn unassign(&mut self, tp: &TopicPartition) {
        self.change(|state| state.unassign(tp));
    }

    /// Keeps the position of a partition but delivers nothing of it until [`Fetcher::resume`]. What was fetched and
    /// not delivered is dropped, so that a paused partition holds no memory.
    pub fn pause(&mut self, tp: &TopicPartition) {
        self.change(|state| state.set_paused(tp, true));
    }

    /// Goes on after [`Fetcher::pause`].
    pub fn resume(&mut self, tp: &TopicPartition) {
        self.change(|state| state.set_paused(tp, false));
    }

    /// Bytes of answers that are not read to their end yet.
    pub fn buffered_bytes(&self) -> usize {
        self.shared.buffered.load(Ordering::Relaxed)
    }

    fn change(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.state();
        change(&mut state);
        if self.current.as_ref().is_some_and(|current| state.slot_of(current).is_none()) {
            self.current = None;
        }
        drop(state);
        self.shared.work.notify_one();
    }

    /// The next chunk of any partition; pending while there is nothing. Dropping the future loses nothing.
    ///
    /// # Errors
    /// What waiting cannot help: see [`FetchError`]. Every later call answers the same until the partition is
    /// assigned anew, unassigned or paused.
    pub async fn next(&mut self) -> Result<Fetched, FetchError> {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            self.shared.readable.notified().await;
        }
    }

    fn take(&mut self) -> Option<Result<Fetched, FetchError>> {
        loop {
            let mut current = match self.current.take() {
                Some(current) => current,
                None => {
                    let mut state = self.shared.state();
                    if let Some(error) = state.failure() {
                        return Some(Err(error.clone()));
                    }
                    match state.queue.pop_front()? {
                        Queued::Read(completed) => completed,
                        Queued::Failed { tp, generation, error } => {
                            state.fail(&tp, generation, error);
                            continue;
                        }
                    }
                }
            };
            let read = current.read(&mut self.decompressor, self.verify_crc);
            let mut state = self.shared.state();
            let Some(slot) = state.slot_of(&current) else { continue };
            match read {
                Ok(records) => {
                    let moved = slot.position < current.position;
                    slot.position = current.position;
                    slot.leader_epoch = current.leader_epoch.or(slot.leader_epoch);
                    let fetched = current.fetched(records, slot.leader_epoch);
                    drop(state);
                    if !fetched.records.is_empty() {
                        self.current = Some(current);
                        return Some(Ok(fetched));
                    }
                    if moved {
                        return Some(Ok(fetched));
                    }
                }
                Err(source) => {
                    let error = FetchError::Data { tp: current.tp.clone(), source };
                    state.fail(&current.tp, current.generation, error);
                }
            }
        }
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("partitions", &self.shared.state().slots.len()).finish()
    }
}
