//! The few raw requests that tell whether a broker really answers, and what its transaction coordinator holds.
//!
//! Written by hand from Kafka's message definitions (`clients/src/main/resources/common/message/`), blocking,
//! one connection a question, so that a mistake of the client under test cannot hide here. Knows the oldest
//! request versions that both Kafka lines still accept.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

const METADATA: i16 = 3;
const FIND_COORDINATOR: i16 = 10;
const API_VERSIONS: i16 = 18;

/// What a coordinator is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum CoordinatorKind {
    Group = 0,
    Transaction = 1,
}

/// Asks ApiVersions: the broker serves requests.
pub(super) fn api_versions(port: u16) -> io::Result<()> {
    let answer = ask(port, API_VERSIONS, 0, &[])?;
    match Reader(&answer).i16()? {
        0 => Ok(()),
        code => Err(io::Error::other(format!("ApiVersions answered error {code}"))),
    }
}

/// The node ids that the broker at `port` believes alive.
pub(super) fn alive_nodes(port: u16) -> io::Result<Vec<i32>> {
    let no_topics = 0_i32.to_be_bytes();
    let answer = ask(port, METADATA, 1, &no_topics)?;
    let mut reader = Reader(&answer);
    let mut nodes = Vec::new();
    for _ in 0..reader.i32()? {
        nodes.push(reader.i32()?);
        reader.string()?;
        reader.i32()?;
        reader.string()?;
    }
    nodes.sort_unstable();
    Ok(nodes)
}

/// Has the coordinator for `key` looked up, which also creates the coordinator's internal topic.
pub(super) fn find_coordinator(port: u16, kind: CoordinatorKind, key: &str) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend_from_slice(&(key.len() as i16).to_be_bytes());
    body.extend_from_slice(key.as_bytes());
    body.push(kind as u8);
    let answer = ask(port, FIND_COORDINATOR, 1, &body)?;
    let mut reader = Reader(&answer);
    reader.i32()?;
    match reader.i16()? {
        0 => Ok(()),
        code => Err(io::Error::other(format!("FindCoordinator for a {kind:?} answered error {code}"))),
    }
}

/// Sends one request of a not flexible version and returns the body of its answer.
fn ask(port: u16, key: i16, version: i16, body: &[u8]) -> io::Result<Vec<u8>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let correlation = 1_i32;
    let client = b"xtask";
    let mut frame = Vec::new();
    frame.extend_from_slice(&key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&correlation.to_be_bytes());
    frame.extend_from_slice(&(client.len() as i16).to_be_bytes());
    frame.extend_from_slice(client);
    frame.extend_from_slice(body);
    stream.write_all(&(frame.len() as i32).to_be_bytes())?;
    stream.write_all(&frame)?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = usize::try_from(i32::from_be_bytes(size)).map_err(|_| damaged())?;
    if !(4..=LARGEST_ANSWER).contains(&size) {
        return Err(damaged());
    }
    let mut answer = vec![0; size];
    stream.read_exact(&mut answer)?;
    Ok(answer.split_off(4))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(head)
    }

    fn i16(&mut self) -> io::Result<i16> {
        let bytes = self.take(2)?.try_into().map_err(|_| damaged())?;
        Ok(i16::from_be_bytes(bytes))
    }

    fn i32(&mut self) -> io::Result<i32> {
        let bytes = self.take(4)?.try_into().map_err(|_| damaged())?;
        Ok(i32::from_be_bytes(bytes))
    }

    /// A string with a length of two bytes, -1 for null.
    fn string(&mut self) -> io::Result<Option<&'a [u8]>> {
        match usize::try_from(self.i16()?) {
            Ok(length) => self.take(length).map(Some),
            Err(_) => Ok(None),
        }
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the broker's answer is not what the request's version defines")
}
