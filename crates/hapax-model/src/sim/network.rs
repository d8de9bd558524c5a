//! Links between processes and nodes: latency, cuts, partitions, each drawn from the seed.
//!
//! ```text
//! client <-- pipe --> link: up   chunk -> late by so much -> cut inside it? -> the node's own connection code
//!                           down chunk <- ..
//! ```
//!
//! Bytes keep their order and none is changed: TCP. What a process has handed over is under way when it dies; its machine
//! may die with it, and then what was under way is lost.

use super::{
    cluster::Cluster,
    fault::Kind,
    process::{self, Process},
    scenario::Weather,
    trace::{Trace, now, waiting},
};
use hapax_host::{BoxStream, ConnectFuture, Net};
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    time::{Instant, sleep, sleep_until},
};

/// What a link's pipe holds before its writer waits.
const PIPE: usize = 64 * 1024;

/// The most that a link carries at once.
const CHUNK: usize = 16 * 1024;

/// A node by its cluster and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Host {
    cluster: &'static str,
    node: i32,
}

impl Host {
    pub(super) fn new(cluster: &Cluster, node: i32) -> Self {
        Self { cluster: cluster.name, node }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.cluster, self.node)
    }
}

/// The network of a world. Cheap to clone.
#[derive(Clone)]
pub(super) struct Network(Arc<Inner>);

struct Inner {
    clusters: Vec<Cluster>,
    trace: Trace,
    weather: Weather,
    state: Mutex<State>,
}

struct State {
    random: fastrand::Rng,
    stormy: bool,
    links: u64,
    /// Until when a process and a node do not hear each other.
    apart: BTreeMap<(u32, Host), Instant>,
}

#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

/// What becomes of a chunk.
struct Passage {
    late: Duration,
    /// The link ends behind so many bytes of it.
    cut: Option<usize>,
}

impl Network {
    pub(super) fn new(clusters: Vec<Cluster>, trace: Trace, weather: Weather, random: fastrand::Rng) -> Self {
        let state = State { random, stormy: true, links: 0, apart: BTreeMap::new() };
        Self(Arc::new(Inner { clusters, trace, weather, state: Mutex::new(state) }))
    }

    /// No faults from now on.
    pub(super) fn heal(&self) {
        let mut state = self.state();
        state.stormy = false;
        state.apart.clear();
    }

    /// A process and a node do not hear each other for a while. What was sent arrives behind that.
    pub(super) fn part(&self, process: u32, host: Host, time: Duration) {
        self.state().apart.insert((process, host), now() + time);
    }

    /// The sockets of a process.
    pub(super) fn sockets_of(&self, process: Process) -> Arc<dyn Net> {
        Arc::new(Sockets { network: self.clone(), process })
    }

    async fn open(&self, process: &Process, host: &str) -> io::Result<DuplexStream> {
        let found = self.0.clusters.iter().find_map(|cluster| Some((cluster, cluster.node(host)?)));
        let (cluster, node) = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host"))?;
        let host = Host::new(cluster, node.0);
        let (late, refused, link) = {
            let mut state = self.state();
            state.links += 1;
            let late = waiting(&mut state.random, self.0.weather.latency);
            (late, state.stormy && state.random.f64() < self.0.weather.refused, state.links)
        };
        sleep(late).await;
        self.together(process.number(), host).await;
        if refused {
            self.0.trace.fired(Kind::Refused, format_args!("process {} to {host}", process.number()));
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.0.trace.event(format_args!("link {link} from process {} to {host}", process.number()));
        let (near, far) = duplex(PIPE);
        let served = cluster.broker.connect_in_memory(node);
        let carrier = Link { network: self.clone(), process: process.clone(), host, number: link };
        process::spawn(carrier.carry(far, served));
        Ok(near)
    }

    /// Waits until process and node hear each other.
    async fn together(&self, process: u32, host: Host) {
        let mut is_told = false;
        loop {
            let until = self.state().apart.get(&(process, host)).copied();
            match until {
                Some(until) if now() < until => {
                    if !std::mem::replace(&mut is_told, true) {
                        self.0.trace.fired(Kind::Partition, format_args!("process {process} and {host}"));
                    }
                    // Looked at now and then, since a partition may be healed.
                    sleep_until(until.min(now() + Duration::from_millis(500))).await;
                }
                _ => return,
            }
        }
    }

    fn draw(&self, bytes: usize) -> Passage {
        let weather = &self.0.weather;
        let mut state = self.state();
        let state = &mut *state;
        let mut late = waiting(&mut state.random, weather.latency);
        if state.stormy && state.random.f64() < weather.slow {
            late += waiting(&mut state.random, weather.slow_by);
        }
        let cut = state.stormy && state.random.f64() < weather.cut;
        Passage { late, cut: cut.then(|| [0, state.random.usize(0..=bytes), bytes][state.random.usize(..3)]) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Sockets {
    network: Network,
    process: Process,
}

impl Net for Sockets {
    fn connect<'a>(&'a self, host: &'a str, _: u16) -> ConnectFuture<'a> {
        Box::pin(async move { Ok(Box::new(self.network.open(&self.process, host).await?) as BoxStream) })
    }
}

/// One connection.
struct Link {
    network: Network,
    process: Process,
    host: Host,
    number: u64,
}

impl Link {
    async fn carry(self, client: DuplexStream, served: DuplexStream) {
        let (from_client, to_client) = split(client);
        let (from_node, to_node) = split(served);
        let machine_dies = async {
            self.process.died().await;
            let lost = self.network.state().random.bool();
            if !lost {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = machine_dies => {}
            () = self.pump(Way::Up, from_client, to_node) => {}
            () = self.pump(Way::Down, from_node, to_client) => {}
        }
        self.network.0.trace.event(format_args!("link {} ends", self.number));
    }

    async fn pump(&self, way: Way, mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>) {
        let Inner { trace, weather, .. } = &*self.network.0;
        let mut buffer = vec![0; CHUNK];
        loop {
            let read = from.read(&mut buffer).await.unwrap_or(0);
            if read == 0 {
                let _ = to.shutdown().await;
                return;
            }
            let passage = self.network.draw(read);
            let name = match way {
                Way::Up => "up",
                Way::Down => "down",
            };
            if passage.late > weather.slow_by / 2 && passage.late > weather.latency * 10 {
                trace.fired(Kind::SlowLink, format_args!("{name} {} by {:?}", self.number, passage.late));
            }
            sleep(passage.late).await;
            self.network.together(self.process.number(), self.host).await;
            trace.event(format_args!("link {} {name} {read}", self.number));
            let whole = passage.cut.is_none();
            if to.write_all(&buffer[..passage.cut.unwrap_or(read)]).await.is_err() {
                return;
            }
            if !whole {
                let at = passage.cut.unwrap_or(read);
                trace.fired(Kind::Cut, format_args!("link {} {name} behind {at} of {read}", self.number));
                return;
            }
        }
    }
}
