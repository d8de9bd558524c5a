//! Raw frames to whatever cluster stands behind a bootstrap address: encoded by `kafka-protocol`, one connection a
//! node, no client behind it that retries, caches or corrects.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hapax_broker::wire::{Request, Response};
use kafka_protocol::{
    messages::{RequestHeader, ResponseHeader},
    protocol::{Decodable, Encodable, StrBytes},
};
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Connections to the nodes of a cluster, by address.
pub(crate) struct Peer {
    bootstrap: String,
    connections: BTreeMap<String, TcpStream>,
    correlation: i32,
}

impl Peer {
    pub(crate) fn new(bootstrap: &str) -> Self {
        Self { bootstrap: bootstrap.to_owned(), connections: BTreeMap::new(), correlation: 0 }
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.bootstrap.clone()
    }

    /// Asks the node at an address. An answer that does not come is the test's failure.
    pub(crate) fn ask(&mut self, address: &str, version: i16, request: impl Into<Request>) -> Response {
        let request = request.into();
        match self.exchange(address, version, &request) {
            Ok(response) => response,
            Err(error) => panic!("{:?} v{version} at {address}: {error}", request.key()),
        }
    }

    /// As [`Peer::ask`], where the node may hang up.
    pub(crate) fn exchange(
        &mut self,
        address: &str,
        version: i16,
        request: &Request,
    ) -> io::Result<Response> {
        self.correlation += 1;
        let frame = frame(self.correlation, version, request);
        let answered = self.round(address, &frame);
        let mut answer = answered.inspect_err(|_| drop(self.connections.remove(address)))?;
        let key = request.key();
        ResponseHeader::decode(&mut answer, key.response_header_version(version))
            .map_err(io::Error::other)?;
        let response =
            Response::decode(key, version, &mut answer).expect("every key asked for is one of ours");
        assert!(!answer.has_remaining(), "{key:?} v{version}: the answer is longer than its version defines");
        response.map_err(io::Error::other)
    }

    fn round(&mut self, address: &str, frame: &[u8]) -> io::Result<Bytes> {
        if !self.connections.contains_key(address) {
            let stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_nodelay(true)?;
            self.connections.insert(address.to_owned(), stream);
        }
        let stream = self.connections.get_mut(address).expect("it was connected above");
        stream.write_all(frame)?;
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let mut answer = vec![0; u32::from_be_bytes(size) as usize];
        stream.read_exact(&mut answer)?;
        Ok(answer.into())
    }
}

fn frame(correlation: i32, version: i16, request: &Request) -> BytesMut {
    let header = RequestHeader::default()
        .with_request_api_key(request.key() as i16)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(StrBytes::from_static_str("conformance")));
    let mut body = BytesMut::new();
    header.encode(&mut body, request.key().request_header_version(version)).unwrap();
    request.encode(version, &mut body).unwrap();
    let mut frame = BytesMut::new();
    frame.put_u32(body.len() as u32);
    frame.put(body);
    frame
}
