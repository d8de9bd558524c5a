//! Names of topics by id, as answers tell them: newer requests name topics by their ids only.

use crate::wire::Response;
use kafka_protocol::messages::TopicName;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Topic names that are remembered. More than these are forgotten, the lowest ids first.
const MOST_NAMES: usize = 100_000;

/// Names of topics by id.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<Uuid, String>);

impl Names {
    /// Learns from an answer.
    pub(crate) fn learn(&mut self, response: &Response) {
        match response {
            Response::Metadata(answer) => {
                for topic in &answer.topics {
                    self.insert(topic.topic_id, topic.name.as_ref());
                }
            }
            Response::CreateTopics(answer) => {
                for topic in &answer.topics {
                    self.insert(topic.topic_id, Some(&topic.name));
                }
            }
            _ => {}
        }
    }

    fn insert(&mut self, id: Uuid, name: Option<&TopicName>) {
        let Some(name) = name.filter(|name| !id.is_nil() && !name.is_empty()) else { return };
        self.0.insert(id, name.to_string());
        if self.0.len() > MOST_NAMES {
            self.0.pop_first();
        }
    }

    /// The name of an id, if an answer has told it.
    pub(crate) fn get(&self, id: Uuid) -> Option<String> {
        self.0.get(&id).cloned()
    }
}
