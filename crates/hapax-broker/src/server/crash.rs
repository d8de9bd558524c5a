//! How often the broker has crashed, and whoever waits for it to crash again.
//!
//! Not a watch channel of tokio: that wakes its receivers in an order that it draws, and one seed must give one order in
//! which connections are cut.

use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Crashes {
    count: AtomicU64,
    told: Notify,
}

impl Crashes {
    /// How often it has.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// It has once more.
    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    /// Returns when it has crashed more often than this.
    pub(crate) async fn after(&self, count: u64) {
        loop {
            let told = self.told.notified();
            if self.count() != count {
                return;
            }
            told.await;
        }
    }
}
