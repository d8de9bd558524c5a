//! What a broker keeps, and what it does with what it finds.

use crate::client::{self, Client, Folder};
use hapax_broker::{
    Broker, JournalError, ServerOptions, Settings,
    server::StartError,
    wire::{ADVERTISED, Request},
};
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest, DescribeProducersRequest,
    DescribeTransactionsRequest, FetchRequest, ListGroupsRequest, ListOffsetsRequest,
    ListTransactionsRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
};
use std::{fs, path::PathBuf};

fn options(folder: &Folder) -> ServerOptions {
    ServerOptions { data: Some(folder.0.clone()), ..ServerOptions::default() }
}

fn file(folder: &Folder) -> PathBuf {
    folder.0.join("broker.journal")
}

async fn start(folder: &Folder) -> Broker {
    Broker::start(Settings { seed: 7, ..Settings::default() }, options(folder)).await.unwrap()
}

/// Cluster id and topic id of one topic; -1 for a topic that is not there.
async fn identity(broker: &Broker, topic: &str) -> (String, i16, String) {
    let answer = Client::connect(&broker.bootstrap()).await.metadata(&[topic]).await;
    let topic = &answer.topics[0];
    (answer.cluster_id.unwrap().to_string(), topic.error_code, topic.topic_id.to_string())
}

async fn with_topics(folder: &Folder, topics: &[&str]) -> (String, i16, String) {
    let broker = start(folder).await;
    for topic in topics {
        Client::connect(&broker.bootstrap()).await.create_topic(topic, 1).await;
    }
    let identity = identity(&broker, topics[0]).await;
    broker.stop().await;
    identity
}

fn refusal(started: Result<Broker, StartError>) -> JournalError {
    match started {
        Err(StartError::Journal(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_broker_is_after_its_restart_what_it_was() {
    let folder = Folder::new();
    let before = with_topics(&folder, &["t"]).await;
    let broker = start(&folder).await;
    assert_eq!(identity(&broker, "t").await, before);
    assert_eq!(before.1, 0);
}

#[tokio::test]
async fn producer_ids_go_on_where_they_were() {
    let folder = Folder::new();
    let broker = start(&folder).await;
    let before = Client::connect(&broker.bootstrap()).await.init_producer("x").await;
    broker.stop().await;
    let broker = start(&folder).await;
    let mut client = Client::connect(&broker.bootstrap()).await;
    let after = client.init_producer("x").await;
    assert_eq!((after.producer_id, after.producer_epoch), (before.producer_id, before.producer_epoch + 1));
    assert_ne!(client.init_producer("y").await.producer_id, before.producer_id);
}

#[tokio::test]
async fn a_dropped_broker_frees_its_journal_at_once() {
    let folder = Folder::new();
    drop(start(&folder).await);
    start(&folder).await;
}

#[tokio::test]
async fn two_brokers_on_one_folder_are_refused() {
    let folder = Folder::new();
    let _first = start(&folder).await;
    let second = Broker::start(Settings::default(), options(&folder)).await;
    assert!(matches!(refusal(second), JournalError::Locked { .. }));
}

#[tokio::test]
async fn a_record_cut_short_is_taken_off_and_the_rest_is_there() {
    let folder = Folder::new();
    with_topics(&folder, &["t", "u"]).await;
    let whole = fs::read(file(&folder)).unwrap();
    for missing in [1, 5, 30] {
        fs::write(file(&folder), &whole[..whole.len() - missing]).unwrap();
        let broker = start(&folder).await;
        assert_eq!(identity(&broker, "t").await.1, 0);
        assert_eq!(identity(&broker, "u").await.1, 3, "its record was cut");
        Client::connect(&broker.bootstrap()).await.create_topic("v", 1).await;
        broker.stop().await;
        let broker = start(&folder).await;
        assert_eq!(identity(&broker, "v").await.1, 0, "what is written behind a cut is read again");
    }
}

#[tokio::test]
async fn zeros_at_the_end_are_what_a_lost_machine_leaves() {
    let folder = Folder::new();
    with_topics(&folder, &["t"]).await;
    let mut bytes = fs::read(file(&folder)).unwrap();
    bytes.extend([0; 5_000]);
    fs::write(file(&folder), &bytes).unwrap();
    assert_eq!(identity(&start(&folder).await, "t").await.1, 0);
}

#[tokio::test]
async fn damage_in_the_middle_is_an_error_and_changes_nothing() {
    let folder = Folder::new();
    with_topics(&folder, &["t", "u"]).await;
    let whole = fs::read(file(&folder)).unwrap();
    let mut last = whole.len();
    for at in (8..whole.len() - 100).step_by(17) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        fs::write(file(&folder), &bytes).unwrap();
        let refused = Broker::start(Settings::default(), options(&folder)).await;
        assert!(matches!(refusal(refused), JournalError::Damaged { .. }), "byte {at}");
        assert_eq!(fs::read(file(&folder)).unwrap(), bytes);
        last = at;
    }
    assert!(last < whole.len(), "no byte was tried");
}

#[tokio::test]
async fn another_file_or_a_newer_format_is_refused() {
    let folder = Folder::new();
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(file(&folder), b"PAR1 is no journal").unwrap();
    let refused = Broker::start(Settings::default(), options(&folder)).await;
    assert!(matches!(refusal(refused), JournalError::Foreign { .. }));
    assert_eq!(fs::read(file(&folder)).unwrap(), b"PAR1 is no journal");
}

#[tokio::test]
async fn a_journal_whose_header_was_never_finished_is_begun_anew() {
    let folder = Folder::new();
    drop(start(&folder).await);
    let header = fs::read(file(&folder)).unwrap();
    for kept in [0, 3, 8, 15, header.len() - 1] {
        fs::write(file(&folder), &header[..kept]).unwrap();
        drop(start(&folder).await);
        assert!(fs::read(file(&folder)).unwrap().len() >= header.len() - 3, "kept {kept}");
    }
}

#[tokio::test]
async fn what_only_looks_is_not_kept() {
    let folder = Folder::new();
    let broker = start(&folder).await;
    let mut client = Client::connect(&broker.bootstrap()).await;
    client.create_topic("t", 1).await;
    let before = fs::metadata(file(&folder)).unwrap().len();
    let looks: [Request; 12] = [
        FetchRequest::default().into(),
        ListOffsetsRequest::default().into(),
        OffsetForLeaderEpochRequest::default().into(),
        OffsetFetchRequest::default().into(),
        client::api_versions().into(),
        DescribeClusterRequest::default().into(),
        DescribeConfigsRequest::default().into(),
        DescribeGroupsRequest::default().into(),
        DescribeProducersRequest::default().into(),
        DescribeTransactionsRequest::default().into(),
        ListGroupsRequest::default().into(),
        ListTransactionsRequest::default().into(),
    ];
    for request in looks {
        let (_, versions) = ADVERTISED.iter().find(|(key, _)| *key == request.key()).unwrap();
        client.ask(versions.max, request).await;
    }
    client.metadata(&["t", "nowhere"]).await;
    broker.state();
    assert_eq!(fs::metadata(file(&folder)).unwrap().len(), before);
}

#[tokio::test]
async fn a_jumped_clock_does_not_go_back_at_a_restart() {
    let folder = Folder::new();
    let broker = start(&folder).await;
    broker.jump_clock(86_400_000);
    Client::connect(&broker.bootstrap()).await.create_topic("t", 1).await;
    let before = broker.now();
    broker.stop().await;
    assert!(start(&folder).await.now() >= before - 60_000);
}
