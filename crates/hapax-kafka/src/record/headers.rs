//! The headers of a record: an ordered list of byte keys with optional byte values. Keys may repeat.

use super::error::RecordError;
use super::varint::{get_varint, varint_len};

/// One header: key, and value or null.
pub type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// Headers to write: a list, or what another record's headers look like on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headers<'a> {
    /// A list, kept in this order.
    List(&'a [Header<'a>]),
    /// Encoded headers, copied as they are.
    Encoded(EncodedHeaders<'a>),
}

impl<'a> Headers<'a> {
    /// No headers.
    pub const NONE: Self = Self::List(&[]);

    /// What another record's headers look like on the wire, from a source that is trusted to have encoded them.
    ///
    /// # Panics
    /// When `bytes` are not the encoding of exactly `count` headers: they would damage the whole batch.
    pub fn encoded(bytes: &'a [u8], count: u32) -> Self {
        match EncodedHeaders::parse(count, bytes) {
            Ok(encoded) => Self::Encoded(encoded),
            Err(error) => panic!("{count} headers in {} bytes: {error}", bytes.len()),
        }
    }

    /// The headers in order.
    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let (list, encoded) = match *self {
            Self::List(list) => (list, None),
            Self::Encoded(encoded) => (&[][..], Some(encoded)),
        };
        list.iter().copied().chain(encoded.into_iter().flatten())
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Encoded(encoded) => encoded.count as usize,
        }
    }

    /// Bytes on the wire after the header count.
    pub(super) fn encoded_len(&self) -> u64 {
        match self {
            Self::List(list) => {
                list.iter().map(|(key, value)| field_len(Some(key)) + field_len(*value)).sum()
            }
            Self::Encoded(encoded) => encoded.bytes.len() as u64,
        }
    }
}

impl Default for Headers<'_> {
    fn default() -> Self {
        Self::NONE
    }
}

/// Headers in their encoded form: known to be well-formed and of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedHeaders<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> EncodedHeaders<'a> {
    /// Takes `bytes` as the encoding of exactly `count` headers.
    ///
    /// # Errors
    /// [`RecordError::MalformedHeaders`] when they are not.
    pub fn parse(count: u32, bytes: &'a [u8]) -> Result<Self, RecordError> {
        let malformed = |reason| RecordError::MalformedHeaders { reason };
        let mut at = 0;
        skip_headers(bytes, &mut at, count).map_err(malformed)?;
        if at != bytes.len() {
            return Err(malformed("bytes are left after the last header"));
        }
        Ok(Self { count, bytes })
    }

    /// Only for bytes that [`skip_headers`] has walked.
    pub(super) fn trusted(count: u32, bytes: &'a [u8]) -> Self {
        Self { count, bytes }
    }

    /// Number of headers.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The bytes as on the wire, without the count.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The headers in order.
    pub fn iter(&self) -> HeaderIter<'a> {
        HeaderIter { rest: self.bytes, left: self.count }
    }
}

impl<'a> IntoIterator for EncodedHeaders<'a> {
    type Item = Header<'a>;
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

/// The headers of a decoded record, in order.
#[derive(Debug, Clone)]
pub struct HeaderIter<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut at = 0;
        let key = get_field(self.rest, &mut at)
            .and_then(|key| key.ok_or("null"))
            .expect("headers are walked before");
        let value = get_field(self.rest, &mut at).expect("headers are walked before they become an iterator");
        let header = (&self.rest[key], value.map(|range| &self.rest[range]));
        self.rest = &self.rest[at..];
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for HeaderIter<'_> {}

/// Moves `*at` behind `count` well-formed headers.
pub(super) fn skip_headers(bytes: &[u8], at: &mut usize, count: u32) -> Result<(), &'static str> {
    for _ in 0..count {
        if get_field(bytes, at)?.is_none() {
            return Err("a header has a null key");
        }
        get_field(bytes, at)?;
    }
    Ok(())
}

/// The range of a length-prefixed nullable field at `*at`, which moves behind it.
#[inline]
pub(super) fn get_field(
    bytes: &[u8],
    at: &mut usize,
) -> Result<Option<std::ops::Range<usize>>, &'static str> {
    let length = get_varint(bytes, at).ok_or("the length of a field is cut or too wide")?;
    let Ok(length) = usize::try_from(length) else {
        return if length == -1 { Ok(None) } else { Err("a field has a negative length") };
    };
    let start = *at;
    if length > bytes.len() - start {
        return Err("a field is longer than its record");
    }
    *at = start + length;
    Ok(Some(start..start + length))
}

/// Bytes of a length-prefixed nullable field on the wire. Lengths beyond the format's are caught by the record's total.
pub(super) fn field_len(field: Option<&[u8]>) -> u64 {
    field.map_or(1, |bytes| (varint_len(bytes.len() as i32) + bytes.len()) as u64)
}
