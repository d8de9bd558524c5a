//! `cargo xtask`: the one entry for the scripts of this repository.
fn main() {}
