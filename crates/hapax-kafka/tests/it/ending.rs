//! What a real coordinator answers to EndTxn with a saved identity, in every state that a recovery can meet.

use crate::support::*;
use hapax_commit::{Identity, ProducerEpoch, ProducerId, TransactionVersion};
use hapax_kafka::{
    Client, KafkaCode,
    transaction::{self, Described, EndTxnAnswer, TransactionState},
};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

struct World {
    client: Client,
    topic: String,
    id: String,
    version: TransactionVersion,
}

/// Runs a scenario on both brokers.
fn on_both<F: Future<Output = ()>>(name: &str, scenario: impl Fn(World) -> F) {
    for broker in Version::ALL {
        let bootstrap = &shared(broker).bootstrap;
        let topic = unique(name);
        Judge::shared().create_topic(bootstrap, &topic, 1, &[]).unwrap();
        block_on(async {
            let client = connect(bootstrap).await;
            let version = client.transaction_version().await.unwrap();
            assert_eq!(version, protocol(broker));
            scenario(World { client, topic, id: unique(name), version }).await;
        });
    }
}

impl World {
    async fn begin(&self, timeout: Duration) -> Prepared {
        Prepared::begin(&self.client, &self.id, timeout, &self.topic, &numbered(3)).await
    }

    async fn init(&self, own: Option<Identity>) -> Result<Identity, transaction::InitError> {
        transaction::init_producer_id(
            &self.client,
            &self.id,
            transaction::Lifetime::Millis(120_000),
            own,
            soon(&self.client),
        )
        .await
    }

    async fn described(&self) -> (TransactionState, Identity) {
        match transaction::describe_transaction(&self.client, &self.id, soon(&self.client)).await.unwrap() {
            Described::Known { state, identity, .. } => (state, identity),
            Described::Unknown => panic!("{} is unknown", self.id),
        }
    }

    async fn until(&self, state: TransactionState) -> Identity {
        eventually(&self.client, state.name(), || async {
            let (seen, identity) = self.described().await;
            (seen == state).then_some(identity)
        })
        .await
    }

    fn by_version<T>(&self, v1: T, v2: T) -> T {
        match self.version {
            TransactionVersion::V1 => v1,
            TransactionVersion::V2 => v2,
        }
    }
}

fn later(identity: Identity, by: i16) -> Identity {
    Identity { producer_epoch: ProducerEpoch(identity.producer_epoch.0 + by), ..identity }
}

fn committed(answer: &EndTxnAnswer) -> Identity {
    match answer {
        EndTxnAnswer::Committed { next } => *next,
        other => panic!("not committed: {other:?}"),
    }
}

/// The code of an answer that is not a success.
fn code(answer: &EndTxnAnswer) -> KafkaCode {
    match answer {
        EndTxnAnswer::NotThisState { code }
        | EndTxnAnswer::Superseded { code }
        | EndTxnAnswer::Forgotten { code }
        | EndTxnAnswer::Abortable { code }
        | EndTxnAnswer::Refused { code } => *code,
        other => panic!("no code: {other:?}"),
    }
}

#[test]
fn a_committed_transaction_answers_none_as_often_as_it_is_asked() {
    on_both("twice", |world| async move {
        let prepared = world.begin(LONG).await;
        assert_eq!(world.described().await, (TransactionState::Ongoing, prepared.identity));
        let after = later(prepared.identity, world.by_version(0, 1));
        for _ in 0..3 {
            assert_eq!(committed(&prepared.end(&world.client, true).await), after);
        }
        assert_eq!(world.until(TransactionState::CompleteCommit).await, after);
        // The contradictory decision is refused and changes nothing.
        assert_eq!(code(&prepared.end(&world.client, false).await), KafkaCode::INVALID_TXN_STATE);
        assert_eq!(committed(&prepared.end(&world.client, true).await), after);
    });
}

#[test]
fn a_transaction_that_timed_out_is_not_committed_and_says_so() {
    on_both("timed-out", |world| async move {
        let prepared = world.begin(Duration::from_millis(500)).await;
        let after = world.until(TransactionState::CompleteAbort).await;
        assert_eq!(after, later(prepared.identity, 1));
        let expected = world.by_version(KafkaCode::PRODUCER_FENCED, KafkaCode::INVALID_TXN_STATE);
        assert_eq!(code(&prepared.end(&world.client, true).await), expected);
        assert_eq!(world.described().await, (TransactionState::CompleteAbort, after));
        // V2 even hands the fencing epoch to whoever still has the old one: nothing may be written under an identity
        // that ending a saved transaction answered.
        let answer = prepared.end(&world.client, false).await;
        match world.version {
            TransactionVersion::V1 => assert_eq!(code(&answer), KafkaCode::PRODUCER_FENCED),
            TransactionVersion::V2 => {
                assert!(matches!(answer, EndTxnAnswer::Aborted { next } if next == after), "{answer:?}");
            }
        }
    });
}

#[test]
fn a_transaction_that_its_owner_aborted_is_not_committed() {
    on_both("aborted", |world| async move {
        let prepared = world.begin(LONG).await;
        let answer = prepared.end(&world.client, false).await;
        let after = later(prepared.identity, world.by_version(0, 1));
        assert!(matches!(answer, EndTxnAnswer::Aborted { next } if next == after), "{answer:?}");
        world.until(TransactionState::CompleteAbort).await;
        let code = code(&prepared.end(&world.client, true).await);
        assert_eq!(code, KafkaCode::INVALID_TXN_STATE);
    });
}

#[test]
fn an_open_transaction_is_ended_by_another_init_producer_id() {
    on_both("superseded-open", |world| async move {
        let prepared = world.begin(LONG).await;
        // The abort bumps once, the new identity once more.
        assert_eq!(world.init(None).await.unwrap(), later(prepared.identity, 2));
        assert_eq!(code(&prepared.end(&world.client, true).await), KafkaCode::PRODUCER_FENCED);
        assert_eq!(world.described().await, (TransactionState::Empty, later(prepared.identity, 2)));
    });
}

#[test]
fn a_committed_transaction_cannot_be_told_from_an_aborted_one_after_another_init_producer_id() {
    on_both("superseded-committed", |world| async move {
        let prepared = world.begin(LONG).await;
        committed(&prepared.end(&world.client, true).await);
        let next = world.init(None).await.unwrap();
        assert_eq!(next, later(prepared.identity, world.by_version(1, 2)));
        assert_eq!(code(&prepared.end(&world.client, true).await), KafkaCode::PRODUCER_FENCED);
        assert_eq!(world.described().await, (TransactionState::Empty, next));
    });
}

#[test]
fn a_later_transaction_of_the_same_producer_hides_the_outcome_on_v2_only() {
    on_both("next-transaction", |world| async move {
        let prepared = world.begin(LONG).await;
        let next = committed(&prepared.end(&world.client, true).await);
        let next = match world.version {
            TransactionVersion::V1 => world.init(Some(next)).await.unwrap(),
            TransactionVersion::V2 => next,
        };
        assert_eq!(next, later(prepared.identity, 1));
        let second = Prepared::write(&world.client, &world.id, next, &world.topic, &numbered(1)).await;
        assert_eq!(code(&prepared.end(&world.client, true).await), KafkaCode::PRODUCER_FENCED);
        committed(&second.end(&world.client, true).await);
    });
}

#[test]
fn a_transaction_that_never_wrote_cannot_be_committed() {
    on_both("never-begun", |world| async move {
        let identity = world.init(None).await.unwrap();
        let empty = Prepared {
            transactional_id: world.id.clone(),
            identity,
            version: world.version,
            first_offset: 0,
        };
        assert_eq!(code(&empty.end(&world.client, true).await), KafkaCode::INVALID_TXN_STATE);
        assert_eq!(world.described().await, (TransactionState::Empty, identity));
        // To abort nothing is an error on V1 and a new producer epoch on V2.
        let answer = empty.end(&world.client, false).await;
        match world.version {
            TransactionVersion::V1 => assert_eq!(code(&answer), KafkaCode::INVALID_TXN_STATE),
            TransactionVersion::V2 => {
                assert!(
                    matches!(answer, EndTxnAnswer::Aborted { next } if next == later(identity, 1)),
                    "{answer:?}"
                );
            }
        }
    });
}

#[test]
fn an_unknown_id_is_forgotten_not_aborted() {
    on_both("unknown", |world| async move {
        let identity = Identity { producer_id: ProducerId(987_654_321), producer_epoch: ProducerEpoch(0) };
        let version = world.version;
        let unknown = Prepared { transactional_id: world.id.clone(), identity, version, first_offset: 0 };
        let answer = unknown.end(&world.client, true).await;
        assert!(matches!(answer, EndTxnAnswer::Forgotten { .. }), "{answer:?}");
        assert_eq!(code(&answer), KafkaCode::INVALID_PRODUCER_ID_MAPPING);
        let described =
            transaction::describe_transaction(&world.client, &world.id, soon(&world.client)).await;
        assert_eq!(described.unwrap(), Described::Unknown);
    });
}

#[test]
fn another_producer_id_under_a_known_id_is_forgotten() {
    on_both("other-producer", |world| async move {
        let identity = world.init(None).await.unwrap();
        let other = Identity { producer_id: ProducerId(identity.producer_id.0 + 1_000_000), ..identity };
        let version = world.version;
        let wrong =
            Prepared { transactional_id: world.id.clone(), identity: other, version, first_offset: 0 };
        assert_eq!(code(&wrong.end(&world.client, true).await), KafkaCode::INVALID_PRODUCER_ID_MAPPING);
    });
}

#[test]
fn a_running_lane_cannot_take_its_id_back() {
    on_both("no-way-back", |world| async move {
        let mine = world.init(None).await.unwrap();
        let theirs = world.init(None).await.unwrap();
        let refused = world.init(Some(mine)).await.unwrap_err();
        assert!(matches!(refused, transaction::InitError::Disturbed { own, .. } if own == mine), "{refused}");
        assert_eq!(world.described().await, (TransactionState::Empty, theirs));
        // But while theirs is open, the broker does not compare the epoch: it is aborted once.
        Prepared::write(&world.client, &world.id, theirs, &world.topic, &numbered(1)).await;
        let refused = world.init(Some(mine)).await.unwrap_err();
        assert!(matches!(refused, transaction::InitError::Disturbed { .. }), "{refused}");
        assert_eq!(world.described().await.0, TransactionState::CompleteAbort);
    });
}

#[test]
fn a_transaction_timeout_above_the_brokers_maximum_is_refused() {
    on_both("too-long", |world| async move {
        let maximum = hapax_kafka::admin::broker_config(
            &world.client,
            "transaction.max.timeout.ms",
            soon(&world.client),
        );
        let maximum: i32 = maximum.await.unwrap().unwrap().parse().unwrap();
        let asked = maximum + 1;
        let error = transaction::init_producer_id(
            &world.client,
            &world.id,
            transaction::Lifetime::Millis(asked),
            None,
            soon(&world.client),
        )
        .await;
        let error = error.unwrap_err();
        assert!(
            matches!(error, transaction::InitError::TimeoutTooLong { asked_ms, .. } if asked_ms == asked)
        );
        assert!(!error.is_retriable());
    });
}
