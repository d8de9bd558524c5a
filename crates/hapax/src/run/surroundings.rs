//! What there is now, clusters and topics, against what the job knows: refused, said, or taken into its shape.
//!
//! Asked when what was decided is resolved, and before a record is read: a source that is down or changed keeps nothing
//! from being committed. Refuses a topic that is another one; what was added is read from its start.

use crate::{
    cluster::Clusters,
    decider::foreign_cluster,
    error::{Code, JobError},
    job::Plan,
    source::{SourceContext, SourceTopic},
};
use hapax_commit::{ClusterRecord, Name, Positions, Shape, SplitId, TopicRecord};
use hapax_host::Host;
use std::collections::{BTreeMap, BTreeSet};

/// The shape that the job has from here on, as its pipeline and the brokers say.
pub(super) async fn shape(
    plan: &Plan,
    host: &Host,
    clusters: &Clusters,
    known: &Shape,
) -> Result<Shape, JobError> {
    let mut now = clusters_now(clusters).await?;
    for (name, found) in &mut now {
        match known.clusters.get(name) {
            Some(before) if before.cluster_id != found.cluster_id => {
                return Err(foreign_cluster(&plan.name, name, &found.cluster_id, &before.cluster_id));
            }
            // An address that is another one at each start (an embedded broker's) is no change of the job.
            Some(before) if known.pipeline == plan.pipeline => found.clone_from(before),
            Some(_) | None => {}
        }
    }
    let cx = SourceContext { host: host.clone(), clusters: clusters.clone() };
    let found = topics(plan, &cx).await?;
    for topic in &found {
        check_topic(plan, known, topic)?;
    }
    let dropped: BTreeSet<SplitId> = known
        .splits()
        .filter(|split| !plan.sources.iter().any(|source| source.has(split)))
        .cloned()
        .collect();
    let mut added = Positions::new();
    for source in &plan.sources {
        added.extend(source.added(&cx, &known.genesis).await?);
    }
    let shape = known.with_splits(&added, &dropped);
    Ok(Shape { clusters: now, topics: records(&found), pipeline: plan.pipeline.clone(), ..shape })
}

/// Every topic that the plan names, as the brokers describe it.
pub(super) async fn topics(plan: &Plan, cx: &SourceContext) -> Result<Vec<SourceTopic>, JobError> {
    let mut topics = Vec::new();
    for source in &plan.sources {
        topics.extend(source.topics(cx).await?);
    }
    for sink in &plan.sinks {
        topics.extend(sink.topics(&cx.clusters).await?);
    }
    Ok(topics)
}

/// Topics as they are recorded.
pub(super) fn records(topics: &[SourceTopic]) -> BTreeMap<String, TopicRecord> {
    topics.iter().map(|topic| (topic_key(topic), topic.record.clone())).collect()
}

/// The clusters of the plan as they are recorded.
pub(super) async fn clusters_now(clusters: &Clusters) -> Result<BTreeMap<Name, ClusterRecord>, JobError> {
    let mut records = BTreeMap::new();
    for name in clusters.names() {
        let cluster_id = clusters.connected(name).await?.cluster_id().to_owned();
        let brokers = clusters.cluster(name).brokers.clone();
        records.insert(name.clone(), ClusterRecord { cluster_id, brokers });
    }
    Ok(records)
}

fn check_topic(plan: &Plan, shape: &Shape, topic: &SourceTopic) -> Result<(), JobError> {
    let (job, name) = (&plan.name, topic_key(topic));
    let Some(known) = shape.topics.get(&name) else {
        tracing::info!(%job, "topic {name} is new to the job");
        return Ok(());
    };
    let refused = |why: String| JobError::NeedsPerson {
        code: Code::TopicChanged,
        message: format!(
            "job {job}: topic {name} {why}what was decided is committed and no record was read, begin anew with --fresh"
        ),
        incident: None,
    };
    let now = &topic.record;
    if now.topic_id != known.topic_id {
        return Err(refused(format!(
            "was deleted and made again (id {} and {} partitions then, id {} and {} partitions now): positions and \
             prepared records of the old one mean nothing in it; ",
            known.topic_id, known.partitions, now.topic_id, now.partitions
        )));
    }
    if now.partitions < known.partitions {
        return Err(refused(format!(
            "has {} partitions and had {} when the job last looked; ",
            now.partitions, known.partitions
        )));
    }
    if now.partitions > known.partitions {
        tracing::warn!(
            %job,
            "topic {name} has {} partitions and had {}: as a source, it is read from the first record of each new one on; \
             as a sink, records of one key go to another partition from here on, where that is chosen by key",
            now.partitions,
            known.partitions
        );
    }
    Ok(())
}

fn topic_key(topic: &SourceTopic) -> String {
    format!("{}/{}", topic.cluster, topic.topic)
}
