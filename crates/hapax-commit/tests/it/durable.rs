//! Durable bytes: what was written is read back, what was damaged is refused, what an old release wrote is read.

use crate::fixture::{Slots, handle, positions};
use hapax_commit::{
    AssignmentKind, ClusterRecord, DamagedBytes, DeciderKind, Handle, HandleFault, HandlePartition,
    JobRecord, Layout, Name, Naming, ShardId, Slot, SplitId, TopicId, TopicRecord, envelope::FORMAT_VERSION,
    handle::LAST_PRODUCER_EPOCH,
};

/// A handle as format 1 wrote it. Never to be changed: every later release reads it.
const HANDLE_V1: &[u8] = include_bytes!("golden/handle-v1");

fn job_record() -> JobRecord {
    let name = |text: &str| Name::new(text).unwrap();
    let cluster = ClusterRecord { cluster_id: "C".into(), brokers: "b:9092".into() };
    JobRecord {
        job: name("orders"),
        created_ms: 1,
        decider: DeciderKind::Checkpoint,
        assignment: AssignmentKind::All,
        naming: Naming::Rotating,
        clusters: [(name("main"), cluster)].into(),
        topics: [("main/in".into(), TopicRecord { topic_id: TopicId([1; 16]), partitions: 3 })].into(),
        layout: Layout { number: 1, shards: [(ShardId(0), vec![SplitId("in/topic/0".into())])].into() },
        genesis: positions(0),
        pipeline: "job = \"orders\"".into(),
    }
}

#[test]
fn a_handle_of_the_first_format_is_still_read() {
    assert_eq!(Handle::from_bytes(HANDLE_V1), Ok(handle(0, 1)));
    assert_eq!(handle(0, 1).to_bytes(), HANDLE_V1, "format 1 writes other bytes: that is format 2");
}

#[test]
fn what_was_written_is_read_back() {
    for slot in Slots::claimed().decide(1).put(crate::fixture::proven(1)).claim(2).all {
        assert_eq!(Slot::from_bytes(&slot.to_bytes()), Ok(slot));
    }
    assert_eq!(JobRecord::from_bytes(&job_record().to_bytes()), Ok(job_record()));
}

#[test]
fn a_damaged_byte_anywhere_is_refused() {
    let bytes = handle(0, 1).to_bytes();
    for at in 0..bytes.len() {
        for bit in [1, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= bit;
            assert!(Handle::from_bytes(&damaged).is_err(), "byte {at}");
        }
        assert!(Handle::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
    }
    let longer = [&bytes[..], b" "].concat();
    assert!(matches!(Handle::from_bytes(&longer), Err(DamagedBytes::Length { .. })));
}

#[test]
fn bytes_of_a_newer_release_are_refused_by_name() {
    let mut newer = handle(0, 1).to_bytes();
    newer[6..8].copy_from_slice(&(FORMAT_VERSION + 1).to_be_bytes());
    assert_eq!(Handle::from_bytes(&newer), Err(DamagedBytes::Newer { version: FORMAT_VERSION + 1 }));
    assert_eq!(Slot::from_bytes(&handle(0, 1).to_bytes()), Err(DamagedBytes::NotOurs));
}

/// T11, H26: what EndTxn would refuse is not stored, and not believed when read.
#[test]
fn a_handle_that_breaks_an_invariant_is_refused_when_read() {
    let whole = handle(0, 1);
    let partition = |change: fn(&mut HandlePartition)| {
        let mut handle = whole.clone();
        change(&mut handle.partitions[0]);
        handle
    };
    let mut late = whole.clone();
    late.identity.producer_epoch = LAST_PRODUCER_EPOCH;
    let wrong_id = Handle { transactional_id: handle(0, 2).transactional_id, ..whole.clone() };
    for (broken, fault) in [
        (Handle { partitions: Vec::new(), ..whole.clone() }, HandleFault::Empty),
        (late, HandleFault::LastProducerEpoch),
        (wrong_id, HandleFault::WrongId),
        (partition(|part| part.count = 0), HandleFault::Offsets),
        (partition(|part| part.count = 11), HandleFault::Offsets),
        (partition(|part| part.first_offset = -1), HandleFault::Offsets),
        (partition(|part| part.last_offset = 9), HandleFault::Offsets),
        (partition(|part| part.last_offset = i64::MIN), HandleFault::Offsets),
    ] {
        assert_eq!(Handle::from_bytes(&broken.to_bytes()), Err(DamagedBytes::Handle(fault)));
    }
}
