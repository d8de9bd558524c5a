//! SyncGroup, Heartbeat and LeaveGroup: the assignment of a generation, and staying in it or not.

use super::{
    join::{Effect, Turn},
    member::{Group, Phase, Waiting},
};
use crate::state::Code;
use bytes::Bytes;
use kafka_protocol::{messages::SyncGroupResponse, protocol::StrBytes};
use std::collections::BTreeMap;

/// A request for the own assignment; from the leader, with those of all.
#[derive(Clone, Debug)]
pub(super) struct Sync {
    pub(super) waiting: Waiting,
    pub(super) member: String,
    pub(super) instance: Option<String>,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<StrBytes>,
    pub(super) protocol: Option<StrBytes>,
    pub(super) assignments: BTreeMap<String, Bytes>,
}

impl Group {
    pub(super) fn sync(&mut self, turn: &mut Turn, sync: Sync) {
        if let Err(code) = self.check_sync(&sync) {
            let refused = SyncGroupResponse::default().with_error_code(code.0);
            turn.effects.push(Effect::Synced(sync.waiting, refused));
            return;
        }
        self.pending_sync.remove(&sync.member);
        if self.phase == Phase::Stable {
            let assignment = self.members.get(&sync.member).map(|member| member.assignment.clone());
            let response = self.synced(Code::NONE, assignment.unwrap_or_default());
            turn.effects.push(Effect::Synced(sync.waiting, response));
            return;
        }
        if let Some(member) = self.members.get_mut(&sync.member) {
            member.syncing = Some(sync.waiting);
        }
        if self.is_leader(&sync.member) {
            for (id, member) in &mut self.members {
                member.assignment = sync.assignments.get(id).cloned().unwrap_or_default();
            }
            self.enter(Phase::Stable, turn.now);
            turn.effects.push(Effect::Write);
            self.propagate(turn, Code::NONE);
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), Code> {
        if self.phase == Phase::Empty {
            return Err(Code::UNKNOWN_MEMBER_ID);
        }
        self.check_member(&sync.member, sync.instance.as_deref())?;
        let differs = |asked: &Option<StrBytes>, held: &Option<String>| {
            asked.as_deref().is_some_and(|asked| held.as_deref() != Some(asked))
        };
        if sync.generation != self.generation {
            Err(Code::ILLEGAL_GENERATION)
        } else if differs(&sync.protocol_type, &self.protocol_type) || differs(&sync.protocol, &self.protocol)
        {
            Err(Code::INCONSISTENT_GROUP_PROTOCOL)
        } else if self.phase == Phase::PreparingRebalance {
            Err(Code::REBALANCE_IN_PROGRESS)
        } else {
            Ok(())
        }
    }

    fn synced(&self, code: Code, assignment: Bytes) -> SyncGroupResponse {
        let response = SyncGroupResponse::default().with_error_code(code.0).with_assignment(assignment);
        if code != Code::NONE {
            return response;
        }
        let named = |name: &Option<String>| name.clone().map(StrBytes::from_string);
        response.with_protocol_type(named(&self.protocol_type)).with_protocol_name(named(&self.protocol))
    }

    /// Answers all who wait for their assignment.
    pub(super) fn propagate(&mut self, turn: &mut Turn, code: Code) {
        let mut waiting = Vec::new();
        for (id, member) in &mut self.members {
            if let Some(waits) = member.syncing.take() {
                waiting.push((id.clone(), waits, member.assignment.clone()));
            }
        }
        for (id, waits, assignment) in waiting {
            turn.effects.push(Effect::Synced(waits, self.synced(code, assignment)));
            self.heard_of(turn, &id);
        }
    }

    /// The time to ask for an assignment is over.
    pub(super) fn sync_waited(&mut self, turn: &mut Turn, wait: u64) {
        let syncs = matches!(self.phase, Phase::CompletingRebalance | Phase::Stable);
        if wait != self.wait || !syncs || self.pending_sync.is_empty() {
            return;
        }
        let late: Vec<_> = self.pending_sync.iter().cloned().collect();
        late.iter().for_each(|id| drop(self.remove(id)));
        self.prepare_rebalance(turn);
    }

    pub(super) fn heartbeat(
        &mut self,
        turn: &mut Turn,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), Code> {
        self.check_member(id, instance)?;
        if generation != self.generation {
            return Err(Code::ILLEGAL_GENERATION);
        }
        self.heard_of(turn, id);
        match self.phase {
            Phase::Empty => Err(Code::UNKNOWN_MEMBER_ID),
            Phase::PreparingRebalance => Err(Code::REBALANCE_IN_PROGRESS),
            Phase::CompletingRebalance | Phase::Stable => Ok(()),
        }
    }

    /// A member goes, or is sent by an operator who knows its instance only. The rebalance is for the caller, once all
    /// of a request have gone.
    pub(super) fn leave(&mut self, turn: &mut Turn, id: &str, instance: Option<&str>) -> Result<(), Code> {
        if id.is_empty() {
            let held = instance.and_then(|instance| self.static_members.get(instance)).cloned();
            let held = held.ok_or(Code::UNKNOWN_MEMBER_ID)?;
            self.take_out(turn, &held);
        } else if self.pending_members.contains_key(id) {
            self.remove(id);
        } else {
            self.check_member(id, instance)?;
            self.take_out(turn, id);
        }
        Ok(())
    }

    /// Some have gone.
    pub(super) fn left(&mut self, turn: &mut Turn) {
        match self.phase {
            Phase::Stable | Phase::CompletingRebalance => self.prepare_rebalance(turn),
            Phase::PreparingRebalance => self.complete_if_joined(turn),
            Phase::Empty => {}
        }
    }
}
