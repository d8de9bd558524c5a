//! What happens by itself, and when.

use super::Millis;
use std::collections::BTreeMap;

/// Something that is due at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Timer {}

/// Timers in the order in which they fire: by time, then by when they were set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    waiting: BTreeMap<(Millis, u64), Timer>,
    set: u64,
}

impl Timers {
    /// Sets a timer.
    pub(crate) fn at(&mut self, time: Millis, timer: Timer) {
        self.set += 1;
        self.waiting.insert((time, self.set), timer);
    }

    /// Takes the first one that is due.
    pub(crate) fn due(&mut self, now: Millis) -> Option<(Millis, Timer)> {
        let (&(at, _), _) = self.waiting.first_key_value().filter(|((at, _), _)| *at <= now)?;
        self.waiting.pop_first().map(|(_, timer)| (at, timer))
    }

    /// When the first one is due.
    pub(crate) fn next(&self) -> Option<Millis> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }
}
