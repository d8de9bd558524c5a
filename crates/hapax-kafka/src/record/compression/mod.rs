//! The codecs of a record batch, with contexts and buffers that are reused from batch to batch.
//!
//! A [`Decompressor`] has a limit: however small and whatever the input, it never holds more output than that, so a
//! batch cannot be a bomb. Compressing never fails; decompressing fails on anything that is not a whole, valid stream.
//!
//! Sources: KIP-110 (zstd), `KafkaLZ4BlockOutputStream`, `SnappyOutputStream` (xerial), RFC 1952, the LZ4 frame format.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use std::fmt;
use std::str::FromStr;

use super::error::RecordError;

/// Decompressed bytes of one batch that a reader holds at most, unless it says otherwise: a broker takes batches of
/// 1 MiB by default, so this is a ratio of more than a hundred.
pub const DEFAULT_DECOMPRESSED_LIMIT: usize = 128 << 20;
/// A buffer that grew beyond this for one large batch is given back before the next one.
const KEPT_BUFFER_BYTES: usize = 4 << 20;
/// First guess of the size of an output that does not tell its own.
const FIRST_OUTPUT_BYTES: usize = 64 << 10;

/// How the records of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// gzip, at its default level.
    Gzip,
    /// Snappy blocks in the framing of Java's clients.
    Snappy,
    /// LZ4 frames with independent blocks.
    Lz4,
    /// Zstandard, at level 1.
    Zstd,
}

impl Compression {
    /// All codecs, by code.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The code in a batch's attributes.
    pub fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// The codec with this code.
    ///
    /// # Errors
    /// When there is none.
    pub fn from_code(code: u8) -> Result<Self, UnknownCompression> {
        Self::ALL.get(usize::from(code)).copied().ok_or(UnknownCompression { code })
    }

    /// The name in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = UnknownCompressionName;

    fn from_str(name: &str) -> Result<Self, UnknownCompressionName> {
        Self::ALL
            .into_iter()
            .find(|codec| codec.name() == name)
            .ok_or_else(|| UnknownCompressionName(name.into()))
    }
}

/// A compression code that Kafka does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("compression code {code} is unknown")]
pub struct UnknownCompression {
    /// The code, 0 to 7.
    pub code: u8,
}

/// A compression name that Kafka does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("compression {0:?} is unknown: choose none, gzip, snappy, lz4 or zstd")]
pub struct UnknownCompressionName(String);

/// Compresses batch after batch with the same contexts and one buffer.
#[derive(Default)]
pub struct Compressor {
    out: Vec<u8>,
    gzip: Option<gzip::Encoder>,
    snappy: Option<snappy::Encoder>,
    lz4: Option<lz4::Encoder>,
    zstd: Option<zstd::Encoder>,
}

impl Compressor {
    /// One without contexts: each comes with the first use of its codec.
    pub fn new() -> Self {
        Self::default()
    }

    /// `records` compressed; with [`Compression::None`] a copy.
    pub fn compress(&mut self, codec: Compression, records: &[u8]) -> &[u8] {
        recycle(&mut self.out);
        let out = &mut self.out;
        match codec {
            Compression::None => out.extend_from_slice(records),
            Compression::Gzip => self.gzip.get_or_insert_with(gzip::Encoder::new).compress(records, out),
            Compression::Snappy => {
                self.snappy.get_or_insert_with(snappy::Encoder::new).compress(records, out)
            }
            Compression::Lz4 => self.lz4.get_or_insert_with(lz4::Encoder::new).compress(records, out),
            Compression::Zstd => self.zstd.get_or_insert_with(zstd::Encoder::new).compress(records, out),
        }
        out
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

/// Decompresses batch after batch with the same contexts and one buffer, up to a limit.
pub struct Decompressor {
    limit: usize,
    out: Vec<u8>,
    gzip: Option<gzip::Decoder>,
    snappy: Option<snappy::Decoder>,
    zstd: Option<zstd::Decoder>,
}

impl Decompressor {
    /// One whose output for a batch is at most `limit` bytes (and at most 4 GiB, which ranges can address).
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(u32::MAX as usize);
        Self { limit, out: Vec::new(), gzip: None, snappy: None, zstd: None }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// `payload` decompressed; `offset` is the batch's base offset, for the error.
    ///
    /// # Errors
    /// When the stream is damaged or cut, or holds more than the limit.
    pub(super) fn decompress(
        &mut self,
        codec: Compression,
        payload: &[u8],
        offset: i64,
    ) -> Result<&[u8], RecordError> {
        recycle(&mut self.out);
        let mut out = Output { bytes: &mut self.out, limit: self.limit };
        let done = match codec {
            Compression::None => out.append(payload),
            Compression::Gzip => {
                self.gzip.get_or_insert_with(gzip::Decoder::new).decompress(payload, &mut out)
            }
            Compression::Snappy => {
                self.snappy.get_or_insert_with(snappy::Decoder::new).decompress(payload, &mut out)
            }
            Compression::Lz4 => lz4::decompress(payload, &mut out),
            Compression::Zstd => {
                self.zstd.get_or_insert_with(zstd::Decoder::new).decompress(payload, &mut out)
            }
        };
        match done {
            Ok(()) => Ok(&self.out),
            Err(Broken::Corrupt(reason)) => Err(RecordError::Decompress { offset, codec, reason }),
            Err(Broken::TooLarge) => {
                Err(RecordError::DecompressedTooLarge { offset, codec, limit: self.limit })
            }
        }
    }
}

impl Default for Decompressor {
    fn default() -> Self {
        Self::new(DEFAULT_DECOMPRESSED_LIMIT)
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Why a codec gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Corrupt(&'static str),
    TooLarge,
}

/// Where a codec writes: a buffer that does not outgrow its limit.
struct Output<'a> {
    bytes: &'a mut Vec<u8>,
    limit: usize,
}

impl Output<'_> {
    fn room(&self) -> usize {
        self.limit - self.bytes.len()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        if bytes.len() > self.room() {
            return Err(Broken::TooLarge);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Makes sure that there is spare capacity, without going beyond one byte more than the limit: a codec that
    /// fills that byte too has shown that its output is too large.
    fn reserve_spare(&mut self, hint: usize) -> Result<(), Broken> {
        let len = self.bytes.len();
        if len > self.limit {
            return Err(Broken::TooLarge);
        }
        if self.bytes.capacity() == len {
            let wanted = hint.max(len).max(FIRST_OUTPUT_BYTES);
            self.bytes.reserve_exact(wanted.min(self.limit + 1 - len));
        }
        Ok(())
    }

    /// Fails when a codec that wrote into spare capacity wrote more than is allowed.
    fn check(&self) -> Result<(), Broken> {
        if self.bytes.len() > self.limit { Err(Broken::TooLarge) } else { Ok(()) }
    }
}

fn recycle(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEPT_BUFFER_BYTES {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(len: usize) -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(len as u64);
        (0..len).map(|i| if i % 7 == 0 { rng.u8(b'a'..b'e') } else { b"-record"[i % 7] }).collect()
    }

    #[test]
    fn every_codec_gives_back_what_it_took() {
        let mut compressor = Compressor::new();
        let mut decompressor = Decompressor::new(1 << 20);
        for codec in Compression::ALL {
            for len in [0, 1, 5, 13, 100, 32_768, 65_535, 65_536, 65_537, 300_000] {
                let mut rng = fastrand::Rng::with_seed(1);
                let noise: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                for input in [text(len), noise] {
                    let packed = compressor.compress(codec, &input).to_vec();
                    assert!(decompressor.decompress(codec, &packed, 0) == Ok(&input[..]), "{codec} {len}");
                }
            }
        }
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let zeros = vec![0; 8 << 20];
        let mut compressor = Compressor::new();
        for codec in Compression::ALL {
            let packed = compressor.compress(codec, &zeros).to_vec();
            for limit in [0, 1, 1000, (8 << 20) - 1] {
                let mut decompressor = Decompressor::new(limit);
                assert_eq!(
                    decompressor.decompress(codec, &packed, 9),
                    Err(RecordError::DecompressedTooLarge { offset: 9, codec, limit })
                );
                assert!(
                    decompressor.out.capacity() <= 2 * limit + (64 << 10),
                    "{codec} {}",
                    decompressor.out.capacity()
                );
            }
            assert!(Decompressor::new(8 << 20).decompress(codec, &packed, 9) == Ok(&zeros[..]), "{codec}");
        }
    }

    #[test]
    fn a_stream_cut_anywhere_is_an_error() {
        let input = text(3000);
        let mut compressor = Compressor::new();
        let mut decompressor = Decompressor::new(1 << 20);
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let packed = compressor.compress(codec, &input).to_vec();
            // Snappy's framing has no end mark: a cut between blocks shows as too few records, in the batch.
            let unseen = if codec == Compression::Snappy { snappy::HEADER_BYTES } else { packed.len() };
            for cut in (0..packed.len()).filter(|cut| *cut != unseen) {
                let error = decompressor.decompress(codec, &packed[..cut], 0);
                assert!(
                    matches!(error, Err(RecordError::Decompress { .. })),
                    "{codec} cut at {cut}: {error:?}"
                );
            }
        }
    }

    #[test]
    fn damaged_streams_neither_panic_nor_exceed_the_limit() {
        let input = text(5000);
        let mut compressor = Compressor::new();
        let mut rng = fastrand::Rng::with_seed(11);
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let packed = compressor.compress(codec, &input).to_vec();
            let mut decompressor = Decompressor::new(64 << 10);
            for round in 0..3000 {
                let mut bad = packed.clone();
                for _ in 0..rng.usize(1..6) {
                    // half of the damage goes to the head, where lengths and flags stand
                    let reach = if rng.bool() { bad.len().min(40) } else { bad.len() };
                    bad[rng.usize(0..reach)] = rng.u8(..);
                }
                if round % 3 == 0 {
                    bad.truncate(rng.usize(0..bad.len()));
                }
                if let Ok(out) = decompressor.decompress(codec, &bad, 0) {
                    assert!(out.len() <= 64 << 10);
                }
            }
            assert!(
                decompressor.decompress(codec, &packed, 0) == Ok(&input[..]),
                "{codec} works after damage"
            );
        }
    }

    #[test]
    fn codes_and_names_are_kafkas() {
        for (code, name) in ["none", "gzip", "snappy", "lz4", "zstd"].into_iter().enumerate() {
            let codec = Compression::from_code(code as u8).unwrap();
            assert_eq!(codec.code(), code as u8);
            assert_eq!(name.parse(), Ok(codec));
        }
        assert_eq!(Compression::from_code(5), Err(UnknownCompression { code: 5 }));
        assert!("LZ4".parse::<Compression>().unwrap_err().to_string().contains("choose none, gzip"));
    }
}
