//! Workers: where shards run. A thread with its own runtime each, or tasks of one runtime.

use super::task::Spawner;
use std::{future::Future, io, pin::Pin};
use tokio::sync::oneshot;

/// What a worker does until it returns.
pub type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Copy)]
pub(crate) enum Workers {
    Threads,
    Tasks,
}

impl Workers {
    pub(crate) fn start(self, name: &str, job: Job, tasks: &Spawner) -> io::Result<WorkerHandle> {
        let (ended, wait) = oneshot::channel();
        let (cancel, cancelled) = oneshot::channel::<()>();
        let job = async move {
            // In this order always, so that a simulated run can be repeated.
            tokio::select! {
                biased;
                _ = cancelled => {}
                () = job => {}
            }
        };
        match self {
            Self::Threads => start_thread(name, job, ended)?,
            Self::Tasks => {
                tasks.spawn(async move {
                    job.await;
                    let _ = ended.send(());
                });
            }
        }
        Ok(WorkerHandle { wait, ended: None, cancel: Some(cancel) })
    }
}

#[allow(clippy::disallowed_methods, reason = "this module is the thread of the seam")]
fn start_thread(
    name: &str,
    job: impl Future<Output = ()> + Send + 'static,
    ended: oneshot::Sender<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(job);
        // Tasks that the job spawned end here, before the worker counts as ended; a look-up of a name does not hold it up.
        runtime.shutdown_background();
        let _ = ended.send(());
    })?;
    Ok(())
}

/// A running worker. Dropping the handle cancels the worker at its next await.
#[derive(Debug)]
pub struct WorkerHandle {
    wait: oneshot::Receiver<()>,
    ended: Option<Result<(), WorkerPanicked>>,
    cancel: Option<oneshot::Sender<()>>,
}

/// The worker ended by a panic: a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerPanicked;

impl WorkerHandle {
    /// Asks the worker to stop at its next await.
    pub fn cancel(&mut self) {
        self.cancel = None;
    }

    /// Waits for the end of the worker. May be called again; the answer stays.
    ///
    /// # Errors
    /// The worker panicked.
    pub async fn join(&mut self) -> Result<(), WorkerPanicked> {
        if let Some(ended) = self.ended {
            return ended;
        }
        let ended = (&mut self.wait).await.map_err(|_| WorkerPanicked);
        self.ended = Some(ended);
        ended
    }
}
