//! docs/interleavings.md is true to the tests: each number has its entry, and what an entry names is there.
//!
//! Owns how the page is read: `### H1. ` begins an entry; in backticks, `crate: module::test` is a test and a path that ends
//! with `.rs` a file below `crates/`. Refuses to judge whether a test shows what its entry says: that is for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const NUMBERS: std::ops::RangeInclusive<u32> = 1..=43;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/interleavings.md")).unwrap()
}

/// Number and text of each entry, in the page's order.
fn entries(page: &str) -> Vec<(u32, &str)> {
    let entry = |text: &'_ str| text.split_once(". ").and_then(|(number, _)| number.parse().ok());
    page.split("\n### H").skip(1).map(|text| (entry(text).expect("### Hn. title"), text)).collect()
}

fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Crate and path of each test that a text names.
fn named_tests(text: &str) -> impl Iterator<Item = (&str, &str)> {
    in_backticks(text)
        .filter_map(|name| name.split_once(": "))
        .filter(|(owner, _)| owner.starts_with("hapax"))
}

fn named_files(text: &str) -> impl Iterator<Item = &str> {
    in_backticks(text).filter(|name| name.starts_with("hapax") && name.ends_with(".rs"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The module of a file, as the test runner prints it: below `src`, or below the folder of a test binary.
fn module(file: &Path, crate_folder: &Path) -> Vec<String> {
    let inside = file.strip_prefix(crate_folder).unwrap().with_extension("");
    let mut parts: Vec<String> =
        inside.iter().map(|part| part.to_str().expect("our files have plain names").to_owned()).collect();
    parts.drain(..if parts[0] == "tests" { 2 } else { 1 });
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Names of the tests in a source text, each with whether it is in a module inside of the file, which we call `tests`.
fn tests_in(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        is_test |= trimmed.starts_with("#[test]") || trimmed.starts_with("#[tokio::test");
        if let Some((_, behind)) = line.split_once("fn ").filter(|_| is_test) {
            let name = behind.split(['(', '<']).next().expect("a split has a first part");
            found.push((name.to_owned(), line.starts_with(' ')));
            is_test = false;
        }
    }
    found
}

/// Every test of a crate, by its path.
fn tests_of(owner: &str) -> BTreeSet<String> {
    let folder = root().join("crates").join(owner);
    let folders = ["src", "tests"].map(|part| folder.join(part));
    let files = folders.iter().filter(|part| part.is_dir()).flat_map(|part| sources(part));
    let mut found = BTreeSet::new();
    for file in files {
        let module = module(&file, &folder);
        for (name, is_inside) in tests_in(&fs::read_to_string(&file).unwrap()) {
            let inside = is_inside.then(|| "tests".to_owned());
            let path: Vec<String> = module.iter().cloned().chain(inside).chain([name]).collect();
            found.insert(path.join("::"));
        }
    }
    found
}

#[test]
fn each_number_has_one_entry_with_a_rule_and_what_shows_it() {
    let page = page();
    let entries = entries(&page);
    let numbers: Vec<u32> = entries.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, NUMBERS.collect::<Vec<_>>());
    for (number, text) in entries {
        assert!(text.contains("*Rule:*") || text.contains("*Not there:*"), "H{number} has no rule");
        assert!(named_files(text).next().is_some(), "H{number} has no place in the code");
        let shown = named_tests(text).next().is_some();
        assert!(
            shown || text.contains("*Not shown:*"),
            "H{number} says neither what shows it nor that nothing does"
        );
        assert_eq!(shown, text.contains("*Shown by:*"), "H{number}");
    }
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let page = page();
    let mut tests: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut missing = Vec::new();
    let mut count = 0;
    for (owner, path) in named_tests(&page) {
        count += 1;
        if !tests.entry(owner).or_insert_with(|| tests_of(owner)).contains(path) {
            missing.push(format!("{owner}: {path}"));
        }
    }
    assert!(count >= NUMBERS.count(), "only {count} tests are found on the page");
    assert!(missing.is_empty(), "named by docs/interleavings.md, and not there:\n{}", missing.join("\n"));
}

#[test]
fn every_file_that_the_page_names_is_there() {
    let page = page();
    let missing: Vec<&str> =
        named_files(&page).filter(|file| !root().join("crates").join(file).is_file()).collect();
    assert_eq!(missing, [""; 0]);
}
