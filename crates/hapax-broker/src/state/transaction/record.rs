//! The bytes of `__transaction_state`: keys and values as Kafka writes them, so that any tool that reads the topic
//! reads this one. (`TransactionLogKey.json`, `TransactionLogValue.json`)
//!
//! Version 1 is written where `transaction.version` is at least 1. The epoch before the last bump is in neither, so a
//! coordinator that loads does not know it.

use super::{
    metadata::{Identity, Level, NO_EPOCH, NO_PRODUCER_ID, Transaction},
    phase::Phase,
};
use crate::state::{
    TopicPartition,
    field::{Garbled, Reader, Writer},
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

const TAG_PREVIOUS_ID: u32 = 0;
const TAG_NEXT_ID: u32 = 1;
const TAG_CLIENT_LEVEL: u32 = 2;
/// `NextProducerEpoch` of KIP-939, which no released broker writes; here behind the switch.
const TAG_NEXT_EPOCH: u32 = 3;

/// The value cannot be written: version 0 has no place for the level of the client, and a generated writer throws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwritable;

/// The key of a transactional id.
pub(crate) fn key(transactional_id: &str) -> Bytes {
    let mut writer = Writer::with_version(0);
    writer.string(transactional_id);
    writer.done()
}

/// The transactional id of a key. Keys of other versions are of other releases and not looked at.
pub(crate) fn read_key(key: Bytes) -> Option<String> {
    let mut reader = Reader(key);
    (reader.i16() == Ok(0)).then(|| reader.string().ok()).flatten()
}

/// The value of a transaction.
pub(crate) fn value(transaction: &Transaction, cluster: Level) -> Result<Bytes, Unwritable> {
    let version = cluster.record_version();
    if version == 0 && transaction.level != Level::CLASSIC {
        return Err(Unwritable);
    }
    let mut writer = Writer::with_version(version);
    writer.i64(transaction.producer.id);
    writer.i16(transaction.producer.epoch);
    writer.i32(transaction.timeout_ms);
    writer.i8(transaction.phase.id());
    write_partitions(&mut writer, version, transaction);
    writer.i64(transaction.updated);
    writer.i64(transaction.start);
    if version >= 1 {
        writer.tags(&tags(transaction));
    }
    Ok(writer.done())
}

fn write_partitions(writer: &mut Writer, version: i16, transaction: &Transaction) {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for added in &transaction.partitions {
        topics.entry(&added.topic).or_default().push(added.partition);
    }
    let is_null = transaction.phase == Phase::Empty;
    if is_null {
        // What is read may have some nevertheless, and behind a count of none they would be bytes too many.
        topics.clear();
    }
    if version == 0 {
        writer.i32(if is_null { -1 } else { topics.len() as i32 });
        for (topic, partitions) in topics {
            writer.string(topic);
            writer.i32(partitions.len() as i32);
            partitions.into_iter().for_each(|partition| writer.i32(partition));
        }
    } else {
        writer.varint(if is_null { 0 } else { topics.len() as u32 + 1 });
        for (topic, partitions) in topics {
            writer.compact_string(topic);
            writer.varint(partitions.len() as u32 + 1);
            partitions.into_iter().for_each(|partition| writer.i32(partition));
            writer.tags(&[]);
        }
    }
}

fn tags(transaction: &Transaction) -> Vec<(u32, Bytes)> {
    let mut tags = Vec::new();
    let next_id = transaction.successor.map_or(transaction.next_id, |successor| successor.id);
    for (tag, id) in [(TAG_PREVIOUS_ID, transaction.previous_id), (TAG_NEXT_ID, next_id)] {
        if id != NO_PRODUCER_ID {
            tags.push((tag, Bytes::copy_from_slice(&id.to_be_bytes())));
        }
    }
    if transaction.level != Level::CLASSIC {
        tags.push((TAG_CLIENT_LEVEL, Bytes::copy_from_slice(&transaction.level.0.to_be_bytes())));
    }
    if let Some(successor) = transaction.successor {
        tags.push((TAG_NEXT_EPOCH, Bytes::copy_from_slice(&successor.epoch.to_be_bytes())));
    }
    tags
}

/// The transaction of a value.
pub(crate) fn read_value(value: Bytes) -> Result<Transaction, Garbled> {
    let mut reader = Reader(value);
    let version = reader.i16()?;
    if !(0..=1).contains(&version) {
        return Err(Garbled);
    }
    let producer = Identity { id: reader.i64()?, epoch: reader.i16()? };
    let timeout_ms = reader.i32()?;
    let phase = Phase::from_id(reader.i8()?).ok_or(Garbled)?;
    let partitions = read_partitions(&mut reader, version)?;
    let updated = reader.i64()?;
    let start = reader.i64()?;
    let mut transaction = Transaction {
        producer,
        last_epoch: NO_EPOCH,
        timeout_ms,
        phase,
        partitions,
        start,
        updated,
        ..Transaction::new(producer.id, timeout_ms, updated)
    };
    if version >= 1 {
        read_tags(&mut reader, &mut transaction)?;
    }
    Ok(transaction)
}

fn read_partitions(reader: &mut Reader, version: i16) -> Result<BTreeSet<TopicPartition>, Garbled> {
    let mut partitions = BTreeSet::new();
    let topics = if version == 0 { reader.array()? } else { reader.compact_array()? };
    for _ in 0..topics.unwrap_or(0) {
        let topic = if version == 0 { reader.string()? } else { reader.compact_string()? };
        let count = if version == 0 { reader.array()? } else { reader.compact_array()? };
        for _ in 0..count.unwrap_or(0) {
            partitions.insert(TopicPartition::new(topic.as_str(), reader.i32()?));
        }
        if version >= 1 {
            reader.tags()?;
        }
    }
    Ok(partitions)
}

fn read_tags(reader: &mut Reader, transaction: &mut Transaction) -> Result<(), Garbled> {
    let mut next_epoch = None;
    for (tag, mut value) in reader.tags()? {
        match tag {
            TAG_PREVIOUS_ID => transaction.previous_id = value.i64()?,
            TAG_NEXT_ID => transaction.next_id = value.i64()?,
            TAG_CLIENT_LEVEL => transaction.level = Level(value.i16()?),
            TAG_NEXT_EPOCH => next_epoch = Some(value.i16()?),
            _ => {}
        }
    }
    if let Some(epoch) = next_epoch {
        transaction.successor = Some(Identity { id: transaction.next_id, epoch });
        transaction.next_id = NO_PRODUCER_ID;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ongoing() -> Transaction {
        let added = [TopicPartition::new("a", 0), TopicPartition::new("a", 2), TopicPartition::new("b", 1)];
        let mut ongoing = Transaction::new(5, 60_000, 1).with_partitions(&added, Level::BUMPING, 77);
        ongoing.producer.epoch = 3;
        ongoing
    }

    #[test]
    fn keys_are_those_of_kafka() {
        assert_eq!(key("ab"), Bytes::from_static(&[0, 0, 0, 2, b'a', b'b']));
        assert_eq!(read_key(key("ab")).as_deref(), Some("ab"));
        assert_eq!(read_key(Bytes::from_static(&[0, 9, 0, 2, b'a', b'b'])), None);
    }

    #[test]
    fn values_survive_both_versions_apart_from_what_a_version_lacks() {
        let v1 = Transaction { next_id: 9, ..ongoing() };
        assert_eq!(read_value(value(&v1, Level(2)).unwrap()), Ok(v1.clone()));
        let classic = Transaction { level: Level::CLASSIC, ..v1 };
        let loaded = read_value(value(&classic, Level(0)).unwrap()).unwrap();
        assert_eq!(loaded, Transaction { previous_id: -1, next_id: -1, ..classic });
    }

    #[test]
    fn version_0_is_laid_out_as_kafka_does() {
        let mut small = ongoing();
        small.level = Level::CLASSIC;
        small.partitions = BTreeSet::from([TopicPartition::new("a", 2)]);
        let mut expected = vec![0, 0];
        expected.extend(5_i64.to_be_bytes());
        expected.extend([0, 3]);
        expected.extend(60_000_i32.to_be_bytes());
        expected.extend([1, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 2]);
        expected.extend([77_i64.to_be_bytes(), 77_i64.to_be_bytes()].concat());
        assert_eq!(value(&small, Level(0)).unwrap(), expected);
    }

    #[test]
    fn an_empty_transaction_has_no_array_of_partitions() {
        let empty = Transaction::new(5, 1, 0).with_next_epoch(1, None, 2).unwrap();
        let bytes = value(&empty, Level(0)).unwrap();
        assert_eq!(bytes[17..21], [0xff; 4]);
    }

    /// A fuzz target found it: a record that says so was read, and written again with partitions behind a null array.
    #[test]
    fn an_empty_transaction_with_partitions_is_written_without_them() {
        let empty = Transaction { phase: Phase::Empty, level: Level::CLASSIC, ..ongoing() };
        for level in [0, 1, 2] {
            let read = read_value(value(&empty, Level(level)).unwrap()).unwrap();
            assert_eq!((read.partitions.len(), read.start, read.updated), (0, empty.start, empty.updated));
        }
    }

    #[test]
    fn the_level_of_a_v2_client_has_no_place_in_version_0() {
        assert_eq!(value(&ongoing(), Level(0)), Err(Unwritable));
        assert!(value(&ongoing(), Level(1)).is_ok());
    }

    #[test]
    fn what_a_client_took_over_survives() {
        let kept = Transaction { successor: Some(Identity { id: 5, epoch: 4 }), ..ongoing() };
        assert_eq!(read_value(value(&kept, Level(2)).unwrap()), Ok(kept));
    }

    #[test]
    fn no_cut_of_a_value_panics() {
        let whole = value(&ongoing(), Level(2)).unwrap();
        for length in 0..whole.len() {
            assert!(read_value(whole.slice(..length)).is_err());
        }
    }
}
