//! The transaction coordinator: one entry per transactional id, kept where the leader of the id's partition of
//! `__transaction_state` is, and rebuilt from that topic's bytes whenever the leadership moves or the broker crashes.
//!
//! ```text
//! init  InitProducerId             add   AddPartitionsToTxn, AddOffsetsToTxn, and what Produce adds by itself
//! end   EndTxn, by `judge`         clock time-outs and expiry of ids
//!         │
//!         └─> write (one record, then the memory) ──> marker (later, or held) ──> write the completion
//! load  the records of a partition ──> entries; a prepared one goes on to marker
//! ```
//!
//! An append here is durable at once or fails at once, so Kafka's pending states show only between a decision and its
//! completion, and after a record that could not be written. That is also where Kafka shows them.
//!
//! Non-obvious: which rules hold is decided by the version of a request, and for aborts by the broker itself by the
//! level of the cluster. Nothing here looks at connections: who knows a producer id and epoch may end the transaction.
//!
//! Sources: KIP-98, KIP-360, KIP-664, KIP-890, KIP-939; `TransactionCoordinator`, `TransactionStateManager`,
//! `TransactionMarkerChannelManager`.

mod add;
mod clock;
mod end;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
#[cfg(test)]
mod history;
mod init;
mod judge;
mod list;
mod load;
mod marker;
mod metadata;
mod pattern;
mod phase;
mod record;
#[cfg(test)]
mod scenario;
mod write;

pub(crate) use add::{Admission, Admit};
pub use write::AppendFault;

use super::{Code, Machine, Millis, NodeId, TopicPartition, digest::feed};
use metadata::{Level, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// Producer ids come to a node in blocks of this size, as from Kafka's controller.
const BLOCK: i64 = 1_000;

/// All coordinators of the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coordinator {
    /// By partition of [`TRANSACTION_STATE`], for as long as the partition is there.
    shards: BTreeMap<i32, Shard>,
    /// Markers wait for [`super::Step::HoldMarkers`].
    hold_markers: bool,
    /// Partitions that no marker is written to, for [`super::Step::LeaveOutMarkers`].
    left_out: BTreeSet<TopicPartition>,
    /// Whose markers wait, and for which leadership.
    held: BTreeSet<(String, i32)>,
    /// What is left of each node's block: the next id and the end. In memory only, as in Kafka.
    blocks: BTreeMap<NodeId, (i64, i64)>,
    /// The first id of the next block. Kept by the controller, which does not crash.
    next_block: i64,
    reaper_due: Option<Millis>,
    expiry_due: Option<Millis>,
    /// The next append for these ids fails.
    faults: BTreeMap<String, AppendFault>,
}

feed!(Coordinator {
    shards,
    hold_markers,
    left_out,
    held,
    blocks,
    next_block,
    reaper_due,
    expiry_due,
    faults
});

/// The ids of one partition at the node that leads it.
#[derive(Clone, Debug)]
struct Shard {
    node: NodeId,
    /// The leader epoch. Markers carry it as coordinator epoch.
    epoch: i32,
    loading: bool,
    transactions: BTreeMap<String, Transaction>,
}

feed!(Shard { node, epoch, loading, transactions });

/// `String.hashCode` of Java: over UTF-16 code units and not over bytes.
pub(crate) fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Which of so many partitions coordinates a name, of a transactional id or of a group: `Utils.abs(name.hashCode()) %
/// partitions`. The hash `i32::MIN` has no absolute value and counts as 0 there.
pub(crate) fn partition_for(name: &str, partitions: i32) -> i32 {
    java_hash(name).checked_abs().unwrap_or(0) % partitions.max(1)
}

/// The error of an answer whose version is older than PRODUCER_FENCED.
fn without_fencing(code: Code) -> Code {
    if code == Code::PRODUCER_FENCED { Code::INVALID_PRODUCER_EPOCH } else { code }
}

impl Machine {
    /// The level of the cluster, by which the broker itself aborts.
    fn cluster_level(&self) -> Level {
        Level(self.settings.transaction_version)
    }

    fn state_partition(&self, id: &str) -> i32 {
        partition_for(id, self.settings.transaction_partitions)
    }

    /// The shard of an id, if it answers requests that came in by the node; `None` stands for the broker itself, who
    /// finds the right node.
    fn shard(&self, id: &str, node: Option<NodeId>) -> Result<&Shard, Code> {
        let partition = self.state_partition(id);
        let shard = self.transactions.shards.get(&partition).ok_or(Code::NOT_COORDINATOR)?;
        if node.is_some_and(|node| node != shard.node) {
            return Err(Code::NOT_COORDINATOR);
        }
        if shard.loading { Err(Code::COORDINATOR_LOAD_IN_PROGRESS) } else { Ok(shard) }
    }

    /// What is stored for an id; `None` where nothing is.
    fn stored(&self, id: &str, node: Option<NodeId>) -> Result<Option<&Transaction>, Code> {
        self.shard(id, node).map(|shard| shard.transactions.get(id))
    }

    fn stored_mut(&mut self, id: &str) -> Option<&mut Transaction> {
        let partition = self.state_partition(id);
        self.transactions.shards.get_mut(&partition)?.transactions.get_mut(id)
    }

    /// A producer id that nobody has had.
    fn new_producer_id(&mut self, node: NodeId) -> i64 {
        let coordinator = &mut self.transactions;
        let (next, end) = coordinator.blocks.get(&node).copied().unwrap_or_default();
        let (next, end) = if next < end {
            (next, end)
        } else {
            coordinator.next_block += BLOCK;
            (coordinator.next_block - BLOCK, coordinator.next_block)
        };
        coordinator.blocks.insert(node, (next + 1, end));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_java() {
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("hello"), 99_162_322);
        assert_eq!(java_hash("my-transactional-id"), java_hash("my-transactional-id"));
        assert_eq!(java_hash("\u{1F600}"), 0xD83D_i32 * 31 + 0xDE00, "two code units and not four bytes");
    }

    #[test]
    fn a_negative_hash_counts_by_its_absolute_value() {
        assert_eq!(java_hash("orders"), -1_008_770_331);
        assert_eq!((partition_for("orders", 50), partition_for("orders", 4)), (31, 3));
        assert_eq!(partition_for("consumer-group", 50), 38);
    }

    #[test]
    fn the_one_hash_without_an_absolute_value_counts_as_zero() {
        // A known string whose Java hash is Integer.MIN_VALUE.
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        assert_eq!(partition_for("polygenelubricants", 50), 0);
    }
}
