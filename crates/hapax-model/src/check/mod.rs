//! Every interleaving of small worlds, with the machines that ship.
//!
//! - [`search`]: the checker
//! - `kafka`: the broker of a world
//! - [`world`]: what there is and what may happen
//! - [`worlds`]: the list of them
//! - [`carried`]: the same of decider `transaction`

pub mod carried;
mod kafka;
pub mod search;
pub mod world;
pub mod worlds;
