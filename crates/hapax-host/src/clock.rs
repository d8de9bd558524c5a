//! Monotonic and wall time. Owns the only calls that read a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

#[derive(Clone)]
pub(crate) enum Clock {
    Real,
    Virtual { wall_ms: i64, start: Instant },
}

#[allow(clippy::disallowed_methods, reason = "this module is the clock of the seam")]
impl Clock {
    pub(crate) fn real() -> Self {
        Self::Real
    }

    pub(crate) fn virtual_from(wall_ms: i64) -> Self {
        Self::Virtual { wall_ms, start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    pub(crate) fn wall_ms(&self) -> i64 {
        match self {
            Self::Real => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
                Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
            },
            Self::Virtual { wall_ms, start } => {
                let passed = Instant::now().duration_since(*start).as_millis();
                wall_ms.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
            }
        }
    }
}

/// A point in monotonic time until which something has to be done, or none ("never").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline: waits for ever.
    pub const NEVER: Self = Self(None);

    /// `limit` after `now`; `None` is never.
    pub fn after(now: Instant, limit: Option<Duration>) -> Self {
        Self(limit.and_then(|limit| now.checked_add(limit)))
    }

    /// Has it passed at `now`?
    pub fn has_passed(self, now: Instant) -> bool {
        self.0.is_some_and(|at| now >= at)
    }

    /// What is left at `now`; `None` where there is no deadline.
    pub fn remaining(self, now: Instant) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(now))
    }
}
