//! Frames: what a connection carries. Bytes from the network come in here, and nothing behind it sees a byte that
//! did not fit its frame.
//!
//! ```text
//! frame := length (int32), header, body
//! header of a request:  key (int16), version (int16), correlation id (int32)   v0
//!                       + client id (nullable string)                          v1
//!                       + tagged fields                                        v2
//! header of an answer:  correlation id (int32) [+ tagged fields, v1]; v0 for ApiVersions in every version
//! ```
//!
//! Invariants: no bytes make this panic; memory is made as bytes come in, in proportion to them and never to what a
//! length announces (see [`super::shape`]); a decoded request shares its bytes with the frame.
//!
//! Sources: SocketServer's Processor (`parseRequestHeader`), RequestHeader, KafkaApis (`handleApiVersionsRequest`),
//! KIP-511 for an ApiVersions version that is not known.

use super::{ADVERTISED, Malformed, Request, Response, message::highest, shape};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ApiVersionsResponse, api_versions_response::ApiVersion};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// `socket.request.max.bytes`.
pub const LARGEST_FRAME: usize = 100 * 1024 * 1024;

/// A frame up to this size is read into a buffer of its own size; a larger one into one that grows with what came.
const FIRST_ROOM: usize = 1024 * 1024;

/// UNSUPPORTED_VERSION.
const UNSUPPORTED_VERSION: i16 = 35;

/// What a request says before its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The key, as a number: a proxy passes on what it does not know.
    pub key: i16,
    /// The version of request and answer.
    pub version: i16,
    /// Comes back in the answer's header.
    pub correlation: i32,
    /// What the client calls itself.
    pub client_id: Option<String>,
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is made, once for each request")]
pub enum Incoming {
    /// One that the machine takes.
    Request {
        /// Its header.
        head: Head,
        /// Its body, decoded.
        request: Request,
        /// Its body as it came.
        body: Bytes,
    },
    /// ApiVersions in a version that is not known: answered at once, so that the client asks again in an older one.
    TooNew {
        /// Its header, with the version of the answer.
        head: Head,
        /// The answer.
        answer: ApiVersionsResponse,
    },
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The frame is longer than allowed, or its length is negative.
    #[error("a frame of {0} bytes")]
    Size(i32),
    /// The header is not one.
    #[error("a header that is none")]
    Header,
    /// A key or version that is not advertised. Kafka closes the connection, too.
    #[error("request {key} in version {version} is not supported")]
    Unsupported {
        /// The key.
        key: i16,
        /// The version.
        version: i16,
    },
    /// The body is not what its version defines.
    #[error("request {key} in version {version} is malformed: {source}")]
    Body {
        /// The key.
        key: i16,
        /// The version.
        version: i16,
        /// What is wrong.
        source: Malformed,
    },
}

/// Reads a frame; `None` where the other side has closed in between two of them.
///
/// # Errors
/// The connection broke, or a frame's length is not allowed ([`Refused`] inside).
pub async fn read(from: &mut (impl AsyncRead + Unpin), largest: usize) -> io::Result<Option<Bytes>> {
    let mut length = [0; 4];
    if from.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut length[1..]).await?;
    let announced = i32::from_be_bytes(length);
    let size = usize::try_from(announced)
        .ok()
        .filter(|size| *size <= largest)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, Refused::Size(announced)))?;
    let mut frame = BytesMut::with_capacity(size.min(FIRST_ROOM));
    let mut from = from.take(size as u64);
    while frame.len() < size {
        if frame.len() == frame.capacity() {
            frame.reserve(frame.len().min(size - frame.len()));
        }
        if from.read_buf(&mut frame).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(frame.freeze()))
}

/// Reads a request's header; the rest of the frame is its body.
///
/// # Errors
/// There is no whole header.
pub fn head(frame: &mut Bytes) -> Result<Head, Refused> {
    let key = frame.try_get_i16().map_err(|_| Refused::Header)?;
    let version = frame.try_get_i16().map_err(|_| Refused::Header)?;
    let correlation = frame.try_get_i32().map_err(|_| Refused::Header)?;
    let of = match ApiKey::try_from(key) {
        Ok(known) => known.request_header_version(version),
        Err(()) => return Err(Refused::Unsupported { key, version }),
    };
    let client_id = if of >= 1 { nullable_string(frame)? } else { None };
    if of >= 2 {
        skip_tags(frame)?;
    }
    Ok(Head { key, version, correlation, client_id })
}

/// Decodes a frame.
///
/// # Errors
/// What makes Kafka close a connection.
pub fn decode(mut frame: Bytes, unstable: bool) -> Result<Incoming, Refused> {
    let head = head(&mut frame)?;
    let Head { key, version, .. } = head;
    let unsupported = Refused::Unsupported { key, version };
    let Ok(known) = ApiKey::try_from(key) else { return Err(unsupported) };
    let Some((_, range)) = ADVERTISED.iter().find(|(advertised, _)| *advertised == known) else {
        return Err(unsupported);
    };
    if !(range.min..=highest(known, range, unstable)).contains(&version) {
        return match known {
            ApiKey::ApiVersions => {
                Ok(Incoming::TooNew { head: Head { version: 0, ..head }, answer: too_new() })
            }
            _ => Err(unsupported),
        };
    }
    let body = frame.clone();
    let request = body_of(known, version, frame).map_err(|source| Refused::Body { key, version, source })?;
    Ok(Incoming::Request { head, request, body })
}

/// Decodes a request's body, after a look at its lengths.
///
/// # Errors
/// It is not what the version defines.
pub fn body_of(key: ApiKey, version: i16, mut body: Bytes) -> Result<Request, Malformed> {
    if shape::check(key, version, &body).is_none() {
        return Err(Malformed("a length or the end is not where its schema has it".into()));
    }
    Request::decode(key, version, &mut body).unwrap_or_else(|| Err(Malformed("not advertised".into())))
}

/// An answer's frame.
///
/// # Errors
/// A field is set that the version cannot hold.
pub fn answer(correlation: i32, version: i16, response: &Response) -> Result<Bytes, Malformed> {
    let mut frame = BytesMut::with_capacity(512);
    frame.put_i32(0);
    frame.put_i32(correlation);
    if response.key().response_header_version(version) >= 1 {
        frame.put_u8(0);
    }
    response.encode(version, &mut frame)?;
    finish(frame)
}

/// Sets the length of a frame that begins with room for it.
pub(crate) fn finish(mut frame: BytesMut) -> Result<Bytes, Malformed> {
    let size = frame.len() - 4;
    let size = i32::try_from(size).map_err(|_| Malformed(format!("an answer of {size} bytes")))?;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    Ok(frame.freeze())
}

/// UNSUPPORTED_VERSION in a body of version 0, with the versions of ApiVersions (KIP-511).
fn too_new() -> ApiVersionsResponse {
    let keys = ADVERTISED
        .iter()
        .filter(|(key, _)| *key == ApiKey::ApiVersions)
        .map(|(key, range)| {
            ApiVersion::default()
                .with_api_key(*key as i16)
                .with_min_version(range.min)
                .with_max_version(range.max)
        })
        .collect();
    ApiVersionsResponse::default().with_error_code(UNSUPPORTED_VERSION).with_api_keys(keys)
}

fn nullable_string(frame: &mut Bytes) -> Result<Option<String>, Refused> {
    let length = frame.try_get_i16().map_err(|_| Refused::Header)?;
    if length == -1 {
        return Ok(None);
    }
    let length =
        usize::try_from(length).ok().filter(|length| *length <= frame.len()).ok_or(Refused::Header)?;
    let bytes = frame.split_to(length);
    std::str::from_utf8(&bytes).map(|text| Some(text.to_owned())).map_err(|_| Refused::Header)
}

fn skip_tags(frame: &mut Bytes) -> Result<(), Refused> {
    for _ in 0..varint(frame)? {
        varint(frame)?;
        let size = varint(frame)? as usize;
        if size > frame.len() {
            return Err(Refused::Header);
        }
        frame.advance(size);
    }
    Ok(())
}

fn varint(frame: &mut Bytes) -> Result<u32, Refused> {
    let mut value = 0;
    for place in 0..5 {
        let byte = frame.try_get_u8().map_err(|_| Refused::Header)?;
        value |= u32::from(byte & 0x7f) << (place * 7);
        if byte < 0x80 {
            break;
        }
    }
    Ok(value)
}
