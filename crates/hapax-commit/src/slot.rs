//! What a chain is made of, and the job record in front of it.
//!
//! A cohort's chain is one numbered sequence of create-only slots. Its meaning is in [`crate::chain`].

use crate::{
    envelope::{self, DamagedBytes, Kind},
    handle::Handle,
    id::{Epoch, Generation, Name, Naming, RunNonce, ShardId, SlotNumber, TopicId, TransactionalId},
    journal::Journal,
    position::Positions,
    revision::Revision,
};
use alloc::{collections::BTreeMap, string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// One object of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// Its place.
    pub number: SlotNumber,
    /// The run that wrote it.
    pub run: RunNonce,
    /// The slot of that run's claim (its own number for a claim).
    pub generation: Generation,
    /// Wall time of writing in milliseconds since 1970. Advice.
    pub written_ms: i64,
    /// What it says.
    pub body: SlotBody,
}

/// What a slot says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotBody {
    /// A run takes over.
    Claim(Claim),
    /// An epoch is decided; it also proves the epoch before it.
    Manifest(Manifest),
    /// New handles for the decided epoch; the named lanes' old ones are void.
    Amend {
        /// The decided epoch.
        epoch: Epoch,
        /// The handles that replace those of the same lanes. Each carries the fresh epoch number that it was written
        /// under, above every number used before, so that its id is again a function of its number and holds no
        /// evidence about the handle that it replaces.
        handles: Vec<Handle>,
    },
    /// The decided epoch is given up: every lane was seen aborted, its input is read again.
    Void {
        /// The epoch given up.
        epoch: Epoch,
    },
    /// The decided epoch is given up with its records lost or held aside, as an incident says.
    Abandoned {
        /// The epoch abandoned.
        epoch: Epoch,
        /// Name of the incident.
        incident: String,
    },
    /// Every lane of the decided epoch is known to be committed.
    Proven {
        /// The epoch.
        epoch: Epoch,
        /// A bounded job has ended: nothing is left to read.
        finished: bool,
    },
    /// Shards, splits or the pipeline are others from here on.
    Revision(Revision),
    /// A person goes back to an older checkpoint: its copy, under a fresh number and without transactions.
    Restored {
        /// The checkpoint that is copied; 0 is genesis.
        from: Epoch,
        /// The copy.
        manifest: Manifest,
    },
}

/// A run's claim: names every id that the run may use, so that its successors can fence them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// Ids by the Kafka id of their cluster.
    pub ids: BTreeMap<String, Vec<TransactionalId>>,
    /// Layout that the run works under.
    pub layout: u32,
    /// How the ids are named: per epoch, the run may also use those of the numbers behind each of its manifests.
    #[serde(default, skip_serializing_if = "Naming::is_rotating")]
    pub naming: Naming,
    /// Who: host and process, for people.
    pub by: String,
}

/// A decided epoch: the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manifest {
    /// The epoch.
    pub epoch: Epoch,
    /// Positions behind the epoch's last record, of every split of every shard.
    pub positions: Positions,
    /// Prepared transactions; a lane that wrote nothing has none.
    pub handles: Vec<Handle>,
    /// Journals of those lanes that keep one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub journals: Vec<Journal>,
}

/// What stands in the store before the first record is read; create-only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job's name: prefix of every id that it owns.
    pub job: Name,
    /// Wall time of creation in milliseconds since 1970. Advice.
    pub created_ms: i64,
    /// What makes an epoch final.
    pub decider: DeciderKind,
    /// How shards are given to processes.
    pub assignment: AssignmentKind,
    /// How transactional ids are named.
    #[serde(default, skip_serializing_if = "Naming::is_rotating")]
    pub naming: Naming,
    /// Clusters by their name in the pipeline file.
    pub clusters: BTreeMap<Name, ClusterRecord>,
    /// Topics of sources and sinks, by `cluster/topic`.
    pub topics: BTreeMap<String, TopicRecord>,
    /// Number of shards, and the splits that each owns.
    pub layout: Layout,
    /// Start (and, where bounded, end) positions of every split: checkpoint 0.
    pub genesis: Positions,
    /// The pipeline file's text as it was given, before variables were expanded.
    pub pipeline: String,
}

/// The kinds of decider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeciderKind {
    /// A manifest in the chain.
    Checkpoint,
    /// The transaction that has the records has the positions, too.
    Transaction,
}

impl DeciderKind {
    /// Its name in the pipeline file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Transaction => "transaction",
        }
    }
}

/// The kinds of assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AssignmentKind {
    /// One process has all shards.
    All,
}

/// A cluster as the job met it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// Kafka's id of the cluster.
    pub cluster_id: String,
    /// Addresses at that time. Advice.
    pub brokers: String,
}

/// A topic as the job met it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TopicRecord {
    /// Kafka's id of the topic.
    pub topic_id: TopicId,
    /// Number of partitions.
    pub partitions: i32,
}

/// Which shard reads what.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Rises with each change.
    pub number: u32,
    /// Splits by shard; every shard stands here, also one without splits.
    pub shards: BTreeMap<ShardId, Vec<crate::position::SplitId>>,
}

impl Slot {
    /// Durable bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(Kind::Slot, self)
    }

    /// Reads what [`Slot::to_bytes`] wrote.
    ///
    /// # Errors
    /// Damaged bytes, a newer version, or a handle that breaks an invariant.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DamagedBytes> {
        let slot: Self = envelope::open(Kind::Slot, bytes)?;
        slot.handles().iter().try_for_each(Handle::check).map_err(DamagedBytes::Handle)?;
        Ok(slot)
    }

    /// The handles that the slot names.
    pub fn handles(&self) -> &[Handle] {
        match &self.body {
            SlotBody::Manifest(manifest) => &manifest.handles,
            SlotBody::Amend { handles, .. } => handles,
            SlotBody::Claim(_)
            | SlotBody::Void { .. }
            | SlotBody::Abandoned { .. }
            | SlotBody::Proven { .. }
            | SlotBody::Revision(_)
            | SlotBody::Restored { .. } => &[],
        }
    }
}

impl JobRecord {
    /// Durable bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        envelope::seal(Kind::Job, self)
    }

    /// Reads what [`JobRecord::to_bytes`] wrote.
    ///
    /// # Errors
    /// Damaged bytes or a newer version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DamagedBytes> {
        envelope::open(Kind::Job, bytes)
    }
}
