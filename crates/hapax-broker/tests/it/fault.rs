//! Rules on connections.

use crate::client::{self, Client, PATIENCE, error_of_end};
use hapax_broker::{
    Afterwards, ApiKey, Broker, Faults, Rule, ServerOptions, Settings, Step, Verdict,
    wire::{ADVERTISED, Request, Response, frame},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};
use tokio::{io::AsyncReadExt, net::TcpStream};

async fn broker() -> (Broker, Client<TcpStream>) {
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    let client = Client::connect(&broker.bootstrap()).await;
    (broker, client)
}

fn on_end() -> Rule {
    Rule::on(ApiKey::EndTxn)
}

#[tokio::test]
async fn a_dropped_request_closes_the_connection_or_leaves_it_hanging() {
    let (broker, mut client) = broker().await;
    let guard = broker.faults().guard(on_end().drop_request(Afterwards::Close)).unwrap();
    client.send(4, client::end("x", true)).await;
    client.assert_closed().await;
    assert_eq!(guard.fired(), 1);

    let hanging = broker.faults().guard(on_end().drop_request(Afterwards::Hang)).unwrap();
    let mut client = Client::connect(&broker.bootstrap()).await;
    client.send(4, client::end("x", true)).await;
    client.send(4, client::end("x", true)).await;
    client.assert_silent().await;
    assert_eq!(hanging.matched(), 1, "nothing behind it is looked at");
}

#[tokio::test]
async fn a_request_whose_answer_is_lost_was_applied() {
    let (broker, mut client) = broker().await;
    let _guard = broker
        .faults()
        .guard(Rule::on(ApiKey::CreateTopics).topic("t").lose_answer(Afterwards::Close))
        .unwrap();
    let topic = kafka_protocol::messages::create_topics_request::CreatableTopic::default()
        .with_name(client::topic("t"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = kafka_protocol::messages::CreateTopicsRequest::default().with_topics(vec![topic]);
    client.send(7, request).await;
    client.assert_closed().await;
    let answer = Client::connect(&broker.bootstrap()).await.metadata(&["t"]).await;
    assert_eq!(answer.topics[0].error_code, 0);
}

#[tokio::test]
async fn an_error_stands_where_its_answer_has_it_and_the_request_is_not_applied() {
    let (broker, mut client) = broker().await;
    let _guard = broker.faults().guard(on_end().transactional_id("x").nth(2).error(51)).unwrap();
    client.ask(4, client::end("x", true)).await;
    client.ask(4, client::end("y", true)).await;
    assert_eq!(error_of_end(&client.ask(4, client::end("x", true)).await), 51);
    assert_ne!(error_of_end(&client.ask(4, client::end("x", true)).await), 51);
}

#[tokio::test]
async fn a_cut_answer_ends_in_mid_frame() {
    let (broker, mut client) = broker().await;
    let _guard = broker.faults().guard(on_end().then(Verdict::CutAnswer { after: Some(6) })).unwrap();
    client.send(4, client::end("x", true)).await;
    let mut bytes = Vec::new();
    client.stream.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes.len(), 6);
}

#[tokio::test]
async fn a_delay_and_a_stalled_node_hold_requests_up() {
    let (broker, mut client) = broker().await;
    let _guard = broker.faults().guard(on_end().delay(Duration::from_millis(80))).unwrap();
    let before = Instant::now();
    client.ask(4, client::end("x", true)).await;
    assert!(before.elapsed() >= Duration::from_millis(80));

    let _stall = broker.faults().guard(on_end().then(Verdict::StallNode { ms: 120, node: None })).unwrap();
    let before = Instant::now();
    client.send(4, client::end("x", true)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    Client::connect(&broker.bootstrap()).await.metadata(&[]).await;
    assert!(before.elapsed() >= Duration::from_millis(110), "another connection got through");
}

#[tokio::test]
async fn a_crash_before_or_after_a_request_cuts_everybody_off() {
    let (broker, mut client) = broker().await;
    for (verdict, name, applied) in [(Verdict::Crash, "before", false), (Verdict::CrashAfter, "after", true)]
    {
        let mut bystander = Client::connect(&broker.bootstrap()).await;
        bystander.metadata(&[]).await;
        let _guard = broker.faults().guard(Rule::on(ApiKey::CreateTopics).then(verdict)).unwrap();
        let topic = kafka_protocol::messages::create_topics_request::CreatableTopic::default()
            .with_name(client::topic(name))
            .with_num_partitions(1)
            .with_replication_factor(1);
        let request = kafka_protocol::messages::CreateTopicsRequest::default().with_topics(vec![topic]);
        client.send(7, request).await;
        client.assert_closed().await;
        bystander.assert_closed().await;
        client = Client::connect(&broker.bootstrap()).await;
        assert_eq!(client.metadata(&[name]).await.topics[0].error_code == 0, applied, "{name}");
    }
}

#[tokio::test]
async fn the_clock_jumps_and_steps_are_made_before_the_request() {
    let (broker, mut client) = broker().await;
    client.create_topic("t", 1).await;
    let producer = client.init_producer("x").await;
    let added = kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(client::topic("t"))
        .with_partitions(vec![0]);
    let add = kafka_protocol::messages::AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(client::end("x", true).transactional_id)
        .with_v3_and_below_producer_id(producer.producer_id)
        .with_v3_and_below_producer_epoch(producer.producer_epoch)
        .with_v3_and_below_topics(vec![added]);
    client.ask(3, add).await;
    let before = broker.now();
    // Less than the time-out of the transaction.
    let rule = on_end().then(Verdict::JumpClock { ms: 30_000 }).then(Verdict::Step(Step::HoldMarkers(true)));
    let _guard = broker.faults().guard(rule).unwrap();
    let end = client::end("x", true)
        .with_producer_id(producer.producer_id)
        .with_producer_epoch(producer.producer_epoch);
    assert_eq!(error_of_end(&client.ask(4, end).await), 0);
    assert!(broker.now() >= before + 30_000);
    broker.jump_clock(1_000);
    assert_eq!(broker.state()["transactions"][0]["state"], "PrepareCommit");
    broker.step(Step::HoldMarkers(false)).unwrap();
    assert_eq!(broker.state()["transactions"][0]["state"], "CompleteCommit");
}

#[tokio::test]
async fn apiversions_answers_as_an_older_broker() {
    let (broker, mut client) = broker().await;
    let old: Verdict = serde_json::from_str(
        r#"{"old_api_versions": {"highest": {"EndTxn": 4, "TxnOffsetCommit": -1}, "transaction_version": 1}}"#,
    )
    .unwrap();
    let _guard = broker.faults().guard(Rule::on(ApiKey::ApiVersions).then(old).always()).unwrap();
    let Response::ApiVersions(answer) = client.ask(3, client::api_versions()).await else { panic!() };
    let highest = |key: ApiKey| {
        answer.api_keys.iter().find(|range| range.api_key == key as i16).map(|range| range.max_version)
    };
    assert_eq!((highest(ApiKey::EndTxn), highest(ApiKey::TxnOffsetCommit)), (Some(4), None));
    assert_eq!(answer.finalized_features[0].max_version_level, 1);
}

#[tokio::test]
async fn one_seed_gives_one_series_of_faults() {
    let mut series = Vec::new();
    for _ in 0..2 {
        let (broker, mut client) = broker().await;
        let rule = on_end().probability(0.3, 42).always().error(51);
        let _guard = broker.faults().guard(rule).unwrap();
        let mut faults = Vec::new();
        for _ in 0..40 {
            faults.push(error_of_end(&client.ask(4, client::end("x", true)).await) == 51);
        }
        series.push(faults);
    }
    assert_eq!(series[0], series[1]);
    assert!(series[0].contains(&true) && series[0].contains(&false));
}

#[tokio::test]
async fn of_two_fates_the_first_is_taken_and_the_second_stays_due() {
    let (broker, mut client) = broker().await;
    let first = broker.faults().guard(on_end().error(51)).unwrap();
    let second = broker.faults().guard(on_end().error(16)).unwrap();
    assert_eq!(error_of_end(&client.ask(4, client::end("x", true)).await), 51);
    assert_eq!((first.fired(), second.fired(), second.matched()), (1, 0, 1));
    assert_eq!(error_of_end(&client.ask(4, client::end("x", true)).await), 16);
}

#[tokio::test]
async fn a_rule_can_be_for_one_client_alone() {
    let (broker, client) = broker().await;
    let mut other = Client::connect(&broker.bootstrap()).await.named("other");
    let mut client = client.named("victim");
    let _guard = broker.faults().guard(on_end().client_id("victim").node(1).error(51)).unwrap();
    assert_ne!(error_of_end(&other.ask(4, client::end("x", true)).await), 51);
    assert_eq!(error_of_end(&client.ask(4, client::end("x", true)).await), 51);
}

#[tokio::test]
async fn a_rule_that_finds_nothing_to_act_on_has_not_acted_and_stays_due() {
    let (broker, mut client) = broker().await;
    let step = |partition| Verdict::Step(Step::MoveLeader { topic: "t".into(), partition, to: None });
    let rule = |verdict| Rule { times: Some(1), ..on_end().then(verdict) };
    let names_nothing =
        broker.faults().add(rule(Verdict::MoveLeader { topic: None, partition: None, to: None }));
    let elsewhere = broker.faults().add(rule(step(7))).unwrap();
    let here = broker.faults().add(rule(step(0))).unwrap();
    let fired = |id| broker.faults().report(id).unwrap().fired;
    client.ask(4, client::end("x", true)).await;
    assert_eq!([fired(names_nothing.unwrap()), fired(elsewhere), fired(here)], [0, 0, 0]);
    client.create_topic("t", 1).await;
    client.ask(4, client::end("x", true)).await;
    assert_eq!([fired(elsewhere), fired(here)], [0, 1]);
    assert_eq!(broker.faults().unfired().len(), 2);
}

#[tokio::test]
async fn a_guard_whose_rule_never_acted_panics() {
    let (broker, _client) = broker().await;
    let faults: Faults = broker.faults().clone();
    let guard = faults.guard(on_end().error(51)).unwrap();
    assert_eq!(faults.unfired().len(), 1);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(guard)));
    let message = *dropped.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("never happened"), "{message}");
    assert!(faults.list().is_empty());
}

#[tokio::test]
async fn a_guard_does_not_hide_the_panic_that_ends_its_test() {
    let (broker, _client) = broker().await;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _guard = broker.faults().guard(on_end().error(51)).unwrap();
        panic!("the test's own");
    }));
    assert_eq!(*ended.unwrap_err().downcast::<&str>().unwrap(), "the test's own");
}

#[tokio::test]
async fn a_rule_that_contradicts_itself_is_refused() {
    let (broker, _client) = broker().await;
    for rule in [
        on_end(),
        on_end().error(1).error(2),
        on_end().probability(1.5, 0).error(1),
        on_end().times(0).error(1),
    ] {
        assert!(broker.faults().add(rule).is_err());
    }
}

#[test]
fn a_rule_reads_the_same_as_json() {
    let text = r#"{"name":"lost","when":{"api":"EndTxn","transactional_id":"orders","nth":2},
        "then":["move_coordinator",{"delay":{"ms":5}},{"lose_answer":"hang"}],"times":null}"#;
    let rule: Rule = serde_json::from_str(text).unwrap();
    let same = Rule::on(ApiKey::EndTxn)
        .named("lost")
        .transactional_id("orders")
        .nth(2)
        .then(Verdict::MoveCoordinator)
        .delay(Duration::from_millis(5))
        .lose_answer(Afterwards::Hang)
        .always();
    assert_eq!(rule, same);
    assert_eq!(serde_json::from_value::<Rule>(serde_json::to_value(&rule).unwrap()).unwrap(), rule);
    assert!(serde_json::from_str::<Rule>(r#"{"when":{"api":"EndTx"},"then":["crash"]}"#).is_err());
}

#[tokio::test]
async fn every_request_of_every_version_has_a_well_formed_error_answer() {
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    let _guard = broker.faults().guard(Rule::on_any().always().error(-1)).unwrap();
    let mut client = Client::connect(&broker.bootstrap()).await;
    let mut random = fastrand::Rng::with_seed(5);
    for (key, range) in ADVERTISED {
        for version in range.min..=range.max {
            let mut found = 0;
            for _ in 0..20_000 {
                if found == 3 {
                    break;
                }
                let byte =
                    |random: &mut fastrand::Rng| if random.u8(0..4) == 0 { random.u8(0..4) } else { 0 };
                let bytes: Vec<u8> = (0..120).map(|_| byte(&mut random)).collect();
                let Ok(request) = frame::body_of(*key, version, bytes.into()) else { continue };
                if matches!(&request, Request::Produce(produce) if produce.acks == 0) {
                    continue;
                }
                if request.encode(version, &mut bytes::BytesMut::new()).is_err() {
                    continue;
                }
                found += 1;
                let answer = tokio::time::timeout(PATIENCE, client.try_ask(version, request.clone())).await;
                let answer =
                    answer.unwrap().unwrap_or_else(|error| panic!("{key:?} {version} {request:?}: {error}"));
                assert_eq!(answer.key(), *key);
            }
            assert!(found > 0, "{key:?} {version}");
        }
    }
}
