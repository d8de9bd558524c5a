//! The suite for checkpoint stores passes a right one, and finds out each wrong one by the promise that it breaks.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use hapax::conformance::{self, Checkpoint, CheckpointStore, Put, StoreError};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard},
};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Epoch and handles are two writes.
    TornPut,
    /// Whoever puts is believed.
    NoFence,
    /// The fence is asked before the write, and not with it.
    FenceAskedBefore,
    /// Generations are counted in the process.
    GenerationForgotten,
    /// Reading and raising the generation are two steps.
    ClaimRaces,
    /// A put that is already there is refused.
    CreateOnly,
    /// Only the first handle is kept.
    OneHandle,
    /// Ids are kept in ASCII.
    AsciiIds,
    /// A reader keeps what it has read.
    StaleReader,
    /// Answers before it has stored.
    AnswersEarly,
}

impl Mistake {
    /// The promise that finds it out.
    fn broken(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::TornPut => "a_put_that_dies_on_its_way_leaves_the_old_or_the_new",
            Self::NoFence => "an_older_run_is_refused_from_the_begin_of_a_newer_one_on",
            Self::FenceAskedBefore => "an_older_run_that_is_on_its_way_does_not_overwrite_a_newer_one",
            Self::GenerationForgotten => "a_later_run_has_a_higher_generation",
            Self::ClaimRaces => "two_runs_that_begin_at_once_have_two_generations",
            Self::CreateOnly => "a_put_whose_answer_was_lost_may_be_repeated",
            Self::OneHandle | Self::AsciiIds | Self::AnswersEarly => {
                "what_was_put_is_read_back_whole_by_another_process"
            }
            Self::StaleReader => "the_newest_of_several_is_read",
        })
    }
}

const MISTAKES: [Mistake; 10] = [
    Mistake::TornPut,
    Mistake::NoFence,
    Mistake::FenceAskedBefore,
    Mistake::GenerationForgotten,
    Mistake::ClaimRaces,
    Mistake::CreateOnly,
    Mistake::OneHandle,
    Mistake::AsciiIds,
    Mistake::StaleReader,
    Mistake::AnswersEarly,
];

/// What outlives a process.
#[derive(Debug, Default)]
struct Disk {
    generation: u64,
    newest: Option<Checkpoint>,
    unwritten: Option<Checkpoint>,
}

/// One process's view of it.
struct Store {
    mistake: Mistake,
    disk: Arc<Mutex<Disk>>,
    cache: Mutex<Option<Checkpoint>>,
}

impl Store {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    fn write(&self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let mut disk = self.disk();
        if self.mistake == Mistake::CreateOnly && disk.newest.as_ref() == Some(checkpoint) {
            return Err("it is there already".into());
        }
        if self.mistake == Mistake::AnswersEarly {
            disk.newest = disk.unwritten.replace(checkpoint.clone());
        } else {
            disk.newest = Some(self.kept(checkpoint));
        }
        Ok(())
    }

    fn kept(&self, checkpoint: &Checkpoint) -> Checkpoint {
        let mut kept = checkpoint.clone();
        match self.mistake {
            Mistake::OneHandle => kept.handles.truncate(1),
            Mistake::AsciiIds => kept.ids.iter_mut().for_each(|id| id.retain(|letter| letter.is_ascii())),
            _ => {}
        }
        kept
    }
}

impl CheckpointStore for Store {
    async fn claim(&self) -> Result<u64, StoreError> {
        let before = self.disk().generation;
        match self.mistake {
            Mistake::GenerationForgotten => return Ok(1),
            Mistake::ClaimRaces => tokio::task::yield_now().await,
            _ => {}
        }
        let mut disk = self.disk();
        let before = if self.mistake == Mistake::ClaimRaces { before } else { disk.generation };
        disk.generation = before + 1;
        Ok(disk.generation)
    }

    async fn put(&self, checkpoint: &Checkpoint) -> Result<Put, StoreError> {
        let fenced = |disk: &Disk| {
            let is_asked = !matches!(self.mistake, Mistake::NoFence | Mistake::GenerationForgotten);
            is_asked && disk.generation != checkpoint.generation
        };
        if self.mistake == Mistake::FenceAskedBefore {
            if fenced(&self.disk()) {
                return Ok(Put::Superseded);
            }
            tokio::task::yield_now().await;
            self.disk().newest = Some(checkpoint.clone());
            return Ok(Put::Stored);
        }
        tokio::task::yield_now().await;
        if fenced(&self.disk()) {
            return Ok(Put::Superseded);
        }
        if self.mistake == Mistake::TornPut {
            self.disk().newest = Some(Checkpoint { handles: Vec::new(), ..checkpoint.clone() });
            tokio::task::yield_now().await;
        }
        self.write(checkpoint)?;
        tokio::task::yield_now().await;
        Ok(Put::Stored)
    }

    async fn newest(&self) -> Result<Option<Checkpoint>, StoreError> {
        let newest = self.disk().newest.clone();
        let mut cache = self.cache.lock().unwrap();
        match (self.mistake, &*cache) {
            (Mistake::StaleReader, Some(cached)) => Ok(Some(cached.clone())),
            _ => {
                cache.clone_from(&newest);
                Ok(newest)
            }
        }
    }
}

/// The first line of the panic, if the suite does not pass.
fn failure(mistake: Mistake) -> Option<String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(conformance::check(|| {
            let disk = Arc::new(Mutex::new(Disk::default()));
            move || Store { mistake, disk: disk.clone(), cache: Mutex::new(None) }
        }));
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    Some(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic without text".to_owned()))
}

#[test]
fn a_right_store_passes() {
    assert_eq!(failure(Mistake::None), None);
}

#[test]
fn each_wrong_store_fails_by_the_promise_that_it_breaks() {
    for mistake in MISTAKES {
        let text = failure(mistake).unwrap_or_else(|| panic!("{mistake:?} was not found out"));
        let promise = mistake.broken().unwrap();
        assert!(text.starts_with(promise), "{mistake:?} was found out by another promise: {text}");
    }
}
