//! A coordinator takes a partition of `__transaction_state` over: what it knows afterwards is what the records say.
//! Meanwhile it answers COORDINATOR_LOAD_IN_PROGRESS, and any other node NOT_COORDINATOR.
//!
//! What is lost on the way is what Kafka loses: the epoch before the last bump, pending states, and the decision whose
//! record did not survive. A decision that did survive is carried out, also if its client was told that it failed.

use super::{Shard, metadata::Transaction, record};
use crate::state::{Code, Machine, Timer, catalog::TRANSACTION_STATE};
use bytes::Bytes;
use std::collections::BTreeMap;

impl Machine {
    /// Lets coordinators be where the leaders of `__transaction_state` are, and none where the partition is gone. After
    /// a crash none of them knows anything.
    pub(crate) fn transactions_follow(&mut self, crashed: bool) {
        if crashed {
            self.transactions.shards.clear();
            self.transactions.blocks.clear();
            self.transactions.faults.clear();
            self.transactions.held.clear();
            // Who waited for a coordinator was in memory only.
            self.productions.clear();
        }
        for partition in 0..self.settings.transaction_partitions {
            let Some(place) = self.catalog.partition(TRANSACTION_STATE, partition) else {
                self.transactions.shards.remove(&partition);
                continue;
            };
            let (node, epoch) = (place.leader, place.leader_epoch);
            let is_new = place.log.end() == 0;
            let shard = self.transactions.shards.get(&partition);
            if shard.is_some_and(|shard| shard.node == node && shard.epoch == epoch) {
                continue;
            }
            let transactions = BTreeMap::new();
            self.transactions.shards.insert(partition, Shard { node, epoch, loading: true, transactions });
            if is_new || self.settings.load_ms == 0 {
                self.load_transactions(partition, epoch);
            } else {
                let due = self.now.saturating_add(self.settings.load_ms);
                self.timers.at(due, Timer::LoadTransactions { partition, epoch });
            }
        }
    }

    /// Ends the loading that began for this leadership, if it still is the leadership.
    pub(crate) fn load_transactions(&mut self, partition: i32, epoch: i32) {
        let Some(place) = self.catalog.partition(TRANSACTION_STATE, partition) else { return };
        let loaded = replay(place.log.records().map(|(_, key, value)| (key, value)));
        let Some(shard) = self.transactions.shards.get_mut(&partition) else { return };
        if !shard.loading || shard.epoch != epoch {
            return;
        }
        shard.loading = false;
        let prepared: Vec<String> = loaded
            .iter()
            .filter(|(_, stored)| stored.phase.is_prepared())
            .map(|(id, _)| id.clone())
            .collect();
        shard.transactions = loaded;
        prepared.iter().for_each(|id| self.after_transition(id));
        self.wake_clocks();
    }

    /// Whether a node coordinates ids that it has not loaded yet.
    pub(super) fn loads_transactions(&self, node: crate::state::NodeId) -> Result<(), Code> {
        let loads = |shard: &Shard| shard.node == node && shard.loading;
        if self.transactions.shards.values().any(loads) {
            Err(Code::COORDINATOR_LOAD_IN_PROGRESS)
        } else {
            Ok(())
        }
    }
}

/// The last value of each key. A record that cannot be read is left out, as by a coordinator that logs it and goes on.
fn replay(records: impl Iterator<Item = (Option<Bytes>, Option<Bytes>)>) -> BTreeMap<String, Transaction> {
    let mut transactions = BTreeMap::new();
    for (key, value) in records {
        let Some(id) = key.and_then(record::read_key) else { continue };
        match value.map(record::read_value) {
            Some(Ok(transaction)) => drop(transactions.insert(id, transaction)),
            None => drop(transactions.remove(&id)),
            Some(Err(_)) => {
                tracing::warn!(transactional_id = id, "a record of the coordinator cannot be read")
            }
        }
    }
    transactions
}
