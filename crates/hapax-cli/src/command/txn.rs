//! `hapax txn`: a job's transactions, seen and ended by a person.

use super::run::embed;
use crate::{
    arguments::{IdArguments, TxnArguments, TxnCommand},
    config::{self, Pipeline},
    screen::Screen,
};
use hapax::{
    Host, JobError, Plan,
    txn::{self, Ending, Standing, Transaction, Wanted},
};

/// Shows or ends transactions; answers the exit code.
///
/// # Errors
/// See [`hapax::txn`].
pub(crate) async fn transactions(
    host: &Host,
    screen: &Screen,
    arguments: TxnArguments,
) -> Result<u8, JobError> {
    let (file, set) = match &arguments.command {
        TxnCommand::Describe { pipeline, .. }
        | TxnCommand::Commit { pipeline, .. }
        | TxnCommand::Abort { pipeline, .. } => (&pipeline.file, &pipeline.set),
    };
    let Pipeline { job, embedded } = config::load(host, file, set)?;
    job.clone().plan()?;
    let mut brokers = Vec::new();
    let plan = embed(host, job, &embedded, &mut brokers).await?.plan()?;
    let done = act(host, screen, plan, &arguments.command).await;
    for broker in brokers {
        broker.stop().await;
    }
    done.map(|()| 0)
}

async fn act(host: &Host, screen: &Screen, plan: Plan, command: &TxnCommand) -> Result<(), JobError> {
    match command {
        TxnCommand::Describe { id, records, json, .. } => {
            for one in txn::transactions(plan, host.clone(), id.as_deref(), *records).await? {
                let text = if *json { serde_json::json!(one).to_string() } else { line(&one) };
                screen.answer(&text);
            }
        }
        TxnCommand::Commit { id, no_way_back, .. } => {
            let wanted = wanted(id, Ending::Commit { no_way_back: *no_way_back });
            screen.answer(&txn::end(plan, host.clone(), &wanted).await?);
        }
        TxnCommand::Abort { id, decided, .. } => {
            let wanted = wanted(id, Ending::Abort { decided: *decided });
            screen.answer(&txn::end(plan, host.clone(), &wanted).await?);
        }
    }
    Ok(())
}

fn wanted(id: &IdArguments, ending: Ending) -> Wanted {
    Wanted { id: id.id.clone(), cluster_id: id.cluster_id.clone(), ending }
}

fn line(one: &Transaction) -> String {
    let chain = match one.chain {
        Standing::InDoubt { epoch } => format!("epoch {epoch} is decided and in doubt"),
        Standing::Settled { epoch } => format!("epoch {epoch} was its last, settled"),
        Standing::Carried { epoch } => {
            format!("decider transaction, epoch {epoch} of its shard is committed")
        }
        Standing::Undecided => "no checkpoint names it".to_owned(),
    };
    let outcome = one.outcome.as_ref().map_or_else(String::new, |outcome| format!("; {outcome}"));
    let records = one.handle.as_ref().map_or_else(String::new, |handle| {
        let parts: Vec<String> = handle
            .partitions
            .iter()
            .map(|part| {
                format!("{}-{} {}..{}", part.topic, part.partition, part.first_offset, part.last_offset)
            })
            .collect();
        format!("; {} records: {}", handle.records(), parts.join(", "))
    });
    let positions = one.positions.as_ref().map_or_else(String::new, |positions| {
        let at: Vec<String> =
            positions.iter().map(|(split, position)| format!("{} {}", split.0, position.next)).collect();
        format!("; next: {}", at.join(", "))
    });
    format!(
        "{} at cluster {}  coordinator: {}; chain: {chain}{outcome}{records}{positions}",
        one.id, one.cluster_id, one.coordinator
    )
}
