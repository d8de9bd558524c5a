//! The broker's time: the wall clock where it started, tokio's clock from there on, and what faults added. Never goes
//! back by itself; a simulator that pauses tokio's clock owns it.

use crate::state::Millis;
use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime},
};
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    wall: Millis,
    jumped: AtomicI64,
}

#[allow(
    clippy::disallowed_methods,
    reason = "the broker stands beside the system under test and has its own clock"
)]
impl Clock {
    /// Starts at a time, or now.
    pub(crate) fn new(start: Option<Millis>) -> Self {
        let wall = start.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
        });
        Self { start: Instant::now(), wall, jumped: AtomicI64::new(0) }
    }

    /// Milliseconds since 1970.
    pub(crate) fn now(&self) -> Millis {
        let passed = Millis::try_from(self.start.elapsed().as_millis()).unwrap_or(Millis::MAX);
        self.wall.saturating_add(passed).saturating_add(self.jumped.load(Ordering::SeqCst))
    }

    /// How far it is ahead.
    pub(crate) fn ahead(&self) -> Millis {
        self.jumped.load(Ordering::SeqCst)
    }

    /// Moves the time forward, if it is not there yet.
    pub(crate) fn reach(&self, time: Millis) {
        let by = time.saturating_sub(self.now()).max(0);
        self.jumped.fetch_add(by, Ordering::SeqCst);
    }

    /// How long until a time.
    pub(crate) fn until(&self, time: Millis) -> Duration {
        Duration::from_millis(u64::try_from(time.saturating_sub(self.now())).unwrap_or(0))
    }

    /// A point of time on tokio's clock.
    pub(crate) fn after(&self, wait: Duration) -> Instant {
        Instant::now() + wait
    }
}
