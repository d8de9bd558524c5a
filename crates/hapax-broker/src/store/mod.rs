//! A checkpoint store that fails as it is told: another store behind it, and a script for the next puts.
//!
//! Owns: what a put answers and whether it is applied, the two being independent, as on a network. Refuses: to fail by
//! itself; what is not scripted goes through.
//!
//! ```text
//! put -> selected? -> next of the script, or the standing outcome -> inner store: now, later, or never -> answer
//! ```

mod faulty;

pub use faulty::{FaultyStore, Outcome};
