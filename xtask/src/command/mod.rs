//! The commands: one module each, with a function `run` that takes the rest of the command line.

pub(crate) mod kafka;
pub(crate) mod test;
