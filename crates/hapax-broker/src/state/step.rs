//! What a test or a person does to the broker, beside asking it as a client.

use super::{
    AppendFault, Machine, NodeId, Outcome, catalog::TRANSACTION_STATE, clean, log::Log, transaction,
};

/// An act on the broker itself. Each is an input of the machine like a request is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// From now on, no markers are written after an EndTxn (`true`), or all that waited are, at once (`false`).
    HoldMarkers(bool),
    /// From now on the partition gets no markers of decisions and transactions complete without it (`true`), as Kafka from
    /// 4.1 on does it while a partition has no leader (KAFKA-20734). Markers that were left out are never written.
    LeaveOutMarkers {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// From now on, or no more.
        leave_out: bool,
    },
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
    /// Loses what stands at an offset and behind it, from a batch's start on, as where a replica becomes the leader that has
    /// not all (an unclean election): the next node leads, one leader epoch further. What transactions have there is not
    /// told to their coordinators.
    Truncate {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The first offset that is lost.
        from: i64,
    },
    /// Transactional ids without an open transaction are forgotten now.
    ExpireTransactionalIds,
    /// Producers without an open transaction are forgotten by partitions now.
    ExpireProducers,
    /// Committed offsets of groups without members are forgotten now.
    ExpireOffsets,
    /// The next append of the transaction coordinator for the id fails. Its record may be in the log nevertheless, and
    /// then holds for the next coordinator that loads.
    FailAppend {
        /// The transactional id.
        transactional_id: String,
        /// How it fails.
        fault: AppendFault,
    },
}

impl Machine {
    /// Why a step would do nothing, if it would: what it names is not there.
    pub(crate) fn objection(&self, step: &Step) -> Option<String> {
        let named = match step {
            Step::MoveLeader { topic, partition, to } => {
                let nodes = self.settings.nodes;
                if let Some(to) = to
                    && !(1..=nodes).contains(&to.0)
                {
                    return Some(format!("there is no node {}; there are 1 to {nodes}", to.0));
                }
                Some((topic.as_str(), *partition))
            }
            Step::Compact { topic, partition }
            | Step::Retain { topic, partition, .. }
            | Step::Truncate { topic, partition, .. }
            | Step::LeaveOutMarkers { topic, partition, .. } => Some((topic.as_str(), *partition)),
            Step::MoveCoordinator { transactional_id } => {
                let partitions = self.settings.transaction_partitions;
                Some((TRANSACTION_STATE, transaction::partition_for(transactional_id, partitions)))
            }
            Step::HoldMarkers(_)
            | Step::SyncAlways(_)
            | Step::Sync
            | Step::Crash
            | Step::ExpireTransactionalIds
            | Step::ExpireProducers
            | Step::ExpireOffsets => None,
            Step::FailAppend { fault, .. } => {
                let known = [-1, 15, 16].contains(&fault.code);
                return (!known).then(|| format!("an append fails with -1, 15 or 16, not {}", fault.code));
            }
        };
        let (topic, partition) = named?;
        let is_there = self.catalog.partition(topic, partition).is_some();
        (!is_there).then(|| format!("there is no partition {partition} of topic {topic:?}"))
    }

    /// Says whether anything is other than before.
    pub(super) fn act(&mut self, step: Step) -> bool {
        match step {
            Step::HoldMarkers(hold) => self.hold_markers(hold),
            Step::LeaveOutMarkers { topic, partition, leave_out } => {
                self.leave_out_markers(&topic, partition, leave_out)
            }
            Step::MoveLeader { topic, partition, to } => self.move_leader(&topic, partition, to),
            Step::MoveCoordinator { transactional_id } => self.move_coordinator(&transactional_id),
            Step::SyncAlways(always) => self.catalog.sync_always(always),
            Step::Sync => self.in_all_logs(Log::sync_now),
            Step::Crash => {
                self.crash();
                true
            }
            Step::Compact { topic, partition } => self
                .catalog
                .partition_mut(&topic, partition)
                .is_some_and(|place| clean::clean(&mut place.log)),
            Step::Retain { topic, partition, from } => {
                let place = self.catalog.partition_mut(&topic, partition);
                let moved = place.is_some_and(|place| place.log.advance_start(from));
                self.touch(&topic, partition);
                moved
            }
            Step::Truncate { topic, partition, from } => {
                let place = self.catalog.partition_mut(&topic, partition);
                let lost = place.is_some_and(|place| place.log.truncate(from));
                lost && self.move_leader(&topic, partition, None)
            }
            Step::ExpireTransactionalIds => self.expire_transactional_ids(true),
            Step::ExpireProducers => self.in_all_logs(|log| log.producers.expire(i64::MAX)),
            Step::ExpireOffsets => self.expire_offsets(true),
            Step::FailAppend { transactional_id, fault } => self.fail_next_append(&transactional_id, fault),
        }
    }

    /// Does it to each log; says whether it changed one.
    fn in_all_logs(&mut self, act: impl Fn(&mut Log) -> bool) -> bool {
        self.catalog
            .partitions_mut()
            .fold(false, |changed, (_, _, partition)| act(&mut partition.log) | changed)
    }

    /// A node that is not there cannot lead: nothing happens.
    fn move_leader(&mut self, topic: &str, partition: i32, to: Option<NodeId>) -> bool {
        let nodes = self.settings.nodes.max(1);
        let Some(place) = self.catalog.partition_mut(topic, partition) else { return false };
        let to = to.unwrap_or(NodeId(place.leader.0 % nodes + 1));
        if !(1..=nodes).contains(&to.0) {
            return false;
        }
        place.lead(to);
        self.touch(topic, partition);
        self.coordinators_follow();
        true
    }

    fn move_coordinator(&mut self, transactional_id: &str) -> bool {
        let partition = transaction::partition_for(transactional_id, self.settings.transaction_partitions);
        if let Some(place) = self.catalog.partition_mut(TRANSACTION_STATE, partition) {
            place.log.crash(|_| 0);
        }
        self.move_leader(TRANSACTION_STATE, partition, None)
    }

    /// Coordinators are where the leaders of their topics are.
    pub(crate) fn coordinators_follow(&mut self) {
        self.transactions_follow(false);
        self.groups_follow(false);
    }

    fn crash(&mut self) {
        let tickets: Vec<_> = self.parked.keys().copied().collect();
        for ticket in tickets {
            self.end(ticket, Outcome::HangUp);
            self.forget(ticket);
        }
        for (_, _, partition) in self.catalog.partitions_mut() {
            partition.log.crash(|at_risk| self.random.usize(..=at_risk));
            partition.lead(partition.leader);
        }
        self.transactions_follow(true);
        self.groups_follow(true);
    }
}
