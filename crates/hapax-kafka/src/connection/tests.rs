//! Connections to a scripted broker, in paused time.

use super::*;
use crate::ClientConfig;
use bytes::{Buf, BufMut, BytesMut};
use hapax_host::{BoxStream, ConnectFuture, Net, RealFiles};
use kafka_protocol::messages::{ApiVersionsRequest, DescribeTransactionsRequest, EndTxnRequest};
use std::collections::VecDeque;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const SECOND: Duration = Duration::from_secs(1);

/// Hands out the client ends of streams whose other ends the test holds.
struct ScriptedNet(Mutex<VecDeque<DuplexStream>>);

impl Net for ScriptedNet {
    fn connect<'a>(&'a self, _host: &'a str, _port: u16) -> ConnectFuture<'a> {
        let stream = self.0.lock().unwrap().pop_front();
        Box::pin(async move {
            stream
                .map(|stream| Box::new(stream) as BoxStream)
                .ok_or_else(|| std::io::Error::other("nobody there"))
        })
    }
}

/// The broker's end of a connection.
struct Broker(DuplexStream);

struct Asked {
    key: i16,
    correlation_id: i32,
}

impl Broker {
    async fn asked(&mut self) -> Option<Asked> {
        let length = self.0.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut frame).await.ok()?;
        let mut frame = &frame[..];
        let key = frame.get_i16();
        let _version = frame.get_i16();
        Some(Asked { key, correlation_id: frame.get_i32() })
    }

    async fn answer(&mut self, correlation_id: i32, body: &[u8]) {
        self.0.write_i32(i32::try_from(body.len() + 4).unwrap()).await.unwrap();
        self.0.write_i32(correlation_id).await.unwrap();
        self.0.write_all(body).await.unwrap();
    }

    /// Answers ApiVersions 3 with one range for each key.
    async fn introduce(&mut self, keys: &[i16]) {
        let asked = self.asked().await.unwrap();
        assert_eq!(asked.key, ApiVersionsRequest::KEY);
        let mut body = BytesMut::new();
        body.put_i16(0);
        body.put_u8(u8::try_from(keys.len()).unwrap() + 1);
        for key in keys {
            body.put_i16(*key);
            body.put_i16(1);
            body.put_i16(5);
            body.put_u8(0);
        }
        body.put_i32(0);
        // Two tagged fields: the epoch of the finalized features, and transaction.version at 2.
        body.put_slice(&[2, 1, 8, 0, 0, 0, 0, 0, 0, 0, 7, 2, 24, 2, 20]);
        body.put_slice(b"transaction.version");
        body.put_i16(2);
        body.put_i16(0);
        body.put_u8(0);
        let tag_length = 1 + 1 + 19 + 2 + 2 + 1;
        let at = body.iter().position(|byte| *byte == 24).unwrap();
        body[at] = tag_length;
        self.answer(asked.correlation_id, &body).await;
    }
}

fn config() -> ClientConfig {
    ClientConfig { idle_timeout: 60 * SECOND, ..ClientConfig::new(vec![("broker".to_owned(), 1)]) }
}

async fn try_open(script: impl AsyncFnOnce(&mut Broker)) -> (Result<Connection, OpenError>, Broker) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let net = ScriptedNet(Mutex::new(VecDeque::from([ours])));
    let host = Host::seeded(1, 0, Arc::new(net), Arc::new(RealFiles));
    let (config, address) = (config(), ("broker".to_owned(), 1));
    let opening = Opening { host: &host, config: &config, node: NodeId(3), address: &address };
    let mut broker = Broker(theirs);
    let (opened, ()) = tokio::join!(open(opening), script(&mut broker));
    (opened, broker)
}

async fn opened() -> (Connection, Broker) {
    let (connection, broker) = try_open(async |broker| broker.introduce(&[26, 65]).await).await;
    (connection.expect("the broker introduced itself"), broker)
}

fn end_txn(
    connection: &Connection,
    timeout: Duration,
) -> PendingResponse<kafka_protocol::messages::EndTxnResponse> {
    connection.call(1, &EndTxnRequest::default(), timeout)
}

const ENDED: [u8; 6] = [0; 6];

#[tokio::test(start_paused = true)]
async fn versions_and_features_are_learned_when_the_connection_opens() {
    let (connection, _broker) = opened().await;
    assert_eq!(connection.versions(26), Some(1..=5));
    assert_eq!(connection.choose(26, 0..=9).unwrap(), 5);
    assert_eq!(connection.choose(26, 0..=3).unwrap(), 3);
    let unsupported = connection.choose(26, 6..=6).unwrap_err();
    assert!(matches!(unsupported, CallError::Unsupported { .. }) && !unsupported.may_have_had_effect());
    assert!(connection.choose(22, 0..=5).is_err());
    let versions = connection.broker_versions();
    assert_eq!(versions.transaction_version(), hapax_commit::TransactionVersion::V2);
    assert_eq!(versions.features_epoch(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_broker_before_kafka_3_is_refused_by_name() {
    let (opened, _broker) = try_open(async |broker| broker.introduce(&[26, 22]).await).await;
    assert!(matches!(opened, Err(OpenError::TooOld { lacks: "DescribeTransactions" })));
    // It does not know ApiVersions 3 and says so in version 0.
    let (opened, _broker) = try_open(async |broker| {
        let asked = broker.asked().await.unwrap();
        broker.answer(asked.correlation_id, &[0, 35, 0, 0, 0, 0]).await;
    })
    .await;
    assert!(matches!(opened, Err(OpenError::TooOld { lacks: "ApiVersions 3" })));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_never_introduces_itself_costs_the_connect_time_out_only() {
    let start = Host::real().now();
    let (opened, _broker) = try_open(async |_| ()).await;
    assert!(matches!(opened, Err(OpenError::Failed(Cause::Connect(_)))));
    assert_eq!(Host::real().now() - start, config().connect_timeout);
}

#[tokio::test(start_paused = true)]
async fn requests_are_pipelined_and_written_before_they_are_answered() {
    let (connection, mut broker) = opened().await;
    let mut first = end_txn(&connection, SECOND);
    let second = end_txn(&connection, SECOND);
    first.written().await.unwrap();
    let (one, two) = (broker.asked().await.unwrap(), broker.asked().await.unwrap());
    assert_ne!(one.correlation_id, two.correlation_id);
    broker.answer(one.correlation_id, &ENDED).await;
    broker.answer(two.correlation_id, &[0, 0, 0, 0, 0, 51]).await;
    assert_eq!(first.await.unwrap().error_code, 0);
    assert_eq!(second.await.unwrap().error_code, 51);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_an_unknown_outcome() {
    let (connection, mut broker) = opened().await;
    let answer = end_txn(&connection, SECOND);
    broker.asked().await.unwrap();
    drop(broker);
    let error = answer.await.unwrap_err();
    assert!(matches!(error, CallError::Unknown { cause: Cause::Lost(_), .. }), "{error}");
    assert!(error.may_have_had_effect());
    let after = end_txn(&connection, SECOND).await.unwrap_err();
    assert!(matches!(after, CallError::NotSent { .. }), "{after}");
    assert!(connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_closes_the_connection() {
    let (connection, mut broker) = opened().await;
    let start = Host::real().now();
    let patient = end_txn(&connection, 10 * SECOND);
    let late = end_txn(&connection, SECOND);
    let asked = broker.asked().await.unwrap();
    let late = late.await.unwrap_err();
    assert!(matches!(late, CallError::Unknown { cause: Cause::TimedOut(SECOND), .. }), "{late}");
    assert_eq!(Host::real().now() - start, SECOND);
    assert!(patient.await.unwrap_err().may_have_had_effect());
    assert!(connection.is_closed());
    // The broker sees the end too.
    broker.asked().await;
    assert!(broker.asked().await.is_none(), "{}", asked.key);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_socket_did_not_take_was_not_sent() {
    let (connection, _broker) = opened().await;
    // Larger than the stream's buffer, and nobody reads.
    let stuck = connection.send_raw(26, 1, vec![Bytes::from(vec![0; 2 << 20])], SECOND);
    let behind = end_txn(&connection, SECOND);
    assert!(stuck.await.unwrap_err().may_have_had_effect());
    assert!(!behind.await.unwrap_err().may_have_had_effect());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_understood_is_an_unknown_outcome() {
    let (connection, mut broker) = opened().await;
    let answer = end_txn(&connection, SECOND);
    let asked = broker.asked().await.unwrap();
    broker.answer(asked.correlation_id, &[0, 0]).await;
    let error = answer.await.unwrap_err();
    assert!(matches!(error, CallError::Malformed { .. }) && error.may_have_had_effect(), "{error}");
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_counts_more_than_it_has_is_refused_and_the_next_one_is_read() {
    let (connection, mut broker) = opened().await;
    let request = DescribeTransactionsRequest::default();
    let answer = connection.call(0, &request, SECOND);
    let asked = broker.asked().await.unwrap();
    // No tags in the header, no throttle, and 4 294 967 294 transactions: hundreds of gigabytes, if room were made.
    broker.answer(asked.correlation_id, &[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]).await;
    let error = answer.await.unwrap_err();
    assert!(matches!(error, CallError::Malformed { .. }), "{error}");
    assert!(error.may_have_had_effect() && error.is_retriable(), "{error}");
    assert_eq!(
        error.to_string(),
        "DescribeTransactions to broker 3: answer not understood, outcome unknown: before byte 9 it counts 4294967294 \
         elements, and has 1 bytes left; ask again, and if it stays so check that broker and what stands between"
    );
    let again = connection.call(0, &request, SECOND);
    let asked = broker.asked().await.unwrap();
    broker.answer(asked.correlation_id, &[0, 0, 0, 0, 0, 1, 0]).await;
    assert!(again.await.unwrap().transaction_states.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_frame_beyond_the_limit_is_not_read() {
    let (connection, mut broker) = opened().await;
    let answer = end_txn(&connection, SECOND);
    broker.asked().await.unwrap();
    broker.0.write_i32(i32::MAX).await.unwrap();
    let error = answer.await.unwrap_err();
    assert!(error.to_string().contains("limit"), "{error}");
    assert!(connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_closed_after_the_idle_time() {
    let (connection, mut broker) = opened().await;
    let start = Host::real().now();
    assert!(broker.asked().await.is_none());
    assert_eq!(Host::real().now() - start, config().idle_timeout);
    let error = end_txn(&connection, SECOND).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent { cause: Cause::Idle, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_last_user_closes_the_connection_but_not_before_its_answer() {
    let (connection, mut broker) = opened().await;
    let answer = end_txn(&connection, SECOND);
    drop(connection);
    let asked = broker.asked().await.unwrap();
    broker.answer(asked.correlation_id, &ENDED).await;
    assert_eq!(answer.await.unwrap().error_code, 0);
    assert!(broker.asked().await.is_none());
}
