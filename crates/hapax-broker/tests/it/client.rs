//! A client of raw frames.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hapax_broker::wire::{Request, Response};
use kafka_protocol::{
    messages::{
        ApiKey, ApiVersionsRequest, CreateTopicsRequest, EndTxnRequest, FindCoordinatorRequest,
        InitProducerIdRequest, InitProducerIdResponse, MetadataRequest, MetadataResponse, ProducerId,
        RequestHeader, TopicName, TransactionalId, create_topics_request::CreatableTopic,
        metadata_request::MetadataRequestTopic,
    },
    protocol::{Encodable, StrBytes},
};
use std::{
    io,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Longer than anything in these tests takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client<S> {
    pub(crate) stream: S,
    correlation: i32,
    client_id: String,
}

impl Client<TcpStream> {
    pub(crate) async fn connect(address: &str) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, correlation: 0, client_id: "test".into() }
    }

    pub(crate) fn named(mut self, client_id: &str) -> Self {
        self.client_id = client_id.into();
        self
    }

    pub(crate) async fn send(&mut self, version: i16, request: impl Into<Request>) -> ApiKey {
        let request = request.into();
        self.correlation += 1;
        let frame = frame(self.correlation, &self.client_id, version, &request);
        self.stream.write_all(&frame).await.unwrap();
        request.key()
    }

    /// The next frame, without its length.
    pub(crate) async fn frame(&mut self) -> io::Result<Bytes> {
        let read = async {
            let length = self.stream.read_i32().await?;
            let mut frame = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut frame).await?;
            Ok(frame.into())
        };
        timeout(PATIENCE, read).await.expect("an answer in time")
    }

    pub(crate) async fn receive(&mut self, key: ApiKey, version: i16) -> io::Result<Response> {
        let mut frame = self.frame().await?;
        assert_eq!(frame.get_i32(), self.correlation);
        if key.response_header_version(version) >= 1 {
            assert_eq!(frame.get_u8(), 0);
        }
        Ok(Response::decode(key, version, &mut frame).unwrap().unwrap())
    }

    pub(crate) async fn try_ask(
        &mut self,
        version: i16,
        request: impl Into<Request>,
    ) -> io::Result<Response> {
        let key = self.send(version, request).await;
        self.receive(key, version).await
    }

    pub(crate) async fn ask(&mut self, version: i16, request: impl Into<Request>) -> Response {
        self.try_ask(version, request).await.unwrap()
    }

    pub(crate) async fn metadata(&mut self, topics: &[&str]) -> MetadataResponse {
        match self.ask(12, metadata(topics)).await {
            Response::Metadata(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn create_topic(&mut self, name: &str, partitions: i32) {
        let topic = CreatableTopic::default()
            .with_name(topic(name))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000);
        match self.ask(7, request).await {
            Response::CreateTopics(answer) => assert_eq!(answer.topics[0].error_code, 0),
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a producer id until the coordinator is there.
    pub(crate) async fn init_producer(&mut self, id: &str) -> InitProducerIdResponse {
        for _ in 0..200 {
            let find = FindCoordinatorRequest::default()
                .with_key_type(1)
                .with_coordinator_keys(vec![StrBytes::from_string(id.into())]);
            self.ask(4, find).await;
            let Response::InitProducerId(answer) = self.ask(4, init(id)).await else {
                panic!("another answer")
            };
            if ![14, 15, 16, 51].contains(&answer.error_code) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no producer id for {id}");
    }

    /// The connection ends without another byte.
    pub(crate) async fn assert_closed(&mut self) {
        let mut byte = [0];
        match timeout(PATIENCE, self.stream.read(&mut byte)).await.expect("an end in time") {
            Ok(read) => assert_eq!(read, 0, "the connection says something"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    /// The connection stays open and says nothing.
    pub(crate) async fn assert_silent(&mut self) {
        let mut byte = [0];
        let read = timeout(Duration::from_millis(150), self.stream.read(&mut byte)).await;
        assert!(read.is_err(), "the connection says something, or ends");
    }
}

pub(crate) fn frame(correlation: i32, client_id: &str, version: i16, request: &Request) -> Bytes {
    let key = request.key();
    let header = RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(StrBytes::from_string(client_id.into())));
    let mut bytes = BytesMut::new();
    bytes.put_i32(0);
    header.encode(&mut bytes, key.request_header_version(version)).unwrap();
    request.encode(version, &mut bytes).unwrap();
    let length = i32::try_from(bytes.len() - 4).unwrap();
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes.freeze()
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.into()))
}

pub(crate) fn metadata(topics: &[&str]) -> MetadataRequest {
    let named = |name: &&str| MetadataRequestTopic::default().with_name(Some(topic(name)));
    MetadataRequest::default()
        .with_topics(Some(topics.iter().map(named).collect()))
        .with_allow_auto_topic_creation(false)
}

pub(crate) fn api_versions() -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("test"))
        .with_client_software_version(StrBytes::from_static_str("1"))
}

pub(crate) fn transactional_id(id: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(id.into()))
}

pub(crate) fn init(id: &str) -> InitProducerIdRequest {
    InitProducerIdRequest::default()
        .with_transactional_id(Some(transactional_id(id)))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1)
}

pub(crate) fn end(id: &str, commit: bool) -> EndTxnRequest {
    EndTxnRequest::default().with_transactional_id(transactional_id(id)).with_committed(commit)
}

pub(crate) fn error_of_end(response: &Response) -> i16 {
    match response {
        Response::EndTxn(answer) => answer.error_code,
        other => panic!("{other:?}"),
    }
}

/// A folder that is removed at the end of a test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hapax-broker-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
