//! The identities that runs of this process have had, by which another process's run is told from our own past.

use crate::limits;
use hapax_commit::{Identity, ProducerEpoch, TransactionVersion, TransactionalId};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

/// Shared by all runs of a process. The newest of each id are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnIdentities(Arc<Mutex<BTreeMap<TransactionalId, VecDeque<Identity>>>>);

impl OwnIdentities {
    /// This process has been given the identity, or will be if what it asks for is done.
    pub(super) fn add(&self, id: &TransactionalId, identity: Identity) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_id = known.entry(id.clone()).or_default();
        if of_id.contains(&identity) {
            return;
        }
        if of_id.len() == limits::OWN_IDENTITIES {
            of_id.pop_front();
        }
        of_id.push_back(identity);
    }

    /// EndTxn is sent under this identity: on V2 its answer, which may get lost, gives the next one.
    pub(super) fn ending(&self, id: &TransactionalId, identity: Identity, version: TransactionVersion) {
        self.add(id, marker_of(identity, version));
    }

    pub(super) fn all(&self) -> BTreeMap<TransactionalId, BTreeSet<Identity>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(id, of_id)| (id.clone(), of_id.iter().copied().collect())).collect()
    }
}

/// The identity that stands in the markers of a transaction (KIP-890), and at its coordinator once it is ended.
pub(super) fn marker_of(identity: Identity, version: TransactionVersion) -> Identity {
    match version {
        TransactionVersion::V1 => identity,
        TransactionVersion::V2 => {
            let ProducerEpoch(epoch) = identity.producer_epoch;
            Identity { producer_epoch: ProducerEpoch(epoch.saturating_add(1)), ..identity }
        }
    }
}
