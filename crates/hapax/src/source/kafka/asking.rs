//! Asks for all partitions of a reader whether they were truncated, beside the reading, until the last one has an answer.
//!
//! In a task of its own: a question holds turns of the client while it waits, and a reader is left alone for as long as its
//! shard flushes. It asks in rounds, so that partitions without a leader take no turn of those that have one for long.

use super::truncation::{Question, Told};
use crate::{
    limits,
    source::{SourceError, UNKNOWN_TOPIC},
};
use futures::{StreamExt, stream};
use hapax_host::{Deadline, Instant};
use hapax_kafka::{Client, KafkaCode, fetch::TopicPartition};
use tokio::sync::mpsc;

/// The answers to come. Dropping it ends the asking.
pub(super) struct Asking {
    told: mpsc::UnboundedReceiver<Result<TopicPartition, SourceError>>,
    task: tokio::task::AbortHandle,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Asking {
    /// Begins to ask. Needs a tokio runtime around it.
    pub(super) fn begin(client: Client, source: String, questions: Vec<Question>) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let host = client.host().clone();
        let task = host.spawn(ask(client, source, questions, tell));
        Self { told, task }
    }

    /// The next partition that may be gone on with; none behind the last. Dropping the future loses nothing.
    ///
    /// # Errors
    /// A partition was truncated, or asking again cannot help.
    pub(super) async fn next(&mut self) -> Option<Result<TopicPartition, SourceError>> {
        self.told.recv().await
    }
}

async fn ask(
    client: Client,
    source: String,
    mut questions: Vec<Question>,
    tell: mpsc::UnboundedSender<Result<TopicPartition, SourceError>>,
) {
    let mut reported = client.host().now();
    let mut patience = limits::LEADERS_PATIENCE;
    while !questions.is_empty() {
        let (mut open, mut last, mut withheld) = (Vec::new(), None, 0);
        let limit = Some(patience);
        let round = questions.into_iter().map(|question| {
            let client = client.clone();
            async move {
                let deadline = Deadline::after(client.host().now(), limit);
                (question.until(&client, deadline).await, question)
            }
        });
        let mut round = std::pin::pin!(stream::iter(round).buffer_unordered(limits::QUESTIONS));
        while let Some((answer, question)) = round.next().await {
            match answer {
                Ok(told) => {
                    withheld += usize::from(told == Told::Withheld);
                    let Question { topic, partition, .. } = question;
                    // Nobody hears it where the reader has gone.
                    let _ = tell.send(Ok(TopicPartition { topic: topic.into(), partition }));
                }
                Err(SourceError::Cluster(error)) if error.is_retriable() => {
                    // Once for long enough: a topic, or a leader's epoch, may be unknown to a broker that has just started.
                    let may_be_another =
                        [Some(UNKNOWN_TOPIC), Some(KafkaCode::UNKNOWN_LEADER_EPOCH)].contains(&error.code());
                    let is_unknown = patience >= limits::REPORT_EVERY && may_be_another;
                    if is_unknown && let Some(missing) = question.missing(&client).await {
                        let _ = tell.send(Err(missing));
                        continue;
                    }
                    last = Some(error);
                    open.push(question);
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        }
        warn_of_withheld(&source, withheld);
        if let Some(error) = last {
            report(&client, &source, &open, &error.to_string(), &mut reported);
            client.host().sleep(limits::CHANGE_PAUSE).await;
        }
        questions = open;
        // Not shorter than a request may take: each question has one on its way at most.
        patience = limits::REPORT_EVERY;
    }
}

/// One line for all of them.
fn report(client: &Client, source: &str, open: &[Question], last: &str, reported: &mut Instant) {
    let now = client.host().now();
    if now.saturating_duration_since(*reported) < limits::REPORT_EVERY {
        return;
    }
    *reported = now;
    let example = &open[0].split.0;
    tracing::warn!(
        source,
        partitions = open.len(),
        example,
        last,
        "not read yet: nobody can say whether they were truncated"
    );
}

/// One line for all of them.
pub(super) fn warn_of_withheld(source: &str, partitions: usize) {
    if partitions > 0 {
        tracing::warn!(
            source,
            partitions,
            "whether they were truncated is not told: the right to describe the topic, or the request, is missing"
        );
    }
}
