//! Topics for tests that have no admin client.

use super::{Broker, Halted};
use crate::{
    state::{Code, NodeId, Outcome},
    wire::{Request, Response},
};
use bytes::BytesMut;
use kafka_protocol::{
    messages::{CreateTopicsRequest, TopicName, create_topics_request::CreatableTopic},
    protocol::StrBytes,
};

/// Of CreateTopics.
const VERSION: i16 = 7;

/// Why a topic is not made.
#[derive(Debug, thiserror::Error)]
pub enum TopicRefused {
    /// The broker does not take it.
    #[error(transparent)]
    Halted(#[from] Halted),
    /// It cannot be.
    #[error("topic {name:?} refused with code {code}: {why}")]
    Refused {
        /// The name.
        name: String,
        /// Kafka's code.
        code: i16,
        /// What is wrong.
        why: String,
    },
}

impl Broker {
    /// Makes a topic, unless one of that name is there.
    ///
    /// # Errors
    /// The name or the number of partitions is not legal, or the broker takes nothing any more.
    pub async fn create_topic(&self, name: &str, partitions: i32) -> Result<(), TopicRefused> {
        let topic = CreatableTopic::default()
            .with_name(TopicName(StrBytes::from_string(name.to_owned())))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let request =
            Request::from(CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000));
        let refused = |code: i16, why: String| TopicRefused::Refused { name: name.to_owned(), code, why };
        let mut body = BytesMut::new();
        request
            .encode(VERSION, &mut body)
            .map_err(|error| refused(Code::INVALID_REQUEST.0, error.to_string()))?;
        let crashes = self.core.crashes.count();
        let mut pending = self.core.submit(crashes, NodeId(1), VERSION, None, request, &body.freeze())?;
        let outcome = pending.outcome().await.ok_or(Halted::Stopped)?;
        let Outcome::Answer(Response::CreateTopics(answer)) = outcome else {
            return Err(refused(Code::INVALID_REQUEST.0, "no answer".to_owned()));
        };
        match answer.topics.first() {
            Some(topic) if ![Code::NONE.0, Code::TOPIC_ALREADY_EXISTS.0].contains(&topic.error_code) => {
                let why = topic.error_message.as_ref().map(ToString::to_string).unwrap_or_default();
                Err(refused(topic.error_code, why))
            }
            _ => Ok(()),
        }
    }
}
