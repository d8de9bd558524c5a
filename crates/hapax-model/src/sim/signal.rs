//! Waiting for a change that others see too.
//!
//! Not a watch channel of tokio: that wakes its receivers in an order that it draws.

use tokio::sync::Notify;

/// Says that something has changed.
#[derive(Default)]
pub(super) struct Signal(Notify);

impl Signal {
    /// It has: whoever waits looks again, in the order in which they began to wait.
    pub(super) fn tell(&self) {
        self.0.notify_waiters();
    }

    /// Returns what is found, once something is.
    pub(super) async fn until<T>(&self, mut find: impl FnMut() -> Option<T>) -> T {
        loop {
            let told = self.0.notified();
            if let Some(found) = find() {
                return found;
            }
            told.await;
        }
    }
}
