//! The fate of one request on one connection.

use crate::NodeId;
use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

/// A request without an answer that can be trusted. Cheap to clone: one lost connection fails many requests.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request certainly had no effect.
    #[error("{api} to {node}: not sent: {cause}")]
    NotSent {
        /// Which request.
        api: &'static str,
        /// To which broker.
        node: NodeId,
        /// Why.
        cause: Cause,
    },
    /// The request was written, or may have been, and no answer came: its outcome is unknown.
    #[error("{api} to {node}: sent, outcome unknown: {cause}")]
    Unknown {
        /// Which request.
        api: &'static str,
        /// To which broker.
        node: NodeId,
        /// Why.
        cause: Cause,
    },
    /// The broker offers no version of the request that we can use; nothing was sent.
    #[error("{api} to {node}: not sent: we need version {} to {}, the broker offers {}", .wanted.start(), .wanted.end(), Offer(.offered))]
    Unsupported {
        /// Which request.
        api: &'static str,
        /// To which broker.
        node: NodeId,
        /// Versions that would do.
        wanted: RangeInclusive<i16>,
        /// Versions that the broker advertises, if any.
        offered: Option<RangeInclusive<i16>>,
    },
    /// An answer came and was not understood; the outcome is unknown too.
    #[error(
        "{api} to {node}: answer not understood, outcome unknown: {reason}; ask again, and if it stays so check that \
         broker and what stands between"
    )]
    Malformed {
        /// Which request.
        api: &'static str,
        /// From which broker.
        node: NodeId,
        /// What did not fit.
        reason: Arc<str>,
    },
}

impl CallError {
    /// May the broker have executed the request?
    pub fn may_have_had_effect(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::Malformed { .. } => true,
            Self::NotSent { .. } | Self::Unsupported { .. } => false,
        }
    }

    /// Can the same request succeed later, or on another connection?
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::NotSent { cause, .. } => !matches!(cause, Cause::Refused(_)),
            Self::Unknown { .. } | Self::Malformed { .. } => true,
            Self::Unsupported { .. } => false,
        }
    }

    /// The broker that was called.
    pub fn node(&self) -> NodeId {
        match self {
            Self::NotSent { node, .. }
            | Self::Unknown { node, .. }
            | Self::Unsupported { node, .. }
            | Self::Malformed { node, .. } => *node,
        }
    }
}

/// Why no answer came.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The broker could not be connected to.
    Connect(Arc<str>),
    /// The connection ended: by the broker, by the network.
    Lost(Arc<str>),
    /// A request on the connection was not answered in time, so the connection was given up.
    TimedOut(Duration),
    /// Nobody used the connection for the idle time-out.
    Idle,
    /// The owner closed it.
    Closed,
    /// The cluster's metadata does not know the broker (any more).
    UnknownNode,
    /// As many requests as may wait on the connection do: some of them will be answered, or given up.
    Full(usize),
    /// Our own rule refused the request: a bug of the caller.
    Refused(Arc<str>),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "cannot connect: {why}"),
            Self::Lost(why) => write!(f, "connection lost: {why}"),
            Self::TimedOut(after) => write!(f, "no answer within {after:?}"),
            Self::Idle => f.write_str("connection closed after its idle time"),
            Self::Closed => f.write_str("connection closed"),
            Self::UnknownNode => f.write_str("the cluster does not list this broker"),
            Self::Full(waiting) => write!(f, "{waiting} requests wait on the connection"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

struct Offer<'a>(&'a Option<RangeInclusive<i16>>);

impl fmt::Display for Offer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(range) => write!(f, "{} to {}", range.start(), range.end()),
            None => f.write_str("none"),
        }
    }
}
