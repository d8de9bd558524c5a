//! Two-phase commit (KIP-939): transactions that no time-out ends, and whether a cluster has it in whole.
//!
//! InitProducerId 6 carries two switches. `Enable2Pc` takes the time-out away; `KeepPreparedTxn` gives what is open back
//! instead of aborting it. Kafka 4.1 to 4.4 know the first, behind two settings that are off by default, and answer the
//! second with UNSUPPORTED_VERSION always (`TransactionCoordinator.handleInitProducerId`); so an offer of version 6 says
//! too little, and an answer to `KeepPreparedTxn` is asked for.
//!
//! Refuses to take over what is open: a handle ends a prepared transaction as it is, and whoever keeps one takes that
//! right from the handle.

use super::Ask;
use crate::{
    Client, ClientError, KafkaCode,
    error::{CallError, RequestKind},
    limits,
    retry::Retry,
    wire::{Request, WireError},
};
use bytes::{BufMut, Bytes, BytesMut};
use hapax_commit::Identity;
use hapax_host::Deadline;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use std::{fmt, ops::RangeInclusive};

/// The version with the two switches.
const VERSION: i16 = 6;

/// How long a transaction may stay open before its coordinator aborts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// A transaction timeout, in milliseconds.
    Millis(i32),
    /// For ever: two-phase commit.
    Unbounded,
}

/// Why a cluster cannot give transactions without a time-out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TwoPhaseRefused {
    /// The coordinator does not offer InitProducerId 6.
    NotOffered {
        /// Versions of InitProducerId that it offers.
        offered: Option<RangeInclusive<i16>>,
    },
    /// It offers the version, and cannot keep a prepared transaction: what is open would be lost with its identity.
    CannotKeep,
    /// Two-phase commit is switched off there, or this principal may not use it; Kafka answers both alike.
    Denied {
        /// The answer.
        code: KafkaCode,
    },
}

impl fmt::Display for TwoPhaseRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered { offered: Some(offered) } => write!(
                f,
                "its coordinator offers InitProducerId {} to {}, and two-phase commit (KIP-939) needs {VERSION}",
                offered.start(),
                offered.end()
            ),
            Self::NotOffered { offered: None } => write!(f, "its coordinator offers no InitProducerId"),
            Self::CannotKeep => write!(
                f,
                "its coordinator offers InitProducerId {VERSION} and answers KeepPreparedTxn with UNSUPPORTED_VERSION: it has \
                 only a part of KIP-939"
            ),
            Self::Denied { code } => write!(
                f,
                "its coordinator answers {code}: transaction.two.phase.commit.enable is false there, or the principal lacks \
                 TWO_PHASE_COMMIT on its transactional ids"
            ),
        }
    }
}

/// Asks whether a cluster has the whole of two-phase commit, on an id that has nothing open.
///
/// # Errors
/// The client's reason, at the latest at the deadline: nothing is known then.
pub async fn probe_two_phase(
    client: &Client,
    fresh_id: &str,
    deadline: Deadline,
) -> Result<Result<(), TwoPhaseRefused>, ClientError> {
    let mut retry = Retry::new(client, RequestKind::InitProducerId, fresh_id, deadline);
    let request = TwoPhaseInit { keep_prepared: true, ..TwoPhaseInit::new(fresh_id, None) };
    match request.ask().until_settled(client, &mut retry).await {
        Ok(_) => Ok(Ok(())),
        Err(error) => refusal(error).map(Err),
    }
}

fn refusal(error: ClientError) -> Result<TwoPhaseRefused, ClientError> {
    match error {
        ClientError::Call(CallError::Unsupported { offered, .. }) => {
            Ok(TwoPhaseRefused::NotOffered { offered })
        }
        ClientError::Broker { code: KafkaCode::UNSUPPORTED_VERSION, .. } => Ok(TwoPhaseRefused::CannotKeep),
        ClientError::Broker { code: code @ KafkaCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, .. } => {
            Ok(TwoPhaseRefused::Denied { code })
        }
        other => Err(other),
    }
}

/// InitProducerId 6. The message crate leaves it out, because Kafka calls it unstable.
#[derive(Clone, Debug)]
pub(super) struct TwoPhaseInit<'a> {
    transactional_id: &'a str,
    own: Option<Identity>,
    keep_prepared: bool,
}

impl<'a> TwoPhaseInit<'a> {
    /// An identity whose transactions no time-out ends; what is open under the id is aborted, as ever.
    pub(super) fn new(transactional_id: &'a str, own: Option<Identity>) -> Self {
        Self { transactional_id, own, keep_prepared: false }
    }

    pub(super) fn ask(&self) -> Ask<'_, Self> {
        Ask {
            transactional_id: self.transactional_id,
            kind: RequestKind::InitProducerId,
            versions: VERSION..=VERSION,
            timeout: limits::INIT_PRODUCER_ID_REQUEST_TIMEOUT,
            request: self,
            code: |response| KafkaCode(response.error_code),
        }
    }
}

impl Request for TwoPhaseInit<'_> {
    const KEY: i16 = InitProducerIdRequest::KEY;
    const NAME: &'static str = InitProducerIdRequest::NAME;
    type Response = InitProducerIdResponse;

    /// Version 5 with the two switches before its tagged fields, of which there are none.
    fn body(&self, version: i16) -> Result<Bytes, WireError> {
        if version != VERSION {
            return Err(WireError(format!("two-phase commit is InitProducerId {VERSION}, not {version}")));
        }
        // The broker sets the time-out aside.
        let before = super::begin::init_request(Some(self.transactional_id), i32::MAX, self.own);
        let mut body = BytesMut::from(before.body(VERSION - 1)?);
        body.truncate(body.len() - 1);
        body.put_u8(1);
        body.put_u8(self.keep_prepared.into());
        body.put_u8(0);
        Ok(body.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_commit::{ProducerEpoch, ProducerId};

    #[test]
    fn the_switches_stand_before_the_tagged_fields() {
        let own = Identity { producer_id: ProducerId(7), producer_epoch: ProducerEpoch(3) };
        let request = TwoPhaseInit { keep_prepared: true, ..TwoPhaseInit::new("ab", Some(own)) };
        let mut bytes = vec![3, b'a', b'b'];
        bytes.extend(i32::MAX.to_be_bytes());
        bytes.extend(7_i64.to_be_bytes());
        bytes.extend(3_i16.to_be_bytes());
        bytes.extend([1, 1, 0]);
        assert_eq!(request.body(VERSION).unwrap(), bytes);
        assert!(request.body(5).is_err());
        let plain = TwoPhaseInit::new("ab", Some(own)).body(VERSION).unwrap();
        assert_eq!(plain[plain.len() - 3..], [1, 0, 0]);
    }
}
