//! Raw frames to whatever cluster stands behind a bootstrap address: encoded by `kafka-protocol`, one connection a
//! node, no client behind it that retries, caches or corrects.

use super::answer::codes;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use hapax_broker::wire::{Request, Response};
use kafka_protocol::{
    messages::{ApiKey, ApiVersionsRequest, RequestHeader, ResponseHeader},
    protocol::{Decodable, Encodable, StrBytes},
};
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::TcpStream,
    sync::{Mutex, PoisonError},
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Connections to the nodes of a cluster, by address.
pub(crate) struct Peer {
    bootstrap: String,
    connections: BTreeMap<String, TcpStream>,
    correlation: i32,
    tally: Tally,
}

/// How often something was answered: an error code of a request, a state of a transaction or group.
pub(crate) type Tally = BTreeMap<String, u64>;

impl Peer {
    pub(crate) fn new(bootstrap: &str) -> Self {
        Self {
            bootstrap: bootstrap.to_owned(),
            connections: BTreeMap::new(),
            correlation: 0,
            tally: Tally::new(),
        }
    }

    pub(crate) fn tally(self) -> Tally {
        self.tally
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
        static ASKS_COORDINATOR: Mutex<()> = Mutex::new(());
        self.correlation += 1;
        let frame = frame(self.correlation, version, request);
        // What a leader has to ask of a coordinator it asks for several producers at once, and then tells all of them
        // what the version of the first one understands: one at a time, or the answers are those of a race.
        let asks = [ApiKey::Produce, ApiKey::TxnOffsetCommit].contains(&request.key());
        let _alone = asks.then(|| ASKS_COORDINATOR.lock().unwrap_or_else(PoisonError::into_inner));
        let answered = self.round(address, &frame);
        let mut answer = answered.inspect_err(|_| drop(self.connections.remove(address)))?;
        let key = request.key();
        ResponseHeader::decode(&mut answer, key.response_header_version(version))
            .map_err(io::Error::other)?;
        let response =
            Response::decode(key, version, &mut answer).expect("every key asked for is one of ours");
        assert!(!answer.has_remaining(), "{key:?} v{version}: the answer is longer than its version defines");
        let response = response.map_err(io::Error::other)?;
        self.count(&response);
        Ok(response)
    }

    /// Sends a request and closes the connection when the answer is under way: an answer that was lost.
    pub(crate) fn lose_answer(&mut self, address: &str, version: i16, request: impl Into<Request>) {
        let request = request.into();
        self.connections.remove(address);
        let answer = self.exchange(address, version, &request);
        self.connections.remove(address);
        drop(answer.unwrap());
    }

    /// Sends a request that is not answered; whether the connection goes on.
    pub(crate) fn send_only(&mut self, address: &str, version: i16, request: impl Into<Request>) -> bool {
        let frame = frame(0, version, &request.into());
        self.connections.remove(address);
        let probe = Request::from(ApiVersionsRequest::default());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&frame).unwrap();
        self.connections.insert(address.to_owned(), stream);
        self.exchange(address, 0, &probe).is_ok()
    }

    fn count(&mut self, response: &Response) {
        let key = response.key();
        let shown = format!("{response:?}");
        for code in codes(&shown) {
            *self.tally.entry(format!("code {key:?} {code}")).or_default() += 1;
        }
        for field in ["transaction_state: ", "group_state: "] {
            for state in shown.split(field).skip(1).filter_map(|rest| rest.split('"').nth(1)) {
                *self
                    .tally
                    .entry(format!("state {} {state}", field.trim_end_matches("_state: ")))
                    .or_default() += 1;
            }
        }
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
