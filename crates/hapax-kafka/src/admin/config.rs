//! DescribeConfigs.

use crate::{
    Client, ClientError, KafkaCode, NodeId,
    error::{CallError, RequestKind},
    limits,
    retry::{Retry, within},
    wire::{self, Request},
};
use hapax_host::Deadline;
use kafka_protocol::messages::{
    DescribeConfigsRequest, describe_configs_request::DescribeConfigsResource,
    describe_configs_response::DescribeConfigsResult,
};
use std::{collections::BTreeMap, ops::RangeInclusive};

const VERSIONS: RangeInclusive<i16> = 1..=4;

/// Values by name; a value that the broker does not tell (a secret) is none.
pub type Configs = BTreeMap<String, Option<String>>;

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigResource<'a> {
    /// A topic's, as they are in force.
    Topic(&'a str),
    /// A broker's.
    Broker(NodeId),
}

impl ConfigResource<'_> {
    fn wire(self, keys: &[&str]) -> DescribeConfigsResource {
        let (kind, name) = match self {
            Self::Topic(topic) => (2, topic.to_owned()),
            Self::Broker(node) => (4, node.0.to_string()),
        };
        let keys = (!keys.is_empty()).then(|| keys.iter().map(|key| wire::text(key)).collect());
        DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(wire::text(&name))
            .with_configuration_keys(keys)
    }

    fn subject(self) -> String {
        match self {
            Self::Topic(topic) => format!("topic {topic}"),
            Self::Broker(node) => node.to_string(),
        }
    }
}

/// Settings of a topic or broker; all of them where `keys` is empty. Keys that the broker does not know are left out.
///
/// # Errors
/// The client's reason, at the latest at the deadline.
pub async fn describe_configs(
    client: &Client,
    resource: ConfigResource<'_>,
    keys: &[&str],
    deadline: Deadline,
) -> Result<Configs, ClientError> {
    let request = DescribeConfigsRequest::default().with_resources(vec![resource.wire(keys)]);
    let mut retry = Retry::new(client, RequestKind::DescribeConfigs, &resource.subject(), deadline);
    let mut tries = client.host().random_u64() % 1024;
    loop {
        // A broker's settings are known to itself only; a topic's to all.
        let node = match resource {
            ConfigResource::Broker(node) => node,
            ConfigResource::Topic(_) => some_node(client, tries),
        };
        match describe_at(client, node, resource, &request, &retry).await {
            Ok(configs) => return Ok(configs),
            Err(error) => retry.again(error).await?,
        }
        tries += 1;
        let _ = retry.bounded(client.refresh(&[])).await;
    }
}

fn some_node(client: &Client, tries: u64) -> NodeId {
    let nodes = client.nodes();
    let index = tries.checked_rem(nodes.len() as u64).and_then(|index| usize::try_from(index).ok());
    index.and_then(|index| nodes.get(index).copied()).unwrap_or(NodeId::BOOTSTRAP)
}

async fn describe_at(
    client: &Client,
    node: NodeId,
    resource: ConfigResource<'_>,
    request: &DescribeConfigsRequest,
    retry: &Retry<'_>,
) -> Result<Configs, ClientError> {
    let connection = retry.bounded(client.control_connection(node)).await?;
    let version = connection.choose(DescribeConfigsRequest::KEY, VERSIONS)?;
    let answer = connection.call(version, request, limits::LOOKUP_TIMEOUT);
    let response = within(client, retry.deadline(), DescribeConfigsRequest::NAME, node, answer).await?;
    let result = response.results.into_iter().next().ok_or_else(|| CallError::Malformed {
        api: DescribeConfigsRequest::NAME,
        node,
        reason: "no entry".into(),
    })?;
    configs_of(result, resource)
}

fn configs_of(result: DescribeConfigsResult, resource: ConfigResource<'_>) -> Result<Configs, ClientError> {
    let code = KafkaCode(result.error_code);
    if code != KafkaCode::NONE {
        return Err(ClientError::Broker {
            request: RequestKind::DescribeConfigs,
            subject: resource.subject(),
            code,
            message: result.error_message.map(|text| text.to_string()),
        });
    }
    let entries = result.configs.into_iter();
    Ok(entries.map(|entry| (entry.name.to_string(), entry.value.map(|value| value.to_string()))).collect())
}

/// One setting of some broker, where all brokers are taken to agree (`transaction.max.timeout.ms`).
///
/// # Errors
/// As [`describe_configs`].
pub async fn broker_config(
    client: &Client,
    key: &str,
    deadline: Deadline,
) -> Result<Option<String>, ClientError> {
    let mut retry = Retry::new(client, RequestKind::DescribeConfigs, key, deadline);
    let mut tries = client.host().random_u64() % 1024;
    loop {
        let node = some_node(client, tries);
        let resource = ConfigResource::Broker(node);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource.wire(&[key])]);
        match describe_at(client, node, resource, &request, &retry).await {
            Ok(mut configs) => return Ok(configs.remove(key).flatten()),
            Err(error) => retry.again(error).await?,
        }
        tries += 1;
        let _ = retry.bounded(client.refresh(&[])).await;
    }
}
