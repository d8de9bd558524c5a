//! `hapax job` and `hapax checkpoint`: what a person sees of a job's checkpoints, and changes of what is fixed when it is
//! created.

use super::run::{armed, embed};
use crate::{
    arguments::{CheckpointArguments, CheckpointCommand, JobArguments, JobCommand},
    config::{self, Pipeline},
    screen::Screen,
};
use hapax::{
    Host, JobError,
    layout::{self, CheckpointLine, CheckpointStanding},
};

/// Milliseconds of a second.
const SECOND: i64 = 1_000;

/// Shows the checkpoints that are kept; answers the exit code.
///
/// # Errors
/// See [`hapax::layout::checkpoints`].
pub(crate) async fn checkpoints(
    host: &Host,
    screen: &Screen,
    arguments: CheckpointArguments,
) -> Result<u8, JobError> {
    let CheckpointCommand::List { pipeline, json } = arguments.command;
    let Pipeline { job, .. } = config::load(host, &pipeline.file, &pipeline.set)?;
    for one in layout::checkpoints(job.plan()?, host.clone()).await? {
        let text = if json { serde_json::json!(one).to_string() } else { line(&one, host.wall_ms()) };
        screen.answer(&text);
    }
    Ok(0)
}

/// Changes a job; answers the exit code.
///
/// # Errors
/// See [`hapax::layout::reshape`].
pub(crate) async fn change(host: &Host, screen: &Screen, arguments: JobArguments) -> Result<u8, JobError> {
    let JobCommand::Shards { pipeline, shards, crash_at } = arguments.command;
    let Pipeline { job, embedded } = config::load(host, &pipeline.file, &pipeline.set)?;
    job.clone().plan()?;
    let mut brokers = Vec::new();
    let plan = embed(host, job, &embedded, &mut brokers).await?.plan()?;
    let done = layout::reshape(plan, host.clone(), shards, armed(crash_at)).await;
    for broker in brokers {
        broker.stop().await;
    }
    screen.answer(&done?);
    Ok(0)
}

fn line(one: &CheckpointLine, now_ms: i64) -> String {
    let CheckpointLine { epoch, positions, records, .. } = one;
    let standing = match one.standing {
        CheckpointStanding::Proven => "proven",
        CheckpointStanding::InDoubt => "in doubt",
        CheckpointStanding::Void => "void: its input was read again",
        CheckpointStanding::Abandoned => "abandoned: readers do not see some of its records",
    };
    let when = match one.written_ms {
        Some(written) => format!("{} s ago", (now_ms.saturating_sub(written)).max(0) / SECOND),
        None => "the beginning".to_owned(),
    };
    let copy = one.restored.map_or_else(String::new, |from| format!("; a copy of {from}"));
    format!(
        "{epoch}  {when}  {standing}{copy}; {records} records in transactions; positions of {positions} splits"
    )
}
