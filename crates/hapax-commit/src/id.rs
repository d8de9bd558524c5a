//! Names and numbers of the protocol, each a type of its own.
//!
//! Owns: how a transactional id is built and read back (exactly four fields, no dots inside a field), what a
//! legal name is, and that epochs and slots never wrap. Refuses: anything about what these ids do.

use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Transactional ids per lane: one written, one prepared, one committing.
pub const IDS_PER_LANE: u64 = 3;

/// How far epochs may be ahead of the newest checkpoint, where each has an id of its own: two that a run had begun when
/// it died (one prepared, one written), and as many numbers as recovery takes to write records again, with those that the run
/// begins behind it.
pub const EPOCHS_AHEAD: u64 = 2 * IDS_PER_LANE;

/// Longest legal [`Name`] in bytes: four of them and their dots stay far below Kafka's 32,767.
pub const MAX_NAME: usize = 120;

/// A name that may stand in a transactional id: `[a-z0-9_-]`, 1 to [`MAX_NAME`] bytes, no dots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a string is not a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BadName(pub String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a name: use 1 to {MAX_NAME} of the characters a-z, 0-9, '_' and '-'", self.0)
    }
}

impl core::error::Error for BadName {}

impl Name {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// Empty, too long, or a character outside `[a-z0-9_-]`.
    pub fn new(name: &str) -> Result<Self, BadName> {
        let legal =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(legal) {
            return Err(BadName(name.to_owned()));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(name: String) -> Result<Self, BadName> {
        Self::new(&name)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// What lies between two barriers. Numbered from 1 in each cohort, never repeated; 0 is genesis.
    Epoch(u64)
}
number! {
    /// A place in a chain, numbered from 1.
    SlotNumber(u64)
}
number! {
    /// The slot of a run's claim: a newer run has a higher generation.
    Generation(u64)
}
number! {
    /// A share of the input, numbered from 0.
    ShardId(u32)
}
number! {
    /// Kafka's producer id.
    ProducerId(i64)
}
number! {
    /// Kafka's producer epoch.
    ProducerEpoch(i16)
}

impl Epoch {
    /// The checkpoint before the first record: start positions only.
    pub const GENESIS: Self = Self(0);

    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("an epoch a nanosecond lasts 580 years"))
    }

    /// Which of a lane's three places the epoch is written in.
    pub fn id_index(self) -> u8 {
        u8::try_from(self.0 % IDS_PER_LANE).expect("a remainder of three is below 256")
    }
}

/// How the transactional ids of a lane are named. Fixed when a job is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Naming {
    /// Three ids in turn, by the epoch's number modulo three.
    #[default]
    Rotating,
    /// An id for each epoch, by its number.
    PerEpoch,
}

impl Naming {
    /// The default is not written: chains and records of before it had a choice are the same bytes.
    pub(crate) fn is_rotating(&self) -> bool {
        *self == Self::Rotating
    }

    /// The last field of the id that an epoch is written on.
    pub fn index(self, epoch: Epoch) -> u64 {
        match self {
            Self::Rotating => u64::from(epoch.id_index()),
            Self::PerEpoch => epoch.0,
        }
    }
}

impl SlotNumber {
    /// The first slot of a chain.
    pub const FIRST: Self = Self(1);

    /// The slot after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a slot a nanosecond lasts 580 years"))
    }
}

/// Which producer a broker believes to talk to: one identity is one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Kafka's producer id.
    pub producer_id: ProducerId,
    /// Kafka's producer epoch.
    pub producer_epoch: ProducerEpoch,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.producer_id, self.producer_epoch)
    }
}

/// Kafka's transaction protocol (KIP-890): decides the versions of Produce and EndTxn for a whole transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TransactionVersion {
    /// Classic: AddPartitionsToTxn by the client, EndTxn up to version 4, the producer epoch stays.
    V1,
    /// KIP-890: partitions are added by Produce 12, EndTxn 5 bumps the producer epoch.
    V2,
}

impl fmt::Display for TransactionVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "V1",
            Self::V2 => "V2",
        })
    }
}

/// One shard's transactional writer into one cluster, named as in the pipeline file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneId {
    /// The cluster's name in the pipeline file.
    pub cluster: Name,
    /// The shard.
    pub shard: ShardId,
}

impl LaneId {
    /// The id that `epoch` of this lane is written on, where ids rotate.
    pub fn transactional_id(&self, job: &Name, epoch: Epoch) -> TransactionalId {
        self.id_of(job, Naming::Rotating, epoch)
    }

    /// The id that `epoch` of this lane is written on.
    pub fn id_of(&self, job: &Name, naming: Naming, epoch: Epoch) -> TransactionalId {
        TransactionalId { job: job.clone(), lane: self.clone(), index: naming.index(epoch) }
    }

    /// Every id that this lane may use, where ids rotate.
    pub fn transactional_ids(&self, job: &Name) -> [TransactionalId; IDS_PER_LANE as usize] {
        [0, 1, 2].map(|index| TransactionalId { job: job.clone(), lane: self.clone(), index })
    }

    /// Every id that this lane may use in the epochs behind `last` before another checkpoint names it: all three, or
    /// those of a window of numbers.
    pub fn ids_behind(&self, job: &Name, naming: Naming, last: Epoch) -> Vec<TransactionalId> {
        match naming {
            Naming::Rotating => self.transactional_ids(job).into(),
            Naming::PerEpoch => {
                (1..=EPOCHS_AHEAD).map(|ahead| self.id_of(job, naming, Epoch(last.0 + ahead))).collect()
            }
        }
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.cluster, self.shard)
    }
}

/// `<job>.<cluster>.<shard>.<n>`: the structure is unambiguous because names have no dots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TransactionalId {
    /// The job.
    pub job: Name,
    /// The lane.
    pub lane: LaneId,
    /// Which of the lane's ids: below [`IDS_PER_LANE`], or the number of its epoch ([`Naming`]).
    pub index: u64,
}

impl TransactionalId {
    /// Reads an id back; `None` where it is not exactly of our structure (a foreign id).
    pub fn parse(id: &str) -> Option<Self> {
        let mut fields = id.split('.');
        let job = Name::new(fields.next()?).ok()?;
        let cluster = Name::new(fields.next()?).ok()?;
        let shard = ShardId(canonical(fields.next()?)?);
        let index: u64 = canonical(fields.next()?)?;
        if fields.next().is_some() {
            return None;
        }
        Some(Self { job, lane: LaneId { cluster, shard }, index })
    }
}

/// A number in the one way that we write it: `01` and `+1` are somebody else's.
fn canonical<T: core::str::FromStr + ToString>(text: &str) -> Option<T> {
    text.parse::<T>().ok().filter(|number| number.to_string() == text)
}

impl fmt::Display for TransactionalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.job, self.lane, self.index)
    }
}

/// A transactional id where it means something: at the coordinator of one cluster. A cluster's name in the pipeline
/// file may come to mean another cluster; Kafka's own id of it does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdAt {
    /// Kafka's id of the cluster.
    pub cluster_id: String,
    /// The id.
    pub id: TransactionalId,
}

impl fmt::Display for IdAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at cluster {}", self.id, self.cluster_id)
    }
}

/// A string that is not a transactional id of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForeignId(pub String);

impl fmt::Display for ForeignId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not of the form job.cluster.shard.n", self.0)
    }
}

impl core::error::Error for ForeignId {}

impl TryFrom<String> for TransactionalId {
    type Error = ForeignId;

    fn try_from(id: String) -> Result<Self, ForeignId> {
        Self::parse(&id).ok_or(ForeignId(id))
    }
}

impl From<TransactionalId> for String {
    fn from(id: TransactionalId) -> Self {
        id.to_string()
    }
}

/// Kafka's topic id: a topic that was deleted and made again has another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicId(pub [u8; 16]);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<TopicId> for String {
    fn from(id: TopicId) -> Self {
        id.to_string()
    }
}

/// A string that is not 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BadTopicId(pub String);

impl fmt::Display for BadTopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a topic id of 32 hexadecimal digits", self.0)
    }
}

impl core::error::Error for BadTopicId {}

impl TryFrom<String> for TopicId {
    type Error = BadTopicId;

    fn try_from(text: String) -> Result<Self, BadTopicId> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(BadTopicId(text));
        }
        u128::from_str_radix(&text, 16).map(|id| Self(id.to_be_bytes())).map_err(|_| BadTopicId(text))
    }
}

/// A random number that names a run: two runs never write the same bytes into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunNonce(pub u128);

impl fmt::Display for RunNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<RunNonce> for String {
    fn from(nonce: RunNonce) -> Self {
        nonce.to_string()
    }
}

impl TryFrom<String> for RunNonce {
    type Error = core::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, core::num::ParseIntError> {
        u128::from_str_radix(&text, 16).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn an_id_is_read_back_as_it_was_built() {
        let lane = LaneId { cluster: name("eu-1"), shard: ShardId(12) };
        for epoch in 0..7 {
            let id = lane.transactional_id(&name("orders"), Epoch(epoch));
            assert_eq!(TransactionalId::parse(&id.to_string()), Some(id.clone()));
            assert_eq!(id.index, epoch % IDS_PER_LANE);
            assert!(lane.transactional_ids(&name("orders")).contains(&id));
        }
    }

    #[test]
    fn per_epoch_an_id_is_the_epochs_alone() {
        let (lane, job) = (LaneId { cluster: name("eu"), shard: ShardId(0) }, name("orders"));
        let id = lane.id_of(&job, Naming::PerEpoch, Epoch(41));
        assert_eq!(id.to_string(), "orders.eu.0.41");
        assert_eq!(TransactionalId::parse("orders.eu.0.41"), Some(id));
        let ids = lane.ids_behind(&job, Naming::PerEpoch, Epoch(40));
        assert_eq!((ids[0].index, ids.last().unwrap().index), (41, 46));
        assert_eq!(lane.ids_behind(&job, Naming::Rotating, Epoch(40)), lane.transactional_ids(&job));
    }

    #[test]
    fn foreign_ids_are_not_ours() {
        for id in [
            "orders",
            "orders.eu.0",
            "orders.eu.00.1",
            "orders.eu.0.1.2",
            "orders.eu.+1.1",
            "Orders.eu.0.1",
            "orders..0.1",
            "orders-eu-3-7",
            "",
        ] {
            assert_eq!(TransactionalId::parse(id), None, "{id}");
        }
    }

    #[test]
    fn two_jobs_never_share_an_id() {
        let a = LaneId { cluster: name("eu"), shard: ShardId(0) }.transactional_id(&name("orders"), Epoch(1));
        assert!(Name::new("orders.eu").is_err());
        assert_eq!(a.to_string(), "orders.eu.0.1");
    }

    #[test]
    fn a_topic_id_survives_text() {
        let id = TopicId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(TopicId::try_from(String::from(id)), Ok(id));
        assert!(TopicId::try_from("00".to_owned()).is_err());
    }
}
