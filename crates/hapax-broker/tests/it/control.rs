//! The control port, as any language has it: HTTP and JSON.

use crate::client::{self, Client, error_of_end};
use hapax_broker::{Broker, ServerOptions, Settings};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// One request; status and body.
pub(crate) async fn http(at: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

async fn broker() -> (Broker, SocketAddr) {
    let options = ServerOptions { control: Some("127.0.0.1:0".parse().unwrap()), ..ServerOptions::default() };
    let broker = Broker::start(Settings { nodes: 2, ..Settings::default() }, options).await.unwrap();
    let control = broker.control().unwrap();
    (broker, control)
}

#[tokio::test]
async fn a_rule_is_added_acts_and_tells_how_often() {
    let (broker, at) = broker().await;
    let rule = json!({ "when": { "api": "EndTxn" }, "then": [{ "error": { "code": 51 } }] }).to_string();
    let (status, id) = http(at, "POST", "/rules", &rule).await;
    assert_eq!(status, 201);
    let mut client = Client::connect(broker.bootstrap().split(',').next().unwrap()).await;
    assert_eq!(error_of_end(&client.ask(4, client::end("x", true)).await), 51);
    let (_, rules) = http(at, "GET", "/rules", "").await;
    assert_eq!((&rules[0]["matched"], &rules[0]["fired"]), (&json!(1), &json!(1)));
    let path = format!("/rules/{}", id["id"]);
    assert_eq!(http(at, "DELETE", &path, "").await.0, 200);
    assert_eq!(http(at, "DELETE", &path, "").await.0, 404);
    assert_eq!(http(at, "GET", "/rules", "").await.1, json!([]));
}

#[tokio::test]
async fn what_is_refused_says_why() {
    let (_broker, at) = broker().await;
    for (path, body) in [("/rules", "{}"), ("/rules", r#"{"then":[]}"#), ("/step", r#""no_such_step""#)] {
        let (status, answer) = http(at, "POST", path, body).await;
        assert_eq!(status, 400, "{path} {body}");
        assert!(!answer["error"].as_str().unwrap().is_empty());
    }
    for step in [
        r#"{"move_leader": {"topic": "none", "partition": 0}}"#,
        r#"{"compact": {"topic": "none", "partition": 0}}"#,
        r#"{"retain": {"topic": "none", "partition": 0, "from": 1}}"#,
        r#"{"move_leader": {"topic": "none", "partition": 0, "to": 9}}"#,
        r#"{"fail_append": {"transactional_id": "x", "fault": {"written": true, "code": 7}}}"#,
    ] {
        let (status, answer) = http(at, "POST", "/step", step).await;
        assert_eq!(status, 400, "{step}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains("there is no") || error.contains("not 7"), "{error}");
    }
    let rule = r#"{"when": {"api": "EndTxn"}, "then": [{"old_api_versions": {}}]}"#;
    assert_eq!(http(at, "POST", "/rules", rule).await.0, 400);
}

#[tokio::test]
async fn address_step_clock_and_state_are_there() {
    let (broker, at) = broker().await;
    assert_eq!(http(at, "GET", "/address", "").await.1["bootstrap"], json!(broker.bootstrap()));
    assert_eq!(http(at, "POST", "/step", r#"{"hold_markers":true}"#).await.0, 204);
    let before = broker.now();
    assert_eq!(http(at, "POST", "/clock", r#"{"jump_ms":60000}"#).await.0, 204);
    assert!(broker.now() >= before + 60_000);
    let mut client = Client::connect(broker.bootstrap().split(',').next().unwrap()).await;
    client.create_topic("orders", 2).await;
    let (status, state) = http(at, "GET", "/state", "").await;
    assert_eq!(status, 200);
    let topic = state["topics"].as_array().unwrap().iter().find(|topic| topic["name"] == "orders").unwrap();
    assert_eq!(topic["partitions"].as_array().unwrap().len(), 2);
    assert_eq!((&topic["partitions"][1]["start"], &topic["partitions"][1]["end"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn open_transactions_are_shown() {
    let (broker, _) = broker().await;
    let addresses: Vec<_> = broker.bootstrap().split(',').map(str::to_owned).collect();
    let mut client = Client::connect(&addresses[0]).await;
    let mut answer = client.ask(4, client::init("orders")).await;
    for address in addresses.iter().cycle().take(400) {
        match &answer {
            hapax_broker::wire::Response::InitProducerId(init) if init.error_code == 0 => break,
            _ => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
        client = Client::connect(address).await;
        client
            .ask(
                4,
                kafka_protocol::messages::FindCoordinatorRequest::default()
                    .with_key_type(1)
                    .with_coordinator_keys(vec!["orders".to_owned().into()]),
            )
            .await;
        answer = client.ask(4, client::init("orders")).await;
    }
    let state = broker.state();
    assert_eq!(state["transactions"][0]["transactional_id"], json!("orders"));
    assert_eq!(state["transactions"][0]["state"], json!("Empty"));
}
