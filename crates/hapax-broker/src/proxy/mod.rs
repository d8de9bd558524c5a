//! The same rules in front of a real cluster.
//!
//! ```text
//! client -> listener for a node -> rules -> that node
//!        <- rules <- addresses rewritten <-
//! ```
//!
//! Every address that an answer gives a client becomes one of a listener here, so that no client gets past the rules:
//! in Metadata, FindCoordinator, DescribeCluster, and the leaders' addresses in Produce and Fetch (KIP-951). What is
//! not known here goes through as it is; ApiVersions is held down to versions whose addresses can be rewritten, and
//! requests of share groups, whose answers carry addresses too, are not advertised.
//!
//! Refuses: rules that act on a machine, and anything but plaintext.

mod address;
mod connection;
mod identity;
mod name;

use crate::{
    control,
    fault::{Faults, Place},
    server::{StartError, announce, bind, host_port, spawn},
};
use address::{Routes, parse};
use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};
use tokio::sync::watch;

/// Where a proxy listens.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Where the listener of the first address is; with a port, later ones take the ports after it.
    pub listen: SocketAddr,
    /// The host that clients are told, where it is not the address.
    pub advertise: Option<String>,
    /// Where the control port listens; there is none otherwise.
    pub control: Option<SocketAddr>,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self { listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), advertise: None, control: None }
    }
}

/// A running proxy. It ends with [`Self::stop`], or when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    routes: Arc<Routes>,
    bootstrap: String,
    control: Option<SocketAddr>,
}

impl Proxy {
    /// Starts a proxy in front of a cluster (`host:port`, several with commas) on the current runtime.
    ///
    /// # Errors
    /// The address is none, or one here is taken. Whether the cluster is there is seen by the first client only.
    pub async fn start(upstream: &str, options: ProxyOptions) -> Result<Self, StartError> {
        let upstream = upstream.split(',').map(str::trim).map(parse).collect::<Result<Vec<_>, _>>()?;
        let routes = Routes::new(Faults::new(Place::Proxy), options.listen, options.advertise.clone());
        let mut bootstrap = Vec::new();
        for (host, port) in upstream {
            let local = Routes::local(&routes, &host, port, None)
                .map_err(|source| StartError::Listen { address: options.listen, source })?;
            if is_at(&host, port, options.listen.ip(), local.1).await {
                let itself = format!("the proxy would stand in front of itself: it listens on {host}:{port}");
                return Err(StartError::Settings(itself));
            }
            bootstrap.push(host_port(&local));
        }
        let bootstrap = bootstrap.join(",");
        let control = match options.control {
            None => None,
            Some(address) => {
                let bound = bind(address).map_err(|source| StartError::Listen { address, source })?;
                let at = bound.address();
                let served = control::Served {
                    subject: control::Subject::Proxy(routes.faults.clone()),
                    bootstrap: bootstrap.clone(),
                    advertised: options.advertise,
                };
                spawn(&routes.stop, control::serve(bound, served, routes.stop.subscribe()));
                Some(at)
            }
        };
        Ok(Self { routes, bootstrap, control })
    }

    /// What clients call `bootstrap.servers`.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Where the control port is.
    pub fn control(&self) -> Option<SocketAddr> {
        self.control
    }

    /// The rules in force.
    pub fn faults(&self) -> &Faults {
        &self.routes.faults
    }

    /// Says where it is as one line of JSON, as [`crate::Broker::announce`] does.
    ///
    /// # Errors
    /// Nobody reads it.
    pub fn announce(&self, out: &mut (dyn Write + Send)) -> std::io::Result<()> {
        announce(&self.bootstrap, self.control, out)
    }

    /// Stops the proxy: its connections are closed, its ports are free when this returns.
    pub async fn stop(self) {
        self.stop_sender().send_replace(true);
        self.stop_sender().closed().await;
    }

    fn stop_sender(&self) -> &watch::Sender<bool> {
        &self.routes.stop
    }
}

/// Is an upstream address the place where the proxy itself listens?
async fn is_at(host: &str, port: u16, listens: IpAddr, listens_on: u16) -> bool {
    if port != listens_on {
        return false;
    }
    let Ok(mut found) = tokio::net::lookup_host((host, port)).await else { return false };
    found.any(|address| address.ip() == listens || (listens.is_unspecified() && address.ip().is_loopback()))
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop_sender().send_replace(true);
    }
}
