//! What the binary does.

mod progress;
mod run;
mod side;
mod verify;

pub(crate) use run::run;
pub(crate) use verify::verify;
