//! JoinGroup, SyncGroup, Heartbeat and LeaveGroup: requests to rules and effects to answers.

use super::{
    join::{Effect, Join, Turn},
    member::{Group, Waiting},
    sync::Sync,
};
use crate::state::{Answer, Call, Code, Machine, Millis, Timer};
use kafka_protocol::{
    messages::{
        HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
        LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse, leave_group_request::MemberIdentity,
        leave_group_response::MemberResponse,
    },
    protocol::StrBytes,
};

/// `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
const SESSION_MS: std::ops::RangeInclusive<i32> = 6_000..=1_800_000;

impl Machine {
    /// Lets something happen to a group and carries out what comes of it.
    pub(super) fn change_group<T>(
        &mut self,
        group: &str,
        change: impl FnOnce(&mut Group, &mut Turn) -> T,
    ) -> Option<T> {
        let first_delay = self.settings.rebalance_delay_ms;
        let waits = self.groups.waits;
        let mut turn = Turn { now: self.now, first_delay, waits, effects: Vec::new() };
        let result = change(self.group_mut(group)?, &mut turn);
        self.groups.waits = turn.waits;
        turn.effects.into_iter().for_each(|effect| self.apply_effect(group, effect));
        Some(result)
    }

    pub(super) fn apply_effect(&mut self, group: &str, effect: Effect) {
        let group = group.to_owned();
        match effect {
            Effect::Joined(waiting, response) => {
                // Before version 7 the protocol's name may be empty but not null.
                let nameless = waiting.version < 7 && response.protocol_name.is_none();
                let response =
                    if nameless { response.with_protocol_name(Some(StrBytes::new())) } else { response };
                self.reply(waiting.ticket, response.into());
            }
            Effect::Synced(waiting, response) => self.reply(waiting.ticket, response.into()),
            Effect::WatchMember { member, at } => self.timers.at(at, Timer::LookAtMember { group, member }),
            Effect::EndJoin { wait, at } => self.timers.at(at, Timer::EndJoin { group, wait }),
            Effect::EndFirstJoin { wait, delay, remaining, at } => {
                self.timers.at(at, Timer::EndFirstJoin { group, wait, delay, remaining });
            }
            Effect::EndSync { wait, at } => self.timers.at(at, Timer::EndSync { group, wait }),
            Effect::Write => {
                if let Err(code) = self.write_group(&group) {
                    tracing::error!(group, code = code.0, "a group has no partition to be written to");
                }
                self.wake_offset_expiry();
            }
        }
    }

    pub(crate) fn join_group(&mut self, call: &Call, request: JoinGroupRequest) -> Answer {
        let waiting = Waiting { ticket: call.ticket, version: call.version };
        let group = request.group_id.to_string();
        let member = request.member_id.clone();
        match self.admit_to_group(call, &request) {
            Ok(()) => {
                let join = self.join_of(call, waiting, request);
                self.change_group(&group, |group, turn| group.join(turn, join));
                Answer::Later
            }
            Err(code) => {
                let refused = JoinGroupResponse::default()
                    .with_error_code(code.0)
                    .with_generation_id(-1)
                    .with_protocol_name(None)
                    .with_member_id(member);
                self.apply_effect(&group, Effect::Joined(waiting, refused));
                Answer::Later
            }
        }
    }

    /// Whether there is a group to ask. Only a member that is new brings a new group with it.
    fn admit_to_group(&mut self, call: &Call, request: &JoinGroupRequest) -> Result<(), Code> {
        let group = request.group_id.to_string();
        if group.is_empty() {
            return Err(Code::INVALID_GROUP_ID);
        }
        if !SESSION_MS.contains(&request.session_timeout_ms) {
            return Err(Code::INVALID_SESSION_TIMEOUT);
        }
        if self.group(&group, call.node)?.is_none() {
            if !request.member_id.is_empty() {
                return Err(Code::UNKNOWN_MEMBER_ID);
            }
            self.group_or_new(&group);
            self.write_group(&group)?;
        }
        Ok(())
    }

    fn join_of(&mut self, call: &Call, waiting: Waiting, request: JoinGroupRequest) -> Join {
        let client_id = call.client_id.clone().unwrap_or_default();
        let instance = request.group_instance_id.as_ref().map(ToString::to_string);
        let unique = uuid::Builder::from_random_bytes(self.random.u128(..).to_be_bytes()).into_uuid();
        Join {
            waiting,
            member: request.member_id.to_string(),
            new_id: format!("{}-{unique}", instance.as_deref().unwrap_or(&client_id)),
            instance,
            client_id,
            session_ms: request.session_timeout_ms,
            // Version 0 has one time-out for both.
            rebalance_ms: if call.version == 0 {
                request.session_timeout_ms
            } else {
                request.rebalance_timeout_ms
            },
            protocol_type: request.protocol_type.to_string(),
            protocols: request
                .protocols
                .into_iter()
                .map(|protocol| (protocol.name.to_string(), protocol.metadata))
                .collect(),
        }
    }

    pub(crate) fn sync_group(&mut self, call: &Call, request: SyncGroupRequest) -> Answer {
        let group = request.group_id.to_string();
        let known = if group.is_empty() {
            Err(Code::INVALID_GROUP_ID)
        } else {
            self.group(&group, call.node).and_then(|group| group.map(drop).ok_or(Code::UNKNOWN_MEMBER_ID))
        };
        if let Err(code) = known {
            return Answer::Now(SyncGroupResponse::default().with_error_code(code.0).into());
        }
        let sync = Sync {
            waiting: Waiting { ticket: call.ticket, version: call.version },
            member: request.member_id.to_string(),
            instance: request.group_instance_id.as_ref().map(ToString::to_string),
            generation: request.generation_id,
            protocol_type: request.protocol_type,
            protocol: request.protocol_name,
            assignments: request
                .assignments
                .into_iter()
                .map(|given| (given.member_id.to_string(), given.assignment))
                .collect(),
        };
        self.change_group(&group, |group, turn| group.sync(turn, sync));
        Answer::Later
    }

    pub(crate) fn heartbeat(&mut self, call: &Call, request: HeartbeatRequest) -> Answer {
        let code = match self.heartbeat_of(call, &request) {
            // A coordinator that loads does not know the member, and does not scare it either.
            Ok(()) | Err(Code::COORDINATOR_LOAD_IN_PROGRESS) => Code::NONE,
            Err(code) => code,
        };
        Answer::Now(HeartbeatResponse::default().with_error_code(code.0).into())
    }

    fn heartbeat_of(&mut self, call: &Call, request: &HeartbeatRequest) -> Result<(), Code> {
        let group = request.group_id.to_string();
        if group.is_empty() {
            return Err(Code::INVALID_GROUP_ID);
        }
        self.group_shard(&group, call.node)?;
        let instance = request.group_instance_id.as_deref();
        let heard = self.change_group(&group, |group, turn| {
            group.heartbeat(turn, &request.member_id, instance, request.generation_id)
        });
        heard.unwrap_or(Err(Code::UNKNOWN_MEMBER_ID))
    }

    pub(crate) fn leave_group(&mut self, call: &Call, request: LeaveGroupRequest) -> Answer {
        let response = LeaveGroupResponse::default();
        let left = self.leave_all(call, request);
        let response = match left {
            Err(code) => response.with_error_code(code.0),
            Ok(members) if call.version >= 3 => response.with_members(members),
            Ok(members) => response.with_error_code(members.first().map_or(0, |member| member.error_code)),
        };
        Answer::Now(response.into())
    }

    fn leave_all(&mut self, call: &Call, request: LeaveGroupRequest) -> Result<Vec<MemberResponse>, Code> {
        let group = request.group_id.to_string();
        if group.is_empty() {
            return Err(Code::INVALID_GROUP_ID);
        }
        self.group_shard(&group, call.node)?;
        let leaving = if call.version >= 3 {
            request.members
        } else {
            vec![MemberIdentity::default().with_member_id(request.member_id)]
        };
        let answer = |member: &MemberIdentity, code: Code| {
            MemberResponse::default()
                .with_member_id(member.member_id.clone())
                .with_group_instance_id(member.group_instance_id.clone())
                .with_error_code(code.0)
        };
        let unknown = || leaving.iter().map(|member| answer(member, Code::UNKNOWN_MEMBER_ID)).collect();
        let left = self.change_group(&group, |group, turn| {
            let mut answers = Vec::new();
            for member in &leaving {
                let left = group.leave(turn, &member.member_id, member.group_instance_id.as_deref());
                answers.push(answer(member, left.err().unwrap_or(Code::NONE)));
            }
            if answers.iter().any(|answer| answer.error_code == 0) {
                group.left(turn);
            }
            answers
        });
        Ok(left.unwrap_or_else(unknown))
    }

    /// A member's deadline.
    pub(crate) fn look_at_member(&mut self, group: &str, member: &str) {
        self.change_group(group, |group, turn| group.look_at(turn, member));
    }

    /// The time to join is over.
    pub(crate) fn end_join(&mut self, group: &str, wait: u64) {
        self.change_group(group, |group, turn| group.join_waited(turn, wait));
    }

    /// The delay of a first rebalance is over.
    pub(crate) fn end_first_join(&mut self, group: &str, wait: u64, delay: Millis, remaining: Millis) {
        self.change_group(group, |group, turn| group.first_join_waited(turn, wait, delay, remaining));
    }

    /// The time to ask for an assignment is over.
    pub(crate) fn end_sync(&mut self, group: &str, wait: u64) {
        self.change_group(group, |group, turn| group.sync_waited(turn, wait));
    }
}
