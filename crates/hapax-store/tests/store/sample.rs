//! Values to store: one of every kind.

use hapax_commit::*;
use hapax_store::{Patience, Sleep, Store};
use object_store::ObjectStore;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

pub(crate) const RUN: RunNonce = RunNonce(0x1111);
pub(crate) const OTHER_RUN: RunNonce = RunNonce(0x2222);

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn job() -> Name {
    name("orders")
}

pub(crate) fn sleep() -> Sleep {
    Arc::new(|duration| Box::pin(tokio::time::sleep(duration)))
}

pub(crate) fn patience() -> Patience {
    Patience {
        tries: 4,
        first_wait: Duration::from_millis(1),
        longest_wait: Duration::from_millis(4),
        answer_limit: Duration::from_secs(60),
    }
}

pub(crate) fn over(store: Arc<dyn ObjectStore>) -> Store {
    Store::from_object_store(store, "test:///", patience(), sleep())
}

pub(crate) fn open(root: &Path) -> Store {
    Store::open(&format!("file://{}", root.display()), patience(), sleep()).unwrap()
}

pub(crate) fn record(job: &Name) -> JobRecord {
    let split = SplitId("main/orders/0".to_owned());
    let start = Position {
        next: 100,
        leader_epoch: Some(7),
        topic_id: Some(TopicId([1; 16])),
        file: None,
        end: Some(900),
    };
    JobRecord {
        job: job.clone(),
        created_ms: 1_790_000_000_000,
        decider: DeciderKind::Checkpoint,
        assignment: AssignmentKind::All,
        naming: Naming::Rotating,
        clusters: BTreeMap::from([(
            name("main"),
            ClusterRecord { cluster_id: "4L6g3nShT-eMCtK--X86sw".to_owned(), brokers: "k1:9092".to_owned() },
        )]),
        topics: BTreeMap::from([(
            "main/orders".to_owned(),
            TopicRecord { topic_id: TopicId([1; 16]), partitions: 1 },
        )]),
        layout: Layout { number: 1, shards: BTreeMap::from([(ShardId(0), vec![split.clone()])]) },
        genesis: BTreeMap::from([(split, start)]),
        pipeline: "job = \"orders\"\n# \u{e4}\u{1f980}\n".to_owned(),
    }
}

fn lane() -> LaneId {
    LaneId { cluster: name("main"), shard: ShardId(0) }
}

fn slot(number: u64, generation: u64, run: RunNonce, body: SlotBody) -> Slot {
    Slot {
        number: SlotNumber(number),
        run,
        generation: Generation(generation),
        written_ms: 1_790_000_000_000 + i64::try_from(number).unwrap(),
        body,
    }
}

pub(crate) fn claim(number: u64, run: RunNonce) -> Slot {
    let ids = lane().transactional_ids(&job()).to_vec();
    let ids = BTreeMap::from([("4L6g3nShT-eMCtK--X86sw".to_owned(), ids)]);
    slot(
        number,
        number,
        run,
        SlotBody::Claim(Claim { ids, layout: 1, naming: Naming::Rotating, by: "host-1 pid 42".to_owned() }),
    )
}

pub(crate) fn handle(epoch: u64) -> Handle {
    Handle {
        cluster_id: "4L6g3nShT-eMCtK--X86sw".to_owned(),
        brokers: "k1:9092".to_owned(),
        lane: lane(),
        transactional_id: lane().transactional_id(&job(), Epoch(epoch)),
        identity: Identity { producer_id: ProducerId(9000), producer_epoch: ProducerEpoch(3) },
        version: TransactionVersion::V2,
        epoch: Epoch(epoch),
        started_ms: 1_790_000_000_000,
        deadline_ms: 1_790_000_900_000,
        partitions: vec![HandlePartition {
            topic: "orders-large".to_owned(),
            topic_id: TopicId([2; 16]),
            partition: 0,
            first_offset: 10,
            last_offset: 19,
            count: 10,
            digest: Some(0xdead_beef),
        }],
    }
}

pub(crate) fn manifest(number: u64, generation: u64, run: RunNonce, epoch: u64) -> Slot {
    let mut positions = record(&job()).genesis;
    positions.values_mut().for_each(|position| position.next += 10 * epoch);
    let body =
        Manifest { epoch: Epoch(epoch), positions, handles: vec![handle(epoch)], journals: Vec::new() };
    slot(number, generation, run, SlotBody::Manifest(body))
}

/// A chain in which every kind of slot stands that format 1 began with, as four runs may leave it.
pub(crate) fn every_kind() -> Vec<Slot> {
    let [third, fourth] = [RunNonce(0x3333), RunNonce(u128::MAX)];
    vec![
        claim(1, RUN),
        manifest(2, 1, RUN, 1),
        claim(3, OTHER_RUN),
        slot(4, 3, OTHER_RUN, SlotBody::Amend { epoch: Epoch(1), handles: vec![handle(2)] }),
        slot(5, 3, OTHER_RUN, SlotBody::Proven { epoch: Epoch(1), finished: false }),
        manifest(6, 3, OTHER_RUN, 3),
        claim(7, third),
        slot(8, 7, third, SlotBody::Void { epoch: Epoch(3) }),
        manifest(9, 7, third, 4),
        claim(10, fourth),
        slot(11, 10, fourth, SlotBody::Abandoned { epoch: Epoch(4), incident: "i-3".to_owned() }),
        manifest(12, 10, fourth, 5),
        slot(13, 10, fourth, SlotBody::Proven { epoch: Epoch(5), finished: true }),
    ]
}

/// A chain of a job that was changed: another number of shards and another topic, then back to an older checkpoint.
pub(crate) fn changed() -> Vec<Slot> {
    let added = SplitId("main/more/0".to_owned());
    let start = record(&job()).genesis.into_values().next().unwrap();
    let mut shape = Shape::of(&record(&job())).with_splits(&[(added, start)].into(), &BTreeSet::new());
    shape = shape.with_shards(2);
    let revision = Revision { behind: Epoch(1), left: vec!["gone".to_owned()], shape };
    let copy = Manifest {
        epoch: Epoch(2),
        positions: revision.shape.positions(None),
        handles: Vec::new(),
        journals: Vec::new(),
    };
    vec![
        claim(1, RUN),
        manifest(2, 1, RUN, 1),
        slot(3, 1, RUN, SlotBody::Proven { epoch: Epoch(1), finished: false }),
        claim(4, OTHER_RUN),
        slot(5, 4, OTHER_RUN, SlotBody::Revision(revision)),
        slot(6, 4, OTHER_RUN, SlotBody::Restored { from: Epoch::GENESIS, manifest: copy }),
        manifest(7, 4, OTHER_RUN, 3),
    ]
}

/// A folder of its own, removed with everything in it at the end of the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    #[allow(clippy::disallowed_methods, reason = "the file system is what is tested")]
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("hapax-store-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
