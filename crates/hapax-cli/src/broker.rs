//! A broker inside the process: on a thread of its own, so that a job that computes does not keep it from its timers.

use hapax::{Code, Host, JobError};
use hapax_broker::{Broker, ServerOptions, Settings, server::StartError};
use hapax_host::{Deadline, WorkerHandle};
use hapax_kafka::{
    Client, ClientConfig, ClientError,
    admin::{NewTopic, create_topics},
};
use std::{io, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// Partitions of a topic that is made for a pipeline.
pub(crate) const PARTITIONS: i32 = 4;

/// How long topics are tried to be made.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running broker. It ends with [`Self::stop`], or with the process.
#[derive(Debug)]
pub(crate) struct OwnBroker {
    broker: Arc<Broker>,
    worker: WorkerHandle,
    end: oneshot::Sender<()>,
}

impl OwnBroker {
    /// Starts a broker on a new thread.
    ///
    /// # Errors
    /// It does not start; `what` is said of it.
    pub(crate) async fn start(
        host: &Host,
        what: &str,
        settings: Settings,
        options: ServerOptions,
    ) -> Result<Self, JobError> {
        let (started, start) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let serve = async move {
            match Broker::start(settings, options).await {
                Ok(broker) => {
                    let broker = Arc::new(broker);
                    // Whoever started it has gone away: nothing is left to serve.
                    if started.send(Ok(Arc::clone(&broker))).is_ok() {
                        let _ = ended.await;
                    }
                    if let Some(broker) = Arc::into_inner(broker) {
                        broker.stop().await;
                    }
                }
                Err(error) => drop(started.send(Err(error))),
            }
        };
        let worker = host.start_worker("broker", Box::pin(serve)).map_err(|error| no_thread(what, &error))?;
        match start.await {
            Ok(Ok(broker)) => Ok(Self { broker, worker, end }),
            Ok(Err(error)) => Err(not_started(what, &error)),
            Err(_) => Err(JobError::Bug { what: format!("{what}: its thread panicked") }),
        }
    }

    /// What clients call `bootstrap.servers`.
    pub(crate) fn bootstrap(&self) -> String {
        self.broker.bootstrap()
    }

    /// The broker itself.
    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Ready when it can keep nothing any more.
    pub(crate) fn broken(&self, what: &str) -> impl Future<Output = JobError> + use<> {
        let (what, broken) = (what.to_owned(), self.broker.broken());
        async move {
            let reason = broken.await;
            let message = format!("{what} can keep nothing any more: {reason}; mend that and start again");
            JobError::Run { code: Code::Machine, message }
        }
    }

    /// Ends it: its port and its journal are free when this returns.
    pub(crate) async fn stop(self) {
        let Self { broker, mut worker, end } = self;
        drop(broker);
        drop(end);
        // A panic of the broker has been told already.
        let _ = worker.join().await;
    }
}

/// Settings of a broker that a command starts: an identity of its own, and partitions enough for several shards.
pub(crate) fn settings(host: &Host) -> Settings {
    Settings { seed: host.random_u64(), default_partitions: PARTITIONS, ..Settings::default() }
}

/// The error of a broker that does not start.
pub(crate) fn not_started(what: &str, error: &StartError) -> JobError {
    let message = format!("{what} does not start: {error}");
    match error {
        StartError::Settings(_) => JobError::Configuration { code: Code::Usage, message },
        StartError::Listen { .. } | StartError::Journal(_) => JobError::Run { code: Code::Machine, message },
    }
}

fn no_thread(what: &str, error: &io::Error) -> JobError {
    JobError::Run { code: Code::Machine, message: format!("{what} gets no thread: {error}") }
}

/// Makes topics that are not there.
///
/// # Errors
/// The cluster is not reachable, or refuses.
pub(crate) async fn make_topics(host: &Host, bootstrap: &str, topics: &[String]) -> Result<(), ClientError> {
    let config = ClientConfig::new(ClientConfig::parse_bootstrap(bootstrap)?);
    let client = Client::connect(host.clone(), config).await?;
    let topics: Vec<NewTopic> = topics.iter().map(|topic| NewTopic::new(topic, PARTITIONS)).collect();
    create_topics(&client, &topics, Deadline::after(host.now(), Some(PATIENCE))).await.map(drop)
}
