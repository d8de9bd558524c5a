//! Which node stands behind an address, asked of the node itself before its first client is served: rules for a node
//! hold from the first request on.

use crate::wire::{Request, Response, frame};
use bytes::{Buf, BufMut, BytesMut};
use kafka_protocol::messages::{ApiKey, MetadataRequest, MetadataResponse};
use std::{io, time::Duration};
use tokio::{io::AsyncWriteExt, time::timeout};

/// A version that every cluster knows, and that asks for no topics with an empty list.
const VERSION: i16 = 4;

/// A node that does not answer by then is served all the same, without a number.
const PATIENCE: Duration = Duration::from_secs(1);

/// A cluster's list of nodes is no longer than this.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

/// The number of the node behind an address; `None` where its cluster does not tell of this address.
pub(super) async fn identify(upstream: &(String, u16)) -> Option<i32> {
    let (host, port) = upstream;
    match timeout(PATIENCE, ask(upstream)).await {
        Ok(Ok(cluster)) => node_of(&cluster, upstream),
        Ok(Err(error)) => {
            tracing::debug!(host, port, %error, "the node behind the proxy does not say which it is");
            None
        }
        Err(_) => {
            tracing::debug!(host, port, "the node behind the proxy does not say in time which it is");
            None
        }
    }
}

fn node_of(cluster: &MetadataResponse, (host, port): &(String, u16)) -> Option<i32> {
    let mut named = cluster.brokers.iter();
    let found = named.find(|node| node.host.as_str() == host && node.port == i32::from(*port));
    // The only node stands behind every name of its cluster.
    let only = cluster.brokers.first().filter(|_| cluster.brokers.len() == 1);
    found.or(only).map(|node| node.node_id.0)
}

#[allow(
    clippy::disallowed_types,
    reason = "the proxy stands beside the system under test, with sockets of its own"
)]
async fn ask((host, port): &(String, u16)) -> io::Result<MetadataResponse> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut node = tokio::net::TcpStream::connect((host.as_str(), *port)).await?;
    let request =
        MetadataRequest::default().with_topics(Some(Vec::new())).with_allow_auto_topic_creation(false);
    let mut bytes = BytesMut::new();
    bytes.put_i32(0);
    bytes.put_i16(ApiKey::Metadata as i16);
    bytes.put_i16(VERSION);
    bytes.put_i32(0);
    // No client id.
    bytes.put_i16(-1);
    Request::from(request).encode(VERSION, &mut bytes).map_err(|error| invalid(error.to_string()))?;
    let bytes = frame::finish(bytes).map_err(|error| invalid(error.to_string()))?;
    node.write_all(&bytes).await?;
    let mut answer = frame::read(&mut node, LARGEST_ANSWER).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    answer.try_get_i32().map_err(|_| io::ErrorKind::UnexpectedEof)?;
    match Response::decode(ApiKey::Metadata, VERSION, &mut answer) {
        Some(Ok(Response::Metadata(cluster))) => Ok(cluster),
        Some(Err(error)) => Err(invalid(error.to_string())),
        Some(Ok(_)) | None => Err(invalid("another answer".to_owned())),
    }
}
