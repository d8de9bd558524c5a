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
