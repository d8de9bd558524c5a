//! An error code as a whole answer: every request has its own place for it. As `getErrorResponse` of Kafka's
//! requests, except that Fetch says it for each partition, which is where a broker's real errors stand.

use crate::wire::{Request, Response};
use kafka_protocol::{
    messages::{
        AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ApiVersionsResponse,
        BrokerId, CreatePartitionsResponse, CreateTopicsResponse, DeleteGroupsResponse,
        DeleteRecordsResponse, DeleteTopicsRequest, DeleteTopicsResponse, DescribeClusterResponse,
        DescribeConfigsResponse, DescribeGroupsResponse, DescribeProducersResponse,
        DescribeTransactionsResponse, EndTxnResponse, FetchRequest, FetchResponse, FindCoordinatorRequest,
        FindCoordinatorResponse, HeartbeatResponse, InitProducerIdResponse, JoinGroupResponse,
        LeaveGroupResponse, ListGroupsResponse, ListOffsetsResponse, ListTransactionsResponse,
        MetadataRequest, MetadataResponse, OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchRequest,
        OffsetFetchResponse, OffsetForLeaderEpochResponse, ProduceRequest, ProduceResponse, ProducerId,
        SyncGroupResponse, TopicName, TxnOffsetCommitResponse, WriteTxnMarkersResponse,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        add_partitions_to_txn_response::{
            AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
        },
        create_partitions_response::CreatePartitionsTopicResult,
        create_topics_response::CreatableTopicResult,
        delete_groups_response::DeletableGroupResult,
        delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult},
        delete_topics_response::DeletableTopicResult,
        describe_configs_response::DescribeConfigsResult,
        describe_groups_response::DescribedGroup,
        describe_producers_response::{PartitionResponse, TopicResponse},
        describe_transactions_response::TransactionState,
        fetch_response::{FetchableTopicResponse, PartitionData},
        find_coordinator_response::Coordinator,
        list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
        metadata_response::MetadataResponseTopic,
        offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
        offset_fetch_response::{
            OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
        },
        offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
        produce_response::{PartitionProduceResponse, TopicProduceResponse},
        txn_offset_commit_response::{TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic},
        write_txn_markers_response::{
            WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
        },
    },
    protocol::StrBytes,
};

/// The answer that says only this.
pub(crate) fn rebuff(request: &Request, version: i16, code: i16) -> Response {
    match request {
        Request::Produce(request) => produce(request, code).into(),
        Request::Fetch(request) => fetch(request, code).into(),
        Request::ListOffsets(request) => {
            let topics = request.topics.iter().map(|topic| {
                let partition = |index| {
                    ListOffsetsPartitionResponse::default().with_partition_index(index).with_error_code(code)
                };
                let partitions = topic.partitions.iter().map(|it| partition(it.partition_index)).collect();
                ListOffsetsTopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions)
            });
            ListOffsetsResponse::default().with_topics(topics.collect()).into()
        }
        Request::Metadata(request) => metadata(request, version, code).into(),
        Request::OffsetForLeaderEpoch(request) => {
            let topics = request.topics.iter().map(|topic| {
                let partition = |index| EpochEndOffset::default().with_partition(index).with_error_code(code);
                let partitions = topic.partitions.iter().map(|it| partition(it.partition)).collect();
                OffsetForLeaderTopicResult::default()
                    .with_topic(topic.topic.clone())
                    .with_partitions(partitions)
            });
            OffsetForLeaderEpochResponse::default().with_topics(topics.collect()).into()
        }
        Request::ApiVersions(_) => ApiVersionsResponse::default().with_error_code(code).into(),
        Request::CreateTopics(request) => {
            let result = |name: &TopicName| {
                CreatableTopicResult::default().with_name(name.clone()).with_error_code(code)
            };
            let topics = request.topics.iter().map(|topic| result(&topic.name));
            CreateTopicsResponse::default().with_topics(topics.collect()).into()
        }
        Request::DeleteTopics(request) => delete_topics(request, code).into(),
        Request::DeleteRecords(request) => {
            let topics = request.topics.iter().map(|topic| {
                let partition = |index| {
                    DeleteRecordsPartitionResult::default()
                        .with_partition_index(index)
                        .with_low_watermark(-1)
                        .with_error_code(code)
                };
                let partitions = topic.partitions.iter().map(|it| partition(it.partition_index)).collect();
                DeleteRecordsTopicResult::default().with_name(topic.name.clone()).with_partitions(partitions)
            });
            DeleteRecordsResponse::default().with_topics(topics.collect()).into()
        }
        Request::CreatePartitions(request) => {
            let result = |name: &TopicName| {
                CreatePartitionsTopicResult::default().with_name(name.clone()).with_error_code(code)
            };
            let results = request.topics.iter().map(|topic| result(&topic.name));
            CreatePartitionsResponse::default().with_results(results.collect()).into()
        }
        Request::DescribeConfigs(request) => {
            let results = request.resources.iter().map(|resource| {
                DescribeConfigsResult::default()
                    .with_error_code(code)
                    .with_resource_type(resource.resource_type)
                    .with_resource_name(resource.resource_name.clone())
            });
            DescribeConfigsResponse::default().with_results(results.collect()).into()
        }
        Request::DescribeCluster(_) => DescribeClusterResponse::default().with_error_code(code).into(),
        Request::DescribeProducers(request) => {
            let topics = request.topics.iter().map(|topic| {
                let partition =
                    |&index| PartitionResponse::default().with_partition_index(index).with_error_code(code);
                TopicResponse::default()
                    .with_name(topic.name.clone())
                    .with_partitions(topic.partition_indexes.iter().map(partition).collect())
            });
            DescribeProducersResponse::default().with_topics(topics.collect()).into()
        }
        Request::InitProducerId(_)
        | Request::AddPartitionsToTxn(_)
        | Request::AddOffsetsToTxn(_)
        | Request::EndTxn(_)
        | Request::WriteTxnMarkers(_)
        | Request::TxnOffsetCommit(_)
        | Request::DescribeTransactions(_)
        | Request::ListTransactions(_) => of_transaction(request, version, code),
        Request::OffsetCommit(_)
        | Request::OffsetFetch(_)
        | Request::FindCoordinator(_)
        | Request::JoinGroup(_)
        | Request::Heartbeat(_)
        | Request::LeaveGroup(_)
        | Request::SyncGroup(_)
        | Request::DescribeGroups(_)
        | Request::ListGroups(_)
        | Request::DeleteGroups(_)
        | Request::OffsetDelete(_) => of_group(request, version, code),
    }
}

fn of_transaction(request: &Request, version: i16, code: i16) -> Response {
    match request {
        Request::InitProducerId(_) => InitProducerIdResponse::default()
            .with_error_code(code)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
            .into(),
        Request::AddPartitionsToTxn(request) => add_partitions(request, version, code).into(),
        Request::AddOffsetsToTxn(_) => AddOffsetsToTxnResponse::default().with_error_code(code).into(),
        Request::EndTxn(_) => EndTxnResponse::default()
            .with_error_code(code)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
            .into(),
        Request::WriteTxnMarkers(request) => {
            let partition = |&index| {
                WritableTxnMarkerPartitionResult::default().with_partition_index(index).with_error_code(code)
            };
            let markers = request.markers.iter().map(|marker| {
                let topics = marker.topics.iter().map(|topic| {
                    WritableTxnMarkerTopicResult::default()
                        .with_name(topic.name.clone())
                        .with_partitions(topic.partition_indexes.iter().map(partition).collect())
                });
                WritableTxnMarkerResult::default()
                    .with_producer_id(marker.producer_id)
                    .with_topics(topics.collect())
            });
            WriteTxnMarkersResponse::default().with_markers(markers.collect()).into()
        }
        Request::TxnOffsetCommit(request) => {
            let topics = request.topics.iter().map(|topic| {
                let partition = |index| {
                    TxnOffsetCommitResponsePartition::default()
                        .with_partition_index(index)
                        .with_error_code(code)
                };
                let partitions = topic.partitions.iter().map(|it| partition(it.partition_index)).collect();
                TxnOffsetCommitResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions)
            });
            TxnOffsetCommitResponse::default().with_topics(topics.collect()).into()
        }
        Request::DescribeTransactions(request) => {
            let states = request.transactional_ids.iter().map(|id| {
                TransactionState::default().with_transactional_id(id.clone()).with_error_code(code)
            });
            DescribeTransactionsResponse::default().with_transaction_states(states.collect()).into()
        }
        _ => ListTransactionsResponse::default().with_error_code(code).into(),
    }
}

fn of_group(request: &Request, version: i16, code: i16) -> Response {
    match request {
        Request::OffsetCommit(request) => {
            let topics = request.topics.iter().map(|topic| {
                let partition = |index| {
                    OffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(code)
                };
                let partitions = topic.partitions.iter().map(|it| partition(it.partition_index)).collect();
                OffsetCommitResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_topic_id(topic.topic_id)
                    .with_partitions(partitions)
            });
            OffsetCommitResponse::default().with_topics(topics.collect()).into()
        }
        Request::OffsetFetch(request) => offset_fetch(request, version, code).into(),
        Request::FindCoordinator(request) => find_coordinator(request, version, code).into(),
        Request::JoinGroup(request) => JoinGroupResponse::default()
            .with_error_code(code)
            .with_generation_id(-1)
            .with_member_id(request.member_id.clone())
            .with_protocol_name((version < 7).then(StrBytes::default))
            .into(),
        Request::Heartbeat(_) => HeartbeatResponse::default().with_error_code(code).into(),
        Request::LeaveGroup(_) => LeaveGroupResponse::default().with_error_code(code).into(),
        Request::SyncGroup(_) => SyncGroupResponse::default().with_error_code(code).into(),
        Request::DescribeGroups(request) => {
            let group = |id: &kafka_protocol::messages::GroupId| {
                DescribedGroup::default().with_group_id(id.clone()).with_error_code(code)
            };
            DescribeGroupsResponse::default().with_groups(request.groups.iter().map(group).collect()).into()
        }
        Request::DeleteGroups(request) => {
            let results = request.groups_names.iter().map(|group| {
                DeletableGroupResult::default().with_group_id(group.clone()).with_error_code(code)
            });
            DeleteGroupsResponse::default().with_results(results.collect()).into()
        }
        Request::OffsetDelete(_) => OffsetDeleteResponse::default().with_error_code(code).into(),
        _ => ListGroupsResponse::default().with_error_code(code).into(),
    }
}

fn produce(request: &ProduceRequest, code: i16) -> ProduceResponse {
    let topics = request.topic_data.iter().map(|topic| {
        let partition = |index| {
            PartitionProduceResponse::default()
                .with_index(index)
                .with_error_code(code)
                .with_base_offset(-1)
                .with_log_append_time_ms(-1)
                .with_log_start_offset(-1)
        };
        TopicProduceResponse::default()
            .with_name(topic.name.clone())
            .with_topic_id(topic.topic_id)
            .with_partition_responses(topic.partition_data.iter().map(|it| partition(it.index)).collect())
    });
    ProduceResponse::default().with_responses(topics.collect())
}

fn fetch(request: &FetchRequest, code: i16) -> FetchResponse {
    /// FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    const OF_SESSION: [i16; 3] = [70, 71, 106];
    if OF_SESSION.contains(&code) || request.topics.is_empty() {
        return FetchResponse::default().with_error_code(code);
    }
    let topics = request.topics.iter().map(|topic| {
        let partition = |index| {
            PartitionData::default()
                .with_partition_index(index)
                .with_error_code(code)
                .with_high_watermark(-1)
                .with_last_stable_offset(-1)
                .with_log_start_offset(-1)
                .with_aborted_transactions(None)
                .with_records(Some(bytes::Bytes::new()))
        };
        FetchableTopicResponse::default()
            .with_topic(topic.topic.clone())
            .with_topic_id(topic.topic_id)
            .with_partitions(topic.partitions.iter().map(|it| partition(it.partition)).collect())
    });
    FetchResponse::default().with_responses(topics.collect())
}

fn metadata(request: &MetadataRequest, version: i16, code: i16) -> MetadataResponse {
    let topics = request.topics.iter().flatten().map(|topic| {
        // Null names came with version 12.
        let name = topic.name.clone().or_else(|| (version < 12).then(TopicName::default));
        MetadataResponseTopic::default()
            .with_error_code(code)
            .with_name(name)
            .with_topic_id(if version >= 10 { topic.topic_id } else { uuid::Uuid::nil() })
    });
    let answer = MetadataResponse::default().with_topics(topics.collect());
    if version >= 13 { answer.with_error_code(code) } else { answer }
}

fn offset_fetch(request: &OffsetFetchRequest, version: i16, code: i16) -> OffsetFetchResponse {
    if version >= 8 {
        let groups = request.groups.iter().map(|group| {
            OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone()).with_error_code(code)
        });
        return OffsetFetchResponse::default().with_groups(groups.collect());
    }
    if version >= 2 {
        return OffsetFetchResponse::default().with_error_code(code);
    }
    let topics = request.topics.iter().flatten().map(|topic| {
        let partition = |&index| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(-1)
                .with_metadata(Some(StrBytes::default()))
                .with_error_code(code)
        };
        OffsetFetchResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(topic.partition_indexes.iter().map(partition).collect())
    });
    OffsetFetchResponse::default().with_topics(topics.collect())
}

fn find_coordinator(request: &FindCoordinatorRequest, version: i16, code: i16) -> FindCoordinatorResponse {
    if version < 4 {
        return FindCoordinatorResponse::default()
            .with_error_code(code)
            .with_node_id(BrokerId(-1))
            .with_port(-1);
    }
    let coordinators = request.coordinator_keys.iter().map(|key| {
        Coordinator::default()
            .with_key(key.clone())
            .with_error_code(code)
            .with_node_id(BrokerId(-1))
            .with_port(-1)
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}

fn delete_topics(request: &DeleteTopicsRequest, code: i16) -> DeleteTopicsResponse {
    let by_state = request.topics.iter().map(|topic| (topic.name.clone(), topic.topic_id));
    let by_name = request.topic_names.iter().map(|name| (Some(name.clone()), uuid::Uuid::nil()));
    let responses = by_state.chain(by_name).map(|(name, id)| {
        DeletableTopicResult::default().with_name(name).with_topic_id(id).with_error_code(code)
    });
    DeleteTopicsResponse::default().with_responses(responses.collect())
}

fn add_partitions(
    request: &AddPartitionsToTxnRequest,
    version: i16,
    code: i16,
) -> AddPartitionsToTxnResponse {
    let results = |topics: &[AddPartitionsToTxnTopic]| {
        let partition = |index| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(index)
                .with_partition_error_code(code)
        };
        let topic = |topic: &AddPartitionsToTxnTopic| {
            AddPartitionsToTxnTopicResult::default()
                .with_name(topic.name.clone())
                .with_results_by_partition(topic.partitions.iter().copied().map(partition).collect())
        };
        topics.iter().map(topic).collect::<Vec<_>>()
    };
    if version < 4 {
        let topics = results(&request.v3_and_below_topics);
        return AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(topics);
    }
    let transactions = request.transactions.iter().map(|transaction| {
        AddPartitionsToTxnResult::default()
            .with_transactional_id(transaction.transactional_id.clone())
            .with_topic_results(results(&transaction.topics))
    });
    AddPartitionsToTxnResponse::default()
        .with_error_code(code)
        .with_results_by_transaction(transactions.collect())
}
