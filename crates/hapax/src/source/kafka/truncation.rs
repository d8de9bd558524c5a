//! Are the records before a position still those that were read (KIP-320)?
//!
//! A replica that did not have them all may have become the leader, and others may stand in their place. Whoever goes on
//! from a position asks its partition's leader where the leader epoch ends under which it was read:
//!
//! ```text
//!  asked ─► end at or behind the position, of that epoch ─► kept
//!    │  └─► end before it, or no such epoch ──────────────► truncated: E0405
//!    │  └─► end of an earlier epoch, behind it ───────────► kept where the topic is compacted, else truncated
//!    ├────► an earlier epoch leads there ─────────────────► a node that was cut off before: asked again
//!    ├────► the right or the request is not there ────────► taken for kept, with a warning
//!    ├────► its topic is gone, or another one by now ─────► E0405, or reading it tells that
//!    └────► nobody answers, or not for good ──────────────► asked again: an unclean election is what may come next
//! ```

use super::{gone, unsigned};
use crate::{
    limits,
    source::{SourceError, UNKNOWN_TOPIC},
};
use hapax_commit::{SplitId, TopicId};
use hapax_host::Deadline;
use hapax_kafka::{
    Client, ClientError,
    admin::{ConfigResource, EpochEnd, LeaderEpochOf, describe_configs, epoch_end},
};

/// Position of a partition of which records were read.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) split: SplitId,
    pub(super) topic: String,
    pub(super) topic_id: Option<TopicId>,
    pub(super) partition: i32,
    pub(super) position: u64,
    /// The leader epoch of the last record before it.
    pub(super) read_under: i32,
}

/// What is known of the records before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// They are there, or reading on will tell that the topic is another one.
    GoOn,
    /// The cluster keeps it from the job.
    Withheld,
}

impl Question {
    /// Asks until the deadline.
    ///
    /// # Errors
    /// [`SourceError::Gone`] where the partition was truncated; [`SourceError::Cluster`] where nobody answered.
    pub(super) async fn until(&self, client: &Client, deadline: Deadline) -> Result<Told, SourceError> {
        let Self { split, topic, partition, position, read_under, .. } = self;
        let asked = LeaderEpochOf { topic, partition: *partition, leader_epoch: *read_under };
        let end = match epoch_end(client, asked, deadline).await {
            Err(error) if error.is_withheld() => return Ok(Told::Withheld),
            end => end?,
        };
        let kept = match is_kept(*position, *read_under, end) {
            Kept::Yes => true,
            Kept::No => false,
            Kept::UnlessCompacted => is_compacted(client, topic).await?,
        };
        if kept || self.is_another(client).await {
            return Ok(Told::GoOn);
        }
        Err(gone(split, position, self.truncated(end)))
    }

    /// Does the topic of this name have another id by now? What cannot be told is no reason to read on.
    async fn is_another(&self, client: &Client) -> bool {
        let Some(known) = self.topic_id else { return false };
        let found = client.topics(&[&self.topic]).await;
        let found = found.iter().flatten().find(|found| *found.name == *self.topic);
        found.is_some_and(|found| found.error.is_none() && found.id != known)
    }

    /// Why the partition will never answer, if its topic is not there, is another one, or has fewer partitions. What cannot
    /// be told is no reason.
    pub(super) async fn missing(&self, client: &Client) -> Option<SourceError> {
        let Self { split, topic, topic_id, partition, position, .. } = self;
        let found = client.topics(&[topic]).await.ok()?;
        let found = found.iter().find(|found| *found.name == **topic)?;
        let why = match (found.error, *topic_id) {
            (Some(UNKNOWN_TOPIC), _) => format!("topic {topic} is not there any more"),
            (Some(_), _) => return None,
            (None, Some(known)) if found.id != known => format!(
                "topic {topic} was deleted and made again (id {known} then, {} now); run with --fresh to begin anew",
                found.id
            ),
            (None, _) if found.partition(*partition).is_none() => {
                format!("topic {topic} has fewer partitions than before")
            }
            (None, _) => return None,
        };
        Some(gone(split, position, why))
    }

    fn truncated(&self, end: Option<EpochEnd>) -> String {
        let Self { topic, partition, read_under, .. } = self;
        let found = match end {
            None => "its leader knows no epoch of that number by now".to_owned(),
            Some(end) if end.leader_epoch == *read_under => {
                format!("that epoch ends at offset {} by now", end.offset)
            }
            Some(end) => format!(
                "its leader has nothing of that epoch by now, and of epoch {} up to offset {}",
                end.leader_epoch, end.offset
            ),
        };
        format!(
            "topic {topic} partition {partition} was read up to there under leader epoch {read_under}, and {found}: it was \
             truncated (an unclean leader election?), so other records may stand where the job has read; go back to a \
             checkpoint from before that (hapax checkpoint list, hapax run --from), or begin anew with --fresh"
        )
    }
}

/// Where the cluster keeps that from the job it is taken for granted: nobody could go on otherwise.
async fn is_compacted(client: &Client, topic: &str) -> Result<bool, ClientError> {
    const KEY: &str = "cleanup.policy";
    let deadline = Deadline::after(client.host().now(), Some(limits::REPORT_EVERY * 3));
    match describe_configs(client, ConfigResource::Topic(topic), &[KEY], deadline).await {
        Ok(configs) => {
            Ok(configs.get(KEY).and_then(Option::as_deref).is_none_or(|it| it.contains("compact")))
        }
        Err(error) if error.is_withheld() => {
            tracing::warn!(topic, "whether it is compacted cannot be told: {error}");
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// What the end of the epoch under which records were read up to `next` says of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Yes,
    No,
    /// The log goes further, and has nothing of that epoch: on a replica that came later, where the cleaner has removed all
    /// that it wrote; otherwise because the log never had it.
    UnlessCompacted,
}

fn is_kept(next: u64, read_under: i32, end: Option<EpochEnd>) -> Kept {
    match end {
        None => Kept::No,
        Some(end) if unsigned(end.offset) < next => Kept::No,
        Some(end) if end.leader_epoch < read_under => Kept::UnlessCompacted,
        Some(_) => Kept::Yes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H37: read up to 110 under epoch 5.
    #[test]
    fn records_that_the_log_does_not_have_any_more_are_not_read_on_from() {
        let end = |leader_epoch, offset| Some(EpochEnd { leader_epoch, offset });
        let after = |end| is_kept(110, 5, end);
        assert_eq!(after(end(5, 110)), Kept::Yes, "nothing came behind it");
        assert_eq!(after(end(5, 150)), Kept::Yes, "more of the epoch");
        assert_eq!(after(end(5, 109)), Kept::No, "the leader had one record less");
        assert_eq!(after(end(4, 105)), Kept::No, "the leader never saw the epoch");
        assert_eq!(after(end(4, 120)), Kept::UnlessCompacted, "and had more of the one before");
        assert_eq!(after(None), Kept::No, "the leader is behind the epoch");
    }
}
