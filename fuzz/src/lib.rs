//! Fuzz targets over everything in Hapax that reads bytes of others.
//!
//! ```text
//!  seeds/<target>/*  ──► tests: every seed, in each run of the tests                    (stable, plain build)
//!                    ──► fuzz_targets/<target> + libFuzzer: seeds, mutated by coverage  (`cargo xtask fuzz`)
//!                                  └──► src/property/<target>.rs: the property, the same code for both
//! ```
//!
//! Coverage guidance needs nothing but the stable compiler: LLVM's own pass is asked for by flags (`cargo xtask fuzz` has
//! them). What needs a nightly one is left out, which is AddressSanitizer: memory errors of C code (zstd) show as
//! crashes only. The `unsafe` that this workspace forbids itself is in none of the code under test but its dependencies'.
//!
//! An input is plain bytes for targets that read bytes, and a script of small numbers ([`draw`](self)) for targets that
//! build something first; so seeds are what our encoders write, or can be written by hand. Memory is measured by a
//! counting allocator in every run: a few bytes that ask for gigabytes fail like a panic does.

mod draw;
mod memory;
pub mod property;

// The pipeline file is read by a binary, which has no library: these are its modules, compiled once more.
#[path = "../../crates/hapax-cli/src/config/mod.rs"]
#[allow(dead_code, reason = "the binary uses all of it")]
mod config;
#[path = "../../crates/hapax-cli/src/excerpt.rs"]
mod excerpt;
#[path = "../../crates/hapax-cli/src/topic.rs"]
mod topic;

use std::sync::{Mutex, PoisonError};

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of its module, its program and its folder of seeds.
    pub name: &'static str,
    run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 8] = [
    Target { name: "batch_in", run: property::batch_in::run },
    Target { name: "batch_out", run: property::batch_out::run },
    Target { name: "durable", run: property::durable::run },
    Target { name: "fetch", run: property::fetch::run },
    Target { name: "fetch_response", run: property::fetch_response::run },
    Target { name: "frame", run: property::frame::run },
    Target { name: "pipeline", run: property::pipeline::run },
    Target { name: "state_log", run: property::state_log::run },
];

/// Tests run side by side, and memory is counted for all of them together.
static ALONE: Mutex<()> = Mutex::new(());

impl Target {
    /// Shows that its property holds for an input.
    ///
    /// # Panics
    /// It does not.
    pub fn run(&self, input: &[u8]) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        (self.run)(input);
    }
}
