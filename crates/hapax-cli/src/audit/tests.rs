//! Planted faults are found, each as what it is, in memory and spilled.

use super::*;
use hapax_host::{Files, OpenFile, RealFiles, RealNet};
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering as Atomic},
    },
};

/// A folder of its own, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let unique = format!("hapax-audit-{}-{}", std::process::id(), NEXT.fetch_add(1, Atomic::Relaxed));
        let path = std::env::temp_dir().join(unique);
        RealFiles.create_dir_all(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> usize {
        RealFiles.list(&self.0).unwrap().len()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn audit(folder: &Folder, ordering: Ordering, memory: usize) -> Audit {
    Audit::new(Config { ordering, memory, folder: folder.0.clone(), host: Host::real() })
}

/// splitmix64: the same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

fn item(id: u64, partition: u32, offset: u64) -> Item {
    let id = Id::of_value(&id.to_be_bytes());
    Item { id, place: Place { partition, offset }, group: None, order: None }
}

fn place(partition: u32, offset: u64) -> Place {
    Place { partition, offset }
}

/// `sides[partition] = ids in order`.
fn run(ordering: Ordering, memory: usize, expected: &[Vec<u64>], actual: &[Vec<u64>]) -> Report {
    let folder = Folder::new();
    let mut audit = audit(&folder, ordering, memory);
    let items = |side: &[Vec<u64>]| -> Vec<Item> {
        let of = |(partition, ids): (usize, &Vec<u64>)| -> Vec<Item> {
            let at = |(offset, id): (usize, &u64)| item(*id, partition as u32, offset as u64);
            ids.iter().enumerate().map(at).collect()
        };
        side.iter().enumerate().flat_map(of).collect()
    };
    // Sides may be fed in any order.
    items(actual).iter().for_each(|item| audit.actual(item).unwrap());
    items(expected).iter().for_each(|item| audit.expected(item).unwrap());
    let report = audit.finish().unwrap();
    assert_eq!(folder.files(), 0);
    report
}

fn figures(report: &Report) -> [u64; 4] {
    [&report.missing, &report.duplicated, &report.unexpected, &report.reordered].map(|finding| finding.count)
}

fn copy(expected: &[Vec<u64>], actual: &[Vec<u64>]) -> Report {
    run(Ordering::SourcePosition, SORT_MEMORY, expected, actual)
}

fn first(finding: &Finding) -> (Place, Option<Place>) {
    let example = finding.examples.first().unwrap();
    (example.at, example.other)
}

#[test]
fn an_exact_copy_is_clean_and_an_empty_one_too() {
    let report = copy(&[vec![1, 2, 3], vec![4, 5]], &[vec![1, 4, 2, 5, 3]]);
    assert!(report.is_clean());
    assert_eq!((report.expected, report.actual, report.order_unchecked), (5, 5, 0));
    assert!(copy(&[], &[]).is_clean());
}

#[test]
fn each_fault_is_found_as_what_it_is_with_its_place() {
    let source = [vec![1, 2, 3, 4]];
    let report = copy(&source, &[vec![1, 2, 4]]);
    assert_eq!(figures(&report), [1, 0, 0, 0]);
    assert_eq!(first(&report.missing), (place(0, 2), None));

    let report = copy(&source, &[vec![1, 2, 3, 2, 3, 4]]);
    assert_eq!(figures(&report), [0, 2, 0, 0]);
    assert_eq!(first(&report.duplicated), (place(0, 3), Some(place(0, 1))));

    let report = copy(&source, &[vec![1, 2, 9, 3, 4]]);
    assert_eq!(figures(&report), [0, 0, 1, 0]);
    assert_eq!(first(&report.unexpected), (place(0, 2), None));

    let report = copy(&source, &[vec![1, 3, 2, 4]]);
    assert_eq!(figures(&report), [0, 0, 0, 1]);
    assert_eq!(first(&report.reordered), (place(0, 2), Some(place(0, 1))));

    let all_lost = copy(&source, &[]);
    assert_eq!(figures(&all_lost), [4, 0, 0, 0]);
    assert!(!all_lost.is_clean());
}

#[test]
fn order_is_compared_within_a_source_partition_and_an_output_partition_only() {
    assert!(copy(&[vec![1, 2], vec![3, 4]], &[vec![3, 1, 4, 2]]).is_clean());
    assert!(copy(&[vec![1, 2, 3, 4]], &[vec![2, 4], vec![1, 3]]).is_clean());
    assert_eq!(figures(&copy(&[vec![1, 2, 3, 4]], &[vec![4, 2], vec![1, 3]])), [0, 0, 0, 1]);
}

#[test]
fn one_early_record_puts_all_that_it_overtook_behind_it() {
    assert_eq!(figures(&copy(&[vec![1, 2, 3, 4]], &[vec![4, 1, 2, 3]])), [0, 0, 0, 3]);
    assert_eq!(figures(&copy(&[vec![1, 2, 3, 4]], &[vec![2, 3, 4, 1]])), [0, 0, 0, 1]);
}

#[test]
fn identical_records_count_as_often_as_they_occur() {
    assert!(copy(&[vec![7, 7, 1, 7]], &[vec![7, 7, 1, 7]]).is_clean());
    let report = copy(&[vec![7, 7, 1, 7]], &[vec![7, 1, 7]]);
    assert_eq!(figures(&report), [1, 0, 0, 0]);
    // Which of the three is missing nobody can tell, nor where the others belong.
    assert_eq!(report.order_unchecked, 2);
    let report = copy(&[vec![7, 1, 7]], &[vec![7, 1, 7, 7, 7]]);
    assert_eq!(figures(&report), [0, 2, 0, 0]);
    assert_eq!(report.order_unchecked, 0);
}

#[test]
fn identical_records_of_several_partitions_are_counted_and_their_order_is_said_to_be_unchecked() {
    let report = copy(&[vec![4, 5, 6], vec![5]], &[vec![5, 4, 5, 6]]);
    assert!(report.is_clean());
    assert_eq!(report.order_unchecked, 2);
    let report = copy(&[vec![5, 1, 5]], &[vec![5], vec![5, 1]]);
    assert!(report.is_clean());
    assert_eq!(report.order_unchecked, 2);
}

#[test]
fn more_identical_records_than_are_held_are_counted_all_the_same() {
    let many = limits::COPIES + 100;
    let report = copy(&[vec![7; many + 50]], &[vec![7; many]]);
    assert_eq!(figures(&report), [50, 0, 0, 0]);
    assert_eq!(report.order_unchecked, many as u64);
    assert_eq!(report.missing.examples.len(), 0);
    let report = copy(&[vec![7; many]], &[vec![7; many + 50]]);
    assert_eq!(figures(&report), [0, 50, 0, 0]);
    assert_eq!(report.duplicated.examples.len(), limits::EXAMPLES);
}

#[test]
fn examples_are_the_first_by_place_and_bounded() {
    let report = copy(&[(0..500).collect()], &[]);
    assert_eq!(report.missing.count, 500);
    let offsets: Vec<u64> = report.missing.examples.iter().map(|example| example.at.offset).collect();
    assert_eq!(offsets, (0..limits::EXAMPLES as u64).collect::<Vec<_>>());
}

#[test]
fn an_order_value_must_not_descend_within_its_group() {
    let folder = Folder::new();
    let by_value = |values: &[(u64, Option<u128>, Option<i64>)], of_expected: Option<i64>| {
        let mut audit = audit(&folder, Ordering::Value, SORT_MEMORY);
        for (offset, (id, group, value)) in values.iter().enumerate() {
            let mut expected = item(*id, 0, *id);
            expected.order = of_expected.map(|sign| Order::number_i64(sign * i64::try_from(*id).unwrap()));
            audit.expected(&expected).unwrap();
            let order = value.map(Order::number_i64);
            audit.actual(&Item { group: *group, order, ..item(*id, 0, offset as u64) }).unwrap();
        }
        audit.finish().unwrap()
    };
    let rising = [(3, None, Some(-5)), (1, None, Some(-5)), (2, None, Some(7))];
    assert!(by_value(&rising, None).is_clean(), "source positions do not matter here");
    let descends = [(1, None, Some(10)), (2, None, Some(9)), (3, None, Some(11))];
    assert_eq!(figures(&by_value(&descends, None)), [0, 0, 0, 1]);
    let grouped = [(1, Some(1), Some(10)), (2, Some(2), Some(9)), (3, Some(2), Some(8))];
    let report = by_value(&grouped, None);
    assert_eq!(figures(&report), [0, 0, 0, 1]);
    assert_eq!(first(&report.reordered), (place(0, 2), Some(place(0, 1))));
    let without = [(1, None, None), (2, None, None)];
    assert_eq!(by_value(&without, None).order_unchecked, 2);
    assert!(by_value(&without, Some(1)).is_clean());
    assert_eq!(figures(&by_value(&without, Some(-1))), [0, 0, 0, 1]);
}

const SOURCES: usize = 4;
const OUTPUTS: usize = 3;

/// A copy by key of `records` records, with faults planted into unique records; gives the figures to expect.
fn planted(records: u64, random: &mut Random) -> ([Vec<Vec<u64>>; 2], [u64; 4]) {
    let mut source = vec![Vec::new(); SOURCES];
    let mut output = vec![Vec::new(); OUTPUTS];
    for id in 0..records {
        let from = random.below(SOURCES);
        source[from].push(id);
        output[usize::try_from(id % OUTPUTS as u64).unwrap()].push((id, from));
    }
    let counts = [170, 23, 5, 11];
    let [missing, duplicated, unexpected, reordered] = counts;
    let mut touched = std::collections::BTreeSet::new();
    let mut pick = |output: &[Vec<(u64, usize)>], span: usize| loop {
        let partition = random.below(OUTPUTS);
        let at = random.below(output[partition].len() - span);
        let ids: Vec<u64> = output[partition][at..=at + span].iter().map(|(id, _)| *id).collect();
        if ids.iter().all(|id| !touched.contains(id)) {
            touched.extend(ids);
            return (partition, at);
        }
    };
    for _ in 0..reordered {
        // Two neighbours of one source partition change places.
        loop {
            let (partition, at) = pick(&output, 1);
            if output[partition][at].1 == output[partition][at + 1].1 {
                output[partition].swap(at, at + 1);
                break;
            }
        }
    }
    for _ in 0..missing {
        let (partition, at) = pick(&output, 0);
        output[partition].remove(at);
    }
    for nth in 0..duplicated {
        let (partition, at) = pick(&output, 0);
        let record = output[partition][at];
        // Behind itself, or at the end of any partition.
        match nth % 2 {
            0 => output[partition].insert(at + 1, record),
            _ => output[(partition + 1) % OUTPUTS].push(record),
        }
    }
    for nth in 0..unexpected {
        let (partition, at) = pick(&output, 0);
        output[partition].insert(at, (records + nth, 0));
    }
    let ids = |side: Vec<Vec<(u64, usize)>>| {
        side.into_iter().map(|ids| ids.into_iter().map(|(id, _)| id).collect()).collect()
    };
    ([source, ids(output)], counts)
}

#[test]
fn planted_faults_among_200_000_records_are_counted_exactly_with_little_memory() {
    let ([source, output], counts) = planted(200_000, &mut Random(7));
    let spilled = run(Ordering::SourcePosition, 48 << 10, &source, &output);
    assert_eq!(figures(&spilled), counts);
    assert_eq!(spilled.expected, 200_000);
    assert_eq!(spilled.actual, 200_000 - counts[0] + counts[1] + counts[2]);
    // More than one level of merging.
    assert!(spilled.spilled_runs > 2 * limits::FAN_IN as u64, "{}", spilled.spilled_runs);

    let in_memory = run(Ordering::SourcePosition, SORT_MEMORY, &source, &output);
    assert_eq!(in_memory.spilled_runs, 0);
    assert_eq!(Report { spilled_runs: 0, ..spilled }, in_memory);
}

/// What the engine has to find, told by counting in memory.
fn naive(source: &[Vec<u64>], output: &[Vec<u64>]) -> [u64; 3] {
    let count = |side: &[Vec<u64>]| {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        side.iter().flatten().for_each(|id| *counts.entry(*id).or_default() += 1);
        counts
    };
    let (expected, actual) = (count(source), count(output));
    let missing = |(id, k): (&u64, &u64)| k.saturating_sub(actual.get(id).copied().unwrap_or(0));
    let surplus = |known: bool| {
        let of = |(id, m): (&u64, &u64)| match expected.get(id) {
            Some(k) if known => m.saturating_sub(*k),
            None if !known => *m,
            Some(_) | None => 0,
        };
        actual.iter().map(of).sum()
    };
    [expected.iter().map(missing).sum(), surplus(true), surplus(false)]
}

#[test]
fn any_two_sides_are_counted_as_by_counting() {
    let mut random = Random(42);
    for round in 0..120 {
        let mut side = || -> Vec<Vec<u64>> {
            let partitions = 1 + random.below(3);
            let ids = 1 + random.below(40);
            (0..partitions)
                .map(|_| (0..random.below(60)).map(|_| random.below(ids) as u64).collect())
                .collect()
        };
        let (source, output) = (side(), side());
        let report = run(Ordering::SourcePosition, 1 << 10, &source, &output);
        assert_eq!(figures(&report)[..3], naive(&source, &output), "round {round}");
        assert!(run(Ordering::SourcePosition, 1 << 10, &source, &source).is_clean(), "round {round}");
    }
}

#[test]
fn an_audit_that_is_given_up_leaves_no_file() {
    let folder = Folder::new();
    let mut audit = audit(&folder, Ordering::SourcePosition, 1 << 10);
    for offset in 0..10_000 {
        audit.expected(&item(offset, 0, offset)).unwrap();
    }
    drop(audit);
    assert_eq!(folder.files(), 0);
}

/// A disk that takes so many files, and on which an open file cannot be removed.
struct SmallDisk {
    left: AtomicU32,
    stubborn: AtomicU32,
}

impl Files for SmallDisk {
    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        RealFiles.read_to_string(path)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        RealFiles.open(path)
    }
    fn append(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        RealFiles.append(path)
    }
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        if self.left.fetch_sub(1, Atomic::Relaxed) <= 1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.stubborn.store(1, Atomic::Relaxed);
        RealFiles.create_new(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_dir_all(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        RealFiles.sync_folder(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        RealFiles.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        if self.stubborn.swap(0, Atomic::Relaxed) == 1 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        RealFiles.remove(path)
    }
}

#[test]
fn a_full_disk_is_reported_and_its_files_are_removed() {
    let folder = Folder::new();
    let disk = Arc::new(SmallDisk { left: AtomicU32::new(20), stubborn: AtomicU32::new(0) });
    let host = Host::seeded(1, 0, Arc::new(RealNet), disk);
    let path = folder.0.clone();
    let config = Config { ordering: Ordering::SourcePosition, memory: 1 << 10, folder: path, host };
    let mut audit = Audit::new(config);
    let error = (0..10_000)
        .find_map(|offset| audit.expected(&item(offset, 0, offset)).err())
        .expect("the disk has room for less");
    assert!(error.to_string().starts_with("could not create the spill file "), "{error}");
    assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
    assert!(folder.files() > 0, "the disk did not keep names of open files");
    drop(audit);
    assert_eq!(folder.files(), 0);
}
