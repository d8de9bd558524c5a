//! Journals: what was appended is read back, only what was put is used, and only what is known to be older goes.

#![allow(clippy::disallowed_methods, reason = "the file system is what is tested")]

use crate::{
    fault::{FaultyStore, Put},
    sample::{Folder, job, name, open, over, record},
};
use bytes::Bytes;
use hapax_commit::{Epoch, Generation, Journal, LaneId, ShardId};
use hapax_store::{
    Incarnation, Journals, Store, StoreError,
    journal::{FinishedPart, PartReader, PartWriter, Row},
};
use object_store::memory::InMemory;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    topic: String,
    partition: i32,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Owned {
    fn row(&self) -> Row<'_> {
        Row {
            topic: &self.topic,
            partition: self.partition,
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: self.headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect(),
        }
    }
}

impl From<Row<'_>> for Owned {
    fn from(row: Row<'_>) -> Self {
        let own = |bytes: &[u8]| bytes.to_vec();
        Self {
            topic: row.topic.to_owned(),
            partition: row.partition,
            timestamp: row.timestamp,
            key: row.key.map(own),
            value: row.value.map(own),
            headers: row.headers.into_iter().map(|(key, value)| (own(key), value.map(own))).collect(),
        }
    }
}

/// A record of every kind after another, different in each field.
fn records(count: usize) -> Vec<Owned> {
    let fields = |at: usize| match at % 4 {
        0 => None,
        1 => Some(Vec::new()),
        2 => Some(vec![0xff, 0, at as u8]),
        _ => Some(format!("{at}-{}", "x".repeat(at % 97)).into_bytes()),
    };
    let record = |at: usize| Owned {
        topic: ["out", "other"][at / 7 % 2].to_owned(),
        partition: (at % 5) as i32,
        timestamp: 1_790_000_000_000 - at as i64 * 13,
        key: fields(at),
        value: fields(at / 4),
        headers: (0..at % 4)
            .map(|header| (fields(at + header + 1).unwrap_or_default(), fields(at + header)))
            .collect(),
    };
    (0..count).map(record).collect()
}

fn part(records: &[Owned]) -> FinishedPart {
    let mut part = PartWriter::new(&[("lane", "main.0".to_owned())]);
    records.iter().for_each(|record| part.append(&record.row()).unwrap());
    assert_eq!(part.records(), records.len() as u64);
    part.finish().unwrap()
}

fn read(bytes: Bytes) -> (Vec<Owned>, usize) {
    let mut reader = PartReader::open(bytes).unwrap();
    let (mut all, mut groups) = (Vec::new(), 0);
    while let Some(rows) = reader.next_rows().unwrap() {
        assert!(!rows.is_empty());
        all.extend(rows.iter().map(Owned::from));
        groups += 1;
    }
    (all, groups)
}

#[test]
fn what_was_appended_is_read_back_to_the_byte_and_in_order() {
    for count in [1, 2, 3, 4, 5, 1_000] {
        let wanted = records(count);
        let part = part(&wanted);
        assert_eq!(part.records, count as u64);
        assert_eq!(read(part.bytes), (wanted, 1), "{count} records");
    }
}

/// Row groups are what is in memory at once, when it is written and when it is read.
#[test]
fn a_part_holds_many_row_groups_and_is_full_long_before_an_epoch_is() {
    let mut random = fastrand::Rng::with_seed(1);
    let big = Owned { headers: Vec::new(), key: None, value: Some(vec![0; 10_000]), ..records(1).remove(0) };
    let mut part = PartWriter::new(&[]);
    let mut wanted = Vec::new();
    while !part.is_full() {
        let mut record = big.clone();
        record.value.iter_mut().flatten().for_each(|byte| *byte = random.u8(..));
        part.append(&record.row()).unwrap();
        wanted.push(record);
        assert!(wanted.len() < 1_000, "a part ends after a few MiB");
    }
    let finished = part.finish().unwrap();
    assert!((4 << 20..7 << 20).contains(&finished.bytes.len()), "{} bytes", finished.bytes.len());
    let (found, groups) = read(finished.bytes);
    assert!(groups >= 2 && found == wanted);
}

#[test]
fn a_record_larger_than_a_part_fits_into_one() {
    let one = Owned { value: Some(vec![7; 9 << 20]), ..records(4).remove(3) };
    let mut part = PartWriter::new(&[]);
    part.append(&one.row()).unwrap();
    assert_eq!(read(part.finish().unwrap().bytes), (vec![one], 1));
}

#[test]
fn bytes_that_are_no_journal_are_refused_with_a_reason() {
    assert!(PartReader::open(Bytes::from_static(b"nothing")).is_err());
    let cut = part(&records(100)).bytes;
    assert!(PartReader::open(cut.slice(..cut.len() / 2)).is_err());
}

fn journal(generation: u64, epoch: u64) -> Journal {
    let lane = LaneId { cluster: name("main"), shard: ShardId(3) };
    Journal { lane, epoch: Epoch(epoch), generation: Generation(generation), parts: Vec::new() }
}

async fn journals(store: &Store) -> Journals {
    store.create_job(&record(&job())).await.unwrap();
    store.journals(&job(), Incarnation::FIRST, 0)
}

fn folder(root: &Path) -> PathBuf {
    root.join("orders/1/journal/0")
}

fn files(root: &Path) -> Vec<String> {
    let Ok(folder) = fs::read_dir(folder(root)) else { return Vec::new() };
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

async fn put(journals: &Journals, journal: &mut Journal, count: usize) {
    let FinishedPart { bytes, records } = part(&records(count));
    journals.put(journal, records, bytes).await.unwrap();
}

#[tokio::test]
async fn a_journal_is_read_part_by_part_as_it_was_put() {
    let root = Folder::new();
    let journals = journals(&open(root.path())).await;
    let mut journal = journal(7, 41);
    put(&journals, &mut journal, 10).await;
    put(&journals, &mut journal, 20).await;
    assert_eq!(journal.records(), 30);
    for (at, count) in [10, 20].into_iter().enumerate() {
        let bytes = journals.get(&journal, at).await.unwrap().unwrap();
        assert_eq!(read(bytes).0, records(count));
    }
    journals.remove(&[journal.clone()]).await.unwrap();
    assert_eq!(files(root.path()), [""; 0]);
    journals.remove(&[journal.clone()]).await.expect("what is removed already is no failure");
    let gone = journals.get(&journal, 0).await.unwrap().unwrap_err();
    assert!(gone.contains("is not there any more"), "{gone}");
}

#[tokio::test]
async fn a_part_that_is_not_the_one_that_was_put_is_not_used() {
    let root = Folder::new();
    let journals = journals(&open(root.path())).await;
    let mut journal = journal(7, 41);
    put(&journals, &mut journal, 50).await;
    let file = folder(root.path()).join(&files(root.path())[0]);
    let whole = fs::read(&file).unwrap();
    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&file, damaged).unwrap();
        let why = journals.get(&journal, 0).await.unwrap().unwrap_err();
        assert!(why.contains("the checksum does not fit"), "{why}");
    }
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let why = journals.get(&journal, 0).await.unwrap().unwrap_err();
    assert!(why.contains("damaged: it has"), "{why}");
    fs::write(&file, &whole).unwrap();
    assert_eq!(journals.get(&journal, 0).await.unwrap().unwrap(), whole);
}

/// A store that is not mounted has lost no journal: that is the store's failure, and no reason to give records up.
#[tokio::test]
async fn a_part_of_a_store_that_is_gone_is_a_failure_and_not_a_missing_part() {
    let root = Folder::new();
    let journals = journals(&open(root.path())).await;
    let mut journal = journal(7, 41);
    put(&journals, &mut journal, 5).await;
    fs::remove_dir_all(root.path().join("orders")).unwrap();
    assert!(matches!(journals.get(&journal, 0).await, Err(StoreError::Gone { .. })));
    let FinishedPart { bytes, records } = part(&records(1));
    assert!(matches!(journals.put(&mut journal, records, bytes).await, Err(StoreError::Gone { .. })));
    assert_eq!(journal.parts.len(), 1, "what was not stored is not in the list");
}

#[tokio::test]
async fn only_parts_of_older_runs_are_orphans() {
    let root = Folder::new();
    let journals = journals(&open(root.path())).await;
    for (generation, epoch) in [(3, 9), (7, 10), (8, 10), (8, 11), (12, 2)] {
        put(&journals, &mut journal(generation, epoch), 3).await;
    }
    let strange = ["note.parquet", "0000.1.main.0.0.parquet", "00000000000000000001"];
    for name in strange {
        fs::write(folder(root.path()).join(name), "x").unwrap();
    }
    assert_eq!(journals.remove_older(Generation(8)).await.unwrap(), 2);
    let left = files(root.path());
    assert!(strange.iter().all(|name| left.contains(&(*name).to_owned())), "{left:?}");
    let of =
        |generation: u64| left.iter().filter(|name| name.starts_with(&format!("{generation:020}."))).count();
    assert_eq!([3, 7, 8, 12].map(of), [0, 0, 2, 1]);
    assert_eq!(journals.remove_older(Generation(8)).await.unwrap(), 0);
}

#[tokio::test]
async fn whatever_the_answer_a_part_that_is_there_with_our_bytes_is_stored() {
    for puts in [&[Put::ApplyThenFail][..], &[Put::ApplyThenExists], &[Put::ExistsButEmpty], &[Put::LandSoon]]
    {
        let faults = FaultyStore::new(Arc::new(InMemory::new()), puts, &[]);
        let journals = journals(&over(faults.clone())).await;
        let mut journal = journal(7, 41);
        put(&journals, &mut journal, 5).await;
        assert_eq!(faults.fired.load(Ordering::SeqCst), 1, "{puts:?}");
        assert_eq!(read(journals.get(&journal, 0).await.unwrap().unwrap()).0, records(5));
    }
}

#[tokio::test]
async fn a_part_without_an_answer_is_no_part_of_the_journal() {
    for outcome in [Put::Full, Put::ReadOnly, Put::LandWhenTold] {
        let faults = FaultyStore::new(Arc::new(InMemory::new()), &[outcome; 4], &[]);
        let journals = journals(&over(faults.clone())).await;
        let (mut journal, FinishedPart { bytes, records }) = (journal(7, 41), part(&records(5)));
        journals.put(&mut journal, records, bytes).await.unwrap_err();
        assert!(journal.parts.is_empty() && faults.fired.load(Ordering::SeqCst) > 0, "{outcome:?}");
    }
}
