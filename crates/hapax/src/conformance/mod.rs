//! The suite that an engine runs against whatever it keeps its checkpoints in.
//!
//! Owns what the sink needs of such a store, as a small trait, and the scenarios in which stores have failed engines: a put
//! that dies on its way, an older run that still writes, an answer that is lost. Refuses nothing else: how positions and
//! state look is the engine's.
//!
//! ```
//! # use hapax::conformance::{self, Checkpoint, CheckpointStore, Put, StoreError};
//! # use std::sync::{Arc, Mutex};
//! /// A store that dies with the process: enough to show the shape.
//! #[derive(Clone, Default)]
//! struct Memory(Arc<Mutex<(u64, Option<Checkpoint>)>>);
//!
//! impl CheckpointStore for Memory {
//!     async fn claim(&self) -> Result<u64, StoreError> {
//!         let mut memory = self.0.lock().unwrap();
//!         memory.0 += 1;
//!         Ok(memory.0)
//!     }
//!
//!     async fn put(&self, checkpoint: &Checkpoint) -> Result<Put, StoreError> {
//!         let mut memory = self.0.lock().unwrap();
//!         if memory.0 != checkpoint.generation {
//!             return Ok(Put::Superseded);
//!         }
//!         memory.1 = Some(checkpoint.clone());
//!         Ok(Put::Stored)
//!     }
//!
//!     async fn newest(&self) -> Result<Option<Checkpoint>, StoreError> {
//!         Ok(self.0.lock().unwrap().1.clone())
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! // Each call of the outer closure is an empty store, each of the inner one another process that opens it.
//! conformance::check(|| {
//!     let store = Memory::default();
//!     move || store.clone()
//! })
//! .await;
//! # });
//! ```

mod ownership;
mod storage;

use std::future::Future;

/// Why a store could not answer.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// One checkpoint, as far as the sink is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The run that puts it, as [`CheckpointStore::claim`] answered.
    pub generation: u64,
    /// The engine's number of it.
    pub epoch: u64,
    /// Positions and state, as the engine writes them.
    pub state: Vec<u8>,
    /// The bytes of its handles ([`crate::engine::Handle::to_bytes`]), in order.
    pub handles: Vec<Vec<u8>>,
    /// Every transactional id that was ever used.
    pub ids: Vec<String>,
}

/// The answer to a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is the newest checkpoint now.
    Stored,
    /// A newer run has begun; nothing was stored.
    Superseded,
}

/// What the sink needs of an engine's checkpoint store.
///
/// Any future may be dropped at any point; that is how the suite makes a process die.
pub trait CheckpointStore: Send + Sync {
    /// Begins a run: its generation is higher than that of every run before, and every older one is refused from now on.
    ///
    /// # Errors
    /// The store does not answer; a run may have begun all the same.
    fn claim(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Stores a checkpoint, all of it or nothing, if no newer run has begun. The same one may be put again, because the
    /// answer to the first try may have been lost.
    ///
    /// # Errors
    /// The store does not answer; it may be stored all the same.
    fn put(&self, checkpoint: &Checkpoint) -> impl Future<Output = Result<Put, StoreError>> + Send;

    /// Reads the newest checkpoint.
    ///
    /// # Errors
    /// The store does not answer, or what is there is damaged.
    fn newest(&self) -> impl Future<Output = Result<Option<Checkpoint>, StoreError>> + Send;
}

/// Runs every scenario. `new` makes an empty store and returns what opens it, each time as another process would.
///
/// # Panics
/// A promise does not hold: the text begins with its name.
pub async fn check<S, O, N>(new: N)
where
    S: CheckpointStore,
    O: Fn() -> S,
    N: Fn() -> O,
{
    storage::an_empty_store_has_no_checkpoint(&new()).await;
    storage::what_was_put_is_read_back_whole_by_another_process(&new()).await;
    storage::the_newest_of_several_is_read(&new()).await;
    storage::handles_of_every_format_are_read_back(&new()).await;
    storage::a_put_that_dies_on_its_way_leaves_the_old_or_the_new(&new).await;
    storage::a_put_whose_answer_was_lost_may_be_repeated(&new()).await;
    ownership::a_later_run_has_a_higher_generation(&new()).await;
    ownership::two_runs_that_begin_at_once_have_two_generations(&new()).await;
    ownership::an_older_run_is_refused_from_the_begin_of_a_newer_one_on(&new()).await;
    ownership::an_older_run_that_is_on_its_way_does_not_overwrite_a_newer_one(&new).await;
}

/// A promise by its name, which begins the text of a panic.
struct Promise(&'static str);

impl Promise {
    fn holds(&self, condition: bool, what: impl FnOnce() -> String) {
        assert!(condition, "{}: {}", self.0, what());
    }

    fn answered<T>(&self, answer: Result<T, StoreError>) -> T {
        answer.unwrap_or_else(|error| panic!("{}: the store does not answer: {error}", self.0))
    }

    async fn claim(&self, store: &impl CheckpointStore) -> u64 {
        self.answered(store.claim().await)
    }

    async fn stored(&self, store: &impl CheckpointStore, checkpoint: &Checkpoint) {
        let put = self.answered(store.put(checkpoint).await);
        self.holds(put == Put::Stored, || format!("the newest run's put was answered {put:?}"));
    }

    async fn newest(&self, store: &impl CheckpointStore) -> Option<Checkpoint> {
        self.answered(store.newest().await)
    }
}

/// A checkpoint with something of everything, different for each epoch.
fn sample(generation: u64, epoch: u64) -> Checkpoint {
    let bytes =
        |count: usize| (0..count).map(|at| (at as u64).wrapping_mul(epoch + 7) as u8).collect::<Vec<u8>>();
    Checkpoint {
        generation,
        epoch,
        state: bytes(10_000),
        handles: (0..3 + epoch as usize % 3).map(|n| bytes(300 + n)).collect(),
        ids: vec!["orders.main.0.0".to_owned(), format!("any shape / {epoch} \u{e4}\u{2603}")],
    }
}

/// Time for what a future waits for, between two of its steps.
const STEP: std::time::Duration = std::time::Duration::from_millis(1);

/// Polls a future at most `polls` times and drops it then: a process that dies on the way. Its answer, if it had one.
async fn dies_after<T>(polls: usize, work: impl Future<Output = T>) -> Option<T> {
    let mut work = Box::pin(work);
    for _ in 0..polls {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(work.as_mut().poll(cx))).await;
        if let std::task::Poll::Ready(answer) = polled {
            return Some(answer);
        }
        // What it waits for gets its chance, without being waited for.
        tokio::time::sleep(STEP).await;
    }
    None
}
