//! The broker of each version that tests share: own topics, own names, side by side.
//!
//! `cargo xtask test` starts one broker a version and hands its address to every test binary in the
//! environment. Without that (plain `cargo test`) the first call in a process starts one for that process.

use std::env;
use std::io;
use std::sync::OnceLock;

use super::{Cluster, Version};

/// A broker that is shared: never kill, pause or reconfigure it.
#[derive(Debug)]
pub struct Shared {
    /// Its address.
    pub bootstrap: String,
    /// Its version.
    pub version: Version,
    /// The broker, where this process had to start it. It ends with the process.
    _cluster: Option<Cluster>,
}

/// The shared broker of a version.
///
/// # Panics
/// No broker could be started; the text says why.
pub fn shared(version: Version) -> &'static Shared {
    static V4_4: OnceLock<Shared> = OnceLock::new();
    static V3_9: OnceLock<Shared> = OnceLock::new();
    let cell = match version {
        Version::V4_4 => &V4_4,
        Version::V3_9 => &V3_9,
    };
    cell.get_or_init(|| {
        if let Some(bootstrap) = env::var(version.variable()).ok().filter(|address| !address.is_empty()) {
            return Shared { bootstrap, version, _cluster: None };
        }
        match start_shared(version) {
            Ok(cluster) => Shared { bootstrap: cluster.bootstrap(), version, _cluster: Some(cluster) },
            Err(error) => panic!("no shared broker of kafka {version}: {error}"),
        }
    })
}

/// Starts a broker to be shared. It is never killed, so its session may be long: a busy machine must not fence it.
///
/// # Errors
/// As [`super::Builder::start`].
pub fn start_shared(version: Version) -> io::Result<Cluster> {
    Cluster::builder(version).property("broker.session.timeout.ms", "30000").start()
}
