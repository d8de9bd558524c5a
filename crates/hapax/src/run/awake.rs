//! Patience that passes only while this process runs.
//!
//! A process that was stopped, or whose machine slept, finds every time-out run out when it goes on, whatever the others did
//! meanwhile: it must not say that they were slow. A wait is made of beats, and one that takes far longer than it should was
//! slept through.

use crate::limits::BEAT;
use hapax_host::{Host, Instant};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// What a process has slept of its life. Cheap to clone; clones count together.
#[derive(Clone)]
pub(super) struct Awake {
    host: Host,
    began: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy)]
struct State {
    /// When the present beat began.
    beat: Instant,
    slept: Duration,
}

impl Awake {
    pub(super) fn begin(host: &Host) -> Self {
        let now = host.now();
        let state = Arc::new(Mutex::new(State { beat: now, slept: Duration::ZERO }));
        Self { host: host.clone(), began: now, state }
    }

    /// Waits until this process has run for so long. Whoever does not wait for the end says so with [`Self::notice`].
    pub(super) async fn sleep(&self, time: Duration) {
        let mut left = time;
        self.state().beat = self.host.now();
        while !left.is_zero() {
            let beat = left.min(BEAT);
            self.host.sleep(beat).await;
            self.notice();
            left -= beat;
        }
    }

    /// Ends a beat: one that took twice its time was slept through.
    pub(super) fn notice(&self) {
        let now = self.host.now();
        let mut state = self.state();
        let late = now.saturating_duration_since(state.beat).saturating_sub(BEAT);
        if late >= BEAT {
            tracing::warn!("this process did not run for {late:?}: it was stopped, or its machine slept");
            state.slept += late;
        }
        state.beat = now;
    }

    /// How long this process has run.
    pub(super) fn elapsed(&self) -> Duration {
        let lived = self.host.now().saturating_duration_since(self.began);
        lived.saturating_sub(self.state().slept)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
