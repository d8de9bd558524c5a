//! What stands beside a committed offset under decider `transaction`: everything that a run needs to go on.
//!
//! Owns the text, and what the bookmarks of a group say together. Refuses to make progress of anything but a whole set:
//! one per split (or per shard, on a carrier topic), all of a shard's from one transaction. What is missing or not ours is
//! a person's business, since a job that begins anew writes its records a second time.
//!
//! ```text
//! hapax 1 {"job":"orders","layout":1,"shards":4,"splits":8,"shard":2,"epoch":17,"by":{...},"at":{"positions":{...}}}
//! ```
//!
//! A bookmark names the transaction that carries it. As offsets are read only when they are committed, that is a proof:
//! whatever else is left of that transaction was committed with it.

use crate::{
    evidence::{Described, TransactionState},
    id::{Epoch, Identity, Name, ProducerEpoch, ShardId, TransactionVersion, TransactionalId},
    position::Positions,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;
use serde::{Deserialize, Serialize};

/// The format that this release writes; it reads all up to it.
pub const BOOKMARK_VERSION: u32 = 1;

const NAME: &str = "hapax ";

/// What stands beside one committed offset.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bookmark {
    /// The job.
    pub job: Name,
    /// What the pipeline calls the cluster, after which the job's ids are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Name>,
    /// Number of the layout.
    pub layout: u32,
    /// Shards of the layout.
    pub shards: u32,
    /// The most shards that any layout of the job has had, where that is more: a start clears their ids, too (H17).
    #[serde(default, skip_serializing_if = "is_none")]
    pub most: u32,
    /// Splits of all shards together.
    pub splits: u32,
    /// The shard.
    pub shard: ShardId,
    /// The shard's epoch; 0 is genesis, which one transaction carries for all shards.
    pub epoch: Epoch,
    /// The transaction that carries this.
    pub by: Identity,
    /// Where reading goes on.
    pub at: Reading,
}

/// Where reading goes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// Here.
    Positions(Positions),
    /// In an object of the checkpoint store, since the broker takes no text that long.
    Object(String),
}

/// A layout with as many shards as the job has ever had says nothing of others.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_none(most: &u32) -> bool {
    *most == 0
}

/// A text that is not a bookmark which this release reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NotABookmark {
    /// Nothing is there: a tool that sets offsets leaves none.
    Empty,
    /// Somebody else's.
    Foreign,
    /// A newer release's.
    Newer(u32),
    /// Ours, and damaged.
    Damaged(String),
}

impl fmt::Display for NotABookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing stands beside the offset"),
            Self::Foreign => f.write_str("what stands beside the offset was not written by Hapax"),
            Self::Newer(version) => write!(
                f,
                "written in format {version} by a newer release; this one reads up to format {BOOKMARK_VERSION}"
            ),
            Self::Damaged(why) => write!(f, "what stands beside the offset is damaged: {why}"),
        }
    }
}

impl Bookmark {
    /// How many shards the job has ever had.
    pub fn ever(&self) -> u32 {
        self.most.max(self.shards)
    }

    /// The durable text, read by every later release.
    pub fn to_text(&self) -> String {
        let body = serde_json::to_string(self).expect("our types have string keys and no failing serialiser");
        format!("{NAME}{BOOKMARK_VERSION} {body}")
    }

    /// Reads what [`Bookmark::to_text`] wrote.
    ///
    /// # Errors
    /// It is not ours, not whole, or of a newer release.
    pub fn parse(text: &str) -> Result<Self, NotABookmark> {
        if text.is_empty() {
            return Err(NotABookmark::Empty);
        }
        let rest = text.strip_prefix(NAME).ok_or(NotABookmark::Foreign)?;
        let (version, body) = rest.split_once(' ').ok_or(NotABookmark::Foreign)?;
        match version.parse() {
            Ok(1..=BOOKMARK_VERSION) => {}
            Ok(0) | Err(_) => return Err(NotABookmark::Foreign),
            Ok(newer) => return Err(NotABookmark::Newer(newer)),
        }
        serde_json::from_str(body).map_err(|error| NotABookmark::Damaged(format!("{error}")))
    }
}

/// What carries a job's positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// The offsets of the source's own group: one bookmark for each partition, which holds its position alone.
    Group,
    /// A topic without records on the sink's cluster: one bookmark for each shard, which holds all its positions.
    Carrier,
}

/// A committed offset as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FoundOffset {
    /// Topic and partition, as a person finds them.
    pub place: String,
    /// The offset.
    pub offset: i64,
    /// What stands beside it.
    pub metadata: String,
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// Number of the layout.
    pub layout: u32,
    /// How many shards the layout has; those without a split may have no bookmark.
    pub count: u32,
    /// How many shards the job has ever had.
    pub ever: u32,
    /// By shard.
    pub shards: BTreeMap<ShardId, ShardProgress>,
}

/// How far a shard is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardProgress {
    /// The newest committed epoch.
    pub epoch: Epoch,
    /// The transaction that committed it.
    pub by: Identity,
    /// Its positions, as far as they stand beside offsets.
    pub positions: Positions,
    /// The object that has them, where they do not.
    pub object: Option<String>,
}

impl Progress {
    /// Transactions that are known to be committed.
    pub fn committed(&self) -> BTreeSet<Identity> {
        self.shards.values().map(|shard| shard.by).collect()
    }

    /// Where every split goes on, as far as that stands beside offsets.
    pub fn positions(&self) -> Positions {
        self.shards.values().flat_map(|shard| shard.positions.clone()).collect()
    }

    /// The newest epoch of a shard; one without a split has none but genesis.
    pub fn epoch(&self, shard: ShardId) -> Epoch {
        self.shards.get(&shard).map_or(Epoch::GENESIS, |shard| shard.epoch)
    }
}

/// Why committed offsets are not a job's progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProgressFault {
    /// Not a bookmark.
    Unreadable {
        /// Where.
        place: String,
        /// What is there instead.
        why: NotABookmark,
    },
    /// Another job's.
    OtherJob {
        /// Where.
        place: String,
        /// The job.
        job: Name,
    },
    /// The offset was changed and what stands beside it was not.
    OtherOffset {
        /// Where.
        place: String,
        /// The offset.
        offset: i64,
    },
    /// Bookmarks that one transaction would have written together are of two.
    Torn {
        /// Where.
        place: String,
        /// In which way.
        how: String,
    },
    /// Some are missing.
    Missing {
        /// How many there must be.
        wanted: u32,
        /// How many there are.
        found: u32,
    },
}

impl fmt::Display for ProgressFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { place, why } => write!(f, "the committed offset of {place}: {why}"),
            Self::OtherJob { place, job } => {
                write!(f, "the committed offset of {place} is that of job {job}")
            }
            Self::OtherOffset { place, offset } => {
                write!(
                    f,
                    "the committed offset of {place} is {offset}, and not the one that the job committed"
                )
            }
            Self::Torn { place, how } => {
                write!(f, "the committed offset of {place} is not of one transaction with the others: {how}")
            }
            Self::Missing { wanted, found } => {
                write!(f, "{found} of {wanted} committed offsets are there")
            }
        }
    }
}

impl core::error::Error for ProgressFault {}

/// What committed offsets say together. To be called with what was read after every id was cleared, and stable.
///
/// An offset with nothing beside it is that of a place which the job gave up when it was begun anew, where the others are
/// whole without it; where they are not, a tool has set it.
///
/// # Errors
/// They are not the whole progress of this job.
pub fn read_progress(job: &Name, home: Home, found: &[FoundOffset]) -> Result<Progress, ProgressFault> {
    read_whole(job, home, found).or_else(|fault| {
        let marked: Vec<FoundOffset> =
            found.iter().filter(|offset| !offset.metadata.is_empty()).cloned().collect();
        read_whole(job, home, &marked).map_err(|_| fault)
    })
}

fn read_whole(job: &Name, home: Home, found: &[FoundOffset]) -> Result<Progress, ProgressFault> {
    let mut progress: Option<Progress> = None;
    let mut splits = 0;
    for offset in found {
        let bookmark = one(job, home, offset)?;
        splits = bookmark.splits;
        let known = progress.get_or_insert_with(|| Progress {
            layout: bookmark.layout,
            count: bookmark.shards,
            ever: bookmark.ever(),
            shards: BTreeMap::new(),
        });
        add(known, bookmark, splits, &offset.place)?;
    }
    let progress = progress.ok_or(ProgressFault::Missing { wanted: 1, found: 0 })?;
    let wanted = match home {
        Home::Group => splits,
        Home::Carrier => progress.count,
    };
    let there = found.len() as u32;
    if there == wanted { Ok(progress) } else { Err(ProgressFault::Missing { wanted, found: there }) }
}

fn one(job: &Name, home: Home, found: &FoundOffset) -> Result<Bookmark, ProgressFault> {
    let place = || found.place.clone();
    let bookmark =
        Bookmark::parse(&found.metadata).map_err(|why| ProgressFault::Unreadable { place: place(), why })?;
    if bookmark.job != *job {
        return Err(ProgressFault::OtherJob { place: place(), job: bookmark.job });
    }
    let fits = match (&bookmark.at, home) {
        (Reading::Positions(positions), Home::Group) => {
            positions.len() == 1 && positions.values().all(|at| i64::try_from(at.next) == Ok(found.offset))
        }
        (Reading::Object(_), Home::Group) => false,
        (Reading::Positions(_) | Reading::Object(_), Home::Carrier) => found.offset == CARRIER_OFFSET,
    };
    if fits { Ok(bookmark) } else { Err(ProgressFault::OtherOffset { place: place(), offset: found.offset }) }
}

/// The offset that is committed on a carrier topic: it has no records, so nothing is ever left to read there.
pub const CARRIER_OFFSET: i64 = 0;

fn add(progress: &mut Progress, mark: Bookmark, splits: u32, place: &str) -> Result<(), ProgressFault> {
    let torn = |how: String| Err(ProgressFault::Torn { place: place.to_string(), how });
    if (mark.layout, mark.shards) != (progress.layout, progress.count) || mark.splits != splits {
        return torn(format!("layouts {} and {}", progress.layout, mark.layout));
    }
    let (positions, object) = match mark.at {
        Reading::Positions(positions) => (positions, None),
        Reading::Object(object) => (Positions::new(), Some(object)),
    };
    match progress.shards.get_mut(&mark.shard) {
        None => {
            let shard = ShardProgress { epoch: mark.epoch, by: mark.by, positions, object };
            progress.shards.insert(mark.shard, shard);
            Ok(())
        }
        Some(known) if (known.epoch, known.by) != (mark.epoch, mark.by) => torn(format!(
            "shard {} has epoch {} of producer {} and epoch {} of producer {}",
            mark.shard, known.epoch, known.by, mark.epoch, mark.by
        )),
        Some(known) => {
            known.positions.extend(positions);
            Ok(())
        }
    }
}

/// What coordinators know of the ids of a job that has no committed offsets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Past {
    /// Nothing: it has not run, or so long ago that everything is forgotten.
    None,
    /// A first start that did not come to its end: nothing was read.
    Interrupted,
    /// It has run.
    Known(TransactionalId),
    /// A coordinator does not answer.
    Unanswered(TransactionalId, String),
}

/// Has a job without committed offsets run before? A first start uses the id of genesis alone until the offsets are
/// committed, and every later one clears all.
pub fn judge_past(genesis: &TransactionalId, looks: &[(TransactionalId, Described)]) -> Past {
    let mut past = Past::None;
    for (id, described) in looks {
        match described {
            Described::Forgotten => {}
            Described::Unanswered(why) => return Past::Unanswered(id.clone(), why.clone()),
            Described::Known { state, .. } if id == genesis && !is_commit(*state) => {
                if past == Past::None {
                    past = Past::Interrupted;
                }
            }
            Described::Known { .. } => past = Past::Known(id.clone()),
        }
    }
    past
}

fn is_commit(state: TransactionState) -> bool {
    matches!(state, TransactionState::PrepareCommit | TransactionState::CompleteCommit)
}

/// How a transaction ended that a partition of offsets still holds open, by what its coordinator said before the id was
/// cleared: true where it was committed. `None`: nothing is said of this transaction. To be asked behind the clearing, by
/// which what was decided then is done.
pub fn ended_before(described: &Described, open: Identity, version: TransactionVersion) -> Option<bool> {
    let Described::Known { state, identity } = described else { return None };
    let ProducerEpoch(epoch) = open.producer_epoch;
    let bumped = Identity { producer_epoch: ProducerEpoch(epoch.saturating_add(1)), ..open };
    match state {
        TransactionState::PrepareCommit | TransactionState::CompleteCommit => {
            let marked = match version {
                TransactionVersion::V1 => open,
                TransactionVersion::V2 => bumped,
            };
            (*identity == marked).then_some(true)
        }
        TransactionState::PrepareAbort | TransactionState::CompleteAbort => {
            // On V2 an abort under this very epoch was that of the transaction before.
            let own = version == TransactionVersion::V1 && *identity == open;
            (own || *identity == bumped).then_some(false)
        }
        TransactionState::Empty
        | TransactionState::Ongoing
        | TransactionState::PrepareEpochFence
        | TransactionState::Dead => None,
    }
}

/// Is an open transaction older than the identity that a run got when it cleared the id? Only such a one was ended by
/// then. Any other is a later run's, which may be writing it now, whatever this run believes that it owns: a marker for
/// it would end a part of a transaction that goes on.
pub fn is_behind(open: Identity, cleared: Identity) -> bool {
    // A producer id that the coordinator has given up for another one is behind it, whatever its epoch.
    open.producer_id != cleared.producer_id || open.producer_epoch < cleared.producer_epoch
}

/// What runs of this process have had of an id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Had {
    /// Identities that they were given, or will have been if what was asked for is done.
    pub identities: BTreeSet<Identity>,
    /// InitProducerId was sent and its answer did not come: the coordinator may have given one that nobody has seen.
    pub unanswered: bool,
}

/// Is another run at work, by what coordinators say of the ids that a run of this process has had? A start clears all
/// ids, so another run shows on every one. On some only, it is one that has not come far, or one that slept in its start:
/// then this process may go on, and the other will find itself out. Ids that a broker or a late request has moved since
/// say nothing, as long as they are the fewer.
pub fn is_taken_over(own: &BTreeMap<TransactionalId, Had>, looks: &[(TransactionalId, Described)]) -> bool {
    let whose = looks.iter().filter_map(|(id, seen)| Some(whose(own.get(id)?, seen)));
    let (mut theirs, mut unclear) = (0, 0);
    for whose in whose {
        match whose {
            Whose::Ours => return false,
            Whose::Theirs => theirs += 1,
            Whose::Unclear => unclear += 1,
        }
    }
    theirs > unclear
}

/// Whose is an id, as far as its coordinator tells?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whose {
    Ours,
    Theirs,
    Unclear,
}

fn whose(own: &Had, described: &Described) -> Whose {
    match described {
        Described::Known { identity, .. } if own.identities.contains(identity) => Whose::Ours,
        Described::Known { state, .. } => {
            // A broker that aborts a transaction gives the id another producer epoch, too.
            let by_broker = matches!(
                state,
                TransactionState::CompleteAbort
                    | TransactionState::PrepareAbort
                    | TransactionState::PrepareEpochFence
                    | TransactionState::Dead
            );
            if by_broker || own.unanswered { Whose::Unclear } else { Whose::Theirs }
        }
        Described::Forgotten | Described::Unanswered(_) => Whose::Unclear,
    }
}

/// Has another run taken this id, by identities that runs of this process have had of it? One that may be the answer to
/// what this process has asked is not another's.
pub fn is_anothers(own: &Had, described: &Described) -> bool {
    whose(own, described) == Whose::Theirs
}
