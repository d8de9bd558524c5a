//! What happened in a simulated world, as a number and, when asked for, as lines; and the first thing that was wrong.
//!
//! Every event goes into one digest, in the order in which it happened: two runs of a seed that differ anywhere differ
//! there. Refuses to keep events: a long run has millions.

use super::{fault::Kind, signal::Signal};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Virtual monotonic time.
#[allow(clippy::disallowed_methods, reason = "the simulator owns the clock that hapax-host hands out")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Cheap to clone; clones are the same trace.
#[derive(Clone)]
pub(super) struct Trace(Arc<Inner>);

struct Inner {
    began: Instant,
    shown: bool,
    state: Mutex<State>,
    failed: Signal,
}

struct State {
    digest: Fnv,
    fired: BTreeMap<Kind, u64>,
    violation: Option<String>,
}

impl Trace {
    /// Begins now; `shown` prints every event.
    pub(super) fn begin(shown: bool) -> Self {
        let state = State { digest: Fnv::default(), fired: BTreeMap::new(), violation: None };
        Self(Arc::new(Inner { began: now(), shown, state: Mutex::new(state), failed: Signal::default() }))
    }

    /// Virtual time since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        now().duration_since(self.0.began)
    }

    /// Something happened.
    pub(super) fn event(&self, what: fmt::Arguments<'_>) {
        let at = self.elapsed().as_millis();
        let written = writeln!(self.state().digest, "{at} {what}");
        written.expect("a digest takes every text");
        if self.0.shown {
            println!("{:>9}.{:03}  {what}", at / 1000, at % 1000);
        }
    }

    /// A fault changed something.
    pub(super) fn fired(&self, kind: Kind, what: fmt::Arguments<'_>) {
        self.count(kind, 1);
        self.event(format_args!("fault {}: {what}", kind.name()));
    }

    /// Counts faults that were told by nobody when they happened.
    pub(super) fn count(&self, kind: Kind, times: u64) {
        if times > 0 {
            *self.state().fired.entry(kind).or_default() += times;
        }
    }

    /// Something is wrong. The first one counts: what follows may be its consequence.
    pub(super) fn violation(&self, what: String) {
        self.event(format_args!("violation: {what}"));
        self.state().violation.get_or_insert(what);
        self.0.failed.tell();
    }

    /// Returns when something is wrong.
    pub(super) async fn failed(&self) -> String {
        self.0.failed.until(|| self.found()).await
    }

    /// What was wrong first.
    pub(super) fn found(&self) -> Option<String> {
        self.state().violation.clone()
    }

    /// All events so far, as one number.
    pub(super) fn digest(&self) -> u64 {
        self.state().digest.0
    }

    /// Faults that changed something, by kind.
    pub(super) fn faults(&self) -> BTreeMap<Kind, u64> {
        self.state().fired.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// FNV-1a: not for adversaries, only for two runs of one program.
pub(super) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub(super) fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::default();
        digest.feed(bytes);
        digest.0
    }

    fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.feed(text.as_bytes());
        Ok(())
    }
}

/// The random numbers that one part of a world draws: what another part draws does not shift them.
pub(super) fn stream(seed: u64, part: &str) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ Fnv::of(part.as_bytes()))
}

/// A wait whose average is `mean`, as of events that know nothing of each other; at most ten times that.
pub(super) fn waiting(random: &mut fastrand::Rng, mean: Duration) -> Duration {
    mean.mul_f64((-(1.0 - random.f64()).ln()).min(10.0))
}
