//! JoinGroup: members come together in a generation. Rules of the classic protocol, as effects: what is answered, when
//! to look again, and what is written. (`GroupMetadataManager.classicGroupJoin...`)
//!
//! ```text
//! join ─> PreparingRebalance ─ all have joined, or the time is up ─> CompletingRebalance ─ the leader syncs ─> Stable
//! ```

use super::member::{Group, Member, Phase, Waiting};
use crate::state::{Code, Millis};
use bytes::Bytes;
use kafka_protocol::{
    messages::{JoinGroupResponse, SyncGroupResponse, join_group_response::JoinGroupResponseMember},
    protocol::StrBytes,
};

/// `group.initial.rebalance.delay.ms` and its like are settings; these are Kafka's constants.
const NEW_MEMBER_JOIN_MS: Millis = 5 * 60_000;

/// What a request or a timer makes of a group, beside the group itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Joined(Waiting, JoinGroupResponse),
    Synced(Waiting, SyncGroupResponse),
    /// Look at a member's deadline then.
    WatchMember {
        member: String,
        at: Millis,
    },
    /// The rebalance goes on then, whoever has joined.
    EndJoin {
        wait: u64,
        at: Millis,
    },
    /// The first rebalance looks then whether it waits longer.
    EndFirstJoin {
        wait: u64,
        delay: Millis,
        remaining: Millis,
        at: Millis,
    },
    /// Members that have not asked for their assignment are given up then.
    EndSync {
        wait: u64,
        at: Millis,
    },
    /// The group is written to its topic.
    Write,
}

/// A request to join.
#[derive(Clone, Debug)]
pub(super) struct Join {
    pub(super) waiting: Waiting,
    pub(super) member: String,
    /// The id that the member gets if it has none.
    pub(super) new_id: String,
    pub(super) instance: Option<String>,
    pub(super) client_id: String,
    pub(super) session_ms: i32,
    pub(super) rebalance_ms: i32,
    pub(super) protocol_type: String,
    pub(super) protocols: Vec<(String, Bytes)>,
}

/// Time, and what comes of it.
pub(super) struct Turn {
    pub(super) now: Millis,
    pub(super) first_delay: Millis,
    /// How many waits of groups have begun.
    pub(super) waits: u64,
    pub(super) effects: Vec<Effect>,
}

impl Turn {
    fn next_wait(&mut self) -> u64 {
        self.waits += 1;
        self.waits
    }

    fn refuse(&mut self, waiting: Waiting, member: &str, code: Code) {
        let response = JoinGroupResponse::default()
            .with_error_code(code.0)
            .with_member_id(text(member))
            .with_protocol_name(None)
            .with_generation_id(-1);
        self.effects.push(Effect::Joined(waiting, response));
    }
}

pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

impl Group {
    /// A member asks to join.
    pub(super) fn join(&mut self, turn: &mut Turn, join: Join) {
        if !self.supports(&join.protocol_type, &join.protocols) {
            turn.refuse(join.waiting, &join.member, Code::INCONSISTENT_GROUP_PROTOCOL);
        } else if join.member.is_empty() {
            self.join_new(turn, join);
        } else if self.pending_members.contains_key(&join.member) {
            if join.instance.is_some() {
                // Kafka throws an IllegalStateException: ids are only given out to members without an instance.
                turn.refuse(join.waiting, &join.member, Code::UNKNOWN_SERVER_ERROR);
            } else {
                let id = join.member.clone();
                self.add_and_rebalance(turn, &id, join);
            }
        } else if let Err(code) = self.check_member(&join.member, join.instance.as_deref()) {
            turn.refuse(join.waiting, &join.member, code);
        } else {
            self.join_again(turn, join);
        }
    }

    fn join_new(&mut self, turn: &mut Turn, join: Join) {
        let id = join.new_id.clone();
        if let Some(instance) = &join.instance {
            match self.static_members.get(instance).cloned() {
                Some(old) => self.replace_static(turn, &old, &id, join),
                None => self.add_and_rebalance(turn, &id, join),
            }
        } else if join.waiting.version >= 4 {
            // The member comes back with its id, so that one that is lost on the way leaves no trace.
            let at = turn.now.saturating_add(Millis::from(join.session_ms));
            self.pending_members.insert(id.clone(), at);
            turn.effects.push(Effect::WatchMember { member: id.clone(), at });
            turn.refuse(join.waiting, &id, Code::MEMBER_ID_REQUIRED);
        } else {
            self.add_and_rebalance(turn, &id, join);
        }
    }

    fn add_and_rebalance(&mut self, turn: &mut Turn, id: &str, join: Join) {
        if self.phase == Phase::PreparingRebalance && self.began_empty {
            self.member_added = true;
        }
        let member = Member {
            instance: join.instance,
            client_id: join.client_id,
            rebalance_ms: join.rebalance_ms,
            session_ms: join.session_ms,
            protocol_type: join.protocol_type,
            protocols: join.protocols,
            is_new: true,
            joining: Some(join.waiting),
            ..Member::default()
        };
        self.add(id, member);
        // It has no id to send heartbeats with while it waits, so its session is not what counts.
        self.watch(turn, id, NEW_MEMBER_JOIN_MS);
        self.rebalance_or_complete(turn);
    }

    /// A known member joins again: because it was asked to, because it missed the answer, or to change something.
    fn join_again(&mut self, turn: &mut Turn, join: Join) {
        let id = join.member.clone();
        let is_leader = self.is_leader(&id);
        let same = self.members.get(&id).is_some_and(|member| member.protocols == join.protocols);
        match self.phase {
            Phase::PreparingRebalance => self.update_and_rebalance(turn, &id, join),
            Phase::CompletingRebalance if same => self.tell_generation(turn, &id, join.waiting, is_leader),
            Phase::Stable if same && !is_leader => self.tell_generation(turn, &id, join.waiting, false),
            Phase::CompletingRebalance | Phase::Stable => self.update_and_rebalance(turn, &id, join),
            Phase::Empty => turn.refuse(join.waiting, &id, Code::UNKNOWN_MEMBER_ID),
        }
    }

    fn tell_generation(&self, turn: &mut Turn, id: &str, waiting: Waiting, with_members: bool) {
        turn.effects.push(Effect::Joined(waiting, self.joined(id, with_members)));
    }

    /// What a member of this generation is told.
    fn joined(&self, id: &str, with_members: bool) -> JoinGroupResponse {
        let member = |(id, member): (&String, &Member)| {
            let metadata = member.metadata(self.protocol.as_deref());
            JoinGroupResponseMember::default()
                .with_member_id(text(id))
                .with_group_instance_id(member.instance.as_deref().map(text))
                .with_metadata(Bytes::copy_from_slice(metadata))
        };
        let members = if with_members { self.members.iter().map(member).collect() } else { Vec::new() };
        JoinGroupResponse::default()
            .with_generation_id(self.generation)
            .with_protocol_type(self.protocol_type.as_deref().map(text))
            .with_protocol_name(self.protocol.as_deref().map(text))
            .with_leader(text(self.leader.as_deref().unwrap_or_default()))
            .with_member_id(text(id))
            .with_members(members)
    }

    fn update_and_rebalance(&mut self, turn: &mut Turn, id: &str, join: Join) {
        self.update(id, join);
        self.rebalance_or_complete(turn);
    }

    fn update(&mut self, id: &str, join: Join) {
        if let Some(member) = self.members.get_mut(id) {
            member.protocols = join.protocols;
            member.rebalance_ms = join.rebalance_ms;
            member.session_ms = join.session_ms;
            member.joining = Some(join.waiting);
        }
    }

    /// A static member comes back without its id: it gets a new one, and whoever used the old one is fenced.
    fn replace_static(&mut self, turn: &mut Turn, old: &str, id: &str, join: Join) {
        let was_leader = self.leader.clone();
        let Some(mut member) = self.members.remove(old) else { return };
        if let Some(waiting) = member.joining.take() {
            turn.refuse(waiting, old, Code::FENCED_INSTANCE_ID);
        }
        if let Some(waiting) = member.syncing.take() {
            let fenced = SyncGroupResponse::default().with_error_code(Code::FENCED_INSTANCE_ID.0);
            turn.effects.push(Effect::Synced(waiting, fenced));
        }
        member.looked_at = None;
        if self.is_leader(old) {
            self.leader = Some(id.to_owned());
        }
        if self.pending_sync.remove(old) {
            self.pending_sync.insert(id.to_owned());
        }
        if let Some(instance) = &join.instance {
            self.static_members.insert(instance.clone(), id.to_owned());
        }
        self.members.insert(id.to_owned(), member);
        let waiting = join.waiting;
        self.update(id, join);
        self.heard_of(turn, id);
        match self.phase {
            Phase::Stable if self.protocol == self.select_protocol() => {
                turn.effects.push(Effect::Write);
                self.rejoin_quietly(turn, id, waiting, was_leader.as_deref());
            }
            Phase::Stable => self.rebalance_or_complete(turn),
            Phase::CompletingRebalance => self.prepare_rebalance(turn),
            Phase::PreparingRebalance | Phase::Empty => self.complete_if_joined(turn),
        }
    }

    /// The assignment stays, so no rebalance is needed.
    fn rejoin_quietly(&mut self, turn: &mut Turn, id: &str, waiting: Waiting, was_leader: Option<&str>) {
        if let Some(member) = self.members.get_mut(id) {
            member.joining = None;
        }
        let response = if waiting.version >= 9 {
            let is_leader = self.is_leader(id);
            self.joined(id, is_leader).with_skip_assignment(is_leader)
        } else {
            // An older leader would compute an assignment; told the id it had, it takes itself for a follower.
            self.joined(id, false).with_leader(text(was_leader.unwrap_or_default()))
        };
        turn.effects.push(Effect::Joined(waiting, response));
    }

    /// A rebalance begins, or goes on if it has.
    pub(super) fn rebalance_or_complete(&mut self, turn: &mut Turn) {
        if self.phase == Phase::PreparingRebalance {
            self.complete_if_joined(turn);
        } else {
            self.prepare_rebalance(turn);
        }
    }

    pub(super) fn prepare_rebalance(&mut self, turn: &mut Turn) {
        if self.phase == Phase::CompletingRebalance {
            self.members.values_mut().for_each(|member| member.assignment = Bytes::new());
            self.propagate(turn, Code::REBALANCE_IN_PROGRESS);
        }
        self.pending_sync.clear();
        self.wait = turn.next_wait();
        let first = self.phase == Phase::Empty;
        self.enter(Phase::PreparingRebalance, turn.now);
        if first {
            let delay = turn.first_delay;
            let remaining = self.rebalance_ms().saturating_sub(delay).max(0);
            turn.effects.push(Effect::EndFirstJoin {
                wait: self.wait,
                delay,
                remaining,
                at: turn.now.saturating_add(delay),
            });
        } else if self.all_joined() {
            self.complete_join(turn);
        } else {
            turn.effects
                .push(Effect::EndJoin { wait: self.wait, at: turn.now.saturating_add(self.rebalance_ms()) });
        }
    }

    pub(super) fn complete_if_joined(&mut self, turn: &mut Turn) {
        if self.phase == Phase::PreparingRebalance && !self.began_empty && self.all_joined() {
            self.complete_join(turn);
        }
    }

    /// The time to join is over, if it is this one that the group waits for.
    pub(super) fn join_waited(&mut self, turn: &mut Turn, wait: u64) {
        if self.wait == wait && self.phase == Phase::PreparingRebalance {
            self.complete_join(turn);
        }
    }

    /// The delay of a first rebalance has passed: a new member since then extends it, up to the rebalance time-out.
    pub(super) fn first_join_waited(&mut self, turn: &mut Turn, wait: u64, delay: Millis, remaining: Millis) {
        if self.wait != wait || self.phase != Phase::PreparingRebalance {
            return;
        }
        if self.member_added && remaining != 0 {
            self.member_added = false;
            let (next, left) = (turn.first_delay.min(remaining), remaining.saturating_sub(delay).max(0));
            self.wait = turn.next_wait();
            turn.effects.push(Effect::EndFirstJoin {
                wait: self.wait,
                delay: next,
                remaining: left,
                at: turn.now.saturating_add(next),
            });
        } else {
            self.complete_join(turn);
        }
    }

    /// The next generation: those who have joined, and static members also if they have not.
    pub(super) fn complete_join(&mut self, turn: &mut Turn) {
        self.wait = turn.next_wait();
        let absent = |member: &Member| member.joining.is_none() && member.instance.is_none();
        let absent: Vec<_> =
            self.members.iter().filter(|(_, member)| absent(member)).map(|(id, _)| id.clone()).collect();
        absent.iter().for_each(|id| drop(self.remove(id)));
        if !self.elect_leader() && !self.members.is_empty() {
            turn.effects
                .push(Effect::EndJoin { wait: self.wait, at: turn.now.saturating_add(self.rebalance_ms()) });
            return;
        }
        self.generation = self.generation.saturating_add(1);
        self.pending_sync.clear();
        self.member_added = false;
        if self.members.is_empty() {
            self.protocol = None;
            self.enter(Phase::Empty, turn.now);
            turn.effects.push(Effect::Write);
            return;
        }
        self.protocol = self.select_protocol();
        self.enter(Phase::CompletingRebalance, turn.now);
        let ids: Vec<_> = self.members.keys().cloned().collect();
        for id in ids {
            let response = self.joined(&id, self.is_leader(&id));
            if let Some(waiting) = self.members.get_mut(&id).and_then(|member| {
                member.is_new = false;
                member.joining.take()
            }) {
                turn.effects.push(Effect::Joined(waiting, response));
            }
            self.heard_of(turn, &id);
            self.pending_sync.insert(id);
        }
        let at = turn.now.saturating_add(self.rebalance_ms());
        turn.effects.push(Effect::EndSync { wait: self.wait, at });
    }

    /// The leader must be somebody who has joined.
    fn elect_leader(&mut self) -> bool {
        let Some(leader) = &self.leader else { return false };
        if self.members.get(leader).is_some_and(|member| member.joining.is_some()) {
            return true;
        }
        let joined = self.members.iter().find(|(_, member)| member.joining.is_some());
        let joined = joined.map(|(id, _)| id.clone());
        let elected = joined.is_some();
        self.leader = joined.or_else(|| self.leader.take());
        elected
    }

    /// A member was heard of: its session begins anew.
    pub(super) fn heard_of(&mut self, turn: &mut Turn, id: &str) {
        let session = self.members.get(id).map(|member| Millis::from(member.session_ms));
        if let Some(session) = session {
            self.watch(turn, id, session);
        }
    }

    fn watch(&mut self, turn: &mut Turn, id: &str, for_ms: Millis) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.deadline = turn.now.saturating_add(for_ms);
        // A look that comes too early sets the next one, so that heartbeats need no timer each.
        if member.looked_at.is_none_or(|at| at > member.deadline) {
            member.looked_at = Some(member.deadline);
            turn.effects.push(Effect::WatchMember { member: id.to_owned(), at: member.deadline });
        }
    }

    /// The time of a member's deadline has come, or of an earlier one.
    pub(super) fn look_at(&mut self, turn: &mut Turn, id: &str) {
        if self.pending_members.get(id).is_some_and(|at| *at <= turn.now) {
            self.remove(id);
            self.complete_after_loss(turn);
            return;
        }
        let Some(member) = self.members.get_mut(id) else { return };
        if member.looked_at.is_none_or(|at| at > turn.now) {
            return;
        }
        if member.deadline > turn.now {
            member.looked_at = Some(member.deadline);
            turn.effects.push(Effect::WatchMember { member: id.to_owned(), at: member.deadline });
            return;
        }
        member.looked_at = None;
        let waits_for_us = !member.is_new && (member.joining.is_some() || member.syncing.is_some());
        if !waits_for_us {
            self.lose(turn, id);
        }
    }

    /// A member is gone.
    fn lose(&mut self, turn: &mut Turn, id: &str) {
        self.take_out(turn, id);
        match self.phase {
            Phase::Stable | Phase::CompletingRebalance => self.prepare_rebalance(turn),
            Phase::PreparingRebalance => self.complete_after_loss(turn),
            Phase::Empty => {}
        }
    }

    fn complete_after_loss(&mut self, turn: &mut Turn) {
        if self.phase == Phase::PreparingRebalance && self.all_joined() {
            self.complete_join(turn);
        }
    }

    /// Removes a member and answers what it waits for.
    pub(super) fn take_out(&mut self, turn: &mut Turn, id: &str) {
        if let Some(waiting) = self.remove(id).and_then(|member| member.joining) {
            turn.refuse(waiting, "", Code::UNKNOWN_MEMBER_ID);
        }
    }
}
