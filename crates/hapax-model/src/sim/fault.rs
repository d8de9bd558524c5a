//! The kinds of faults, by which they are switched on and counted.

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A process dies between two polls of its tasks.
    Kill,
    /// A process sleeps, as stopped by a signal, and wakes.
    Freeze,
    /// A process sleeps, a successor takes over, and it wakes beside it.
    Zombie,
    /// A second process of a job starts beside a live one.
    Rival,
    /// A process is asked to stop, and started again.
    Stop,
    /// A connection ends before, in the middle of, or behind what it carries.
    Cut,
    /// A connection is refused.
    Refused,
    /// A link carries something late.
    SlowLink,
    /// A process and a node do not hear each other for a while.
    Partition,
    /// A partition gets another leader.
    MoveLeader,
    /// A transactional id or a group gets another coordinator.
    MoveCoordinator,
    /// Every node dies and is there again: what was synced is.
    BrokerCrash,
    /// Markers are not written for a while.
    HoldMarkers,
    /// The brokers' clock jumps: transactions time out.
    ClockJump,
    /// An append of the transaction coordinator fails, or is said to.
    FailAppend,
    /// Partitions forget producers without an open transaction.
    ForgetProducers,
    /// A node takes no requests for a while.
    Stall,
    /// A request is answered with an error.
    Error,
    /// A request is applied and answered with an error.
    ErrorApplied,
    /// A request is applied and its answer lost.
    LostAnswer,
    /// A request is lost.
    LostRequest,
    /// A request is applied late.
    LateRequest,
    /// The store takes its time.
    SlowStore,
    /// The store fails before it does something.
    StoreFails,
    /// The store does something and its answer is lost.
    StoreAnswerLost,
    /// The store has no room for a while.
    StoreFull,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 26] = [
        Self::Kill,
        Self::Freeze,
        Self::Zombie,
        Self::Rival,
        Self::Stop,
        Self::Cut,
        Self::Refused,
        Self::SlowLink,
        Self::Partition,
        Self::MoveLeader,
        Self::MoveCoordinator,
        Self::BrokerCrash,
        Self::HoldMarkers,
        Self::ClockJump,
        Self::FailAppend,
        Self::ForgetProducers,
        Self::Stall,
        Self::Error,
        Self::ErrorApplied,
        Self::LostAnswer,
        Self::LostRequest,
        Self::LateRequest,
        Self::SlowStore,
        Self::StoreFails,
        Self::StoreAnswerLost,
        Self::StoreFull,
    ];

    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Zombie => "zombie",
            Self::Rival => "rival",
            Self::Stop => "stop",
            Self::Cut => "cut",
            Self::Refused => "refused",
            Self::SlowLink => "slow_link",
            Self::Partition => "partition",
            Self::MoveLeader => "move_leader",
            Self::MoveCoordinator => "move_coordinator",
            Self::BrokerCrash => "broker_crash",
            Self::HoldMarkers => "hold_markers",
            Self::ClockJump => "clock_jump",
            Self::FailAppend => "fail_append",
            Self::ForgetProducers => "forget_producers",
            Self::Stall => "stall",
            Self::Error => "error",
            Self::ErrorApplied => "error_applied",
            Self::LostAnswer => "lost_answer",
            Self::LostRequest => "lost_request",
            Self::LateRequest => "late_request",
            Self::SlowStore => "slow_store",
            Self::StoreFails => "store_fails",
            Self::StoreAnswerLost => "store_answer_lost",
            Self::StoreFull => "store_full",
        }
    }

    /// Is it of the checkpoint store?
    pub fn is_of_store(self) -> bool {
        matches!(self, Self::SlowStore | Self::StoreFails | Self::StoreAnswerLost | Self::StoreFull)
    }
}
