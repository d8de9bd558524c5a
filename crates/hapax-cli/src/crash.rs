//! The crash points of tests: the process kills or stops itself when it reaches one.
//!
//! A hidden argument arms a point, not the environment, which a service inherits. Before the process dies it says so
//! on standard error, so that a test can tell a crash at its point from any other end.

use hapax::crash::{CrashPoints, Point};
use hapax_commit::Epoch;
use nix::sys::signal::{Signal, raise};
use std::{
    io::{self, Write},
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
};

/// How the process ends at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// SIGKILL.
    Kill,
    /// SIGSTOP: it goes on with SIGCONT.
    Stop,
}

/// Which point, which of its reaches, and how: `K2`, `K2:3`, `K1b-stored:2:stop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrashAt {
    point: Point,
    reach: u64,
    mode: Mode,
}

impl FromStr for CrashAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let point = Point::from_name(name).ok_or_else(|| {
            let known: Vec<&str> = Point::all().map(Point::name).collect();
            format!("there is no crash point {name:?}; there are {}", known.join(", "))
        })?;
        let mut crash = Self { point, reach: 1, mode: Mode::Kill };
        for part in parts {
            match (part, part.parse()) {
                ("kill", _) => crash.mode = Mode::Kill,
                ("stop", _) => crash.mode = Mode::Stop,
                (_, Ok(reach)) if reach > 0 => crash.reach = reach,
                _ => return Err(format!("{part:?} is neither a number from 1 nor kill or stop")),
            }
        }
        Ok(crash)
    }
}

/// An armed point.
#[derive(Debug)]
pub(crate) struct Armed {
    at: CrashAt,
    reached: AtomicU64,
}

impl Armed {
    pub(crate) fn new(at: CrashAt) -> Self {
        Self { at, reached: AtomicU64::new(0) }
    }

    /// Is this the reach that was asked for?
    fn fires(&self, point: Point) -> bool {
        point == self.at.point && self.reached.fetch_add(1, Ordering::SeqCst) + 1 == self.at.reach
    }
}

impl CrashPoints for Armed {
    fn reach(&self, point: Point, epoch: Epoch) {
        if !self.fires(point) {
            return;
        }
        // A test that reads no line fails; there is nobody else to tell.
        let _ = writeln!(io::stderr(), "crash point {point} reached in epoch {epoch}");
        let _ = io::stderr().flush();
        let signal = match self.at.mode {
            Mode::Kill => Signal::SIGKILL,
            Mode::Stop => Signal::SIGSTOP,
        };
        // Sent to this very thread, so that it does not run on between the call and the end.
        raise(signal).expect("a process may signal itself");
    }

    fn one_lane_at_a_time(&self) -> bool {
        self.at.point == Point::K2bBetweenLanes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(point: Point, reach: u64, mode: Mode) -> Result<CrashAt, String> {
        Ok(CrashAt { point, reach, mode })
    }

    #[test]
    fn a_point_may_name_its_reach_and_its_end() {
        assert_eq!("K2".parse(), at(Point::K2Decided, 1, Mode::Kill));
        assert_eq!("K0:3".parse(), at(Point::K0BeforeFlush, 3, Mode::Kill));
        assert_eq!("K1b-stored:2:stop".parse(), at(Point::K1bStored, 2, Mode::Stop));
        assert_eq!("K5:stop".parse(), at(Point::K5Proven, 1, Mode::Stop));
    }

    #[test]
    fn anything_else_is_refused() {
        assert!("K9".parse::<CrashAt>().unwrap_err().contains("there are K0, K1, K1b-unstored"));
        for text in ["K2:0", "K2:x", "K2:", "K2:-1"] {
            assert!(text.parse::<CrashAt>().unwrap_err().contains("neither a number from 1"), "{text}");
        }
    }

    #[test]
    fn only_the_asked_reach_of_the_asked_point_fires() {
        let armed = Armed::new("K3:2".parse().unwrap());
        assert!(!armed.fires(Point::K3EndTxnSent));
        assert!(!armed.fires(Point::K2Decided));
        assert!(armed.fires(Point::K3EndTxnSent));
        assert!(!armed.fires(Point::K3EndTxnSent));
    }

    #[test]
    fn lanes_are_ended_one_by_one_where_the_point_is_between_them() {
        assert!(Armed::new("K2b".parse().unwrap()).one_lane_at_a_time());
        assert!(!Armed::new("K2".parse().unwrap()).one_lane_at_a_time());
    }
}
