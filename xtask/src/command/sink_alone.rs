//! The crate `hapax` with nothing but the sink, as an engine uses it: what it brings, and that it builds so.
//!
//! The one place where cargo is asked for another choice of packages and features than the whole workspace: an engine
//! makes this choice, and nobody else would notice when it breaks.

use std::collections::BTreeSet;
use std::process::Stdio;

use super::test::{cargo, demand};
use crate::Failure;

/// Crates that an engine gets at most with the sink, itself included.
const MOST_CRATES: usize = 70;

/// What an engine that brings its own store and its own operators must not be made to build.
const UNWANTED: [&str; 5] = ["axum", "clap", "jaq-core", "object_store", "parquet"];

const CHOICE: [&str; 5] = ["--package", "hapax", "--no-default-features", "--features", "sink"];

pub(super) fn check() -> Result<(), Failure> {
    let crates = crates()?;
    println!("\nhapax with feature sink alone: {} crates, at most {MOST_CRATES}", crates.len());
    if let Some(unwanted) = UNWANTED.iter().find(|name| crates.iter().any(|krate| is(krate, name))) {
        return Err(Failure::Failed(format!("hapax with feature sink alone brings {unwanted}")));
    }
    if crates.len() > MOST_CRATES {
        return Err(Failure::Failed(format!(
            "hapax with feature sink alone brings {} crates: {crates:?}",
            crates.len()
        )));
    }
    let mut command = cargo(&["check", "--quiet"]);
    demand("the build of hapax with feature sink alone", command.args(CHOICE))
}

/// Names and versions of what a normal build needs.
fn crates() -> Result<BTreeSet<String>, Failure> {
    let mut command = cargo(&["tree", "--edges", "normal", "--prefix", "none"]);
    let output = command.args(CHOICE).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(Failure::Failed("cargo tree failed".to_owned()));
    }
    let tree = String::from_utf8_lossy(&output.stdout);
    let name = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    Ok(tree.lines().map(name).filter(|name| !name.is_empty()).collect())
}

fn is(krate: &str, name: &str) -> bool {
    krate.split(' ').next() == Some(name)
}
