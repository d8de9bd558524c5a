//! The whole stack under a seed.
