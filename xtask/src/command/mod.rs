//! The commands: one module each, with a function `run` that takes the rest of the command line.

pub(crate) mod conformance;
pub(crate) mod demo;
pub(crate) mod fuzz;
pub(crate) mod kafka;
mod matrix;
pub(crate) mod model;
mod program;
pub(crate) mod proof;
pub(crate) mod sim;
mod sink_alone;
pub(crate) mod soak;
pub(crate) mod test;
pub(crate) mod timely;
