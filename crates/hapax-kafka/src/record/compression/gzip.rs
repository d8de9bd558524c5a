//! gzip (RFC 1952): one member on write, one or more on read. zlib checks CRC and length of each.

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use super::{Broken, Output};

/// Base-2 logarithm of the largest window.
const WINDOW_BITS: u8 = 15;

pub(super) struct Encoder(Compress);

impl Encoder {
    pub(super) fn new() -> Self {
        Self(Compress::new_gzip(flate2::Compression::default(), WINDOW_BITS))
    }

    pub(super) fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) {
        self.0.reset();
        out.reserve(input.len() / 2 + 64);
        loop {
            let rest = &input[self.0.total_in() as usize..];
            let status = self.0.compress_vec(rest, out, FlushCompress::Finish);
            match status.expect("deflate accepts every input") {
                Status::StreamEnd => return,
                Status::Ok | Status::BufError => out.reserve(out.capacity().max(64)),
            }
        }
    }
}

pub(super) struct Decoder(Decompress);

impl Decoder {
    pub(super) fn new() -> Self {
        Self(Decompress::new_gzip(WINDOW_BITS))
    }

    pub(super) fn decompress(&mut self, mut input: &[u8], out: &mut Output<'_>) -> Result<(), Broken> {
        loop {
            input = self.member(input, out)?;
            if input.is_empty() {
                return Ok(());
            }
        }
    }

    /// Reads one member and returns what follows it.
    fn member<'a>(&mut self, input: &'a [u8], out: &mut Output<'_>) -> Result<&'a [u8], Broken> {
        self.0.reset(true);
        loop {
            out.reserve_spare(input.len().saturating_mul(4))?;
            let before = (self.0.total_in(), self.0.total_out());
            let rest = &input[before.0 as usize..];
            let status = self
                .0
                .decompress_vec(rest, out.bytes, FlushDecompress::None)
                .map_err(|_| Broken::Corrupt("the gzip stream is damaged"))?;
            out.check()?;
            if status == Status::StreamEnd {
                return Ok(&input[self.0.total_in() as usize..]);
            }
            if (self.0.total_in(), self.0.total_out()) == before {
                return Err(Broken::Corrupt("the gzip stream is cut"));
            }
        }
    }
}
