//! What a request may look like before any of it is decoded.
//!
//! The generated decoders make room for an array as soon as they have read its length, so five bytes could ask for
//! gigabytes. [`check`] walks a request by its schema first, makes nothing, and refuses a length that the bytes behind
//! it cannot hold, as Kafka's generated readers do; and more elements in all than `MOST_ELEMENTS`. What it accepts
//! can be decoded with memory in proportion to the frame.
//!
//! The shapes follow the schemas of the requests (`clients/src/main/resources/common/message/*.json`), fields in
//! order. A test walks and decodes the same random bytes and compares how far both get.

use kafka_protocol::messages::ApiKey;

/// Elements of all arrays of a request together. A request that a client sends has some thousands; each costs up to
/// about 150 bytes once decoded, and as little as one on the wire.
pub(super) const MOST_ELEMENTS: usize = 1 << 20;

/// A kind of field.
enum Kind {
    /// As many bytes.
    Fixed(usize),
    /// A string, nullable or not: whether null is allowed, the decoder says.
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

/// A field and the versions that have it.
struct Field {
    from: i16,
    to: i16,
    tag: Option<u32>,
    kind: Kind,
}

use Kind::{Blob, Each, Fixed, List, Struct, Text};

const NEVER: i16 = i16::MAX;

/// A field of some versions. Macros, because only literals become static.
macro_rules! between {
    ($from:expr, $to:expr, $kind:expr) => {
        Field { from: $from, to: $to, tag: None, kind: $kind }
    };
}

macro_rules! always {
    ($kind:expr) => {
        between!(i16::MIN, i16::MAX, $kind)
    };
}

macro_rules! since {
    ($from:expr, $kind:expr) => {
        between!($from, i16::MAX, $kind)
    };
}

macro_rules! until {
    ($to:expr, $kind:expr) => {
        between!(i16::MIN, $to, $kind)
    };
}

macro_rules! tagged {
    ($tag:expr, $from:expr, $kind:expr) => {
        Field { from: $from, to: i16::MAX, tag: Some($tag), kind: $kind }
    };
}

/// Walks a request's body; how many bytes it has, or `None` where they are not such a request.
pub(crate) fn check(key: ApiKey, version: i16, body: &[u8]) -> Option<usize> {
    let (flexible_from, fields) = shape(key)?;
    let mut walk = Walk { rest: body, version, flexible: version >= flexible_from, elements: 0 };
    walk.structure(fields)?;
    Some(body.len() - walk.rest.len())
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    flexible: bool,
    elements: usize,
}

impl Walk<'_> {
    fn structure(&mut self, fields: &[Field]) -> Option<()> {
        for field in fields.iter().filter(|field| field.tag.is_none()) {
            if (field.from..=field.to).contains(&self.version) {
                self.value(&field.kind)?;
            }
        }
        if self.flexible { self.tags(fields) } else { Some(()) }
    }

    fn tags(&mut self, fields: &[Field]) -> Option<()> {
        let count = self.varint()? as usize;
        self.count(count)?;
        for _ in 0..count {
            let tag = self.varint()?;
            let size = self.varint()? as usize;
            match fields.iter().find(|field| field.tag == Some(tag)) {
                // Decoders do not look at the size of a tag that they know.
                Some(field) if field.from <= self.version => self.value(&field.kind)?,
                Some(_) => return None,
                None => self.skip(size)?,
            }
        }
        Some(())
    }

    fn value(&mut self, kind: &Kind) -> Option<()> {
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
    fn count(&mut self, count: usize) -> Option<()> {
        self.elements = self.elements.checked_add(count)?;
        (count <= self.rest.len() && self.elements <= MOST_ELEMENTS).then_some(())
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }

    fn text_length(&mut self) -> Option<usize> {
        if self.flexible {
            return self.length();
        }
        let (bytes, rest) = self.rest.split_first_chunk::<2>()?;
        self.rest = rest;
        length_or_null(i16::from_be_bytes(*bytes).into())
    }

    fn length(&mut self) -> Option<usize> {
        if self.flexible {
            return self.varint().map(|length| (length as usize).saturating_sub(1));
        }
        let (bytes, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        length_or_null(i32::from_be_bytes(*bytes))
    }

    fn varint(&mut self) -> Option<u32> {
        let mut value = 0;
        for place in 0..5 {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u32::from(byte & 0x7f) << (place * 7);
            if byte < 0x80 {
                break;
            }
        }
        Some(value)
    }
}

fn length_or_null(length: i32) -> Option<usize> {
    match length {
        -1 => Some(0),
        length => usize::try_from(length).ok(),
    }
}

/// From which version on a request is flexible (KIP-482), and its fields.
fn shape(key: ApiKey) -> Option<(i16, &'static [Field])> {
    Some(match key {
        ApiKey::Produce => (
            9,
            &[
                always!(Text),
                always!(Fixed(6)),
                always!(List(&[
                    since!(13, Fixed(16)),
                    until!(12, Text),
                    always!(List(&[always!(Fixed(4)), always!(Blob)]))
                ])),
            ],
        ),
        ApiKey::Fetch => (
            12,
            &[
                until!(14, Fixed(4)),
                always!(Fixed(13)),
                since!(7, Fixed(4)),
                since!(7, Fixed(4)),
                always!(List(&[
                    since!(13, Fixed(16)),
                    until!(12, Text),
                    always!(List(&[
                        always!(Fixed(4)),
                        since!(9, Fixed(4)),
                        always!(Fixed(8)),
                        since!(12, Fixed(4)),
                        since!(5, Fixed(8)),
                        always!(Fixed(4)),
                        tagged!(0, 17, Fixed(16)),
                        tagged!(1, 18, Fixed(8))
                    ]))
                ])),
                since!(7, List(&[since!(13, Fixed(16)), until!(12, Text), always!(Each(&Fixed(4)))])),
                since!(11, Text),
                tagged!(0, 12, Text),
                tagged!(1, 15, Struct(&[always!(Fixed(12))])),
            ],
        ),
        ApiKey::ListOffsets => (
            6,
            &[
                always!(Fixed(4)),
                since!(2, Fixed(1)),
                always!(List(&[
                    always!(Text),
                    always!(List(&[always!(Fixed(4)), since!(4, Fixed(4)), always!(Fixed(8))]))
                ])),
                since!(10, Fixed(4)),
            ],
        ),
        ApiKey::Metadata => (
            9,
            &[
                always!(List(&[since!(10, Fixed(16)), always!(Text)])),
                since!(4, Fixed(1)),
                between!(8, 10, Fixed(1)),
                since!(8, Fixed(1)),
            ],
        ),
        ApiKey::OffsetCommit => (
            8,
            &[
                always!(Text),
                always!(Fixed(4)),
                always!(Text),
                since!(7, Text),
                until!(4, Fixed(8)),
                always!(List(&[
                    always!(Text),
                    always!(List(&[always!(Fixed(12)), since!(6, Fixed(4)), always!(Text)]))
                ])),
            ],
        ),
        ApiKey::OffsetFetch => (
            6,
            &[
                since!(
                    8,
                    List(&[
                        always!(Text),
                        since!(9, Text),
                        since!(9, Fixed(4)),
                        always!(List(&[always!(Text), always!(Each(&Fixed(4)))]))
                    ])
                ),
                until!(7, Text),
                until!(7, List(&[always!(Text), always!(Each(&Fixed(4)))])),
                since!(7, Fixed(1)),
            ],
        ),
        ApiKey::FindCoordinator => (3, &[until!(3, Text), since!(1, Fixed(1)), since!(4, Each(&Text))]),
        ApiKey::JoinGroup => (
            6,
            &[
                always!(Text),
                always!(Fixed(4)),
                since!(1, Fixed(4)),
                always!(Text),
                since!(5, Text),
                always!(Text),
                always!(List(&[always!(Text), always!(Blob)])),
                since!(8, Text),
            ],
        ),
        ApiKey::Heartbeat => (4, &[always!(Text), always!(Fixed(4)), always!(Text), since!(3, Text)]),
        ApiKey::LeaveGroup => (
            4,
            &[
                always!(Text),
                since!(3, List(&[always!(Text), always!(Text), since!(5, Text)])),
                until!(2, Text),
            ],
        ),
        ApiKey::SyncGroup => (
            4,
            &[
                always!(Text),
                always!(Fixed(4)),
                always!(Text),
                since!(3, Text),
                since!(5, Text),
                since!(5, Text),
                always!(List(&[always!(Text), always!(Blob)])),
            ],
        ),
        ApiKey::DescribeGroups => (5, &[always!(Each(&Text)), since!(3, Fixed(1))]),
        ApiKey::ListGroups => (3, &[since!(4, Each(&Text)), since!(5, Each(&Text))]),
        ApiKey::ApiVersions => (3, &[since!(3, Text), since!(3, Text)]),
        ApiKey::CreateTopics => (
            5,
            &[
                always!(List(&[
                    always!(Text),
                    always!(Fixed(6)),
                    always!(List(&[always!(Fixed(4)), always!(Each(&Fixed(4)))])),
                    always!(List(&[always!(Text), always!(Text)]))
                ])),
                always!(Fixed(5)),
            ],
        ),
        ApiKey::DeleteTopics => (
            4,
            &[
                since!(6, List(&[always!(Text), always!(Fixed(16))])),
                until!(5, Each(&Text)),
                always!(Fixed(4)),
            ],
        ),
        ApiKey::DeleteRecords => {
            (2, &[always!(List(&[always!(Text), always!(List(&[always!(Fixed(12))]))])), always!(Fixed(4))])
        }
        ApiKey::InitProducerId => (
            2,
            &[
                always!(Text),
                always!(Fixed(4)),
                since!(3, Fixed(8)),
                since!(3, Fixed(2)),
                since!(6, Fixed(2)),
            ],
        ),
        ApiKey::OffsetForLeaderEpoch => {
            (4, &[since!(3, Fixed(4)), always!(List(&[always!(Text), always!(List(&[always!(Fixed(12))]))]))])
        }
        ApiKey::AddPartitionsToTxn => (
            3,
            &[
                since!(
                    4,
                    List(&[
                        always!(Text),
                        always!(Fixed(11)),
                        always!(List(&[always!(Text), always!(Each(&Fixed(4)))]))
                    ])
                ),
                until!(3, Text),
                until!(3, Fixed(8)),
                until!(3, Fixed(2)),
                until!(3, List(&[always!(Text), always!(Each(&Fixed(4)))])),
            ],
        ),
        ApiKey::AddOffsetsToTxn => (3, &[always!(Text), always!(Fixed(10)), always!(Text)]),
        ApiKey::EndTxn => (3, &[always!(Text), always!(Fixed(11))]),
        ApiKey::WriteTxnMarkers => (
            1,
            &[always!(List(&[
                always!(Fixed(11)),
                always!(List(&[always!(Text), always!(Each(&Fixed(4)))])),
                always!(Fixed(4))
            ]))],
        ),
        ApiKey::TxnOffsetCommit => (
            3,
            &[
                always!(Text),
                always!(Text),
                always!(Fixed(10)),
                since!(3, Fixed(4)),
                since!(3, Text),
                since!(3, Text),
                always!(List(&[
                    always!(Text),
                    always!(List(&[always!(Fixed(12)), since!(2, Fixed(4)), always!(Text)]))
                ])),
            ],
        ),
        ApiKey::DescribeConfigs => (
            4,
            &[
                always!(List(&[always!(Fixed(1)), always!(Text), always!(Each(&Text))])),
                always!(Fixed(1)),
                since!(3, Fixed(1)),
            ],
        ),
        ApiKey::CreatePartitions => (
            2,
            &[
                always!(List(&[
                    always!(Text),
                    always!(Fixed(4)),
                    always!(List(&[always!(Each(&Fixed(4)))]))
                ])),
                always!(Fixed(5)),
            ],
        ),
        ApiKey::DeleteGroups => (2, &[always!(Each(&Text))]),
        ApiKey::OffsetDelete => {
            (NEVER, &[always!(Text), always!(List(&[always!(Text), always!(List(&[always!(Fixed(4))]))]))])
        }
        ApiKey::DescribeCluster => (0, &[always!(Fixed(1)), since!(1, Fixed(1)), since!(2, Fixed(1))]),
        ApiKey::DescribeProducers => (0, &[always!(List(&[always!(Text), always!(Each(&Fixed(4)))]))]),
        ApiKey::DescribeTransactions => (0, &[always!(Each(&Text))]),
        ApiKey::ListTransactions => {
            (0, &[always!(Each(&Text)), always!(Each(&Fixed(8))), since!(1, Fixed(8)), since!(2, Text)])
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ADVERTISED, Request};
    use bytes::{Buf, Bytes};

    /// Random bytes that are often small numbers, so that lengths and counts often fit.
    fn bytes(random: &mut fastrand::Rng) -> Vec<u8> {
        let length = random.usize(0..120);
        let byte = |random: &mut fastrand::Rng| match random.u8(0..20) {
            0..14 => 0,
            14..18 => random.u8(1..3),
            18 => random.u8(..),
            _ => 0xff,
        };
        (0..length).map(|_| byte(random)).collect()
    }

    #[test]
    fn what_is_decoded_has_the_shape_and_ends_where_the_shape_ends() {
        let mut random = fastrand::Rng::with_seed(3);
        for (key, range) in ADVERTISED {
            for version in range.min..=range.max {
                let mut decoded = 0;
                for _ in 0..100_000 {
                    if decoded == 12 {
                        break;
                    }
                    let bytes = Bytes::from(bytes(&mut random));
                    let Some(shaped) = check(*key, version, &bytes) else { continue };
                    let mut rest = bytes.clone();
                    if let Some(Ok(_)) = Request::decode(*key, version, &mut rest) {
                        decoded += 1;
                        assert_eq!(bytes.len() - rest.remaining(), shaped, "{key:?} {version} {bytes:?}");
                    }
                }
                assert!(decoded >= 5, "{key:?} {version}: no random bytes were such a request");
            }
        }
    }

    #[test]
    fn every_request_that_can_be_encoded_has_the_shape() {
        for (key, range) in ADVERTISED {
            for version in range.min..=range.max {
                let zeros = Bytes::from(vec![0; 200]);
                let Some(Ok(request)) = Request::decode(*key, version, &mut zeros.clone()) else { continue };
                let mut encoded = bytes::BytesMut::new();
                if request.encode(version, &mut encoded).is_ok() {
                    assert_eq!(check(*key, version, &encoded), Some(encoded.len()), "{key:?} {version}");
                }
            }
        }
    }

    #[test]
    fn a_length_that_the_bytes_cannot_hold_is_refused_before_room_is_made() {
        let metadata = [0x7f, 0xff, 0xff, 0xff, 0, 0];
        assert_eq!(check(ApiKey::Metadata, 0, &metadata), None);
        let flexible = [0xff, 0xff, 0xff, 0xff, 0x07, 0, 0];
        assert_eq!(check(ApiKey::Metadata, 9, &flexible), None);
    }
}
