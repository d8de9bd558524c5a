//! The evidence itself under test.

mod sim;
