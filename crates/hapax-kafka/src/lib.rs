//! The Kafka client of Hapax.
//!
//! It exists because owning producer id, producer epoch and sequence numbers is what Hapax is for: no other client
//! can end a transaction that another process began.
//!
//! ```text
//!  error, config, limits, node      what can go wrong; settings and bounds
//!  wire -> connection -> client     bytes; one broker; one cluster
//!  record, partition                record batches; which partition a key belongs to
//!  admin, fetch                     operations on a cluster, each repeated by the one error table; records in, filtered
//!  transaction                      operations on transactions, and the coordinators' log of them
//!  producer                         records out, counted
//! ```

pub mod admin;
pub mod client;
pub mod config;
pub mod connection;
pub mod error;
pub mod fetch;
pub mod limits;
pub mod metadata;
pub mod partition;
pub mod producer;
pub mod record;
pub mod transaction;
pub mod wire;

mod node;
mod retry;

pub use admin::Isolation;
pub use client::{Client, CoordinatorKind};
pub use config::ClientConfig;
pub use connection::{BrokerVersions, Connection, PendingResponse};
pub use error::{
    CallError, Cause, Class, ClientError, Disturbance, KafkaCode, Refusal, RequestKind, classify,
};
pub use metadata::{Leader, PartitionMetadata, TopicMetadata};
pub use node::NodeId;
