//! Real Apache Kafka: its jars, brokers as child processes, and the brokers that tests share.
//!
//! ```no_run
//! use xtask::kafka::{Cluster, Version};
//! let cluster = Cluster::builder(Version::V4_4).nodes(3).start()?;
//! println!("{}", cluster.bootstrap());
//! cluster.kill(2)?;
//! cluster.restart(2)?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod cluster;
mod node;
mod port;
mod provision;
mod shared;
mod transaction;
mod wire;

pub use cluster::{Builder, Cluster};
pub use provision::{Installation, java};
pub use shared::{Shared, shared, start_shared};
pub use transaction::{ListedTransaction, transactions};

use std::fmt;

/// The Kafka versions that tests run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// 4.4.0: transactions V2 (unless formatted with a lower `transaction.version`).
    V4_4,
    /// 3.9.1: transactions V1 only.
    V3_9,
}

impl Version {
    /// Every version, newest first.
    pub const ALL: [Version; 2] = [Version::V4_4, Version::V3_9];

    /// The number of the release, as Maven knows it.
    pub fn number(self) -> &'static str {
        match self {
            Version::V4_4 => "4.4.0",
            Version::V3_9 => "3.9.1",
        }
    }

    /// The version with this number.
    pub fn from_number(number: &str) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.number() == number)
    }

    /// The environment variable that names the shared broker of this version.
    pub fn variable(self) -> &'static str {
        match self {
            Version::V4_4 => "HAPAX_KAFKA_4_4",
            Version::V3_9 => "HAPAX_KAFKA_3_9",
        }
    }

    /// Whether the version knows transactions V2 (feature `transaction.version` 2).
    pub fn knows_v2(self) -> bool {
        match self {
            Version::V4_4 => true,
            Version::V3_9 => false,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}
