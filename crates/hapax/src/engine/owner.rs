//! Whether a run is still the one that may act.
//!
//! Kafka has no token that would refuse an older run: InitProducerId of whoever comes last takes an id, aborts what is
//! open under it, even if it is decided, and fences its owner. So the order of runs is the engine's to keep. It is asked
//! before each such request; what is left is the moment between the answer and the request. An older run that wakes in
//! that moment can cost a newer one a transaction, which the newer one finds aborted and must recover; its later puts
//! meet the engine's own fence, if it has one.

use futures::future::BoxFuture;

/// Why an owner could not say.
pub type OwnerError = Box<dyn std::error::Error + Send + Sync>;

/// A run of the engine.
///
/// A number is an owner that is believed without asking: right for an engine that never starts a run before the one
/// before has ended. An engine whose runs may overlap implements [`Owner::holds`] by a look into its store.
pub trait Owner: Send + Sync {
    /// The run's generation: a newer run has a higher one. It stands in messages, and a sink refuses a lower one than it
    /// has seen; the brokers do not know it.
    fn generation(&self) -> u64;

    /// Is there still no newer run? Asked also after the engine has stored something itself, which is no newer run.
    fn holds(&self) -> BoxFuture<'_, Result<bool, OwnerError>> {
        Box::pin(std::future::ready(Ok(true)))
    }
}

impl Owner for u64 {
    fn generation(&self) -> u64 {
        *self
    }
}
