//! What a test or a person does to the broker, beside asking it as a client.

use super::NodeId;

/// An act on the broker itself. Each is an input of the machine like a request is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// From now on, no markers are written after an EndTxn (`true`), or all that waited are, at once (`false`).
    HoldMarkers(bool),
    /// Another node leads the partition, one leader epoch further; the next one by number if none is named.
    MoveLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The new leader.
        #[serde(default)]
        to: Option<NodeId>,
    },
    /// Another node coordinates the transactional id: the leader of its `__transaction_state` partition moves, and
    /// the new one loads what was synced.
    MoveCoordinator {
        /// The transactional id.
        transactional_id: String,
    },
    /// From now on appends are synced at once (`true`, as at the start) or only by [`Step::Sync`].
    SyncAlways(bool),
    /// What is in the logs survives a crash.
    Sync,
    /// The broker dies and starts again: what was synced survives, of the rest a prefix that the seed chooses; what
    /// was only in memory is gone, and coordinators load.
    Crash,
    /// Removes records that a later one with the same key replaces, as the log cleaner does.
    Compact {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// Moves the log start, as retention does.
    Retain {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The first offset that stays.
        from: i64,
    },
    /// Transactional ids without an open transaction are forgotten now.
    ExpireTransactionalIds,
    /// Producers without an open transaction are forgotten by partitions now.
    ExpireProducers,
    /// Committed offsets of groups without members are forgotten now.
    ExpireOffsets,
}
