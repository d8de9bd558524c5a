//! Whether the partitions of an ended transaction know of its end, and what is done where one does not.
//!
//! A coordinator answers EndTxn when its decision is durable, and writes the markers afterwards. From Kafka 4.1 on it
//! takes a partition that has no leader at this moment for a deleted one, leaves its marker out and calls the
//! transaction complete (KAFKA-20734): records that were committed stay invisible for ever, and aborted ones become
//! visible with the next commit of the same producer there.
//!
//! ```text
//! last stable offset beyond the records? --yes--> known
//!   | no, also after some looks: another producer may hold it
//! coordinator: markers under way? --yes--> look again
//!   | no: whatever it was to write is written
//! the partition holds this producer's transaction open? --no--> known
//!   | yes
//! write the marker ourselves, look again
//! ```
//!
//! Owns the order of the two looks: a partition that is asked after the coordinator has said "complete" and still holds
//! the transaction open will not be told by anybody else.

use super::{
    Described, EndMarker, PartitionProducer, TransactionState, describe_producers, describe_transaction,
    write_end_marker,
};
use crate::{
    Client, ClientError, Isolation, KafkaCode,
    admin::{OffsetSpec, list_offsets},
    limits,
};
use hapax_commit::Identity;
use hapax_host::Deadline;
use std::sync::atomic::AtomicUsize;

/// A transaction whose coordinator has answered that it is ended.
#[derive(Clone, Debug)]
pub struct EndedTransaction<'a> {
    /// Its id, under which nothing else has begun since.
    pub transactional_id: &'a str,
    /// The producer, with the epoch of the markers: on V2 one more than that of the records (KIP-890).
    pub identity: Identity,
    /// Committed, or aborted.
    pub commit: bool,
    /// Where its records are: topic, partition, offset of the last one.
    pub partitions: &'a [(&'a str, i32, i64)],
}

/// A partition holds the transaction open, its coordinator does not, and the marker may not be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "{topic}-{partition} holds the transaction of {transactional_id} open from offset {open_from}, which its coordinator \
     has ended without telling the partition (KAFKA-20734); writing the marker is refused"
)]
pub struct MarkerRefused {
    /// The id.
    pub transactional_id: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Where the open transaction begins.
    pub open_from: i64,
    /// Why.
    #[source]
    pub source: ClientError,
}

/// Waits until every partition of an ended transaction knows of its end; without end while brokers do not answer.
/// Writes the markers that the coordinator has left out. A partition that is gone, or that may not be looked at,
/// counts as one that knows.
///
/// `unanswered` counts markers of ours that were sent and not answered ([`write_end_marker`]): before anything is written
/// under the id again, InitProducerId has to take it anew.
///
/// # Errors
/// A marker has to be written and may not be.
pub async fn complete(
    client: &Client,
    ended: &EndedTransaction<'_>,
    unanswered: &AtomicUsize,
) -> Result<(), MarkerRefused> {
    let host = client.host();
    let began = host.now();
    let mut next_report = limits::STILL_WAITING_REPORT;
    let mut waiting: Vec<Partition<'_>> =
        ended.partitions.iter().map(|&(topic, number, last)| Partition { topic, number, last }).collect();
    let mut pause = limits::MARKER_PAUSE;
    for look in 0.. {
        waiting = if look < limits::MARKER_LOOKS {
            unstable(client, waiting).await
        } else {
            untold(client, ended, waiting, unanswered).await?
        };
        if waiting.is_empty() {
            return Ok(());
        }
        let waited = host.now().saturating_duration_since(began);
        if waited >= next_report {
            next_report = waited + limits::STILL_WAITING_REPORT;
            tracing::warn!(
                id = ended.transactional_id,
                ?waited,
                "partitions that do not know yet that the transaction is ended: {waiting:?}"
            );
        }
        host.sleep(host.jitter(pause)).await;
        pause = (pause * 2).min(limits::MARKER_PAUSE_MAX);
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Partition<'a> {
    topic: &'a str,
    number: i32,
    last: i64,
}

/// What one look at a partition says.
enum Look {
    Known,
    Waits,
}

/// Those whose last stable offset is not beyond the records.
async fn unstable<'a>(client: &Client, partitions: Vec<Partition<'a>>) -> Vec<Partition<'a>> {
    let look = async |partition: &Partition<'_>| {
        let asked = [(partition.topic, partition.number)];
        let latest = OffsetSpec::Latest;
        let listed = list_offsets(client, &asked, latest, Isolation::ReadCommitted, patience(client)).await;
        match listed {
            Ok(listed) => {
                let stable = listed.first().and_then(|listed| listed.offset);
                if stable.is_some_and(|stable| stable > partition.last) { Look::Known } else { Look::Waits }
            }
            Err(error) => without_answer(partition, &error),
        }
    };
    let looks = futures::future::join_all(partitions.iter().map(look)).await;
    still_waiting(partitions, looks)
}

/// Those that hold the transaction open; a coordinator that has written all it was to write is helped out.
async fn untold<'a>(
    client: &Client,
    ended: &EndedTransaction<'_>,
    partitions: Vec<Partition<'a>>,
    unanswered: &AtomicUsize,
) -> Result<Vec<Partition<'a>>, MarkerRefused> {
    let under_way = under_way(client, ended).await;
    let mut looks = Vec::new();
    for partition in &partitions {
        let (topic, number) = (partition.topic, partition.number);
        let open = match describe_producers(client, topic, number, patience(client)).await {
            Ok(producers) => {
                let ours = |producer: &PartitionProducer| {
                    producer.producer_id == ended.identity.producer_id
                        && producer.open_from.is_some_and(|from| from <= partition.last)
                };
                producers.into_iter().find(ours)
            }
            Err(error) => {
                looks.push(without_answer(partition, &error));
                continue;
            }
        };
        looks.push(match open {
            None => Look::Known,
            Some(_) if under_way => Look::Waits,
            Some(producer) => {
                let open_from = producer.open_from.unwrap_or_default();
                tell(client, ended, partition, (open_from, producer.coordinator_epoch), unanswered).await?
            }
        });
    }
    Ok(still_waiting(partitions, looks))
}

/// May the coordinator still be writing markers? Also when it does not answer.
async fn under_way(client: &Client, ended: &EndedTransaction<'_>) -> bool {
    match describe_transaction(client, ended.transactional_id, patience(client)).await {
        Ok(Described::Known { state, .. }) => !matches!(
            state,
            TransactionState::CompleteCommit | TransactionState::CompleteAbort | TransactionState::Empty
        ),
        Ok(Described::Unknown) => false,
        Err(_) => true,
    }
}

async fn tell(
    client: &Client,
    ended: &EndedTransaction<'_>,
    partition: &Partition<'_>,
    (open_from, coordinator_epoch): (i64, Option<i32>),
    unanswered: &AtomicUsize,
) -> Result<Look, MarkerRefused> {
    let (id, topic, number) = (ended.transactional_id, partition.topic, partition.number);
    tracing::warn!(
        id,
        commit = ended.commit,
        "{topic}-{number} holds a transaction open from offset {open_from} that its coordinator calls complete \
         (KAFKA-20734): the missing marker is written"
    );
    let marker = EndMarker {
        identity: ended.identity,
        commit: ended.commit,
        coordinator_epoch: coordinator_epoch.unwrap_or_default(),
    };
    match write_end_marker(client, topic, number, marker, patience(client), unanswered).await {
        Ok(()) => Ok(Look::Waits),
        Err(source) if source.is_refusal() => Err(MarkerRefused {
            transactional_id: id.to_owned(),
            topic: topic.to_owned(),
            partition: number,
            open_from,
            source,
        }),
        Err(error) => {
            tracing::warn!(id, "writing the missing marker of {topic}-{number}: {error}; tried again");
            Ok(Look::Waits)
        }
    }
}

/// A broker that says nothing may say something later; one that says "no such partition" for so long, or "you may not
/// look", says it for good.
fn without_answer(partition: &Partition<'_>, error: &ClientError) -> Look {
    if cannot_be_asked(error) {
        let (topic, number) = (partition.topic, partition.number);
        tracing::warn!("whether {topic}-{number} knows that a transaction is ended cannot be asked: {error}");
        return Look::Known;
    }
    Look::Waits
}

fn cannot_be_asked(error: &ClientError) -> bool {
    let gone = [KafkaCode::UNKNOWN_TOPIC_OR_PARTITION, KafkaCode::UNKNOWN_TOPIC_ID];
    error.is_refusal() || error.code().is_some_and(|code| gone.contains(&code))
}

fn still_waiting<'a>(partitions: Vec<Partition<'a>>, looks: Vec<Look>) -> Vec<Partition<'a>> {
    let waits = partitions.into_iter().zip(looks).filter(|(_, look)| matches!(look, Look::Waits));
    waits.map(|(partition, _)| partition).collect()
}

fn patience(client: &Client) -> Deadline {
    Deadline::after(client.host().now(), Some(limits::MARKER_PATIENCE))
}

/// How a transaction ended that a partition still holds open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOpenEnd {
    /// Its id.
    pub transactional_id: String,
    /// The producer, with the epoch of the missing marker.
    pub marker: Identity,
    /// Committed, or aborted.
    pub commit: bool,
}

/// Ends, in a partition, transactions that a producer began before its coordinator answered InitProducerId: by then
/// the coordinator has aborted whatever was open under the id, so what is still open was not told (KAFKA-20734), and
/// the producer's next commit there would make it visible.
///
/// `transactional_id` names the id of an identity whose transaction was aborted so. It must know no identity that
/// InitProducerId has answered, or a later one: that is at work, perhaps for a newer run.
///
/// # Errors
/// The marker may not be written, or the partition cannot be looked at now.
pub async fn end_left_open(
    client: &Client,
    topic: &str,
    partition: i32,
    transactional_id: impl Fn(Identity) -> Option<String>,
) -> Result<(), LeftOpen> {
    let aborted = |open: Identity| {
        let transactional_id = transactional_id(open)?;
        Some(LeftOpenEnd { transactional_id, marker: open, commit: false })
    };
    end_left_open_as(client, topic, partition, aborted).await
}

/// As [`end_left_open`], where transactions may also have been committed: `ended` says how, of those that are the
/// caller's.
///
/// # Errors
/// The marker may not be written, or the partition cannot be looked at now.
pub async fn end_left_open_as(
    client: &Client,
    topic: &str,
    partition: i32,
    ended: impl Fn(Identity) -> Option<LeftOpenEnd>,
) -> Result<(), LeftOpen> {
    loop {
        let open = open_producers(client, topic, partition).await?.into_iter().find_map(|producer| {
            let end = ended(producer.identity())?;
            producer.open_from.map(|from| (end, from, producer))
        });
        let Some((end, open_from, producer)) = open else { return Ok(()) };
        let ended = EndedTransaction {
            transactional_id: &end.transactional_id,
            identity: end.marker,
            commit: end.commit,
            partitions: &[],
        };
        let place = Partition { topic, number: partition, last: i64::MAX };
        // A marker that lands late finds an id that was taken anew.
        let unanswered = AtomicUsize::new(0);
        tell(client, &ended, &place, (open_from, producer.coordinator_epoch), &unanswered).await?;
        client.host().sleep(limits::MARKER_PAUSE).await;
    }
}

/// Producers that a partition holds a transaction of open; none where it is gone, or may not be looked at.
///
/// # Errors
/// The partition cannot be looked at now: what it holds is not known.
pub async fn open_producers(
    client: &Client,
    topic: &str,
    partition: i32,
) -> Result<Vec<PartitionProducer>, LeftOpen> {
    match describe_producers(client, topic, partition, patience(client)).await {
        Ok(producers) => Ok(producers.into_iter().filter(|producer| producer.open_from.is_some()).collect()),
        Err(error) if cannot_be_asked(&error) => {
            tracing::warn!(
                "whether {topic}-{partition} holds old transactions open cannot be asked: {error}"
            );
            Ok(Vec::new())
        }
        Err(error) => Err(LeftOpen::Unanswered(error)),
    }
}

/// Why a partition may still hold an old transaction open.
#[derive(Debug, thiserror::Error)]
pub enum LeftOpen {
    /// The marker may not be written.
    #[error(transparent)]
    Refused(#[from] MarkerRefused),
    /// The partition could not be asked.
    #[error(transparent)]
    Unanswered(ClientError),
}
