//! CreateTopics.

use crate::{
    Client, ClientError, KafkaCode,
    error::{CallError, Class, RequestKind, classify},
    retry::{Retry, within},
    wire::{self, Request},
};
use hapax_host::Deadline;
use kafka_protocol::messages::{
    CreateTopicsRequest,
    create_topics_request::{CreatableTopic, CreatableTopicConfig},
    create_topics_response::CreatableTopicResult,
};
use std::ops::RangeInclusive;

const VERSIONS: RangeInclusive<i16> = 4..=7;

/// A topic to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Number of partitions; -1 is the broker's default.
    pub partitions: i32,
    /// Copies of each partition; -1 is the broker's default.
    pub replication: i16,
    /// Settings that differ from the broker's defaults.
    pub configs: Vec<(String, String)>,
}

impl NewTopic {
    /// A topic with so many partitions and the broker's defaults.
    pub fn new(name: impl Into<String>, partitions: i32) -> Self {
        Self { name: name.into(), partitions, replication: -1, configs: Vec::new() }
    }

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.configs.push((key.to_owned(), value.to_owned()));
        self
    }

    fn wire(&self) -> CreatableTopic {
        let config = |(key, value): &(String, String)| {
            CreatableTopicConfig::default().with_name(wire::text(key)).with_value(Some(wire::text(value)))
        };
        CreatableTopic::default()
            .with_name(wire::text(&self.name).into())
            .with_num_partitions(self.partitions)
            .with_replication_factor(self.replication)
            .with_configs(self.configs.iter().map(config).collect())
    }
}

/// What became of a topic to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was made now.
    Now,
    /// It was there, or a try of ours whose answer was lost made it.
    AlreadyThere,
}

/// Makes topics one after another; brokers learn of them a moment later.
///
/// # Errors
/// The first topic that is refused, or the client's reason at the deadline. Earlier ones are made then.
pub async fn create_topics(
    client: &Client,
    topics: &[NewTopic],
    deadline: Deadline,
) -> Result<Vec<Created>, ClientError> {
    let mut created = Vec::with_capacity(topics.len());
    for topic in topics {
        created.push(create(client, topic, deadline).await?);
    }
    Ok(created)
}

async fn create(client: &Client, topic: &NewTopic, deadline: Deadline) -> Result<Created, ClientError> {
    let mut retry = Retry::new(client, RequestKind::CreateTopics, &topic.name, deadline);
    loop {
        match create_once(client, topic, &retry).await {
            Ok(created) => return Ok(created),
            Err(error) => retry.again(error).await?,
        }
        let _ = retry.bounded(client.refresh(&[])).await;
    }
}

async fn create_once(client: &Client, topic: &NewTopic, retry: &Retry<'_>) -> Result<Created, ClientError> {
    // Any broker forwards the request in KRaft; where only the controller takes it, metadata names it.
    let node =
        client.controller().or_else(|| client.nodes().first().copied()).unwrap_or(crate::NodeId::BOOTSTRAP);
    let connection = retry.bounded(client.control_connection(node)).await?;
    let version = connection.choose(CreateTopicsRequest::KEY, VERSIONS)?;
    let timeout = client.config().request_timeout;
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic.wire()])
        .with_timeout_ms(i32::try_from(timeout.as_millis() / 2).unwrap_or(i32::MAX));
    let answer = connection.call(version, &request, timeout);
    let response = within(client, retry.deadline(), CreateTopicsRequest::NAME, node, answer).await?;
    let result = response.topics.into_iter().next().ok_or_else(|| CallError::Malformed {
        api: CreateTopicsRequest::NAME,
        node,
        reason: "no entry".into(),
    })?;
    settle(topic, result)
}

fn settle(topic: &NewTopic, result: CreatableTopicResult) -> Result<Created, ClientError> {
    let code = KafkaCode(result.error_code);
    match classify(RequestKind::CreateTopics, code) {
        Class::Success => Ok(Created::Now),
        Class::AlreadyThere => Ok(Created::AlreadyThere),
        _ => Err(ClientError::Broker {
            request: RequestKind::CreateTopics,
            subject: topic.name.clone(),
            code,
            message: result.error_message.map(|text| text.to_string()),
        }),
    }
}
