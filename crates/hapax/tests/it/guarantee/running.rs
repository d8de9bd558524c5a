//! A job that runs on a thread of its own and can be killed, as far as brokers and store can tell.

use super::{LIMIT, captured};
use futures::FutureExt;
use hapax::{
    Host, JobError, Plan, Progress, RunOptions, StopSignal, Summary,
    crash::{CrashPoints, Point},
};
use hapax_commit::Epoch;
use std::{
    fmt,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use tokio::sync::{oneshot, watch};

/// How a job's time in this process ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// In the middle of whatever it did.
    Killed,
    /// By itself.
    Returned(Result<Summary, JobError>),
}

impl Ended {
    /// The summary of a job that has read and written everything.
    pub(super) fn finished(self) -> Summary {
        match self {
            Self::Returned(Ok(summary)) if summary.finished => summary,
            other => panic!("the job should have finished: {other:?}"),
        }
    }

    pub(super) fn error(self) -> JobError {
        match self {
            Self::Returned(Err(error)) => error,
            other => panic!("the job should have failed: {other:?}"),
        }
    }

    pub(super) fn is_killed(&self) -> bool {
        matches!(self, Self::Killed)
    }
}

/// What a crash point throws to take its run down without another step.
struct Death;

/// Ends the run in which a crash point calls this, right there.
pub(super) fn die() -> ! {
    resume_unwind(Box::new(Death))
}

type React = Box<dyn Fn(Point, Epoch) + Send + Sync>;

/// Crash points as a test wants them.
pub(super) struct OnReach {
    react: React,
    one_lane_at_a_time: bool,
}

impl OnReach {
    pub(super) fn new(react: impl Fn(Point, Epoch) + Send + Sync + 'static) -> Self {
        Self { react: Box::new(react), one_lane_at_a_time: false }
    }

    pub(super) fn one_lane_at_a_time(self) -> Self {
        Self { one_lane_at_a_time: true, ..self }
    }

    pub(super) fn nothing() -> Self {
        Self::new(|_, _| {})
    }
}

impl fmt::Debug for OnReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnReach")
    }
}

impl CrashPoints for OnReach {
    fn reach(&self, point: Point, epoch: Epoch) {
        (self.react)(point, epoch);
    }

    fn one_lane_at_a_time(&self) -> bool {
        self.one_lane_at_a_time
    }
}

/// A job at work.
pub(super) struct Running {
    kill: oneshot::Sender<()>,
    ended: mpsc::Receiver<Ended>,
    progress: watch::Receiver<Progress>,
    thread: thread::JoinHandle<()>,
}

impl Running {
    pub(super) fn start(plan: Plan, crash: OnReach) -> Self {
        Self::start_on(Host::real(), plan, crash)
    }

    pub(super) fn start_on(host: Host, plan: Plan, crash: OnReach) -> Self {
        captured::capture();
        let (kill, killed) = oneshot::channel();
        let (tell, ended) = mpsc::channel();
        let (shown, progress) = watch::channel(Progress::default());
        let options = RunOptions { crash: Arc::new(crash), stop: StopSignal::never(), progress: shown };
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let ended = runtime.block_on(async move {
                let life = AssertUnwindSafe(hapax::run(plan, host, options)).catch_unwind();
                tokio::select! { biased;
                    _ = killed => Ended::Killed,
                    ended = life => match ended {
                        Ok(returned) => Ended::Returned(returned),
                        Err(thrown) if thrown.is::<Death>() => Ended::Killed,
                        Err(thrown) => resume_unwind(thrown),
                    }
                }
            });
            // With the runtime go its connections: brokers see what they see of a process that is gone.
            drop(runtime);
            let _ = tell.send(ended);
        });
        Self { kill, ended, progress, thread }
    }

    /// Waits for the end.
    pub(super) fn ended(self) -> Ended {
        let Self { kill: _kept, ended, .. } = self;
        ended.recv_timeout(LIMIT).expect("the job ends in time, and does not panic")
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Takes it down wherever it is.
    pub(super) fn kill(self) {
        let Self { kill, ended, .. } = self;
        let _ = kill.send(());
        let ended = ended.recv_timeout(Duration::from_secs(30)).expect("a killed job is gone at once");
        assert!(ended.is_killed(), "the job ended before it was killed: {ended:?}");
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }
}
