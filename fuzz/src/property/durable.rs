//! Bytes of a checkpoint store and texts beside committed offsets: handles, slots (claims, manifests with their journals,
//! revisions ...), job records, carried positions, bookmarks, names of objects; chains of slots, and sets of bookmarks.
//!
//! Property: nothing panics. What is read is written, read again, and the same. Of everything in an envelope, a bit that is
//! flipped anywhere, or a cut, is refused. (A bookmark has no checksum of its own: Kafka's batch has one.)

use crate::draw::Draw;
use hapax_commit::{
    Bookmark, CarriedPositions, ChainView, Handle, JobRecord, Marked, Name, Present, Slot,
    bookmark::{FoundOffset, Home, read_progress},
    carried::ObjectName,
    envelope::{FORMAT_VERSION, crc32c},
    history, present,
};
use std::fmt::Debug;

/// Shards that a damaged bookmark can ask for.
const MOST_SHARDS: u32 = 64;

/// Runs it. The first byte says what the rest is.
pub fn run(input: &[u8]) {
    let mut draw = Draw::new(input);
    let kind = draw.byte();
    let bytes = draw.rest();
    match kind {
        b'H' => enveloped(1, bytes, Handle::from_bytes, Handle::to_bytes, look_at_handle),
        b'J' => enveloped(2, bytes, JobRecord::from_bytes, JobRecord::to_bytes, |_| ()),
        b'S' => enveloped(3, bytes, Slot::from_bytes, Slot::to_bytes, |slot| {
            slot.handles().iter().for_each(look_at_handle);
        }),
        b'P' => enveloped(4, bytes, CarriedPositions::from_bytes, CarriedPositions::to_bytes, |carried| {
            let text = carried.name().to_text();
            assert_eq!(ObjectName::parse(&text), Some(carried.name()));
        }),
        b'C' => chain(bytes),
        b'B' => bookmarks(bytes),
        _ => object_name(bytes),
    }
}

/// The bytes as they are, and as the body of an envelope whose length and checksum fit.
fn enveloped<T: Debug + PartialEq, E: Debug>(
    kind: u16,
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Result<T, E>,
    write: impl Fn(&T) -> Vec<u8>,
    look: impl Fn(&T),
) {
    let body = if bytes.starts_with(b"HAPX") { bytes.get(20..).unwrap_or_default() } else { bytes };
    let sealed = seal(kind, body);
    for given in [bytes, &sealed] {
        let Ok(value) = read(given) else { continue };
        look(&value);
        let written = write(&value);
        let again = read(&written).expect("we read what we wrote");
        assert_eq!(again, value);
        assert_eq!(write(&again), written);
        for damaged in [given, &written] {
            refuses_damage(damaged, &read);
        }
    }
}

/// A bit somewhere, one of those that are looked at most, and a cut: which ones, the bytes themselves say.
fn refuses_damage<T: Debug, E>(bytes: &[u8], read: &impl Fn(&[u8]) -> Result<T, E>) {
    let random = crc32c([bytes, b""]) as usize;
    for bit in [random % (8 * bytes.len()), random % (8 * 20)] {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&damaged).is_err(), "bit {bit} is flipped, and nobody sees it");
    }
    assert!(read(&bytes[..random % bytes.len()]).is_err(), "a cut is not seen");
}

fn seal(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut head = b"HAPX".to_vec();
    head.extend(kind.to_be_bytes());
    head.extend(FORMAT_VERSION.to_be_bytes());
    head.extend((body.len() as u64).to_be_bytes());
    let checksum = crc32c([&head[4..], body]);
    head.extend(checksum.to_be_bytes());
    head.extend(body);
    head
}

fn look_at_handle(handle: &Handle) {
    assert_eq!(handle.check(), Ok(()));
    assert!(handle.records() > 0);
    assert!(!handle.records_in_words().is_empty());
    assert_eq!(handle.at().id, handle.transactional_id);
}

/// A slot a line, each as the body of an envelope.
fn chain(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n');
    let slots: Vec<Slot> = lines.filter_map(|body| Slot::from_bytes(&seal(3, body)).ok()).collect();
    history::checkpoints(&slots);
    let Ok(mut view) = ChainView::read(&slots) else { return };
    drop((view.ids(), view.ids_in_doubt(), view.ids_to_clear(), view.newest_handles().count()));
    assert!(view.settled_epoch() <= view.last_epoch());
    assert!(view.end().is_none_or(|end| end < view.next_slot()));
    let prunable = view.prunable(3);
    assert!(prunable.iter().all(|number| slots.iter().any(|slot| slot.number == *number)));
    // What may go changes nothing of what the chain says.
    let kept: Vec<Slot> = slots.iter().filter(|slot| !prunable.contains(&slot.number)).cloned().collect();
    view.pruned(&prunable);
    let again = ChainView::read(&kept).expect("a pruned chain is a chain");
    assert_eq!(again.last_epoch(), view.last_epoch());
    assert_eq!(again.settled_epoch(), view.settled_epoch());
    assert_eq!(again.progress(), view.progress());
    assert_eq!(again.ids_to_clear(), view.ids_to_clear());
}

/// A bookmark a line.
fn bookmarks(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut marks = Vec::new();
    let mut found = Vec::new();
    for (line, partition) in text.split('\n').zip(0..) {
        let parsed = Bookmark::parse(line);
        if let Ok(mark) = &parsed {
            assert_eq!(Bookmark::parse(&mark.to_text()).as_ref(), Ok(mark));
            marks.push(Marked { topic: "in".into(), partition, mark: mark.clone() });
        }
        // The offset is the one that stands in the text, so that what fits is not refused for it.
        let next = parsed.ok().and_then(|mark| match mark.at {
            hapax_commit::Reading::Positions(positions) => positions.values().next().map(|at| at.next),
            hapax_commit::Reading::Object(_) => None,
        });
        let offset = next.and_then(|next| i64::try_from(next).ok()).unwrap_or(0);
        found.push(FoundOffset { place: format!("in-{partition}"), offset, metadata: line.to_owned() });
    }
    for home in [Home::Group, Home::Carrier] {
        for job in marks.iter().map(|one| &one.mark.job).take(1) {
            if let Ok(progress) = read_progress(job, home, &found) {
                drop((progress.committed(), progress.positions()));
                assert!(progress.ever >= progress.count);
            }
        }
    }
    let Some(present) = Present::of(&marks, MOST_SHARDS) else { return };
    assert!(present.ever <= MOST_SHARDS);
    present.is_finished();
    if let Ok(cluster) = Name::new("main") {
        let ids = present::Ids::of(&marks[0].mark.job, &cluster, present.ever);
        assert!(!ids.others.contains(&ids.lock));
    }
}

fn object_name(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(name) = ObjectName::parse(text) {
        assert_eq!(name.to_text(), text);
    }
}
