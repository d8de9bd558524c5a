//! One partition's part of a Fetch answer, through the fetcher's reader.
//!
//! Property, for any bytes: no panic; offsets that are handed out rise, stand at or behind the wanted one and below the
//! position; the position never goes back, and never beyond the last batch that was there.
//!
//! Property, for a log that is drawn from the input (plain and transactional batches in every codec, markers, offsets that
//! are gone, whole batches without a record left), asked for from any offset, read committed or not, and cut anywhere:
//! exactly the records are handed out that a second, simple reader of the script expects, and the position ends behind
//! the last whole batch. With one bit of it flipped, everything before the damaged batch is handed out, and then there is
//! an error: no record of it or behind it, and no step of the position past it.

use super::record::mended;
use crate::{draw::Draw, memory};
use bytes::Bytes;
use hapax_kafka::{
    fetch::fuzz::{Answer, well_up_to},
    record::{BatchBuilder, Batches, Compression, Compressor, Decompressor, RecordRef, Stamp},
};

const LIMIT: usize = 1 << 20;
const MEMORY: usize = 32 << 20;
/// Batches of a log that is drawn.
const MOST: usize = 64;
const PRODUCERS: u16 = 3;

const CONTROL: u8 = 0x20;
/// Behind what no checksum covers but the format: base offset, length, leader epoch.
const MAGIC_AT: usize = 16;

/// Runs it.
pub fn run(input: &[u8]) {
    let mut draw = Draw::new(input);
    match draw.byte() {
        mode @ 0..=1 => any_bytes(mode == 1, &mut draw),
        _ => a_log(&mut draw),
    }
}

fn any_bytes(mend: bool, draw: &mut Draw<'_>) {
    let from = i64::from(draw.byte());
    let count = draw.below(5);
    let listed: Vec<(i64, i64)> =
        (1..count).map(|_| (i64::from(draw.byte()), i64::from(draw.byte()))).collect();
    let listed = (count > 0).then_some(&listed[..]);
    let bytes = draw.rest();
    let bytes = if mend { mended_batches(bytes) } else { Bytes::copy_from_slice(bytes) };
    let most = Batches::new(bytes.clone()).map_while(Result::ok).map(|batch| batch.header().next_offset());
    let most = most.fold(from, i64::max);
    let mut answer = Answer::new(from, listed, bytes.clone());
    let mut decompressor = Decompressor::new(LIMIT);
    let mut last = from - 1;
    loop {
        let before = answer.position();
        let read =
            memory::within(MEMORY + 16 * bytes.len(), "reading an answer", || answer.read(&mut decompressor));
        assert!((before..=most).contains(&answer.position()));
        let Ok(records) = read else { return };
        for view in records.views() {
            assert!(view.offset > last && view.offset < answer.position());
            last = view.offset;
        }
        if records.is_empty() {
            break;
        }
    }
    // Batches in the order of a log: the headers alone say the same.
    let headers: Vec<_> =
        Batches::new(bytes.clone()).map_while(Result::ok).map(|batch| *batch.header()).collect();
    if headers.is_sorted_by_key(|header| header.next_offset()) && !headers.is_empty() {
        assert_eq!(well_up_to(&bytes, from), Some(answer.position()));
    }
}

/// Each batch by its own length, with a checksum that fits.
fn mended_batches(mut rest: &[u8]) -> Bytes {
    let mut all = Vec::new();
    while let Some(&length) = rest.get(8..).and_then(<[u8]>::first_chunk::<4>) {
        let Ok(length) = usize::try_from(i32::from_be_bytes(length)) else { break };
        if length + 12 > rest.len() {
            break;
        }
        let (batch, behind) = rest.split_at(length + 12);
        let Some(batch) = mended(batch) else { break };
        all.extend_from_slice(&batch);
        rest = behind;
    }
    all.extend_from_slice(rest);
    all.into()
}

/// What stands in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Plain,
    /// Of a producer's transaction.
    Of(u16),
    /// A producer's marker: was it committed?
    Marker(u16, bool),
}

/// A batch as it stands in a log.
#[derive(Clone, Copy, Debug)]
struct Logged {
    entry: Entry,
    base: i64,
    /// Records that are left, the first of those that there were.
    count: i64,
    /// Offsets that it once had.
    width: i64,
    compression: Compression,
}

impl Logged {
    fn next_offset(&self) -> i64 {
        self.base + self.width
    }

    fn bytes(&self, compressor: &mut Compressor) -> Vec<u8> {
        let (producer_id, key) = match self.entry {
            Entry::Plain => (-1, None),
            Entry::Of(producer) => (i64::from(producer), Some([1, 2, 3, 4])),
            Entry::Marker(producer, commit) => (i64::from(producer), Some([0, 0, 0, u8::from(commit)])),
        };
        let mut builder = BatchBuilder::new();
        for _ in 0..self.count.max(1) {
            let record = RecordRef {
                key: key.as_ref().map(<[u8; 4]>::as_slice),
                value: Some(&[0; 6]),
                ..RecordRef::default()
            };
            builder.push(&record).expect("there is room for small records");
        }
        let sealed = builder.seal(self.compression, compressor).expect("it has a record");
        let stamp = Stamp {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            transactional: self.entry != Entry::Plain,
        };
        let mut bytes = sealed.stamp(stamp).to_bytes().to_vec();
        if self.count == 0 {
            bytes.truncate(61);
            bytes[57..61].copy_from_slice(&[0; 4]);
        }
        bytes[..8].copy_from_slice(&self.base.to_be_bytes());
        bytes[12..16].copy_from_slice(&5_i32.to_be_bytes());
        bytes[23..27].copy_from_slice(&(self.width as i32 - 1).to_be_bytes());
        if matches!(self.entry, Entry::Marker(..)) {
            bytes[22] |= CONTROL;
        }
        mended(&bytes).expect("it has a header").to_vec()
    }
}

fn a_log(draw: &mut Draw<'_>) {
    let (from, committed_only) = (i64::from(draw.byte() % 64), draw.byte() & 1 == 1);
    let (cut, damage) = (draw.u16(), (draw.byte(), draw.u16()));
    let log = log(draw);
    // An answer begins with the batch that has the wanted offset, and lists what was aborted from there on.
    let begin = log.iter().take_while(|batch| batch.next_offset() <= from).count();
    let aborted = aborted(&log, begin);
    let log = &log[begin..];
    let listed = committed_only.then_some(&aborted[..]);

    let mut compressor = Compressor::new();
    let encoded: Vec<Vec<u8>> = log.iter().map(|batch| batch.bytes(&mut compressor)).collect();
    let mut bytes = encoded.concat();
    bytes.truncate(bytes.len() - usize::from(cut) % (bytes.len() + 1));
    let mut whole = 0;
    let mut end = 0;
    while whole < log.len() && end + encoded[whole].len() <= bytes.len() {
        end += encoded[whole].len();
        whole += 1;
    }
    let (expected, position) = expect(&log[..whole], from, listed);
    let set = Bytes::from(bytes.clone());
    assert_eq!(read(from, listed, set.clone()), (expected, position, true), "{log:?}");
    assert_eq!(well_up_to(&set, from), (whole > 0).then_some(position));
    if damage.0 != 0 && whole > 0 {
        damaged(&log[..whole], &encoded, bytes, damage, from, listed);
    }
}

/// One bit of a batch is flipped, behind its base offset.
fn damaged(
    log: &[Logged],
    encoded: &[Vec<u8>],
    mut bytes: Vec<u8>,
    (which, bit): (u8, u16),
    from: i64,
    listed: Option<&[(i64, i64)]>,
) {
    let which = usize::from(which) % log.len();
    let start: usize = encoded[..which].iter().map(Vec::len).sum();
    let bit = usize::from(bit) % (8 * encoded[which].len());
    let at = bit / 8;
    bytes[start + at] ^= 1 << (bit % 8);
    let (delivered, position, ended) = read(from, listed, bytes.into());
    let (expected, end) = expect(&log[..which], from, listed);
    match at {
        // No checksum covers where a batch begins, nor which leader wrote it.
        0..8 | 12..16 => {}
        // A batch that says to be longer may be cut, which is no error: it is asked for again.
        8..12 => {
            assert_eq!((&delivered, position), (&expected, end), "the length of batch {which} of {log:?}")
        }
        MAGIC_AT.. => {
            assert_eq!((delivered, position, ended), (expected, end, false), "batch {which} of {log:?}")
        }
    }
}

fn log(draw: &mut Draw<'_>) -> Vec<Logged> {
    let mut log = Vec::new();
    let mut base = 0;
    while !draw.is_empty() && log.len() < MOST {
        let producer = draw.below(PRODUCERS);
        let entry = match draw.below(6) {
            0 | 1 => Entry::Plain,
            2 | 3 => Entry::Of(producer),
            kind => Entry::Marker(producer, kind == 4),
        };
        let sizes = i64::from(draw.byte());
        base += sizes & 3;
        let count = (sizes >> 2) & 7;
        let (count, width) = match entry {
            Entry::Marker(..) => (count.min(1), 1),
            Entry::Plain | Entry::Of(_) => (count, count.max(1) + (sizes >> 5)),
        };
        let compression = match entry {
            Entry::Marker(..) => Compression::None,
            Entry::Plain | Entry::Of(_) => Compression::ALL[usize::from(draw.below(5))],
        };
        log.push(Logged { entry, base, count, width, compression });
        base += width;
    }
    log
}

/// Aborted transactions as a broker lists them: producer and first offset of those that end from a batch on.
fn aborted(log: &[Logged], begin: usize) -> Vec<(i64, i64)> {
    let mut open: [Option<i64>; PRODUCERS as usize] = Default::default();
    let mut aborted = Vec::new();
    for (at, batch) in log.iter().enumerate() {
        match batch.entry {
            Entry::Plain => {}
            Entry::Of(producer) => {
                open[usize::from(producer)].get_or_insert(batch.base);
            }
            Entry::Marker(producer, commit) => {
                let first = open[usize::from(producer)].take();
                if let Some(first) = first.filter(|_| !commit && at >= begin) {
                    aborted.push((i64::from(producer), first));
                }
            }
        }
    }
    aborted
}

/// Offsets that a reader gets, and where it ends, by the script alone.
fn expect(log: &[Logged], from: i64, listed: Option<&[(i64, i64)]>) -> (Vec<i64>, i64) {
    let mut offsets = Vec::new();
    for (at, batch) in log.iter().enumerate() {
        let dropped = match batch.entry {
            Entry::Marker(..) => true,
            Entry::Plain => false,
            Entry::Of(producer) => listed.is_some_and(|listed| {
                // It belongs to the last transaction that was listed from here or before, unless that has ended.
                let ends = log[..at]
                    .iter()
                    .filter(|one| one.entry == Entry::Marker(producer, false) && one.count > 0);
                let end = ends.map(|one| one.base).max().unwrap_or(-1);
                listed.iter().any(|&(id, first)| {
                    id == i64::from(producer) && first > end && first < batch.next_offset()
                })
            }),
        };
        if !dropped {
            offsets.extend((batch.base..batch.base + batch.count).filter(|offset| *offset >= from));
        }
    }
    (offsets, log.last().map_or(from, Logged::next_offset).max(from))
}

/// Offsets that are handed out, the position at the end, and whether that was the end and no error.
fn read(from: i64, listed: Option<&[(i64, i64)]>, bytes: Bytes) -> (Vec<i64>, i64, bool) {
    let mut answer = Answer::new(from, listed, bytes);
    let mut decompressor = Decompressor::new(LIMIT);
    let mut offsets = Vec::new();
    loop {
        match answer.read(&mut decompressor) {
            Ok(records) if records.is_empty() => return (offsets, answer.position(), true),
            Ok(records) => offsets.extend(records.views().iter().map(|view| view.offset)),
            Err(_) => return (offsets, answer.position(), false),
        }
    }
}
