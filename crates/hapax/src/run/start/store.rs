//! Opening the checkpoint store.
//!
//! Owns how its requests wait, and that a start which takes too long can tell whether it waits for the store.

use crate::{error::JobError, job::Plan};
use hapax_host::Host;
use hapax_store::{Patience, Store};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Counts the requests of the store that have no answer yet: each of them, and each wait before it is tried again, is
/// bounded by a sleep. Tells a start that takes too long whom it waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreWaits(Arc<AtomicUsize>);

/// One request, for as long as it has no answer.
struct StoreWait(Arc<AtomicUsize>);

impl StoreWaits {
    /// Is the store waited for now?
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn begin(&self) -> StoreWait {
        self.0.fetch_add(1, Ordering::Relaxed);
        StoreWait(self.0.clone())
    }
}

impl Drop for StoreWait {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens the checkpoint store; a job that promises nothing and names none keeps its positions in memory.
pub(crate) fn open(plan: &Plan, host: &Host, waits: &StoreWaits) -> Result<Store, JobError> {
    let url = plan.settings.store.as_deref().unwrap_or("memory://");
    match &plan.settings.object_store {
        Some(store) => {
            let label = format!("{}/", url.trim_end_matches('/'));
            Ok(Store::from_object_store(store.clone(), &label, Patience::default(), sleep(host, waits)))
        }
        None => open_at(url, plan, host, waits),
    }
}

pub(super) fn open_at(url: &str, plan: &Plan, host: &Host, waits: &StoreWaits) -> Result<Store, JobError> {
    Store::open(url, Patience::default(), sleep(host, waits)).map_err(|error| {
        JobError::store(format!("job {}: opening the checkpoint store {url}", plan.name), error)
    })
}

/// How a store waits: every wait is counted.
fn sleep(host: &Host, waits: &StoreWaits) -> hapax_store::Sleep {
    let (sleeper, waits) = (host.clone(), waits.clone());
    Arc::new(move |wait| {
        let (host, waiting) = (sleeper.clone(), waits.begin());
        Box::pin(async move {
            host.sleep(wait).await;
            drop(waiting);
        })
    })
}
