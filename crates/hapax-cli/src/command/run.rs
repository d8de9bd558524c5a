//! `hapax run`: a pipeline file, until it is finished or stopped.

use super::progress;
use crate::{arguments::RunArguments, config, crash::Armed, screen::Screen};
use hapax::{
    Host, JobError, RunOptions, Stopper, Summary,
    crash::{CrashPoints, Undisturbed},
};
use std::{convert::Infallible, future, process, sync::Arc};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

/// Runs the pipeline.
///
/// # Errors
/// The job ended with one; see [`hapax::run`].
pub(crate) async fn run(host: &Host, screen: &Screen, arguments: RunArguments) -> Result<u8, JobError> {
    let fresh = arguments.fresh;
    let job =
        config::load(host, &arguments.file, &arguments.set)?.settings(|settings| settings.fresh = fresh);
    let plan = job.plan()?;
    let crash: Arc<dyn CrashPoints> = match arguments.crash_at {
        Some(at) => Arc::new(Armed::new(at)),
        None => Arc::new(Undisturbed),
    };
    let (stopper, stop) = Stopper::new();
    let (show, shown) = watch::channel(hapax::Progress::default());
    let options = RunOptions { crash, stop: stop.clone(), progress: show };
    let ended = tokio::select! {
        ended = hapax::run(plan, host.clone(), options) => ended,
        never = stop_on_signals(stopper) => match never {},
        never = progress::show(host, screen, shown, stop) => match never {},
    };
    screen.status("");
    let summary = ended?;
    report(screen, &summary, arguments.json);
    Ok(0)
}

fn report(screen: &Screen, summary: &Summary, json: bool) {
    let how = if summary.finished { "finished" } else { "stopped" };
    let hapax::Progress { records_in, records_out, skipped, dropped, epoch, .. } = summary.progress;
    tracing::info!(job = %summary.job, records_in, records_out, skipped, dropped, epoch, "{how}");
    if json {
        match serde_json::to_string(summary) {
            Ok(text) => screen.answer(&text),
            Err(error) => screen.line(&format!("the summary cannot be written: {error}")),
        }
    }
}

/// The first SIGTERM or SIGINT asks the job to stop, the second ends the process.
async fn stop_on_signals(stopper: Stopper) -> Infallible {
    let mut signals = Signals::listen();
    let name = signals.next().await.0;
    tracing::info!(
        "{name}: stopping: reads no more, takes a last checkpoint, commits; a second signal ends at once"
    );
    stopper.stop();
    let (name, number) = signals.next().await;
    tracing::warn!("{name}: ends at once; the next run resolves what is open");
    process::exit(128 + number);
}

/// SIGTERM and SIGINT, where the operating system lets us listen.
struct Signals {
    term: Option<Signal>,
    interrupt: Option<Signal>,
}

impl Signals {
    fn listen() -> Self {
        let listen = |kind: SignalKind| {
            signal(kind).map_err(|error| tracing::warn!("signals cannot be listened to: {error}")).ok()
        };
        Self { term: listen(SignalKind::terminate()), interrupt: listen(SignalKind::interrupt()) }
    }

    /// Name and number of the next one.
    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            () = received(&mut self.term) => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            () = received(&mut self.interrupt) => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    let received = match signal {
        Some(signal) => signal.recv().await.is_some(),
        None => false,
    };
    if !received {
        future::pending::<()>().await;
    }
}
