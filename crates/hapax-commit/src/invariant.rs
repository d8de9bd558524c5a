//! What an invariant function answers.
//!
//! Product, tests and model call the same functions (`check()` of each machine); a broken invariant is a bug of
//! this crate, never the broker's or the user's fault.

use core::fmt;

/// The invariant that does not hold, as a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Broken(pub &'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant broken: {}", self.0)
    }
}

impl core::error::Error for Broken {}

/// `Err` with the sentence unless the condition holds.
pub(crate) fn holds(condition: bool, sentence: &'static str) -> Result<(), Broken> {
    if condition { Ok(()) } else { Err(Broken(sentence)) }
}
