//! How a transaction ended, as its partition says.

use super::*;
use hapax_commit::{ProducerEpoch, ProducerId, TransactionVersion};
use hapax_kafka::fetch::{ControlSeen, first_control_batch};
use hapax_kafka::transaction::EndTxnAnswer;

/// For each step of a look.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(30);

async fn look(client: &Client, topic: &str, producer: ProducerId, from: i64) -> ControlSeen {
    let id = client.topics(&[topic]).await.unwrap()[0].id;
    first_control_batch(client, topic, id, 0, producer, from, SILENCE).await.unwrap()
}

fn epoch_of_marker(transaction: &Prepared) -> ProducerEpoch {
    let ProducerEpoch(epoch) = transaction.identity.producer_epoch;
    match transaction.version {
        TransactionVersion::V1 => ProducerEpoch(epoch),
        TransactionVersion::V2 => ProducerEpoch(epoch + 1),
    }
}

#[test]
fn the_first_marker_of_the_producer_tells_how_its_transaction_ended() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let topic = made(bootstrap, "marker", 1);
        block_on(async {
            let client = connect(bootstrap).await;
            let begin = |name: &str| {
                let id = format!("{topic}-{name}");
                let (client, topic) = (client.clone(), topic.clone());
                async move { Prepared::begin(&client, &id, TIMEOUT, &topic, &numbered(3)).await }
            };
            // Two open side by side: the other producer's marker comes first and is not taken for this one's.
            let first = begin("a").await;
            let second = begin("b").await;
            let producer = first.identity.producer_id;
            let seen = look(&client, &topic, producer, first.first_offset).await;
            let ControlSeen::NoneBelow { high_watermark } = seen else { panic!("{seen:?}") };
            assert_eq!(high_watermark, second.first_offset + 3);

            let EndTxnAnswer::Aborted { .. } = second.end(&client, false).await else {
                panic!("not aborted")
            };
            let EndTxnAnswer::Committed { next } = first.end(&client, true).await else {
                panic!("not committed")
            };
            let aborted = eventually(&client, "the abort marker", || async {
                match look(&client, &topic, second.identity.producer_id, second.first_offset).await {
                    ControlSeen::Abort { epoch, offset } => Some((epoch, offset)),
                    ControlSeen::NoneBelow { .. } => None,
                    other => panic!("{other:?}"),
                }
            })
            .await;
            assert_eq!(aborted.0, epoch_of_marker(&second));
            assert!(aborted.1 >= second.first_offset + 3);
            let committed = eventually(&client, "the commit marker", || async {
                match look(&client, &topic, producer, first.first_offset).await {
                    ControlSeen::Commit { epoch, offset } => Some((epoch, offset)),
                    ControlSeen::NoneBelow { .. } => None,
                    other => panic!("{other:?}"),
                }
            })
            .await;
            assert_eq!(committed.0, epoch_of_marker(&first));

            // A later transaction of the same producer does not change what is said of the earlier one.
            if version.knows_v2() {
                assert_eq!(next.producer_id, producer);
                let later =
                    Prepared::write(&client, &first.transactional_id, next, &topic, &numbered(2)).await;
                let EndTxnAnswer::Aborted { .. } = later.end(&client, false).await else {
                    panic!("not aborted")
                };
                let seen = look(&client, &topic, producer, first.first_offset).await;
                assert_eq!(seen, ControlSeen::Commit { epoch: committed.0, offset: committed.1 });
            }
        });
    }
}

#[test]
fn a_log_that_no_longer_reaches_back_does_not_answer_for_a_marker() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let topic = made(bootstrap, "cut", 1);
        block_on(async {
            let client = connect(bootstrap).await;
            let first = Prepared::begin(&client, &topic, TIMEOUT, &topic, &numbered(3)).await;
            let EndTxnAnswer::Committed { .. } = first.end(&client, true).await else {
                panic!("not committed")
            };
            eventually(&client, "the marker", || async {
                let seen = look(&client, &topic, first.identity.producer_id, first.first_offset).await;
                matches!(seen, ControlSeen::Commit { .. }).then_some(())
            })
            .await;
            // The marker is still there, but nothing proves any more that it is the first one.
            Judge::shared().delete_records(bootstrap, &topic, 0, first.first_offset + 1).unwrap();
            let seen = look(&client, &topic, first.identity.producer_id, first.first_offset).await;
            assert!(
                matches!(&seen, ControlSeen::Gone { reason } if reason.contains("starts at 1")),
                "{seen:?}"
            );
            // Beyond the end there was never a record.
            let seen = look(&client, &topic, first.identity.producer_id, 1000).await;
            assert!(matches!(&seen, ControlSeen::Gone { reason } if reason.contains("ends at")), "{seen:?}");
        });
    }
}

#[test]
fn a_marker_behind_more_than_one_answer_is_found() {
    let bootstrap = &shared(Version::V4_4).bootstrap;
    let topic = unique("far");
    // The records of 1970 that the test writes would be removed, open transaction or not.
    Judge::shared().create_topic(bootstrap, &topic, 1, &[("retention.ms", "-1")]).unwrap();
    block_on(async {
        let client = connect(bootstrap).await;
        let first = Prepared::begin(&client, &topic, TIMEOUT, &topic, &numbered(3)).await;
        let filler: Vec<_> = (0..100).map(|_| Record::value(vec![7; 100_000]).to_partition(0)).collect();
        Judge::shared().produce(bootstrap, &topic, &filler).unwrap();
        let producer = first.identity.producer_id;
        let seen = look(&client, &topic, producer, 0).await;
        assert_eq!(seen, ControlSeen::NoneBelow { high_watermark: 103 });
        let EndTxnAnswer::Aborted { .. } = first.end(&client, false).await else { panic!("not aborted") };
        let seen = eventually(&client, "the marker", || async {
            Some(look(&client, &topic, producer, 0).await)
                .filter(|seen| *seen != ControlSeen::NoneBelow { high_watermark: 103 })
        })
        .await;
        assert_eq!(seen, ControlSeen::Abort { epoch: epoch_of_marker(&first), offset: 103 });
    });
}
