//! What runs of this process know of its ids: the identities that they have had, by which another process's run is told
//! from our own past, and what coordinators said before they were made to forget it.

use crate::limits;
use hapax_commit::{
    Identity, ProducerEpoch, TransactionVersion, TransactionalId,
    bookmark::{self, Had},
    evidence::{Described, TransactionState},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

/// Shared by all runs of a process. The newest of each id are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnIdentities(Arc<Mutex<BTreeMap<TransactionalId, OfId>>>);

#[derive(Debug, Default)]
struct OfId {
    identities: VecDeque<Identity>,
    /// InitProducerId is on its way, or its answer was lost.
    unanswered: bool,
    /// What its coordinator has said, oldest first. Also of runs whose start came no further than to clear the id.
    looks: VecDeque<Described>,
}

impl OfId {
    fn add(&mut self, identity: Identity) {
        if self.identities.contains(&identity) {
            return;
        }
        if self.identities.len() == limits::OWN_IDENTITIES {
            self.identities.pop_front();
        }
        self.identities.push_back(identity);
    }
}

impl OwnIdentities {
    /// This process has been given the identity, or will be if what it asks for is done.
    pub(super) fn add(&self, id: &TransactionalId, identity: Identity) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(id.clone()).or_default().add(identity);
    }

    /// InitProducerId is about to be sent: whoever asks for the id before it is answered may see what it has given.
    pub(super) fn asking(&self, id: &TransactionalId) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(id.clone()).or_default().unanswered = true;
    }

    /// InitProducerId is answered.
    pub(super) fn answered(&self, id: &TransactionalId, identity: Identity) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_id = known.entry(id.clone()).or_default();
        of_id.add(identity);
        of_id.unanswered = false;
    }

    /// EndTxn is sent under this identity: on V2 its answer, which may get lost, gives the next one.
    pub(super) fn ending(&self, id: &TransactionalId, identity: Identity, version: TransactionVersion) {
        self.add(id, marker_of(identity, version));
    }

    /// This is what the id's coordinator says.
    pub(super) fn looked(&self, id: &TransactionalId, described: &Described) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let looks = &mut known.entry(id.clone()).or_default().looks;
        if looks.len() == limits::OWN_IDENTITIES {
            looks.pop_front();
        }
        looks.push_back(described.clone());
    }

    /// How a transaction of the id ended by what its coordinator has said: true where it was committed.
    pub(super) fn ended(
        &self,
        id: &TransactionalId,
        open: Identity,
        version: TransactionVersion,
    ) -> Option<bool> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let looks = known.get(id)?.looks.iter().rev();
        looks.filter_map(|look| bookmark::ended_before(look, open, version)).next()
    }

    /// Has a coordinator said that this transaction is open?
    pub(super) fn saw_open(&self, id: &TransactionalId, open: Identity) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(id).is_some_and(|of_id| of_id.looks.iter().any(|look| is_open(look, open)))
    }

    /// Runs that follow in this process are strangers to those before. What coordinators have said stays true.
    pub(crate) fn forget(&self) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for of_id in known.values_mut() {
            of_id.identities.clear();
            of_id.unanswered = false;
        }
    }

    pub(super) fn all(&self) -> BTreeMap<TransactionalId, Had> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let had = |of_id: &OfId| Had {
            identities: of_id.identities.iter().copied().collect(),
            unanswered: of_id.unanswered,
        };
        let had_one = |of_id: &OfId| of_id.unanswered || !of_id.identities.is_empty();
        let known = known.iter().filter(|(_, of_id)| had_one(of_id));
        known.map(|(id, of_id)| (id.clone(), had(of_id))).collect()
    }
}

fn is_open(look: &Described, open: Identity) -> bool {
    matches!(look, Described::Known { state: TransactionState::Ongoing, identity } if *identity == open)
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
