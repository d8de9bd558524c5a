//! The broker on the network: one listener for each node, one task for each connection, one machine behind a lock.
//!
//! ```text
//! listener(node) -> connection: frame -> rules -> Core (journal, machine) -> answer -> rules -> frame
//!                   timer task: Core.next_wake -> tick
//! ```
//!
//! Refuses: threads of its own (it lives on the runtime that starts it), and any address but loopback unless told.

mod announce;
mod clock;
mod connection;
mod core;
mod crash;
mod inside;
mod listener;
mod topic;

pub use self::core::Halted;
pub use inside::Unanswered;
pub use topic::TopicRefused;

pub(crate) use announce::announce;

pub(crate) use self::core::Core;
pub(crate) use connection::is_silent;
pub(crate) use listener::{Bound, bind, spawn_with};

use crate::{
    control,
    fault::Faults,
    journal::{Entry, Journal, JournalError, Restored},
    state::{Input, Machine, Millis, NodeId, Settings, Step},
};
use clock::Clock;
use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};
use tokio::{io::DuplexStream, sync::watch};

/// The year 3000.
const LATEST_START_MS: Millis = 32_503_680_000_000;

/// What an in-memory connection holds in each direction before its writer waits.
const PIPE: usize = 256 * 1024;

/// Where a broker listens, and what it keeps.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where the first node listens; with a port, the next nodes take the ports after it; with port 0, any. Without
    /// an address there are only connections in memory.
    pub listen: Option<SocketAddr>,
    /// The host that clients are told, where it is not the address; without an address, what stands before a node's number
    /// and a hyphen, by default `node`.
    pub advertise: Option<String>,
    /// Where the control port listens; there is none otherwise.
    pub control: Option<SocketAddr>,
    /// The folder of the journal; nothing outlives the process otherwise.
    pub data: Option<PathBuf>,
    /// Is each record of the journal forced to disk before its answer? Needed against a machine that dies, not
    /// against a process that does.
    pub sync: bool,
    /// The broker's time at its start, instead of the wall clock's; a journal that has come further goes on there.
    pub start_ms: Option<Millis>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)),
            advertise: None,
            control: None,
            data: None,
            sync: false,
            start_ms: None,
        }
    }
}

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The settings make no cluster.
    #[error("settings refused: {0}")]
    Settings(String),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A running broker. It ends with [`Self::stop`], or when it is dropped.
#[derive(Debug)]
pub struct Broker {
    core: Arc<Core>,
    stop: watch::Sender<bool>,
    addresses: BTreeMap<NodeId, (String, u16)>,
    control: Option<SocketAddr>,
}

impl Broker {
    /// Starts a broker on the current runtime.
    ///
    /// # Errors
    /// An address is taken, or the journal cannot be used.
    pub async fn start(settings: Settings, options: ServerOptions) -> Result<Self, StartError> {
        let core = open(settings, &options)?;
        let nodes = core.look(|machine| machine.settings().nodes);
        let stop = watch::Sender::new(false);
        let (addresses, listeners) = listen(&options, nodes)?;
        core.set_addresses(addresses.clone());
        for (node, bound) in listeners {
            listener::accept(bound, node, Arc::clone(&core), &stop);
        }
        let control = match options.control {
            None => None,
            Some(address) => {
                let bound = bind(address).map_err(|source| StartError::Listen { address, source })?;
                let at = bound.address();
                let served = control::Served {
                    subject: control::Subject::Broker(Arc::clone(&core)),
                    bootstrap: bootstrap(&addresses),
                    advertised: options.advertise.clone(),
                };
                spawn(&stop, control::serve(bound, served, stop.subscribe()));
                Some(at)
            }
        };
        spawn(&stop, Arc::clone(&core).keep_time());
        Ok(Self { core, stop, addresses, control })
    }

    /// What clients call `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        bootstrap(&self.addresses)
    }

    /// Where each node is.
    pub fn addresses(&self) -> &BTreeMap<NodeId, (String, u16)> {
        &self.addresses
    }

    /// Where the control port is.
    pub fn control(&self) -> Option<SocketAddr> {
        self.control
    }

    /// Says where it is as one line of JSON: `{"bootstrap":"127.0.0.1:39213","control":"http://127.0.0.1:40111"}`, where
    /// `control` is null without a control port.
    ///
    /// # Errors
    /// Nobody reads it.
    pub fn announce(&self, out: &mut (dyn Write + Send)) -> io::Result<()> {
        announce(&self.bootstrap(), self.control, out)
    }

    /// The rules in force.
    pub fn faults(&self) -> &Faults {
        &self.core.faults
    }

    /// Acts on the broker itself.
    ///
    /// # Errors
    /// It names what is not there, or cannot be journaled; it was not done.
    pub fn step(&self, step: Step) -> Result<(), Halted> {
        self.core.step(step)
    }

    /// Moves the broker's clock forward; what is due by that has happened when this returns.
    ///
    /// # Errors
    /// The jump is not above zero, or leads with those before it over 100 years ahead; or it cannot be journaled.
    pub fn jump_clock(&self, by_ms: Millis) -> Result<(), Halted> {
        self.core.jump(by_ms)
    }

    /// The broker's time.
    pub fn now(&self) -> Millis {
        self.core.clock.now()
    }

    /// Topics, transactions and rules at a glance, as the control port's `GET /state` shows them.
    pub fn state(&self) -> serde_json::Value {
        control::state(&self.core)
    }

    /// Ready when the journal cannot be written any more, with the reason. Nothing is applied from then on and every
    /// request that would change anything costs its connection; what was answered before is kept. Start another broker
    /// on the folder when the reason is mended.
    pub fn broken(&self) -> impl Future<Output = String> + Send + use<> {
        self.core.broken()
    }

    /// A connection to a node without a socket.
    pub fn connect_in_memory(&self, node: NodeId) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE);
        spawn(&self.stop, connection::serve(Arc::clone(&self.core), node, server));
        client
    }

    /// Stops the broker: its connections are closed, its ports and its journal are free when this returns.
    pub async fn stop(self) {
        self.core.stop();
        self.stop.send_replace(true);
        self.stop.closed().await;
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.core.stop();
        self.stop.send_replace(true);
    }
}

fn open(settings: Settings, options: &ServerOptions) -> Result<Arc<Core>, StartError> {
    settings.check().map_err(StartError::Settings)?;
    if let Some(start) = options.start_ms.filter(|start| !(0..=LATEST_START_MS).contains(start)) {
        let why = format!("start_ms is {start}; it may be 0 to {LATEST_START_MS}, which is the year 3000");
        return Err(StartError::Settings(why));
    }
    let clock = Clock::new(options.start_ms);
    let Some(folder) = &options.data else {
        return Ok(Core::new(Machine::new(settings, clock.now()), None, 0, clock));
    };
    let (mut journal, restored) = Journal::open(folder, settings, clock.now(), options.sync)?;
    let Restored { mut machine, next_ticket, records } = restored;
    // A clock that was made to jump is not made to go back.
    clock.reach(machine.now());
    let waiting = machine.waiting();
    if !waiting.is_empty() {
        let now = clock.now().max(machine.now());
        journal.append(now, &Entry::Gone(&waiting))?;
        machine.step(now, Input::Gone(waiting));
    }
    tracing::info!(folder = %folder.display(), records, "journal replayed");
    Ok(Core::new(machine, Some(journal), next_ticket, clock))
}

type Listening = (BTreeMap<NodeId, (String, u16)>, Vec<(NodeId, Bound)>);

fn listen(options: &ServerOptions, nodes: i32) -> Result<Listening, StartError> {
    let mut addresses = BTreeMap::new();
    let mut listeners = Vec::new();
    for node in 1..=nodes {
        let Some(mut address) = options.listen else {
            let name = options.advertise.as_deref().unwrap_or("node");
            addresses.insert(NodeId(node), (format!("{name}-{node}"), 9092));
            continue;
        };
        if address.port() != 0 {
            let port = i32::from(address.port()) + node - 1;
            let port = u16::try_from(port).map_err(|_| StartError::Settings("not enough ports".into()))?;
            address.set_port(port);
        }
        let bound = bind(address).map_err(|source| StartError::Listen { address, source })?;
        let host = options.advertise.clone().unwrap_or_else(|| bound.address().ip().to_string());
        addresses.insert(NodeId(node), (host, bound.address().port()));
        listeners.push((NodeId(node), bound));
    }
    Ok((addresses, listeners))
}

fn bootstrap(addresses: &BTreeMap<NodeId, (String, u16)>) -> String {
    addresses.values().map(host_port).collect::<Vec<_>>().join(",")
}

/// An address as clients are given it: with brackets around a host that has colons.
pub(crate) fn host_port((host, port): &(String, u16)) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Runs a task until it ends or all are told to stop.
pub(crate) fn spawn(stop: &watch::Sender<bool>, task: impl Future<Output = ()> + Send + 'static) {
    listener::spawn_with(stop.subscribe(), task);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_colons_is_told_in_brackets() {
        assert_eq!(host_port(&("::1".to_owned(), 9092)), "[::1]:9092");
        assert_eq!(host_port(&("localhost".to_owned(), 9092)), "localhost:9092");
    }
}
