//! The seam to the message codec: requests and responses as bytes.
//!
//! Owns request and response headers (response header 0 for ApiVersions always, KIP-511) and which messages can be
//! called. The codec's own errors stop here, it sees no answer before its lengths were looked at (`shape`), and its types
//! for record batches are never used: batches travel as `Bytes`.

mod shape;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::{
    messages as m,
    protocol::{Decodable, Encodable, HeaderVersion, StrBytes},
};

/// A request that can be called.
pub trait Request {
    /// Kafka's API key.
    const KEY: i16;
    /// Kafka's name of the request.
    const NAME: &'static str;
    /// What answers it.
    type Response: Decodable + HeaderVersion + Send + 'static;

    /// The body, without header.
    ///
    /// # Errors
    /// The message has a value that the version cannot carry.
    fn body(&self, version: i16) -> Result<Bytes, WireError>;
}

macro_rules! requests {
    ($($key:literal $name:literal $request:ident -> $response:ident;)*) => {
        $(impl Request for m::$request {
            const KEY: i16 = $key;
            const NAME: &'static str = $name;
            type Response = m::$response;

            fn body(&self, version: i16) -> Result<Bytes, WireError> {
                encoded(self, version, $name)
            }
        })*

        /// Kafka's name of an API key, for messages.
        pub fn api_name(key: i16) -> &'static str {
            match key {
                $($key => $name,)*
                _ => "request",
            }
        }

        /// The header version of `request` and `response` of an API at a version; `None` for an API not listed here.
        pub(crate) fn header_versions(key: i16, version: i16) -> Option<(i16, i16)> {
            match key {
                $($key => Some((m::$request::header_version(version), m::$response::header_version(version))),)*
                _ => None,
            }
        }
    };
}

requests! {
    0 "Produce" ProduceRequest -> ProduceResponse;
    1 "Fetch" FetchRequest -> FetchResponse;
    2 "ListOffsets" ListOffsetsRequest -> ListOffsetsResponse;
    3 "Metadata" MetadataRequest -> MetadataResponse;
    8 "OffsetCommit" OffsetCommitRequest -> OffsetCommitResponse;
    9 "OffsetFetch" OffsetFetchRequest -> OffsetFetchResponse;
    10 "FindCoordinator" FindCoordinatorRequest -> FindCoordinatorResponse;
    18 "ApiVersions" ApiVersionsRequest -> ApiVersionsResponse;
    19 "CreateTopics" CreateTopicsRequest -> CreateTopicsResponse;
    20 "DeleteTopics" DeleteTopicsRequest -> DeleteTopicsResponse;
    22 "InitProducerId" InitProducerIdRequest -> InitProducerIdResponse;
    23 "OffsetForLeaderEpoch" OffsetForLeaderEpochRequest -> OffsetForLeaderEpochResponse;
    24 "AddPartitionsToTxn" AddPartitionsToTxnRequest -> AddPartitionsToTxnResponse;
    25 "AddOffsetsToTxn" AddOffsetsToTxnRequest -> AddOffsetsToTxnResponse;
    26 "EndTxn" EndTxnRequest -> EndTxnResponse;
    27 "WriteTxnMarkers" WriteTxnMarkersRequest -> WriteTxnMarkersResponse;
    28 "TxnOffsetCommit" TxnOffsetCommitRequest -> TxnOffsetCommitResponse;
    32 "DescribeConfigs" DescribeConfigsRequest -> DescribeConfigsResponse;
    37 "CreatePartitions" CreatePartitionsRequest -> CreatePartitionsResponse;
    61 "DescribeProducers" DescribeProducersRequest -> DescribeProducersResponse;
    65 "DescribeTransactions" DescribeTransactionsRequest -> DescribeTransactionsResponse;
    66 "ListTransactions" ListTransactionsRequest -> ListTransactionsResponse;
}

/// Why bytes could not be made or read; a reason in words, since only people act on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WireError(pub String);

fn encoded(request: &impl Encodable, version: i16, name: &str) -> Result<Bytes, WireError> {
    let mut body = BytesMut::new();
    request
        .encode(&mut body, version)
        .map_err(|why| WireError(format!("{name} version {version}: {why:#}")))?;
    Ok(body.freeze())
}

/// Reads the body of what answers a request, with memory in proportion to its bytes. Bytes behind it are an error: they
/// would mean that it was read wrongly.
///
/// # Errors
/// The bytes are not a response of this version.
pub fn decode_body<R: Request>(version: i16, mut body: Bytes) -> Result<R::Response, WireError> {
    shape::check(R::KEY, version, &body)?;
    let response = R::Response::decode(&mut body, version).map_err(|why| WireError(format!("{why:#}")))?;
    if body.has_remaining() {
        return Err(WireError(format!("{} bytes too many", body.remaining())));
    }
    Ok(response)
}

/// Frame length and header of a request whose body has `body_length` bytes.
pub(crate) fn request_head(
    (key, version, header_version): (i16, i16, i16),
    correlation_id: i32,
    client_id: &str,
    body_length: usize,
) -> Option<Bytes> {
    let client_id_length = i16::try_from(client_id.len()).ok()?;
    let tags = usize::from(header_version >= 2);
    let length = 2 + 2 + 4 + 2 + client_id.len() + tags + body_length;
    let mut head = BytesMut::with_capacity(4 + length - body_length);
    head.put_i32(i32::try_from(length).ok()?);
    head.put_i16(key);
    head.put_i16(version);
    head.put_i32(correlation_id);
    head.put_i16(client_id_length);
    head.put_slice(client_id.as_bytes());
    if header_version >= 2 {
        head.put_u8(0);
    }
    Some(head.freeze())
}

/// The correlation id of a response frame (its length prefix removed); what is left starts with the header's tags.
pub(crate) fn take_correlation_id(frame: &mut Bytes) -> Option<i32> {
    (frame.len() >= 4).then(|| frame.get_i32())
}

/// Skips the rest of the response header: an unknown number of tagged fields from version 1 on.
pub(crate) fn skip_response_tags(header_version: i16, frame: &mut Bytes) -> Result<(), WireError> {
    if header_version == 0 {
        return Ok(());
    }
    let short = || WireError("the response header is cut short".to_owned());
    for _ in 0..take_varint(frame).ok_or_else(short)? {
        take_varint(frame).ok_or_else(short)?;
        let length = take_varint(frame).ok_or_else(short)? as usize;
        if frame.len() < length {
            return Err(short());
        }
        frame.advance(length);
    }
    Ok(())
}

fn take_varint(bytes: &mut Bytes) -> Option<u32> {
    let mut value = 0_u32;
    for shift in (0..35).step_by(7) {
        if !bytes.has_remaining() {
            return None;
        }
        let byte = bytes.get_u8();
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Text for a message field.
pub fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_api_versions_has_header_version_zero_whatever_its_version() {
        for version in 0..=4 {
            assert_eq!(header_versions(18, version).unwrap().1, 0);
        }
        assert_eq!(header_versions(26, 5), Some((2, 1)));
        assert_eq!(header_versions(26, 1), Some((1, 0)));
    }

    #[test]
    fn the_head_counts_the_body() {
        let head = request_head((26, 5, 2), 7, "hapax", 100).unwrap();
        assert_eq!(head[..4], (u32::try_from(head.len() - 4 + 100).unwrap()).to_be_bytes());
        assert_eq!(head[head.len() - 1], 0);
        assert_eq!(request_head((26, 1, 1), 7, "hapax", 100).unwrap().len(), head.len() - 1);
    }

    #[test]
    fn damaged_header_tags_are_an_error() {
        for damaged in [&[][..], &[1], &[1, 0], &[1, 0, 5, 1], &[0x80, 0x80, 0x80, 0x80, 0x80, 1]] {
            assert!(skip_response_tags(1, &mut Bytes::copy_from_slice(damaged)).is_err(), "{damaged:?}");
        }
        let mut frame = Bytes::from_static(&[1, 9, 2, 5, 5, 42]);
        skip_response_tags(1, &mut frame).unwrap();
        assert_eq!(frame, [42][..]);
    }

    #[test]
    fn a_response_with_bytes_behind_it_is_refused() {
        let mut body = vec![0, 0, 0, 0, 0, 0];
        assert!(decode_body::<m::EndTxnRequest>(1, body.clone().into()).is_ok());
        body.push(0);
        assert!(decode_body::<m::EndTxnRequest>(1, body.into()).is_err());
    }
}
