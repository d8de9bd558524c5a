//! Rules on connections.

use crate::{
    client::{self, Client, PATIENCE, error_of_end},
    sequence::{Producer, batch},
};
use hapax_broker::{
    Afterwards, ApiKey, Broker, Faults, Rule, ServerOptions, Settings, Step, Verdict,
    state::AppendFault,
    wire::{ADVERTISED, Request, Response, frame},
};
use kafka_protocol::messages::{
    FetchRequest, ProduceRequest,
    fetch_request::{FetchPartition, FetchTopic},
    produce_request::{PartitionProduceData, TopicProduceData},
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
    broker.jump_clock(1_000).unwrap();
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

/// One batch for partition 0 of a topic; as part of a transaction where there is a producer.
pub(crate) fn produce(topic: TopicProduceData, producer: Option<Producer>, acks: i16) -> ProduceRequest {
    let none = Producer { id: -1, epoch: -1 };
    let sequence = if producer.is_some() { 0 } else { -1 };
    let records = batch(producer.unwrap_or(none), sequence, producer.is_some(), 1, 1_700_000_000_000);
    let data = PartitionProduceData::default().with_index(0).with_records(Some(records));
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(1_000)
        .with_transactional_id(producer.map(|_| client::transactional_id("x")))
        .with_topic_data(vec![topic.with_partition_data(vec![data])])
}

pub(crate) fn named(topic: &str) -> TopicProduceData {
    TopicProduceData::default().with_name(client::topic(topic))
}

/// Where partition 0 of a topic ends.
pub(crate) fn end_of(broker: &Broker, topic: &str) -> i64 {
    let state = broker.state();
    let topics = state["topics"].as_array().unwrap();
    let topic = topics.iter().find(|shown| shown["name"] == topic).unwrap();
    topic["partitions"][0]["end"].as_i64().unwrap()
}

#[tokio::test]
async fn a_rule_acts_as_often_as_it_may_although_one_of_its_acts_finds_nothing() {
    let (broker, mut client) = broker().await;
    let moves = || Verdict::MoveLeader { topic: None, partition: None, to: None };
    let rule = on_end().then(moves()).then(moves()).drop_request(Afterwards::Close);
    let guard = broker.faults().guard(rule).unwrap();
    client.send(4, client::end("x", true)).await;
    client.assert_closed().await;
    assert_eq!(guard.fired(), 1);
    let mut client = Client::connect(&broker.bootstrap()).await;
    client.ask(4, client::end("x", true)).await;
    assert_eq!((guard.fired(), guard.matched()), (1, 2));
}

#[tokio::test]
async fn acts_that_find_nothing_take_nothing_from_what_a_rule_did_before() {
    let (broker, mut client) = broker().await;
    client.create_topic("t", 1).await;
    let moves = |topic: &str| Verdict::MoveLeader { topic: Some(topic.into()), partition: None, to: None };
    let guard = broker.faults().guard(on_end().always().then(moves("t")).then(moves("none"))).unwrap();
    client.ask(4, client::end("x", true)).await;
    assert_eq!(guard.fired(), 1);
    let idle = broker.faults().add(on_end().always().then(moves("none")).then(moves("none"))).unwrap();
    client.ask(4, client::end("x", true)).await;
    assert_eq!((guard.fired(), broker.faults().report(idle).unwrap().fired), (2, 0));
}

#[tokio::test]
async fn a_topic_that_a_request_names_by_its_id_is_the_topic_of_a_rule() {
    let (broker, mut client) = broker().await;
    client.create_topic("t", 1).await;
    client.create_topic("u", 1).await;
    let metadata = client.metadata(&["t", "u"]).await;
    let id = |at: usize| metadata.topics[at].topic_id;
    let _produce = broker.faults().guard(Rule::on(ApiKey::Produce).topic("t").error(6)).unwrap();
    let _fetch = broker.faults().guard(Rule::on(ApiKey::Fetch).topic("t").partition(0).error(6)).unwrap();
    for (at, code) in [(1, 0), (0, 6)] {
        let topic = TopicProduceData::default().with_topic_id(id(at));
        let Response::Produce(answer) = client.ask(13, produce(topic, None, -1)).await else { panic!() };
        assert_eq!(answer.responses[0].partition_responses[0].error_code, code);
        let partition = FetchPartition::default().with_partition(0).with_current_leader_epoch(-1);
        let topic = FetchTopic::default().with_topic_id(id(at)).with_partitions(vec![partition]);
        let request = FetchRequest::default().with_session_epoch(-1).with_topics(vec![topic]);
        let Response::Fetch(answer) = client.ask(13, request).await else { panic!() };
        assert_eq!(answer.responses[0].partitions[0].error_code, code);
    }
}

#[tokio::test]
async fn a_rule_that_changes_nothing_has_not_acted() {
    let (broker, mut client) = broker().await;
    client.create_topic("t", 1).await;
    let (topic, partition) = ("t".to_owned(), 0);
    for verdict in [
        Verdict::StallNode { ms: 60_000, node: Some(hapax_broker::NodeId(9)) },
        Verdict::Step(Step::Retain { topic: topic.clone(), partition, from: 0 }),
        Verdict::Step(Step::Retain { topic: topic.clone(), partition, from: 7 }),
        Verdict::Step(Step::Compact { topic, partition }),
        Verdict::Step(Step::ExpireTransactionalIds),
        Verdict::Step(Step::ExpireProducers),
        Verdict::Step(Step::ExpireOffsets),
        Verdict::Step(Step::Sync),
        Verdict::Step(Step::SyncAlways(true)),
        Verdict::Step(Step::HoldMarkers(false)),
    ] {
        let idle = broker.faults().add(on_end().then(verdict.clone())).unwrap();
        client.ask(4, client::end("x", true)).await;
        let report = broker.faults().remove(idle).unwrap();
        assert_eq!((report.matched, report.fired), (1, 0), "{verdict:?}");
    }
    let old: Verdict = serde_json::from_str(r#"{"old_api_versions":{"highest":{"EndTxn":99}}}"#).unwrap();
    let idle = broker.faults().add(Rule::on(ApiKey::ApiVersions).then(old)).unwrap();
    client.ask(3, client::api_versions()).await;
    assert_eq!(broker.faults().report(idle).unwrap().fired, 0);
}

#[tokio::test]
async fn an_append_that_is_to_fail_counts_when_it_does() {
    let (broker, mut client) = broker().await;
    client.init_producer("x").await;
    let fail = |id: &str| {
        let fault = AppendFault { written: false, code: 15 };
        let step = Step::FailAppend { transactional_id: id.into(), fault };
        broker.faults().add(on_end().then(Verdict::Step(step))).unwrap()
    };
    let fired = |id| broker.faults().report(id).unwrap().fired;
    let (never, once) = (fail("never"), fail("x"));
    client.ask(4, client::end("y", true)).await;
    client.ask(4, client::end("y", true)).await;
    assert_eq!((fired(never), fired(once)), (0, 0), "nothing was appended so far");
    broker.step(Step::Crash).unwrap();
    let mut client = Client::connect(&broker.bootstrap()).await;
    client.init_producer("x").await;
    assert_eq!((fired(never), fired(once)), (0, 0), "a crash forgets what was to fail");
    client.ask(4, client::end("y", true)).await;
    let Response::InitProducerId(answer) = client.ask(4, client::init("x")).await else { panic!() };
    assert_eq!((answer.error_code, fired(never), fired(once)), (15, 0, 1));
}

#[tokio::test]
async fn a_crash_after_a_request_that_waits_comes_when_it_was_applied() {
    let (broker, mut client) = broker().await;
    client.create_topic("t", 1).await;
    let told = client.init_producer("x").await;
    let producer = Producer { id: told.producer_id.0, epoch: told.producer_epoch };
    client.ask(12, produce(named("t"), Some(producer), -1)).await;
    broker.step(Step::HoldMarkers(true)).unwrap();
    let end =
        client::end("x", true).with_producer_id(told.producer_id).with_producer_epoch(told.producer_epoch);
    assert_eq!(error_of_end(&client.ask(5, end).await), 0);
    let guard = broker.faults().guard(Rule::on(ApiKey::Produce).then(Verdict::CrashAfter)).unwrap();
    let next = Producer { epoch: producer.epoch + 1, ..producer };
    client.send(12, produce(named("t"), Some(next), -1)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(guard.fired(), 0, "it waits for the markers of the last transaction");
    broker.step(Step::HoldMarkers(false)).unwrap();
    client.assert_closed().await;
    assert_eq!((guard.fired(), end_of(&broker, "t")), (1, 3));
}

#[tokio::test]
async fn a_stalled_node_gives_no_answer_to_a_reader_that_waits() {
    let (broker, mut client) = broker().await;
    client.create_topic("t", 1).await;
    let partition = FetchPartition::default().with_partition(0).with_current_leader_epoch(-1);
    let topic = FetchTopic::default().with_topic(client::topic("t")).with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_session_epoch(-1)
        .with_min_bytes(1)
        .with_max_wait_ms(50)
        .with_topics(vec![topic]);
    let before = Instant::now();
    let key = client.send(12, request).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let _stall = broker.faults().guard(on_end().then(Verdict::StallNode { ms: 300, node: None })).unwrap();
    Client::connect(&broker.bootstrap()).await.send(4, client::end("x", true)).await;
    client.receive(key, 12).await.unwrap();
    assert!(before.elapsed() >= Duration::from_millis(300), "it was answered after {:?}", before.elapsed());
}

#[tokio::test]
async fn times_and_changes_that_are_none_are_refused() {
    let (broker, _client) = broker().await;
    for then in [
        r#"{"delay":{"ms":0}}"#,
        r#"{"delay_answer":{"ms":18446744073709551615}}"#,
        r#"{"stall_node":{"ms":0}}"#,
        r#"{"jump_clock":{"ms":0}}"#,
        r#"{"jump_clock":{"ms":-5}}"#,
        r#"{"jump_clock":{"ms":9223372036854775807}}"#,
        r#"{"old_api_versions":{}}"#,
    ] {
        let rule: Rule =
            serde_json::from_str(&format!(r#"{{"when":{{"api":"ApiVersions"}},"then":[{then}]}}"#)).unwrap();
        let refused = broker.faults().add(rule).unwrap_err().to_string();
        assert!(refused.contains("100 years") || refused.contains("lowers nothing"), "{then}: {refused}");
    }
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
