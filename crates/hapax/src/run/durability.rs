//! What an acknowledgement is worth: with one replica, or where one replica may speak for all, a broker that is lost
//! takes acknowledged records with it.
//!
//! Owns the warning about such topics. Refuses nothing: a topic of one replica is a person's choice.
//!
//! Sources: KIP-966; broker configuration `min.insync.replicas`.

use crate::{cluster::Clusters, error::JobError, job::Plan, limits, sink::Guarantee, source::SourceTopic};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    ClientError,
    admin::{ConfigResource, describe_configs},
};

const MIN_IN_SYNC: &str = "min.insync.replicas";

/// Says which topics of sinks with a guarantee would not survive the loss of a broker.
pub(super) async fn warn_of_thin_topics(
    plan: &Plan,
    host: &Host,
    clusters: &Clusters,
) -> Result<(), JobError> {
    for sink in plan.sinks.iter().filter(|sink| sink.guarantee() != Guarantee::None) {
        for topic in sink.topics(clusters).await? {
            match copies(&topic, host, clusters).await {
                Ok((replicas, in_sync)) => warn(plan, &topic, replicas, in_sync),
                // The right to describe a topic's settings is not needed for anything else.
                Err(error) => {
                    tracing::info!(job = %plan.name, topic = topic.topic, %error, "the topic's {MIN_IN_SYNC} could not be read");
                }
            }
        }
    }
    Ok(())
}

/// Copies of the partition with the fewest, and how many of them must have a record before it is acknowledged.
async fn copies(
    topic: &SourceTopic,
    host: &Host,
    clusters: &Clusters,
) -> Result<(usize, Option<usize>), ClientError> {
    let client = clusters.client(&topic.cluster).await?;
    let found = client.topics(&[&topic.topic]).await?;
    let partitions = found.iter().flat_map(|topic| &topic.partitions);
    let replicas = partitions.map(|partition| partition.replicas.len()).min().unwrap_or(0);
    let patience = Deadline::after(host.now(), Some(limits::REPORT_EVERY));
    let resource = ConfigResource::Topic(&topic.topic);
    let mut configs = describe_configs(&client, resource, &[MIN_IN_SYNC], patience).await?;
    let in_sync = configs.remove(MIN_IN_SYNC).flatten().and_then(|value| value.parse().ok());
    Ok((replicas, in_sync))
}

fn warn(plan: &Plan, topic: &SourceTopic, replicas: usize, in_sync: Option<usize>) {
    let Some(weakness) = weakness(replicas, in_sync) else { return };
    tracing::warn!(
        job = %plan.name,
        "topic {}/{} has {weakness}: a broker that is lost can take acknowledged records with it, which no guarantee of \
         a writer covers; three replicas and {MIN_IN_SYNC} = 2 survive one broker",
        topic.cluster,
        topic.topic
    );
}

fn weakness(replicas: usize, in_sync: Option<usize>) -> Option<String> {
    let single = (replicas == 1).then(|| "replication factor 1".to_owned());
    let alone = (in_sync == Some(1)).then(|| format!("{MIN_IN_SYNC} = 1"));
    match (single, alone) {
        (Some(single), Some(alone)) => Some(format!("{single} and {alone}")),
        (single, alone) => single.or(alone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_whose_records_one_broker_holds_is_weak() {
        assert_eq!(weakness(1, Some(1)).unwrap(), "replication factor 1 and min.insync.replicas = 1");
        assert_eq!(weakness(1, Some(2)).unwrap(), "replication factor 1");
        assert_eq!(weakness(3, Some(1)).unwrap(), "min.insync.replicas = 1");
        assert_eq!(weakness(3, Some(2)), None);
        assert_eq!(weakness(3, None), None, "what is not known is not claimed");
    }
}
