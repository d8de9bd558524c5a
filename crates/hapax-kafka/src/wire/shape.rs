//! What an answer looks like, walked before any of it is decoded.
//!
//! The message codec makes room for an array as soon as it has read its length, so five damaged bytes could ask for
//! gigabytes and end the process. [`check`] walks the body by its schema first, makes nothing, and refuses a length that the
//! bytes behind it cannot hold (as Kafka's own generated readers do), and more elements in all than
//! [`limits::MAX_ANSWER_ELEMENTS`]. What it accepts is decoded with memory in proportion to the answer.
//!
//! The shapes follow the schemas of the answers (`clients/src/main/resources/common/message/*Response.json`), fields in
//! order; fixed fields that follow each other are one. A test walks and decodes the same random bytes and compares how far
//! both get.

use super::WireError;
use crate::limits;

/// A kind of field.
enum Kind {
    /// As many bytes.
    Fixed(usize),
    /// A string, nullable or not: whether null is allowed, the codec says.
    Text,
    /// Bytes, nullable or not.
    Blob,
    /// An array of structures.
    List(&'static [Field]),
    /// An array of plain values.
    Each(&'static Kind),
    /// A structure.
    Struct(&'static [Field]),
}

/// A field, and the versions that have it.
enum Field {
    Always(Kind),
    Since(i16, Kind),
    Until(i16, Kind),
    Between(i16, i16, Kind),
    /// Tag, first version, kind.
    Tag(u32, i16, Kind),
}

use Field::{Always, Between, Since, Tag, Until};
use Kind::{Blob, Each, Fixed, List, Struct, Text};

impl Field {
    fn is_in(&self, version: i16) -> bool {
        match self {
            Always(_) => true,
            Since(from, _) | Tag(_, from, _) => version >= *from,
            Until(to, _) => version <= *to,
            Between(from, to, _) => (*from..=*to).contains(&version),
        }
    }

    fn kind(&self) -> &Kind {
        match self {
            Always(kind) | Since(_, kind) | Until(_, kind) | Between(_, _, kind) | Tag(_, _, kind) => kind,
        }
    }
}

/// Walks an answer's body; how many bytes it has.
///
/// # Errors
/// A length in it is more than the bytes behind it, or it ends too soon.
pub(super) fn check(key: i16, version: i16, body: &[u8]) -> Result<usize, WireError> {
    let (flexible_from, fields) =
        shape(key).ok_or_else(|| WireError(format!("the shape of answers to API key {key} is not known")))?;
    let mut walk =
        Walk { whole: body.len(), rest: body, version, flexible: version >= flexible_from, elements: 0 };
    walk.structure(fields)?;
    Ok(walk.at())
}

struct Walk<'a> {
    whole: usize,
    rest: &'a [u8],
    version: i16,
    flexible: bool,
    elements: usize,
}

impl Walk<'_> {
    fn at(&self) -> usize {
        self.whole - self.rest.len()
    }

    fn structure(&mut self, fields: &[Field]) -> Result<(), WireError> {
        for field in fields.iter().filter(|field| !matches!(field, Tag(..))) {
            if field.is_in(self.version) {
                self.value(field.kind())?;
            }
        }
        if self.flexible { self.tags(fields) } else { Ok(()) }
    }

    fn tags(&mut self, fields: &[Field]) -> Result<(), WireError> {
        let count = self.varint()? as usize;
        self.count(count)?;
        for _ in 0..count {
            let tag = self.varint()?;
            let size = self.varint()? as usize;
            match fields.iter().find(|field| matches!(field, Tag(known, ..) if *known == tag)) {
                // The codec does not look at the size of a tag that it knows.
                Some(field) if field.is_in(self.version) => self.value(field.kind())?,
                Some(_) => {
                    return Err(WireError(format!("at byte {} is tag {tag} of a later version", self.at())));
                }
                None => self.skip(size)?,
            }
        }
        Ok(())
    }

    fn value(&mut self, kind: &Kind) -> Result<(), WireError> {
        match kind {
            Fixed(bytes) => self.skip(*bytes),
            Text => {
                let length = self.text_length()?;
                self.skip(length)
            }
            Blob => {
                let length = self.length()?;
                self.skip(length)
            }
            List(fields) => {
                let count = self.length()?;
                self.count(count)?;
                (0..count).try_for_each(|_| self.structure(fields))
            }
            Each(kind) => {
                let count = self.length()?;
                self.count(count)?;
                (0..count).try_for_each(|_| self.value(kind))
            }
            Struct(fields) => self.structure(fields),
        }
    }

    /// Every element has at least one byte.
    fn count(&mut self, count: usize) -> Result<(), WireError> {
        let (at, left) = (self.at(), self.rest.len());
        if count > left {
            return Err(WireError(format!(
                "before byte {at} it counts {count} elements, and has {left} bytes left"
            )));
        }
        self.elements += count;
        let limit = limits::MAX_ANSWER_ELEMENTS;
        if self.elements > limit {
            return Err(WireError(format!(
                "before byte {at} it has {} elements, the limit is {limit}",
                self.elements
            )));
        }
        Ok(())
    }

    fn skip(&mut self, bytes: usize) -> Result<(), WireError> {
        let (at, left) = (self.at(), self.rest.len());
        self.rest = self
            .rest
            .get(bytes..)
            .ok_or_else(|| WireError(format!("at byte {at} it wants {bytes} bytes, and has {left} left")))?;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let taken = self.rest.first_chunk().copied();
        self.skip(N)?;
        taken.ok_or_else(|| WireError("it is cut short".to_owned()))
    }

    fn text_length(&mut self) -> Result<usize, WireError> {
        match self.flexible {
            true => self.length(),
            false => {
                let length = i16::from_be_bytes(self.take()?);
                self.length_or_null(length.into())
            }
        }
    }

    fn length(&mut self) -> Result<usize, WireError> {
        match self.flexible {
            true => Ok((self.varint()? as usize).saturating_sub(1)),
            false => {
                let length = i32::from_be_bytes(self.take()?);
                self.length_or_null(length)
            }
        }
    }

    fn length_or_null(&self, length: i32) -> Result<usize, WireError> {
        match length {
            -1 => Ok(0),
            length => usize::try_from(length)
                .map_err(|_| WireError(format!("before byte {} is a length of {length}", self.at()))),
        }
    }

    /// As the codec reads it: what follows a fifth byte is not a part of it.
    fn varint(&mut self) -> Result<u32, WireError> {
        let mut value = 0;
        for place in 0..5 {
            let [byte] = self.take()?;
            value |= u32::from(byte & 0x7f) << (place * 7);
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }
}

const NODES: Kind = List(&[Always(Fixed(4)), Always(Text), Always(Fixed(4)), Always(Text)]);
/// Partition and error code, by topic.
const CODES: Kind = List(&[Always(Text), Always(List(&[Always(Fixed(6))]))]);

/// From which version on an answer is flexible (KIP-482), and its fields; none for an API that is not called.
fn shape(key: i16) -> Option<(i16, &'static [Field])> {
    Some(match key {
        0 => (9, PRODUCE),
        1 => (12, FETCH),
        2 => (6, LIST_OFFSETS),
        3 => (9, METADATA),
        8 => (8, OFFSET_COMMIT),
        9 => (6, OFFSET_FETCH),
        10 => (3, FIND_COORDINATOR),
        18 => (3, API_VERSIONS),
        19 => (5, CREATE_TOPICS),
        20 => (4, DELETE_TOPICS),
        22 => (2, &[Always(Fixed(16)), Since(6, Fixed(10))]),
        23 => (4, &[Always(Fixed(4)), Always(List(&[Always(Text), Always(List(&[Always(Fixed(18))]))]))]),
        24 => (3, ADD_PARTITIONS_TO_TXN),
        25 => (3, &[Always(Fixed(6))]),
        26 => (3, &[Always(Fixed(6)), Since(5, Fixed(10))]),
        27 => (1, &[Always(List(&[Always(Fixed(8)), Always(CODES)]))]),
        28 => (3, &[Always(Fixed(4)), Always(CODES)]),
        32 => (4, DESCRIBE_CONFIGS),
        37 => (2, &[Always(Fixed(4)), Always(List(&[Always(Text), Always(Fixed(2)), Always(Text)]))]),
        61 => (0, DESCRIBE_PRODUCERS),
        65 => (0, DESCRIBE_TRANSACTIONS),
        66 => (0, LIST_TRANSACTIONS),
        _ => return None,
    })
}

const PRODUCE: &[Field] = &[
    Always(List(&[
        Until(12, Text),
        Since(13, Fixed(16)),
        Always(List(&[
            Always(Fixed(22)),
            Since(5, Fixed(8)),
            Since(8, List(&[Always(Fixed(4)), Always(Text)])),
            Since(8, Text),
            Tag(0, 10, Struct(&[Always(Fixed(8))])),
        ])),
    ])),
    Always(Fixed(4)),
    Tag(0, 10, NODES),
];

const FETCH: &[Field] = &[
    Always(Fixed(4)),
    Since(7, Fixed(6)),
    Always(List(&[
        Until(12, Text),
        Since(13, Fixed(16)),
        Always(List(&[
            Always(Fixed(22)),
            Since(5, Fixed(8)),
            Always(List(&[Always(Fixed(16))])),
            Since(11, Fixed(4)),
            Always(Blob),
            Tag(0, 12, Struct(&[Always(Fixed(12))])),
            Tag(1, 12, Struct(&[Always(Fixed(8))])),
            Tag(2, 12, Struct(&[Always(Fixed(12))])),
        ])),
    ])),
    Tag(0, 16, NODES),
];

const LIST_OFFSETS: &[Field] = &[
    Since(2, Fixed(4)),
    Always(List(&[Always(Text), Always(List(&[Always(Fixed(22)), Since(4, Fixed(4))]))])),
];

const METADATA: &[Field] = &[
    Since(3, Fixed(4)),
    Always(List(&[Always(Fixed(4)), Always(Text), Always(Fixed(4)), Since(1, Text)])),
    Since(2, Text),
    Since(1, Fixed(4)),
    Always(List(&[
        Always(Fixed(2)),
        Always(Text),
        Since(10, Fixed(16)),
        Since(1, Fixed(1)),
        Always(List(&[
            Always(Fixed(10)),
            Since(7, Fixed(4)),
            Always(Each(&Fixed(4))),
            Always(Each(&Fixed(4))),
            Since(5, Each(&Fixed(4))),
        ])),
        Since(8, Fixed(4)),
    ])),
    Between(8, 10, Fixed(4)),
    Since(13, Fixed(2)),
];

const OFFSET_COMMIT: &[Field] = &[
    Since(3, Fixed(4)),
    Always(List(&[Until(9, Text), Since(10, Fixed(16)), Always(List(&[Always(Fixed(6))]))])),
];

const OFFSET_FETCH: &[Field] = &[
    Since(3, Fixed(4)),
    Until(
        7,
        List(&[
            Always(Text),
            Always(List(&[Always(Fixed(12)), Between(5, 7, Fixed(4)), Always(Text), Always(Fixed(2))])),
        ]),
    ),
    Between(2, 7, Fixed(2)),
    Since(
        8,
        List(&[
            Always(Text),
            Always(List(&[
                Between(8, 9, Text),
                Since(10, Fixed(16)),
                Always(List(&[Always(Fixed(16)), Always(Text), Always(Fixed(2))])),
            ])),
            Always(Fixed(2)),
        ]),
    ),
];

const FIND_COORDINATOR: &[Field] = &[
    Since(1, Fixed(4)),
    Until(3, Fixed(2)),
    Between(1, 3, Text),
    Until(3, Fixed(4)),
    Until(3, Text),
    Until(3, Fixed(4)),
    Since(4, List(&[Always(Text), Always(Fixed(4)), Always(Text), Always(Fixed(6)), Always(Text)])),
];

const API_VERSIONS: &[Field] = &[
    Always(Fixed(2)),
    Always(List(&[Always(Fixed(6))])),
    Since(1, Fixed(4)),
    Tag(0, 3, List(&[Always(Text), Always(Fixed(4))])),
    Tag(1, 3, Fixed(8)),
    Tag(2, 3, List(&[Always(Text), Always(Fixed(4))])),
    Tag(3, 3, Fixed(1)),
];

const CREATE_TOPICS: &[Field] = &[
    Always(Fixed(4)),
    Always(List(&[
        Always(Text),
        Since(7, Fixed(16)),
        Always(Fixed(2)),
        Always(Text),
        Since(5, Fixed(6)),
        Since(5, List(&[Always(Text), Always(Text), Always(Fixed(3))])),
        Tag(0, 5, Fixed(2)),
    ])),
];

const DELETE_TOPICS: &[Field] =
    &[Always(Fixed(4)), Always(List(&[Always(Text), Since(6, Fixed(16)), Always(Fixed(2)), Since(5, Text)]))];

const ADD_PARTITIONS_TO_TXN: &[Field] =
    &[Always(Fixed(4)), Since(4, Fixed(2)), Since(4, List(&[Always(Text), Always(CODES)])), Until(3, CODES)];

const DESCRIBE_CONFIGS: &[Field] = &[
    Always(Fixed(4)),
    Always(List(&[
        Always(Fixed(2)),
        Always(Text),
        Always(Fixed(1)),
        Always(Text),
        Always(List(&[
            Always(Text),
            Always(Text),
            Always(Fixed(3)),
            Always(List(&[Always(Text), Always(Text), Always(Fixed(1))])),
            Since(3, Fixed(1)),
            Since(3, Text),
        ])),
    ])),
];

const DESCRIBE_PRODUCERS: &[Field] = &[
    Always(Fixed(4)),
    Always(List(&[
        Always(Text),
        Always(List(&[Always(Fixed(6)), Always(Text), Always(List(&[Always(Fixed(36))]))])),
    ])),
];

const DESCRIBE_TRANSACTIONS: &[Field] = &[
    Always(Fixed(4)),
    Always(List(&[
        Always(Fixed(2)),
        Always(Text),
        Always(Text),
        Always(Fixed(22)),
        Always(List(&[Always(Text), Always(Each(&Fixed(4)))])),
    ])),
];

const LIST_TRANSACTIONS: &[Field] =
    &[Always(Fixed(6)), Always(Each(&Text)), Always(List(&[Always(Text), Always(Fixed(8)), Always(Text)]))];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Request, api_name};
    use bytes::{Buf, Bytes, BytesMut};
    use kafka_protocol::{
        messages as m,
        protocol::{Decodable, Encodable, Message},
    };
    use std::collections::BTreeSet;

    /// How much of some bytes is an answer in a version, and the same answer written again where it can be.
    type Codec = fn(i16, Bytes) -> Option<(usize, Option<Bytes>)>;

    fn codec<R: Request>(version: i16, bytes: Bytes) -> Option<(usize, Option<Bytes>)>
    where
        R::Response: Encodable,
    {
        let mut rest = bytes.clone();
        let answer = R::Response::decode(&mut rest, version).ok()?;
        let mut again = BytesMut::new();
        let again = answer.encode(&mut again, version).is_ok().then(|| again.freeze());
        Some((bytes.len() - rest.remaining(), again))
    }

    fn api<R: Request>() -> (i16, std::ops::RangeInclusive<i16>, Codec)
    where
        R::Response: Message + Encodable,
    {
        let versions = R::Response::VERSIONS;
        (R::KEY, versions.min..=versions.max, codec::<R>)
    }

    /// Every API that is called, in every version of its answer.
    fn answers() -> impl Iterator<Item = (i16, i16, Codec)> {
        let all = [
            api::<m::ProduceRequest>(),
            api::<m::FetchRequest>(),
            api::<m::ListOffsetsRequest>(),
            api::<m::MetadataRequest>(),
            api::<m::OffsetCommitRequest>(),
            api::<m::OffsetFetchRequest>(),
            api::<m::FindCoordinatorRequest>(),
            api::<m::ApiVersionsRequest>(),
            api::<m::CreateTopicsRequest>(),
            api::<m::DeleteTopicsRequest>(),
            api::<m::InitProducerIdRequest>(),
            api::<m::OffsetForLeaderEpochRequest>(),
            api::<m::AddPartitionsToTxnRequest>(),
            api::<m::AddOffsetsToTxnRequest>(),
            api::<m::EndTxnRequest>(),
            api::<m::WriteTxnMarkersRequest>(),
            api::<m::TxnOffsetCommitRequest>(),
            api::<m::DescribeConfigsRequest>(),
            api::<m::CreatePartitionsRequest>(),
            api::<m::DescribeProducersRequest>(),
            api::<m::DescribeTransactionsRequest>(),
            api::<m::ListTransactionsRequest>(),
        ];
        all.into_iter().flat_map(|(key, versions, codec)| versions.map(move |version| (key, version, codec)))
    }

    /// Random bytes that are often small numbers, so that lengths and counts often fit.
    fn bytes(random: &mut fastrand::Rng) -> Vec<u8> {
        let length = random.usize(0..160);
        let byte = |random: &mut fastrand::Rng| match random.u8(0..20) {
            0..14 => 0,
            14..18 => random.u8(1..3),
            18 => random.u8(..),
            _ => 0xff,
        };
        (0..length).map(|_| byte(random)).collect()
    }

    #[test]
    fn what_is_called_has_a_shape_and_nothing_else() {
        let tested: BTreeSet<i16> = answers().map(|(key, ..)| key).collect();
        for key in 0..100 {
            assert_eq!(shape(key).is_some(), api_name(key) != "request", "{key}");
            assert_eq!(shape(key).is_some(), tested.contains(&key), "{key}");
        }
    }

    #[test]
    fn what_is_decoded_has_the_shape_and_ends_where_the_shape_ends() {
        let mut random = fastrand::Rng::with_seed(3);
        for (key, version, codec) in answers() {
            let mut decoded = 0;
            for _ in 0..200_000 {
                if decoded == 12 {
                    break;
                }
                let bytes = Bytes::from(bytes(&mut random));
                let Ok(shaped) = check(key, version, &bytes) else { continue };
                let Some((read, again)) = codec(version, bytes.clone()) else { continue };
                decoded += 1;
                assert_eq!(read, shaped, "{key} {version} {bytes:?}");
                if let Some(again) = again {
                    assert_eq!(check(key, version, &again), Ok(again.len()), "{key} {version} {bytes:?}");
                }
            }
            assert!(decoded >= 5, "{key} {version}: no random bytes were such an answer");
        }
    }

    #[test]
    fn every_answer_that_can_be_encoded_has_the_shape() {
        for (key, version, codec) in answers() {
            // Zeros, and arrays of one element.
            for byte in [0, 1, 2] {
                let Some((_, Some(encoded))) = codec(version, vec![byte; 4000].into()) else { continue };
                assert_eq!(check(key, version, &encoded), Ok(encoded.len()), "{key} {version}");
            }
        }
    }

    #[test]
    fn a_count_that_the_bytes_cannot_hold_is_refused_before_room_is_made() {
        // No throttle, then as many brokers as a length can say.
        let version = m::MetadataResponse::VERSIONS.max;
        let damaged = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
        let error = check(3, version, &damaged).unwrap_err();
        assert_eq!(error.0, "before byte 9 it counts 4294967294 elements, and has 2 bytes left");
        let older = [0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0];
        assert!(check(3, 8, &older).is_err());
        let negative = [0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0];
        let error = check(3, 8, &negative).unwrap_err();
        assert_eq!(error.0, "before byte 8 is a length of -2147483648");
        assert!(m::MetadataResponse::decode(&mut Bytes::copy_from_slice(&negative), 8).is_err());
    }

    #[test]
    fn more_elements_than_any_cluster_has_are_refused() {
        // Texts of no bytes: one byte on the wire, and thirty-two once decoded.
        let mut answer = vec![0; 6];
        let count = limits::MAX_ANSWER_ELEMENTS + 1;
        answer.extend(
            (0..4).map(|place| ((count + 1) >> (7 * place)) as u8 | if place < 3 { 0x80 } else { 0 }),
        );
        answer.resize(answer.len() + count, 1);
        answer.extend([1, 0]);
        let error = check(66, 0, &answer).unwrap_err();
        assert!(error.0.ends_with("elements, the limit is 4194304"), "{error}");
    }
}
