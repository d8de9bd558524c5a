//! The writing side.

use super::{
    account::Counters,
    config::{OpenAs, ProducerConfig},
    error::ProduceError,
    flushed::Flushed,
    sender,
    state::{Appended, State},
    topic::{Destination, TopicHandle},
};
use crate::{
    Class, Client, ClientError, RequestKind, classify, client::backoff, limits, metadata::TopicMetadata,
    record::RecordRef,
};
use hapax_commit::Epoch;
use hapax_host::{Deadline, Host, Instant};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::Notify, task::AbortHandle};

/// Writes one epoch after another. See the module.
pub struct LaneProducer {
    client: Client,
    shared: Arc<Shared>,
    sender: AbortHandle,
}

/// What the writing side and the sender share.
pub(super) struct Shared {
    pub(super) host: Host,
    state: Mutex<State>,
    /// For the sender: there may be something to do.
    pub(super) wake: Notify,
    /// For whoever waits: room, acknowledgements, a failure.
    pub(super) progress: Notify,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LaneProducer {
    /// Starts the sender's task on the current runtime; it ends with the producer.
    ///
    /// # Panics
    /// When the settings contradict each other: a transaction cannot be best effort, and at least one and at most
    /// [`limits::MAX_PRODUCE_IN_FLIGHT`] requests are in flight.
    pub fn start(client: Client, config: ProducerConfig) -> Self {
        assert!(!(config.transactional && config.best_effort), "a transaction is not best effort");
        let window = 1..=limits::MAX_PRODUCE_IN_FLIGHT;
        assert!(window.contains(&config.max_in_flight), "{} requests in flight", config.max_in_flight);
        let host = client.host().clone();
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(config, host.random_u64())),
            host,
            wake: Notify::new(),
            progress: Notify::new(),
        });
        let sender = shared.host.spawn(sender::run(client.clone(), Arc::clone(&shared)));
        Self { client, shared, sender }
    }

    /// Looks a topic up. A topic that was created a moment ago is waited for.
    ///
    /// # Errors
    /// [`ProduceError::UnknownTopic`], or the client's reason.
    pub async fn topic(&self, name: &str) -> Result<TopicHandle, ProduceError> {
        let known = self.shared.state().topic(name);
        if let Some(topic) = known {
            return Ok(topic);
        }
        let topic = self.look_up(name).await?;
        let seed = self.shared.host.random_u64();
        Ok(self.shared.state().intern(&topic, seed))
    }

    async fn look_up(&self, name: &str) -> Result<Arc<TopicMetadata>, ProduceError> {
        let host = &self.shared.host;
        let patience = Deadline::after(host.now(), Some(limits::TOPIC_LOOKUP_PATIENCE));
        let mut tries = 0;
        loop {
            let mut found = self.client.topics(&[name]).await?;
            let topic = found.pop().expect("every name has an entry in the answer");
            let Err(error) = topic.usable() else { return Ok(topic) };
            if !error.is_retriable() || patience.has_passed(host.now()) {
                return Err(explain(name, error));
            }
            host.sleep(host.jitter(backoff(self.client.config(), tries))).await;
            tries += 1;
        }
    }

    /// Opens an epoch.
    ///
    /// # Panics
    /// When the epoch before is neither flushed nor abandoned; when `open_as` is not of the configured kind; when an
    /// abandoned identity is used again.
    pub fn open(&mut self, epoch: Epoch, open_as: OpenAs) {
        self.shared.state().open(epoch, open_as);
    }

    /// Appends a record if there is room for it now; the partition that it goes to. `None`: nothing was appended.
    ///
    /// # Errors
    /// The producer's failure, if there is one. A record that cannot be encoded or names a partition that does not
    /// exist; this does not make the producer fail.
    ///
    /// # Panics
    /// When no epoch is open, or the topic is another producer's.
    pub fn try_write(
        &mut self,
        to: Destination<'_>,
        record: RecordRef<'_>,
    ) -> Result<Option<i32>, ProduceError> {
        let appended = self.shared.state().append(to, &record, || self.shared.host.now())?;
        let (placed, wake) = match appended {
            Appended::To { partition, wake } => (Some(partition), wake),
            Appended::NoRoom => (None, true),
        };
        if wake {
            self.shared.wake.notify_one();
        }
        Ok(placed)
    }

    /// Appends a record, as soon as there is room for it; the partition that it goes to. Dropping the future appends nothing and loses nothing that
    /// was appended before.
    ///
    /// # Errors
    /// As [`LaneProducer::try_write`].
    pub async fn write(&mut self, to: Destination<'_>, record: RecordRef<'_>) -> Result<i32, ProduceError> {
        let shared = Arc::clone(&self.shared);
        loop {
            let progress = shared.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if let Some(partition) = self.try_write(to, record)? {
                return Ok(partition);
            }
            progress.await;
        }
    }

    /// The gate: returns when every record of the open epoch is acknowledged, and ends the epoch. Without an open epoch
    /// nothing was flushed. Dropping the future leaves the epoch open.
    ///
    /// # Errors
    /// The producer's failure.
    pub async fn flush(&mut self) -> Result<Flushed, ProduceError> {
        let flushing = Flushing(&self.shared);
        loop {
            let progress = self.shared.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if let Some(settled) = flushing.begin() {
                return settled;
            }
            progress.await;
        }
    }

    /// Waits for the producer's failure; pending while there is none. Dropping the future loses nothing.
    pub async fn failed(&self) -> ProduceError {
        loop {
            let progress = self.shared.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if let Some(failure) = self.failure() {
                return failure;
            }
            progress.await;
        }
    }

    /// The producer's failure: the first one, for ever.
    pub fn failure(&self) -> Option<ProduceError> {
        self.shared.state().failure().cloned()
    }

    /// Gives up the open epoch with all its records, which count as failed. Requests that are on their way may still be
    /// executed, so nothing can be written under the epoch's identity any more.
    pub fn abandon(&mut self) {
        self.shared.state().abandon();
        self.shared.progress.notify_waiters();
    }

    /// Bytes that were written in the open epoch, before compression.
    pub fn bytes_of_epoch(&self) -> u64 {
        self.shared.state().epoch.as_ref().map_or(0, |epoch| epoch.bytes)
    }

    /// Records that were written in the open epoch.
    pub fn records_of_epoch(&self) -> u64 {
        self.counters().sent
    }

    /// The account of the open epoch.
    pub fn counters(&self) -> Counters {
        self.shared.state().counters()
    }

    /// Bytes that are written and not acknowledged.
    pub fn buffered(&self) -> usize {
        self.shared.state().buffered()
    }

    /// When the first request of the open epoch was sent: its transaction is not older.
    pub fn started(&self) -> Option<Instant> {
        self.shared.state().epoch.as_ref().and_then(|epoch| epoch.started).map(|(_, started)| started)
    }

    /// Records that were given up under `best_effort`, in the producer's life.
    pub fn dropped(&self) -> u64 {
        self.shared.state().dropped()
    }
}

/// Seals open batches as long as somebody waits for the gate.
struct Flushing<'a>(&'a Shared);

impl Flushing<'_> {
    fn begin(&self) -> Option<Result<Flushed, ProduceError>> {
        let mut state = self.0.state();
        let settled = state.settle();
        if settled.is_none() && !state.is_flushing {
            state.is_flushing = true;
            self.0.wake.notify_one();
        }
        settled
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.state().is_flushing = false;
    }
}

fn explain(name: &str, error: ClientError) -> ProduceError {
    match &error {
        ClientError::Broker { code, .. } if classify(RequestKind::Metadata, *code) == Class::UnknownTopic => {
            ProduceError::UnknownTopic { topic: name.into() }
        }
        _ => error.into(),
    }
}

impl Drop for LaneProducer {
    fn drop(&mut self) {
        self.sender.abort();
    }
}

impl fmt::Debug for LaneProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        f.debug_struct("LaneProducer")
            .field("epoch", &state.epoch_number())
            .field("counters", &state.counters())
            .field("failure", &state.failure())
            .finish_non_exhaustive()
    }
}
