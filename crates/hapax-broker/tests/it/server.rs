//! Listeners, connections, time.

use crate::client::{Client, Folder, PATIENCE, metadata};
use hapax_broker::{Afterwards, Broker, NodeId, Rule, ServerOptions, Settings, Step, wire::Response};
use kafka_protocol::{
    messages::{
        FindCoordinatorRequest, GroupId, JoinGroupRequest, join_group_request::JoinGroupRequestProtocol,
    },
    protocol::StrBytes,
};
use std::{path::Path, time::Duration};
use tokio::time::timeout;

#[tokio::test]
async fn every_node_has_its_own_listener_and_metadata_names_them_all() {
    let settings = Settings { nodes: 3, ..Settings::default() };
    let broker = Broker::start(settings, ServerOptions::default()).await.unwrap();
    for address in broker.bootstrap().split(',') {
        let answer = Client::connect(address).await.metadata(&[]).await;
        let named: Vec<_> =
            answer.brokers.iter().map(|it| format!("{}:{}", it.host.as_str(), it.port)).collect();
        assert_eq!(named.join(","), broker.bootstrap());
    }
    broker.stop().await;
}

#[tokio::test]
async fn requests_in_line_are_answered_in_their_order() {
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    let mut client = Client::connect(&broker.bootstrap()).await;
    for version in 4..=12 {
        client.send(version, metadata(&[])).await;
    }
    for correlation in 1..=9_u32 {
        assert_eq!(client.frame().await.unwrap()[..4], correlation.to_be_bytes());
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_connection_in_memory_serves_as_a_socket_does() {
    let options = ServerOptions { listen: None, ..ServerOptions::default() };
    let broker = Broker::start(Settings { nodes: 2, ..Settings::default() }, options).await.unwrap();
    let mut client = Client::over(broker.connect_in_memory(NodeId(2)));
    let answer = client.metadata(&[]).await;
    let named: Vec<_> = answer.brokers.iter().map(|it| it.host.to_string()).collect();
    assert_eq!(named, ["node-1", "node-2"]);
    broker.stop().await;
}

#[tokio::test]
async fn a_crash_cuts_every_connection_and_the_broker_is_there_again() {
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    let mut client = Client::connect(&broker.bootstrap()).await;
    client.metadata(&[]).await;
    broker.step(Step::Crash).unwrap();
    client.assert_closed().await;
    Client::connect(&broker.bootstrap()).await.metadata(&[]).await;
    broker.stop().await;
}

#[tokio::test]
async fn stopping_closes_connections_and_frees_the_port() {
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    let address = broker.bootstrap();
    let mut client = Client::connect(&address).await;
    client.metadata(&[]).await;
    broker.stop().await;
    client.assert_closed().await;
    let options = ServerOptions { listen: Some(address.parse().unwrap()), ..ServerOptions::default() };
    let again = Broker::start(Settings::default(), options).await.unwrap();
    assert_eq!(again.bootstrap(), address);
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_is_forgotten() {
    let folder = Folder::new();
    let options = ServerOptions { data: Some(folder.0.clone()), ..ServerOptions::default() };
    let settings = Settings { rebalance_delay_ms: 3_600_000, ..Settings::default() };
    let broker = Broker::start(settings, options).await.unwrap();
    let mut client = Client::connect(&broker.bootstrap()).await;
    let find = FindCoordinatorRequest::default().with_key(StrBytes::from_static_str("g"));
    client.ask(3, find).await;
    let join = JoinGroupRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(3_600_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![
            JoinGroupRequestProtocol::default().with_name(StrBytes::from_static_str("range")),
        ]);
    let journal = folder.0.join("broker.journal");
    let begun = length(&journal);
    client.send(3, join).await;
    let waiting = longer_than(&journal, begun).await;
    client.assert_silent().await;
    assert_eq!(length(&journal), waiting, "it waits");
    drop(client);
    longer_than(&journal, waiting).await;
    broker.stop().await;
}

/// A journal grows by what the machine is told, that a client has left included.
async fn longer_than(journal: &Path, before: u64) -> u64 {
    let grows = async {
        while length(journal) == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, grows).await.expect("the machine is told");
    length(journal)
}

fn length(journal: &Path) -> u64 {
    std::fs::metadata(journal).unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn the_broker_lives_on_a_paused_clock() {
    let options = ServerOptions { listen: None, start_ms: Some(1_000_000), ..ServerOptions::default() };
    let broker = Broker::start(Settings::default(), options).await.unwrap();
    assert_eq!(broker.now(), 1_000_000);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(broker.now(), 4_600_000);
    broker.jump_clock(400_000).unwrap();
    assert_eq!(broker.now(), 5_000_000);
}

#[tokio::test]
async fn the_clock_goes_forward_only_and_never_out_of_its_range() {
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    let before = broker.now();
    for by in [0, -1, i64::MIN, i64::MAX, 100 * 366 * 86_400_000] {
        let refused = broker.jump_clock(by).unwrap_err().to_string();
        assert!(refused.contains(&by.to_string()), "{refused}");
    }
    assert!(broker.now() - before < 60_000);
    broker.jump_clock(60 * 365 * 86_400_000).unwrap();
    let refused = broker.jump_clock(60 * 365 * 86_400_000).unwrap_err().to_string();
    assert!(refused.contains("in all"), "{refused}");
}

#[tokio::test]
async fn settings_that_make_no_cluster_are_refused_by_name() {
    let refusals = [
        (Settings { nodes: 0, ..Settings::default() }, "nodes is 0"),
        (Settings { transaction_version: 5, ..Settings::default() }, "transaction_version is 5"),
        (Settings { transaction_partitions: 0, ..Settings::default() }, "transaction_partitions is 0"),
        (Settings { offsets_partitions: -1, ..Settings::default() }, "offsets_partitions is -1"),
        (Settings { timeout_interval_ms: 0, ..Settings::default() }, "timeout_interval_ms is 0"),
        (Settings { load_ms: i64::MAX, ..Settings::default() }, "load_ms is 9223372036854775807"),
    ];
    for (settings, what) in refusals {
        let refused = Broker::start(settings, ServerOptions::default()).await.unwrap_err().to_string();
        assert!(refused.contains(what) && refused.contains("it may be"), "{refused}");
    }
    let options = ServerOptions { start_ms: Some(i64::MAX), ..ServerOptions::default() };
    assert!(Broker::start(Settings::default(), options).await.is_err());
}

#[tokio::test]
async fn the_first_line_of_the_program_tells_where_it_is() {
    let mut out = Vec::new();
    let options = ServerOptions { control: Some("127.0.0.1:0".parse().unwrap()), ..ServerOptions::default() };
    let broker = Broker::start(Settings::default(), options).await.unwrap();
    broker.announce(&mut out).unwrap();
    let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert!(line["bootstrap"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(line["control"], format!("http://{}", broker.control().unwrap()));
}

#[tokio::test]
async fn a_broker_starts_and_answers_within_its_first_moments() {
    let before = std::time::Instant::now();
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    Client::connect(&broker.bootstrap()).await.metadata(&[]).await;
    // 50 ms on an idle machine; a busy one gets more.
    assert!(before.elapsed() < Duration::from_millis(500), "{:?}", before.elapsed());
}

/// Rules are for clients: what is asked from inside meets none, and what it appends is in the log that clients read.
#[tokio::test]
async fn the_owner_asks_without_a_connection_and_sees_the_whole_log() {
    let options = ServerOptions { listen: None, ..ServerOptions::default() };
    let broker = Broker::start(Settings::default(), options).await.unwrap();
    broker.create_topic("t", 1).await.unwrap();
    let _rule = broker.faults().add(Rule::on_any().drop_request(Afterwards::Close).always()).unwrap();
    let before = broker.digest();
    let answer = broker.request(NodeId(1), 12, metadata(&["t"]).into()).await.unwrap();
    let Response::Metadata(answer) = answer else { panic!("{answer:?}") };
    assert_eq!(answer.topics[0].error_code, 0);
    assert_eq!(broker.digest(), before, "a look changes nothing");
    assert_eq!(broker.log("t", 0).unwrap().len(), 0);
    assert_eq!(broker.log("t", 1), None);
    broker.stop().await;
}
