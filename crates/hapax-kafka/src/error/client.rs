//! Errors of the client's own operations; each variant says whose fault it is.

use super::{CallError, Class, Disturbance, KafkaCode, Refusal, RequestKind, classify};
use std::time::Duration;

/// An operation of the client failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Configuration: the bootstrap list or a setting is unusable.
    #[error("cannot use the client configuration: {0}")]
    Config(String),
    /// Environment: no broker could be reached.
    #[error("cannot reach the cluster: {tried}; check the addresses, and that a broker runs there")]
    Unreachable {
        /// Each address and what happened there.
        tried: String,
    },
    /// Environment: the broker is older than Kafka 3.0.
    #[error("broker {address} is too old: it does not offer {lacks}; Kafka 3.0 or later is needed")]
    TooOld {
        /// The broker.
        address: String,
        /// What it lacks.
        lacks: &'static str,
    },
    /// Environment: an address led to another cluster than before.
    #[error(
        "broker {node} answers for cluster {is}, this client belongs to cluster {was}; check the addresses"
    )]
    OtherCluster {
        /// The broker.
        node: String,
        /// The cluster that the client connected to.
        was: String,
        /// The cluster that answered.
        is: String,
    },
    /// Network or protocol: a request got no trustworthy answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Broker: it answered with an error code.
    #[error("{request} for {subject}: the broker answered {code}{}", detail(.message))]
    Broker {
        /// Which request.
        request: RequestKind,
        /// Topic, partition, id: what it was about.
        subject: String,
        /// The answer.
        code: KafkaCode,
        /// The broker's own words, where it sent any.
        message: Option<String>,
    },
    /// Time: the deadline passed; the last failure is the reason.
    #[error("{request} for {subject}: not done after {waited:?}; last: {last}")]
    Deadline {
        /// Which request.
        request: RequestKind,
        /// Topic, partition, id: what it was about.
        subject: String,
        /// How long it was tried.
        waited: Duration,
        /// What happened last.
        last: Box<ClientError>,
    },
}

impl ClientError {
    pub(crate) fn broker(request: RequestKind, subject: impl Into<String>, code: KafkaCode) -> Self {
        Self::Broker { request, subject: subject.into(), code, message: None }
    }

    /// The code that the broker answered, if one was the reason.
    pub fn code(&self) -> Option<KafkaCode> {
        match self {
            Self::Broker { code, .. } => Some(*code),
            Self::Deadline { last, .. } => last.code(),
            Self::Config(_)
            | Self::Unreachable { .. }
            | Self::TooOld { .. }
            | Self::OtherCluster { .. }
            | Self::Call(_) => None,
        }
    }

    /// Can the same operation succeed later without a change of configuration, rights or data?
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Call(call) => call.is_retriable(),
            Self::Broker { request, code, .. } => match classify(*request, *code) {
                Class::Retry
                | Class::RefreshMetadata
                | Class::RefreshCoordinator
                | Class::UnknownOutcome
                | Class::UnknownTopic => true,
                Class::Success
                | Class::Duplicate
                | Class::Split
                | Class::OutOfSequence
                | Class::OutOfRange
                | Class::Abortable
                | Class::FatalForLane
                | Class::Disturbed(_)
                | Class::NotFound
                | Class::AlreadyThere
                | Class::Refused(_) => false,
            },
            Self::Deadline { last, .. } => last.is_retriable(),
            Self::Config(_) | Self::TooOld { .. } | Self::OtherCluster { .. } => false,
        }
    }

    /// Will the cluster say the same until somebody changes rights, versions or settings? Neither this nor
    /// [`ClientError::is_retriable`] holds for what depends on this client's state, such as a lost identity: another
    /// run begins with a new one.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Broker { request, code, .. } => matches!(classify(*request, *code), Class::Refused(_)),
            Self::Call(call) => matches!(call, CallError::Unsupported { .. }),
            Self::Deadline { last, .. } => last.is_refusal(),
            Self::Config(_) | Self::TooOld { .. } | Self::OtherCluster { .. } => true,
            Self::Unreachable { .. } => false,
        }
    }

    /// Does the broker know a newer producer epoch than the one that asked: another writer's, or one that a time-out gave?
    pub fn is_superseded(&self) -> bool {
        match self {
            Self::Broker { request, code, .. } => {
                classify(*request, *code) == Class::Disturbed(Disturbance::Superseded)
            }
            Self::Deadline { last, .. } => last.is_superseded(),
            Self::Config(_)
            | Self::Unreachable { .. }
            | Self::TooOld { .. }
            | Self::OtherCluster { .. }
            | Self::Call(_) => false,
        }
    }

    /// Is the answer kept from this client, for a missing right or because the broker does not have the request? What
    /// was asked may be there to be learned in another way.
    pub fn is_withheld(&self) -> bool {
        match self {
            Self::Broker { request, code, .. } => {
                matches!(classify(*request, *code), Class::Refused(Refusal::Rights | Refusal::Version))
            }
            Self::Call(call) => matches!(call, CallError::Unsupported { .. }),
            Self::Deadline { last, .. } => last.is_withheld(),
            Self::Config(_) | Self::Unreachable { .. } | Self::TooOld { .. } | Self::OtherCluster { .. } => {
                false
            }
        }
    }

    /// May the broker have executed the request?
    pub fn may_have_had_effect(&self) -> bool {
        match self {
            Self::Call(call) => call.may_have_had_effect(),
            Self::Broker { request, code, .. } => classify(*request, *code) == Class::UnknownOutcome,
            // Earlier tries may have been executed even where the last one was not sent.
            Self::Deadline { .. } => true,
            Self::Config(_) | Self::Unreachable { .. } | Self::TooOld { .. } | Self::OtherCluster { .. } => {
                false
            }
        }
    }
}

fn detail(message: &Option<String>) -> String {
    message.as_ref().map(|text| format!(": {text}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn only_a_missing_right_or_request_withholds_an_answer() {
        let answered =
            |code| ClientError::broker(RequestKind::DescribeTransactions, "an id", KafkaCode(code));
        for code in [31, 35, 53] {
            assert!(answered(code).is_withheld(), "{code}");
        }
        for code in [-1, 14, 15, 16, 42, 105] {
            assert!(!answered(code).is_withheld(), "{code}");
        }
        let (api, node) = ("DescribeTransactions", NodeId::BOOTSTRAP);
        let missing = ClientError::from(CallError::Unsupported { api, node, wanted: 0..=0, offered: None });
        assert!(missing.is_withheld());
        let late = |last| ClientError::Deadline {
            request: RequestKind::DescribeTransactions,
            subject: "an id".to_owned(),
            waited: Duration::ZERO,
            last: Box::new(last),
        };
        assert!(late(missing).is_withheld());
        assert!(!late(answered(14)).is_withheld());
    }
}
