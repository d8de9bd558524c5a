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
    let stream = TcpStream::connect(at).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    exchange(stream, &request).await
}

async fn exchange(mut stream: TcpStream, request: &str) -> (u16, Value) {
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
async fn every_refusal_is_json() {
    let (_broker, at) = broker().await;
    for (method, path, code) in [("GET", "/none", 404), ("PUT", "/rules", 405), ("DELETE", "/rules/x", 404)] {
        let (status, answer) = http(at, method, path, "").await;
        assert_eq!(status, code, "{method} {path}");
        assert!(!answer["error"].as_str().unwrap().is_empty());
    }
    for when in [r#"{"nth": 0}"#, r#"{"probability": 0}"#, r#"{"probability": 1.5}"#] {
        let rule = format!(r#"{{"when": {when}, "then": [{{"drop": "close"}}]}}"#);
        assert_eq!(http(at, "POST", "/rules", &rule).await.0, 400, "{when}");
    }
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

#[tokio::test]
async fn no_web_page_gets_in() {
    let (broker, at) = broker().await;
    let own = format!("origin: http://{at}");
    for (headers, status) in [
        (format!("host: {at}\r\ncontent-type: text/plain"), 415),
        (format!("host: {at}"), 415),
        (format!("host: {at}\r\ncontent-type: application/json\r\norigin: https://evil.example"), 403),
        (format!("host: {at}\r\ncontent-type: application/json\r\norigin: null"), 403),
        ("host: evil.example\r\ncontent-type: application/json".to_owned(), 403),
        ("content-type: application/json\r\norigin: http://evil.example".to_owned(), 403),
        ("host:\r\ncontent-type: application/json".to_owned(), 403),
        ("content-type: application/json".to_owned(), 204),
        (format!("host: {at}\r\ncontent-type: application/json; charset=utf-8\r\n{own}"), 204),
        (format!("host: localhost:{}\r\ncontent-type: Application/JSON", at.port()), 204),
    ] {
        let body = r#"{"hold_markers":true}"#;
        let request = format!(
            "POST /step HTTP/1.1\r\n{headers}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let stream = TcpStream::connect(at).await.unwrap();
        let (answered, answer) = exchange(stream, &request).await;
        assert_eq!(answered, status, "{headers}: {answer}");
    }
    let request = "DELETE /rules HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert_eq!(exchange(TcpStream::connect(at).await.unwrap(), request).await.0, 403);
    drop(broker);
}

#[tokio::test]
async fn a_connection_that_is_kept_alive_ends_with_the_broker() {
    let (broker, at) = broker().await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    let request = format!("GET /address HTTP/1.1\r\nhost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut some = [0; 1024];
    assert!(stream.read(&mut some).await.unwrap() > 0);
    // Another one is in the middle of its request.
    let mut half = TcpStream::connect(at).await.unwrap();
    half.write_all(b"GET /address HTTP/1.1\r\n").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let stopped = tokio::time::timeout(client::PATIENCE, broker.stop());
    stopped.await.expect("a client that stays does not keep the broker from ending");
    let _ = stream.write_all(request.as_bytes()).await;
    let rest = tokio::time::timeout(client::PATIENCE, stream.read(&mut some)).await.expect("an end in time");
    assert!(!matches!(rest, Ok(1..)), "it is answered after the end");
    let rest = tokio::time::timeout(client::PATIENCE, half.read(&mut some)).await.expect("an end in time");
    assert!(!matches!(rest, Ok(1..)), "it is answered after the end");
}

#[tokio::test]
async fn a_step_that_changes_nothing_is_no_error_and_a_jump_that_goes_nowhere_is() {
    let (_broker, at) = broker().await;
    for step in [r#""sync""#, r#""expire_offsets""#, r#"{"hold_markers":false}"#] {
        assert_eq!(http(at, "POST", "/step", step).await.0, 204, "{step}");
    }
    for jump in ["0", "-1", "9223372036854775807"] {
        let (status, answer) = http(at, "POST", "/clock", &format!(r#"{{"jump_ms":{jump}}}"#)).await;
        assert_eq!(status, 400);
        assert!(answer["error"].as_str().unwrap().contains(jump), "{answer}");
    }
}
