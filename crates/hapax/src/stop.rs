//! Asking a job to stop: it drains, takes a last checkpoint, commits, and ends.

use tokio::sync::watch;

/// Given to a job; becomes set once.
#[derive(Clone, Debug)]
pub struct StopSignal(watch::Receiver<bool>);

/// Sets a [`StopSignal`].
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// A signal and what sets it.
    pub fn new() -> (Self, StopSignal) {
        let (set, signal) = watch::channel(false);
        (Self(set), StopSignal(signal))
    }

    /// Asks for the stop.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl StopSignal {
    /// A signal that is never set.
    pub fn never() -> Self {
        Stopper::new().1
    }

    /// Is it set?
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is set; for ever where it cannot be.
    pub async fn wait(&mut self) {
        if self.0.wait_for(|set| *set).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
