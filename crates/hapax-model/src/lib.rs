//! Evidence that the protocol does what it promises: nothing here is shipped.
//!
//! - [`check`]: the machines of `hapax-commit`, explored exhaustively against the broker's own
//! - [`sim`]: the whole stack on one thread, under a seed

pub mod check;
#[cfg(feature = "sim")]
pub mod sim;
