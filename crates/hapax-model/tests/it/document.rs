//! `docs/model.md` has the same worlds, promises and mistakes as the model.

#![expect(clippy::disallowed_methods, reason = "the files are this repository's own")]

use hapax_model::check::{Small, promise::PROMISES};
use std::{collections::BTreeMap, fs, path::Path};

/// Cells of the table under a heading, row by row, without its first two lines.
fn table(heading: &str) -> Vec<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/model.md");
    let text = fs::read_to_string(root).expect("the document is there");
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).expect("there is such a heading");
    let section = section.split("\n## ").next().expect("a split has a first part");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

fn first_cells(heading: &str) -> Vec<String> {
    table(heading).into_iter().map(|mut row| row.swap_remove(0)).collect()
}

/// Of each mistake that is caught so: what it does, and the world, or how many seeds.
fn mistakes(caught_by: &str) -> BTreeMap<String, (String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
    let patches = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let mistake = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).expect("a patch");
        let mut lines = text.lines().map(str::to_owned);
        let (what, by) =
            lines.next().zip(lines.next()).expect("a patch says what it does, and who catches it");
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("its name");
        Some((name.to_owned(), (what, by.strip_prefix(caught_by)?.to_owned())))
    };
    patches.filter_map(mistake).collect()
}

#[test]
fn the_document_has_every_promise() {
    assert_eq!(first_cells("What is promised"), PROMISES);
}

#[test]
fn the_document_has_every_world() {
    let worlds: Vec<_> = Small::named("").iter().map(|world| world.name().to_owned()).collect();
    assert_eq!(first_cells("The worlds"), worlds);
}

#[test]
fn the_document_has_every_mistake_with_its_world() {
    let told = table("The mistakes").into_iter().map(|row| {
        let [name, what, _, promise, world] = row.try_into().expect("five cells");
        assert!(PROMISES.contains(&promise.as_str()), "{name} breaks {promise}");
        (name, (what, world))
    });
    let planted = mistakes("world: ");
    assert_eq!(told.collect::<BTreeMap<_, _>>(), planted);
    for (name, (_, world)) in planted {
        assert!(Small::named(&world).len() == 1, "{name} names the world {world}");
    }
}

#[test]
fn the_document_has_every_mistake_that_is_the_simulators() {
    let told = table("Mistakes around the machines").into_iter().map(|row| {
        let [name, what, _, seeds] = row.try_into().expect("four cells");
        (name, (what, seeds))
    });
    assert_eq!(told.collect::<BTreeMap<_, _>>(), mistakes("seeds: "));
}

#[test]
fn every_promise_is_broken_by_a_mistake() {
    let mistakes = table("The mistakes");
    let guards = table("Which guard each promise has");
    assert_eq!(guards.iter().map(|row| row[0].clone()).collect::<Vec<_>>(), PROMISES);
    for row in guards {
        let breaks = |mistake: &Vec<String>| mistake[0] == row[1] && mistake[3] == row[0];
        assert!(mistakes.iter().any(breaks), "{} does not break {}", row[1], row[0]);
    }
}
