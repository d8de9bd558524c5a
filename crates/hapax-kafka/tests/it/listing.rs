//! Looking at transactions: lists, and producers of a partition, beside Apache Kafka's own tools.

use crate::support::*;
use hapax_kafka::{
    Client,
    transaction::{self, ListFilter, ListedTransaction, PartitionProducer, TransactionState},
};
use std::time::Duration;
use xtask::tools::Tools;

const LONG: Duration = Duration::from_secs(120);

async fn listed(client: &Client, filter: ListFilter, ours: &str) -> Vec<ListedTransaction> {
    let listed = transaction::list_transactions(client, &filter, soon(client)).await.unwrap();
    listed.into_iter().filter(|found| found.transactional_id.starts_with(ours)).collect()
}

#[test]
fn lists_name_what_apache_kafkas_own_tool_names() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let (topic, ours) = (unique("listed"), unique("listed"));
        Judge::shared().create_topic(bootstrap, &topic, 1, &[]).unwrap();
        let (open, ended) = (format!("{ours}.open"), format!("{ours}.ended"));
        let found = block_on(async {
            let client = connect(bootstrap).await;
            let prepared = Prepared::begin(&client, &open, LONG, &topic, &numbered(1)).await;
            Prepared::begin(&client, &ended, LONG, &topic, &numbered(1)).await.end(&client, true).await;
            let found = eventually(&client, "both ids in their last state", || async {
                let found = listed(&client, ListFilter::default(), &ours).await;
                let states: Vec<_> = found.iter().map(|found| &found.state).collect();
                (states == [&TransactionState::CompleteCommit, &TransactionState::Ongoing]).then_some(found)
            })
            .await;
            assert_eq!(found[1].producer_id, prepared.identity.producer_id);

            let ongoing = ListFilter { states: vec![TransactionState::Ongoing], ..ListFilter::default() };
            assert_eq!(listed(&client, ongoing, &ours).await, found[1..]);
            let producers = ListFilter { producer_ids: vec![found[0].producer_id], ..ListFilter::default() };
            assert_eq!(listed(&client, producers, &ours).await, found[..1]);
            // The id without a transaction has no age; asking for old ones does not bring it.
            let old = |age| ListFilter { open_longer_than: Some(age), ..ListFilter::default() };
            assert_eq!(listed(&client, old(Duration::ZERO), &ours).await, found[1..]);
            assert_eq!(listed(&client, old(LONG), &ours).await, []);
            let pattern = Some(format!("{ours}.*open"));
            let by_pattern = ListFilter { pattern, ..ListFilter::default() };
            match version {
                Version::V4_4 => assert_eq!(listed(&client, by_pattern, &ours).await, found[1..]),
                Version::V3_9 => {
                    let refused = transaction::list_transactions(&client, &by_pattern, soon(&client)).await;
                    let refused = refused.unwrap_err();
                    assert!(!refused.is_retriable() && !refused.may_have_had_effect(), "{refused}");
                }
            }
            found
        });
        let tool = Tools::new(version).unwrap().transactions_list(bootstrap).unwrap();
        for one in found {
            let theirs = tool.iter().find(|theirs| theirs.id == one.transactional_id).unwrap();
            assert_eq!((theirs.producer_id, theirs.state.as_str()), (one.producer_id.0, one.state.name()));
        }
        block_on(async {
            let client = connect(bootstrap).await;
            transaction::init_producer_id(
                &client,
                &open,
                transaction::Lifetime::Millis(60_000),
                None,
                soon(&client),
            )
            .await
            .unwrap();
        });
    }
}

#[test]
fn a_partition_tells_where_an_open_transaction_begins() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let (topic, id) = (unique("producers"), unique("producers"));
        let judge = Judge::shared();
        judge.create_topic(bootstrap, &topic, 1, &[]).unwrap();
        judge.produce(bootstrap, &topic, &[xtask::judge::Record::value("before")]).unwrap();
        block_on(async {
            let client = connect(bootstrap).await;
            let prepared = Prepared::begin(&client, &id, LONG, &topic, &numbered(3)).await;
            let ours = async || -> PartitionProducer {
                let all = transaction::describe_producers(&client, &topic, 0, soon(&client)).await.unwrap();
                all.into_iter().find(|one| one.producer_id == prepared.identity.producer_id).unwrap()
            };
            let open = ours().await;
            assert_eq!(open.open_from, Some(1));
            assert_eq!(open.last_sequence, Some(2));
            assert_eq!((open.producer_epoch, open.coordinator_epoch), (0, None));
            prepared.end(&client, true).await;
            let ended = eventually(&client, "the marker", || async {
                let ended = ours().await;
                ended.open_from.is_none().then_some(ended)
            })
            .await;
            assert_eq!(ended.producer_epoch, if version.knows_v2() { 1 } else { 0 });
            assert!(ended.coordinator_epoch.is_some());
        });
    }
}
