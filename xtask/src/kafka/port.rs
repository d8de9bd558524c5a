//! Ports for brokers: free, outside the range from which the system takes ports for outgoing connections, and
//! reserved among all processes that use this library.
//!
//! A broker that was killed must come back on its port. Inside the outgoing range any client could have taken
//! it meanwhile, and a client that dials a dead port of that range can even connect to itself. Two test
//! processes could pick the same port at the same time: each port has a lock file, held as long as the cluster.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cache;

const LOWEST: u16 = 20_000;
/// Below the outgoing range of Linux (32768) and macOS (49152). The lock files stay: the range bounds their number.
const HIGHEST: u16 = 22_000;
const TRIES: u32 = 200;

/// A port of the loopback address that no other process of this library uses.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    /// Closing it ends the reservation.
    _lock: File,
}

impl Port {
    /// Reserves a free port.
    pub(super) fn reserve() -> io::Result<Port> {
        let directory = cache::directory().join("ports");
        fs::create_dir_all(&directory)?;
        let mut seed = seed();
        for _ in 0..TRIES {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = LOWEST + ((seed >> 33) % u64::from(HIGHEST - LOWEST)) as u16;
            let lock = File::create(directory.join(number.to_string()))?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Port { number, _lock: lock });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("found no free port between {LOWEST} and {HIGHEST} in {TRIES} tries"),
        ))
    }

    /// Its number.
    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

/// Different in every process and at every call; its quality does not matter, since a taken port is skipped.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    now ^ (u64::from(std::process::id()) << 40)
}
