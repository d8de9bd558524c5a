//! Where things lie.
//!
//! ```text
//! <root>/<job>/<incarnation>/job                            the job record
//! <root>/<job>/<incarnation>/chain/<cohort>/<20 digits>     a slot
//! <root>/<job>/<incarnation>/journal/<cohort>/<generation>.<epoch>.<cluster>.<shard>.<part>.parquet
//! <root>/<job>/<incarnation>/positions/<producer id>.<producer epoch>.<shard>.<epoch>
//! ```
//! An *incarnation* is a job's life under one job record; `--fresh` begins the next one and leaves the older ones
//! untouched. Objects are never moved: a moved slot would free its number, and the put of a run that slept
//! through the move would succeed.
//!
//! Names that begin with a dot are nobody's business: our own marks (`.sync`, `.probe-…`) and those of file
//! systems (`.nfs…`) are passed over when a folder is read; in a chain's folder every other unknown name is refused.
//! A crash in the middle of a local put may leave a file `<name>#<n>`, which object_store hides and nobody reads.

use hapax_commit::{Generation, Journal, Name, RunNonce, SlotNumber};
use object_store::path::Path;
use std::fmt;

/// A job's life under one job record, numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

impl Incarnation {
    /// The first life of a job.
    pub const FIRST: Self = Self(1);

    /// The life after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a person begins a job anew less than four billion times"))
    }

    /// The life before this one.
    pub fn former(self) -> Option<Self> {
        (self > Self::FIRST).then(|| Self(self.0 - 1))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Digits of a slot's name: enough for every number, so that names sort as numbers do.
const SLOT_DIGITS: usize = 20;

pub(crate) fn job_folder(root: &Path, job: &Name) -> Path {
    root.clone().join(job.as_str())
}

pub(crate) fn job_record(root: &Path, job: &Name, incarnation: Incarnation) -> Path {
    job_folder(root, job).join(incarnation.to_string()).join("job")
}

pub(crate) fn chain_folder(root: &Path, job: &Name, incarnation: Incarnation, cohort: u32) -> Path {
    job_folder(root, job).join(incarnation.to_string()).join("chain").join(cohort.to_string())
}

pub(crate) fn slot(folder: &Path, number: SlotNumber) -> Path {
    folder.clone().join(format!("{:0SLOT_DIGITS$}", number.0))
}

/// Reads a slot's name back; `None` where it is not exactly as we write it.
pub(crate) fn slot_number(name: &str) -> Option<SlotNumber> {
    let legal = name.len() == SLOT_DIGITS && name.bytes().all(|byte| byte.is_ascii_digit());
    let number = legal.then(|| name.parse().ok()).flatten()?;
    (SlotNumber(number) >= SlotNumber::FIRST).then_some(SlotNumber(number))
}

pub(crate) fn journal_folder(root: &Path, job: &Name, incarnation: Incarnation, cohort: u32) -> Path {
    job_folder(root, job).join(incarnation.to_string()).join("journal").join(cohort.to_string())
}

pub(crate) fn positions_folder(root: &Path, job: &Name, incarnation: Incarnation) -> Path {
    job_folder(root, job).join(incarnation.to_string()).join("positions")
}

/// The object of a journal's part. Unique for ever: one run has a generation, and it writes an epoch once.
pub(crate) fn journal_part(folder: &Path, journal: &Journal, part: usize) -> Path {
    let Journal { lane, epoch, generation, .. } = journal;
    folder.clone().join(format!(
        "{:0SLOT_DIGITS$}.{:0SLOT_DIGITS$}.{}.{}.{part}{PART_END}",
        generation.0, epoch.0, lane.cluster, lane.shard
    ))
}

/// What the name of a part ends with.
const PART_END: &str = ".parquet";

/// The run that wrote the part of this name; `None` where it is not a name that we write.
pub(crate) fn journal_generation(name: &str) -> Option<Generation> {
    let parts: Vec<&str> = name.strip_suffix(PART_END)?.split('.').collect();
    let [generation, epoch, cluster, shard, part] = parts.as_slice() else { return None };
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_long = |text: &&str| text.len() == SLOT_DIGITS && is_number(text);
    let is_ours = is_long(generation)
        && is_long(epoch)
        && Name::new(cluster).is_ok()
        && is_number(shard)
        && is_number(part);
    let generation = is_ours.then(|| generation.parse().ok()).flatten()?;
    Some(Generation(generation))
}

/// Reads an incarnation's folder name back; `None` where it is not exactly as we write it.
pub(crate) fn incarnation(name: &str) -> Option<Incarnation> {
    let number = Incarnation(name.parse().ok()?);
    (number >= Incarnation::FIRST && number.to_string() == name).then_some(number)
}

/// An object whose put makes the entries of `folder` durable (see [`crate::object`]).
pub(crate) fn sync_mark(folder: &Path) -> Path {
    folder.clone().join(".sync")
}

pub(crate) fn probe(root: &Path, run: RunNonce) -> Path {
    root.clone().join(format!(".probe-{run}"))
}

/// A name that no reader looks at.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_commit::{Epoch, LaneId, ShardId};

    #[test]
    fn names_of_slots_sort_as_their_numbers_and_are_read_back() {
        let folder = Path::from("orders/1/chain/0");
        let numbers = [1, 2, 9, 10, 99, 100, 4_000_000_000, u64::MAX].map(SlotNumber);
        let paths: Vec<Path> = numbers.iter().map(|number| slot(&folder, *number)).collect();
        assert!(paths.is_sorted());
        for (path, number) in paths.iter().zip(numbers) {
            assert_eq!(slot_number(path.filename().unwrap()), Some(number));
        }
    }

    #[test]
    fn a_part_tells_which_run_wrote_it() {
        let lane = LaneId { cluster: Name::new("main-2").unwrap(), shard: ShardId(7) };
        let journal = Journal { lane, epoch: Epoch(12), generation: Generation(3), parts: Vec::new() };
        let path = journal_part(&Path::from("orders/1/journal/0"), &journal, 41);
        let name = "00000000000000000003.00000000000000000012.main-2.7.41.parquet";
        assert_eq!(path.filename(), Some(name));
        assert_eq!(journal_generation(name), Some(Generation(3)));
        for strange in
            [&name[1..], &name[..name.len() - 1], &name.replace("main-2", ""), &name.replace(".7", ".x")]
        {
            assert_eq!(journal_generation(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_name_that_we_would_write_otherwise_is_not_ours() {
        for name in ["", "1", "00000000000000000000", "0000000000000000001", "00000000000000000001.bak"] {
            assert_eq!(slot_number(name), None, "{name}");
        }
        for name in ["", "0", "01", "+1", "-1", "one", "4294967296"] {
            assert_eq!(incarnation(name), None, "{name}");
        }
        assert_eq!(incarnation("12"), Some(Incarnation(12)));
    }
}
