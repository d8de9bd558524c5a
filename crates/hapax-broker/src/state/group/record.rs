//! The bytes of `__consumer_offsets`: committed offsets and groups, as Kafka's group coordinator writes them.
//! (`OffsetCommitKey`, `OffsetCommitValue`, `GroupMetadataKey`, `GroupMetadataValue`)

use super::{
    member::{Group, Member, Phase},
    offset::Committed,
};
use crate::state::{
    TopicPartition,
    field::{Garbled, Reader, Writer},
};
use bytes::Bytes;

/// Keys 0 and 1 are of offsets, 2 is of groups; others belong to protocols that this broker does not have.
const OFFSET_KEY: i16 = 1;
const GROUP_KEY: i16 = 2;
/// Values of offsets with a time of expiry of their own, and without.
const OFFSET_WITH_EXPIRY: i16 = 1;
const OFFSET: i16 = 3;
const GROUP: i16 = 3;

/// What a key is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Offset { group: String, at: TopicPartition },
    Group(String),
}

pub(super) fn offset_key(group: &str, at: &TopicPartition) -> Bytes {
    let mut writer = Writer::with_version(OFFSET_KEY);
    writer.string(group);
    writer.string(&at.topic);
    writer.i32(at.partition);
    writer.done()
}

pub(super) fn group_key(group: &str) -> Bytes {
    let mut writer = Writer::with_version(GROUP_KEY);
    writer.string(group);
    writer.done()
}

pub(super) fn read_key(key: Bytes) -> Option<Key> {
    let mut reader = Reader(key);
    match reader.i16().ok()? {
        0 | OFFSET_KEY => {
            let group = reader.string().ok()?;
            let at = TopicPartition { topic: reader.string().ok()?, partition: reader.i32().ok()? };
            Some(Key::Offset { group, at })
        }
        GROUP_KEY => reader.string().ok().map(Key::Group),
        _ => None,
    }
}

pub(super) fn offset_value(committed: &Committed) -> Bytes {
    let version = if committed.expires.is_some() { OFFSET_WITH_EXPIRY } else { OFFSET };
    let mut writer = Writer::with_version(version);
    writer.i64(committed.offset);
    if version == OFFSET {
        writer.i32(committed.leader_epoch);
    }
    writer.string(&committed.metadata);
    writer.i64(committed.at);
    if let Some(expires) = committed.expires {
        writer.i64(expires);
    }
    writer.done()
}

/// The committed offset of a value, whose record is at an offset of its own.
pub(super) fn read_offset(value: Bytes, record_offset: i64) -> Result<Committed, Garbled> {
    let mut reader = Reader(value);
    let version = reader.i16()?;
    if !(0..=OFFSET).contains(&version) {
        return Err(Garbled);
    }
    let offset = reader.i64()?;
    let leader_epoch = if version >= 3 { reader.i32()? } else { -1 };
    let metadata = reader.string()?;
    let at = reader.i64()?;
    let expires = if version == OFFSET_WITH_EXPIRY { Some(reader.i64()?) } else { None };
    Ok(Committed {
        offset,
        leader_epoch,
        metadata,
        at,
        expires: expires.filter(|at| *at >= 0),
        record_offset,
    })
}

pub(super) fn group_value(group: &Group) -> Bytes {
    let mut writer = Writer::with_version(GROUP);
    writer.string(group.protocol_type.as_deref().unwrap_or_default());
    writer.i32(group.generation);
    writer.nullable_string(group.protocol.as_deref());
    writer.nullable_string(group.leader.as_deref());
    writer.i64(group.since);
    writer.i32(group.members.len() as i32);
    for (id, member) in &group.members {
        writer.string(id);
        writer.nullable_string(member.instance.as_deref());
        writer.string(&member.client_id);
        writer.string(super::CLIENT_HOST);
        writer.i32(member.rebalance_ms);
        writer.i32(member.session_ms);
        writer.bytes(member.metadata(group.protocol.as_deref()));
        writer.bytes(&member.assignment);
    }
    writer.done()
}

/// The group of a value, as a coordinator that loads knows it: with its members, none of which waits.
pub(super) fn read_group(value: Bytes) -> Result<Group, Garbled> {
    let mut reader = Reader(value);
    if reader.i16()? != GROUP {
        return Err(Garbled);
    }
    let protocol_type = reader.string()?;
    let mut group = Group {
        protocol_type: Some(protocol_type.clone()).filter(|name| !name.is_empty()),
        generation: reader.i32()?,
        protocol: reader.nullable_string()?,
        leader: reader.nullable_string()?,
        since: reader.i64()?,
        ..Group::default()
    };
    for _ in 0..reader.array()?.unwrap_or(0) {
        let id = reader.string()?;
        let instance = reader.nullable_string()?;
        let client_id = reader.string()?;
        reader.string()?;
        let (rebalance_ms, session_ms) = (reader.i32()?, reader.i32()?);
        let (subscription, assignment) = (reader.bytes()?, reader.bytes()?);
        let protocols = vec![(group.protocol.clone().unwrap_or_default(), subscription)];
        if let Some(instance) = &instance {
            group.static_members.insert(instance.clone(), id.clone());
        }
        let member = Member {
            instance,
            client_id,
            rebalance_ms,
            session_ms,
            protocol_type: protocol_type.clone(),
            protocols,
            assignment,
            ..Member::default()
        };
        group.members.insert(id, member);
    }
    group.phase = if group.members.is_empty() { Phase::Empty } else { Phase::Stable };
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_kafka() {
        let at = TopicPartition { topic: "t".to_owned(), partition: 3 };
        let key = offset_key("g", &at);
        assert_eq!(key, Bytes::from_static(&[0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 3]));
        assert_eq!(read_key(key), Some(Key::Offset { group: "g".to_owned(), at }));
        assert_eq!(read_key(group_key("g")), Some(Key::Group("g".to_owned())));
        assert_eq!(read_key(Bytes::from_static(&[0, 9, 0, 0])), None);
    }

    #[test]
    fn offsets_survive() {
        let committed = Committed {
            offset: 7,
            leader_epoch: 2,
            metadata: "m".to_owned(),
            at: 5,
            expires: None,
            record_offset: 11,
        };
        assert_eq!(read_offset(offset_value(&committed), 11), Ok(committed.clone()));
        let expiring = Committed { expires: Some(99), leader_epoch: -1, ..committed };
        assert_eq!(read_offset(offset_value(&expiring), 11), Ok(expiring));
    }

    #[test]
    fn groups_survive_without_those_who_wait() {
        let member = Member {
            instance: Some("i".to_owned()),
            client_id: "c".to_owned(),
            rebalance_ms: 1,
            session_ms: 2,
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), Bytes::from_static(b"sub"))],
            assignment: Bytes::from_static(b"all"),
            ..Member::default()
        };
        let group = Group {
            phase: Phase::Stable,
            generation: 4,
            protocol_type: Some("consumer".to_owned()),
            protocol: Some("range".to_owned()),
            leader: Some("m".to_owned()),
            since: 8,
            members: [("m".to_owned(), member)].into(),
            static_members: [("i".to_owned(), "m".to_owned())].into(),
            ..Group::default()
        };
        let bytes = group_value(&group);
        assert_eq!(read_group(bytes.clone()), Ok(group));
        for length in 0..bytes.len() {
            assert!(read_group(bytes.slice(..length)).is_err());
        }
    }
}
