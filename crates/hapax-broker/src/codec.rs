//! Payloads of compressed batches, as the broker reads them to check records, to find timestamps and to clean a log.
//! Never compresses. Bounded: a few bytes do not become more than [`LIMIT`].

use crate::batch::{Broken, Header};
use std::{
    borrow::Cow,
    io::{BufRead, Read},
};

/// The most that a payload may become: more than any `max.message.bytes` that a test sets compresses from.
const LIMIT: usize = 256 << 20;

/// How far back a dependent LZ4 block may refer.
const LZ4_WINDOW: usize = 64 << 10;

/// What is behind a header, uncompressed.
pub(crate) fn payload<'a>(payload: &'a [u8], header: &Header) -> Result<Cow<'a, [u8]>, Broken> {
    match header.codec() {
        0 => Ok(Cow::Borrowed(payload)),
        codec => decoded(codec, payload).map(Cow::Owned),
    }
}

/// What a payload is uncompressed, by Kafka's number of its codec: for judges that share no code with a client. None where it
/// is broken, or there is no such codec.
pub fn decompressed(codec: u8, payload: &[u8]) -> Option<Vec<u8>> {
    if codec == 0 { Some(payload.to_vec()) } else { decoded(codec.into(), payload).ok() }
}

fn decoded(codec: i16, payload: &[u8]) -> Result<Vec<u8>, Broken> {
    match codec {
        1 => read(flate2::bufread::MultiGzDecoder::new(payload)),
        2 => snappy(payload),
        3 => lz4(payload),
        4 => zstd(payload),
        _ => Err(Broken),
    }
}

fn read(from: impl Read) -> Result<Vec<u8>, Broken> {
    let mut all = Vec::new();
    from.take(LIMIT as u64 + 1).read_to_end(&mut all).map_err(|_| Broken)?;
    if all.len() > LIMIT { Err(Broken) } else { Ok(all) }
}

fn zstd(payload: impl BufRead) -> Result<Vec<u8>, Broken> {
    read(zstd::stream::read::Decoder::with_buffer(payload).map_err(|_| Broken)?)
}

/// Java's framing (blocks with a length in front behind a magic number), or one bare block.
fn snappy(payload: &[u8]) -> Result<Vec<u8>, Broken> {
    const MAGIC: &[u8] = b"\x82SNAPPY\0";
    let mut all = Vec::new();
    let Some(framed) = payload.strip_prefix(MAGIC) else {
        snappy_block(payload, &mut all)?;
        return Ok(all);
    };
    let mut rest = framed.get(8..).ok_or(Broken)?;
    while !rest.is_empty() {
        let length = u32::from_be_bytes(*rest.first_chunk().ok_or(Broken)?) as usize;
        let (block, behind) = rest[4..].split_at_checked(length).ok_or(Broken)?;
        snappy_block(block, &mut all)?;
        rest = behind;
    }
    Ok(all)
}

fn snappy_block(block: &[u8], into: &mut Vec<u8>) -> Result<(), Broken> {
    let length = snap::raw::decompress_len(block).map_err(|_| Broken)?;
    let start = into.len();
    if start + length > LIMIT {
        return Err(Broken);
    }
    into.resize(start + length, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut into[start..]).map_err(|_| Broken)?;
    into.truncate(start + written);
    Ok(())
}

/// An LZ4 frame. Its own checksums are not looked at: the batch has one.
fn lz4(payload: &[u8]) -> Result<Vec<u8>, Broken> {
    let rest = payload.strip_prefix(&[0x04, 0x22, 0x4d, 0x18]).ok_or(Broken)?;
    let &[flags, descriptor] = rest.first_chunk().ok_or(Broken)?;
    let block_checksums = flags & 0x10 != 0;
    let content_size = if flags & 0x08 != 0 { 8 } else { 0 };
    let dictionary = if flags & 0x01 != 0 { 4 } else { 0 };
    let largest = match (descriptor >> 4) & 7 {
        4 => 64 << 10,
        5 => 256 << 10,
        6 => 1 << 20,
        7 => 4 << 20,
        _ => return Err(Broken),
    };
    let mut rest = rest.get(2 + content_size + dictionary + 1..).ok_or(Broken)?;
    let (mut all, mut room) = (Vec::new(), vec![0; largest]);
    loop {
        let word = u32::from_le_bytes(*rest.first_chunk().ok_or(Broken)?);
        let length = (word & 0x7fff_ffff) as usize;
        if word == 0 {
            return Ok(all);
        }
        let (block, behind) = rest[4..].split_at_checked(length).ok_or(Broken)?;
        lz4_block(block, word >> 31 == 1, &mut room, &mut all)?;
        rest = behind.get(if block_checksums { 4 } else { 0 }..).ok_or(Broken)?;
    }
}

/// `room` is for the largest block: made once, because many small blocks may be declared as large ones.
fn lz4_block(block: &[u8], stored: bool, room: &mut [u8], into: &mut Vec<u8>) -> Result<(), Broken> {
    if into.len() + room.len() > LIMIT || (stored && block.len() > room.len()) {
        return Err(Broken);
    }
    if stored {
        into.extend_from_slice(block);
        return Ok(());
    }
    let window = &into[into.len().saturating_sub(LZ4_WINDOW)..];
    let written = lz4_flex::block::decompress_into_with_dict(block, room, window).map_err(|_| Broken)?;
    into.extend_from_slice(&room[..written]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::HEADER;
    use std::io::Write;

    fn batch(codec: i16, payload: &[u8]) -> (Vec<u8>, Header) {
        let mut bytes = vec![0; HEADER];
        bytes.extend_from_slice(payload);
        let length = (bytes.len() - 12) as i32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[21..23].copy_from_slice(&codec.to_be_bytes());
        let header = Header::read(&bytes).unwrap();
        (bytes, header)
    }

    fn lz4_frame(text: &[u8]) -> Vec<u8> {
        let block = lz4_flex::block::compress(text);
        let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0];
        frame.extend_from_slice(&(block.len() as u32).to_le_bytes());
        frame.extend_from_slice(&block);
        frame.extend_from_slice(&[0; 4]);
        frame
    }

    #[test]
    fn every_codec_of_kafka_is_read() {
        let text = b"one line of text, one line of text, one line of text".repeat(20);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let raw = snap::raw::Encoder::new().compress_vec(&text).unwrap();
        let mut framed = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
        framed.extend_from_slice(&(raw.len() as u32).to_be_bytes());
        framed.extend_from_slice(&raw);
        let zstd = zstd::stream::encode_all(&text[..], 1).unwrap();
        for (codec, payload) in [
            (0, text.clone()),
            (1, gzip.finish().unwrap()),
            (2, raw),
            (2, framed),
            (3, lz4_frame(&text)),
            (4, zstd),
        ] {
            let (bytes, header) = batch(codec, &payload);
            assert_eq!(super::payload(&bytes[HEADER..], &header).unwrap(), &text[..], "codec {codec}");
        }
    }

    /// 100,000 blocks of one byte, each declared as one of 4 MB: room for each anew would be 400 GB of zeros.
    #[test]
    fn many_small_blocks_that_are_declared_as_large_cost_no_more_than_they_hold() {
        let block = lz4_flex::block::compress(b"x");
        let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0];
        for _ in 0..100_000 {
            frame.extend_from_slice(&(block.len() as u32).to_le_bytes());
            frame.extend_from_slice(&block);
        }
        frame.extend_from_slice(&[0; 4]);
        assert_eq!(lz4(&frame).unwrap().len(), 100_000);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..4_000 {
            let mut payload = lz4_frame(b"some text some text some text some text");
            let at = random.usize(..payload.len());
            payload[at] = random.u8(..);
            payload.truncate(random.usize(..=payload.len()));
            let (bytes, header) = batch(random.i16(0..8), &payload);
            let _ = super::payload(&bytes[HEADER..], &header);
        }
    }
}
