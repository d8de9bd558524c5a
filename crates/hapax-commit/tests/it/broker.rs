//! A tiny model of Kafka's transaction coordinator and of one output partition per shard.
//!
//! Written from the protocol's description, not from the machines under test. Left out: fencing of groups, expiry,
//! several brokers. Control batches and the final state come together, after an optional while in Prepare*.

use hapax_commit::{
    Epoch, Handle, HandlePartition, Identity, ProducerEpoch, ProducerId, TransactionVersion, TransactionalId,
    evidence::{Described, EndTxnAnswer, Marker, PartitionEnd, TransactionState as State},
};
use std::collections::BTreeMap;

/// Epochs from here on are exhausted: InitProducerId gives a new producer id.
const EXHAUSTED: i16 = 32_766;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Record { value: u64, identity: Identity },
    Control { identity: Identity, marker: Marker },
}

#[derive(Clone, Debug)]
pub(crate) struct Coordinated {
    pub(crate) identity: Identity,
    pub(crate) state: State,
    partition: usize,
}

pub(crate) struct Broker {
    pub(crate) version: TransactionVersion,
    pub(crate) ids: BTreeMap<TransactionalId, Coordinated>,
    pub(crate) logs: Vec<Vec<Item>>,
    first_epoch: i16,
    next_producer: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fenced;

impl Broker {
    pub(crate) fn new(version: TransactionVersion, partitions: usize, first_epoch: i16) -> Self {
        let logs = vec![Vec::new(); partitions];
        Self { version, ids: BTreeMap::new(), logs, first_epoch, next_producer: 100 }
    }

    fn new_producer(&mut self, epoch: i16) -> Identity {
        self.next_producer += 1;
        Identity { producer_id: ProducerId(self.next_producer), producer_epoch: ProducerEpoch(epoch) }
    }

    fn bumped(&mut self, identity: Identity) -> Identity {
        match identity.producer_epoch.0 {
            EXHAUSTED.. => self.new_producer(0),
            epoch => Identity { producer_epoch: ProducerEpoch(epoch + 1), ..identity },
        }
    }

    /// InitProducerId; what is in Prepare* is finished first, as the client retries until then.
    pub(crate) fn init(&mut self, id: &TransactionalId, own: Option<Identity>) -> Result<Identity, Fenced> {
        self.finish(id);
        let Some(found) = self.ids.get(id).cloned() else {
            let identity = self.new_producer(self.first_epoch);
            let partition = id.lane.shard.0 as usize;
            self.ids.insert(id.clone(), Coordinated { identity, state: State::Empty, partition });
            return Ok(identity);
        };
        if own.is_some_and(|own| own.producer_id != found.identity.producer_id) {
            return Err(Fenced);
        }
        if found.state == State::Ongoing {
            self.time_out(id);
        }
        if own.is_some_and(|own| own != found.identity || found.state == State::Ongoing) {
            return Err(Fenced);
        }
        let stored = self.ids[id].identity;
        let identity = self.bumped(stored);
        let known = self.ids.get_mut(id).unwrap();
        (known.identity, known.state) = (identity, State::Empty);
        Ok(identity)
    }

    /// Produce, which begins the transaction where none is open.
    pub(crate) fn produce(
        &mut self,
        id: &TransactionalId,
        identity: Identity,
        value: u64,
    ) -> Result<i64, Fenced> {
        let known = self.ids.get_mut(id).ok_or(Fenced)?;
        let ending = matches!(known.state, State::PrepareCommit | State::PrepareAbort);
        if known.identity != identity || ending {
            return Err(Fenced);
        }
        known.state = State::Ongoing;
        let log = &mut self.logs[known.partition];
        log.push(Item::Record { value, identity });
        Ok(log.len() as i64 - 1)
    }

    /// TxnOffsetCommit, which begins the transaction where none is open, and writes no record.
    pub(crate) fn join(&mut self, id: &TransactionalId, identity: Identity) -> Result<(), Fenced> {
        let known = self.ids.get_mut(id).ok_or(Fenced)?;
        let ending = matches!(known.state, State::PrepareCommit | State::PrepareAbort);
        if known.identity != identity || ending {
            return Err(Fenced);
        }
        known.state = State::Ongoing;
        Ok(())
    }

    /// EndTxn by the rules of the cluster's version. `slow`: the control batches take their time.
    pub(crate) fn end(
        &mut self,
        id: &TransactionalId,
        with: Identity,
        commit: bool,
        slow: bool,
    ) -> (EndTxnAnswer, Identity) {
        let Some(known) = self.ids.get(id).cloned() else { return (EndTxnAnswer::Forgotten, with) };
        let stored = known.identity;
        if matches!(known.state, State::PrepareCommit | State::PrepareAbort) {
            return (EndTxnAnswer::Unknown("51".into()), stored);
        }
        if stored.producer_id != with.producer_id {
            return (EndTxnAnswer::Forgotten, stored);
        }
        let retried = i16::from(self.version == TransactionVersion::V2);
        let past = stored.producer_epoch.0 - with.producer_epoch.0;
        let done = if commit { EndTxnAnswer::Committed } else { EndTxnAnswer::Aborted };
        let answer = match known.state {
            State::Ongoing if past == 0 => {
                self.prepare(id, commit);
                if !slow {
                    self.finish(id);
                }
                done
            }
            State::CompleteCommit if past == retried && commit => done,
            State::CompleteAbort if past == retried && !commit => done,
            State::CompleteCommit | State::CompleteAbort | State::Empty if past == 0 || past == retried => {
                EndTxnAnswer::NotThisState
            }
            _ => EndTxnAnswer::Superseded,
        };
        (answer, self.ids[id].identity)
    }

    fn prepare(&mut self, id: &TransactionalId, commit: bool) {
        let stored = self.ids[id].identity;
        assert!(stored.producer_epoch.0 < EXHAUSTED, "a transaction was begun at the last producer epoch");
        let next = if self.version == TransactionVersion::V2 { self.bumped(stored) } else { stored };
        let known = self.ids.get_mut(id).unwrap();
        known.identity = next;
        known.state = if commit { State::PrepareCommit } else { State::PrepareAbort };
    }

    /// Control batches are written, the final state is reached.
    pub(crate) fn finish(&mut self, id: &TransactionalId) {
        let Some(known) = self.ids.get_mut(id) else { return };
        let (state, marker) = match known.state {
            State::PrepareCommit => (State::CompleteCommit, Marker::Commit),
            State::PrepareAbort => (State::CompleteAbort, Marker::Abort),
            _ => return,
        };
        known.state = state;
        self.logs[known.partition].push(Item::Control { identity: known.identity, marker });
    }

    /// The broker aborts what is open: a time-out, or the first half of InitProducerId. Bumps on both versions.
    pub(crate) fn time_out(&mut self, id: &TransactionalId) -> bool {
        let Some(open) = self.ids.get(id).filter(|known| known.state == State::Ongoing).cloned() else {
            return false;
        };
        let next = self.bumped(open.identity);
        let known = self.ids.get_mut(id).unwrap();
        (known.identity, known.state) = (next, State::PrepareAbort);
        self.finish(id);
        true
    }

    pub(crate) fn describe(&self, id: &TransactionalId) -> Described {
        self.ids.get(id).map_or(Described::Forgotten, |known| Described::Known {
            state: known.state,
            identity: known.identity,
        })
    }

    /// The first control batch of a producer id at or after an offset.
    pub(crate) fn first_control(&self, partition: usize, producer: ProducerId, from: i64) -> PartitionEnd {
        let found = self.logs[partition][from as usize..].iter().find_map(|item| match item {
            Item::Control { identity, marker } if identity.producer_id == producer => {
                Some((*identity, *marker))
            }
            Item::Control { .. } | Item::Record { .. } => None,
        });
        found.map_or(PartitionEnd::NoneYet, |(identity, marker)| PartitionEnd::Marker {
            marker,
            producer_epoch: identity.producer_epoch,
        })
    }

    /// What an identity wrote from an offset to another, both included.
    pub(crate) fn written(&self, partition: usize, by: Identity, from: i64, to: i64) -> Vec<u64> {
        let range = &self.logs[partition][from as usize..=to as usize];
        let of_identity = range.iter().filter_map(|item| match item {
            Item::Record { value, identity } if *identity == by => Some(*value),
            Item::Record { .. } | Item::Control { .. } => None,
        });
        of_identity.collect()
    }

    /// Writes the records of a handle again, under another number and identity.
    pub(crate) fn write_again(
        &mut self,
        handle: &Handle,
        epoch: Epoch,
        identity: Identity,
    ) -> Result<Handle, Fenced> {
        let part = &handle.partitions[0];
        let (partition, from, to) = (part.partition as usize, part.first_offset, part.last_offset);
        let values = self.written(partition, handle.identity, from, to);
        assert_eq!(values.len() as u64, part.count, "the log of this world has no holes");
        let id = handle.lane.transactional_id(&handle.transactional_id.job, epoch);
        let mut offsets = Vec::new();
        for value in values {
            offsets.push(self.produce(&id, identity, value)?);
        }
        let (first_offset, last_offset) = (offsets[0], offsets[offsets.len() - 1]);
        let partitions = vec![HandlePartition { first_offset, last_offset, ..part.clone() }];
        Ok(Handle { transactional_id: id, identity, epoch, partitions, ..handle.clone() })
    }

    /// What a `read_committed` reader sees once the control batches that are under way have been written.
    pub(crate) fn committed(&self, partition: usize) -> Vec<u64> {
        let committing = |producer: ProducerId| {
            let mut ids = self.ids.values();
            ids.any(|known| known.state == State::PrepareCommit && known.identity.producer_id == producer)
        };
        let mut next_control = BTreeMap::new();
        let mut values: Vec<u64> = Vec::new();
        for item in self.logs[partition].iter().rev() {
            match item {
                Item::Control { identity, marker } => {
                    next_control.insert(identity.producer_id, *marker == Marker::Commit);
                }
                Item::Record { value, identity } => {
                    let producer = identity.producer_id;
                    if *next_control.entry(producer).or_insert_with(|| committing(producer)) {
                        values.push(*value);
                    }
                }
            }
        }
        values.reverse();
        values
    }
}
