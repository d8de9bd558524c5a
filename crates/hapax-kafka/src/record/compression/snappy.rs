//! Snappy. On write the framing of `SnappyOutputStream` (xerial), which Java's clients write and expect; on read that
//! or one raw block, which some other clients write.
//!
//! Framing: 8 bytes of magic, two big-endian 32-bit versions, then blocks, each after its big-endian 32-bit length.
//! Streams that were put one behind another have the 16 bytes again between blocks.

use super::{Broken, Output};

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const HEADER: [u8; HEADER_BYTES] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
pub(super) const HEADER_BYTES: usize = 16;
/// Uncompressed bytes of a block: the size that `SnappyOutputStream` uses.
const BLOCK_BYTES: usize = 32 << 10;
/// The densest element copies 64 bytes in 3.
const MAX_RATIO: usize = 22;

pub(super) struct Encoder(snap::raw::Encoder);

impl Encoder {
    pub(super) fn new() -> Self {
        Self(snap::raw::Encoder::new())
    }

    pub(super) fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&HEADER);
        for block in input.chunks(BLOCK_BYTES) {
            let length_at = out.len();
            let start = length_at + 4;
            out.resize(start + snap::raw::max_compress_len(block.len()), 0);
            let written =
                self.0.compress(block, &mut out[start..]).expect("the buffer has the size that it may need");
            out.truncate(start + written);
            out[length_at..start].copy_from_slice(&(written as u32).to_be_bytes());
        }
    }
}

pub(super) struct Decoder(snap::raw::Decoder);

impl Decoder {
    pub(super) fn new() -> Self {
        Self(snap::raw::Decoder::new())
    }

    pub(super) fn decompress(&mut self, input: &[u8], out: &mut Output<'_>) -> Result<(), Broken> {
        if !input.starts_with(&MAGIC) {
            return self.block(input, out);
        }
        let mut rest = input;
        while !rest.is_empty() {
            if rest.starts_with(&MAGIC) {
                rest = rest.get(HEADER_BYTES..).ok_or(Broken::Corrupt("the snappy header is cut"))?;
                continue;
            }
            let (length, tail) =
                rest.split_first_chunk::<4>().ok_or(Broken::Corrupt("a snappy length is cut"))?;
            let length = u32::from_be_bytes(*length) as usize;
            let block = tail.get(..length).ok_or(Broken::Corrupt("a snappy block is cut"))?;
            self.block(block, out)?;
            rest = &tail[length..];
        }
        Ok(())
    }

    fn block(&mut self, block: &[u8], out: &mut Output<'_>) -> Result<(), Broken> {
        let damaged = |_| Broken::Corrupt("a snappy block is damaged");
        let length = snap::raw::decompress_len(block).map_err(damaged)?;
        if length > out.room() {
            return Err(Broken::TooLarge);
        }
        if length > block.len().saturating_mul(MAX_RATIO) {
            return Err(Broken::Corrupt("a snappy block claims more than it can hold"));
        }
        let start = out.bytes.len();
        out.bytes.resize(start + length, 0);
        self.0.decompress(block, &mut out.bytes[start..]).map(drop).map_err(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(input: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut bytes = Vec::new();
        Decoder::new().decompress(input, &mut Output { bytes: &mut bytes, limit: 1 << 20 })?;
        Ok(bytes)
    }

    #[test]
    fn a_raw_block_is_read_too() {
        let input = b"raw snappy raw snappy raw snappy".repeat(100);
        let raw = snap::raw::Encoder::new().compress_vec(&input).unwrap();
        assert_eq!(unpack(&raw).unwrap(), input);
    }

    #[test]
    fn streams_put_behind_one_another_are_one() {
        let mut packed = Vec::new();
        let mut encoder = Encoder::new();
        encoder.compress(b"first ", &mut packed);
        encoder.compress(b"second", &mut packed);
        assert_eq!(unpack(&packed).unwrap(), b"first second");
    }

    #[test]
    fn a_block_length_of_two_gigabytes_is_an_error() {
        let mut packed = HEADER.to_vec();
        packed.extend_from_slice(&0x7fff_ffffu32.to_be_bytes());
        packed.extend_from_slice(&[0; 20]);
        assert_eq!(unpack(&packed), Err(Broken::Corrupt("a snappy block is cut")));
        assert_eq!(unpack(&[0xff, 0xff, 0xff, 0xff, 0x07, 0]), Err(Broken::TooLarge));
        let claims = Broken::Corrupt("a snappy block claims more than it can hold");
        assert_eq!(unpack(&[0xff, 0xff, 0x3f, 0]), Err(claims));
        assert_eq!(unpack(&[]), Err(Broken::Corrupt("a snappy block is damaged")));
    }
}
