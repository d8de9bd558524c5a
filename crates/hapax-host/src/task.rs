//! Tasks beside a worker's own: a connection's, a sender's. Where they run is tokio's matter; how, the host's.

use super::worker::Job;
use std::{fmt, future::Future, sync::Arc};
use tokio::task::AbortHandle;

/// How a host of one thread runs the futures that are spawned on it: a simulator may hold one back, or drop it.
pub trait Tasks: Send + Sync {
    /// The future that is run in the place of a task's.
    fn wrap(&self, task: Job) -> Job;
}

/// Spawns on the calling runtime.
#[derive(Clone, Default)]
pub(crate) struct Spawner(Option<Arc<dyn Tasks>>);

impl Spawner {
    pub(crate) fn over(tasks: Arc<dyn Tasks>) -> Self {
        Self(Some(tasks))
    }

    #[allow(clippy::disallowed_methods, reason = "this module is where the seam spawns")]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        match &self.0 {
            None => tokio::spawn(task).abort_handle(),
            Some(tasks) => tokio::spawn(tasks.wrap(Box::pin(task))).abort_handle(),
        }
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawner")
    }
}
