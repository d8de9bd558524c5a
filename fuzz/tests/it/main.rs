//! The seeds in every run of the tests, and that a fault would be found.
#![allow(clippy::disallowed_methods, reason = "seeds are files")]

use hapax_fuzz::TARGETS;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a folder of ours can be read").path()).collect();
    files.sort();
    files
}

/// Runs the seeds of a target; each is named before it runs, since a panic does not say which one it was.
fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("it is in the list");
    for seed in files(&root().join("seeds").join(name)) {
        println!("{}", seed.display());
        target.run(&fs::read(&seed).expect("a seed can be read"));
    }
    target.run(&[]);
}

#[test]
fn seeds_of_batch_in_hold() {
    replay("batch_in");
}

#[test]
fn seeds_of_batch_out_hold() {
    replay("batch_out");
}

#[test]
fn seeds_of_durable_hold() {
    replay("durable");
}

#[test]
fn seeds_of_fetch_hold() {
    replay("fetch");
}

#[test]
fn seeds_of_fetch_response_hold() {
    replay("fetch_response");
}

#[test]
fn seeds_of_frame_hold() {
    replay("frame");
}

#[test]
fn seeds_of_pipeline_hold() {
    replay("pipeline");
}

#[test]
fn seeds_of_state_log_hold() {
    replay("state_log");
}

#[test]
fn every_target_has_a_program_and_seeds() {
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let stems = |folder: &str| -> BTreeSet<String> {
        files(&root().join(folder))
            .iter()
            .map(|file| file.file_stem().unwrap().to_string_lossy().into_owned())
            .collect()
    };
    assert_eq!(stems("fuzz_targets"), names);
    assert_eq!(stems("seeds"), names);
    for name in names {
        assert!(files(&root().join("seeds").join(&name)).len() >= 5, "{name} has few seeds");
    }
}
