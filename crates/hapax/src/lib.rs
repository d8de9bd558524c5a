//! Moves records into Apache Kafka exactly once, and can show it.
//!
//! A [`Job`] names clusters, sources, operators and sinks; [`run::run`] runs its plan until it is done or stopped.
//!
//! ```no_run
//! use hapax::{Host, Job, KafkaSink, Name, RunOptions, source::KafkaSource};
//!
//! # async fn example() -> Result<(), hapax::JobError> {
//! let plan = Job::new("orders")
//!     .store("file:///var/lib/hapax/orders")
//!     .cluster("main", "kafka-1:9092,kafka-2:9092")?
//!     .source(KafkaSource::new(Name::new("main").expect("legal"), ["orders"]))
//!     .filter(|record| record.value.is_some_and(|value| value.len() > 100))
//!     .sink(KafkaSink::new("main", "orders-large"))
//!     .plan()?;
//! let summary = hapax::run(plan, Host::real(), RunOptions::default()).await?;
//! println!("{} records", summary.progress.records_out);
//! # Ok(())
//! # }
//! ```
//!
//! - [`batch`]: records on their way
//! - [`source`], [`operator`], [`sink`]: the parts of a pipeline, and the traits that others implement
//! - [`job`]: a job as its user writes it down, and the rules between its settings
//! - [`assignment`], [`decider`]: which shards share a decision, and what makes an epoch final
//! - [`run()`](fn@run): the life of a job in a process
//! - [`layout`]: a stopped job's shards and checkpoints
//! - [`txn`]: the job's transactions, for a person on call
//! - [`crash`]: numbered crash points, for tests
//! - [`error`]: how a job ends when it does not end well

pub mod assignment;
pub mod batch;
pub mod cluster;
pub mod crash;
pub mod decider;
pub mod error;
mod incident;
pub mod job;
mod journal;
pub mod layout;
mod limits;
pub mod operator;
mod progress;
mod run;
pub mod sink;
pub mod source;
mod stop;
pub mod txn;

pub use batch::{Batch, RecordRef};
pub use error::{Code, JobError};
pub use hapax_commit::{Name, Strategy};
pub use hapax_host::Host;
pub use hapax_kafka::record::Compression;
pub use job::{Job, KafkaSink, Plan, ProducerSettings, Settings};
pub use progress::{Progress, Summary};
pub use run::{RunOptions, run};
pub use sink::Guarantee;
pub use stop::{StopSignal, Stopper};
