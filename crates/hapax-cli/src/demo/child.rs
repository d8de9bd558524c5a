//! The demo's other processes: the same executable with other arguments. Each ends when its standard input closes,
//! so none outlives the demo, however that ends.

use hapax::{Code, Host, JobError};
use hapax_host::WorkerHandle;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fmt::Display,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// How often an end is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// Lines of a log that an error shows.
const TAIL: usize = 8;

/// A child process with its log in a file.
pub(super) struct Child {
    what: &'static str,
    process: Process,
    input: Option<ChildStdin>,
    log: PathBuf,
    /// The last line of its standard output.
    line: Arc<Mutex<String>>,
    reader: WorkerHandle,
}

impl Child {
    pub(super) fn start(
        host: &Host,
        what: &'static str,
        arguments: &[String],
        variables: &[(&str, &str)],
        log: &Path,
    ) -> Result<Self, JobError> {
        let start = || {
            let executable = std::env::current_exe()?;
            // Made new, so that no log of another demo is read as this one's.
            drop(host.files().create_new(log)?);
            let mut command = Command::new(executable);
            command.args(arguments).envs(variables.iter().copied());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(into(log)?);
            command.spawn()
        };
        let mut process = start().map_err(|error| machine(what, &error))?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let line = Arc::new(Mutex::new(String::new()));
        let last = Arc::clone(&line);
        let read = async move {
            for text in output.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok)
            {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = text;
            }
        };
        let reader = host.start_worker(what, Box::pin(read)).map_err(|error| machine(what, &error))?;
        Ok(Self { what, process, input, log: log.to_owned(), line, reader })
    }

    /// The last line of its standard output, read as JSON.
    pub(super) fn said<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::from_str(&line).ok()
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) -> Result<(), JobError> {
        self.process.kill().map_err(|error| machine(self.what, &error))
    }

    /// SIGTERM.
    pub(super) fn terminate(&self) -> Result<(), JobError> {
        self.signal(Signal::SIGTERM)
    }

    /// SIGSTOP, or SIGCONT.
    pub(super) fn pause(&self, pause: bool) -> Result<(), JobError> {
        self.signal(if pause { Signal::SIGSTOP } else { Signal::SIGCONT })
    }

    fn signal(&self, signal: Signal) -> Result<(), JobError> {
        let id = i32::try_from(self.process.id()).map_err(|error| machine(self.what, &error))?;
        kill(Pid::from_raw(id), signal).map_err(|error| machine(self.what, &error))
    }

    /// Closes its standard input.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>, JobError> {
        self.process.try_wait().map_err(|error| machine(self.what, &error))
    }

    /// Waits for its end, and for its last line.
    pub(super) async fn end(&mut self, host: &Host, limit: Duration) -> Result<ExitStatus, JobError> {
        let until = host.now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                // It cannot panic.
                let _ = self.reader.join().await;
                return Ok(status);
            }
            if host.now() >= until {
                return Err(self.failure(host, &format!("has not ended within {limit:?}")));
            }
            host.sleep(LOOK).await;
        }
    }

    /// Waits for an end with exit code 0.
    pub(super) async fn success(&mut self, host: &Host, limit: Duration) -> Result<(), JobError> {
        let status = self.end(host, limit).await?;
        if status.success() { Ok(()) } else { Err(self.failure(host, &format!("ended with {status}"))) }
    }

    /// Waits until it is dead by SIGKILL.
    pub(super) async fn death(&mut self, host: &Host, limit: Duration) -> Result<(), JobError> {
        let status = self.end(host, limit).await?;
        if status.signal() == Some(Signal::SIGKILL as i32) {
            return Ok(());
        }
        Err(self.failure(host, &format!("ended with {status} instead of dying")))
    }

    /// What it has logged.
    pub(super) fn log(&self, host: &Host) -> String {
        host.files().read_to_string(&self.log).unwrap_or_default()
    }

    /// An error with the end of its log.
    pub(super) fn failure(&self, host: &Host, what: &str) -> JobError {
        let log = self.log(host);
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n  ");
        JobError::Run {
            code: Code::Machine,
            message: format!("{} {what}; its log ends:\n  {tail}", self.what),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[allow(clippy::disallowed_methods, reason = "a child process takes a file of the system, not of the seam")]
fn into(log: &Path) -> std::io::Result<Stdio> {
    Ok(std::fs::OpenOptions::new().append(true).open(log)?.into())
}

fn machine(what: &str, error: &dyn Display) -> JobError {
    JobError::Run { code: Code::Machine, message: format!("{what}: {error}") }
}
