//! Moves records into Apache Kafka exactly once, and can show it.
//!
//! A [`Job`] names clusters, sources, operators and sinks; [`run::run`] runs its plan until it is done or stopped.
//!
//! ```no_run
//! use hapax::{Host, Job, SinkTopic, Name, RunOptions, source::KafkaSource};
//!
//! # async fn example() -> Result<(), hapax::JobError> {
//! let plan = Job::new("orders")
//!     .store("file:///var/lib/hapax/orders")
//!     .cluster("main", "kafka-1:9092,kafka-2:9092")?
//!     .source(KafkaSource::new(Name::new("main").expect("legal"), ["orders"]))
//!     .filter(|record| record.value.is_some_and(|value| value.len() > 100))
//!     .sink(SinkTopic::new("main", "orders-large"))
//!     .plan()?;
//! let summary = hapax::run(plan, Host::real(), RunOptions::default()).await?;
//! println!("{} records", summary.progress.records_out);
//! # Ok(())
//! # }
//! ```
//!
//! - [`engine`]: the sink alone, for an engine that decides by itself
//! - [`batch`]: records on their way
//! - [`source`], [`operator`], [`sink`]: the parts of a pipeline, and the traits that others implement
//! - [`job`]: a job as its user writes it down, and the rules between its settings
//! - [`assignment`], [`decider`]: which shards share a decision, and what makes an epoch final
//! - [`run()`](fn@run): the life of a job in a process
//! - [`layout`]: a stopped job's shards and checkpoints
//! - [`txn`]: the job's transactions, for a person on call
//! - [`crash`]: numbered crash points, for tests
//! - [`error`]: how a job ends when it does not end well

#[cfg(feature = "pipeline")]
pub mod assignment;
#[cfg(feature = "pipeline")]
pub mod batch;
pub mod cluster;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "pipeline")]
pub mod crash;
pub mod decider;
pub mod engine;
pub mod error;
#[cfg(feature = "pipeline")]
mod incident;
#[cfg(feature = "pipeline")]
pub mod job;
#[cfg(feature = "pipeline")]
mod journal;
mod lane;
#[cfg(feature = "pipeline")]
pub mod layout;
#[cfg_attr(not(feature = "pipeline"), allow(dead_code, reason = "most bounds are a pipeline's"))]
mod limits;
#[cfg(feature = "pipeline")]
pub mod operator;
#[cfg(feature = "pipeline")]
mod progress;
#[cfg(feature = "pipeline")]
mod run;
#[cfg(feature = "pipeline")]
pub mod sink;
#[cfg(feature = "pipeline")]
pub mod source;
#[cfg(feature = "pipeline")]
mod stop;
mod two_phase;
#[cfg(feature = "pipeline")]
pub mod txn;

#[cfg(feature = "pipeline")]
pub use batch::{Batch, RecordRef};
pub use engine::KafkaSink;
pub use error::{Code, JobError};
pub use hapax_commit::{Name, Strategy};
pub use hapax_host::Host;
pub use hapax_kafka::record::Compression;
#[cfg(feature = "pipeline")]
pub use job::{Job, Plan, Settings, SinkTopic};
pub use lane::ProducerSettings;
#[cfg(feature = "pipeline")]
pub use progress::{Progress, Summary};
#[cfg(feature = "pipeline")]
pub use run::{RunOptions, run};
#[cfg(feature = "pipeline")]
pub use sink::Guarantee;
#[cfg(feature = "pipeline")]
pub use stop::{StopSignal, Stopper};
