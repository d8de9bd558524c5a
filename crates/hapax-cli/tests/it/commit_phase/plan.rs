//! The cells of the matrix, and what each must come to: the strategies' table of docs/recovery.md as a function.
//!
//! Owns which cells there are, why some are none, and what is expected of the rest. Refuses to know how any of it is
//! brought about.

use hapax::crash::Point;
use std::fmt;
use xtask::kafka::Version;

/// The epoch that the first run dies in.
pub(crate) const EPOCH: u64 = 3;

/// What stands in the job's list beside `resume`, or that its lanes have no time-out, or that there is no list since its
/// transactions decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum With {
    Resume,
    Rewind,
    Rewrite,
    /// The sink keeps a journal.
    Replay,
    SetAside,
    Abandon,
    /// `resume` alone, on a cluster with `two_phase`.
    TwoPhase,
    /// Decider `transaction`, which leaves nothing in doubt.
    Transaction,
}

/// What has become of the transactions that the dead run had prepared, when the next one looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Answer {
    /// Somebody has committed them: a request of the dead run that came late.
    Committed,
    Open,
    /// Their timeout has passed.
    TimedOut,
    /// An admin's InitProducerId has ended them (`kafka-transactions.sh forceTerminateTransaction`).
    Terminated,
    /// An admin has written abort markers into their partitions (`kafka-transactions.sh abort`); their coordinator knows
    /// nothing of it.
    Marked,
    /// An admin has written an abort marker into one partition of each, and somebody has committed them at their coordinator
    /// since: readers do not see a part of them.
    Torn,
    /// Another producer has taken the ids and aborted a transaction of its own under them.
    Fenced,
    /// As timed out, and the coordinator has forgotten the ids since.
    Expired,
    /// The coordinator tells nothing, for a while; the transactions are open.
    Unknown,
}

/// How many lanes the job has, and whether they share a fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lanes {
    One,
    /// Three, of which one is committed and the answer is the others'. Under decider `transaction` each decides for itself.
    Mixed,
}

/// The transaction protocol: `transaction.version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Protocol {
    V1,
    V2,
}

/// Whose brokers a cell is played on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Brokers {
    /// Those of this repository: every cell.
    Ours,
    /// Apache Kafka, in the release whose protocol the cell has: the core.
    Kafka,
}

/// A cell's coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) brokers: Brokers,
    pub(crate) with: With,
    pub(crate) point: Point,
    pub(crate) answer: Answer,
    pub(crate) lanes: Lanes,
    pub(crate) protocol: Protocol,
}

/// What a cell must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Expected {
    /// The next run goes on by itself; every record is there once and in order.
    Exact,
    /// The next run stops with exit code 4 and an incident; with `rewrite` allowed, the one after it ends as exact.
    StopsThenExact,
    /// The next run goes on by itself; an incident lists exactly the records that are missing.
    ListsMissing,
    /// Facts exclude each other: the next run stops with exit code 4, nothing of the job is lost by that, and a person
    /// who aborts the transactions with `hapax txn abort --decided` brings it to the exact end.
    Contradiction,
    /// Every next run stops with exit code 4 and an incident; when a person allows to go on without what readers do not see,
    /// an incident lists exactly that.
    StopsThenLists,
    /// The next run gives up within `start_timeout` and changes nothing; when answers come again, the one after it ends as
    /// exact.
    WaitsThenExact,
}

impl Expected {
    /// The word for it in docs/recovery.md.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::StopsThenExact => "stops",
            Self::ListsMissing => "listed",
            Self::Contradiction => "a person",
            Self::StopsThenLists => "stops, then listed",
            Self::WaitsThenExact => "waits",
        }
    }
}

impl With {
    pub(crate) const ALL: [Self; 8] = [
        Self::Resume,
        Self::Rewind,
        Self::Rewrite,
        Self::Replay,
        Self::SetAside,
        Self::Abandon,
        Self::TwoPhase,
        Self::Transaction,
    ];

    /// The job's list.
    pub(crate) fn list(self) -> &'static [&'static str] {
        match self {
            Self::Transaction => &[],
            Self::Resume | Self::TwoPhase => &["resume"],
            Self::Rewind => &["resume", "rewind"],
            Self::Rewrite => &["resume", "rewrite"],
            Self::Replay => &["resume", "replay"],
            Self::SetAside => &["resume", "set-aside"],
            Self::Abandon => &["resume", "abandon"],
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Rewind => "rewind",
            Self::Rewrite => "rewrite",
            Self::Replay => "replay",
            Self::SetAside => "set-aside",
            Self::Abandon => "abandon",
            Self::TwoPhase => "two-phase",
            Self::Transaction => "decider transaction",
        }
    }
}

impl Answer {
    pub(crate) const ALL: [Self; 9] = [
        Self::Committed,
        Self::Open,
        Self::TimedOut,
        Self::Terminated,
        Self::Marked,
        Self::Torn,
        Self::Fenced,
        Self::Expired,
        Self::Unknown,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Open => "open",
            Self::TimedOut => "timed out",
            Self::Terminated => "terminated by an admin",
            Self::Marked => "marked by an admin",
            Self::Torn => "committed, one partition marked before",
            Self::Fenced => "fenced",
            Self::Expired => "id expired",
            Self::Unknown => "no answer",
        }
    }
}

impl Lanes {
    pub(crate) const ALL: [Self; 2] = [Self::One, Self::Mixed];

    pub(crate) fn count(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Mixed => 3,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "one lane",
            Self::Mixed => "mixed lanes",
        }
    }
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::V1, Self::V2];

    pub(crate) fn level(self) -> i16 {
        match self {
            Self::V1 => 0,
            Self::V2 => 2,
        }
    }

    /// The release of Apache Kafka that speaks it.
    pub(crate) fn release(self) -> Version {
        match self {
            Self::V1 => Version::V3_9,
            Self::V2 => Version::V4_4,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { brokers, with, point, answer, lanes, protocol } = self;
        write!(f, "{} {point} {} {} {protocol:?}", with.name(), answer.name(), lanes.name())?;
        match brokers {
            Brokers::Ours => Ok(()),
            Brokers::Kafka => write!(f, " on kafka {}", protocol.release()),
        }
    }
}

/// Which epoch has a manifest and no proof when a run dies there in its third epoch? The proof of the third is the
/// manifest of the fourth.
pub(crate) fn in_doubt(point: Point) -> Option<u64> {
    match point {
        Point::K1bStored
        | Point::K2Decided
        | Point::K2bBetweenLanes
        | Point::K3EndTxnSent
        | Point::K4Ended => Some(EPOCH),
        Point::K5Proven => Some(EPOCH + 1),
        _ => None,
    }
}

impl Cell {
    /// The core on Apache Kafka, and every combination on our brokers, also those that are none.
    pub(crate) fn all() -> Vec<Self> {
        [Self::core(), Self::of_ours()].concat()
    }

    fn of_ours() -> Vec<Self> {
        let brokers = Brokers::Ours;
        let mut cells = Vec::new();
        for with in With::ALL {
            for point in Point::COMMIT.into_iter().chain([Point::K1oOffsetsTaken]) {
                for answer in Answer::ALL {
                    for lanes in Lanes::ALL {
                        for protocol in Protocol::ALL {
                            cells.push(Self { brokers, with, point, answer, lanes, protocol });
                        }
                    }
                }
            }
        }
        cells
    }

    /// Each pair of strategy and answer on each release of Apache Kafka, with one lane on the one and mixed lanes on the
    /// other, by turns.
    fn core() -> Vec<Self> {
        let mut cells = Vec::new();
        for (row, with) in With::ALL.into_iter().enumerate() {
            for (column, answer) in Answer::ALL.into_iter().enumerate() {
                for (turn, lanes) in Lanes::ALL.into_iter().enumerate() {
                    let protocol = Protocol::ALL[(row + column + turn) % Protocol::ALL.len()];
                    let point = Self::main_point(with, answer);
                    cells.push(Self { brokers: Brokers::Kafka, with, point, answer, lanes, protocol });
                }
            }
        }
        cells
    }

    /// Where an epoch is decided and nothing ended, or its positions are in its transaction; for a commit of decider
    /// `transaction`, where it is sent.
    pub(crate) fn main_point(with: With, answer: Answer) -> Point {
        match (with, answer) {
            (With::Transaction, Answer::Committed) => Point::K3EndTxnSent,
            (With::Transaction, _) => Point::K1oOffsetsTaken,
            _ => Point::K2Decided,
        }
    }

    /// What it must come to, or why there is no such cell.
    pub(crate) fn expected(self) -> Result<Expected, &'static str> {
        match (self.brokers, self.with, self.answer) {
            (Brokers::Kafka, With::TwoPhase, _) => {
                return Err("Apache Kafka cannot keep what is prepared, so two_phase is refused (E0206)");
            }
            (Brokers::Kafka, _, Answer::Expired) => {
                return Err("Apache Kafka forgets an id after seven days, and no clock jumps");
            }
            (Brokers::Ours | Brokers::Kafka, _, _) => {}
        }
        if self.with == With::Transaction {
            return self.transaction_decides();
        }
        if self.point == Point::K1oOffsetsTaken {
            return Err("positions are in transactions under decider transaction alone");
        }
        if in_doubt(self.point).is_none() {
            return self.nothing_in_doubt();
        }
        match (self.point, self.lanes, self.answer) {
            (Point::K2bBetweenLanes, Lanes::One, _) => Err("one lane has nothing between its lanes"),
            (Point::K4Ended, Lanes::Mixed, _) => Err("every lane is committed there"),
            (
                Point::K4Ended,
                Lanes::One,
                Answer::Open | Answer::TimedOut | Answer::Terminated | Answer::Marked | Answer::Torn,
            ) => Err("the transaction is committed there"),
            (Point::K4Ended, Lanes::One, Answer::Committed | Answer::Fenced | Answer::Expired) => {
                Ok(Expected::Exact)
            }
            (_, _, answer) => self.in_doubt(answer),
        }
    }

    /// Whatever ends a transaction ends its positions with it.
    fn transaction_decides(self) -> Result<Expected, &'static str> {
        match (self.point, self.lanes, self.answer) {
            (Point::K1bUnstored | Point::K1bStored | Point::K2Decided | Point::K2bBetweenLanes, _, _) => {
                Err("decider transaction has no manifest, so the point is not there")
            }
            (_, _, Answer::Torn) => {
                Err("the positions are committed with what readers see, and nobody can tell what they do not")
            }
            (Point::K0BeforeFlush | Point::K1Prepared | Point::K1oOffsetsTaken, _, Answer::Committed) => {
                Err("the commit is not asked for before K3")
            }
            (
                Point::K4Ended | Point::K5Proven,
                Lanes::One,
                Answer::Open | Answer::TimedOut | Answer::Terminated | Answer::Marked,
            ) => Err("the transaction is committed there"),
            _ => Ok(Expected::Exact),
        }
    }

    fn nothing_in_doubt(self) -> Result<Expected, &'static str> {
        match (self.with, self.lanes, self.answer) {
            (With::Rewind | With::Rewrite | With::Replay | With::SetAside | With::Abandon, _, _) => {
                Err("nothing is in doubt, so no strategy is asked")
            }
            (_, Lanes::Mixed, _) => Err("nothing is decided, so lanes have no fate to share"),
            (_, _, Answer::Committed | Answer::Torn) => {
                Err("nothing is decided, so no request can commit it")
            }
            (With::TwoPhase, _, Answer::Expired) => Err("an id with a transaction open does not expire"),
            (_, _, Answer::Unknown) => Err("what is not in doubt is cleared, and nobody asks about it"),
            (With::Resume | With::TwoPhase | With::Transaction, Lanes::One, _) => Ok(Expected::Exact),
        }
    }

    fn in_doubt(self, answer: Answer) -> Result<Expected, &'static str> {
        let aborted = match answer {
            Answer::Committed | Answer::Open => return Ok(Expected::Exact),
            Answer::Unknown => return Ok(Expected::WaitsThenExact),
            Answer::Marked => return Ok(Expected::Contradiction),
            Answer::Torn => return Ok(self.torn()),
            Answer::TimedOut if self.with == With::TwoPhase => return Ok(Expected::Exact),
            Answer::Expired if self.with == With::TwoPhase => {
                return Err("an id with a transaction open does not expire");
            }
            Answer::TimedOut | Answer::Terminated | Answer::Fenced | Answer::Expired => self.with,
        };
        Ok(match aborted {
            With::Resume | With::TwoPhase => Expected::StopsThenExact,
            With::Rewind if self.lanes == Lanes::Mixed => Expected::StopsThenExact,
            With::Rewind | With::Rewrite | With::Replay => Expected::Exact,
            With::SetAside | With::Abandon => Expected::ListsMissing,
            With::Transaction => unreachable!("nothing is in doubt there"),
        })
    }

    /// What is committed in part can neither be taken back nor written again.
    fn torn(self) -> Expected {
        match self.with {
            With::Resume | With::Rewind | With::Rewrite | With::Replay | With::TwoPhase => {
                Expected::StopsThenLists
            }
            With::SetAside | With::Abandon => Expected::ListsMissing,
            With::Transaction => unreachable!("nothing is in doubt there"),
        }
    }
}
