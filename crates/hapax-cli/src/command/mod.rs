//! What the binary does.

mod broker;
mod job;
mod progress;
mod run;
mod side;
mod signals;
mod txn;
mod verify;

pub(crate) use broker::broker;
pub(crate) use job::{change, checkpoints};
pub(crate) use progress::grouped;
pub(crate) use run::run;
pub(crate) use signals::{Signals, parent_gone};
pub(crate) use txn::transactions;
pub(crate) use verify::verify;
