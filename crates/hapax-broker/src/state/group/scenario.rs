//! What clients see of groups and their offsets, through the machine.

use crate::{
    state::{
        Code, Settings, Step, Ticket,
        catalog::CONSUMER_OFFSETS,
        probe::{Probe, answer_of, name},
    },
    wire::{Request, Response},
};
use bytes::{Bytes, BytesMut};
use kafka_protocol::{
    messages::{
        AddOffsetsToTxnRequest, DeleteGroupsRequest, DescribeGroupsRequest, EndTxnRequest,
        FindCoordinatorRequest, GroupId, HeartbeatRequest, InitProducerIdRequest, JoinGroupRequest,
        JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest,
        OffsetFetchRequest, SyncGroupRequest, TransactionalId, TxnOffsetCommitRequest,
        describe_groups_response::DescribedGroup,
        join_group_request::JoinGroupRequestProtocol,
        leave_group_request::MemberIdentity,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic},
        offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics},
        sync_group_request::SyncGroupRequestAssignment,
        txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
    },
    protocol::StrBytes,
};

const NONE: i16 = 0;
const RETENTION_MS: i64 = 7 * 24 * 3_600_000;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn gid() -> GroupId {
    GroupId(text("g"))
}

fn tid() -> TransactionalId {
    TransactionalId(text("x"))
}

/// Who commits: member, instance and generation.
type Who<'a> = (&'a str, Option<&'a str>, i32);

const NOBODY: Who<'static> = ("", None, -1);

impl Probe {
    /// Topics `t` and `u`, and both coordinators.
    fn with_groups(settings: Settings) -> Self {
        let mut probe = Self::with(settings);
        probe.topic("t", 2, &[]);
        probe.topic("u", 1, &[]);
        for key_type in [0, 1] {
            for expected in [15, NONE] {
                let request = FindCoordinatorRequest::default().with_key_type(key_type).with_key(text("g"));
                let Response::FindCoordinator(response) = probe.ask(3, request) else { panic!() };
                assert_eq!(response.error_code, expected);
            }
        }
        probe
    }

    fn commit(&mut self, version: i16, (member, instance, generation): Who<'_>, offset: i64) -> i16 {
        let partition = OffsetCommitRequestPartition::default()
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("m")));
        let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(gid())
            .with_member_id(text(member))
            .with_group_instance_id(instance.map(text))
            .with_generation_id_or_member_epoch(generation)
            .with_topics(vec![topic]);
        let Response::OffsetCommit(response) = self.ask(version, request) else { panic!() };
        response.topics[0].partitions[0].error_code
    }

    /// TxnOffsetCommit for `t` 0 and for a topic that is not there.
    fn commit_in(
        &mut self,
        version: i16,
        (id, epoch): (i64, i16),
        (member, instance, generation): Who<'_>,
        offset: i64,
    ) -> [i16; 2] {
        let topic = |topic: &str| {
            let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
            TxnOffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![partition])
        };
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(tid())
            .with_group_id(gid())
            .with_producer_id(id.into())
            .with_producer_epoch(epoch)
            .with_member_id(text(member))
            .with_group_instance_id(instance.map(text))
            .with_generation_id(generation)
            .with_topics(vec![topic("t"), topic("nowhere")]);
        let Response::TxnOffsetCommit(response) = self.ask(version, request) else { panic!() };
        [0, 1].map(|at: usize| response.topics[at].partitions[0].error_code)
    }

    /// Offset and error of `t` 0.
    fn fetch_offset(&mut self, stable: bool) -> (i64, i16) {
        let topic = OffsetFetchRequestTopics::default().with_name(name("t")).with_partition_indexes(vec![0]);
        let group = OffsetFetchRequestGroup::default().with_group_id(gid()).with_topics(Some(vec![topic]));
        let request = OffsetFetchRequest::default().with_groups(vec![group]).with_require_stable(stable);
        let Response::OffsetFetch(response) = self.ask(8, request) else { panic!() };
        let group = &response.groups[0];
        match group.topics.first() {
            None => (-1, group.error_code),
            Some(topic) => (topic.partitions[0].committed_offset, topic.partitions[0].error_code),
        }
    }

    fn init_x(&mut self) -> (i64, i16) {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(tid()))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        let Response::InitProducerId(response) = self.ask(5, request) else { panic!() };
        assert_eq!(response.error_code, NONE);
        (response.producer_id.0, response.producer_epoch)
    }

    fn add_offsets(&mut self, (id, epoch): (i64, i16)) -> i16 {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(tid())
            .with_producer_id(id.into())
            .with_producer_epoch(epoch)
            .with_group_id(gid());
        let Response::AddOffsetsToTxn(response) = self.ask(4, request) else { panic!() };
        response.error_code
    }

    fn end_x(&mut self, version: i16, (id, epoch): (i64, i16), commit: bool) -> i16 {
        let request = EndTxnRequest::default()
            .with_transactional_id(tid())
            .with_producer_id(id.into())
            .with_producer_epoch(epoch)
            .with_committed(commit);
        let Response::EndTxn(response) = self.ask(version, request) else { panic!() };
        response.error_code
    }

    fn send_join(
        &mut self,
        version: i16,
        member: &str,
        instance: Option<&str>,
    ) -> (Ticket, Vec<crate::state::Reply>) {
        let mut metadata = vec![0, 0, 0, 0, 0, 1, 0, 1, b't'];
        metadata.extend([0xff; 4]);
        let protocol =
            JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(Bytes::from(metadata));
        let request = JoinGroupRequest::default()
            .with_group_id(gid())
            .with_session_timeout_ms(10_000)
            .with_rebalance_timeout_ms(30_000)
            .with_member_id(text(member))
            .with_group_instance_id(instance.map(text))
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        self.send(version, request)
    }

    /// Joins, and what is answered within the delay of a first rebalance.
    fn join(&mut self, version: i16, member: &str, instance: Option<&str>) -> JoinGroupResponse {
        let (ticket, mut replies) = self.send_join(version, member, instance);
        replies.extend(self.pass(1));
        joined(ticket, &replies)
    }

    /// A member that is the whole group, with its assignment; its id.
    fn alone(&mut self, instance: Option<&str>) -> (String, i32) {
        let first = self.join(3, "", instance);
        assert_eq!((first.error_code, first.members.len()), (NONE, 1));
        let id = first.member_id.to_string();
        assert_eq!(self.sync(&id, first.generation_id, &[(&id, b"all")]), (NONE, Bytes::from_static(b"all")));
        (id, first.generation_id)
    }

    fn sync(&mut self, member: &str, generation: i32, assignments: &[(&str, &'static [u8])]) -> (i16, Bytes) {
        let (ticket, replies) = self.send_sync(member, generation, assignments);
        synced(ticket, &replies)
    }

    fn send_sync(
        &mut self,
        member: &str,
        generation: i32,
        assignments: &[(&str, &'static [u8])],
    ) -> (Ticket, Vec<crate::state::Reply>) {
        let assignments = assignments.iter().map(|(member, assignment)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(text(member))
                .with_assignment(Bytes::from_static(assignment))
        });
        let request = SyncGroupRequest::default()
            .with_group_id(gid())
            .with_generation_id(generation)
            .with_member_id(text(member))
            .with_assignments(assignments.collect());
        self.send(4, request)
    }

    fn beat(&mut self, member: &str, generation: i32) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(gid())
            .with_generation_id(generation)
            .with_member_id(text(member));
        let Response::Heartbeat(response) = self.ask(4, request) else { panic!() };
        response.error_code
    }

    fn describe_g(&mut self) -> DescribedGroup {
        let request = DescribeGroupsRequest::default().with_groups(vec![gid()]);
        let Response::DescribeGroups(response) = self.ask(6, request) else { panic!() };
        response.groups[0].clone()
    }
}

fn joined(ticket: Ticket, replies: &[crate::state::Reply]) -> JoinGroupResponse {
    let Some(Response::JoinGroup(response)) = answer_of(ticket, replies) else { panic!("{replies:?}") };
    response
}

fn synced(ticket: Ticket, replies: &[crate::state::Reply]) -> (i16, Bytes) {
    let Some(Response::SyncGroup(response)) = answer_of(ticket, replies) else { panic!("{replies:?}") };
    (response.error_code, response.assignment)
}

fn groups() -> Probe {
    Probe::with_groups(Settings::default())
}

#[test]
fn an_offset_may_be_kept_for_ever() {
    let mut probe = Probe::with_groups(Settings::default());
    for version in 2..=4 {
        for retention in [i64::MAX, i64::MIN, 0] {
            let partition = OffsetCommitRequestPartition::default().with_committed_offset(3);
            let topic =
                OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
            let request = OffsetCommitRequest::default()
                .with_group_id(gid())
                .with_generation_id_or_member_epoch(-1)
                .with_retention_time_ms(retention)
                .with_topics(vec![topic]);
            let Response::OffsetCommit(response) = probe.ask(version, request) else { panic!() };
            assert_eq!(response.topics[0].partitions[0].error_code, NONE);
            assert_eq!(probe.fetch_offset(false), (3, NONE));
        }
    }
}

#[test]
fn offsets_of_nobody_are_kept_and_survive_a_crash() {
    let mut probe = groups();
    assert_eq!(probe.fetch_offset(true), (-1, NONE));
    for version in 2..=9 {
        assert_eq!(probe.commit(version, NOBODY, 10 + i64::from(version)), NONE);
    }
    assert_eq!(probe.fetch_offset(true), (19, NONE));
    probe.act(Step::Crash);
    assert_eq!(probe.fetch_offset(true), (-1, 14));
    probe.pass(20);
    assert_eq!(probe.fetch_offset(true), (19, NONE));
    assert_eq!(probe.commit(8, ("m", None, 0), 1), 25, "the group is there, the member is not");
}

#[test]
fn a_group_that_is_not_there_has_no_generation() {
    let mut probe = groups();
    assert_eq!(probe.commit(8, ("m", None, 0), 1), 22);
    assert_eq!(probe.commit(9, ("m", None, 0), 1), 69);
}

#[test]
fn offsets_of_v2_join_the_transaction_by_themselves() {
    let mut probe = groups();
    let x = probe.init_x();
    probe.commit(8, NOBODY, 5);
    assert_eq!(probe.commit_in(5, x, NOBODY, 7), [NONE, 3], "an unknown topic keeps nothing else out");
    assert_eq!((probe.fetch_offset(false), probe.fetch_offset(true)), ((5, NONE), (-1, 88)));
    assert_eq!(probe.end_x(5, x, true), NONE);
    assert_eq!(probe.fetch_offset(true), (-1, 88), "decided, and not marked");
    assert_eq!(probe.commit_in(5, (x.0, x.1 + 1), NOBODY, 9), [51, 3]);
    probe.pass(3);
    assert_eq!(probe.fetch_offset(true), (7, NONE));
    assert_eq!(probe.commit_in(5, x, NOBODY, 9), [47, 3], "the epoch before");
    assert_eq!(probe.commit_in(5, (x.0 + 1, 0), NOBODY, 9), [49, 3]);
}

#[test]
fn offsets_of_v1_must_have_been_announced() {
    let mut probe = groups();
    let x = probe.init_x();
    assert_eq!(probe.commit_in(3, x, NOBODY, 7), [48, 3]);
    assert_eq!(probe.commit_in(4, x, NOBODY, 7), [120, 3]);
    assert_eq!(probe.add_offsets(x), NONE);
    for version in 0..=4 {
        assert_eq!(probe.commit_in(version, x, NOBODY, 7), [NONE, 3]);
    }
    assert_eq!(probe.end_x(4, x, false), NONE);
    probe.pass(3);
    assert_eq!(probe.fetch_offset(true), (-1, NONE), "aborted");
}

#[test]
fn offsets_of_an_open_transaction_survive_a_crash_unseen() {
    let mut probe = groups();
    let x = probe.init_x();
    probe.commit_in(5, x, NOBODY, 7);
    probe.act(Step::Crash);
    probe.pass(20);
    assert_eq!((probe.fetch_offset(false), probe.fetch_offset(true)), ((-1, NONE), (-1, 88)));
    assert_eq!(probe.commit_in(5, x, NOBODY, 8), [NONE, 3]);
    assert_eq!(probe.end_x(5, x, true), NONE);
    probe.pass(3);
    assert_eq!(probe.fetch_offset(true), (8, NONE));
    probe.act(Step::Crash);
    probe.pass(20);
    assert_eq!(probe.fetch_offset(true), (8, NONE), "the marker is read again too");
}

#[test]
fn a_transactions_offsets_are_fenced_by_member_and_generation() {
    let mut probe = groups();
    let x = probe.init_x();
    assert_eq!(probe.commit_in(5, x, ("m", None, 3), 7), [22, 3], "no group");
    let (member, generation) = probe.alone(Some("i"));
    assert_eq!(probe.commit_in(5, x, (&member, Some("i"), generation), 7), [NONE, 3]);
    assert_eq!(probe.commit_in(5, x, (&member, Some("i"), generation + 1), 7), [22, 3]);
    assert_eq!(probe.commit_in(5, x, ("other", None, generation), 7), [25, 3]);
    assert_eq!(probe.commit_in(5, x, ("other", Some("i"), generation), 7), [82, 3]);
    assert_eq!(probe.commit_in(5, x, NOBODY, 7), [NONE, 3], "who names nobody is not fenced");
    assert_eq!(probe.commit(8, NOBODY, 7), 25, "outside of a transaction it is");
}

#[test]
fn a_member_without_id_is_sent_back_with_one() {
    let mut probe = groups();
    let first = probe.join(9, "", None);
    assert_eq!(first.error_code, 79);
    let id = first.member_id.to_string();
    assert!(id.starts_with("test-"));
    let again = probe.join(9, &id, None);
    assert_eq!((again.error_code, again.generation_id, again.leader.to_string()), (NONE, 1, id));
    assert_eq!(probe.join(9, "stranger", None).error_code, 25);
}

#[test]
fn a_second_member_rebalances_the_group() {
    let mut probe = groups();
    let (first, generation) = probe.alone(None);
    assert_eq!(probe.beat(&first, generation), NONE);
    let (second_ticket, replies) = probe.send_join(3, "", None);
    assert!(answer_of(second_ticket, &replies).is_none(), "it waits for the first one");
    assert_eq!(probe.beat(&first, generation), 27);
    assert_eq!(probe.describe_g().group_state.as_str(), "PreparingRebalance");
    let (first_ticket, replies) = probe.send_join(3, &first, None);
    let leader = joined(first_ticket, &replies);
    let second = joined(second_ticket, &replies).member_id.to_string();
    assert_eq!((leader.generation_id, leader.members.len()), (generation + 1, 2));
    let (waits, replies) = probe.send_sync(&second, generation + 1, &[]);
    assert!(answer_of(waits, &replies).is_none());
    assert_eq!(probe.commit(8, (&first, None, generation + 1), 1), 27, "not before the assignment");
    let given: [(&str, &[u8]); 2] = [(&first, b"one"), (&second, b"two")];
    let (leads, replies) = probe.send_sync(&first, generation + 1, &given);
    assert_eq!(synced(leads, &replies), (NONE, Bytes::from_static(b"one")));
    assert_eq!(synced(waits, &replies), (NONE, Bytes::from_static(b"two")));
    assert_eq!(probe.beat(&second, generation + 1), NONE);
    assert_eq!(probe.commit(8, (&first, None, generation), 1), 22);
}

#[test]
fn who_is_not_heard_of_is_given_up() {
    let mut probe = groups();
    let (member, generation) = probe.alone(None);
    for _ in 0..5 {
        probe.pass(9_000);
        assert_eq!(probe.beat(&member, generation), NONE);
    }
    probe.pass(10_000);
    assert_eq!(probe.describe_g().group_state.as_str(), "Empty");
    assert_eq!(probe.beat(&member, generation), 25);
    assert_eq!(probe.commit(8, NOBODY, 1), NONE, "an empty group takes offsets of nobody");
}

#[test]
fn a_rebalance_does_not_wait_for_ever() {
    let mut probe = groups();
    let (first, generation) = probe.alone(None);
    let (ticket, _) = probe.send_join(3, "", None);
    let mut replies = Vec::new();
    for _ in 0..4 {
        replies.extend(probe.pass(9_000));
        probe.beat(&first, generation);
    }
    let second = joined(ticket, &replies);
    assert_eq!((second.generation_id, second.members.len()), (generation + 1, 1));
    assert_eq!(probe.beat(&first, generation), 25);
}

/// Joins as a new member beside the one that beats, and counts the seconds until it is in.
fn seconds_of_a_join(probe: &mut Probe, (first, generation): (&str, i32), at_most: i64) -> Option<i64> {
    let (ticket, _) = probe.send_join(3, "", None);
    (1..=at_most).find(|_| {
        let replies = probe.pass(1_000);
        probe.beat(first, generation);
        answer_of(ticket, &replies).is_some()
    })
}

#[test]
fn a_rebalance_is_not_ended_by_the_timer_of_one_before_a_reload() {
    let mut probe = groups();
    let (first, generation) = probe.alone(None);
    probe.act(Step::Crash);
    probe.pass(20);
    assert_eq!(seconds_of_a_join(&mut probe, (&first, generation), 5), None);
    probe.act(Step::Crash);
    probe.pass(20);
    assert_eq!(seconds_of_a_join(&mut probe, (&first, generation), 60), Some(30));
}

#[test]
fn a_member_is_not_given_up_by_the_timer_of_a_group_that_was_deleted() {
    let mut probe = groups();
    let (old, generation) = probe.alone(None);
    probe.pass(5_000);
    probe.ask(2, LeaveGroupRequest::default().with_group_id(gid()).with_member_id(text(&old)));
    let request = DeleteGroupsRequest::default().with_groups_names(vec![gid()]);
    let Response::DeleteGroups(deleted) = probe.ask(2, request) else { panic!() };
    assert_eq!(deleted.results[0].error_code, NONE);
    let new = probe.join(3, "", None);
    assert_eq!(new.generation_id, generation);
    for _ in 0..29 {
        assert_eq!(probe.beat(&new.member_id, generation), NONE, "it has 30 seconds to sync");
        probe.pass(1_000);
    }
    probe.pass(1_000);
    assert_eq!(probe.beat(&new.member_id, generation), 25);
}

#[test]
fn a_coordinator_goes_with_its_topic_and_comes_back_knowing_nothing() {
    let mut probe = groups();
    let (member, generation) = probe.alone(None);
    assert_eq!(probe.commit(8, (&member, None, generation), 5), NONE);
    let (waits, _) = probe.send_join(3, "", None);
    let replies = probe.delete(CONSUMER_OFFSETS);
    assert_eq!(joined(waits, &replies).error_code, 16, "who waits there looks for another one");
    assert_eq!(probe.beat(&member, generation), 16);
    assert_eq!(probe.commit(8, (&member, None, generation), 6), 16);
    assert_eq!(probe.fetch_offset(false), (-1, 16));
    assert_eq!(probe.join(3, "", None).error_code, 16);
    assert_eq!(probe.sync(&member, generation, &[]).0, 16);
    let request = DeleteGroupsRequest::default().with_groups_names(vec![gid()]);
    let Response::DeleteGroups(deleted) = probe.ask(2, request) else { panic!() };
    assert_eq!(deleted.results[0].error_code, 16);
    for expected in [15, NONE] {
        let Response::FindCoordinator(found) =
            probe.ask(3, FindCoordinatorRequest::default().with_key(text("g")))
        else {
            panic!()
        };
        assert_eq!(found.error_code, expected);
    }
    assert_eq!(probe.beat(&member, generation), 25);
    assert_eq!(probe.fetch_offset(false), (-1, NONE));
    probe.alone(None);
}

#[test]
fn a_static_member_comes_back_without_a_rebalance_and_fences_its_old_self() {
    let mut probe = groups();
    let (old, generation) = probe.alone(Some("i"));
    let back = probe.join(9, "", Some("i"));
    assert_eq!((back.error_code, back.generation_id, back.skip_assignment), (NONE, generation, true));
    let new = back.member_id.to_string();
    assert_ne!(new, old);
    assert_eq!(probe.sync(&new, generation, &[]), (NONE, Bytes::from_static(b"all")));
    assert_eq!(probe.commit(8, (&old, Some("i"), generation), 1), 82);
    assert_eq!(probe.commit(8, (&new, Some("i"), generation), 1), NONE);
}

#[test]
fn members_leave_by_id_or_by_instance() {
    let mut probe = groups();
    let (member, _) = probe.alone(Some("i"));
    let mut leave = |member: MemberIdentity| {
        let request = LeaveGroupRequest::default().with_group_id(gid()).with_members(vec![member]);
        let Response::LeaveGroup(response) = probe.ask(5, request) else { panic!() };
        (response.error_code, response.members[0].error_code)
    };
    let unknown = MemberIdentity::default().with_member_id(text("z"));
    assert_eq!(leave(unknown), (NONE, 25));
    let fenced = MemberIdentity::default().with_member_id(text("z")).with_group_instance_id(Some(text("i")));
    assert_eq!(leave(fenced), (NONE, 82));
    assert_eq!(leave(MemberIdentity::default().with_group_instance_id(Some(text("i")))), (NONE, NONE));
    let (again, _) = probe.alone(None);
    assert_ne!(again, member);
    let request = LeaveGroupRequest::default().with_group_id(gid()).with_member_id(text(&again));
    let Response::LeaveGroup(response) = probe.ask(2, request) else { panic!() };
    assert_eq!((response.error_code, probe.describe_g().group_state.as_str()), (NONE, "Empty"));
}

#[test]
fn members_survive_a_move_of_their_coordinator() {
    let mut probe = groups();
    let (member, generation) = probe.alone(None);
    probe.act(Step::Crash);
    assert_eq!(probe.beat(&member, generation), NONE, "a coordinator that loads scares nobody");
    probe.pass(20);
    assert_eq!(probe.beat(&member, generation), NONE);
    assert_eq!(probe.describe_g().members[0].member_assignment, Bytes::from_static(b"all"));
    probe.pass(10_000);
    assert_eq!(probe.describe_g().group_state.as_str(), "Empty");
}

#[test]
fn offsets_expire_one_by_one_and_the_group_with_the_last() {
    let mut probe = groups();
    probe.commit(8, NOBODY, 1);
    let x = probe.init_x();
    probe.pass(RETENTION_MS - 1);
    assert_eq!(probe.fetch_offset(false), (1, NONE));
    probe.commit_in(5, x, NOBODY, 2);
    probe.act(Step::HoldMarkers(true));
    probe.end_x(5, x, true);
    probe.pass(700_000);
    assert_eq!(probe.fetch_offset(false), (1, NONE), "a transaction is about to replace it");
    probe.act(Step::HoldMarkers(false));
    probe.pass(700_000);
    assert_eq!(probe.fetch_offset(false), (2, NONE));
    probe.pass(RETENTION_MS + 700_000);
    assert_eq!(probe.fetch_offset(false), (-1, NONE));
    assert_eq!(probe.describe_g().error_code, 69);
    probe.commit(8, NOBODY, 1);
    probe.act(Step::ExpireOffsets);
    assert_eq!(probe.fetch_offset(false), (-1, NONE));
}

#[test]
fn the_offsets_of_a_group_in_use_do_not_expire() {
    let mut probe = groups();
    let (member, generation) = probe.alone(None);
    assert_eq!(probe.commit(8, (&member, None, generation), 1), NONE);
    probe.act(Step::ExpireOffsets);
    assert_eq!(probe.fetch_offset(false), (1, NONE));
}

#[test]
fn groups_and_offsets_are_deleted_unless_somebody_uses_them() {
    let mut probe = groups();
    let (member, generation) = probe.alone(None);
    probe.commit(8, (&member, None, generation), 1);
    let delete = |probe: &mut Probe| {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![gid()]);
        let Response::DeleteGroups(response) = probe.ask(2, request) else { panic!() };
        response.results[0].error_code
    };
    let forget = |probe: &mut Probe, topic: &str| {
        let topic = OffsetDeleteRequestTopic::default()
            .with_name(name(topic))
            .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
        let request = OffsetDeleteRequest::default().with_group_id(gid()).with_topics(vec![topic]);
        let Response::OffsetDelete(response) = probe.ask(0, request) else { panic!() };
        (response.error_code, response.topics.first().map(|topic| topic.partitions[0].error_code))
    };
    assert_eq!(delete(&mut probe), 68);
    assert_eq!(forget(&mut probe, "t"), (NONE, Some(86)));
    assert_eq!(forget(&mut probe, "u"), (NONE, Some(NONE)));
    probe.pass(10_000);
    assert_eq!(forget(&mut probe, "t"), (NONE, Some(NONE)));
    assert_eq!(probe.fetch_offset(false), (-1, NONE));
    assert_eq!((delete(&mut probe), delete(&mut probe)), (NONE, 69));
    assert_eq!(forget(&mut probe, "t"), (69, None));
    probe.act(Step::Crash);
    probe.pass(20);
    assert_eq!(probe.describe_g().error_code, 69, "the tombstones are read too");
}

#[test]
fn a_topic_takes_its_offsets_with_it() {
    let mut probe = groups();
    probe.commit(8, NOBODY, 1);
    probe.machine.groups_topic_deleted("t");
    assert_eq!(probe.fetch_offset(false), (-1, NONE));
}

/// A cluster that answers as Kafka 3.9 does.
fn old_groups() -> Probe {
    Probe::with_groups(Settings { transaction_version: 0, ..Settings::default() })
}

fn delete_offset(probe: &mut Probe) -> i16 {
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let topic = OffsetDeleteRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    let request = OffsetDeleteRequest::default().with_group_id(gid()).with_topics(vec![topic]);
    let Response::OffsetDelete(response) = probe.ask(0, request) else { panic!() };
    response.topics[0].partitions[0].error_code
}

#[test]
fn an_old_group_goes_with_the_last_offset_that_is_deleted_and_a_new_one_stays() {
    for (mut probe, left) in [(groups(), "Empty"), (old_groups(), "Dead")] {
        probe.commit(8, NOBODY, 5);
        assert_eq!(delete_offset(&mut probe), NONE);
        assert_eq!(probe.describe_g().group_state.as_str(), left);
    }
}

/// A fenced producer that tries once more takes its successor's offset back, where the group's coordinator is that of
/// Kafka 3.9: the successor's transaction commits without it.
#[test]
fn an_old_coordinator_takes_back_the_offset_of_the_epoch_that_follows() {
    for (mut probe, left) in [(groups(), 7), (old_groups(), -1)] {
        let old = probe.init_x();
        let new = probe.init_x();
        assert_eq!(probe.add_offsets(new), NONE);
        assert_eq!(probe.commit_in(4, new, NOBODY, 7), [NONE, 3]);
        assert_eq!(probe.commit_in(4, old, NOBODY, 8), [47, 3]);
        assert_eq!(probe.end_x(4, new, true), NONE);
        probe.pass(3);
        assert_eq!(probe.fetch_offset(true), (left, NONE));
    }
}

#[test]
fn an_old_coordinator_knows_the_group_of_a_transaction_and_not_its_member() {
    for (mut probe, expected) in [(groups(), 22), (old_groups(), 25)] {
        let x = probe.init_x();
        assert_eq!(probe.add_offsets(x), NONE);
        assert_eq!(probe.commit_in(4, x, ("m", None, 1), 7), [expected, 3]);
    }
}

#[test]
fn a_join_that_is_refused_names_no_protocol_where_it_need_not() {
    let mut probe = groups();
    for (version, expected) in [(6, Some("")), (7, None), (9, None)] {
        let refused = probe.join(version, "stranger", None);
        assert_eq!((refused.error_code, refused.protocol_name.as_deref()), (25, expected));
    }
}

#[test]
fn listing_names_state_and_type() {
    let mut probe = groups();
    probe.alone(None);
    let mut list = |states: &[&str]| {
        let states = states.iter().map(|state| text(state)).collect();
        let Response::ListGroups(response) =
            probe.ask(5, ListGroupsRequest::default().with_states_filter(states))
        else {
            panic!()
        };
        let group = response.groups.first();
        group.map(|group| (group.group_state.to_string(), group.group_type.to_string()))
    };
    assert_eq!(list(&[]), Some(("Stable".to_owned(), "classic".to_owned())));
    assert_eq!(list(&["stable"]), Some(("Stable".to_owned(), "classic".to_owned())));
    assert_eq!(list(&["Empty"]), None);
}

#[test]
fn every_answer_can_be_written_in_the_version_of_its_request() {
    let mut probe = groups();
    let topic = OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![0]);
    let fetch = OffsetFetchRequest::default().with_group_id(gid()).with_topics(Some(vec![topic]));
    let commit = OffsetCommitRequest::default().with_group_id(gid());
    let requests: Vec<(Request, i16, i16)> = vec![
        (FindCoordinatorRequest::default().with_key(text("g")).into(), 0, 6),
        (commit.into(), 2, 9),
        (fetch.into(), 1, 9),
        (HeartbeatRequest::default().with_group_id(gid()).into(), 0, 4),
        (LeaveGroupRequest::default().with_group_id(gid()).into(), 0, 5),
        (SyncGroupRequest::default().with_group_id(gid()).into(), 0, 5),
        (JoinGroupRequest::default().with_group_id(gid()).into(), 0, 9),
        (DescribeGroupsRequest::default().with_groups(vec![gid()]).into(), 0, 6),
        (ListGroupsRequest::default().into(), 0, 5),
        (DeleteGroupsRequest::default().with_groups_names(vec![gid()]).into(), 0, 2),
        (OffsetDeleteRequest::default().with_group_id(gid()).into(), 0, 0),
        (TxnOffsetCommitRequest::default().with_group_id(gid()).into(), 0, 5),
        (AddOffsetsToTxnRequest::default().with_group_id(gid()).into(), 0, 4),
    ];
    for (request, first, last) in requests {
        for version in first..=last {
            let response = probe.ask(version, request.clone());
            let mut bytes = BytesMut::new();
            response.encode(version, &mut bytes).unwrap();
            assert!(Response::decode(response.key(), version, &mut bytes.freeze()).unwrap().is_ok());
        }
    }
    for version in 0..=9 {
        let (ticket, mut replies) = probe.send_join(version, "", Some("i").filter(|_| version >= 5));
        replies.extend(probe.pass(31_000));
        let response = Response::from(joined(ticket, &replies));
        response.encode(version, &mut BytesMut::new()).unwrap();
    }
    assert_eq!(Code::NONE.0, NONE);
}
