//! DescribeGroups, ListGroups, DeleteGroups and OffsetDelete.

use super::{
    CLIENT_HOST, CONSUMER_OFFSETS,
    join::text,
    member::{Group, Member, Phase},
    record,
};
use crate::state::{Answer, Call, Code, Machine, TopicPartition};
use bytes::Bytes;
use kafka_protocol::{
    messages::{
        DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
        ListGroupsRequest, ListGroupsResponse, OffsetDeleteRequest, OffsetDeleteResponse,
        delete_groups_response::DeletableGroupResult,
        describe_groups_response::{DescribedGroup, DescribedGroupMember},
        list_groups_response::ListedGroup,
        offset_delete_request::OffsetDeleteRequestTopic,
        offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic},
    },
    protocol::StrBytes,
};

/// The one type of group here, as ListGroups names it from version 5 on.
const CLASSIC: &str = "classic";

impl Machine {
    pub(crate) fn describe_groups(&mut self, call: &Call, request: DescribeGroupsRequest) -> Answer {
        let describe = |id: StrBytes| {
            let described =
                if id.is_empty() { Err(Code::INVALID_GROUP_ID) } else { self.group(&id, call.node) };
            let answer = DescribedGroup::default().with_group_id(id.clone().into());
            match described {
                Ok(Some(group)) => described_group(answer, group),
                // From version 6 on, a group that is not there is an error.
                Ok(None) if call.version >= 6 => answer
                    .with_error_code(Code::GROUP_ID_NOT_FOUND.0)
                    .with_error_message(Some(StrBytes::from_string(format!("Group {id} not found."))))
                    .with_group_state(StrBytes::from_static_str("Dead")),
                Ok(None) => answer.with_group_state(StrBytes::from_static_str("Dead")),
                Err(code) => answer.with_error_code(code.0),
            }
        };
        let groups = request.groups.into_iter().map(|id| describe(id.0)).collect();
        Answer::Now(DescribeGroupsResponse::default().with_groups(groups).into())
    }

    pub(crate) fn list_groups(&mut self, call: &Call, request: ListGroupsRequest) -> Answer {
        let mut shards = self.groups.shards.values().filter(|shard| shard.node == call.node);
        if shards.clone().any(|shard| shard.loading) {
            let code = Code::COORDINATOR_LOAD_IN_PROGRESS.0;
            return Answer::Now(ListGroupsResponse::default().with_error_code(code).into());
        }
        let named = |names: &[StrBytes], name: &str| {
            names.is_empty() || names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        let mut listed = Vec::new();
        for (id, group) in shards.by_ref().flat_map(|shard| &shard.groups) {
            let state = group.phase.name();
            if named(&request.states_filter, state) && named(&request.types_filter, CLASSIC) {
                listed.push(
                    ListedGroup::default()
                        .with_group_id(text(id).into())
                        .with_protocol_type(text(group.protocol_type.as_deref().unwrap_or_default()))
                        .with_group_state(StrBytes::from_static_str(state))
                        .with_group_type(StrBytes::from_static_str(CLASSIC)),
                );
            }
        }
        Answer::Now(ListGroupsResponse::default().with_groups(listed).into())
    }

    pub(crate) fn delete_groups(&mut self, call: &Call, request: DeleteGroupsRequest) -> Answer {
        let mut results = Vec::with_capacity(request.groups_names.len());
        for id in request.groups_names {
            let code = self.delete_group(call, &id).err().unwrap_or(Code::NONE);
            results.push(DeletableGroupResult::default().with_group_id(id).with_error_code(code.0));
        }
        Answer::Now(DeleteGroupsResponse::default().with_results(results).into())
    }

    fn delete_group(&mut self, call: &Call, id: &str) -> Result<(), Code> {
        if id.is_empty() {
            return Err(Code::INVALID_GROUP_ID);
        }
        let group = self.group(id, call.node)?.ok_or(Code::GROUP_ID_NOT_FOUND)?;
        if group.phase != Phase::Empty {
            return Err(Code::NON_EMPTY_GROUP);
        }
        let offsets = group.offsets.all();
        self.delete_offsets(id, &offsets)?;
        self.forget_group(id)
    }

    /// Writes tombstones for offsets and forgets them.
    pub(super) fn delete_offsets(&mut self, group: &str, offsets: &[TopicPartition]) -> Result<(), Code> {
        let partition = self.offsets_partition(group);
        for at in offsets {
            self.append_internal(CONSUMER_OFFSETS, partition, record::offset_key(group, at), None)?;
            if let Some(group) = self.group_mut(group) {
                group.offsets.remove(at);
            }
        }
        Ok(())
    }

    /// Writes the tombstone of a group and forgets it.
    pub(super) fn forget_group(&mut self, group: &str) -> Result<(), Code> {
        let partition = self.offsets_partition(group);
        self.append_internal(CONSUMER_OFFSETS, partition, record::group_key(group), None)?;
        if let Some(shard) = self.groups.shards.get_mut(&partition) {
            shard.groups.remove(group);
        }
        Ok(())
    }

    /// A topic is gone, and with it what groups have committed for it.
    pub(crate) fn groups_topic_deleted(&mut self, topic: &str) {
        let mut gone = Vec::new();
        for (id, group) in self.groups.shards.values().flat_map(|shard| &shard.groups) {
            let offsets: Vec<_> = group.offsets.all().into_iter().filter(|at| at.topic == topic).collect();
            if !offsets.is_empty() {
                gone.push((id.clone(), offsets));
            }
        }
        for (id, offsets) in gone {
            if let Err(code) = self.delete_offsets(&id, &offsets) {
                tracing::error!(group = id, code = code.0, "offsets of a deleted topic stay");
            }
        }
    }

    pub(crate) fn offset_delete(&mut self, call: &Call, request: OffsetDeleteRequest) -> Answer {
        let response = OffsetDeleteResponse::default();
        let response = match self.offsets_deleted(call, &request.group_id, request.topics) {
            Ok(topics) => response.with_topics(topics),
            Err(code) => response.with_error_code(code.0),
        };
        Answer::Now(response.into())
    }

    fn offsets_deleted(
        &mut self,
        call: &Call,
        id: &str,
        topics: Vec<OffsetDeleteRequestTopic>,
    ) -> Result<Vec<OffsetDeleteResponseTopic>, Code> {
        if id.is_empty() {
            return Err(Code::INVALID_GROUP_ID);
        }
        let group = self.group(id, call.node)?.ok_or(Code::GROUP_ID_NOT_FOUND)?;
        if group.phase != Phase::Empty && !group.is_of_consumers() {
            return Err(Code::NON_EMPTY_GROUP);
        }
        let subscribed = group.subscribed().unwrap_or_default();
        let held = group.offsets.all();
        let mut gone = Vec::new();
        let mut answers = Vec::with_capacity(topics.len());
        for topic in topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), asked.partition_index);
                let code = if self.catalog.partition(&at.topic, at.partition).is_none() {
                    Code::UNKNOWN_TOPIC_OR_PARTITION
                } else if subscribed.contains(&at.topic) {
                    Code::GROUP_SUBSCRIBED_TO_TOPIC
                } else {
                    Code::NONE
                };
                let answer = OffsetDeleteResponsePartition::default().with_partition_index(at.partition);
                partitions.push(answer.with_error_code(code.0));
                if code == Code::NONE && held.contains(&at) {
                    gone.push(at);
                }
            }
            answers
                .push(OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions));
        }
        self.delete_offsets(id, &gone)?;
        if self.settings.has_old_groups() && !gone.is_empty() {
            self.forget_if_free(id)?;
        }
        Ok(answers)
    }
}

fn described_group(answer: DescribedGroup, group: &Group) -> DescribedGroup {
    let stable = group.phase == Phase::Stable;
    let protocol = group.protocol.as_deref().filter(|_| stable);
    let member = |(id, member): (&String, &Member)| {
        // What members have said and got is told only when all have.
        let (metadata, assignment) = if stable {
            (Bytes::copy_from_slice(member.metadata(protocol)), member.assignment.clone())
        } else {
            (Bytes::new(), Bytes::new())
        };
        DescribedGroupMember::default()
            .with_member_id(text(id))
            .with_group_instance_id(member.instance.as_deref().map(text))
            .with_client_id(text(&member.client_id))
            .with_client_host(text(CLIENT_HOST))
            .with_member_metadata(metadata)
            .with_member_assignment(assignment)
    };
    answer
        .with_group_state(StrBytes::from_static_str(group.phase.name()))
        .with_protocol_type(text(group.protocol_type.as_deref().unwrap_or_default()))
        .with_protocol_data(text(protocol.unwrap_or_default()))
        .with_members(group.members.iter().map(member).collect())
}
