//! Pages that name tests and files are true to the sources: what an entry names is there.
//!
//! Owns how such a page is read: `### H1. ` begins an entry (`G1.`, `N1.` on another page); in backticks, `crate: module::test`
//! is a test, as the test runner prints it, and a path that begins with a crate of ours and ends with `.rs` a file below
//! `crates/`. Refuses to judge whether a test shows what its entry says: that is for people.

mod guarantee;
mod interleaving;
mod protocol;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// An entry of a page.
#[derive(Debug)]
struct Entry<'a> {
    /// `H1`.
    id: &'a str,
    text: &'a str,
}

/// The entries whose ids begin with a letter, in the page's order.
fn entries<'a>(page: &'a str, letter: char) -> Vec<Entry<'a>> {
    let begins = |text: &&str| text.starts_with(letter);
    let entry = |text: &'a str| {
        let (id, _) = text.split_once(". ").expect("### Xn. title");
        // What follows the last entry of a section is no part of it.
        Entry { id, text: text.split("\n## ").next().expect("a split has a first part") }
    };
    page.split("\n### ").skip(1).filter(begins).map(entry).collect()
}

/// Ids count from 1, none left out and none twice.
fn assert_numbered(entries: &[Entry<'_>], letter: char) {
    let found: Vec<&str> = entries.iter().map(|entry| entry.id).collect();
    let wanted: Vec<String> = (1..=entries.len()).map(|number| format!("{letter}{number}")).collect();
    assert_eq!(found, wanted);
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

/// What a text names and nobody has.
fn missing(text: &str) -> Vec<String> {
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut missing = Vec::new();
    for (owner, path) in named_tests(text) {
        if !known.entry(owner).or_insert_with(|| tests_of(owner)).contains(path) {
            missing.push(format!("{owner}: {path}"));
        }
    }
    let files = named_files(text).filter(|file| !root().join("crates").join(file).is_file());
    missing.extend(files.map(str::to_owned));
    missing
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
fn everything_that_a_page_names_is_there() {
    for name in [guarantee::PAGE, interleaving::PAGE, protocol::PAGE] {
        let missing = missing(&page(name));
        assert!(missing.is_empty(), "named by {name}, and not there:\n{}", missing.join("\n"));
    }
}

#[test]
fn a_test_or_a_file_that_is_not_there_is_told() {
    let there = "`hapax-cli: page::everything_that_a_page_names_is_there`, `hapax-cli/tests/it/page/mod.rs`";
    assert_eq!(missing(there), [""; 0]);
    let renamed = "`hapax-cli: page::everything_that_a_page_named_was_there`";
    // A function that is no test, and a crate that is none of ours.
    let others = "`hapax-cli: page::missing`, `hapax-none: it::is`, `hapax-cli/tests/it/pages.rs`";
    let told = missing(&format!("{there} and {renamed} and {others}"));
    assert_eq!(
        told,
        [
            "hapax-cli: page::everything_that_a_page_named_was_there",
            "hapax-cli: page::missing",
            "hapax-none: it::is",
            "hapax-cli/tests/it/pages.rs",
        ]
    );
}

#[test]
fn an_entry_ends_where_the_next_one_or_another_section_begins() {
    let page = "# Page\n\n### G1. One\n\nfirst\n\n### G2. Two\n\nsecond\n\n## More\n\nnobody's\n\n### N1. Not\n\nthird\n";
    let found = entries(page, 'G');
    assert_numbered(&found, 'G');
    assert_eq!(found.len(), 2);
    assert!(found[0].text.contains("first") && !found[0].text.contains("second"));
    assert!(found[1].text.contains("second") && !found[1].text.contains("nobody's"));
    assert_eq!(entries(page, 'N')[0].id, "N1");
}
