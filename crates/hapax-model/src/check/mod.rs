//! Every interleaving of small worlds, with the machines that ship.
//!
//! - [`search`]: the checker
//! - `kafka`: the broker of a world
//! - [`promise`]: what every world promises
//! - [`world`]: what there is and what may happen
//! - [`worlds`]: the list of them
//! - [`carried`]: the same of decider `transaction`

pub mod carried;
mod kafka;
pub mod promise;
pub mod search;
pub mod world;
pub mod worlds;

use search::{Found, explore};

/// A world of either decider.
#[derive(Clone, Debug)]
pub enum Small {
    /// Of decider `checkpoint`, with a chain.
    Chain(world::Config),
    /// Of decider `transaction`.
    Carried(carried::Config),
}

impl Small {
    /// The one of this name, or else all whose names contain it.
    pub fn named(name: &str) -> Vec<Self> {
        let chain = worlds::all().into_iter().map(Self::Chain);
        let mut all: Vec<Self> = chain.chain(carried::all().into_iter().map(Self::Carried)).collect();
        let is_exact = all.iter().any(|world| world.name() == name);
        all.retain(|world| if is_exact { world.name() == name } else { world.name().contains(name) });
        all
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Chain(config) => config.name,
            Self::Carried(config) => config.name,
        }
    }

    /// What has to happen on some way through it.
    pub fn reaches(&self) -> &'static [&'static str] {
        match self {
            Self::Chain(config) => config.reaches,
            Self::Carried(config) => config.reaches,
        }
    }

    /// Explores it, up to a number of states.
    pub fn explore(&self, most_states: usize) -> Found {
        match self {
            Self::Chain(config) => explore(world::World::new(config.clone()), most_states),
            Self::Carried(config) => explore(carried::World::new(config.clone()), most_states),
        }
    }
}
