//! Members of classic groups: joining, assigning, staying, leaving, alone and in pairs, static and not.

use super::{
    Protocol, Scenario, all,
    answer::At,
    group::{Member, NOBODY, add_group, commit, commit_in, describe_group, offsets},
    peer::Peer,
    world::{World, text},
};
use bytes::Bytes;
use hapax_broker::wire::{Request, Response};
use kafka_protocol::{
    messages::{
        DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest,
        join_group_request::JoinGroupRequestProtocol, leave_group_request::MemberIdentity,
        sync_group_request::SyncGroupRequestAssignment,
    },
    protocol::StrBytes,
};
use std::{
    thread,
    time::{Duration, Instant},
};

pub(super) fn scenarios() -> Vec<Scenario> {
    all![
        alone_in_every_version,
        joins_that_are_refused,
        a_pair,
        static_members,
        offsets_of_members,
        a_member_that_is_silent,
    ]
}

fn join_request(
    world: &World,
    version: i16,
    group: &str,
    member: Member<'_>,
    session_ms: i32,
) -> JoinGroupRequest {
    let protocols = ["range", "roundrobin"].map(|name| {
        JoinGroupRequestProtocol::default()
            .with_name(text(name))
            .with_metadata(Bytes::from_static(b"\0\x01\0\0\0\0\xff\xff\xff\xff"))
    });
    let mut request = JoinGroupRequest::default()
        .with_group_id(text(&world.name(group)).into())
        .with_session_timeout_ms(session_ms)
        .with_member_id(text(member.id))
        .with_protocol_type(text("consumer"))
        .with_protocols(protocols.to_vec());
    if version >= 1 {
        request = request.with_rebalance_timeout_ms(10_000);
    }
    if version >= 5 {
        request = request.with_group_instance_id(member.instance.map(text));
    }
    request
}

/// What a member is after a join.
struct Joined {
    code: i16,
    id: String,
    generation: i32,
}

impl Joined {
    fn of(answer: &Response) -> Self {
        let Response::JoinGroup(answer) = answer else { unreachable!() };
        let (code, id) = (answer.error_code, answer.member_id.to_string());
        Self { code, id, generation: answer.generation_id }
    }

    fn member(&self) -> Member<'_> {
        Member { id: &self.id, generation: self.generation, instance: None }
    }
}

fn join(world: &mut World, version: i16, group: &str, member: Member<'_>) -> Joined {
    let request = join_request(world, version, group, member, 10_000);
    let answer = world.tell(&format!("join {group}"), At::Group(group), version, request).unwrap();
    let joined = Joined::of(&answer);
    if joined.code != MEMBER_ID_REQUIRED {
        return joined;
    }
    let named = joined.id.clone();
    join(world, version, group, Member { id: &named, ..member })
}

const MEMBER_ID_REQUIRED: i16 = 79;

/// A request on a connection of its own, of which the answer comes later.
fn ask_beside(
    world: &mut World,
    group: &str,
    version: i16,
    request: impl Into<Request>,
) -> thread::JoinHandle<Response> {
    let name = world.name(group);
    let (request, coordinator) = (request.into(), world.coordinator(0, &name));
    thread::spawn(move || {
        Peer::new(&coordinator).exchange(&coordinator, version, &request).expect("the node answers")
    })
}

/// Waits until a group has a state.
fn until(world: &mut World, group: &str, state: &str) {
    let begin = Instant::now();
    loop {
        let request = DescribeGroupsRequest::default().with_groups(vec![text(&world.name(group)).into()]);
        let found = world.quietly(|world| world.tell("look", At::Group(group), 5, request));
        let Some(Response::DescribeGroups(found)) = found else { panic!("no answer") };
        if found.groups[0].group_state.as_str() == state {
            return;
        }
        assert!(begin.elapsed() < LIMIT, "{group} does not become {state}");
        thread::sleep(Duration::from_millis(15));
    }
}

const LIMIT: Duration = Duration::from_secs(30);

fn sync(
    world: &mut World,
    version: i16,
    group: &str,
    member: Member<'_>,
    assignments: &[(&str, &'static [u8])],
) {
    let request = sync_request(world, version, group, member, assignments);
    world.tell(&format!("sync {group}"), At::Group(group), version, request);
}

fn sync_request(
    world: &World,
    version: i16,
    group: &str,
    member: Member<'_>,
    assignments: &[(&str, &'static [u8])],
) -> SyncGroupRequest {
    let assignments = assignments.iter().map(|(member, bytes)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(Bytes::from_static(bytes))
    });
    let mut request = SyncGroupRequest::default()
        .with_group_id(text(&world.name(group)).into())
        .with_generation_id(member.generation)
        .with_member_id(text(member.id))
        .with_assignments(assignments.collect());
    if version >= 3 {
        request = request.with_group_instance_id(member.instance.map(text));
    }
    if version >= 5 {
        request = request.with_protocol_type(Some(text("consumer"))).with_protocol_name(Some(text("range")));
    }
    request
}

fn heartbeat(world: &mut World, version: i16, group: &str, member: Member<'_>) {
    let mut request = HeartbeatRequest::default()
        .with_group_id(text(&world.name(group)).into())
        .with_generation_id(member.generation)
        .with_member_id(text(member.id));
    if version >= 3 {
        request = request.with_group_instance_id(member.instance.map(text));
    }
    world.tell(&format!("heartbeat {group}"), At::Group(group), version, request);
}

fn leave(world: &mut World, version: i16, group: &str, member: Member<'_>) {
    let mut request = LeaveGroupRequest::default().with_group_id(text(&world.name(group)).into());
    if version >= 3 {
        let leaver = MemberIdentity::default()
            .with_member_id(text(member.id))
            .with_group_instance_id(member.instance.map(text));
        request = request.with_members(vec![leaver]);
    } else {
        request = request.with_member_id(text(member.id));
    }
    world.tell(&format!("leave {group}"), At::Group(group), version, request);
}

fn alone_in_every_version(world: &mut World, _: Protocol) {
    for version in 0..=9 {
        let group = format!("g{version}");
        let joined = join(world, version, &group, NOBODY);
        let member = joined.member();
        describe_group(world, 5, &group);
        heartbeat(world, version.min(4), &group, member);
        sync(world, version.min(5), &group, member, &[(&joined.id, b"assigned")]);
        describe_group(world, 5, &group);
        heartbeat(world, version.min(4), &group, member);
        heartbeat(world, version.min(4), &group, Member { generation: member.generation + 1, ..member });
        heartbeat(world, version.min(4), &group, Member { id: "stranger", ..member });
        sync(world, version.min(5), &group, member, &[]);
        sync(world, version.min(5), &group, Member { generation: 7, ..member }, &[]);
        let again = join(world, version, &group, Member { id: &joined.id, ..NOBODY });
        sync(world, version.min(5), &group, again.member(), &[(&again.id, b"again")]);
        leave(world, version.min(5), &group, Member { id: "stranger", ..NOBODY });
        leave(world, version.min(5), &group, again.member());
        heartbeat(world, version.min(4), &group, again.member());
        describe_group(world, 5, &group);
        leave(world, version.min(5), "never", again.member());
    }
}

fn joins_that_are_refused(world: &mut World, _: Protocol) {
    for version in [3, 5, 9] {
        for session_ms in [0, 999, 1_800_001] {
            let request = join_request(world, version, "g", NOBODY, session_ms);
            world.tell(&format!("join for {session_ms}"), At::Group("g"), version, request);
        }
        let stranger = join_request(world, version, "g", Member { id: "stranger", ..NOBODY }, 10_000);
        world.tell("join as a stranger", At::Group("g"), version, stranger);
        let joined = join(world, version, "busy", NOBODY);
        sync(world, 3, "busy", joined.member(), &[(&joined.id, b"x")]);
        let mut other = join_request(world, version, "busy", NOBODY, 10_000);
        other.protocol_type = text("other");
        world.tell("join of another kind", At::Group("busy"), version, other);
        let mut other = join_request(world, version, "busy", NOBODY, 10_000);
        other.protocols.iter_mut().for_each(|protocol| protocol.name = text("mine"));
        world.tell("join with no common protocol", At::Group("busy"), version, other);
        let mut none = join_request(world, version, "busy", NOBODY, 10_000);
        none.protocols.clear();
        world.tell("join without protocols", At::Group("busy"), version, none);
        leave(world, 3, "busy", joined.member());
        let mut unnamed = join_request(world, version, "g", NOBODY, 10_000);
        unnamed.group_id = StrBytes::default().into();
        world.tell("join nothing", At::Group(""), version, unnamed);
    }
}

fn a_pair(world: &mut World, _: Protocol) {
    world.create_topic("t", 1, &[]);
    for version in [3, 9] {
        let group = format!("pair{version}");
        let first = join(world, version, &group, NOBODY);
        sync(world, 3, &group, first.member(), &[(&first.id, b"all")]);
        // Another one comes; from version 4 on it is given its name first.
        let mut request = join_request(world, version, &group, NOBODY, 10_000);
        if version >= 4 {
            let answer = world.tell("join", At::Group(&group), version, request.clone()).unwrap();
            request.member_id = text(&Joined::of(&answer).id);
        }
        let second = ask_beside(world, &group, version, request);
        until(world, &group, "PreparingRebalance");
        heartbeat(world, 3, &group, first.member());
        commit(world, 8, &group, first.member(), &[("t", 0, 3)]);
        let first = join(world, version, &group, Member { id: &first.id, ..NOBODY });
        let second = second.join().unwrap();
        let line = world.shown(second.clone());
        world.note(format!("the second joined: {line}"));
        let second = Joined::of(&second);
        commit(world, 8, &group, first.member(), &[("t", 0, 4)]);
        heartbeat(world, 3, &group, first.member());
        let waiting = sync_request(world, 3, &group, second.member(), &[]);
        let waiting = ask_beside(world, &group, 3, waiting);
        sync(world, 3, &group, first.member(), &[(&first.id, b"one"), (&second.id, b"two")]);
        let line = world.shown(waiting.join().unwrap());
        world.note(format!("the second is assigned: {line}"));
        offsets(world, 8, &group, None, true);
        leave(world, 3, &group, second.member());
        heartbeat(world, 3, &group, first.member());
        heartbeat(world, 3, &group, second.member());
        let last = join(world, version, &group, Member { id: &first.id, ..NOBODY });
        sync(world, 3, &group, last.member(), &[(&last.id, b"rest")]);
        describe_group(world, 5, &group);
        leave(world, 5, &group, last.member());
        describe_group(world, 5, &group);
    }
}

fn static_members(world: &mut World, _: Protocol) {
    for version in [5, 9] {
        let group = format!("static{version}");
        let as_one = Member { instance: Some("one"), ..NOBODY };
        let first = join(world, version, &group, as_one);
        sync(world, 3, &group, Member { instance: Some("one"), ..first.member() }, &[(&first.id, b"all")]);
        describe_group(world, 5, &group);
        // The same instance, started again: no rebalance, and the old one is fenced.
        let second = join(world, version, &group, as_one);
        heartbeat(world, 3, &group, Member { instance: Some("one"), ..first.member() });
        heartbeat(world, 3, &group, Member { instance: Some("other"), ..second.member() });
        heartbeat(world, 3, &group, Member { instance: Some("one"), ..second.member() });
        sync(world, 3, &group, Member { instance: Some("one"), ..second.member() }, &[]);
        let stale = Member { id: &first.id, instance: Some("one"), ..NOBODY };
        let request = join_request(world, version, &group, stale, 10_000);
        world.tell("join with the fenced name", At::Group(&group), version, request);
        leave(world, 3, &group, stale);
        leave(world, 3, &group, Member { instance: Some("unknown"), ..NOBODY });
        leave(world, 3, &group, as_one);
        describe_group(world, 5, &group);
    }
}

fn offsets_of_members(world: &mut World, protocol: Protocol) {
    world.create_topic("t", 1, &[]);
    let joined = join(world, 9, "g", NOBODY);
    let member = joined.member();
    let later = Member { generation: member.generation + 1, ..member };
    let own = world.init("tx", 4, None).unwrap();
    add_group(world, 3, "tx", own, "g");
    let all = [NOBODY, member, later, Member { generation: -1, ..member }, Member { id: "", ..member }];
    for round in 0..2 {
        for version in [2, 5, 8, 9] {
            for who in all {
                commit(world, version, "g", who, &[("t", 0, 5 + i64::from(version))]);
            }
        }
        for version in [2, 3, 4] {
            for who in all {
                commit_in(world, version, "tx", own, ("g", who), &[("t", 0, 50 + i64::from(version))]);
            }
        }
        if round == 0 {
            sync(world, 5, "g", member, &[(&joined.id, b"all")]);
        }
    }
    offsets(world, 8, "g", None, false);
    world.end("tx", protocol.end(), own, true);
    super::group::settle(world, "tx", "g");
    offsets(world, 8, "g", None, true);
    let request = super::group::delete_groups(world, "g");
    world.tell("delete a group with members", At::Group("g"), 2, request);
    leave(world, 5, "g", member);
    commit(world, 8, "g", member, &[("t", 0, 99)]);
    offsets(world, 8, "g", None, true);
}

fn a_member_that_is_silent(world: &mut World, _: Protocol) {
    world.create_topic("t", 1, &[]);
    // Six seconds are the shortest session that a broker allows by default.
    let session = world.short() * 20;
    let request = join_request(world, 3, "quiet", NOBODY, session.as_millis() as i32);
    world.hurry(session);
    let answer = world.tell("join", At::Group("quiet"), 3, request).unwrap();
    let joined = Joined::of(&answer);
    sync(world, 3, "quiet", joined.member(), &[(&joined.id, b"all")]);
    heartbeat(world, 3, "quiet", joined.member());
    world.in_time();
    thread::sleep(session + Duration::from_secs(2));
    heartbeat(world, 3, "quiet", joined.member());
    commit(world, 8, "quiet", joined.member(), &[("t", 0, 1)]);
    describe_group(world, 5, "quiet");
}
