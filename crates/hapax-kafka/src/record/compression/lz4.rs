//! The LZ4 frame format over the block codec.
//!
//! Written: independent blocks of at most 64 KiB, no checksums, no content size; `KafkaLZ4BlockInputStream` refuses
//! linked blocks. Read: every frame that the format allows but those that need a dictionary: linked blocks, checksums
//! (which are verified), all block sizes, skippable frames, frames one behind another.

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, decompress_into_with_dict,
    get_maximum_output_size,
};

use super::{Broken, Output};

const MAGIC: u32 = 0x184d_2204;
/// Frames that a reader passes over have a magic that ends in any of 16 values.
const SKIPPABLE: u32 = 0x184d_2a50;
const VERSION: u8 = 0x40;
const INDEPENDENT: u8 = 0x20;
const BLOCK_CHECKSUM: u8 = 0x10;
const CONTENT_SIZE: u8 = 0x08;
const CONTENT_CHECKSUM: u8 = 0x04;
const RESERVED: u8 = 0x02;
const DICTIONARY: u8 = 0x01;
/// The bit of a block's size that says that the block is not compressed.
const STORED: u32 = 1 << 31;
/// How far a linked block may look back.
const WINDOW: usize = 64 << 10;
/// The code of 64 KiB, in the place where a frame's header has it.
const BLOCK_SIZE_CODE: u8 = 4 << 4;
const BLOCK_BYTES: usize = 64 << 10;

pub(super) struct Encoder(CompressTable);

impl Encoder {
    pub(super) fn new() -> Self {
        Self(CompressTable::large())
    }

    pub(super) fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) {
        let descriptor = [VERSION | INDEPENDENT, BLOCK_SIZE_CODE];
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&descriptor);
        out.push(header_checksum(&descriptor));
        for block in input.chunks(BLOCK_BYTES) {
            self.block(block, out);
        }
        out.extend_from_slice(&0u32.to_le_bytes());
    }

    fn block(&mut self, block: &[u8], out: &mut Vec<u8>) {
        let size_at = out.len();
        let start = size_at + 4;
        out.resize(start + get_maximum_output_size(block.len()), 0);
        let packed = compress_into_with_table(block, &mut out[start..], &mut self.0)
            .expect("the buffer has the size that it may need");
        let mut size = packed as u32;
        if packed >= block.len() {
            size = block.len() as u32 | STORED;
            out[start..start + block.len()].copy_from_slice(block);
        }
        out.truncate(start + (size & !STORED) as usize);
        out[size_at..start].copy_from_slice(&size.to_le_bytes());
    }
}

pub(super) fn decompress(input: &[u8], out: &mut Output<'_>) -> Result<(), Broken> {
    let mut source = Source(input);
    loop {
        let magic = source.u32()?;
        if magic & !0xf == SKIPPABLE {
            let length = source.u32()? as usize;
            source.take(length)?;
        } else if magic == MAGIC {
            frame(&mut source, out)?;
        } else {
            return Err(Broken::Corrupt("this is no lz4 frame"));
        }
        if source.0.is_empty() {
            return Ok(());
        }
    }
}

struct FrameHeader {
    flags: u8,
    block_bytes: usize,
    content_bytes: Option<u64>,
}

fn frame_header(source: &mut Source<'_>) -> Result<FrameHeader, Broken> {
    let start = source.0;
    let [flags, sizes] = *source.array()?;
    if flags & 0xc0 != VERSION || flags & RESERVED != 0 || sizes & 0x8f != 0 {
        return Err(Broken::Corrupt("the lz4 frame has an unknown version"));
    }
    if flags & DICTIONARY != 0 {
        return Err(Broken::Corrupt("the lz4 frame needs a dictionary"));
    }
    let block_bytes = match sizes >> 4 {
        code @ 4..=7 => 1 << (8 + 2 * code),
        _ => return Err(Broken::Corrupt("the lz4 frame has an unknown block size")),
    };
    let content_bytes = match flags & CONTENT_SIZE {
        0 => None,
        _ => Some(u64::from_le_bytes(*source.array()?)),
    };
    let descriptor = &start[..start.len() - source.0.len()];
    if header_checksum(descriptor) != source.array::<1>()?[0] {
        return Err(Broken::Corrupt("the lz4 frame header fails its checksum"));
    }
    Ok(FrameHeader { flags, block_bytes, content_bytes })
}

fn frame(source: &mut Source<'_>, out: &mut Output<'_>) -> Result<(), Broken> {
    let header = frame_header(source)?;
    let start = out.bytes.len();
    loop {
        let size = source.u32()?;
        if size == 0 {
            break;
        }
        let block = source.take((size & !STORED) as usize)?;
        if header.flags & BLOCK_CHECKSUM != 0 && source.u32()? != xxh32(block) {
            return Err(Broken::Corrupt("an lz4 block fails its checksum"));
        }
        if block.len() > header.block_bytes {
            return Err(Broken::Corrupt("an lz4 block is larger than its frame allows"));
        }
        match (size & STORED != 0, header.flags & INDEPENDENT != 0) {
            (true, _) => out.append(block)?,
            (false, independent) => {
                let history = if independent {
                    out.bytes.len()
                } else {
                    start.max(out.bytes.len().saturating_sub(WINDOW))
                };
                packed_block(block, history, header.block_bytes, out)?;
            }
        }
    }
    if header.content_bytes.is_some_and(|bytes| bytes != (out.bytes.len() - start) as u64) {
        return Err(Broken::Corrupt("the lz4 frame has another size than it says"));
    }
    if header.flags & CONTENT_CHECKSUM != 0 && source.u32()? != xxh32(&out.bytes[start..]) {
        return Err(Broken::Corrupt("the lz4 frame fails its checksum"));
    }
    Ok(())
}

/// Appends one compressed block, whose matches may reach back to `history`.
fn packed_block(
    block: &[u8],
    history: usize,
    block_bytes: usize,
    out: &mut Output<'_>,
) -> Result<(), Broken> {
    let at = out.bytes.len();
    // No byte of a block stands for more than 255, so a short block does not claim a whole one's memory.
    let most = block_bytes.min(block.len().saturating_mul(255));
    let room = most.min(out.room());
    out.bytes.resize(at + room, 0);
    let (before, space) = out.bytes.split_at_mut(at);
    let written = match &before[history..] {
        [] => decompress_into(block, space),
        window => decompress_into_with_dict(block, space, window),
    };
    match written {
        Ok(written) => {
            out.bytes.truncate(at + written);
            Ok(())
        }
        Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if room < most => Err(Broken::TooLarge),
        Err(_) => Err(Broken::Corrupt("an lz4 block is damaged")),
    }
}

struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Broken> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Broken::Corrupt("the lz4 frame is cut"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Broken> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Broken::Corrupt("the lz4 frame is cut"))?;
        self.0 = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32, Broken> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

fn header_checksum(descriptor: &[u8]) -> u8 {
    (xxh32(descriptor) >> 8) as u8
}

/// xxHash, 32 bits, seed 0: the checksum of the frame format.
fn xxh32(bytes: &[u8]) -> u32 {
    const P1: u32 = 0x9e37_79b1;
    const P2: u32 = 0x85eb_ca77;
    const P3: u32 = 0xc2b2_ae3d;
    const P4: u32 = 0x27d4_eb2f;
    const P5: u32 = 0x1656_67b1;
    let (words, tail) = bytes.as_chunks::<4>();
    let stripes = words.chunks_exact(4);
    let loose = stripes.remainder();
    let mut hash = if bytes.len() < 16 {
        P5
    } else {
        let mut lanes = [P1.wrapping_add(P2), P2, 0, 0u32.wrapping_sub(P1)];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe) {
                let mixed = lane.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P2));
                *lane = mixed.rotate_left(13).wrapping_mul(P1);
            }
        }
        lanes
            .iter()
            .zip([1, 7, 12, 18])
            .fold(0u32, |sum, (lane, turn)| sum.wrapping_add(lane.rotate_left(turn)))
    };
    hash = hash.wrapping_add(bytes.len() as u32);
    for word in loose {
        hash = hash.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P3)).rotate_left(17).wrapping_mul(P4);
    }
    for byte in tail {
        hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(P2);
    hash = (hash ^ (hash >> 13)).wrapping_mul(P3);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use lz4_flex::block::{compress, compress_with_dict};

    use super::*;

    fn unpack(input: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut bytes = Vec::new();
        decompress(input, &mut Output { bytes: &mut bytes, limit: 1 << 20 })?;
        Ok(bytes)
    }

    #[test]
    fn the_checksum_is_xxh32() {
        assert_eq!(xxh32(b""), 0x02cc_5d05);
        assert_eq!(xxh32(b"abc"), 0x32d1_53ff);
        assert_eq!(xxh32(b"Nobody inspects the spammish repetition"), 0xe229_3b2f);
    }

    #[test]
    fn a_frame_begins_as_java_writes_it() {
        let mut packed = Vec::new();
        Encoder::new().compress(b"x", &mut packed);
        assert_eq!(packed, [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 1, 0, 0, 0x80, b'x', 0, 0, 0, 0]);
    }

    fn frame_of(flags: u8, content: &[u8], blocks: &[(bool, Vec<u8>)]) -> Vec<u8> {
        let mut packed = MAGIC.to_le_bytes().to_vec();
        packed.extend([VERSION | flags, 5 << 4]);
        if flags & CONTENT_SIZE != 0 {
            packed.extend((content.len() as u64).to_le_bytes());
        }
        packed.push(header_checksum(&packed[4..]));
        for (stored, block) in blocks {
            packed.extend((block.len() as u32 | if *stored { STORED } else { 0 }).to_le_bytes());
            packed.extend(block);
            if flags & BLOCK_CHECKSUM != 0 {
                packed.extend(xxh32(block).to_le_bytes());
            }
        }
        packed.extend([0; 4]);
        if flags & CONTENT_CHECKSUM != 0 {
            packed.extend(xxh32(content).to_le_bytes());
        }
        packed
    }

    #[test]
    fn linked_blocks_checksums_sizes_and_skippable_frames_are_read() {
        let first = b"the quick brown fox jumps over the lazy dog. ".repeat(3000);
        let second = b"the lazy dog jumps over the quick brown fox. ".repeat(2000);
        let content = [&first[..], &second, b"stored"].concat();
        let window = &first[first.len() - WINDOW..];
        let linked = [
            (false, compress(&first)),
            (false, compress_with_dict(&second, window)),
            (true, b"stored".to_vec()),
        ];
        let mut packed = vec![0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        packed.extend(frame_of(BLOCK_CHECKSUM | CONTENT_CHECKSUM | CONTENT_SIZE, &content, &linked));
        packed.extend(frame_of(INDEPENDENT, b"!", &[(true, b"!".to_vec())]));
        assert!(unpack(&packed).unwrap() == [&content[..], b"!"].concat());
        for broken in (11..packed.len()).step_by(97) {
            let mut bad = packed.clone();
            bad[broken] ^= 0x10;
            assert!(unpack(&bad).is_err(), "a flipped bit at {broken} goes unseen");
        }
    }

    #[test]
    fn a_block_may_not_look_behind_its_frame() {
        let mut packed = frame_of(INDEPENDENT, b"", &[(true, b"secret secret secret".to_vec())]);
        // one literal, then a match 15 bytes back
        packed.extend(frame_of(0, b"", &[(false, vec![0x10, b'a', 15, 0, 0x10, b'b'])]));
        assert_eq!(unpack(&packed), Err(Broken::Corrupt("an lz4 block is damaged")));
    }

    #[test]
    fn what_the_format_does_not_know_is_refused() {
        let good = frame_of(INDEPENDENT, b"a", &[(true, b"a".to_vec())]);
        for (at, value) in [(0, 5), (4, 0x20), (4, 0x62), (4, 0x61), (5, 0x30), (5, 0x51), (6, 0)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(unpack(&bad).is_err(), "{at} {value}");
        }
        let huge = frame_of(INDEPENDENT, b"", &[(true, vec![7; (256 << 10) + 1])]);
        assert_eq!(unpack(&huge), Err(Broken::Corrupt("an lz4 block is larger than its frame allows")));
    }
}
