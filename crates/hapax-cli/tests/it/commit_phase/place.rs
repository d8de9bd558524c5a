//! Where a cell is played: a broker of this repository, with faults and a clock that jumps, or the broker of Apache Kafka
//! that tests share, where a timeout is waited for.

use super::{
    plan::{Answer, Brokers, Cell, With},
    scene::PATIENCE,
};
use hapax_broker::{Broker, Faults, Proxy, ProxyOptions, ServerOptions, Settings, Step};
use std::{
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;
use xtask::kafka::{shared, transactions};

/// Longer than any transaction timeout.
const A_MONTH_MS: i64 = 31 * 24 * 3_600 * 1_000;

/// Nothing of a cell takes as long, so nothing times out that is not let.
const UNHURRIED_MS: i64 = 60_000;

/// On Apache Kafka it is waited for, and a job that goes on must get along with it.
const WAITED_FOR_MS: i64 = 6_000;

pub(super) enum Place {
    Ours(Broker),
    Kafka {
        bootstrap: &'static str,
        /// Where answers to the job are kept back.
        proxy: Option<Proxy>,
    },
}

impl Place {
    pub(super) fn of(cell: Cell, runtime: &Runtime) -> Self {
        if cell.brokers == Brokers::Kafka {
            let bootstrap = &shared(cell.protocol.release()).bootstrap;
            let proxy = (cell.answer == Answer::Unknown)
                .then(|| runtime.block_on(Proxy::start(bootstrap, ProxyOptions::default())).unwrap());
            return Self::Kafka { bootstrap, proxy };
        }
        let settings = Settings {
            transaction_version: cell.protocol.level(),
            two_phase_commit: cell.with == With::TwoPhase,
            ..Settings::default()
        };
        Self::Ours(runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap())
    }

    /// For everybody but the job.
    pub(super) fn bootstrap(&self) -> String {
        match self {
            Self::Ours(broker) => broker.bootstrap(),
            Self::Kafka { bootstrap, .. } => (*bootstrap).to_owned(),
        }
    }

    pub(super) fn bootstrap_of_job(&self) -> String {
        match self {
            Self::Kafka { proxy: Some(proxy), .. } => proxy.bootstrap().to_owned(),
            Self::Ours(_) | Self::Kafka { proxy: None, .. } => self.bootstrap(),
        }
    }

    /// Between the job and the broker, where there can be any.
    pub(super) fn faults(&self) -> Option<&Faults> {
        match self {
            Self::Ours(broker) => Some(broker.faults()),
            Self::Kafka { proxy, .. } => proxy.as_ref().map(Proxy::faults),
        }
    }

    /// Of the job's transactions.
    pub(super) fn timeout_ms(&self, cell: Cell) -> i64 {
        match (self, cell.answer) {
            (Self::Kafka { .. }, Answer::TimedOut) => WAITED_FOR_MS,
            (Self::Ours(_) | Self::Kafka { .. }, _) => UNHURRIED_MS,
        }
    }

    /// Lets every timeout pass that there is.
    pub(super) fn pass_timeouts(&self, of: Cell) {
        match self {
            Self::Ours(broker) if of.with == With::TwoPhase => broker.jump_clock(A_MONTH_MS).unwrap(),
            Self::Ours(broker) => broker.jump_clock(UNHURRIED_MS + 1_000).unwrap(),
            Self::Kafka { .. } => {}
        }
    }

    /// Does what only a broker of this repository can be told to do.
    pub(super) fn step(&self, step: Step) {
        let Self::Ours(broker) = self else { panic!("not on Apache Kafka: {step:?}") };
        broker.step(step).unwrap();
    }

    /// Ids of a job that a coordinator has a transaction open under.
    pub(super) fn open(&self, job: &str) -> Vec<String> {
        let listed = transactions(&self.bootstrap()).unwrap();
        let open = listed.into_iter().filter(|one| one.is_open()).map(|one| one.id);
        open.filter(|id| id.strip_prefix(job).is_some_and(|rest| rest.starts_with('.'))).collect()
    }

    /// Waits until none of these is open.
    pub(super) fn await_ended(&self, job: &str, ids: Option<&str>) {
        let began = Instant::now();
        loop {
            let open = self.open(job);
            if !open.iter().any(|id| ids.is_none_or(|wanted| wanted == id)) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "these do not end: {open:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
