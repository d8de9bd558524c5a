//! Topics, settings, offsets: what a cluster is asked beside transactions.
//!
//! - [`create_topics`], [`add_partitions`]
//! - [`describe_configs`], [`broker_config`]
//! - [`list_offsets`], [`epoch_end`]
//! - [`committed_offsets`]: what a group has committed

mod config;
mod epoch;
mod group;
mod leader;
mod offset;
mod partition;
mod topic;

pub use config::{ConfigResource, Configs, broker_config, describe_configs};
pub use epoch::{EpochEnd, LeaderEpochOf, epoch_end};
pub use group::{
    CommittedOffset, GroupOffsets, OFFSETS_TOPIC, committed_offsets, offsets_partition, unstable_offsets,
};
pub use offset::{Isolation, ListedOffset, OffsetSpec, list_offsets};
pub use partition::add_partitions;
pub use topic::{Created, NewTopic, create_topics};

pub(crate) use leader::AskLeader;
