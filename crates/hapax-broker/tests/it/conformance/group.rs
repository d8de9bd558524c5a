//! Offsets of groups: committed alone, with a transaction, read while one is open, deleted.

use super::{
    Protocol, Scenario, all,
    answer::At,
    record::topic_name,
    world::{Identity, World, text},
};
use hapax_broker::wire::Response;
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, TxnOffsetCommitRequest,
    offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
    offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic},
    offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics},
    txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
};

pub(super) fn scenarios() -> Vec<Scenario> {
    all![
        commit_in_every_version,
        commit_what_is_refused,
        fetch_in_every_version,
        offsets_of_open_transactions,
        transactional_offsets_in_every_version,
        transactional_offsets_that_are_refused,
        offsets_of_an_epoch_ahead,
        offsets_after_fencing,
        add_offsets,
        offsets_are_deleted,
        groups_are_told_and_deleted,
    ]
}

/// Who commits as a member.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) id: &'a str,
    pub(super) generation: i32,
    pub(super) instance: Option<&'a str>,
}

pub(super) const NOBODY: Member<'static> = Member { id: "", generation: -1, instance: None };

/// A place and the offset for it.
pub(super) type Offset<'a> = (&'a str, i32, i64);

/// Neighbours of one topic together.
fn by_topic<'a, 'b>(offsets: &'a [Offset<'b>]) -> impl Iterator<Item = &'a [Offset<'b>]> {
    offsets.chunk_by(|one, next| one.0 == next.0)
}

pub(super) fn commit(
    world: &mut World,
    version: i16,
    group: &str,
    member: Member<'_>,
    offsets: &[Offset<'_>],
) {
    let partition = |(_, partition, offset): &Offset<'_>| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(*partition)
            .with_committed_offset(*offset)
            .with_committed_leader_epoch(if version >= 6 { 3 } else { -1 })
            .with_committed_metadata(Some(text(&format!("about {offset}"))))
    };
    let topics = by_topic(offsets).map(|offsets| {
        OffsetCommitRequestTopic::default()
            .with_name(topic_name(world, offsets[0].0))
            .with_partitions(offsets.iter().map(partition).collect())
    });
    let mut request = OffsetCommitRequest::default()
        .with_group_id(text(&world.name(group)).into())
        .with_generation_id_or_member_epoch(member.generation)
        .with_member_id(text(member.id))
        .with_topics(topics.collect());
    if version >= 7 {
        request = request.with_group_instance_id(member.instance.map(text));
    }
    world.tell(&format!("commit {group} {offsets:?}"), At::Group(group), version, request);
}

pub(super) fn commit_in(
    world: &mut World,
    version: i16,
    id: &str,
    own: Identity,
    (group, member): (&str, Member<'_>),
    offsets: &[Offset<'_>],
) {
    let partition = |(_, partition, offset): &Offset<'_>| {
        TxnOffsetCommitRequestPartition::default()
            .with_partition_index(*partition)
            .with_committed_offset(*offset)
            .with_committed_leader_epoch(if version >= 2 { 4 } else { -1 })
            .with_committed_metadata(Some(text("in")))
    };
    let topics = by_topic(offsets).map(|offsets| {
        TxnOffsetCommitRequestTopic::default()
            .with_name(topic_name(world, offsets[0].0))
            .with_partitions(offsets.iter().map(partition).collect())
    });
    let mut request = TxnOffsetCommitRequest::default()
        .with_transactional_id(text(&world.name(id)).into())
        .with_group_id(text(&world.name(group)).into())
        .with_producer_id(own.id.into())
        .with_producer_epoch(own.epoch)
        .with_topics(topics.collect());
    if version >= 3 {
        request = request
            .with_member_id(text(member.id))
            .with_generation_id(member.generation)
            .with_group_instance_id(member.instance.map(text));
    }
    let own = world.identity(own);
    let what = format!("commit in {id} {own} {group} {offsets:?}");
    world.tell_settled(world.passing_of(id), &what, At::Group(group), version, request);
}

pub(super) fn add_group(world: &mut World, version: i16, id: &str, own: Identity, group: &str) {
    let request = AddOffsetsToTxnRequest::default()
        .with_transactional_id(text(&world.name(id)).into())
        .with_producer_id(own.id.into())
        .with_producer_epoch(own.epoch)
        .with_group_id(text(&world.name(group)).into());
    let own = world.identity(own);
    let what = format!("add {group} to {id} {own}");
    world.tell_settled(world.passing_of(id), &what, At::Transaction(id), version, request);
}

/// Reads offsets in any version; `None` for all of the group.
pub(super) fn offsets(
    world: &mut World,
    version: i16,
    group: &str,
    places: Option<&[(&str, i32)]>,
    stable: bool,
) {
    let name = text(&world.name(group));
    let mut request = OffsetFetchRequest::default();
    if version >= 7 {
        request = request.with_require_stable(stable);
    }
    if version >= 8 {
        let topics = places.map(|places| {
            let one = |(topic, partition): &(&str, i32)| {
                OffsetFetchRequestTopics::default()
                    .with_name(topic_name(world, topic))
                    .with_partition_indexes(vec![*partition])
            };
            places.iter().map(one).collect()
        });
        let mut asked = OffsetFetchRequestGroup::default().with_group_id(name.into()).with_topics(topics);
        if version >= 9 {
            asked = asked.with_member_epoch(-1).with_member_id(None);
        }
        request = request.with_groups(vec![asked]);
    } else {
        let topics = places.map(|places| {
            let one = |(topic, partition): &(&str, i32)| {
                OffsetFetchRequestTopic::default()
                    .with_name(topic_name(world, topic))
                    .with_partition_indexes(vec![*partition])
            };
            places.iter().map(one).collect()
        });
        request = request.with_group_id(name.into()).with_topics(topics);
    }
    world.tell(&format!("offsets {group} {places:?} stable {stable}"), At::Group(group), version, request);
}

const UNSTABLE: i16 = 88;
const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// The versions of OffsetCommit and OffsetFetch that are asked for.
const COMMITS: std::ops::RangeInclusive<i16> = 2..=9;
const FETCHES: std::ops::RangeInclusive<i16> = 1..=9;

fn commit_in_every_version(world: &mut World, _: Protocol) {
    world.create_topic("t", 2, &[]);
    for version in COMMITS {
        commit(world, version, "g", NOBODY, &[("t", 0, i64::from(version)), ("t", 1, 7)]);
        commit(world, version, "g", NOBODY, &[("nowhere", 0, 1)]);
        commit(world, version, "g", NOBODY, &[("t", 0, 100 + i64::from(version)), ("t", 9, 1)]);
        offsets(world, 8, "g", Some(&[("t", 0)]), false);
    }
}

fn commit_what_is_refused(world: &mut World, _: Protocol) {
    world.create_topic("t", 1, &[]);
    for version in [2, 6, 7, 8, 9] {
        let group = format!("g{version}");
        for generation in [-1, 0, 5] {
            for (id, instance) in [("", None), ("stranger", None), ("stranger", Some("static"))] {
                commit(world, version, &group, Member { id, generation, instance }, &[("t", 0, 5)]);
            }
        }
        commit(world, version, &group, NOBODY, &[("t", 0, -1)]);
        commit(world, version, &group, NOBODY, &[("t", 0, -7)]);
        offsets(world, 8, &group, None, false);
    }
    let long = "m".repeat(5000);
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(3)
        .with_committed_metadata(Some(text(&long)));
    for metadata in [Some(text(&long)), Some(text(&long[..4096])), None] {
        let partition = partition.clone().with_committed_metadata(metadata);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(topic_name(world, "t"))
            .with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(text(&world.name("long")).into())
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic]);
        world.tell("commit with metadata", At::Group("long"), 8, request);
    }
    offsets(world, 5, "long", Some(&[("t", 0)]), false);
    let nobody = OffsetCommitRequest::default().with_generation_id_or_member_epoch(-1);
    world.tell("commit of no group", At::Group(""), 8, nobody);
}

fn fetch_in_every_version(world: &mut World, _: Protocol) {
    world.create_topic("t", 2, &[]);
    for version in FETCHES {
        offsets(world, version, "nobody", Some(&[("t", 0)]), false);
        if version >= 2 {
            offsets(world, version, "nobody", None, false);
        }
    }
    commit(world, 8, "g", NOBODY, &[("t", 0, 5)]);
    for version in FETCHES {
        for stable in [false, true] {
            offsets(world, version, "g", Some(&[("t", 0)]), stable);
            offsets(world, version, "g", Some(&[("t", 1)]), stable);
            offsets(world, version, "g", Some(&[("t", 7)]), stable);
            offsets(world, version, "g", Some(&[("nowhere", 0)]), stable);
            offsets(world, version, "g", Some(&[]), stable);
            if version >= 2 {
                offsets(world, version, "g", None, stable);
            }
        }
    }
}

fn offsets_of_open_transactions(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 2, &[]);
    commit(world, 8, "g", NOBODY, &[("t", 0, 5)]);
    for commits in [false, true] {
        let id = format!("tx-{commits}");
        let own = world.init(&id, 4, None).unwrap();
        put_offsets(world, protocol, &id, own, "g", &[("t", 0, 8), ("t", 1, 9)]);
        world.describe(&id);
        for version in FETCHES {
            for stable in [false, true] {
                offsets(world, version, "g", Some(&[("t", 0)]), stable);
                offsets(world, version, "g", Some(&[("t", 1)]), stable);
                if version >= 2 {
                    offsets(world, version, "g", None, stable);
                }
            }
        }
        // A commit beside the transaction: the later one wins when both are there.
        if commits {
            commit(world, 8, "g", NOBODY, &[("t", 0, 6)]);
            offsets(world, 8, "g", Some(&[("t", 0)]), false);
        }
        delete_offsets(world, "g", &[("t", 0)]);
        let request = delete_groups(world, "g");
        world.tell("delete groups", At::Group("g"), 2, request);
        world.end(&id, protocol.end(), own, commits);
        settle(world, &id, "g");
        offsets(world, 8, "g", None, true);
    }
}

pub(super) fn delete_groups(world: &World, group: &str) -> DeleteGroupsRequest {
    DeleteGroupsRequest::default().with_groups_names(vec![text(&world.name(group)).into()])
}

/// Adds a group to a transaction, where the protocol does so, and offsets of it.
pub(super) fn put_offsets(
    world: &mut World,
    protocol: Protocol,
    id: &str,
    own: Identity,
    group: &str,
    offsets: &[Offset<'_>],
) {
    if protocol == Protocol::V1 {
        add_group(world, 3, id, own, group);
    }
    let version = if protocol == Protocol::V1 { 4 } else { 5 };
    commit_in(world, version, id, own, (group, NOBODY), offsets);
}

/// Waits until an id's transaction has ended, also in the log of the group, which takes its marker a moment later.
pub(super) fn settle(world: &mut World, id: &str, group: &str) {
    world.describe(id);
    world.quietly(|world| {
        let begin = std::time::Instant::now();
        loop {
            let name = text(&world.name(group));
            let request = OffsetFetchRequest::default().with_require_stable(true).with_groups(vec![
                OffsetFetchRequestGroup::default().with_group_id(name.into()).with_topics(None),
            ]);
            let Some(Response::OffsetFetch(found)) = world.tell("look", At::Group(group), 8, request) else {
                panic!("no answer")
            };
            let mut partitions =
                found.groups.iter().flat_map(|group| &group.topics).flat_map(|topic| &topic.partitions);
            if partitions.all(|partition| partition.error_code != UNSTABLE) {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "{group} stays unstable");
            std::thread::sleep(std::time::Duration::from_millis(15));
        }
    });
}

fn transactional_offsets_in_every_version(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 2, &[]);
    let last = if protocol == Protocol::V2 { 5 } else { 4 };
    for version in 0..=last {
        for added in [false, true] {
            let (id, group) = (format!("tx-{version}-{added}"), format!("g-{version}-{added}"));
            let own = world.init(&id, 4, None).unwrap();
            if added {
                add_group(world, 3.min(version), &id, own, &group);
            }
            commit_in(world, version, &id, own, (&group, NOBODY), &[("t", 0, 3)]);
            commit_in(world, version, &id, own, (&group, NOBODY), &[("nowhere", 0, 3)]);
            commit_in(world, version, &id, own, (&group, NOBODY), &[("t", 1, 4), ("t", 7, 3)]);
            offsets(world, 8, &group, None, false);
            world.describe(&id);
            world.end(&id, protocol.end(), own, true);
            settle(world, &id, &group);
            offsets(world, 8, &group, None, true);
        }
    }
}

fn transactional_offsets_that_are_refused(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let last = if protocol == Protocol::V2 { 5 } else { 4 };
    for version in [2, 3, last] {
        let (id, group) = (format!("tx-{version}"), format!("g-{version}"));
        let own = world.init(&id, 4, None).unwrap();
        add_group(world, 3, &id, own, &group);
        for (id_of_member, generation, instance) in [
            ("stranger", 1, None),
            ("stranger", -1, None),
            ("", 1, None),
            ("", 0, None),
            ("", -1, Some("static")),
        ] {
            let member = Member { id: id_of_member, generation, instance };
            commit_in(world, version, &id, own, (&group, member), &[("t", 0, 3)]);
        }
        commit_in(world, version, &id, own.stranger(), (&group, NOBODY), &[("t", 0, 3)]);
        commit_in(world, version, "unknown", own, (&group, NOBODY), &[("t", 0, 3)]);
        commit_in(world, version, &id, own, (&group, NOBODY), &[("t", 0, -2)]);
        world.describe(&id);
        world.end(&id, protocol.end(), own, true);
        settle(world, &id, &group);
        offsets(world, 8, &group, None, true);
        // After the end.
        commit_in(world, version, &id, own, (&group, NOBODY), &[("t", 0, 30)]);
        world.describe(&id);
        offsets(world, 8, &group, None, false);
    }
}

/// Where the group's coordinator takes such an offset, the log of groups knows the later epoch, and the markers of the
/// transaction are refused for ever: what state it has at last is not waited for.
fn offsets_of_an_epoch_ahead(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let last = if protocol == Protocol::V2 { 5 } else { 4 };
    for version in [2, 3, last] {
        for begun in [false, true] {
            let (id, group) = (format!("tx-{version}-{begun}"), format!("g-{version}-{begun}"));
            let own = world.init(&id, 4, None).unwrap();
            add_group(world, 3, &id, own, &group);
            if begun {
                commit_in(world, version, &id, own, (&group, NOBODY), &[("t", 0, 2)]);
            }
            commit_in(world, version, &id, own.later(1), (&group, NOBODY), &[("t", 0, 3)]);
            commit_in(world, version, &id, own, (&group, NOBODY), &[("t", 0, 4)]);
            offsets(world, 8, &group, None, false);
            world.end(&id, protocol.end(), own, true);
        }
    }
}

fn offsets_after_fencing(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let old = world.init("two", 4, None).unwrap();
    put_offsets(world, protocol, "two", old, "g", &[("t", 0, 8)]);
    let new = world.init("two", 4, None).unwrap();
    settle(world, "two", "g");
    offsets(world, 8, "g", None, true);
    put_offsets(world, protocol, "two", old, "g", &[("t", 0, 80)]);
    put_offsets(world, protocol, "two", new, "g", &[("t", 0, 9)]);
    put_offsets(world, protocol, "two", old, "g", &[("t", 0, 81)]);
    offsets(world, 8, "g", None, false);
    world.end("two", protocol.end(), new, true);
    settle(world, "two", "g");
    offsets(world, 8, "g", None, true);
}

fn add_offsets(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let own = world.init("tx", 4, None).unwrap();
    for version in 0..=4 {
        add_group(world, version, "tx", own.stranger(), "g");
        add_group(world, version, "tx", own.later(1), "g");
        add_group(world, version, "unknown", own, "g");
        add_group(world, version, "tx", own, "g");
        world.describe("tx");
    }
    add_group(world, 3, "tx", own, "h");
    world.describe("tx");
    world.end("tx", protocol.end(), own, true);
    world.describe("tx");
    add_group(world, 3, "tx", own, "g");
    world.describe("tx");
}

fn delete_offsets(world: &mut World, group: &str, places: &[(&str, i32)]) {
    let topics = places.iter().map(|(topic, partition)| {
        let partition = OffsetDeleteRequestPartition::default().with_partition_index(*partition);
        OffsetDeleteRequestTopic::default()
            .with_name(topic_name(world, topic))
            .with_partitions(vec![partition])
    });
    let request = OffsetDeleteRequest::default()
        .with_group_id(text(&world.name(group)).into())
        .with_topics(topics.collect());
    world.tell(&format!("delete {group} {places:?}"), At::Group(group), 0, request);
}

fn offsets_are_deleted(world: &mut World, _: Protocol) {
    world.create_topic("t", 2, &[]);
    delete_offsets(world, "g", &[("t", 0)]);
    commit(world, 8, "g", NOBODY, &[("t", 0, 5), ("t", 1, 6)]);
    delete_offsets(world, "g", &[("t", 0)]);
    offsets(world, 8, "g", None, true);
    delete_offsets(world, "g", &[("t", 7)]);
    delete_offsets(world, "g", &[("nowhere", 0)]);
    delete_offsets(world, "g", &[("t", 1)]);
    offsets(world, 8, "g", None, true);
    for version in 0..=5 {
        describe_group(world, version, "g");
    }
}

pub(super) fn describe_group(world: &mut World, version: i16, group: &str) {
    let request = DescribeGroupsRequest::default().with_groups(vec![text(&world.name(group)).into()]);
    world.tell(&format!("describe {group}"), At::Group(group), version, request);
}

fn groups_are_told_and_deleted(world: &mut World, _: Protocol) {
    world.create_topic("t", 1, &[]);
    for version in 0..=5 {
        describe_group(world, version, "nobody");
    }
    commit(world, 8, "g", NOBODY, &[("t", 0, 5)]);
    for version in 0..=5 {
        describe_group(world, version, "g");
    }
    for version in 0..=5 {
        let prefix = world.name("");
        for states in [&[][..], &["Empty"], &["Stable"], &["empty"], &["Nonsense"]] {
            if version < 4 && !states.is_empty() {
                continue;
            }
            let request = ListGroupsRequest::default()
                .with_states_filter(states.iter().map(|state| text(state)).collect());
            let answer = world.quietly(|world| world.tell("list", At::Group("g"), version, request));
            let Some(Response::ListGroups(mut found)) = answer else { panic!("no answer") };
            found.groups.retain(|group| group.group_id.starts_with(&prefix));
            let line = world.shown(found.into());
            world.note(format!("list {states:?} v{version} -> {line}"));
        }
    }
    for version in 0..=2 {
        let request = delete_groups(world, "nobody");
        world.tell("delete nobody", At::Group("nobody"), version, request);
        commit(world, 8, "g", NOBODY, &[("t", 0, 5)]);
        let request = delete_groups(world, "g");
        world.tell("delete g", At::Group("g"), version, request);
        offsets(world, 8, "g", None, true);
        describe_group(world, 5, "g");
    }
}
