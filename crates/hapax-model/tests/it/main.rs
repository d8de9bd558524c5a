//! Integration tests of the evidence itself.

mod check;
