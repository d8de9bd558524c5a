//! FindCoordinator: which node coordinates a group or a transactional id. The first question creates the topic of the
//! coordinators, and is answered with COORDINATOR_NOT_AVAILABLE as long as it is not there.

use super::CONSUMER_OFFSETS;
use crate::state::{
    Answer, Call, Code, Machine, NodeId, catalog::TRANSACTION_STATE, transaction::partition_for,
};
use kafka_protocol::{
    messages::{FindCoordinatorRequest, FindCoordinatorResponse, find_coordinator_response::Coordinator},
    protocol::StrBytes,
};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// Where a node is reached.
struct Place {
    node: i32,
    host: StrBytes,
    port: i32,
}

impl Place {
    const NOWHERE: Self = Self { node: -1, host: StrBytes::new(), port: -1 };
}

impl Machine {
    pub(crate) fn find_coordinator(&mut self, call: &Call, request: FindCoordinatorRequest) -> Answer {
        let response = FindCoordinatorResponse::default();
        if call.version < 4 {
            let (code, place) = self.coordinator_of(request.key_type, &request.key);
            let message = StrBytes::from_static_str(code.name().unwrap_or_default());
            let response = response
                .with_error_code(code.0)
                .with_error_message(Some(message).filter(|_| call.version >= 1))
                .with_node_id(place.node.into())
                .with_host(place.host)
                .with_port(place.port);
            return Answer::Now(response.into());
        }
        let mut coordinators = Vec::with_capacity(request.coordinator_keys.len());
        for key in request.coordinator_keys {
            let (code, place) = self.coordinator_of(request.key_type, &key);
            coordinators.push(
                Coordinator::default()
                    .with_key(key)
                    .with_error_code(code.0)
                    .with_node_id(place.node.into())
                    .with_host(place.host)
                    .with_port(place.port),
            );
        }
        Answer::Now(response.with_coordinators(coordinators).into())
    }

    fn coordinator_of(&mut self, key_type: i8, key: &str) -> (Code, Place) {
        let (topic, partitions) = match key_type {
            GROUP => (CONSUMER_OFFSETS, self.settings.offsets_partitions),
            TRANSACTION => (TRANSACTION_STATE, self.settings.transaction_partitions),
            // Share groups, and what nobody knows.
            _ => return (Code::INVALID_REQUEST, Place::NOWHERE),
        };
        if self.catalog.topic(topic).is_none() {
            self.catalog.internal(topic, partitions);
            self.transactions_follow(false);
            self.groups_follow(false);
            return (Code::COORDINATOR_NOT_AVAILABLE, Place::NOWHERE);
        }
        match self.catalog.partition(topic, partition_for(key, partitions)) {
            Some(partition) => (Code::NONE, self.place_of(partition.leader)),
            None => (Code::COORDINATOR_NOT_AVAILABLE, Place::NOWHERE),
        }
    }

    fn place_of(&self, node: NodeId) -> Place {
        let (host, port) = self.addresses.get(&node).cloned().unwrap_or_else(|| ("127.0.0.1".to_owned(), 0));
        Place { node: node.0, host: StrBytes::from_string(host), port: i32::from(port) }
    }
}
