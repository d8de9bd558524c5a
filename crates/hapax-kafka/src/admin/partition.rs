//! CreatePartitions.

use crate::{
    Client, ClientError, KafkaCode,
    error::{CallError, Class, RequestKind, classify},
    retry::{Retry, within},
    wire::{self, Request},
};
use hapax_host::Deadline;
use kafka_protocol::messages::{
    CreatePartitionsRequest, create_partitions_request::CreatePartitionsTopic,
    create_partitions_response::CreatePartitionsTopicResult,
};
use std::ops::RangeInclusive;

const VERSIONS: RangeInclusive<i16> = 0..=3;

/// Sees to it that a topic has so many partitions; one that has them or more stays as it is. Brokers learn of them a moment
/// later.
///
/// # Errors
/// The broker refuses, or the client's reason at the deadline.
pub async fn add_partitions(
    client: &Client,
    topic: &str,
    partitions: i32,
    deadline: Deadline,
) -> Result<(), ClientError> {
    let mut retry = Retry::new(client, RequestKind::CreatePartitions, topic, deadline);
    loop {
        match add_once(client, (topic, partitions), &retry).await {
            Ok(()) => return Ok(()),
            Err(error) => retry.again(error).await?,
        }
        let _ = retry.bounded(client.refresh(&[])).await;
    }
}

async fn add_once(
    client: &Client,
    (topic, partitions): (&str, i32),
    retry: &Retry<'_>,
) -> Result<(), ClientError> {
    // Any broker forwards the request in KRaft; where only the controller takes it, metadata names it.
    let node =
        client.controller().or_else(|| client.nodes().first().copied()).unwrap_or(crate::NodeId::BOOTSTRAP);
    let connection = retry.bounded(client.control_connection(node)).await?;
    let version = connection.choose(CreatePartitionsRequest::KEY, VERSIONS)?;
    let timeout = client.config().request_timeout;
    let asked = CreatePartitionsTopic::default()
        .with_name(wire::text(topic).into())
        .with_count(partitions)
        // An empty list would be one of no brokers for each.
        .with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![asked])
        .with_timeout_ms(i32::try_from(timeout.as_millis() / 2).unwrap_or(i32::MAX));
    let answer = connection.call(version, &request, timeout);
    let response = within(client, retry.deadline(), CreatePartitionsRequest::NAME, node, answer).await?;
    let result = response.results.into_iter().next().ok_or_else(|| CallError::Malformed {
        api: CreatePartitionsRequest::NAME,
        node,
        reason: "no entry".into(),
    })?;
    settle(topic, result)
}

fn settle(topic: &str, result: CreatePartitionsTopicResult) -> Result<(), ClientError> {
    let code = KafkaCode(result.error_code);
    match classify(RequestKind::CreatePartitions, code) {
        Class::Success | Class::AlreadyThere => Ok(()),
        _ => Err(ClientError::Broker {
            request: RequestKind::CreatePartitions,
            subject: topic.to_owned(),
            code,
            message: result.error_message.map(|text| text.to_string()),
        }),
    }
}
