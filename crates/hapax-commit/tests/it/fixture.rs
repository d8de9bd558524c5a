//! Small things to build tests from: one job `orders`, one lane `main.<shard>` per shard, one cluster `C`.

use hapax_commit::{
    AssignmentKind, ChainFault, ChainView, Claim, DeciderKind, Epoch, Generation, Handle, HandlePartition,
    IdAt, Identity, JobRecord, Lane, LaneConfig, LaneId, Layout, Manifest, Name, Naming, Position, Positions,
    ProducerEpoch, ProducerId, RunNonce, ShardId, Slot, SlotBody, SlotNumber, SplitId, TopicId,
    TransactionVersion, TransactionalId,
};
use std::collections::BTreeMap;

pub(crate) const CLUSTER: &str = "C";

pub(crate) fn job() -> Name {
    Name::new("orders").unwrap()
}

pub(crate) fn lane(shard: u32) -> LaneId {
    LaneId { cluster: Name::new("main").unwrap(), shard: ShardId(shard) }
}

pub(crate) fn identity(producer: i64, epoch: i16) -> Identity {
    Identity { producer_id: ProducerId(producer), producer_epoch: ProducerEpoch(epoch) }
}

/// A lane whose ids have producers 100, 101 and 102, at one producer epoch.
pub(crate) fn named_lane(version: TransactionVersion, epoch: i16, naming: Naming) -> Lane {
    let config = LaneConfig {
        job: job(),
        lane: lane(0),
        cluster_id: CLUSTER.into(),
        brokers: "b:9092".into(),
        version,
        naming,
        first: Epoch(1),
    };
    Lane::new(config, [100, 101, 102].map(|producer| identity(producer, epoch)))
}

/// What the job was created as: two shards, nothing of clusters and topics.
pub(crate) fn record() -> JobRecord {
    let genesis = positions(0);
    JobRecord {
        job: job(),
        created_ms: 0,
        decider: DeciderKind::Checkpoint,
        assignment: AssignmentKind::All,
        naming: Naming::Rotating,
        clusters: BTreeMap::new(),
        topics: BTreeMap::new(),
        layout: Layout::dealt(1, genesis.keys(), 2),
        genesis,
        pipeline: String::new(),
    }
}

/// A handle of V2, producer `100 + shard` at producer epoch 5, one partition.
pub(crate) fn handle(shard: u32, epoch: u64) -> Handle {
    Handle {
        cluster_id: CLUSTER.into(),
        brokers: "b:9092".into(),
        lane: lane(shard),
        transactional_id: lane(shard).transactional_id(&job(), Epoch(epoch)),
        identity: identity(100 + i64::from(shard), 5),
        version: TransactionVersion::V2,
        epoch: Epoch(epoch),
        started_ms: 0,
        deadline_ms: 1_000_000 + i64::from(shard),
        partitions: vec![HandlePartition {
            topic: "out".into(),
            topic_id: TopicId([7; 16]),
            partition: shard as i32,
            first_offset: 10,
            last_offset: 19,
            count: 10,
            digest: None,
        }],
    }
}

pub(crate) fn ids(shards: u32) -> Vec<TransactionalId> {
    (0..shards).flat_map(|shard| lane(shard).transactional_ids(&job())).collect()
}

pub(crate) fn at(id: TransactionalId) -> IdAt {
    IdAt { cluster_id: CLUSTER.into(), id }
}

/// One split per shard, all at the same position.
pub(crate) fn positions(next: u64) -> Positions {
    let split = |shard| SplitId(format!("in/topic/{shard}"));
    let at = |next| Position { next, leader_epoch: None, topic_id: None, file: None, end: None };
    (0..2).map(|shard| (split(shard), at(next))).collect()
}

/// Positions at ten records per epoch.
pub(crate) fn manifest(epoch: u64, handles: Vec<Handle>) -> SlotBody {
    SlotBody::Manifest(Manifest {
        epoch: Epoch(epoch),
        positions: positions(10 * epoch),
        handles,
        journals: Vec::new(),
    })
}

pub(crate) fn proven(epoch: u64) -> SlotBody {
    SlotBody::Proven { epoch: Epoch(epoch), finished: false }
}

pub(crate) fn finished(epoch: u64) -> SlotBody {
    SlotBody::Proven { epoch: Epoch(epoch), finished: true }
}

pub(crate) fn void(epoch: u64) -> SlotBody {
    SlotBody::Void { epoch: Epoch(epoch) }
}

/// Slots as a run after another would write them.
#[derive(Clone, Default)]
pub(crate) struct Slots {
    pub(crate) all: Vec<Slot>,
    run: u128,
    generation: u64,
}

impl Slots {
    /// A chain that begins with a claim of run 1 for two shards.
    pub(crate) fn claimed() -> Self {
        Self::default().claim(2)
    }

    pub(crate) fn claim(self, shards: u32) -> Self {
        let claim = Claim {
            ids: [(CLUSTER.into(), ids(shards))].into(),
            layout: 1,
            naming: Naming::Rotating,
            by: "test".into(),
        };
        self.claim_as(SlotBody::Claim(claim))
    }

    /// Another run claims, in these words.
    pub(crate) fn claim_as(mut self, claim: SlotBody) -> Self {
        self.run += 1;
        self.generation = self.all.len() as u64 + 1;
        self.put(claim)
    }

    pub(crate) fn put(mut self, body: SlotBody) -> Self {
        let number = SlotNumber(self.all.len() as u64 + 1);
        let (run, generation) = (RunNonce(self.run), Generation(self.generation));
        self.all.push(Slot { number, run, generation, written_ms: 0, body });
        self
    }

    pub(crate) fn decide(self, epoch: u64) -> Self {
        self.put(manifest(epoch, vec![handle(0, epoch), handle(1, epoch)]))
    }

    pub(crate) fn read(&self) -> Result<ChainView, ChainFault> {
        ChainView::read(&self.all)
    }

    pub(crate) fn view(&self) -> ChainView {
        self.read().unwrap()
    }

    pub(crate) fn without(mut self, numbers: &[u64]) -> Self {
        self.all.retain(|slot| !numbers.contains(&slot.number.0));
        self
    }

    pub(crate) fn run(&self) -> RunNonce {
        RunNonce(self.run)
    }
}
