//! A broker for programs that block: it lives on a runtime of its own.

use hapax_broker::{Broker, ServerOptions, Settings};
use tokio::runtime::{Builder, Runtime};

/// A running broker. It ends when this is dropped.
pub(crate) struct Hosted {
    pub(crate) broker: Broker,
    _runtime: Runtime,
}

impl Hosted {
    pub(crate) fn start(settings: Settings) -> Self {
        let runtime = runtime();
        let broker = runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap();
        Self { broker, _runtime: runtime }
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.broker.bootstrap()
    }
}

/// A runtime that goes on while this thread blocks.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
