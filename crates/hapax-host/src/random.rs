//! Random numbers from one generator with one seed.

use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone)]
pub(crate) struct Random(Arc<Mutex<fastrand::Rng>>);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    #[allow(clippy::disallowed_methods, reason = "this module is the randomness of the seam")]
    pub(crate) fn from_system() -> Self {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).expect("an operating system without randomness cannot name a run");
        Self::seeded(u64::from_ne_bytes(seed))
    }

    pub(crate) fn next_u64(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u64(..)
    }

    pub(crate) fn fraction(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}
