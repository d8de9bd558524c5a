//! Names of brokers.

use std::fmt;

/// A broker's id in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i32);

impl NodeId {
    /// A broker that is known by a bootstrap address only.
    pub const BOOTSTRAP: Self = Self(-1);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BOOTSTRAP => f.write_str("a bootstrap broker"),
            Self(id) => write!(f, "broker {id}"),
        }
    }
}
