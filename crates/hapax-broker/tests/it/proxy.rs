//! The rules in front of another cluster, which is a broker here.

use crate::{
    client::{self, Client, error_of_end},
    control::http,
    fault::{end_of, named, produce},
};
use hapax_broker::{
    Afterwards, ApiKey, Broker, Proxy, ProxyOptions, Rule, ServerOptions, Settings, Step, Verdict,
    wire::Response,
};
use kafka_protocol::messages::FindCoordinatorRequest;
use std::time::{Duration, Instant};

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

/// A broker and a proxy in front of another one, each with its own rules: what is said of one holds for both.
async fn both() -> [(Broker, Option<Proxy>); 2] {
    let broker = || Broker::start(Settings::default(), ServerOptions::default());
    let (alone, behind) = (broker().await.unwrap(), broker().await.unwrap());
    let proxy = Proxy::start(&behind.bootstrap(), ProxyOptions::default()).await.unwrap();
    [(alone, None), (behind, Some(proxy))]
}

fn front((broker, proxy): &(Broker, Option<Proxy>)) -> (hapax_broker::Faults, String) {
    match proxy {
        Some(proxy) => (proxy.faults().clone(), proxy.bootstrap().to_owned()),
        None => (broker.faults().clone(), broker.bootstrap()),
    }
}

#[tokio::test]
async fn a_rule_for_an_answer_that_nobody_wants_ends_the_connection_at_both() {
    for at in &both().await {
        let (faults, address) = front(at);
        Client::connect(&address).await.create_topic("t", 1).await;
        for (verdict, end) in
            [(Verdict::LoseAnswer(Afterwards::Close), 1), (Verdict::CutAnswer { after: Some(6) }, 2)]
        {
            let guard = faults.guard(Rule::on(ApiKey::Produce).then(verdict)).unwrap();
            let mut client = Client::connect(&address).await;
            client.send(9, produce(named("t"), None, 0)).await;
            client.assert_closed().await;
            assert_eq!(guard.fired(), 1);
            for _ in 0..100 {
                if end_of(&at.0, "t") == end {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(end_of(&at.0, "t"), end, "it was applied");
        }
    }
}

#[tokio::test]
async fn nothing_is_applied_behind_a_lost_or_cut_answer_at_both() {
    for at in &both().await {
        let (faults, address) = front(at);
        for (topic, verdict) in [
            ("hang", Verdict::LoseAnswer(Afterwards::Hang)),
            ("close", Verdict::LoseAnswer(Afterwards::Close)),
            ("cut", Verdict::CutAnswer { after: Some(6) }),
        ] {
            Client::connect(&address).await.create_topic(topic, 1).await;
            let _guard = faults.guard(Rule::on(ApiKey::Produce).then(verdict)).unwrap();
            let mut client = Client::connect(&address).await;
            for _ in 0..3 {
                client.send(9, produce(named(topic), None, -1)).await;
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
            assert_eq!(end_of(&at.0, topic), 1, "{topic}");
        }
    }
}

#[tokio::test]
async fn apiversions_in_a_version_that_nobody_knows_meets_rules_at_both() {
    for at in &both().await {
        let (faults, address) = front(at);
        let mut request = client::frame(7, "new", 4, &client::api_versions().into()).to_vec();
        request[6..8].copy_from_slice(&99_i16.to_be_bytes());
        let rule = || Rule::on(ApiKey::ApiVersions).client_id("new");
        let error = faults.guard(rule().error(-1)).unwrap();
        let mut client = Client::connect(&address).await;
        tokio::io::AsyncWriteExt::write_all(&mut client.stream, &request).await.unwrap();
        assert_eq!(client.frame().await.unwrap()[..6], [0, 0, 0, 7, 255, 255]);
        tokio::io::AsyncWriteExt::write_all(&mut client.stream, &request).await.unwrap();
        assert_eq!(client.frame().await.unwrap()[..6], [0, 0, 0, 7, 0, 35]);
        let drop = faults.guard(rule().drop_request(Afterwards::Close)).unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut client.stream, &request).await.unwrap();
        client.assert_closed().await;
        assert_eq!((error.fired(), drop.fired()), (1, 1));
    }
}

#[tokio::test]
async fn a_rule_for_a_node_holds_from_the_first_request_on() {
    let (_broker, proxy) = pair().await;
    let guard = proxy.faults().guard(Rule::on(ApiKey::EndTxn).node(2).always().error(51)).unwrap();
    let addresses: Vec<_> = proxy.bootstrap().split(',').collect();
    let first = Client::connect(addresses[0]).await.ask(4, client::end("x", true)).await;
    let second = Client::connect(addresses[1]).await.ask(4, client::end("x", true)).await;
    assert_ne!(error_of_end(&first), 51);
    assert_eq!((error_of_end(&second), guard.fired()), (51, 1));
}

#[tokio::test]
async fn a_stall_before_any_node_is_known_holds_one_listener_up() {
    let (_broker, proxy) = pair().await;
    let stall = Verdict::StallNode { ms: 400, node: None };
    let _guard = proxy.faults().guard(Rule::on(ApiKey::EndTxn).then(stall)).unwrap();
    let unknown = Verdict::StallNode { ms: 400, node: Some(hapax_broker::NodeId(9)) };
    let idle = proxy.faults().add(Rule::on(ApiKey::EndTxn).then(unknown)).unwrap();
    let addresses: Vec<_> = proxy.bootstrap().split(',').collect();
    let mut stalled = Client::connect(addresses[0]).await;
    let before = Instant::now();
    let key = stalled.send(4, client::end("x", true)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    Client::connect(addresses[1]).await.ask(4, client::end("x", true)).await;
    assert!(before.elapsed() < Duration::from_millis(350), "another node was stalled, too");
    stalled.receive(key, 4).await.unwrap();
    assert!(before.elapsed() >= Duration::from_millis(400));
    assert_eq!(proxy.faults().report(idle).unwrap().fired, 0);
}
