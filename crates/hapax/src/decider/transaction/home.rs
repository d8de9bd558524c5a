//! Where a job's positions are committed: as the offsets of the source's own group, or on a carrier topic.
//!
//! Owns which (topic, partition) a split or shard has, and what stands beside its offset. Where the source's partitions
//! are on the sink's cluster, theirs are used, so that tools show the job's lag; else `<job>.progress` has a partition
//! for each shard and no records, since a broker refuses offsets of topics that it lacks.

use super::TransactionStart;
use crate::{
    error::{Code, JobError},
    job::Plan,
    limits,
};
use hapax_commit::{
    Bookmark, CarriedPositions, Epoch, Identity, Layout, Marked, Name, Position, Positions, Present,
    ProducerEpoch, ProducerId, Reading, ShardId, SplitId, TopicId,
    bookmark::{self, CARRIER_OFFSET},
};
use hapax_host::Deadline;
use hapax_kafka::{
    Client, ClientError,
    admin::{self, CommittedOffset},
    transaction::OffsetToCommit,
};
use std::collections::{BTreeMap, BTreeSet};

/// Where positions are committed.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) kind: bookmark::Home,
    job: Name,
    cluster: Name,
    layout: u32,
    shards: u32,
    splits: u32,
    /// How many shards the job has ever had.
    ever: u32,
    /// Topic and partition of each split (group) or shard (carrier).
    places: BTreeMap<Key, (String, i32)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Split(SplitId),
    Shard(ShardId),
}

/// The cluster of the exactly-once sinks.
pub(super) fn sink_cluster(plan: &Plan) -> &Name {
    let mut clusters = plan.transactional_clusters().into_iter();
    clusters.next().expect("decider transaction is planned only with exactly-once sinks on one cluster")
}

/// The group whose offsets are a job's progress.
pub(crate) fn group(job: &Name) -> String {
    job.to_string()
}

impl Home {
    /// The home that a layout has, as the pipeline stands.
    pub(super) async fn planned(
        start: &TransactionStart,
        layout: &Layout,
        sink: &Client,
    ) -> Result<Self, JobError> {
        let in_group = places_in_group(start, layout, sink).await?.filter(are_distinct);
        let (kind, places) = match in_group {
            Some(places) => (bookmark::Home::Group, places),
            None => (bookmark::Home::Carrier, places_on_carrier(&start.plan.name, layout)),
        };
        Ok(Self::with((&start.plan.name, sink_cluster(&start.plan)), kind, layout, places))
    }

    /// The home that bookmarks are found in, whatever the pipeline has become since.
    pub(super) fn found(job: &Name, cluster: &Name, present: &Present) -> Self {
        let splits = present.splits.iter().map(|(split, place)| (Key::Split(split.clone()), place.clone()));
        let shards = present.shards.iter().map(|(shard, place)| (Key::Shard(*shard), place.clone()));
        Self::with((job, cluster), present.home, &present.layout, splits.chain(shards).collect())
            .ever(present.ever)
    }

    /// The home of the same splits in other shards.
    pub(super) fn reshaped(&self, layout: &Layout) -> Self {
        let places = match self.kind {
            bookmark::Home::Group => self.places.clone(),
            bookmark::Home::Carrier => places_on_carrier(&self.job, layout),
        };
        Self::with((&self.job, &self.cluster), self.kind, layout, places).ever(self.ever)
    }

    fn with(
        (job, cluster): (&Name, &Name),
        kind: bookmark::Home,
        layout: &Layout,
        places: BTreeMap<Key, (String, i32)>,
    ) -> Self {
        let shards = layout.shards.len() as u32;
        let splits = layout.shards.values().map(|splits| splits.len() as u32).sum();
        let (job, cluster) = (job.clone(), cluster.clone());
        Self { kind, job, cluster, layout: layout.number, shards, splits, ever: shards, places }
    }

    /// The same of a job that has had so many shards before.
    pub(super) fn ever(mut self, ever: u32) -> Self {
        self.ever = self.ever.max(ever);
        self
    }

    /// How many shards the job has ever had.
    pub(super) fn shards_ever(&self) -> u32 {
        self.ever
    }

    /// Do the same splits or shards stand in the same places?
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.kind, &self.places) == (other.kind, &other.places)
    }

    /// The group.
    pub(super) fn group(&self) -> String {
        group(&self.job)
    }

    /// The topic without records that the job makes, and its partitions: it carries offsets of shards, or else tells that
    /// the job has begun, since brokers forget the offsets and ids of a job that is stopped for long, and no topic.
    pub(super) fn own_topic(&self) -> (String, i32) {
        let partitions = match self.kind {
            bookmark::Home::Group => 1,
            bookmark::Home::Carrier => i32::try_from(self.shards).unwrap_or(i32::MAX),
        };
        (own_topic(&self.job), partitions)
    }

    /// Every place where an offset of the job is committed.
    pub(super) fn places(&self) -> BTreeSet<&(String, i32)> {
        self.places.values().collect()
    }

    /// The topics of those places.
    pub(super) fn topics(&self) -> BTreeSet<&str> {
        self.places.values().map(|(topic, _)| topic.as_str()).collect()
    }

    /// Where a shard's offsets are.
    pub(super) fn places_of(&self, layout: &Layout, shard: ShardId) -> BTreeSet<(String, i32)> {
        let splits = layout.shards.get(&shard).into_iter().flatten();
        let keys = splits.map(|split| Key::Split(split.clone())).chain([Key::Shard(shard)]);
        keys.filter_map(|key| self.places.get(&key).cloned()).collect()
    }

    /// What a shard's epoch commits: its offsets, every one of them, and what does not fit beside them in `room` bytes.
    pub(super) fn offsets(
        &self,
        shard: ShardId,
        epoch: Epoch,
        by: Identity,
        positions: &Positions,
        room: usize,
    ) -> Carried {
        let bookmark = |at: Reading| Bookmark {
            job: self.job.clone(),
            cluster: Some(self.cluster.clone()),
            layout: self.layout,
            shards: self.shards,
            most: if self.ever > self.shards { self.ever } else { 0 },
            splits: self.splits,
            shard,
            epoch,
            by,
            at,
        };
        match self.kind {
            bookmark::Home::Group => Carried::in_place(
                positions
                    .iter()
                    .map(|(split, position)| {
                        let (topic, partition) = &self.places[&Key::Split(split.clone())];
                        OffsetToCommit {
                            topic: topic.clone(),
                            partition: *partition,
                            offset: i64::try_from(position.next).unwrap_or(i64::MAX),
                            leader_epoch: position.leader_epoch,
                            metadata: bookmark(Reading::Positions(
                                [(split.clone(), position.clone())].into(),
                            ))
                            .to_text(),
                        }
                    })
                    .collect(),
            ),
            bookmark::Home::Carrier => {
                let (topic, partition) = &self.places[&Key::Shard(shard)];
                let offset = |metadata| OffsetToCommit {
                    topic: topic.clone(),
                    partition: *partition,
                    offset: CARRIER_OFFSET,
                    leader_epoch: None,
                    metadata,
                };
                let text = bookmark(Reading::Positions(positions.clone())).to_text();
                if length(&text) <= room {
                    return Carried::in_place(vec![offset(text)]);
                }
                let (job, positions) = (self.job.clone(), positions.clone());
                let object = CarriedPositions { job, shard, epoch, by, positions };
                let pointer = bookmark(Reading::Object(object.name().to_text())).to_text();
                Carried { offsets: vec![offset(pointer)], object: Some(object) }
            }
        }
    }

    /// What will ever stand beside an offset has room there: asked before the first record is read. On a carrier topic, what
    /// has none goes to the store.
    pub(super) fn check_room(
        &self,
        layout: &Layout,
        genesis: &Positions,
        limit: usize,
        has_store: bool,
    ) -> Result<(), JobError> {
        if has_store && self.kind == bookmark::Home::Carrier {
            return Ok(());
        }
        let by = Identity { producer_id: ProducerId(i64::MAX), producer_epoch: ProducerEpoch(i16::MAX) };
        for (&shard, splits) in &layout.shards {
            let longest = splits.iter().map(|split| (split.clone(), longest(genesis.get(split)))).collect();
            let carried = self.offsets(shard, Epoch(u64::MAX), by, &longest, usize::MAX);
            let size = carried.offsets.iter().map(|offset| length(&offset.metadata)).max();
            if let Some(size) = size.filter(|&size| size > limit) {
                return Err(JobError::Configuration {
                    code: Code::Contradiction,
                    message: format!(
                        "job {}: the positions of shard {shard} ({} splits) take up to {size} bytes beside a committed \
                         offset, and the broker takes {limit} (offset.metadata.max.bytes); raise that, set run.shards \
                         to more than {}, or give the job a [checkpoint] store{}",
                        self.job,
                        splits.len(),
                        self.shards,
                        if has_store {
                            " and decider = \"checkpoint\""
                        } else {
                            ", which takes what has no room"
                        }
                    ),
                });
            }
        }
        Ok(())
    }
}

/// What a shard's epoch commits.
pub(super) struct Carried {
    pub(super) offsets: Vec<OffsetToCommit>,
    /// The positions that an offset points to.
    pub(super) object: Option<CarriedPositions>,
}

impl Carried {
    pub(super) fn in_place(offsets: Vec<OffsetToCommit>) -> Self {
        Self { offsets, object: None }
    }
}

/// As a broker counts what stands beside an offset.
fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

/// The longest position that a split may come to.
fn longest(genesis: Option<&Position>) -> Position {
    Position {
        next: u64::MAX,
        leader_epoch: Some(i32::MAX),
        topic_id: Some(TopicId([0xff; 16])),
        file: genesis.and_then(|position| position.file.clone()),
        end: Some(u64::MAX),
    }
}

fn are_distinct(places: &BTreeMap<Key, (String, i32)>) -> bool {
    places.values().collect::<BTreeSet<_>>().len() == places.len()
}

/// The partitions that the splits are; `None` where a source is not Kafka, or on another cluster.
async fn places_in_group(
    start: &TransactionStart,
    layout: &Layout,
    sink: &Client,
) -> Result<Option<BTreeMap<Key, (String, i32)>>, JobError> {
    let mut places = BTreeMap::new();
    for source in &start.plan.sources {
        let Some(cluster) = source.kafka_cluster() else { return Ok(None) };
        let same = cluster == sink_cluster(&start.plan)
            || start.sources.clusters.connected(cluster).await?.cluster_id() == sink.cluster_id();
        if !same {
            return Ok(None);
        }
        let prefix = format!("{}/", source.name());
        let splits = layout.shards.values().flatten();
        for split in splits.filter(|split| split.0.starts_with(&prefix)) {
            if let Some((topic, partition)) = source.kafka_partition(split) {
                places.insert(Key::Split(split.clone()), (topic.to_owned(), partition));
            }
        }
    }
    let count = layout.shards.values().flatten().count();
    Ok(Some(places).filter(|places| places.len() == count))
}

fn places_on_carrier(job: &Name, layout: &Layout) -> BTreeMap<Key, (String, i32)> {
    let topic = own_topic(job);
    let place = |shard: &ShardId| {
        let partition = i32::try_from(shard.0).unwrap_or(i32::MAX);
        (Key::Shard(*shard), (topic.clone(), partition))
    };
    layout.shards.keys().map(place).collect()
}

/// The topic that a job of decider `transaction` makes.
pub(crate) fn own_topic(job: &Name) -> String {
    format!("{job}.progress")
}

pub(super) async fn metadata_limit(start: &TransactionStart, sink: &Client) -> usize {
    let patience = Deadline::after(start.host.now(), Some(limits::REPORT_EVERY));
    match admin::broker_config(sink, "offset.metadata.max.bytes", patience).await {
        Ok(value) => value.and_then(|value| value.parse().ok()).unwrap_or(limits::OFFSET_METADATA_BYTES),
        Err(error) => {
            tracing::info!(job = %start.plan.name, "the broker's offset.metadata.max.bytes could not be read ({error})");
            limits::OFFSET_METADATA_BYTES
        }
    }
}

/// Bookmarks of a job among the offsets of its group, without asking whether they are whole.
///
/// # Errors
/// The group's coordinator does not answer, or refuses.
pub(crate) async fn bookmarked_by(
    client: &Client,
    job: &Name,
    patience: Deadline,
) -> Result<Vec<Marked>, ClientError> {
    let offsets = admin::committed_offsets(client, &group(job), false, patience).await?;
    let marked = |offset: CommittedOffset| {
        let mark = Bookmark::parse(&offset.metadata).ok().filter(|mark| mark.job == *job)?;
        Some(Marked { topic: offset.topic, partition: offset.partition, mark })
    };
    Ok(offsets.committed.into_iter().filter_map(marked).collect())
}
