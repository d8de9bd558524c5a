//! One Kafka node: its directory, its ports, its process.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::port::Port;
use super::provision::Installation;
use super::wire;
use crate::process::{self, Supervised};

/// A broker that moves its leaderships away first may take a while on a busy machine.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A node of a cluster: broker and controller in one process.
#[derive(Debug)]
pub(super) struct Node {
    id: u32,
    port: Port,
    controller_port: Port,
    directory: PathBuf,
    process: Option<Supervised>,
    paused: bool,
}

impl Node {
    /// Makes the node's directory under `cluster_directory` and reserves its ports.
    pub(super) fn create(id: u32, cluster_directory: &Path) -> io::Result<Self> {
        let directory = cluster_directory.join(format!("node-{id}"));
        fs::create_dir_all(&directory)?;
        let (port, controller_port) = (Port::reserve()?, Port::reserve()?);
        Ok(Self { id, port, controller_port, directory, process: None, paused: false })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    /// The node as an entry of `controller.quorum.voters`.
    pub(super) fn voter(&self) -> String {
        format!("{}@127.0.0.1:{}", self.id, self.controller_port.number())
    }

    pub(super) fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Supervised::id)
    }

    pub(super) fn is_running(&self) -> bool {
        self.process.is_some() && !self.paused
    }

    pub(super) fn log_path(&self) -> PathBuf {
        self.directory.join("node.log")
    }

    fn properties_path(&self) -> PathBuf {
        self.directory.join("server.properties")
    }

    /// Writes the node's configuration. Later lines win, so that a test can set any property.
    pub(super) fn configure(&self, voters: &str, properties: &[(String, String)]) -> io::Result<()> {
        let mut text = format!(
            "process.roles=broker,controller\n\
             node.id={id}\n\
             controller.quorum.voters={voters}\n\
             controller.listener.names=CONTROLLER\n\
             inter.broker.listener.name=PLAINTEXT\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             log.dirs={data}\n",
            id = self.id,
            port = self.port.number(),
            controller_port = self.controller_port.number(),
            data = self.directory.join("data").display(),
        );
        for (name, value) in properties {
            writeln!(text, "{name}={value}").expect("writing to a string does not fail");
        }
        fs::write(self.properties_path(), text)
    }

    /// Formats the node's storage.
    pub(super) fn format(
        &self,
        installation: &Installation,
        cluster_id: &str,
        transaction_version: Option<u16>,
    ) -> io::Result<()> {
        let mut command = installation.command("kafka.tools.StorageTool", "WARN");
        command.args(["format", "-t", cluster_id, "-c"]).arg(self.properties_path());
        if let Some(level) = transaction_version {
            command.args(["-f", &format!("transaction.version={level}")]);
        }
        process::run(&mut command).map(drop)
    }

    /// Starts the node's process; it is not ready yet.
    pub(super) fn launch(&mut self, installation: &Installation) -> io::Result<()> {
        if self.process.is_some() {
            return Err(self.refuse("start", "it runs already"));
        }
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = installation.command("kafka.Kafka", "INFO");
        command
            .arg(self.properties_path())
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.process = Some(Supervised::spawn(&mut command)?);
        self.paused = false;
        Ok(())
    }

    /// Fails when the process has ended by itself; the end of its log is in the text.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let Some(process) = self.process.as_mut() else {
            return Err(self.refuse("wait for", "it does not run"));
        };
        let Some(status) = process.try_wait()? else {
            return Ok(());
        };
        self.process = None;
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let end = process::tail(&log, 25);
        let kind = match end.contains("Address already in use") {
            true => io::ErrorKind::AddrInUse,
            false => io::ErrorKind::Other,
        };
        Err(io::Error::new(
            kind,
            format!("kafka node {} ended by itself ({status}); its log ends:\n{end}", self.id),
        ))
    }

    /// Whether the node answers, sees `alive` nodes, and (where `coordinators`) finds both coordinators.
    pub(super) fn answers(&self, alive: usize, coordinators: bool) -> io::Result<()> {
        let address = format!("127.0.0.1:{}", self.port.number());
        wire::api_versions(&address)?;
        let brokers: Vec<i32> = wire::view(&address, None)?.brokers.iter().map(|broker| broker.id).collect();
        if brokers.len() < alive || !brokers.contains(&(self.id as i32)) {
            return Err(io::Error::other(format!(
                "node {} sees the nodes {brokers:?}, not {alive}",
                self.id
            )));
        }
        if coordinators {
            wire::find_coordinator(&address, wire::CoordinatorKind::Transaction, "xtask-probe")?;
            wire::find_coordinator(&address, wire::CoordinatorKind::Group, "xtask-probe")?;
        }
        Ok(())
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.running("kill")?.kill()?;
        self.process = None;
        Ok(())
    }

    /// SIGTERM, and waits for the end.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        let process = self.running("stop")?;
        process.signal("TERM")?;
        let ended = process.wait_for(STOP_LIMIT)?;
        self.process = None; // dropping it kills what did not end
        match ended {
            Some(_) => Ok(()),
            None => Err(self.refuse("stop", &format!("it did not end within {STOP_LIMIT:?} and was killed"))),
        }
    }

    /// SIGSTOP.
    pub(super) fn pause(&mut self) -> io::Result<()> {
        let process = self.running("pause")?;
        process.signal("STOP")?;
        await_state(process.id(), true)?;
        self.paused = true;
        Ok(())
    }

    /// SIGCONT.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        let process = self.running("resume")?;
        process.signal("CONT")?;
        await_state(process.id(), false)?;
        self.paused = false;
        Ok(())
    }

    fn running(&mut self, verb: &str) -> io::Result<&mut Supervised> {
        let refused = self.refuse(verb, "it does not run");
        self.process.as_mut().ok_or(refused)
    }

    fn refuse(&self, verb: &str, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, format!("could not {verb} kafka node {}: {why}", self.id))
    }
}

/// A signal is delivered some time after it was sent. Waits until the system shows the process as stopped, or
/// as running again; only Linux shows it in a file.
fn await_state(process_id: u32, stopped: bool) -> io::Result<()> {
    let path = PathBuf::from(format!("/proc/{process_id}/stat"));
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    loop {
        let stat = fs::read_to_string(&path)?;
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        if (state == Some('T')) == stopped {
            return Ok(());
        }
        std::thread::sleep(process::POLL);
    }
}
