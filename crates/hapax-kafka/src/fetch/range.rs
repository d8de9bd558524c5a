//! Which offsets a log has.

use super::TopicPartition;
use crate::{
    Client, ClientError, Isolation, NodeId,
    admin::{ListedOffset, OffsetSpec, list_offsets},
    error::CallError,
};
use hapax_host::Deadline;

/// Start and end (the high watermark) of a partition's log.
pub(crate) async fn log_range(
    client: &Client,
    tp: &TopicPartition,
    deadline: Deadline,
) -> Result<(i64, i64), ClientError> {
    let asked = [(&*tp.topic, tp.partition)];
    let isolation = Isolation::ReadUncommitted;
    let start = list_offsets(client, &asked, OffsetSpec::Earliest, isolation, deadline).await?;
    let end = list_offsets(client, &asked, OffsetSpec::Latest, isolation, deadline).await?;
    let found = |listed: &[ListedOffset]| listed.first().and_then(|one| one.offset);
    match (found(&start), found(&end)) {
        (Some(start), Some(end)) => Ok((start, end)),
        _ => Err(CallError::Malformed {
            api: "ListOffsets",
            node: NodeId::BOOTSTRAP,
            reason: format!("no offset for {tp}").into(),
        }
        .into()),
    }
}
