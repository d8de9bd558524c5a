//! When the job is killed: at every crash point once, at random moments, and once for so long that its transactions
//! time out. The order and the moments follow from a seed.

use fastrand::Rng;
use hapax::crash::Point;
use std::time::Duration;

/// Lanes of the demo's job: a shard for each partition.
const LANES: u64 = crate::broker::PARTITIONS as u64;

/// How one process of the job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Killed by itself at a crash point.
    At(Point),
    /// Killed after so long, wherever it is.
    After(Duration),
    /// Killed between decision and commit, and away until the broker has given its transactions up.
    TimedOut,
}

impl End {
    /// The argument that arms the crash point: in the process's third epoch, so that it has committed something.
    pub(super) fn crash_at(self) -> Option<String> {
        let point = match self {
            Self::At(point) => point,
            Self::TimedOut => Point::K2Decided,
            Self::After(_) => return None,
        };
        let reach = match point {
            Point::K0BeforeFlush => 2 * LANES + 1,
            Point::K2bBetweenLanes => 2 * (LANES - 1) + 1,
            Point::K3EndTxnSent => 2 * LANES + 1,
            Point::K1Prepared
            | Point::K1pPositionsPut
            | Point::K1oOffsetsTaken
            | Point::K1bUnstored
            | Point::K1bStored
            | Point::K2Decided
            | Point::K4Ended
            | Point::K5Proven => 3,
            Point::R0Claimed
            | Point::R1Cleared
            | Point::R2Looked
            | Point::R3LaneEnded
            | Point::R4Rewritten
            | Point::R4nNoted
            | Point::R5Recorded
            | Point::R6IdsCleared
            | Point::L0Unstored
            | Point::L1Stored => 1,
        };
        Some(format!("{point}:{reach}:kill"))
    }

    pub(super) fn describe(self) -> String {
        match self {
            Self::At(point) => format!("at crash point {point}, {}", meaning(point)),
            Self::After(moment) => format!("{} ms after its start", moment.as_millis()),
            Self::TimedOut => "at crash point K2, and away until its transactions time out".to_owned(),
        }
    }
}

fn meaning(point: Point) -> &'static str {
    match point {
        Point::K0BeforeFlush => "before the epoch is flushed",
        Point::K1Prepared => "prepared, not decided",
        Point::K1pPositionsPut => "positions stored, nothing points to them",
        Point::K1oOffsetsTaken => "positions in the transaction, not committed",
        Point::K1bUnstored => "while the decision is stored",
        Point::K1bStored => "decision stored, answer lost",
        Point::K2Decided => "decided, nothing committed",
        Point::K2bBetweenLanes => "one transaction committed, others open",
        Point::K3EndTxnSent => "commits sent, not answered",
        Point::K4Ended => "committed, not recorded",
        Point::K5Proven => "recorded",
        Point::R0Claimed => "in recovery, claimed",
        Point::R1Cleared => "in recovery, cleared",
        Point::R2Looked => "in recovery, looked",
        Point::R3LaneEnded => "in recovery, one transaction ended",
        Point::R4Rewritten => "in recovery, records written again",
        Point::R4nNoted => "in recovery, the incident written",
        Point::R5Recorded => "in recovery, the outcome recorded",
        Point::R6IdsCleared => "in recovery, done",
        Point::L0Unstored => "while a change of the job is stored",
        Point::L1Stored => "change of the job stored, answer lost",
    }
}

/// The ends of a run of the demo, in their order.
pub(super) fn ends(seed: u64, random: u32) -> Vec<End> {
    let mut rng = Rng::with_seed(seed);
    let mut ends: Vec<End> = Point::COMMIT.map(End::At).into();
    ends.extend((0..random).map(|_| End::After(Duration::from_millis(rng.u64(50..1_200)))));
    rng.shuffle(&mut ends);
    // In the middle, so that work lies before and behind it.
    ends.insert(ends.len() / 2, End::TimedOut);
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crash_point_is_there_once_whatever_the_seed() {
        for seed in 0..20 {
            let ends = ends(seed, 5);
            assert_eq!(ends.len(), Point::COMMIT.len() + 5 + 1);
            for point in Point::COMMIT {
                assert_eq!(ends.iter().filter(|end| **end == End::At(point)).count(), 1);
            }
            assert!(ends[1..ends.len() - 1].contains(&End::TimedOut));
        }
        assert_ne!(ends(1, 5), ends(2, 5));
        assert_eq!(ends(1, 5), ends(1, 5));
    }

    #[test]
    fn each_point_is_armed_as_the_command_line_takes_it() {
        for end in ends(1, 1) {
            if let Some(text) = end.crash_at() {
                text.parse::<crate::crash::CrashAt>().unwrap();
            }
        }
    }
}
