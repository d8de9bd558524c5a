//! The fields that records of internal topics are made of, read and written. Reading refuses what is not there instead
//! of panicking: anybody may have written these bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes that are no record of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// More entries than this in one array are no record of ours.
const MOST_ENTRIES: usize = 1_000_000;

/// Reads fields from the front.
#[derive(Debug)]
pub(crate) struct Reader(pub(crate) Bytes);

impl Reader {
    fn need(&self, bytes: usize) -> Result<(), Garbled> {
        if self.0.remaining() < bytes { Err(Garbled) } else { Ok(()) }
    }

    pub(crate) fn i8(&mut self) -> Result<i8, Garbled> {
        self.need(1).map(|()| self.0.get_i8())
    }

    pub(crate) fn i16(&mut self) -> Result<i16, Garbled> {
        self.need(2).map(|()| self.0.get_i16())
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Garbled> {
        self.need(4).map(|()| self.0.get_i32())
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Garbled> {
        self.need(8).map(|()| self.0.get_i64())
    }

    /// An unsigned varint.
    pub(crate) fn varint(&mut self) -> Result<u32, Garbled> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.i8()?.cast_unsigned();
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Garbled)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<Bytes, Garbled> {
        self.need(length).map(|()| self.0.split_to(length))
    }

    fn text(&mut self, length: usize) -> Result<String, Garbled> {
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| Garbled)
    }

    /// A string with its length in two bytes.
    pub(crate) fn string(&mut self) -> Result<String, Garbled> {
        self.nullable_string()?.ok_or(Garbled)
    }

    /// The same, or null.
    pub(crate) fn nullable_string(&mut self) -> Result<Option<String>, Garbled> {
        match self.i16()? {
            -1 => Ok(None),
            length => self.text(usize::try_from(length).map_err(|_| Garbled)?).map(Some),
        }
    }

    /// A string of a flexible record.
    pub(crate) fn compact_string(&mut self) -> Result<String, Garbled> {
        let length = self.varint()?.checked_sub(1).ok_or(Garbled)?;
        self.text(length as usize)
    }

    /// Bytes with their length in four bytes.
    pub(crate) fn bytes(&mut self) -> Result<Bytes, Garbled> {
        let length = self.i32()?;
        self.take(usize::try_from(length).map_err(|_| Garbled)?)
    }

    /// The length of an array, or null.
    pub(crate) fn array(&mut self) -> Result<Option<usize>, Garbled> {
        match self.i32()? {
            -1 => Ok(None),
            length => usize::try_from(length).ok().filter(|n| *n <= MOST_ENTRIES).map(Some).ok_or(Garbled),
        }
    }

    /// The length of an array of a flexible record, or null.
    pub(crate) fn compact_array(&mut self) -> Result<Option<usize>, Garbled> {
        match self.varint()? as usize {
            0 => Ok(None),
            length => Some(length - 1).filter(|n| *n <= MOST_ENTRIES).map(Some).ok_or(Garbled),
        }
    }

    /// The tagged fields at the end of a flexible structure.
    pub(crate) fn tags(&mut self) -> Result<Vec<(u32, Reader)>, Garbled> {
        let count = self.varint()?;
        let mut tags = Vec::new();
        for _ in 0..count {
            let tag = self.varint()?;
            let length = self.varint()?;
            tags.push((tag, Reader(self.take(length as usize)?)));
        }
        Ok(tags)
    }
}

/// Writes fields at the end.
#[derive(Debug, Default)]
pub(crate) struct Writer(BytesMut);

impl Writer {
    /// Bytes that start with the version of what follows.
    pub(crate) fn with_version(version: i16) -> Self {
        let mut writer = Self::default();
        writer.i16(version);
        writer
    }

    pub(crate) fn done(self) -> Bytes {
        self.0.freeze()
    }

    pub(crate) fn i8(&mut self, value: i8) {
        self.0.put_i8(value);
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.0.put_i16(value);
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.0.put_i32(value);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.0.put_i64(value);
    }

    pub(crate) fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.0.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.put_u8(value as u8);
    }

    pub(crate) fn string(&mut self, value: &str) {
        self.i16(i16::try_from(value.len()).unwrap_or(i16::MAX));
        self.0.put_slice(&value.as_bytes()[..value.len().min(i16::MAX as usize)]);
    }

    pub(crate) fn nullable_string(&mut self, value: Option<&str>) {
        match value {
            Some(value) => self.string(value),
            None => self.i16(-1),
        }
    }

    pub(crate) fn compact_string(&mut self, value: &str) {
        self.varint(value.len() as u32 + 1);
        self.0.put_slice(value.as_bytes());
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.0.put_slice(value);
    }

    /// Tagged fields, already in the order of their tags.
    pub(crate) fn tags(&mut self, tags: &[(u32, Bytes)]) {
        self.varint(tags.len() as u32);
        for (tag, value) in tags {
            self.varint(*tag);
            self.varint(value.len() as u32);
            self.0.put_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::with_version(3);
        writer.varint(300);
        writer.nullable_string(None);
        writer.compact_string("ab");
        writer.bytes(b"xyz");
        writer.tags(&[(1, Bytes::from_static(b"q"))]);
        let mut reader = Reader(writer.done());
        assert_eq!(reader.i16(), Ok(3));
        assert_eq!(reader.varint(), Ok(300));
        assert_eq!(reader.nullable_string(), Ok(None));
        assert_eq!(reader.compact_string().as_deref(), Ok("ab"));
        assert_eq!(reader.bytes(), Ok(Bytes::from_static(b"xyz")));
        let tags = reader.tags().unwrap();
        assert_eq!((tags.len(), tags[0].0), (1, 1));
        assert!(reader.i8().is_err());
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        assert!(Reader(Bytes::from_static(&[0x7f, 0xff])).string().is_err());
        assert!(Reader(Bytes::from_static(&[0xff; 6])).varint().is_err());
        assert!(Reader(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff])).array().is_err());
        assert!(Reader(Bytes::from_static(&[0xff, 0xff, 0xff, 0xfe])).bytes().is_err());
    }
}
