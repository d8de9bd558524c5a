//! The one seam between Hapax and the machine it runs on: clock, timers, randomness, sockets, tasks, threads, files.
//!
//! Everything else in the workspace reaches them through a [`Host`]; `clippy.toml` forbids the direct ways.
//! Two hosts exist: [`Host::real`] (operating system, a thread for each worker) and [`Host::seeded`] (one
//! thread, tokio's pausable clock, a seed for every random number), on which a simulator can stand.
//!
//! What this crate refuses: any knowledge of Kafka, checkpoints or records.

mod clock;
mod file;
mod net;
mod random;
mod task;
mod worker;

pub use clock::Deadline;
pub use file::{FileIdentity, Files, OpenFile, RealFiles};
pub use net::{BoxStream, ConnectFuture, Net, RealNet, Stream};
pub use task::Tasks;
pub use tokio::time::Instant;
pub use worker::{Job, WorkerHandle, WorkerPanicked};

use std::{future::Future, sync::Arc, time::Duration};
use tokio::task::AbortHandle;

/// What a piece of Hapax may ask of its machine. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    clock: clock::Clock,
    random: random::Random,
    net: Arc<dyn Net>,
    files: Arc<dyn Files>,
    tasks: task::Spawner,
    workers: worker::Workers,
    process: u32,
}

impl Host {
    /// The operating system: real sockets and files, wall clock, randomness from the system, worker threads.
    pub fn real() -> Self {
        Self {
            clock: clock::Clock::real(),
            random: random::Random::from_system(),
            net: Arc::new(RealNet),
            files: Arc::new(RealFiles),
            tasks: task::Spawner::default(),
            workers: worker::Workers::Threads,
            process: std::process::id(),
        }
    }

    /// One thread and one seed: workers are tasks of the calling runtime, the wall clock starts at `wall_ms`
    /// (milliseconds since 1970) and moves with tokio's clock, which a test may pause. Sockets and files are
    /// the given ones.
    pub fn seeded(seed: u64, wall_ms: i64, net: Arc<dyn Net>, files: Arc<dyn Files>) -> Self {
        Self {
            clock: clock::Clock::virtual_from(wall_ms),
            random: random::Random::seeded(seed),
            net,
            files,
            tasks: task::Spawner::default(),
            workers: worker::Workers::Tasks,
            process: 1,
        }
    }

    /// The same host, whose tasks are run as `tasks` says, its workers among them where they are tasks.
    #[must_use]
    pub fn with_tasks(self, tasks: Arc<dyn Tasks>) -> Self {
        Self { tasks: task::Spawner::over(tasks), ..self }
    }

    /// Monotonic time; the only time that decides anything.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Milliseconds since 1970. Advice for people and for record timestamps: no safety rests on it.
    pub fn wall_ms(&self) -> i64 {
        self.clock.wall_ms()
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Runs `work` for at most `limit`; `None` when the limit came first (the future is then dropped).
    pub async fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(limit, work).await.ok()
    }

    /// The number by which people find the process; a host of one thread is always process 1.
    pub fn process_id(&self) -> u32 {
        self.process
    }

    /// Sixty-four random bits.
    pub fn random_u64(&self) -> u64 {
        self.random.next_u64()
    }

    /// A hundred and twenty-eight random bits: enough to name a run.
    pub fn random_u128(&self) -> u128 {
        (u128::from(self.random.next_u64()) << 64) | u128::from(self.random.next_u64())
    }

    /// `base` scaled by a random factor between one half and one: the wait before a retry, so that many
    /// clients do not come back at once.
    pub fn jitter(&self, base: Duration) -> Duration {
        base / 2 + base.mul_f64(self.random.fraction()) / 2
    }

    /// Sockets.
    pub fn net(&self) -> &dyn Net {
        &*self.net
    }

    /// Files.
    pub fn files(&self) -> &dyn Files {
        &*self.files
    }

    /// Runs a task on the calling runtime until it ends or is aborted.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.spawn(task)
    }

    /// Starts a worker: a thread with a runtime of its own, or a task where the host is one thread.
    ///
    /// # Errors
    /// The operating system refuses a thread or a runtime.
    pub fn start_worker(&self, name: &str, job: Job) -> std::io::Result<WorkerHandle> {
        self.workers.start(name, job, &self.tasks)
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Host")
    }
}
