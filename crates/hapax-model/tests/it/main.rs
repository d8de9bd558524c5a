//! Integration tests of the evidence itself.

mod check;
#[cfg(feature = "sim")]
mod sim;
