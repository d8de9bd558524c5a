//! Child processes that never outlive this one.
//!
//! Owns the *reaper*: one `sh` per process that reads a list of process ids and directories from a pipe. When
//! this process ends, in whatever way (return, panic, SIGKILL), the kernel closes the pipe; the reaper then
//! kills what is still listed and removes the directories. The reaper ignores the signals of a terminal, and
//! supervised children run in process groups of their own, so that Ctrl-C reaches them only through it.
//!
//! Invariant: a process id is listed from its spawn until just before it is waited for, so the reaper never
//! signals an id that the system has given to somebody else.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a wait looks again.
pub(crate) const POLL: Duration = Duration::from_millis(20);

const REAPER: &str = r#"
trap '' INT TERM HUP QUIT
targets=
while read -r what value; do
  case $what in
    add) targets="$targets $value" ;;
    del) kept=
         for target in $targets; do [ "$target" = "$value" ] || kept="$kept $target"; done
         targets=$kept ;;
    dir) set -- "$@" "$value" ;;
  esac
done
for target in $targets; do kill -s KILL -- "$target"; done
for directory in "$@"; do
  rm -rf -- "$directory" || { sleep 1; rm -rf -- "$directory"; }
done
"#;

static PIPE: Mutex<Option<ChildStdin>> = Mutex::new(None);

fn tell_reaper(what: &str, value: &str) -> io::Result<()> {
    let mut pipe = reaper()?;
    let pipe = pipe.as_mut().expect("the reaper was started above");
    pipe.write_all(format!("{what} {value}\n").as_bytes())
}

/// The pipe to the reaper, which is started if it does not run yet.
fn reaper() -> io::Result<MutexGuard<'static, Option<ChildStdin>>> {
    let mut pipe = PIPE.lock().unwrap_or_else(PoisonError::into_inner);
    if pipe.is_none() {
        let mut reaper = Command::new("sh")
            .args(["-c", REAPER, "reaper"])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        *pipe = reaper.stdin.take();
    }
    Ok(pipe)
}

/// Has `directory` removed when this process ends. The caller may remove it earlier.
///
/// # Errors
/// The reaper could not be started.
pub fn remove_at_exit(directory: &Path) -> io::Result<()> {
    tell_reaper("dir", &directory.display().to_string())
}

/// A child process that is killed and waited for when this value is dropped, or when this process ends.
#[derive(Debug)]
pub struct Supervised {
    child: Child,
    target: String,
    status: Option<ExitStatus>,
}

impl Supervised {
    /// Spawns `command` in a process group of its own.
    ///
    /// # Errors
    /// The program could not be started, or the reaper could not.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        Self::start(command, "")
    }

    /// Spawns `command` in a process group of its own, so that its whole process group is killed with it: for programs that start others.
    ///
    /// # Errors
    /// The program could not be started, or the reaper could not.
    pub fn spawn_group(command: &mut Command) -> io::Result<Self> {
        Self::start(command, "-")
    }

    fn start(command: &mut Command, sign: &str) -> io::Result<Self> {
        drop(reaper()?); // it must run before there is something to reap
        let child = command.process_group(0).spawn().map_err(|e| {
            crate::cache::explain(&format!("start {}", command.get_program().to_string_lossy()), &e)
        })?;
        let target = format!("{sign}{}", child.id());
        let supervised = Self { child, target, status: None };
        tell_reaper("add", &supervised.target)?;
        Ok(supervised)
    }

    /// The process id. It names a foreign process once this one has ended.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The pipe to the child's standard input, once, if it was asked for.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The pipe from the child's standard output, once, if it was asked for.
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The pipe from the child's standard error, once, if it was asked for.
    pub fn take_stderr(&mut self) -> Option<std::process::ChildStderr> {
        self.child.stderr.take()
    }

    /// The exit status, if the child has ended.
    ///
    /// # Errors
    /// The system refused to wait.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
            if self.status.is_some() {
                tell_reaper("del", &self.target)?;
            }
        }
        Ok(self.status)
    }

    /// Waits for the end of the child.
    ///
    /// # Errors
    /// The system refused to wait.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let status = self.child.wait()?;
        self.status = Some(status);
        tell_reaper("del", &self.target)?;
        Ok(status)
    }

    /// Waits for the end of the child, `limit` at most; `None` when it still runs then.
    ///
    /// # Errors
    /// The system refused to wait.
    pub fn wait_for(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        loop {
            let status = self.try_wait()?;
            if status.is_some() || start.elapsed() >= limit {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }

    /// Sends SIGKILL and waits. Does nothing to a child that has ended.
    ///
    /// # Errors
    /// The system refused the signal.
    pub fn kill(&mut self) -> io::Result<()> {
        if self.try_wait()?.is_some() {
            return Ok(());
        }
        if self.target.starts_with('-') {
            send("KILL", &self.target)?;
        } else {
            self.child.kill()?;
        }
        self.wait().map(drop)
    }

    /// Sends a signal by its name (`TERM`, `STOP`, `CONT`).
    ///
    /// # Errors
    /// The child has ended, or the system refused the signal.
    pub fn signal(&mut self, name: &str) -> io::Result<()> {
        if let Some(status) = self.try_wait()? {
            return Err(io::Error::other(format!(
                "could not send SIG{name} to process {}: it has ended ({status})",
                self.child.id()
            )));
        }
        send(name, &self.target)
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("could not end process {}: {error}", self.child.id());
        }
    }
}

/// `kill` is the shell's own: a minimal system has no program of that name.
fn send(signal: &str, target: &str) -> io::Result<()> {
    let script = r#"kill -s "$1" -- "$2""#;
    let output = Command::new("sh").args(["-c", script, "sh", signal, target]).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "could not send SIG{signal} to process {target}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// Runs `command` to its end with nothing on its standard input and returns what it wrote.
///
/// # Errors
/// The program could not be started, or it ended with a failure: the text then holds the end of its output.
pub fn run(command: &mut Command) -> io::Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let attempted = format!("run {program}");
    let output = command.stdin(Stdio::null()).output().map_err(|e| crate::cache::explain(&attempted, &e))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(io::Error::other(format!(
        "{program} failed ({}):\n{}{}",
        output.status,
        tail(&String::from_utf8_lossy(&output.stdout), 30),
        tail(&String::from_utf8_lossy(&output.stderr), 30)
    )))
}

/// The last `lines` lines of `text`.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| format!("  {line}\n")).collect()
}
