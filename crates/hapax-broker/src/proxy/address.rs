//! Which listener here stands for which address there, and answers that carry addresses.

use super::{connection, name::Names};
use crate::{
    fault::Faults,
    server::{StartError, bind, spawn_with},
    wire::{ADVERTISED, Response},
};
use kafka_protocol::{
    messages::{ApiKey, ApiVersionsResponse},
    protocol::StrBytes,
};
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

/// A cluster has fewer nodes than this; what tells of more is no cluster.
const MOST_LISTENERS: usize = 1_000;

/// Stands for the number of a node that is not known.
pub(crate) const UNKNOWN: i32 = -1;

/// As in the server's listener.
const OUT_OF_BREATH: Duration = Duration::from_millis(10);

/// Requests whose answers carry addresses in a way that is not rewritten: ShareFetch, ShareAcknowledge.
const HIDDEN: [i16; 2] = [78, 79];

/// A proxy's listeners.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) faults: Faults,
    pub(crate) stop: watch::Sender<bool>,
    listen: SocketAddr,
    advertise: Option<String>,
    names: Mutex<Names>,
    known: Mutex<BTreeMap<(String, u16), Arc<Local>>>,
}

/// A listener here.
#[derive(Debug)]
pub(crate) struct Local {
    /// The node behind it, once it or an answer has told it.
    pub(crate) node: AtomicI32,
    /// Where that is.
    pub(crate) upstream: (String, u16),
    here: (String, u16),
    stalled: Mutex<Option<Instant>>,
}

impl Local {
    /// Lets no request and no answer through for a time.
    pub(crate) fn stall(&self, wait: Duration) {
        let mut stalled = self.stalled.lock().expect("nothing panics while it holds the lock");
        *stalled = (*stalled).max(Some(after(wait)));
    }

    /// Waits until no rule stalls the node.
    pub(crate) async fn awake(&self) {
        loop {
            let stalled = *self.stalled.lock().expect("nothing panics while it holds the lock");
            match stalled {
                Some(until) if after(Duration::ZERO) < until => sleep_until(until).await,
                _ => return,
            }
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the proxy stands beside the system under test and has its own clock"
)]
fn after(wait: Duration) -> Instant {
    Instant::now() + wait
}

/// `host:port`, with brackets around a host that has colons.
pub(crate) fn parse(address: &str) -> Result<(String, u16), StartError> {
    let refused = || StartError::Settings(format!("{address:?} is not host:port"));
    let (host, port) = address.rsplit_once(':').ok_or_else(refused)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(refused());
    }
    Ok((host.to_owned(), port.parse().map_err(|_| refused())?))
}

impl Routes {
    pub(crate) fn new(faults: Faults, listen: SocketAddr, advertise: Option<String>) -> Arc<Self> {
        let stop = watch::Sender::new(false);
        Arc::new(Self { faults, stop, listen, advertise, names: Mutex::default(), known: Mutex::default() })
    }

    /// The names of topics that answers have told.
    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address here that stands for one there; listens on it from now on.
    pub(crate) fn local(
        self: &Arc<Self>,
        host: &str,
        port: u16,
        node: Option<i32>,
    ) -> io::Result<(String, u16)> {
        let mut known = self.known.lock().expect("nothing panics while it holds the lock");
        let key = (host.to_owned(), port);
        if let Some(local) = known.get(&key) {
            if let Some(node) = node {
                local.node.store(node, Ordering::Relaxed);
            }
            return Ok(local.here.clone());
        }
        if known.len() >= MOST_LISTENERS {
            return Err(io::Error::other(format!("more than {MOST_LISTENERS} addresses behind one proxy")));
        }
        let mut address = self.listen;
        if address.port() != 0 {
            let port = usize::from(address.port()) + known.len();
            address.set_port(u16::try_from(port).map_err(|_| io::Error::other("not enough ports"))?);
        }
        let bound = bind(address)?;
        let host = self.advertise.clone().unwrap_or_else(|| bound.address().ip().to_string());
        let here = (host, bound.address().port());
        let local = Arc::new(Local {
            node: AtomicI32::new(node.unwrap_or(UNKNOWN)),
            upstream: key.clone(),
            here: here.clone(),
            stalled: Mutex::default(),
        });
        known.insert(key, Arc::clone(&local));
        let routes = Arc::clone(self);
        spawn_with(self.stop.subscribe(), async move {
            loop {
                match bound.listener.accept().await {
                    Ok((stream, _)) => {
                        let _ = stream.set_nodelay(true);
                        let serve = connection::serve(Arc::clone(&routes), Arc::clone(&local), stream);
                        spawn_with(routes.stop.subscribe(), serve);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be taken");
                        sleep(OUT_OF_BREATH).await;
                    }
                }
            }
        });
        Ok(here)
    }

    /// Lets no request and no answer through to a node for a time; says whether a listener stands for that node.
    pub(crate) fn stall(&self, node: i32, wait: Duration) -> bool {
        let known = self.known.lock().expect("nothing panics while it holds the lock");
        let of_node = |local: &&Arc<Local>| local.node.load(Ordering::Relaxed) == node;
        known.values().filter(of_node).fold(false, |_, local| {
            local.stall(wait);
            true
        })
    }

    /// Rewrites an answer; says whether there was anything to rewrite.
    pub(crate) fn rewrite(self: &Arc<Self>, response: &mut Response) -> io::Result<bool> {
        match response {
            Response::Metadata(answer) => {
                for broker in &mut answer.brokers {
                    self.replace(&mut broker.host, &mut broker.port, broker.node_id.0)?;
                }
            }
            Response::DescribeCluster(answer) => {
                for broker in &mut answer.brokers {
                    self.replace(&mut broker.host, &mut broker.port, broker.broker_id.0)?;
                }
            }
            Response::FindCoordinator(answer) => {
                self.replace(&mut answer.host, &mut answer.port, answer.node_id.0)?;
                for found in &mut answer.coordinators {
                    self.replace(&mut found.host, &mut found.port, found.node_id.0)?;
                }
            }
            Response::Produce(answer) => {
                for node in &mut answer.node_endpoints {
                    self.replace(&mut node.host, &mut node.port, node.node_id.0)?;
                }
                return Ok(!answer.node_endpoints.is_empty());
            }
            Response::Fetch(answer) => {
                for node in &mut answer.node_endpoints {
                    self.replace(&mut node.host, &mut node.port, node.node_id.0)?;
                }
                return Ok(!answer.node_endpoints.is_empty());
            }
            Response::ApiVersions(answer) => hold_down(answer),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// An answer without an address has port -1 or 0, or no host.
    fn replace(self: &Arc<Self>, host: &mut StrBytes, port: &mut i32, node: i32) -> io::Result<()> {
        let Some(there) = u16::try_from(*port).ok().filter(|port| *port != 0 && !host.is_empty()) else {
            return Ok(());
        };
        let (here, at) = self.local(host.as_str(), there, Some(node))?;
        *host = StrBytes::from_string(here);
        *port = at.into();
        Ok(())
    }
}

/// May the answer to this request carry addresses?
pub(crate) fn has_addresses(key: ApiKey, version: i16) -> bool {
    match key {
        ApiKey::Metadata | ApiKey::FindCoordinator | ApiKey::DescribeCluster | ApiKey::ApiVersions => true,
        ApiKey::Produce => version >= 10,
        ApiKey::Fetch => version >= 16,
        _ => false,
    }
}

fn hold_down(answer: &mut ApiVersionsResponse) {
    answer.api_keys.retain(|range| !HIDDEN.contains(&range.api_key));
    for range in &mut answer.api_keys {
        let ours = ADVERTISED.iter().find(|(key, _)| *key as i16 == range.api_key);
        if let Some((key, ours)) = ours
            && has_addresses(*key, i16::MAX)
        {
            range.max_version = range.max_version.min(ours.max);
        }
    }
}
