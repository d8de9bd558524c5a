//! The records of `__transaction_state`: keys and values as bytes.
//!
//! Owns the layouts of `TransactionLogKey` 0 and `TransactionLogValue` 0 and 1. Refuses versions and states that it does
//! not know, by their number, and every length that the bytes do not bear out. Tagged fields of later brokers are
//! skipped (KIP-915: a version may only grow by these).
//!
//! ```text
//!  key 0     version i16 | id: length i16, UTF-8
//!  value 0   version i16 | producer id i64 | producer epoch i16 | timeout i32 | state i8
//!            | [topic: length i16, UTF-8 | [partition i32]] | updated i64 | start i64      arrays: count i32, -1 is none
//!  value 1   the same with compact lengths (varint, one more than the length), each struct with tagged fields at its end
//! ```
//!
//! Pure: no clock, no IO. Sources: `TransactionLogKey.json`, `TransactionLogValue.json`, `TransactionState`; KIP-890.

use super::TransactionState;
use hapax_commit::{Identity, ProducerEpoch, ProducerId};

/// Longest tagged section of value 1: it has four fields today, and each tag costs a broker bytes in every record.
const MAX_TAGS: u32 = 64;

/// What the log says of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedTransaction {
    /// Its state. *Prepare…* is decided by the coordinator that wrote it, but not final; *Complete…* is.
    pub state: TransactionState,
    /// The identity now; the producer epoch before it is not in the log. On V2 the record of *Prepare…* has the next producer epoch already, as the coordinator tells it.
    pub identity: Identity,
    /// The producer id of the last transaction that ended; written since Kafka 4.3.
    pub previous_producer_id: Option<ProducerId>,
    /// The producer id that comes next, where an end is decided and the epochs are used up; written since Kafka 4.3.
    pub next_producer_id: Option<ProducerId>,
    /// The producer epoch of the next producer id (KIP-939); no release writes it yet.
    pub next_producer_epoch: Option<ProducerEpoch>,
    /// The `transaction.version` that its client ran under, 0 for the classic protocol.
    pub client_version: i16,
    /// Its transaction timeout, in milliseconds.
    pub timeout_ms: i32,
    /// When the record was made, in milliseconds since 1970.
    pub updated_ms: i64,
    /// When the (last) transaction began, in milliseconds since 1970; none where there was none yet.
    pub start_ms: Option<i64>,
    /// Partitions of the transaction. While an end is decided these are all of them: unlike the coordinator, the log
    /// does not say which have their marker.
    pub partitions: Vec<(String, Vec<i32>)>,
}

/// A record that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateRecordError {
    /// Of a later release, or no key of this topic.
    #[error("its key has version {0}, and only version 0 is known")]
    KeyVersion(i16),
    /// Of a later release.
    #[error("its value has version {0}, and only versions 0 and 1 are known")]
    ValueVersion(i16),
    /// Of a later release, or damaged.
    #[error("it says state {0}, and only states 0 to 7 are known")]
    State(i8),
    /// Damaged.
    #[error("{0}")]
    Malformed(&'static str),
}

/// The transactional id of a key.
pub(super) fn read_key(key: &[u8]) -> Result<&str, StateRecordError> {
    let mut reader = Reader { rest: key, flexible: false };
    match reader.i16()? {
        0 => {}
        version => return Err(StateRecordError::KeyVersion(version)),
    }
    let id = reader.string()?;
    reader.end()?;
    Ok(id)
}

/// What a value says.
pub(super) fn read_value(value: &[u8]) -> Result<LoggedTransaction, StateRecordError> {
    let mut reader = Reader { rest: value, flexible: false };
    reader.flexible = match reader.i16()? {
        0 => false,
        1 => true,
        version => return Err(StateRecordError::ValueVersion(version)),
    };
    let identity =
        Identity { producer_id: ProducerId(reader.i64()?), producer_epoch: ProducerEpoch(reader.i16()?) };
    let timeout_ms = reader.i32()?;
    let state = state(reader.i8()?)?;
    let partitions = read_partitions(&mut reader)?;
    let updated_ms = reader.i64()?;
    let start_ms = Some(reader.i64()?).filter(|start| *start >= 0);
    let mut read = LoggedTransaction {
        state,
        identity,
        previous_producer_id: None,
        next_producer_id: None,
        next_producer_epoch: None,
        client_version: 0,
        timeout_ms,
        updated_ms,
        start_ms,
        partitions,
    };
    reader.tags(|tag, field| {
        match tag {
            0 => read.previous_producer_id = Some(ProducerId(field.i64()?)).filter(|id| id.0 >= 0),
            1 => read.next_producer_id = Some(ProducerId(field.i64()?)).filter(|id| id.0 >= 0),
            2 => read.client_version = field.i16()?,
            3 => read.next_producer_epoch = Some(ProducerEpoch(field.i16()?)).filter(|epoch| epoch.0 >= 0),
            _ => return Ok(()),
        }
        field.end()
    })?;
    reader.end()?;
    Ok(read)
}

fn state(id: i8) -> Result<TransactionState, StateRecordError> {
    Ok(match id {
        0 => TransactionState::Empty,
        1 => TransactionState::Ongoing,
        2 => TransactionState::PrepareCommit,
        3 => TransactionState::PrepareAbort,
        4 => TransactionState::CompleteCommit,
        5 => TransactionState::CompleteAbort,
        6 => TransactionState::Dead,
        7 => TransactionState::PrepareEpochFence,
        _ => return Err(StateRecordError::State(id)),
    })
}

fn read_partitions(reader: &mut Reader<'_>) -> Result<Vec<(String, Vec<i32>)>, StateRecordError> {
    let mut topics = Vec::new();
    for _ in 0..reader.count()? {
        let topic = reader.string()?.to_owned();
        let mut partitions = Vec::new();
        for _ in 0..reader.count()? {
            partitions.push(reader.i32()?);
        }
        reader.tags(|_, _| Ok(()))?;
        topics.push((topic, partitions));
    }
    Ok(topics)
}

/// Takes fields off the front of bytes.
struct Reader<'a> {
    rest: &'a [u8],
    /// Compact lengths and tagged fields, as in value 1.
    flexible: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], StateRecordError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(StateRecordError::Malformed("it is shorter than the lengths in it say"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StateRecordError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many bytes as were taken"))
    }

    fn i8(&mut self) -> Result<i8, StateRecordError> {
        self.array().map(i8::from_be_bytes)
    }

    fn i16(&mut self) -> Result<i16, StateRecordError> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, StateRecordError> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, StateRecordError> {
        self.array().map(i64::from_be_bytes)
    }

    fn varint(&mut self) -> Result<u32, StateRecordError> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return u32::try_from(value).map_err(|_| TOO_WIDE);
            }
        }
        Err(TOO_WIDE)
    }

    fn string(&mut self) -> Result<&'a str, StateRecordError> {
        let length = if self.flexible {
            self.varint()?.checked_sub(1).and_then(|length| usize::try_from(length).ok())
        } else {
            usize::try_from(self.i16()?).ok()
        };
        let bytes = self.take(length.ok_or(StateRecordError::Malformed("a name in it is null"))?)?;
        std::str::from_utf8(bytes).map_err(|_| StateRecordError::Malformed("a name in it is not UTF-8"))
    }

    /// How many elements an array has. Each takes a byte at least, so a count beyond the bytes is refused before
    /// anything is done for it.
    fn count(&mut self) -> Result<usize, StateRecordError> {
        let count = if self.flexible {
            usize::try_from(self.varint()?.saturating_sub(1)).ok()
        } else {
            usize::try_from(self.i32()?.max(0)).ok()
        };
        count
            .filter(|count| *count <= self.rest.len())
            .ok_or(StateRecordError::Malformed("it counts more elements than its bytes can hold"))
    }

    /// The tagged fields at the end of a struct; none in version 0.
    fn tags(
        &mut self,
        mut each: impl FnMut(u32, &mut Reader<'a>) -> Result<(), StateRecordError>,
    ) -> Result<(), StateRecordError> {
        if !self.flexible {
            return Ok(());
        }
        let count = self.varint()?;
        if count > MAX_TAGS {
            return Err(StateRecordError::Malformed("it has too many tagged fields"));
        }
        for _ in 0..count {
            let (tag, size) = (self.varint()?, self.varint()?);
            let field = self.take(size as usize)?;
            each(tag, &mut Reader { rest: field, flexible: true })?;
        }
        Ok(())
    }

    fn end(&self) -> Result<(), StateRecordError> {
        match self.rest {
            [] => Ok(()),
            _ => Err(StateRecordError::Malformed("bytes are left behind its last field")),
        }
    }
}

const TOO_WIDE: StateRecordError = StateRecordError::Malformed("a length in it is too wide");

#[cfg(test)]
mod tests {
    use super::*;

    fn v0() -> Vec<u8> {
        let mut value = vec![0, 0];
        value.extend(5_i64.to_be_bytes());
        value.extend([0, 3]);
        value.extend(60_000_i32.to_be_bytes());
        value.extend([1, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2]);
        value.extend([78_i64.to_be_bytes(), 77_i64.to_be_bytes()].concat());
        value
    }

    fn v1(state: u8, tags: &[u8]) -> Vec<u8> {
        let mut value = vec![0, 1];
        value.extend(5_i64.to_be_bytes());
        value.extend([0, 3]);
        value.extend(60_000_i32.to_be_bytes());
        value.extend([state, 2, 2, b'a', 3, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        value.extend([78_i64.to_be_bytes(), 77_i64.to_be_bytes()].concat());
        value.extend(tags);
        value
    }

    /// Previous and next producer id, client transaction version, next producer epoch, and one of a later broker.
    fn tags() -> Vec<u8> {
        let mut tags = vec![5, 0, 8];
        tags.extend(4_i64.to_be_bytes());
        tags.extend([1, 8]);
        tags.extend(6_i64.to_be_bytes());
        tags.extend([2, 2, 0, 2, 3, 2, 0, 9, 0x85, 1, 3, 1, 2, 3]);
        tags
    }

    fn ongoing() -> LoggedTransaction {
        LoggedTransaction {
            state: TransactionState::Ongoing,
            identity: Identity { producer_id: ProducerId(5), producer_epoch: ProducerEpoch(3) },
            previous_producer_id: None,
            next_producer_id: None,
            next_producer_epoch: None,
            client_version: 0,
            timeout_ms: 60_000,
            updated_ms: 78,
            start_ms: Some(77),
            partitions: vec![("a".to_owned(), vec![0, 2])],
        }
    }

    #[test]
    fn keys_of_version_0_are_read_and_others_named() {
        assert_eq!(read_key(&[0, 0, 0, 2, b'a', b'b']), Ok("ab"));
        assert_eq!(read_key(&[0, 9, 0, 2, b'a', b'b']), Err(StateRecordError::KeyVersion(9)));
        for broken in [&[0, 0, 0, 3, b'a', b'b'][..], &[0, 0, 0xff, 0xff], &[0, 0, 0, 1, 0xff], &[0], &[]] {
            assert!(matches!(read_key(broken), Err(StateRecordError::Malformed(_))), "{broken:?}");
        }
    }

    #[test]
    fn both_versions_say_the_same_and_version_1_says_more() {
        assert_eq!(read_value(&v0()), Ok(ongoing()));
        assert_eq!(read_value(&v1(1, &[0])), Ok(ongoing()));
        let more = LoggedTransaction {
            previous_producer_id: Some(ProducerId(4)),
            next_producer_id: Some(ProducerId(6)),
            next_producer_epoch: Some(ProducerEpoch(9)),
            client_version: 2,
            ..ongoing()
        };
        assert_eq!(read_value(&v1(1, &tags())), Ok(more));
    }

    #[test]
    fn an_id_without_a_transaction_has_neither_partitions_nor_a_start() {
        let mut empty = v0();
        empty.splice(17..36, [0xff; 4]);
        empty[16] = 0;
        empty.splice(29..37, (-1_i64).to_be_bytes());
        let read = read_value(&empty).unwrap();
        assert_eq!((read.state, read.start_ms, read.partitions), (TransactionState::Empty, None, vec![]));
    }

    #[test]
    fn every_state_has_kafkas_number_and_name() {
        let names: Vec<_> = (0..8).map(|id| read_value(&v1(id, &[0])).unwrap().state.to_string()).collect();
        let kafkas = [
            "Empty",
            "Ongoing",
            "PrepareCommit",
            "PrepareAbort",
            "CompleteCommit",
            "CompleteAbort",
            "Dead",
            "PrepareEpochFence",
        ];
        assert_eq!(names, kafkas);
        assert_eq!(read_value(&v1(8, &[0])), Err(StateRecordError::State(8)));
    }

    #[test]
    fn a_later_version_is_named() {
        let mut later = v1(1, &[0]);
        later[1] = 2;
        let error = read_value(&later).unwrap_err();
        assert_eq!(error, StateRecordError::ValueVersion(2));
        assert!(error.to_string().contains("version 2"));
    }

    #[test]
    fn a_cut_or_longer_value_is_refused() {
        for whole in [v0(), v1(1, &[0]), v1(1, &tags())] {
            for length in 0..whole.len() {
                assert!(read_value(&whole[..length]).is_err(), "{length} of {}", whole.len());
            }
            assert!(read_value(&[&whole[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn counts_and_lengths_beyond_the_bytes_are_refused() {
        let mut many = v0();
        many[17..21].copy_from_slice(&i32::MAX.to_be_bytes());
        assert!(matches!(read_value(&many), Err(StateRecordError::Malformed(_))));
        for tags in [&[65][..], &[1, 9, 0xff, 0xff, 0xff, 0xff, 0x0f], &[1, 2, 1, 0], &[0x80; 6]] {
            assert!(matches!(read_value(&v1(1, tags)), Err(StateRecordError::Malformed(_))), "{tags:?}");
        }
    }

    #[test]
    fn mutated_bytes_are_an_answer_or_an_error() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..200_000 {
            let mut value = if rng.bool() { v0() } else { v1(1, &tags()) };
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..value.len());
                match rng.u8(..3) {
                    0 => value[at] = rng.u8(..),
                    1 => value.truncate(at + 1),
                    _ => value.insert(at, rng.u8(..)),
                }
            }
            match read_value(&value) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
            let _ = read_key(&value);
        }
        assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
    }
}
