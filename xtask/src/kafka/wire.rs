//! The few raw requests that tell whether a broker really answers, and what its transaction coordinator holds.
//!
//! Written by hand from Kafka's message definitions (`clients/src/main/resources/common/message/`), blocking,
//! one connection a question, so that a mistake of the client under test cannot hide here. Knows the oldest
//! request versions that both Kafka lines still accept.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::transaction::ListedTransaction;

const TIMEOUT: Duration = Duration::from_secs(5);
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

const METADATA: i16 = 3;
const FIND_COORDINATOR: i16 = 10;
const API_VERSIONS: i16 = 18;
const LIST_TRANSACTIONS: i16 = 66;

/// A broker as another one names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broker {
    pub(super) id: i32,
    pub(super) address: String,
}

/// What a coordinator is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum CoordinatorKind {
    Group = 0,
    Transaction = 1,
}

/// Asks ApiVersions: the broker serves requests.
pub(super) fn api_versions(address: &str) -> io::Result<()> {
    let answer = ask(address, API_VERSIONS, 0, Header::Plain, &[])?;
    check("ApiVersions", Reader(&answer).i16()?)
}

/// A cluster as the broker at `address` sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    /// The brokers that it believes alive.
    pub(super) brokers: Vec<Broker>,
    /// Of the topic that was asked for, if it exists: leader (-1 for none) and leader epoch by partition.
    pub(super) leaders: Vec<(i32, i32, i32)>,
}

/// Who is alive, and who leads the partitions of `topic`, if any is named.
pub(super) fn view(address: &str, topic: Option<&str>) -> io::Result<View> {
    let mut body = i32::from(topic.is_some()).to_be_bytes().to_vec();
    if let Some(topic) = topic {
        body.extend_from_slice(&(topic.len() as i16).to_be_bytes());
        body.extend_from_slice(topic.as_bytes());
    }
    body.push(0); // asking creates no topic
    let answer = ask(address, METADATA, 7, Header::Plain, &body)?;
    let mut reader = Reader(&answer);
    reader.i32()?;
    let mut brokers = Vec::new();
    for _ in 0..reader.i32()? {
        let (id, host, port) = (reader.i32()?, reader.string()?, reader.i32()?);
        reader.string()?;
        brokers.push(Broker { id, address: format!("{}:{port}", host.unwrap_or_default()) });
    }
    let (_cluster, _controller) = (reader.string()?, reader.i32()?);
    let mut leaders = Vec::new();
    for _ in 0..reader.i32()? {
        let (_error, _name, _internal) = (reader.i16()?, reader.string()?, reader.take(1)?);
        for _ in 0..reader.i32()? {
            let (_error, partition) = (reader.i16()?, reader.i32()?);
            leaders.push((partition, reader.i32()?, reader.i32()?));
            for _replicas_in_sync_offline in 0..3 {
                for _ in 0..reader.i32()? {
                    reader.i32()?;
                }
            }
        }
    }
    leaders.sort_unstable();
    Ok(View { brokers, leaders })
}

/// Has the coordinator for `key` looked up, which also creates the coordinator's internal topic.
pub(super) fn find_coordinator(address: &str, kind: CoordinatorKind, key: &str) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend_from_slice(&(key.len() as i16).to_be_bytes());
    body.extend_from_slice(key.as_bytes());
    body.push(kind as u8);
    let answer = ask(address, FIND_COORDINATOR, 1, Header::Plain, &body)?;
    let mut reader = Reader(&answer);
    reader.i32()?;
    check(&format!("FindCoordinator for a {kind:?}"), reader.i16()?)
}

/// The transactions whose coordinator is the broker at `address`.
pub(super) fn list_transactions(address: &str) -> io::Result<Vec<ListedTransaction>> {
    let no_filters = [1, 1, 0]; // two empty compact arrays, no tagged fields
    let answer = ask(address, LIST_TRANSACTIONS, 0, Header::Flexible, &no_filters)?;
    let mut reader = Reader(&answer);
    reader.i32()?;
    check("ListTransactions", reader.i16()?)?;
    for _ in 0..reader.compact_length()? {
        reader.compact_string()?;
    }
    let mut listed = Vec::new();
    for _ in 0..reader.compact_length()? {
        let id = reader.compact_string()?;
        let producer_id = reader.i64()?;
        let state = reader.compact_string()?;
        reader.no_tags()?;
        listed.push(ListedTransaction { id, producer_id, state });
    }
    Ok(listed)
}

fn check(request: &str, code: i16) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::other(format!("{request} answered error {code}"))),
    }
}

/// The two forms of a request's header and its answer's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    Plain,
    /// Ends with tagged fields.
    Flexible,
}

/// Sends one request and returns the body of its answer.
fn ask(address: &str, key: i16, version: i16, header: Header, body: &[u8]) -> io::Result<Vec<u8>> {
    let address: SocketAddr = address.parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{address:?} is no IP address with a port"))
    })?;
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
    if header == Header::Flexible {
        frame.push(0);
    }
    frame.extend_from_slice(body);
    stream.write_all(&(frame.len() as i32).to_be_bytes())?;
    stream.write_all(&frame)?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = usize::try_from(i32::from_be_bytes(size)).map_err(|_| damaged())?;
    let skipped = if header == Header::Flexible { 5 } else { 4 };
    if !(skipped..=LARGEST_ANSWER).contains(&size) {
        return Err(damaged());
    }
    let mut answer = vec![0; size];
    stream.read_exact(&mut answer)?;
    Ok(answer.split_off(skipped))
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

    fn i64(&mut self) -> io::Result<i64> {
        let bytes = self.take(8)?.try_into().map_err(|_| damaged())?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// A string with a length of two bytes, -1 for null.
    fn string(&mut self) -> io::Result<Option<String>> {
        match usize::try_from(self.i16()?) {
            Ok(length) => self.take(length).map(|bytes| Some(String::from_utf8_lossy(bytes).into_owned())),
            Err(_) => Ok(None),
        }
    }

    /// The length of a compact array or string: an unsigned varint that is one more, 0 for null.
    fn compact_length(&mut self) -> io::Result<usize> {
        let mut value = 0_usize;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?[0];
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value.saturating_sub(1));
            }
        }
        Err(damaged())
    }

    fn compact_string(&mut self) -> io::Result<String> {
        let length = self.compact_length()?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    /// No message that is read here has a tagged field.
    fn no_tags(&mut self) -> io::Result<()> {
        if self.take(1)? == [0] { Ok(()) } else { Err(damaged()) }
    }
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the broker's answer is not what the request's version defines",
    )
}
