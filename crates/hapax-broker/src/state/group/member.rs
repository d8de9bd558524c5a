//! A group of the classic protocol and its members: what is known, and the questions that requests ask of it. What
//! they do to it is in `join`, `sync` and `leave`. (Kafka's `ClassicGroup`, `ClassicGroupMember`)

use super::offset::Offsets;
use crate::state::{Code, Millis, Ticket, field::Reader};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The protocol type whose members say which topics they want.
const CONSUMER: &str = "consumer";

/// Where a group stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No members; offsets perhaps.
    #[default]
    Empty,
    /// Members are asked to join again.
    PreparingRebalance,
    /// All have joined, and the leader is asked for the assignment.
    CompletingRebalance,
    /// Every member has its assignment.
    Stable,
}

impl Phase {
    /// The name in DescribeGroups and ListGroups.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// A request that waits for the group, and the version of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) ticket: Ticket,
    pub(crate) version: i16,
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// `group.instance.id`.
    pub(crate) instance: Option<String>,
    pub(crate) client_id: String,
    pub(crate) rebalance_ms: i32,
    pub(crate) session_ms: i32,
    pub(crate) protocol_type: String,
    /// In the order of the member's preference.
    pub(crate) protocols: Vec<(String, Bytes)>,
    pub(crate) assignment: Bytes,
    /// It has not seen a generation yet, so it cannot send heartbeats.
    pub(crate) is_new: bool,
    pub(crate) joining: Option<Waiting>,
    pub(crate) syncing: Option<Waiting>,
    /// When it is given up unless it is heard of.
    pub(crate) deadline: Millis,
    /// When somebody looks at the deadline next.
    pub(crate) looked_at: Option<Millis>,
}

impl Member {
    /// What it says under a protocol.
    pub(crate) fn metadata(&self, protocol: Option<&str>) -> &[u8] {
        let named = self.protocols.iter().find(|(name, _)| Some(name.as_str()) == protocol);
        named.map_or(&[], |(_, metadata)| metadata)
    }
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) phase: Phase,
    /// Whether the rebalance that is being prepared is the first one.
    pub(crate) began_empty: bool,
    /// When the phase was reached.
    pub(crate) since: Millis,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: Option<String>,
    pub(crate) members: BTreeMap<String, Member>,
    pub(crate) static_members: BTreeMap<String, String>,
    /// Ids that were given out with MEMBER_ID_REQUIRED, until their session ends.
    pub(crate) pending_members: BTreeMap<String, Millis>,
    /// Who has the generation and not asked for its assignment.
    pub(crate) pending_sync: BTreeSet<String>,
    pub(crate) member_added: bool,
    /// What is waited for now, so that a timer of an earlier wait is recognised.
    pub(crate) wait: u64,
    pub(crate) offsets: Offsets,
}

impl Group {
    pub(crate) fn enter(&mut self, phase: Phase, now: Millis) {
        self.began_empty = self.phase == Phase::Empty;
        self.phase = phase;
        self.since = now;
    }

    /// Whether all who are to join have.
    pub(crate) fn all_joined(&self) -> bool {
        self.pending_members.is_empty() && self.members.values().all(|member| member.joining.is_some())
    }

    pub(crate) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    /// How long a rebalance waits for members.
    pub(crate) fn rebalance_ms(&self) -> Millis {
        self.members.values().map(|member| Millis::from(member.rebalance_ms)).max().unwrap_or(0).max(0)
    }

    /// Whether a member with these protocols can be in the group.
    pub(crate) fn supports(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.phase == Phase::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let common = self.common_protocols();
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|(name, _)| common.contains(name.as_str()))
    }

    fn common_protocols(&self) -> BTreeSet<&str> {
        let names = |member: &Member| -> Vec<String> {
            member.protocols.iter().map(|(name, _)| name.clone()).collect()
        };
        let mut members = self.members.values();
        let Some(first) = members.next() else { return BTreeSet::new() };
        let rest: Vec<_> = members.map(names).collect();
        let common = first.protocols.iter().map(|(name, _)| name.as_str());
        common.filter(|name| rest.iter().all(|names| names.iter().any(|other| other == name))).collect()
    }

    /// The protocol that most members like best of those that all have.
    pub(crate) fn select_protocol(&self) -> Option<String> {
        let common = self.common_protocols();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let vote = member.protocols.iter().find(|(name, _)| common.contains(name.as_str()));
            if let Some((name, _)) = vote {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(name, _)| name.to_owned())
    }

    /// Adds a member that has just joined.
    pub(crate) fn add(&mut self, id: &str, member: Member) {
        if self.members.is_empty() {
            self.protocol_type = Some(member.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| id.to_owned());
        if let Some(instance) = &member.instance {
            self.static_members.insert(instance.clone(), id.to_owned());
        }
        self.pending_members.remove(id);
        self.members.insert(id.to_owned(), member);
    }

    /// Removes a member, and what was remembered of it.
    pub(crate) fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id);
        if let Some(instance) = member.as_ref().and_then(|member| member.instance.as_ref()) {
            self.static_members.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending_members.remove(id);
        self.pending_sync.remove(id);
        member
    }

    /// Whether a member may speak for itself.
    pub(crate) fn check_member(&self, id: &str, instance: Option<&str>) -> Result<(), Code> {
        if let Some(instance) = instance {
            match self.static_members.get(instance) {
                None => return Err(Code::UNKNOWN_MEMBER_ID),
                Some(holder) if holder != id => return Err(Code::FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(Code::UNKNOWN_MEMBER_ID) }
    }

    /// Whether offsets may be committed in the name of a member, or of nobody.
    ///
    /// A transaction that names nobody is not fenced at all: the first versions of its request had no member.
    pub(crate) fn check_commit(
        &self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
        transactional: bool,
    ) -> Result<(), Code> {
        if generation < 0 && self.phase == Phase::Empty {
            return Ok(());
        }
        if generation >= 0 || !id.is_empty() || instance.is_some() {
            self.check_member(id, instance)?;
            if generation != self.generation {
                return Err(Code::ILLEGAL_GENERATION);
            }
        } else if !transactional && self.phase != Phase::Empty {
            return Err(Code::UNKNOWN_MEMBER_ID);
        }
        if !transactional && self.phase == Phase::CompletingRebalance {
            return Err(Code::REBALANCE_IN_PROGRESS);
        }
        Ok(())
    }

    /// The topics that members want, where that is known.
    pub(crate) fn subscribed(&self) -> Option<BTreeSet<String>> {
        if self.protocol_type.as_deref() != Some(CONSUMER) {
            return None;
        }
        let protocol = self.protocol.as_deref();
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(topics_of(member.metadata(protocol))?);
        }
        (self.members.is_empty() || protocol.is_some()).then_some(topics)
    }

    /// Whether members of this kind say which topics they want.
    pub(crate) fn is_of_consumers(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }
}

/// The topics of a consumer's subscription.
fn topics_of(metadata: &[u8]) -> Option<Vec<String>> {
    let mut reader = Reader(Bytes::copy_from_slice(metadata));
    reader.i16().ok()?;
    let count = reader.array().ok()??;
    (0..count).map(|_| reader.string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(protocols: &[&str]) -> Member {
        let protocols = protocols.iter().map(|name| ((*name).to_owned(), Bytes::new())).collect();
        Member { protocol_type: CONSUMER.to_owned(), protocols, ..Member::default() }
    }

    fn group(members: &[(&str, &[&str])]) -> Group {
        let mut group = Group { phase: Phase::Stable, generation: 3, ..Group::default() };
        members.iter().for_each(|(id, protocols)| group.add(id, member(protocols)));
        group
    }

    #[test]
    fn the_protocol_is_one_that_all_members_have() {
        let group = group(&[("a", &["x", "range"]), ("b", &["range", "sticky"])]);
        assert_eq!(group.select_protocol().as_deref(), Some("range"));
        assert!(group.supports(CONSUMER, &[("range".to_owned(), Bytes::new())]));
        assert!(!group.supports(CONSUMER, &[("x".to_owned(), Bytes::new())]));
        assert!(!group.supports("connect", &[("range".to_owned(), Bytes::new())]));
    }

    #[test]
    fn commits_are_fenced_by_member_and_generation() {
        let group = group(&[("a", &["range"])]);
        assert_eq!(group.check_commit("a", None, 3, true), Ok(()));
        assert_eq!(group.check_commit("a", None, 2, true), Err(Code::ILLEGAL_GENERATION));
        assert_eq!(group.check_commit("z", None, 3, true), Err(Code::UNKNOWN_MEMBER_ID));
        assert_eq!(group.check_commit("a", Some("i"), 3, true), Err(Code::UNKNOWN_MEMBER_ID));
        assert_eq!(group.check_commit("", None, -1, true), Ok(()), "a transaction that names nobody");
        assert_eq!(group.check_commit("", None, -1, false), Err(Code::UNKNOWN_MEMBER_ID));
        assert_eq!(Group::default().check_commit("", None, -1, false), Ok(()));
    }

    #[test]
    fn a_static_member_is_fenced_by_its_successor() {
        let mut group = group(&[]);
        group.add("a", Member { instance: Some("i".to_owned()), ..member(&["range"]) });
        group.static_members.insert("i".to_owned(), "b".to_owned());
        assert_eq!(group.check_member("a", Some("i")), Err(Code::FENCED_INSTANCE_ID));
    }

    #[test]
    fn the_leader_is_a_member() {
        let mut group = group(&[("a", &["range"]), ("b", &["range"])]);
        assert!(group.is_leader("a"));
        group.remove("a");
        assert!(group.is_leader("b"));
        group.remove("b");
        assert_eq!(group.leader, None);
    }
}
