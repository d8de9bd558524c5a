//! Zstandard. Level 1: on JSON-like records it is faster than level 3 and not larger.

use ::zstd::bulk;
use ::zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective, compress_bound, get_frame_content_size};

use super::{Broken, Output};

const LEVEL: i32 = 1;
/// A frame that claims to hold more than this many times its own length gets its memory as it proves it.
const LIKELY_RATIO: usize = 64;

pub(super) struct Encoder(bulk::Compressor<'static>);

impl Encoder {
    pub(super) fn new() -> Self {
        Self(bulk::Compressor::new(LEVEL).expect("level 1 is a level, and memory that is short aborts"))
    }

    pub(super) fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) {
        out.reserve(compress_bound(input.len()));
        self.0.compress_to_buffer(input, out).expect("the buffer has the size that it may need");
    }
}

pub(super) struct Decoder(DCtx<'static>);

impl Decoder {
    pub(super) fn new() -> Self {
        Self(DCtx::create())
    }

    /// Reads all frames of `input`. A frame that tells its size goes straight into the output; one that does not
    /// (Java writes such) goes through the context's window.
    pub(super) fn decompress(&mut self, input: &[u8], out: &mut Output<'_>) -> Result<(), Broken> {
        let damaged = |_| Broken::Corrupt("the zstd frame is damaged");
        self.0.reset(ResetDirective::SessionOnly).map_err(damaged)?;
        let told = get_frame_content_size(input).ok().flatten().and_then(|size| usize::try_from(size).ok());
        // One byte more than told, so that a full buffer always means that there may be more; and what a frame tells
        // is believed only as far as its own length makes it likely.
        let likely = input.len().saturating_mul(LIKELY_RATIO);
        let hint = told.map_or(input.len().saturating_mul(4), |size| size.saturating_add(1).min(likely));
        let mut source = InBuffer::around(input);
        loop {
            out.reserve_spare(hint)?;
            let before = (source.pos(), out.bytes.len());
            let mut sink = OutBuffer::around_pos(out.bytes, before.1);
            let missing = self.0.decompress_stream(&mut sink, &mut source).map_err(damaged)?;
            out.check()?;
            if missing == 0 && source.pos() == input.len() {
                return Ok(());
            }
            if (source.pos(), out.bytes.len()) == before {
                return Err(Broken::Corrupt("the zstd frame is cut"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn frames_without_a_size_and_several_frames_are_read() {
        let input = b"some text that repeats, ".repeat(20_000);
        let mut stream = ::zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        stream.write_all(&input).unwrap();
        let mut packed = stream.finish().unwrap();
        assert_eq!(get_frame_content_size(&packed).unwrap(), None);
        packed.extend(bulk::compress(b"the end", 1).unwrap());
        let mut bytes = Vec::new();
        let mut decoder = Decoder::new();
        decoder.decompress(&packed, &mut Output { bytes: &mut bytes, limit: 1 << 20 }).unwrap();
        assert_eq!(bytes, [&input[..], b"the end"].concat());
    }

    #[test]
    fn a_size_of_many_gigabytes_in_the_header_reserves_no_gigabytes() {
        // magic, single segment with an 8-byte content size, an empty last block
        let packed = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0xff, 0, 0, 0, 1, 0, 0];
        let mut bytes = Vec::new();
        let result =
            Decoder::new().decompress(&packed, &mut Output { bytes: &mut bytes, limit: usize::MAX >> 1 });
        assert!(result.is_err());
        assert!(bytes.capacity() <= 64 << 10);
    }
}
