//! What a person on call sees of a job whose transactions carry its positions. Nothing is in doubt here and nothing is to be
//! ended by hand: the next run of the job ends whatever is open, and writes it again.

use super::{bookmarked_by, home};
use crate::{
    cluster::Clusters,
    decider::{
        Brokers,
        inspect::{Standing, Transaction, told},
    },
    error::{Code, JobError},
    job::Plan,
};
use hapax_commit::{Bookmark, Epoch, LaneId, Positions, Reading, ShardId};
use hapax_host::{Deadline, Host};
use std::collections::BTreeMap;

/// Every transactional id of a job, or those of one name, with the newest committed epoch of its shard.
pub(crate) async fn carried_transactions(
    plan: Plan,
    host: Host,
    wanted: Option<&str>,
) -> Result<Vec<Transaction>, JobError> {
    let clusters = Clusters::new(host.clone(), &plan.clusters);
    let cluster = home::sink_cluster(&plan);
    let client = clusters.connected(cluster).await?;
    let brokers = Brokers::connect(&host, &clusters, &plan).await?;
    let patience = Deadline::after(host.now(), Some(plan.settings.start_timeout));
    let marks = bookmarked_by(&client, &plan.name, patience).await;
    let marks = marks
        .map_err(|error| JobError::kafka(format!("reading the offsets of group {}", plan.name), error))?;
    let marks: Vec<Bookmark> = marks.into_iter().map(|one| one.mark).collect();
    let shards = marks.iter().map(|mark| mark.shards).max().ok_or_else(|| JobError::Configuration {
        code: Code::Usage,
        message: format!(
            "job {}: group {} has no offsets that the job committed on cluster {cluster}",
            plan.name, plan.name
        ),
    })?;
    let progress = by_shard(marks);
    let mut transactions = Vec::new();
    for shard in (0..shards.min(crate::job::MAX_SHARDS)).map(ShardId) {
        let (epoch, positions) = progress.get(&shard).cloned().unwrap_or((Epoch::GENESIS, Positions::new()));
        let lane = LaneId { cluster: cluster.clone(), shard };
        for id in lane.transactional_ids(&plan.name) {
            let id = id.to_string();
            if wanted.is_some_and(|wanted| wanted != id) {
                continue;
            }
            let described = brokers.describe(&client, &id).await;
            transactions.push(Transaction {
                id,
                cluster_id: client.cluster_id().to_owned(),
                chain: Standing::Carried { epoch },
                coordinator: told(&described),
                outcome: None,
                handle: None,
                positions: Some(positions.clone()),
            });
        }
    }
    Ok(transactions)
}

fn by_shard(marks: Vec<Bookmark>) -> BTreeMap<ShardId, (Epoch, Positions)> {
    let mut progress: BTreeMap<ShardId, (Epoch, Positions)> = BTreeMap::new();
    for mark in marks {
        let (epoch, positions) = progress.entry(mark.shard).or_insert((mark.epoch, Positions::new()));
        *epoch = mark.epoch.max(*epoch);
        if let Reading::Positions(found) = mark.at {
            positions.extend(found);
        }
    }
    progress
}

/// Why nothing is ended by hand.
pub(crate) fn nothing_to_end(plan: &Plan) -> JobError {
    JobError::Configuration {
        code: Code::Usage,
        message: format!(
            "job {}: its decider is \"transaction\", so no transaction of it is in doubt: what is committed has its \
             positions with it, and what is open is ended and written again by the next run; start the job",
            plan.name
        ),
    }
}
