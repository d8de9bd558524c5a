//! One lane: three transactional ids, one epoch after another.
//!
//! Owns: which id and which identity an epoch is written on, and when an id may be used again. Refuses to open an
//! epoch while its id's last outcome is not in the chain, or while the epoch before it is not acknowledged.
//!
//! ```text
//!                 open            flushing         flushed          committing       ended          recorded
//!  Free -> (Identifying ->) Open ---------> Flushing -----> Prepared ---------> Committing -> Committed ------> Free
//!                                              \-- nothing written: Free             \-> Aborted | Unknown
//! ```
//!
//! Invariants ([`Lane::check`]): an epoch stands on the id `epoch mod 3`; at most one is being written, and it is the
//! newest; no two ids share an identity, and no identity writes two transactions: on V2 EndTxn answers the next one
//! (KIP-890), on V1 and at the last producer epochs InitProducerId comes first, with the lane's own identity, so
//! that a zombie cannot take an id back (KIP-360). Where each epoch has an id of its own ([`Naming::PerEpoch`]), the three
//! places stay and the ids go by: InitProducerId comes first for each that the start has not cleared, without an identity.

use crate::{
    handle::{Handle, HandleFault, HandlePartition, LAST_PRODUCER_EPOCH},
    id::{Epoch, IDS_PER_LANE, Identity, LaneId, Name, Naming, TransactionVersion, TransactionalId},
    invariant::{Broken, holds},
    ledger::Carrier,
};
use alloc::{string::String, vec::Vec};
use core::fmt;

/// What does not change in a lane's life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneConfig {
    /// The job: prefix of the ids.
    pub job: Name,
    /// The lane.
    pub lane: LaneId,
    /// Kafka's id of the cluster.
    pub cluster_id: String,
    /// Bootstrap addresses, for the handles.
    pub brokers: String,
    /// The protocol, read from the cluster at the start of the run.
    pub version: TransactionVersion,
    /// How the ids are named.
    pub naming: Naming,
    /// The run's first epoch: what was cleared are the ids of this one and of the two behind it.
    pub first: Epoch,
}

/// Where one of the ids stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdState {
    /// Nothing is open, and the last outcome is in the chain.
    Free {
        /// The identity at hand.
        identity: Identity,
        /// It has written a transaction already (V1 keeps it): InitProducerId comes first.
        spent: bool,
    },
    /// InitProducerId is on its way.
    Identifying {
        /// The epoch to be written.
        epoch: Epoch,
        /// The identity that the request carries.
        own: Identity,
    },
    /// Records are being written.
    Open {
        /// The epoch.
        epoch: Epoch,
        /// What writes.
        identity: Identity,
    },
    /// The barrier has come; waiting for the brokers' acknowledgements.
    Flushing {
        /// The epoch.
        epoch: Epoch,
        /// What writes.
        identity: Identity,
    },
    /// All is acknowledged, the transaction is open, the epoch not decided.
    Prepared {
        /// The epoch.
        epoch: Epoch,
        /// What wrote it.
        identity: Identity,
    },
    /// Decided; EndTxn is on its way.
    Committing {
        /// The epoch.
        epoch: Epoch,
        /// What wrote it.
        identity: Identity,
    },
    /// Committed, but not yet in the chain.
    Committed {
        /// The epoch.
        epoch: Epoch,
        /// The identity that the answer gave (V1: the same).
        next: Identity,
    },
    /// The broker aborted it; only recovery goes on from here.
    Aborted {
        /// The epoch.
        epoch: Epoch,
        /// What wrote it.
        identity: Identity,
    },
    /// Nobody knows how it ended; only recovery goes on from here.
    Unknown {
        /// The epoch.
        epoch: Epoch,
        /// What wrote it.
        identity: Identity,
    },
}

/// How to open an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenWith {
    /// The id.
    pub transactional_id: TransactionalId,
    /// The identity to write with or, with `init`, to pass to InitProducerId.
    pub identity: Identity,
    /// InitProducerId with this identity comes first; its answer goes to [`Lane::identified`].
    pub init: bool,
    /// The id is used for the first time: InitProducerId carries no identity, as there is none.
    pub is_fresh: bool,
}

/// The epoch cannot be opened yet: wait, this is back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotYet {
    /// An earlier epoch of the lane is still being written: in a partition nothing of an epoch is sent before the
    /// one before it is acknowledged.
    Writing {
        /// The earlier epoch.
        epoch: Epoch,
    },
    /// The outcome of the id's last epoch is not in the chain.
    Outcome {
        /// That epoch.
        epoch: Epoch,
    },
}

impl fmt::Display for NotYet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writing { epoch } => write!(f, "epoch {epoch} is not acknowledged yet"),
            Self::Outcome { epoch } => write!(f, "the outcome of epoch {epoch} is not recorded yet"),
        }
    }
}

/// What an epoch wrote, as the brokers acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Written {
    /// Wall time before the first record was sent, in milliseconds since 1970.
    pub started_ms: i64,
    /// Wall time at which the broker may abort, in milliseconds since 1970.
    pub deadline_ms: i64,
    /// Per partition; at least one.
    pub partitions: Vec<HandlePartition>,
}

/// The answer to EndTxn(commit) in a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Committed.
    Committed {
        /// The identity for what follows: from the answer on V2, the same on V1.
        next: Identity,
    },
    /// Known to be aborted.
    Aborted,
    /// Not known.
    Unknown,
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    config: LaneConfig,
    ids: [IdState; IDS_PER_LANE as usize],
    newest: Epoch,
}

impl Lane {
    /// A lane whose ids have just been cleared; identities by the ids' index, as InitProducerId answered them.
    pub fn new(config: LaneConfig, identities: [Identity; IDS_PER_LANE as usize]) -> Self {
        let ids = identities.map(|identity| IdState::Free { identity, spent: false });
        Self { config, ids, newest: Epoch::GENESIS }
    }

    /// What does not change.
    pub fn config(&self) -> &LaneConfig {
        &self.config
    }

    /// The ids by index.
    pub fn states(&self) -> &[IdState; IDS_PER_LANE as usize] {
        &self.ids
    }

    /// Begins to write an epoch, a later one than ever before.
    ///
    /// # Errors
    /// Not yet: the window is full, or the epoch before is not acknowledged.
    pub fn open(&mut self, epoch: Epoch) -> Result<OpenWith, NotYet> {
        assert!(epoch > self.newest, "epochs are opened in order, each once");
        if let Some(writing) = self.ids.iter().find_map(IdState::writing) {
            return Err(NotYet::Writing { epoch: writing });
        }
        let (identity, spent) = match *self.id(epoch) {
            IdState::Free { identity, spent } => (identity, spent),
            busy => return Err(NotYet::Outcome { epoch: busy.epoch().unwrap_or(self.newest) }),
        };
        let is_fresh = match self.config.naming {
            Naming::Rotating => false,
            Naming::PerEpoch => epoch.0 >= self.config.first.0 + IDS_PER_LANE,
        };
        let init = spent || is_fresh || identity.producer_epoch >= LAST_PRODUCER_EPOCH;
        self.newest = epoch;
        Ok(OpenWith { is_fresh, ..self.stand_on(epoch, identity, init) })
    }

    /// InitProducerId has answered. At the last producer epochs it has to be asked once more (`init` again).
    pub fn identified(&mut self, epoch: Epoch, identity: Identity) -> OpenWith {
        let id = self.id(epoch);
        assert!(matches!(id, IdState::Identifying { epoch: at, .. } if *at == epoch), "nobody asked");
        let init = identity.producer_epoch >= LAST_PRODUCER_EPOCH;
        self.stand_on(epoch, identity, init)
    }

    /// The barrier that ends the epoch has reached the lane.
    pub fn flushing(&mut self, epoch: Epoch) {
        let id = self.id(epoch);
        match *id {
            IdState::Open { epoch: at, identity } if at == epoch => {
                *id = IdState::Flushing { epoch, identity }
            }
            other => panic!("barrier {epoch} met {other:?}"),
        }
    }

    /// Every record of the epoch is acknowledged. Without records there is no transaction at the broker, hence no
    /// handle, and the id is free at once.
    ///
    /// # Errors
    /// What was written breaks an invariant of the handle: a bug of the producer; end the run.
    pub fn flushed(&mut self, epoch: Epoch, written: Option<Written>) -> Result<Option<Handle>, HandleFault> {
        let IdState::Flushing { epoch: at, identity } = *self.id(epoch) else {
            panic!("epoch {epoch} is not being flushed");
        };
        assert!(at == epoch, "another epoch is being flushed");
        let Some(written) = written else {
            *self.id(epoch) = IdState::Free { identity, spent: false };
            return Ok(None);
        };
        let handle = Handle {
            cluster_id: self.config.cluster_id.clone(),
            brokers: self.config.brokers.clone(),
            lane: self.config.lane.clone(),
            transactional_id: self.config.lane.id_of(&self.config.job, self.config.naming, epoch),
            identity,
            version: self.config.version,
            epoch,
            started_ms: written.started_ms,
            deadline_ms: written.deadline_ms,
            partitions: written.partitions,
        };
        handle.check()?;
        *self.id(epoch) = IdState::Prepared { epoch, identity };
        Ok(Some(handle))
    }

    /// Every record of the epoch is acknowledged, if there is any, and its transaction stays open to carry positions:
    /// there is no handle, since nobody but this run will end it.
    pub fn carrying(&mut self, epoch: Epoch, partitions: Vec<(String, i32, i64)>) -> Carrier {
        let IdState::Flushing { epoch: at, identity } = *self.id(epoch) else {
            panic!("epoch {epoch} is not being flushed");
        };
        assert!(at == epoch, "another epoch is being flushed");
        *self.id(epoch) = IdState::Prepared { epoch, identity };
        let transactional_id = self.config.lane.transactional_id(&self.config.job, epoch);
        Carrier { transactional_id, identity, version: self.config.version, partitions }
    }

    /// The epoch is decided; EndTxn(commit) is about to be sent.
    pub fn committing(&mut self, epoch: Epoch) {
        let id = self.id(epoch);
        match *id {
            IdState::Prepared { epoch: at, identity } if at == epoch => {
                *id = IdState::Committing { epoch, identity };
            }
            other => panic!("commit of epoch {epoch} met {other:?}"),
        }
    }

    /// EndTxn(commit) has ended one way or the other.
    pub fn ended(&mut self, epoch: Epoch, outcome: Outcome) {
        let id = self.id(epoch);
        match *id {
            IdState::Committing { epoch: at, identity } if at == epoch => {
                *id = match outcome {
                    Outcome::Committed { next } => IdState::Committed { epoch, next },
                    Outcome::Aborted => IdState::Aborted { epoch, identity },
                    Outcome::Unknown => IdState::Unknown { epoch, identity },
                };
            }
            other => panic!("the end of epoch {epoch} met {other:?}"),
        }
    }

    /// The outcomes of this epoch and of all before it are in the chain: their ids may be used again.
    pub fn recorded(&mut self, epoch: Epoch) {
        let spent = self.config.version == TransactionVersion::V1;
        for id in &mut self.ids {
            match *id {
                IdState::Committed { epoch: at, next } if at <= epoch => {
                    *id = IdState::Free { identity: next, spent };
                }
                IdState::Free { .. }
                | IdState::Identifying { .. }
                | IdState::Open { .. }
                | IdState::Flushing { .. }
                | IdState::Prepared { .. }
                | IdState::Committing { .. }
                | IdState::Committed { .. }
                | IdState::Aborted { .. }
                | IdState::Unknown { .. } => {}
            }
        }
    }

    /// The invariants.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        for (index, id) in self.ids.iter().enumerate() {
            let home = id.epoch().is_none_or(|epoch| usize::from(epoch.id_index()) == index);
            holds(home, "an epoch stands on the id of its number")?;
            let alone = self.ids[index + 1..].iter().all(|other| other.identity() != id.identity());
            holds(alone, "no two ids share an identity")?;
        }
        let writing = || self.ids.iter().filter_map(IdState::writing);
        holds(writing().count() <= 1, "one epoch of a lane is written at a time")?;
        let newest = |epoch| self.ids.iter().filter_map(IdState::epoch).all(|other| other <= epoch);
        holds(writing().all(newest), "the epoch that is written is the newest")?;
        let unfit = |id: &IdState| {
            id.epoch().is_some()
                && !matches!(id, IdState::Identifying { .. } | IdState::Committed { .. })
                && id.identity().producer_epoch >= LAST_PRODUCER_EPOCH
        };
        holds(!self.ids.iter().any(unfit), "nothing is written at the last producer epoch")
    }

    fn stand_on(&mut self, epoch: Epoch, identity: Identity, init: bool) -> OpenWith {
        *self.id(epoch) = if init {
            IdState::Identifying { epoch, own: identity }
        } else {
            IdState::Open { epoch, identity }
        };
        let transactional_id = self.config.lane.id_of(&self.config.job, self.config.naming, epoch);
        OpenWith { transactional_id, identity, init, is_fresh: false }
    }

    fn id(&mut self, epoch: Epoch) -> &mut IdState {
        &mut self.ids[usize::from(epoch.id_index())]
    }
}

impl IdState {
    /// The epoch that stands on the id.
    pub fn epoch(&self) -> Option<Epoch> {
        match *self {
            Self::Free { .. } => None,
            Self::Identifying { epoch, .. }
            | Self::Open { epoch, .. }
            | Self::Flushing { epoch, .. }
            | Self::Prepared { epoch, .. }
            | Self::Committing { epoch, .. }
            | Self::Committed { epoch, .. }
            | Self::Aborted { epoch, .. }
            | Self::Unknown { epoch, .. } => Some(epoch),
        }
    }

    /// The newest identity known of the id.
    pub fn identity(&self) -> Identity {
        match *self {
            Self::Identifying { own: identity, .. }
            | Self::Committed { next: identity, .. }
            | Self::Free { identity, .. }
            | Self::Open { identity, .. }
            | Self::Flushing { identity, .. }
            | Self::Prepared { identity, .. }
            | Self::Committing { identity, .. }
            | Self::Aborted { identity, .. }
            | Self::Unknown { identity, .. } => identity,
        }
    }

    fn writing(&self) -> Option<Epoch> {
        match *self {
            Self::Identifying { epoch, .. } | Self::Open { epoch, .. } | Self::Flushing { epoch, .. } => {
                Some(epoch)
            }
            Self::Free { .. }
            | Self::Prepared { .. }
            | Self::Committing { .. }
            | Self::Committed { .. }
            | Self::Aborted { .. }
            | Self::Unknown { .. } => None,
        }
    }
}
