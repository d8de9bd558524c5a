//! Integration tests of the evidence itself.

mod check;
mod document;
#[cfg(feature = "sim")]
mod sim;
