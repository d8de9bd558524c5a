//! `hapax run`: a pipeline file, until it is finished or stopped.

use super::{
    progress,
    signals::{Signals, parent_gone},
};
use crate::{
    arguments::RunArguments,
    broker::{self, OwnBroker},
    config::{self, Embedded, Pipeline},
    crash::{Armed, CrashAt},
    screen::Screen,
};
use hapax::{
    Code, Host, Job, JobError, RunOptions, Stopper, Summary,
    crash::{CrashPoints, Undisturbed},
    job::Fork,
};
use hapax_broker::ServerOptions;
use std::{
    convert::Infallible,
    future, process,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{signal::unix::SignalKind, sync::watch};

/// Runs the pipeline.
///
/// # Errors
/// The job ended with one; see [`hapax::run`].
pub(crate) async fn run(host: &Host, screen: &Screen, arguments: RunArguments) -> Result<u8, JobError> {
    let fresh = arguments.fresh;
    let parent = parent_gone(host, arguments.with_parent)?;
    let Pipeline { job, embedded } = config::load(host, &arguments.file, &arguments.set)?;
    let job = job.settings(|settings| {
        settings.fresh = fresh;
        settings.recover_once = arguments.recover;
        settings.drop = arguments.drop;
        settings.from = arguments.from;
        settings.fork =
            arguments.fork_of.map(|of| Fork { of: of.job, epoch: of.epoch, store: arguments.fork_store });
    });
    // A pipeline that cannot work starts no broker.
    job.clone().plan()?;
    let mut brokers = Vec::new();
    let job = embed(host, job, &embedded, &mut brokers).await?;
    let plan = job.plan()?;
    let crash = armed(arguments.crash_at);
    let (stopper, stop) = Stopper::new();
    let (show, shown) = watch::channel(hapax::Progress::default());
    let options = RunOptions { crash, stop: stop.clone(), progress: show };
    let tell = async {
        match arguments.progress {
            true => progress::tell(host, screen, shown.clone()).await,
            false => future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = hapax::run(plan, host.clone(), options) => ended,
        never = stop_on_signals(stopper) => match never {},
        never = progress::show(host, screen, shown.clone(), stop) => match never {},
        never = tell => match never {},
        error = first_broken(&brokers) => Err(error),
        () = parent => process::exit(128 + SignalKind::hangup().as_raw_value()),
    };
    screen.status("");
    for broker in brokers {
        broker.stop().await;
    }
    let summary = ended?;
    report(screen, &summary, arguments.json);
    Ok(0)
}

/// The crash point of a test.
pub(super) fn armed(at: Option<CrashAt>) -> Arc<dyn CrashPoints> {
    match at {
        Some(at) => Arc::new(Armed::new(at)),
        None => Arc::new(Undisturbed),
    }
}

/// Starts the brokers of embedded clusters, with the topics that the pipeline names, and tells the job where they are.
pub(super) async fn embed(
    host: &Host,
    mut job: Job,
    embedded: &[Embedded],
    brokers: &mut Vec<OwnBroker>,
) -> Result<Job, JobError> {
    for Embedded { cluster, data, topics } in embedded {
        let what = format!("the embedded broker of cluster {cluster}");
        let options = ServerOptions { data: data.clone(), ..ServerOptions::default() };
        let broker = OwnBroker::start(host, &what, broker::settings(host), options).await?;
        let address = broker.bootstrap();
        let kept = data.as_ref().map_or_else(
            || "which keeps nothing".to_owned(),
            |folder| format!("which keeps all that was ever written in {}", folder.display()),
        );
        tracing::info!(%cluster, %address, "embedded broker, for tests and demos, {kept}");
        broker::make_topics(host, &address, topics).await.map_err(|error| JobError::Kafka {
            code: Code::Refused,
            attempted: format!("{what}: making its topics {}", topics.join(", ")),
            source: Box::new(error),
        })?;
        job = job.cluster(cluster, &address)?;
        brokers.push(broker);
    }
    Ok(job)
}

/// Ready when an embedded broker can keep nothing any more: the job is left as a crash would leave it, and the next run
/// goes on from there.
async fn first_broken(brokers: &[OwnBroker]) -> JobError {
    let mut broken: Vec<_> =
        brokers.iter().map(|broker| Box::pin(broker.broken("an embedded broker"))).collect();
    let first = |cx: &mut Context<'_>| {
        let mut ready = broken.iter_mut().map(|broken| broken.as_mut().poll(cx));
        ready.find(Poll::is_ready).unwrap_or(Poll::Pending)
    };
    future::poll_fn(first).await
}

fn report(screen: &Screen, summary: &Summary, json: bool) {
    let how = if summary.finished { "finished" } else { "stopped" };
    let hapax::Progress { records_in, repeated, records_out, skipped, dropped, epoch, .. } = summary.progress;
    tracing::info!(job = %summary.job, records_in, repeated, records_out, skipped, dropped, epoch, "{how}");
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
