//! The program under test: runs of `hapax` as child processes, the pipelines that they run, the records that are
//! fed to them meanwhile.
//!
//! The binary is named by its caller, because this crate depends on no other of the workspace. What a run writes
//! goes to a file, which is read again for what it says of crash points, and kept where a test fails.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::judge::{Bounds, Judge, Numbers};
use crate::process::{POLL, Supervised, run, tail};

/// How long a reader waits for a record before the run is looked at again.
const LOOK: Duration = Duration::from_secs(2);

/// A copy from one topic to several, all on one cluster: what crash tests run.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// The job's name.
    pub job: String,
    /// The brokers.
    pub bootstrap: String,
    /// The directory of the checkpoint store.
    pub store: PathBuf,
    /// The time between barriers.
    pub interval: Duration,
    /// The source topic.
    pub source: String,
    /// The end of each source partition, exclusive; empty for an endless job.
    pub ends: Vec<u64>,
    /// The sink topics.
    pub sinks: Vec<String>,
}

impl Pipeline {
    /// The pipeline file.
    pub fn text(&self) -> String {
        let mut text = format!(
            "job = \"{}\"\n\n[checkpoint]\nstore = \"file://{}\"\ninterval = \"{}ms\"\n\n[cluster.main]\nbrokers = \"{}\"\n\n\
             [[source]]\ncluster = \"main\"\ntopics = [\"{}\"]\nstart = \"earliest\"\n",
            self.job,
            self.store.display(),
            self.interval.as_millis(),
            self.bootstrap,
            self.source,
        );
        if !self.ends.is_empty() {
            let ends: Vec<String> =
                self.ends.iter().enumerate().map(|(partition, end)| format!("{partition} = {end}")).collect();
            let topic = &self.source;
            writeln!(text, "end = {{ offsets = {{ \"{topic}\" = {{ {} }} }} }}", ends.join(", "))
                .expect("a string takes all");
        }
        for sink in &self.sinks {
            write!(text, "\n[[sink]]\ncluster = \"main\"\ntopic = \"{sink}\"\n").expect("a string takes all");
        }
        text
    }

    /// Writes the pipeline file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        fs::write(file, self.text())
    }
}

/// A run of `hapax run` as a child process.
#[derive(Debug)]
pub struct Run {
    process: Supervised,
    log: PathBuf,
}

impl Run {
    /// Starts `hapax run FILE ARGUMENTS`; what it writes goes to `log`.
    ///
    /// # Errors
    /// The binary cannot be started, or the log cannot be created.
    pub fn start(binary: &Path, file: &Path, arguments: &[&str], log: &Path) -> io::Result<Run> {
        let mut command = Command::new(binary);
        command.arg("run").arg(file).args(arguments);
        Run::of(command, log)
    }

    /// Starts a command that ends as `hapax run` ends; what it writes goes to `log`.
    ///
    /// # Errors
    /// The program cannot be started, or the log cannot be created.
    pub fn of(mut command: Command, log: &Path) -> io::Result<Run> {
        let output = File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(Run { process: Supervised::spawn(&mut command)?, log: log.to_owned() })
    }

    /// The child process.
    pub fn process(&mut self) -> &mut Supervised {
        &mut self.process
    }

    /// What the run has written so far.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn output(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// The epoch in which the run says that it reached a crash point, once it says so.
    ///
    /// # Errors
    /// The log cannot be read, or it names no epoch.
    pub fn crash_point(&self, point: &str) -> io::Result<Option<u64>> {
        let prefix = format!("crash point {point} reached in epoch ");
        let output = self.output()?;
        let Some(line) = output.lines().find(|line| line.starts_with(&prefix)) else {
            return Ok(None);
        };
        let epoch = line[prefix.len()..].trim().parse();
        epoch.map(Some).map_err(|_| io::Error::other(format!("no epoch in {line:?}")))
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// It still runs after `limit`; the text holds the end of its log.
    pub fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        match self.process.wait_for(limit)? {
            Some(status) => Ok(status),
            None => Err(self.failure(&format!("still runs after {limit:?}"))),
        }
    }

    /// Waits for the end of the run, which must be exit code `code`.
    ///
    /// # Errors
    /// Another end, or none within `limit`; the text holds the end of its log.
    pub fn demand_exit(&mut self, code: i32, limit: Duration) -> io::Result<()> {
        let status = self.wait(limit)?;
        match status.code() == Some(code) {
            true => Ok(()),
            false => Err(self.failure(&format!("ended with {status}, not with exit code {code}"))),
        }
    }

    /// Whether the process has been stopped by a signal (SIGSTOP) and not gone on.
    ///
    /// # Errors
    /// The state of the process cannot be read.
    pub fn is_stopped(&self) -> io::Result<bool> {
        Ok(state(self.process.id())?.is_some_and(|state| state == 'T'))
    }

    /// Waits until `is` says so.
    ///
    /// # Errors
    /// `is` failed, or did not say so within `limit`; the text holds the end of the log.
    pub fn until(
        &mut self,
        what: &str,
        limit: Duration,
        is: impl Fn(&mut Run) -> io::Result<bool>,
    ) -> io::Result<()> {
        let start = Instant::now();
        while !is(self)? {
            if start.elapsed() > limit {
                return Err(self.failure(&format!("{what}: not within {limit:?}")));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until a `read_committed` reader of `topic` that begins at `after` gets a number from `from` on.
    ///
    /// # Errors
    /// The run ended, or the reader got none within `limit`; the text holds the end of the log.
    pub fn await_committed(
        &mut self,
        judge: &Judge,
        (bootstrap, topic): (&str, &str),
        after: &[Bounds],
        from: u64,
        limit: Duration,
    ) -> io::Result<()> {
        let start = Instant::now();
        while !judge.await_number(bootstrap, topic, after, ("id", from), LOOK)? {
            if let Some(status) = self.process.try_wait()? {
                return Err(self
                    .failure(&format!("ended ({status}) before it committed record {from} or a later one")));
            }
            if start.elapsed() > limit {
                return Err(
                    self.failure(&format!("has not committed record {from} or a later one within {limit:?}"))
                );
            }
        }
        Ok(())
    }

    /// An error of this run with the end of its log.
    pub fn failure(&self, what: &str) -> io::Error {
        let output = self.output().unwrap_or_default();
        io::Error::other(format!(
            "the run of {} {what}; its log ends:\n{}",
            self.log.display(),
            tail(&output, 12)
        ))
    }
}

/// The state letter of a process, as the system prints it; `None` when there is no such process.
fn state(process: u32) -> io::Result<Option<char>> {
    let path = PathBuf::from(format!("/proc/{process}/stat"));
    if Path::new("/proc/self/stat").exists() {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        // The name of the program stands in parentheses before the state and may hold anything.
        let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        return Ok(rest.trim_start().chars().next());
    }
    let output = run(Command::new("ps").args(["-o", "state=", "-p", &process.to_string()]))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_start().chars().next())
}

/// What a feed does next.
#[derive(Debug)]
pub enum Part {
    /// Writes a stream, whatever number it says that it begins with.
    Write(Numbers),
    /// Writes nothing and asks again after the pause.
    Wait,
    /// Ends.
    End,
}

/// A numbered stream that is written in the background while a job reads it.
#[derive(Debug)]
pub struct Feed {
    begun: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<u64>>>,
}

impl Feed {
    /// Writes to `topic` what `next` asks for, with a pause after each part. `next` gets the first number that has
    /// not been written; its stream goes on there.
    pub fn start(
        judge: Arc<Judge>,
        bootstrap: &str,
        topic: &str,
        pause: Duration,
        mut next: impl FnMut(u64) -> Part + Send + 'static,
    ) -> Feed {
        let (begun, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (bootstrap, topic) = (bootstrap.to_owned(), topic.to_owned());
        let (count, ended) = (begun.clone(), over.clone());
        let thread = thread::spawn(move || {
            let mut written = 0;
            while !ended.load(Ordering::SeqCst) {
                match next(written) {
                    Part::Write(numbers) => {
                        count.store(written + numbers.count, Ordering::SeqCst);
                        let numbers = Numbers { from: written, ..numbers };
                        written += judge.produce_numbers(&bootstrap, &topic, &numbers)?;
                    }
                    Part::Wait => {}
                    Part::End => break,
                }
                thread::sleep(pause);
            }
            Ok(written)
        });
        Feed { begun, over, thread: Some(thread) }
    }

    /// The first number of which no writing has begun: whoever stopped before this call has not seen it.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Ends the feed, unless it has ended by itself, and returns how many numbers were written.
    ///
    /// # Errors
    /// Writing failed.
    pub fn end(mut self) -> io::Result<u64> {
        self.over.store(true, Ordering::SeqCst);
        self.join()
    }

    /// Waits until the feed ends by itself and returns how many numbers were written.
    ///
    /// # Errors
    /// Writing failed.
    pub fn join(&mut self) -> io::Result<u64> {
        let thread = self.thread.take().expect("a feed is waited for once");
        thread.join().map_err(|_| io::Error::other("the feed panicked"))?
    }
}

impl Drop for Feed {
    /// The thread ends after the part that it writes.
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_seen_as_stopped_until_it_goes_on() {
        let directory = std::env::temp_dir();
        let log = directory.join(format!("hapax-run-{}.log", std::process::id()));
        let program = directory.join(format!("hapax-run-{}.sh", std::process::id()));
        fs::write(&program, "exec sleep 60\n").unwrap();
        // `sh run FILE`: a program that takes the arguments of a run.
        let mut process = Supervised::spawn(Command::new("sh").arg(&program)).unwrap();
        process.signal("STOP").unwrap();
        fs::write(&log, "noise\ncrash point K2 reached in epoch 7\n").unwrap();
        let mut run = Run { process, log: log.clone() };
        run.until("stopped", Duration::from_secs(10), |run| run.is_stopped()).unwrap();
        assert_eq!(run.crash_point("K2").unwrap(), Some(7));
        assert_eq!(run.crash_point("K3").unwrap(), None);
        run.process().signal("CONT").unwrap();
        run.until("going on", Duration::from_secs(10), |run| Ok(!run.is_stopped()?)).unwrap();
        let error = run.demand_exit(0, Duration::from_millis(1)).unwrap_err().to_string();
        assert!(error.contains("still runs") && error.contains("crash point K2"), "{error}");
        run.process().kill().unwrap();
        assert_eq!(state(run.process().id()).unwrap(), None);
        fs::remove_file(&log).unwrap();
        fs::remove_file(&program).unwrap();
    }

    #[test]
    fn a_pipeline_names_its_ends_by_topic_and_partition() {
        let pipeline = Pipeline {
            job: "copy".into(),
            bootstrap: "127.0.0.1:9092".into(),
            store: "/tmp/store".into(),
            interval: Duration::from_millis(150),
            source: "in".into(),
            ends: vec![3, 4],
            sinks: vec!["a".into(), "b".into()],
        };
        let text = pipeline.text();
        assert!(text.contains("end = { offsets = { \"in\" = { 0 = 3, 1 = 4 } } }\n"), "{text}");
        assert_eq!(text.matches("[[sink]]").count(), 2);
        assert!(!Pipeline { ends: Vec::new(), ..pipeline }.text().contains("end ="));
    }
}
