//! What a broker keeps, and what it does with what it finds.

use crate::client::{self, Client, Folder};
use crc_fast::{CrcAlgorithm::Crc32Iscsi, checksum};
use hapax_broker::{
    Broker, JournalError, NodeId, ServerOptions, Settings,
    server::StartError,
    wire::{ADVERTISED, Request, Response},
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest,
    DescribeProducersRequest, DescribeTransactionsRequest, FetchRequest, InitProducerIdResponse,
    ListGroupsRequest, ListOffsetsRequest, ListTransactionsRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest, ProducerId, add_partitions_to_txn_request::AddPartitionsToTxnTopic,
};
use std::{fs, path::PathBuf, time::Duration};
use tokio::io::DuplexStream;

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

/// A journal without the digest that a broker writes when it stops; this many bytes with what is before its payload.
const DIGEST: usize = 12 + 17;

fn without_digest(mut journal: Vec<u8>) -> Vec<u8> {
    journal.truncate(journal.len() - DIGEST);
    journal
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
    let whole = without_digest(fs::read(file(&folder)).unwrap());
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

/// A record that is there in whole and not as it was written may have been answered.
#[tokio::test]
async fn a_last_record_that_is_not_as_written_is_an_error() {
    let folder = Folder::new();
    with_topics(&folder, &["t", "u"]).await;
    let mut bytes = without_digest(fs::read(file(&folder)).unwrap());
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file(&folder), &bytes).unwrap();
    let error = refusal(Broker::start(Settings::default(), options(&folder)).await);
    assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
    assert_eq!(fs::read(file(&folder)).unwrap(), bytes, "nothing was changed");
}

/// What is written to a removed file outlives nothing, so nothing is answered any more.
#[tokio::test]
async fn a_journal_that_is_removed_while_it_is_used_breaks_the_broker() {
    let folder = Folder::new();
    let broker = start(&folder).await;
    let broken = broker.broken();
    let mut client = Client::connect(&broker.bootstrap()).await;
    client.create_topic("t", 1).await;
    fs::remove_file(file(&folder)).unwrap();
    client.send(4, client::init("x")).await;
    client.assert_closed().await;
    assert!(broken.await.contains("removed while it was in use"));
    assert_eq!(identity(&broker, "t").await.1, 0, "what is there can be read");
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
    broker.jump_clock(86_400_000).unwrap();
    Client::connect(&broker.bootstrap()).await.create_topic("t", 1).await;
    let before = broker.now();
    broker.stop().await;
    assert!(start(&folder).await.now() >= before - 60_000);
}

/// A broker without sockets, its clock at `start`.
async fn in_memory(folder: &Folder, start: i64) -> (Broker, Client<DuplexStream>) {
    let options = ServerOptions { listen: None, start_ms: Some(start), ..options(folder) };
    let broker = Broker::start(Settings { seed: 7, ..Settings::default() }, options).await.unwrap();
    let client = Client::over(broker.connect_in_memory(NodeId(1)));
    (broker, client)
}

async fn begin(client: &mut Client<DuplexStream>) -> InitProducerIdResponse {
    client.create_topic("t", 1).await;
    let producer = client.init_producer("x").await;
    let topic = AddPartitionsToTxnTopic::default().with_name(client::topic("t")).with_partitions(vec![0]);
    let add = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(client::transactional_id("x"))
        .with_v3_and_below_producer_id(producer.producer_id)
        .with_v3_and_below_producer_epoch(producer.producer_epoch)
        .with_v3_and_below_topics(vec![topic]);
    let Response::AddPartitionsToTxn(added) = client.ask(3, add).await else { panic!("another answer") };
    assert_eq!(added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, 0);
    producer
}

/// The answer to a commit, whoever waits for markers meanwhile.
async fn commit(client: &mut Client<DuplexStream>, id: ProducerId, epoch: i16) -> i16 {
    let end = client::end("x", true).with_producer_id(id).with_producer_epoch(epoch);
    for _ in 0..200 {
        let code = client::error_of_end(&client.ask(4, end.clone()).await);
        if ![14, 15, 16, 51].contains(&code) {
            return code;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no end");
}

fn shown(broker: &Broker) -> serde_json::Value {
    let state = broker.state();
    let transaction = &state["transactions"][0];
    serde_json::json!([transaction["state"], transaction["producer_epoch"]])
}

const START: i64 = 1_700_000_000_000;

#[tokio::test(start_paused = true)]
async fn what_a_jump_has_aborted_is_not_committed_after_a_restart() {
    let folder = Folder::new();
    let (broker, mut client) = in_memory(&folder, START).await;
    let producer = begin(&mut client).await;
    broker.jump_clock(61_000).unwrap();
    let aborted = shown(&broker);
    assert_eq!(aborted[0], "CompleteAbort");
    drop(broker);
    let (broker, mut client) = in_memory(&folder, START).await;
    assert_eq!(shown(&broker), aborted);
    assert_ne!(commit(&mut client, producer.producer_id, producer.producer_epoch).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_time_has_done_is_not_undone_by_a_wall_clock_that_is_set_back() {
    let folder = Folder::new();
    let (broker, mut client) = in_memory(&folder, START).await;
    let producer = begin(&mut client).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let aborted = shown(&broker);
    assert_eq!(aborted[0], "CompleteAbort");
    drop(broker);
    let (broker, mut client) = in_memory(&folder, START - 86_400_000).await;
    assert_eq!(shown(&broker), aborted);
    assert_ne!(commit(&mut client, producer.producer_id, producer.producer_epoch).await, 0);
}

#[tokio::test]
async fn a_replay_that_comes_to_another_state_is_refused_with_what_to_do() {
    let folder = Folder::new();
    with_topics(&folder, &["t"]).await;
    let mut bytes = fs::read(file(&folder)).unwrap();
    let at = bytes.len() - DIGEST;
    *bytes.last_mut().unwrap() ^= 1;
    let sum = checksum(Crc32Iscsi, &bytes[at + 12..]) as u32;
    bytes[at + 4..at + 8].copy_from_slice(&sum.to_be_bytes());
    let sum = checksum(Crc32Iscsi, &bytes[at..at + 8]) as u32;
    bytes[at + 8..at + 12].copy_from_slice(&sum.to_be_bytes());
    fs::write(file(&folder), &bytes).unwrap();
    let refused = refusal(Broker::start(Settings::default(), options(&folder)).await);
    assert!(matches!(refused, JournalError::Strayed { .. }), "{refused}");
    assert!(refused.to_string().contains("empty folder"), "{refused}");
    assert_eq!(fs::read(file(&folder)).unwrap(), bytes);
}

#[tokio::test]
async fn a_long_journal_is_checked_on_its_way() {
    let folder = Folder::new();
    let broker = start(&folder).await;
    let mut client = Client::connect(&broker.bootstrap()).await;
    for _ in 0..2_500 {
        client.ask(4, client::end("x", true)).await;
    }
    broker.stop().await;
    let journal = fs::read(file(&folder)).unwrap();
    let digest_of = |window: &[u8]| window[..4] == 17_u32.to_be_bytes() && window[12] == 5;
    assert!(journal.windows(DIGEST).filter(|window| digest_of(window)).count() >= 3);
    start(&folder).await;
}
