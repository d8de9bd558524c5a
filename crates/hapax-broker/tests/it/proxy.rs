//! The rules in front of another cluster, which is a broker here.

use crate::{
    client::{self, Client, error_of_end},
    control::http,
};
use hapax_broker::{
    Afterwards, ApiKey, Broker, Proxy, ProxyOptions, Rule, ServerOptions, Settings, Step, Verdict,
    wire::Response,
};
use kafka_protocol::messages::FindCoordinatorRequest;
use std::time::Duration;

async fn pair() -> (Broker, Proxy) {
    let broker =
        Broker::start(Settings { nodes: 2, ..Settings::default() }, ServerOptions::default()).await.unwrap();
    let options = ProxyOptions { control: Some("127.0.0.1:0".parse().unwrap()), ..ProxyOptions::default() };
    let proxy = Proxy::start(&broker.bootstrap(), options).await.unwrap();
    (broker, proxy)
}

async fn connect(proxy: &Proxy) -> Client<tokio::net::TcpStream> {
    Client::connect(proxy.bootstrap().split(',').next().unwrap()).await
}

#[tokio::test]
async fn no_answer_tells_an_address_behind_the_proxy() {
    let (broker, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    let behind = broker.bootstrap();
    let answer = client.metadata(&[]).await;
    assert_eq!(answer.brokers.len(), 2);
    for told in &answer.brokers {
        let address = format!("{}:{}", told.host.as_str(), told.port);
        assert!(!behind.split(',').any(|it| it == address), "{address} is behind the proxy");
        // And what it told is served.
        assert_eq!(Client::connect(&address).await.metadata(&[]).await.brokers, answer.brokers);
    }
    let find =
        FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec!["x".to_owned().into()]);
    for _ in 0..200 {
        let Response::FindCoordinator(found) = client.ask(4, find.clone()).await else { panic!() };
        let found = &found.coordinators[0];
        if found.error_code == 0 {
            assert!(
                answer.brokers.iter().any(|told| told.port == found.port && told.node_id == found.node_id)
            );
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no coordinator");
}

#[tokio::test]
async fn answers_are_lost_cut_delayed_and_replaced_in_their_order() {
    let (_broker, proxy) = pair().await;
    let rule = |verdict| Rule::on(ApiKey::EndTxn).then(verdict);
    let mut client = connect(&proxy).await;

    let error = proxy.faults().guard(rule(Verdict::Error { code: 51, applied: false }).nth(2)).unwrap();
    client.send(4, client::end("x", true)).await;
    client.send(4, client::end("x", true)).await;
    client.send(0, client::api_versions()).await;
    for correlation in 1..=3_u32 {
        let frame = client.frame().await.unwrap();
        assert_eq!(frame[..4], correlation.to_be_bytes());
        if correlation == 2 {
            assert_eq!(frame[9..11], 51_i16.to_be_bytes());
        }
    }
    drop(error);

    let _applied = proxy.faults().guard(rule(Verdict::Error { code: -1, applied: true })).unwrap();
    assert_eq!(error_of_end(&client.ask(4, client::end("x", true)).await), -1);

    let _delay = proxy.faults().guard(rule(Verdict::DelayAnswer { ms: 60 })).unwrap();
    let before = std::time::Instant::now();
    client.ask(4, client::end("x", true)).await;
    assert!(before.elapsed() >= Duration::from_millis(60));

    let _lost = proxy.faults().guard(rule(Verdict::LoseAnswer(Afterwards::Close))).unwrap();
    client.send(4, client::end("x", true)).await;
    client.assert_closed().await;

    let mut client = connect(&proxy).await;
    let _dropped = proxy.faults().guard(rule(Verdict::Drop(Afterwards::Hang))).unwrap();
    client.send(4, client::end("x", true)).await;
    client.assert_silent().await;

    let mut client = connect(&proxy).await;
    let _cut = proxy.faults().guard(rule(Verdict::CutAnswer { after: Some(7) })).unwrap();
    client.send(4, client::end("x", true)).await;
    let mut bytes = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut client.stream, &mut bytes).await.unwrap();
    assert_eq!(bytes.len(), 7);
}

#[tokio::test]
async fn what_only_a_machine_can_do_is_refused_with_a_reason() {
    let (_broker, proxy) = pair().await;
    for verdict in [
        Verdict::Crash,
        Verdict::CrashAfter,
        Verdict::MoveCoordinator,
        Verdict::MoveLeader { topic: None, partition: None, to: None },
        Verdict::JumpClock { ms: 1 },
        Verdict::Step(Step::Sync),
    ] {
        let refused = proxy.faults().add(Rule::on_any().then(verdict)).unwrap_err();
        assert!(refused.to_string().contains("a proxy cannot"), "{refused}");
    }
    let at = proxy.control().unwrap();
    assert_eq!(http(at, "POST", "/rules", r#"{"then":["crash"]}"#).await.0, 400);
    assert_eq!(http(at, "POST", "/step", r#""crash""#).await.0, 404);
    assert_eq!(http(at, "GET", "/address", "").await.1["bootstrap"], *proxy.bootstrap());
}

#[tokio::test]
async fn the_end_of_the_cluster_is_the_end_of_the_connection() {
    let (broker, proxy) = pair().await;
    let mut client = connect(&proxy).await;
    client.metadata(&[]).await;
    broker.stop().await;
    client.assert_closed().await;
    connect(&proxy).await.assert_closed().await;
    proxy.stop().await;
}

#[tokio::test]
async fn an_older_cluster_is_played_in_front_of_a_new_one() {
    let (_broker, proxy) = pair().await;
    let old: Verdict = serde_json::from_str(r#"{"old_api_versions":{"highest":{"EndTxn":4}}}"#).unwrap();
    let _guard = proxy.faults().guard(Rule::on(ApiKey::ApiVersions).then(old)).unwrap();
    let Response::ApiVersions(answer) = connect(&proxy).await.ask(3, client::api_versions()).await else {
        panic!("another answer")
    };
    let end = answer.api_keys.iter().find(|range| range.api_key == ApiKey::EndTxn as i16).unwrap();
    assert_eq!(end.max_version, 4);
}
