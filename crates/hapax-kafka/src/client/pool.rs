//! Connections by broker and purpose, re-opened with back-off.
//!
//! A broker handles one request of a connection at a time, so an EndTxn behind a Produce waits for that Produce's
//! replication: what must not wait has its own connection.
//!
//! Invariant: one attempt to connect at a time for each broker and purpose; who waited for a failed attempt gets its
//! error instead of trying the same again.

use crate::{
    ClientConfig, NodeId,
    connection::{BrokerVersions, Connection, OpenError, Opening, open},
    error::{CallError, Cause},
    metadata::Address,
};
use hapax_host::{Host, Instant};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// What a shared connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Produce and everything with a partition.
    Data,
    /// Metadata, coordinators, admin.
    Control,
    /// Opened for one owner: never shared.
    Dedicated,
}

#[derive(Default)]
struct Slot {
    connection: Option<Connection>,
    failures: u32,
    not_before: Option<Instant>,
    /// When the newest failed attempt began, and what it met.
    failed: Option<(Instant, Cause)>,
}

type SharedSlot = Arc<tokio::sync::Mutex<Slot>>;

pub(crate) struct Pool {
    host: Host,
    config: ClientConfig,
    slots: Mutex<BTreeMap<(NodeId, Purpose), SharedSlot>>,
}

impl Pool {
    pub(crate) fn new(host: Host, config: ClientConfig) -> Self {
        Self { host, config, slots: Mutex::default() }
    }

    fn slot(&self, node: NodeId, purpose: Purpose) -> SharedSlot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry((node, purpose)).or_default())
    }

    /// Is a connection open that could be used at once?
    pub(crate) fn is_open(&self, node: NodeId, purpose: Purpose) -> bool {
        let slot = self.slot(node, purpose);
        slot.try_lock().is_ok_and(|slot| slot.live().is_some())
    }

    /// The connection of a broker for a purpose. `address` is asked after the back-off, when it may have changed;
    /// `learned` hears what a newly connected broker offers.
    pub(crate) async fn get(
        &self,
        node: NodeId,
        purpose: Purpose,
        address: impl Fn() -> Option<Address>,
        learned: impl Fn(&BrokerVersions),
    ) -> Result<Connection, CallError> {
        let arrived = self.host.now();
        let slot = self.slot(node, purpose);
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.live() {
            return Ok(connection.clone());
        }
        let failed = |cause: Cause| CallError::NotSent { api: "connect", node, cause };
        if let Some((_, cause)) = slot.failed.as_ref().filter(|(began, _)| *began >= arrived) {
            return Err(failed(cause.clone()));
        }
        if let Some(not_before) = slot.not_before {
            self.host.sleep(not_before.saturating_duration_since(self.host.now())).await;
        }
        let address = address().ok_or_else(|| failed(Cause::UnknownNode))?;
        let began = self.host.now();
        let opening = Opening { host: &self.host, config: &self.config, node, address: &address };
        let opened = open(opening).await.inspect(|connection| learned(connection.broker_versions()));
        self.settle(&mut slot, purpose, began, opened).map_err(|error| failed(error.cause()))
    }

    fn settle(
        &self,
        slot: &mut Slot,
        purpose: Purpose,
        began: Instant,
        opened: Result<Connection, OpenError>,
    ) -> Result<Connection, OpenError> {
        let now = self.host.now();
        match &opened {
            Ok(connection) => {
                slot.failures = 0;
                slot.failed = None;
                slot.not_before = None;
                if purpose != Purpose::Dedicated {
                    // A broker that accepts and drops at once is not asked in a tight loop.
                    slot.not_before = Some(now + self.host.jitter(self.config.retry_backoff));
                    slot.connection = Some(connection.clone());
                }
            }
            Err(error) => {
                slot.failures = slot.failures.saturating_add(1);
                slot.failed = Some((began, error.cause()));
                slot.not_before = Some(now + self.host.jitter(backoff(&self.config, slot.failures - 1)));
            }
        }
        opened
    }
}

impl Slot {
    fn live(&self) -> Option<&Connection> {
        self.connection.as_ref().filter(|connection| !connection.is_closed())
    }
}

/// The wait before attempt `failures + 1`, before jitter.
pub(crate) fn backoff(config: &ClientConfig, failures: u32) -> Duration {
    let doubled = config.retry_backoff.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX));
    doubled.min(config.retry_backoff_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_host::{ConnectFuture, Net, RealFiles};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Refuses every connection after a second, and counts them.
    #[derive(Default)]
    struct Refusing(AtomicU32);

    impl Net for Refusing {
        fn connect<'a>(&'a self, _host: &'a str, _port: u16) -> ConnectFuture<'a> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err(std::io::Error::other("refused"))
            })
        }
    }

    fn pool() -> (Pool, Arc<Refusing>) {
        let net = Arc::new(Refusing::default());
        let host = Host::seeded(1, 0, Arc::<Refusing>::clone(&net), Arc::new(RealFiles));
        (Pool::new(host, ClientConfig::new(vec![])), net)
    }

    async fn get(pool: &Pool) -> CallError {
        let address = || Some(("broker".to_owned(), 1));
        pool.get(NodeId(1), Purpose::Data, address, |_| ()).await.expect_err("every connection is refused")
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_failing_attempt_shares_its_error() {
        let (pool, net) = pool();
        let all = futures::future::join_all((0..20).map(|_| get(&pool))).await;
        assert!(
            all.iter().all(|error| error.to_string().contains("refused") && !error.may_have_had_effect())
        );
        assert_eq!(net.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_come_less_often_the_longer_they_fail() {
        let (pool, net) = pool();
        let config = ClientConfig::new(vec![]);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let before = pool.host.now();
            get(&pool).await;
            waits.push(pool.host.now() - before - Duration::from_secs(1));
        }
        assert_eq!(net.0.load(Ordering::Relaxed), 8);
        assert_eq!(waits[0], Duration::ZERO);
        for (failures, wait) in (0..).zip(&waits[1..]) {
            let full = backoff(&config, failures);
            assert!(*wait >= full / 2 && *wait <= full + Duration::from_millis(1), "{waits:?}");
        }
        assert_eq!(backoff(&config, 60), config.retry_backoff_max);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_not_listed_is_not_connected_to() {
        let (pool, net) = pool();
        let error = pool.get(NodeId(9), Purpose::Data, || None, |_| ()).await.unwrap_err();
        assert!(matches!(error, CallError::NotSent { cause: Cause::UnknownNode, .. }));
        assert_eq!(net.0.load(Ordering::Relaxed), 0);
    }
}
